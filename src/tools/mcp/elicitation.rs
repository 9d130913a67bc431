//! Questions of a server to the user, in the middle of a call.
//!
//! The time that users take is not the call's: the call has its own time for the work of the server, and its questions have
//! another together. Only flat forms are asked. A server that leads the user elsewhere by a URL is declined.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema};
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::guard::result::sanitise;
use crate::tools::mcp::secrets::Secrets;
use crate::tools::schema::form;
use crate::tools::{CallContext, QuestionSink, UserQuestion};
use crate::types::CallId;
use crate::types::conversation::Part;
use crate::types::json::RawValueEq;
use crate::types::tool_question::{UserAction, UserAnswer};

/// Most questions of one call.
const MOST_QUESTIONS: u32 = 16;
/// Longest text of a question, in bytes.
const MAX_MESSAGE: usize = 8 << 10;
/// Longest schema of an answer, in bytes of JSON.
const MAX_SCHEMA: usize = 16 << 10;

/// The questions that one call may ask. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct CallQuestions(Arc<OfCall>);

#[derive(Debug)]
struct OfCall {
    server: String,
    call: CallId,
    sink: QuestionSink,
    time: watch::Sender<Time>,
}

/// How much of their time the questions of a call have taken.
#[derive(Debug, Clone, Copy, Default)]
struct Time {
    asked: u32,
    open: u32,
    /// Since when one is open.
    since: Option<Instant>,
    /// What those took before.
    taken: Duration,
}

impl Time {
    fn taken_until(&self, now: Instant) -> Duration {
        self.taken + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

/// A question that is open until this is dropped.
struct OpenQuestion<'a>(&'a watch::Sender<Time>);

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|time| {
            time.open -= 1;
            if time.open == 0 {
                time.taken = time.taken_until(Instant::now());
                time.since = None;
            }
        });
    }
}

impl CallQuestions {
    /// Those of a call of this server; `None` if no user can be asked.
    pub(super) fn of(server: &str, context: &CallContext) -> Option<Self> {
        let sink = &context.questions;
        let of_call = || OfCall {
            server: server.to_owned(),
            call: context.call.clone(),
            sink: sink.clone(),
            time: watch::Sender::default(),
        };
        (!sink.within().is_zero()).then(|| Self(Arc::new(of_call())))
    }

    /// Asks the user, and returns what the server is told.
    pub(super) async fn ask(&self, asked: &ElicitRequestParams, secrets: &Secrets) -> ElicitResult {
        let OfCall { server, call, sink, .. } = &*self.0;
        let question = match read(asked, server, secrets) {
            Ok(question) => question,
            Err(why) => {
                tracing::warn!(server, %call, why, "a question of an MCP server to the user is declined");
                return ElicitResult::new(ElicitationAction::Decline);
            }
        };
        let Some((within, _open)) = self.open() else { return ElicitResult::new(ElicitationAction::Decline) };
        told(sink.ask(call, question, within).await)
    }

    /// Opens a question, for as long as there is time; `None` if there is none, or the call asked too often.
    fn open(&self) -> Option<(Duration, OpenQuestion<'_>)> {
        let OfCall { sink, time, .. } = &*self.0;
        let (now, mut left) = (Instant::now(), Duration::ZERO);
        time.send_modify(|time| {
            if time.asked < MOST_QUESTIONS {
                left = sink.within().saturating_sub(time.taken_until(now));
            }
            if !left.is_zero() {
                time.asked += 1;
                time.open += 1;
                time.since = time.since.or(Some(now));
            }
        });
        (!left.is_zero()).then(|| (left, OpenQuestion(time)))
    }

    /// Does `work`, which has until then, and longer by what the questions take; `None` if its time is up.
    pub(super) async fn beside<T>(&self, until: Instant, work: impl Future<Output = T>) -> Option<T> {
        let mut time = self.0.time.subscribe();
        let mut work = pin!(work);
        loop {
            let Time { open, taken, .. } = *time.borrow_and_update();
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                // The sender lives as long as this.
                _ = time.changed() => {}
                () = sleep_until(until + taken), if open == 0 => return None,
            }
        }
    }
}

/// What a server asks, as far as it may; the error is a clause about the question.
fn read(asked: &ElicitRequestParams, server: &str, secrets: &Secrets) -> Result<UserQuestion, &'static str> {
    let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = asked else {
        return Err("it leads the user elsewhere");
    };
    if message.len() > MAX_MESSAGE {
        return Err("its text is too long");
    }
    let (mut text, schema) = (vec![Part::text(secrets.hide(message))], read_schema(requested_schema, secrets)?);
    let _ = sanitise(&mut text, &mut None, usize::MAX);
    let message = text.first().and_then(Part::as_text).unwrap_or_default().to_owned();
    Ok(UserQuestion { server: server.to_owned(), message, schema })
}

