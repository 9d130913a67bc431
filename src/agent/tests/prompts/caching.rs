//! What an upstream that caches by prefix finds again of a session's requests.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::super::support::{Echo, RETENTION, instructed, outcome, watch};
use super::{asking, says};
use crate::agent::{Agent, AskedPrompt, Generation, NewRun};
use crate::llm::offered::OfferedModel;
use crate::llm::openai::messages::json;
use crate::llm::{Delta, DeltaStream, Model, ModelCall, ModelError, ModelRequest, ModelTurn};
use crate::store::memory::MemoryStore;
use crate::tools::{Registry, Tool};
use crate::types::prompt::{Lasts, PromptLayer};
use crate::types::{Effect, TurnEnd, Usage};

/// Bytes that are cached together.
const BLOCK: usize = 64;

/// Answers after one call of `echo`, and finds the blocks again with which an earlier request began. It counts a token for each
/// four bytes.
#[derive(Debug, Default)]
struct Caching {
    seen: Mutex<Vec<String>>,
}

impl Caching {
    fn answer(&self, request: &ModelRequest) -> ModelTurn {
        let texts: Vec<&str> = request.conversation.iter().map(json).collect();
        let text = texts.join("\n");
        let mut seen = self.seen.lock();
        let common = |old: &String| old.bytes().zip(text.bytes()).take_while(|(old, new)| old == new).count();
        let cached = seen.iter().map(common).max().unwrap_or(0) / BLOCK * BLOCK;
        let is_second = seen.len() % 2 == 1;
        let usage = Usage {
            prompt_tokens: text.len() as u64 / 4,
            cached_tokens: cached as u64 / 4,
            completion_tokens: 100,
            ..Usage::default()
        };
        seen.push(text);
        let call = ModelCall { name: "echo".into(), arguments: format!(r#"{{"n":{}}}"#, seen.len()) };
        let (turn, end) = if is_second {
            (ModelTurn::of("", &"A long answer. ".repeat(20), Vec::new()), TurnEnd::Stop)
        } else {
            (ModelTurn::of("", "", vec![call]), TurnEnd::ToolCalls)
        };
        ModelTurn { usage: Some(usage), end, ..turn }
    }
}

impl Model for Caching {
    fn stream(&self, request: ModelRequest) -> DeltaStream {
        let turn: Result<_, ModelError> = Ok(Delta::Finished(Box::new(self.answer(&request))));
        futures_util::stream::iter([turn]).boxed()
    }

    fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
        Box::pin(std::future::ready(Ok(vec!["m".into()])))
    }
}

/// How many percent of the input of twelve turns were cached, where each is told another time.
async fn cached(lasts: Lasts) -> u64 {
    let instructions = "Follow these instructions. ".repeat(40);
    let echo: Arc<dyn Tool> = Arc::new(Echo::new("echo", Effect::Read, 1));
    let generation = Generation {
        catalog: instructed(Arc::new(Caching::default()), Some(&instructions)),
        tools: Arc::new(Registry::new(vec![echo]).unwrap().into()),
        ..Generation::default()
    };
    let agent = Agent::new(Arc::new(MemoryStore::default()), generation, RETENTION);
    agent.begin();
    let (mut input, mut cached) = (0, 0);
    for number in 10..22 {
        let clock = PromptLayer { lasts, ..PromptLayer::new("clock", &format!("It is 12:{number}.")) };
        let asked = AskedPrompt { layers: vec![clock], ..AskedPrompt::default() };
        let new = NewRun { messages: says(&format!("Question {number}?")).messages, ..asking(asked) };
        let usage = outcome(&watch(agent.admission().start(new, None).await.unwrap()).await).usage;
        (input, cached) = (input + usage.prompt_tokens, cached + usage.cached_tokens);
    }
    cached * 100 / input
}

/// Row T20: what changes stands behind what stays, so that the upstream finds the longest beginning again.
#[tokio::test(start_paused = true)]
async fn what_changes_stands_behind_what_is_cached() {
    let (before, behind) = (cached(Lasts::Stable).await, cached(Lasts::Run).await);
    assert!(behind >= 85, "of the input {behind} % were cached");
    assert!(before <= 62, "with the time before the conversation {before} % were cached");
}
