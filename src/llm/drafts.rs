//! A turn while it is written: its parts, in the order in which they began.
//!
//! Pure. Knows no dialect: what an event means is decided where the dialect is read.

use std::borrow::Cow;

use serde_json::value::{RawValue, to_raw_value};

use super::http::fault::{Fault, MAX_CALLS, MAX_TURN};
use super::text::{add, with_room};
use super::turn_calls::{Calls, is_whole_object};
use super::{Delta, ModelCall, ModelPart};
use crate::types::conversation::{Dialect, Extra, Part, PartKind, Proof, Seal, Thinking};
use crate::types::json::{Members, RawValueEq};

/// Most characters of an unknown reason for the end of a turn that are shown.
const MAX_SHOWN_REASON: usize = 40;
/// What a part takes beside what it says, in bytes.
const PART_SIZE: usize = 128;

/// One part of a turn.
#[derive(Debug)]
pub enum Draft {
    /// Text, and members of it that only its dialect knows.
    Text(String, Extra),
    /// Text in which the model declines to answer.
    Refusal(String),
    /// Thinking, with what must come back with it.
    Thinking {
        /// What may be shown of it.
        text: String,
        /// The vendor's id of it.
        id: Option<String>,
        /// What the vendor recognises it by; nothing if it is empty.
        proof: Proof,
    },
    /// The turn's call of this number, counted from 0.
    Call {
        /// The number.
        number: usize,
        /// The tool's name.
        name: String,
        /// The arguments so far.
        arguments: String,
    },
    /// A part of a kind that is not known, and the input that followed it.
    Unknown {
        /// The dialect that it is written in.
        dialect: Dialect,
        /// The part as it began.
        json: Box<RawValue>,
        /// Its `input`, where that was written in deltas.
        input: String,
    },
}

/// What a delta adds to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// Text of the answer.
    Text,
    /// Text in which the model declines to answer.
    Refusal,
    /// Thinking.
    Thinking,
    /// Arguments of a call, or the input of a part of an unknown kind.
    Arguments,
}

/// The parts of a turn.
#[derive(Debug, Default)]
pub struct Drafts {
    list: Vec<Draft>,
    calls: usize,
    /// What of [`MAX_TURN`] is used.
    size: usize,
}

impl Drafts {
    /// How many calls there are.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// Begins a part that is no call. Returns its place.
    pub fn begin(&mut self, draft: Draft) -> Result<usize, Fault> {
        self.grow(PART_SIZE + draft.size())?;
        self.list.push(draft);
        Ok(self.list.len() - 1)
    }

    /// Begins a call. Returns its place.
    pub fn begin_call(&mut self, name: String) -> Result<usize, Fault> {
        if self.calls == MAX_CALLS {
            return Err(Fault::TooManyCalls);
        }
        let number = self.calls;
        self.calls += 1;
        self.begin(Draft::Call { number, name, arguments: String::new() })
    }

    /// The part at a place that [`begin`](Self::begin) returned.
    pub fn at(&mut self, place: usize) -> Option<&mut Draft> {
        self.list.get_mut(place)
    }

