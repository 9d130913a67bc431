//! A model that takes so many tokens, and refuses what has more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::scripted::assert_paired;
use crate::agent::context::fit::transcript::INSTRUCTIONS;
use crate::llm::offered::OfferedModel;
use crate::llm::openai::messages::json;
use crate::llm::told_window::Told;
use crate::llm::{Delta, DeltaStream, Model, ModelCall, ModelError, ModelErrorKind, ModelRequest, ModelTurn, Spent};
use crate::types::context::FLUSH_PROMPT;
use crate::types::{Conversation, Role, TurnEnd, Usage};

/// What becomes of a request for a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent::tests) enum Summaries {
    /// It is written, and says which it is.
    Written,
    /// The same after five seconds.
    Slow,
    /// The model says nothing.
    Empty,
    /// The model fails, and may have cost something.
    Failing,
    /// The model never ends.
    Stalled,
}

/// What becomes of a request to write down what matters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::agent::tests) enum Flushes {
    /// The model adds a line that says the how many-th this is, and calls a tool that it does not have.
    #[default]
    Written,
    /// It adds a line each time that it is asked.
    Endless,
    /// The same after a minute each.
    Slow,
    /// The model fails, and may have cost something.
    Failing,
    /// The model never ends.
    Stalled,
}

/// Calls a tool so often in each turn of the user, then answers. It counts a token for each four bytes.
#[derive(Debug)]
pub(in crate::agent::tests) struct Windowed {
    window: u64,
    /// Whether it says so as it refuses.
    tells: bool,
    calls: usize,
    summaries: Summaries,
    answered: AtomicUsize,
    pub(in crate::agent::tests) refused: AtomicUsize,
    pub(in crate::agent::tests) requests: Mutex<Vec<Conversation>>,
    pub(in crate::agent::tests) summarised: Mutex<Vec<Conversation>>,
    pub(in crate::agent::tests) flushes: Mutex<Flushes>,
    pub(in crate::agent::tests) flushed: Mutex<Vec<Conversation>>,
}

impl Windowed {
    pub(in crate::agent::tests) fn new(window: u64, tells: bool, calls: usize, summaries: Summaries) -> Arc<Self> {
        Arc::new(Self {
            window,
            tells,
            calls,
            summaries,
            answered: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            requests: Mutex::default(),
            summarised: Mutex::default(),
            flushes: Mutex::default(),
            flushed: Mutex::default(),
        })
    }

