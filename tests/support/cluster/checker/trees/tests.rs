//! Shows that the checker of trees believes a tree in which every promise was kept, and no lie about one.

use serde_json::json;

use super::*;

/// Something that is not so.
type Lie = fn(&mut TreeEvidence);

/// What a model call of the tree takes.
const EACH: u64 = 10;

fn frame(id: u64) -> Frame {
    Frame {
        id: Some(id),
        name: "step.started".to_owned(),
        data: json!({"type": "step.started", "seq": id}).to_string(),
    }
}

/// A root with two below it, one of which has one below it. One call of it was cut off, and its step asked for again.
fn honest() -> TreeEvidence {
    let run = |mark: &str, parent: Option<(&str, u64)>, output: &str, below: &[(&str, &str, u64, u64)]| TreeRun {
        parent: parent.map(|(run, depth)| (run.to_owned(), format!("to-{mark}"), depth)),
        mark: mark.to_owned(),
        status: "completed".into(),
        tokens: EACH,
        unconfirmed: 0,
        tree: (!below.is_empty()).then(|| EACH + below.iter().map(|(.., tree)| tree).sum::<u64>()),
        recorded: (1, 0),
        ended_ms: 100 - parent.map_or(0, |(_, depth)| depth),
        output: output.into(),
        events: (1..=3).map(|id| row(&frame(id))).collect(),
        started: below.iter().map(|(child, ..)| (format!("to-{child}"), (*child).to_owned())).collect(),
        completed: below
            .iter()
            .map(|(child, _, own, tree)| TreeEnd {
                run: (*child).to_owned(),
                status: "completed".to_owned(),
                own: *own,
                tree: *tree,
            })
            .collect(),
        told: below.iter().map(|(child, says, ..)| (format!("to-{child}"), (*says).to_owned(), false)).collect(),
    };
    let mut runs: BTreeMap<String, TreeRun> = [
        ("r", run("r", None, "z y", &[("a", "z", EACH, 2 * EACH + 3), ("b", "y", EACH, EACH)])),
        ("a", run("a", Some(("r", 1)), "z", &[("c", "z", EACH + 3, EACH + 3)])),
        ("b", run("b", Some(("r", 1)), "y", &[])),
        ("c", run("c", Some(("a", 2)), "z", &[])),
    ]
    .map(|(id, run)| (id.to_owned(), run))
    .into_iter()
    .collect();
    let cut = runs.get_mut("c").expect("it is there");
    (cut.tokens, cut.unconfirmed, cut.recorded) = (EACH + 3, 5, (2, 1));
    let call = |mark: &str, is_whole| TreeCall { mark: mark.to_owned(), at_ms: 50, billed: EACH, is_whole };
    let calls = [("r", true), ("a", true), ("b", true), ("c", false), ("c", true)];
    TreeEvidence {
        root: "r".into(),
        limit: 100,
        runs,
        calls: calls.map(|(mark, is_whole)| call(mark, is_whole)).to_vec(),
        marked: ["r", "a", "b", "c", "c"].map(|mark| (mark.to_owned(), format!("key-{mark}"))).to_vec(),
        counters: vec![
            TreeCounter { run: "r".into(), limit: 100, stood: vec![30, 60, 100, 70, 48] },
            TreeCounter { run: "a".into(), limit: 50, stood: vec![30, 50, 28] },
        ],
        read: Some((1..=3).map(frame).collect()),
        cancelled_ms: None,
        fits: true,
    }
}

/// The same, whose root was cancelled before the others had come to their ends.
fn stopped() -> TreeEvidence {
    let mut tree = TreeEvidence { fits: false, cancelled_ms: Some(100), ..honest() };
    for run in tree.runs.values_mut() {
        run.status = "cancelled".to_owned();
        run.completed.iter_mut().for_each(|end| end.status = "cancelled".to_owned());
        run.told.iter_mut().for_each(|(_, _, is_error)| *is_error = true);
    }
    tree
}

