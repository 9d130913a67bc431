//! Patterns of names, as agents and requests name tools.

/// Whether `pattern`, in which `*` stands for any number of characters, names `name`.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, mut pattern)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(head) else {
        return false;
    };
    // Each part between two stars may be taken where it first occurs: that leaves most to the rest.
    while let Some((part, rest)) = pattern.split_once('*') {
        let Some(at) = name.find(part) else {
            return false;
        };
        (name, pattern) = (&name[at + part.len()..], rest);
    }
    name.ends_with(pattern)
}

/// Whether `pattern` may name a name that begins with `prefix` and goes on.
#[must_use]
pub fn may_match(pattern: &str, prefix: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern.len() > prefix.len() && pattern.starts_with(prefix),
        Some((head, _)) => head.starts_with(prefix) || prefix.starts_with(head),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_number_of_characters() {
        for (pattern, may) in
            [("s__t", true), ("s__*", true), ("s*x", true), ("*", true), ("s__", false), ("t*", false)]
        {
            assert_eq!(may_match(pattern, "s__"), may, "{pattern}");
        }
        assert!(matches("a*a", "aa") && !matches("a*a", "a") && matches("**", "") && matches("*b*b", "abbb"));
    }
}
