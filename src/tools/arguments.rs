//! The arguments of a call, checked before anything is done with them.

use serde_json::value::RawValue;

use crate::tools::schema::Schema;
use crate::types::unambiguous::Unambiguous;

/// Checks the arguments of a call of the tool `name`, which must fit `schema`. Nothing at all counts as `{}`;
/// nothing else is repaired, as a wrong guess would do what the model did not ask for. The error tells the model what
/// is wrong and where.
pub fn check_arguments(name: &str, schema: &Schema, arguments: &str) -> Result<Box<RawValue>, String> {
    let arguments = match arguments.trim() {
        "" => "{}",
        other => other,
    };
    let Unambiguous(value) = serde_json::from_str(arguments)
        .map_err(|error| format!("The arguments of `{name}` are not valid JSON: {error}. Send one JSON object."))?;
    if !value.is_object() {
        return Err(format!("The arguments of `{name}` are not a JSON object. Send one JSON object."));
    }
    let wrong = |reason| format!("The arguments of `{name}` do not fit its schema: {reason}.");
    schema.check(&value).map_err(wrong)?;
    Ok(RawValue::from_string(arguments.to_owned()).expect("it was parsed above"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::registry::Registry;
    use crate::tools::testing::StubTool;

    #[test]
    fn arguments_are_checked_and_never_repaired() {
        let parameters = r#"{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}"#;
        let registry = Registry::new([StubTool::named("t").parameters(parameters).shared()]).unwrap();
        let tool = registry.get("t").unwrap();
        let check = |arguments| check_arguments("t", tool.schema(), arguments).map(|raw| raw.get().to_owned());
        assert_eq!(check(" "), Ok("{}".into()));
        assert_eq!(check(" {\"n\": 12345678901234567890} "), Ok("{\"n\": 12345678901234567890}".into()));
        for (bad, reason) in [
            ("{\"n\": 1", "not valid JSON: EOF"),
            ("{'n': 1}", "not valid JSON"),
            ("{\"n\": 1}}", "not valid JSON"),
            ("[1]", "not a JSON object"),
            ("null", "not a JSON object"),
            ("{\"n\": \"1\"}", "schema: at /n: \"1\" is not of type \"integer\""),
            ("{\"m\": 1}", "'m' was unexpected"),
            ("{\"n\": 1, \"n\": 900}", "the member \"n\" is given twice"),
            ("{\"n\": 1, \"\\u006e\": 900}", "the member \"n\" is given twice"),
            ("{\"n\": {\"a\": [{\"b\": 1, \"b\": 1}]}}", "the member \"b\" is given twice"),
        ] {
            let error = check(bad).unwrap_err();
            assert!(error.contains(reason) && error.starts_with("The arguments of `t`"), "{error}");
        }
    }
}
