//! Reads what a hook says: one contract for webhooks and programs.
//!
//! Pure. The names are those of the hooks that coding agents have, so that a program written for one serves here too: members
//! may stand at the top or in `hookSpecificOutput`, in camel or snake case. An answer without content has nothing against
//! what it was asked about. Anything else that is no JSON object, or has a member of another kind, is a failure.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::failure::HookFailure;
use super::verdict;
use crate::types::hook::{HookDecision, HookPoint, HookReply};

/// How many characters of each text count.
const MOST_TEXT: usize = 8 << 10;

/// What a hook may say.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Said {
    #[serde(rename = "continue")]
    goes_on: Option<bool>,
    decision: Option<Decision>,
    reason: Option<String>,
    stop_reason: Option<String>,
    system_message: Option<String>,
    additional_context: Option<String>,
    permission_decision: Option<Permission>,
    permission_decision_reason: Option<String>,
    updated_input: Option<Box<RawValue>>,
    skip: Option<bool>,
    result: Option<Value>,
    is_error: Option<bool>,
    hook_specific_output: Option<Box<Said>>,
    // A program may write both spellings of a member, so that many readers find it. Both count.
    #[serde(rename = "stop_reason")]
    snake_stop_reason: Option<String>,
    #[serde(rename = "system_message")]
    snake_system_message: Option<String>,
    #[serde(rename = "additional_context")]
    snake_additional_context: Option<String>,
    #[serde(rename = "permission_decision")]
    snake_permission_decision: Option<Permission>,
    #[serde(rename = "permission_decision_reason")]
    snake_permission_decision_reason: Option<String>,
    #[serde(rename = "updated_input")]
    snake_updated_input: Option<Box<RawValue>>,
    #[serde(rename = "is_error")]
    snake_is_error: Option<bool>,
    #[serde(rename = "hook_specific_output")]
    snake_hook_specific_output: Option<Box<Said>>,
}

/// What is said with `decision`; of two, the later one here lets less happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Decision {
    #[serde(alias = "allow")]
    Approve,
    Ask,
    #[serde(alias = "deny")]
    Block,
}

/// What is said with `permissionDecision`; of two, the later one here lets less happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Permission {
    Allow,
    Ask,
    Deny,
}

/// What this answer says of something at this point.
pub(super) fn parse(answer: &[u8], point: HookPoint) -> Result<HookReply, HookFailure> {
    if point == HookPoint::Guardrail {
        return verdict::parse(answer);
    }
    if answer.trim_ascii().is_empty() {
        return Ok(HookReply::default());
    }
    // A list is no answer, although it could be read as the members in their order.
    if answer.trim_ascii().first() != Some(&b'{') && serde_json::from_slice::<IgnoredAny>(answer).is_ok() {
        return Err(HookFailure::new("its answer is no JSON object"));
    }
    // The error's own words may quote the answer.
    let wrong = |error: serde_json::Error| {
        let what = if error.is_data() { "its answer is not what a hook says" } else { "its answer is not JSON" };
        HookFailure::new(format!("{what}, in line {} column {}", error.line(), error.column()))
    };
    let said: Said = serde_json::from_slice(answer).map_err(wrong)?;
    reply(merged(said), point)
}

/// All that is said, wherever and in whichever spelling: what stands at the top goes before what stands within, but of what is
/// decided that which lets the least happen counts.
fn merged(said: Said) -> Said {
    let Said { hook_specific_output, snake_hook_specific_output, .. } = said;
    let within = [hook_specific_output, snake_hook_specific_output].into_iter().flatten();
    let own = Said {
        stop_reason: said.stop_reason.or(said.snake_stop_reason),
        system_message: said.system_message.or(said.snake_system_message),
        additional_context: said.additional_context.or(said.snake_additional_context),
        permission_decision: said.permission_decision.max(said.snake_permission_decision),
        permission_decision_reason: said.permission_decision_reason.or(said.snake_permission_decision_reason),
        updated_input: said.updated_input.or(said.snake_updated_input),
        is_error: said.is_error.max(said.snake_is_error),
        goes_on: said.goes_on,
        decision: said.decision,
        reason: said.reason,
        skip: said.skip,
        result: said.result,
        ..Said::default()
    };
    within.fold(own, |said, inner| both(said, merged(*inner)))
}

