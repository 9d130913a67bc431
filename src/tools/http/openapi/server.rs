//! Which servers the operations of a document may have.
//!
//! Calls and the operator's keys go there, and the operator seldom wrote the document. So all operations have one origin, which is the
//! document's own, unless the operator names others.

use serde_json::Value;
use url::{Host, Origin, Url};

use super::document::Document;
use crate::config::OpenApiConfig;
use crate::net::metadata::is_metadata_host;

/// Longest address of a server.
const MAX_URL: usize = 16 << 10;

/// The servers that a document may name.
#[derive(Debug)]
pub(super) struct Servers<'a> {
    config: &'a OpenApiConfig,
    /// The first server of the document, or why it cannot be read.
    first: Option<Result<String, String>>,
    /// Whether requests bear something that tells who asks.
    has_keys: bool,
}

impl<'a> Servers<'a> {
    pub(super) fn of(document: &Document, config: &'a OpenApiConfig) -> Self {
        let first = document.root.get("servers").and_then(address);
        Self { config, first, has_keys: !config.headers.is_empty() || !config.query.is_empty() }
    }

    /// The address before the path of an operation, which may name a server of its own: the operator's, or else what the document says,
    /// which may be relative to its own address. The error is a clause.
    pub(super) fn base(&self, own: Option<&Result<String, String>>) -> Result<String, String> {
        let url = match (&self.config.base_url, own.or(self.first.as_ref())) {
            (Some(url), _) => callable(url.clone())?,
            (None, Some(declared)) => self.allowed(callable(self.parse(declared)?)?)?,
            (None, None) => return Err("the document names no server: give base_url".to_owned()),
        };
        Ok(url.as_str().trim_end_matches('/').to_owned())
    }

    fn parse(&self, declared: &Result<String, String>) -> Result<Url, String> {
        let declared = declared.as_ref().map_err(Clone::clone)?;
        let url = Url::parse(declared).ok().or_else(|| self.config.url.as_ref()?.join(declared).ok());
        url.ok_or_else(|| "the document names its server without a host: give base_url".to_owned())
    }

    /// A server that the document names, if calls and keys may go there.
    fn allowed(&self, url: Url) -> Result<Url, String> {
        if self.config.servers.contains(&url.origin()) {
            return Ok(url);
        }
        if self.origin().is_none_or(|own| own != url.origin()) {
            return Err(
                "its server is another than that of the document: give base_url, or name it in servers".to_owned()
            );
        }
        // That of the document's address was given by the operator.
        let is_given = self.config.url.is_some();
        if !is_given && is_metadata_host(&url) {
            return Err("its server is one at which a cloud gives credentials: give base_url".to_owned());
        }
        if !is_given && self.has_keys && url.scheme() == "http" && !is_this_machine(&url) {
            return Err(
                "its server has no TLS, and the keys of the configuration would go there: give base_url, or name it in servers"
                    .to_owned(),
            );
        }
        Ok(url)
    }

    /// The origin that is the document's own: that of its address, or else of its first server.
    fn origin(&self) -> Option<Origin> {
        match (&self.config.url, &self.first) {
            (Some(url), _) => Some(url.origin()),
            (None, Some(first)) => self.parse(first).ok().map(|url| url.origin()),
            (None, None) => None,
        }
    }
}

/// The address, if paths can be added to it and it says nothing of who asks.
fn callable(url: Url) -> Result<Url, String> {
    let is_plain = matches!(url.scheme(), "http" | "https") && url.query().is_none() && url.fragment().is_none();
    if !is_plain || !url.username().is_empty() || url.password().is_some() || !url.has_host() {
        return Err("its server is none that can be called: give base_url".to_owned());
    }
    Ok(url)
}

fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// The address of the first server of a list, its variables by their defaults, or why there is none.
pub(super) fn address(list: &Value) -> Option<Result<String, String>> {
    let server = list.get(0)?;
    let template = server.get("url")?.as_str()?;
    let too_long = || "the address of its server is too long: give base_url".to_owned();
    if template.len() > MAX_URL {
        return Some(Err(too_long()));
    }
    let default = |name: &str| {
        let variable = server.get("variables")?.get(name)?;
        Some(variable.get("default").and_then(Value::as_str).unwrap_or_default())
    };
    Some(expand(template, default).ok_or_else(too_long))
}

/// A template with the values of the variables that are known. Values are not looked into for further ones: they could make an
/// address of any length. `None` if it is too long as it is.
fn expand<'a>(template: &'a str, value: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    let (mut url, mut rest) = (String::new(), template);
    while !rest.is_empty() {
        let end = rest.find('{').unwrap_or(rest.len());
        let (mut piece, mut after) = rest.split_at(end);
        if piece.is_empty() {
            let end = rest.find('}').map_or(rest.len(), |end| end + 1);
            (piece, after) = rest.split_at(end);
            let name = piece.trim_start_matches('{').trim_end_matches('}');
            piece = value(name).unwrap_or(piece);
        }
        if url.len() + piece.len() > MAX_URL {
            return None;
        }
        url.push_str(piece);
        rest = after;
    }
    Some(url)
}
