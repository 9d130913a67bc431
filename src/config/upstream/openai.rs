//! Upstreams of kind `openai`.

use super::http::{Defaults, HttpUpstream, read_ask_in_one_piece};
use super::preset::{ChatManner, Preset};
use super::{api_key, base_url};
use crate::config::reader::Section;
use crate::types::tool::WrittenCalls;

/// OpenAI's own address, and the variables that name an upstream where the file declares none.
pub const DEFAULTS: Defaults =
    Defaults { base_url: "https://api.openai.com/v1", key: "OPENAI_API_KEY", url: "OPENAI_BASE_URL", headers: &[] };

/// The header that holds a bearer token.
pub(super) const BEARER: &str = "authorization";

/// How a server that speaks OpenAI's chat dialect is reached.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenAiUpstream {
    /// What it has in common with others.
    pub http: HttpUpstream,
    /// Which tool calls that a model writes as text are taken for calls.
    pub written_calls: WrittenCalls,
    /// Whether it is sent members of a request that OpenAI does not document.
    pub pass_unknown_members: bool,
    /// Whether it is asked for an answer in one piece where no client reads the answer as it is said.
    pub ask_in_one_piece: bool,
    /// What its chat completions take otherwise than others.
    pub chat: ChatManner,
    /// What traces call its service; `None` if that is not known.
    pub provider: Option<&'static str>,
    /// The header that holds the key; `None` for `authorization`, where it is a bearer token.
    pub key_header: Option<&'static str>,
    /// The version of the API that its addresses name, where they name one, and then also the model.
    pub api_version: Option<String>,
}

impl OpenAiUpstream {
    /// Whether it is OpenAI itself.
    #[must_use]
    pub fn is_openai(&self) -> bool {
        is_openai(&self.http)
    }

    /// Reads what is declared.
    pub(in crate::config) fn read(section: &mut Section<'_>) -> Self {
        let (preset, http) = read_http(section);
        Self::read_own(preset, http, section)
    }

    /// The upstream that this preset names, of which the file says nothing else.
    pub(in crate::config) fn of_preset(preset: &'static Preset, section: &mut Section<'_>) -> Self {
        let mut http = HttpUpstream::read(section, &defaults_of(preset));
        find_key(preset, &mut http, section);
        Self::read_own(Some(preset), http, section)
    }

    fn read_own(preset: Option<&'static Preset>, http: HttpUpstream, section: &mut Section<'_>) -> Self {
        let mut chat = chat_of(preset, &http);
        chat.pictures = read_tool_pictures(section, chat);
        let api_version: Option<String> = section.optional(
            "api_version",
            "Version of the API as Azure dates it, such as `2024-10-21`: then `base_url` ends before `/deployments`. Without it, \
             `base_url` ends with `/v1`. Only `openai`.",
        );
        if let Some(version) = &api_version {
            if !is_token(version) {
                section.refuse("api_version", "must be a word of letters, digits, `-`, `_` and `.`");
            }
            http.refuse_parameter(section, "api-version", ", as api_version says");
        }
        let key_header = preset.and_then(|preset| preset.key_header);
        http.refuse_second(section, key_header.unwrap_or(BEARER));
        Self {
            api_version,
            provider: provider_of(preset, &http),
            key_header,
            chat,
            written_calls: section
                .optional(
                    "recover_text_tool_calls",
                    "Whether the server makes tool calls that are all that a response's text says. If absent, it makes \
                     those of `read` tools, and none for OpenAI's own hosts (`api.openai.com`). Only `openai`.",
                )
                .map_or_else(
                    || chat.written_calls,
                    |all: bool| if all { WrittenCalls::All } else { WrittenCalls::None },
                ),
            pass_unknown_members: read_pass_unknown_members(section, chat),
            ask_in_one_piece: read_ask_in_one_piece(section),
            http,
        }
    }

