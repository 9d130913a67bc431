//! Counters that do not add up are found, and those that died with a replica are not missed.

use std::collections::BTreeMap;

use serde_json::json;

use super::super::{Promise, check};
use super::recorded::{RUN, good};
use crate::support::cluster::counters::Life;
use crate::support::cluster::evidence::{Evidence, Window};

const ENDED: &str = "loopgate_runs_finished_total{agent=\"default\",status=\"completed\",reason=\"done\"}";
const ACCEPTED: &str = "loopgate_runs_accepted_total{agent=\"default\"}";
const RESUMED: &str = "loopgate_runs_resumed_total{agent=\"default\",cause=\"crash\"}";
const COMPLETED: &str = "loopgate_steps_total{upstream=\"u\",model=\"m\",outcome=\"completed\"}";
const DISCARDED: &str = "loopgate_steps_total{upstream=\"u\",model=\"m\",outcome=\"interrupted\"}";
const TOOLS: &str = "loopgate_tool_calls_total{tool=\"look\",outcome=\"ok\"}";
const TOKENS: &str = "loopgate_tokens_total{upstream=\"u\",model=\"m\",kind=\"input\"}";
const ANSWERED: &str = "loopgate_model_call_duration_seconds_count{upstream=\"u\",model=\"m\"}";
const FAILED: &str = "loopgate_upstream_errors_total{upstream=\"u\",class=\"timeout\"}";

/// What replicas count of the good run: one until it died, another from then on.
fn counted() -> Evidence {
    let life = |samples: &[(&str, f64)]| Life {
        samples: samples.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect::<BTreeMap<_, _>>(),
        untold: None,
    };
    let first = life(&[(ACCEPTED, 1.0)]);
    let second = life(&[
        (ENDED, 1.0),
        (RESUMED, 2.0),
        (COMPLETED, 4.0),
        (DISCARDED, 1.0),
        (TOOLS, 3.0),
        (TOKENS, 60.0),
        (ANSWERED, 4.0),
        (FAILED, 0.0),
    ]);
    Evidence { counted: vec![first, second], ..good() }
}

fn add(evidence: &mut Evidence, sample: &str, change: f64) {
    *evidence.counted[1].samples.entry(sample.to_owned()).or_default() += change;
}

fn complaints(evidence: &Evidence) -> Vec<String> {
    let found = check(evidence).into_iter().filter(|violation| violation.promise == Promise::Counters);
    found.map(|violation| violation.what).collect()
}

#[test]
fn counters_that_add_up_are_good() {
    assert_eq!(check(&counted()), []);
}

#[test]
fn counters_that_do_not_add_up_are_found() {
    for (sample, what) in [
        (ENDED, "runs that ended as completed for done"),
        (ACCEPTED, "accepted runs"),
        (RESUMED, "resumptions"),
        (COMPLETED, "completed steps"),
        (DISCARDED, "steps"),
        (TOOLS, "results of tools"),
        (TOKENS, "tokens"),
    ] {
        for change in [1.0, -1.0] {
            let mut evidence = counted();
            // The first life counted it.
            if sample == ACCEPTED && change < 0.0 {
                evidence.counted[0].samples.clear();
            } else {
                add(&mut evidence, sample, change);
            }
            let found = complaints(&evidence);
            assert!(found.iter().any(|complaint| complaint.contains(what)), "{sample} {change}: {found:?}");
        }
    }
    let mut evidence = counted();
    add(&mut evidence, "loopgate_runs_finished_total{agent=\"default\",status=\"failed\",reason=\"timeout\"}", 1.0);
    assert!(complaints(&evidence)[0].contains("2 runs that ended, of which there were 1"));
    for (sample, more, what) in [
        (ANSWERED, 1.0, "which gave 4"),
        (FAILED, 2.0, "which was asked 5 times"),
        (TOOLS, 2.0, "good answers of tools"),
    ] {
        let mut evidence = counted();
        add(&mut evidence, sample, more);
        let found = complaints(&evidence);
        assert!(found.iter().any(|complaint| complaint.contains(what)), "{sample}: {found:?}");
    }
}

/// Where nothing disturbed the runs, the journals have as many calls as the counters.
#[test]
fn calls_that_were_not_counted_are_found() {
    let mut evidence = counted();
    add(&mut evidence, RESUMED, -2.0);
    let found = complaints(&evidence);
    for what in ["which was asked 5 times", "which were asked 4 times"] {
        assert!(found.iter().any(|complaint| complaint.contains(what)), "{what}: {found:?}");
    }
}

#[test]
fn only_what_died_with_a_replica_may_be_missing() {
    let mut evidence = counted();
    evidence.counted[1].samples.clear();
    evidence.counted[1].untold = Some(Window { from_ms: 100, to_ms: 200 });
    let mut with_end_at = |ended_ms: u64| {
        let run = evidence.runs.get_mut(RUN).unwrap();
        run.object = json!({"id": RUN, "status": "completed", "stop_reason": "done", "ended_ms": ended_ms});
        complaints(&evidence)
    };
    assert_eq!(with_end_at(150), [""; 0]);
    assert!(with_end_at(99)[0].contains("0 runs that ended"));
    // More than happened is never right.
    add(&mut evidence, COMPLETED, 5.0);
    evidence.runs.get_mut(RUN).unwrap().object["ended_ms"] = json!(150);
    assert!(complaints(&evidence)[0].contains("5 completed steps"));
}
