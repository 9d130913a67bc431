//! The parts of a message, in the order in which they were written.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::types::CallId;
use crate::types::conversation::link::Link;
use crate::types::json::{Members, RawValueEq};

/// A way to write conversations as JSON, as one vendor's API defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// OpenAI's chat completions.
    OpenaiChat,
    /// Anthropic's Messages.
    AnthropicMessages,
    /// OpenAI's Responses.
    OpenaiResponses,
    /// The contents of the Gemini API.
    GeminiContents,
}

impl Dialect {
    /// How many dialects there are.
    pub const COUNT: usize = 4;
}

/// What a message says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// Its parts, in the order in which they were said.
    pub list: Vec<Part>,
    /// Members of the message that are not known.
    #[serde(default, skip_serializing_if = "Extra::is_empty")]
    pub extra: Extra,
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// What it is.
    #[serde(rename = "is")]
    pub kind: PartKind,
    /// Members of the part that are not known.
    #[serde(default, skip_serializing_if = "Extra::is_empty")]
    pub extra: Extra,
}

/// What a part is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// Text.
    Text(String),
    /// Text in which the model declines to answer.
    Refusal(String),
    /// What the model thought before it continued.
    Thinking(Thinking),
    /// A picture.
    Image {
        /// Where its bytes are.
        source: Source,
        /// How closely the model is to look: `low`, `high`, `auto`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// Sound.
    Audio {
        /// Where its bytes are.
        source: Source,
    },
    /// A document.
    File {
        /// Where its bytes are.
        source: Source,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// Something that lies elsewhere, as a tool names it. Models are told of it, and nothing fetches it.
    Link(Box<Link>),
    /// A tool that the model calls.
    ToolCall(ToolCall),
    /// What a call came to.
    ToolResult(Box<ToolResult>),
    /// A part of a kind that is not known, as it was written.
    Unknown {
        /// The dialect it was written in.
        dialect: Dialect,
        /// The member of the message that it is an entry of.
        member: String,
        /// The part.
        json: RawValueEq,
    },
}

/// Where the bytes of a picture, a sound or a document are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Elsewhere: the upstream fetches them.
    Url(String),
    /// Here.
    Base64 {
        /// `image/png`, `audio/wav`, `application/pdf`, …
        media_type: String,
        /// The bytes.
        data: String,
    },
    /// At a vendor, under this id.
    Id(String),
}

/// What a model thought, and what proves to its vendor that the model thought it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thinking {
    /// What may be shown of it; may be empty.
    pub text: String,
    /// What must come back with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<Box<Seal>>,
}

/// The vendor's own note on a piece of thinking. Only the model that wrote it can read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// The model that wrote it, as `upstream/model`. It is bound to that model: any other may refuse it.
    pub author: String,
    /// The vendor's id of the piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What it is.
    pub proof: Proof,
}

/// A vendor's signature of thinking, by which the vendor recognises it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// A signature of the text, or one that came alone, without any.
    Signature(String),
    /// A signature of the part that follows; the thinking itself has no text.
    Following(String),
    /// The thinking itself, encrypted; the text is at most a summary.
    Encrypted(String),
    /// Nothing: the vendor wants the text back as it is.
    Unsigned,
}

impl Proof {
    /// What the vendor wrote; empty if that is nothing.
    #[must_use]
    pub fn written(&self) -> &str {
        match self {
            Self::Signature(written) | Self::Following(written) | Self::Encrypted(written) => written,
            Self::Unsigned => "",
        }
    }
}

/// One call that the model asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Minted by us, so that it is unique over all steps and runs.
    pub id: CallId,
    /// The tool's name as the model wrote it; there may be no such tool.
    pub name: String,
    /// The arguments as the model wrote them: meant to be a JSON object, perhaps malformed.
    pub arguments: String,
}

impl ToolCall {
    /// By what a decision about the call names what was decided: SHA-256 of the tool's name, a line feed and the arguments,
    /// in hexadecimal.
    #[must_use]
    pub fn digest(&self) -> String {
        let hash = Sha256::new().chain_update(&self.name).chain_update("\n").chain_update(&self.arguments).finalize();
        format!("{:x}", Bytes::copy_from_slice(&hash))
    }
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call.
    pub call: CallId,
    /// What the tool said: text, pictures, documents.
    pub parts: Vec<Part>,
    /// The same as JSON, where the tool gives it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<RawValueEq>,
    /// Whether it describes a failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

/// Members that are not known, kept for the dialect that they were written in. Usually there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Extra(Option<Box<(Dialect, Members)>>);

impl Extra {
    /// What is left of an object that was written in `dialect`.
    #[must_use]
    pub fn new(dialect: Dialect, members: Members) -> Self {
        Self((!members.is_empty()).then(|| Box::new((dialect, members))))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The members, for a message that leaves in `dialect`.
    #[must_use]
    pub fn members(&self, dialect: Dialect) -> &[(String, RawValueEq)] {
        match self.0.as_deref() {
            Some((written_in, members)) if *written_in == dialect => members.as_slice(),
            Some(_) | None => &[],
        }
    }

    /// Whether one of them has this name, in whichever dialect.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.all().iter().any(|(known, _)| known == name)
    }

