//! Whatever happens in a run, in whichever order: every call has one result, limits hold, and the run comes to an end.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::types::approval::{Approval, ApprovalDecision, ApprovalRequest};
use crate::types::pending::PendingCall;
use crate::types::rules::{Reflection, ToolErrors};
use crate::types::tool::CallEnding;

/// Most calls of the server's tools in the runs that are made up here.
const MOST_CALLS: u32 = 7;

fn bounded() -> RunSpec {
    let mut spec = spec();
    spec.client_tools = vec![client_tool("ask")];
    spec.own_tools = vec![client_tool("recall")];
    spec.policy = Some(Arc::default());
    spec.limits.max_tool_calls = Some(MOST_CALLS);
    spec.rules = Arc::new(LoopRules {
        tool_errors: ToolErrors { ends_run: vec!["pay".into()], ..ToolErrors::default() },
        planning: Some("Plan.".into()),
        reflection: Some(Reflection { every: 2, prompt: "How far?".into() }),
        ..LoopRules::default()
    });
    spec
}

/// A driver that does what the machine wants; what comes of that is chosen at random.
struct Chance {
    story: Story,
    choices: std::vec::IntoIter<u8>,
    commands: u64,
    legs: u32,
}

impl Chance {
    /// The next choice; once all are made, the one after which the run goes on at best.
    fn choice(&mut self) -> u8 {
        self.choices.next().unwrap_or(0)
    }

    /// What comes from outside between two steps of the driver, or a crash. Whether the driver died just now: the next one asks
    /// what to do.
    fn is_disturbed(&mut self) -> bool {
        let is_under_way = self.story.run.status() == RunStatus::InProgress;
        match self.choice() {
            1 => self.story.happens(Event::stop(StopReason::Cancelled)),
            2 => self.story.happens(Event::StopAfterStep),
            3 => self.story.happens(Event::stop(StopReason::Timeout)),
            4 | 5 if is_under_way => {
                self.story.happens(Event::RunResumed { leg: None });
                return true;
            }
            6 => {
                self.commands += 1;
                let messages = vec![Message::text(Role::User, "and this?")];
                self.story.happens(Event::CommandsApplied { upto: self.commands, messages });
            }
            _ => {}
        }
        false
    }

    /// Whether the driver goes on.
    fn goes_on(&mut self) -> bool {
        match self.story.run.next_step() {
            Step::Done if self.story.run.status() == RunStatus::RequiresAction => self.is_answered(),
            Step::Done => return false,
            Step::CallModel { step, reserve, closing } => self.model_speaks(step, reserve, closing),
            Step::DiscardStep(reason) => {
                let (step, usage) = (self.story.run.step(), Usage::default());
                self.story.happens(Event::StepDiscarded { step, reason, usage, unconfirmed: Used::default() });
            }
            Step::JudgeCalls(calls) => calls.iter().for_each(|call| self.is_judged(call)),
            Step::RunTools(calls) => self.is_called(&calls),
            Step::AnswerCall(call) => self.is_called(&[call]),
            Step::SettleUnknown(calls) => calls.iter().for_each(|call| self.ends(call, ToolOutcome::lost("?"))),
            Step::SkipTools(calls) | Step::CutCalls(calls) => {
                for call in &calls {
                    self.ends(call, ToolOutcome::skipped("no"));
                }
            }
            Step::AwaitServices if self.choice() == 1 => self.is_answered_later(),
            Step::AwaitServices => {
                let outcome = self.story.run.outcome(StopReason::ToolPending, 100);
                self.story.happens(Event::RunFinished(Box::new(outcome)));
            }
            Step::SettleAnswer(call, outcome) => self.finishes(&call, *outcome),
            Step::CompleteStep => self.story.completes_step(),
            Step::Plan(text) => self.story.happens(Event::PlanCreated { step: self.story.run.step() + 1, text }),
            Step::Reflect(text) => {
                self.story.happens(Event::ReflectionStarted { step: self.story.run.step() + 1, text });
            }
            Step::ReportLoop(finding) => self.story.happens(Event::LoopGuardTriggered(Box::new(finding))),
            Step::Finish(reason) => {
                let outcome = self.story.run.outcome(reason, 100);
                self.story.happens(Event::RunFinished(Box::new(outcome)));
            }
            Step::FallBack
            | Step::Fit(_)
            | Step::DropCompaction(_)
            | Step::Flush
            | Step::DropJudging(_)
            | Step::WarnBudget { .. }
            | Step::AskStartHooks
            | Step::Conduct(_)
            | Step::Stop(..)
            | Step::TellGuarded(_) => {
                panic!("the run has one model, no budget, no hooks and no guards")
            }
        }
        true
    }

