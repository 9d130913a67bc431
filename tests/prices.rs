//! What a run costs, what a cost budget refuses because it could not count it, and what the operator is told of that.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::server::loopgate;
use crate::support::{Reply, TestServer, Upstream};

const ENDPOINT: &str = "/v1/agent/completions";
const PRICE: &str = "[models.test.price]\ninput = 1.0\noutput = 1.0\n";

/// A request with these members.
fn request(members: &Value) -> Value {
    let mut request = json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}]});
    for (name, value) in members.as_object().expect("members are an object") {
        request[name] = value.clone();
    }
    request
}

fn under_budget() -> Value {
    json!({"agent": {"limits": {"cost_budget_usd": 1.0}}})
}

/// A scripted upstream that always answers, and its declaration with these settings.
async fn upstream(settings: &str) -> (Upstream, String) {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Hello"));
    let config = format!("{}{settings}", upstream.config());
    (upstream, config)
}

/// The error of a request that must be refused with 400: at what, and in which words.
async fn refused(server: &TestServer, body: &Value) -> (String, String) {
    let answer = server.post(ENDPOINT, body).await;
    let error = &answer.body["error"];
    assert_eq!((answer.status, error["code"].as_str()), (400, Some("invalid_value")), "{}", answer.body);
    let text = |member: &str| error[member].as_str().unwrap_or_default().to_owned();
    (text("param"), text("message"))
}

/// What the run cost, and its warnings.
async fn cost(server: &TestServer, members: &Value) -> (f64, Vec<String>) {
    let agent = server.post(ENDPOINT, &request(members)).await.ok()["agent"].take();
    let warnings = agent["warnings"].as_array().expect("it is a list").iter();
    let warnings = warnings.map(|warning| warning.as_str().expect("each is a text").to_owned()).collect();
    (agent["cost_usd"].as_f64().expect("it is a number"), warnings)
}

#[tokio::test]
async fn a_model_at_a_private_address_costs_nothing_unless_a_price_is_known() {
    let (_upstream, local) = upstream("").await;
    let server = TestServer::start(&local).await;
    let assumed = "the model test is counted as free: its upstream scripted has a private address, and no price is known \
                   for it";
    assert_eq!(cost(&server, &under_budget()).await, (0.0, vec![assumed.to_owned()]), "a cost budget allows it");
    server.reload(&format!("{local}free = true\n")).await;
    assert_eq!(cost(&server, &under_budget()).await, (0.0, vec![]), "the operator said so");
    server.reload(&format!("{local}free = true\n{PRICE}")).await;
    assert_eq!(cost(&server, &under_budget()).await, (0.000_015, vec![]), "a declared price counts");
    server.reload(&format!("{local}free = false\n")).await;
    let guessed = "the cost is estimated: no price is known for the model test";
    assert_eq!(cost(&server, &json!({})).await, (0.000_105, vec![guessed.to_owned()]));
}

#[tokio::test]
async fn a_cost_budget_refuses_a_model_whose_price_is_only_a_guess() {
    let (upstream, config) = upstream("free = false\n").await;
    let agent = "[agents.bound]\nmodel = \"test\"\n[agents.bound.limits]\ncost_budget_usd = 1.0\n";
    let key = "[keys.bound]\nkey_env = \"BOUND\"\ncost_budget_usd = { limit = 1.0 }\n[keys.free]\nkey_env = \"FREE\"\n";
    let all = format!("{config}{agent}{key}");
    let mut server = TestServer::builder(&all).env("BOUND", "BOUND").env("FREE", "FREE").start().await;
    server.use_key("FREE");
    let said = |owner: &str| {
        let message = format!(
            "the {owner} has a cost budget, and no price is known for the model test; the operator can declare one under \
             [models.\"scripted/test\".price]"
        );
        ("model".to_owned(), message)
    };
    assert_eq!(refused(&server, &request(&under_budget())).await, said("run"));
    assert_eq!(refused(&server, &request(&json!({"model": "bound"}))).await, said("run"));
    server.post("/v1/sessions", &json!({"id": "s", "cost_budget_usd": 1.0})).await;
    assert_eq!(refused(&server, &request(&json!({"agent": {"session_id": "s"}}))).await, said("session"));
    server.use_key("BOUND");
    assert_eq!(refused(&server, &request(&json!({}))).await, said("key"));
    assert_eq!(upstream.requests().len(), 0);

    server.reload(&format!("{config}{PRICE}{agent}{key}")).await;
    assert_eq!(cost(&server, &json!({"model": "bound"})).await, (0.000_015, vec![]), "a declared price is known");
}

