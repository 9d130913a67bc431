//! Several replicas on one store, and the runs that they serve.

use std::time::Duration;

use serde_json::json;

use crate::support::Server;
use crate::support::fleet::client::Client;
use crate::support::fleet::evidence::Seen;
use crate::support::fleet::{Figures, Fleet, Flight, Order, hold, keep};
use crate::support::seed::Seed;

/// Replicas, and everything that they need outside.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) name: String,
    pub(super) fleet: Fleet,
    pub(super) replicas: Vec<Server>,
    pub(super) client: Client,
    pub(super) seed: Seed,
    /// Whether the store may forget what it acknowledged.
    pub(super) may_forget: bool,
    /// Where whoever looks afterwards finds the store.
    store: String,
}

impl Site {
    /// Starts a replica for each of these stores' URLs, which all name the same store.
    pub(super) async fn start(name: &str, stores: &[String]) -> Self {
        Self::dying(name, stores, &[]).await
    }

    /// The same, where the first replicas die at these places.
    pub(super) async fn dying(name: &str, stores: &[String], places: &[&str]) -> Self {
        let fleet = Fleet::start().await;
        let mut replicas = Vec::new();
        for (index, store) in stores.iter().enumerate() {
            let mut builder = Server::with(&fleet.config()).keep_port().store(store);
            if let Some(place) = places.get(index) {
                builder = builder.env("LOOPGATE_FAILPOINT", place);
            }
            replicas.push(builder.start().await);
        }
        let mut client = Client::new(replicas.iter().map(|replica| replica.url().to_owned()).collect());
        client.agent = json!({"on_unknown_outcome": "tell_model"});
        let seed = Seed::of_this_run().part(name);
        let store = stores[stores.len() - 1].clone();
        Self { name: name.to_owned(), fleet, replicas, client, seed, may_forget: false, store }
    }

    /// Lets clients run these orders, in sessions whose budgets show whether all was settled.
    pub(super) async fn launch(&self, orders: Vec<Order>) -> Flight {
        Fleet::open_sessions(self.replicas[0].url(), &orders).await;
        Fleet::launch(&self.client, &self.seed, orders)
    }

    /// Waits for the runs to end and holds what everyone saw to the promises.
    pub(super) async fn land(&self, flight: Flight) -> Figures {
        self.judge(flight.landed().await).await
    }

    /// Holds what these clients and everyone else saw to the promises.
    pub(super) async fn judge(&self, seen: Vec<Seen>) -> Figures {
        for (index, replica) in self.replicas.iter().enumerate() {
            keep(&format!("{}-{index}.log", self.name), &replica.output());
        }
        let mut evidence = self.fleet.evidence(&self.client, seen).await;
        evidence.may_forget = self.may_forget;
        evidence.all_runs = Some(self.fleet.probe(&evidence, &self.store).await);
        hold(&self.name, &evidence)
    }
}

/// How long a replica may need to take up the runs of one that died: the lease's time and the sweep's.
pub(super) const TAKEOVER: Duration = Duration::from_secs(14);
