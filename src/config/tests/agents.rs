//! Agents, and what they inherit.

use std::sync::Arc;

use insta::assert_snapshot;

use super::*;
use crate::types::approval::ApprovalTerms;
use crate::types::guard::{Guards, OutputRules, ResultBounds, Sanitise};
use crate::types::handoff::{HandedHistory, HandoffRules};
use crate::types::policy::{Layer, LayerOwner};
use crate::types::run::OnLimit;

#[test]
fn other_agents_start_from_the_default_agent_wherever_it_stands() {
    let settings = load(
        "
        [agents.small.limits]
        max_iterations = 3
        [agents.small]
        system = 'Be brief.'
        [agents.default]
        model = 'demo/demo'
        tools = ['calc*']
        hedge_after = '1500ms'
        on_limit = 'error'
        stream = true
        trace_content = false
        [agents.default.limits]
        max_iterations = 200
        timeout = '10s'
        token_budget = 1000
        cost_budget_usd = 0.5
        ",
    );
    let expected = AgentConfig {
        name: "small".into(),
        description: None,
        model: Some("demo/demo".into()),
        fallbacks: None,
        system: Some("Be brief.".into()),
        tools: vec!["calc*".into()],
        hedge_after: Some(Duration::from_millis(1_500)),
        max_offered_tools: 64,
        always_offered: vec![],
        on_limit: OnLimit::Error,
        streams: true,
        rules: Arc::default(),
        trace_content: false,
        limits: LimitsConfig {
            max_iterations: 3,
            max_tool_calls: None,
            timeout: Duration::from_secs(10),
            tool_timeout: Duration::from_mins(2),
            token_budget: Some(1000),
            cost_budget: Some(Micros(500_000)),
            shared: crate::config::ShareConfig::default(),
        },
        policy: Layer { owner: LayerOwner::Agent, ..Layer::default() }.into(),
        approval: ApprovalTerms::default(),
        guards: Arc::default(),
        prompt: Arc::default(),
    };
    assert_eq!(settings.agents["small"], expected);
    assert_eq!(settings.agents["default"].limits.max_iterations, 200);
}

