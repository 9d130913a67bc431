//! Events into deltas and, at the end, a turn.
//!
//! Pure. A turn exists only once the response has ended, so the half-written calls of a stream that broke off never run.
//! What deltas said is not read again where the same is told as a whole, as the API does up to three times. What no delta
//! said, as some servers write short items, is read from there.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::event::{API, Event, Item, Piece, WireResponse};
use super::status::Ended;
use crate::llm::drafts::{Draft, Drafts, Said};
use crate::llm::http::failure::Report;
use crate::llm::http::fault::Fault;
use crate::llm::{Delta, ModelTurn};
use crate::types::Usage;
use crate::types::conversation::{Dialect, Extra, Proof};
use crate::types::json::{Members, RawValueEq};

/// What stands between the parts of reasoning.
const BETWEEN_PARTS: &str = "\n\n";

/// The turn so far.
#[derive(Debug)]
pub(super) struct Assembler {
    author: Arc<str>,
    drafts: Drafts,
    /// The item of each index that began last.
    items: HashMap<u64, Written>,
    usage: Option<Usage>,
    ended: Option<Ended>,
}

/// What of an item was written.
#[derive(Debug, Default)]
struct Written {
    kind: Kind,
    /// The part of the turn that was added to last.
    place: Option<usize>,
    /// The part of the item that was added to last.
    part: Option<(Said, u64)>,
    /// Whether it was told as a whole.
    is_whole: bool,
}

/// What an item is.
#[derive(Debug, Default)]
enum Kind {
    /// A message, with what the API wants back with it.
    Message(Extra),
    Reasoning,
    Call,
    /// What no tool that is offered here makes.
    #[default]
    Unknown,
}

impl Assembler {
    /// A turn of the model that signs as `author`, of which nothing has come yet.
    pub(super) fn new(author: Arc<str>) -> Self {
        Self { author, drafts: Drafts::default(), items: HashMap::new(), usage: None, ended: None }
    }

    /// Whether the response has ended.
    pub(super) fn is_finished(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether the turn calls tools.
    pub(super) fn has_calls(&self) -> bool {
        self.drafts.calls() > 0
    }

    /// Begins an item, of which most of what it says may follow.
    pub(super) fn begin_item(&mut self, index: u64, item: &Item<'_>, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let (kind, place) = match &*item.r#type.0 {
            "message" => (Kind::Message(phase(item.phase)), None),
            "reasoning" => (Kind::Reasoning, Some(self.drafts.begin(reasoning())?)),
            "function_call" => (Kind::Call, Some(self.drafts.begin_call(item.name.0.to_string())?)),
            _ => (Kind::Unknown, None),
        };
        self.items.insert(index, Written { kind, place, ..Written::default() });
        self.say(index, Said::Arguments, 0, Cow::Borrowed(&*item.arguments.0), deltas)?;
        Ok(())
    }

    /// Adds what a delta says. Returns whether that is anything.
    pub(super) fn push_delta(&mut self, what: Said, event: Event<'_>, deltas: &mut Vec<Delta>) -> Result<bool, Fault> {
        let index = event.output_index.unwrap_or_default();
        let part = event.content_index.or(event.summary_index).unwrap_or_default();
        self.say(index, what, part, event.delta.0, deltas)
    }

    /// Adds to the part of the turn at this place, which was added to last, as [`push_delta`](Self::push_delta) would.
    pub(super) fn push_piece(
        &mut self,
        place: usize,
        what: Said,
        said: &str,
        deltas: &mut Vec<Delta>,
    ) -> Result<bool, Fault> {
        self.drafts.say(place, what, said.into(), deltas)?;
        Ok(!said.is_empty())
    }

    /// Where in the turn an item was added to last.
    pub(super) fn place(&self, index: u64) -> Option<usize> {
        self.items.get(&index)?.place
    }

