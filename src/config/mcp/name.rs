//! The name of a server, which the names of its tools begin with.

/// Longest name of a server: it begins the names of its tools.
pub const MAX_NAME: usize = 32;

/// Whether the names of tools can begin with it, so that the tools of no two servers have one name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(allowed)
        && !name.starts_with('_')
        && !name.ends_with('_')
        && !name.contains("__")
}

/// A name that [`is_name`] allows, for one that it may not.
pub(super) fn cleaned(name: &str) -> String {
    let mut cleaned = String::new();
    for char in name.chars() {
        let char = if char.is_ascii_alphanumeric() || char == '-' { char } else { '_' };
        if !(char == '_' && (cleaned.is_empty() || cleaned.ends_with('_'))) && cleaned.len() < MAX_NAME {
            cleaned.push(char);
        }
    }
    cleaned.trim_end_matches('_').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_where_the_names_of_tools_go_on() {
        for good in ["github", "a", "my-server", "file_system", &"x".repeat(MAX_NAME)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "_a", "a_", "a__b", "a.b", "a b", "ä", &"x".repeat(MAX_NAME + 1)] {
            assert!(!is_name(bad), "{bad}");
        }
        for (written, name) in [("My Server", "My_Server"), ("a.b__c", "a_b_c"), ("__x__", "x"), ("日本", "")] {
            assert_eq!(cleaned(written), name);
        }
    }
}
