//! Models behind TLS, with certificates of an authority of one's own.

use std::sync::atomic::Ordering;

use http::Version;
use serde_json::json;

use crate::support::tls::{Authority, EncryptedModel};
use crate::support::{Answer, Reply, TestServer, Upstream};

async fn ask(server: &TestServer) -> Answer {
    let body = json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}]});
    server.post("/v1/chat/completions", &body).await
}

#[tokio::test]
async fn models_are_asked_in_the_newest_protocol_that_they_offer() {
    let authority = Authority::make();
    for (offered, spoken) in [
        (&["h2", "http/1.1"][..], Version::HTTP_2),
        (&["http/1.1"], Version::HTTP_11),
        // Servers that know nothing of such offers.
        (&[], Version::HTTP_11),
    ] {
        let model = EncryptedModel::start(&authority, offered).await;
        let server = model.server(&authority).await;
        for _ in 0..2 {
            let answer = ask(&server).await.ok();
            assert_eq!(answer["choices"][0]["message"]["content"], "Hello");
        }
        assert_eq!(model.versions(), [spoken; 2], "{offered:?}");
    }
}

#[tokio::test]
async fn models_are_trusted_by_the_authorities_that_the_environment_names() {
    let (authority, other) = (Authority::make(), Authority::make());
    let model = EncryptedModel::start(&authority, &["http/1.1"]).await;
    ask(&model.server(&authority).await).await.ok();
    let server = model.server(&other).await;
    let before = model.connections.load(Ordering::SeqCst);
    let refused = ask(&server).await;
    assert_eq!(model.connections.load(Ordering::SeqCst) - before, 1, "it would not be trusted the next time either");
    assert_eq!(refused.header("x-should-retry"), "false");
    assert_eq!(refused.status, 502, "{}", refused.body);
    assert!(refused.body.to_string().contains("certificate"), "{}", refused.body);
    assert_eq!(model.versions().len(), 1, "what is not trusted is told nothing");

    // A tool's service is not trusted either, and the model learns that nothing was done.
    let upstream = Upstream::start([Reply::calls("pay", &json!({})), Reply::says("Done.")]).await;
    let tool = format!(
        "[agents.default]\ntools = [\"pay\"]\n[tools.pay]\ndescription = \"Pays\"\nmethod = \"POST\"\n\
         url = \"https://{}/pay\"\n",
        model.address
    );
    let server = TestServer::start(&format!("{}{tool}", upstream.config())).await;
    ask(&server).await.ok();
    let told = upstream.requests()[1]["messages"][2]["content"].to_string();
    assert!(told.contains("cannot be trusted") && told.contains("Nothing was sent"), "{told}");
}

/// An answer was lost with the encryption, but the request was not.
#[tokio::test]
async fn a_request_to_a_model_is_charged_after_which_encryption_breaks() {
    let authority = Authority::make();
    let model = EncryptedModel::start(&authority, &["http/1.1"]).await;
    let server = model.server(&authority).await;
    model.break_next();
    let answer = ask(&server).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "Hello", "it is asked again");
    assert_eq!(model.versions().len(), 2);
    let charged = answer["usage"]["prompt_tokens"].as_u64().expect("it is a number");
    assert!(charged > 1, "the first request may have cost something: {answer}");
}

#[tokio::test]
async fn the_outcome_of_a_call_after_which_encryption_breaks_is_unknown() {
    let authority = Authority::make();
    let service = EncryptedModel::start(&authority, &["http/1.1"]).await;
    let upstream = Upstream::start([Reply::calls("pay", &json!({})), Reply::says("Done.")]).await;
    let tool = format!(
        "[agents.default]\ntools = [\"pay\"]\n[tools.pay]\ndescription = \"Pays\"\nmethod = \"POST\"\n\
         url = \"https://{}/pay\"\n",
        service.address
    );
    let config = format!("{}{tool}", upstream.config());
    let server = TestServer::builder(&config).env("SSL_CERT_FILE", &authority.root()).start().await;
    service.break_next();
    let failed = ask(&server).await;
    assert_eq!((failed.status, &failed.body["error"]["code"]), (500, &json!("outcome_unknown")), "{}", failed.body);
    assert_eq!((service.versions().len(), upstream.requests().len()), (1, 1), "the model cannot repeat the call");
}
