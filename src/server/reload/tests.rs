use std::fs;
use std::sync::Arc;

use crate::config::{Options, Settings};
use crate::server::Server;

fn settings(directory: &tempfile::TempDir, text: &str) -> Settings {
    let file = directory.path().join("test.toml");
    fs::write(&file, format!("store.url = 'memory:'\n{text}")).unwrap();
    Settings::load(&Options { config: Some(file), ..Options::default() }, &|_| None).unwrap()
}

#[tokio::test]
async fn an_upstream_that_stays_is_kept_with_its_connections_and_its_list_of_models() {
    let directory = tempfile::tempdir().unwrap();
    let text = |b: &str, more: &str| {
        format!(
            "[upstreams.a]\nbase_url = 'http://127.0.0.1:1/v1'\n\
             [upstreams.b]\nbase_url = 'http://127.0.0.1:{b}/v1'\n{more}"
        )
    };
    let (server, mut reloader) = Server::build(settings(&directory, &text("1", ""))).await.unwrap();
    let before = server.agent().generation();
    let changes =
        Box::pin(reloader.replace(settings(&directory, &text("2", "[upstreams.c]\nkind = 'demo'\n")))).await.unwrap();
    assert_eq!(changes.len(), 2, "{changes:?}");
    let after = server.agent().generation();
    let is_kept =
        |name: &str| Arc::ptr_eq(before.catalog.upstream(name).unwrap(), after.catalog.upstream(name).unwrap());
    assert_eq!((is_kept("a"), is_kept("b")), (true, false));
    assert!(after.catalog.upstream("c").is_some() && before.catalog.upstream("c").is_none());
    assert_eq!(reloader.clients.count(), 1, "b's new address is asked by the same client");
    Box::pin(reloader.replace(settings(&directory, ""))).await.unwrap();
    assert_eq!(reloader.clients.count(), 0, "no upstream is left that has one");
}

#[tokio::test]
async fn what_cannot_be_built_replaces_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (server, mut reloader) = Server::build(settings(&directory, "")).await.unwrap();
    let before = server.agent().generation();
    // The configuration does not know the names of built-in tools.
    let twice = "[tools.calculator]\ndescription = 'd'\nurl = 'http://localhost'\n";
    let error = Box::pin(reloader.replace(settings(&directory, twice))).await.unwrap_err();
    assert_eq!(error.to_string(), "two tools are named `calculator`");
    assert!(Arc::ptr_eq(&before, &server.agent().generation()));
    assert!(reloader.settings().tools.is_empty());
}

#[tokio::test]
async fn requests_are_served_while_a_long_document_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let (server, mut reloader) = Server::build(settings(&directory, "")).await.unwrap();
    let paths: Vec<_> = (0..300).map(|n| format!("  /p{n}: {{get: {{operationId: o{n}}}}}\n")).collect();
    let paths = paths.concat();
    let file = directory.path().join("api.yaml");
    fs::write(&file, format!("openapi: 3.1.0\nservers: [{{url: 'https://a.example'}}]\npaths:\n{paths}")).unwrap();
    let next = settings(&directory, &format!("[openapi.api]\ndocument = '{}'\n", file.display()));
    let mut replacing = std::pin::pin!(reloader.replace(next));
    let begun = futures_util::poll!(replacing.as_mut());
    assert!(begun.is_pending(), "the only thread of this runtime read all of it");
    replacing.await.unwrap();
    assert_eq!(
        server.agent().generation().tools.current().iter().filter(|tool| tool.spec().name.starts_with("api__")).count(),
        300
    );
}
