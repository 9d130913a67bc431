//! What policies of several layers do to the calls of runs: `loop.md` T34, G40, C8, Z7.

use super::*;
use crate::types::policy::Mode;

fn with(layer: Layer) -> NewRun {
    NewRun { policy: Some(Arc::new(layer)), ..request() }
}

/// The tools that the model was offered last.
fn offered(agent: &TestAgent) -> Vec<String> {
    let requests = agent.model.requests.lock();
    let mut names: Vec<_> = requests.last().unwrap().tools.tools().map(|tool| tool.name.clone()).collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn a_tool_of_which_no_call_would_be_made_is_not_offered_and_cannot_be_called() {
    let agent = replica(&memory(), turns());
    let records =
        watch(agent.start(with(Layer { deny: vec![Rule::of("ec*")], ..Layer::default() }), None).await.unwrap()).await;
    assert!(results(&records)[0].starts_with("There is no tool named \"echo\"."), "{:?}", results(&records));
    assert!(agent.journal.lock().is_empty());
    assert_eq!(offered(&agent), ["hang", "save"]);
    // `echo` and `save` write here; `hang` reads.
    watch(agent.start(with(Layer { mode: Mode::ReadOnly, ..Layer::default() }), None).await.unwrap()).await;
    assert_eq!(offered(&agent), ["hang"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_denied_for_its_arguments_is_answered_with_the_reason() {
    let deny = Rule {
        arguments: [("n".to_owned(), vec!["1".to_owned()])].into(),
        reason: Some("One is reserved.".into()),
        ..Rule::of("echo")
    };
    let turns = vec![Say::Calls("", vec![("echo", ONE), ("echo", TWO)]), Say::Text(&["done"])];
    let agent = replica(&memory(), turns);
    let records = watch(agent.start(with(Layer { deny: vec![deny], ..Layer::default() }), None).await.unwrap()).await;
    let why = "The policy of the server denies this call of `echo`. One is reserved.";
    assert_eq!(results(&records), [why, TWO]);
    assert_eq!(*agent.journal.lock(), [TWO]);
    let reported = &outcome(&records).report.steps[0].tool_calls;
    assert_eq!((reported[0].skipped, reported[0].error.as_deref()), (true, Some(why)));
    assert!(!reported[1].skipped);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_be_made_is_answered_without_an_approval_and_never_allowed() {
    let turns = vec![Say::Calls("", vec![("echo", r#"{"n":"x"}"#), ("nothing", "{}")]), Say::Text(&["done"])];
    let store = memory();
    let agent = replica(&store, turns);
    let started = agent.start(with(Layer { mode: Mode::Prompt, ..Layer::default() }), None).await.unwrap();
    let run = started.head.id.clone();
    let records = watch(started).await;
    let results = results(&records);
    assert!(results[0].contains("do not fit its schema") && results[1].contains("no tool named"), "{results:?}");
    assert_eq!(outcome(&records).output_text, "done");
    assert!(outcome(&records).report.steps[0].tool_calls.iter().all(|call| call.skipped));
    // What is allowed would be made without the policy, should its tool come back before it is made. Readers of a run are not
    // told what is allowed; its log is.
    let partition = keys::run_partition(&Tenant::default_tenant(), None, &run);
    let page = store.read_log(&partition, &keys::events(&run), 0, 10_000).await.unwrap();
    let events = page.entries.iter().map(|entry| log::decode(entry).unwrap().event);
    assert_eq!(events.filter(|event| matches!(event, Event::CallAllowed { .. })).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_cannot_loosen_how_approvals_are_asked_for() {
    let approval = ApprovalTerms { mode: ApprovalMode::Deny, timeout_ms: 1_000, ..ApprovalTerms::default() };
    let agent = TestAgent::builder().approval(approval).begin();
    for (patch, member) in [
        (ApprovalPatch { mode: Some(ApprovalMode::Pause), timeout_ms: None }, "agent.approval.mode"),
        (ApprovalPatch { mode: None, timeout_ms: Some(1_001) }, "agent.approval.timeout_ms"),
    ] {
        let refused = agent.start(NewRun { approval: patch, ..asking() }, None).await.err().unwrap();
        assert!(matches!(refused, StartError::Invalid { field: Field::Member(named), .. } if named == member));
    }
}

/// Chats send all decisions of a step with each of them, also those that another has to agree with.
#[tokio::test(start_paused = true)]
async fn what_a_chat_repeats_of_its_approvals_is_left_out_while_others_must_agree() {
    let approval = ApprovalTerms { needed: 2, ..ApprovalTerms::default() };
    let turns = vec![Say::Calls("", vec![("echo", ONE), ("echo", TWO)]), Say::Text(&["done"])];
    let agent = TestAgent::builder().echo(Effect::Write).turns(turns).approval(approval).begin();
    let (run, waits) = waiting(&agent, asking()).await;
    let ids: Vec<_> = calls(&waits).into_iter().map(|call| call.id).collect();
    let by = |key: &str, calls: usize| {
        let approvals = ids[..calls].iter().map(approve).collect();
        NewRun { key_name: Some(key.into()), repeats: true, ..deciding(&run, approvals) }
    };
    for calls in [1, 2] {
        let told = outcome(&watch(agent.start(by("ops-1", calls), None).await.unwrap()).await);
        assert_eq!((told.reason, agent.journal.lock().len()), (StopReason::Approval, 0), "{calls}");
    }
    let again = agent.start(by("ops-1", 2), None).await.err().unwrap();
    assert!(matches!(again, StartError::Approval(ApprovalError::AwaitsOthers(_))), "nothing is new: {again}");
    let denied = CallApproval { decision: ApprovalDecision::Deny, ..approve(&ids[0]) };
    let other = NewRun { approvals: vec![denied, approve(&ids[1])], ..by("ops-1", 2) };
    let told = outcome(&watch(agent.start(other, None).await.unwrap()).await);
    assert_eq!(told.required_calls.len(), 1, "who changes its mind says something new: {told:?}");
    let records = watch(agent.start(by("ops-2", 2), None).await.unwrap()).await;
    assert_eq!((outcome(&records).reason, agent.journal.lock().join(",")), (StopReason::Done, TWO.to_owned()));
}