/// The schema of an answer. What stands in it is kept as it is, or the question is declined: an answer is checked by it.
fn read_schema(asked: &ElicitationSchema, secrets: &Secrets) -> Result<RawValueEq, &'static str> {
    const ODD: &str = "its schema holds what no user reads";
    let schema: Box<RawValue> = to_raw_value(asked).map_err(|_| ODD)?;
    if schema.get().len() > MAX_SCHEMA {
        return Err("its schema is too long");
    }
    if secrets.hide(schema.get()) != schema.get() {
        return Err("its schema quotes a secret of the server");
    }
    let mut cleaned = Some(RawValueEq(schema.clone()));
    let _ = sanitise(&mut Vec::new(), &mut cleaned, usize::MAX);
    if cleaned.is_none_or(|cleaned| cleaned.get() != schema.get()) {
        return Err(ODD);
    }
    form(&schema).map_err(|_| "its schema is none that an answer can be checked by")?;
    Ok(RawValueEq(schema))
}

/// What a server is told of what a user said.
fn told(answer: UserAnswer) -> ElicitResult {
    let UserAnswer { action, content } = answer;
    match action {
        UserAction::Accept => {
            let said = content.and_then(|content| serde_json::from_str(content.get()).ok());
            ElicitResult::new(ElicitationAction::Accept).with_content(said.unwrap_or_else(|| serde_json::json!({})))
        }
        UserAction::Decline => ElicitResult::new(ElicitationAction::Decline),
        UserAction::Cancel => ElicitResult::new(ElicitationAction::Cancel),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::sync::mpsc;

    use super::*;
    use crate::tools::testing::context;

    fn asked(message: &str, schema: &Value) -> Result<UserQuestion, &'static str> {
        let params = json!({"mode": "form", "message": message, "requestedSchema": schema});
        let params: ElicitRequestParams = serde_json::from_value(params).map_err(|_| "not read")?;
        read(&params, "s", &Secrets::new([crate::config::Secret::new("sk-1234")]))
    }

    #[test]
    fn only_short_flat_forms_without_secrets_and_control_characters_are_asked() {
        let named = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}});
        let question = asked("\u{1b}[31mYour\u{7} name, not sk-1234?", &named("name")).unwrap();
        assert_eq!(question.message, "Your name, not ***?");
        assert_eq!(serde_json::from_str::<Value>(question.schema.get()).unwrap(), named("name"));
        assert_eq!(asked(&"x".repeat(MAX_MESSAGE + 1), &named("a")), Err("its text is too long"));
        assert_eq!(asked("?", &named(&"x".repeat(MAX_SCHEMA))), Err("its schema is too long"));
        assert_eq!(asked("?", &named("a\u{7}")), Err("its schema holds what no user reads"));
        assert_eq!(asked("?", &named("sk-1234")), Err("its schema quotes a secret of the server"));
        let nested = json!({"type": "object", "properties": {"a": {"type": "object", "properties": {}}}});
        assert_eq!(asked("?", &nested), Err("not read"));
        let url = json!({"mode": "url", "message": "?", "url": "https://a.test/", "elicitationId": "1"});
        let url: ElicitRequestParams = serde_json::from_value(url).unwrap();
        assert_eq!(read(&url, "s", &Secrets::default()), Err("it leads the user elsewhere"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_user_is_not_the_calls_and_is_bounded_over_all_questions() {
        let (sender, mut heard) = mpsc::channel(1);
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let surroundings = CallContext { questions: QuestionSink::new(sender, minute), ..context(second) };
        let questions = CallQuestions::of("s", &surroundings).unwrap();
        let params = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
        let params: ElicitRequestParams = serde_json::from_value(params).unwrap();
        let begun = Instant::now();
        let work = async {
            let mut actions = Vec::new();
            for _ in 0..3 {
                actions.push(questions.ask(&params, &Secrets::default()).await.action);
            }
            tokio::time::sleep(second).await;
            actions
        };
        let users = async {
            for within in [minute, Duration::from_secs(15)] {
                let asked = heard.recv().await.unwrap();
                assert_eq!(asked.within, within);
                tokio::time::sleep(within.min(Duration::from_secs(45))).await;
                asked.reply.send(UserAnswer::wordless(UserAction::Accept)).unwrap();
            }
        };
        let (done, ()) = tokio::join!(questions.beside(begun + 2 * second, work), users);
        let (accept, decline) = (ElicitationAction::Accept, ElicitationAction::Decline);
        assert_eq!(done.unwrap(), [accept.clone(), accept, decline], "the third has no time left");
        let late = questions.beside(begun + second, std::future::pending::<()>()).await;
        assert!(late.is_none() && begun.elapsed() == minute + second, "{:?}", begun.elapsed());
    }
}
