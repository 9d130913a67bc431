//! One server that is killed again and again, whatever its runs are at.

use std::time::Duration;

use serde_json::json;

use super::{mixed, scaled};
use crate::support::TestServer;
use crate::support::cluster::client::Client;
use crate::support::cluster::plan::Tool;
use crate::support::cluster::{TestServices, hold};
use crate::support::seed::Seed;

#[tokio::test]
async fn a_server_that_is_killed_at_any_time_goes_on() {
    let mut seed = Seed::of_this_run().part("chaos");
    let services = TestServices::start().await;
    let mut server = TestServer::builder(&services.config()).keep_port().start().await;
    let mut client = Client::new(vec![server.url().to_owned()]);
    client.agent = json!({"on_unknown_outcome": "tell_model"});
    let jobs = mixed("chaos", scaled(24, 100), &mut seed, 40);
    TestServices::open_sessions(server.url(), &jobs).await;
    let in_flight = TestServices::launch(&client, &seed, jobs);
    for turn in 0..scaled(2, 3) {
        tokio::time::sleep(Duration::from_millis(200 + seed.below(600))).await;
        // Once more often than by chance, within a tool whose effect must not be repeated.
        let before = services.tools.calls().len();
        if turn == 0 {
            services.tools.called("a booking", before, |call| call.tool == Tool::Book).await;
        }
        server.kill9().await;
        server.restart().await;
    }
    let seen = in_flight.finished().await;
    let evidence = services.evidence(&client, seen).await;
    hold("chaos", &evidence);
}
