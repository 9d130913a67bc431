use insta::assert_snapshot;

use super::mistakes;

#[test]
fn every_kind_of_mistake_of_fallbacks() {
    assert_snapshot!(mistakes(r#"
[upstreams.a]
models = ["m", "n"]
[upstreams.b]
models = ["m"]
[models."a/m"]
fallbacks = ["a/m"]
[agents.one]
model = "a/m"
fallbacks = ["c/m", "b/m", "b/m", "a/m", "b/", ""]
[agents.two]
model = "a/m"
fallbacks = ["b/1", "b/2", "b/3", "b/4", "b/5", "b/6", "b/7", "b/8", "b/9"]
[agents.three]
model = "a/m"
fallbacks = "b/m"
"#), @r#"
    loopgate.toml:7: models."a/m".fallbacks: `a/m` is the model that they are to stand in for
    loopgate.toml:10: agents.one.fallbacks: there is no upstream `c`; did you mean `b`?
    loopgate.toml:10: agents.one.fallbacks: `b/m` is there more than once
    loopgate.toml:10: agents.one.fallbacks: `a/m` is the model that they are to stand in for
    loopgate.toml:10: agents.one.fallbacks: expected UPSTREAM/MODEL, found no model after the slash
    loopgate.toml:10: agents.one.fallbacks: expected UPSTREAM/MODEL, found nothing
    loopgate.toml:13: agents.two.fallbacks: there are 9 of them; at most 8 are asked
    loopgate.toml:16: agents.three.fallbacks: expected a list of strings in brackets, found a string
    "#);
}
