//! The tools of a configuration as they are now: those that are fixed, and those of sources, which appear and change.
//!
//! What is offered at a moment is a [`Registry`], which never changes. A new one takes its place when a source has other
//! tools, or when it is decided that a definition counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::tools::definitions::{Standing, own_name};
use crate::tools::registry::{HeldTool, Registry};
use crate::tools::source::ToolSource;
use crate::tools::{Definitions, RegisteredTool};
use crate::types::offer::ToolDefinition;
use crate::types::{Effect, RunId};

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
        let all_fixed = fixed.iter().cloned().collect();
        let tools = Self { fixed: all_fixed, sources, current: RwLock::new(Arc::new(fixed)) };
        if !tools.sources.is_empty() {
            // Until it is known which of their tools count, a request that names one is told so.
            tools.admit(&Definitions::default());
        }
        tools
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

    /// Lets go of what is kept for a run that has ended.
    pub fn run_ended(&self, run: &RunId) {
        for source in &self.sources {
            source.run_ended(run);
        }
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
            let mut is_known = true;
            for tool in tools.iter().take(MAX_OF_SOURCE) {
                let name = &tool.spec().name;
                // No source can take the place of another tool.
                if own_name(source.name(), name).is_none() || self.fixed.iter().any(|fixed| fixed.spec().name == *name)
                {
                    continue;
                }
                match definitions.standing(source.pins(), source.name(), name, tool.pin()) {
                    Standing::Counts => drop(all.entry(name.clone()).or_insert_with(|| tool.clone())),
                    Standing::Held(why) => drop(held.insert(name.clone(), HeldTool { tool: tool.clone(), why })),
                    Standing::Unknown => is_known = false,
                }
            }
            if !is_known {
                unheard.push(source.name().to_owned());
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

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::config::PinPolicy;
    use crate::tools::testing::StubTool;

    /// A source of one tool.
    #[derive(Debug)]
    struct Shelf(PinPolicy, watch::Sender<u64>);

    impl ToolSource for Shelf {
        fn name(&self) -> &'static str {
            "shelf"
        }

        fn tools(&self) -> Option<Arc<[Arc<RegisteredTool>]>> {
            Some([Arc::new(RegisteredTool::new(StubTool::named("shelf__get").shared()).unwrap())].into())
        }

        fn changes(&self) -> watch::Receiver<u64> {
            self.1.subscribe()
        }

        fn pins(&self) -> &PinPolicy {
            &self.0
        }
    }

    #[test]
    fn until_it_is_known_what_counts_the_tools_of_a_source_are_neither_there_nor_held_back() {
        let tools =
            LiveTools::new(Registry::default(), vec![Arc::new(Shelf(PinPolicy::default(), watch::Sender::default()))]);
        let now = tools.current();
        assert_eq!(
            (now.unheard(), now.held().len(), now.get("shelf__get").is_some()),
            (&["shelf".to_owned()][..], 0, false)
        );
        tools.admit(&Definitions([("shelf".to_owned(), crate::tools::definitions::KnownTools::default())].into()));
        let now = tools.current();
        assert_eq!((now.unheard().len(), now.held().len()), (0, 1), "it is known that none was accepted");
    }
}
