//! What is promised of runs that begin others: each is begun once, ends and is told of once, and all of them together take no
//! more than the budget of the first.
//!
//! Pure, as the rest of the checker is. What the model was asked is what the model says, and what runs did is what their own logs say:
//! neither is believed of the other.

use std::collections::{BTreeMap, BTreeSet};

/// A run, as its object and its list of events tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TreeRun {
    /// The run that began it, the call by which, and how deep it stands.
    pub(crate) parent: Option<(String, String, u64)>,
    pub(crate) status: String,
    /// The tokens of its model calls.
    pub(crate) tokens: u64,
    pub(crate) output: String,
    /// The numbers of its events.
    pub(crate) numbers: Vec<u64>,
    /// The runs that it began: the call and the run.
    pub(crate) started: Vec<(String, String)>,
    /// Those that it was told have ended, and how.
    pub(crate) completed: Vec<(String, String)>,
    /// What its model was told of calls: the call, the text, and whether it is an error.
    pub(crate) told: Vec<(String, String, bool)>,
}

/// A tree of runs, and what the model was asked for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TreeEvidence {
    pub(crate) root: String,
    /// The budget of all.
    pub(crate) limit: u64,
    /// All runs that there are.
    pub(crate) runs: BTreeMap<String, TreeRun>,
    /// What the model billed for each call.
    pub(crate) billed: Vec<u64>,
    /// Whether nothing stands in the way of a run that does all that it was asked.
    pub(crate) fits: bool,
}

const FINAL: [&str; 4] = ["completed", "incomplete", "cancelled", "failed"];

/// Everything that is wrong with a tree.
pub(crate) fn check_tree(evidence: &TreeEvidence) -> Vec<String> {
    let mut wrong = Vec::new();
    let (billed, used): (u64, u64) = (evidence.billed.iter().sum(), evidence.runs.values().map(|run| run.tokens).sum());
    for (what, amount) in [("the model billed", billed), ("the runs took", used)] {
        if amount > evidence.limit {
            wrong.push(format!("{what} {amount} tokens of {}", evidence.limit));
        }
    }
    if !evidence.runs.contains_key(&evidence.root) {
        wrong.push("the root is not there".to_owned());
    }
    let mut begun = BTreeSet::new();
    for (id, run) in &evidence.runs {
        check_run(evidence, id, run, &mut wrong);
        for (call, child) in &run.started {
            if !begun.insert(child) {
                wrong.push(format!("{child} was begun more than once, last by {call} of {id}"));
            }
        }
    }
    for id in evidence.runs.keys().filter(|id| **id != evidence.root && !begun.contains(id)) {
        wrong.push(format!("{id} is no run's: nobody knows that it began"));
    }
    wrong
}

fn check_run(evidence: &TreeEvidence, id: &str, run: &TreeRun, wrong: &mut Vec<String>) {
    if !FINAL.contains(&run.status.as_str()) {
        wrong.push(format!("{id} is {}", run.status));
    }
    if evidence.fits && run.status != "completed" {
        wrong.push(format!("{id} is {} although nothing stood in its way", run.status));
    }
    if !run.numbers.iter().copied().eq(1..=run.numbers.len() as u64) || run.numbers.is_empty() {
        wrong.push(format!("{id} has the events {:?}", run.numbers));
    }
    if run.status == "completed" && run.tokens == 0 {
        wrong.push(format!("{id} is completed, and has taken nothing"));
    }
    match &run.parent {
        None if id != evidence.root => wrong.push(format!("{id} has no parent")),
        None => {}
        Some((parent, call, depth)) => {
            let above = evidence.runs.get(parent);
            let is_known = above.is_some_and(|above| above.started.contains(&(call.clone(), id.to_owned())));
            if !is_known {
                wrong.push(format!("{id} says that {parent} began it by {call}, which that does not say"));
            }
            let deep = above.map_or(0, |above| above.parent.as_ref().map_or(0, |(_, _, depth)| *depth)) + 1;
            if *depth != deep {
                wrong.push(format!("{id} stands {depth} deep, and {parent} above it"));
            }
        }
    }
    let calls: BTreeSet<_> = run.started.iter().map(|(call, _)| call).collect();
    if calls.len() < run.started.len() {
        wrong.push(format!("a call of {id} began several runs: {:?}", run.started));
    }
    for (call, child) in &run.started {
        check_child(evidence, (id, run), (call, child), wrong);
    }
}

