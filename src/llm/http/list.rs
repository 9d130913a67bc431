//! The models that an upstream offers.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use super::open::open;
use super::upstream::Upstream;
use crate::llm::{ModelError, ModelErrorKind};

/// How long the list of models may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest list of models, in bytes.
pub const MAX_LIST: usize = 1 << 20;

/// Reads the names of models in a vendor's list; `None` if it is not one.
pub type ReadNames = fn(&[u8]) -> Option<Vec<String>>;

/// The names of the models that the upstream offers, which `read` finds in its list; takes at most 5 seconds.
pub async fn list_models(upstream: &Arc<Upstream>, read: ReadNames) -> Result<Vec<String>, ModelError> {
    tokio::time::timeout(LIST_TIMEOUT, ask(upstream, read))
        .await
        .unwrap_or_else(|_| Err(upstream.error(ModelErrorKind::Timeout, "did not list its models in time")))
}

/// The names in the form that OpenAI and Anthropic share, or in a bare list, as Together writes it.
pub fn ids(list: &[u8]) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum List {
        Wrapped { data: Option<Vec<Entry>> },
        Bare(Vec<Entry>),
    }
    #[derive(Deserialize)]
    struct Entry {
        id: String,
    }

    let entries = match serde_json::from_slice(list).ok()? {
        List::Wrapped { data } => data.unwrap_or_default(),
        List::Bare(entries) => entries,
    };
    Some(entries.into_iter().map(|entry| entry.id).collect())
}

async fn ask(upstream: &Arc<Upstream>, read: ReadNames) -> Result<Vec<String>, ModelError> {
    let mut opened = open(upstream.clone(), upstream.get_models(), Instant::now() + LIST_TIMEOUT).await?;
    let mut body = Vec::new();
    while let Some(bytes) = opened.body.chunk().await.map_err(|error| upstream.broken_off(&error))? {
        if body.len() + bytes.len() > MAX_LIST {
            return Err(upstream.error(ModelErrorKind::Rejected, "lists its models in more than 1 MiB"));
        }
        body.extend_from_slice(&bytes);
    }
    opened.seat.finish();
    read(&body).ok_or_else(|| upstream.lists_otherwise())
}
