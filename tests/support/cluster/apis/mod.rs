//! How clients of each API ask for a run, and what they read of its answer. Pure: `client/apis.rs` sends and reads.
//!
//! A request is sent again as it was, or its answer is read on, as the API's documents say. What all attempts brought is
//! kept as it came, so that the checker reads it with the same eyes as the client, and with more of them.

mod ag_ui;
mod ai_sdk;
mod chat;
mod messages;
mod native;
mod responses;
mod told;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::plan::Plan;
use crate::support::Frame;
use crate::support::chat::with;

pub(crate) use told::{Ended, Made, Told};

/// The dialect in which an answer is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Dialect {
    /// OpenAI's chat completions.
    Chat,
    /// The agent API's own events.
    Native,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Messages,
    /// The AI SDK's UI messages.
    AiSdk,
    /// AG-UI.
    AgUi,
}

/// The form in which an answer is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Form {
    /// As a stream.
    Streamed,
    /// In one piece.
    Whole,
    /// As a stream of a run in the background, which is read on by its id.
    Background,
    /// In one piece of a run in the background, which is asked for until it is there.
    Polled,
}

/// How a client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Asking {
    /// In which dialect.
    pub(crate) dialect: Dialect,
    /// In which form.
    pub(crate) form: Form,
    /// Whether it reads on where its stream was cut, where it might as well send its request again.
    pub(crate) reads_on: bool,
}

/// What a client sent and read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// How it asked.
    pub(crate) asking: Asking,
    /// Every time that it asked, in order.
    pub(crate) attempts: Vec<Attempt>,
    /// The stored response, where the API keeps one that can be read by its id.
    pub(crate) stored: Option<Value>,
    /// The run as another dialect tells it, once the client had its answer.
    pub(crate) elsewhere: Option<(Dialect, Attempt)>,
}

/// One request, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attempt {
    /// What was sent: method, address and path.
    pub(crate) request: String,
    /// Behind which number the stream is to go on; none for a stream from its beginning.
    pub(crate) after: Option<u64>,
    /// The status; 0 if there was no answer.
    pub(crate) status: u16,
    /// The events of a stream.
    pub(crate) frames: Vec<Frame>,
    /// The JSON of an answer in one piece.
    pub(crate) body: Option<Value>,
    /// Whether its reader is sent to another replica.
    pub(crate) is_moved: bool,
    /// What Loopgate never sends.
    pub(crate) oddities: Vec<String>,
    /// How the body ended.
    pub(crate) end: BodyEnd,
}

/// How a body ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BodyEnd {
    /// As a whole one does.
    Whole,
    /// As a whole one does, and in the middle of an event.
    Torn,
    /// It broke off, or never came.
    Cut(String),
    /// The client went away.
    Left,
}

/// A request that a client sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// The one that asks for the run.
    Ask,
    /// One that reads the answer of the run: its path, and the number behind which it goes on.
    Read(String, Option<u64>),
}

impl Attempt {
    /// One that has no answer yet.
    pub(crate) fn begun(request: String, after: Option<u64>) -> Self {
        let (frames, oddities, end) = (Vec::new(), Vec::new(), BodyEnd::Cut("there was no answer".to_owned()));
        Self { request, after, status: 0, frames, body: None, is_moved: false, oddities, end }
    }
}

impl Asking {
    /// Every way to ask.
    pub(crate) const ALL: [Self; 14] = [
        Self::new(Dialect::Chat, Form::Streamed, false),
        Self::new(Dialect::Chat, Form::Streamed, true),
        Self::new(Dialect::Chat, Form::Whole, false),
        Self::new(Dialect::Native, Form::Streamed, false),
        Self::new(Dialect::Native, Form::Whole, false),
        Self::new(Dialect::Responses, Form::Streamed, false),
        Self::new(Dialect::Responses, Form::Whole, false),
        Self::new(Dialect::Responses, Form::Background, true),
        Self::new(Dialect::Responses, Form::Polled, true),
        Self::new(Dialect::Messages, Form::Streamed, false),
        Self::new(Dialect::Messages, Form::Whole, false),
        Self::new(Dialect::AiSdk, Form::Streamed, true),
        Self::new(Dialect::AgUi, Form::Streamed, false),
        Self::new(Dialect::AgUi, Form::Streamed, true),
    ];

