//! Many runs at once, each with a plan of its own, and everything that is needed to say afterwards
//! whether all promises were kept.
//!
//! The model and the tools answer by what they are asked, so that any replica may ask them at any time.
//! Clients come back until they have seen the end. What all of them saw is the evidence.

pub(crate) mod apis;
pub(crate) mod checker;
pub(crate) mod client;
pub(crate) mod counters;
pub(crate) mod evidence;
mod figures;
pub(crate) mod harm;
pub(crate) mod model;
pub(crate) mod plan;
mod reading;
pub(crate) mod tools;
pub(crate) mod tree;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use super::seed::Seed;
use super::{TestServer, within};
use checker::check;
use client::Client;
use evidence::{ClientTrace, Evidence, Probe};
use model::ModelServer;
use plan::Plan;
use tools::ToolEndpoints;

pub(crate) use figures::{Figures, Times};

/// The services that runs use outside of the servers: a model and tools.
#[derive(Debug)]
pub(crate) struct TestServices {
    /// The model.
    pub(crate) model: ModelServer,
    /// The tools.
    pub(crate) tools: ToolEndpoints,
}

/// Tokens of a session, and of all runs: more than they take, even if each of their steps were charged in
/// full.
const BUDGET: u64 = 1_000_000_000;

/// The key that all clients have, and its SHA-256.
pub(crate) const KEY: &str = "cluster";
const KEY_HASH: &str = "164cf1ca8391532e4f239c556c0c19589ae8877cb25ecfaf0b310c6c3713ba1f";

/// A client of HTTP that has the key.
fn http() -> reqwest::Client {
    let key = reqwest::header::HeaderValue::from_str(&format!("Bearer {KEY}")).expect("it is plain text");
    let headers = [(reqwest::header::AUTHORIZATION, key)].into_iter().collect();
    let builder = reqwest::Client::builder().no_proxy().connect_timeout(Duration::from_secs(2));
    builder.default_headers(headers).build().expect("the defaults are valid")
}

/// A plan to be run, and the session that it belongs to.
pub(crate) type Job = (Plan, Option<String>);

impl TestServices {
    /// Starts the model and the tools.
    pub(crate) async fn start() -> Self {
        Self { model: ModelServer::start().await, tools: ToolEndpoints::start().await }
    }

    /// A server's configuration, complete but for its store.
    pub(crate) fn config(&self) -> String {
        self.config_with(BUDGET)
    }

    /// The same, where this is what all runs may take together.
    pub(crate) fn config_with(&self, budget: u64) -> String {
        self.config_under(&format!("token_budget = {{ limit = {budget} }}\n"))
    }

    /// The same, where the key has these limits.
    pub(crate) fn config_under(&self, limits: &str) -> String {
        let agent =
            "[agents.default]\ntools = [\"look\", \"put\", \"book\"]\ncontext = { max_message_chars = 10_000_000 }\n";
        let key = format!("[keys.clients]\nkey_sha256 = \"{KEY_HASH}\"\n{limits}");
        // The clients' key may not read the metrics, which tests read too.
        let metrics = "[metrics]\nopen = true\n";
        format!("{}{agent}{}{metrics}{key}", self.model.config(), self.tools.config())
    }

    /// Opens the sessions of these jobs with a budget that is more than enough, so that it can be seen
    /// whether all that was reserved was settled.
    pub(crate) async fn open_sessions(address: &str, jobs: &[Job]) {
        let http = http();
        let sessions: BTreeSet<&String> = jobs.iter().filter_map(|(_, session)| session.as_ref()).collect();
        for session in sessions {
            let body = json!({"id": session, "token_budget": BUDGET});
            let request = http.post(format!("{address}/v1/sessions")).header("content-type", "application/json");
            let answer = within("a session", request.body(body.to_string()).send()).await;
            assert_eq!(answer.expect("the server answers").status(), 201, "{session}");
        }
    }

    /// Lets clients run these jobs, all at once.
    pub(crate) fn launch(client: &Client, seed: &Seed, jobs: Vec<Job>) -> InFlight {
        let client = Arc::new(client.clone());
        let mut tasks = JoinSet::new();
        for (plan, session) in jobs {
            let (client, seed) = (client.clone(), seed.part(&plan.tag));
            tasks.spawn(async move { client.run(plan, session, seed).await });
        }
        InFlight { tasks }
    }

    /// Collects what everyone knows, asking the servers at these addresses.
    pub(crate) async fn evidence(&self, client: &Client, clients: Vec<ClientTrace>) -> Evidence {
        let mut evidence = reading::read_servers(&client.addresses, &clients).await;
        evidence.model = self.model.calls();
        evidence.tools = self.tools.calls();
        evidence.keyed = client.keyed;
        evidence.clients = clients;
        evidence.clients.sort_by(|a, b| a.plan.tag.cmp(&b.plan.tag));
        evidence
    }

    /// Sees what all runs are counted to have taken, those included that were tried in the sessions: tries a run where
    /// nothing is left of their budget, and where enough is left for it.
    pub(crate) async fn probe(&self, evidence: &Evidence, store: &str) -> Probe {
        let charged = evidence.charged();
        let poor = TestServer::builder(&self.config_with(charged.max(1))).store(store).start().await;
        let (nothing_left, told) = reading::try_run(poor.url()).await;
        drop(poor);
        let rich = TestServer::builder(&self.config_with(charged + reading::enough(&told))).store(store).start().await;
        Probe { nothing_left, told, enough_left: reading::try_run(rich.url()).await.0 }
    }
}

/// Runs that are under way.
#[derive(Debug)]
pub(crate) struct InFlight {
    tasks: JoinSet<ClientTrace>,
}

impl InFlight {
    /// Waits for all of them.
    pub(crate) async fn finished(mut self) -> Vec<ClientTrace> {
        let mut all = Vec::new();
        while let Some(seen) = self.tasks.join_next().await {
            all.push(seen.expect("a client does not panic"));
        }
        all
    }
}

/// Fails the test, by all promises that were broken, and keeps the evidence beside the tests' binary.
#[expect(clippy::print_stdout, reason = "the figures are what a reader of a proof wants to see")]
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

/// Keeps a text under this name beside the tests' binary, to look into a failure.
pub(crate) fn keep(name: &str, text: &str) -> std::path::PathBuf {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("it can be written to");
    path
}
