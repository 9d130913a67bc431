//! What a request may ask for that shows a token in place of a key: a run in the token's session, by its agent and for its user, and
//! nothing that only who knows the key should decide.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::agent::error::LookupError;
use crate::agent::{Agent, NewRun};
use crate::api::auth::token::{Bound, May, Token};
use crate::api::auth::{forbidden, of_run};
use crate::api::error::ApiError;
use crate::api::wire::asked::RequestContext;
use crate::api::wire::body::{clip, parse};
use crate::api::wire::openai_chat::request::read_request;
use crate::api::wire::openai_chat::shape::ResponseShape;
use crate::types::{CallId, Role, RunId, SessionId};

/// What its body may have. What is unknown would be sent to upstreams, so it may not.
const MEMBERS: [&str; 21] = [
    "agent",
    "frequency_penalty",
    "input",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "model",
    "n",
    "parallel_tool_calls",
    "presence_penalty",
    "reasoning_effort",
    "response_format",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_p",
    "user",
];

/// What its `agent` may have.
const AGENT_MEMBERS: [&str; 11] = [
    "background",
    "delegate_events",
    "events",
    "include_report",
    "intermediate_text",
    "on_conflict",
    "on_disconnect",
    "reconnect_grace_ms",
    "session_id",
    "stream_tool_arguments",
    "tools",
];

/// Reads a request as one of this token. It need not name the session and the agent, which the token does.
pub async fn read_of_token(
    token: &Token,
    agent: &Agent,
    body: &str,
    context: impl Fn(Option<&str>) -> Result<RequestContext, ApiError>,
) -> Result<(NewRun, ResponseShape), ApiError> {
    let session = session_of(token)?;
    // A body that names its session is compared with the token below.
    let own = if names_session(body)? { None } else { Some(session.as_str()) };
    let (mut new, shape) = read_request(body, context(own)?)?;
    if new.run.is_some() || !new.approvals.is_empty() {
        return Err(forbidden("a token starts runs and answers calls; it decides nothing about them").at("messages"));
    }
    bind(token, session, &mut new)?;
    check_calls(token, agent, &new).await?;
    Ok((new, shape))
}

/// Refuses what a chat interface may not ask for with this token, and adds what it says. `place` is where its body has the options.
pub async fn bind_chat(
    token: &Token,
    agent: &Agent,
    (body, place): (&str, OptionsPlace),
    new: &mut NewRun,
) -> Result<(), ApiError> {
    let session = session_of(token)?;
    if !new.approvals.is_empty() && !token.may(May::Approve) {
        return Err(forbidden("this needs a token that may approve, which this one may not").at("messages"));
    }
    let members: BTreeMap<String, &RawValue> = parse(body)?;
    match place {
        OptionsPlace::Body => check_options("agent", members.get("agent").copied())?,
        OptionsPlace::ForwardedProps => {
            let props = options(members.get("forwardedProps").copied());
            check_options("forwardedProps.agent", props.get("agent").copied())?;
        }
    }
    bind(token, session, new)?;
    check_calls(token, agent, new).await
}

/// Where the body of a chat interface has what Loopgate adds.
#[derive(Debug, Clone, Copy)]
pub enum OptionsPlace {
    /// In `agent`.
    Body,
    /// In `forwardedProps.agent`.
    ForwardedProps,
}

fn session_of(token: &Token) -> Result<&SessionId, ApiError> {
    match &token.on {
        Bound::Session(session) => Ok(session),
        Bound::Run(_) => Err(forbidden("this token is for a run alone")),
    }
}

/// Refuses answers to calls, and decisions about calls, of runs that are beyond the token.
async fn check_calls(token: &Token, agent: &Agent, new: &NewRun) -> Result<(), ApiError> {
    let decided = new.approvals.iter().map(|approval| &approval.call);
    for run in decided.filter_map(CallId::run) {
        of_run(token, agent, &run).await.map_err(|error| error.at("messages"))?;
    }
    for run in new.answered.iter().filter_map(CallId::run) {
        // What a chat repeats of a run that is kept no more answers nothing, and is left out.
        let is_gone = new.repeats && is_gone(token, agent, &run).await?;
        if !is_gone {
            of_run(token, agent, &run).await.map_err(|error| error.at("messages"))?;
        }
    }
    Ok(())
}

async fn is_gone(token: &Token, agent: &Agent, run: &RunId) -> Result<bool, ApiError> {
    match agent.runs().session_of(&token.tenant, run).await {
        Ok(_) => Ok(false),
        Err(LookupError::RunNotFound(_)) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Refuses members that a token may not ask for, and says whether the body names a session.
fn names_session(body: &str) -> Result<bool, ApiError> {
    let members: BTreeMap<String, &RawValue> = parse(body)?;
    if let Some(name) = members.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
        return Err(of_keys(clip(name).to_owned()));
    }
    let agent = members.get("agent").copied();
    check_options("agent", agent)?;
    Ok(options(agent).get("session_id").is_some_and(|session| session.get() != "null"))
}

/// The members of options; what is wrong with them is said by the reader of the whole request.
fn options(options: Option<&RawValue>) -> BTreeMap<String, &RawValue> {
    options.and_then(|options| serde_json::from_str(options.get()).ok()).unwrap_or_default()
}

/// Refuses options that a token may not ask for; the body has them at `path`.
fn check_options(path: &str, raw: Option<&RawValue>) -> Result<(), ApiError> {
    match options(raw).keys().find(|name| !AGENT_MEMBERS.contains(&name.as_str())) {
        Some(name) => Err(of_keys(format!("{path}.{}", clip(name)))),
        None => Ok(()),
    }
}

/// The refusal of a member that only a key may use.
fn of_keys(path: String) -> ApiError {
    forbidden(format!("{path} is for the holder of a key; a token may not ask for it")).at(path)
}

/// Refuses what is not of the token, and adds what it says.
fn bind(token: &Token, session: &SessionId, new: &mut NewRun) -> Result<(), ApiError> {
    if new.session.as_ref() != Some(session) {
        return Err(forbidden(format!("this token is for the session {session} alone")).at("agent.session_id"));
    }
    new.of_page = true;
    let is_of_page = |role: Role| matches!(role, Role::User | Role::Tool);
    if !new.system.is_empty() || !new.messages.iter().all(|message| is_of_page(message.role)) {
        let message =
            "a token sends messages of `user`, and results of `tool`; all else is the agent's and the session's";
        return Err(forbidden(message).at("messages"));
    }
    if new.servers.is_some() {
        return Err(forbidden("a token may not name servers of tools").at("tools"));
    }
    if let Some(agent) = &token.agent {
        if new.model.as_ref().is_some_and(|model| model != agent) {
            return Err(forbidden(format!("this token starts the agent {agent:?} alone")).at("model"));
        }
        new.model = Some(agent.clone());
    }
    let sampling = Arc::make_mut(&mut new.options.sampling);
    if sampling.user.is_some() && sampling.user != token.user {
        return Err(forbidden("this token is not for this user").at("user"));
    }
    sampling.user.clone_from(&token.user);
    Ok(())
}

/// The name under which a request of a token claims its idempotency key: no other session's is found by it.
pub fn claimed_route<'a>(route: &'a str, token: Option<&Token>) -> Cow<'a, str> {
    match token.map(|token| &token.on) {
        Some(Bound::Session(session)) => format!("{route}/of/{session}").into(),
        Some(Bound::Run(run)) => format!("{route}/of/{run}").into(),
        None => route.into(),
    }
}