    const fn new(dialect: Dialect, form: Form, reads_on: bool) -> Self {
        Self { dialect, form, reads_on }
    }

    /// Where it asks.
    pub(crate) fn path(self) -> &'static str {
        match self.dialect {
            Dialect::Chat => "/v1/chat/completions",
            Dialect::Native => "/v1/agent/completions",
            Dialect::Responses => "/v1/responses",
            Dialect::Messages => "/v1/messages",
            Dialect::AiSdk => "/v1/agent/ui",
            Dialect::AgUi => "/v1/agent/ag-ui",
        }
    }

    /// Whether its requests bear a key. Clients of the others send an equal body again without a word of it.
    pub(crate) fn is_keyed(self) -> bool {
        match self.dialect {
            Dialect::Chat | Dialect::Native | Dialect::AiSdk | Dialect::AgUi => true,
            Dialect::Responses | Dialect::Messages => false,
        }
    }

    /// Whether its chat is a session, so that it cannot ask without one.
    pub(crate) fn needs_session(self) -> bool {
        match self.dialect {
            Dialect::AiSdk | Dialect::AgUi => true,
            Dialect::Chat | Dialect::Native | Dialect::Responses | Dialect::Messages => false,
        }
    }

    /// Whether a run that is asked for so fails where the upstream breaks off within a text, which its stream cannot take
    /// back.
    pub(crate) fn cannot_void(self) -> bool {
        self.form == Form::Streamed && matches!(self.dialect, Dialect::Chat | Dialect::Messages)
    }

    /// The body that asks for this plan, with these options of the agent.
    pub(crate) fn body(self, plan: &Plan, session: Option<&str>, agent: &Value) -> Value {
        let text = plan.message();
        let mut agent = agent.clone();
        if let Some(session) = session.filter(|_| !self.needs_session()) {
            agent["session_id"] = json!(session);
        }
        let user = json!([{"id": "m1", "role": "user", "content": text}]);
        let said = json!([{"role": "user", "content": text}]);
        let (is_stream, is_background) = match self.form {
            Form::Streamed => (true, false),
            Form::Whole => (false, false),
            Form::Background => (true, true),
            Form::Polled => (false, true),
        };
        let body = json!({"model": "test", "stream": is_stream, "agent": agent});
        match self.dialect {
            Dialect::Chat | Dialect::Native => with(body, &json!({"messages": said})),
            Dialect::Responses => with(body, &json!({"input": text, "background": is_background})),
            Dialect::Messages => with(body, &json!({"messages": said, "max_tokens": 8192})),
            Dialect::AiSdk => {
                let parts = json!([{"type": "text", "text": text}]);
                let message = json!({"id": "m1", "role": "user", "parts": parts});
                json!({"id": session, "model": "test", "agent": agent, "trigger": "submit-message", "messages": [message]})
            }
            Dialect::AgUi => {
                let props = json!({"model": "test", "agent": agent});
                json!({"threadId": session, "runId": plan.tag, "messages": user, "tools": [], "context": [],
                    "state": {}, "forwardedProps": props})
            }
        }
    }
}

impl Dialect {
    /// What these events tell.
    pub(crate) fn told(self, frames: &[Frame]) -> Told {
        match self {
            Self::Chat => chat::told(frames),
            Self::Native => native::told(frames),
            Self::Responses => responses::told(frames),
            Self::Messages => messages::told(frames),
            Self::AiSdk => ai_sdk::told(frames),
            Self::AgUi => ag_ui::told(frames),
        }
    }

    /// What an answer in one piece tells.
    pub(crate) fn told_whole(self, body: &Value) -> Told {
        match self {
            Self::Chat | Self::Native => chat::told_whole(body),
            Self::Responses => responses::told_whole(body),
            Self::Messages => messages::told_whole(body),
            Self::AiSdk | Self::AgUi => Told::odd(format!("no answer of this dialect is in one piece: {body}")),
        }
    }

