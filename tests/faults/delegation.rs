//! Runs that begin others, on replicas that die: none is lost or begun twice, and all of them together stay within one budget.

use std::time::Duration;

use loopgate::failpoint::{OF_DELEGATION, OF_STOPPED_TREES};
use serde_json::{Value, json};

use super::{dies_within, scaled};
use crate::support::cluster::checker::trees::{TreeEvidence, TreeRun, check_tree};
use crate::support::http::{HttpServer, Request};
use crate::support::redis::durable;
use crate::support::seed::Seed;
use crate::support::upstream::{asked, declaration, is_list};
use crate::support::{Reply, TestServer, within};

/// How long a server may take to come to the place at which it is to die.
const REACHED: Duration = Duration::from_secs(20);
/// What the model bills for a call.
const BILLED: (u64, u64) = (20, 200);

/// A tree: each run above the lowest begins `width` others, and so `levels` times.
#[derive(Debug, Clone, Copy)]
struct Shape {
    width: usize,
    levels: usize,
    /// How long the lowest take.
    leaf: Duration,
}

impl Shape {
    /// How many times the model is asked if nothing stands in the way.
    fn calls(self) -> u64 {
        let runs = |level| self.width.pow(u32::try_from(level).expect("it is small")) as u64;
        (0..self.levels).map(|level| 2 * runs(level)).sum::<u64>() + runs(self.levels)
    }

    /// What the root says in the end.
    fn answer(self, path: &str) -> String {
        if path.split('.').count() > self.levels {
            return format!("<{path}>");
        }
        (0..self.width).map(|child| self.answer(&format!("{path}.{child}"))).collect::<Vec<_>>().join(" ")
    }

    /// What the model says: it delegates the parts of its task, then says what it was told.
    fn reply(self, request: &Request) -> Reply {
        let body = match asked(request) {
            Ok(body) => body,
            Err(reply) => return reply,
        };
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        let said = |role: &str| messages.iter().filter(|message| message["role"] == role).cloned().collect::<Vec<_>>();
        let (users, told) = (said("user"), said("tool"));
        let path = users.last().and_then(|message| message["content"].as_str()).unwrap_or("?").to_owned();
        let reply = Reply::stream().pause(Duration::from_millis(30));
        let reply = if !told.is_empty() {
            let texts: Vec<_> = told.iter().filter_map(|message| message["content"].as_str()).collect();
            reply.text(&texts.join(" ")).finish("stop")
        } else if path.split('.').count() > self.levels {
            reply.pause(self.leaf).text(&format!("<{path}>")).finish("stop")
        } else {
            let call = |reply: Reply, child: usize| {
                let arguments = json!({"agent": "node", "task": format!("{path}.{child}")}).to_string();
                reply.tool_call(child, &format!("call_{child}"), "delegate", &arguments)
            };
            (0..self.width).fold(reply, call).finish("tool_calls")
        };
        reply.usage(BILLED.0, BILLED.1).done()
    }
}

/// The model of a tree, and the configuration of servers that use it.
async fn stage(shape: Shape) -> (HttpServer, String) {
    let model = HttpServer::start(|request| !is_list(request), move |request| shape.reply(request)).await;
    let agent = "[agents.node]\nmodel = \"scripted/test\"\ntools = []\ndelegates = [\"node\"]\ndescription = \"Does a part.\"\n\
                 [agents.node.delegation]\nmax_depth = 3\n[agents.node.loop_guard]\nenabled = false\n";
    let breaker = "[upstreams.scripted.breaker]\nenabled = false\nretry_percent = 1000\n";
    let config = format!("{}{breaker}{agent}", declaration(model.address()));
    (model, config)
}

