use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn rule(tool: &str, arguments: &[(&str, &str)]) -> Rule {
    let arguments = arguments.iter().map(|(path, pattern)| ((*path).to_owned(), vec![(*pattern).to_owned()])).collect();
    Rule { arguments, ..Rule::of(tool) }
}

fn policy(layers: Vec<Layer>) -> Policy {
    Policy { layers: layers.into_iter().map(Arc::new).collect(), approval: ApprovalTerms::default() }
}

fn judge(layers: Vec<Layer>, tool: &str, effect: Effect, arguments: &str) -> Ruling {
    policy(layers).judge(Judged { tool, effect, arguments })
}

fn verdict(layer: Layer, tool: &str, arguments: &str) -> Verdict {
    judge(vec![layer], tool, Effect::Write, arguments).verdict
}

#[test]
fn in_a_layer_deny_goes_before_ask_and_ask_before_allow_and_the_mode_says_the_rest() {
    let layer = |mode| Layer {
        mode,
        allow: vec![Rule::of("git_*"), Rule::of("ls")],
        ask: vec![Rule::of("git_push"), Rule::of("git_reset")],
        deny: vec![Rule::of("git_reset")],
        ..Layer::default()
    };
    let of = |mode, tool| verdict(layer(mode), tool, "{}");
    assert_eq!(of(Mode::Deny, "git_reset"), Verdict::Deny);
    assert_eq!(of(Mode::Deny, "git_push"), Verdict::Ask);
    assert_eq!(of(Mode::Deny, "git_log"), Verdict::Allow);
    assert_eq!(
        [Mode::Allow, Mode::Prompt, Mode::Deny].map(|mode| of(mode, "rm")),
        [Verdict::Allow, Verdict::Ask, Verdict::Deny]
    );
}

#[test]
fn a_mode_decides_by_what_a_tool_does() {
    use Verdict::{Allow, Ask, Deny};
    let of = |mode: Mode| [Effect::Read, Effect::Idempotent, Effect::Write].map(|effect| mode.of(effect));
    assert_eq!(of(Mode::Allow), [Allow; 3]);
    assert_eq!(of(Mode::ReadOnly), [Allow, Deny, Deny]);
    assert_eq!(of(Mode::WorkspaceWrite), [Allow, Allow, Ask]);
    assert_eq!(of(Mode::AskWrites), [Allow, Ask, Ask]);
    assert_eq!(of(Mode::Prompt), [Ask; 3]);
    assert_eq!(of(Mode::Deny), [Deny; 3]);
}

#[test]
fn the_first_of_the_strictest_layers_says_why() {
    let denies = |owner| Layer {
        owner,
        deny: vec![Rule { reason: Some("It is Friday.".into()), ..Rule::of("deploy") }],
        ..Layer::default()
    };
    let asks = Layer { owner: LayerOwner::Server, ask: vec![Rule::of("*")], ..Layer::default() };
    let ruling =
        judge(vec![asks.clone(), denies(LayerOwner::Key), denies(LayerOwner::Agent)], "deploy", Effect::Read, "");
    assert_eq!(ruling.verdict, Verdict::Deny);
    assert_eq!(ruling.reason, "The policy of the key denies this call of `deploy`. It is Friday.");
    let asked = judge(vec![asks], "x", Effect::Read, "{}");
    assert_eq!(asked.reason, "The policy of the server asks for an approval of this call of `x`.");
    let by_mode = judge(vec![Layer { mode: Mode::ReadOnly, ..Layer::default() }], "x", Effect::Write, "{}");
    assert!(by_mode.reason.contains("`read_only`") && by_mode.reason.contains("`write`"), "{}", by_mode.reason);
}

