//! Members of a request that the completion endpoints do not know. They are passed on, since an upstream may know them.

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::api::wire::body::{clip, malformed};
use crate::api::wire::error::WireError;
use crate::api::wire::openai_chat::withheld::is_withheld;
use crate::types::json::{Members, RawValueEq};

/// The members that the endpoints know.
const KNOWN: [&str; 29] = [
    "agent",
    "frequency_penalty",
    "functions",
    "input",
    "logit_bias",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "model",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_p",
    "user",
    "verbosity",
];
/// How long all unknown members may be together, in bytes. They are stored with the run.
const MAX_BYTES: usize = 64 << 10;

/// Most members that are named in a warning.
const MAX_NAMED: usize = 8;

/// The members of a request that are not known.
#[derive(Debug, Default, PartialEq)]
pub struct Unknown {
    /// As they were written. Those that are null say nothing.
    pub members: Members,
    /// The names of those that are neither kept nor sent to any upstream; not all of them where there are many.
    withheld: Vec<String>,
}

impl Unknown {
    /// What the caller should know about them.
    pub fn warning(&self) -> Option<String> {
        let names = self.withheld.join(", ");
        (!names.is_empty()).then(|| format!("no upstream was sent these members, which the server decides: {names}"))
    }
}

/// Reads the members of a request that are not known.
pub fn read_unknown(body: &str) -> Result<Unknown, WireError> {
    let unknown: Unknown = serde_json::from_str(body).map_err(|error| malformed(&error))?;
    let mut bytes = 0;
    for (name, json) in &unknown.members.0 {
        bytes += name.len() + json.get().len();
        if bytes > MAX_BYTES {
            let message = format!("members that are not known may have {MAX_BYTES} bytes together");
            return Err(WireError::invalid(clip(name), message));
        }
        // The parser refuses a depth that readers of the request could not parse either.
        if serde_json::from_str::<Value>(json.get()).is_err() {
            return Err(WireError::invalid(clip(name), "is nested too deeply"));
        }
    }
    Ok(unknown)
}

impl<'de> Deserialize<'de> for Unknown {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UnknownVisitor)
    }
}

struct UnknownVisitor;

impl<'de> Visitor<'de> for UnknownVisitor {
    type Value = Unknown;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unknown, A::Error> {
        let mut unknown = Unknown::default();
        while let Some(name) = map.next_key::<String>()? {
            if KNOWN.binary_search(&name.as_str()).is_ok() {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let json: RawValueEq = map.next_value()?;
            match json.get() {
                "null" => {}
                _ if !is_withheld(&name) => unknown.members.0.push((name, json)),
                _ if unknown.withheld.len() < MAX_NAMED => unknown.withheld.push(clip(&name).to_owned()),
                _ => {}
            }
        }
        Ok(unknown)
    }
}

#[cfg(test)]
mod tests {
    use utoipa::PartialSchema;
    use utoipa::openapi::{RefOr, Schema};

    use super::*;
    use crate::api::wire::openai_chat::request::CompletionRequest;

    #[test]
    fn the_members_that_are_known_are_those_of_the_request() {
        let RefOr::T(Schema::Object(object)) = CompletionRequest::schema() else { panic!("it is an object") };
        let mut described: Vec<&str> = object.properties.keys().map(String::as_str).collect();
        described.push("functions");
        described.sort_unstable();
        assert_eq!(described, KNOWN);
    }

    #[test]
    fn only_what_is_not_known_is_kept_and_within_bounds() {
        let read = |body: &str| read_unknown(body).map_err(|error| error.param);
        let text =
            r#"{"model":"m","top_k":40,"thinking":{"type": "x"},"min_p":null,"n":1,"api_key":"k","apiBase":null}"#;
        let unknown = read(text).unwrap();
        assert_eq!(unknown.withheld, ["api_key"]);
        let found: Vec<_> = unknown.members.0.iter().map(|(name, json)| (name.as_str(), json.get())).collect();
        assert_eq!(found, [("top_k", "40"), ("thinking", r#"{"type": "x"}"#)]);
        let deep = format!(r#"{{"x":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert!(read(&deep).is_err());
        assert_eq!(read(&format!(r#"{{"y":{}1{}}}"#, "[".repeat(200), "]".repeat(200))), Err(Some("y".to_owned())));
        assert_eq!(read(&format!(r#"{{"z":"{}"}}"#, "x".repeat(MAX_BYTES))), Err(Some("z".to_owned())));
    }
}
