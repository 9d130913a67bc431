//! Runs that begin others, on servers that die: none is lost or begun twice, and those that are stopped take those below along.

use std::time::Duration;

use loopgate::failpoint::{OF_DELEGATION, OF_STOPPED_TREES};
use serde_json::json;

use super::dies_within;
use crate::support::TestServer;
use crate::support::cluster::tree::{AMPLE, Shape, TreeServices, accept, at_rest, hold_tree};

/// How long a server may take to come to the place at which it is to die.
const REACHED: Duration = Duration::from_secs(20);
/// Places at which any run may die, which differ for one that another run begins and is told of.
const OF_ANY_RUN: [&str; 7] =
    ["run.before_create", "run.indexed", "run.created", "run.before_end", "run.ended", "run.released", "run.unmarked"];

#[tokio::test]
async fn a_server_that_dies_where_it_begins_or_joins_a_run_begins_each_once() {
    let shape = Shape { width: 2, levels: 2, leaf: Duration::from_millis(20) };
    // Not always the first time: in the root, and in runs below it.
    let of_trees = OF_DELEGATION.iter().enumerate().map(|(index, point)| format!("{point}:{}", 1 + index % 3));
    let of_any = OF_ANY_RUN.iter().enumerate().map(|(index, point)| format!("{point}:{}", 2 + index % 2));
    for point in of_trees.chain(of_any) {
        let services = TreeServices::start(shape).await;
        let config = services.config(AMPLE);
        let mut server = TestServer::builder(&config).keep_port().env("LOOPGATE_FAILPOINT", &point).start().await;
        let _ = accept(&server, AMPLE).await;
        assert!(dies_within(&mut server, REACHED).await, "the server does not come to {point}");
        server.next_env(&[]);
        server.restart().await;
        let root = accept(&server, AMPLE).await.expect("it is accepted, or was before");
        at_rest(&server).await;
        let mut found = services.evidence(&server, &root, AMPLE).await;
        found.fits = true;
        hold_tree(&point, &found);
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
        let services = TreeServices::start(shape).await;
        let config = services.config(AMPLE);
        let mut server = TestServer::builder(&config).keep_port().env("LOOPGATE_FAILPOINT", point).start().await;
        let root = accept(&server, AMPLE).await.expect("it is accepted");
        services.leaves_asked().await;
        let cancel = server.json(&format!("/v1/runs/{root}/cancel"), &json!({})).send().await;
        drop(cancel);
        assert!(dies_within(&mut server, REACHED).await, "the server does not come to {point}");
        server.next_env(&[]);
        server.restart().await;
        // What was asked for before the death is done, or is asked for again.
        let cancelled = server.json(&format!("/v1/runs/{root}/cancel"), &json!({})).send().await;
        assert_eq!(cancelled.expect("it is answered").status(), 200, "{point}");
        let cancelled_ms = loopgate::types::clock::now_ms();
        at_rest(&server).await;
        let mut found = services.evidence(&server, &root, AMPLE).await;
        found.cancelled_ms = Some(cancelled_ms);
        hold_tree(point, &found);
        assert!(found.runs.values().all(|run| run.status == "cancelled"), "{point}: {found:#?}");
    }
}

/// A run that waits is not driven and not registered; the run above it learns of its end all the same, long before the time of the
/// call is over.
#[tokio::test]
async fn a_run_above_is_told_that_one_was_cancelled_which_waited_whoever_dies() {
    let shape = Shape { width: 2, levels: 2, leaf: Duration::from_secs(600) };
    for point in ["delegate.idle_stopped", "delegate.before_told:3"] {
        let services = TreeServices::start(shape).await;
        let config = services.config(AMPLE);
        let mut server = TestServer::builder(&config).keep_port().env("LOOPGATE_FAILPOINT", point).start().await;
        let root = accept(&server, AMPLE).await.expect("it is accepted");
        services.leaves_asked().await;
        let found = services.evidence(&server, &root, AMPLE).await;
        let branches: Vec<_> = found.runs[&root].started.iter().map(|(_, run)| run.clone()).collect();
        let _ = server.json(&format!("/v1/runs/{}/cancel", branches[0]), &json!({})).send().await;
        assert!(dies_within(&mut server, REACHED).await, "the server does not come to {point}");
        server.next_env(&[]);
        server.restart().await;
        for branch in &branches {
            let cancelled = server.json(&format!("/v1/runs/{branch}/cancel"), &json!({})).send().await;
            assert_eq!(cancelled.expect("it is answered").status(), 200, "{point}");
        }
        at_rest(&server).await;
        let found = services.evidence(&server, &root, AMPLE).await;
        hold_tree(point, &found);
        assert_eq!(found.runs[&root].status, "completed", "{point}: {found:#?}");
        assert!(found.runs.iter().all(|(id, run)| *id == root || run.status == "cancelled"), "{point}: {found:#?}");
    }
}
