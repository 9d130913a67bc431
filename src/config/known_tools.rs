//! Which tools agents may name, and what is said to one that names another.

use super::builtin_tool::DECLARED_TOOLS;
use super::mistake::suggestion;
use super::reader::Section;
use super::tool_pattern::ToolPattern;
use super::workspace::WORKSPACE_TOOLS;
use crate::types::context::ContextRules;
use crate::types::delegate::DELEGATE;
use crate::types::handoff::HANDOFF;
use crate::types::memory::{MEMORY_TOOLS, MEMORY_WRITE};
use crate::types::pattern::{matches, may_match};

/// What agents may name as tools.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownTools {
    /// The names of tools. What a server of tools has is not known yet: its entry ends with a star.
    pub(super) names: Vec<String>,
    /// Those of the tools that are part of the program that the server is part of.
    pub(super) embedded: Vec<String>,
}

/// Reports the first pattern that names no tool.
pub(super) fn refuse_unknown_tools(section: &Section<'_>, patterns: &[ToolPattern], known: &KnownTools) {
    let mut patterns = patterns.iter().map(|ToolPattern(pattern)| pattern.as_str());
    // What a source of tools has is not known before it tells: its entry ends with a star.
    let names_one = |pattern: &str, known: &str| match known.strip_suffix('*') {
        Some(prefix) => may_match(pattern, prefix),
        None => matches(pattern, known),
    };
    let Some(pattern) = patterns.find(|pattern| !known.names.iter().any(|known| names_one(pattern, known))) else {
        return;
    };
    let known: Vec<&str> = known.names.iter().map(String::as_str).collect();
    if DECLARED_TOOLS.contains(&pattern) {
        return section.refuse("tools", format!("declare [tools.{pattern}] to have the tool `{pattern}`"));
    }
    if WORKSPACE_TOOLS.contains(&pattern) {
        return section.refuse("tools", format!("declare [workspace] to have the tool `{pattern}`"));
    }
    if pattern == DELEGATE {
        return section.refuse("tools", "name agents in `delegates` to have the tool `delegate`");
    }
    if pattern == HANDOFF {
        return section.refuse("tools", "name agents in `handoffs` to have the tool `handoff`");
    }
    if MEMORY_TOOLS.contains(&pattern) {
        return section.refuse("tools", format!("declare [memory] to have the tool `{pattern}`"));
    }
    let what = if pattern.contains('*') { "no tool is named like" } else { "there is no tool" };
    section.refuse("tools", format!("{what} `{pattern}`; {}", suggestion(pattern, &known)));
}

/// Refuses to have a model write into memory that has no tool for that.
pub(super) fn refuse_flush_without_tool(section: &Section<'_>, context: &ContextRules, tools: &[ToolPattern]) {
    if context.flush.enabled && !tools.iter().any(|ToolPattern(pattern)| matches(pattern, MEMORY_WRITE)) {
        section.refuse_here("its `context.flush.enabled` needs `memory_write` among its `tools`");
    }
}
