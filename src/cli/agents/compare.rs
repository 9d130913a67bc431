//! What differs between the settings of two versions of an agent, in words. Pure.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The longest value that is shown, in characters.
const MOST_SHOWN: usize = 80;

/// A line for each setting that differs, by its path.
pub(super) fn differences(old: &Map<String, Value>, new: &Map<String, Value>) -> Vec<String> {
    let mut lines = Vec::new();
    compare("", old, new, &mut lines);
    lines
}

fn compare(path: &str, old: &Map<String, Value>, new: &Map<String, Value>, lines: &mut Vec<String>) {
    let empty = Map::new();
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        let within = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match (old.get(name), new.get(name)) {
            (old, new) if old == new => {}
            (Some(Value::Object(old)), Some(Value::Object(new))) => compare(&within, old, new, lines),
            (None, Some(Value::Object(new))) if !new.is_empty() => compare(&within, &empty, new, lines),
            (Some(Value::Object(old)), None) if !old.is_empty() => compare(&within, old, &empty, lines),
            (old, new) => lines.push(format!("{within}: {}, was {}", shown(new), shown(old))),
        }
    }
}

fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "absent".to_owned() };
    let text = value.to_string();
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_setting_that_differs_is_a_line() {
        let old = json!({"model": "m", "system": "a", "limits": {"timeout": "9s", "max_iterations": 2}, "policy": {}});
        let new = json!({"model": "m", "tools": ["x"], "limits": {"timeout": "8s", "max_iterations": 2}, "context": {"keep_last": 4}, "policy": {}});
        let lines = differences(old.as_object().unwrap(), new.as_object().unwrap());
        assert_eq!(
            lines,
            [
                "context.keep_last: 4, was absent",
                "limits.timeout: \"8s\", was \"9s\"",
                "system: absent, was \"a\"",
                "tools: [\"x\"], was absent",
            ]
        );
        assert_eq!(differences(new.as_object().unwrap(), new.as_object().unwrap()), [""; 0]);
    }
}
