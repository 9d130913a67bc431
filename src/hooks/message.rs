//! What a hook is told, as JSON.
//!
//! Pure. A message says whose run it is, where the run is, and what happens there. It holds no secret: no header, no key,
//! nothing of how tools and models are reached.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::types::hook::HookPoint;
use crate::types::json::compact;
use crate::types::{BudgetOwner, CallId, Outcome, RunId, RunSpec, SessionId, Tenant, ToolCall, ToolOutcome};

/// How many bytes of each text a message has.
const MOST_TEXT: usize = 64 << 10;
/// How many bytes a message has that is kept until it is taken. One that would have more leaves texts out.
pub const MOST_KEPT: usize = 256 << 10;

/// What a hook is told.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// Its name.
    pub hook: &'a str,
    /// Where it stands.
    pub point: HookPoint,
    /// Whose run.
    pub whose: Whose<'a>,
    /// When it happens, Unix milliseconds.
    pub at_ms: u64,
    /// In which step; 0 before the first.
    pub step: u32,
    /// The number of the event that it is about, by which a receiver puts messages about a run in order.
    pub seq: Option<u64>,
    /// What happens.
    pub what: What<'a>,
}

/// A run, and whose it is.
#[derive(Debug, Clone, Copy)]
pub struct Whose<'a> {
    /// The run.
    pub run: &'a RunId,
    /// Its session.
    pub session: Option<&'a SessionId>,
    /// Its tenant.
    pub tenant: &'a Tenant,
    /// Its agent.
    pub agent: &'a str,
    /// What its request named as the model.
    pub model: &'a str,
    /// Whom its request names as the user.
    pub user: Option<&'a str>,
    /// The id of its request.
    pub request: Option<&'a str>,
}

impl<'a> From<&'a RunSpec> for Whose<'a> {
    fn from(spec: &'a RunSpec) -> Self {
        Self {
            run: &spec.id,
            session: spec.session.as_ref(),
            tenant: &spec.tenant,
            agent: &spec.agent,
            model: &spec.model,
            user: spec.options.sampling.user.as_deref(),
            request: spec.request_id.as_deref(),
        }
    }
}

/// What happens.
#[derive(Debug, Clone, Copy)]
pub enum What<'a> {
    /// The run begins.
    Start,
    /// A call is about to be made.
    Call(Call<'a>),
    /// A call has its answer.
    Answer(Call<'a>, CallAnswer<'a>),
    /// Four fifths of a budget are used.
    Budget(Budget),
    /// The run ended, or waits.
    End(Ended<'a>),
    /// A guardrail asks about a text.
    Text(Text<'a>),
}

impl<'a> What<'a> {
    /// The call that it is about.
    #[must_use]
    pub fn call(&self) -> Option<Call<'a>> {
        match *self {
            Self::Call(call) | Self::Answer(call, _) => Some(call),
            Self::Start | Self::Budget(_) | Self::End(_) | Self::Text(_) => None,
        }
    }

    /// What a message about it says that another one about the same call may say otherwise.
    #[must_use]
    pub fn digested(&self) -> String {
        match self {
            Self::Call(call) => call.arguments.to_owned(),
            Self::Answer(call, CallAnswer(outcome)) => {
                let beside = outcome.structured.as_ref().filter(|_| !outcome.parts.is_empty());
                let beside = beside.map_or_else(String::new, |json| format!("\n{}", json.get()));
                format!("{}\n{}\n{}{beside}", call.arguments, outcome.is_error, outcome.text())
            }
            Self::Text(text) => format!("{}\n{}\n{}", text.guardrail, text.on, text.text),
            Self::Start | Self::Budget(_) | Self::End(_) => String::new(),
        }
    }
}

/// A call.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Its id.
    pub id: &'a CallId,
    /// The tool.
    pub tool: &'a str,
    /// Its arguments, as JSON text.
    pub arguments: &'a str,
}

