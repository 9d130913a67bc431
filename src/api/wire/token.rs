//! Tokens for pages, as they are asked for and given.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::agent::revocations::LONGEST_LIFE;
use crate::api::auth::token::{Bound, May};
use crate::api::wire::body::{bad_session_id, clip, missing, parse};
use crate::api::wire::error::{ErrorCode, WireError};
use crate::types::{RunId, SessionId};

/// How long a token lives unless asked otherwise.
const USUAL_LIFE: Duration = Duration::from_secs(300);
/// The longest user: a token is part of every request.
const MOST_USER: usize = 256;

/// A token that is to be given. An unknown field is an error.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// The session that it is for; this or `run_id`. One that may `start` may be for a session that does not exist yet.
    #[schema(example = "visitor-17", pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    session_id: Option<String>,
    /// The run that it is for.
    #[schema(pattern = "^run_[0-9a-f]{32}$")]
    run_id: Option<String>,
    /// What its holder may do there: `follow`, `steer`, `start`, `answer`, `approve`.
    #[schema(value_type = Vec<MayText>, required, min_items = 1, example = json!(["follow", "start"]))]
    may: Option<Vec<String>>,
    /// How many seconds it lives: up to 3,600; 300 without it.
    #[schema(minimum = 1, maximum = 3600)]
    ttl_s: Option<u64>,
    /// The only agent that it starts; those that the key may use without it.
    agent: Option<String>,
    /// The `user` of all runs that it starts, and who the log says decided calls, 256 bytes at most; nobody without it.
    user: Option<String>,
}

/// What a token lets its holder do.
#[derive(ToSchema)]
#[schema(as = TokenMay, rename_all = "snake_case")]
pub enum MayText {
    /// Read runs and their events, and the session with its messages.
    Follow,
    /// Send messages to live runs, and cancel runs.
    Steer,
    /// Start runs in the session, and answer those that wait for their client.
    Start,
    /// Answer questions of tools.
    Answer,
    /// Decide calls that wait for an approval.
    Approve,
}

/// What is asked for, checked.
#[derive(Debug)]
pub struct AskedToken {
    /// What it is for.
    pub on: Bound,
    /// What may be done there.
    pub may: Vec<May>,
    /// How long it lives.
    pub life: Duration,
    /// The only agent that it starts.
    pub agent: Option<String>,
    /// The user of what it starts.
    pub user: Option<String>,
}

/// Reads and checks the body of a request for a token.
pub fn read_create(body: &str) -> Result<AskedToken, WireError> {
    let CreateToken { session_id, run_id, may, ttl_s, agent, user } = parse(body)?;
    let on = match (session_id, run_id) {
        (Some(_), Some(_)) => return Err(WireError::invalid("run_id", "must be left out where there is session_id")),
        (Some(session), None) => {
            Bound::Session(SessionId::parse(&session).ok_or_else(|| bad_session_id("session_id"))?)
        }
        (None, Some(run)) => {
            let none = || WireError::new(ErrorCode::RunNotFound, format!("run {:?} does not exist", clip(&run)));
            Bound::Run(RunId::parse(&run).ok_or_else(|| none().at("run_id"))?)
        }
        (None, None) => {
            let message = "session_id or run_id is missing: what the token is for";
            return Err(WireError::new(ErrorCode::InvalidValue, message).at("session_id"));
        }
    };
    let may = read_may(&may.ok_or_else(|| missing("may"))?)?;
    let life = ttl_s.map_or(USUAL_LIFE, Duration::from_secs);
    if life.is_zero() || life > LONGEST_LIFE {
        return Err(WireError::invalid("ttl_s", format!("must be between 1 and {}", LONGEST_LIFE.as_secs())));
    }
    let starts = may.contains(&May::Start);
    if starts && matches!(on, Bound::Run(_)) {
        return Err(WireError::invalid("may", "may not have `start` for a run; a token for a session starts runs"));
    }
    if agent.is_some() && !starts {
        return Err(WireError::invalid("agent", "must be left out where `may` has no `start`"));
    }
    if user.is_some() && !starts && !may.contains(&May::Approve) {
        return Err(WireError::invalid("user", "must be left out where `may` has neither `start` nor `approve`"));
    }
    if user.as_ref().is_some_and(|user| user.is_empty() || user.len() > MOST_USER) {
        return Err(WireError::invalid("user", format!("must have 1 to {MOST_USER} bytes")));
    }
    Ok(AskedToken { on, may, life, agent, user })
}

