//! Names of tools that the API does not take: it refuses a whole request for a name that begins with a digit or a dash. An
//! underscore is put before such a name, and taken off again when the model calls the tool.

use std::borrow::Cow;

/// The name as the API is told it.
pub(super) fn sent(name: &str) -> Cow<'_, str> {
    if begins_wrongly(name) { Cow::Owned(format!("_{name}")) } else { Cow::Borrowed(name) }
}

/// The name of a tool that the API was told so.
pub(super) fn received(name: &str) -> &str {
    name.strip_prefix('_').filter(|own| begins_wrongly(own)).unwrap_or(name)
}

/// Whether a name begins with neither a letter nor an underscore; behind underscores of its own as well, so that no two tools
/// have the same name.
fn begins_wrongly(name: &str) -> bool {
    name.trim_start_matches('_').starts_with(|first: char| !first.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_comes_back_as_it_was() {
        for (name, told) in [
            ("add", "add"),
            ("21st_magic", "_21st_magic"),
            ("-x", "_-x"),
            ("_21st_magic", "__21st_magic"),
            ("__1", "___1"),
            ("_a1", "_a1"),
            ("__", "__"),
            ("", ""),
        ] {
            assert_eq!((sent(name).as_ref(), received(told)), (told, name));
        }
    }
}
