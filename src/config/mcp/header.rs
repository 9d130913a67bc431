//! Headers that requests to a server have: those of the protocol, and the one that the operator chooses for a secret.

use http::HeaderName;
use toml::Spanned;
use toml::de::DeValue;

use crate::config::headers::is_of_the_client;
use crate::config::value::{FromToml, Misread, text};

/// Headers that the protocol itself writes.
pub(super) const OWN_HEADERS: [&str; 9] = [
    "accept",
    "content-type",
    "host",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "accept-encoding",
];

/// Whether neither the protocol nor the HTTP client writes this header.
#[must_use]
pub fn may_be_chosen(name: &HeaderName) -> bool {
    !is_of_the_client(name) && !OWN_HEADERS.contains(&name.as_str())
}

/// The name of a header that the operator may choose.
#[derive(PartialEq)]
pub(super) struct Header(pub(super) HeaderName);

impl FromToml for Header {
    fn form() -> String {
        "name of a header".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let name = HeaderName::from_bytes(text(value, "the name of an HTTP header")?.as_bytes());
        let name = name.map_err(|_| Misread::new(value, "this is not the name of an HTTP header"))?;
        if !may_be_chosen(&name) {
            return Err(Misread::new(value, "the server itself sends this header"));
        }
        Ok(Self(name))
    }

    fn show(&self) -> String {
        self.0.as_str().to_owned().show()
    }
}
