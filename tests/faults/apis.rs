//! Clients of every completion API, as real ones of each behave, on replicas that are killed and drained: however often a
//! request is sent again or its answer is read on, it is one run, and every client is told what that run did.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cluster::TestCluster;
use super::{mixed, scaled};
use crate::support::cluster::Job;
use crate::support::cluster::apis::{Asking, BodyEnd, Form};
use crate::support::cluster::evidence::ClientTrace;
use crate::support::cluster::harm::Break;
use crate::support::redis::durable;

/// Runs that are asked for in one way, each in a session of its own where the API's chats are sessions.
fn jobs(asking: Asking, name: &str, cluster: &mut TestCluster) -> Vec<Job> {
    let jobs = mixed(name, scaled(3, 20), &mut cluster.seed, scaled(150, 400));
    let jobs = jobs.into_iter().map(|(mut plan, session)| {
        if asking.cannot_void() {
            plan.breaks.retain(|breaks| *breaks == Break::Untold);
        }
        let own = (asking.needs_session() || session.is_some()).then(|| plan.tag.clone());
        (plan, own)
    });
    jobs.collect()
}

/// How clients fared: by how they asked, how many had to ask again, and how often they asked.
fn fared(traces: &[ClientTrace]) -> BTreeMap<Asking, (usize, usize)> {
    let mut fared: BTreeMap<Asking, (usize, usize)> = BTreeMap::new();
    for asked in traces.iter().filter_map(|trace| trace.asked.as_ref()) {
        let (clients, attempts) = fared.entry(asked.asking).or_default();
        let again = asked.attempts.iter().filter(|attempt| attempt.end != BodyEnd::Whole).count();
        *clients += usize::from(again > 0);
        *attempts += again;
    }
    fared
}

#[tokio::test]
async fn clients_of_every_api_are_told_of_one_run_each() {
    let redis = durable().await;
    let mut cluster = TestCluster::start("apis", &vec![redis.url(); 3]).await;
    cluster.client.spread = Duration::from_secs(scaled(3, 45));
    cluster.client.max_wait = Duration::from_secs(240);
    let mut in_flight = Vec::new();
    for (number, asking) in Asking::ALL.into_iter().enumerate() {
        let jobs = jobs(asking, &format!("apis-{number}"), &mut cluster);
        cluster.client.asking = Some(asking);
        in_flight.push(cluster.launch(jobs).await);
    }
    for round in 0..scaled(1, 6) {
        tokio::time::sleep(Duration::from_millis(1_000 + cluster.seed.below(1_000))).await;
        let victim = round % 3;
        cluster.replicas[victim].kill9().await;
        tokio::time::sleep(Duration::from_millis(cluster.seed.below(scaled(1_000, 3_000)))).await;
        cluster.replicas[victim].restart().await;
        let leaves = (round + 1) % 3;
        cluster.replicas[leaves].sigterm();
        let status = cluster.replicas[leaves].drained().await;
        assert!(status.success(), "{status}");
        cluster.replicas[leaves].restart().await;
    }
    let mut traces = Vec::new();
    for clients in in_flight {
        traces.extend(clients.finished().await);
    }
    let fared = fared(&traces);
    for (Asking { dialect, form, reads_on }, (clients, attempts)) in &fared {
        println!("apis: {dialect:?} {form:?}, reads on: {reads_on}: {clients} clients were cut off, {attempts} times");
    }
    let figures = cluster.judge(traces).await;
    assert_ne!(figures.takeovers.len(), 0, "nothing was taken over: all runs had ended before");
    // Who asks now and then has no connection for long.
    let stays = |asking: &Asking| asking.form != Form::Polled;
    let is_spared = |asking: &Asking| fared.get(asking).is_none_or(|(clients, _)| *clients == 0);
    let spared = Asking::ALL.into_iter().find(|asking| stays(asking) && is_spared(asking));
    assert!(scaled(None, spared).is_none(), "nobody was cut off who asks by {spared:?}");
}
