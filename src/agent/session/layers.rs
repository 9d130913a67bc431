//! Layers of a session's prompts: kept in the session's document, so that every replica has them and they expire and are deleted
//! with it. A run pins what they say when it is accepted.

use crate::agent::error::{LookupError, unavailable};
use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::ledger::session::{Versioned, keep_session};
use crate::agent::session::Sessions;
use crate::store::retry::RetryConflicts;
use crate::store::{CommitError, Tx, Unavailable};
use crate::types::clock::now_ms;
use crate::types::prompt::PromptLayer;
use crate::types::session::{Session, SessionLayer};
use crate::types::{Expected, SessionId, Tenant};

/// Most layers of a session.
pub const MOST_LAYERS: usize = 32;
/// Most bytes of all of them: each run of the session rewrites them with its document.
pub const MOST_LAYER_BYTES: usize = 32 << 10;

/// Why a layer of a session could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The session has no such layer.
    #[error("session {session} has no layer {name:?}")]
    NotFound {
        /// The session.
        session: SessionId,
        /// What the caller names.
        name: String,
    },
    /// The layer is not as the caller knows it.
    #[error("the layer {name:?} is now of version {now}; read it again before you change it")]
    Changed {
        /// The layer.
        name: String,
        /// Its version; 0 if there is none.
        now: u64,
    },
    /// The session's layers would be too many.
    #[error("a session may have at most {0} layers")]
    TooMany(usize),
    /// The session's layers would be too long.
    #[error("the layers of a session may have {0} bytes together")]
    TooLong(usize),
    /// The session could not be read or changed.
    #[error(transparent)]
    Lookup(#[from] LookupError),
}

impl From<Unavailable> for LayerError {
    fn from(error: Unavailable) -> Self {
        Self::Lookup(error.into())
    }
}

impl Sessions {
    /// Puts a layer into a session in the place of the one of its name, if that one is as expected.
    pub async fn put_layer(
        &self,
        tenant: &Tenant,
        id: &SessionId,
        layer: PromptLayer,
        expected: Expected,
    ) -> Result<SessionLayer, LayerError> {
        self.change_layers(tenant, id, |session| {
            let known = session.layers.iter().position(|known| known.layer.name == layer.name);
            let version = known.map(|place| session.layers[place].version);
            check(&layer.name, version, expected)?;
            let above = version.unwrap_or(session.layers_floor);
            let put = SessionLayer { layer: layer.clone(), version: above + 1, updated_ms: now_ms() };
            match known {
                Some(place) => session.layers[place] = put.clone(),
                None => session.layers.push(put.clone()),
            }
            if session.layers.len() > MOST_LAYERS {
                return Err(LayerError::TooMany(MOST_LAYERS));
            }
            if layer_bytes(session) > MOST_LAYER_BYTES as u64 {
                return Err(LayerError::TooLong(MOST_LAYER_BYTES));
            }
            Ok(put)
        })
        .await
    }

    /// Takes a layer out of a session.
    pub async fn delete_layer(
        &self,
        tenant: &Tenant,
        id: &SessionId,
        name: &str,
        expected: Expected,
    ) -> Result<(), LayerError> {
        self.change_layers(tenant, id, |session| {
            let Some(place) = session.layers.iter().position(|known| known.layer.name == name) else {
                return Err(LayerError::NotFound { session: id.clone(), name: name.to_owned() });
            };
            check(name, Some(session.layers[place].version), expected)?;
            let removed = session.layers.remove(place);
            session.layers_floor = session.layers_floor.max(removed.version);
            Ok(())
        })
        .await
    }

    /// A layer of a session.
    pub async fn layer(&self, tenant: &Tenant, id: &SessionId, name: &str) -> Result<SessionLayer, LayerError> {
        let session = self.get(tenant, id).await?.session;
        let found = session.layers.into_iter().find(|known| known.layer.name == name);
        found.ok_or_else(|| LayerError::NotFound { session: id.clone(), name: name.to_owned() })
    }

    async fn change_layers<T>(
        &self,
        tenant: &Tenant,
        id: &SessionId,
        change: impl Fn(&mut Session) -> Result<T, LayerError>,
    ) -> Result<T, LayerError> {
        let mut retry = RetryConflicts::new();
        while retry.next().await {
            let Versioned { mut session, version } = self.get(tenant, id).await?;
            let before = layer_bytes(&session);
            let changed = change(&mut session)?;
            session.updated_ms = now_ms();
            let (grown, shrunk) = grown(before, layer_bytes(&session));
            if grown > 0 {
                self.ledger.take_storage(tenant, grown).await.map_err(LookupError::from)?;
            }
            let ttl = self.ledger.session_ttl_under_all(tenant, &session).await?;
            let tx = Tx::new(keys::session_partition(tenant, id));
            let tx = tx.put_at(keys::session(), version, encode(&session), Some(ttl));
            match self.ledger.commit(keep_session(tx, &session, ttl)).await {
                Ok(()) => {
                    self.ledger.return_storage(tenant, shrunk).await;
                    self.ledger.index_session(tenant, &session, ttl).await?;
                    return Ok(changed);
                }
                Err(CommitError::VersionConflict { .. }) => self.ledger.return_storage(tenant, grown).await,
                Err(error) => return Err(unavailable(error).into()),
            }
        }
        Err(LookupError::VersionConflict(id.clone()).into())
    }
}

fn check(name: &str, version: Option<u64>, expected: Expected) -> Result<(), LayerError> {
    let changed = || LayerError::Changed { name: name.to_owned(), now: version.unwrap_or_default() };
    expected.holds(version).then_some(()).ok_or_else(changed)
}

/// How many bytes a session's layers take, about.
pub(in crate::agent) fn layer_bytes(session: &Session) -> u64 {
    let bytes = |SessionLayer { layer, .. }: &SessionLayer| {
        layer.name.len() + layer.text.len() + layer.tags.iter().map(String::len).sum::<usize>() + 128
    };
    session.layers.iter().map(bytes).sum::<usize>() as u64
}

/// By how much something grew, and by how much it shrank.
fn grown(before: u64, after: u64) -> (u64, u64) {
    (after.saturating_sub(before), before.saturating_sub(after))
}
