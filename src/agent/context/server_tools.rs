//! The server's tools of an offer, ready to be offered and called. All runs that are offered the same share them.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use crate::agent::context::offer::{Offer, OfferedTool};
use crate::agent::context::search::Index;
use crate::tools::Registry;
use crate::tools::schema::{Schema, compile};
use crate::types::Effect;
use crate::types::offer::{OfferPiece, ToolDefinition};
use crate::types::tool::FoundTool;

/// The server's tools of an offer. The first of them are offered from the start, the others are found by search.
#[derive(Debug, Default)]
pub struct ServerTools {
    offer: Offer,
    first: usize,
    base: Arc<OfferPiece>,
    tools: Vec<ServerTool>,
    places: HashMap<String, usize>,
    index: OnceLock<Index>,
}

/// A tool of the server, as runs were offered it.
#[derive(Debug)]
pub struct ServerTool {
    definition: Arc<ToolDefinition>,
    /// What repeating a call would do, as it was offered.
    pub(super) effect: Effect,
    /// The schema of the arguments; `None` if it cannot be compiled any more.
    schema: OnceLock<Option<Arc<Schema>>>,
    piece: OnceLock<Arc<OfferPiece>>,
}

impl ServerTools {
    /// The tools of an offer, the `first` of which are offered from the start. `registry` may have compiled their schemas.
    pub fn new(offer: Offer, first: usize, registry: &Registry) -> Self {
        let same = |definition: &ToolDefinition| {
            registry.get(&definition.name).filter(|tool| tool.definition().parameters == definition.parameters)
        };
        Self::made_of(offer, first, |definition| same(definition).map(|tool| tool.schema().clone()))
    }

    /// The same, where `known` has the compiled schemas of some by their names.
    pub fn knowing(offer: Offer, first: usize, known: impl Fn(&str) -> Option<Arc<Schema>>) -> Self {
        Self::made_of(offer, first, |definition| known(&definition.name))
    }

    fn made_of(offer: Offer, first: usize, known: impl Fn(&ToolDefinition) -> Option<Arc<Schema>>) -> Self {
        let made = |offered: &OfferedTool| {
            let definition = offered.definition.clone();
            let schema = known(&definition).map_or_else(OnceLock::new, |schema| Some(schema).into());
            ServerTool { definition, effect: offered.effect, schema, piece: OnceLock::new() }
        };
        let tools: Vec<ServerTool> = offer.tools().iter().map(made).collect();
        let first = first.min(tools.len());
        let base = tools[..first].iter().map(|tool| tool.definition.clone()).collect();
        let places = tools.iter().enumerate().map(|(place, tool)| (tool.definition.name.clone(), place)).collect();
        Self { base: Arc::new(base), offer, first, tools, places, index: OnceLock::new() }
    }

    /// The offer.
    #[must_use]
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// How many are offered from the start.
    #[must_use]
    pub fn first(&self) -> usize {
        self.first
    }

    /// Those that are offered from the start.
    pub(super) fn base(&self) -> &Arc<OfferPiece> {
        &self.base
    }

    /// The tool of this name.
    pub(super) fn get(&self, name: &str) -> Option<&ServerTool> {
        self.tools.get(*self.places.get(name)?)
    }

    /// The schema of the arguments of the tool of this name, if it is compiled already.
    pub(super) fn known_schema(&self, name: &str) -> Option<Arc<Schema>> {
        self.get(name)?.schema.get()?.clone()
    }

    /// Whether there is one of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The names of all of them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|tool| tool.definition.name.as_str())
    }

    /// The tools that fit these words best.
    pub fn find(&self, query: &str, most: usize) -> Vec<&ServerTool> {
        let index = self.index.get_or_init(|| Index::of(self.tools.iter().map(|tool| &tool.definition)));
        index.find(query, most).into_iter().filter_map(|place| self.tools.get(place)).collect()
    }
}

impl ServerTool {
    /// As it was offered.
    #[must_use]
    pub fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    /// The schema of its arguments; `None` if it cannot be compiled any more.
    pub(super) fn schema(&self) -> Option<&Arc<Schema>> {
        let compiled = || self.definition.parameters.as_ref().and_then(|schema| compile(&schema.0).ok()).map(Arc::new);
        self.schema.get_or_init(compiled).as_ref()
    }

    /// What offers it alone.
    pub(super) fn piece(&self) -> &Arc<OfferPiece> {
        self.piece.get_or_init(|| Arc::new([self.definition.clone()].into_iter().collect()))
    }

    /// What a run notes that found it.
    #[must_use]
    pub fn found(&self) -> FoundTool {
        let weight = u32::try_from(self.piece().weight()).unwrap_or(u32::MAX);
        FoundTool { name: self.definition.name.as_str().into(), weight }
    }
}