fn run<'a>(tree: &'a mut TreeEvidence, id: &str) -> &'a mut TreeRun {
    tree.runs.get_mut(id).expect("it is there")
}

/// Each is seen, and called by these words.
fn refuse(honest: fn() -> TreeEvidence, lies: &[(&str, Lie)]) {
    assert_eq!(check_tree(&honest()), [""; 0]);
    for (words, lie) in lies {
        let mut evidence = honest();
        lie(&mut evidence);
        let wrong = check_tree(&evidence);
        assert!(wrong.iter().any(|wrong| wrong.contains(words)), "it believes that {words}, and says {wrong:#?}");
    }
}

#[test]
fn runs_that_are_lost_or_begun_twice_are_found() {
    refuse(
        honest,
        &[
            ("and there is no such run", |tree| drop(tree.runs.remove("c"))),
            ("the root is not there", |tree| drop(tree.runs.remove("r"))),
            ("c is in_progress", |tree| run(tree, "c").status = "in_progress".into()),
            ("which says failed", |tree| run(tree, "c").status = "failed".into()),
            ("nobody knows that it began", |tree| {
                let again = TreeRun { ..tree.runs["c"].clone() };
                tree.runs.insert("c2".into(), again);
            }),
            ("c and c2 have the same task, c", |tree| {
                let mut again = tree.runs["c"].clone();
                again.parent = Some(("a".to_owned(), "to-c2".to_owned(), 2));
                tree.runs.insert("c2".into(), again);
                run(tree, "a").started.push(("to-c2".into(), "c2".into()));
                let end = TreeEnd { run: "c2".to_owned(), ..tree.runs["a"].completed[0].clone() };
                run(tree, "a").completed.push(end);
                run(tree, "a").told.push(("to-c2".into(), "z".into(), false));
            }),
            ("began several runs", |tree| {
                let again = tree.runs["c"].clone();
                tree.runs.insert("c2".into(), again);
                run(tree, "a").started.push(("to-c".into(), "c2".into()));
            }),
            ("begun more than once", |tree| run(tree, "b").started.push(("to-c".into(), "c".into()))),
            ("stands 3 deep", |tree| run(tree, "c").parent = Some(("b".into(), "to-c".into(), 3))),
            ("has no parent", |tree| run(tree, "c").parent = None),
            ("the task c of c was done 2 times", |tree| tree.marked.push(("c".into(), "another".into()))),
            ("the task b of b was done 0 times", |tree| drop(tree.marked.remove(2))),
            ("no run has this task", |tree| tree.marked.push(("d".into(), "key-d".into()))),
            ("no run has this task", |tree| tree.calls.push(TreeCall { mark: "d".into(), ..tree.calls[0].clone() })),
            ("the model was asked 2 times for b", |tree| tree.calls.push(tree.calls[2].clone())),
        ],
    );
}

#[test]
fn ends_that_are_told_otherwise_than_they_were_are_found() {
    refuse(
        honest,
        &[
            ("a says 2 times that c ended", |tree| {
                let end = tree.runs["a"].completed[0].clone();
                run(tree, "a").completed.push(end);
            }),
            ("a says 0 times that c ended", |tree| run(tree, "a").completed.clear()),
            ("is told \"w\"", |tree| run(tree, "a").told[0].1 = "w".into()),
            ("is told 0 times", |tree| run(tree, "a").told.clear()),
            ("is told 2 times", |tree| {
                let told = tree.runs["a"].told[0].clone();
                run(tree, "a").told.push(told);
            }),
            ("error true", |tree| run(tree, "a").told[0].2 = true),
            ("r ends with \"z\"", |tree| run(tree, "r").output = "z".into()),
            ("b has the events", |tree| drop(run(tree, "b").events.remove(1))),
            ("b has the events []", |tree| run(tree, "b").events.clear()),
        ],
    );
}

