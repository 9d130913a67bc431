//! The evidence of a run in which every promise was kept, and ways to doctor it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::Frame;
use crate::support::cluster::checker::log::row;
use crate::support::cluster::evidence::{ClientTrace, End, Evidence, Probe, Reading, RunView, SessionView};
use crate::support::cluster::harm::Break;
use crate::support::cluster::model::ModelCall;
use crate::support::cluster::plan::{Plan, Tool};
use crate::support::cluster::tools::Dispatch;
use crate::support::journal::{Ending, Entry};

pub(super) const RUN: &str = "run_1";

/// Writes the log of a run as a server would.
#[derive(Default)]
pub(super) struct Script {
    events: Vec<Frame>,
}

impl Script {
    fn event(&mut self, name: &str, mut data: Value) {
        let id = self.events.len() as u64 + 1;
        data["type"] = json!(name);
        data["seq"] = json!(id);
        self.events.push(Frame { id: Some(id), name: name.to_owned(), data: data.to_string() });
    }

    fn text(&mut self, step: u64, text: &str) {
        let id = Some(self.events.len() as u64 + 1);
        let data = json!({"choices": [{"delta": {"content": text}}], "loopgate": {"step": step}});
        self.events.push(Frame { id, name: String::new(), data: data.to_string() });
    }
}

pub(super) fn plan() -> Plan {
    Plan::new("r1").with_tools(3, &Tool::ALL)
}

/// What the model was asked for a turn.
fn asked(plan: &Plan, round: u32) -> ModelCall {
    let answers = (0..round).flat_map(|round| plan.tasks(round));
    ModelCall {
        tag: plan.tag.clone(),
        round,
        tokens: 10,
        input: 1,
        billed: 10,
        breaks: Break::Whole,
        results: answers.map(|(tool, task)| task.answer(tool)).collect(),
        faults: Vec::new(),
    }
}

/// What a run is answered that is tried with a budget that was counted well.
pub(super) fn probe() -> Probe {
    Probe { nothing_left: 429, told: "the budget is used up: 60 of 60 tokens".to_owned(), enough_left: 200 }
}

/// What a client saw that asked for this and read so.
fn seen(plan: Plan, readings: Vec<Reading>) -> ClientTrace {
    ClientTrace {
        plan,
        session: Some("s1".to_owned()),
        fails_if_unknown: false,
        runs: vec![RUN.to_owned()],
        resets: 0,
        complaints: Vec::new(),
        asked_ms: 0,
        accepted_ms: Some(1),
        readings,
        ended_ms: Some(9),
        cancellation: None,
        asked: None,
    }
}

/// A run that was interrupted within its first model call, and again within `put`, which was repeated;
/// then all went well.
pub(super) fn good() -> Evidence {
    recorded(&plan())
}

/// The same of a run with this plan.
pub(super) fn recorded(plan: &Plan) -> Evidence {
    let mut log = Script::default();
    let (mut tools, mut model, mut messages) = (Vec::new(), Vec::new(), Vec::new());
    messages.push(json!({"role": "user", "content": plan.to_string()}));
    let ask = |round, ending| Entry { at_ms: 1, ended: Some((2, ending)), what: asked(plan, round) };
    log.event("run.started", json!({"run_id": RUN}));
    log.event("step.started", json!({"step": 1}));
    log.text(1, &plan.piece(0, 0));
    model.push(ask(0, Ending::Dropped));
    log.event("run.resumed", json!({"run_id": RUN}));
    log.event("step.discarded", json!({"step": 1}));
    for round in 0..=plan.rounds {
        let step = u64::from(round) + 2;
        log.event("step.started", json!({"step": step}));
        model.push(ask(round, Ending::Finished));
        for piece in 0..plan.pieces {
            log.text(step, &plan.piece(round, piece));
        }
        let (mut turn, mut calls) = (json!({"role": "assistant", "content": plan.text(round)}), Vec::new());
        let mut results = Vec::new();
        for (tool, task) in plan.tasks(round) {
            let (name, call) = (tool.name(), format!("call_{}", plan.calls * round + task.index));
            log.event("tool.call", json!({"step": step, "call_id": call, "name": name, "arguments": task}));
            let dispatch = Dispatch {
                tool,
                task: task.clone(),
                run: RUN.to_owned(),
                call: call.clone(),
                key: call.clone(),
                fence: Some(format!("{}", 5 + round)),
            };
            tools.push(Entry { at_ms: 1, ended: Some((2, Ending::Finished)), what: dispatch.clone() });
            if tool == Tool::Put {
                log.event("run.resumed", json!({"run_id": RUN}));
                tools.push(Entry { at_ms: 3, ended: Some((4, Ending::Finished)), what: dispatch });
            }
            let answer = task.answer(tool);
            let result = json!({"step": step, "call_id": call, "name": name, "is_error": false, "content": answer});
            log.event("tool.result", result);
            calls.push(json!({"id": call, "function": {"name": name, "arguments": json!(task).to_string()}}));
            results.push(json!({"role": "tool", "tool_call_id": call, "content": answer}));
        }
        if !calls.is_empty() {
            turn["tool_calls"] = json!(calls);
        }
        messages.push(turn);
        messages.extend(results);
        log.event("step.completed", json!({"step": step}));
    }
    let agent =
        json!({"status": "completed", "stop_reason": "done", "budget": {"tokens_used": 60, "token_limit": 100}});
    let usage = json!({"total_tokens": 60, "completion_tokens": 40, "estimated": true});
    log.event("run.completed", json!({"agent": agent, "usage": usage, "output_text": plan.text(plan.rounds)}));
    let events = log.events;
    let (before, after) = events.split_at(6);
    let reading = |address: &str, after, events: &[Frame], end| Reading {
        address: address.to_owned(),
        after,
        events: events.iter().map(|event| (1, event.clone())).collect(),
        end,
    };
    let readings = vec![
        reading("http://a", 0, before, End::Broken("it ended".to_owned())),
        reading("http://b", 6, after, End::Done),
    ];
    let seen = seen(plan.clone(), readings);
    let view = RunView {
        object: json!({"id": RUN, "status": "completed", "stop_reason": "done", "usage": {"total_tokens": 60}}),
        list: events.iter().map(row).collect(),
        streams: BTreeMap::from([("http://a".to_owned(), events.clone()), ("http://b".to_owned(), events)]),
    };
    let budget = json!({"token_limit": 100, "tokens_remaining": 40});
    let session = SessionView {
        object: json!({"id": "s1", "active_run_id": null, "usage": {"total_tokens": 60}, "budget": budget}),
        messages,
        runs: vec![RUN.to_owned()],
        probe: probe(),
    };
    Evidence {
        clients: vec![seen],
        model,
        tools,
        runs: BTreeMap::from([(RUN.to_owned(), view)]),
        sessions: BTreeMap::from([("s1".to_owned(), session)]),
        usage: Some(json!({"runs": 1, "total_tokens": 60})),
        allowed_reasons: Vec::new(),
        all_runs: Some(probe()),
        keyed: true,
        ..Evidence::default()
    }
}

