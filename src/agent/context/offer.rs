//! The server's tools that one run is offered: pinned when the run is accepted, so later configurations do not change
//! them.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::tools::{RegisteredTool, Registry};
use crate::types::Effect;
use crate::types::offer::{OfferHash, ToolDefinition};

/// A tool of the server, as it is offered to a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedTool {
    /// What the model sees of it.
    pub definition: Arc<ToolDefinition>,
    /// What repeating a call would do.
    pub effect: Effect,
}

/// The server's tools that one run is offered or can find, in their order, and how that is written.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    tools: Arc<[OfferedTool]>,
    written: Bytes,
    hash: OfferHash,
}

impl Offer {
    /// These tools, in this order.
    pub fn of<'t>(tools: impl IntoIterator<Item = &'t Arc<RegisteredTool>>) -> Self {
        let offered = tools
            .into_iter()
            .map(|tool| OfferedTool { definition: tool.definition().clone(), effect: tool.spec().effect });
        Self::made_of(offered.collect())
    }

    /// The tools of other offers, in this order.
    pub fn of_offered<'t>(tools: impl IntoIterator<Item = &'t OfferedTool>) -> Self {
        Self::made_of(tools.into_iter().cloned().collect())
    }

    fn made_of(tools: Arc<[OfferedTool]>) -> Self {
        let written = serde_json::to_vec(&*tools).expect("definitions hold only strings and valid raw JSON");
        Self { hash: OfferHash::of(&written), written: written.into(), tools }
    }

    /// The tools of these names, as the registry has them now. One that it has not is left out.
    pub fn current(registry: &Registry, names: &[String]) -> Self {
        Self::of(names.iter().filter_map(|name| registry.get(name)))
    }

    /// The offer of this name, if that is what is written here.
    pub fn read(written: Bytes, hash: &OfferHash) -> Option<Self> {
        if OfferHash::of(&written) != *hash {
            return None;
        }
        let tools: Vec<_> = serde_json::from_slice(&written).ok()?;
        Some(Self { tools: tools.into(), written, hash: hash.clone() })
    }

    /// The tools.
    pub fn tools(&self) -> &[OfferedTool] {
        &self.tools
    }

    /// How it is written; the same tools are always written alike.
    pub fn written(&self) -> &Bytes {
        &self.written
    }

    /// What it is named by.
    pub fn hash(&self) -> &OfferHash {
        &self.hash
    }
}
