//! Presets, each read from as little as a file may say.

use insta::assert_snapshot;

use super::{load_with, openai};
use crate::config::upstream::PRESETS;
use crate::config::{Options, Settings, UpstreamKind};
use crate::types::tool::WrittenCalls;

/// The settings of a file, where each of these variables holds a key.
fn load(text: &str, variables: &[&str]) -> Result<Settings, String> {
    let env: Vec<_> = variables.iter().map(|variable| (*variable, "secret")).collect();
    load_with(text, &Options::default(), &env).map_err(|mistakes| mistakes.to_string())
}

#[test]
fn a_preset_and_a_key_are_enough() {
    let mut told = Vec::new();
    for preset in &PRESETS {
        let name = preset.name;
        let own = format!("[upstreams.{name}]\npreset = \"{name}\"\nbase_url = \"https://own.example/v1\"");
        let text = if preset.has_address() { format!("upstream = \"{name}\"") } else { own };
        let settings = load(&text, &[preset.key]).unwrap();
        assert_eq!((settings.upstreams.len(), settings.upstreams[0].name.as_str()), (1, name));
        let upstream = openai(&settings);
        let key = upstream.http.api_keys.first().map_or("no key", |key| key.expose());
        told.push(format!("{name}: {} with {key}", upstream.http.base_url()));
    }
    assert_snapshot!(told.join("\n"), @"
    ollama: http://127.0.0.1:11434/v1 with secret
    llama-cpp: http://127.0.0.1:8080/v1 with secret
    vllm: http://127.0.0.1:8000/v1 with secret
    sglang: http://127.0.0.1:30000/v1 with no key
    lm-studio: http://127.0.0.1:1234/v1 with secret
    openrouter: https://openrouter.ai/api/v1 with secret
    deepseek: https://api.deepseek.com/v1 with secret
    groq: https://api.groq.com/openai/v1 with secret
    mistral: https://api.mistral.ai/v1 with secret
    together: https://api.together.xyz/v1 with secret
    xai: https://api.x.ai/v1 with secret
    azure: https://own.example/v1 with secret
    bedrock: https://own.example/v1 with secret
    ");
}

#[test]
fn what_is_written_beside_a_preset_goes_first() {
    let text = "[upstreams.fast]\npreset = 'groq'\nbase_url = 'http://localhost:1/v1'\napi_key_env = 'MINE'\n\
                recover_text_tool_calls = true\npass_unknown_members = false\nmodels = ['a']";
    let settings = load(text, &["MINE"]).unwrap();
    let upstream = openai(&settings);
    assert_eq!(upstream.http.base_url().as_str(), "http://localhost:1/v1");
    assert_eq!((upstream.written_calls, upstream.pass_unknown_members), (WrittenCalls::All, false));
    assert_eq!(upstream.chat.output_bound, "max_completion_tokens");
    let keyless = load("[upstreams.a]\npreset = 'groq'\nbase_url = 'http://localhost:1/v1'", &[]).unwrap();
    assert_eq!(openai(&keyless).http.api_keys, [], "what stands elsewhere may want no key");

    let text = "[upstreams.a]\nkind = 'openai_responses'\npreset = 'azure'\nbase_url = 'https://r.example/openai/v1'";
    let settings = load(text, &["AZURE_OPENAI_API_KEY"]).unwrap();
    let UpstreamKind::Responses(responses) = &settings.upstreams[0].kind else { panic!("expected openai_responses") };
    assert_eq!((responses.key_header, responses.pass_unknown_members), (Some("api-key"), false));
    assert_eq!(responses.http.api_keys[0].expose(), "secret");
}

#[test]
fn mistakes_of_presets_are_told() {
    let mistakes = [
        "upstream = 'grok'",
        "upstream = 'groq'",
        "upstream = 'azure'",
        "upstream = 'groq'\n[upstreams.demo]\nkind = 'demo'",
        "[upstreams.a]\npreset = 'bedrock'",
        "[upstreams.a]\nkind = 'anthropic'\npreset = 'groq'",
        "[upstreams.a]\napi_version = '2024 10'",
    ];
    let told: Vec<_> = mistakes.iter().map(|text| load(text, &[]).unwrap_err()).collect();
    assert_snapshot!(told.join("\n"), @r#"
    loopgate.toml:1: upstream: must be "ollama" or "llama-cpp" or "vllm" or "sglang" or "lm-studio" or "openrouter" or "deepseek" or "groq" or "mistral" or "together" or "xai" or "azure" or "bedrock"
    upstreams.groq: groq wants a key: set the environment variable GROQ_API_KEY, or name another with api_key_env or api_key_file
    loopgate.toml:1: upstream: declare [upstreams.azure] with preset = "azure" in place of this
    loopgate.toml:1: upstream: declare [upstreams.groq] with preset = "groq" in place of this
    loopgate.toml:1: upstreams.a: `base_url` is missing: it is `https://bedrock-mantle.REGION.api.aws/v1`, for GPT models from 5 on `…/openai/v1`, or `https://bedrock-runtime.REGION.amazonaws.com/openai/v1`
    loopgate.toml:1: upstreams.a: bedrock wants a key: set the environment variable AWS_BEARER_TOKEN_BEDROCK, or name another with api_key_env or api_key_file
    loopgate.toml:3: upstreams.a.preset: unknown key; known here: kind, base_url, base_urls, api_key_env, api_key_envs, api_key_file, api_key_files, balance, address_cooldown, key_cooldown, max_concurrent_calls, headers, query, ca_file, client_cert_file, client_key_file, proxy, proxy_login_env, proxy_login_file, models, connect_timeout, first_byte_timeout, idle_timeout, free, allow_uncounted_cost, anthropic_version, anthropic_beta, max_tokens, prompt_cache, needed, breaker
    loopgate.toml:2: upstreams.a.api_version: must be a word of letters, digits, `-`, `_` and `.`
    "#);
}

/// By the names that OpenTelemetry's conventions have, as far as they have one.
#[test]
fn traces_call_services_by_their_well_known_names() {
    for (declared, provider) in [
        ("", Some("openai")),
        ("kind = 'openai_responses'", Some("openai")),
        ("base_url = 'http://localhost:9/v1'", None),
        ("kind = 'anthropic'", Some("anthropic")),
        ("kind = 'gemini'", Some("gcp.gemini")),
        ("kind = 'demo'", None),
        ("preset = 'azure'\nbase_url = 'https://own.openai.azure.com/openai/v1'", Some("azure.ai.openai")),
        ("preset = 'bedrock'\nbase_url = 'https://bedrock-mantle.eu.api.aws/v1'", Some("aws.bedrock")),
        ("preset = 'mistral'", Some("mistral_ai")),
        ("preset = 'xai'", Some("x_ai")),
        ("preset = 'groq'", Some("groq")),
        ("preset = 'ollama'", Some("ollama")),
    ] {
        let keys = PRESETS.iter().map(|preset| preset.key).filter(|key| !key.is_empty()).collect::<Vec<_>>();
        let settings = load(&format!("[upstreams.mine]\n{declared}\n"), &keys).unwrap();
        assert_eq!(settings.upstreams[0].kind.provider(), provider, "{declared}");
    }
}

/// What a stranger copies must be a whole configuration.
#[test]
fn every_preset_has_an_example_on_the_page_of_upstreams() {
    let page = include_str!("../../../docs/upstreams.md");
    let section = page.split("\n## Presets\n").nth(1).expect("the page has presets").split("\n## ").next();
    let blocks = section.unwrap_or_default().split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let examples: Vec<&str> = blocks.collect();
    for (preset, example) in PRESETS.iter().zip(&examples) {
        let settings = load(example, &[preset.key]).unwrap_or_else(|mistakes| panic!("{mistakes}\n{example}"));
        assert_eq!(settings.upstreams[0].name, preset.name);
        assert_eq!(openai(&settings).chat, preset.chat);
    }
    assert_eq!(examples.len(), PRESETS.len(), "each has one, in the order of the table");
}
