//! Upstreams of kind `openai_responses`.

use super::http::HttpUpstream;
use super::openai::{BEARER, chat_of, is_openai, provider_of, read_http, read_pass_unknown_members};
use super::preset::Preset;
use crate::config::reader::Section;
use crate::config::value::Word;

/// How a server that speaks OpenAI's Responses is reached.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponsesUpstream {
    /// What it has in common with others.
    pub http: HttpUpstream,
    /// Whether it is sent members of a request that OpenAI does not document.
    pub pass_unknown_members: bool,
    /// Which summary of its reasoning a model is asked for.
    pub reasoning_summary: Option<ReasoningSummary>,
    /// Whether a model is asked for its reasoning, encrypted; `None` where its name decides.
    pub encrypted_reasoning: Option<bool>,
    /// What traces call its service; `None` if that is not known.
    pub provider: Option<&'static str>,
    /// The header that holds the key; `None` for `authorization`, where it is a bearer token.
    pub key_header: Option<&'static str>,
}

/// How much of its reasoning a model is to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningSummary {
    /// As much as the model can.
    Auto,
    /// In short.
    Concise,
    /// At length.
    Detailed,
}

impl ReasoningSummary {
    /// The API's word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Concise => "concise",
            Self::Detailed => "detailed",
        }
    }
}

impl Word for ReasoningSummary {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("concise", Self::Concise), ("detailed", Self::Detailed)];
}

impl ResponsesUpstream {
    /// Whether it is OpenAI itself.
    #[must_use]
    pub fn is_openai(&self) -> bool {
        is_openai(&self.http)
    }

    /// Reads what is declared.
    pub(in crate::config) fn read(section: &mut Section<'_>) -> Self {
        let (preset, http) = read_http(section);
        let pass_unknown_members = read_pass_unknown_members(section, chat_of(preset, &http));
        Self::read_own(preset, http, pass_unknown_members, section)
    }

    /// Reads what other kinds do not have.
    pub(in crate::config) fn read_own(
        preset: Option<&Preset>,
        http: HttpUpstream,
        pass_unknown_members: bool,
        section: &mut Section<'_>,
    ) -> Self {
        let key_header = preset.and_then(|preset| preset.key_header);
        http.refuse_second(section, key_header.unwrap_or(BEARER));
        Self {
            reasoning_summary: section.optional(
                "reasoning_summary",
                "Which summary of its reasoning a model is asked for. If absent, none: OpenAI gives summaries of some models to \
                 verified organisations alone. A model that reasons for long without one is silent: see `idle_timeout`. Only \
                 `openai_responses`.",
            ),
            encrypted_reasoning: section.optional(
                "encrypted_reasoning",
                "Whether a model is asked for its reasoning in encrypted form, so that the reasoning goes back to the model \
                 with the results of its tool calls. If absent, every model is asked but those that are known not to reason \
                 (`gpt-3…`, `gpt-4…`, `chatgpt-4…`, `gpt-5-chat…`), which would refuse. Only `openai_responses`.",
            ),
            provider: provider_of(preset, &http),
            key_header,
            pass_unknown_members,
            http,
        }
    }
}
