//! Where in requests of tools arguments go.

use insta::assert_snapshot;

use super::{load_with, mistakes};
use crate::config::{BodyType, JsonTemplate, Options, QueryValue};

#[test]
fn text_of_the_file_has_arguments_and_secrets_have_none() {
    let text = "[tools.a]\ndescription = 'd'\nmethod = 'POST'\nurl = 'https://a.test/{id}'\n\
                headers = { x-note = 'n {note}', x-plain = 'p', x-key = { env = 'KEY' } }\n\
                query = { q = '{id}', key = { env = 'KEY' } }\nbody = { n = '{note}', list = [1, '{id}'] }\n\
                parameters = { type = 'object', properties = { id = {}, note = {} } }\n";
    let settings = load_with(text, &Options::default(), &[("KEY", "{id}{note}")]).unwrap();
    let tool = &settings.tools[0];
    let secrets: Vec<_> = tool.headers.iter().map(|(name, value)| (name.as_str(), value.expose().to_owned())).collect();
    assert_eq!(secrets, [("x-plain", "p".to_owned()), ("x-key", "{id}{note}".to_owned())]);
    let templates = &tool.templates;
    assert_eq!(templates.headers.len(), 1);
    assert!(matches!(&templates.query[0].1, QueryValue::Template(template) if template.only() == Some("id")));
    assert!(matches!(&templates.query[1].1, QueryValue::Secret(secret) if secret.expose() == "{id}{note}"));
    assert_eq!(templates.body.as_ref().map(JsonTemplate::arguments), Some(vec!["id", "note"]));
    assert_eq!(templates.body_type, BodyType::Json);
}

#[test]
fn mistakes_are_told() {
    assert_snapshot!(mistakes(r#"[tools.a]
description = "d"
url = "https://a.test/"
query = { q = "{town}" }
body = { a = "{city}" }
headers = { Authorization = "Bearer {city}", x-loopgate-user = "{city}" }
parameters = { type = "object", properties = { city = {}, Q = {} } }
[tools.b]
description = "d"
method = "POST"
url = "https://a.test/"
body_type = "form"
body = { a = { b = "{city}" } }
parameters = { type = "object", properties = { city = {}, other = {} } }
[tools.c]
description = "d"
method = "POST"
url = "https://a.test/"
body_type = "text"
body = "x {city}"
parameters = { type = "object", properties = { city = {} } }
[tools.d]
description = "d"
url = "https://a.test/"
query = { q = "fixed" }
parameters = { type = "object", properties = { Q = {} } }
"#), @r#"
    loopgate.toml:1: tools.a: {town} is none of parameters.properties
    loopgate.toml:5: tools.a.body: a request with the method GET has no body
    loopgate.toml:6: tools.a.headers: `authorization` can have no argument: it is not for a model to say what it says
    loopgate.toml:6: tools.a.headers: `x-loopgate-user` can have no argument: it is not for a model to say what it says
    loopgate.toml:7: tools.a.parameters: `Q` is named by none of url, query, headers and body
    loopgate.toml:13: tools.b.body: `a` is none that a form has: text, a number or a list of these
    loopgate.toml:14: tools.b.parameters: `other` is named by none of url, query, headers and body
    loopgate.toml:20: tools.c.body: must be one argument, such as "{text}", where body_type is text
    loopgate.toml:26: tools.d.parameters: `Q` is in query already, and names no argument there
    "#);
}