impl<'a> From<&'a ToolCall> for Call<'a> {
    fn from(call: &'a ToolCall) -> Self {
        Self { id: &call.id, tool: &call.name, arguments: &call.arguments }
    }
}

/// A text that is to be judged.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// The guardrail that asks.
    pub guardrail: &'a str,
    /// What is judged.
    pub on: &'static str,
    /// The whole text.
    pub text: &'a str,
    /// The call whose arguments or result it is: its id, and its tool.
    pub call: Option<(&'a CallId, &'a str)>,
}

/// What came of a call.
#[derive(Debug, Clone, Copy)]
pub struct CallAnswer<'a>(pub &'a ToolOutcome);

/// A budget of which four fifths are used.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Budget {
    /// Whose.
    pub scope: &'static str,
    /// `tokens` or `cost`.
    pub kind: &'static str,
    /// How much is used: tokens, or micro-dollars.
    pub used: u64,
    /// Of how much.
    pub limit: u64,
}

/// How a run ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a>(pub &'a Outcome);

#[derive(Debug, Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    event: &'static str,
    timestamp: String,
    hook: &'a str,
    run_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    tenant: &'a str,
    agent: &'a str,
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "is_zero")]
    step: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guardrail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_raw: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_error: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<Budget>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<RunEnd<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

