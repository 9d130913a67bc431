//! `effect`: what repeating a call of a server's tools does.

use super::super::reader::Section;
use crate::types::Effect;
use crate::types::pattern::matches;

/// What repeating a call does, by the names that the server gives its tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpEffects {
    /// For tools that nothing else says anything of.
    pub default: Effect,
    /// Patterns of tools that change nothing.
    pub read: Vec<String>,
    /// Patterns of tools that change nothing more if they are called again with the same key.
    pub idempotent: Vec<String>,
    /// Patterns of tools that are never called again.
    pub write: Vec<String>,
    /// Whether the server is believed what it says of its tools.
    pub trust_annotations: bool,
}

/// What a server says of one of its tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    /// It changes nothing.
    pub read_only: bool,
    /// Called again with the same arguments, it changes nothing more.
    pub idempotent: bool,
}

impl McpEffects {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let default = section.key(
            "default",
            "What a repeated call of its tools does, as `effect` of a [tool](#tools). What the server says of it is not believed.",
            Effect::Write,
        );
        Self {
            default,
            read: section.key("read", "Tools that change nothing, such as `[\"get_*\"]`.", Vec::new()),
            idempotent: section.key(
                "idempotent",
                "Tools that change nothing more if they are called again with the same `loopgate/idempotency-key` in `_meta`.",
                Vec::new(),
            ),
            write: section.key("write", "Tools that are never called again, whatever the other lists say.", Vec::new()),
            trust_annotations: section.key(
                "trust_annotations",
                "Whether the server is believed the hints `readOnlyHint` and `idempotentHint` for tools that no list names.",
                false,
            ),
        }
    }

    /// What repeating a call of this tool does.
    #[must_use]
    pub fn of(&self, tool: &str, hints: Hints) -> Effect {
        let named = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, tool));
        if named(&self.write) {
            Effect::Write
        } else if named(&self.idempotent) {
            Effect::Idempotent
        } else if named(&self.read) || (self.trust_annotations && hints.read_only) {
            Effect::Read
        } else if self.trust_annotations && hints.idempotent {
            Effect::Idempotent
        } else {
            self.default
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_asks_for_more_care_wins_and_hints_count_only_where_they_are_trusted() {
        let patterns = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let effects = McpEffects {
            read: patterns(&["get_*", "set_x"]),
            idempotent: patterns(&["set_*"]),
            write: patterns(&["get_and_*"]),
            ..McpEffects::default()
        };
        let read_only = Hints { read_only: true, ..Hints::default() };
        let of = |tool| effects.of(tool, read_only);
        assert_eq!((of("get_a"), of("set_x"), of("get_and_delete")), (Effect::Read, Effect::Idempotent, Effect::Write));
        assert_eq!(of("other"), Effect::Write, "what the server says of itself is not believed");
        let trusting = McpEffects { trust_annotations: true, ..effects };
        assert_eq!(trusting.of("other", read_only), Effect::Read);
        assert_eq!(trusting.of("other", Hints { idempotent: true, ..Hints::default() }), Effect::Idempotent);
        assert_eq!(trusting.of("get_and_delete", read_only), Effect::Write);
    }
}
