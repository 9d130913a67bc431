//! Which tool calls are made, asked for or denied: a pure decision over the rules of several layers.
//!
//! Each layer decides by itself, and the strictest decision counts. So a layer can only tighten what the others allow. A
//! policy is pinned in the specification of its run: what a run may do does not change while it waits.

#[cfg(test)]
mod tests;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::Effect;
use crate::types::approval::ApprovalTerms;
use crate::types::json::is_default;
use crate::types::pattern::matches;

/// What is decided of a call. The greater one is the stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It is made.
    Allow,
    /// It is made if it is approved.
    Ask,
    /// It is not made.
    Deny,
}

/// What is decided of a call, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// The decision.
    pub verdict: Verdict,
    /// Why, in a sentence that names the layer; empty for a call that is allowed.
    pub reason: String,
}

/// The layers that calls of a run are judged by.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// In the order in which they are asked: of two that are as strict, the first gives the reason.
    pub layers: Vec<Arc<Layer>>,
    /// How the calls are approved that they ask for.
    #[serde(default)]
    pub approval: ApprovalTerms,
}

/// Whose rules a layer has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerOwner {
    /// Those of the whole server.
    #[default]
    Server,
    /// Those of the caller's key.
    Key,
    /// Those of the agent.
    Agent,
    /// Those of the request.
    Request,
}

/// The rules of one layer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layer {
    /// Whose they are.
    pub owner: LayerOwner,
    /// What becomes of a call that no rule names.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: Mode,
    /// Calls that are made whatever the mode says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<Rule>,
    /// Calls that need an approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<Rule>,
    /// Calls that are not made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<Rule>,
}

/// What becomes of calls that no rule names, by what a repetition of the call would do. A tool of which nothing is known
/// counts as one that writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// All are made.
    #[default]
    Allow,
    /// Those that only read are made, all others are denied.
    ReadOnly,
    /// Those that read, and those that may be repeated, are made. Those that write need an approval.
    WorkspaceWrite,
    /// Those that only read are made, all others need an approval.
    AskWrites,
    /// All need an approval.
    Prompt,
    /// All are denied.
    Deny,
}

/// Names calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// The tool; `*` stands for any characters.
    pub tool: String,
    /// What the arguments must be: patterns by the path of a member, of which one must match.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, Vec<String>>,
    /// Why, in words that the model and the approver are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A call as a policy looks at it.
#[derive(Debug, Clone, Copy)]
pub struct Judged<'a> {
    /// The tool.
    pub tool: &'a str,
    /// What repeating the call would do.
    pub effect: Effect,
    /// The arguments as they would be sent.
    pub arguments: &'a str,
}

impl Policy {
    /// Those of these layers that say anything; `None` if none does.
    pub fn of(layers: impl IntoIterator<Item = Arc<Layer>>, approval: ApprovalTerms) -> Option<Arc<Self>> {
        let layers: Vec<_> = layers.into_iter().filter(|layer| !layer.says_nothing()).collect();
        (!layers.is_empty()).then(|| Arc::new(Self { layers, approval }))
    }

    /// How many bytes it takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let rules = |layer: &Layer| {
            [&layer.allow, &layer.ask, &layer.deny].into_iter().flatten().map(Rule::bytes).sum::<usize>()
        };
        self.layers.iter().map(|layer| rules(layer)).sum()
    }

    /// What becomes of this call.
    #[must_use]
    pub fn judge(&self, call: Judged<'_>) -> Ruling {
        let arguments = Arguments::new(call.arguments);
        let mut strictest = Ruling { verdict: Verdict::Allow, reason: String::new() };
        for layer in &self.layers {
            let (verdict, rule) = layer.judge(call, &arguments);
            if verdict > strictest.verdict {
                strictest = Ruling { verdict, reason: layer.reason(verdict, rule, call) };
            }
        }
        strictest
    }

    /// Whether no call of this tool would be made, whatever its arguments are. Such a tool is not offered.
    #[must_use]
    pub fn always_denies(&self, tool: &str, effect: Effect) -> bool {
        self.layers.iter().any(|layer| layer.always_denies(tool, effect))
    }
}

impl Layer {
    /// Whether it leaves everything to the other layers.
    #[must_use]
    pub fn says_nothing(&self) -> bool {
        self.mode == Mode::Allow && self.ask.is_empty() && self.deny.is_empty()
    }

    fn judge(&self, call: Judged<'_>, arguments: &Arguments<'_>) -> (Verdict, Option<&Rule>) {
        let find = |rules: &'_ [Rule], all: bool| rules.iter().position(|rule| rule.names(call.tool, arguments, all));
        if let Some(at) = find(&self.deny, false) {
            (Verdict::Deny, self.deny.get(at))
        } else if let Some(at) = find(&self.ask, false) {
            (Verdict::Ask, self.ask.get(at))
        } else if find(&self.allow, true).is_some() {
            (Verdict::Allow, None)
        } else {
            (self.mode.of(call.effect), None)
        }
    }

    fn always_denies(&self, tool: &str, effect: Effect) -> bool {
        let may_name = |rules: &[Rule]| rules.iter().any(|rule| matches(&rule.tool, tool));
        let is_denied = self.deny.iter().any(|rule| rule.arguments.is_empty() && matches(&rule.tool, tool));
        is_denied || (self.mode.of(effect) == Verdict::Deny && !may_name(&self.allow) && !may_name(&self.ask))
    }

