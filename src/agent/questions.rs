//! Takes what users answer questions of tools, while the calls that asked go on.
//!
//! An answer becomes a command in the run's inbox, so any replica takes it. It is checked against the question as the log has it:
//! the driver does not check it again. The first answer of a question counts.

use serde_json::Value;

use crate::agent::context::screen::{blocked, refusal};
use crate::agent::error::{ClaimError, LookupError};
use crate::agent::inbox::{self, Command, Delivery};
use crate::agent::ledger::head::Head;
use crate::agent::ledger::{Ledger, ReadError};
use crate::agent::request_key::{RequestKey, RequestKeyKind};
use crate::agent::requester::Requester;
use crate::store::{Partition, Unavailable};
use crate::tools::schema::form;
use crate::types::guard::InputMode;
use crate::types::json::RawValueEq;
use crate::types::tool_question::{ToolQuestion, UserAction, UserAnswer};
use crate::types::{Event, Message, Role, RunId};

/// What a caller says to a question.
#[derive(Debug)]
pub struct GivenAnswer {
    /// The question.
    pub question: String,
    /// What the user says, a JSON object; `None` if the user declines.
    pub content: Option<Value>,
    /// The name of the caller's key.
    pub by: Option<String>,
    /// A hash of the answer: the same one again changes nothing.
    pub fingerprint: String,
}

/// Why an answer is not taken.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The run asked no such thing.
    #[error("the run {0} has not asked {1:?}")]
    NoSuchQuestion(RunId, String),
    /// Another answer came before.
    #[error("{0:?} was answered before, and otherwise: the first answer counts")]
    AnsweredOtherwise(String),
    /// No call waits for it any more.
    #[error("{0:?} can no longer be answered: its time is up, it was answered, or its call has ended")]
    TooLate(String),
    /// The answer is not what was asked for.
    #[error("{why}")]
    NotAsked {
        /// The member of the answer; `None` for the answer as a whole.
        member: Option<String>,
        /// What is wrong with it.
        why: String,
    },
    /// The input guard of the run refuses it.
    #[error("{0}")]
    Blocked(String),
    /// The run cannot be told.
    #[error(transparent)]
    Lookup(#[from] LookupError),
}

impl From<Unavailable> for AnswerError {
    fn from(error: Unavailable) -> Self {
        Self::Lookup(error.into())
    }
}

/// Takes what users answer questions of tools.
#[derive(Debug)]
pub struct Questions {
    ledger: Ledger,
}

impl Questions {
    /// Those of the runs of this ledger.
    pub(super) fn new(ledger: &Ledger) -> Self {
        Self { ledger: ledger.clone() }
    }

    /// Takes an answer. The second value says whether the same one came before.
    pub async fn answer<'a>(
        &self,
        requester: impl Into<Requester<'a>>,
        run: &RunId,
        given: GivenAnswer,
    ) -> Result<(Head, bool), AnswerError> {
        let requester = requester.into();
        let (partition, head) = self.ledger.find_run(requester.tenant, run).await?;
        requester.check(&head)?;
        let GivenAnswer { question: id, content, by, fingerprint } = given;
        let key = RequestKey { name: format!("questions/{id}"), fingerprint, kind: RequestKeyKind::Key };
        if was_sent(inbox::was_sent(&self.ledger, &partition, run, &key).await, &id)? {
            return Ok((head, true));
        }
        let (question, is_open) = self.find(&partition, run, &id).await?;
        if head.status.is_final() || !is_open || self.ledger.store().now_ms() >= question.expires_ms {
            return Err(AnswerError::TooLate(id));
        }
        if let Some(content) = &content {
            check(&question, content)?;
            self.refuse_blocked(&partition, run, content).await?;
        }
        let answer = match &content {
            Some(content) => UserAnswer { action: UserAction::Accept, content: Some(written(content)) },
            None => UserAnswer::wordless(UserAction::Decline),
        };
        let command = Command::AnswerQuestion { question: id.clone(), answer, by };
        match inbox::send(&self.ledger, requester.tenant, run, &command, Some(&key)).await {
            Ok(Delivery::Delivered) => Ok((head, false)),
            Ok(Delivery::Repeated) => Ok((head, true)),
            Ok(Delivery::Ended(_)) => Err(AnswerError::TooLate(id)),
            Err(error) => was_sent(Err(error), &id).map(|_| (head, true)),
        }
    }

    /// A question as the log of its run has it, and whether its call waits for the answer.
    async fn find(&self, partition: &Partition, run: &RunId, id: &str) -> Result<(ToolQuestion, bool), AnswerError> {
        let mut found: Option<(ToolQuestion, bool)> = None;
        let read = self.ledger.read_log(partition, run, |record, _| take(&mut found, record.event, id));
        match read.await {
            Ok(()) => found.ok_or_else(|| AnswerError::NoSuchQuestion(run.clone(), id.to_owned())),
            Err(error @ ReadError::Damaged(_)) => Err(Unavailable::from(error).into()),
            Err(ReadError::Store(error)) => Err(error.into()),
        }
    }

    /// Refuses words that the input guard of the run refuses: they are a user's.
    async fn refuse_blocked(&self, partition: &Partition, run: &RunId, content: &Value) -> Result<(), AnswerError> {
        let words: Vec<&str> =
            content.as_object().into_iter().flatten().filter_map(|(_, said)| said.as_str()).collect();
        let Some((_, pattern)) = blocked(&[Message::text(Role::User, &words.join("\n"))]) else { return Ok(()) };
        let spec = self.ledger.spec(partition, run).await?;
        if spec.is_none_or(|spec| spec.guards.input != InputMode::Block) {
            return Ok(());
        }
        tracing::warn!(%run, pattern = pattern.as_str(), blocked = true, "security.injection_detected");
        Err(AnswerError::Blocked(refusal(pattern)))
    }
}

