//! A model that plays its turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::llm::offered::OfferedModel;
use crate::llm::openai::messages::parts;
use crate::llm::{
    Delta, DeltaStream, Model, ModelCall, ModelError, ModelErrorKind, ModelPart, ModelRequest, ModelTurn, Spent,
};
use crate::types::conversation::{Part, PartKind};
use crate::types::tool::WrittenCalls;
use crate::types::{CallId, Conversation, Role, TurnEnd, Usage};

/// What the model does in one turn.
#[derive(Debug, Clone)]
pub(crate) enum Say {
    /// Streams the pieces and answers.
    Text(&'static [&'static str]),
    /// Calls tools, after some text.
    Calls(&'static str, Vec<(&'static str, &'static str)>),
    /// Declines in these pieces.
    Declines(&'static [&'static str]),
    /// Streams the pieces and breaks off.
    Break(&'static [&'static str]),
    /// Streams the first pieces and breaks off once, then the others and answers.
    BreaksOnce(&'static [&'static str], &'static [&'static str]),
    /// Streams the pieces, then nothing more.
    Stall(&'static [&'static str]),
    /// Streams a text in pieces of which calls are written as text, until its length limit.
    Rambled(&'static [&'static str]),
    /// Streams the pieces, then fails once the request's time is up, as a real one does.
    Deadline(&'static [&'static str]),
    /// Fails at no cost once the request's time is up.
    Refused,
    /// An attempt has failed at no cost, and the next one begins ten seconds later.
    Pauses,
    /// Streams a text in pieces of which a call is written as text.
    Written(&'static [&'static str]),
    /// Thinks, then answers, and does not say what that took.
    Unmetered(&'static str, &'static str),
    /// Answers, and says that it took so many tokens of input, and none of output.
    Boasts(&'static str, u64),
    /// Begins to answer, and says nothing.
    Silent,
    /// Does this after so many milliseconds.
    Late(u64, Box<Self>),
    /// Has a defect.
    Panic,
    /// Streams the arguments of so many calls in turns, a piece each 5 ms, for a second; then a text, then nothing more.
    Writes(usize, &'static str),
    /// Fails, before it says anything, in these ways, then answers.
    Fails(&'static [(ModelErrorKind, Spent)]),
}

impl Say {
    /// What it streams, and the turn that this makes if it ends well.
    fn deltas(&self, closing: bool) -> Vec<Result<Delta, ModelError>> {
        let (pieces, calls) = match self {
            Self::Calls(_, _) if closing => return vec![Ok(finished("closing", &[], TurnEnd::Stop))],
            Self::Calls("", calls) => (vec![], calls.as_slice()),
            Self::Calls(text, calls) => (vec![*text], calls.as_slice()),
            Self::Text(pieces)
            | Self::Break(pieces)
            | Self::BreaksOnce(_, pieces)
            | Self::Stall(pieces)
            | Self::Rambled(pieces)
            | Self::Deadline(pieces)
            | Self::Written(pieces) => (pieces.to_vec(), [].as_slice()),
            Self::Unmetered(thinking, text) => {
                let turn = ModelTurn { usage: None, end: TurnEnd::Stop, ..ModelTurn::of(thinking, text, Vec::new()) };
                let said = [Delta::Thinking((*thinking).into()), Delta::Text((*text).into())];
                return said.into_iter().chain([Delta::Finished(Box::new(turn))]).map(Ok).collect();
            }
            Self::Boasts(text, prompt_tokens) => {
                let usage = Some(Usage { prompt_tokens: *prompt_tokens, ..Usage::default() });
                let turn = ModelTurn { usage, end: TurnEnd::Stop, ..ModelTurn::of("", text, Vec::new()) };
                return vec![Ok(Delta::Text((*text).into())), Ok(Delta::Finished(Box::new(turn)))];
            }
            Self::Silent => return vec![Ok(Delta::Begun)],
            Self::Declines(pieces) => return declined(pieces),
            Self::Late(_, later) => return later.deltas(closing),
            Self::Refused | Self::Writes(..) => return Vec::new(),
            Self::Pauses => {
                let (delay, cause) = (Duration::from_secs(10), "it is down".into());
                let kind = crate::types::ErrorKind::UpstreamUnavailable;
                return vec![Ok(Delta::Retry { attempt: 1, delay, kind, cause })];
            }
            Self::Panic => panic!("as told"),
            Self::Fails(_) => (vec!["at last"], [].as_slice()),
        };
        let mut deltas: Vec<_> = pieces.iter().map(|text| Ok(Delta::Text((*text).into()))).collect();
        match self {
            Self::Text(_) | Self::BreaksOnce(..) | Self::Written(_) | Self::Fails(_) => {
                deltas.push(Ok(finished(&pieces.concat(), &[], TurnEnd::Stop)));
            }
            Self::Calls(_, _) => deltas.push(Ok(finished(&pieces.concat(), calls, TurnEnd::ToolCalls))),
            Self::Rambled(_) => deltas.push(Ok(finished(&pieces.concat(), &[], TurnEnd::Length))),
            Self::Break(_)
            | Self::Stall(_)
            | Self::Deadline(_)
            | Self::Unmetered(..)
            | Self::Boasts(..)
            | Self::Silent
            | Self::Declines(_)
            | Self::Refused
            | Self::Pauses
            | Self::Writes(..)
            | Self::Late(..)
            | Self::Panic => {}
        }
        deltas
    }
}

/// A turn in which the model declines.
fn declined(pieces: &[&str]) -> Vec<Result<Delta, ModelError>> {
    let parts = vec![ModelPart::Part(PartKind::Refusal(pieces.concat()).into())];
    let usage = Some(Usage { prompt_tokens: 10, completion_tokens: 5, ..Usage::default() });
    let turn = Delta::Finished(Box::new(ModelTurn { parts, usage, end: TurnEnd::Stop }));
    pieces.iter().map(|piece| Delta::Refusal((*piece).into())).chain([turn]).map(Ok).collect()
}

/// The end of a turn.
fn finished(text: &str, calls: &[(&str, &str)], end: TurnEnd) -> Delta {
    let call = |(name, arguments): &(&str, &str)| ModelCall { name: (*name).into(), arguments: (*arguments).into() };
    let usage = Usage { prompt_tokens: 10, completion_tokens: 5, ..Usage::default() };
    let calls = calls.iter().map(call).collect();
    let turn = ModelTurn { usage: Some(usage), end, ..ModelTurn::of("", text, calls) };
    Delta::Finished(Box::new(turn))
}

/// Plays its turns by how many assistant messages the request has; the last one again and again.
#[derive(Debug)]
pub(crate) struct Scripted {
    turns: Vec<Say>,
    pub(crate) requests: Mutex<Vec<ModelRequest>>,
    /// How often a turn that breaks has broken.
    breaks: AtomicUsize,
}

impl Scripted {
    pub(crate) fn new(turns: Vec<Say>) -> Arc<Self> {
        Arc::new(Self { turns, requests: Mutex::default(), breaks: AtomicUsize::new(0) })
    }
}

impl Model for Scripted {
    fn stream(&self, request: ModelRequest) -> DeltaStream {
        assert_paired(&request.conversation);
        let turn = request.conversation.iter().filter(|message| message.role == Role::Assistant).count();
        let turn = self.turns.get(turn).or(self.turns.last()).cloned().unwrap_or(Say::Text(&["done"]));
        let (closing, deadline) = (request.tools.is_empty(), request.deadline);
        self.requests.lock().push(request);
        let Say::Late(after, turn) = turn else { return self.play(&turn, closing, deadline) };
        let late = self.play(&turn, closing, deadline);
        let pause = futures_util::stream::once(tokio::time::sleep(Duration::from_millis(after)));
        pause.filter_map(|()| std::future::ready(None)).chain(late).boxed()
    }

    fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
        Box::pin(std::future::ready(Ok(vec!["m".into()])))
    }

    fn may_answer_in_one_piece(&self) -> bool {
        true
    }

    fn written_calls(&self) -> WrittenCalls {
        let writes = self.turns.iter().any(|turn| matches!(turn, Say::Written(_) | Say::Rambled(_)));
        if writes { WrittenCalls::All } else { WrittenCalls::None }
    }
}

impl Scripted {
    fn play(&self, turn: &Say, closing: bool, deadline: tokio::time::Instant) -> DeltaStream {
        let broken = |kind, message: &str| Err(ModelError::new(kind, message).having(Spent::Unknown));
        let mut deltas = turn.deltas(closing);
        match turn {
            Say::BreaksOnce(half, _) if self.breaks.load(Ordering::Relaxed) == 0 => {
                return self.play(&Say::Break(half), closing, deadline);
            }
            Say::Break(_) => {
                self.breaks.fetch_add(1, Ordering::Relaxed);
                deltas.push(broken(ModelErrorKind::Transient, "it broke"));
            }
            Say::Deadline(_) | Say::Refused => {
                let is_free = matches!(turn, Say::Refused);
                let late = async move {
                    tokio::time::sleep_until(deadline).await;
                    let late = broken(ModelErrorKind::Timeout, "time is up");
                    late.map_err(|error: ModelError| if is_free { error.having(Spent::Nothing) } else { error })
                };
                return futures_util::stream::iter(deltas).chain(futures_util::stream::once(late)).boxed();
            }
            Say::Fails(ways) => {
                if let Some((kind, spent)) = ways.get(self.breaks.fetch_add(1, Ordering::Relaxed)) {
                    deltas = vec![Err(ModelError::new(*kind, "it failed").having(*spent))];
                }
            }
            &Say::Writes(calls, text) => {
                let piece = move |number: usize| Delta::CallArguments { index: number % calls, delta: "x".into() };
                let said = (0..200).map(piece).chain([Delta::Text(text.into())]);
                let said = futures_util::stream::iter(said).then(|delta| async {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    Ok(delta)
                });
                return said.chain(futures_util::stream::pending()).boxed();
            }
            Say::Stall(_) | Say::Silent | Say::Pauses => {
                return futures_util::stream::iter(deltas).chain(futures_util::stream::pending()).boxed();
            }
            Say::Text(_)
            | Say::Calls(..)
            | Say::Rambled(_)
            | Say::Written(_)
            | Say::Unmetered(..)
            | Say::Boasts(..)
            | Say::Declines(_)
            | Say::Late(..)
            | Say::BreaksOnce(..)
            | Say::Panic => {}
        }
        // One delta at a time, as from a socket: each is recorded by itself.
        futures_util::stream::iter(deltas)
            .then(|delta| async {
                tokio::task::yield_now().await;
                delta
            })
            .boxed()
    }
}

/// Every assistant call has exactly one result before the next message of another kind.
pub(super) fn assert_paired(conversation: &Conversation) {
    let mut open: Vec<CallId> = Vec::new();
    for message in conversation.iter() {
        let parts = parts(message).unwrap();
        if message.role == Role::Tool {
            for result in parts.list.iter().filter_map(Part::as_result) {
                let place = open.iter().position(|open| *open == result.call).expect("a result without its call");
                open.remove(place);
            }
        } else {
            assert!(open.is_empty(), "calls without results before {message:?}");
            open = parts.list.iter().filter_map(Part::as_call).map(|call| call.id.clone()).collect();
        }
    }
    assert!(open.is_empty(), "calls without results at the end");
}