    /// Adds to a part, and tells of it in `deltas`, joined to the last one where that is of the same kind. Adds nothing
    /// where the part is of another kind.
    pub fn say(&mut self, place: usize, what: Said, said: Cow<'_, str>, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        if said.is_empty() {
            return Ok(());
        }
        self.grow(said.len())?;
        match (self.list.get_mut(place), what) {
            (Some(Draft::Text(text, _)), Said::Text) => {
                add(text, &said);
                match deltas.last_mut() {
                    Some(Delta::Text(last)) => last.push_str(&said),
                    _ => deltas.push(Delta::Text(with_room(said))),
                }
            }
            (Some(Draft::Refusal(text)), Said::Refusal) => {
                add(text, &said);
                match deltas.last_mut() {
                    Some(Delta::Refusal(last)) => last.push_str(&said),
                    _ => deltas.push(Delta::Refusal(with_room(said))),
                }
            }
            (Some(Draft::Thinking { text, .. }), Said::Thinking) => {
                add(text, &said);
                match deltas.last_mut() {
                    Some(Delta::Thinking(last)) => last.push_str(&said),
                    _ => deltas.push(Delta::Thinking(with_room(said))),
                }
            }
            (Some(Draft::Call { number, arguments, .. }), Said::Arguments) => {
                add(arguments, &said);
                say_arguments(*number, said, deltas);
            }
            (Some(Draft::Unknown { input, .. }), Said::Arguments) => add(input, &said),
            _ => {}
        }
        Ok(())
    }

    /// Counts what a turn takes beside its parts.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Fault> {
        self.size += bytes;
        if self.size > MAX_TURN { Err(Fault::TooLong) } else { Ok(()) }
    }

    /// The parts of the turn of `author`, which ended for `reason`, after which its calls are `kept` so.
    ///
    /// Where the upstream cut the model short, the first call whose arguments are not a whole object is what was being
    /// written by then: it is dropped with all calls after it.
    pub fn finish(self, author: &str, kept: Calls, reason: &str) -> Result<Vec<ModelPart>, Fault> {
        if kept == Calls::Unknown && self.calls > 0 {
            return Err(Fault::UnknownEnd(reason.chars().take(MAX_SHOWN_REASON).collect()));
        }
        let arguments = self.list.iter().filter_map(|draft| match draft {
            Draft::Call { arguments, .. } => Some(arguments),
            Draft::Text(..) | Draft::Refusal(_) | Draft::Thinking { .. } | Draft::Unknown { .. } => None,
        });
        let calls = match kept {
            Calls::All | Calls::Unknown => usize::MAX,
            Calls::Whole => arguments.take_while(|arguments| is_whole_object(arguments)).count(),
            Calls::None => 0,
        };
        let is_kept = |draft: &Draft| !matches!(draft, Draft::Call { number, .. } if *number >= calls);
        Ok(self.list.into_iter().filter(is_kept).filter_map(|draft| draft.into_part(author)).collect())
    }
}

impl Draft {
    /// How many bytes it takes as it begins.
    fn size(&self) -> usize {
        match self {
            Self::Text(text, extra) => text.len() + extra.bytes(),
            Self::Refusal(text) => text.len(),
            Self::Thinking { text, id, proof } => {
                text.len() + id.as_ref().map_or(0, String::len) + proof.written().len()
            }
            Self::Call { name, arguments, .. } => name.len() + arguments.len(),
            Self::Unknown { json, input, .. } => json.get().len() + input.len(),
        }
    }

    /// The part that it is; `None` if it says nothing.
    fn into_part(self, author: &str) -> Option<ModelPart> {
        let (kind, extra) = match self {
            Self::Text(text, _) | Self::Refusal(text) if text.is_empty() => return None,
            Self::Text(text, extra) => (PartKind::Text(text), extra),
            Self::Refusal(text) => (PartKind::Refusal(text), Extra::default()),
            Self::Thinking { text, id, proof } => {
                let is_sealed = !proof.written().is_empty();
                let seal = is_sealed.then(|| Box::new(Seal { author: author.to_owned(), id, proof }));
                let thinking = Part::from(PartKind::Thinking(Thinking { text, seal }));
                return (!thinking.is_empty()).then_some(ModelPart::Part(thinking));
            }
            Self::Call { name, arguments, .. } => {
                let arguments = if arguments.trim().is_empty() { "{}".to_owned() } else { arguments };
                return Some(ModelPart::Call(ModelCall { name, arguments }));
            }
            Self::Unknown { dialect, json, input } => {
                let (member, json) = ("content".to_owned(), with_input(RawValueEq(json), input));
                (PartKind::Unknown { dialect, member, json }, Extra::default())
            }
        };
        Some(ModelPart::Part(Part { kind, extra }))
    }
}

/// Tells of a piece of the arguments of the turn's call of this number.
pub fn say_arguments(number: usize, said: Cow<'_, str>, deltas: &mut Vec<Delta>) {
    match deltas.last_mut() {
        Some(Delta::CallArguments { index, delta }) if *index == number => delta.push_str(&said),
        _ => deltas.push(Delta::CallArguments { index: number, delta: said.into_owned() }),
    }
}

/// The part with the input that followed it, if that is JSON.
fn with_input(json: RawValueEq, input: String) -> RawValueEq {
    let Ok(input) = RawValue::from_string(input) else { return json };
    let Ok(mut members) = serde_json::from_str::<Members>(json.get()) else { return json };
    let place = members.0.iter_mut().find(|(name, _)| name == "input");
    match place {
        Some((_, empty)) => *empty = RawValueEq(input),
        None => members.0.push(("input".to_owned(), RawValueEq(input))),
    }
    to_raw_value(&members).map_or(json, RawValueEq)
}
