use insta::assert_snapshot;

use super::{load, mistakes};
use crate::types::rules::{LoopGuardRules, LoopRules, Reflection};

#[test]
fn nothing_written_guards_loops_and_asks_the_model_nothing() {
    let rules = load("").agents["default"].rules.clone();
    let LoopGuardRules { warn_after, stop_after, same_result_warn_after, same_result_stop_after, .. } =
        rules.loop_guard;
    let after = [warn_after, stop_after, same_result_warn_after, same_result_stop_after];
    assert_eq!(after, [Some(3), Some(5), Some(4), Some(12)]);
    assert_eq!(*rules, LoopRules::default());
}

#[test]
fn what_an_agents_loop_does_is_as_written_and_inherited() {
    let settings = load(
        r#"
        [agents.default]
        reflection = { every = 7 }
        [agents.default.limits]
        max_tool_calls = 9
        [agents.default.loop_guard]
        warn_after = 2
        ignored = ["wait*"]
        [agents.strict]
        planning = { prompt = "Think." }
        reflection = { enabled = false }
        [agents.strict.tool_errors]
        end_run = ["pay_*"]
        fallback_results = { weather = "It is not known." }
        [agents.free]
        loop_guard = { enabled = false }
        "#,
    );
    let strict = &settings.agents["strict"];
    assert_eq!((strict.rules.planning.as_deref(), strict.rules.reflection.as_ref()), (Some("Think."), None));
    assert_eq!(strict.limits.max_tool_calls, Some(9));
    let guard = LoopGuardRules { warn_after: Some(2), ignored: vec!["wait*".into()], ..LoopGuardRules::default() };
    assert_eq!(strict.rules.loop_guard, guard);
    assert_eq!(strict.rules.tool_errors.ends_run, ["pay_*"]);
    assert_eq!(strict.rules.tool_errors.fallback_results, [("weather".to_owned(), "It is not known.".to_owned())]);
    let free = &settings.agents["free"].rules;
    assert!(!free.loop_guard.is_on() && free.planning.is_none());
    assert!(
        matches!(&free.reflection, Some(Reflection { every: 7, prompt }) if prompt.starts_with("Before you go on"))
    );
}

#[test]
fn every_kind_of_mistake_of_what_an_agents_loop_does() {
    assert_snapshot!(mistakes(r#"
[agents.one]
planning = { prompt = " " }
reflection = { every = 0 }
[agents.one.limits]
max_tool_calls = 0
[agents.one.loop_guard]
warn_after = 1
stop_afer = 3
[agents.one.tool_errors]
end_run = ["pay me"]
fallback_results = { "a b" = "c" }
"#), @r#"
    loopgate.toml:3: agents.one.planning.prompt: must be a text of 1 to 16384 bytes
    loopgate.toml:4: agents.one.reflection.every: must be an integer from 1 to 4294967295
    loopgate.toml:6: agents.one.limits.max_tool_calls: must be an integer from 1 to 4294967295
    loopgate.toml:8: agents.one.loop_guard.warn_after: must be at least 2; `enabled = false` turns the guard off
    loopgate.toml:9: agents.one.loop_guard.stop_afer: unknown key; did you mean `stop_after`?
    loopgate.toml:11: agents.one.tool_errors.end_run: a tool's name has only characters of A-Z a-z 0-9 _ -, and * for any characters
    loopgate.toml:12: agents.one.tool_errors.fallback_results: a tool's name has only characters of A-Z a-z 0-9 _ -, and * for any characters
    "#);
}