#[test]
fn what_is_paid_twice_or_not_at_all_is_found() {
    refuse(
        honest,
        &[
            ("the model billed 150 tokens of 100", |tree| tree.calls[3].billed = 110),
            ("the runs took 143 tokens of 100", |tree| run(tree, "c").tokens = 113),
            ("b took 0 tokens, and the model billed 10", |tree| run(tree, "b").tokens = 0),
            // Paid twice: by the run, by what the run above is told of it, and by what that tells.
            ("b took 20 tokens, and the model billed 10", |tree| run(tree, "b").tokens = 20),
            ("r says that b took 20, and 20 with those below", |tree| {
                (run(tree, "r").completed[1].own, run(tree, "r").completed[1].tree) = (20, 20);
            }),
            ("r says that a took 10, and 36 with those below", |tree| run(tree, "r").completed[0].tree = 36),
            ("r says that its tree took Some(53)", |tree| run(tree, "r").tree = Some(53)),
            ("c is charged 3 tokens and 5, and the model billed 10", |tree| run(tree, "c").tokens = 3),
            ("58 tokens are counted below r, and its runs took 48", |tree| tree.counters[0].stood.push(58)),
            ("43 tokens are counted below r, and its runs took 48", |tree| tree.counters[0].stood.push(43)),
            ("38 tokens are counted below a, and its runs took 28", |tree| tree.counters[1].stood.push(38)),
            ("0 tokens are counted below r", |tree| tree.counters[0].stood.clear()),
            ("101 tokens of 100 were used or reserved", |tree| tree.counters[0].stood[2] = 101),
            ("51 tokens of 50 were used or reserved", |tree| tree.counters[1].stood[1] = 51),
            ("more was given back", |tree| tree.counters[0].stood.insert(0, -1)),
        ],
    );
}

#[test]
fn readings_with_gaps_and_repetitions_are_found() {
    refuse(
        honest,
        &[
            ("is sent event Some(3) where 2 is next", |tree| drop(tree.read.as_mut().map(|read| read.remove(1)))),
            ("is sent event Some(2) where 3 is next", |tree| {
                tree.read.as_mut().into_iter().for_each(|read| read.insert(2, read[1].clone()));
            }),
            ("as event 3, and the log has Some", |tree| drop(tree.read.as_mut().and_then(Vec::pop))),
            ("as event 4, and the log has None", |tree| {
                tree.read.as_mut().into_iter().for_each(|read| read.push(frame(4)));
            }),
            ("as event 2, and the log has", |tree| {
                tree.read.as_mut().into_iter().for_each(|read| read[1].data = json!({"seq": 2}).to_string());
            }),
        ],
    );
}

#[test]
fn whoever_goes_on_for_a_run_that_was_cancelled_is_found() {
    refuse(
        stopped,
        &[
            ("c is in_progress", |tree| run(tree, "c").status = "in_progress".into()),
            ("c was worked on 20001 ms after all was cancelled", |tree| tree.calls[4].at_ms = 20_101),
            ("c is completed 20001 ms after all was cancelled", |tree| {
                (run(tree, "c").status, run(tree, "c").ended_ms) = ("completed".into(), 20_101);
            }),
            ("c went on until 20100, and a above it ended at 99", |tree| run(tree, "c").ended_ms = 20_100),
            ("r says 0 times that b ended", |tree| drop(run(tree, "r").completed.pop())),
        ],
    );
}

/// A run that is only told to stop may be under way for a while after the run above it has ended; one that was waited for is not.
#[test]
fn a_run_that_is_waited_for_ends_before_the_run_above_it() {
    refuse(honest, &[("c went on until 100, and a above it ended at 99", |tree| run(tree, "c").ended_ms = 100)]);
    let mut tree = stopped();
    run(&mut tree, "c").ended_ms = 100;
    assert_eq!(check_tree(&tree), [""; 0]);
}
