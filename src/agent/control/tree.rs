//! A run with all runs below it.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::agent::control::{Control, RunView};
use crate::agent::error::LookupError;
use crate::agent::ledger::{ReadError, keys};
use crate::agent::requester::Requester;
use crate::store::Unavailable;
use crate::types::delegate::Delegated;
use crate::types::taken::Taken;
use crate::types::{Event, Micros, RunId, Usage};

/// Most runs that are looked up.
const MOST: usize = 1_000;

/// A run and the runs that it has begun.
#[derive(Debug)]
pub struct TreeView {
    /// The run.
    pub run: RunView,
    /// The runs that it has begun, in the order in which it did.
    pub children: Vec<TreeView>,
}

impl TreeView {
    /// What the run took by itself, so far while it is under way.
    #[must_use]
    pub fn own(&self) -> Taken {
        let (usage, cost) = match (&self.run.outcome, &self.run.progress) {
            (Some(outcome), _) => (outcome.usage, outcome.cost),
            (None, Some(progress)) => (progress.usage, progress.budget.used.cost),
            (None, None) => (Usage::default(), Micros::default()),
        };
        Taken::of_one(usage, cost)
    }

    /// What it and all runs below it took, so far while any is under way.
    #[must_use]
    pub fn taken(&self) -> Taken {
        self.children.iter().fold(self.own(), |sum, child| sum.and(&child.taken()))
    }
}

impl Control {
    /// A run that the requester may read, with all runs below it that the requester may read.
    pub async fn tree<'a>(&self, requester: impl Into<Requester<'a>>, id: &RunId) -> Result<TreeView, LookupError> {
        let requester = requester.into();
        let run = self.get(requester, id).await?;
        let mut left = MOST;
        self.below(requester, run, &mut left).await
    }

    fn below<'a>(
        &'a self,
        requester: Requester<'a>,
        run: RunView,
        left: &'a mut usize,
    ) -> BoxFuture<'a, Result<TreeView, LookupError>> {
        async move {
            let mut children = Vec::new();
            for child in self.begun_by(requester, &run).await? {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    break;
                }
                match self.get(requester, &child).await {
                    Ok(child) => children.push(self.below(requester, child, left).await?),
                    // It did not begin, or is no longer kept, or is one of an agent that is not the requester's to use.
                    Err(LookupError::RunNotFound(_) | LookupError::AgentForbidden { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(TreeView { run, children })
        }
        .boxed()
    }

    /// The runs that this one has begun, by its log.
    async fn begun_by(&self, requester: Requester<'_>, run: &RunView) -> Result<Vec<RunId>, Unavailable> {
        let head = &run.head;
        let partition = keys::run_partition(requester.tenant, head.session.as_ref(), &head.id);
        let mut begun = Vec::new();
        let read = self.ledger.read_log(&partition, &head.id, |record, _| {
            if let Event::Delegated(delegated) = record.event
                && let Delegated::Started(child) = *delegated
            {
                begun.push(child.run);
            }
        });
        match read.await {
            Ok(()) | Err(ReadError::Damaged(_)) => Ok(begun),
            Err(ReadError::Store(error)) => Err(error),
        }
    }
}
