//! Why a schedule is not made, changed or used.

use crate::agent::error::StartError;
use crate::store::Unavailable;
use crate::types::ScheduleId;

/// Why a schedule is not made, changed or used.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// There is no such schedule, or it is another tenant's.
    #[error("there is no schedule {0:?}; GET /v1/schedules lists them")]
    NotFound(String),
    /// There is another schedule with this id.
    #[error("there is another schedule {0}; PATCH /v1/schedules/{0} changes it")]
    Exists(ScheduleId),
    /// It is not as the request expects it.
    #[error("the schedule {id} has the version {version}")]
    OtherVersion {
        /// The schedule.
        id: ScheduleId,
        /// The version that it has.
        version: u64,
    },
    /// There is no room for another one.
    #[error("there are {0} schedules, as many as a tenant may have")]
    TooMany(i64),
    /// Some of it cannot be.
    #[error("{what}")]
    Invalid {
        /// The member.
        field: String,
        /// What is wrong with it.
        what: String,
    },
    /// The request of the schedule begins no run now.
    #[error(transparent)]
    Start(Box<StartError>),
    /// Others changed it at the same time, again and again.
    #[error("the schedule {0} is being changed by others; try again")]
    Busy(ScheduleId),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] Unavailable),
}
