//! A link to something that lies elsewhere.

use serde::{Deserialize, Serialize};

/// Something that lies elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Where it is, in whatever scheme the tool knows.
    pub uri: String,
    /// What it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `text/html`, `application/pdf`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// How long it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl Link {
    /// What a model is told of it.
    pub(super) fn in_words(&self) -> String {
        let Self { uri, name, description, media_type, bytes } = self;
        let bytes = bytes.map(|bytes| format!("{bytes} bytes"));
        let facts = [name, media_type, &bytes].into_iter().flatten().map(|fact| format!(", {fact}"));
        let described = description.iter().map(|text| format!(": {text}"));
        format!("[link to {uri}{}]", facts.chain(described).collect::<String>())
    }

    /// How many bytes of text it is.
    pub(super) fn length(&self) -> usize {
        let texts = [&self.name, &self.description, &self.media_type];
        self.uri.len() + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }
}
