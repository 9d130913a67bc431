//! Hooks: services and programs of the operator's that are asked what is to become of something in a run, or told that it
//! happened.
//!
//! A [`Message`] says what happens. A hook that is asked answers a [`HookReply`]; the run waits for it, and its operator
//! says what holds where it fails. A hook that is told answers nothing: its message is kept until it was taken. Which hooks a
//! run is subject to, when they are asked and what follows from what they say is the agent's to know; nothing here knows
//! runs, logs or stores.

mod command;
pub mod delivery;
mod failure;
mod message;
mod reply;
mod signature;
mod verdict;
mod webhook;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use crate::config::{HookAction, HookCommand, HookConfig};
use crate::net::client::{CannotConnect, HttpClient};
use crate::types::hook::{HookDecision, HookPoint, HookReply, PinnedHook};
use crate::types::unambiguous::unambiguous_object;

pub use self::failure::HookFailure;
pub use self::message::{Budget, Call, CallAnswer, Ended, Message, Text, What, Whose};
pub use self::signature::headers;
pub use self::webhook::client;

/// The hooks of a configuration.
#[derive(Debug, Clone, Default)]
pub struct Hooks {
    /// In the order of the file.
    all: Arc<[Hook]>,
    by_name: Arc<HashMap<String, usize>>,
}

/// How many programs of one hook run at once.
const PROGRAMS: usize = 64;

/// A hook, and what it is reached with.
#[derive(Debug)]
pub struct Hook {
    config: HookConfig,
    client: Option<HttpClient>,
    /// For its programs.
    places: Semaphore,
}

impl Hooks {
    /// The hooks of these settings. `client` makes one for each hook that needs it.
    pub fn new(
        configs: &[HookConfig],
        mut client: impl FnMut() -> Result<HttpClient, CannotConnect>,
    ) -> Result<Self, CannotConnect> {
        let hook = |config: &HookConfig| {
            let client = match config.action {
                HookAction::Webhook(_) | HookAction::Notify(_) => Some(client()?),
                HookAction::Log
                | HookAction::Metric
                | HookAction::Command(_)
                | HookAction::Block(_)
                | HookAction::Rewrite { .. } => None,
            };
            Ok(Hook::new(config.clone(), client))
        };
        let all = configs.iter().map(hook).collect::<Result<_, CannotConnect>>()?;
        let by_name = configs.iter().enumerate().map(|(place, config)| (config.name.clone(), place)).collect();
        Ok(Self { all, by_name: Arc::new(by_name) })
    }

    /// The hook of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Hook> {
        self.by_name.get(name).map(|place| &self.all[*place])
    }

    /// Whether any of them may ask for the approval of a call.
    #[must_use]
    pub fn may_ask(&self) -> bool {
        self.all.iter().any(|hook| hook.config.is_asked && hook.config.points.contains(&HookPoint::BeforeTool))
    }

    /// Those that a run of this agent and user is subject to, in the order in which they are asked.
    #[must_use]
    pub fn pinned(&self, agent: &str, user: Option<&str>) -> Vec<PinnedHook> {
        let stands = |hook: &&Hook| !hook.config.is_of_guardrails() && hook.config.concerns(agent, user);
        let concerned = self.all.iter().filter(stands);
        concerned.map(|hook| hook.config.pinned()).collect()
    }
}

impl Hook {
    fn new(config: HookConfig, client: Option<HttpClient>) -> Self {
        Self { config, client, places: Semaphore::new(PROGRAMS) }
    }

    /// How it is configured.
    #[must_use]
    pub fn config(&self) -> &HookConfig {
        &self.config
    }

    /// Asks what is to become of what `message` tells. `id` names the message, however often it is sent.
    pub async fn ask(&self, id: &str, message: &Message<'_>) -> Result<HookReply, HookFailure> {
        let (point, timeout) = (message.point, self.config.timeout);
        let asked = async {
            match &self.config.action {
                HookAction::Log | HookAction::Metric | HookAction::Notify(_) => Ok(HookReply::default()),
                HookAction::Block(reason) => {
                    Ok(HookReply { decision: HookDecision::Deny, reason: Some(reason.clone()), ..HookReply::default() })
                }
                HookAction::Rewrite { arguments, result } => {
                    Ok(rewritten(message, arguments.as_ref(), result.as_ref()))
                }
                HookAction::Webhook(webhook) => {
                    let answer = webhook::ask(self.client()?, webhook, id, message.encode()).await?;
                    reply::parse(&answer, point)
                }
                HookAction::Command(command) => match self.run(command, message.encode()).await? {
                    command::Ran::Wrote(answer) => reply::parse(&answer, point),
                    command::Ran::Denied(reason) => {
                        let reason = (!reason.is_empty()).then_some(reason);
                        Ok(HookReply { decision: HookDecision::Deny, reason, ..HookReply::default() })
                    }
                },
            }
        };
        tokio::time::timeout(timeout, asked).await.unwrap_or_else(|_| Err(took_too_long(timeout)))
    }

    /// Sends a message that was encoded before, and asks for nothing but that it is taken.
    pub async fn tell(&self, id: &str, message: Bytes) -> Result<(), HookFailure> {
        let timeout = self.config.timeout;
        let told = async {
            match &self.config.action {
                HookAction::Webhook(webhook) | HookAction::Notify(webhook) => {
                    webhook::tell(self.client()?, webhook, id, message).await
                }
                HookAction::Command(command) => match self.run(command, message).await? {
                    command::Ran::Wrote(_) => Ok(()),
                    command::Ran::Denied(_) => Err(HookFailure::new("the program ended with status 2")),
                },
                HookAction::Log | HookAction::Metric | HookAction::Block(_) | HookAction::Rewrite { .. } => {
                    Err(HookFailure::new("the hook of this name takes no messages now"))
                }
            }
        };
        tokio::time::timeout(timeout, told).await.unwrap_or_else(|_| Err(took_too_long(timeout)))
    }

    /// Runs a program, once there is a place for it.
    async fn run(&self, command: &HookCommand, message: Bytes) -> Result<command::Ran, HookFailure> {
        let _place = self.places.acquire().await.map_err(|_| HookFailure::new("no program is started any more"))?;
        command::run(command, message).await
    }

    fn client(&self) -> Result<&HttpClient, HookFailure> {
        self.client.as_ref().ok_or_else(|| HookFailure::new("the hook has no HTTP client"))
    }
}

fn took_too_long(timeout: std::time::Duration) -> HookFailure {
    HookFailure::new(format!("no answer within {} ms", timeout.as_millis()))
}

/// What a hook says that sets arguments or the result.
fn rewritten(message: &Message<'_>, set: Option<&Map<String, Value>>, result: Option<&String>) -> HookReply {
    let arguments = set.filter(|_| message.point == HookPoint::BeforeTool).and_then(|set| {
        // A call whose arguments are no object, or no unambiguous one, is refused as it is.
        let mut arguments = unambiguous_object(message.call()?.arguments)?;
        arguments.extend(set.clone());
        Some(Value::Object(arguments).to_string())
    });
    HookReply { arguments, result: result.cloned(), ..HookReply::default() }
}

/// What a hook of this name says where it fails, or is not there.
#[must_use]
pub fn failed(pinned: &PinnedHook) -> HookReply {
    if pinned.fails_open {
        return HookReply::default();
    }
    // Why it failed is in the server's log: it may tell of the operator's network.
    let reason = format!("The hook `{}` gave no answer.", pinned.name);
    HookReply { decision: HookDecision::Deny, reason: Some(reason), ..HookReply::default() }
}

#[cfg(test)]
mod tests;
