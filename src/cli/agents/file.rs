//! The agents of a file: TOML with tables `[agents.NAME]` as in the configuration, or the same as JSON.

use std::path::Path;

use serde_json::{Map, Value};

use super::super::process::Failure;

/// Reads the agents of a file, by name. What else it holds is left alone, so a whole configuration will do.
pub(super) fn read(path: &Path) -> Result<Map<String, Value>, Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| Failure::new(format_args!("{shown}: {error}")))?;
    parse(&text).map_err(|what| Failure::new(format_args!("{shown}: {what}")))
}

fn parse(text: &str) -> Result<Map<String, Value>, String> {
    let is_json = text.trim_start().starts_with('{');
    let document: Map<String, Value> = if is_json {
        serde_json::from_str(text).map_err(|error| error.to_string())?
    } else {
        // Its message shows the line.
        toml::from_str(text).map_err(|error| error.to_string())?
    };
    let Some(Value::Object(agents)) = document.get("agents") else {
        return Err("it has no agents: name them in tables [agents.NAME]".to_owned());
    };
    // That of the configuration, from which all others inherit, cannot be changed here.
    let own: Map<String, Value> = agents
        .iter()
        .filter(|(name, _)| *name != "default")
        .map(|(name, agent)| (name.clone(), agent.clone()))
        .collect();
    match own.iter().find(|(_, agent)| !agent.is_object()) {
        Some((name, _)) => Err(format!("agents.{name} is no table")),
        None if own.is_empty() => Err("it has no agents but `default`, which is the configuration's".to_owned()),
        None => Ok(own),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn agents_are_read_from_toml_and_json_beside_anything_else() {
        let toml = "[server]\nlisten = \"127.0.0.1:1\"\n[agents.default]\nsystem = \"x\"\n[agents.clerk]\nmodel = \"m\"\n\
                    [agents.clerk.limits]\ntimeout = \"9s\"\n";
        let clerk = json!({"clerk": {"model": "m", "limits": {"timeout": "9s"}}});
        assert_eq!(Value::Object(parse(toml).unwrap()), clerk);
        assert_eq!(Value::Object(parse(&json!({"agents": clerk}).to_string()).unwrap()), clerk);
        for (text, says) in [
            ("", "no agents"),
            ("[agents.default]\n", "but `default`"),
            ("[agents]\nclerk = 1\n", "agents.clerk is no table"),
            ("agents", "expected"),
            ("{", "EOF"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }
}
