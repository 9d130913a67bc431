//! What comes next in a run of an agent that is made of others. No model is asked: the run makes the turns itself, by what its
//! records say of the agents that have worked.

use std::borrow::Cow;

use super::{Run, Step};
use crate::types::composite::Composite;
use crate::types::conversation::{Content, Origin, Part, PartKind, joined};
use crate::types::delegate::DELEGATE;
use crate::types::event::Turn;
use crate::types::{CallId, ErrorKind, Message, Role, RunError, RunStatus, StopReason, ToolCall, TurnEnd};

/// How the work of one of its agents ended.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PartEnd<'a> {
    agent: &'a str,
    /// What it answered, or why it did not.
    said: Cow<'a, str>,
    has_failed: bool,
    /// Why its run ended, if it had one.
    reason: Option<StopReason>,
}

impl PartEnd<'_> {
    /// The limit that kept it from answering.
    fn limit(&self) -> Option<StopReason> {
        self.reason.filter(|reason| self.has_failed && reason.status() == RunStatus::Incomplete)
    }

    /// Why it has not answered, in a sentence.
    fn why(&self) -> &str {
        self.said.lines().next().unwrap_or_default()
    }
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// The agents from this place on, of which so many, are to work.
    Work { from: usize, count: usize },
    /// This is the answer.
    Answer(String),
    /// There is no answer, because of a limit or of this failure.
    Fail { reason: StopReason, why: Option<String> },
}

/// What an agent is told that works for a composite one, beside the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brief {
    /// What others have answered before it: messages that follow the conversation.
    pub answers: Vec<Message>,
    /// Whether its answer is what the caller asked for.
    pub is_last: bool,
}

impl Run {
    /// The next step of a run of this agent.
    pub(super) fn next_of_composite(&self, composite: &Composite) -> Step {
        if self.is_over_calls {
            return Step::Finish(StopReason::MaxToolCalls);
        }
        let parts = match next(composite, &self.part_ends(composite)) {
            Next::Work { from, count } => {
                let agents = composite.agents().enumerate().skip(from).take(count);
                agents.map(|(place, agent)| PartKind::ToolCall(self.call_of(place, agent)).into()).collect()
            }
            Next::Answer(text) if text.is_empty() => return Step::Stop(StopReason::EmptyResponse, None),
            Next::Answer(text) => vec![Part::text(text)],
            Next::Fail { reason, why } => {
                let error = why.map(|why| {
                    let message = format!("The agent {:?} has no answer. {why}", self.spec.agent);
                    Box::new(RunError::new(ErrorKind::ToolFailed, message))
                });
                return Step::Stop(reason, error);
            }
        };
        let calls = parts.iter().any(|part: &Part| part.as_call().is_some());
        let end = if calls { TurnEnd::ToolCalls } else { TurnEnd::Stop };
        Step::Conduct(Box::new(Turn { parts, end, ..Turn::default() }))
    }

    /// What the agent is told that this call has work; `None` if the run's own model made the call.
    #[must_use]
    pub fn brief(&self, call: &CallId) -> Option<Brief> {
        let composite = self.spec.rules.composite.as_ref()?;
        let ends = self.part_ends(composite);
        let place = composite.agents().enumerate().map(|(place, _)| place).find(|place| self.id_at(*place) == *call)?;
        let answers = match &**composite {
            Composite::Chain(_) => ends.last().map(|end| told(end)).into_iter().collect(),
            Composite::Parallel { agents, .. } if place == agents.len() => ends.iter().map(told).collect(),
            Composite::Parallel { .. } => Vec::new(),
        };
        Some(Brief { answers, is_last: composite.answers(place) })
    }

    /// Whether a message belongs to the conversation that the run was asked to continue or ends with. What agents say to each other
    /// that a composite one is made of does not.
    pub(super) fn is_kept(&self, message: &Message) -> bool {
        let Content::Parts(parts) = message.content() else { return true };
        let is_work = |part: &Part| part.as_call().is_some() || part.as_result().is_some();
        self.spec.rules.composite.is_none() || !self.is_own(message) || !parts.list.iter().any(is_work)
    }

    /// Whether the run itself made this message.
    #[must_use]
    pub fn is_own(&self, message: &Message) -> bool {
        matches!(&message.origin, Origin::Step { run, .. } if *run == self.spec.id)
    }

    fn id_at(&self, place: usize) -> CallId {
        self.spec.id.call(u16::try_from(place + 1).unwrap_or(u16::MAX))
    }

    fn call_of(&self, place: usize, agent: &str) -> ToolCall {
        let arguments = serde_json::json!({ "agent": agent }).to_string();
        ToolCall { id: self.id_at(place), name: DELEGATE.to_owned(), arguments }
    }

    /// How those ended that have worked, in their order. Agents that work at the same time are done together.
    fn part_ends<'a>(&'a self, composite: &'a Composite) -> Vec<PartEnd<'a>> {
        let results = self.messages.iter().filter(|message| message.role == Role::Tool && self.is_own(message));
        let results = results.filter_map(|message| match message.content() {
            Content::Parts(parts) => parts.list.iter().find_map(Part::as_result),
            Content::Encoded(..) => None,
        });
        let ends = composite.agents().zip(results).map(|(agent, result)| PartEnd {
            agent,
            said: joined(result.parts.iter().filter_map(Part::as_text)),
            has_failed: result.is_error,
            reason: self.reason_of(&result.call),
        });
        ends.collect()
    }
}

