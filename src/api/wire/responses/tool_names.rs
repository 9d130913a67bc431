//! How tools are called in items: a server's label and the tool's own name there.

use crate::types::response::ResponseTerms;

/// The label of all tools that are not those of a server of tools.
pub const OWN: &str = "loopgate";
/// What stands between a label and a tool's own name.
const BETWEEN: &str = "__";

/// The label and the tool's own name.
pub fn split(name: &str) -> (&str, &str) {
    match name.split_once(BETWEEN) {
        Some((label, own)) if !label.is_empty() && !own.is_empty() => (label, own),
        Some(_) | None => (OWN, name),
    }
}

/// The label and the name under which a client knows the tool, which may call the places of tools otherwise.
pub fn shown<'a>(name: &'a str, terms: &'a ResponseTerms) -> (&'a str, &'a str) {
    let (label, own) = split(name);
    if let Some(place) = terms.places.get(label) {
        return (place, own);
    }
    // Who selects all tools at once knows them under one label.
    terms.places.get(OWN).map_or((label, own), |place| (place, name))
}

/// The name by which a model calls the tool.
pub fn joined(label: &str, own: &str) -> String {
    if label == OWN { own.to_owned() } else { [label, BETWEEN, own].concat() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_and_a_name_make_the_name_that_they_were_made_of() {
        for (name, parts) in [("crm__find", ("crm", "find")), ("a__b__c", ("a", "b__c")), ("shell", (OWN, "shell"))] {
            assert_eq!(split(name), parts);
            assert_eq!(joined(parts.0, parts.1), name);
        }
        assert_eq!(split("__x"), (OWN, "__x"));
    }
}
