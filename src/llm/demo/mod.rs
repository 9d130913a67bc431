//! The built-in demo model: no network, no weights, a few rules.
//!
//! It exists so that a server without any upstream shows the whole loop: tools that are really called,
//! in parallel and over many steps, limits that are hit, sessions that remember, answers that stream.
//! Every answer says that it comes from a demo.

mod arithmetic;
mod phrases;
mod rules;
mod support;
mod transcript;

use std::time::Duration;

use async_stream::stream;
use tokio::time::sleep;

use futures_util::future::BoxFuture;

use crate::llm::demo::rules::{Offer, Reply};
use crate::llm::demo::transcript::Transcript;
use crate::llm::offered::OfferedModel;
use crate::llm::{
    Delta, DeltaStream, Model, ModelCall, ModelError, ModelErrorKind, ModelPart, ModelRequest, ModelTurn, Unsupported,
};
use crate::types::sampling::Sampling;
use crate::types::{Message, TurnEnd, Usage};

/// What every answer begins with.
const SIGNATURE: &str = "[demo model] ";

/// The demo model.
#[derive(Debug, Clone)]
pub struct DemoModel {
    /// The pause before each word.
    pub word_delay: Duration,
}

impl Default for DemoModel {
    fn default() -> Self {
        Self { word_delay: Duration::from_millis(15) }
    }
}

impl Model for DemoModel {
    fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
        Box::pin(std::future::ready(Ok(vec!["demo".into()])))
    }

    fn stream(&self, request: ModelRequest) -> DeltaStream {
        let word_delay = self.word_delay;
        Box::pin(stream! {
            let turn = match answer(&request) {
                Ok(turn) => turn,
                Err(error) => {
                    yield Err(error);
                    return;
                }
            };
            for word in turn.text().split_inclusive(' ') {
                sleep(word_delay).await;
                yield Ok(Delta::Text(word.to_owned()));
            }
            for (index, call) in turn.calls().enumerate() {
                for word in call.arguments.split_inclusive(' ') {
                    sleep(word_delay).await;
                    yield Ok(Delta::CallArguments { index, delta: word.to_owned() });
                }
            }
            yield Ok(Delta::Finished(Box::new(turn)));
        })
    }

    fn refuses(&self, sampling: &Sampling, messages: &[Message]) -> Option<Unsupported> {
        support::unsupported(sampling, messages)
    }

    fn refuses_part(&self, message: &Message) -> Option<(usize, String)> {
        support::unsupported_part_of(message)
    }

    fn unsent<'s>(&self, _model: &str, sampling: &'s Sampling) -> Vec<&'s str> {
        support::unheeded(sampling)
    }
}

/// The whole turn.
fn answer(request: &ModelRequest) -> Result<ModelTurn, ModelError> {
    let unreadable = |error: serde_json::Error| {
        let message = format!("The demo model cannot read the request: {error}");
        ModelError::new(ModelErrorKind::Rejected, message)
    };
    let transcript = Transcript::read(&request.conversation).map_err(unreadable)?;
    let offer = Offer::of(request);
    let mut allowance = Allowance { left: request.max_tokens.unwrap_or(u64::MAX), used: 0, cut: false };
    let mut turn = ModelTurn::default();
    turn.end = match rules::reply(&transcript, &offer) {
        Reply::Text(text) => {
            let text = format!("{SIGNATURE}{text}");
            let text = support::until(&text, request.sampling.stop.as_ref());
            turn = ModelTurn::of("", &allowance.take(text), Vec::new());
            TurnEnd::Stop
        }
        Reply::Calls(calls) => {
            for call in calls {
                if !allowance.cut {
                    let arguments = allowance.take(&call.arguments);
                    turn.parts.push(ModelPart::Call(ModelCall { arguments, ..call }));
                }
            }
            TurnEnd::ToolCalls
        }
    };
    if allowance.cut {
        turn.end = TurnEnd::Length;
    }
    let prompt_bytes = request.conversation.weight() + request.tools.weight();
    let prompt_tokens = u64::try_from(prompt_bytes / 4).unwrap_or(u64::MAX).max(1);
    turn.usage = Some(Usage { prompt_tokens, completion_tokens: allowance.used, ..Usage::default() });
    Ok(turn)
}

/// How many tokens may still be said, and how many were.
struct Allowance {
    left: u64,
    used: u64,
    cut: bool,
}

impl Allowance {
    /// As many whole words of `text` as there are tokens for, as a real model would be cut off.
    fn take(&mut self, text: &str) -> String {
        let mut taken = String::new();
        for word in text.split_inclusive(' ') {
            let cost = tokens(word);
            if cost > self.left {
                self.cut = true;
                break;
            }
            self.left -= cost;
            self.used += cost;
            taken.push_str(word);
        }
        taken
    }
}

/// About one for four characters, and one for a short word.
fn tokens(text: &str) -> u64 {
    u64::try_from(text.chars().count() / 4).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests;
