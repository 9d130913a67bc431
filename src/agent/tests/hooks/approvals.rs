//! Hooks before a call, the policy and approvals, in the order of `loop.md` 2.23.

use super::*;
use crate::agent::CallApproval;
use crate::types::approval::{ApprovalDecision, ApprovalMode, ApprovalTerms};
use crate::types::policy::{Layer, Rule};
use crate::types::{StopReason, Tenant};

fn rewriting(arguments: &str) -> HookConfig {
    let arguments = serde_json::from_str(arguments).unwrap();
    hook("set", HookPoint::BeforeTool, HookAction::Rewrite { arguments: Some(arguments), result: None })
}

fn saying(answer: &str) -> HookConfig {
    hook("says", HookPoint::BeforeTool, program(&format!("echo '{answer}'")))
}

fn ruled(layer: Layer) -> NewRun {
    NewRun { policy: Some(Arc::new(layer)), ..request() }
}

fn agent(hooks: Vec<HookConfig>, mode: ApprovalMode) -> TestAgent {
    let builder = TestAgent::builder().hooks(hooks).approval(ApprovalTerms { mode, ..ApprovalTerms::default() });
    builder.echo(Effect::Write).turns(calls("echo", r#"{"n":1}"#)).begin()
}

#[tokio::test]
async fn a_call_that_a_hook_asks_for_waits_for_an_approval_of_what_hooks_left_of_it() {
    let hooks = vec![rewriting(r#"{"n":7}"#), saying(r#"{"permissionDecision": "ask", "reason": "Look at it."}"#)];
    let agent = agent(hooks, ApprovalMode::Pause);
    let started = agent.start(request(), None).await.unwrap();
    let run = started.head.id.clone();
    let waits = watch(started).await;
    let end = outcome(&waits);
    let required = &end.required_calls[0];
    assert_eq!((end.reason, required.reason.as_deref()), (StopReason::Approval, Some("Look at it.")));
    assert_eq!(required.call.arguments, r#"{"n":7}"#, "what would be made is shown");
    assert!(agent.journal.lock().is_empty());
    assert_eq!(ran(&waits).len(), 2);

    let decision = ApprovalDecision::Approve;
    let approval = CallApproval {
        call: required.call.id.clone(),
        decision,
        digest: Some(required.call.digest()),
        reason: None,
        arguments: None,
        result: None,
    };
    let approved = NewRun::deciding(Tenant::default_tenant(), run, vec![approval]);
    let records = watch(agent.start(approved, None).await.unwrap()).await;
    assert_eq!(*agent.journal.lock(), [r#"{"n":7}"#]);
    assert_eq!(outcome(&records).status(), RunStatus::Completed);
    assert!(ran(&records).is_empty(), "no hook is asked again");
}

#[tokio::test]
async fn what_a_hook_asks_for_is_denied_where_the_agent_asks_for_no_approvals() {
    let agent = agent(vec![saying(r#"{"decision": "ask", "reason": "Look at it."}"#)], ApprovalMode::Deny);
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    let told = "Look at it. This agent asks for no approvals: the call is denied.";
    assert_eq!(result(&records), (told.to_owned(), true));
    assert!(agent.journal.lock().is_empty());
}

#[tokio::test]
async fn the_policy_judges_the_arguments_that_hooks_leave() {
    let deny_seven = Rule { arguments: [("n".to_owned(), vec!["7".to_owned()])].into(), ..Rule::of("echo") };
    let agent = agent(vec![rewriting(r#"{"n":7}"#)], ApprovalMode::Pause);
    let new = ruled(Layer { deny: vec![deny_seven], ..Layer::default() });
    let records = watch(agent.start(new, None).await.unwrap()).await;
    assert!(result(&records).1 && agent.journal.lock().is_empty(), "{records:?}");
}

#[tokio::test]
async fn a_hook_that_allows_a_call_loosens_nothing_that_the_policy_says() {
    let allows = || vec![saying(r#"{"permissionDecision": "allow"}"#)];
    let asking = agent(allows(), ApprovalMode::Pause);
    let new = ruled(Layer { ask: vec![Rule::of("echo")], ..Layer::default() });
    let records = watch(asking.start(new, None).await.unwrap()).await;
    assert_eq!((outcome(&records).reason, ran(&records).len()), (StopReason::Approval, 1));
    assert!(asking.journal.lock().is_empty());
}

#[tokio::test]
async fn no_hook_is_asked_about_a_call_of_a_tool_that_the_policy_forbids() {
    let denying = agent(vec![saying("{}")], ApprovalMode::Pause);
    let new = ruled(Layer { deny: vec![Rule::of("echo")], ..Layer::default() });
    let records = watch(denying.start(new, None).await.unwrap()).await;
    assert!(ran(&records).is_empty() && denying.journal.lock().is_empty(), "{records:?}");
}
