//! What an agent inherits that has no model of its own.

use std::sync::Arc;

use super::agent::AgentConfig;
use super::prompt::PromptConfig;
use crate::types::context::{Compaction, ContextRules};
use crate::types::rules::LoopRules;
use crate::types::run::OnLimit;

impl AgentConfig {
    /// What a composite agent inherits of this one: nothing that is said of its model.
    pub(super) fn without_model(&self) -> Self {
        let mut guards = (*self.guards).clone();
        guards.guardrails.clear();
        Self {
            model: None,
            fallbacks: None,
            system: None,
            tools: Vec::new(),
            hedge_after: None,
            always_offered: Vec::new(),
            on_limit: if self.on_limit == OnLimit::Synthesize { OnLimit::Stop } else { self.on_limit },
            rules: Arc::new(LoopRules {
                context: ContextRules { compaction: Compaction::Off, ..ContextRules::default() },
                delegation: self.rules.delegation.clone(),
                ..LoopRules::default()
            }),
            guards: guards.into(),
            prompt: Arc::new(PromptConfig::default()),
            ..self.clone()
        }
    }
}