    fn model_speaks(&mut self, step: u32, reserved: Reservation, closing: Option<StopReason>) {
        paired(self.story.run.messages());
        let model = self.story.run.unnamed_model().cloned();
        self.story.happens(Event::StepStarted { step, reserved, model, closing });
        if self.is_disturbed() || self.choice() == 1 {
            return;
        }
        let calls = if closing.is_some() { 0 } else { self.choice() % 5 };
        let mut parts = vec![Part::text("so")];
        for number in 1..=u16::from(calls) {
            let name = ["echo", "pay", "ask", "recall"][usize::from(self.choice() % 4)];
            let id = self.story.run.calls_minted() + number;
            parts.push(PartKind::ToolCall(call(id, name)).into());
        }
        let end = if calls == 0 { TurnEnd::Stop } else { TurnEnd::ToolCalls };
        let turn = Turn { parts, end, usage: usage(1, 1), ..Turn::default() };
        self.story.happens(Event::TurnFinished { step, turn: Box::new(turn) });
    }

    fn is_judged(&mut self, call: &ToolCall) {
        match self.choice() {
            1 | 2 => {
                let (step, reason) = (self.story.run.step(), "The policy asks.".to_owned());
                let request = ApprovalRequest { step, call: call.clone(), reason, expires_ms: 0 };
                self.story.happens(Event::ApprovalRequired(Box::new(request)));
            }
            3 => self.ends(call, ToolOutcome::skipped("The policy denies it.")),
            _ => self.story.happens(Event::CallAllowed { call_id: call.id.clone(), arguments: None }),
        }
    }

    /// Calls are made, each of which may be cut off by a crash.
    fn is_called(&mut self, calls: &[ToolCall]) {
        for call in calls {
            let effect = if call.name == "pay" { Effect::Write } else { Effect::Read };
            if self.story.run.started(&call.id).is_none() {
                self.story.happens(Event::ToolStarted { step: self.story.run.step(), call: call.clone(), effect });
            }
            if self.is_disturbed() {
                return;
            }
            let outcome = match self.choice() {
                3 if call.name != "recall" => {
                    let (step, call_id, name) = (self.story.run.step(), call.id.clone(), call.name.clone());
                    let pending = PendingCall { step, call_id, name, began_ms: 0, expires_ms: 0 };
                    self.story.happens(Event::ToolPending(Box::new(pending)));
                    continue;
                }
                1 => ToolOutcome::failed("no"),
                2 if effect == Effect::Write => ToolOutcome::lost("?"),
                _ => ToolOutcome { parts: vec![Part::text("result")], ..ToolOutcome::default() },
            };
            self.finishes(call, outcome);
        }
    }

    /// A service answers a call that it had accepted, or is given up.
    fn is_answered_later(&mut self) {
        let Some(call_id) = self.story.run.pending_calls().next().map(|pending| pending.call_id.clone()) else {
            return;
        };
        let lost = self.choice() == 1;
        let told = ToolOutcome { parts: vec![Part::text("late")], ..ToolOutcome::default() };
        let outcome = Box::new(if lost { ToolOutcome::lost("?") } else { told });
        self.story.happens(Event::ToolAnswered { call_id, outcome });
    }

    fn ends(&mut self, call: &ToolCall, outcome: ToolOutcome) {
        if self.story.run.awaits_answer(&call.id).is_none() {
            let effect = Effect::Read;
            self.story.happens(Event::ToolStarted { step: self.story.run.step(), call: call.clone(), effect });
        }
        self.finishes(call, outcome);
    }