    fn turn(&self, conversation: &Conversation) -> Result<ModelTurn, ModelError> {
        let tokens = tokens(conversation);
        if tokens > self.window {
            self.refused.fetch_add(1, Relaxed);
            let told = Told { window: Some(self.window), tokens: Some(tokens) };
            let error = ModelError::new(ModelErrorKind::ContextLength, "it is too long");
            let told = self.tells.then(|| Box::new(told));
            return Err(ModelError { status: Some(400), told, ..error });
        }
        self.requests.lock().push(conversation.clone());
        let usage = Usage { prompt_tokens: tokens, completion_tokens: 5, ..Usage::default() };
        let number = self.answered.fetch_add(1, Relaxed);
        if number % (self.calls + 1) < self.calls {
            let call = ModelCall { name: "echo".into(), arguments: format!(r#"{{"n":{number}}}"#) };
            let turn = ModelTurn::of("", "", vec![call]);
            return Ok(ModelTurn { usage: Some(usage), end: TurnEnd::ToolCalls, ..turn });
        }
        let turn = ModelTurn::of("", &format!("answer {number}"), Vec::new());
        Ok(ModelTurn { usage: Some(usage), end: TurnEnd::Stop, ..turn })
    }

    fn summarise(&self, conversation: &Conversation) -> DeltaStream {
        let number = self.summarised.lock().len() - 1;
        let says = |text: &str| {
            let usage = Usage { prompt_tokens: tokens(conversation), completion_tokens: 7, ..Usage::default() };
            let turn = ModelTurn { usage: Some(usage), end: TurnEnd::Stop, ..ModelTurn::of("", text, Vec::new()) };
            once(Ok(Delta::Finished(Box::new(turn))))
        };
        match self.summaries {
            Summaries::Written => says(&format!("SUMMARY {number}")),
            Summaries::Slow => {
                let waits = tokio::time::sleep(Duration::from_secs(5));
                let said = says(&format!("SUMMARY {number}"));
                futures_util::stream::once(waits).flat_map(move |()| futures_util::stream::empty()).chain(said).boxed()
            }
            Summaries::Empty => says(" "),
            Summaries::Failing => {
                let error = ModelError::new(ModelErrorKind::Transient, "it broke");
                once(Err(error.having(Spent::Unknown)))
            }
            Summaries::Stalled => once(Ok(Delta::Begun)).chain(futures_util::stream::pending()).boxed(),
        }
    }
}

impl Windowed {
    fn flush(&self, conversation: &Conversation) -> DeltaStream {
        let begins = |conversation: &Conversation| conversation.iter().count() == 2;
        let (number, asked) = {
            let flushed = self.flushed.lock();
            (flushed.iter().filter(|asked| begins(asked)).count().saturating_sub(1), flushed.len() - 1)
        };
        let says = |text: &str, calls: Vec<ModelCall>| {
            let usage = Usage { prompt_tokens: tokens(conversation), completion_tokens: 9, ..Usage::default() };
            let turn = ModelTurn { usage: Some(usage), end: TurnEnd::Stop, ..ModelTurn::of("", text, calls) };
            once(Ok(Delta::Finished(Box::new(turn))))
        };
        let adds = |line: String| ModelCall {
            name: "memory_write".into(),
            arguments: format!(r#"{{"name":"log","content":"{line}","mode":"append"}}"#),
        };
        match *self.flushes.lock() {
            Flushes::Written if begins(conversation) => {
                let other = ModelCall { name: "echo".into(), arguments: "{}".into() };
                says("", vec![adds(format!("note {number}")), other])
            }
            Flushes::Written => says("NO_REPLY", Vec::new()),
            Flushes::Endless => says("", vec![adds(format!("line {asked}"))]),
            Flushes::Slow => {
                let waits = futures_util::stream::once(tokio::time::sleep(Duration::from_secs(60)));
                let said = says("", vec![adds(format!("line {asked}"))]);
                waits.flat_map(move |()| futures_util::stream::empty()).chain(said).boxed()
            }
            Flushes::Failing => {
                let error = ModelError::new(ModelErrorKind::Transient, "it broke");
                once(Err(error.having(Spent::Unknown)))
            }
            Flushes::Stalled => once(Ok(Delta::Begun)).chain(futures_util::stream::pending()).boxed(),
        }
    }
}

/// One delta, a little later.
fn once(delta: Result<Delta, ModelError>) -> DeltaStream {
    let later = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        delta
    };
    futures_util::stream::once(later).boxed()
}

/// How many tokens it counts.
pub(in crate::agent::tests) fn tokens(conversation: &Conversation) -> u64 {
    let bytes: usize = conversation.iter().map(|message| json(message).len()).sum();
    (bytes as u64).div_ceil(4)
}

impl Model for Windowed {
    fn stream(&self, request: ModelRequest) -> DeltaStream {
        assert_paired(&request.conversation);
        let conversation = request.conversation;
        let first = conversation.iter().next().filter(|message| message.role == Role::System);
        if first.is_some_and(|message| json(message).contains(&INSTRUCTIONS[..60])) {
            self.summarised.lock().push(conversation.clone());
            return self.summarise(&conversation);
        }
        if first.is_some_and(|message| json(message).contains(&FLUSH_PROMPT[..60])) {
            self.flushed.lock().push(conversation.clone());
            return self.flush(&conversation);
        }
        once(self.turn(&conversation).map(|turn| Delta::Finished(Box::new(turn))))
    }

    fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
        Box::pin(std::future::ready(Ok(vec!["m".into()])))
    }

    fn may_answer_in_one_piece(&self) -> bool {
        true
    }
}
