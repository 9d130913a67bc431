//! What a model is asked beside the conversation: for a plan, how far it has come, and not to repeat itself. It stands in one
//! request, and never in the history. Pure.

use super::Run;
use super::budget;
use super::loop_guard::{Finding, LoopGuard};
use crate::types::report::CallReport;
use crate::types::rules::{LoopFinding, LoopRule};

impl Run {
    /// What the next model call asks beside the conversation, in this order: behind all results, so that none is between a
    /// call and its result. What the model's context window has no room for is left out.
    #[must_use]
    pub fn prompts(&self) -> Vec<String> {
        if !self.may_prompt() {
            return Vec::new();
        }
        let mut room = self.room_for_prompts();
        let rules = &self.spec.rules;
        let plan = rules.planning.as_ref().filter(|_| self.iterations == 0);
        let reflection = rules.reflection.as_ref().filter(|_| self.prompts.is_reflecting || self.reflects());
        let repeats = self.finding().map(|_| self.loop_note());
        let all =
            plan.cloned().into_iter().chain(reflection.map(|reflection| reflection.prompt.clone())).chain(repeats);
        all.filter(|text| {
            let left = room.checked_sub(budget::estimate(text.len()));
            room = left.unwrap_or(room);
            left.is_some()
        })
        .collect()
    }

    /// Whether there may be anything to ask.
    fn may_prompt(&self) -> bool {
        let rules = &self.spec.rules;
        rules.planning.is_some() || rules.reflection.is_some() || self.finding().is_some()
    }

    /// How many tokens the model's context window has beside the conversation.
    fn room_for_prompts(&self) -> u64 {
        self.terms().context_window.saturating_sub(self.context.tokens())
    }

    /// Whether enough tool calls were made since the model was asked how far it has come.
    pub(super) fn reflects(&self) -> bool {
        let fits = |text: &str| budget::estimate(text.len()) <= self.room_for_prompts();
        let due = self.spec.rules.reflection.as_ref().filter(|reflection| self.prompts.calls >= reflection.every);
        due.is_some_and(|reflection| fits(&reflection.prompt))
    }

    /// What is to be said of its newest turns with calls.
    fn finding(&self) -> Option<Finding> {
        self.loop_guard.as_ref().and_then(LoopGuard::finding)
    }

    /// Compares the turn whose calls are answered with those before.
    pub(super) fn guard_loop(&mut self) {
        let rules = &self.spec.rules.loop_guard;
        if rules.is_on() && !self.calls.is_empty() {
            self.loop_guard.get_or_insert_default().end_turn(rules, &self.calls);
        }
    }

    /// The log tells that it repeats itself.
    pub(super) fn note_finding(&mut self) {
        if let Some(guard) = &mut self.loop_guard {
            guard.note_report();
        }
    }

    /// That the run repeats itself, if the log does not tell it yet.
    pub(super) fn due_finding(&self) -> Option<LoopFinding> {
        let found = self.finding().filter(|found| !found.is_reported)?;
        let (rule, repeats, stops) = (found.rule, found.repeats, found.stops);
        Some(LoopFinding { step: self.step, rule, repeats, tools: self.repeated_tools(found.cycle), stops })
    }

    /// Whether it is to stop because it repeats itself.
    pub(super) fn is_looping(&self) -> bool {
        self.finding().is_some_and(|found| found.stops)
    }

    /// The tools of the newest turns with calls that count, each once, in their order.
    fn repeated_tools(&self, cycle: u32) -> Vec<String> {
        let rules = &self.spec.rules.loop_guard;
        let counted = |call: &&CallReport| !rules.ignores(&call.name);
        let turns = self.report.steps.iter().rev().filter(|step| step.tool_calls.iter().any(|call| counted(&call)));
        let mut tools: Vec<String> = Vec::new();
        for call in turns.take(cycle as usize).flat_map(|step| step.tool_calls.iter().rev().filter(counted)) {
            if !tools.contains(&call.name) {
                tools.push(call.name.clone());
            }
        }
        tools.reverse();
        tools
    }

    /// What a model is told that repeats itself.
    fn loop_note(&self) -> String {
        let Some(found) = self.finding() else { return String::new() };
        let tools: Vec<_> = self.repeated_tools(found.cycle).iter().map(|tool| format!("`{tool}`")).collect();
        let (tools, repeats) = (tools.join(", "), found.repeats);
        let what = match found.rule {
            LoopRule::SameCalls => format!("The same calls of {tools} have now had the same results {repeats} times."),
            LoopRule::SameResults => {
                format!("The last {repeats} calls of {tools} have had the same result, whatever their arguments were.")
            }
        };
        format!(
            "{what} More of them will bring nothing new. Try something else, or answer by what is known. If this goes on, the run is stopped."
        )
    }

    /// Estimated input tokens of the next model call.
    #[must_use]
    pub fn next_input(&self) -> u64 {
        let added: usize = self.prompts().iter().map(String::len).sum();
        self.context.tokens().saturating_add(budget::estimate(added))
    }
}
