//! The tools of a configuration as they are now: those that are fixed, and those of sources, which appear and change.
//!
//! What is offered at a moment is a [`Registry`], which never changes. A new one takes its place when a source has other
//! tools, or when it is decided that a definition counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::tools::definitions::own_name;
use crate::tools::registry::{HeldTool, Registry};
use crate::tools::source::ToolSource;
use crate::tools::{Definitions, RegisteredTool};
use crate::types::Effect;
use crate::types::offer::ToolDefinition;

/// Most tools of one source: a server that lists more is out of order.
pub const MAX_OF_SOURCE: usize = 4_096;

/// The tools of a configuration.
#[derive(Debug, Default)]
pub struct LiveTools {
    fixed: Vec<Arc<RegisteredTool>>,
    sources: Vec<Arc<dyn ToolSource>>,
    current: RwLock<Arc<Registry>>,
}

impl LiveTools {
    /// The fixed tools of `fixed`, and the tools of `sources` once it is decided which of them count.
    #[must_use]
    pub fn new(fixed: Registry, sources: Vec<Arc<dyn ToolSource>>) -> Self {
        Self { fixed: fixed.iter().cloned().collect(), sources, current: RwLock::new(Arc::new(fixed)) }
    }

    /// The tools that agents can be given now.
    #[must_use]
    pub fn current(&self) -> Arc<Registry> {
        self.current.read().clone()
    }

    /// Where tools come from that change.
    #[must_use]
    pub fn sources(&self) -> &[Arc<dyn ToolSource>] {
        &self.sources
    }

    /// The tool that was offered so, if its source has not told yet what it has: a process that has just begun goes on with
    /// runs of others.
    #[must_use]
    pub fn pending(&self, offered: &ToolDefinition, effect: Effect) -> Option<Arc<RegisteredTool>> {
        let is_of = |source: &&Arc<dyn ToolSource>| own_name(source.name(), &offered.name).is_some();
        let source = self.sources.iter().find(is_of).filter(|source| source.tools().is_none())?;
        RegisteredTool::new(source.pending(offered, effect)?).ok().map(Arc::new)
    }

    /// Takes up what the sources have now, as far as it counts by these definitions.
    pub fn admit(&self, definitions: &Definitions) {
        let mut all: BTreeMap<String, Arc<RegisteredTool>> = BTreeMap::new();
        let (mut held, mut unheard) = (BTreeMap::new(), Vec::new());
        for source in &self.sources {
            let Some(tools) = source.tools() else {
                unheard.push(source.name().to_owned());
                continue;
            };
            for tool in tools.iter().take(MAX_OF_SOURCE) {
                let name = &tool.spec().name;
                // No source can take the place of another tool.
                if own_name(source.name(), name).is_none() || self.fixed.iter().any(|fixed| fixed.spec().name == *name)
                {
                    continue;
                }
                match definitions.standing(source.pins(), source.name(), name, tool.hash()) {
                    Ok(()) => drop(all.entry(name.clone()).or_insert_with(|| tool.clone())),
                    Err(why) => drop(held.insert(name.clone(), HeldTool { tool: tool.clone(), why })),
                }
            }
        }
        let next = Registry::of(&self.fixed, all, held, unheard);
        *self.current.write() = Arc::new(next);
    }
}

impl From<Registry> for LiveTools {
    fn from(fixed: Registry) -> Self {
        Self::new(fixed, Vec::new())
    }
}
