//! The tools of the test services, `look`, `put` and `book`, as HTTP endpoints that keep a journal of every call.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::harm::Loss;
use super::plan::{Tool, ToolTask};
use crate::support::Reply;
use crate::support::http::{HttpServer, Request};
use crate::support::journal::{Ending, Entry};

/// What a [`ToolTask`] has: nothing else is sent to a tool than what it declares.
const PARAMETERS: &str = "{ tag = { type = \"string\" }, round = { type = \"integer\" }, \
                          index = { type = \"integer\" }, delay_ms = { type = \"integer\" }, \
                          loss = { type = \"string\" } }";

/// One call of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dispatch {
    /// Which one.
    pub(crate) tool: Tool,
    /// What for.
    pub(crate) task: ToolTask,
    /// The run, by its header.
    pub(crate) run: String,
    /// The call's id, by its header.
    pub(crate) call: String,
    /// The idempotency key.
    pub(crate) key: String,
    /// The fence of the replica that dispatched it, where servers send it.
    pub(crate) fence: Option<String>,
}

/// The server. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct ToolEndpoints(HttpServer);

impl ToolEndpoints {
    /// Listens on a free port of 127.0.0.1.
    pub(crate) async fn start() -> Self {
        let asked = Mutex::new(BTreeSet::new());
        let answer =
            move |request: &Request| answer(request, &mut asked.lock().unwrap_or_else(PoisonError::into_inner));
        Self(HttpServer::start(|request| Dispatch::read(request).is_some(), answer).await)
    }

    /// Their declarations for a server's configuration.
    pub(crate) fn config(&self) -> String {
        let mut config = String::new();
        for tool in Tool::ALL {
            let (name, effect) = (tool.name(), tool.effect());
            writeln!(
                config,
                "[tools.{name}]\ndescription = \"A test's tool\"\nmethod = \"POST\"\nurl = \"http://{}/{name}\"\n\
                 effect = \"{effect}\"\nparameters = {{ type = \"object\", properties = {PARAMETERS} }}",
                self.0.address()
            )
            .expect("a string takes it");
        }
        config
    }

    /// The calls so far. An answer that a gateway kept is lost like one that broke off.
    pub(crate) fn calls(&self) -> Vec<Entry<Dispatch>> {
        let mut asked = BTreeSet::new();
        let mut calls: Vec<_> =
            self.0.exchanges().into_iter().filter_map(|entry| entry.and_then(Dispatch::read)).collect();
        for Entry { what, ended, .. } in &mut calls {
            let is_first = asked.insert((what.tool, what.task.clone()));
            if is_first && what.task.loss == Loss::Gateway {
                *ended = ended.map(|(at_ms, _)| (at_ms, Ending::Dropped));
            }
        }
        calls
    }

    /// Returns once there is such a call after the first `known` ones.
    pub(crate) async fn called(&self, what: &str, known: usize, is_it: impl Fn(&Dispatch) -> bool) {
        self.0.until(what, known, |request| Dispatch::read(request).is_some_and(|call| is_it(&call))).await;
    }
}

impl Dispatch {
    fn read(request: &Request) -> Option<Self> {
        let header = |name: &str| request.headers.get(name).cloned();
        let required = |name: &str| header(name).unwrap_or_default();
        Some(Self {
            tool: Tool::named(request.target.trim_start_matches('/'))?,
            task: serde_json::from_slice(&request.body).ok()?,
            run: required("x-loopgate-run-id"),
            call: required("x-loopgate-call-id"),
            key: required("idempotency-key"),
            fence: header("x-loopgate-fence"),
        })
    }
}

/// What is answered, where these tasks were asked for before.
fn answer(request: &Request, asked: &mut BTreeSet<(Tool, ToolTask)>) -> Reply {
    let Some(Dispatch { tool, task, .. }) = Dispatch::read(request) else {
        return Reply::error(404, "no_tool", "there is no such tool, or no such task");
    };
    // The head goes out at once, so that a caller may fail between head and body.
    let reply = Reply::status(200).header("content-type", "text/plain");
    let reply = reply.pause(Duration::from_millis(task.delay_ms));
    let answer = task.answer(tool);
    let is_first = asked.insert((tool, task.clone()));
    match if is_first { task.loss } else { Loss::Kept } {
        Loss::Kept => reply.bytes(answer),
        Loss::Reset => reply.headless().reset(),
        Loss::Silence => reply.headless().stall(),
        Loss::Half => reply.bytes(&answer.as_bytes()[..answer.len() / 2]).reset(),
        Loss::Gateway => Reply::status(504).pause(Duration::from_millis(task.delay_ms)).bytes("upstream timed out"),
    }
}