/// Each once, in one order.
fn read_may(words: &[String]) -> Result<Vec<May>, WireError> {
    for (place, word) in words.iter().enumerate() {
        if !May::ALL.iter().any(|may| may.as_str() == word) {
            let message = "must be follow, steer, start, answer or approve";
            return Err(WireError::invalid(format!("may[{place}]"), message));
        }
    }
    if words.is_empty() {
        return Err(WireError::invalid("may", "must name something"));
    }
    Ok(May::ALL.into_iter().filter(|may| words.iter().any(|word| word == may.as_str())).collect())
}

/// A token that was given. It is shown this once.
#[derive(Debug, Serialize, ToSchema)]
pub struct TokenObject<'a> {
    /// Its id, by which it is revoked; it opens nothing.
    #[schema(example = "tok_019a0000000070008000000000000000")]
    pub id: &'a str,
    /// `token`.
    pub object: &'static str,
    /// What a page shows in place of a key: `Authorization: Bearer`, or `?token=` of a stream of events.
    pub token: String,
    /// When it expires, Unix milliseconds.
    pub expires_ms: u64,
    /// The session that it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<&'a str>,
    /// The run that it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<&'a str>,
    /// What its holder may do.
    #[schema(value_type = Vec<MayText>)]
    pub may: Vec<&'static str>,
    /// The only agent that it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<&'a str>,
    /// The user of all runs that it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<&'a str>,
}

/// That a token, or all of a key, are void.
#[derive(Debug, Serialize, ToSchema)]
pub struct TokenDeletion {
    /// The token; null for all that the key gave until now.
    pub id: Option<String>,
    /// `token`.
    pub object: &'static str,
    /// `true`.
    pub deleted: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: &serde_json::Value) -> Result<AskedToken, (String, String)> {
        read_create(&body.to_string()).map_err(|error| (error.param.unwrap_or_default(), error.message))
    }

    #[test]
    fn what_is_asked_for_is_checked() {
        let asked = read(&json!({"session_id": "s", "may": ["start", "follow", "start"]})).unwrap();
        assert_eq!((asked.may, asked.life), (vec![May::Follow, May::Start], USUAL_LIFE));
        let run = RunId::mint();
        for (body, param) in [
            (json!({"may": ["follow"]}), "session_id"),
            (json!({"session_id": "s", "run_id": run.as_str(), "may": ["follow"]}), "run_id"),
            (json!({"session_id": "a/b", "may": ["follow"]}), "session_id"),
            (json!({"run_id": "x", "may": ["follow"]}), "run_id"),
            (json!({"session_id": "s"}), "may"),
            (json!({"session_id": "s", "may": []}), "may"),
            (json!({"session_id": "s", "may": ["follow", "all"]}), "may[1]"),
            (json!({"run_id": run.as_str(), "may": ["start"]}), "may"),
            (json!({"session_id": "s", "may": ["follow"], "ttl_s": 0}), "ttl_s"),
            (json!({"session_id": "s", "may": ["follow"], "ttl_s": 3601}), "ttl_s"),
            (json!({"session_id": "s", "may": ["follow"], "agent": "a"}), "agent"),
            (json!({"session_id": "s", "may": ["follow"], "user": "u"}), "user"),
            (json!({"session_id": "s", "may": ["start"], "user": "u".repeat(257)}), "user"),
            (json!({"session_id": "s", "may": ["start"], "scopes": []}), "scopes"),
        ] {
            assert_eq!(read(&body).unwrap_err().0, param, "{body}");
        }
    }
}