#[tokio::test]
async fn the_demo_model_costs_nothing_and_no_other_model_is_taken_for_it() {
    let (_upstream, config) = upstream("free = false\n").await;
    let config = config.replace("\"test\"", "\"demo\"");
    let server = TestServer::start(&format!("{config}[upstreams.demo]\nkind = \"demo\"\n")).await;
    let mut members = under_budget();
    members["model"] = "demo/demo".into();
    members["service_tier"] = "priority".into();
    assert_eq!(cost(&server, &members).await, (0.0, vec![]));
    members["model"] = "scripted/demo".into();
    let (param, message) = refused(&server, &request(&members)).await;
    assert!(param == "model" && message.contains("no price is known for the model demo"), "{param}: {message}");
}

#[tokio::test]
async fn a_tier_that_may_cost_more_is_passed_on_only_if_the_operator_allows_it() {
    let (upstream, config) = upstream("").await;
    let server = TestServer::start(&format!("{config}{PRICE}")).await;
    let withheld = "service_tier \"priority\" was not passed on, because it may cost more than is counted; the operator \
                    can allow it for the upstream scripted";
    let dear = json!({"service_tier": "priority"});
    assert_eq!(cost(&server, &dear).await.1, [withheld]);
    assert_eq!(cost(&server, &json!({"service_tier": "flex"})).await.1, [""; 0]);
    server.reload(&format!("{config}allow_uncounted_cost = true\n{PRICE}")).await;
    let counted = "the cost is counted at the model's price, not at that of the service_tier that was asked for";
    assert_eq!(cost(&server, &dear).await.1, [counted]);
    let tiers: Vec<_> = upstream.requests().into_iter().map(|asked| asked["service_tier"].clone()).collect();
    assert_eq!(tiers, [Value::Null, "flex".into(), "priority".into()]);
}

/// A list that says of the model `test` what it costs at these hosts, in a file of the directory.
fn write_list(directory: &Path, hosts: &str, more: &str) {
    let head = "provider = \"P\"\nsource = \"https://p.example\"\nread = 2026-01-02\n";
    let model =
        "[models.test]\nprice = { input = 1, output = 1 }\ncontext_window = 1_000_000\nmax_output_tokens = 10_000\n";
    std::fs::write(directory.join("own.toml"), format!("{head}hosts = {hosts}\n{model}{more}"))
        .expect("it can be written to");
}

