//! Upstreams with several base URLs and keys, and bounds on their calls.

use std::time::Duration;

use insta::assert_snapshot;

use super::{load, load_with, mistakes};
use crate::config::{Balance, Options, Pools, Secret, UpstreamKind};

#[test]
fn an_upstream_may_have_several_base_urls_and_keys() {
    const KEYS: [(&str, &str); 3] = [("KEY_A", "one"), ("KEY_B", "two"), ("KEY_C", "three")];
    let load = |text: &str, keys: [(&str, &str); 3]| load_with(text, &Options::default(), &keys).unwrap();
    let text = "[upstreams.a]\nbase_urls = ['http://localhost:1/v1', { url = 'http://localhost:2/v1', weight = 3 }]\n\
                api_key_envs = ['KEY_A', 'KEY_B']\nbalance = 'least_busy'\naddress_cooldown = '3s'\n\
                key_cooldown = '5m'\nmax_concurrent_calls = 7\n";
    let settings = load(text, KEYS);
    let http = settings.upstreams[0].kind.http().unwrap();
    let urls: Vec<_> = http.base_urls.iter().map(|url| (url.url.as_str(), url.weight)).collect();
    assert_eq!(urls, [("http://localhost:1/v1", 1), ("http://localhost:2/v1", 3)]);
    assert_eq!(http.api_keys.iter().map(Secret::expose).collect::<Vec<_>>(), ["one", "two"]);
    let expected = Pools {
        balance: Balance::LeastBusy,
        address_cooldown: Duration::from_secs(3),
        key_cooldown: Duration::from_secs(300),
        max_concurrent_calls: Some(7),
    };
    assert_eq!(http.pools, expected);
    let other = load(&text.replace("KEY_B", "KEY_C"), KEYS);
    let changes = settings.changes_to(&other).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert_eq!(changes, "upstreams.a.api_key_envs: [\"KEY_A\", \"KEY_C\"], was [\"KEY_A\", \"KEY_B\"]");
    let rotated = load(text, [KEYS[0], ("KEY_B", "2"), KEYS[2]]);
    let changes = settings.changes_to(&rotated).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert_eq!(changes, "upstreams.a.api_key_envs: changed", "the key itself is not shown");
}

#[test]
fn upstreams_are_private_and_openais_own_by_all_of_their_base_urls() {
    let openai = |urls: &str| {
        let settings = load(&format!("[upstreams.a]\nbase_urls = {urls}"));
        let UpstreamKind::OpenAi(openai) = settings.upstreams[0].kind.clone() else { panic!("it is") };
        openai
    };
    assert!(openai("['http://localhost/v1', 'https://eu.api.openai.com/v1']").is_openai());
    assert!(!openai("['http://localhost/v1', 'http://localhost:1/v1']").is_openai());
}

#[test]
fn mistakes_of_pools_are_told() {
    let told = mistakes(
        r#"[upstreams.a]
base_urls = []
[upstreams.b]
base_urls = ["http://localhost/v1", { url = "http://localhost/v1/", weight = 2 }]
api_key_envs = []
[upstreams.c]
base_url = "http://localhost/v1"
base_urls = ["http://localhost:2/v1"]
api_key_env = "HOME"
api_key_envs = ["HOME"]
[upstreams.d]
base_urls = [{ url = "http://localhost/v1", weight = 0 }]
api_key_files = ["/does/not/exist"]
max_concurrent_calls = 0
[upstreams.e]
base_urls = [{ url = "http://localhost/v1", wieght = 1 }]
balance = "random"
address_cooldown = "0s"
[upstreams.f]
base_urls = [{ weight = 1 }]
[upstreams.g]
base_urls = "http://localhost/v1"
[upstreams.h]
base_urls = ["http://user:hush@localhost/v1"]
api_key_envs = ["SAME", "ALSO"]
"#,
    );
    assert_snapshot!(told, @r#"
    loopgate.toml:2: upstreams.a.base_urls: must name a URL
    loopgate.toml:4: upstreams.b.base_urls: names http://localhost/v1/ twice; give it a weight in place of that
    loopgate.toml:5: upstreams.b.api_key_envs: must name 1 to 64 keys
    loopgate.toml:8: upstreams.c.base_urls: give base_url or base_urls, not both
    loopgate.toml:10: upstreams.c.api_key_envs: give api_key_env or api_key_envs, not both
    loopgate.toml:12: upstreams.d.base_urls: must be an integer from 1 to 1000
    loopgate.toml:13: upstreams.d.api_key_files: /does/not/exist cannot be read: No such file or directory (os error 2)
    loopgate.toml:14: upstreams.d.max_concurrent_calls: must be an integer from 1 to 4294967295
    loopgate.toml:16: upstreams.e.base_urls: unknown key; known here: url, weight
    loopgate.toml:17: upstreams.e.balance: must be "session" or "least_busy"
    loopgate.toml:18: upstreams.e.address_cooldown: must be longer than 0s
    loopgate.toml:20: upstreams.f.base_urls: `url` is missing
    loopgate.toml:22: upstreams.g.base_urls: expected a list of URLs in brackets, found a string
    loopgate.toml:24: upstreams.h.base_urls: must not hold a user or password; name the key with api_key_env or api_key_file
    loopgate.toml:25: upstreams.h.api_key_envs: the environment variable SAME is unset or empty
    loopgate.toml:25: upstreams.h.api_key_envs: the environment variable ALSO is unset or empty
    "#);
}

#[test]
fn the_same_key_twice_is_a_mistake() {
    let text = "[upstreams.a]\napi_key_envs = ['SAME', 'ALSO']";
    let error = load_with(text, &Options::default(), &[("SAME", "hush"), ("ALSO", "hush")]).unwrap_err().to_string();
    assert!(error.contains("upstreams.a.api_key_envs: two of them hold the same key"), "{error}");
    assert!(!error.contains("hush"), "{error}");
}
