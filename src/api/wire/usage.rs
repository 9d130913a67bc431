//! Tokens, as OpenAI counts them.

use serde::Serialize;
use utoipa::ToSchema;

use crate::types::Usage;
use crate::types::json::is_default;

/// OpenAI's usage object.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageObject {
    /// Input, cached included.
    pub prompt_tokens: u64,
    /// Output, reasoning included.
    pub completion_tokens: u64,
    /// Both.
    pub total_tokens: u64,
    /// About the input.
    pub prompt_tokens_details: PromptDetails,
    /// About the output.
    pub completion_tokens_details: CompletionDetails,
    /// Whether any of it was estimated because the upstream did not say.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

/// About the input tokens.
#[derive(Debug, Serialize, ToSchema)]
pub struct PromptDetails {
    /// What the upstream had cached.
    pub cached_tokens: u64,
    /// What the upstream wrote to its cache; absent if nothing.
    #[serde(skip_serializing_if = "is_default")]
    pub cache_write_tokens: u64,
}

/// About the output tokens.
#[derive(Debug, Serialize, ToSchema)]
pub struct CompletionDetails {
    /// What was reasoning.
    pub reasoning_tokens: u64,
}

impl From<&Usage> for UsageObject {
    fn from(usage: &Usage) -> Self {
        Self {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            total_tokens: usage.total(),
            prompt_tokens_details: PromptDetails {
                cached_tokens: usage.cached_tokens,
                cache_write_tokens: usage.cache_write_tokens,
            },
            completion_tokens_details: CompletionDetails { reasoning_tokens: usage.reasoning_tokens },
            estimated: usage.estimated,
        }
    }
}
