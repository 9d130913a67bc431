//! What is promised of runs that are handed off: each handoff is recorded once, for a call that asks for it, and from then on the run
//! is the other agent's, whoever looks: the model, the run, its session.
//!
//! Pure. As which agent the model was asked is what the model says; what happened is what the run's log says.

#[cfg(test)]
mod tests;

use serde_json::Value;

/// What is known of a run that may have been handed off.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HandoffEvidence {
    /// The agent as which it began.
    pub(crate) first: String,
    /// How it ended, and as which agent, by the run's object.
    pub(crate) status: String,
    pub(crate) agent: String,
    /// What it says in the end. The model begins that with the name of the agent as which it is asked.
    pub(crate) output: String,
    /// Whose session it is, by the session's object.
    pub(crate) session_agent: String,
    /// Its events.
    pub(crate) events: Vec<Value>,
    /// As which agents the model was asked, in order.
    pub(crate) asked: Vec<String>,
}

/// Everything that is wrong with a run that may have been handed off.
pub(crate) fn check_handoffs(evidence: &HandoffEvidence) -> Vec<String> {
    let mut wrong = Vec::new();
    let events = &evidence.events;
    if evidence.status != "completed" {
        wrong.push(format!("it is {}", evidence.status));
    }
    let numbers: Vec<_> = events.iter().map(number).collect();
    if !numbers.iter().copied().eq((1..=numbers.len() as u64).map(Some)) {
        wrong.push(format!("it has the events {numbers:?}"));
    }
    let agents = check_log(evidence, &mut wrong);
    let mut asked = evidence.asked.clone();
    asked.dedup();
    if asked != agents {
        wrong.push(format!("the model was asked as {asked:?}, and by its log the run was of {agents:?}"));
    }
    let calls = events.iter().filter(|event| ["step.started", "provider.retry"].contains(&kind(event))).count();
    if evidence.asked.len() > calls {
        wrong.push(format!("the model was asked {} times, and {calls} of these are recorded", evidence.asked.len()));
    }
    let last = agents.last().map_or("", String::as_str);
    for (who, says) in [("the run", &evidence.agent), ("its session", &evidence.session_agent)] {
        if says != last {
            wrong.push(format!("{who} is {says}'s, and was handed to {last}"));
        }
    }
    if !evidence.output.starts_with(&format!("{last}:")) {
        wrong.push(format!("{last} has the last word, and it is {:?}", evidence.output));
    }
    wrong
}

/// The agents that the run was of by its log, one after the other.
fn check_log(evidence: &HandoffEvidence, wrong: &mut Vec<String>) -> Vec<String> {
    let (events, mut agents) = (&evidence.events, vec![evidence.first.clone()]);
    let mut handed = Vec::new();
    for (at, event) in events.iter().enumerate().filter(|(_, event)| kind(event) == "handoff") {
        let (call, from, to) = (&event["call_id"], text(&event["from"]), text(&event["to"]));
        if handed.contains(&call) {
            wrong.push(format!("the call {call} hands the run off again"));
        }
        handed.push(call);
        let before = agents.last().cloned().unwrap_or_default();
        if from != before || to == before {
            wrong.push(format!("{from} hands the run to {to}, and it is {before}'s"));
        }
        let is_call = |event: &&Value| kind(event) == "tool.call" && event["call_id"] == *call;
        let asks = events[..at].iter().find(is_call);
        if asks.is_none_or(|asks| asks["name"] != "handoff" || text(&asks["arguments"]["agent"]) != to) {
            wrong.push(format!("the run is handed to {to} by {call}, which is {asks:?}"));
        }
        agents.push(to);
    }
    for call in events.iter().filter(|event| kind(event) == "tool.call" && event["name"] == "handoff") {
        let call = &call["call_id"];
        let results: Vec<_> =
            events.iter().filter(|event| kind(event) == "tool.result" && event["call_id"] == *call).collect();
        let is_handed = handed.contains(&call);
        match results[..] {
            [result] if (result["is_error"] == true) != is_handed => {}
            [result] => wrong.push(format!("the call {call} has the result {result}, and handed off: {is_handed}")),
            _ => wrong.push(format!("the call {call} has {} results", results.len())),
        }
    }
    agents
}

fn kind(event: &Value) -> &str {
    event["type"].as_str().unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The number of an event in a list.
fn number(event: &Value) -> Option<u64> {
    event["seq"].as_u64().or_else(|| event["loopgate"]["seq"].as_u64())
}
