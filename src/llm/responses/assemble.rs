//! Events into deltas and, at the end, a turn.
//!
//! Pure. A turn exists only once the response has ended, so the half-written calls of a stream that broke off never run.
//! What deltas said is not read again where the same is told as a whole, as the API does up to three times. What no delta
//! said, as some servers write short items, is read from there.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::event::{API, Event, Item, Named, Piece, WireResponse};
use super::status::Ended;
use super::written::{Kind, Name, WrittenItems};
use crate::llm::drafts::{Draft, Drafts, Said};
use crate::llm::http::failure::Report;
use crate::llm::http::fault::Fault;
use crate::llm::turn_calls::is_whole_object;
use crate::llm::{Delta, ModelTurn};
use crate::types::Usage;
use crate::types::conversation::{Dialect, Extra, Proof};
use crate::types::json::{Members, RawValueEq};

/// Longest phase that is kept, as JSON. Those that the API documents have ten letters.
const LONGEST_PHASE: usize = 66;
/// What stands between the parts of reasoning.
const BETWEEN_PARTS: &str = "\n\n";

/// The turn so far.
#[derive(Debug)]
pub(super) struct Assembler {
    author: Arc<str>,
    drafts: Drafts,
    items: WrittenItems,
    /// The part of the turn that the last delta added to.
    place: Option<usize>,
    usage: Option<Usage>,
    ended: Option<Ended>,
}

impl Assembler {
    /// A turn of the model that signs as `author`, of which nothing has come yet.
    pub(super) fn new(author: Arc<str>) -> Self {
        let (drafts, items) = (Drafts::default(), WrittenItems::default());
        Self { author, drafts, items, place: None, usage: None, ended: None }
    }

