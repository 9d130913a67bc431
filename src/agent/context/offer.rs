//! The server's tools that one run is offered: pinned when the run is accepted, so later configurations do not change
//! them.

use std::sync::Arc;

use bytes::Bytes;
use moka::sync::Cache;
use serde::{Deserialize, Serialize};

use crate::tools::Registry;
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

/// The server's tools that one run is offered, in their order, and how that is written.
#[derive(Debug, Clone)]
pub struct Offer {
    tools: Arc<[OfferedTool]>,
    written: Bytes,
    hash: OfferHash,
}

impl Offer {
    /// The tools of these names, as the registry has them now. One that it has not is left out.
    pub fn current(registry: &Registry, names: &[String]) -> Self {
        let found = names.iter().filter_map(|name| registry.get(name));
        let offered =
            found.map(|tool| OfferedTool { definition: tool.definition().clone(), effect: tool.spec().effect });
        let tools: Arc<[_]> = offered.collect();
        let written = serde_json::to_vec(&*tools).expect("definitions hold only strings and valid raw JSON");
        Self { hash: OfferHash::of(&written), written: written.into(), tools }
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

/// Most lists of names whose offers are kept.
const MOST_KEPT: u64 = 256;

/// What one registry offers under the names that were asked for lately: few lists are asked for again and again, and
/// an offer is written and hashed once for each.
#[derive(Debug)]
pub struct CurrentOffers(Cache<Box<[String]>, Offer>);

impl Default for CurrentOffers {
    fn default() -> Self {
        Self(Cache::new(MOST_KEPT))
    }
}

impl CurrentOffers {
    /// The tools of these names, as the registry has them. It must be the same registry each time.
    pub fn get(&self, registry: &Registry, names: &[String]) -> Offer {
        if let Some(offer) = self.0.get(names) {
            return offer;
        }
        let offer = Offer::current(registry, names);
        self.0.insert(names.into(), offer.clone());
        offer
    }
}
