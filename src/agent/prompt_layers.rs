//! The layers of prompts of the server and of each key, as configured.

use std::collections::HashMap;
use std::sync::Arc;

use crate::config::KeyConfig;
use crate::types::prompt::{PromptLayer, SectionOwner};

/// Layers of the prompts of all runs, and of those of each key.
#[derive(Debug, Clone, Default)]
pub struct PromptLayers {
    server: Arc<[PromptLayer]>,
    /// Of the keys that have any, by name.
    keys: HashMap<String, Arc<[PromptLayer]>>,
}

impl PromptLayers {
    /// Those of a server and of these keys.
    #[must_use]
    pub fn new(server: Arc<[PromptLayer]>, keys: &[KeyConfig]) -> Self {
        let keys = keys.iter().filter(|key| !key.layers.is_empty());
        Self { server, keys: keys.map(|key| (key.name.clone(), key.layers.clone())).collect() }
    }

    /// Those of the runs of this key, the server's first.
    pub(super) fn of(&self, key_name: Option<&str>) -> impl Iterator<Item = (SectionOwner, &PromptLayer)> {
        let of_key = key_name.and_then(|name| self.keys.get(name)).into_iter().flat_map(|layers| layers.iter());
        let of_server = self.server.iter().map(|layer| (SectionOwner::Server, layer));
        of_server.chain(of_key.map(|layer| (SectionOwner::Key, layer)))
    }
}