#[tokio::test]
async fn a_list_of_the_operator_says_what_models_cost_and_is_read_again() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let list = |hosts: &str, more: &str| write_list(directory.path(), hosts, more);
    let (upstream, config) = upstream("free = false\n").await;
    let config = format!("{config}[prices]\nfiles = [{:?}]\n", directory.path().join("own.toml"));
    list("[]", "");
    let server = TestServer::start(&config).await;
    assert_eq!(cost(&server, &under_budget()).await, (0.000_015, vec![]), "a listed price holds a budget");

    list("[]", "long_context = { above = 9, input = 2, output = 3 }\ntiers = { priority = 2, flex = 0.5 }\n");
    server.reload(&config).await;
    assert_eq!(cost(&server, &under_budget()).await, (0.000_035, vec![]), "ten tokens are more than nine");
    let tier = |tier: &str| json!({"service_tier": tier});
    assert_eq!(cost(&server, &tier("priority")).await, (0.000_07, vec![]), "a tier is passed on if its price is known");
    assert_eq!(
        cost(&server, &tier("flex")).await,
        (0.000_035, vec![]),
        "a cheaper one is counted at the ordinary price"
    );
    let withheld = cost(&server, &tier("ultrafast")).await;
    assert!(withheld.0 < 0.000_036 && withheld.1[0].contains("was not passed on"), "{withheld:?}");
    let tiers: Vec<_> = upstream.requests().into_iter().skip(2).map(|asked| asked["service_tier"].clone()).collect();
    assert_eq!(tiers, ["priority".into(), "flex".into(), Value::Null]);

    let guessed = "the cost is estimated: no price is known for the model test";
    for (hosts, more) in [("[\"p.example\"]", ""), ("[]", "unconfirmed = true\n")] {
        list(hosts, more);
        server.reload(&config).await;
        assert_eq!(cost(&server, &json!({})).await, (0.000_015, vec![guessed.to_owned()]), "{hosts} {more}");
        assert_eq!(refused(&server, &request(&under_budget())).await.0, "model", "{hosts} {more}");
    }
    server.reload(&format!("{config}{PRICE}")).await;
    assert_eq!(cost(&server, &under_budget()).await, (0.000_015, vec![]), "a declared price goes first");
}

#[tokio::test]
async fn a_fallback_is_counted_at_the_tier_that_was_asked_for_or_left_out() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    write_list(directory.path(), "[]", "tiers = { priority = 2 }\n");
    let ((first, config), (spare, spared)) = (upstream("").await, upstream("").await);
    let spared = spared.replace("scripted", "spare");
    let agent = "[agents.default]\nmodel = \"scripted/test\"\nfallbacks = [\"spare/test\"]\n";
    let files = format!("[prices]\nfiles = [{:?}]\n", directory.path().join("own.toml"));
    let config = format!("{config}{spared}{agent}{files}");
    let server = TestServer::start(&config).await;
    let mut asked = json!({"service_tier": "priority", "model": "default"});
    first.then(Reply::error(401, "odd", "why"));
    asked["agent"] = under_budget()["agent"].clone();
    assert_eq!(cost(&server, &asked).await, (0.000_03, vec![]), "the fallback answered");
    assert_eq!(spare.requests()[0]["service_tier"], "priority");

    let declared = PRICE.replace("test", "\"spare/test\"");
    server.reload(&format!("{config}{declared}")).await;
    let left_out =
        "the fallback spare/test is left out: it is not known what the service_tier that was asked for costs there";
    assert_eq!(cost(&server, &asked).await, (0.000_03, vec![left_out.to_owned()]));
    asked["service_tier"] = "default".into();
    assert_eq!(cost(&server, &asked).await, (0.000_015, vec![]));
}

#[tokio::test]
async fn a_list_with_a_mistake_is_refused_with_its_line() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    write_list(directory.path(), "[]", "colour = \"red\"\n");
    let config = "[prices]\nfiles = [\"own.toml\", \"none.toml\"]\n";
    std::fs::write(directory.path().join("test.toml"), config).expect("it can be written to");
    let checked = loopgate(directory.path()).args(["check-config", "--config", "test.toml"]).output().await;
    let checked = checked.expect("it starts");
    let said = String::from_utf8_lossy(&checked.stderr);
    assert_eq!(checked.status.code(), Some(78), "{said}");
    assert!(said.contains("test.toml:2: prices.files: own.toml, line 9: unknown field `colour`"), "{said}");
    assert!(said.contains("test.toml:2: prices.files: none.toml cannot be read"), "{said}");
}

