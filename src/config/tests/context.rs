use super::{load, mistakes};
use crate::types::context::{Compaction, ContextRules, FlushRules, TriggerRules};

#[test]
fn nothing_written_shortens_conversations_as_the_documents_say() {
    assert_eq!(load("").agents["default"].rules.context, ContextRules::default());
}

#[test]
fn what_an_agents_context_is_is_as_written_and_inherited() {
    let settings = load(
        r#"
        [upstreams.u]
        base_url = "http://127.0.0.1:1/v1"
        models = ["small"]
        [agents.default.context]
        compaction = "llm"
        threshold = 0.5
        turn_limit = 9
        [agents.default.context.summary]
        model = "u/small"
        timeout = "7s"
        [agents.default.context.triggers]
        messages = 50
        after_run = true
        [agents.short.context]
        keep_last = 2
        keep_first_user = false
        pruning = { enabled = false }
        triggers = { input_tokens = 200000, after_run = false }
        "#,
    );
    let rules = &settings.agents["short"].rules.context;
    assert_eq!((rules.compaction, rules.threshold, rules.turn_limit), (Compaction::Llm, 0.5, Some(9)));
    assert_eq!((rules.keep_last, rules.keep_first_user, rules.pruning.enabled), (2, false, false));
    assert_eq!((rules.summary.model.as_deref(), rules.summary.timeout_ms), (Some("u/small"), 7_000));
    let triggers = TriggerRules { messages: Some(50), input_tokens: Some(200_000), after_run: false };
    assert_eq!(rules.triggers, triggers);
    assert!(settings.agents["default"].rules.context.triggers.after_run);
    assert_eq!(settings.agents["default"].rules.context.keep_last, 6);
}

#[test]
fn what_an_agent_has_written_down_is_as_written_and_inherited() {
    let settings = load(
        r#"
        [memory]
        [agents.default]
        tools = ["memory_*"]
        [agents.default.context.flush]
        enabled = true
        prompt = "Write."
        timeout = "7s"
        [agents.other.context.flush]
        max_iterations = 2
        [agents.none.context]
        flush = { enabled = false }
        "#,
    );
    let flush = |agent: &str| settings.agents[agent].rules.context.flush.clone();
    let prompt = Some("Write.".to_owned());
    let other = FlushRules { enabled: true, prompt, max_iterations: 2, timeout_ms: 7_000, ..FlushRules::default() };
    assert_eq!(flush("other"), other);
    assert_eq!((flush("default").max_iterations, flush("none").enabled), (5, false));
}

#[test]
fn mistakes_of_a_context_are_named() {
    for (written, what) in [
        ("threshold = 0.01", "must be at least 0.05"),
        ("threshold = 2", "must be a number from 0 to 1"),
        ("compaction = \"magic\"", "auto"),
        ("pruning = { max_chars = 100, head_chars = 60, tail_chars = 40 }", "must be more than"),
        ("triggers = { messages = 0 }", "must be an integer from 1"),
        ("triggers = { input_tokens = 0 }", "must be an integer from 1"),
        ("summary = { model = \"nowhere/m\" }", "no upstream `nowhere`"),
        ("flush = { enabled = true }", "needs `memory_write` among its `tools`"),
        ("flush = { max_iterations = 11 }", "must be from 1 to 10"),
        ("flush = { model = \"nowhere/m\" }", "no upstream `nowhere`"),
    ] {
        let told = mistakes(&format!("[agents.default.context]\n{written}"));
        assert!(told.contains(what), "{written}: {told}");
    }
}
