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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_number_of_characters() {
        assert!(matches("a*a", "aa") && !matches("a*a", "a") && matches("**", "") && matches("*b*b", "abbb"));
    }
}
