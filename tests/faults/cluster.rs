//! Several replicas on one store, and the runs that they serve.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use crate::support::TestServer;
use crate::support::cluster::client::Client;
use crate::support::cluster::counters::Life;
use crate::support::cluster::evidence::{ClientTrace, Window};
use crate::support::cluster::{Figures, InFlight, Job, TestServices, hold, keep};
use crate::support::seed::Seed;

/// Replicas on one store, the services that they call and the client that calls them.
#[derive(Debug)]
pub(super) struct TestCluster {
    pub(super) name: String,
    pub(super) services: TestServices,
    pub(super) replicas: Vec<TestServer>,
    pub(super) client: Client,
    pub(super) seed: Seed,
    /// When the store may have forgotten what it acknowledged.
    pub(super) forgotten: Vec<Window>,
    /// Whether every driver that called a model could record what came of it.
    pub(super) drivers_stayed: bool,
    /// How many requests with messages each run took, by its id.
    pub(super) steered: BTreeMap<String, usize>,
    /// What replicas counted, where it is compared.
    counted: Vec<Life>,
    /// Whether the key of all clients has a budget.
    has_budget: bool,
    /// The store, for the probe after the runs.
    store: String,
}

impl TestCluster {
    /// Starts a replica for each of these stores' URLs, which all name the same store.
    pub(super) async fn start(name: &str, stores: &[String]) -> Self {
        Self::dying(name, stores, &[]).await
    }

    /// The same, where the clients' key has no budget: then the first step of a run without a session begins in the commit
    /// that creates the run.
    pub(super) async fn without_budget(name: &str, stores: &[String]) -> Self {
        let services = TestServices::start().await;
        let config = services.config_under("");
        Self { has_budget: false, ..Self::of(services, &config, name, stores, &[]).await }
    }

    /// The same, where the clients' key has no budget, the agents' context has these settings too, and the first replicas die at
    /// these places.
    pub(super) async fn configured(name: &str, stores: &[String], more: &str, places: &[&str]) -> Self {
        let services = TestServices::start().await;
        let config = services.config_under("").replace("context = { ", &format!("context = {{ {more}, "));
        Self { has_budget: false, ..Self::of(services, &config, name, stores, places).await }
    }

    /// The same, where the first replicas die at these places.
    pub(super) async fn dying(name: &str, stores: &[String], places: &[&str]) -> Self {
        let services = TestServices::start().await;
        let config = services.config();
        Self::of(services, &config, name, stores, places).await
    }

    async fn of(services: TestServices, config: &str, name: &str, stores: &[String], places: &[&str]) -> Self {
        let mut replicas = Vec::new();
        for (index, store) in stores.iter().enumerate() {
            let mut builder = TestServer::builder(config).keep_port().store(store);
            if let Some(place) = places.get(index) {
                builder = builder.env("LOOPGATE_FAILPOINT", place);
            }
            replicas.push(builder.start().await);
        }
        let mut client = Client::new(replicas.iter().map(|replica| replica.url().to_owned()).collect());
        client.agent = json!({"on_unknown_outcome": "tell_model"});
        let seed = Seed::of_this_run().part(name);
        let store = stores[stores.len() - 1].clone();
        Self {
            name: name.to_owned(),
            services,
            replicas,
            client,
            seed,
            forgotten: Vec::new(),
            drivers_stayed: false,
            steered: BTreeMap::new(),
            counted: Vec::new(),
            has_budget: true,
            store,
        }
    }

    /// Lets clients run these jobs, in sessions whose budgets show whether all was settled.
    pub(super) async fn launch(&self, jobs: Vec<Job>) -> InFlight {
        TestServices::open_sessions(self.replicas[0].url(), &jobs).await;
        TestServices::launch(&self.client, &self.seed, jobs)
    }

    /// Kills a replica, whose counters were read just before.
    pub(super) async fn kill(&mut self, victim: usize) {
        let replica = &mut self.replicas[victim];
        let url = replica.url().to_owned();
        self.counted.push(Life::until(&url, replica.kill9()).await);
    }

    /// Reads the counters of all replicas, once their runs have ended. They are compared with what happened.
    pub(super) async fn count(&mut self) {
        for replica in &self.replicas {
            self.counted.push(Life::at_rest(replica.url()).await);
        }
    }

    /// Waits for the runs to end, and compares what everyone recorded with what is promised.
    pub(super) async fn finish(&self, in_flight: InFlight) -> Figures {
        self.judge(in_flight.finished().await).await
    }

    /// Compares what these clients and everyone else recorded with what is promised.
    pub(super) async fn judge(&self, traces: Vec<ClientTrace>) -> Figures {
        for (index, replica) in self.replicas.iter().enumerate() {
            keep(&format!("{}-{index}.log", self.name), &replica.output());
        }
        let mut evidence = self.services.evidence(&self.client, traces).await;
        evidence.forgotten.clone_from(&self.forgotten);
        evidence.counted.clone_from(&self.counted);
        evidence.drivers_stayed = self.drivers_stayed;
        evidence.steered.clone_from(&self.steered);
        if self.has_budget {
            evidence.all_runs = Some(self.services.probe(&evidence, &self.store).await);
        }
        hold(&self.name, &evidence)
    }
}

/// How long a replica may need to resume the runs of one that died: a lease's time and a sweep's.
pub(super) const TAKEOVER: Duration = Duration::from_secs(14);
