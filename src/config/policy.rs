//! `policy`: which tool calls are made, asked for or denied. The same keys for the server, a key and an agent.

use toml::Spanned;
use toml::de::DeValue;

use super::mistake::suggestion;
use super::reader::Section;
use super::tool_pattern::tool_pattern;
use super::value::{FromToml, Misread, Word, text};
use crate::types::policy::{Layer, LayerOwner, Mode, Rule};

impl Layer {
    /// Reads the rules of `owner`, of which those that are not written are `parent`'s.
    pub(super) fn read(section: &mut Section<'_>, owner: LayerOwner, parent: Option<&Self>) -> Self {
        let inherited = |rules: fn(&Self) -> &Vec<Rule>| parent.map(rules).cloned().unwrap_or_default();
        let allow = section.key(
            "allow",
            "Tool calls that are made, unless another rule names them. Each is a tool, in which `*` stands for any characters, or a \
             table with `tool`, `arguments` and `reason` ([rules](approvals.md#rules)). With any, calls that no rule names are \
             denied unless `mode` says something else.",
            inherited(|parent| &parent.allow),
        );
        let ask =
            section.key("ask", "Tool calls that need an [approval](approvals.md).", inherited(|parent| &parent.ask));
        let deny = section.key(
            "deny",
            "Tool calls that are not made, whatever else is said. A tool of which no call would be made is not offered.",
            inherited(|parent| &parent.deny),
        );
        let mode = section.optional(
            "mode",
            "What becomes of calls that no rule names, by what a repeated call of the tool does ([modes](approvals.md#modes)). If \
             absent, `allow`, or `deny` if the list `allow` has any.",
        );
        let mode =
            section.or_inherited("mode", mode, parent.map(|parent| parent.mode).filter(|mode| *mode != Mode::Allow));
        let mode = mode.unwrap_or_else(|| Mode::unless_said(&allow));
        Self { owner, mode, allow, ask, deny }
    }
}

impl Word for Mode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("allow", Self::Allow),
        ("read_only", Self::ReadOnly),
        ("workspace_write", Self::WorkspaceWrite),
        ("ask_writes", Self::AskWrites),
        ("prompt", Self::Prompt),
        ("deny", Self::Deny),
        // What other systems call the same.
        ("full_access", Self::Allow),
        ("always_allow", Self::Allow),
        ("require_for_tools", Self::Allow),
        ("require_for_dangerous", Self::AskWrites),
        ("always_require", Self::Prompt),
    ];
}

impl FromToml for Rule {
    fn form() -> String {
        "rule".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        const KNOWN: [&str; 3] = ["tool", "arguments", "reason"];
        let DeValue::Table(table) = value.get_ref() else { return tool_pattern(value).map(Self::of) };
        for key in table.keys() {
            let name: &str = key.get_ref();
            if !KNOWN.contains(&name) {
                return Err(Misread {
                    at: key.span().start,
                    what: format!("unknown key; {}", suggestion(name, &KNOWN)),
                });
            }
        }
        let tool =
            table.get("tool").ok_or_else(|| Misread::new(value, "`tool` is missing: the tool that the rule names"))?;
        let arguments = match table.get("arguments").map(|arguments| (arguments, arguments.get_ref())) {
            None => Vec::new(),
            Some((_, DeValue::Table(members))) => members
                .iter()
                .map(|(path, patterns)| Ok::<_, Misread>((path.get_ref().to_string(), argument_patterns(patterns)?)))
                .collect::<Result<_, Misread>>()?,
            Some((written, _)) => {
                return Err(Misread::expected(written, "a table of patterns by the path of a member"));
            }
        };
        let reason = table.get("reason").map(|reason| text(reason, "a string")).transpose()?;
        Ok(Self {
            tool: tool_pattern(tool)?,
            arguments: arguments.into_iter().collect(),
            reason: reason.map(str::to_owned),
        })
    }

    fn show(&self) -> String {
        let Self { tool, arguments, reason } = self;
        if arguments.is_empty() && reason.is_none() {
            return tool.show();
        }
        let members = arguments.iter().map(|(path, patterns)| format!("{path:?} = {}", patterns.show()));
        let members = members.collect::<Vec<_>>().join(", ");
        let reason = reason.as_ref().map_or_else(String::new, |reason| format!(", reason = {}", reason.show()));
        format!("{{ tool = {}, arguments = {{ {members} }}{reason} }}", tool.show())
    }
}

/// A pattern, or a list of them of which one must match.
fn argument_patterns(value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, Misread> {
    let DeValue::Array(patterns) = value.get_ref() else {
        return Ok(vec![text(value, "a pattern, or a list of patterns")?.to_owned()]);
    };
    if patterns.is_empty() {
        return Err(Misread::new(value, "needs a pattern at least"));
    }
    patterns.iter().map(String::read).collect()
}
