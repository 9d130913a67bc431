//! How streams end that cannot be told to their end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use serde_json::json;
use serde_json::value::RawValue;

use super::*;
use crate::agent::tests::support::catalog;
use crate::agent::{Agent, Generation, Retention};
use crate::api::MetricsAccess;
use crate::llm::offered::OfferedModel;
use crate::llm::{Delta, DeltaStream, Model, ModelCall, ModelError, ModelPart, ModelRequest, ModelTurn};
use crate::store::{CommitError, Tx, Write};
use crate::tools::{CallContext, Registry, Source, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::conversation::Part;
use crate::types::{Effect, TurnEnd};

/// Says something and then nothing for ever.
#[derive(Debug)]
pub(super) struct Silent;

impl Model for Silent {
    fn stream(&self, _request: ModelRequest) -> DeltaStream {
        let said = ["hello", " again"].map(|text| Ok(Delta::Text(text.into())));
        futures_util::stream::iter(said).chain(futures_util::stream::pending()).boxed()
    }

    fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
        Box::pin(std::future::ready(Ok(vec!["m".into()])))
    }
}

/// A store that others share. It damages the first text that is recorded, if it is to.
#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    damages: bool,
}

#[async_trait::async_trait]
impl StoreLayer for Shared {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    async fn on_commit(&self, mut tx: Tx) -> Result<(), CommitError> {
        for write in &mut tx.writes {
            if let Write::Append { entries, .. } = write {
                let is_text = |entry: &&mut bytes::Bytes| String::from_utf8_lossy(entry).contains("hello");
                for entry in entries.iter_mut().filter(is_text).filter(|_| self.damages) {
                    *entry = bytes::Bytes::from_static(b"{\"n\":");
                }
            }
        }
        self.store.commit(tx).await
    }

    fn has_others(&self) -> bool {
        true
    }
}

/// A replica over this store, and its router.
pub(super) fn replica(store: &Arc<dyn Store>, damages: bool) -> (Agent, Router) {
    replica_that_stores(1 << 30, store, damages)
}

/// The same, whose tenants may store so many bytes.
pub(super) fn replica_that_stores(tenant_bytes: u64, store: &Arc<dyn Store>, damages: bool) -> (Agent, Router) {
    let generation = Generation { catalog: catalog(Arc::new(Silent)), ..Generation::default() };
    replica_with(generation, tenant_bytes, store, damages)
}

/// The same, with these models and tools.
fn replica_with(generation: Generation, tenant_bytes: u64, store: &Arc<dyn Store>, damages: bool) -> (Agent, Router) {
    let keep = Retention {
        run: Duration::from_secs(60),
        wait: Duration::from_secs(60),
        session: Duration::from_secs(60),
        history_bytes: 1 << 20,
        ended_bytes: None,
        inbox_bytes: 1 << 20,
        tenant_bytes,
        usage: std::time::Duration::from_secs(86_400),
        usage_rows: 1_000,
        run_bytes: 1 << 30,
    };
    let store = Arc::new(Shared { store: store.clone(), damages });
    let agent = Agent::new(store, generation, keep);
    let router = router(agent.clone(), &Arc::default(), MetricsAccess::Key);
    (agent, router)
}

/// A stream's parts as they come, with the run that it is of.
pub(super) struct Stream {
    pub(super) run: String,
    body: axum::body::BodyDataStream,
}

async fn open(router: &Router, request: Request<Body>) -> Stream {
    let response = router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let run = response.headers()["x-loopgate-run-id"].to_str().unwrap().to_owned();
    Stream { run, body: response.into_body().into_data_stream() }
}

pub(super) async fn asked(router: &Router, path: &str) -> Stream {
    let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    let request = Request::builder().method(Method::POST).uri(path).header("content-type", "application/json");
    open(router, request.body(Body::from(body.to_string())).unwrap()).await
}

async fn followed(router: &Router, run: &str) -> Stream {
    let request = Request::builder().uri(format!("/v1/runs/{run}/events"));
    open(router, request.body(Body::empty()).unwrap()).await
}

impl Stream {
    /// The text up to where it stands still for a second.
    async fn so_far(&mut self) -> String {
        let mut text = String::new();
        while let Ok(Some(part)) = tokio::time::timeout(Duration::from_secs(1), self.body.next()).await {
            text += std::str::from_utf8(&part.unwrap()).unwrap();
        }
        text
    }

    /// The text up to its end, which comes soon.
    async fn rest(&mut self) -> String {
        let mut text = String::new();
        loop {
            let part = tokio::time::timeout(Duration::from_secs(10), self.body.next()).await.expect("it ends soon");
            let Some(part) = part else { return text };
            text += std::str::from_utf8(&part.unwrap()).unwrap();
        }
    }
}

