//! What must be right before the store is used.

use std::process::Command;

use super::servers::eventually;
use super::*;

async fn refusal(url: &str) -> String {
    let refusal = RedisStore::open(&url.parse().unwrap()).await.unwrap_err().to_string();
    assert!(!refusal.contains("s3cret"), "{refusal}");
    refusal
}

#[tokio::test]
async fn server_that_evicts_is_refused() {
    let server = RedisServer::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]).await;
    let refusal = refusal(&server.url()).await;
    assert!(refusal.contains("maxmemory-policy allkeys-lru"), "{refusal}");
}

#[tokio::test]
async fn replica_is_refused() {
    let server = RedisServer::start().await;
    let replica = server.replica().await;
    let refusal = refusal(&replica.url()).await;
    assert!(refusal.contains("is a replica, not the primary"), "{refusal}");
}

#[tokio::test]
async fn other_layout_than_the_urls_is_refused() {
    let cluster = RedisServer::start_with(&["--cluster-enabled", "yes"]).await;
    assert!(refusal(&cluster.url()).await.contains("redis-cluster://"));
    let alone = RedisServer::start().await;
    let refused = refusal(&alone.url().replace("redis://", "redis-cluster://")).await;
    assert!(refused.contains("cluster support disabled"), "{refused}");
    let watched = Watched::start().await;
    assert!(refusal(&watched.sentinels[0].url()).await.contains("redis-sentinel://"));
    assert!(refusal(&watched.url().replace("mymaster", "other")).await.contains("\"other\""));
}

#[tokio::test]
async fn login_is_checked_and_never_told() {
    let server = RedisServer::start_with(&["--requirepass", "s3cret"]).await;
    let with = |login: &str| server.url().replace("127.0.0.1", &format!("{login}@127.0.0.1"));
    let store = open(&with(":s3cret")).await;
    assert_eq!(store.health().await, Ok(()));
    assert!(!format!("{store:?}").contains("s3cret"));
    for wrong in [server.url(), with(":s3cretwrong"), with("ann:s3cret")] {
        let refused = refusal(&wrong).await;
        assert!(refused.contains("AUTH") || refused.contains("WRONGPASS"), "{refused}");
    }
    server.cli(&["-a", "s3cret", "ACL", "SETUSER", "bob", "on", ">s3cret2", "+@all", "-role", "~*", "&*"]).await;
    let refused = refusal(&with("bob:s3cret2")).await;
    assert!(refused.contains("NOPERM") && refused.contains("role"), "{refused}");
    // What this store needs, as the manual says.
    let needed = ["ACL", "SETUSER", "eve", "on", ">s3cret3", "~lg:*", "&lg:*", "+@all", "-@dangerous", "+role"];
    server.cli(&[&["-a", "s3cret"], &needed[..]].concat()).await;
    conformance::all(&open(&with("eve:s3cret3")).await).await;
}

#[tokio::test]
async fn password_that_a_server_repeats_is_not_told() {
    let server = RedisServer::start_with(&["--requirepass", "s3cret", "--rename-command", "HELLO", "OTHER"]).await;
    let refused = refusal(&server.url().replace("127.0.0.1", ":s3cret@127.0.0.1")).await;
    assert!(refused.contains("unknown command") && !refused.contains("args"), "{refused}");
}

#[tokio::test]
async fn server_that_is_not_there_yet_is_waited_for() {
    let mut server = RedisServer::start().await;
    server.kill().await;
    let store = open(&server.url()).await;
    assert!(store.health().await.is_err());
    let watch = store.watch(&Topic::new(partition("p"), "run"));
    server.restart().await;
    eventually("it is found", async || store.health().await.is_ok()).await;
    assert_eq!(append(&store, &partition("p"), 0).await, Ok(()));
    eventually("it is listened to", async || !server.cli(&["PUBSUB", "SHARDCHANNELS"]).await.is_empty()).await;
    drop(watch);
}

/// Both ways round a server only waits, or closes the connection: the cause is known here alone.
#[tokio::test]
async fn encryption_that_a_server_does_not_speak_is_named() {
    let server = RedisServer::start().await;
    let store = open(&server.url().replace("redis://", "rediss://")).await;
    // The first attempt takes its whole time, and the health of the store is asked for before its end.
    let is_named = async || {
        let why = store.health().await.unwrap_err().to_string();
        why.contains("in TLS") && why.contains("redis://")
    };
    eventually("the cause is named", is_named).await;
}

#[tokio::test]
async fn something_else_than_redis_is_never_healthy() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n";
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await;
        }
    });
    let store = open(&format!("redis://127.0.0.1:{port}")).await;
    assert!(store.health().await.is_err());
}

#[tokio::test]
async fn encrypted_connections_trust_whom_they_are_told_to() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (cert, cert_key) = (path("cert.pem"), path("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", &cert_key, "-out", &cert])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    drop(listener);
    let arguments = ["--tls-port", &port, "--tls-cert-file", &cert, "--tls-key-file", &cert_key];
    let _server = RedisServer::start_with(&[&arguments[..], &["--tls-auth-clients", "no"]].concat()).await;
    let url = format!("rediss://localhost:{port}");
    let store = open(&format!("{url}?ca={cert}")).await;
    assert_eq!(append(&store, &partition("p"), 0).await, Ok(()));
    let refused = refusal(&url).await;
    assert!(refused.contains("certificate"), "{refused}");
    let missing = refusal(&format!("{url}?ca={cert}.not")).await;
    assert!(missing.contains("cannot be read"), "{missing}");
}
