//! A span, before it is written in any protocol.

use std::borrow::Cow;

use crate::types::SpanKey;
use crate::types::trace::SpanId;

/// What a span takes beside its attributes, about, in bytes.
const FRAME: usize = 200;

/// Most events of a span. Not a setting: OpenTelemetry's own libraries have the same bound.
const MOST_EVENTS: usize = 128;

/// How many more spans a trace may have. Those that begin first are told, so that each has its parent.
#[derive(Debug)]
pub(super) struct Room(pub(super) usize);

impl Room {
    fn admit(&mut self) -> bool {
        let has_room = self.0 > 0;
        self.0 -= usize::from(has_room);
        has_room
    }
}

/// What happened between two times, as part of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its id.
    pub id: SpanId,
    /// The span that it is a part of.
    pub parent: Option<SpanId>,
    /// What happened, in words that many spans share.
    pub name: String,
    /// Who did it.
    pub kind: Kind,
    /// When it began, Unix milliseconds.
    pub start_ms: u64,
    /// When it ended, Unix milliseconds.
    pub end_ms: u64,
    /// What is known of it.
    pub attributes: Vec<Attribute>,
    /// What happened meanwhile, up to a bound.
    pub events: Vec<Moment>,
    /// How much more happened.
    pub events_left_out: u32,
    /// The spans of which it is the continuation.
    pub links: Vec<SpanId>,
    /// What failed, in a sentence, if it failed. Empty where a word in `error.type` says all.
    pub error: Option<Cow<'static, str>>,
    /// Whether the trace has room for it.
    pub(super) is_told: bool,
}

/// Who does what a span tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// This process.
    Internal,
    /// A server that this process asks.
    Client,
}

/// Something that is known of a span or an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    /// What.
    pub name: &'static str,
    /// How much, or which.
    pub value: Value,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text.
    Text(Cow<'static, str>),
    /// Texts.
    Texts(Vec<String>),
    /// A whole number.
    Number(u64),
    /// Any number.
    Real(f64),
    /// Whether.
    Flag(bool),
}

/// Something that happened at a moment of a span.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    /// What.
    pub name: &'static str,
    /// When, Unix milliseconds.
    pub at_ms: u64,
    /// What is known of it.
    pub attributes: Vec<Attribute>,
}

impl Span {
    /// A span that begins now, and has no end yet.
    pub(super) fn begin(run: &crate::types::RunId, key: SpanKey<'_>, name: impl Into<String>, at_ms: u64) -> Self {
        Self {
            id: SpanId::of(run, key),
            parent: None,
            name: name.into(),
            kind: Kind::Internal,
            start_ms: at_ms,
            end_ms: at_ms,
            attributes: Vec::new(),
            events: Vec::new(),
            events_left_out: 0,
            links: Vec::new(),
            error: None,
            is_told: true,
        }
    }

    /// The same, if there is room for it.
    pub(super) fn admitted(self, room: &mut Room) -> Self {
        Self { is_told: room.admit(), ..self }
    }

    /// Notes that something happened.
    pub(super) fn add(&mut self, moment: Moment) {
        if self.events.len() < MOST_EVENTS {
            self.events.push(moment);
        } else {
            self.events_left_out += 1;
        }
    }

    /// The same, as a part of this span.
    pub(super) fn within(self, parent: SpanId) -> Self {
        Self { parent: Some(parent), ..self }
    }

    /// Notes what is known of it.
    pub(super) fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.attributes.push(Attribute { name, value: value.into() });
    }

    /// Notes that it failed, and how in a word.
    pub(super) fn fail(&mut self, kind: &'static str, message: impl Into<Cow<'static, str>>) {
        self.error = Some(message.into());
        self.set(super::names::ERROR_TYPE, kind);
    }

    /// How many bytes of what was said it tells.
    pub(super) fn content(&self) -> usize {
        self.attributes.iter().filter(|attribute| attribute.is_content()).map(Attribute::size).sum()
    }

    /// Leaves what was said out, of a span that may tell it.
    pub(super) fn leave_content_out(&mut self) {
        self.attributes.retain(|attribute| !attribute.is_content());
        if self.attributes.iter().any(|attribute| attribute.name == super::names::OPERATION) {
            self.set(super::names::CONTENT_LEFT_OUT, true);
        }
    }

    /// How many bytes it takes, about.
    pub(super) fn size(&self) -> usize {
        let sizes = |all: &[Attribute]| all.iter().map(|attribute| FRAME / 8 + attribute.size()).sum::<usize>();
        let events = self.events.iter().map(|event| FRAME / 4 + sizes(&event.attributes)).sum::<usize>();
        FRAME + self.name.len() + sizes(&self.attributes) + events
    }

    /// The text of an attribute.
    #[cfg(test)]
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|attribute| attribute.name == name).and_then(|attribute| match &attribute.value {
            Value::Text(text) => Some(text.as_ref()),
            Value::Texts(_) | Value::Number(_) | Value::Real(_) | Value::Flag(_) => None,
        })
    }
}

impl Attribute {
    fn is_content(&self) -> bool {
        super::names::CONTENT.contains(&self.name)
    }

    fn size(&self) -> usize {
        match &self.value {
            Value::Text(text) => text.len(),
            Value::Texts(texts) => texts.iter().map(String::len).sum(),
            Value::Number(_) | Value::Real(_) | Value::Flag(_) => size_of::<u64>(),
        }
    }
}

impl Moment {
    /// Something that happens now.
    pub(super) fn new<const N: usize>(name: &'static str, at_ms: u64, attributes: [(&'static str, Value); N]) -> Self {
        let attributes = attributes.into_iter().map(|(name, value)| Attribute { name, value }).collect();
        Self { name, at_ms, attributes }
    }
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}
