//! Tells of the runs to which a run delegates. The indentation of a line says how many runs are above, and its first word is the
//! agent's name.

use super::event::{AgentMember, Event, MOST_SHOWN};
use super::own::{Detail, Own, Told};
use crate::cli::text::line;

/// Those that were told of.
#[derive(Debug, Default)]
pub(super) struct Below {
    runs: Vec<Other>,
    /// Whether the run above waits for them.
    waits: bool,
}

#[derive(Debug)]
struct Other {
    run: String,
    /// Its agent, with a number behind the first of that name; its own id, if its begin was not told.
    name: String,
    depth: u32,
    /// The call that began it.
    call: String,
    has_ended: bool,
    /// The line of its text that has not ended yet.
    text: String,
    own: Option<Own>,
}

impl Other {
    /// What happens in it, on one line.
    fn note(&self, what: &str) -> Told {
        // The depth is what a server says.
        let indent = usize::try_from(self.depth.min(16)).unwrap_or_default();
        Told::Note(format!("{:width$}{}{what}", "", self.name, width = 2 * indent))
    }

    /// A line that it said.
    fn said(&self, text: &str) -> Option<Told> {
        let text = line(text, MOST_SHOWN);
        (!text.is_empty()).then(|| self.note(&format!(": {text}")))
    }

    /// What is left of its text.
    fn rest(&mut self) -> Option<Told> {
        let rest = std::mem::take(&mut self.text);
        self.said(&rest)
    }

    fn tell(&mut self, event: &Event, detail: Detail) -> Vec<Told> {
        let own = self.own.get_or_insert_with(|| Own::new(detail));
        let mut told = Vec::new();
        for one in own.tell(event) {
            match one {
                // Its answer is told as the result of the call that began it.
                Told::Text(_) if detail == Detail::Answer => {}
                Told::Text(text) => {
                    self.text.push_str(&text);
                    while let Some((ended, rest)) = self.text.split_once('\n') {
                        told.extend(self.said(ended));
                        self.text = rest.to_owned();
                    }
                }
                Told::Note(note) => {
                    told.extend(self.rest());
                    told.push(self.note(&format!(" {note}")));
                }
                // The run above tells how it ended.
                Told::End { .. } => told.extend(self.rest()),
            }
        }
        told
    }
}

impl Below {
    /// What is to be shown of an event of a run below; `outer` names the run.
    pub(super) fn tell(&mut self, outer: &Event, event: &Event, detail: Detail) -> Vec<Told> {
        // The run above has told that it begins, and those below it that it waits.
        let is_known = matches!(event.r#type.as_str(), "run.started" | "run.resumed") || self.is_pending(event);
        if is_known {
            return Vec::new();
        }
        if let Some(notes) = self.changes(event) {
            return notes;
        }
        self.other(&outer.run_id, outer.depth).tell(event, detail)
    }

    /// Whether an event says nothing but that the run waits for those below it, or goes on after that: they tell what happens.
    pub(super) fn is_waited_for(&mut self, event: &Event) -> bool {
        if event.r#type == "run.resumed" {
            return std::mem::take(&mut self.waits);
        }
        let is_live = self.runs.iter().any(|other| !other.has_ended);
        let waits = matches!(&event.agent, Some(AgentMember::Ending(ending)) if ending.stop_reason == "tool_pending");
        self.waits |= waits && is_live;
        waits && is_live || self.is_pending(event)
    }

    /// Whether it says that the call has begun by which a run below did.
    fn is_pending(&self, event: &Event) -> bool {
        event.r#type == "tool.pending" && self.runs.iter().any(|other| other.call == event.call_id)
    }

