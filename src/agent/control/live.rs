//! Which run of a session goes on.

use crate::agent::control::Control;
use crate::agent::error::LookupError;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::requester::Requester;
use crate::types::{RunStatus, SessionId};

impl Control {
    /// The newest run of a session that goes on by itself, of those that the requester may read; one that has begun goes before
    /// one that waits for its turn. `None` too where there is no such session.
    pub async fn live_run<'a>(
        &self,
        requester: impl Into<Requester<'a>>,
        id: &SessionId,
    ) -> Result<Option<Head>, LookupError> {
        let requester = requester.into();
        let Some(found) = self.ledger.find_session(requester.tenant, id).await? else { return Ok(None) };
        let partition = keys::session_partition(requester.tenant, id);
        let mut newest: Option<Head> = None;
        for run in found.session.all_runs() {
            let head = self.ledger.head(&partition, run).await?;
            let goes_on = |head: &Head| head.goes_on() && !head.compacts && requester.may_use(&head.agent);
            let Some(head) = head.filter(goes_on) else { continue };
            let rank = |head: &Head| (head.status != RunStatus::Queued, head.id.clone());
            if newest.as_ref().is_none_or(|newest| rank(newest) < rank(&head)) {
                newest = Some(head);
            }
        }
        Ok(newest)
    }
}