    fn finishes(&mut self, call: &ToolCall, outcome: ToolOutcome) {
        let (step, name) = (self.story.run.step(), call.name.clone());
        self.story.happens(Event::ToolFinished { step, call_id: call.id.clone(), name, outcome });
    }

    /// The client answers what it is asked, or cancels.
    fn is_answered(&mut self) {
        if self.choice() == 1 {
            return self.story.happens(Event::stop(StopReason::Cancelled));
        }
        if self.story.run.pending_calls().next().is_some() {
            self.story.happens(Event::RunResumed { leg: None });
            if self.choice() != 1 {
                self.is_answered_later();
            }
            return;
        }
        self.legs += 1;
        let asked: Vec<_> = self.story.run.approval_requests().cloned().collect();
        for ApprovalRequest { step, call, .. } in &asked {
            let decision = if self.choice() == 1 { ApprovalDecision::Deny } else { ApprovalDecision::Approve };
            let (call_id, name) = (call.id.clone(), call.name.clone());
            let (by, user, claim, reason, arguments, result) = (None, None, None, None, None, None);
            let approval = Approval {
                step: *step,
                call_id,
                name,
                decision,
                by,
                user,
                claim,
                reason,
                arguments,
                result,
                awaits_others: false,
            };
            self.story.happens(Event::ApprovalResolved(Box::new(approval)));
        }
        if !asked.is_empty() {
            let leg = Leg { number: self.legs, ..leg(Vec::new(), Vec::new()) };
            return self.story.happens(Event::RunResumed { leg: Some(leg) });
        }
        let required = self.story.run.required_calls();
        let answers = required.iter().map(|required| Message::tool(&required.call.id, "yes")).collect();
        let leg = Leg { number: self.legs, ..leg(answers, Vec::new()) };
        self.story.happens(Event::RunResumed { leg: Some(leg) });
    }
}

/// Every call of an assistant message has exactly one result before the next message of another kind.
fn paired(messages: &[Message]) {
    let mut open: Vec<CallId> = Vec::new();
    for message in messages {
        let parts = crate::llm::openai::messages::parts(message).unwrap();
        if message.role == Role::Tool {
            for result in parts.list.iter().filter_map(Part::as_result) {
                let place = open.iter().position(|open| *open == result.call).expect("a result without its call");
                open.remove(place);
            }
        } else {
            assert!(open.is_empty(), "calls without results before {message:?}");
            open = parts.list.iter().filter_map(Part::as_call).map(|call| call.id.clone()).collect();
        }
    }
    assert!(open.is_empty(), "calls without results at the end");
}

proptest! {
    #[test]
    fn whatever_happens_every_call_has_one_result_and_the_run_comes_to_an_end(choices in vec(0_u8..12, 0..120)) {
        let story = Story::begin(bounded());
        let mut chance = Chance { story, choices: choices.into_iter(), commands: 0, legs: 0 };
        let mut steps = 0;
        chance.is_disturbed();
        while chance.goes_on() {
            chance.is_disturbed();
            steps += 1;
            prop_assert!(steps < 2_000, "it goes on for ever");
        }
        let Story { run, records, .. } = chance.story;
        prop_assert!(run.status().is_final());
        paired(run.messages());
        let mut made = BTreeMap::new();
        for record in &records {
            if let Event::ToolFinished { call_id, outcome, .. } = &record.event {
                *made.entry(call_id.clone()).or_insert(0) += u32::from(outcome.ending != CallEnding::Skipped);
            }
        }
        prop_assert!(made.values().all(|results| *results <= 1), "a call has two results: {made:?}");
        prop_assert!(made.values().sum::<u32>() <= MOST_CALLS);
        // A process that reads the log, cut anywhere, is told to do what the driver was told.
        let mut live = Run::new(run.spec().clone());
        let mut read = live.clone();
        for record in &records {
            live.apply(record);
            read.apply(&serde_json::from_str(&serde_json::to_string(record).unwrap()).unwrap());
            prop_assert_eq!((live.next_step(), live.prompts()), (read.next_step(), read.prompts()));
        }
    }
}
