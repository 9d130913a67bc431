//! What runs share with others of their agent, and of their user, beside what they share with those of their key.
//!
//! All runs of a tenant that are counted so have their slots in one partition, each beside the counters of its agent and of its user. So
//! a run takes both in one commit, or neither. Counters at 0 do not exist, so users who have no run under way take no room.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::agent::error::StartError;
use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::limits::Limits;
use crate::agent::limits::rate::RateKey;
use crate::agent::limits::slot::Slot;
use crate::store::Key;
use crate::types::share::{RunsAtOnce, Sharing};
use crate::types::{RunSpec, SessionId};

/// How many requests a minute may begin runs of an agent, and of a user.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::agent) struct StartRates {
    /// Of the agent.
    pub of_agent: Option<u32>,
    /// Of the user, with the key.
    pub of_user: Option<u32>,
}

impl StartRates {
    /// Whether there is such a limit.
    pub fn are_any(self) -> bool {
        self.of_agent.is_some() || self.of_user.is_some()
    }
}

/// What a slot among these says: enough for others to release it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::agent) struct Counted {
    /// The session of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Where the run is counted.
    pub counters: Vec<Key>,
}

/// Where the runs of its agent are counted.
fn of_agent(spec: &RunSpec) -> (Key, Sharing) {
    (keys::agent_share(&spec.agent), Sharing::Agent(spec.agent.clone()))
}

/// Where the runs of its user are counted, if it has a key.
fn of_user(spec: &RunSpec) -> Option<(Key, Sharing)> {
    let user = spec.options.sampling.user.as_deref();
    let sharing = user.map_or(Sharing::NoUser, |user| Sharing::User(crate::types::user::clip_user(user)));
    Some((keys::user_share(spec.key_name.as_deref()?, user), sharing))
}

impl Limits {
    /// The slot in which a run is counted with others of its agent and of its user, if it is.
    pub(super) fn shared_slot(&self, spec: &RunSpec) -> Option<Slot> {
        if spec.at_once == RunsAtOnce::default() {
            return None;
        }
        let agent = spec.at_once.of_agent.map(|most| (of_agent(spec).0, most));
        let user = spec.at_once.of_user.and_then(|most| Some((of_user(spec)?.0, most)));
        let counters: Vec<_> = agent.into_iter().chain(user).collect();
        let names = counters.iter().map(|(counter, _)| counter.clone()).collect();
        let document = encode(&Counted { session: spec.session.clone(), counters: names });
        self.sharing.lock().insert(spec.tenant.clone());
        let partition = keys::shares_partition(&spec.tenant);
        Some(Slot::new(self.ledger.store(), partition, &spec.id, (document, counters)))
    }

    /// Counts a request that is about to begin a run, for its user and its agent. A store that does not answer in time counts nothing:
    /// it refuses the run by itself.
    pub(in crate::agent) async fn count_start(&self, spec: &RunSpec, rates: StartRates) -> Result<(), StartError> {
        let user = rates.of_user.and_then(|most| Some((of_user(spec)?, most)));
        let agent = rates.of_agent.map(|most| (of_agent(spec), most));
        for ((share, sharing), per_minute) in user.into_iter().chain(agent) {
            let Some(most) = NonZeroU32::new(per_minute) else { continue };
            let taken = self.count_request(RateKey::Share { tenant: &spec.tenant, share: &share }, most).await;
            if let Some(taken) = taken.filter(|taken| !taken.allowed) {
                return Err(StartError::TooManyStarts { sharing, per_minute, wait: taken.reset });
            }
        }
        Ok(())
    }
}

/// Why a run finds no slot, as the counter says that is full.
pub(super) fn full(spec: &RunSpec, counter: &Key) -> StartError {
    let of_agent = spec.at_once.of_agent.map(|most| (of_agent(spec), most));
    let of_user = spec.at_once.of_user.and_then(|most| Some((of_user(spec)?, most)));
    let found = of_agent.into_iter().chain(of_user).find(|((share, _), _)| share == counter);
    let ((_, sharing), most) = found.unwrap_or_else(|| (self::of_agent(spec), 0));
    StartError::TooManyRunsOf { sharing, most }
}
