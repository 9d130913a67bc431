//! Clients behind a bad network: however their connections fare, each sees its run whole, and no run is
//! harmed by how it is read.

use std::time::Duration;

use super::{mixed, scaled};
use crate::support::TestServer;
use crate::support::cluster::client::Client;
use crate::support::cluster::{InFlight, TestServices, hold};
use crate::support::proxy::{Proxy, Way};
use crate::support::seed::Seed;

/// Clients reach the server through a proxy, to which `harm` is done until they have finished.
async fn behind(name: &str, harm: impl AsyncFnOnce(&Proxy, &mut Seed)) {
    let mut seed = Seed::of_this_run().part(name);
    let services = TestServices::start().await;
    let server = TestServer::builder(&services.config()).start().await;
    let proxy = Proxy::start(server.address().parse().expect("it is an address")).await;
    let mut client = Client::new(vec![proxy.url()]);
    client.silence = Duration::from_secs(2);
    client.max_wait = Duration::from_secs(30);
    let jobs = mixed(name, scaled(16, 60), &mut seed, 40);
    TestServices::open_sessions(server.url(), &jobs).await;
    let in_flight: InFlight = TestServices::launch(&client, &seed, jobs);
    harm(&proxy, &mut seed).await;
    proxy.heal();
    let seen = in_flight.finished().await;
    client.addresses = vec![server.url().to_owned()];
    let evidence = services.evidence(&client, seen).await;
    hold(name, &evidence);
}

#[tokio::test]
async fn connections_may_break_at_any_time() {
    behind("breaks", async |proxy, seed| {
        for _ in 0..scaled(6, 12) {
            tokio::time::sleep(Duration::from_millis(100 + seed.below(200))).await;
            let harm = seed.pick(&[Proxy::cut as fn(&Proxy), Proxy::reset]);
            harm(proxy);
        }
    })
    .await;
}

#[tokio::test]
async fn bytes_may_come_late_and_in_pieces() {
    behind("pieces", async |proxy, _| {
        proxy.requests(Way {
            latency: Duration::from_millis(100),
            jitter: Duration::from_millis(50),
            ..Way::default()
        });
        proxy.replies(Way { slice: Some(7), rate: Some(20_000), ..Way::default() });
        tokio::time::sleep(Duration::from_secs(2)).await;
    })
    .await;
}

#[tokio::test]
async fn connections_may_fall_silent() {
    behind("silence", async |proxy, _| {
        tokio::time::sleep(Duration::from_millis(300)).await;
        proxy.swallow();
        tokio::time::sleep(Duration::from_secs(1)).await;
        proxy.heal();
        tokio::time::sleep(Duration::from_secs(3)).await;
        proxy.hold();
        tokio::time::sleep(Duration::from_secs(1)).await;
    })
    .await;
}
