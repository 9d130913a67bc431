//! What agents remember and know, through the router.

use serde_json::json;

use super::*;
use crate::config::{MemoryConfig, Scope, SkillsConfig};
use crate::types::skill::Skill;

fn key_of(name: &str, tenant: &str, agents: Option<&[&str]>, scopes: Scopes) -> KeyConfig {
    KeyConfig {
        name: name.into(),
        tenant: Tenant::parse(tenant).unwrap(),
        hash: key::hash(name),
        agents: agents.map(|agents| agents.iter().map(|&agent| agent.into()).collect()),
        scopes,
        requests_per_minute: None,
        request_mcp: false,
        quota: QuotaConfig::default(),
        per_user: crate::config::ShareConfig::default(),
        policy: std::sync::Arc::default(),
        layers: [].into(),
    }
}

/// A router with these keys, each of which is its own name.
fn keyed() -> Router {
    let keys = [
        key_of("one", "one", None, Scopes::all()),
        key_of("two", "two", None, Scopes::all()),
        key_of("bound", "one", Some(&["helper"]), Scopes::all()),
        key_of("reads", "one", None, Scopes::of([Scope::Read])),
        key_of("runs", "one", None, Scopes::of([Scope::Run])),
        key_of("upgraded", "one", None, Scopes::of_tenant()),
    ];
    let instructions = "Only models read this.".to_owned();
    let house = Skill { name: "house".into(), description: "Of the house.".into(), instructions };
    let generation = Generation {
        keys: keys.into_iter().map(|key| (key.hash, key)).collect(),
        memory: Some(MemoryConfig::default()),
        skills: SkillsConfig { skills: [house].into(), ..SkillsConfig::default() },
        ..Generation::default()
    };
    router(agent_of(1 << 30, Arc::new(MemoryStore::default()), generation), &Arc::default(), MetricsAccess::Key)
}

async fn call(router: &Router, key: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let request = Request::builder().method(method).uri(path).header("x-api-key", key);
    let request = request.header("content-type", "application/json").body(body).unwrap();
    let (status, body) = send(router, request).await;
    (status.as_u16(), body)
}

