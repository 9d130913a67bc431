//! What an agent runs that is made of others: no model.

use crate::agent::catalog::{Called, Resolved};
use crate::config::AgentConfig;
use crate::llm::pricing::{ModelFacts, Terms};
use crate::types::Price;
use crate::types::price::PriceOrigin;

/// What is named in place of an upstream. None is asked.
const OWNER: &str = "loopgate";
/// How many tokens a conversation may have that no model is sent: those of its agents say what is too much.
const WINDOW: u64 = 1 << 40;

impl Resolved {
    /// What an agent runs that is made of others, of this version if it is one of the store.
    pub(super) fn composite(agent: &AgentConfig, version: Option<u64>) -> Self {
        let facts = ModelFacts { price: Price::default(), context_window: WINDOW, max_output_tokens: WINDOW };
        Self {
            agent_name: agent.name.clone(),
            settings: agent.clone(),
            called: Called {
                upstream: OWNER.to_owned(),
                model_name: agent.name.clone(),
                facts,
                price_origin: PriceOrigin::Known,
                tiers: None,
                // What is charged beside tokens is counted where its agents call models.
                terms: Terms { allows_uncounted: true, ..Terms::default() },
            },
            fallbacks: Vec::new(),
            agent_version: version,
        }
    }
}
