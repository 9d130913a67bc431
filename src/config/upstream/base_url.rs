//! Where a server of models is: its base URL, or those of several servers that answer alike.

use toml::Spanned;
use toml::de::DeValue;
use url::Url;

use crate::config::reader::Section;
use crate::config::value::{FromToml, Misread, text, whole};

/// Most base URLs of one upstream.
const MOST: usize = 64;
/// The largest weight of one of them.
const MOST_WEIGHT: u32 = 1_000;
/// What is expected where there is none.
const FORM: &str = "a URL such as \"http://localhost:11434/v1\"";

/// A base URL, and how much of the calls it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    /// What the paths of the API are appended to; http or https, without credentials and query.
    pub url: Url,
    /// Its part of the calls is its part of the sum of all weights.
    pub weight: u32,
}

impl BaseUrl {
    /// A base URL that gets as many calls as any other.
    #[must_use]
    pub fn new(url: Url) -> Self {
        Self { url, weight: 1 }
    }
}

/// Reads `base_url` or `base_urls`; never empty.
pub(super) fn read(section: &mut Section<'_>, default: &str) -> Vec<BaseUrl> {
    let Single(only) = section.key(
        "base_url",
        "Base URL of the API; `/chat/completions` (`openai`), `/responses` (`openai_responses`), `/messages` (`anthropic`) or \
         `/models/…` (`gemini`) is appended to it.",
        Single(Url::parse(default).expect("the constant is a URL")),
    );
    let several: Option<Vec<BaseUrl>> = section.optional(
        "base_urls",
        "Base URLs of several servers that have the same models, in place of `base_url`: each a URL, or a table such as \
         `{ url = \"http://b:8000/v1\", weight = 3 }`, whose `weight` (1 if absent) says how much of the calls it gets. See \
         [several base URLs](upstreams.md#several-base-urls).",
    );
    let Some(several) = several else { return vec![BaseUrl::new(only)] };
    if section.is_written("base_url") {
        section.refuse("base_urls", "give base_url or base_urls, not both");
    }
    if several.is_empty() {
        section.refuse("base_urls", "must name a URL");
        return vec![BaseUrl::new(only)];
    }
    if several.len() > MOST {
        section.refuse("base_urls", format!("must name at most {MOST} URLs"));
    }
    for (index, BaseUrl { url, .. }) in several.iter().enumerate() {
        let is_same = |other: &BaseUrl| other.url.as_str().trim_end_matches('/') == url.as_str().trim_end_matches('/');
        if several[..index].iter().any(is_same) {
            section.refuse("base_urls", format!("names {url} twice; give it a weight in place of that"));
        }
    }
    several
}

/// Whether the file says where the upstream is.
pub(super) fn is_written(section: &Section<'_>) -> bool {
    section.is_written("base_url") || section.is_written("base_urls")
}

/// The value of `base_url`.
struct Single(Url);

impl FromToml for Single {
    fn form() -> String {
        "URL".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        read_url(value).map(Self)
    }

    fn show(&self) -> String {
        format!("\"{}\"", self.0)
    }
}

impl FromToml for BaseUrl {
    fn form() -> String {
        "URL".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let Some(table) = value.get_ref().as_table() else { return read_url(value).map(Self::new) };
        let (mut url, mut weight) = (None, 1);
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "url" => url = Some(read_url(value)?),
                "weight" => weight = whole(value, MOST_WEIGHT)?,
                _ => {
                    return Err(Misread {
                        at: key.span().start,
                        what: "unknown key; known here: url, weight".to_owned(),
                    });
                }
            }
        }
        let url = url.ok_or_else(|| Misread::new(value, "`url` is missing"))?;
        Ok(Self { url, weight })
    }

    fn show(&self) -> String {
        match self.weight {
            1 => format!("\"{}\"", self.url),
            weight => format!("{{ url = \"{}\", weight = {weight} }}", self.url),
        }
    }
}

fn read_url(value: &Spanned<DeValue<'_>>) -> Result<Url, Misread> {
    parse(text(value, FORM)?).map_err(|what| Misread::new(value, what))
}

/// A base URL, or what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.ok_or_else(|| format!("this is not {FORM}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user or password; name the key with api_key_env or api_key_file".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must end with the path, without ? and #; name parameters in query".to_owned());
    }
    for path in ["/chat/completions", "/responses", "/messages", "/models"] {
        if url.path().trim_end_matches('/').ends_with(path) {
            return Err(format!("must end before {path}, which is appended"));
        }
    }
    Ok(url)
}
