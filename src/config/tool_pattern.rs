//! Names of tools, as agents and policies write them.

use toml::Spanned;
use toml::de::DeValue;

use super::value::{FromToml, Misread, text};

/// A tool's name, in which `*` matches any characters.
pub(super) struct ToolPattern(pub(super) String);

impl ToolPattern {
    pub(super) fn new(pattern: &str) -> Self {
        Self(pattern.to_owned())
    }

    /// Refuses what cannot be the name of a tool.
    pub(super) fn check(pattern: &str) -> Result<(), &'static str> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'*');
        let is_name = !pattern.is_empty() && pattern.bytes().all(allowed);
        is_name.then_some(()).ok_or("a tool's name has only characters of A-Z a-z 0-9 _ -, and * for any characters")
    }
}

/// Reads a tool's name, in which `*` matches any characters.
pub(super) fn tool_pattern(value: &Spanned<DeValue<'_>>) -> Result<String, Misread> {
    let pattern = text(value, "the name of a tool")?;
    ToolPattern::check(pattern).map_err(|what| Misread::new(value, what))?;
    Ok(pattern.to_owned())
}

impl FromToml for ToolPattern {
    fn form() -> String {
        "tool name".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        tool_pattern(value).map(Self)
    }

    fn show(&self) -> String {
        self.0.show()
    }
}