    fn reason(&self, verdict: Verdict, rule: Option<&Rule>, Judged { tool, effect, .. }: Judged<'_>) -> String {
        let owner = self.owner;
        let mut reason = match (verdict, rule) {
            (Verdict::Deny, Some(_)) => format!("The policy of the {owner} denies this call of `{tool}`."),
            (Verdict::Ask, Some(_)) => {
                format!("The policy of the {owner} asks for an approval of this call of `{tool}`.")
            }
            (Verdict::Deny, None) => format!(
                "The policy of the {owner} allows no calls of `{tool}`: its mode is `{}`, and the tool's effect `{}`.",
                self.mode.as_str(),
                effect.as_str()
            ),
            (Verdict::Ask | Verdict::Allow, _) => format!(
                "The policy of the {owner} asks for an approval: its mode is `{}`, and the effect of `{tool}` is `{}`.",
                self.mode.as_str(),
                effect.as_str()
            ),
        };
        if let Some(own) = rule.and_then(|rule| rule.reason.as_deref()) {
            reason.push(' ');
            reason.push_str(own);
        }
        reason
    }
}

impl Mode {
    /// The mode of a layer that says none and lists these calls as allowed: with such a list, all others are denied.
    #[must_use]
    pub fn unless_said(allow: &[Rule]) -> Self {
        if allow.is_empty() { Self::Allow } else { Self::Deny }
    }

    /// The mode as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::ReadOnly => "read_only",
            Self::WorkspaceWrite => "workspace_write",
            Self::AskWrites => "ask_writes",
            Self::Prompt => "prompt",
            Self::Deny => "deny",
        }
    }

    fn of(self, effect: Effect) -> Verdict {
        match (self, effect) {
            (Self::Allow, _)
            | (Self::ReadOnly | Self::WorkspaceWrite | Self::AskWrites, Effect::Read)
            | (Self::WorkspaceWrite, Effect::Idempotent) => Verdict::Allow,
            (Self::Prompt | Self::AskWrites, _) | (Self::WorkspaceWrite, Effect::Write) => Verdict::Ask,
            (Self::Deny | Self::ReadOnly, _) => Verdict::Deny,
        }
    }
}

impl fmt::Display for LayerOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Key => "key",
            Self::Agent => "agent",
            Self::Request => "request",
        })
    }
}

impl Rule {
    /// All calls of the tools of this name.
    #[must_use]
    pub fn of(tool: impl Into<String>) -> Self {
        Self { tool: tool.into(), ..Self::default() }
    }

    /// How many bytes it takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let patterns = self.arguments.iter().map(|(path, patterns)| {
            path.len() + patterns.iter().map(|pattern| pattern.len() + size_of::<String>()).sum::<usize>()
        });
        size_of::<Self>() + self.tool.len() + patterns.sum::<usize>() + self.reason.as_ref().map_or(0, String::len)
    }

    /// Whether it names this call. Of a member that has several values, `all` must match, or one. Arguments that cannot be
    /// read are named by every rule but those that ask for `all`: a rule that allows must be certain.
    fn names(&self, tool: &str, arguments: &Arguments<'_>, all: bool) -> bool {
        matches(&self.tool, tool) && (self.arguments.is_empty() || self.names_arguments(arguments, all))
    }

    fn names_arguments(&self, arguments: &Arguments<'_>, all: bool) -> bool {
        let Some(value) = arguments.value() else { return !all };
        self.arguments.iter().all(|(path, patterns)| {
            let (mut count, mut matching) = (0, 0);
            visit(value, path, &mut |found| {
                count += 1;
                let Some(found) = found else { return };
                let text = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
                matching += usize::from(patterns.iter().any(|pattern| matches(pattern, &text)));
            });
            if all { count > 0 && matching == count } else { matching > 0 }
        })
    }
}

/// Visits the values at a path of members, of every element where a list stands on the way or at its end; `None` stands for
/// an element that does not have the path.
fn visit(value: &Value, path: &str, found: &mut impl FnMut(Option<&Value>)) {
    if let Value::Array(elements) = value {
        for element in elements {
            visit(element, path, found);
        }
        return;
    }
    if path.is_empty() {
        return found(Some(value));
    }
    let Value::Object(members) = value else { return found(None) };
    // A member's name may have a dot, and both may be there.
    let literal = members.get(path);
    let nested = path.split_once('.').and_then(|(first, rest)| Some((members.get(first)?, rest)));
    if let Some(member) = literal {
        visit(member, "", found);
    }
    match nested {
        Some((member, rest)) => visit(member, rest, found),
        None if literal.is_none() => found(None),
        None => {}
    }
}

/// The arguments of a call, which are read once a rule looks at them.
struct Arguments<'a> {
    text: &'a str,
    value: OnceCell<Option<Value>>,
}

impl<'a> Arguments<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, value: OnceCell::new() }
    }

    /// The arguments; `None` if they cannot be read.
    fn value(&self) -> Option<&Value> {
        let text = match self.text.trim() {
            "" => "{}",
            text => text,
        };
        self.value.get_or_init(|| serde_json::from_str(text).ok()).as_ref()
    }
}
