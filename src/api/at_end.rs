//! Answers that are written once a run has ended. The connection is a reader all the while.

use std::ops::ControlFlow;

use crate::agent::follow::Follower;
use crate::api::error::ApiError;
use crate::types::Record;

/// Marks a response that says why the answer could not be told to its end, while its run may go on.
#[derive(Debug, Clone, Copy)]
pub struct BrokenOff;

/// Hands on what a follower finds, up to the end of what it follows, or until `take` says that it has enough. After an error
/// the run may go on, and the same request finds it.
pub async fn take_all(
    mut follower: Follower,
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
            Err(error) => return Err(error.into()),
        }
    }
}