/// What the check of lists says of this one, and whether it finds it right.
fn check(list: &str) -> (bool, String) {
    let file = tempfile::NamedTempFile::new().expect("a file can be made");
    std::fs::write(file.path(), list).expect("it can be written to");
    let done = Command::new("python3").arg("scripts/check_prices.py").arg(file.path()).output().expect("it starts");
    (done.status.success(), String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
}

#[test]
fn the_check_of_lists_finds_what_cannot_be() {
    let head = "provider = \"P\"\nsource = \"https://p.example\"\nread = 2026-01-02\n";
    let model = "price = { input = 1, cached_input = 0.1, output = 2 }\ncontext_window = 100\nmax_output_tokens = 10\n";
    let of = |more: &str| format!("{head}[models.m]\n{model}{more}");
    let (is_right, said) = check(&of(""));
    assert!(is_right && said.contains("1 models in 1 lists"), "{said}");
    for (wrong, complaint) in [
        (of("").replace("0.1", "1.1"), "cached_input (1.1) is dearer than input (1)"),
        (of("").replace("output = 2", "output = 0.5"), "input (1) is dearer than output (0.5)"),
        (of("").replace("2026-01-02", "2126-01-02"), "read is a day to come"),
        (of("").replace("= 100", "= 9"), "max_output_tokens (10) is more than context_window (9)"),
        (of("also = [\"n\"]\n") + "[models.n]\n" + model, "n is listed twice, as n and as m"),
        (of("tiers = { batch = 1.5 }\n"), "the tier batch is dearer"),
        (
            of("long_context = { above = 50, input = 0.5, cached_input = 0.1, output = 2 }\n"),
            "is cheaper than the ordinary",
        ),
        (of("colour = 1\n"), "the key colour is not known"),
    ] {
        let (is_right, said) = check(&wrong);
        assert!(!is_right && said.contains(complaint), "{complaint}: {said}");
    }
}

#[tokio::test]
async fn a_cost_budget_refuses_what_is_charged_beside_tokens() {
    let (upstream, config) = upstream("").await;
    let server = TestServer::start(&format!("{config}{PRICE}")).await;
    let said = "the run has a cost budget, which cannot count what the upstream charges for web_search_options; leave it \
                out, or ask the operator to allow it for the upstream scripted";
    let lacks = "the cost lacks what the upstream charges for web_search_options";
    let unseen = "the sources that the model names beside its text (annotations) are not passed back; ask for them in \
                  the text";
    let mut members = json!({"web_search_options": {}});
    assert_eq!(cost(&server, &members).await.1, [lacks, unseen], "nothing bounds its cost");
    members["agent"] = under_budget()["agent"].clone();
    assert_eq!(refused(&server, &request(&members)).await, ("web_search_options".to_owned(), said.to_owned()));
    server.reload(&format!("{config}allow_uncounted_cost = true\n{PRICE}")).await;
    let mut members = under_budget();
    members["web_search_options"] = json!({"search_context_size": "low"});
    assert_eq!(cost(&server, &members).await.1, [lacks, unseen]);
    let asked = upstream.requests();
    assert_eq!(asked.len(), 2, "what is refused is not asked");
    assert_eq!(asked[1]["web_search_options"], members["web_search_options"]);
}

#[tokio::test]
async fn the_operator_is_told_which_prices_are_open() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let config = "[upstreams.near]\nbase_url = \"http://10.0.0.7:8000/v1\"\n[upstreams.far]\nbase_url = \
                  \"https://models.example/v1\"\n[agents.bound]\nmodel = \"far/odd\"\n[agents.bound.limits]\n\
                  cost_budget_usd = 1.0\n[agents.loose]\nmodel = \"far/odd\"\n";
    std::fs::write(directory.path().join("test.toml"), config).expect("it can be written to");
    let mut command = loopgate(directory.path());
    let output = command.args(["check-config", "--config", "test.toml"]).output().await.expect("the binary was built");
    let said = String::from_utf8(output.stdout).expect("it writes text");
    let (_, remarks) = said.split_once('\n').expect("the first line says that it is valid");
    insta::assert_snapshot!(remarks, @r#"
    upstreams.near: its address is private, so models without a known price are counted as free; write `free = true` or `free = false` to decide
    agents.bound: no price is known for far/odd, so its cost budget refuses its runs; declare [models."far/odd".price]
    "#);
}