/// The same of a run that took so many turns more than its plan has, as one does that gets a message when it is about to end.
pub(super) fn longer(turns: u32) -> Evidence {
    let (mut evidence, plan) = (good(), plan());
    for round in plan.rounds + 1..=plan.rounds + turns {
        evidence.model.push(Entry { at_ms: 1, ended: Some((2, Ending::Finished)), what: asked(&plan, round) });
        rewrite(&mut evidence, |log| {
            let (end, step) = (log.pop().unwrap(), u64::from(round) + 2);
            let mut script = Script { events: std::mem::take(log) };
            script.event("step.started", json!({"step": step}));
            for piece in 0..plan.pieces {
                script.text(step, &plan.piece(round, piece));
            }
            script.event("step.completed", json!({"step": step}));
            script.events.push(end);
            *log = script.events;
            change_data(log, "run.completed", |data| data["output_text"] = json!(plan.text(round)));
            renumber(log);
        });
    }
    evidence
}

/// Changes the log on all replicas, in its list and as the client saw it.
pub(super) fn rewrite(evidence: &mut Evidence, change: impl Fn(&mut Vec<Frame>)) {
    let view = evidence.runs.get_mut(RUN).unwrap();
    view.streams.values_mut().for_each(&change);
    let events = view.streams["http://a"].clone();
    view.list = events.iter().map(row).collect();
    let readings = &mut evidence.clients[0].readings;
    readings.truncate(1);
    readings[0].events = events.into_iter().map(|event| (1, event)).collect();
    readings[0].end = End::Done;
}

/// Changes the data of the first event of this name.
pub(super) fn change_data(events: &mut [Frame], name: &str, change: impl FnOnce(&mut Value)) {
    let event = events.iter_mut().find(|event| event.name == name).unwrap();
    let mut data = serde_json::from_str(&event.data).unwrap();
    change(&mut data);
    event.data = data.to_string();
}

pub(super) fn remove(events: &mut Vec<Frame>, name: &str) {
    let at = events.iter().position(|event| event.name == name).unwrap();
    events.remove(at);
    renumber(events);
}

pub(super) fn repeat(events: &mut Vec<Frame>, name: &str) {
    let at = events.iter().position(|event| event.name == name).unwrap();
    events.insert(at, events[at].clone());
    renumber(events);
}

pub(super) fn renumber(events: &mut [Frame]) {
    for (event, id) in events.iter_mut().zip(1..) {
        event.id = Some(id);
        let mut data: Value = serde_json::from_str(&event.data).unwrap();
        if !event.name.is_empty() {
            data["seq"] = json!(id);
            event.data = data.to_string();
        }
    }
}

pub(super) fn dispatches(evidence: &mut Evidence, tool: Tool) -> &mut Dispatch {
    &mut evidence.tools.iter_mut().rfind(|entry| entry.what.tool == tool).unwrap().what
}

pub(super) fn session(evidence: &mut Evidence) -> &mut SessionView {
    evidence.sessions.get_mut("s1").unwrap()
}
