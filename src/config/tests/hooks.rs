//! Hooks.

use insta::assert_snapshot;

use super::{load, load_with, mistakes};
use crate::config::{HookAction, HookConfig, Options};
use crate::types::guard::GuardrailRule;
use crate::types::hook::HookPoint;

const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

fn hook(text: &str) -> HookConfig {
    load_with(text, &Options::default(), &[("KEY", SECRET), ("PATH", "/bin"), ("OPENAI_API_KEY", "sk-1")])
        .unwrap()
        .hooks
        .remove(0)
}

#[test]
fn a_webhook_is_asked_before_calls_and_fails_closed_unless_more_is_said() {
    let audit = hook(
        "[hooks.audit]\non = 'before_tool'\naction = 'webhook'\nurl = 'http://10.0.0.1/audit?key=sk-1'\nsecret_env = 'KEY'\n",
    );
    assert_eq!(
        (audit.points.as_slice(), audit.is_asked, audit.fails_open),
        ([HookPoint::BeforeTool].as_slice(), true, false)
    );
    let HookAction::Webhook(webhook) = &audit.action else { panic!("{audit:?}") };
    assert_eq!(webhook.secrets[0].0, (0..24).collect::<Vec<u8>>());
    assert!(audit.concerns("default", None) && audit.concerns("x", Some("u")));
    let shown = format!("{audit:?}");
    assert!(!shown.contains("sk-1") && !shown.contains("whsec") && !shown.contains("[0, 1"), "{shown}");
}

#[test]
fn nothing_waits_where_what_happened_cannot_be_changed() {
    let webhook = |rest: &str| hook(&format!("[hooks.a]\naction = 'webhook'\nurl = 'https://a.test'\n{rest}"));
    assert!(!webhook("on = 'run_end'").is_asked);
    assert!(!webhook("on = ['run_end', 'budget_warning']").is_asked);
    assert!(!webhook("on = ['run_start', 'run_end']\nwait = false").is_asked);
    assert!(webhook("on = ['run_start', 'after_tool']").is_asked);
    assert!(!hook("[hooks.a]\non = 'before_tool'\naction = 'notify'\nurl = 'https://a.test'").is_asked);
}

#[test]
fn agents_and_users_are_named_by_patterns() {
    let of = hook("[hooks.a]\non = 'run_end'\naction = 'log'\nagents = ['r*']\nusers = ['u-*']\n");
    assert!(of.concerns("researcher", Some("u-1")));
    assert!(!of.concerns("default", Some("u-1")) && !of.concerns("r", Some("v")) && !of.concerns("r", None));
}

#[test]
fn a_program_is_given_nothing_of_the_environment_but_what_programs_need() {
    let ask = hook(
        "[hooks.a]\non = 'before_tool'\naction = 'command'\ncommand = ['sh', '-c']\nargs = ['exit 2']\nenv = { A = '1' }\n",
    );
    let HookAction::Command(command) = ask.action else { panic!() };
    let env: Vec<_> = command.env.iter().map(|(name, value)| format!("{name}={}", value.expose())).collect();
    assert_eq!((command.arguments, env), (vec!["-c".into(), "exit 2".into()], vec!["A=1".into(), "PATH=/bin".into()]));
}

