//! Answers that are written once a run has ended. The connection is a reader all the while.

use std::ops::ControlFlow;

use crate::agent::follow::{FollowError, Follower};
use crate::api::error::ApiError;
use crate::api::identity::RequestIdentity;
use crate::types::Record;

/// Hands on what a follower finds, up to the end of what it follows, or until `take` says that it has enough.
pub async fn take_all(
    mut follower: Follower,
    identity: &RequestIdentity,
    take: &mut (dyn FnMut(&Record) -> ControlFlow<()> + Send),
) -> Result<(), ApiError> {
    loop {
        match follower.next().await {
            Ok(Some(records)) => {
                if records.iter().try_for_each(|record| take(record)).is_break() {
                    return Ok(());
                }
            }
            Ok(None) => return Ok(()),
            Err(error) => {
                // The run may go on. Without a key or a count of attempts, a repeated request cannot find it.
                let may_repeat = identity.finds_its_run() || matches!(error, FollowError::Leaving);
                let error = ApiError::from(error);
                return Err(if may_repeat { error } else { error.permanent() });
            }
        }
    }
}
