//! `web_fetch`: the readable text of a page, a text or a picture on the web.
//!
//! The URL is the model's, so it is asked within the bounds of the egress guard: no address that is not public, whatever names
//! or redirects lead to it. Nothing is sent with it that tells of the server or of its callers.

mod decode;
mod markdown;
#[cfg(test)]
mod tests;
mod text;

use ::http::HeaderMap;
use ::http::header::{ACCEPT, HeaderValue, USER_AGENT};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use url::Url;

use self::markdown::Page;
use crate::config::WebFetchConfig;
use crate::net::fetch::{FetchLimits, Fetcher, GuardedRequest, GuardedResponse};
use crate::tools::builtin::define;
use crate::tools::{CallContext, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::conversation::{Part, PartKind, Source};

/// What is read. Others have no text that a model could use.
const CONTENT_TYPES: &[&str] = &[
    "text/*",
    "application/json",
    "+json",
    "application/xml",
    "application/xhtml+xml",
    "+xml",
    "application/javascript",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
];
/// Those of them that models look at.
const PICTURES: &[&str] = &["image/png", "image/jpeg", "image/gif", "image/webp"];
const ACCEPTED: &str = "text/html, application/xhtml+xml, text/plain, application/json, */*;q=0.5";
const AGENT: &str = concat!("loopgate/", env!("CARGO_PKG_VERSION"));

/// Most bytes of text that one call returns; the rest is asked for with `start`. All of an answer is kept of so much.
const PART: usize = 40_000;

/// The tool.
#[derive(Debug)]
pub struct WebFetch {
    spec: ToolSpec,
    fetcher: Fetcher,
    limits: FetchLimits,
}

impl WebFetch {
    /// One that asks through `fetcher`.
    pub(super) fn new(config: &WebFetchConfig, fetcher: Fetcher) -> Self {
        let description = "Reads a page on the web and returns its text as Markdown, with its title and the addresses of its links; also \
             plain text, JSON and pictures. Long pages come in parts.";
        let parameters = r#"{"type":"object","properties":{"url":{"type":"string","description":"The address, with https:// or http://"},"start":{"type":"integer","minimum":0,"description":"Where to go on in a page that came in parts, as the part before says"}},"required":["url"],"additionalProperties":false}"#;
        let limits = FetchLimits {
            max_body: usize::try_from(config.max_response).unwrap_or(usize::MAX),
            timeout: config.timeout,
            content_types: Some(CONTENT_TYPES),
            ..FetchLimits::default()
        };
        let spec = ToolSpec { timeout: Some(config.timeout), ..define::spec("web_fetch", description, parameters) };
        Self { spec, fetcher, limits }
    }
}

#[async_trait]
impl Tool for WebFetch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &RawValue, _: &CallContext) -> Result<ToolAnswer, ToolError> {
        #[derive(Deserialize)]
        struct Arguments {
            url: String,
            #[serde(default)]
            start: usize,
        }
        let Arguments { url, start } = define::decode(arguments)?;
        let refused = |reason: &dyn std::fmt::Display| ToolError::Failed(format!("The page cannot be read: {reason}."));
        let url = self.fetcher.guard().parse(url.trim()).map_err(|refusal| refused(&refusal))?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let request = GuardedRequest { headers, limits: self.limits.clone(), ..GuardedRequest::get(url) };
        let answer = self.fetcher.fetch(request).await.map_err(|error| refused(&error))?;
        let fetched = Fetched::read(answer).await.map_err(|error| refused(&error))?;
        // Reading a page is work for a processor.
        let told = tokio::task::spawn_blocking(move || fetched.tell(start)).await;
        told.map_err(|_| ToolError::Failed("The page cannot be read.".to_owned()))
    }
}

/// What a server answered.
struct Fetched {
    url: Url,
    status: http::StatusCode,
    /// As the server names it.
    content_type: String,
    /// The same without parameters; empty if it is not named.
    kind: String,
    body: Vec<u8>,
    was_cut: bool,
}