fn check_child(
    evidence: &TreeEvidence,
    (id, run): (&str, &TreeRun),
    (call, child): (&String, &String),
    wrong: &mut Vec<String>,
) {
    let ends: Vec<_> = run.completed.iter().filter(|(of, _)| of == child).map(|(_, status)| status).collect();
    let [end] = ends[..] else {
        wrong.push(format!("{id} says {} times that {child} ended", ends.len()));
        return;
    };
    let told: Vec<_> = run.told.iter().filter(|(of, ..)| of == call).collect();
    let [(_, text, is_error)] = told[..] else {
        wrong.push(format!("the model of {id} is told {} times what came of {call}", told.len()));
        return;
    };
    let Some(below) = evidence.runs.get(child) else {
        if end == "completed" {
            wrong.push(format!("{id} says that {child} is {end}, and there is no such run"));
        }
        return;
    };
    // A run that stops does not wait for those that it stops.
    let may_differ = run.status == "cancelled" && end == "cancelled";
    if below.status != *end && !may_differ {
        wrong.push(format!("{id} says that {child} is {end}, which says {}", below.status));
    }
    if *is_error == (end == "completed") {
        wrong.push(format!("{child} is {end}, and the model of {id} is told so: error {is_error}"));
    }
    if end == "completed" && *text != below.output {
        wrong.push(format!("{child} said {:?}, and the model of {id} is told {text:?}", below.output));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Something that is not so.
    type Lie = fn(&mut TreeEvidence);

    /// A root with two below it, one of which has one below it.
    fn honest() -> TreeEvidence {
        let run = |parent: Option<(&str, u64)>, output: &str, below: &[(&str, &str)]| TreeRun {
            parent: parent.map(|(run, depth)| (run.to_owned(), format!("to-{output}"), depth)),
            status: "completed".into(),
            tokens: 10,
            output: output.into(),
            numbers: vec![1, 2, 3],
            started: below.iter().map(|(child, says)| (format!("to-{says}"), (*child).to_owned())).collect(),
            completed: below.iter().map(|(child, _)| ((*child).to_owned(), "completed".to_owned())).collect(),
            told: below.iter().map(|(_, says)| (format!("to-{says}"), (*says).to_owned(), false)).collect(),
        };
        let runs = [
            ("r", run(None, "all", &[("a", "x"), ("b", "y")])),
            ("a", run(Some(("r", 1)), "x", &[("c", "z")])),
            ("b", run(Some(("r", 1)), "y", &[])),
            ("c", run(Some(("a", 2)), "z", &[])),
        ];
        let runs = runs.map(|(id, run)| (id.to_owned(), run)).into_iter().collect();
        TreeEvidence { root: "r".into(), limit: 100, runs, billed: vec![10; 4], fits: true }
    }

    /// Every lie is seen.
    #[test]
    fn the_checker_of_trees_believes_no_lie() {
        assert_eq!(check_tree(&honest()), [""; 0]);
        let lies: [(&str, Lie); 17] = [
            ("the model billed more than there is", |tree| tree.billed.push(100)),
            ("the runs took more than there is", |tree| run(tree, "c").tokens = 100),
            ("a call is not charged", |tree| run(tree, "c").tokens = 0),
            ("a run is lost", |tree| drop(tree.runs.remove("c"))),
            ("the root is lost", |tree| drop(tree.runs.remove("r"))),
            ("a run goes on for ever", |tree| run(tree, "c").status = "in_progress".into()),
            ("a run failed and nobody was told", |tree| run(tree, "c").status = "failed".into()),
            ("a run was begun twice", |tree| {
                let again = TreeRun { ..tree.runs["c"].clone() };
                tree.runs.insert("c2".into(), again);
            }),
            ("a call began two runs", |tree| {
                let again = tree.runs["c"].clone();
                tree.runs.insert("c2".into(), again);
                run(tree, "a").started.push(("to-z".into(), "c2".into()));
                run(tree, "a").completed.push(("c2".into(), "completed".into()));
            }),
            ("two runs began the same one", |tree| {
                run(tree, "b").started.push(("to-z".into(), "c".into()));
                run(tree, "b").completed.push(("c".into(), "completed".into()));
                run(tree, "b").told.push(("to-z".into(), "z".into(), false));
            }),
            ("an end is told twice", |tree| run(tree, "a").completed.push(("c".into(), "completed".into()))),
            ("an end is not told", |tree| run(tree, "a").completed.clear()),
            ("the model is told something else", |tree| run(tree, "a").told[0].1 = "w".into()),
            ("the model is told nothing", |tree| run(tree, "a").told.clear()),
            ("the model is told of a failure", |tree| run(tree, "a").told[0].2 = true),
            ("an event is missing", |tree| run(tree, "b").numbers = vec![1, 3]),
            ("a run stands elsewhere", |tree| run(tree, "c").parent = Some(("b".into(), "to-z".into(), 3))),
        ];
        for (name, lie) in lies {
            let mut evidence = honest();
            lie(&mut evidence);
            assert!(!check_tree(&evidence).is_empty(), "it believes that {name}");
        }
    }

    fn run<'a>(tree: &'a mut TreeEvidence, id: &str) -> &'a mut TreeRun {
        tree.runs.get_mut(id).expect("it is there")
    }
}
