//! Upstreams of the kinds that are not `openai`.

use insta::assert_snapshot;

use super::{load, load_with, mistakes};
use crate::config::{Options, ReasoningSummary, ResponsesUpstream, UpstreamKind};
use crate::net::client::Proxies;

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
    assert_eq!(openai.http.base_url().as_str(), "https://api.openai.com/v1");
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
    loopgate.toml:6: upstreams.o.prompt_cache: unknown key; known here: kind, preset, base_url, base_urls, api_key_env, api_key_envs, api_key_file, api_key_files, balance, address_cooldown, key_cooldown, max_concurrent_calls, headers, query, ca_file, client_cert_file, client_key_file, proxy, proxy_login_env, proxy_login_file, models, connect_timeout, first_byte_timeout, idle_timeout, free, allow_uncounted_cost, pass_unknown_members, reasoning_summary, encrypted_reasoning, needed, breaker
    "#);
}

#[test]
fn what_is_sent_with_every_request_is_read_and_not_shown() {
    let text = "[upstreams.a]\nbase_url = 'https://gateway.test/v1'\nproxy = 'http://proxy.test:3128'\n\
                proxy_login_env = 'LOGIN'\nheaders = { X-Zone = 'north', x-key = { env = 'KEY', prefix = 'Key ' } }\n\
                query = { version = '2', token = { env = 'TOKEN' } }\n[upstreams.b]\nproxy = 'none'\n[upstreams.c]";
    let variables = [("LOGIN", "ann:very-secret"), ("KEY", "very-secret"), ("TOKEN", "very-secret")];
    let settings = load_with(text, &Options::default(), &variables).unwrap();
    let http = |index: usize| settings.upstreams[index].kind.http().unwrap();
    let headers: Vec<_> = http(0).headers.iter().map(|(name, value)| (name.as_str(), value.whole.expose())).collect();
    assert_eq!(headers, [("x-zone", "north"), ("x-key", "Key very-secret")]);
    let query: Vec<_> = http(0).query.iter().map(|(name, value)| (name.as_str(), value.whole.expose())).collect();
    assert_eq!(query, [("version", "2"), ("token", "very-secret")]);
    assert!(matches!(&http(0).connection.proxies, Proxies::One(_)));
    assert_eq!((&http(1).connection.proxies, &http(2).connection.proxies), (&Proxies::None, &Proxies::Environment));
    assert!(!format!("{settings:?}").contains("very-secret"));
}

/// The mistakes in a text where the variable `KEY` holds a secret.
fn mistakes_with_key(text: &str) -> String {
    let mistakes = load_with(text, &Options::default(), &[("KEY", "very-secret")]).unwrap_err().to_string();
    assert!(!mistakes.contains("very-secret") && !mistakes.contains("password@"), "{mistakes}");
    mistakes
}

#[test]
fn headers_that_cannot_be_sent_are_told() {
    assert_snapshot!(mistakes_with_key(r#"
[upstreams.a]
base_url = "http://localhost/v1"
api_key_env = "KEY"
[upstreams.a.headers]
connection = "close"
Content-Length = "3"
Host = "a"
traceparent = "x"
authorization = "Bearer x"
x-a = "1"
X-A = "2"
x-b = "a\nb"
"a b" = "c"
x-c = { env = "KEY", file = "f" }
x-d = { prefix = "p" }
x-e = { env = "UNSET" }
[upstreams.b]
kind = "anthropic"
headers = { Anthropic-Version = "2", authorization = "Bearer gateway" }
"#), @r#"
    loopgate.toml:5: upstreams.a.headers: authorization is the header of the API key: leave out one of them
    loopgate.toml:6: upstreams.a.headers.connection: this header belongs to the connection: the server decides about it
    loopgate.toml:7: upstreams.a.headers.Content-Length: this header belongs to the connection: the server decides about it
    loopgate.toml:8: upstreams.a.headers.Host: the server itself sends this header
    loopgate.toml:9: upstreams.a.headers.traceparent: the server itself sends this header
    loopgate.toml:12: upstreams.a.headers.X-A: this header is given twice; upper and lower case are the same
    loopgate.toml:13: upstreams.a.headers.x-b: it holds characters that an HTTP header cannot carry
    loopgate.toml:14: upstreams.a.headers."a b": this is not the name of an HTTP header
    loopgate.toml:15: upstreams.a.headers.x-c: give a string, or a table with either env or file
    loopgate.toml:16: upstreams.a.headers.x-d: give a string, or a table with either env or file
    loopgate.toml:17: upstreams.a.headers.x-e: the environment variable UNSET is unset or empty
    loopgate.toml:20: upstreams.b.headers.Anthropic-Version: the server itself sends this header
    "#);
}

#[test]
fn ways_to_an_upstream_that_lead_nowhere_are_told() {
    assert_snapshot!(mistakes_with_key(r#"
[upstreams.a]
base_url = "http://localhost/v1"
ca_file = "/ca.pem"
proxy = "socks5://localhost"
[upstreams.b]
proxy = "http://ann:password@localhost"
proxy_login_env = "KEY"
proxy_login_file = "f"
query = { x = { env = "UNSET" }, y = 3 }
[upstreams.c]
kind = "gemini"
query = { alt = "json" }
proxy = "http://localhost/path"
[upstreams.d]
api_version = "2024-10-21"
query = { api-version = "2" }
proxy = "none"
proxy_login_env = "KEY"
[upstreams.e]
base_url = "https://localhost/v1?a=b"
proxy = 3
proxy_login_env = "KEY"
"#), @r#"
    loopgate.toml:4: upstreams.a.ca_file: is for an upstream whose base_url begins with https://
    loopgate.toml:5: upstreams.a.proxy: this is not a URL such as "http://proxy.internal:3128", or "none"
    loopgate.toml:7: upstreams.b.proxy: must not hold a user or password; name the login with proxy_login_env or proxy_login_file
    loopgate.toml:9: upstreams.b.proxy_login_file: give proxy_login_env or proxy_login_file, not both
    loopgate.toml:10: upstreams.b.query.x: the environment variable UNSET is unset or empty
    loopgate.toml:10: upstreams.b.query.y: expected a table, [upstreams.b.query.y], found an integer
    loopgate.toml:13: upstreams.c.query: the server itself gives "alt"
    loopgate.toml:14: upstreams.c.proxy: must end with the host or its port
    loopgate.toml:17: upstreams.d.query: the server itself gives "api-version", as api_version says
    loopgate.toml:19: upstreams.d.proxy_login_env: needs a `proxy` with a URL
    loopgate.toml:21: upstreams.e.base_url: must end with the path, without ? and #; name parameters in query
    loopgate.toml:22: upstreams.e.proxy: expected a URL such as "http://proxy.internal:3128", or "none", found an integer
    "#);
}