impl Fetched {
    async fn read(answer: GuardedResponse) -> Result<Self, crate::net::fetch::FetchError> {
        let kind = answer.content_type().unwrap_or_default();
        let named = answer.headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let (content_type, url, status) = (named.unwrap_or_default().to_owned(), answer.url.clone(), answer.status);
        let (body, was_cut) = answer.body.up_to_cap().await?;
        Ok(Self { url, status, content_type, kind, body, was_cut })
    }

    fn tell(self, start: usize) -> ToolAnswer {
        let (bytes, status) = (self.body.len() as u64, self.status);
        let is_error = !status.is_success();
        let parts = match self.picture() {
            Some(picture) if !is_error => vec![picture],
            _ => vec![Part::text(self.text(start))],
        };
        ToolAnswer { parts, is_error, bytes, status: Some(status.as_u16()), ..ToolAnswer::default() }
    }

    /// A picture that is whole.
    fn picture(&self) -> Option<Part> {
        let is_whole = !self.was_cut && !self.body.is_empty();
        let is_picture = PICTURES.contains(&self.kind.as_str());
        let source = Source::Base64 { media_type: self.kind.clone(), data: STANDARD.encode(&self.body) };
        (is_picture && is_whole).then(|| PartKind::Image { source, detail: None }.into())
    }

    fn text(&self, start: usize) -> String {
        let is_page = matches!(self.kind.as_str(), "text/html" | "application/xhtml+xml") || self.looks_like_a_page();
        let is_utf16 = self.body.starts_with(&[0xff, 0xfe]) || self.body.starts_with(&[0xfe, 0xff]);
        if PICTURES.contains(&self.kind.as_str()) || (self.body.contains(&0) && !is_utf16) {
            return format!("{} has {} bytes that are no text.", self.url, self.body.len());
        }
        let text = decode::decode(&self.body, &self.content_type, is_page);
        let page = if is_page { markdown::read(&text, &self.url) } else { Page { text, ..Page::default() } };
        let title = if page.title.is_empty() { String::new() } else { format!("# {}\n", page.title) };
        let is_longer = self.was_cut || page.was_cut;
        let note = if is_longer { "\n\n[The page is longer than what is read of it.]" } else { "" };
        format!("{title}{}{}\n\n{}{note}", self.url, self.remark(), part(&page.text, start))
    }

    fn remark(&self) -> String {
        if self.status.is_success() { String::new() } else { format!(" answered with status {}", self.status) }
    }

    fn looks_like_a_page(&self) -> bool {
        let begin = String::from_utf8_lossy(&self.body[..self.body.len().min(64)]).trim_start().to_ascii_lowercase();
        self.kind.is_empty() && (begin.starts_with("<!doctype html") || begin.starts_with("<html"))
    }
}

/// The part of the text that begins at a byte, and how to get the next.
fn part(text: &str, start: usize) -> String {
    if text.is_empty() {
        return "[The page has no text.]".to_owned();
    }
    let begin = text.ceil_char_boundary(start.min(text.len()));
    let mut end = text.floor_char_boundary((begin + PART).min(text.len()));
    if end < text.len() {
        // A part ends with a line where there is one near its end.
        let near = text[begin..end].rfind('\n').map(|at| begin + at + 1).filter(|at| *at > begin + PART / 2);
        end = near.unwrap_or(end);
    }
    let piece = &text[begin..end];
    match (begin, end) {
        _ if begin == text.len() => format!("[The page ends at {}.]", text.len()),
        (0, end) if end == text.len() => piece.to_owned(),
        (_, end) if end == text.len() => format!("{piece}\n\n[This is the end of the page.]"),
        _ => format!("{piece}\n\n[This is {begin} to {end} of {}. Go on with \"start\": {end}.]", text.len()),
    }
}
