//! Many runs at once, each with a plan of its own, and everything that is needed to say afterwards
//! whether all promises were kept.
//!
//! The model and the tools answer by what they are asked, so that any replica may ask them at any time.
//! Clients come back until they have seen the end. What all of them saw is the evidence.

pub(crate) mod checker;
pub(crate) mod client;
pub(crate) mod evidence;
mod figures;
pub(crate) mod journal;
pub(crate) mod model;
pub(crate) mod plan;
mod reading;
pub(crate) mod stream;
pub(crate) mod tools;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;
use tokio::task::JoinSet;

use super::seed::Seed;
use super::within;
use checker::check;
use client::Client;
use evidence::{Evidence, Seen};
use model::ModelServer;
use plan::Plan;
use tools::FleetTools;

pub(crate) use figures::Figures;

/// What a fleet of runs needs outside of the servers.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// The model.
    pub(crate) model: ModelServer,
    /// The tools.
    pub(crate) tools: FleetTools,
}

/// Tokens of a session: more than its runs take, even if each of their steps were charged in full.
const BUDGET: u64 = 10_000_000;

/// A plan and the session that it belongs to.
pub(crate) type Order = (Plan, Option<String>);

impl Fleet {
    /// Starts the model and the tools.
    pub(crate) async fn start() -> Self {
        Self { model: ModelServer::start().await, tools: FleetTools::start().await }
    }

    /// A server's configuration, complete but for its store.
    pub(crate) fn config(&self) -> String {
        let agent = "[agents.default]\ntools = [\"look\", \"put\", \"book\"]\n";
        format!("{}{agent}{}", self.model.config(), self.tools.config())
    }

    /// Opens the sessions of these orders with a budget that is more than enough, so that it can be seen
    /// whether all that was reserved was settled.
    pub(crate) async fn open_sessions(address: &str, orders: &[Order]) {
        let http = reqwest::Client::builder().no_proxy().build().expect("the defaults are valid");
        let sessions: BTreeSet<&String> = orders.iter().filter_map(|(_, session)| session.as_ref()).collect();
        for session in sessions {
            let body = json!({"id": session, "token_budget": BUDGET});
            let request = http.post(format!("{address}/v1/sessions")).header("content-type", "application/json");
            let answer = within("a session", request.body(body.to_string()).send()).await;
            assert_eq!(answer.expect("the server answers").status(), 201, "{session}");
        }
    }

    /// Lets clients run these orders, all at once.
    pub(crate) fn launch(client: &Client, seed: &Seed, orders: Vec<Order>) -> Flight {
        let client = Arc::new(client.clone());
        let mut tasks = JoinSet::new();
        for (plan, session) in orders {
            let (client, seed) = (client.clone(), seed.part(&plan.tag));
            tasks.spawn(async move { client.run(plan, session, seed).await });
        }
        Flight { tasks }
    }

    /// Collects what everyone knows, asking the servers at these addresses.
    pub(crate) async fn evidence(&self, client: &Client, clients: Vec<Seen>) -> Evidence {
        let mut evidence = reading::read_servers(&client.addresses, &clients).await;
        evidence.model = self.model.calls();
        evidence.tools = self.tools.calls();
        evidence.keyed = client.keyed;
        evidence.clients = clients;
        evidence.clients.sort_by(|a, b| a.plan.tag.cmp(&b.plan.tag));
        evidence
    }
}

/// Runs that are under way.
#[derive(Debug)]
pub(crate) struct Flight {
    tasks: JoinSet<Seen>,
}

impl Flight {
    /// Waits for all of them.
    pub(crate) async fn landed(mut self) -> Vec<Seen> {
        let mut all = Vec::new();
        while let Some(seen) = self.tasks.join_next().await {
            all.push(seen.expect("a client does not panic"));
        }
        all
    }
}

/// Fails the test, by all promises that were broken, and keeps the evidence beside the tests' binary.
#[expect(clippy::print_stdout, reason = "the figures are what whoever proves something wants to read")]
pub(crate) fn hold(name: &str, evidence: &Evidence) -> Figures {
    let violations = check(evidence);
    let figures = Figures::of(evidence);
    println!("{name}: {figures}; violations {}", violations.len());
    if violations.is_empty() {
        return figures;
    }
    let path = keep(&format!("{name}.json"), &serde_json::to_string_pretty(evidence).expect("it is plain data"));
    let list: Vec<_> = violations.iter().take(40).map(|violation| format!("  {violation}")).collect();
    panic!(
        "{name}: {} promises were broken (LOOPGATE_TEST_SEED={}, evidence in {}):\n{}",
        violations.len(),
        Seed::of_this_run().number(),
        path.display(),
        list.join("\n")
    );
}

/// Keeps a text under this name beside the tests' binary, for whoever looks into a failure.
pub(crate) fn keep(name: &str, text: &str) -> std::path::PathBuf {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("it can be written to");
    path
}
