//! A tree of runs: its model, which delegates what it is asked and says what it is told, the tool that each run calls once, the
//! configuration of servers that serve it, and what is known of it afterwards.
//!
//! Each run has a task that no other has, its path from the root, and works on it alone. So model and tool can tell which run asks.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::checker::trees::{TreeCall, TreeEnd, TreeEvidence, TreeRun, check_tree};
use crate::support::http::{HttpServer, Request};
use crate::support::journal::Ending;
use crate::support::seed::Seed;
use crate::support::sse::{Decoder, Frame};
use crate::support::upstream::{asked, declaration, is_list};
use crate::support::{Reply, TestServer};

/// What the model bills for a call: no more input than what the smallest is estimated at, and as much output as it may.
const BILLED: (u64, u64) = (40, 250);
/// How long a tree may take to come to its end: its runs may have to be taken over, and others after them.
const ENDED: Duration = Duration::from_secs(180);
/// The tool that each run calls.
const TOOL: &str = "mark";

/// A tree: each run above the lowest begins `width` others, and so `levels` times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) width: usize,
    pub(crate) levels: usize,
    /// How long the lowest take to say what they say.
    pub(crate) leaf: Duration,
}

impl Shape {
    /// How many runs there are below one that stands so deep, itself among them.
    pub(crate) fn runs_from(self, depth: usize) -> u64 {
        (0..=self.levels - depth).map(|level| self.width.pow(u32::try_from(level).expect("it is small")) as u64).sum()
    }

    /// What they are billed if nothing stands in the way: each asks twice.
    pub(crate) fn takes_from(self, depth: usize) -> u64 {
        2 * self.runs_from(depth) * (BILLED.0 + BILLED.1)
    }

    /// What a run says in the end.
    pub(crate) fn answer(self, path: &str) -> String {
        if self.is_leaf(path) {
            return format!("<{path}>");
        }
        (0..self.width).map(|child| self.answer(&format!("{path}.{child}"))).collect::<Vec<_>>().join(" ")
    }

    fn is_leaf(self, path: &str) -> bool {
        path.split('.').count() > self.levels
    }

    /// What the model says: it calls the tool and delegates the parts of its task, then says what it was told of these.
    fn reply(self, request: &Request) -> Reply {
        let Some((path, told)) = task_of(request) else {
            return asked(request).err().unwrap_or_else(|| Reply::error(400, "no_task", "there is no task"));
        };
        let reply = Reply::stream().pause(Duration::from_millis(30));
        let reply = match told.split_first() {
            Some(_) if self.is_leaf(&path) => reply.pause(self.leaf).text(&format!("<{path}>")).finish("stop"),
            Some((_, told)) => reply.text(&told.join(" ")).finish("stop"),
            None => {
                let reply = reply.tool_call(0, "call_mark", TOOL, &json!({"path": path}).to_string());
                let agent = if path.contains('.') { "node" } else { "branch" };
                let call = |reply: Reply, child: usize| {
                    let arguments = json!({"agent": agent, "task": format!("{path}.{child}")}).to_string();
                    reply.tool_call(child + 1, &format!("call_{child}"), "delegate", &arguments)
                };
                let children = if self.is_leaf(&path) { 0 } else { self.width };
                (0..children).fold(reply, call).finish("tool_calls")
            }
        };
        reply.usage(BILLED.0, BILLED.1).done()
    }
}

