//! `[openapi.NAME]`: documents whose operations are tools.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use toml::Spanned;
use toml::de::DeValue;
use url::{Origin, Url};

use super::answers_later::AnswersLater;
use super::headers::read_headers;
use super::identity::SentIdentity;
use super::quantity::Size;
use super::query::read_query;
use super::reader::Section;
use super::secret::Secret;
use super::value::{FromToml, Misread, text};
use super::values::Recorded;
use crate::types::Effect;
use crate::types::pattern::matches;

/// Longest file with a document.
const MAX_FILE: u64 = 32 << 20;

/// A document whose operations are tools.
#[derive(Clone)]
pub struct OpenApiConfig {
    /// What the names of its tools begin with, before `__`.
    pub name: String,
    /// Where it is, if that is no file.
    pub url: Option<Url>,
    /// The document; `None` until it is fetched.
    pub document: Option<Arc<str>>,
    /// The address before its paths; `None` for what it says itself.
    pub base_url: Option<Url>,
    /// Origins that operations may be served by beside the document's own.
    pub servers: Vec<Origin>,
    /// Patterns of the operations that are wanted; empty for all.
    pub include: Vec<String>,
    /// Patterns of those that are not.
    pub exclude: Vec<String>,
    /// What repeating an operation does, where its method does not say.
    pub effects: EffectPatterns,
    /// Sent with each call.
    pub headers: Vec<(HeaderName, Secret)>,
    /// Added to the query of each call.
    pub query: Vec<(String, Secret)>,
    /// What each call tells of the caller.
    pub send_identity: SentIdentity,
    /// For each call; `None` leaves it to the agent.
    pub timeout: Option<Duration>,
    /// Most bytes of an answer.
    pub max_response: u64,
    /// How operations may be answered later, and the patterns of those that may.
    pub answers_later: (Option<AnswersLater>, Vec<String>),
}

/// Patterns of names by what repeating a call does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EffectPatterns {
    write: Vec<String>,
    idempotent: Vec<String>,
    read: Vec<String>,
}

impl EffectPatterns {
    /// Those of each kind.
    #[must_use]
    pub fn new(write: Vec<String>, idempotent: Vec<String>, read: Vec<String>) -> Self {
        Self { write, idempotent, read }
    }

    fn read(section: &mut Section<'_>) -> Self {
        let mut read = |name, help| section.key(name, help, Vec::new());
        let write = read(
            "write",
            "Operations that a repeated call may do all again, so they are never repeated: of others those with `POST` and `PATCH`.",
        );
        let idempotent = read(
            "idempotent",
            "Operations of which a repeated call changes nothing more: of others those with `PUT` and `DELETE`.",
        );
        let read = read(
            "read",
            "Operations that change nothing: of others those with `GET` and `HEAD`. Of several patterns that name an operation, \
             that of `write` counts first, then that of `idempotent`.",
        );
        Self { write, idempotent, read }
    }

    /// What is said of a name. Of several patterns the one that asks for most care counts.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<Effect> {
        let lists = [(&self.write, Effect::Write), (&self.idempotent, Effect::Idempotent), (&self.read, Effect::Read)];
        let named = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        lists.into_iter().find(|(patterns, _)| named(patterns)).map(|(_, effect)| effect)
    }
}

impl OpenApiConfig {
    pub(super) fn read(name: &str, section: &mut Section<'_>, public_url: Option<&Url>) -> Option<Self> {
        refuse_name(name, section);
        let document: Option<Document> = section.required(
            "document",
            "File or URL of an OpenAPI document (3.0, 3.1 or 3.2, JSON or YAML), of which each operation becomes a tool \
             `NAME__OPERATION`.",
        );
        let (url, document) = document.map(|Document(document)| read_document(&document, section)).unwrap_or_default();
        let is_known = url.is_some() || document.is_some();
        let base_url: Option<BaseUrl> = section.optional(
            "base_url",
            "What comes before the paths of the document; if absent, the first of its `servers`. Where `document` is a URL, operations with \
             a server of another scheme, host or port than it need this, or `servers`.",
        );
        let servers: Vec<Server> = section.key(
            "servers",
            "Servers that operations may have beside the document's own, such as `\"https://uploads.example.com\"`: the same scheme, host and \
             port. Its own is that of the URL of `document` or, if it is a file, the first of its `servers`. One without TLS \
             (`http://`) must be named here if `headers` or `query` would be sent to it.",
            Vec::new(),
        );
        let include = section.key(
            "include",
            "Operations that become tools, by their ids, such as `\"repos_*\"`; a character that names of tools do not have is `_` \
             in them. If empty, all do.",
            Vec::new(),
        );
        let exclude = section.key("exclude", "Operations that become none.", Vec::new());
        let effects = section.section("effect", EffectPatterns::read);
        let headers = read_headers(section, &[]).into_iter().map(|(name, value)| (name, value.whole)).collect();
        let query = read_query(section).into_iter().map(|(name, value)| (name, value.whole)).collect();
        let send_identity = section.key(
            "send_identity",
            "What each call tells the service of the caller, as for other [tools](#tools).",
            SentIdentity::default(),
        );
        let timeout = section.optional("timeout", "Most time for one call; if absent, the agent's `tool_timeout`.");
        let Size(max_response) = section.key(
            "max_response",
            "Most bytes of a response that are read; the model is told if there are more.",
            Size(1 << 20),
        );
        let answers_later = AnswersLater::read_operations(section, public_url);
        is_known.then(|| Self {
            name: name.to_owned(),
            url,
            document,
            base_url: base_url.map(|BaseUrl(url)| url),
            servers: servers.into_iter().map(|Server(url)| url.origin()).collect(),
            include,
            exclude,
            effects,
            headers,
            query,
            send_identity,
            timeout,
            max_response,
            answers_later,
        })
    }