    /// Whether an event stands beside those of the answer, and bears the number of the one before it: who reads on leaves it
    /// out.
    pub(crate) fn is_beside(self, frame: &Frame) -> bool {
        self == Self::Responses && matches!(&*frame.name, "error" | "keepalive")
    }

    /// The number of an event by which a client says how far it has read.
    pub(crate) fn number(self, frame: &Frame) -> Option<u64> {
        match self {
            Self::Chat | Self::Native => frame.id,
            Self::Responses => responses::number(frame),
            Self::Messages | Self::AiSdk | Self::AgUi => None,
        }
    }
}

impl Asked {
    /// Nothing so far.
    pub(crate) fn new(asking: Asking) -> Self {
        Self { asking, attempts: Vec::new(), stored: None, elsewhere: None }
    }

    /// Where the response can be read by its id, if the API keeps one.
    pub(crate) fn stored_path(&self) -> Option<String> {
        let answers = self.attempts.iter().filter(|attempt| attempt.status == 200);
        let is_kept = self.asking.dialect == Dialect::Responses;
        let id = answers.filter(|_| is_kept).find_map(responses::id)?;
        Some(format!("/v1/responses/{id}"))
    }

    /// What the first `count` attempts told together: a stream that goes on does so behind what its client has kept.
    pub(crate) fn told_by(&self, count: usize) -> Told {
        let dialect = self.asking.dialect;
        let answers = || self.attempts[..count].iter().filter(|attempt| attempt.status == 200);
        match answers().next_back() {
            Some(Attempt { body: Some(body), .. }) => return dialect.told_whole(body),
            Some(_) => {}
            None => return Told::default(),
        }
        let mut kept: Vec<&Frame> = Vec::new();
        for attempt in answers() {
            let reaches = |frame: &Frame| dialect.number(frame) == attempt.after;
            kept.retain(|frame| !dialect.is_beside(frame));
            let reached = attempt.after.and_then(|_| kept.iter().rposition(|frame| reaches(frame)));
            kept.truncate(reached.map_or(0, |at| at + 1));
            kept.extend(&attempt.frames);
        }
        dialect.told(&kept.into_iter().cloned().collect::<Vec<_>>())
    }

    /// What it was told in the end.
    pub(crate) fn told(&self) -> Told {
        self.told_by(self.attempts.len())
    }

    /// What it sends next, where its run and its session are called so.
    pub(crate) fn next(&self, run: Option<&str>, session: Option<&str>) -> Request {
        let Asking { dialect, form, reads_on } = self.asking;
        let (Some(run), Some(last), true) = (run, self.attempts.last(), reads_on) else { return Request::Ask };
        let answers = || self.attempts.iter().filter(|attempt| attempt.status == 200);
        let numbers = answers().flat_map(|attempt| &attempt.frames).filter_map(|frame| dialect.number(frame));
        let newest = numbers.max();
        match dialect {
            Dialect::Responses => {
                let Some(id) = answers().find_map(responses::id) else { return Request::Ask };
                if form == Form::Polled {
                    return Request::Read(format!("/v1/responses/{id}"), None);
                }
                let after = newest.map(|number| format!("&starting_after={number}")).unwrap_or_default();
                Request::Read(format!("/v1/responses/{id}?stream=true{after}"), newest)
            }
            // There is nothing to read, or what was read is void.
            _ if last.status == 204 || self.told().has_failed() => Request::Ask,
            Dialect::Chat if newest.is_some() => Request::Read(format!("/v1/runs/{run}/events?events=none"), newest),
            Dialect::AiSdk => Request::Read(format!("/v1/agent/ui/{}/stream", session.unwrap_or_default()), None),
            Dialect::AgUi => Request::Read(format!("/v1/runs/{run}/events?events=ag-ui"), None),
            Dialect::Chat | Dialect::Native | Dialect::Messages => Request::Ask,
        }
    }
}
