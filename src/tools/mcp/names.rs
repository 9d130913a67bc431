//! The names under which models know the tools of a server: `server__tool`.
//!
//! Vendors take 1 to 64 of `A-Z a-z 0-9 _ -`. What does not fit is replaced or cut. A name that was changed so much that
//! another tool might have it too ends with a hash of what the server calls the tool. So the name of a tool never depends
//! on the order in which a server lists its tools.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

/// Longest name.
const MAX_NAME: usize = 64;
/// Hexadecimal digits of a hash that ends a name.
const HASH_DIGITS: usize = 8;

/// What the names of this server's tools begin with.
pub(super) fn prefix(server: &str) -> String {
    format!("{server}__")
}

/// The names of these tools of a server, in their order.
pub(super) fn exposed(server: &str, tools: &[&str]) -> Vec<String> {
    let plain: Vec<String> = tools.iter().map(|tool| format!("{}{}", prefix(server), cleaned(tool))).collect();
    let mut count: HashMap<&str, u32> = HashMap::new();
    for name in &plain {
        *count.entry(name).or_default() += 1;
    }
    let named = plain.iter().zip(tools).map(|(name, tool)| {
        let is_changed = !name.ends_with(tool);
        let is_shared = count.get(name.as_str()).is_some_and(|count| *count > 1);
        if name.len() > MAX_NAME || (is_changed && is_shared) { hashed(name, tool) } else { name.clone() }
    });
    named.collect()
}

fn cleaned(tool: &str) -> String {
    let fitting = |char: char| if char.is_ascii_alphanumeric() || matches!(char, '_' | '-') { char } else { '_' };
    tool.chars().map(fitting).collect()
}

/// The beginning of a name, and a hash of the tool's own.
fn hashed(name: &str, tool: &str) -> String {
    let digest = format!("{:x}", bytes::Bytes::copy_from_slice(&Sha256::digest(tool)));
    let kept = name.len().min(MAX_NAME - HASH_DIGITS - 1);
    format!("{}_{}", &name[..kept], &digest[..HASH_DIGITS])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tools::registry::is_tool_name;

    #[test]
    fn a_name_says_where_a_tool_comes_from() {
        assert_eq!(exposed("git", &["log", "a.b/c", "é"]), ["git__log", "git__a_b_c", "git___"]);
        let (long, other) = ("x".repeat(100), format!("{}y", "x".repeat(99)));
        let names = exposed("git", &[&long, &other]);
        assert!(names[0] != names[1] && names.iter().all(|name| name.len() == MAX_NAME), "{names:?}");
        let clashing = exposed("git", &["a.b", "a_b", "a/b"]);
        assert_eq!(clashing[1], "git__a_b", "it is the tool's own name");
        assert!(clashing[0].starts_with("git__a_b_") && clashing[2].starts_with("git__a_b_"));
        assert_ne!(clashing[0], clashing[2]);
    }

    proptest! {
        #[test]
        fn names_are_valid_and_do_not_depend_on_the_order(mut tools in prop::collection::hash_set(".{1,80}", 1..6)) {
            let tools: Vec<String> = tools.drain().collect();
            let forward: Vec<&str> = tools.iter().map(String::as_str).collect();
            let backward: Vec<&str> = forward.iter().rev().copied().collect();
            let names = exposed("server", &forward);
            let mut reversed = exposed("server", &backward);
            reversed.reverse();
            prop_assert_eq!(&names, &reversed);
            for name in &names {
                prop_assert!(is_tool_name(name), "{}", name);
            }
        }
    }
}
