//! What a request of the Responses API asks for beside its run: how its response is kept, and what the response says of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::types::json::{RawValueEq, is_default};

/// What a response says of its request. Kept with the run, so that any replica writes the response again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResponseTerms {
    /// Whether the response can be read, continued and deleted by its id.
    #[serde(skip_serializing_if = "is_default")]
    pub store: bool,
    /// Whether its request was answered at once.
    #[serde(skip_serializing_if = "is_default")]
    pub background: bool,
    /// The response that it continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// How many messages of the run's input are of the response that it continues.
    #[serde(skip_serializing_if = "is_default")]
    pub inherited: u64,
    /// The labels under which its client can be asked for approvals; `*` for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<String>,
    /// What its client calls the servers whose tools it selects, where it selects some.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub places: BTreeMap<String, String>,
    /// The client's tools that are called with a text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub custom: Vec<String>,
    /// The client's tools that stand in a namespace, by the name that the model calls: the namespace and their own name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub namespaced: BTreeMap<String, (String, String)>,
    /// What it repeats of the request.
    pub echo: Echo,
}

/// What a response repeats of its request; what the request leaves out is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Echo {
    /// The instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Most output tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Most calls of server-side tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u32>,
    /// Whether tools may be called in parallel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// How freely tokens are chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The share of probability from which they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// `auto` or `disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncation: Option<String>,
    /// How much the model thinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// How long answers are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verbosity: Option<String>,
    /// What form the answer has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<RawValueEq>,
    /// Which tools may be chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<RawValueEq>,
    /// The tools, without what is to be kept secret.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<RawValueEq>,
    /// The caller's notes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Groups requests for the upstream's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_cache_key: Option<String>,
    /// The end user, for the upstream's safety checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safety_identifier: Option<String>,
}

impl ResponseTerms {
    /// Whether its client can be asked for the approval of calls of tools under this label.
    #[must_use]
    pub fn may_ask_under(&self, label: &str) -> bool {
        self.approvals.iter().any(|known| known == "*" || known == label)
    }
}
