//! How much memory the server has while it has nothing to do.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use crate::support::{Reply, TestServer, Upstream, within};

const MIB: u64 = 1024 * 1024;

/// What a server at rest may hold beside pages of its binary, which the kernel can drop: tables, clients, the schemas
/// of tools, stacks. A build for tests has 2 MiB of relocations, one that is shipped has half a MiB.
const AT_REST: u64 = 6 * MIB + MIB / 2;

#[tokio::test]
async fn a_server_at_rest_holds_little() {
    let upstream = Upstream::start([]).await;
    let server =
        TestServer::builder(&upstream.config()).env("TOKIO_WORKER_THREADS", "2").store("memory:").start().await;
    let falls = async {
        while server.own_memory() > AT_REST {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within(&format!("{} KiB to fall to {}", server.own_memory() >> 10, AT_REST >> 10), falls).await;
}

#[tokio::test]
async fn what_large_requests_took_is_given_back() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Hello"));
    let server = TestServer::builder(&upstream.config()).store("memory:").start().await;
    let mut body = json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}]});
    server.post("/v1/chat/completions", &body).await.ok();
    let before = server.resident_memory();
    // Refused once it was read, so nothing of it is kept.
    body["messages"][0]["content"] = "x".repeat(8_000_000).into();
    body["max_tokens"] = (-1).into();
    for _ in 0..4 {
        for refused in join_all((0..6).map(|_| server.post("/v1/chat/completions", &body))).await {
            assert_eq!(refused.status, 400);
        }
    }
    let needed = server.most_memory();
    assert!(needed > before + 32 * MIB, "{} MiB are too few to tell", needed / MIB);
    let given_back = async {
        while server.resident_memory() > before + 12 * MIB {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let what = format!("the memory to fall from {} to about {} MiB", needed / MIB, before / MIB);
    within(&what, given_back).await;
}