/// Whether an answer was sent before; an error if another one was.
fn was_sent(sent: Result<bool, LookupError>, id: &str) -> Result<bool, AnswerError> {
    if let Err(LookupError::Claim(ClaimError::Reused)) = sent {
        return Err(AnswerError::AnsweredOtherwise(id.to_owned()));
    }
    Ok(sent?)
}

/// Takes in what the log says of a question.
fn take(found: &mut Option<(ToolQuestion, bool)>, event: Event, id: &str) {
    if let Event::QuestionAsked(asked) = event {
        if asked.id == id {
            *found = Some((*asked, true));
        }
        return;
    }
    let Some((question, is_open)) = found else { return };
    let ends = if let Event::QuestionResolved(resolved) = &event {
        resolved.id == question.id
    } else if let Event::ToolFinished { call_id, .. } = &event {
        *call_id == question.call_id
    } else {
        // The replica that made the call is gone.
        matches!(event, Event::RunResumed { .. })
    };
    *is_open &= !ends;
}

/// Checks an answer against what was asked.
fn check(question: &ToolQuestion, content: &Value) -> Result<(), AnswerError> {
    let schema: Value = serde_json::from_str(question.schema.get()).unwrap_or_default();
    let mut said = content.as_object().into_iter().flatten().map(|(name, _)| name);
    if let Some(name) = said.find(|name| schema["properties"].get(name.as_str()).is_none()) {
        return Err(AnswerError::NotAsked { member: Some(name.clone()), why: "is not asked for".to_owned() });
    }
    let checked = form(&question.schema.0).and_then(|schema| schema.check(content));
    checked.map_err(|why| {
        let (member, why) = match why.strip_prefix("at /").and_then(|rest| rest.split_once(": ")) {
            Some((place, why)) => (Some(place.replace("~1", "/").replace("~0", "~")), why.to_owned()),
            None => (None, why),
        };
        AnswerError::NotAsked { member, why }
    })
}

fn written(content: &Value) -> RawValueEq {
    RawValueEq(serde_json::value::to_raw_value(content).expect("a JSON value is written as JSON"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::CallId;

    fn question(schema: &Value) -> ToolQuestion {
        ToolQuestion {
            id: "question_1".into(),
            step: 1,
            call_id: CallId::foreign("c"),
            name: "s__t".into(),
            server: "s".into(),
            message: "?".into(),
            schema: written(schema),
            expires_ms: 0,
        }
    }

    #[test]
    fn an_answer_is_what_was_asked_for_and_nothing_else() {
        let properties = json!({
            "email": {"type": "string", "format": "email"}, "a/b": {"type": "integer", "maximum": 9},
            "size": {"type": "string", "enum": ["s", "m"]}, "sure": {"type": "boolean"}
        });
        let asked = question(&json!({"type": "object", "properties": properties, "required": ["sure"]}));
        let wrong = |content: Value| match check(&asked, &content) {
            Ok(()) => None,
            Err(AnswerError::NotAsked { member, why }) => Some((member, why)),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(wrong(json!({"sure": true, "email": "a@b.test", "a/b": 9, "size": "m"})), None);
        for (member, content) in [
            (Some("email"), json!({"sure": true, "email": "nobody"})),
            (Some("a/b"), json!({"sure": true, "a/b": 10})),
            (Some("size"), json!({"sure": true, "size": "x"})),
            (Some("sure"), json!({"sure": "yes"})),
            (Some("age"), json!({"sure": true, "age": 7})),
            (None, json!({})),
        ] {
            let (found, why) = wrong(content.clone()).unwrap_or_else(|| panic!("{content} is taken"));
            assert_eq!(found.as_deref(), member, "{why}");
        }
    }

    #[test]
    fn a_question_is_open_until_it_is_resolved_or_its_call_or_replica_is_gone() {
        let asked = || Event::QuestionAsked(Box::new(question(&json!({}))));
        let open = |events: Vec<Event>| {
            let mut found = None;
            for event in events {
                take(&mut found, event, "question_1");
            }
            found.map(|(_, is_open)| is_open)
        };
        let finished = |call: &str| Event::ToolFinished {
            step: 1,
            call_id: CallId::foreign(call),
            name: "s__t".into(),
            outcome: crate::types::ToolOutcome::default(),
        };
        assert_eq!(open(vec![finished("c")]), None);
        assert_eq!(open(vec![asked(), finished("other")]), Some(true));
        assert_eq!(open(vec![asked(), finished("c")]), Some(false));
        assert_eq!(open(vec![asked(), Event::RunResumed { leg: None }]), Some(false));
    }
}
