//! The policies of the server and of each key, as configured.

use std::collections::HashMap;
use std::sync::Arc;

use crate::config::KeyConfig;
use crate::types::policy::Layer;

/// What the calls of runs are judged by, whatever agents and requests say.
#[derive(Debug, Clone, Default)]
pub struct Policies {
    server: Arc<Layer>,
    /// Of the keys that have rules, by name.
    keys: HashMap<String, Arc<Layer>>,
}

impl Policies {
    /// Those of a server and of these keys.
    #[must_use]
    pub fn new(server: Arc<Layer>, keys: &[KeyConfig]) -> Self {
        let keys = keys.iter().filter(|key| !key.policy.says_nothing());
        Self { server, keys: keys.map(|key| (key.name.clone(), key.policy.clone())).collect() }
    }

    /// Whether any of them says anything.
    pub(super) fn say_anything(&self) -> bool {
        !self.server.says_nothing() || !self.keys.is_empty()
    }

    /// The layers that hold for the runs of this key.
    pub(super) fn of(&self, key_name: Option<&str>) -> impl Iterator<Item = &Arc<Layer>> {
        [Some(&self.server), key_name.and_then(|name| self.keys.get(name))].into_iter().flatten()
    }
}
