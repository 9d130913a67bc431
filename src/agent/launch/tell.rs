//! Tells hooks what becomes of a run that has no driver.

use std::sync::Arc;

use crate::agent::drive::notices::{Departing, Notices};
use crate::agent::error::unavailable;
use crate::agent::launch::Launcher;
use crate::agent::machine::Run;
use crate::store::{Tx, Unavailable};
use crate::types::Record;

/// What hooks are told of records that are about to be stored.
#[derive(Debug)]
pub(super) struct Told<'a> {
    run: &'a Run,
    records: &'a [Arc<Record>],
    notices: Box<Notices>,
    /// The messages, if there are any.
    departing: Option<Departing>,
}

impl Launcher {
    /// Makes the messages to hooks about these records, and puts the entry that leads to them; `None` where the run has no hooks
    /// that are told anything.
    pub(super) async fn tell<'a>(
        &self,
        run: &'a Run,
        records: &'a [Arc<Record>],
    ) -> Result<Option<Told<'a>>, Unavailable> {
        let generation = self.generations.current();
        let Some(mut notices) = Notices::of(run.spec(), &generation.hooks, &self.outbox) else { return Ok(None) };
        let now_ms = self.ledger.store().now_ms();
        let departing = notices.departing(run, records.iter().map(|record| &**record), now_ms);
        if let Some(departing) = &departing {
            self.ledger.commit(departing.due.put()).await.map_err(unavailable)?;
        }
        Ok(Some(Told { run, records, notices, departing }))
    }
}

impl Told<'_> {
    /// Adds the messages to the commit of the records.
    pub(super) fn put(&self, tx: Tx) -> Tx {
        match &self.departing {
            Some(departing) => departing.put(tx),
            None => tx,
        }
    }

    /// Tells the hooks, once the records are stored.
    pub(super) fn stored(self) {
        self.notices.recorded(self.run, &self.records.iter().map(|record| &**record));
        if let Some(departing) = self.departing {
            self.notices.send(departing);
        }
    }
}