/// The task that the model is asked for, and what it was told of its calls.
fn task_of(request: &Request) -> Option<(String, Vec<String>)> {
    let body = asked(request).ok()?;
    let said = |role: &str| {
        let messages = body["messages"].as_array().into_iter().flatten().filter(move |message| message["role"] == role);
        messages.filter_map(|message| message["content"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    Some((said("user").pop()?, said("tool")))
}

/// The services of a tree.
#[derive(Debug)]
pub(crate) struct TreeServices {
    shape: Shape,
    model: HttpServer,
    tool: HttpServer,
}

impl TreeServices {
    /// Starts them.
    pub(crate) async fn start(shape: Shape) -> Self {
        let model = HttpServer::start(|request| !is_list(request), move |request| shape.reply(request)).await;
        let tool = HttpServer::start(|_| true, |_| Reply::plain("marked")).await;
        Self { shape, model, tool }
    }

    /// The configuration of servers. No run has all of those below it work at once, so that some come to their ends before a budget is
    /// used up. Each run has budgets of its own, which hold for those below it as well: those of `branch`, the
    /// runs below the first, are of so many tokens.
    pub(crate) fn config(&self, branch: u64) -> String {
        let agent = |name: &str, delegate: &str, tokens: u64| {
            format!(
                "[agents.{name}]\nmodel = \"scripted/test\"\ntools = [\"{TOOL}\"]\ndelegates = [\"{delegate}\"]\n\
                 description = \"Does a part.\"\nlimits = {{ token_budget = {tokens}, max_tool_calls = 10000 }}\n\
                 [agents.{name}.delegation]\nmax_depth = 3\nmax_concurrent = 2\n[agents.{name}.loop_guard]\nenabled = false\n"
            )
        };
        let agents = [("tree", "branch", AMPLE), ("branch", "node", branch), ("node", "node", AMPLE)];
        let agents: String = agents.iter().map(|(name, delegate, tokens)| agent(name, delegate, *tokens)).collect();
        let breaker = "[upstreams.scripted.breaker]\nenabled = false\nretry_percent = 1000\n";
        let tool = format!(
            "[tools.{TOOL}]\ndescription = \"Marks a task.\"\nmethod = \"POST\"\nurl = \"http://{}/{TOOL}\"\n\
             effect = \"idempotent\"\nparameters = {{ type = \"object\", properties = {{ path = {{ type = \"string\" }} }} }}\n",
            self.tool.address()
        );
        // So that a run does not reserve all that is left of a budget.
        let model = format!("[models.test]\nmax_output_tokens = {}\n", BILLED.1);
        format!("{}{breaker}{model}{tool}{agents}", declaration(self.model.address()))
    }

    /// How often the model was asked.
    pub(crate) fn asked(&self) -> usize {
        self.model.requests().len()
    }

    /// Returns once all of the lowest runs are at their last call of the model.
    pub(crate) async fn leaves_asked(&self) {
        let leaves = self.shape.width.pow(u32::try_from(self.shape.levels).expect("it is small"));
        let is_last = |request: &Request| {
            task_of(request).is_some_and(|(path, told)| self.shape.is_leaf(&path) && !told.is_empty())
        };
        let all = async || self.model.requests().iter().filter(|request| is_last(request)).count() >= leaves;
        crate::support::redis::eventually("the leaves to be asked", all).await;
    }

    /// Everything that a server knows of a tree, and the services.
    pub(crate) async fn evidence(&self, server: &TestServer, root: &str, limit: u64) -> TreeEvidence {
        let mut found = TreeEvidence { root: root.to_owned(), limit, ..TreeEvidence::default() };
        for entry in self.model.exchanges() {
            let (mark, _) = task_of(&entry.what).unwrap_or_default();
            let is_whole = matches!(entry.ended, Some((_, Ending::Finished)));
            found.calls.push(TreeCall { mark, at_ms: entry.at_ms, billed: BILLED.0 + BILLED.1, is_whole });
        }
        for request in self.tool.requests() {
            let key = request.headers.get("idempotency-key").cloned().unwrap_or_default();
            found.marked.push((text(&request.json()["path"]), key));
        }
        let listed = server.get("/v1/runs?limit=100").await.ok();
        let mut marks = vec![(root.to_owned(), "r".to_owned())];
        for run in listed["data"].as_array().expect("it is a list") {
            let id = text(&run["id"]);
            let (run, tasks) = read_run(server, &id).await;
            marks.extend(tasks);
            found.runs.insert(id, run);
        }
        // What a run was asked, the run above it says.
        for (id, mark) in marks {
            if let Some(run) = found.runs.get_mut(&id) {
                run.mark = mark;
            }
        }
        found
    }
}

/// A budget that is never used up.
pub(crate) const AMPLE: u64 = 100_000_000;

/// A run, and what those are to do that it began.
async fn read_run(server: &TestServer, id: &str) -> (TreeRun, Vec<(String, String)>) {
    let whole = server.get(&format!("/v1/runs/{id}")).await.ok();
    let events = server.get(&format!("/v1/runs/{id}/events?stream=false")).await.ok();
    let events = events["data"].as_array().expect("it is a list").clone();
    let (parent, tokens) = (&whole["parent"], |of: &Value| of["usage"]["total_tokens"].as_u64());
    let end = events.last().map(|event| event["agent"].clone()).unwrap_or_default();
    let mut run = TreeRun {
        parent: parent
            .is_object()
            .then(|| (text(&parent["run_id"]), text(&parent["call_id"]), parent["depth"].as_u64().unwrap_or_default())),
        status: text(&whole["status"]),
        tokens: tokens(&whole).unwrap_or_default(),
        unconfirmed: end["budget"]["unconfirmed"]["tokens"].as_u64().unwrap_or_default(),
        tree: tokens(&end["tree"]),
        ended_ms: whole["ended_ms"].as_u64().unwrap_or_default(),
        output: text(&whole["output_text"]),
        ..TreeRun::default()
    };
    let mut tasks = Vec::new();
    for event in &events {
        let (call, below) = (text(&event["call_id"]), text(&event["run_id"]));
        match event["type"].as_str() {
            Some("step.started" | "provider.retry") => run.recorded.0 += 1,
            Some("step.discarded") => run.recorded.1 += 1,
            // Its run was stopped meanwhile.
            Some("step.completed") if event["finish_reason"] == "interrupted" => run.recorded.1 += 1,
            Some("tool.call") if event["name"] == "delegate" => tasks.push((call, text(&event["arguments"]["task"]))),
            Some("delegate.started") => run.started.push((call, below)),
            Some("delegate.completed") => run.completed.push(TreeEnd {
                run: below,
                status: text(&event["status"]),
                own: tokens(event).unwrap_or_default(),
                tree: tokens(&event["tree"]).unwrap_or_default(),
            }),
            Some("tool.result") => {
                let is_error = event["is_error"].as_bool().unwrap_or_default();
                run.told.push((call, text(&event["content"]), is_error));
            }
            _ => {}
        }
    }
    run.events = events;
    let task = |call: &str| tasks.iter().find(|(of, _)| of == call).map(|(_, task)| task.clone());
    let tasks = run.started.iter().filter_map(|(call, below)| Some((below.clone(), task(call)?))).collect();
    (run, tasks)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Asks for the one run of a test, which is begun once. Returns its id if the server lives to tell it.
pub(crate) async fn accept(server: &TestServer, limit: u64) -> Option<String> {
    let body = json!({
        "model": "tree", "messages": [{"role": "user", "content": "r"}],
        "agent": {"background": true, "limits": {"token_budget": limit}}
    });
    let request = server.json("/v1/agent/completions", &body).header("idempotency-key", "the-tree");
    let answer = request.send().await.ok()?.bytes().await.ok()?;
    let accepted: Value = serde_json::from_slice(&answer).ok()?;
    accepted["id"].as_str().map(str::to_owned)
}

/// What a server tells, if it lives to.
pub(crate) async fn ask(server: &TestServer, path: &str) -> Option<Value> {
    let request = reqwest::Client::new().get(format!("{}{path}", server.url())).timeout(Duration::from_secs(5));
    serde_json::from_slice(&request.send().await.ok()?.bytes().await.ok()?).ok()
}

/// Whether there are runs, and none goes on.
pub(crate) async fn is_at_rest(server: &TestServer) -> bool {
    let runs = ask(server, "/v1/runs?limit=100").await.unwrap_or_default();
    let all = runs["data"].as_array().cloned().unwrap_or_default();
    let goes_on =
        |run: &Value| ["queued", "in_progress", "requires_action"].iter().any(|status| run["status"] == *status);
    !all.is_empty() && !all.iter().any(goes_on)
}

/// Waits until no run goes on.
pub(crate) async fn at_rest(server: &TestServer) {
    let deadline = Instant::now() + ENDED;
    while !is_at_rest(server).await {
        assert!(Instant::now() < deadline, "runs go on: {:#?}", ask(server, "/v1/runs?limit=100").await);
        sleep(Duration::from_millis(100)).await;
    }
}

/// What one reader saw of a run and of those below it, however often it came back.
#[derive(Debug, Default)]
pub(crate) struct TreeReading {
    /// The run's own events.
    pub(crate) frames: Vec<Frame>,
    /// Those of runs below: on which of its connections, the run, and the event's number.
    pub(crate) nested: Vec<(usize, String, u64)>,
    /// How often it connected.
    pub(crate) connections: usize,
}

impl TreeReading {
    /// Reads a run to its end, from one of these addresses after the other: after the last event that it has seen.
    pub(crate) async fn read(addresses: Vec<String>, run: String) -> Self {
        let (http, mut reading) = (reqwest::Client::new(), Self::default());
        for address in addresses.iter().cycle() {
            let url = format!("{address}/v1/runs/{run}/events?delegate_events=true");
            let last = reading.frames.last().and_then(|frame| frame.id).unwrap_or_default();
            let request = http.get(url).header("last-event-id", last);
            match timeout(Duration::from_secs(10), request.send()).await {
                // All was seen, although nobody said that it was all.
                Ok(Ok(response)) if response.status() == 204 => return reading,
                Ok(Ok(response)) if response.status() == 200 => {
                    if reading.take(response).await {
                        return reading;
                    }
                }
                // It is down, or has not found the run yet.
                Ok(_) | Err(_) => {}
            }
            sleep(Duration::from_millis(100)).await;
        }
        reading
    }

    /// Reads one connection; whether it came to the end.
    async fn take(&mut self, mut response: reqwest::Response) -> bool {
        let mut decoder = Decoder::default();
        self.connections += 1;
        while let Ok(Ok(Some(bytes))) = timeout(Duration::from_secs(20), response.chunk()).await {
            for frame in decoder.read(&bytes) {
                if frame.is_done() {
                    return true;
                }
                if frame.id.is_some() {
                    self.frames.push(frame);
                } else if frame.name == "delegate.event" {
                    let data = frame.json();
                    let event = &data["event"];
                    let seq = event["seq"].as_u64().or_else(|| event["loopgate"]["seq"].as_u64());
                    self.nested.push((self.connections, text(&data["run_id"]), seq.unwrap_or_default()));
                }
            }
        }
        false
    }

    /// What is wrong with what it saw of runs below: each is shown from its beginning on, without gaps.
    pub(crate) fn gaps(&self, evidence: &TreeEvidence) -> Vec<String> {
        let mut last = std::collections::BTreeMap::new();
        let mut wrong = Vec::new();
        for (connection, run, seq) in &self.nested {
            let before = last.insert((connection, run), *seq).unwrap_or_default();
            if *seq != before + 1 || !evidence.runs.contains_key(run) {
                wrong.push(format!("event {seq} of {run} follows {before} on connection {connection}"));
            }
        }
        wrong
    }
}

/// Fails the test by everything that is wrong with a tree.
pub(crate) fn hold_tree(name: &str, evidence: &TreeEvidence) {
    let wrong = check_tree(evidence);
    let seed = Seed::of_this_run().number();
    let path = super::keep(&format!("tree-{}.txt", name.replace([':', '.'], "-")), &format!("{evidence:#?}"));
    let path = path.display();
    assert!(wrong.is_empty(), "{name} (LOOPGATE_TEST_SEED={seed}, evidence in {path}):\n{}", wrong.join("\n"));
}