    /// The upstream with the key and the address of the environment.
    pub(in crate::config) fn of_environment(section: &mut Section<'_>) -> Self {
        let mut openai = Self::read(section);
        if openai.http.take_url(section, &DEFAULTS) {
            openai.chat = chat_of(None, &openai.http);
            openai.written_calls = openai.chat.written_calls;
            openai.pass_unknown_members = openai.chat.takes_unknown;
        }
        openai.http.take_key(section, &DEFAULTS);
        openai
    }
}

/// Reads how an upstream is reached, and which preset says what is not written.
pub(super) fn read_http(section: &mut Section<'_>) -> (Option<&'static Preset>, HttpUpstream) {
    let preset: Option<&'static Preset> = section.optional(
        "preset",
        "Name of a known server or service. It gives `base_url`, the variable of the key, and what the server takes otherwise \
         than OpenAI, where nothing else is written: see [presets](#presets). Only `openai` and `openai_responses`.",
    );
    let Some(preset) = preset else { return (None, HttpUpstream::read(section, &DEFAULTS)) };
    let mut http = HttpUpstream::read(section, &defaults_of(preset));
    if preset.base_url.is_none() && !base_url::is_written(section) {
        section.refuse_here(format!("`base_url` is missing: it is {}", preset.address));
    }
    if !api_key::is_written(section) {
        find_key(preset, &mut http, section);
    }
    (Some(preset), http)
}

/// What traces call the service of this preset, or at this address.
pub(super) fn provider_of(preset: Option<&Preset>, http: &HttpUpstream) -> Option<&'static str> {
    preset.map(Preset::provider).or_else(|| is_openai(http).then_some("openai"))
}

/// Takes the key from the preset's own variable.
fn find_key(preset: &Preset, http: &mut HttpUpstream, section: &mut Section<'_>) {
    http.take_key(section, &defaults_of(preset));
    let is_elsewhere = preset.base_url.is_some() && base_url::is_written(section);
    if preset.needs_key && !is_elsewhere && section.env(preset.key).is_none() {
        let name = preset.name;
        section.refuse_here(format!(
            "{name} wants a key: set the environment variable {}, or name another with api_key_env or api_key_file",
            preset.key
        ));
    }
}

fn defaults_of(preset: &Preset) -> Defaults {
    Defaults { base_url: preset.base_url.unwrap_or(DEFAULTS.base_url), key: preset.key, url: "", headers: &[] }
}

/// What the chat completions of this server take.
pub(super) fn chat_of(preset: Option<&Preset>, http: &HttpUpstream) -> ChatManner {
    preset
        .map_or_else(|| if is_openai(http) { ChatManner::OPENAI } else { ChatManner::COMPATIBLE }, |preset| preset.chat)
}

/// Whether an address can hold it.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// Reads whether models are shown the pictures of tools' results.
fn read_tool_pictures(section: &mut Section<'_>, chat: ChatManner) -> bool {
    let told = section.optional(
        "tool_pictures",
        "Whether models are shown the pictures in the results of tools, in a message of the user after the results: chat \
         completions take none elsewhere. Otherwise they are told in words that there was a picture. If absent, OpenAI's own \
         models and those at Azure are shown them; another server refuses a request with pictures if its model takes none. \
         Only `openai`.",
    );
    told.unwrap_or(chat.pictures)
}

/// Reads whether members of a request are sent on that OpenAI does not document.
pub(super) fn read_pass_unknown_members(section: &mut Section<'_>, chat: ChatManner) -> bool {
    let told = section.optional(
        "pass_unknown_members",
        "Whether members that OpenAI does not document, such as `top_k`, are sent on. If absent, they are sent to every \
         upstream but OpenAI's own (`api.openai.com`) and Azure, which would refuse them. Only `openai` and `openai_responses`.",
    );
    told.unwrap_or(chat.takes_unknown)
}

/// Whether the upstream is OpenAI itself, in whichever region. It refuses members that it does not know.
pub(super) fn is_openai(http: &HttpUpstream) -> bool {
    http.urls().any(|url| {
        let host = url.host_str().unwrap_or_default().trim_end_matches('.');
        host == "api.openai.com" || host.ends_with(".api.openai.com")
    })
}
