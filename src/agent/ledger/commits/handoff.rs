//! What else changes with a run that was handed off.

use crate::agent::ledger::document::encode;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::store::{Tx, Write};
use crate::types::RunSpec;
use crate::types::session::Session;

/// Lets the head of a run say as which agent it goes on.
pub fn hand_over(tx: Tx, head: &Head) -> Tx {
    tx.write(Write::Put { key: keys::head(&head.id), value: encode(head), ttl: None })
}

/// Lets the session of a run that was handed off go on with the agent to which it was.
pub(super) fn pass_on(session: &mut Session, spec: &RunSpec) {
    if spec.handoff.before > 0 {
        session.agent = Some(spec.agent.clone());
        // Others may be queued behind it, or have begun beside it.
        if let Some(last) = session.last_run.as_deref_mut().filter(|last| last.id.as_ref() == Some(&spec.id)) {
            last.agent.clone_from(&spec.agent);
        }
    }
}