#[derive(Debug, Serialize)]
struct RunEnd<'a> {
    status: &'static str,
    stop_reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    output_text: String,
    iterations: u32,
    tool_calls: u32,
    input_tokens: u64,
    output_tokens: u64,
    cost_usd: f64,
    total_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Message<'_> {
    /// The call that it is about.
    #[must_use]
    pub fn call(&self) -> Option<Call<'_>> {
        self.what.call()
    }

    /// All of it, as a hook is asked: what is judged is judged whole.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        write(&self.body(MOST_TEXT))
    }

    /// The message as it is kept: without texts where these would make it too long.
    #[must_use]
    pub fn encode_to_keep(&self) -> Bytes {
        let whole = self.encode();
        if whole.len() <= MOST_KEPT {
            return whole;
        }
        write(&Body { input: None, input_raw: None, truncated: true, ..self.body(MOST_TEXT / 16) })
    }

    /// The same with a sentence for people as its `text`.
    #[must_use]
    pub fn encode_in_words(&self) -> Bytes {
        // Nothing of what was said, nor the message of an error, which may quote it: a channel has other readers than a run.
        let said = Body { input: None, input_raw: None, output: None, ..self.body(0) };
        let run = said.run.map(|run| RunEnd { error: None, ..run });
        write(&Body { text: Some(self.in_words()), truncated: false, run, ..said })
    }

    /// One sentence for people.
    #[must_use]
    pub fn in_words(&self) -> String {
        let Whose { run, agent, .. } = self.whose;
        // In a channel, other characters could be a link or call people.
        let plain = |name: &str| name.replace(|c: char| !(c.is_alphanumeric() || "_-.".contains(c)), "?");
        let whose = format!("run {run} of agent {agent}");
        match self.what {
            What::Start => format!("The {whose} begins."),
            What::Call(call) => format!("The {whose} is about to call {}.", plain(call.tool)),
            What::Answer(call, CallAnswer(outcome)) => {
                let how = if outcome.is_error { "failed" } else { "succeeded" };
                format!("A call of {} {how} in the {whose}, after {} ms.", plain(call.tool), outcome.latency_ms)
            }
            What::Budget(Budget { scope, kind, used, limit }) => {
                format!(
                    "Four fifths of a budget are used ({scope}, {kind}: {used} of {limit}); noticed in the {whose}."
                )
            }
            What::Text(Text { guardrail, .. }) => format!("The guardrail {} asks in the {whose}.", plain(guardrail)),
            What::End(Ended(outcome)) => {
                let (status, reason) = (outcome.status().as_str(), outcome.reason.as_str());
                let (tokens, cost) = (outcome.usage.total(), outcome.cost.as_usd());
                format!("The {whose} is {status} ({reason}). It took {tokens} tokens and ${cost}.")
            }
        }
    }

    fn body(&self, most_text: usize) -> Body<'_> {
        let Self { hook, point, whose, at_ms, step, seq, .. } = *self;
        let cut = |text: &str| text[..text.floor_char_boundary(most_text)].to_owned();
        let (call, answer) = match self.what {
            What::Answer(_, CallAnswer(outcome)) => (self.call(), Some(outcome)),
            What::Call(_) | What::Start | What::Budget(_) | What::End(_) | What::Text(_) => (self.call(), None),
        };
        let output = answer.map(|outcome| outcome.text());
        let end = match self.what {
            What::End(Ended(outcome)) => Some(outcome),
            What::Start | What::Call(_) | What::Answer(..) | What::Budget(_) | What::Text(_) => None,
        };
        let judged = if let What::Text(text) = self.what { Some(text) } else { None };
        let about = judged.and_then(|judged| judged.call).or(call.map(|call| (call.id, call.tool)));
        let is_long = |text: Option<&str>| text.is_some_and(|text| text.len() > most_text);
        let truncated = is_long(output.as_deref()) || is_long(end.map(|outcome| outcome.output_text.as_str()));
        Body {
            kind: point.as_str(),
            event: point.as_str(),
            timestamp: timestamp(at_ms),
            hook,
            run_id: whose.run.as_str(),
            session_id: whose.session.map(SessionId::as_str),
            tenant: whose.tenant.as_str(),
            agent: whose.agent,
            model: whose.model,
            user: whose.user,
            request_id: whose.request,
            step,
            seq,
            guardrail: judged.map(|judged| judged.guardrail),
            on: judged.map(|judged| judged.on),
            text: judged.map(|judged| judged.text.to_owned()),
            call_id: about.map(|(id, _)| id.as_str()),
            tool: about.map(|(_, tool)| tool),
            // Arguments that are no JSON are there as text alone.
            input: call.and_then(|call| serde_json::from_str(call.arguments).ok()),
            input_raw: call.map(|call| call.arguments),
            output: output.as_deref().map(cut),
            is_error: answer.map(|outcome| outcome.is_error),
            latency_ms: answer.map(|outcome| outcome.latency_ms),
            budget: match self.what {
                What::Budget(budget) => Some(budget),
                What::Start | What::Call(_) | What::Answer(..) | What::End(_) | What::Text(_) => None,
            },
            run: end.map(|outcome| run_end(outcome, cut(&outcome.output_text))),
            truncated,
        }
    }
}

impl Budget {
    /// A budget of `owner`.
    #[must_use]
    pub fn new(owner: BudgetOwner, kind: &'static str, used: u64, limit: u64) -> Self {
        Self { scope: owner.as_str(), kind, used, limit }
    }
}

fn run_end(outcome: &Outcome, output_text: String) -> RunEnd<'_> {
    RunEnd {
        status: outcome.status().as_str(),
        stop_reason: outcome.reason.as_str(),
        error: outcome.error.as_ref().map(|error| error.message.as_str()),
        output_text,
        iterations: outcome.iterations,
        tool_calls: outcome.tool_calls,
        input_tokens: outcome.usage.prompt_tokens,
        output_tokens: outcome.usage.completion_tokens,
        cost_usd: outcome.cost.as_usd(),
        total_ms: outcome.report.total_ms,
    }
}

fn timestamp(at_ms: u64) -> String {
    let moment = jiff::Timestamp::from_millisecond(i64::try_from(at_ms).unwrap_or(i64::MAX));
    moment.map_or_else(|_| at_ms.to_string(), |moment| format!("{moment:.3}"))
}

fn write(body: &Body<'_>) -> Bytes {
    compact(body).expect("a message is always JSON")
}