#[test]
fn arguments_are_named_by_path_and_pattern_wherever_they_stand() {
    let denies = |path: &str, pattern: &str| Layer { deny: vec![rule("sh", &[(path, pattern)])], ..Layer::default() };
    let is_denied = |layer: Layer, arguments: &str| verdict(layer, "sh", arguments) == Verdict::Deny;
    assert!(is_denied(denies("command", "rm *"), r#"{"command":"rm -rf /"}"#));
    assert!(!is_denied(denies("command", "rm *"), r#"{"command":"ls"}"#));
    assert!(!is_denied(denies("command", "*"), "{}"), "there is none");
    assert!(is_denied(denies("to.host", "*.local"), r#"{"to":[{"host":"a"},{"host":"b.local"}]}"#));
    assert!(is_denied(denies("a.b", "1"), r#"{"a.b":1}"#));
    assert!(is_denied(denies("a.b", "1"), r#"{"a.b":2,"a":{"b":1}}"#), "one does not hide the other");
    assert!(is_denied(denies("", "1"), "[1]"));
    assert!(is_denied(denies("command", "x"), "{broken"), "what cannot be read is not let through");
}

#[test]
fn a_rule_that_allows_must_name_all_values() {
    let layer = Layer { mode: Mode::Deny, allow: vec![rule("copy", &[("files", "docs/*")])], ..Layer::default() };
    let of = |arguments| verdict(layer.clone(), "copy", arguments);
    assert_eq!(of(r#"{"files":["docs/a","docs/b"]}"#), Verdict::Allow);
    assert_eq!(of(r#"{"files":["docs/a","etc/b"]}"#), Verdict::Deny);
    assert_eq!(of(r#"{"files":[]}"#), Verdict::Deny);
    assert_eq!(of("{broken"), Verdict::Deny);
    let layer = Layer { mode: Mode::Deny, allow: vec![rule("mail", &[("to.host", "*.ok")])], ..Layer::default() };
    let of = |arguments| verdict(layer.clone(), "mail", arguments);
    assert_eq!(of(r#"{"to":[{"host":"a.ok"},{"host":"b.ok"}]}"#), Verdict::Allow);
    assert_eq!(
        of(r#"{"to":[{"host":"a.ok"},{"addr":"evil"}]}"#),
        Verdict::Deny,
        "an element without a host is not named"
    );
    assert_eq!(of(r#"{"to":[{"host":"a.ok"},"evil"]}"#), Verdict::Deny);
}

#[test]
fn a_tool_is_withheld_only_if_every_call_would_be_denied() {
    let withheld = |layer: Layer| policy(vec![layer]).always_denies("sh", Effect::Write);
    assert!(withheld(Layer { deny: vec![Rule::of("s*")], ..Layer::default() }));
    assert!(!withheld(Layer { deny: vec![rule("sh", &[("command", "rm")])], ..Layer::default() }));
    assert!(withheld(Layer { mode: Mode::ReadOnly, ..Layer::default() }));
    assert!(!withheld(Layer { mode: Mode::Deny, ask: vec![rule("sh", &[("a", "b")])], ..Layer::default() }));
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let arguments = prop_oneof![Just(vec![]), Just(vec![("p", "1")]), Just(vec![("p", "*")]), Just(vec![("q.r", "2")])];
    let one = (prop_oneof![Just("a"), Just("b"), Just("*"), Just("a*")], arguments)
        .prop_map(|(tool, arguments)| rule(tool, &arguments));
    vec(one, 0..3)
}

fn layer() -> impl Strategy<Value = Layer> {
    let modes =
        [Mode::Allow, Mode::ReadOnly, Mode::WorkspaceWrite, Mode::AskWrites, Mode::Prompt, Mode::Deny].map(Just);
    let [allow, read, write, ask, prompt, deny] = modes;
    (prop_oneof![allow, read, write, ask, prompt, deny], rules(), rules(), rules())
        .prop_map(|(mode, allow, ask, deny)| Layer { mode, allow, ask, deny, ..Layer::default() })
}

proptest! {
    /// Whatever a request says, it only tightens; the order of layers decides no verdict; and a tool that is withheld is
    /// denied with any arguments.
    #[test]
    fn a_layer_only_tightens(
        layers in vec(layer(), 0..4),
        more in layer(),
        tool in prop_oneof![Just("a"), Just("ab"), Just("b")],
        effect in prop_oneof![Just(Effect::Read), Just(Effect::Idempotent), Just(Effect::Write)],
        arguments in prop_oneof![
            Just("{}"), Just(""), Just("{"), Just(r#"{"p":1}"#), Just(r#"{"p":[1,2],"q":{"r":2}}"#)
        ],
    ) {
        let of = |layers: &[Layer]| judge(layers.to_vec(), tool, effect, arguments);
        let before = of(&layers);
        let all: Vec<_> = layers.iter().cloned().chain([more.clone()]).collect();
        let after = of(&all);
        prop_assert!(after.verdict >= before.verdict);
        prop_assert_eq!(after.verdict, before.verdict.max(of(&[more]).verdict));
        let reversed: Vec<_> = all.iter().rev().cloned().collect();
        prop_assert_eq!(of(&reversed).verdict, after.verdict);
        prop_assert_eq!(after.reason.is_empty(), after.verdict == Verdict::Allow);
        let policy = policy(all);
        prop_assert!(!policy.always_denies(tool, effect) || after.verdict == Verdict::Deny);
    }
}
