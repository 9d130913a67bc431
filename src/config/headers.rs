//! `headers`: what the operator adds to requests.

use http::HeaderName;

use super::reader::Section;
use super::secret_source;
use super::sent_value::{self, SentValue};
use super::values::Recorded;

/// Headers of a connection, or of how a request is written: the HTTP client decides about them.
const OF_THE_CLIENT: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// Whether the HTTP client decides about a header.
pub(super) fn is_of_the_client(name: &HeaderName) -> bool {
    OF_THE_CLIENT.contains(&name.as_str())
}

/// Reads the table `headers`. Those in `own` are written by the server itself.
pub(super) fn read_headers(section: &mut Section<'_>, own: &[&str]) -> Vec<(HeaderName, SentValue)> {
    read_with_text(section, own).into_iter().map(|(name, value, _)| (name, value)).collect()
}

/// The same, each with the text in the file that it is, if it is one.
pub(super) fn read_with_text<'a>(
    section: &mut Section<'a>,
    own: &[&str],
) -> Vec<(HeaderName, SentValue, Option<&'a str>)> {
    let mut names = Vec::new();
    section.named_or_text("headers", |name, text, section| {
        let prefix = section.key("prefix", "Text before the secret, such as `\"Bearer \"`.", String::new());
        let value = sent_value::read(&prefix, text, section);
        let value = value.and_then(|value| match secret_source::sendable(value.whole.clone()) {
            Ok(_) => Some(value),
            Err(what) => {
                section.refuse_here(what);
                None
            }
        });
        if let Some(value) = &value {
            section.record_here(Recorded::hidden(value.whole.expose()));
        }
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
            section.refuse_here("this is not the name of an HTTP header");
            return None;
        };
        if is_of_the_client(&name) {
            section.refuse_here("this header belongs to the connection: the server decides about it");
        } else if own.contains(&name.as_str()) {
            section.refuse_here("the server itself sends this header");
        } else if names.contains(&name) {
            section.refuse_here("this header is given twice; upper and lower case are the same");
        }
        names.push(name.clone());
        Some((name, value?, text))
    })
}