#[test]
fn a_hook_that_guardrails_ask_stands_nowhere_else_and_guardrails_name_what_is_there() {
    const HOOK: &str = "[hooks.judge]\non = 'guardrail'\naction = 'webhook'\nurl = 'https://a.test'\n";
    const UPSTREAM: &str = "[upstreams.a]\nkind = 'openai'\nbase_url = 'http://10.0.0.1/v1'\nmodels = ['m']\n";
    let rail = |rest: &str| {
        format!("{UPSTREAM}[agents.default]\nguardrails = [{{ name = 'x', on = 'input', {rest} }}]\n{HOOK}")
    };
    let read = |text: &str| load_with(text, &Options::default(), &[]);
    let settings =
        read(&rail("kind = 'model', model = 'a/m', prompt = 'Fail.', on_failure = 'allow', timeout = '5s'")).unwrap();
    let GuardrailRule::Model(judge) = &settings.agents["default"].guards.guardrails[0].rule else { panic!() };
    assert_eq!((judge.timeout_ms, judge.max_output_tokens, judge.fails_open), (5_000, 512, true));
    let settings = read(&rail("kind = 'webhook', hook = 'judge'")).unwrap();
    let rule = &settings.agents["default"].guards.guardrails[0].rule;
    assert_eq!(*rule, GuardrailRule::Webhook { hook: "judge".to_owned(), fails_open: false });
    for (rest, what) in [
        ("kind = 'webhook'", "a guardrail of this kind needs `hook`"),
        ("kind = 'webhook', hook = 'jugde'", "there is no hook `jugde`; did you mean `judge`?"),
        (
            "kind = 'webhook', hook = 'judge', prompt = 'x'",
            "a guardrail with kind = \"webhook\" does nothing with this",
        ),
        ("kind = 'model', model = 'b/m', prompt = 'x'", "there is no upstream `b`"),
        ("kind = 'model', model = 'a/m', prompt = ''", "must be a text of 1 to"),
        ("kind = 'model', model = 'a/m', prompt = 'x', max_output_tokens = 0", "must be an integer from 1 to 32768"),
        ("kind = 'model', model = 'a/m', prompt = 'x', timeout = '1h'", "must be no longer than 10m"),
        ("kind = 'model', model = 'a/m', prompt = 'x', on_failure = 'ask'", "must be \"deny\" or \"allow\""),
    ] {
        let told = mistakes(&rail(rest));
        assert!(told.contains(what), "{rest}: {told}");
    }
    for (more, what) in [
        ("tools = ['x']\n", "the guardrails that ask the hook say what is judged"),
        ("on_failure = 'allow'\n", "the guardrails that ask the hook say what is judged"),
    ] {
        let told = mistakes(&format!("{HOOK}{more}"));
        assert!(told.contains(what), "{more}: {told}");
    }
    let elsewhere = "[hooks.b]\non = ['guardrail', 'before_tool']\naction = 'webhook'\nurl = 'https://a.test'\n";
    assert!(mistakes(elsewhere).contains("stands at no other point"));
}