    /// Whether the response has ended.
    pub(super) fn is_finished(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether the turn calls tools.
    pub(super) fn has_calls(&self) -> bool {
        self.drafts.calls() > 0
    }

    /// Begins an item, of which most of what it says may follow. Returns whether it is one that matters, and is new.
    pub(super) fn begin_item(
        &mut self,
        index: Option<u64>,
        item: &Item<'_>,
        deltas: &mut Vec<Delta>,
    ) -> Result<bool, Fault> {
        let name = Name::from(item);
        let is_new = self.items.begun_before(index, name).is_none();
        if is_new {
            self.begin(index, item, deltas)?;
        }
        Ok(is_new && name.kind != Kind::Unknown)
    }

    /// Adds what a delta says. Returns whether that is anything.
    pub(super) fn push_delta(&mut self, what: Said, event: Event<'_>, deltas: &mut Vec<Delta>) -> Result<bool, Fault> {
        let part = event.content_index.or(event.summary_index).unwrap_or_default();
        if event.delta.0.is_empty() {
            return Ok(false);
        }
        let item = self.items.of_delta(event.output_index, &event.item_id.0, what).ok_or(Fault::NotAnEvent(API))?;
        let place = self.say(item, what, part, event.delta.0, deltas)?;
        self.place = place;
        Ok(place.is_some())
    }

    /// Adds to the part of the turn at this place, which was added to last, as [`push_delta`](Self::push_delta) would.
    pub(super) fn push_piece(
        &mut self,
        place: usize,
        what: Said,
        said: Cow<'_, str>,
        deltas: &mut Vec<Delta>,
    ) -> Result<bool, Fault> {
        let has_said = !said.is_empty();
        self.drafts.say(place, what, said, deltas)?;
        Ok(has_said)
    }

    /// Where in the turn the last delta added to.
    pub(super) fn place(&self) -> Option<usize> {
        self.place
    }

    /// Ends an item, told as a whole: of what no delta said, what it says is added. Returns whether it is one that matters,
    /// and had not ended.
    pub(super) fn end_item(
        &mut self,
        index: Option<u64>,
        item: &Item<'_>,
        deltas: &mut Vec<Delta>,
    ) -> Result<bool, Fault> {
        let number = match self.items.of_whole(index, item.into()) {
            Some(number) => number,
            None => self.begin(index, item, deltas)?,
        };
        self.end(number, item, deltas)
    }

    /// Begins an item that has not begun before. Returns its number.
    fn begin(&mut self, index: Option<u64>, item: &Item<'_>, deltas: &mut Vec<Delta>) -> Result<usize, Fault> {
        let name = Name::from(item);
        self.drafts.grow(name.bytes())?;
        let (extra, place) = match name.kind {
            Kind::Message => (phase(item.phase), None),
            Kind::Reasoning => (Extra::default(), Some(self.drafts.begin(reasoning())?)),
            Kind::Call => (Extra::default(), Some(self.drafts.begin_call(item.name.0.to_string())?)),
            Kind::Unknown => (Extra::default(), None),
        };
        let number = self.items.begin(index, name, extra, place)?;
        let arguments = &*item.arguments.0;
        if is_whole_object(arguments) {
            // Deltas may repeat them.
            self.drafts.grow(arguments.len())?;
            if let Some(written) = self.items.at(number) {
                arguments.clone_into(&mut written.offered);
            }
        } else {
            self.say(number, Said::Arguments, 0, Cow::Borrowed(arguments), deltas)?;
        }
        Ok(number)
    }

    fn end(&mut self, number: usize, item: &Item<'_>, deltas: &mut Vec<Delta>) -> Result<bool, Fault> {
        let Some(written) = self.items.at(number) else { return Ok(false) };
        if std::mem::replace(&mut written.is_whole, true) || written.kind == Kind::Unknown {
            return Ok(false);
        }
        let says_nothing = written.part.is_none();
        match (written.kind, written.place) {
            (Kind::Message, _) => {
                self.set_phase(number, phase(item.phase))?;
                if says_nothing {
                    self.say_all(number, Said::Text, &item.content.0, deltas)?;
                }
            }
            (Kind::Reasoning, Some(place)) => {
                if says_nothing {
                    self.say_all(number, Said::Thinking, &item.summary.0, deltas)?;
                    self.say_all(number, Said::Thinking, &item.content.0, deltas)?;
                }
                self.seal(place, item)?;
            }
            (Kind::Call, Some(place)) => {
                self.end_arguments(number, place, &item.arguments.0, deltas)?;
                self.name_call(place, &item.name.0)?;
            }
            _ => {}
        }
        Ok(true)
    }

    /// Gives a message the phase that it has in the end.
    fn set_phase(&mut self, number: usize, extra: Extra) -> Result<(), Fault> {
        let Some(written) = self.items.at(number).filter(|written| !extra.is_empty() && written.extra != extra) else {
            return Ok(());
        };
        for place in &written.texts {
            if let Some(Draft::Text(_, before)) = self.drafts.at(*place) {
                *before = extra.clone();
                self.drafts.grow(extra.bytes())?;
            }
        }
        written.extra = extra;
        Ok(())
    }

    /// Ends the arguments of a call. As they are told in the end they hold, whatever deltas said.
    fn end_arguments(&mut self, number: usize, place: usize, told: &str, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let offered = self.items.at(number).map(|written| std::mem::take(&mut written.offered)).unwrap_or_default();
        let Some(Draft::Call { arguments, .. }) = self.drafts.at(place) else { return Ok(()) };
        let told = if told.is_empty() && arguments.is_empty() { offered.as_str() } else { told };
        if let Some(rest) = told.strip_prefix(arguments.as_str()) {
            self.say(number, Said::Arguments, 0, Cow::Borrowed(rest), deltas)?;
        } else if !told.is_empty() {
            told.clone_into(arguments);
            self.drafts.grow(told.len())?;
        }
        Ok(())
    }

    /// Names the function of a call that began without saying it.
    fn name_call(&mut self, place: usize, function: &str) -> Result<(), Fault> {
        if let Some(Draft::Call { name, .. }) = self.drafts.at(place)
            && name.is_empty()
        {
            name.push_str(function);
            self.drafts.grow(function.len())?;
        }
        Ok(())
    }

    /// Ends the turn with the whole response, which has this status unless it says another one. Items that no event told
    /// of are added.
    pub(super) fn end_response(&mut self, json: &RawValue, status: &str, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let response: WireResponse<'_> = serde_json::from_str(json.get()).map_err(|_| Fault::NotAnEvent(API))?;
        self.usage = response.usage();
        let ended = match if response.status.0.is_empty() { status } else { &response.status.0 } {
            "completed" => Ended::Completed,
            "incomplete" => {
                let reason = response.incomplete_details.unwrap_or_default().reason.0;
                Ended::Incomplete(if reason.is_empty() { "incomplete".to_owned() } else { reason.into_owned() })
            }
            "failed" => {
                let error = response.error.unwrap_or(json);
                return Err(self.failure(error.get().as_bytes()));
            }
            _ => return Err(Fault::Truncated),
        };
        self.end_rest(&response.output.0, deltas)?;
        self.drafts.grow(ended.word().len())?;
        self.ended = Some(ended);
        Ok(())
    }

    /// Ends those of these items that were not told as a whole.
    fn end_rest(&mut self, told: &[&RawValue], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let not_an_event = |_| Fault::NotAnEvent(API);
        let names: Result<Vec<Named<'_>>, _> = told.iter().map(|item| serde_json::from_str(item.get())).collect();
        let found = self.items.of_response(&names.map_err(not_an_event)?);
        for (number, item) in found.into_iter().zip(told) {
            if number.and_then(|number| self.items.at(number)).is_some_and(|written| written.is_whole) {
                continue;
            }
            let item: Item<'_> = serde_json::from_str(item.get()).map_err(not_an_event)?;
            let number = match number {
                Some(number) => number,
                None => self.begin(None, &item, deltas)?,
            };
            self.end(number, &item, deltas)?;
        }
        self.end_offered(deltas)
    }

    /// Ends the arguments of the calls that were told of as they began and never after.
    fn end_offered(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        for number in 0..self.items.len() {
            let unended = self.items.at(number).filter(|written| !written.offered.is_empty());
            if let Some(place) = unended.and_then(|written| written.place) {
                self.end_arguments(number, place, "", deltas)?;
            }
        }
        Ok(())
    }

    /// What the upstream says of its failure. Of an answer of which nothing has begun it may have read the request.
    pub(super) fn failure(&self, error: &[u8]) -> Fault {
        let report = Report::read(error).having_used(self.usage);
        Fault::Reported(if self.items.len() == 0 { report.before_any_answer() } else { report })
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
        number: usize,
        what: Said,
        pieces: &[Piece<'_>],
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Fault> {
        for (part, piece) in (0..).zip(pieces) {
            self.say(number, what, part, Cow::Borrowed(&*piece.text.0), deltas)?;
            self.say(number, Said::Refusal, part, Cow::Borrowed(&*piece.refusal.0), deltas)?;
        }
        Ok(())
    }

    /// Adds to a part of an item. Returns where in the turn anything was said.
    fn say(
        &mut self,
        number: usize,
        what: Said,
        part: u64,
        said: Cow<'_, str>,
        deltas: &mut Vec<Delta>,
    ) -> Result<Option<usize>, Fault> {
        let Some(written) = self.items.at(number).filter(|_| !said.is_empty()) else { return Ok(None) };
        let before = written.part.replace((what, part));
        let is_new = before.is_some_and(|before| before != (what, part));
        let place = match (written.kind, what, written.place) {
            (Kind::Message, Said::Text | Said::Refusal, Some(place)) if !is_new => place,
            (Kind::Message, Said::Text, _) => {
                let place = self.drafts.begin(Draft::Text(String::new(), written.extra.clone()))?;
                written.texts.push(place);
                place
            }
            (Kind::Message, Said::Refusal, _) => self.drafts.begin(Draft::Refusal(String::new()))?,
            (Kind::Reasoning, Said::Thinking, Some(place)) => {
                if is_new {
                    self.drafts.say(place, what, BETWEEN_PARTS.into(), deltas)?;
                }
                place
            }
            (Kind::Call, Said::Arguments, Some(place)) => place,
            _ => return Ok(None),
        };
        written.place = Some(place);
        self.drafts.say(place, what, said, deltas)?;
        Ok(Some(place))
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

/// The phase of a message, as a member that goes back with it, if it is a word. Each part of the message has a copy.
fn phase(phase: Option<&RawValue>) -> Extra {
    let phase = phase.filter(|json| json.get().starts_with('"') && json.get().len() <= LONGEST_PHASE);
    let members = phase.map(|json| ("phase".to_owned(), RawValueEq(json.to_owned())));
    Extra::new(Dialect::OpenaiResponses, Members(members.into_iter().collect()))
}
