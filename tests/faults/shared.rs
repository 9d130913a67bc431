//! Many callers share one key's limits: what some of them merely hold in reserve takes nothing from the others for good.

use super::scaled;
use crate::support::TestServer;
use crate::support::cluster::client::Client;
use crate::support::cluster::plan::{Plan, Tool};
use crate::support::cluster::{TestServices, hold};
use crate::support::journal::Entry;
use crate::support::seed::Seed;

/// Runs that the key may have at once.
const AT_ONCE: usize = 6;
/// Tokens of the key: more than all runs take, and less than the steps of six of them reserve.
const TOKENS: u64 = 30_000;

/// How many of these exchanges went on at the same time, at most.
fn most_at_once<T>(exchanges: &[Entry<T>]) -> usize {
    let lasts = |entry: &Entry<T>, at| entry.at_ms <= at && entry.ended.is_none_or(|(ended, _)| ended > at);
    let at_once = |at| exchanges.iter().filter(|entry| lasts(entry, at)).count();
    exchanges.iter().map(|entry| at_once(entry.at_ms)).max().unwrap_or(0)
}

#[tokio::test]
async fn callers_that_share_a_budget_all_come_to_their_ends_in_it() {
    let seed = Seed::of_this_run().part("shared");
    let services = TestServices::start().await;
    let limits = format!("max_concurrent_runs = {AT_ONCE}\ntoken_budget = {{ limit = {TOKENS} }}\n");
    let server = TestServer::builder(&services.config_under(&limits)).start().await;
    let client = Client::new(vec![server.url().to_owned()]);
    let plan =
        |run: u64| Plan::new(format!("shared-{run}")).with_tools(2, &[Tool::Look]).with_text(6, 30).with_delay(30);
    let jobs = (0..scaled(18, 60)).map(|run| (plan(run), None));
    let traces = TestServices::launch(&client, &seed, jobs.collect()).finished().await;
    let evidence = services.evidence(&client, traces).await;
    let at_once = most_at_once(&evidence.model);
    assert!(evidence.charged() < TOKENS, "the test's runs do not fit: they took {}", evidence.charged());
    assert!((2..=AT_ONCE).contains(&at_once), "{at_once} of {AT_ONCE} runs asked the model at the same time");
    hold("shared", &evidence);
}
