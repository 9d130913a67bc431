//! Upstreams of kind `anthropic`.

use super::http::{Defaults, HttpUpstream};
use crate::config::reader::Section;

/// Anthropic's own address, and the variables that name an upstream where the file declares none.
pub const DEFAULTS: Defaults = Defaults {
    base_url: "https://api.anthropic.com/v1",
    key: "ANTHROPIC_API_KEY",
    url: "ANTHROPIC_BASE_URL",
    headers: &["anthropic-beta", "anthropic-version"],
};

/// The version of the API that the server speaks.
const VERSION: &str = "2023-06-01";

/// How a server that speaks Anthropic's Messages is reached.
#[derive(Debug, Clone, PartialEq)]
pub struct AnthropicUpstream {
    /// What it has in common with others.
    pub http: HttpUpstream,
    /// The version of the API, as a header.
    pub version: String,
    /// Features that are not part of that version, as a header.
    pub beta: Vec<String>,
    /// Most output tokens of a call that nothing else bounds: the API wants a bound.
    pub max_tokens: Option<u64>,
    /// Whether the upstream is asked to cache what the next call repeats.
    pub prompt_cache: bool,
}

impl AnthropicUpstream {
    /// Reads what is declared.
    pub(in crate::config) fn read(section: &mut Section<'_>) -> Self {
        let http = HttpUpstream::read(section, &DEFAULTS);
        Self::read_own(http, section)
    }

    /// Reads what other kinds do not have.
    pub(in crate::config) fn read_own(http: HttpUpstream, section: &mut Section<'_>) -> Self {
        http.refuse_second(section, "x-api-key");
        let version = section.key(
            "anthropic_version",
            "Version of the API, sent as the header `anthropic-version`. Only `anthropic`.",
            VERSION.to_owned(),
        );
        if !is_token(&version) {
            section.refuse("anthropic_version", "must be a word of letters, digits, `-`, `_` and `.`");
        }
        let beta: Vec<String> = section.key(
            "anthropic_beta",
            "Features in beta, sent as the header `anthropic-beta`. Only `anthropic`.",
            Vec::new(),
        );
        if !beta.iter().all(|name| is_token(name)) {
            section.refuse("anthropic_beta", "must be words of letters, digits, `-`, `_` and `.`");
        }
        Self {
            version,
            beta,
            max_tokens: section.optional(
                "max_tokens",
                "Most output tokens of a model call that neither the request nor a budget bounds, because the API wants a \
                 bound. If absent, as many as the built-in table says that the model can give, at most 32,000, and 8,192 \
                 if the table lacks the model. Only `anthropic`.",
            ),
            prompt_cache: section.key(
                "prompt_cache",
                "Whether the upstream is asked to cache tools, instructions and conversation for the next model call. \
                 Writing to the cache costs more than plain input, reading from it much less. Only `anthropic`.",
                true,
            ),
            http,
        }
    }

    /// The upstream with the key and the address of the environment.
    pub(in crate::config) fn of_environment(section: &mut Section<'_>) -> Self {
        let mut anthropic = Self::read(section);
        if anthropic.http.take_url(section, &DEFAULTS) {
            // Anthropic's own clients, which the variable is meant for, add this to it.
            anthropic.http.end_with(&["v1"]);
        }
        anthropic.http.take_key(section, &DEFAULTS);
        anthropic
    }
}

/// Whether a header can carry it in a list.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}
