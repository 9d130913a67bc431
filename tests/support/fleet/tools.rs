//! The fleet's tools, `look`, `put` and `book`, as HTTP endpoints that keep a journal of every call.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::journal::{Entry, Journal};
use super::plan::{Errand, Tool};

/// One call of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dispatch {
    /// Which one.
    pub(crate) tool: Tool,
    /// What for.
    pub(crate) errand: Errand,
    /// The run, by its header.
    pub(crate) run: String,
    /// The call's id, by its header.
    pub(crate) call: String,
    /// The idempotency key.
    pub(crate) key: String,
    /// The fence of whoever dispatched it, where servers send it.
    pub(crate) fence: Option<String>,
}

/// The server. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct FleetTools {
    address: SocketAddr,
    journal: Journal<Dispatch>,
    _tasks: JoinSet<()>,
}

impl FleetTools {
    /// Listens on a free port of 127.0.0.1.
    pub(crate) async fn start() -> Self {
        let journal = Journal::default();
        let router = Router::new().route("/{tool}", post(answer)).with_state(journal.clone());
        let (address, tasks) = super::serve(router).await;
        Self { address, journal, _tasks: tasks }
    }

    /// Their declarations for a server's configuration.
    pub(crate) fn config(&self) -> String {
        let mut config = String::new();
        for tool in Tool::ALL {
            let (name, effect) = (tool.name(), tool.effect());
            writeln!(
                config,
                "[tools.{name}]\ndescription = \"A test's tool\"\nmethod = \"POST\"\nurl = \"http://{}/{name}\"\n\
                 effect = \"{effect}\"\nparameters = {{ type = \"object\" }}",
                self.address
            )
            .expect("a string takes it");
        }
        config
    }

    /// The calls so far.
    pub(crate) fn calls(&self) -> Vec<Entry<Dispatch>> {
        self.journal.entries()
    }

    /// Returns once there is such a call after the first `known` ones.
    pub(crate) async fn called(&self, what: &str, known: usize, is_it: impl Fn(&Dispatch) -> bool) {
        self.journal.until(what, known, |entry| is_it(&entry.what)).await;
    }
}

async fn answer(
    State(journal): State<Journal<Dispatch>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(errand): Json<Errand>,
) -> Response {
    let Some(tool) = Tool::named(&name) else { return StatusCode::NOT_FOUND.into_response() };
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let required = |name: &str| header(name).unwrap_or_default();
    let dispatch = Dispatch {
        tool,
        errand: errand.clone(),
        run: required("x-loopgate-run-id"),
        call: required("x-loopgate-call-id"),
        key: required("idempotency-key"),
        fence: header("x-loopgate-fence"),
    };
    let exchange = journal.begin(dispatch);
    // The head goes out at once, so that a caller may fail between head and body.
    let body = async_stream::stream! {
        tokio::time::sleep(Duration::from_millis(errand.delay_ms)).await;
        yield Ok::<_, std::convert::Infallible>(Bytes::from(errand.answer(tool)));
        exchange.finish();
    };
    ([("content-type", "text/plain")], Body::from_stream(body)).into_response()
}
