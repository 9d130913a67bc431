//! Documents and arguments that are made to do harm.

use super::*;
use crate::config::Identity;

/// A document that asks the model for what the server says itself.
#[tokio::test]
async fn a_model_never_says_who_asks() {
    let names = [
        "X-Loopgate-User",
        "x-loopgate-tenant",
        "X-Loopgate-Fence",
        "x-request-id",
        "Cookie",
        "X-Forwarded-For",
        "forwarded",
        "Proxy-Authorization",
        "te",
        "upgrade",
        "accept-encoding",
        "user-agent",
    ];
    let parameters: Vec<_> = names.iter().map(|name| json!({"in": "header", "name": name, "required": true})).collect();
    let document =
        json!({"openapi": "3.1.0", "paths": {"/x": {"get": {"operationId": "x", "parameters": parameters}}}});
    let service = Service::start().await;
    let config = OpenApiConfig { send_identity: SentIdentity(vec![Identity::User]), ..service.config() };
    let OpenApiTools { tools, .. } = made(&document.to_string(), config);
    let registry = Registry::new(tools).unwrap();
    for name in names {
        let told = call(&service, &registry, "api__x", &json!({name: "admin"})).await.unwrap_err();
        assert!(told.contains("no parameter"), "{told}");
    }
    let heard = call(&service, &registry, "api__x", &json!({})).await.unwrap();
    assert!(!heard.contains("admin"), "{heard}");
}