/// What is to be done once these have worked.
fn next(composite: &Composite, ends: &[PartEnd<'_>]) -> Next {
    match composite {
        Composite::Chain(agents) => match ends.last() {
            Some(last) if last.has_failed => fail(last),
            Some(last) if ends.len() >= agents.len() => Next::Answer(last.said.clone().into_owned()),
            Some(_) | None => Next::Work { from: ends.len(), count: 1 },
        },
        Composite::Parallel { agents, consolidate } => {
            let Some(first) = ends.first() else { return Next::Work { from: 0, count: agents.len() } };
            let (worked, last) = (&ends[..agents.len().min(ends.len())], ends.get(agents.len()));
            if worked.iter().all(|end| end.has_failed) {
                return fail_all(first, worked);
            }
            match (consolidate, last) {
                (Some(_), None) => Next::Work { from: agents.len(), count: 1 },
                (Some(_), Some(last)) if last.has_failed => fail(last),
                (Some(_), Some(last)) => Next::Answer(last.said.clone().into_owned()),
                (None, _) => Next::Answer(worked.iter().map(section).collect::<Vec<_>>().join("\n\n")),
            }
        }
    }
}

fn fail(end: &PartEnd<'_>) -> Next {
    match end.limit() {
        Some(reason) => Next::Fail { reason, why: None },
        None => Next::Fail { reason: StopReason::ToolError, why: Some(end.why().to_owned()) },
    }
}

/// What becomes of a run all of whose agents have failed: the same limit ends it if it ended all of them.
fn fail_all(first: &PartEnd<'_>, ends: &[PartEnd<'_>]) -> Next {
    if ends.iter().all(|end| end.limit().is_some() && end.limit() == first.limit()) || ends.len() == 1 {
        return fail(first);
    }
    let why = format!("All of its agents failed. The first of them: {}", first.why());
    Next::Fail { reason: StopReason::ToolError, why: Some(why) }
}

/// An answer among others.
fn section(end: &PartEnd<'_>) -> String {
    let PartEnd { agent, said, has_failed, .. } = end;
    let failed = if *has_failed { " (failed)" } else { "" };
    format!("## {agent}{failed}\n\n{said}")
}

/// What the next agent is told of one.
fn told(end: &PartEnd<'_>) -> Message {
    let PartEnd { agent, said, has_failed, .. } = end;
    let text = if *has_failed {
        format!("The agent {agent:?} has worked on this too, and failed:\n\n{said}")
    } else {
        format!("The agent {agent:?} has worked on this before you. It answered:\n\n{said}")
    };
    Message::text(Role::User, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(agent: &'static str, said: &'static str, reason: StopReason) -> PartEnd<'static> {
        let has_failed = reason.status() != RunStatus::Completed;
        PartEnd { agent, said: said.into(), has_failed, reason: Some(reason) }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_chain_goes_on_from_where_it_is_and_stops_at_the_first_failure() {
        let chain = Composite::Chain(names(&["a", "b"]));
        assert_eq!(next(&chain, &[]), Next::Work { from: 0, count: 1 });
        assert_eq!(next(&chain, &[end("a", "x", StopReason::Done)]), Next::Work { from: 1, count: 1 });
        let both = [end("a", "x", StopReason::Done), end("b", "y", StopReason::Length)];
        assert_eq!(next(&chain, &both), Next::Answer("y".into()));
        for (reason, ends) in [
            (StopReason::ProviderError, (StopReason::ToolError, Some("no".into()))),
            (StopReason::Cancelled, (StopReason::ToolError, Some("no".into()))),
            (StopReason::TokenBudget, (StopReason::TokenBudget, None)),
            (StopReason::Timeout, (StopReason::Timeout, None)),
        ] {
            let (as_reason, why) = ends;
            assert_eq!(next(&chain, &[end("a", "no\nmore", reason)]), Next::Fail { reason: as_reason, why });
        }
    }

    #[test]
    fn all_work_before_one_answer_is_made_of_theirs() {
        let [good, bad] = [end("a", "x", StopReason::Done), end("b", "no", StopReason::ProviderError)];
        let parallel = |consolidate: Option<&str>| Composite::Parallel {
            agents: names(&["a", "b"]),
            consolidate: consolidate.map(str::to_owned),
        };
        assert_eq!(next(&parallel(None), &[]), Next::Work { from: 0, count: 2 });
        let ends = [good.clone(), bad.clone()];
        assert_eq!(next(&parallel(None), &ends), Next::Answer("## a\n\nx\n\n## b (failed)\n\nno".into()));
        assert_eq!(next(&parallel(Some("c")), &ends), Next::Work { from: 2, count: 1 });
        let all = [good.clone(), bad.clone(), end("c", "z", StopReason::Done)];
        assert_eq!(next(&parallel(Some("c")), &all), Next::Answer("z".into()));
        let failed = [good, bad.clone(), end("c", "late", StopReason::Timeout)];
        assert_eq!(next(&parallel(Some("c")), &failed), Next::Fail { reason: StopReason::Timeout, why: None });
        let why = Some("All of its agents failed. The first of them: no".into());
        assert_eq!(next(&parallel(Some("c")), &[bad.clone(), bad]), Next::Fail { reason: StopReason::ToolError, why });
        let late = end("a", "late", StopReason::TokenBudget);
        assert_eq!(
            next(&parallel(None), &[late.clone(), late]),
            Next::Fail { reason: StopReason::TokenBudget, why: None }
        );
    }
}
