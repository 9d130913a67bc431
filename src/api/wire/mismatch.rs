//! Words what the JSON library says of a value of the wrong kind, so that the sentence can follow the value's name.
//!
//! Pure. The library's words name types of our code, such as `u64`, which mean nothing to a caller.

/// The library's sentence in a caller's words; a sentence of another kind as it is.
pub(super) fn in_words(text: &str) -> String {
    let kinds = ["invalid type: ", "invalid value: ", "unknown variant "];
    let found = kinds.iter().find_map(|kind| text.strip_prefix(kind)?.rsplit_once(", expected "));
    match found {
        Some((found, expected)) => format!("must be {}, not {}", wanted(expected), given(found)),
        None => text.to_owned(),
    }
}

fn wanted(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a non-negative whole number",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" | "a JSON number" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        // The struct's name means nothing to a caller.
        expected if expected.starts_with("struct ") => "an object",
        expected => expected,
    }
}

fn given(found: &str) -> String {
    match found {
        "sequence" => "a list".to_owned(),
        "map" => "an object".to_owned(),
        found if found.starts_with("string ") => format!("the {found}"),
        found => {
            let kinds = ["integer ", "floating point ", "boolean "];
            kinds.iter().find_map(|kind| found.strip_prefix(kind)).unwrap_or(found).to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    fn said<T: for<'a> Deserialize<'a> + std::fmt::Debug>(json: &str) -> String {
        let text = serde_json::from_str::<T>(json).unwrap_err().to_string();
        in_words(text.split(" at line ").next().unwrap())
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_told_without_types_of_ours() {
        #[derive(Debug, Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Word {
            One,
            Two,
        }
        assert_eq!(said::<u64>("-1"), "must be a non-negative whole number, not `-1`");
        assert_eq!(said::<i64>("1.5"), "must be a whole number, not `1.5`");
        assert_eq!(said::<f64>("\"x, expected y\""), "must be a number, not the string \"x, expected y\"");
        assert_eq!(said::<bool>("[]"), "must be true or false, not a list");
        assert_eq!(said::<Vec<u8>>("{}"), "must be a list, not an object");
        assert_eq!(said::<std::collections::BTreeMap<String, u8>>("null"), "must be an object, not null");
        assert_eq!(said::<Word>("\"three\""), "must be `one` or `two`, not `three`");
        assert_eq!(in_words("missing field `a`"), "missing field `a`");
    }
}