#[test]
fn model_calls_are_unlimited_only_beside_another_limit() {
    let text = "
        [agents.default.limits]
        timeout = '60s'
        [agents.a.limits]
        max_iterations = 'unlimited'
        token_budget = 1000
        [agents.b.limits]
        max_iterations = 'unlimited'
        timeout = '10s'
        [agents.c.limits]
        max_iterations = 'unlimited'
        cost_budget_usd = 0.5
        [agents.d]
        profile = 'claw'
        [agents.e]
        profile = 'claw'
        [agents.e.limits]
        max_iterations = 7
        ";
    let settings = load(text);
    let most = |name: &str| settings.agents[name].limits.max_iterations;
    assert_eq!(["a", "b", "c", "d", "e"].map(most), [1_000, 1_000, 1_000, 1_000, 7]);
    let wrong = "[agents.default.limits]\ntimeout = '60s'\n[agents.a.limits]\nmax_iterations = 'unlimited'\n\
                 [agents.b.limits]\nmax_iterations = 'many'\n[agents.c.limits]\nmax_iterations = 0";
    assert_snapshot!(mistakes(wrong), @r#"
    loopgate.toml:4: agents.a.limits.max_iterations: `"unlimited"` needs another limit beside it: set `timeout`, `token_budget` or `cost_budget_usd`
    loopgate.toml:6: agents.b.limits.max_iterations: must be an integer from 1 to 200, or "unlimited"
    loopgate.toml:8: agents.c.limits.max_iterations: must be an integer from 1 to 200
    "#);
}

#[test]
fn an_agent_says_what_is_removed_from_answers() {
    let text = "[agents.default]\nsanitize_output = 'full'\n[agents.a]\nallow_no_reply = true";
    let agents = load(text).agents;
    let output = |allow_no_reply| OutputRules { sanitise: Sanitise::Full, allow_no_reply };
    assert_eq!((agents["default"].guards.output, agents["a"].guards.output), (output(false), output(true)));
}

#[test]
fn an_agent_holds_results_within_bounds() {
    let text = "[agents.default.context]\nmax_tool_result_bytes = 2048\n[agents.a.context]\nmax_tool_result_hex = 64";
    let agents = load(text).agents;
    let results = |max_bytes, hex_run| Guards { results: ResultBounds { max_bytes, hex_run }, ..Guards::default() };
    assert_eq!((&*agents["default"].guards, &*agents["a"].guards), (&results(2_048, 200), &results(2_048, 64)));
    let wrong = "[agents.default.context]\nmax_tool_result_bytes = 60000\nmax_tool_result_hex = 8";
    assert_snapshot!(mistakes(wrong), @r"
    loopgate.toml:2: agents.default.context.max_tool_result_bytes: must be an integer from 1024 to 51200
    loopgate.toml:3: agents.default.context.max_tool_result_hex: must be an integer of at least 32
    ");
}

#[test]
fn whom_an_agent_delegates_to_is_its_own_and_within_which_bounds_is_inherited() {
    let settings = load(
        "
        [agents.default]
        model = 'demo/demo'
        delegates = ['helper']
        delegation = { timeout = '20s', max_concurrent = 2, events = true }
        [agents.helper]
        description = 'Helps.'
        [agents.helper.delegation]
        max_depth = 1
        ",
    );
    let of = |name: &str| settings.agents[name].rules.delegation.clone();
    assert_eq!((of("default").to, of("helper").to), (vec!["helper".to_owned()], vec![]));
    let helper = of("helper");
    assert_eq!((helper.timeout_ms, helper.max_concurrent, helper.max_depth, helper.shows_events), (20_000, 2, 1, true));
    assert_eq!((helper.max_output_chars, helper.max_iterations), (30_000, 20));
    assert_eq!(settings.agents["helper"].description.as_deref(), Some("Helps."));
    let unknown = mistakes("[agents.default]\ndelegates = ['helpr']\n[agents.helper]\nsystem = 'x'");
    assert!(unknown.contains("agents.default.delegates") && unknown.contains("helper"), "{unknown}");
    let misnamed = mistakes("[agents.default]\ntools = ['delegate']");
    assert!(misnamed.contains("`delegates`"), "{misnamed}");
    let deep = mistakes("[agents.default.delegation]\nmax_depth = 0");
    assert!(deep.contains("from 1 to 8"), "{deep}");
    let twice =
        load("[agents.default]\nmodel = 'demo/demo'\ndelegates = ['helper', 'helper']\n[agents.helper]\nsystem = 'x'");
    assert_eq!(twice.agents["default"].rules.delegation.to, ["helper"], "a schema names each once");
}

#[test]
fn an_agent_of_the_store_delegates_no_wider_than_those_of_the_file() {
    let file = "[agents.default]\nmodel = 'demo/demo'\n[agents.default.delegation]\nmax_concurrent = 8\nmax_depth = 1";
    let reader = load(file).agent_reader();
    let read = |bounds: serde_json::Value| {
        let keys = serde_json::json!({"delegates": ["own"], "delegation": bounds});
        reader.read("own", keys.as_object().unwrap())
    };
    read(serde_json::json!({"max_concurrent": 8, "max_depth": 1})).unwrap();
    for (name, value) in [("max_concurrent", 9), ("max_depth", 2), ("max_iterations", 21)] {
        let refused = read(serde_json::json!({name: value})).unwrap_err().to_string();
        assert!(refused.contains(name) && refused.contains("at most"), "{refused}");
    }
}

#[test]
fn an_agent_that_is_made_of_others_has_no_model_and_inherits_nothing_that_is_said_of_one() {
    let settings = load(
        "
        [agents.default]
        model = 'demo/demo'
        system = 'x'
        on_limit = 'synthesize'
        limits = { token_budget = 1000 }
        [agents.one]
        [agents.two]
        [agents.line]
        chain = ['one', 'both']
        [agents.both]
        parallel = ['one', 'two']
        consolidate = 'two'
        [agents.both.delegation]
        max_concurrent = 2
        ",
    );
    let of = |name: &str| &settings.agents[name];
    let (line, both) = (of("line"), of("both"));
    assert_eq!((&line.model, &line.system, line.tools.len(), line.on_limit), (&None, &None, 0, OnLimit::Stop));
    assert_eq!((line.limits.token_budget, both.rules.delegation.max_concurrent), (Some(1_000), 2));
    let agents: Vec<_> = both.rules.composite.as_ref().unwrap().agents().collect();
    assert_eq!(agents, ["one", "two", "two"]);
    assert_eq!(of("one").rules.composite, None);
}

#[test]
fn mistakes_of_agents_that_are_made_of_others() {
    let agents = "[agents.default]\nmodel = 'demo/demo'\n[agents.one]\n[agents.two]\n";
    for (text, says) in [
        ("[agents.a]\nchain = ['on']", "there is no agent `on`; did you mean `one`?"),
        ("[agents.a]\nchain = ['one']\nmodel = 'demo/demo'", "agents.a.model: an agent with `chain` has no model"),
        ("[agents.a]\nchain = ['one']\ntools = []", "agents.a.tools: an agent with `chain`"),
        ("[agents.a]\nparallel = ['one']\ndelegates = ['one']", "agents.a.delegates: an agent with `parallel`"),
        ("[agents.a]\nchain = ['one']\nparallel = ['two']", "`chain` or `parallel`, not both"),
        ("[agents.a]\nconsolidate = 'one'", "there is nothing to make one answer of"),
        ("[agents.a]\nchain = []", "names 0 agents; it may be 1 to 16"),
        ("[agents.a]\nchain = ['a']", "`a` cannot be made of itself"),
        (
            "[agents.a]\nchain = ['one', 'b']\n[agents.b]\nparallel = ['a']",
            "agents.a: is made of itself, by way of `b`",
        ),
        ("[agents.a]\nchain = ['b']\n[agents.b]\nchain = ['c']\n[agents.c]\nchain = ['a']", "by way of `b`"),
        ("[agents.a]\nchain = ['one']\non_limit = 'synthesize'", "no model that could give a closing answer"),
    ] {
        let found = mistakes(&format!("{agents}{text}"));
        assert!(found.contains(says), "{text}: {found}");
    }
    let default = mistakes("[agents.default]\nchain = ['one']\n[agents.one]\nmodel = 'demo/demo'");
    assert!(default.contains("`default` cannot be made of others"), "{default}");
}

#[test]
fn whom_an_agent_hands_runs_off_to_is_its_own_and_how_is_inherited() {
    let settings = load(
        "
        [agents.default]
        model = 'demo/demo'
        handoffs = ['billing', 'billing']
        handoff = { max_handoffs = 5, history = 'last_turn' }
        [agents.billing]
        handoff = { max_handoffs = 2 }
        ",
    );
    let of = |name: &str| settings.agents[name].rules.handoff.clone();
    let rules = |to: &[&str], most| HandoffRules {
        to: to.iter().map(|to| (*to).to_owned()).collect(),
        most,
        history: HandedHistory::LastTurn,
    };
    assert_eq!((of("default"), of("billing")), (rules(&["billing"], 5), rules(&[], 2)));
    for (text, said) in [
        (
            "handoffs = ['biling']\n[agents.billing]\nsystem = 'x'",
            "agents.default.handoffs: there is no agent `biling`",
        ),
        ("handoffs = ['default']", "an agent cannot hand a run off to itself"),
        ("handoffs = [7]", "agents.default.handoffs"),
        ("handoffs = 'billing'", "agents.default.handoffs"),
        ("tools = ['handoff']", "name agents in `handoffs` to have the tool `handoff`"),
        ("handoff = { max_handoffs = 33 }", "from 1 to 32"),
        ("handoff = { history = 'none' }", "\"all\" or \"last_turn\""),
    ] {
        let mistakes = mistakes(&format!("[agents.default]\n{text}"));
        assert!(mistakes.contains(said), "{text}: {mistakes}");
    }
}
