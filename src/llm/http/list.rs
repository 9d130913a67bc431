//! The models that an upstream offers.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use super::open::open;
use super::upstream::Upstream;
use crate::llm::offered::{OfferedModel, Sizes, Tokens};
use crate::llm::{ModelError, ModelErrorKind};

/// How long the list of models may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest list of models, in bytes.
pub const MAX_LIST: usize = 1 << 20;

/// Reads a vendor's list of models; `None` if it is not one.
pub type ReadList = fn(&[u8]) -> Option<Vec<OfferedModel>>;

/// The models that the upstream offers, which `read` finds in its list; takes at most 5 seconds.
pub async fn list_models(upstream: &Arc<Upstream>, read: ReadList) -> Result<Vec<OfferedModel>, ModelError> {
    tokio::time::timeout(LIST_TIMEOUT, ask(upstream, read))
        .await
        .unwrap_or_else(|_| Err(upstream.error(ModelErrorKind::Timeout, "did not list its models in time")))
}

/// The models in the form that OpenAI and Anthropic share, or in a bare list, as Together writes it.
pub fn offered(list: &[u8]) -> Option<Vec<OfferedModel>> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum List {
        Wrapped { data: Option<Vec<Entry>> },
        Bare(Vec<Entry>),
    }

    let entries = match serde_json::from_slice(list).ok()? {
        List::Wrapped { data } => data.unwrap_or_default(),
        List::Bare(entries) => entries,
    };
    Some(entries.into_iter().map(OfferedModel::from).collect())
}

/// A model, and how much it takes in the words of OpenRouter and Together, vLLM and SGLang, Mistral, Groq, and Anthropic.
#[derive(Deserialize)]
struct Entry {
    id: String,
    #[serde(default)]
    context_length: Tokens,
    #[serde(default)]
    max_model_len: Tokens,
    #[serde(default)]
    max_context_length: Tokens,
    #[serde(default)]
    context_window: Tokens,
    #[serde(default)]
    max_completion_tokens: Tokens,
    #[serde(default)]
    max_input_tokens: Tokens,
    #[serde(default)]
    max_tokens: Tokens,
}

impl From<Entry> for OfferedModel {
    fn from(entry: Entry) -> Self {
        let windows = [
            entry.context_length,
            entry.max_model_len,
            entry.max_context_length,
            entry.context_window,
            entry.max_input_tokens,
        ];
        // Elsewhere `max_tokens` may be anything.
        let of_anthropic = entry.max_tokens.0.filter(|_| entry.max_input_tokens.0.is_some());
        let sizes = Sizes {
            context_window: windows.into_iter().find_map(|tokens| tokens.0),
            max_output_tokens: entry.max_completion_tokens.0.or(of_anthropic),
        };
        Self { name: entry.id, sizes }
    }
}

async fn ask(upstream: &Arc<Upstream>, read: ReadList) -> Result<Vec<OfferedModel>, ModelError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_may_tell_how_much_each_model_takes() {
        let list = br#"{"data":[
            {"id":"plain","object":"model","max_tokens":7},
            {"id":"openrouter","context_length":400000},
            {"id":"vllm","max_model_len":8192},
            {"id":"mistral","max_context_length":262144},
            {"id":"groq","context_window":131072,"max_completion_tokens":32768},
            {"id":"anthropic","max_input_tokens":200000,"max_tokens":64000},
            {"id":"odd","context_length":"much","max_model_len":0,"context_window":-1,"max_completion_tokens":null}]}"#;
        let expected = [
            ("plain", None, None),
            ("openrouter", Some(400_000), None),
            ("vllm", Some(8_192), None),
            ("mistral", Some(262_144), None),
            ("groq", Some(131_072), Some(32_768)),
            ("anthropic", Some(200_000), Some(64_000)),
            ("odd", None, None),
        ];
        let expected = expected.map(|(name, context_window, max_output_tokens)| OfferedModel {
            name: name.to_owned(),
            sizes: Sizes { context_window, max_output_tokens },
        });
        assert_eq!(offered(list), Some(expected.to_vec()));
        assert_eq!(offered(b"[{\"id\":\"a\"}]"), Some(vec!["a".into()]));
        assert_eq!(offered(b"<html>"), None);
    }
}
