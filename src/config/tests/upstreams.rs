//! Upstreams of the kinds that are not `openai`.

use insta::assert_snapshot;

use super::{load, mistakes};
use crate::config::{ReasoningSummary, ResponsesUpstream, UpstreamKind};

fn responses(keys: &str) -> ResponsesUpstream {
    let settings = load(&format!("[upstreams.o]\nkind = \"openai_responses\"\n{keys}"));
    let UpstreamKind::Responses(responses) = settings.upstreams[0].kind.clone() else {
        panic!("expected an upstream of kind openai_responses")
    };
    responses
}

#[test]
fn responses_are_read_with_what_is_asked_of_reasoning() {
    let openai = responses("");
    assert_eq!(openai.http.base_url.as_str(), "https://api.openai.com/v1");
    assert_eq!((openai.is_openai(), openai.pass_unknown_members), (true, false));
    assert_eq!((openai.reasoning_summary, openai.encrypted_reasoning), (None, None));
    let other = responses(
        "base_url = \"http://localhost:8000/v1\"\nreasoning_summary = \"detailed\"\nencrypted_reasoning = false",
    );
    assert_eq!((other.is_openai(), other.pass_unknown_members), (false, true));
    assert_eq!((other.reasoning_summary, other.encrypted_reasoning), (Some(ReasoningSummary::Detailed), Some(false)));
}

#[test]
fn mistakes_of_responses_are_told() {
    assert_snapshot!(mistakes(r#"
[upstreams.o]
kind = "openai_responses"
base_url = "http://localhost/v1/responses"
reasoning_summary = "long"
prompt_cache = true
"#), @r#"
    loopgate.toml:4: upstreams.o.base_url: must end before /responses, which is appended
    loopgate.toml:5: upstreams.o.reasoning_summary: must be "auto" or "concise" or "detailed"
    loopgate.toml:6: upstreams.o.prompt_cache: unknown key; known here: kind, preset, base_url, api_key_env, api_key_file, models, connect_timeout, first_byte_timeout, idle_timeout, free, allow_uncounted_cost, pass_unknown_members, reasoning_summary, encrypted_reasoning
    "#);
}
