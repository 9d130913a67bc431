//! What bounds handoffs: how often, to whom, by which rules, and within which limits.

use super::*;

/// Two agents that hand every run to each other.
fn table_tennis() -> Arc<Team> {
    Team::new(|name, messages| match results(messages).last() {
        Some(told) if told.contains("as often as it may be") => Does::Says(format!("{name}: {told}")),
        _ => Does::Calls(vec![hands(if name == "ping" { "pong" } else { "ping" })]),
    })
}

#[tokio::test(start_paused = true)]
async fn a_run_is_handed_off_so_often_and_no_more_than_all_of_its_agents_allow() {
    for (ping, pong, expected) in [(3, 3, 3), (1, 9, 1), (5, 2, 2)] {
        let model = table_tennis();
        let members = vec![
            handing("ping", &["pong"], move |rules| rules.most = ping),
            handing("pong", &["ping"], move |rules| rules.most = pong),
        ];
        let agent = team(&memory(), &model, members, Quotas::default());
        let (end, records) = run(&agent, asks("ping")).await;
        assert_eq!(end.status(), RunStatus::Completed);
        assert_eq!(handoffs(&records).len(), expected, "{}", end.output_text);
        let last = if expected % 2 == 0 { "ping: " } else { "pong: " };
        assert!(end.output_text.starts_with(last), "{}", end.output_text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_handed_to_no_agent_that_it_may_not_use_however_many_lie_between() {
    let model = Team::new(|name, messages| match (name, results(messages)) {
        ("front", told) if told.is_empty() => Does::Calls(vec![hands("vault")]),
        ("front", told) if told[0].contains("vault") => Does::Calls(vec![hands("billing")]),
        ("billing", told) if !told[0].contains("not made") && !told[0].contains("no tool") => {
            Does::Calls(vec![hands("vault")])
        }
        (name, told) => Does::Says(format!("{name}: {}", told.join("; "))),
    });
    let members =
        vec![handing("front", &["billing", "vault"], |_| {}), handing("billing", &["vault"], |_| {}), plain("vault")];
    let agent = team(&memory(), &model, members, Quotas::default());
    let allowed = Some(vec!["front".to_owned(), "billing".to_owned()]);
    let (end, records) = run(&agent, NewRun { allowed_agents: allowed, ..asks("front") }).await;
    let to: Vec<_> = handoffs(&records).into_iter().map(|handoff| handoff.to).collect();
    assert_eq!(to, ["billing"], "{}", end.output_text);
    assert!(!asked(&model).contains(&"vault".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn the_policies_of_the_next_agent_and_of_the_request_hold_after_a_handoff() {
    let rule = |tool: &str| Rule { tool: tool.to_owned(), ..Rule::default() };
    let deny = |tool: &str| Layer { deny: vec![rule(tool)], ..Layer::default() };
    for (of_front, of_billing, of_request, denied) in [
        (Layer::default(), Layer::default(), None, false),
        (deny("save"), Layer::default(), None, false),
        (Layer::default(), deny("save"), None, true),
        (Layer::default(), Layer::default(), Some(Arc::new(deny("save"))), true),
    ] {
        let model = Team::new(|name, messages| match (name, results(messages)) {
            ("front", _) => Does::Calls(vec![hands("billing")]),
            (_, told) if told[0].contains("goes on") => Does::Calls(vec![("save".to_owned(), "{}".to_owned())]),
            (_, told) => Does::Says(told.join("; ")),
        });
        let front = with(handing("front", &["billing"], |_| {}), |config| config.policy = Arc::new(of_front));
        let billing = with(plain("billing"), |config| config.policy = Arc::new(of_billing));
        let agent = team(&memory(), &model, vec![front, billing], Quotas::default());
        let (end, _) = run(&agent, NewRun { policy: of_request, ..asks("front") }).await;
        assert_eq!(end.output_text != "{}", denied, "{}", end.output_text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handoff_is_judged_as_any_call_is() {
    let rule = || Rule { tool: HANDOFF.to_owned(), ..Rule::default() };
    let members = |layer| {
        let front = with(handing("front", &["billing"], |_| {}), |config| config.policy = Arc::new(layer));
        vec![front, plain("billing")]
    };
    let denying = Layer { deny: vec![rule()], ..Layer::default() };
    let model = Team::new(|_, messages| match results(messages) {
        told if told.is_empty() => Does::Calls(vec![hands("billing")]),
        told => Does::Says(told.join("; ")),
    });
    let agent = team(&memory(), &model, members(denying), Quotas::default());
    let (end, records) = run(&agent, asks("front")).await;
    assert!(end.output_text.contains("no tool named \"handoff\""), "{}", end.output_text);
    assert!(handoffs(&records).is_empty());

    let asking = Layer { ask: vec![rule()], ..Layer::default() };
    let agent = team(&memory(), &pair(), members(asking), Quotas::default());
    let (waits, records) = run(&agent, asks("front")).await;
    assert_eq!((waits.reason, handoffs(&records).len()), (StopReason::Approval, 0));
    let call = waits.required_calls[0].call.id.clone();
    let decision = ApprovalDecision::Approve;
    let approval = CallApproval { call, decision, digest: None, reason: None, arguments: None, result: None };
    let (end, _) = run(&agent, NewRun::deciding(tenant(), handoff_run(&agent).await, vec![approval])).await;
    assert_eq!(end.output_text, "billing is here");
}

#[tokio::test(start_paused = true)]
async fn an_agent_may_take_what_its_runs_may_but_no_more_than_is_left_of_the_run() {
    for (of_front, of_billing, calls) in [(10, 2, 3), (3, 10, 3), (2, 2, 2)] {
        let model = Team::new(|name, _| match name {
            "front" => Does::Calls(vec![hands("billing")]),
            _ => Does::Calls(vec![echoes()]),
        });
        let bounded = |member, most| {
            with(member, move |config: &mut crate::config::AgentConfig| config.limits.max_iterations = most)
        };
        let members =
            vec![bounded(handing("front", &["billing"], |_| {}), of_front), bounded(plain("billing"), of_billing)];
        let agent = team(&memory(), &model, members, Quotas::default());
        let (end, _) = run(&agent, asks("front")).await;
        assert_eq!((end.reason, end.iterations), (StopReason::MaxIterations, calls));
    }
    // The budget of the run is what it began with, and its time is too.
    let model = pair();
    let front = with(handing("front", &["billing"], |_| {}), |config| {
        config.limits.token_budget = Some(5_000);
        config.limits.timeout = Duration::from_secs(50);
    });
    let billing = with(plain("billing"), |config| {
        config.limits.token_budget = Some(2_000);
        config.limits.timeout = Duration::from_secs(500);
    });
    let agent = team(&memory(), &model, vec![front, billing], Quotas::default());
    let (end, records) = run(&agent, asks("front")).await;
    assert_eq!((end.reason, end.budget.tokens), (StopReason::Done, Some(2_110)), "110 were taken before");
    assert_eq!(handoffs(&records)[0].spec.limits.timeout_ms, 50_000);
}

#[tokio::test(start_paused = true)]
async fn what_a_request_asks_for_holds_as_far_as_the_next_agent_has_it() {
    let model = pair();
    let members = vec![handing("front", &["billing"], |_| {}), plain("billing")];
    let agent = team(&memory(), &model, members, Quotas::default());
    let new = NewRun {
        system: vec![Message::text(Role::System, "Answer in French.")],
        tools: Some(vec!["save".to_owned(), HANDOFF.to_owned()]),
        ..asks("front")
    };
    let (end, records) = run(&agent, new).await;
    assert_eq!(end.output_text, "billing is here");
    let offered = model.offered.lock().clone();
    assert_eq!(offered[1].1, ["save"], "what the request narrows stays narrow");
    let spec = &handoffs(&records)[0].spec;
    let system: Vec<_> = spec.system.iter().map(said).collect();
    assert_eq!(system, ["You are billing.", "Answer in French."]);
    let narrow = NewRun { tools: Some(vec!["save".to_owned()]), ..asks("front") };
    let silent = Team::new(|_, _| Does::Says("no".to_owned()));
    let members = vec![handing("front", &["billing"], |_| {}), plain("billing")];
    let agent = team(&memory(), &silent, members, Quotas::default());
    run(&agent, narrow).await;
    assert_eq!(silent.offered.lock()[0].1, ["save"], "a request may leave handoffs out");
}
