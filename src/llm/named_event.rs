//! Events that name their kind in a member `type`.

use memchr::memchr2;
use serde::Deserialize;

use super::http::fault::Fault;

/// An event of the API of this name, and the text that it was parsed from. An event of a kind that `is_known` does not know says
/// nothing, and its members may be anything.
pub fn parse<'a, E: Deserialize<'a> + Default>(
    json: &'a [u8],
    api: &'static str,
    is_known: impl Fn(&str) -> bool,
) -> Result<(&'a str, E), Fault> {
    let text = str::from_utf8(json).map_err(|_| Fault::NotAnEvent(api))?;
    match serde_json::from_str(text) {
        Ok(event) => Ok((text, event)),
        Err(_) if kind(text).is_some_and(|kind| !is_known(&kind)) => Ok((text, E::default())),
        Err(_) => Err(Fault::NotAnEvent(api)),
    }
}

/// The kind of an event that names it first, as far as it is told without escapes.
pub fn kind_ahead(json: &[u8]) -> Option<&str> {
    let kind = json.strip_prefix(b"{\"type\":\"")?;
    let end = memchr2(b'"', b'\\', kind).filter(|end| kind[*end] == b'"')?;
    str::from_utf8(&kind[..end]).ok()
}

fn kind(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Kind {
        r#type: String,
    }
    serde_json::from_str(text).ok().map(|Kind { r#type }| r#type)
}
