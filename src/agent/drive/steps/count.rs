//! Counts what a run under way has stored, now and then.

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::ledger::document::encode;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::ledger::stored::{UNCOUNTED, add, of_unfinished_run};
use crate::agent::machine::budget::signed;
use crate::store::Write;
use crate::types::RunStatus;

/// Counts what the run's log takes beyond what is counted of the run: first for its tenant, then in the run's head. So a
/// crash in between leaves too much counted. A recount in between does not see these bytes. The next recount corrects both.
pub async fn count_growth(driver: &mut Driver) -> Result<(), Exit> {
    let recorder = &driver.recorder;
    let (run, log) = (recorder.run(), recorder.bytes());
    if run.status() != RunStatus::InProgress {
        return Ok(());
    }
    driver.counts_at = log.saturating_add(UNCOUNTED);
    let spec = run.spec().clone();
    let bytes = of_unfinished_run(encode(&spec).len(), log, driver.counted);
    if bytes == driver.counted {
        return Ok(());
    }
    let counting = recorder.store().commit(add(&spec.tenant, signed(bytes) - signed(driver.counted)));
    if let Err(error) = counting.await {
        tracing::debug!(run = %spec.id, %error, "what the run stored is counted later");
        return Ok(());
    }
    let head = Head { bytes, leg: run.leg(), ..Head::new(&spec) };
    let put = Write::Put { key: keys::head(&spec.id), value: encode(&head), ttl: None };
    driver.recorder.record_with(None, |tx| tx.write(put)).await?;
    driver.counted = bytes;
    Ok(())
}