    /// Ends an item, told as a whole: of what no delta said, what it says is added.
    pub(super) fn end_item(&mut self, index: u64, item: &Item<'_>, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        if !self.items.contains_key(&index) {
            self.begin_item(index, item, deltas)?;
        }
        let Some(written) = self.items.get_mut(&index) else { return Ok(()) };
        if std::mem::replace(&mut written.is_whole, true) {
            return Ok(());
        }
        let says_nothing = written.part.is_none();
        match (&written.kind, written.place) {
            (Kind::Message(_), _) if says_nothing => {
                self.say_all(index, Said::Text, item.content.as_deref(), deltas)?;
            }
            (Kind::Reasoning, Some(place)) => {
                if says_nothing {
                    self.say_all(index, Said::Thinking, item.summary.as_deref(), deltas)?;
                    self.say_all(index, Said::Thinking, item.content.as_deref(), deltas)?;
                }
                self.seal(place, item)?;
            }
            (Kind::Call, Some(place)) => {
                if says_nothing {
                    self.say(index, Said::Arguments, 0, Cow::Borrowed(&*item.arguments.0), deltas)?;
                }
                if let Some(Draft::Call { name, .. }) = self.drafts.at(place)
                    && name.is_empty()
                {
                    name.push_str(&item.name.0);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends the turn with the whole response. Items that no event told of are added.
    pub(super) fn end(&mut self, json: &RawValue, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let response: WireResponse<'_> = serde_json::from_str(json.get()).map_err(|_| Fault::NotAnEvent(API))?;
        self.usage = response.usage.map(Usage::from);
        let ended = match &*response.status.0 {
            "completed" => Ended::Completed,
            "incomplete" => {
                let reason = response.incomplete_details.unwrap_or_default().reason.0;
                Ended::Incomplete(if reason.is_empty() { "incomplete".to_owned() } else { reason.into_owned() })
            }
            "failed" => {
                let error = response.error.unwrap_or(json);
                return Err(Fault::Reported(Report::read(error.get().as_bytes())));
            }
            _ => return Err(Fault::Truncated),
        };
        for (index, item) in (0..).zip(response.output.unwrap_or_default()) {
            if self.items.get(&index).is_none_or(|written| !written.is_whole) {
                let item: Item<'_> = serde_json::from_str(item.get()).map_err(|_| Fault::NotAnEvent(API))?;
                self.end_item(index, &item, deltas)?;
            }
        }
        self.drafts.grow(ended.word().len())?;
        self.ended = Some(ended);
        Ok(())
    }

    /// The turn, once the stream has ended.
    pub(super) fn finish(self) -> Result<ModelTurn, Fault> {
        let ended = self.ended.ok_or(Fault::Truncated)?;
        let (end, kept) = ended.read(self.drafts.calls() > 0);
        let parts = self.drafts.finish(&self.author, kept, ended.word())?;
        Ok(ModelTurn { parts, usage: self.usage, end })
    }

    fn say_all(
        &mut self,
        index: u64,
        what: Said,
        pieces: Option<&[Piece<'_>]>,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Fault> {
        for (part, piece) in (0..).zip(pieces.unwrap_or_default()) {
            self.say(index, what, part, Cow::Borrowed(&*piece.text.0), deltas)?;
            self.say(index, Said::Refusal, part, Cow::Borrowed(&*piece.refusal.0), deltas)?;
        }
        Ok(())
    }

    /// Adds to a part of an item. Returns whether anything was said.
    fn say(
        &mut self,
        index: u64,
        what: Said,
        part: u64,
        said: Cow<'_, str>,
        deltas: &mut Vec<Delta>,
    ) -> Result<bool, Fault> {
        if said.is_empty() {
            return Ok(false);
        }
        let written = self.items.get_mut(&index).ok_or(Fault::NotAnEvent(API))?;
        let before = written.part.replace((what, part));
        let is_new = before.is_some_and(|before| before != (what, part));
        let place = match (&written.kind, what, written.place) {
            (Kind::Message(_), Said::Text | Said::Refusal, Some(place)) if !is_new => place,
            (Kind::Message(extra), Said::Text, _) => self.drafts.begin(Draft::Text(String::new(), extra.clone()))?,
            (Kind::Message(_), Said::Refusal, _) => self.drafts.begin(Draft::Refusal(String::new()))?,
            (Kind::Reasoning, Said::Thinking, Some(place)) => {
                if is_new {
                    self.drafts.say(place, what, BETWEEN_PARTS.into(), deltas)?;
                }
                place
            }
            (Kind::Call, Said::Arguments, Some(place)) => place,
            _ => return Ok(false),
        };
        written.place = Some(place);
        self.drafts.say(place, what, said, deltas)?;
        Ok(true)
    }

    /// Keeps what must come back with reasoning. It is whole only once the item is.
    fn seal(&mut self, place: usize, item: &Item<'_>) -> Result<(), Fault> {
        self.drafts.grow(item.id.0.len() + item.encrypted_content.0.len())?;
        if let Some(Draft::Thinking { id, proof, .. }) = self.drafts.at(place) {
            *id = Some(item.id.0.to_string()).filter(|id| !id.is_empty());
            *proof = Proof::Encrypted(item.encrypted_content.0.to_string());
        }
        Ok(())
    }
}

fn reasoning() -> Draft {
    Draft::Thinking { text: String::new(), id: None, proof: Proof::Encrypted(String::new()) }
}

/// The phase of a message, as a member that goes back with it.
fn phase(phase: Option<&RawValue>) -> Extra {
    let members = phase.map(|json| ("phase".to_owned(), RawValueEq(json.to_owned())));
    Extra::new(Dialect::OpenaiResponses, Members(members.into_iter().collect()))
}
