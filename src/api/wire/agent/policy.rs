//! `agent.policy` and `agent.approval` of a request, which only tighten what server, key and agent say.

use std::collections::BTreeMap;

use serde::Deserialize;
use utoipa::ToSchema;

use crate::agent::ApprovalPatch;
use crate::api::wire::error::WireError;
use crate::api::wire::json_object::JsonObject;
use crate::api::wire::vocabulary::{ApprovalModeText, ModeText};
use crate::types::approval::ApprovalMode;
use crate::types::policy::{Layer, LayerOwner, Mode, Rule};

/// Most rules of one list.
const MOST: usize = 256;
/// Most bytes that the rules of a request may have.
const MOST_BYTES: usize = 65_536;

/// Rules for tool calls. An unknown field here is an error.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyOptions {
    /// What becomes of calls that no rule names; `deny` if `allow` has rules, else `allow`.
    #[schema(value_type = Option<ModeText>)]
    pub mode: Option<Mode>,
    /// Calls that are made.
    #[schema(max_items = 256)]
    pub allow: Option<Vec<RuleOption>>,
    /// Calls that need an approval.
    #[schema(max_items = 256)]
    pub ask: Option<Vec<RuleOption>>,
    /// Calls that are not made.
    #[schema(max_items = 256)]
    pub deny: Option<Vec<RuleOption>>,
}

/// The calls of a tool, all of them or those with some arguments.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum RuleOption {
    /// A tool; `*` stands for any characters.
    Tool(String),
    /// Some calls of a tool.
    Calls(RuleObject),
}

/// Some calls of a tool.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleObject {
    /// The tool; `*` stands for any characters.
    pub tool: String,
    /// Patterns of the arguments by the path of a member, of which one must match.
    #[serde(default)]
    pub arguments: BTreeMap<String, Vec<String>>,
    /// Why, as the model is told.
    pub reason: Option<String>,
}

/// How a run asks for the approval of calls. An unknown field here is an error.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalOptions {
    /// Tools whose calls need an approval; `*` stands for any characters.
    #[schema(max_items = 256)]
    pub require: Option<Vec<String>>,
    /// What the run does meanwhile: `pause` ends the response, `wait` keeps it open, `deny` asks no approver.
    #[schema(value_type = Option<ApprovalModeText>)]
    pub mode: Option<ApprovalMode>,
    /// How long a call waits for an approval, in milliseconds.
    #[schema(minimum = 1)]
    pub timeout_ms: Option<u64>,
}

/// The request's own rules, if it has any, and how it asks for approvals.
pub fn read(
    policy: Option<JsonObject<PolicyOptions>>,
    approval: Option<JsonObject<ApprovalOptions>>,
) -> Result<(Option<Layer>, ApprovalPatch), WireError> {
    if policy.is_none() && approval.is_none() {
        return Ok((None, ApprovalPatch::default()));
    }
    let JsonObject(policy) = policy.unwrap_or_default();
    let JsonObject(approval) = approval.unwrap_or_default();
    if approval.timeout_ms == Some(0) {
        return Err(WireError::invalid("agent.approval.timeout_ms", "must be above 0"));
    }
    let rules = |name: &str, written: Option<Vec<RuleOption>>| -> Result<Vec<Rule>, WireError> {
        let written = written.unwrap_or_default();
        check(written.len(), &format!("agent.policy.{name}"))?;
        for (index, rule) in written.iter().enumerate() {
            rule.check(&format!("agent.policy.{name}[{index}]"))?;
        }
        Ok(written.into_iter().map(RuleOption::rule).collect())
    };
    let (allow, mut ask, deny) =
        (rules("allow", policy.allow)?, rules("ask", policy.ask)?, rules("deny", policy.deny)?);
    let require = approval.require.unwrap_or_default();
    check(require.len(), "agent.approval.require")?;
    ask.extend(require.into_iter().map(Rule::of));
    let bytes: usize = [&allow, &ask, &deny].into_iter().flatten().map(Rule::bytes).sum();
    if bytes > MOST_BYTES {
        return Err(WireError::invalid("agent.policy", format!("may have at most {MOST_BYTES} bytes of rules")));
    }
    let mode = policy.mode.unwrap_or_else(|| Mode::unless_said(&allow));
    let layer = Layer { owner: LayerOwner::Request, mode, allow, ask, deny };
    Ok((Some(layer), ApprovalPatch { mode: approval.mode, timeout_ms: approval.timeout_ms }))
}

fn check(count: usize, path: &str) -> Result<(), WireError> {
    if count <= MOST { Ok(()) } else { Err(WireError::invalid(path, format!("must have at most {MOST} rules"))) }
}

impl RuleOption {
    /// Refuses a rule that could name no call: it would guard nothing.
    fn check(&self, path: &str) -> Result<(), WireError> {
        let Self::Calls(RuleObject { arguments, .. }) = self else { return Ok(()) };
        let Some((member, _)) = arguments.iter().find(|(_, patterns)| patterns.is_empty()) else { return Ok(()) };
        Err(WireError::invalid(format!("{path}.arguments.{member}"), "must have a pattern at least"))
    }

    fn rule(self) -> Rule {
        match self {
            Self::Tool(tool) => Rule::of(tool),
            Self::Calls(RuleObject { tool, arguments, reason }) => Rule { tool, arguments, reason },
        }
    }
}
