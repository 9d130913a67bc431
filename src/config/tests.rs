//! The configuration as a whole: what is found where.

mod agents;
mod answers_later;
mod context;
mod default_agent;
mod differences;
mod docs;
mod egress;
mod fallbacks;
mod hooks;
mod mcp;
mod memory;
mod mistakes;
mod openapi;
mod pools;
mod presets;
mod profiles;
mod prompts;
mod rules;
mod run_code;
mod secrets;
mod templates;
mod traces;
mod upstreams;
mod workspace;

use std::fs;
use std::path::Path;
use std::time::Duration;

use insta::assert_snapshot;

use super::*;
use crate::types::tool::WrittenCalls;
use crate::types::{Effect, Micros, Price};

fn load_with(text: &str, options: &Options, env: &[(&str, &str)]) -> Result<Settings, ConfigErrors> {
    let lookup = |name: &str| env.iter().find(|(known, _)| *known == name).map(|&(_, value)| value.to_owned());
    Settings::parse("loopgate.toml", text, options, &lookup)
}

fn load(text: &str) -> Settings {
    load_with(text, &Options::default(), &[]).unwrap()
}

fn mistakes(text: &str) -> String {
    load_with(text, &Options::default(), &[]).unwrap_err().to_string()
}

fn openai(settings: &Settings) -> &OpenAiUpstream {
    match &settings.upstreams[0].kind {
        UpstreamKind::OpenAi(openai) => openai,
        UpstreamKind::Responses(_)
        | UpstreamKind::Anthropic(_)
        | UpstreamKind::Gemini(_)
        | UpstreamKind::Demo
        | UpstreamKind::Embedded(_) => {
            panic!("expected an upstream of kind openai")
        }
    }
}

