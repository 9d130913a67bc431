//! How tools are called in items: a server's label and the tool's own name there.

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
