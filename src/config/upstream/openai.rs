//! Upstreams of kind `openai`.

use url::Url;

use super::http::{Defaults, HttpUpstream};
use crate::config::reader::Section;
use crate::types::tool::WrittenCalls;

/// OpenAI's own address, and the variables that name an upstream where the file declares none.
pub const DEFAULTS: Defaults =
    Defaults { base_url: "https://api.openai.com/v1", key: "OPENAI_API_KEY", url: "OPENAI_BASE_URL" };

/// How a server that speaks OpenAI's chat dialect is reached.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenAiUpstream {
    /// What it has in common with others.
    pub http: HttpUpstream,
    /// Which tool calls that a model writes as text are taken for calls.
    pub written_calls: WrittenCalls,
    /// Whether it is sent members of a request that OpenAI does not document.
    pub pass_unknown_members: bool,
    /// Whether it is asked for an answer in one piece where nobody reads the answer as it is said.
    pub ask_in_one_piece: bool,
}

impl OpenAiUpstream {
    /// Whether it is OpenAI itself.
    #[must_use]
    pub fn is_openai(&self) -> bool {
        is_openai(&self.http.base_url)
    }

    /// Reads what is declared.
    pub(in crate::config) fn read(section: &mut Section<'_>) -> Self {
        let http = HttpUpstream::read(section, &DEFAULTS);
        Self {
            written_calls: section
                .optional(
                    "recover_text_tool_calls",
                    "Whether the server makes tool calls that are all that a response's text says. If absent, it makes \
                     those of `read` tools, and none for OpenAI's own hosts (`api.openai.com`). Only `openai`.",
                )
                .map_or_else(
                    || written_calls_of(&http.base_url),
                    |all: bool| if all { WrittenCalls::All } else { WrittenCalls::None },
                ),
            pass_unknown_members: read_pass_unknown_members(section, &http),
            ask_in_one_piece: section.key(
                "ask_in_one_piece",
                "Whether a model is asked for its answer in one piece where nobody reads the answer as it is said, as with \
                 `stream: false`. That takes less of the server and suits short answers: `first_byte_timeout` then bounds \
                 a whole answer, and of one that is cut short there is no text. Only `openai`.",
                false,
            ),
            http,
        }
    }

    /// The upstream with the key and the address of the environment.
    pub(in crate::config) fn of_environment(section: &mut Section<'_>) -> Self {
        let mut openai = Self::read(section);
        if openai.http.take_url(section, &DEFAULTS) {
            openai.written_calls = written_calls_of(&openai.http.base_url);
            openai.pass_unknown_members = !openai.is_openai();
        }
        openai.http.take_key(section, &DEFAULTS);
        openai
    }
}

/// Reads whether members of a request are sent on that OpenAI does not document.
pub(super) fn read_pass_unknown_members(section: &mut Section<'_>, http: &HttpUpstream) -> bool {
    let told = section.optional(
        "pass_unknown_members",
        "Whether members that OpenAI does not document, such as `top_k`, are sent on. If absent, they are sent to every \
         upstream but OpenAI's own (`api.openai.com`), which would refuse them. Only `openai` and `openai_responses`.",
    );
    told.unwrap_or_else(|| !is_openai(&http.base_url))
}

/// Small models write calls as text, OpenAI's own do not.
fn written_calls_of(base_url: &Url) -> WrittenCalls {
    if is_openai(base_url) { WrittenCalls::None } else { WrittenCalls::Read }
}

/// Whether the upstream is OpenAI itself, in whichever region. It refuses members that it does not know.
pub(super) fn is_openai(base_url: &Url) -> bool {
    let host = base_url.host_str().unwrap_or_default().trim_end_matches('.');
    host == "api.openai.com" || host.ends_with(".api.openai.com")
}
