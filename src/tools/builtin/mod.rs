//! Tools that come with Loopgate. They need no network and change nothing.

pub mod calculator;
pub mod current_time;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::tools::{Source, Tool, ToolError, ToolSpec};
use crate::types::Effect;

/// One of each.
#[must_use]
pub fn all() -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(calculator::Calculator::new()), Arc::new(current_time::CurrentTime::new())]
}

fn spec(name: &str, description: &str, parameters: &'static str) -> ToolSpec {
    ToolSpec {
        name: name.into(),
        description: description.into(),
        parameters: serde_json::from_str(parameters).expect("the schema is written here and tested"),
        effect: Effect::Read,
        timeout: None,
        source: Source::Builtin,
    }
}

fn decode<'a, T: Deserialize<'a>>(arguments: &'a RawValue) -> Result<T, ToolError> {
    serde_json::from_str(arguments.get()).map_err(|error| ToolError(format!("The arguments cannot be read: {error}.")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Registry;

    #[test]
    fn all_can_be_registered() {
        let registry = Registry::new(all()).unwrap();
        let names: Vec<_> = registry.iter().map(|tool| tool.spec().name.as_str()).collect();
        assert_eq!(names, ["calculator", "current_time"]);
        assert!(registry.iter().all(|tool| tool.spec().effect == Effect::Read));
    }
}
