//! `loopgate models`, beside real upstreams.

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use super::{run, text};
use crate::support::Reply;
use crate::support::http::{HttpServer, Request};
use crate::support::redis::free_port;

/// An upstream that lists these models to those who show the key, and answers nothing else.
async fn upstream(models: &'static [&'static str]) -> HttpServer {
    let reply = move |request: &Request| {
        if request.headers.get("authorization").is_none_or(|key| key != "Bearer right") {
            return Reply::error(401, "invalid_api_key", "no such key");
        }
        let models: Vec<_> = models.iter().map(|model| json!({"id": model})).collect();
        Reply::json(200, &json!({"data": models}))
    };
    HttpServer::start(|_| true, reply).await
}

/// A directory with a configuration of this text.
fn configured(config: &str) -> TempDir {
    let directory = tempdir().expect("a directory can be made");
    std::fs::write(directory.path().join("loopgate.toml"), config).expect("it can be written to");
    std::fs::write(directory.path().join("key"), "right").expect("it can be written to");
    directory
}

fn declared(name: &str, address: &str, more: &str) -> String {
    format!("[upstreams.{name}]\nbase_url = \"http://{address}/v1\"\n{more}\n")
}

const KEY: &str = "api_key_file = \"key\"";

#[tokio::test]
async fn models_are_listed_with_their_prices_and_where_these_are_from() {
    let (shop, near) = (upstream(&["gpt-5", "odd"]).await, upstream(&["tiny"]).await);
    let config = [
        declared("shop", &shop.address().to_string(), &format!("{KEY}\nfree = false")),
        declared("near", &near.address().to_string(), &format!("{KEY}\nmodels = [\"tiny\", \"gone\", \"grok-4.7\"]")),
        "[models.gone]\ncontext_window = 1000\nmax_output_tokens = 100\nprice = { input = 0.5, output = 1 }\n"
            .to_owned(),
        "[agents.a]\nmodel = \"shop/claude-haiku-5-5\"\n".to_owned(),
    ];
    let directory = configured(&config.concat());
    let ran = run(directory.path(), &["models"]).await;
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    insta::assert_snapshot!(text(&ran.stdout), @"
    MODEL                  THERE  INPUT  CACHED  OUTPUT  PRICE FROM            WINDOW   ANSWER  TAKES
    shop/claude-haiku-5-5  no     $0.1+  $0.01+  $0.5+   Anthropic 2026-11-23  1000000  128000  image file tools thinking structured_output
    shop/gpt-5             yes    $1.25  $0.125  $10     OpenAI 2026-10-01     400000   128000  image tools thinking structured_output
    shop/odd               yes    $3     $3      $15     guess                 ?        ?
    near/gone              no     $0.5   $0.5    $1      config                1000     100
    near/grok-4.7          no     $2+    $0.5+   $6+     xAI 2026-09-21        500000   500000  image file tools thinking structured_output
    near/tiny              yes    $0     $0      $0      private address       ?        ?
    ");
    let open = "1 model without a known price (guess), which a cost budget refuses: declare [models.\"NAME\".price], or `free = true` \
                of the upstream.\n";
    assert_eq!(text(&ran.stderr), open);

    let ran = run(directory.path(), &["models", "--json"]).await;
    let all: Value = serde_json::from_slice(&ran.stdout).expect("it is JSON");
    assert_eq!(all["ok"], true);
    let of = |id: &str| {
        all["models"].as_array().expect("a list").iter().find(|model| model["id"] == id).expect("it is listed")
    };
    let known = of("shop/gpt-5");
    assert_eq!((&known["price_from"], &known["list"]["provider"]), (&"list".into(), &"OpenAI".into()));
    assert_eq!(known["price"]["tiers"]["priority"], 2.0);
    assert_eq!(of("shop/claude-haiku-5-5")["price"]["long_context"]["above"], 100_000);
    assert_eq!((&of("shop/odd")["price_known"], &of("shop/odd")["assumed"]), (&false.into(), &true.into()));
    assert_eq!((&of("near/gone")["there"], &of("near/gone")["context_window"]), (&false.into(), &1000.into()));
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_is_named_and_so_is_what_to_do() {
    let shop = upstream(&["gpt-5"]).await;
    let config = [
        declared("shop", &shop.address().to_string(), ""),
        declared("away", &format!("127.0.0.1:{}", free_port()), "models = [\"m\"]"),
    ];
    let directory = configured(&config.concat());
    let ran = run(directory.path(), &["models"]).await;
    assert_eq!(ran.status.code(), Some(1));
    let (out, err) = (text(&ran.stdout), text(&ran.stderr));
    assert!(out.lines().any(|line| line.starts_with("away/m") && line.contains(" ? ")), "{out}");
    assert!(err.contains("upstreams.shop: ") && err.contains("It wants a key: name it with api_key_env"), "{err}");
    assert!(err.contains("upstreams.away: ") && err.contains("Check base_url"), "{err}");
    let ran = run(directory.path(), &["models", "--json"]).await;
    let all: Value = serde_json::from_slice(&ran.stdout).expect("it is JSON");
    assert_eq!((&all["ok"], &all["upstreams"][0]["reachable"]), (&false.into(), &false.into()));
    assert_eq!(run(configured("[upstream]\n").path(), &["models"]).await.status.code(), Some(78));
}

#[tokio::test]
async fn what_is_known_of_models_is_listed_without_asking_for_them() {
    let directory = configured(&declared("away", &format!("127.0.0.1:{}", free_port()), ""));
    let ran = run(directory.path(), &["models", "--known"]).await;
    let out = text(&ran.stdout);
    assert!(ran.status.success() && out.lines().count() > 100, "{out}");
    assert!(out.lines().any(|line| line.starts_with("openai/gpt-oss-120b") && line.contains("Groq")), "{out}");
}