/// What two say.
fn both(said: Said, inner: Said) -> Said {
    let goes_on = [said.goes_on, inner.goes_on].into_iter().flatten().min();
    Said {
        goes_on,
        decision: said.decision.max(inner.decision),
        reason: said.reason.or(inner.reason),
        stop_reason: said.stop_reason.or(inner.stop_reason),
        system_message: said.system_message.or(inner.system_message),
        additional_context: said.additional_context.or(inner.additional_context),
        permission_decision: said.permission_decision.max(inner.permission_decision),
        permission_decision_reason: said.permission_decision_reason.or(inner.permission_decision_reason),
        updated_input: said.updated_input.or(inner.updated_input),
        skip: said.skip.max(inner.skip),
        result: said.result.or(inner.result),
        is_error: said.is_error.max(inner.is_error),
        ..Said::default()
    }
}

fn reply(said: Said, point: HookPoint) -> Result<HookReply, HookFailure> {
    let is_denied = said.goes_on == Some(false)
        || said.decision == Some(Decision::Block)
        || said.permission_decision == Some(Permission::Deny);
    let is_asked = said.decision == Some(Decision::Ask) || said.permission_decision == Some(Permission::Ask);
    let is_allowed = said.decision == Some(Decision::Approve) || said.permission_decision == Some(Permission::Allow);
    let is_before = point == HookPoint::BeforeTool;
    let skips = said.skip == Some(true) && is_before;
    let result = said.result.map(text).filter(|_| point != HookPoint::RunStart);
    let decision = match () {
        // Of several things that are said, the one that lets the least happen counts.
        () if is_denied => HookDecision::Deny,
        () if skips || (is_before && result.is_some()) => HookDecision::Answer,
        () if is_asked && is_before => HookDecision::Ask,
        () if is_allowed && is_before => HookDecision::Allow,
        () => HookDecision::Pass,
    };
    let arguments = said.updated_input.filter(|_| is_before).map(|input| {
        let is_object = serde_json::from_str::<Map<String, Value>>(input.get()).is_ok();
        let not_object = || HookFailure::new("its updatedInput is not an object");
        if is_object { Ok(input.get().to_owned()) } else { Err(not_object()) }
    });
    Ok(HookReply {
        decision,
        reason: said.permission_decision_reason.or(said.reason).or(said.stop_reason).map(cut),
        message: said.system_message.map(cut),
        context: said.additional_context.map(cut),
        arguments: arguments.transpose()?,
        result,
        is_error: said.is_error == Some(true),
    })
}

/// A result as the model is told it.
fn text(result: Value) -> String {
    match result {
        Value::String(text) => text,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => result.to_string(),
    }
}