    /// How many bytes of names and JSON they have, in whichever dialect.
    pub(crate) fn bytes(&self) -> usize {
        self.all().iter().map(|(name, json)| name.len() + json.get().len()).sum()
    }

    fn all(&self) -> &[(String, RawValueEq)] {
        self.0.as_deref().map_or(&[], |(_, members)| members.as_slice())
    }
}

impl From<PartKind> for Part {
    fn from(kind: PartKind) -> Self {
        Self { kind, extra: Extra::default() }
    }
}

impl Part {
    /// A part of plain text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        PartKind::Text(text.into()).into()
    }

    /// Something that lies elsewhere.
    #[must_use]
    pub fn link(link: Link) -> Self {
        PartKind::Link(Box::new(link)).into()
    }

    /// Whether it is text or thinking without any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.kind {
            PartKind::Text(text) | PartKind::Refusal(text) => text.is_empty(),
            PartKind::Thinking(thinking) => thinking.text.is_empty() && thinking.seal.is_none(),
            PartKind::Image { .. }
            | PartKind::Audio { .. }
            | PartKind::File { .. }
            | PartKind::Link(_)
            | PartKind::ToolCall(_)
            | PartKind::ToolResult(_)
            | PartKind::Unknown { .. } => false,
        }
    }

    /// Whether it holds a picture, sound or a file.
    #[must_use]
    pub fn is_media(&self) -> bool {
        let (PartKind::Image { source, .. } | PartKind::Audio { source } | PartKind::File { source, .. }) = &self.kind
        else {
            return false;
        };
        matches!(source, Source::Base64 { .. })
    }

    /// Its text, if it is text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        if let PartKind::Text(text) = &self.kind { Some(text) } else { None }
    }

    /// The part as text, for readers of text only: a picture or a file becomes a short note.
    #[must_use]
    pub fn in_words(&self) -> Cow<'_, str> {
        match &self.kind {
            PartKind::Text(text) | PartKind::Refusal(text) => Cow::Borrowed(text),
            PartKind::Thinking(thinking) => Cow::Borrowed(&thinking.text),
            PartKind::Image { source, .. } => source.in_words("image"),
            PartKind::Audio { source } => source.in_words("audio"),
            PartKind::File { source, name: None } => source.in_words("file"),
            PartKind::File { source, name: Some(name) } => source.in_words(&format!("file {name}")),
            PartKind::Link(link) => Cow::Owned(link.in_words()),
            PartKind::ToolCall(call) => Cow::Borrowed(&call.arguments),
            PartKind::ToolResult(result) => lines(&result.parts),
            PartKind::Unknown { json, .. } => Cow::Borrowed(json.get()),
        }
    }

    /// Its text, if the model declines in it.
    #[must_use]
    pub fn as_refusal(&self) -> Option<&str> {
        if let PartKind::Refusal(text) = &self.kind { Some(text) } else { None }
    }

    /// The thinking, if it is that.
    #[must_use]
    pub fn as_thinking(&self) -> Option<&Thinking> {
        if let PartKind::Thinking(thinking) = &self.kind { Some(thinking) } else { None }
    }

    /// Whether it is thinking that no vendor could know again.
    #[must_use]
    pub fn is_unsealed_thinking(&self) -> bool {
        self.as_thinking().is_some_and(|thinking| thinking.seal.is_none())
    }

    /// The call, if it is one.
    #[must_use]
    pub fn as_call(&self) -> Option<&ToolCall> {
        if let PartKind::ToolCall(call) = &self.kind { Some(call) } else { None }
    }

    /// The result, if it is one.
    #[must_use]
    pub fn as_result(&self) -> Option<&ToolResult> {
        if let PartKind::ToolResult(result) = &self.kind { Some(result) } else { None }
    }
}

/// Texts as one; copied only where there are several.
pub fn joined<'a>(mut texts: impl Iterator<Item = &'a str>) -> Cow<'a, str> {
    let first = texts.next().unwrap_or_default();
    match texts.next() {
        None => Cow::Borrowed(first),
        Some(second) => Cow::Owned([first, second].into_iter().chain(texts).collect()),
    }
}

/// Parts as text, a line or more for each.
#[must_use]
pub fn lines(parts: &[Part]) -> Cow<'_, str> {
    match parts {
        [part] => part.in_words(),
        parts => Cow::Owned(parts.iter().map(Part::in_words).collect::<Vec<_>>().join("\n")),
    }
}

impl Source {
    fn in_words(&self, what: &str) -> Cow<'_, str> {
        Cow::Owned(match self {
            Self::Url(url) => format!("[{what}: {url}]"),
            Self::Base64 { media_type, data } => {
                let padding = data.bytes().rev().take_while(|byte| *byte == b'=').count();
                format!("[{what}, {media_type}, {} bytes]", (data.len() / 4 * 3).saturating_sub(padding))
            }
            Self::Id(id) => format!("[{what} {id}]"),
        })
    }
}
