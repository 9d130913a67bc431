//! A span, before it is written in any protocol.

use std::borrow::Cow;

use crate::types::SpanKey;
use crate::types::trace::SpanId;

/// What a span takes beside its attributes, about, in bytes.
const FRAME: usize = 200;

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
    /// What happened meanwhile.
    pub events: Vec<Moment>,
    /// The spans of which it is the continuation.
    pub links: Vec<SpanId>,
    /// What failed, in a sentence, if it failed. Empty where a word in `error.type` says all.
    pub error: Option<Cow<'static, str>>,
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
            links: Vec::new(),
            error: None,
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

    /// Leaves what was said out.
    pub(super) fn without_content(mut self) -> Self {
        self.attributes.retain(|attribute| !attribute.is_content());
        self.set(super::names::CONTENT_LEFT_OUT, true);
        self
    }

    /// How many bytes it takes, about.
    pub(super) fn size(&self) -> usize {
        FRAME + self.name.len() + self.attributes.iter().map(|attribute| FRAME / 8 + attribute.size()).sum::<usize>()
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