fn cut(text: String) -> String {
    if text.chars().count() <= MOST_TEXT { text } else { text.chars().take(MOST_TEXT).chain("…".chars()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(answer: &str, point: HookPoint) -> HookReply {
        parse(answer.as_bytes(), point).unwrap()
    }

    fn before(answer: &str) -> HookReply {
        said(answer, HookPoint::BeforeTool)
    }

    #[test]
    fn the_decision_that_lets_the_least_happen_counts() {
        for (answer, decision) in [
            ("", HookDecision::Pass),
            (" \n", HookDecision::Pass),
            ("{}", HookDecision::Pass),
            (r#"{"continue": true}"#, HookDecision::Pass),
            (r#"{"continue": false}"#, HookDecision::Deny),
            (r#"{"decision": "block"}"#, HookDecision::Deny),
            (r#"{"decision": "deny"}"#, HookDecision::Deny),
            (r#"{"decision": "approve"}"#, HookDecision::Allow),
            (r#"{"permissionDecision": "allow"}"#, HookDecision::Allow),
            (r#"{"permission_decision": "ask"}"#, HookDecision::Ask),
            (r#"{"permissionDecision": "deny"}"#, HookDecision::Deny),
            (r#"{"hookSpecificOutput": {"permissionDecision": "deny"}}"#, HookDecision::Deny),
            (r#"{"permissionDecision": "allow", "decision": "block"}"#, HookDecision::Deny),
            (r#"{"permissionDecision": "allow", "decision": "ask"}"#, HookDecision::Ask),
            (r#"{"skip": true}"#, HookDecision::Answer),
            (r#"{"result": "4"}"#, HookDecision::Answer),
            (r#"{"result": "4", "continue": false}"#, HookDecision::Deny),
            (r#"{"skip": false, "somethingNew": 1}"#, HookDecision::Pass),
        ] {
            assert_eq!(before(answer).decision, decision, "{answer}");
        }
    }

    #[test]
    fn what_else_is_said_is_kept() {
        let answer = r#"{"reason": "r", "systemMessage": "m", "hookSpecificOutput": {"additionalContext": "c", "updatedInput": {"a": 1}}}"#;
        let expected = HookReply {
            reason: Some("r".to_owned()),
            message: Some("m".to_owned()),
            context: Some("c".to_owned()),
            arguments: Some(r#"{"a": 1}"#.to_owned()),
            ..HookReply::default()
        };
        assert_eq!(before(answer), expected);
        let after = said(r#"{"result": {"b": [2]}, "isError": true, "updatedInput": {}}"#, HookPoint::AfterTool);
        assert_eq!(
            (after.decision, after.result.as_deref(), after.is_error),
            (HookDecision::Pass, Some(r#"{"b":[2]}"#), true)
        );
        assert_eq!(after.arguments, None, "the call was made");
        let start = said(r#"{"result": "x", "permissionDecision": "ask"}"#, HookPoint::RunStart);
        assert_eq!(start, HookReply::default(), "a run has no call to answer or to approve");
    }

    #[test]
    fn members_may_stand_in_both_spellings_and_in_both_places() {
        let stops = before(r#"{"continue": false, "stopReason": "stop", "reason": "why"}"#);
        assert_eq!((stops.decision, stops.reason.as_deref()), (HookDecision::Deny, Some("why")));
        assert_eq!(before(r#"{"continue": false, "stop_reason": "s"}"#).reason.as_deref(), Some("s"));
        for answer in [
            r#"{"permissionDecision": "allow", "permission_decision": "deny"}"#,
            r#"{"permissionDecision": "deny", "permission_decision": "allow"}"#,
            r#"{"decision": "approve", "hookSpecificOutput": {"decision": "block"}}"#,
            r#"{"continue": true, "hook_specific_output": {"continue": false}}"#,
            r#"{"hookSpecificOutput": {}, "hook_specific_output": {"permissionDecision": "deny"}}"#,
        ] {
            assert_eq!(before(answer).decision, HookDecision::Deny, "{answer}");
        }
        let twice =
            r#"{"updatedInput": {"a": 1}, "updated_input": {"a": 1}, "systemMessage": "m", "system_message": "m"}"#;
        let said = before(twice);
        assert_eq!((said.arguments.as_deref(), said.message.as_deref()), (Some(r#"{"a": 1}"#), Some("m")));
        parse(br#"{"decision": "approve", "decision": "block"}"#, HookPoint::BeforeTool).unwrap_err();
    }

    #[test]
    fn what_no_hook_says_is_a_failure_that_quotes_nothing() {
        for (answer, failure) in [
            ("Bearer sk-1", "its answer is not JSON, in line 1 column 1"),
            ("[]", "its answer is no JSON object"),
            ("[false]", "its answer is no JSON object"),
            ("null", "its answer is no JSON object"),
            (r#"{"continue": "sk-1"}"#, "its answer is not what a hook says, in line 1 column 19"),
            (r#"{"decision": "sk-1"}"#, "its answer is not what a hook says, in line 1 column 19"),
            (r#"{"updatedInput": [1]}"#, "its updatedInput is not an object"),
            (r#"{"a": 1"#, "its answer is not JSON, in line 1 column 7"),
        ] {
            let found = parse(answer.as_bytes(), HookPoint::BeforeTool).unwrap_err().to_string();
            assert_eq!(found, failure, "{answer}");
        }
    }

    #[test]
    fn a_long_text_is_cut() {
        let long = "ä".repeat(MOST_TEXT + 1);
        let reason = before(&format!(r#"{{"continue": false, "reason": "{long}"}}"#)).reason.unwrap();
        assert_eq!(reason.chars().count(), MOST_TEXT + 1);
        assert!(reason.ends_with('…'));
    }
}
