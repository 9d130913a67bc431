//! An OpenAPI document: what it is written in, and what its references lead to.

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::tree;

/// The longest document, in bytes.
pub(super) const MAX_DOCUMENT: usize = 32 << 20;

/// Most values in a document: the largest APIs have a third of it.
const MAX_NODES: usize = 1_000_000;

/// The longest reference, in bytes: following it takes time for each byte, and it may be followed often.
const MAX_REFERENCE: usize = 1_000;

/// How many references may lead from one to the next.
const MAX_STEPS: usize = 32;

/// A document of version 3.0, 3.1 or 3.2.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) root: Value,
    /// Whether its schemas are those of 3.0, which are no JSON schemas yet.
    pub(super) is_3_0: bool,
}

impl Document {
    /// Parses JSON or YAML.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_DOCUMENT {
            return Err(format!("is longer than {MAX_DOCUMENT} bytes"));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let root: Value = if text.trim_start().starts_with('{') { tree::parse(text, MAX_NODES)? } else { yaml(text)? };
        let version = |member: &str| root.get(member).and_then(Value::as_str);
        let is_3_0 = match (version("openapi"), version("swagger")) {
            (Some(version), _) if version.starts_with("3.0.") || version == "3.0" => true,
            (Some(version), _) if ["3.1", "3.2"].iter().any(|known| version.starts_with(known)) => false,
            (Some(version), _) => {
                return Err(format!("is of OpenAPI {}, and 3.0, 3.1 and 3.2 are read", beginning(version)));
            }
            (None, Some(_)) => return Err("is of Swagger 2.0: convert it to OpenAPI 3".to_owned()),
            (None, None) => return Err("is no OpenAPI document: it has no member `openapi`".to_owned()),
        };
        Ok(Self { root, is_3_0 })
    }

    /// What a value is, references followed.
    pub(super) fn resolve<'a>(&'a self, value: &'a Value) -> Result<&'a Value, String> {
        let mut value = value;
        for _ in 0..MAX_STEPS {
            match value.get("$ref").and_then(Value::as_str) {
                None => return Ok(value),
                Some(reference) => value = self.referenced(reference)?,
            }
        }
        Err("its references lead round in a circle".to_owned())
    }

    /// What a reference leads to, without following another.
    pub(super) fn referenced(&self, reference: &str) -> Result<&Value, String> {
        if reference.len() > MAX_REFERENCE {
            return Err(format!("it has a reference that is longer than {MAX_REFERENCE} bytes"));
        }
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(format!("it refers to another document, {}", beginning(reference)));
        };
        let pointer = percent_decode_str(pointer).decode_utf8_lossy();
        let found = self.root.pointer(&pointer).filter(|_| pointer.is_empty() || pointer.starts_with('/'));
        found.ok_or_else(|| format!("it refers to {}, which is not there", beginning(reference)))
    }
}

/// Parses YAML. Aliases are bounded by the library, so that a short document cannot become a huge one.
fn yaml(text: &str) -> Result<Value, String> {
    // Version 1.2 of YAML, which OpenAPI names, knows no `yes`.
    let options = serde_saphyr::options! {
        strict_booleans: true,
        budget: serde_saphyr::budget! { max_nodes: MAX_NODES, max_events: 2 * MAX_NODES },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let words = error.to_string();
        format!("is neither JSON nor YAML: {}", beginning(words.lines().next().unwrap_or_default()))
    })
}

/// Text of a document, short enough for a sentence.
pub(super) fn beginning(text: &str) -> String {
    const MOST: usize = 100;
    let mut cut: String = text.chars().take(MOST).filter(|char| !char.is_control()).collect();
    if text.chars().nth(MOST).is_some() {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_json_or_yaml() {
        let json = Document::parse("\u{feff} {\"openapi\":\"3.1.0\",\"a\":{\"b\":[1,true,null,\"x\"]}}").unwrap();
        let yaml = Document::parse("openapi: 3.1.0\na:\n  b: [1, true, null, x]\n").unwrap();
        assert_eq!(json.root, yaml.root);
        let keys = Document::parse("openapi: '3.0.3'\nresponses:\n  200: {description: yes}\n").unwrap();
        assert_eq!(keys.root["responses"]["200"]["description"], "yes");
        assert!(keys.is_3_0 && !json.is_3_0);
    }

    #[test]
    fn what_is_no_document_is_said() {
        let mut bomb = "openapi: 3.1.0\na: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
        for (own, before) in ('b'..='k').zip('a'..) {
            let line = format!("{own}: &{own} [{}*{before}]\n", format!("*{before},").repeat(8));
            bomb.push_str(&line);
        }
        let values = format!("{{\"openapi\":\"3.1.0\",\"a\":[{}0]}}", "0,".repeat(MAX_NODES));
        let listed = format!("openapi: 3.1.0\na: [{}0]", "0,".repeat(MAX_NODES));
        for (text, what) in [
            ("{\"openapi\":", "is not JSON that can be read"),
            (&values, "is not JSON that can be read: it holds too many values"),
            (&listed, "is neither JSON nor YAML"),
            ("openapi: [", "is neither JSON nor YAML"),
            ("{}", "is no OpenAPI document"),
            ("", "is n"),
            ("swagger: '2.0'", "is of Swagger 2.0"),
            ("openapi: 4.0.0", "is of OpenAPI 4.0.0"),
            (&bomb, "is neither JSON nor YAML"),
            (&" ".repeat(MAX_DOCUMENT + 1), "is longer than"),
        ] {
            let error = Document::parse(text).unwrap_err();
            assert!(error.starts_with(what), "{error}");
        }
    }

    #[test]
    fn references_stay_within_the_document_and_come_to_an_end() {
        let document = Document::parse(
            r##"{"openapi":"3.1.0","a/b":{"c~d":{"$ref":"#/e"}},"e":7,"x":{"$ref":"#/y"},"y":{"$ref":"#/x"}}"##,
        )
        .unwrap();
        let follow = |reference: &str| document.resolve(&serde_json::json!({ "$ref": reference })).cloned();
        assert_eq!(follow("#/a~1b/c~0d"), Ok(7.into()));
        assert_eq!(follow("#/a%7E1b/c~0d"), Ok(7.into()));
        for (reference, what) in [
            ("#/x", "in a circle"),
            ("#/none", "not there"),
            ("#none", "not there"),
            ("http://169.254.169.254/", "another document"),
            ("other.yaml#/a", "another document"),
        ] {
            assert!(follow(reference).unwrap_err().contains(what), "{reference}");
        }
    }
}
