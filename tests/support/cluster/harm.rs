//! What goes wrong outside of the servers, as plans have it, and how a model reacts to what it is told of that.

use serde::{Deserialize, Serialize};

use super::plan::{Plan, Tool, ToolTask};

/// What becomes of a tool's first answer to a task. The tool has done what it was asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Loss {
    /// Nothing.
    #[default]
    Kept,
    /// The connection is reset before the head.
    Reset,
    /// It never comes.
    Silence,
    /// The connection is reset within the body.
    Half,
    /// A gateway before the tool says that none came.
    Gateway,
}

/// How the upstream's first answer to a turn breaks. The upstream bills what it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Break {
    /// It is whole.
    #[default]
    Whole,
    /// The connection is closed before the head.
    Closed,
    /// The connection is reset in the middle of the text.
    Cut,
    /// It is whole, but does not say what it took.
    Untold,
    /// A gateway before the upstream says that none came.
    Gateway,
    /// In the middle of the text nothing more comes.
    Stalled,
}

impl Loss {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [Self::Kept, Self::Reset, Self::Silence, Self::Half, Self::Gateway];
}

impl Break {
    /// All of them.
    pub(crate) const ALL: [Self; 6] =
        [Self::Whole, Self::Closed, Self::Cut, Self::Untold, Self::Gateway, Self::Stalled];

    /// Those that servers notice at once, whatever their timeouts are.
    pub(crate) const NOTICED_AT_ONCE: [Self; 5] = [Self::Whole, Self::Closed, Self::Cut, Self::Untold, Self::Gateway];
}

/// The name of one of these in a plan.
pub(super) fn name_of(harm: impl Serialize) -> String {
    let name = serde_json::to_value(harm).expect("it is a name");
    name.as_str().expect("it is a name").to_owned()
}

/// How far a model has come with a plan: which turn it takes next, and which of the turn's calls it makes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The turn, from 0.
    pub(crate) round: u32,
    /// The calls that it makes once more, where it takes the turn again.
    again: Option<Vec<u32>>,
}

impl Progress {
    /// The calls of the turn that comes next.
    pub(crate) fn tasks(&self, plan: &Plan) -> Vec<(Tool, ToolTask)> {
        let mut tasks = plan.tasks(self.round);
        if let Some(again) = &self.again {
            tasks.retain(|(_, task)| again.contains(&task.index));
        }
        tasks
    }

    /// The progress once the calls of the turn have these results, in their order. As models do, it calls a tool again
    /// that it is told has failed, once; where it is told that nobody knows, it goes on.
    pub(crate) fn after(&self, plan: &Plan, results: &[&str]) -> Self {
        let tasks = self.tasks(plan);
        let has_failed =
            |(tool, task): &(Tool, ToolTask), result: &str| result != task.answer(*tool) && !result.contains("unknown");
        let failed = tasks.iter().zip(results).filter(|(call, result)| has_failed(call, result));
        let failed: Vec<u32> = failed.map(|((_, task), _)| task.index).collect();
        if failed.is_empty() || self.again.is_some() {
            return Self { round: self.round + 1, again: None };
        }
        Self { round: self.round, again: Some(failed) }
    }

    /// Whether the plan has no further turn.
    pub(crate) fn is_over(&self, plan: &Plan) -> bool {
        self.round > plan.rounds
    }
}

#[test]
fn a_model_calls_again_what_it_is_told_has_failed_and_nothing_else() {
    let plan = Plan { calls: 2, ..Plan::new("r1").with_tools(1, &[Tool::Book]) };
    let begun = Progress::default();
    let answers: Vec<_> = begun.tasks(&plan).iter().map(|(tool, task)| task.answer(*tool)).collect();
    let next = Progress { round: 1, again: None };
    assert_eq!(begun.after(&plan, &[&answers[0], &answers[1]]), next);
    assert_eq!(begun.after(&plan, &[&answers[0], "It is unknown whether it took effect."]), next);
    let again = begun.after(&plan, &[&answers[0], "The service could not be reached."]);
    assert_eq!(again.tasks(&plan), plan.tasks(0)[1..]);
    assert_eq!(again.after(&plan, &["The service could not be reached."]), next, "once is enough");
    assert!(next.after(&plan, &[]).is_over(&plan) && !next.is_over(&plan));
}
