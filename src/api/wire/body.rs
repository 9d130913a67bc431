//! What all JSON bodies share: parsing with errors that name a path, and values that several requests have.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::api::wire::depth::{MAX_DEPTH, is_too_deep};
use crate::api::wire::error::{ErrorCode, WireError};
use crate::api::wire::json_object::JsonObject;
use crate::api::wire::mismatch::in_words;
use crate::types::json::MAX_NUMBER;
use crate::types::usage::MAX_USD;

/// What is wrong with a token budget; without one there is `instead`.
pub fn bad_tokens(budget: Option<u64>, instead: &str) -> Option<String> {
    match budget {
        Some(0) => Some(format!("must be above 0; leave it out for {instead}")),
        Some(tokens) if tokens > MAX_NUMBER => Some(format!("must be at most {MAX_NUMBER}")),
        Some(_) | None => None,
    }
}

/// What is wrong with a cost budget; without one there is `instead`.
pub fn bad_money(budget: Option<f64>, instead: &str) -> Option<String> {
    match budget {
        Some(usd) if !usd.is_finite() || usd <= 0.0 => Some(format!("must be above 0; leave it out for {instead}")),
        Some(usd) if usd > MAX_USD => Some(format!("must be at most {MAX_USD}")),
        Some(_) | None => None,
    }
}

/// Reals from here on stand for several whole numbers each.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

/// Parses a JSON body; errors name the path of what is wrong.
pub fn parse<'a, T: Deserialize<'a>>(body: &'a str) -> Result<T, WireError> {
    if is_too_deep(body) {
        let message = format!("the JSON is nested more than {MAX_DEPTH} levels deep");
        return Err(WireError::new(ErrorCode::InvalidJson, message));
    }
    located(body).map(|JsonObject(value)| value)
}

/// Parses any JSON; errors name the path of what is wrong.
pub fn located<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, WireError> {
    serde_json::from_str(json).or_else(|error| {
        if error.is_syntax() || error.is_eof() {
            return Err(malformed(&error));
        }
        // Once more, slower, to learn where.
        let deserializer = &mut serde_json::Deserializer::from_str(json);
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
            let path = error.path().to_string();
            let inner = malformed(error.inner());
            match path.as_str() {
                "." => inner,
                // The path of an unknown or missing field ends at its parent or at itself, by its kind.
                path => match inner.param.clone() {
                    Some(name) if path == name || path.ends_with(&format!(".{name}")) => inner.at(path),
                    _ => inner.within(path),
                },
            }
        })
    })
}

/// What is wrong with a piece of JSON, without its surroundings.
pub fn malformed(error: &serde_json::Error) -> WireError {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or(&text);
    let text = in_words(text);
    let named = || text.split('`').nth(1).unwrap_or_default().to_owned();
    if error.is_syntax() || error.is_eof() || text.starts_with("duplicate field") {
        WireError::new(ErrorCode::InvalidJson, format!("the JSON is not valid: {text}"))
    } else if text.starts_with("missing field") {
        WireError::new(ErrorCode::MissingField, text.replace('`', "")).at(named())
    } else if text.starts_with("unknown field") {
        WireError::new(ErrorCode::UnknownField, text.replace('`', "")).at(named())
    } else {
        WireError::new(ErrorCode::InvalidValue, text.replace('`', ""))
    }
}

/// The beginning of a text that a caller sent, for an error message.
pub fn clip(text: &str) -> &str {
    text.get(..text.floor_char_boundary(80)).unwrap_or_default()
}

/// 400 for a session id that cannot be one.
pub fn bad_session_id(param: &str) -> WireError {
    WireError::invalid(param, "a session id has 1 to 128 characters of A-Z a-z 0-9 . _ : - and is not `import`")
}

/// 400 for a member that must be there.
pub fn missing(field: &str) -> WireError {
    WireError::new(ErrorCode::MissingField, format!("{field} is missing")).at(field)
}

/// A whole number, or one that is written as `100.0`.
pub fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(deserializer)? else { return Ok(None) };
    let real = || number.as_f64().filter(|real| real.fract() == 0.0 && (0.0..MAX_WHOLE).contains(real));
    let whole = number.as_u64().or_else(|| format!("{:.0}", real()?).parse().ok());
    whole.map(Some).ok_or_else(|| D::Error::custom(format!("must be a non-negative whole number, not {number}")))
}

/// OpenAI's bounds on metadata.
pub fn check_metadata(metadata: Option<&BTreeMap<String, String>>) -> Result<(), WireError> {
    let Some(metadata) = metadata else { return Ok(()) };
    if metadata.len() > 16 {
        return Err(WireError::invalid("metadata", "may have at most 16 entries"));
    }
    match metadata.iter().find(|(key, value)| key.is_empty() || key.chars().count() > 64 || value.chars().count() > 512)
    {
        Some((key, _)) => {
            let path = format!("metadata.{}", clip(key));
            Err(WireError::invalid(path, "keys have 1 to 64 characters, values at most 512"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_above_zero_and_no_more_than_every_client_can_read_back() {
        let wrong = |tokens| bad_tokens(Some(tokens), "none").is_some();
        assert_eq!([0, 1, MAX_NUMBER, MAX_NUMBER + 1, u64::MAX].map(wrong), [true, false, false, true, true]);
        let wrong = |usd| bad_money(Some(usd), "none").is_some();
        let amounts = [0.0, -1.0, 0.01, MAX_USD, MAX_USD * 1.1, 1e300, f64::INFINITY, f64::NAN];
        assert_eq!(amounts.map(wrong), [true, true, false, false, true, true, true, true]);
        assert_eq!((bad_tokens(None, "none"), bad_money(None, "none")), (None, None));
    }
}
