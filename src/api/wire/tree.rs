//! A run with all runs below it, as an object.

use serde::Serialize;
use utoipa::ToSchema;

use crate::agent::control::tree::TreeView;
use crate::api::wire::agent::delegate::TreeUsage;
use crate::api::wire::run::RunObject;

/// A run with the runs that it has begun.
#[derive(Debug, Serialize, ToSchema)]
pub struct TreeObject<'a> {
    /// `run.tree`.
    pub object: &'static str,
    /// The run.
    pub run: RunObject<'a>,
    /// What it took by itself, so far while it is under way.
    pub own: TreeUsage,
    /// What it and all runs below it took, so far while any is under way.
    pub tree: TreeUsage,
    /// The runs that it has begun, in the order in which it did.
    #[schema(no_recursion)]
    pub children: Vec<TreeObject<'a>>,
}

impl<'a> From<&'a TreeView> for TreeObject<'a> {
    fn from(view: &'a TreeView) -> Self {
        Self {
            object: "run.tree",
            run: (&view.run.head).into(),
            own: (&view.own()).into(),
            tree: (&view.taken()).into(),
            children: view.children.iter().map(Self::from).collect(),
        }
    }
}
