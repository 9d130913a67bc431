//! The parts of a tool's result, for clients that show more than text.

use serde::Serialize;
use utoipa::ToSchema;

use crate::types::conversation::{Part, PartKind, Source};

/// One part of what a tool answered.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResultPart<'a> {
    /// Text.
    Text {
        /// The text.
        text: &'a str,
    },
    /// A picture.
    Image {
        /// `image/png`, …
        media_type: &'a str,
        /// Its bytes in base64.
        data: &'a str,
    },
    /// Sound.
    Audio {
        /// `audio/wav`, …
        media_type: &'a str,
        /// Its bytes in base64.
        data: &'a str,
    },
    /// A document.
    File {
        /// `application/pdf`, …
        media_type: &'a str,
        /// Its bytes in base64.
        data: &'a str,
        /// Its name.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a str>,
    },
    /// Something that lies elsewhere. Nothing has fetched it.
    Link {
        /// Where it is.
        uri: &'a str,
        /// What it is called.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a str>,
        /// What it is.
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
        /// `text/html`, …
        #[serde(skip_serializing_if = "Option::is_none")]
        media_type: Option<&'a str>,
        /// How long it is.
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
    },
}

impl<'a> ResultPart<'a> {
    /// The parts of a result that is more than text; none of any other, which `content` tells whole.
    pub fn all(parts: &'a [Part]) -> Vec<Self> {
        if parts.iter().all(|part| part.as_text().is_some()) {
            return Vec::new();
        }
        parts.iter().filter_map(Self::of).collect()
    }

    fn of(part: &'a Part) -> Option<Self> {
        Some(match &part.kind {
            PartKind::Text(text) | PartKind::Refusal(text) => Self::Text { text },
            PartKind::Image { source: Source::Base64 { media_type, data }, .. } => Self::Image { media_type, data },
            PartKind::Audio { source: Source::Base64 { media_type, data } } => Self::Audio { media_type, data },
            PartKind::File { source: Source::Base64 { media_type, data }, name } => {
                Self::File { media_type, data, name: name.as_deref() }
            }
            PartKind::Link(link) => Self::Link {
                uri: &link.uri,
                name: link.name.as_deref(),
                description: link.description.as_deref(),
                media_type: link.media_type.as_deref(),
                bytes: link.bytes,
            },
            // No result has these: what a tool answers holds its bytes.
            PartKind::Image { .. }
            | PartKind::Audio { .. }
            | PartKind::File { .. }
            | PartKind::Thinking(_)
            | PartKind::ToolCall(_)
            | PartKind::ToolResult(_)
            | PartKind::Unknown { .. } => return None,
        })
    }
}
