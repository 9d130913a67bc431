//! The parameters of a model call besides its conversation and tools.

use serde::{Deserialize, Serialize};

use crate::types::conversation::Extra;
use crate::types::json::RawValueEq;

/// The sampling parameters that a caller sets. The upstream's defaults apply to the others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// How freely tokens are chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The share of probability from which tokens are chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// How strongly tokens are avoided by the number of times that they occurred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// How strongly tokens are avoided that occurred at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// The seed, for answers that can be repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Texts that end the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// What form the answer has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_format: Option<ResponseFormat>,
    /// How much the model thinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// How long answers are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verbosity: Option<String>,
    /// The end user, for the upstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The end user, for the upstream's safety checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safety_identifier: Option<String>,
    /// The service tier of the upstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<String>,
    /// Groups requests for the upstream's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_cache_key: Option<String>,
    /// Members that only one dialect has.
    #[serde(skip_serializing_if = "Extra::is_empty")]
    pub extra: Extra,
}

/// Texts that end an answer, in the shape in which they were given: not every server reads both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Stop {
    /// One text.
    Text(String),
    /// A list of texts.
    Texts(Vec<String>),
}

impl Sampling {
    /// Whether the answer is to be JSON.
    #[must_use]
    pub fn asks_for_json(&self) -> bool {
        match self.response_format {
            Some(ResponseFormat::JsonObject | ResponseFormat::JsonSchema { .. }) => true,
            Some(ResponseFormat::Text) | None => false,
        }
    }
}

/// What form an answer has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseFormat {
    /// Any text.
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON of a schema.
    JsonSchema {
        /// What the schema is called.
        name: String,
        /// What it is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// The schema.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema: Option<RawValueEq>,
        /// Whether the upstream is to hold the model to it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strict: Option<bool>,
    },
}
