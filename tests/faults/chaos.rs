//! One server that is killed again and again, whatever its runs are at.

use std::time::Duration;

use serde_json::json;

use super::{mixed, scaled};
use crate::support::Server;
use crate::support::fleet::client::Client;
use crate::support::fleet::plan::Tool;
use crate::support::fleet::{Fleet, hold};
use crate::support::seed::Seed;

#[tokio::test]
async fn a_server_that_is_killed_at_any_time_goes_on() {
    let mut seed = Seed::of_this_run().part("chaos");
    let fleet = Fleet::start().await;
    let mut server = Server::with(&fleet.config()).keep_port().start().await;
    let mut client = Client::new(vec![server.url().to_owned()]);
    client.agent = json!({"on_unknown_outcome": "tell_model"});
    let orders = mixed("chaos", scaled(24, 100), &mut seed, 40);
    Fleet::open_sessions(server.url(), &orders).await;
    let flight = Fleet::launch(&client, &seed, orders);
    for turn in 0..scaled(2, 3) {
        tokio::time::sleep(Duration::from_millis(200 + seed.below(600))).await;
        // Once more often than by chance, within a tool whose effect must not be repeated.
        let before = fleet.tools.calls().len();
        if turn == 0 {
            fleet.tools.called("a booking", before, |call| call.tool == Tool::Book).await;
        }
        server.kill9().await;
        server.restart().await;
    }
    let seen = flight.landed().await;
    let evidence = fleet.evidence(&client, seen).await;
    hold("chaos", &evidence);
}
