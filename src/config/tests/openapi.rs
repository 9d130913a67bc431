//! Documents whose operations are tools.

use std::fs;

use insta::assert_snapshot;
use tempfile::tempdir;

use super::{load_with, mistakes};
use crate::config::Options;
use crate::types::Effect;

#[test]
fn a_document_is_read_from_its_file_and_its_changes_are_told() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("shop.yaml");
    let text = format!(
        "[openapi.shop]\ndocument = {path:?}\nbase_url = 'https://shop.test/v2'\ninclude = ['orders_*']\n\
         effect = {{ read = ['*'], write = ['*_pay'] }}\nheaders = {{ a = {{ env = 'KEY' }} }}\nquery = {{ b = {{ env = 'KEY' }} }}\n\
         [agents.default]\ntools = ['shop__*', 'shop__orders_get', 'calculator']\n"
    );
    let load = || load_with(&text, &Options::default(), &[("KEY", "hush")]).unwrap();
    fs::write(&path, "openapi: 3.1.0").unwrap();
    let settings = load();
    let shop = &settings.openapi[0];
    assert_eq!((shop.document.as_deref(), &shop.url), (Some("openapi: 3.1.0"), &None));
    assert_eq!([&shop.headers[0].1, &shop.query[0].1].map(|secret| secret.expose().to_owned()), ["hush", "hush"]);
    let effects = ["orders_get", "orders_pay"].map(|name| shop.effects.of(name));
    assert_eq!(
        effects,
        [Some(Effect::Read), Some(Effect::Write)],
        "of several patterns the one that asks for most care"
    );
    assert!(!format!("{settings:?}").contains("hush"));
    fs::write(&path, "openapi: 3.1.1").unwrap();
    let changes: Vec<_> = settings.changes_to(&load()).iter().map(ToString::to_string).collect();
    assert_eq!(changes, ["openapi.shop.document: changed"]);
}

#[test]
fn a_key_in_the_query_of_a_documents_url_is_not_shown() {
    let load = |key: &str| {
        let text = format!("[openapi.a]\ndocument = 'https://docs.test/a.json?key={key}'\n");
        load_with(&text, &Options::default(), &[]).unwrap()
    };
    let changes: Vec<_> = load("hush").changes_to(&load("other")).iter().map(ToString::to_string).collect();
    assert_eq!(changes, ["openapi.a.document: changed"]);
}

#[test]
fn mistakes_are_told() {
    assert_snapshot!(mistakes(r#"[openapi.a]
[openapi.b__c]
document = "/does/not/exist.yaml"
base_url = "shop.test"
[openapi.d]
document = "https://ann:hush@docs.test/a.json"
base_url = "https://ann:hush@shop.test"
effect = { raed = [] }
[openapi.e]
document = "ftp://docs.test/a.json"
base_url = "https://shop.test/?key=hush"
[agents.default]
tools = ["f__get"]
"#), @r#"
    loopgate.toml:1: openapi.a: `document` is missing: file or URL of an OpenAPI document (3.0, 3.1 or 3.2, JSON or YAML), of which each operation becomes a tool `NAME__OPERATION`
    loopgate.toml:2: openapi.b__c: the name has 1 to 40 characters of A-Z a-z 0-9 _ -, and no __, as tools are NAME__OPERATION
    loopgate.toml:3: openapi.b__c.document: /does/not/exist.yaml cannot be read: No such file or directory (os error 2)
    loopgate.toml:4: openapi.b__c.base_url: this is not a URL such as "https://api.example.com/v1"
    loopgate.toml:6: openapi.d.document: this is neither a file nor a URL with http:// or https:// and no password
    loopgate.toml:7: openapi.d.base_url: must not hold a user or password; name the secret in headers
    loopgate.toml:8: openapi.d.effect.raed: unknown key; did you mean `read`?
    loopgate.toml:10: openapi.e.document: this is neither a file nor a URL with http:// or https:// and no password
    loopgate.toml:11: openapi.e.base_url: this is not a URL such as "https://api.example.com/v1"
    loopgate.toml:13: agents.default.tools: there is no tool `f__get`; known here: calculator, current_time, json_query, ask_user, a__*, b__c__*, d__*, e__*
    "#);
}
