//! Upstreams of kind `gemini`.

use super::http::{Defaults, HttpUpstream, read_ask_in_one_piece};
use crate::config::reader::Section;

/// Google's own address, and the variables that name an upstream where the file declares none.
pub const DEFAULTS: Defaults = Defaults {
    base_url: "https://generativelanguage.googleapis.com/v1beta",
    key: "GEMINI_API_KEY",
    url: "GOOGLE_GEMINI_BASE_URL",
    headers: &[],
};

/// The versions of the API that an address may name; the first one is assumed.
const VERSIONS: [&str; 3] = ["v1beta", "v1alpha", "v1"];

/// How a server that speaks the Gemini API is reached.
#[derive(Debug, Clone, PartialEq)]
pub struct GeminiUpstream {
    /// What it has in common with others.
    pub http: HttpUpstream,
    /// Whether it is asked for an answer in one piece where no client reads the answer as it is said.
    pub ask_in_one_piece: bool,
}

impl GeminiUpstream {
    /// Reads what is declared.
    pub(in crate::config) fn read(section: &mut Section<'_>) -> Self {
        let http = HttpUpstream::read(section, &DEFAULTS);
        http.refuse_second(section, "x-goog-api-key");
        http.refuse_parameter(section, "alt", "");
        Self { http, ask_in_one_piece: read_ask_in_one_piece(section) }
    }

    /// The upstream with the key and the address of the environment.
    pub(in crate::config) fn of_environment(section: &mut Section<'_>) -> Self {
        let mut gemini = Self::read(section);
        if gemini.http.take_url(section, &DEFAULTS) {
            // Google's own clients, which the variable is meant for, add this to it.
            gemini.http.end_with(&VERSIONS);
        }
        gemini.http.take_key(section, &DEFAULTS);
        gemini
    }
}