    /// How this operation may be answered later, if it may.
    #[must_use]
    pub fn answer_later(&self, operation: &str) -> Option<&AnswersLater> {
        let (answers_later, patterns) = &self.answers_later;
        answers_later.as_ref().filter(|_| patterns.iter().any(|pattern| matches(pattern, operation)))
    }
}

/// Reports a name that tools cannot begin with.
fn refuse_name(name: &str, section: &Section<'_>) {
    const MOST: usize = 40;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !(1..=MOST).contains(&name.len()) || !name.bytes().all(allowed) || name.contains("__") {
        section
            .refuse_here("the name has 1 to 40 characters of A-Z a-z 0-9 _ -, and no __, as tools are NAME__OPERATION");
    }
}

/// The URL that `document` is, or what is in the file of this name. What is wrong with it is reported.
fn read_document(document: &str, section: &Section<'_>) -> (Option<Url>, Option<Arc<str>>) {
    if document.contains("://") {
        let url = Url::parse(document).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.filter(|url| url.username().is_empty() && url.password().is_none());
        if url.is_none() {
            section.refuse("document", "this is neither a file nor a URL with http:// or https:// and no password");
        }
        return (url, None);
    }
    match read_file(document) {
        Ok(text) => {
            // So that a reload tells that the file changed.
            section.record_secret("document", &text);
            (None, Some(text.into()))
        }
        Err(error) => {
            section.refuse("document", format!("{document} cannot be read: {error}"));
            (None, None)
        }
    }
}

/// What is in a file of this name. One without an end, such as a pipe, is none: a server would wait for it.
fn read_file(name: &str) -> io::Result<String> {
    let about = std::fs::metadata(name)?;
    if !about.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if about.len() > MAX_FILE {
        return Err(io::Error::other(format!("it is longer than {MAX_FILE} bytes")));
    }
    std::fs::read_to_string(name)
}

impl fmt::Debug for OpenApiConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the query, which may hold a key, nor the document, which is long.
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("OpenApiConfig").field("name", &self.name).field("headers", &headers).finish_non_exhaustive()
    }
}

/// The name of a file, or a URL.
struct Document(String);

impl FromToml for Document {
    fn form() -> String {
        "file or URL".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        text(value, "a file or a URL").map(|document| Self(document.to_owned()))
    }

    fn show(&self) -> String {
        self.0.show()
    }

    /// The query of a URL may hold a key.
    fn recorded(&self) -> Recorded {
        if self.0.contains('?') { Recorded::hidden(&self.0) } else { Recorded::shown(self.show()) }
    }
}

/// A URL that paths are appended to.
struct BaseUrl(Url);

impl FromToml for BaseUrl {
    fn form() -> String {
        "URL".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        const FORM: &str = "a URL such as \"https://api.example.com/v1\"";
        let url = Url::parse(text(value, FORM)?).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.filter(|url| url.query().is_none() && url.fragment().is_none());
        let url = url.ok_or_else(|| Misread::new(value, format!("this is not {FORM}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Misread::new(value, "must not hold a user or password; name the secret in headers"));
        }
        Ok(Self(url))
    }

    fn show(&self) -> String {
        format!("\"{}\"", self.0)
    }
}

/// A URL of which only the origin counts.
struct Server(Url);

impl FromToml for Server {
    fn form() -> String {
        "URL".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        const FORM: &str = "the URL of a server such as \"https://uploads.example.com\", without a path";
        let url = Url::parse(text(value, FORM)?).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let is_bare = |url: &Url| {
            url.path() == "/"
                && url.query().is_none()
                && url.fragment().is_none()
                && url.username().is_empty()
                && url.password().is_none()
        };
        url.filter(is_bare).map(Self).ok_or_else(|| Misread::new(value, format!("this is not {FORM}")))
    }

    fn show(&self) -> String {
        format!("\"{}\"", self.0.origin().ascii_serialization())
    }
}