#[test]
fn nothing_written_is_all_defaults() {
    let settings = load("");
    assert_snapshot!(format!("{:#?}\n{:#?}", settings.server, settings.store), @r#"
    ServerConfig {
        listen: 127.0.0.1:8080,
        max_body: 10485760,
        max_inbox: 1048576,
        body_memory: 67108864,
        reader_memory: 67108864,
        run_memory: 201326592,
        max_connections: 10000,
        max_connections_per_address: None,
        header_timeout: 5s,
        keep_alive: 75s,
        write_timeout: 30s,
        drain_delay: None,
        drain_timeout: 30s,
        cors_origins: [],
        hosts: [],
        requests_per_minute: None,
        public_url: None,
    }
    StoreConfig {
        url: Embedded(
            "./data",
        ),
        backup: None,
        session_ttl: 2592000s,
        run_ttl: 86400s,
        wait_ttl: 604800s,
        history_cache: 67108864,
        memory_limit: 67108864,
        tenant_limit: 4294967296,
        usage_ttl: 34560000s,
        usage_rows: 2000,
    }
    "#);
}

#[test]
fn load_balancers_get_time_where_they_have_another_replica() {
    let delay = |text: &str| load(text).drain_delay();
    assert_eq!(delay(""), Duration::ZERO);
    assert_eq!(delay("store.url = 'redis://h'"), Duration::from_secs(5));
    assert_eq!(delay("server.drain_delay = '3s'"), Duration::from_secs(3));
    assert_eq!(delay("server.drain_delay = '0s'\nstore.url = 'redis://h'"), Duration::ZERO);
}

#[test]
fn an_embedded_store_is_backed_up_where_the_file_says() {
    let daily = BackupConfig { directory: "/b".into(), every: Duration::from_secs(86_400), keep: 7 };
    assert_eq!(load("store.backup.directory = '/b'").store.backup, Some(daily));
    let empty = mistakes("[store.backup]\nkeep = 0\n");
    assert!(
        empty.contains("`directory` is missing") && empty.contains("2: store.backup.keep: must be an integer from 1"),
        "{empty}"
    );
    let shared = mistakes("store.url = 'redis://h'\nstore.backup.directory = '/b'\n");
    assert!(shared.contains("only an `embedded:` store is copied by its server"), "{shared}");
}

#[test]
fn nothing_written_declares_nothing() {
    let settings = load("");
    assert!(settings.models.declared.is_empty() && settings.tools.is_empty() && settings.keys.is_empty());
}

#[test]
fn without_upstreams_the_environment_is_asked_and_then_the_demo_answers() {
    let demo = load("");
    assert!(matches!(demo.upstreams[..], [Upstream { kind: UpstreamKind::Demo, .. }]));
    assert!(demo.found_no_upstream());
    assert_eq!(demo.upstream_origin.to_string(), "none found: the built-in demo model");
    let empty = load_with("", &Options::default(), &[("OPENAI_API_KEY", ""), ("OPENAI_BASE_URL", "")]).unwrap();
    assert!(empty.found_no_upstream());
    let agent = "agents.default.model = 'openai/gpt-5'";
    assert!(load_with(agent, &Options::default(), &[("OPENAI_API_KEY", "sk-1")]).is_ok());
    assert_snapshot!(mistakes(agent), @"loopgate.toml:1: agents.default.model: there is no upstream `openai`; known here: demo");

    let keyed = load_with("", &Options::default(), &[("OPENAI_API_KEY", "sk-1")]).unwrap();
    assert_eq!(openai(&keyed).http.base_url().as_str(), "https://api.openai.com/v1");
    assert_eq!(openai(&keyed).http.api_keys[0].expose(), "sk-1");
    assert_eq!(openai(&keyed).written_calls, WrittenCalls::None);
    assert_eq!(
        (keyed.upstreams[0].name.as_str(), keyed.upstream_origin.to_string().as_str()),
        ("openai", "OPENAI_API_KEY")
    );

    let local = load_with("", &Options::default(), &[("OPENAI_BASE_URL", "http://localhost:11434/v1")]).unwrap();
    assert_eq!(openai(&local).http.base_url().as_str(), "http://localhost:11434/v1");
    assert!(openai(&local).http.api_keys.is_empty() && openai(&local).written_calls == WrittenCalls::Read);
    assert_eq!(openai(&local).http.idle_timeout, Duration::from_mins(1));
    assert_eq!(local.upstream_origin.to_string(), "OPENAI_BASE_URL");
    assert!(!local.found_no_upstream());

    let wrong = [("OPENAI_BASE_URL", "localhost:11434"), ("OPENAI_API_KEY", "sk\n1")];
    assert_snapshot!(load_with("", &Options::default(), &wrong).unwrap_err(), @r#"
    OPENAI_BASE_URL: this is not a URL such as "http://localhost:11434/v1"
    OPENAI_API_KEY: it holds characters that an HTTP header cannot carry
    "#);
}

#[test]
fn anthropic_is_found_in_the_environment_beside_openai() {
    let anthropic = |env: &[(&str, &str)]| {
        let settings = load_with("", &Options::default(), env).unwrap();
        let origin = settings.upstream_origin.to_string();
        let UpstreamKind::Anthropic(anthropic) = settings.upstreams.last().unwrap().kind.clone() else {
            panic!("expected an upstream of kind anthropic")
        };
        (settings.upstreams.len(), anthropic.http, origin)
    };
    let (count, http, origin) = anthropic(&[("ANTHROPIC_API_KEY", "sk-ant"), ("OPENAI_API_KEY", "sk-1")]);
    assert_eq!((count, origin.as_str()), (2, "OPENAI_API_KEY, ANTHROPIC_API_KEY"));
    assert_eq!(http.base_url().as_str(), "https://api.anthropic.com/v1");
    assert_eq!(http.api_keys[0].expose(), "sk-ant");
    for (given, expected) in [
        ("https://api.anthropic.com", "https://api.anthropic.com/v1"),
        ("https://gateway.example/claude/", "https://gateway.example/claude/v1"),
        ("https://gateway.example/v1", "https://gateway.example/v1"),
    ] {
        let (count, http, origin) = anthropic(&[("ANTHROPIC_BASE_URL", given)]);
        assert_eq!((count, http.base_url().as_str(), origin.as_str()), (1, expected, "ANTHROPIC_BASE_URL"));
    }
}

#[test]
fn gemini_is_found_in_the_environment_beside_others() {
    let gemini = |env: &[(&str, &str)]| {
        let settings = load_with("", &Options::default(), env).unwrap();
        let origin = settings.upstream_origin.to_string();
        let UpstreamKind::Gemini(gemini) = settings.upstreams.last().unwrap().kind.clone() else {
            panic!("expected an upstream of kind gemini")
        };
        (settings.upstreams.len(), gemini.http, origin)
    };
    let (count, http, origin) = gemini(&[("GEMINI_API_KEY", "AIza"), ("ANTHROPIC_API_KEY", "sk-1")]);
    assert_eq!((count, origin.as_str()), (2, "ANTHROPIC_API_KEY, GEMINI_API_KEY"));
    assert_eq!(http.base_url().as_str(), "https://generativelanguage.googleapis.com/v1beta");
    assert_eq!(http.api_keys[0].expose(), "AIza");
    for (given, expected) in [
        ("https://generativelanguage.googleapis.com", "https://generativelanguage.googleapis.com/v1beta"),
        ("https://gateway.example/google/", "https://gateway.example/google/v1beta"),
        ("https://gateway.example/v1", "https://gateway.example/v1"),
    ] {
        let (count, http, origin) = gemini(&[("GOOGLE_GEMINI_BASE_URL", given)]);
        assert_eq!((count, http.base_url().as_str(), origin.as_str()), (1, expected, "GOOGLE_GEMINI_BASE_URL"));
    }
}

#[test]
fn a_declared_upstream_keeps_the_environment_out() {
    let env = [("OPENAI_API_KEY", "sk-1"), ("LOCAL_KEY", "local")];
    let text = "[upstreams.local]\nbase_url = 'http://localhost:1/v1'\napi_key_env = 'LOCAL_KEY'";
    let settings = load_with(text, &Options::default(), &env).unwrap();
    assert_eq!(settings.upstreams.len(), 1);
    assert_eq!(openai(&settings).http.api_keys[0].expose(), "local");
    assert_eq!(openai(&settings).written_calls, WrittenCalls::Read);
    assert_eq!(settings.upstream_origin, UpstreamOrigin::File("loopgate.toml".into()));
}

#[test]
fn openai_itself_is_known_by_its_hosts_in_every_region() {
    for (url, is_openais) in [
        ("https://api.openai.com/v1", true),
        ("https://eu.api.openai.com/v1", true),
        ("https://EU.API.OpenAI.com./v1", true),
        ("https://api.openai.com.example/v1", false),
        ("https://notapi.openai.com/v1", false),
        ("http://127.0.0.1:11434/v1", false),
    ] {
        let settings = load(&format!("[upstreams.a]\nbase_url = '{url}'"));
        let found = openai(&settings);
        assert_eq!(found.is_openai(), is_openais, "{url}");
        assert_eq!((found.written_calls == WrittenCalls::None, !found.pass_unknown_members), (is_openais, is_openais));
    }
}

#[test]
fn upstreams_and_tools_keep_the_order_of_the_file() {
    let settings = load("[upstreams.b]\n[upstreams.a]\nkind = 'demo'\n[upstreams.c]");
    let names: Vec<_> = settings.upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
    assert_eq!(names, ["b", "a", "c"]);
}

#[test]
fn options_win_over_the_file_and_the_file_over_defaults() {
    let text = "[server]\nlisten = '127.0.0.1:1'\n[store]\nurl = 'embedded:/var/lib/loopgate'";
    let settings = load(text);
    assert_eq!(settings.server.listen.port(), 1);
    assert_eq!(settings.store.url.to_string(), "embedded:/var/lib/loopgate");
    let options =
        Options { listen: Some(([127, 0, 0, 1], 2).into()), store: Some(StoreUrl::Memory), ..Options::default() };
    let settings = load_with(text, &options, &[]).unwrap();
    assert_eq!(settings.server.listen.port(), 2);
    assert_eq!(settings.store.url.to_string(), "memory:");
}

#[test]
fn the_file_is_found_or_named() {
    let directory = tempfile::tempdir().unwrap();
    let load = |options: &Options| Settings::load_from(directory.path(), options, &|_| None);
    assert_eq!(load(&Options::default()).unwrap().server.max_connections, 10_000);

    fs::write(directory.path().join("loopgate.toml"), "server.max_connections = 1").unwrap();
    assert_eq!(load(&Options::default()).unwrap().server.max_connections, 1);

    let other = directory.path().join("other.toml");
    let named = Options { config: Some(other.clone()), ..Options::default() };
    let error = load(&named).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}: cannot be read: ", other.display())), "{error}");
    fs::write(&other, "server.max_connections = 0").unwrap();
    let error = load(&named).unwrap_err().to_string();
    let expected = "1: server.max_connections: must be an integer from 1 to 4294967295";
    assert_eq!(error, format!("{}:{expected}", other.display()));
}

#[test]
fn the_example_loads() {
    let text = fs::read_to_string(root().join("loopgate.example.toml")).unwrap();
    let env = [("OPENAI_API_KEY", "sk-1"), ("WEATHER_KEY", "sunny"), ("LOOPGATE_OPERATOR_KEY", "lg_1")];
    let settings = load_with(&text, &Options::default(), &env).unwrap();

    let price = Price::from_usd(2.5, 0.25, 10.0);
    let (context_window, max_output_tokens) = (Some(200_000), Some(8192));
    let model = ModelConfig { context_window, max_output_tokens, price: Some(price), ..ModelConfig::default() };
    assert_eq!(settings.models.declared["gpt-5"], model);
    assert_eq!(settings.server.cors_origins, ["https://chat.example.com"]);
    assert_eq!(settings.server.requests_per_minute, Some(60));

    let [weather, ticket] = &settings.tools[..] else { panic!("expected two tools") };
    let headers: Vec<_> = weather.headers.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    assert_eq!(headers, [("authorization", "Bearer sunny"), ("accept", "application/json")]);
    assert_eq!((weather.effect, &weather.method, weather.timeout), (Effect::Read, &http::Method::GET, None));
    assert_snapshot!(weather.parameters.get(), @r#"{"properties":{"city":{"type":"string"}},"required":["city"],"type":"object"}"#);
    assert_eq!((ticket.effect, &ticket.method), (Effect::Idempotent, &http::Method::POST));
    assert_eq!((ticket.timeout, ticket.max_response), (Some(Duration::from_secs(20)), 64 << 10));

    let [web, operator] = &settings.keys[..] else { panic!("expected two keys") };
    assert_eq!(web.tenant.as_str(), "acme");
    assert_ne!(web.hash, key::hash("test"), "who copies the example would accept a key that anybody can guess");
    let quota = QuotaConfig {
        token_budget: Some(Allotment { limit: 50_000_000, per: Some(Period::Month) }),
        cost_budget: Some(Allotment { limit: Micros(100_000_000), per: Some(Period::Month) }),
        max_concurrent_runs: Some(50),
    };
    assert_eq!((web.quota, operator.quota), (quota, QuotaConfig::default()));
    assert_eq!((operator.tenant.as_str(), operator.hash), ("operator", key::hash("lg_1")));
    assert_eq!((&web.agents, operator.requests_per_minute), (&Some(vec!["researcher".to_owned()]), None));
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
