//! Where the calls of a run are answered later: whose run it is, and what the tokens of its calls are made of.
//!
//! A service knows the id of its call, which leads to the run, and the call's token. Neither says whose run it is, so a
//! document in a partition of its own does. It is put before a service is told of it, and is kept for as long as the run may
//! wait. A call that is repeated after a crash has the same token, so whichever attempt a service answers, it answers the call.

use std::fmt;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use crate::agent::error::unavailable;
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::due::Owner;
use crate::agent::ledger::keys;
use crate::agent::ledger::retention::Retention;
use crate::store::{CommitError, Store, Tx, Unavailable, Write};
use crate::types::{CallId, RunId, RunSpec};

/// How many random bytes a run's tokens are made of.
const SECRET_BYTES: usize = 32;

/// Where the calls of one run are answered later.
#[derive(Clone, Serialize, Deserialize)]
pub struct Callback {
    /// Whose run it is.
    pub owner: Owner,
    secret: [u8; SECRET_BYTES],
}

impl Callback {
    /// That of a run whose tool is about to be called, which is made if there is none, and kept for as long as the run may wait.
    pub async fn open(store: &dyn Store, spec: &RunSpec, retention: Retention) -> Result<Self, Unavailable> {
        let (partition, ttl) = (keys::callback_partition(&spec.id), retention.callback_ttl(spec));
        if let Some(known) = Self::find(store, &spec.id).await? {
            let kept = Write::Put { key: keys::callback(), value: encode(&known), ttl: Some(ttl) };
            return store.commit(Tx::new(partition).write(kept)).await.map_err(unavailable).map(|()| known);
        }
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret).map_err(|error| Unavailable(format!("no random numbers: {error}")))?;
        let owner = Owner { tenant: spec.tenant.clone(), session: spec.session.clone() };
        let new = Self { owner, secret };
        let made = store.commit(Tx::new(partition).put_at(keys::callback(), 0, encode(&new), Some(ttl))).await;
        match made {
            Ok(()) => Ok(new),
            // It was made before: the answer of the store that told so was lost.
            Err(CommitError::VersionConflict { .. }) => {
                let found = Self::find(store, &spec.id).await?;
                found.ok_or_else(|| Unavailable("where the run is answered is being changed".to_owned()))
            }
            Err(error) => Err(unavailable(error)),
        }
    }

    /// That of this run, if a service was told of it.
    pub async fn find(store: &dyn Store, run: &RunId) -> Result<Option<Self>, Unavailable> {
        let document = store.get(&keys::callback_partition(run), &keys::callback()).await?;
        document.map(|document| decode(&document.value)).transpose()
    }

    /// By which this call is answered.
    #[must_use]
    pub fn token(&self, call: &CallId) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.secret);
        URL_SAFE_NO_PAD.encode(hmac::sign(&key, call.as_str().as_bytes()))
    }

    /// Whether this is the token of the call. How long the comparison takes tells nothing of the token.
    #[must_use]
    pub fn is_token(&self, call: &CallId, token: &str) -> bool {
        self.token(call).as_bytes().ct_eq(token.as_bytes()).into()
    }
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callback").field("owner", &self.owner).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Tenant;

    #[test]
    fn a_token_is_that_of_one_call_of_one_run() {
        let owner = Owner { tenant: Tenant::default_tenant(), session: None };
        let run = RunId::mint();
        let [one, other] = [1, 2].map(|number| Callback { owner: owner.clone(), secret: [number; SECRET_BYTES] });
        let token = one.token(&run.call(1));
        assert!(one.is_token(&run.call(1), &token));
        for (callback, call, told) in
            [(&one, run.call(2), token.as_str()), (&other, run.call(1), &token), (&one, run.call(1), &token[1..])]
        {
            assert!(!callback.is_token(&call, told));
        }
        assert!(!format!("{one:?}").contains("1, 1, 1"), "a log must not tell what tokens are made of");
    }
}