/// Asks for the one run of a test, which is begun once. Returns its id if the server lives to tell it.
async fn accept(server: &TestServer, limit: u64) -> Option<String> {
    let body = json!({
        "model": "node", "messages": [{"role": "user", "content": "r"}],
        "agent": {"background": true, "limits": {"token_budget": limit}}
    });
    let request = server.json("/v1/agent/completions", &body).header("idempotency-key", "the-tree");
    let answer = request.send().await.ok()?.bytes().await.ok()?;
    let accepted: Value = serde_json::from_slice(&answer).ok()?;
    accepted["id"].as_str().map(str::to_owned)
}

/// What a server tells, if it lives to.
async fn ask(server: &TestServer, path: &str) -> Option<Value> {
    let request = reqwest::Client::new().get(format!("{}{path}", server.url())).timeout(Duration::from_secs(5));
    serde_json::from_slice(&request.send().await.ok()?.bytes().await.ok()?).ok()
}

/// Waits until no run goes on.
async fn at_rest(server: &TestServer) {
    within("all runs to end", async {
        loop {
            let runs = ask(server, "/v1/runs?limit=100").await.unwrap_or_default();
            let all = runs["data"].as_array().cloned().unwrap_or_default();
            let goes_on = |run: &Value| {
                ["queued", "in_progress", "requires_action"].iter().any(|status| run["status"] == *status)
            };
            if !all.is_empty() && !all.iter().any(goes_on) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Reads everything that a server knows of a tree.
async fn evidence(server: &TestServer, model: &HttpServer, root: &str, (limit, fits): (u64, bool)) -> TreeEvidence {
    let billed = model.requests().iter().filter(|request| !is_list(request)).map(|_| BILLED.0 + BILLED.1).collect();
    let mut found = TreeEvidence { root: root.to_owned(), limit, billed, fits, ..TreeEvidence::default() };
    let listed = server.get("/v1/runs?limit=100").await.ok();
    for run in listed["data"].as_array().expect("it is a list") {
        let id = text(&run["id"]);
        let whole = server.get(&format!("/v1/runs/{id}")).await.ok();
        let events = server.get(&format!("/v1/runs/{id}/events?stream=false")).await.ok();
        let parent = &whole["parent"];
        let mut tree = TreeRun {
            parent: parent.is_object().then(|| {
                (text(&parent["run_id"]), text(&parent["call_id"]), parent["depth"].as_u64().unwrap_or_default())
            }),
            status: text(&whole["status"]),
            tokens: whole["usage"]["total_tokens"].as_u64().unwrap_or_default(),
            output: text(&whole["output_text"]),
            ..TreeRun::default()
        };
        for event in events["data"].as_array().expect("it is a list") {
            let number = event["seq"].as_u64().or_else(|| event["loopgate"]["seq"].as_u64());
            tree.numbers.extend(number);
            match event["type"].as_str() {
                Some("delegate.started") => tree.started.push((text(&event["call_id"]), text(&event["run_id"]))),
                Some("delegate.completed") => tree.completed.push((text(&event["run_id"]), text(&event["status"]))),
                Some("tool.result") => {
                    let is_error = event["is_error"].as_bool().unwrap_or_default();
                    tree.told.push((text(&event["call_id"]), text(&event["content"]), is_error));
                }
                _ => {}
            }
        }
        found.runs.insert(id, tree);
    }
    found
}

fn hold(name: &str, evidence: &TreeEvidence) {
    let wrong = check_tree(evidence);
    let seed = Seed::of_this_run().number();
    assert!(wrong.is_empty(), "{name} (LOOPGATE_TEST_SEED={seed}):\n{}\n{evidence:#?}", wrong.join("\n"));
}

#[tokio::test]
async fn a_server_that_dies_where_it_begins_or_joins_a_run_begins_each_once() {
    let shape = Shape { width: 2, levels: 2, leaf: Duration::from_millis(20) };
    for (index, point) in OF_DELEGATION.iter().enumerate() {
        let (model, config) = stage(shape).await;
        // Not always the first time: in the root, and in runs below it.
        let point = format!("{point}:{}", 1 + index % 3);
        let mut server = TestServer::builder(&config).keep_port().env("LOOPGATE_FAILPOINT", &point).start().await;
        let _ = accept(&server, 1_000_000).await;
        assert!(dies_within(&mut server, REACHED).await, "the server does not come to {point}");
        server.next_env(&[]);
        server.restart().await;
        let root = accept(&server, 1_000_000).await.expect("it is accepted, or was before");
        at_rest(&server).await;
        let found = evidence(&server, &model, &root, (1_000_000, true)).await;
        hold(&point, &found);
        assert_eq!(found.runs[&root].output, shape.answer("r"), "{point}");
        assert_eq!(found.runs.len(), 7, "{point}");
        let tree = server.get(&format!("/v1/runs/{root}/tree")).await.ok();
        assert_eq!((&tree["tree"]["runs"], tree["children"].as_array().map(Vec::len)), (&json!(7), Some(2)), "{point}");
    }
}

#[tokio::test]
async fn a_server_that_dies_where_it_stops_a_tree_leaves_none_of_it() {
    let shape = Shape { width: 2, levels: 2, leaf: Duration::from_secs(600) };
    for point in OF_STOPPED_TREES {
        let (model, config) = stage(shape).await;
        let mut server = TestServer::builder(&config).keep_port().env("LOOPGATE_FAILPOINT", point).start().await;
        let root = accept(&server, 1_000_000).await.expect("it is accepted");
        within("the leaves to begin", async {
            while model.requests().iter().filter(|request| !is_list(request)).count() < 7 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        let cancel = server.json(&format!("/v1/runs/{root}/cancel"), &json!({})).send().await;
        drop(cancel);
        assert!(dies_within(&mut server, REACHED).await, "the server does not come to {point}");
        server.next_env(&[]);
        server.restart().await;
        // What was asked for before the death is done, or is asked for again.
        let _ = server.json(&format!("/v1/runs/{root}/cancel"), &json!({})).send().await;
        at_rest(&server).await;
        let found = evidence(&server, &model, &root, (1_000_000, false)).await;
        hold(point, &found);
        assert!(found.runs.values().all(|run| run.status == "cancelled"), "{point}: {found:#?}");
    }
}

/// The budget fits half of the tree, and replicas are killed at random: the budget is never passed, and whoever ends, ends once.
#[tokio::test]
async fn a_tree_on_replicas_that_are_killed_stays_within_its_budget() {
    let redis = durable().await;
    let (width, levels) = scaled((2, 2), (3, 3));
    let shape = Shape { width, levels, leaf: Duration::from_millis(150) };
    for (db, fits) in [(0, false), (1, true)] {
        let mut seed = Seed::of_this_run().part(&format!("trees-{fits}"));
        let (model, config) = stage(shape).await;
        let takes = shape.calls() * (BILLED.0 + BILLED.1);
        let limit = if fits { 10_000_000 } else { takes / 2 };
        let store = format!("{}?db={db}", redis.url());
        let mut replicas = Vec::new();
        for _ in 0..3 {
            replicas.push(TestServer::builder(&config).keep_port().store(&store).start().await);
        }
        let root = accept(&replicas[0], limit).await.expect("it is accepted");
        for _ in 0..scaled(3, 10) {
            tokio::time::sleep(Duration::from_millis(100 + seed.below(600))).await;
            let victim = usize::try_from(seed.below(3)).expect("it is below 3");
            replicas[victim].kill9().await;
            replicas[victim].restart().await;
        }
        at_rest(&replicas[0]).await;
        let found = evidence(&replicas[1], &model, &root, (limit, false)).await;
        hold("trees", &found);
        if fits {
            assert_eq!(found.runs[&root].output, shape.answer("r"));
            assert!(found.runs.values().all(|run| run.status == "completed"), "{found:#?}");
        }
        let tree = replicas[2].get(&format!("/v1/runs/{root}/tree")).await.ok();
        let used: u64 = found.runs.values().map(|run| run.tokens).sum();
        assert_eq!(tree["tree"]["usage"]["total_tokens"], used, "the tree's sum is that of its runs");
    }
}