/// The error in the last frame of a stream's text.
fn error_in(text: &str) -> Value {
    let last = text.trim_end().rsplit("\n\n").next().unwrap();
    let error: Value = serde_json::from_str(last.strip_prefix("data: ").unwrap_or("null")).unwrap();
    error["error"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_agent_events_at_a_replica_that_shuts_down_is_sent_elsewhere() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let ((_, driving), (ending, reading)) = (replica(&store, false), replica(&store, false));
    let run = asked(&driving, "/v1/agent/completions").await.run;
    let mut reader = followed(&reading, &run).await;
    assert!(reader.so_far().await.contains("again"));
    ending.announce_end();
    let end = reader.rest().await;
    let lines: Vec<&str> = end.lines().filter(|line| !line.is_empty() && !line.starts_with(':')).collect();
    assert_eq!(lines, ["retry: 250"]);
    assert!(end.ends_with("\n\n"));
}

/// Proxies and clients take a connection for dead on which nothing comes.
#[tokio::test(start_paused = true)]
async fn a_stream_with_nothing_to_say_has_a_comment_every_15_seconds() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    for path in ["/v1/agent/completions", "/v1/chat/completions"] {
        let (_agent, router) = replica(&store, false);
        let mut stream = asked(&router, path).await;
        assert!(stream.so_far().await.contains("again"));
        // `so_far` has waited for a second of the first 15.
        for seconds in [14, 15, 15] {
            let begun = tokio::time::Instant::now();
            let part = tokio::time::timeout(Duration::from_secs(30), stream.body.next()).await.unwrap();
            let part = part.unwrap().unwrap();
            assert!(part.starts_with(b":") && part.ends_with(b"\n\n"), "{part:?}");
            assert_eq!(begun.elapsed().as_secs(), seconds);
        }
    }
}

/// Calls a tool in so many turns, and then answers.
#[derive(Debug)]
struct Busy(AtomicUsize);

impl Model for Busy {
    fn stream(&self, _request: ModelRequest) -> DeltaStream {
        let is_over = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err();
        let call = ModelCall { name: "slow".to_owned(), arguments: "{}".to_owned() };
        let (part, end) = if is_over {
            (ModelPart::Part(Part::text("done")), TurnEnd::Stop)
        } else {
            (ModelPart::Call(call), TurnEnd::ToolCalls)
        };
        let text = is_over.then(|| Ok(Delta::Text("done".to_owned())));
        let turn = ModelTurn { parts: vec![part], usage: None, end };
        futures_util::stream::iter(text.into_iter().chain([Ok(Delta::Finished(Box::new(turn)))])).boxed()
    }

    fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
        Box::pin(std::future::ready(Ok(vec!["m".into()])))
    }
}

/// Takes four seconds.
#[derive(Debug)]
struct Slow(ToolSpec);

#[async_trait::async_trait]
impl Tool for Slow {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &RawValue, _: &CallContext) -> Result<ToolAnswer, ToolError> {
        tokio::time::sleep(Duration::from_secs(4)).await;
        Ok(ToolAnswer::text("done"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_shows_nothing_of_its_tools_has_a_comment_after_15_seconds_too() {
    let spec = ToolSpec {
        name: "slow".to_owned(),
        description: "Takes its time.".to_owned(),
        parameters: RawValue::from_string("{\"type\":\"object\"}".to_owned()).unwrap(),
        effect: Effect::Read,
        timeout: None,
        source: Source::Builtin,
    };
    let (catalog, tools) =
        (catalog(Arc::new(Busy(10.into()))), Registry::new(vec![Arc::new(Slow(spec)) as _]).unwrap());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (agent, router) = replica_with(
        Generation { catalog, tools: Arc::new(tools.into()), ..Generation::default() },
        1 << 30,
        &store,
        false,
    );
    // So that the run's lease is renewed.
    agent.begin();
    let mut stream = asked(&router, "/v1/chat/completions").await;
    let (mut comments, mut text, mut last) = (0, String::new(), tokio::time::Instant::now());
    while let Some(part) = stream.body.next().await {
        assert!(last.elapsed().as_secs() <= 15, "{:?} of silence after {text}", last.elapsed());
        last = tokio::time::Instant::now();
        let part = part.unwrap();
        comments += usize::from(part.starts_with(b":"));
        text += std::str::from_utf8(&part).unwrap();
    }
    assert!(comments == 2 && text.contains("done") && text.ends_with("data: [DONE]\n\n"), "{comments}: {text}");
}

#[tokio::test(start_paused = true)]
async fn a_chat_at_a_replica_that_shuts_down_is_told_that_it_is_not_whole() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (agent, router) = replica(&store, false);
    let mut reader = asked(&router, "/v1/chat/completions").await;
    assert!(reader.so_far().await.contains("again"));
    agent.announce_end();
    assert_eq!(reader.so_far().await, "", "it may still come to its end");
    let ((), end) = tokio::join!(agent.close(), reader.rest());
    assert!(!end.contains("[DONE]"), "{end}");
    assert!(error_in(&end)["message"].as_str().unwrap().contains("shutting down"), "{end}");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_event_ends_a_stream_with_an_error() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let ((_, driving), (_, reading)) = (replica(&store, true), replica(&store, false));
    let run = asked(&driving, "/v1/agent/completions").await.run;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let end = followed(&reading, &run).await.rest().await;
    assert!(!end.contains("[DONE]"), "{end}");
    let error = error_in(&end);
    assert!(error["message"].is_string() && error["type"] == "server_error", "{end}");
}