    /// What is to be shown of an event that says that a run below begins or has ended; `None` if it is another one.
    pub(super) fn changes(&mut self, event: &Event) -> Option<Vec<Told>> {
        match event.r#type.as_str() {
            "delegate.started" => Some(vec![self.begins(event)]),
            "delegate.completed" => Some(self.ends(event)),
            _ => None,
        }
    }

    fn begins(&mut self, event: &Event) -> Told {
        let agent = match &event.agent {
            Some(AgentMember::Name(agent)) => line(agent, MOST_SHOWN),
            Some(AgentMember::Ending(_)) | None => String::new(),
        };
        let numbered = format!("{agent}#");
        let before = self.runs.iter().filter(|other| other.name == agent || other.name.starts_with(&numbered)).count();
        let name = if before == 0 { agent } else { format!("{numbered}{}", before + 1) };
        let other = self.other(&event.run_id, event.depth);
        other.name = name;
        other.call.clone_from(&event.call_id);
        other.note(&format!(" begins, {}", line(&event.run_id, MOST_SHOWN)))
    }

    fn ends(&mut self, event: &Event) -> Vec<Told> {
        let other = self.other(&event.run_id, 1);
        let rest = other.rest();
        other.has_ended = true;
        let reason = event.stop_reason.as_ref().map_or("it did not begin", |reason| reason);
        let mut what = format!(": {} ({})", line(&event.status, MOST_SHOWN), line(reason, MOST_SHOWN));
        if let Some(tree) = event.tree.as_ref().filter(|_| event.stop_reason.is_some()) {
            what = format!("{what}, {tree}");
        }
        rest.into_iter().chain([other.note(&what)]).collect()
    }

    /// The run of this id.
    fn other(&mut self, run: &str, depth: u32) -> &mut Other {
        let at = self.runs.iter().position(|other| other.run == run).unwrap_or_else(|| {
            let name = line(run, MOST_SHOWN);
            let (run, call, text) = (run.to_owned(), String::new(), String::new());
            self.runs.push(Other { run, name, depth, call, has_ended: false, text, own: None });
            self.runs.len() - 1
        });
        &mut self.runs[at]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::story::Story;

    fn notes(story: &mut Story, event: &Value) -> Vec<String> {
        let told = story.tell(&serde_json::from_value(event.clone()).unwrap());
        let notes = told.into_iter().map(|told| match told {
            Told::Note(note) => note,
            Told::Text(_) | Told::End { .. } => panic!("it is no part of the answer: {told:?}"),
        });
        notes.collect()
    }

    fn started(run: &str, agent: &str, depth: u32) -> Value {
        json!({"type": "delegate.started", "run_id": run, "agent": agent, "depth": depth})
    }

    fn inside(run: &str, depth: u32, event: &Value) -> Value {
        json!({"type": "delegate.event", "run_id": run, "depth": depth, "event": event})
    }

    fn says(text: &str) -> Value {
        json!({"choices": [{"delta": {"content": text}}]})
    }

    #[test]
    fn lines_of_runs_below_say_whose_they_are_and_how_deep() {
        let mut story = Story::new(Detail::All);
        let mut told = |event: &Value| notes(&mut story, event);
        assert_eq!(told(&started("run_1", "worker", 1)), ["  worker begins, run_1"]);
        assert_eq!(told(&started("run_2", "worker", 1)), ["  worker#2 begins, run_2"]);
        assert_eq!(told(&inside("run_1", 1, &json!({"type": "run.started", "run_id": "run_1"}))), [""; 0]);
        assert_eq!(told(&inside("run_2", 1, &started("run_3", "helper", 2))), ["    helper begins, run_3"]);
        assert_eq!(told(&inside("run_1", 1, &says("One,\ntwo"))), ["  worker: One,"]);
        assert_eq!(told(&inside("run_3", 2, &says("Three."))), [""; 0]);
        let call = json!({"type": "tool.call", "name": "add", "arguments": {"n": 1}});
        assert_eq!(told(&inside("run_1", 1, &call)), ["  worker: two", "  worker → add {\"n\":1}"]);
        let usage = json!({"prompt_tokens": 3, "completion_tokens": 4});
        let tree = |runs: u32| json!({"runs": runs, "usage": usage, "cost_usd": 0.5});
        let ended = |run: &str, runs: u32| json!({"type": "delegate.completed", "run_id": run, "status": "completed", "stop_reason": "done", "tree": tree(runs)});
        assert_eq!(
            told(&inside("run_2", 1, &ended("run_3", 1))),
            ["    helper: Three.", "    helper: completed (done), 3 tokens in, 4 out, $0.5"]
        );
        assert_eq!(told(&ended("run_2", 2)), ["  worker#2: completed (done), 3 tokens in, 4 out in 2 runs, $0.5"]);
        let refused = json!({"type": "delegate.completed", "run_id": "run_4", "status": "failed", "stop_reason": null, "tree": tree(0)});
        assert_eq!(told(&refused), ["  run_4: failed (it did not begin)"]);
    }

    #[test]
    fn a_wait_for_runs_below_is_no_end_and_told_by_these_alone() {
        let mut story = Story::new(Detail::All);
        let begun =
            json!({"type": "delegate.started", "run_id": "run_1", "agent": "worker", "depth": 1, "call_id": "c"});
        let pending = |call: &str| json!({"type": "tool.pending", "name": "delegate", "call_id": call});
        let ending = json!({"status": "requires_action", "stop_reason": "tool_pending", "run_id": "r", "iterations": 1,
            "tool_calls": 1, "cost_usd": 0});
        let waits = json!({"type": "run.requires_action", "agent": ending});
        let resumed = json!({"type": "run.resumed", "run_id": "r"});
        for event in [&begun, &pending("c"), &waits, &resumed] {
            assert_eq!(notes(&mut story, event).len(), usize::from(event == &begun), "{event}");
        }
        assert_eq!(notes(&mut story, &pending("d")).len(), 1, "a service answers this one");
        assert_eq!(notes(&mut story, &resumed).len(), 1, "it did not wait");
        notes(
            &mut story,
            &json!({"type": "delegate.completed", "run_id": "run_1", "status": "completed", "stop_reason": "done"}),
        );
        let told = story.tell(&serde_json::from_value(waits).unwrap());
        assert!(matches!(told.last(), Some(Told::End { .. })), "{told:?}");
    }

    #[test]
    fn what_runs_below_say_is_no_part_of_an_answer() {
        let mut story = Story::new(Detail::Answer);
        assert_eq!(notes(&mut story, &started("run_1", "worker", 1)), ["  worker begins, run_1"]);
        assert_eq!(notes(&mut story, &inside("run_1", 1, &says("One\n"))), [""; 0]);
        let call = json!({"type": "tool.call", "name": "add", "arguments": {}});
        assert_eq!(notes(&mut story, &inside("run_1", 1, &call)), ["  worker → add {}"]);
    }

    #[test]
    fn no_event_of_a_run_below_brings_commands_for_the_terminal() {
        let mut story = Story::new(Detail::All);
        let hostile = "a\u{1b}[2J\u{9b}b";
        for event in [
            started(hostile, hostile, u32::MAX),
            inside("x\u{1b}[2J", 1, &says(&format!("{hostile}\n"))),
            json!({"type": "delegate.completed", "run_id": hostile, "status": hostile, "stop_reason": hostile}),
        ] {
            let told = notes(&mut story, &event).concat();
            assert!(told.contains("[2J") && !told.contains(['\u{1b}', '\u{9b}']), "{told}");
        }
    }
}
