//! What is said about mistakes, each with its line.

use std::fs;

use insta::assert_snapshot;
use proptest::prelude::*;

use super::{load_with, mistakes, root};
use crate::config::Options;

const HASH: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

#[test]
fn mistakes_do_not_repeat_secrets() {
    let text = "
        [upstreams.a]
        api_key = 'hush'
        base_url = 'https://user:hush@example.com'
        [upstreams.b]
        base_url = 'https://example.com?key=hush'
        connect_timeout = 'hush'
        kind = 'hush'
        [keys.k]
        key_sha256 = 'hush'
        [tools.t]
        description = 'd'
        url = 'https://hush@example.com'
        effect = 'hush'
        method = 'hush'
        headers = { a = \"hush\\u0001\", b = ['hush'] }
        [server]
        listen = 'hush'
        max_body = 'hush'
        cors_origins = ['hush']
        [store]
        url = 'hush'
        ";
    let shown = mistakes(text);
    assert!(shown.lines().count() >= 14, "{shown}");
    assert!(!shown.contains("hush"), "{shown}");
    let broken = mistakes("[server]\nlisten = \"hush\n");
    assert!(!broken.contains("hush"), "{broken}");
}

#[test]
fn broken_syntax_is_reported_alone() {
    assert_snapshot!(mistakes("[server]\nlisten = \nmax_body = 1\nmax_body = 2\nmax = 3\n[store\n"), @"
    loopgate.toml:2: string values must be quoted, expected literal string
    loopgate.toml:4: max_body is there twice
    loopgate.toml:6: unclosed table, expected `]`
    ");
    assert_snapshot!(mistakes("[agents.a]\n[tools.b]\n[agents.a]\n"), @"loopgate.toml:3: a is there twice");
}

#[test]
fn unknown_keys_name_the_nearest_known_one() {
    assert_snapshot!(mistakes(r#"
[server]
max_bdy = "1MiB"
port = 8080
[sevrer]
[plugins.github]
[agents.default]
max_iterations = 3
teammates = []
[agents.default.limits]
timout = "1s"
[models."gpt-5.1"]
price = { input = 1, ouput = 2 }
[keys.a]
scopes = ["runs"]
[upstreams.d]
kind = "demo"
base_url = "http://localhost"
[tools.t]
description = "d"
url = "http://localhost"
headers = { a = { evn = "X" } }
"#), @r#"
    loopgate.toml:3: server.max_bdy: unknown key; did you mean `max_body`?
    loopgate.toml:4: server.port: unknown key; known here: listen, max_body, max_inbox, body_memory, reader_memory, run_memory, max_connections, max_connections_per_address, header_timeout, keep_alive, write_timeout, drain_delay, drain_timeout, cors_origins, hosts, public_url, rate_limit
    loopgate.toml:5: sevrer: unknown key; did you mean `server`?
    loopgate.toml:6: plugins: unknown key; known here: upstream, server, store, metrics, traces, egress, upstreams, prices, models, mcp, mcpServers, mcp_file, request_mcp, guard, agents, tools, workspace, memory, skills, openapi, layers, policy, hooks, keys, tokens
    loopgate.toml:8: agents.default.max_iterations: unknown key; known here: profile, description, model, chain, parallel, consolidate, fallbacks, hedge_after, system, tools, on_limit, stream, context, max_offered_tools, always_offered, tool_errors, loop_guard, planning, reflection, memory, files, user_files, skills, delegates, delegation, handoffs, handoff, trace_content, limits, policy, approval, input_guard, sanitize_output, allow_no_reply, guardrails, prompt, layers
    loopgate.toml:9: agents.default.teammates: unknown key; known here: profile, description, model, chain, parallel, consolidate, fallbacks, hedge_after, system, tools, on_limit, stream, context, max_offered_tools, always_offered, tool_errors, loop_guard, planning, reflection, memory, files, user_files, skills, delegates, delegation, handoffs, handoff, trace_content, limits, policy, approval, input_guard, sanitize_output, allow_no_reply, guardrails, prompt, layers
    loopgate.toml:11: agents.default.limits.timout: unknown key; did you mean `timeout`?
    loopgate.toml:13: models."gpt-5.1".price: `output` is missing: price of a million output tokens
    loopgate.toml:13: models."gpt-5.1".price.ouput: unknown key; did you mean `output`?
    loopgate.toml:14: keys.a: needs key_sha256 or key_env
    loopgate.toml:15: keys.a.scopes: must be "run" or "read" or "approvals" or "steer" or "cancel" or "sessions" or "memory" or "skills" or "usage" or "metrics" or "tools" or "agents" or "schedules" or "operator"
    loopgate.toml:18: upstreams.d.base_url: unknown key; known here: kind
    loopgate.toml:22: tools.t.headers.a: give a string, or a table with either env or file
    loopgate.toml:22: tools.t.headers.a.evn: unknown key; did you mean `env`?
    "#);
}

#[test]
fn every_kind_of_mistake_of_server_and_store() {
    assert_snapshot!(mistakes(r#"
[server]
listen = "localhost:8080"
max_body = "10MB"
max_connections = 0
drain_delay = 5
drain_timeout = "-1s"
cors_origins = ["https://a.example", "https://b.example/",
  "b.example"]
rate_limit = 60
[store]
url = "postgres://localhost"
session_ttl = "0s"
run_ttl = "40000d"
"#), @r#"
    loopgate.toml:3: server.listen: this is not an address and port such as "127.0.0.1:8080" or "[::1]:8080"
    loopgate.toml:4: server.max_body: this is not a size such as "512KiB", "10MiB", "1GiB" or a number of bytes
    loopgate.toml:5: server.max_connections: must be an integer from 1 to 4294967295
    loopgate.toml:6: server.drain_delay: expected a duration such as "500ms", "30s", "5m", "24h" or "30d", found an integer
    loopgate.toml:7: server.drain_timeout: this is not a duration such as "500ms", "30s", "5m", "24h" or "30d"
    loopgate.toml:8: server.cors_origins: this is not an origin such as "https://chat.example.com", without a path, or "*"
    loopgate.toml:10: server.rate_limit: expected a table, [server.rate_limit], found an integer
    loopgate.toml:12: store.url: must be "embedded:DIR", "memory:" or a Redis URL
    loopgate.toml:13: store.session_ttl: must be longer than 0s
    loopgate.toml:14: store.run_ttl: must be at most "36500d"
    "#);
}

#[test]
fn every_kind_of_mistake_of_upstreams_and_models() {
    assert_snapshot!(mistakes(r#"
[upstreams."a/b"]
base_url = "localhost:1"
api_key_env = "UNSET"
[upstreams.c]
kind = "palm"
base_url = "http://user:password@localhost/v1"
api_key_env = "A"
api_key_file = "B"
models = "gpt-5"
[upstreams.d]
base_url = "http://localhost/v1?key=1"
api_key_file = "/does/not/exist"
connect_timeout = "0s"
recover_text_tool_calls = "yes"
[upstreams.e]
base_url = "http://localhost/v1/chat/completions"
[upstreams.f]
kind = "anthropic"
base_url = "http://localhost/v1/messages"
anthropic_version = "2023\\n"
anthropic_beta = ["a b"]
max_tokens = 0
recover_text_tool_calls = true
[models.m]
context_window = 1.5
price = { input = -1 }
[models]
n = 3
"#), @r#"
    loopgate.toml:2: upstreams."a/b": a name is 1 to 64 of A-Z a-z 0-9 . _ - and not only dots
    loopgate.toml:3: upstreams."a/b".base_url: this is not a URL such as "http://localhost:11434/v1"
    loopgate.toml:4: upstreams."a/b".api_key_env: the environment variable UNSET is unset or empty
    loopgate.toml:6: upstreams.c.kind: must be "openai" or "openai_responses" or "anthropic" or "gemini" or "demo"
    loopgate.toml:7: upstreams.c.base_url: must not hold a user or password; name the key with api_key_env or api_key_file
    loopgate.toml:9: upstreams.c.api_key_file: give api_key_env or api_key_file, not both
    loopgate.toml:10: upstreams.c.models: expected a list of strings in brackets, found a string
    loopgate.toml:12: upstreams.d.base_url: must end with the path, without ? and #; name parameters in query
    loopgate.toml:13: upstreams.d.api_key_file: /does/not/exist cannot be read: No such file or directory (os error 2)
    loopgate.toml:14: upstreams.d.connect_timeout: must be longer than 0s
    loopgate.toml:15: upstreams.d.recover_text_tool_calls: expected true or false, found a string
    loopgate.toml:17: upstreams.e.base_url: must end before /chat/completions, which is appended
    loopgate.toml:20: upstreams.f.base_url: must end before /messages, which is appended
    loopgate.toml:21: upstreams.f.anthropic_version: must be a word of letters, digits, `-`, `_` and `.`
    loopgate.toml:22: upstreams.f.anthropic_beta: must be words of letters, digits, `-`, `_` and `.`
    loopgate.toml:23: upstreams.f.max_tokens: must be an integer from 1 to 9007199254740992
    loopgate.toml:24: upstreams.f.recover_text_tool_calls: unknown key; known here: kind, base_url, base_urls, api_key_env, api_key_envs, api_key_file, api_key_files, balance, address_cooldown, key_cooldown, max_concurrent_calls, headers, query, ca_file, client_cert_file, client_key_file, proxy, proxy_login_env, proxy_login_file, models, connect_timeout, first_byte_timeout, idle_timeout, free, allow_uncounted_cost, anthropic_version, anthropic_beta, max_tokens, prompt_cache, needed, breaker
    loopgate.toml:26: models.m.context_window: expected an integer from 1 to 9007199254740992, found a float
    loopgate.toml:27: models.m.price: `output` is missing: price of a million output tokens
    loopgate.toml:27: models.m.price.input: must be a number of US dollars from 0 to 1000000000
    loopgate.toml:29: models.n: expected a table, [models.n], found an integer
    "#);
}

#[test]
fn every_kind_of_mistake_of_agents() {
    assert_snapshot!(mistakes(r#"
[upstreams.openai]
models = ["gpt-5", "vendor/model"]
[agents."two words"]
model = "opneai/gpt-5"
[agents.a]
model = "gpt-6"
tools = ["web fetch"]
on_limit = "give up"
[agents.a.limits]
max_iterations = 201
timeout = "0s"
tool_timeout = 120
token_budget = 0
cost_budget_usd = 0.0
[agents.b]
model = "openai/"
[agents.c]
model = ""
[agents.d]
tools = ["calculator", "calculater", "current_tim"]
[agents.e]
tools = ["*_time", "web__*"]
[agents.fine]
model = "openai/unheard-of"
tools = ["c*", "look_up"]
[tools.look_up]
description = "Looks up"
url = "http://localhost/look"
[agents.fine-too]
model = "vendor/model"
"#), @r#"
    loopgate.toml:4: agents."two words": a name is 1 to 64 of A-Z a-z 0-9 . _ - and not only dots
    loopgate.toml:5: agents."two words".model: there is no upstream `opneai`; did you mean `openai`?
    loopgate.toml:7: agents.a.model: no upstream lists the model `gpt-6`; add it to an upstream's models
    loopgate.toml:8: agents.a.tools: a tool's name has only characters of A-Z a-z 0-9 _ -, and * for any characters
    loopgate.toml:9: agents.a.on_limit: must be "stop" or "synthesize" or "error"
    loopgate.toml:11: agents.a.limits.max_iterations: must be an integer from 1 to 200
    loopgate.toml:12: agents.a.limits.timeout: must be longer than 0s
    loopgate.toml:13: agents.a.limits.tool_timeout: expected a duration such as "500ms", "30s", "5m", "24h" or "30d", found an integer
    loopgate.toml:14: agents.a.limits.token_budget: must be an integer from 1 to 9007199254740992
    loopgate.toml:15: agents.a.limits.cost_budget_usd: must be above 0; leave it out for no limit
    loopgate.toml:17: agents.b.model: expected UPSTREAM/MODEL, found no model after the slash
    loopgate.toml:19: agents.c.model: expected UPSTREAM/MODEL, found nothing
    loopgate.toml:20: agents.d: it has no model, and the upstreams have several: name one of them in its `model`
    loopgate.toml:21: agents.d.tools: there is no tool `calculater`; did you mean `calculator`?
    loopgate.toml:22: agents.e: it has no model, and the upstreams have several: name one of them in its `model`
    loopgate.toml:23: agents.e.tools: no tool is named like `web__*`; known here: calculator, current_time, json_query, ask_user, look_up
    "#);
}

#[test]
fn every_kind_of_mistake_of_tools() {
    assert_snapshot!(mistakes(r#"
[tools."a.b"]
kind = "grpc"
method = "HEAD"
effect = "none"
[tools.b]
description = "d"
url = "https://{host}/x"
headers = { "a b" = "x", c = 1, d = {}, e = { env = "A", file = "B" }, f = { env = "UNSET" } }
parameters = { type = "string" }
timeout = "1"
max_response = 0
send_identity = "user"
[tools.c]
description = "d"
url = "https://example.com/{city"
parameters = { type = "object", properties = { city = { type = "strin" } } }
[tools.d]
description = "d"
url = "ftp://example.com/{city}"
parameters = { type = "object", default = 1979-05-27 }
[tools.e]
description = "d"
url = "https://example.com/{city}"
parameters = "object"
[tools.f]
description = "d"
url = "https://example.com/{city}"
send_identity = ["name"]
"#), @r#"
    loopgate.toml:2: tools."a.b": a tool's name has 1 to 64 characters of A-Z a-z 0-9 _ -
    loopgate.toml:2: tools."a.b": `description` is missing: what the tool does; the model decides by it when to call the tool
    loopgate.toml:2: tools."a.b": `url` is missing: URL of the endpoint; `{name}` in its path or query is replaced by the argument `name`
    loopgate.toml:3: tools."a.b".kind: must be "http"
    loopgate.toml:4: tools."a.b".method: must be "GET" or "POST" or "PUT" or "PATCH" or "DELETE"
    loopgate.toml:5: tools."a.b".effect: must be "read" or "idempotent" or "write"
    loopgate.toml:8: tools.b.url: the host must be written out: arguments come from the model
    loopgate.toml:9: tools.b.headers."a b": this is not the name of an HTTP header
    loopgate.toml:9: tools.b.headers.c: expected a table, [tools.b.headers.c], found an integer
    loopgate.toml:9: tools.b.headers.d: give a string, or a table with either env or file
    loopgate.toml:9: tools.b.headers.e: give a string, or a table with either env or file
    loopgate.toml:9: tools.b.headers.f: the environment variable UNSET is unset or empty
    loopgate.toml:10: tools.b.parameters: must be a table with type = "object"
    loopgate.toml:11: tools.b.timeout: this is not a duration such as "500ms", "30s", "5m", "24h" or "30d"
    loopgate.toml:12: tools.b.max_response: must be an integer from 1 to 9223372036854775807
    loopgate.toml:13: tools.b.send_identity: expected a list of "tenant", "session", "user", "metadata", found a string
    loopgate.toml:16: tools.c.url: each { needs its } and a name between
    loopgate.toml:17: tools.c.parameters: this is not a JSON schema, see /properties/city/type: "strin" is not valid under any of the schemas listed in the 'anyOf' keyword
    loopgate.toml:20: tools.d.url: this is not a URL such as "https://api.example.com/weather?city={city}"
    loopgate.toml:21: tools.d.parameters: JSON knows no dates; write it as a string
    loopgate.toml:25: tools.e.parameters: must be a table with type = "object"
    loopgate.toml:28: tools.f.url: {city} is none of parameters.properties
    loopgate.toml:29: tools.f.send_identity: must be "tenant" or "session" or "user" or "metadata"
    "#);
}

#[test]
fn every_kind_of_mistake_of_keys() {
    let text = format!(
        r#"
[keys."a b"]
key_sha256 = "lg_0123"
[keys.b]
tenant = ".."
[keys.c]
key_sha256 = "{HASH}"
key_env = "C"
[keys.d]
key_env = "UNSET"
agents = ["resaercher", "default"]
requests_per_minute = 0
[keys.e]
key_sha256 = "{HASH}"
[keys.f]
key_sha256 = "{HASH}"
[agents.researcher]
"#
    );
    assert_snapshot!(mistakes(&text), @r#"
    loopgate.toml:2: keys."a b": a name is 1 to 64 of A-Z a-z 0-9 . _ - and not only dots
    loopgate.toml:3: keys."a b".key_sha256: must be 64 hex digits: the SHA-256 of a key, not the key
    loopgate.toml:4: keys.b: needs key_sha256 or key_env
    loopgate.toml:5: keys.b.tenant: a tenant has 1 to 128 characters of A-Z a-z 0-9 . _ : - and is not only dots
    loopgate.toml:8: keys.c.key_env: give key_sha256 or key_env, not both
    loopgate.toml:10: keys.d.key_env: the environment variable UNSET is unset or empty
    loopgate.toml:11: keys.d.agents: there is no agent `resaercher`; did you mean `researcher`?
    loopgate.toml:12: keys.d.requests_per_minute: must be an integer from 1 to 4294967295
    loopgate.toml:15: keys.f: is the same key as keys.e
    "#);
}

#[test]
fn every_kind_of_mistake_of_what_a_key_may_take() {
    let text = format!(
        r#"
[keys.a]
key_sha256 = "{HASH}"
token_budget = {{ limit = 0, per = "year" }}
cost_budget_usd = {{ per = "day" }}
max_concurrent_runs = 0
[keys.b]
key_sha256 = "{HASH}"
token_budget = 5
[keys.b.cost_budget_usd]
limit = -1
each = "day"
"#
    );
    assert_snapshot!(mistakes(&text), @r#"
    loopgate.toml:4: keys.a.token_budget.limit: must be an integer from 1 to 9007199254740992
    loopgate.toml:4: keys.a.token_budget.per: must be "day" or "month"
    loopgate.toml:5: keys.a.cost_budget_usd: `limit` is missing: most that all runs with this key may cost together
    loopgate.toml:6: keys.a.max_concurrent_runs: must be an integer from 1 to 4294967295
    loopgate.toml:7: keys.b: is the same key as keys.a
    loopgate.toml:9: keys.b.token_budget: `limit` is missing: most input and output tokens of all runs with this key together
    loopgate.toml:9: keys.b.token_budget: expected a table, [keys.b.token_budget], found an integer
    loopgate.toml:11: keys.b.cost_budget_usd.limit: must be a number of US dollars from 0 to 1000000000
    loopgate.toml:12: keys.b.cost_budget_usd.each: unknown key; known here: limit, per
    "#);
}

#[test]
fn an_address_that_other_machines_reach_needs_keys() {
    let open = "[server]\nlisten = '0.0.0.0:80'";
    assert_snapshot!(mistakes(open), @"loopgate.toml:2: server.listen: other machines reach 0.0.0.0:80, so callers need keys: declare them as [keys.NAME], listen on 127.0.0.1, or accept everyone with --insecure-no-auth");
    let flag = Options { listen: Some(([0, 0, 0, 0], 80).into()), ..Options::default() };
    assert_snapshot!(load_with("", &flag, &[]).unwrap_err(), @"--listen: other machines reach 0.0.0.0:80, so callers need keys: declare them as [keys.NAME], listen on 127.0.0.1, or accept everyone with --insecure-no-auth");

    let no_key = "[keys]";
    assert!(load_with(no_key, &flag, &[]).is_err(), "an empty table declares no key");

    let insecure = Options { insecure_no_auth: true, ..flag.clone() };
    assert!(load_with("", &insecure, &[]).is_ok());
    assert!(load_with(&format!("keys.a.key_sha256 = '{HASH}'"), &flag, &[]).is_ok());
    let shut = Options { listen: Some(([127, 0, 0, 2], 80).into()), ..Options::default() };
    assert!(load_with(open, &shut, &[]).is_ok(), "the flag replaces the file's address");
    assert!(load_with("server.listen = '[::ffff:127.0.0.1]:80'", &Options::default(), &[]).is_ok());
}

proptest! {
    /// Whatever is torn out of a file or put in its place, what is wrong is said with its line.
    #[test]
    fn a_damaged_file_is_refused_or_read(start in 0..5_000_usize, length in 0..60_usize, patch in "[\\[\\]{}=\"'.,a-z0-9\n é-]{0,8}") {
        let mut text: Vec<char> =
            fs::read_to_string(root().join("loopgate.example.toml")).unwrap().chars().collect();
        let start = start % text.len();
        text.splice(start..(start + length).min(text.len()), patch.chars());
        let text: String = text.into_iter().collect();
        if let Err(errors) = load_with(&text, &Options::default(), &[]) {
            let lines = text.lines().count() + 1;
            for mistake in errors.0 {
                let line = mistake.place.as_ref().map_or(0, |&(_, line)| line);
                prop_assert!((1..=lines).contains(&line), "{mistake}");
            }
        }
    }
}
