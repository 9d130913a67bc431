//! What is said about the difference of two configurations.

use std::fs;
use std::net::SocketAddr;

use insta::assert_snapshot;

use super::{load, load_with};
use crate::config::{Change, Counts, Options, Settings};

const ENV: [(&str, &str); 2] = [("KEY", "hush-one"), ("OTHER", "hush-two")];

fn changes(old: &str, new: &str) -> Vec<Change> {
    let read = |text: &str| load_with(text, &Options::default(), &ENV).unwrap();
    read(old).changes_to(&read(new))
}

/// The changes, one a line; those that need a restart have a star.
fn described(old: &str, new: &str) -> String {
    let lines = changes(old, new).into_iter().map(|change| match change.counts {
        Counts::AtReload => change.to_string(),
        Counts::AtRestart => format!("* {change}"),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_file_does_not_differ_from_itself_or_from_one_that_writes_the_defaults_out() {
    let example = fs::read_to_string(super::root().join("loopgate.example.toml")).unwrap();
    let env = [("OPENAI_API_KEY", "sk-1"), ("WEATHER_KEY", "sunny"), ("LOOPGATE_OPERATOR_KEY", "lg_1")];
    let read = || load_with(&example, &Options::default(), &env).unwrap();
    assert_eq!(read().changes_to(&read()), []);
    assert_eq!(changes("", "server.max_connections = 10000\n[agents.default.limits]\ntimeout = '5m'"), []);
}

#[test]
fn backups_change_at_a_restart() {
    let described = described("", "[store.backup]\ndirectory = '/b'");
    assert!(described.contains("store.backup") && described.lines().all(|line| line.starts_with("* ")), "{described}");
}

#[test]
fn changes_are_named_by_path_with_their_values() {
    let old = "
        [server]
        max_body = '1MiB'
        rate_limit.requests_per_minute = 5
        [store]
        run_ttl = '1h'
        [upstreams.a]
        base_url = 'http://localhost:1/v1'
        [upstreams.b]
        kind = 'demo'
        [agents.small]
        model = 'b/demo'
        [tools.t]
        description = 'd'
        url = 'http://localhost'
        ";
    let new = "
        [server]
        max_body = '2MiB'
        rate_limit.requests_per_minute = 6
        [store]
        run_ttl = '2h'
        [upstreams.a]
        base_url = 'http://localhost:2/v1'
        models = ['m']
        [agents.default.limits]
        timeout = '1m'
        token_budget = 7
        [agents.large]
        [tools.t]
        description = 'd'
        url = 'http://localhost'
        effect = 'read'
        [tools.t.headers]
        accept = 'text/plain'
        ";
    assert_snapshot!(described(old, new), @r#"
    agents.default.limits.timeout: "60s", was "300s"
    agents.default.limits.token_budget: 7, was absent
    agents.large: added
    agents.small: removed
    * server.max_body: "2MiB", was "1MiB"
    server.rate_limit.requests_per_minute: 6, was 5
    * store.run_ttl: "2h", was "1h"
    tools.t.effect: "read", was "write"
    tools.t.headers.accept: added
    upstreams.a.base_url: "http://localhost:2/v1", was "http://localhost:1/v1"
    upstreams.a.models: ["m"], was absent
    upstreams.b: removed
    "#);
}

#[test]
fn what_an_agent_inherits_changes_with_the_default_agent() {
    let agent = "[agents.a]\n[agents.default]\n";
    let old = format!("{agent}system = 'Be brief.'\nlimits.cost_budget_usd = 1\n");
    let new = format!("{agent}system = 'Be kind.'\nlimits.cost_budget_usd = 2\n");
    assert_snapshot!(described(&old, &new), @r#"
    agents.a.limits.cost_budget_usd: 2.0, was 1.0
    agents.a.system: "Be kind.", was "Be brief."
    agents.default.limits.cost_budget_usd: 2.0, was 1.0
    agents.default.system: "Be kind.", was "Be brief."
    "#);
}

#[test]
fn secrets_are_compared_and_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    let text = |env: &str, header: &str, path: &str| {
        format!(
            "
            [upstreams.a]
            api_key_file = {file:?}
            [upstreams.b]
            api_key_env = '{env}'
            [tools.t]
            description = 'd'
            url = 'http://localhost/{path}?key=hush-{path}'
            headers = {{ a = '{header}', b = {{ env = '{env}' }} }}
            [keys.k]
            key_env = '{env}'
            "
        )
    };
    fs::write(&file, "hush-file").unwrap();
    let old = load_with(&text("KEY", "hush-a", "x"), &Options::default(), &ENV).unwrap();
    fs::write(&file, "hush-other").unwrap();
    let same_text = load_with(&text("KEY", "hush-a", "x"), &Options::default(), &ENV).unwrap();
    let changes: Vec<_> = old.changes_to(&same_text).iter().map(ToString::to_string).collect();
    assert_eq!(changes, ["upstreams.a.api_key_file: changed"]);

    let shown = described(&text("KEY", "hush-a", "x"), &text("OTHER", "hush-b", "y"));
    assert!(!shown.contains("hush"), "{shown}");
    assert_snapshot!(shown, @r#"
    keys.k.key_env: "OTHER", was "KEY"
    tools.t.headers.a: changed
    tools.t.headers.b: changed
    tools.t.headers.b.env: "OTHER", was "KEY"
    tools.t.url: changed
    upstreams.b.api_key_env: "OTHER", was "KEY"
    "#);
    let store = |password: &str| format!("store.url = 'redis://u:{password}@h'");
    assert_snapshot!(described(&store("hush-1"), &store("hush-2")), @"* store.url: changed");
    assert!(!format!("{old:?}").contains("hush"), "{old:?}");
}

#[test]
fn a_running_server_keeps_what_is_read_at_the_start_only() {
    let running = load("server.max_body = '1MiB'\nserver.rate_limit.requests_per_minute = 5\nstore.run_ttl = '1h'");
    let next = load("server.max_body = '2MiB'\nserver.rate_limit.requests_per_minute = 6\nstore.run_ttl = '2h'");
    let taken_over = next.clone().while_running(&running);
    assert_eq!((taken_over.server.max_body, taken_over.server.requests_per_minute), (1 << 20, Some(6)));
    assert_eq!(taken_over.store.run_ttl, running.store.run_ttl);
    let left: Vec<_> = taken_over.changes_to(&next).into_iter().map(|change| change.path).collect();
    assert_eq!(left, ["server.max_body", "store.run_ttl"], "they are named again by the next reload");
}

#[test]
fn the_environment_is_compared_like_a_file() {
    let load = |key| load_with("", &Options::default(), &[("OPENAI_API_KEY", key)]).unwrap();
    let changes_to =
        |next: &Settings| load("sk-1").changes_to(next).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(changes_to(&load("sk-2")), ["upstreams.openai.api_key_env: changed"]);
    let mut local = load("sk-1");
    local.name_found_upstream("ollama", "here".to_owned());
    assert_eq!(changes_to(&local), ["upstreams.ollama: added", "upstreams.openai: removed"]);
}

#[test]
fn a_file_that_is_gone_or_lets_everyone_in_replaces_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("loopgate.toml");
    let key = "keys.a.key_env = 'KEY'\n";
    let lookup = |name: &str| ENV.iter().find(|(known, _)| *known == name).map(|&(_, value)| value.to_owned());
    fs::write(&file, format!("{key}server.listen = '0.0.0.0:80'")).unwrap();
    let running = Settings::load_from(directory.path(), &Options::default(), &lookup).unwrap();
    assert!(running.load_again(&Options::default(), &lookup).is_ok());

    let listen: SocketAddr = ([127, 0, 0, 1], 80).into();
    fs::write(&file, format!("server.listen = '{listen}'")).unwrap();
    let open = running.load_again(&Options::default(), &lookup).unwrap_err().to_string();
    assert!(open.starts_with("keys: other machines reach 0.0.0.0:80"), "{open}");
    let insecure = Options { insecure_no_auth: true, ..Options::default() };
    assert!(running.load_again(&insecure, &lookup).is_ok());

    fs::remove_file(&file).unwrap();
    let gone = running.load_again(&Options::default(), &lookup).unwrap_err().to_string();
    assert!(gone.contains("cannot be read"), "{gone}");
}