#[test]
fn mistakes_in_hooks_are_told() {
    assert_snapshot!(mistakes(
        "[hooks.a]\naction = 'webhook'\n\
         [hooks.b]\non = 'before_tools'\naction = 'block'\n\
         [hooks.c]\non = []\naction = 'log'\n\
         [hooks.d]\non = 'before_tool'\naction = 'log'\nurl = 'https://a.test'\nwait = true\n\
         [hooks.e]\non = ['before_tool', 'run_end']\naction = 'webhook'\nurl = 'ftp://a.test'\n\
         [hooks.f]\non = ['before_tool', 'run_end']\naction = 'webhook'\nurl = 'https://u:p@a.test'\n\
         [hooks.g]\non = ['before_tool', 'run_end']\naction = 'webhook'\nurl = 'https://a.test'\n\
         [hooks.h]\non = 'run_end'\naction = 'webhook'\nurl = 'https://a.test'\nwait = true\n\
         [hooks.i]\non = 'run_end'\naction = 'block'\n\
         [hooks.j]\non = 'after_tool'\naction = 'rewrite'\narguments = { a = 1 }\n\
         [hooks.k]\non = 'after_tool'\naction = 'rewrite'\n\
         [hooks.l]\non = 'before_tool'\naction = 'command'\n\
         [hooks.m]\non = 'run_end'\naction = 'notify'\nurl = 'https://a.test'\nsecret_env = 'NOT_SET'\nheaders = { webhook-id = 'x' }\n\
         [hooks.n]\non = 'before_tool'\naction = 'webhook'\ntimeout = '0s'\nurl = 'https://a.test'\non_failure = 'ask'\n"
    ), @r#"
    loopgate.toml:1: hooks.a: `on` is missing: where the hook stands: before the first model call, before and after calls of tools, where a call or a run failed, where four fifths of a budget are used, or at the end of a run; one of them, or a list. `guardrail`, which stands alone, is for hooks that guardrails ask
    loopgate.toml:1: hooks.a: `url` is missing: where the service is
    loopgate.toml:4: hooks.b.on: must be "run_start" or "before_tool" or "after_tool" or "on_error" or "budget_warning" or "run_end" or "guardrail"
    loopgate.toml:7: hooks.c.on: must name a point
    loopgate.toml:12: hooks.d.url: a hook with action = "log" does nothing with this
    loopgate.toml:13: hooks.d.wait: only a webhook or a command can be waited for, or not
    loopgate.toml:17: hooks.e.url: this is not a URL such as "https://hooks.example.com/audit"
    loopgate.toml:21: hooks.f.url: must not hold a user or password; name the secret in headers
    loopgate.toml:22: hooks.g.wait: say whether to wait: at budget_warning and run_end nothing waits, and at the other points runs do
    loopgate.toml:30: hooks.h.wait: nothing waits at budget_warning and run_end: what happened cannot be changed
    loopgate.toml:32: hooks.i.on: only at run_start, before_tool and after_tool is there something to refuse
    loopgate.toml:35: hooks.j.on: arguments are rewritten at before_tool
    loopgate.toml:38: hooks.k: a hook that rewrites needs `arguments` or `result`
    loopgate.toml:41: hooks.l: `command` is missing: the program
    loopgate.toml:48: hooks.m.secret_env: the environment variable NOT_SET is unset or empty
    loopgate.toml:49: hooks.m.headers.webhook-id: the server itself sends this header
    loopgate.toml:53: hooks.n.timeout: must be longer than 0s
    loopgate.toml:55: hooks.n.on_failure: must be "deny" or "allow"
    "#);
}

#[test]
fn what_would_make_a_hook_do_nothing_is_refused() {
    const HOOK: &str = "[hooks.a]\naction = 'webhook'\nurl = 'https://a.test'\n";
    for (keys, told) in [
        ("on = 'before_tool'\ntools = []", "hooks.a.tools: names nothing"),
        ("on = 'before_tool'\nagents = []", "hooks.a.agents: names nothing"),
        ("on = 'before_tool'\nusers = []", "hooks.a.users: names nothing"),
        (
            "on = ['run_start', 'run_end']\nwait = false\ntools = ['x']",
            "hooks.a.tools: no tool is called at these points",
        ),
        ("on = 'run_end'\non_failure = 'deny'", "hooks.a.on_failure: no run waits for this hook"),
        ("on = 'before_tool'\nwait = false\non_failure = 'allow'", "hooks.a.on_failure: no run waits for this hook"),
        ("on = 'before_tool'\ntools = ['github.delete']", "hooks.a.tools: a tool's name has only"),
        ("on = 'before_tool'\nretry_for = '1h'", "hooks.a.retry_for: runs wait for what this hook says"),
        ("on = 'run_end'\nmax_response = '1KiB'", "hooks.a.max_response: no run waits for this hook"),
        ("on = 'before_tool'\ntimeout = '11m'", "hooks.a.timeout: must be no longer than 10m"),
        ("on = 'run_end'\nretry_for = '8d'", "hooks.a.retry_for: must be no longer than 7d"),
    ] {
        let found = mistakes(&format!("{HOOK}{keys}\n"));
        assert!(found.contains(told) && found.lines().count() == 1, "{keys}: {found}");
    }
    for action in ["log", "metric", "block"] {
        let found = mistakes(&format!("[hooks.a]\non = 'before_tool'\naction = '{action}'\ntimeout = '1s'\n"));
        assert!(found.contains(&format!("hooks.a.timeout: a hook with action = \"{action}\" does nothing")), "{found}");
    }
    hook(&format!("{HOOK}on = ['before_tool', 'run_start']\ntools = ['x']\non_failure = 'allow'\ntimeout = '10m'"));
    hook(&format!("{HOOK}on = 'run_end'\nretry_for = '7d'"));
    hook(&format!("{HOOK}on = ['after_tool', 'on_error']\nretry_for = '7d'\nmax_response = '1KiB'"));
    hook("[hooks.a]\naction = 'command'\ncommand = ['sh']\non = 'run_end'\nmax_response = '1KiB'\n");
}

#[test]
fn a_secret_of_another_kind_is_refused_and_not_shown() {
    let text = "[hooks.a]\non = 'run_end'\naction = 'webhook'\nurl = 'https://a.test'\nsecret_env = 'KEY'\n";
    for secret in ["hunter2hunter2hunter2hunter2", "whsec_", "whsec_AAEC", "whsec_%%%%"] {
        let told = load_with(text, &Options::default(), &[("KEY", secret)]).unwrap_err().to_string();
        assert!(told.contains("hooks.a.secret_env") && told.contains("whsec_$(openssl"), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}

#[test]
fn changes_of_hooks_are_told_without_what_is_secret() {
    let with = |url: &str, key: &str| {
        let text = format!("[hooks.a]\non = 'run_end'\naction = 'webhook'\nurl = '{url}'\nsecret_env = 'KEY'\n");
        load_with(&text, &Options::default(), &[("KEY", key)]).unwrap()
    };
    let other = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH";
    let changes = |from: &str, to: &str, key: &str| {
        let changes = with(from, SECRET).changes_to(&with(to, key));
        changes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(changes("https://a.test/1", "https://a.test/2", SECRET), ["hooks.a.url: changed"]);
    assert_eq!(changes("https://a.test", "https://a.test", other), ["hooks.a.secret_env: changed"]);
    assert_eq!(load("").changes_to(&with("https://a.test", SECRET))[0].to_string(), "hooks.a: added");
}
