use serde_json::Value;

use crate::api::openapi;

fn description() -> Value {
    serde_json::from_str(&openapi().to_json().unwrap()).unwrap()
}

#[test]
fn a_shape_requires_only_what_every_request_must_say() {
    let schemas = &description()["components"]["schemas"];
    let required = |name: &str| schemas[name]["required"].clone();
    assert_eq!(
        ["CompletionRequest", "CreateSession", "ForkSession"].map(required),
        [Value::Null, Value::Null, Value::Null]
    );
    assert_eq!(required("ChatMessage"), serde_json::json!(["role"]));
    assert_eq!(required("ErrorObject"), serde_json::json!(["message", "type", "param", "code"]));
    assert_eq!(schemas["CompletionRequest"]["properties"].get("functions"), None);
}

#[test]
fn events_have_names_and_say_what_they_are() {
    let schemas = &description()["components"]["schemas"];
    let union = &schemas["NativeEvent"];
    let mapping = union["discriminator"]["mapping"].as_object().unwrap();
    assert_eq!(mapping.len(), union["oneOf"].as_array().unwrap().len());
    for (event, reference) in mapping {
        let name = reference.as_str().unwrap().rsplit('/').next().unwrap();
        let properties = &schemas[name]["properties"];
        assert_eq!(properties["type"]["enum"][0], **event, "{name}");
        assert!(properties["seq"].is_object(), "{name}");
    }
    assert!(mapping.len() >= 18, "{mapping:?}");
}

#[test]
fn no_parameter_is_null_and_every_operation_says_how_it_is_refused() {
    let document = description();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                assert!(parameter["schema"]["type"].as_array().is_none(), "{method} {path}: {parameter}");
            }
            if path.starts_with("/v1/") {
                let responses = operation["responses"].as_object().unwrap();
                for status in ["400", "401", "429", "4XX", "5XX"] {
                    assert!(responses.contains_key(status), "{method} {path} {status}");
                }
                let shape = if path.starts_with("/v1/messages") { "MessageUnauthorized" } else { "Unauthorized" };
                assert_eq!(responses["401"]["$ref"], format!("#/components/responses/{shape}"), "{path}");
            }
        }
    }
    let unauthorized = &document["components"]["responses"]["Unauthorized"];
    assert!(unauthorized["headers"]["www-authenticate"].is_object());
}

/// Every reference leads somewhere, and everything that is declared is used.
#[test]
fn references_and_shapes_agree() {
    let document = description();
    let mut references = std::collections::BTreeSet::new();
    collect(&document, &mut references);
    for reference in &references {
        assert!(document.pointer(&reference[1..]).is_some(), "{reference}");
    }
    for kind in ["schemas", "responses", "headers"] {
        for name in document["components"][kind].as_object().unwrap().keys() {
            // Readers tell the variants of a union by its mapping.
            assert!(references.contains(&format!("#/components/{kind}/{name}")), "{kind}/{name} is used nowhere");
        }
    }
}

fn collect(value: &Value, references: &mut std::collections::BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                references.insert(reference.clone());
            }
            members.values().for_each(|member| collect(member, references));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