async fn refused(router: &Router, key: &str, method: &str, path: &str, body: Value) -> (u16, String) {
    let (status, body) = call(router, key, method, path, body).await;
    (status, body["error"]["code"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_memory_is_written_read_listed_and_deleted() {
    let router = keyed();
    let path = "/v1/memory/documents/tea?user=ann%2Fx&agent=helper";
    let (status, made) = call(&router, "one", "PUT", path, json!({"content": "green", "version": 0})).await;
    assert_eq!((status, &made["version"], &made["bytes"]), (200, &json!(1), &json!(5)));
    let (_, read) = call(&router, "one", "GET", path, Value::Null).await;
    assert_eq!((&read, &read["user"], &read["content"]), (&made, &json!("ann/x"), &json!("green")));
    let again = json!({"content": "black", "version": 0});
    assert_eq!(refused(&router, "one", "PUT", path, again).await, (409, "version_conflict".into()));
    for name in ["a", "b", "c"] {
        let path = format!("/v1/memory/documents/{name}?user=ann%2Fx&agent=helper");
        assert_eq!(call(&router, "one", "PUT", &path, json!({"content": "x"})).await.0, 200);
    }
    let list = "/v1/memory/documents?user=ann%2Fx&agent=helper&limit=2&after=a";
    let (_, page) = call(&router, "one", "GET", list, Value::Null).await;
    let names: Vec<_> = page["data"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!((names, &page["has_more"], page["data"][0].get("content")), (vec!["b", "c"], &json!(true), None));
    for other in ["?user=ann%2fX&agent=helper", "?user=ann%2Fx&agent=other", "?agent=helper", "?user=ann%2Fx"] {
        let path = format!("/v1/memory/documents/tea{other}");
        assert_eq!(refused(&router, "one", "GET", &path, Value::Null).await, (404, "document_not_found".into()));
    }
    assert_eq!(refused(&router, "two", "GET", path, Value::Null).await, (404, "document_not_found".into()));
    let (status, gone) = call(&router, "one", "DELETE", path, Value::Null).await;
    assert_eq!((status, gone), (200, json!({"id": "tea", "object": "memory.document", "deleted": true})));
    assert_eq!(refused(&router, "one", "DELETE", path, Value::Null).await, (404, "document_not_found".into()));
}

#[tokio::test]
async fn everything_of_a_user_is_exported_and_deleted_in_one_request() {
    let router = keyed();
    for owner in ["user=ann&agent=a", "user=ann&agent=b", "user=ann", "user=bob&agent=a", "agent=a"] {
        for number in 0..40 {
            let path = format!("/v1/memory/documents/n{number}?{owner}");
            assert_eq!(call(&router, "one", "PUT", &path, json!({"content": owner})).await.0, 200);
        }
    }
    call(&router, "one", "PUT", "/v1/agents/a/files/USER.md?user=ann", json!({"content": "copy"})).await;
    let (_, all) = call(&router, "one", "GET", "/v1/memory?user=ann", Value::Null).await;
    let documents = all["documents"].as_array().unwrap();
    assert_eq!((all["object"].as_str(), documents.len()), (Some("memory.export"), 121));
    assert!(documents.iter().all(|one| one["user"] == "ann" && one["content"].is_string()));
    assert_eq!(documents.iter().filter(|one| one["kind"] == "files").count(), 1);
    let (_, part) = call(&router, "one", "GET", "/v1/memory?user=ann&agent=b", Value::Null).await;
    assert_eq!(part["documents"].as_array().unwrap().len(), 40);
    let (status, gone) = call(&router, "one", "DELETE", "/v1/memory?user=ann", Value::Null).await;
    assert_eq!((status, gone), (200, json!({"object": "memory", "deleted": true, "documents": 121})));
    let left = async |owner: &str| {
        let (_, all) = call(&router, "one", "GET", &format!("/v1/memory?{owner}"), Value::Null).await;
        all["documents"].as_array().unwrap().len()
    };
    assert_eq!((left("user=ann").await, left("user=bob").await, left("agent=a").await), (0, 40, 40));
}

#[tokio::test]
async fn requests_for_what_is_not_there_or_not_allowed_are_refused_with_words() {
    let router = keyed();
    let put = json!({"content": "x"});
    let long = format!("/v1/memory?user={}", "x".repeat(4_097));
    for (key, method, path, body, expected) in [
        ("one", "GET", "/v1/memory", Value::Null, (400, "missing_field")),
        ("one", "GET", "/v1/memory?agent=a/b", Value::Null, (400, "invalid_value")),
        ("one", "GET", long.as_str(), Value::Null, (400, "invalid_value")),
        ("one", "PUT", "/v1/memory/documents/a%20b?user=u", put.clone(), (400, "invalid_value")),
        ("one", "PUT", "/v1/memory/documents/a?user=u", json!({"text": "x"}), (400, "unknown_field")),
        (
            "one",
            "PUT",
            "/v1/memory/documents/a?user=u",
            json!({"content": "x".repeat(40_000)}),
            (413, "payload_too_large"),
        ),
        ("reads", "PUT", "/v1/memory/documents/a?user=u", put.clone(), (403, "forbidden")),
        ("reads", "DELETE", "/v1/memory?user=u", Value::Null, (403, "forbidden")),
        ("reads", "PUT", "/v1/skills/a", put.clone(), (403, "forbidden")),
        ("reads", "PUT", "/v1/agents/a/files/SOUL.md", put.clone(), (403, "forbidden")),
        ("bound", "GET", "/v1/memory?user=u", Value::Null, (403, "forbidden")),
        ("bound", "GET", "/v1/memory?user=u&agent=other", Value::Null, (403, "forbidden")),
        ("bound", "GET", "/v1/agents/other/files", Value::Null, (403, "forbidden")),
        ("one", "PUT", "/v1/skills/a", json!({"description": " ", "instructions": "x"}), (400, "invalid_value")),
        ("one", "GET", "/v1/skills/none", Value::Null, (404, "document_not_found")),
        ("one", "GET", "/v1/agents/a/files/%FF", Value::Null, (404, "unknown_url")),
        ("one", "GET", "/v1/agents/%FF/files", Value::Null, (404, "unknown_url")),
        ("one", "GET", "/v1/sessions/s/layers/%FF", Value::Null, (404, "unknown_url")),
    ] {
        let found = refused(&router, key, method, path, body).await;
        assert_eq!((found.0, found.1.as_str()), expected, "{key} {method} {path}");
    }
    for path in ["/v1/memory?user=u&agent=helper", "/v1/agents/helper/files"] {
        assert_eq!(call(&router, "bound", "GET", path, Value::Null).await.0, 200, "{path}");
    }
}

#[tokio::test]
async fn skills_and_files_of_agents_are_the_tenants_own() {
    let router = keyed();
    let skill = json!({"description": "Bakes.", "instructions": "Knead."});
    let (status, made) = call(&router, "one", "PUT", "/v1/skills/bake", skill).await;
    assert_eq!((status, &made["source"], &made["version"]), (200, &json!("tenant"), &json!(1)));
    let (_, list) = call(&router, "one", "GET", "/v1/skills", Value::Null).await;
    assert_eq!((&list["data"][1]["name"], list["data"][1].get("instructions")), (&json!("bake"), None));
    let (_, list) = call(&router, "two", "GET", "/v1/skills", Value::Null).await;
    assert_eq!(list["data"].as_array().map(Vec::len), Some(1), "the operator's are all of the others': {list}");
    let (_, house) = call(&router, "reads", "GET", "/v1/skills/house", Value::Null).await;
    assert_eq!((&house["description"], house.get("instructions")), (&json!("Of the house."), None));
    assert_eq!(call(&router, "one", "DELETE", "/v1/skills/bake", Value::Null).await.0, 200);
    let most = json!({"description": "d".repeat(1 << 10), "instructions": "i".repeat(64 << 10)});
    assert_eq!(call(&router, "one", "PUT", &format!("/v1/skills/{}", "n".repeat(100)), most).await.0, 200);
    let path = "/v1/agents/helper/files/SOUL.md";
    assert_eq!(call(&router, "one", "PUT", path, json!({"content": "Be kind."})).await.0, 200);
    let (_, file) = call(&router, "one", "GET", path, Value::Null).await;
    assert_eq!((&file["kind"], &file["content"]), (&json!("files"), &json!("Be kind.")));
    assert_eq!(call(&router, "two", "GET", path, Value::Null).await.0, 404);
    let (_, list) = call(&router, "one", "GET", "/v1/agents/helper/files", Value::Null).await;
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
    assert_eq!(call(&router, "one", "DELETE", path, Value::Null).await.0, 200);
}

/// A dry run shows what needs the scope `read` elsewhere.
#[tokio::test]
async fn a_dry_run_is_for_keys_that_may_read() {
    let router = keyed();
    for path in ["/v1/agent/completions", "/v1/chat/completions"] {
        let ask =
            json!({"model": "none", "messages": [{"role": "user", "content": "tea?"}], "agent": {"dry_run": true}});
        assert_eq!(refused(&router, "runs", "POST", path, ask.clone()).await, (403, "forbidden".into()));
        assert_eq!(refused(&router, "one", "POST", path, ask).await, (404, "model_not_found".into()));
    }
}

/// A key that is bound to agents, or to nothing that it was given, instructs no others.
#[tokio::test]
async fn who_may_use_some_agents_only_does_not_instruct_the_others() {
    let router = keyed();
    let skill = json!({"description": "Bakes.", "instructions": "Knead."});
    let forbidden = (403, "forbidden".to_owned());
    for key in ["bound", "upgraded"] {
        assert_eq!(refused(&router, key, "PUT", "/v1/skills/bake", skill.clone()).await, forbidden, "{key}");
        assert_eq!(refused(&router, key, "DELETE", "/v1/skills/bake", Value::Null).await, forbidden, "{key}");
    }
    assert_eq!(call(&router, "one", "PUT", "/v1/skills/bake", skill).await.0, 200);
    assert_eq!(call(&router, "one", "POST", "/v1/sessions", json!({"id": "s"})).await.0, 201);
    let (path, layer) = ("/v1/sessions/s/layers/tone", json!({"text": "Be rude."}));
    assert_eq!(refused(&router, "bound", "PUT", path, layer.clone()).await, forbidden);
    assert_eq!(call(&router, "one", "PUT", path, layer).await.0, 200);
    assert_eq!(refused(&router, "bound", "DELETE", path, Value::Null).await, forbidden);
    for name in ["memory", "skills", "files"] {
        let path = format!("/v1/sessions/s/layers/{name}");
        assert_eq!(refused(&router, "one", "PUT", &path, json!({"text": "x"})).await, (400, "invalid_value".into()));
    }
}

#[tokio::test]
async fn nothing_is_written_into_memories_where_agents_have_none() {
    let keys = [key_of("one", "one", None, Scopes::all())];
    let keys = keys.into_iter().map(|key| (key.hash, key)).collect();
    let agent = agent_of(1 << 30, Arc::new(MemoryStore::default()), Generation { keys, ..Generation::default() });
    let router = router(agent, &Arc::default(), MetricsAccess::Key);
    let path = "/v1/memory/documents/a?user=u";
    assert_eq!(refused(&router, "one", "PUT", path, json!({"content": "x"})).await, (403, "forbidden".into()));
    assert_eq!(refused(&router, "one", "DELETE", path, Value::Null).await, (404, "document_not_found".into()));
    assert_eq!(call(&router, "one", "DELETE", "/v1/memory?user=u", Value::Null).await.0, 200);
}

#[tokio::test]
async fn a_user_is_no_longer_than_one_whose_memory_can_be_deleted() {
    let router = keyed();
    let ask = |user: String| json!({"model": "none", "messages": [{"role": "user", "content": "x"}], "user": user});
    for (user, expected) in [("x".repeat(4_096), "model_not_found"), ("x".repeat(4_097), "invalid_value")] {
        assert_eq!(refused(&router, "one", "POST", "/v1/agent/completions", ask(user)).await.1, expected);
    }
}
