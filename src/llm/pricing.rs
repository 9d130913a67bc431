//! What models cost at an upstream, and how much they take.
//!
//! What the operator declares goes first, then the files that the operator names, then the built-in list. How much a model takes
//! is asked of its upstream before the lists. Of a model unknown to all of them the [`fallback`] is assumed, and its costs are
//! estimates.

mod built_in;
mod find;

use std::sync::Arc;

use self::find::find;
use super::offered::Sizes;
use crate::config::{ListedModel, ModelConfig, Models, Tier};
use crate::types::price::PriceOrigin;
use crate::types::{Micros, Price};

pub use self::built_in::built_in;
pub use self::find::Listed;

/// What is known of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelFacts {
    /// What its tokens cost.
    pub price: Price,
    /// Most tokens of input and output together.
    pub context_window: u64,
    /// Most output tokens of one turn.
    pub max_output_tokens: u64,
}

/// What is known of an upstream's charges beside the prices of its models.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms {
    /// What a model costs that has no declared price.
    pub undeclared: Undeclared,
    /// Whether requests may ask for what costs more than the price of their tokens.
    pub allows_uncounted: bool,
    /// Whether input that the upstream writes to its cache costs a quarter more than other input, where no price says
    /// what it costs.
    pub charges_cache_writes: bool,
    /// The host that it is called by; some prices hold at some hosts only.
    pub host: Arc<str>,
}

/// What a model of an upstream costs if the configuration declares no price for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Undeclared {
    /// What a list says, else a guess.
    #[default]
    Guessed,
    /// What a list says, else nothing: the upstream has a private address.
    AssumedFree,
    /// Nothing: the operator said so.
    Free,
}

/// Where a price comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PriceSource<'a> {
    /// The operator declared it.
    Declared,
    /// The operator declared that the upstream costs nothing.
    Free,
    /// A list.
    Listed(Listed<'a>),
    /// Nowhere; the address of the upstream is private.
    AssumedFree,
    /// Nowhere.
    Guessed,
}

/// What a model costs at an upstream and how much it takes, and how that is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Priced<'a> {
    /// What is counted with.
    pub facts: ModelFacts,
    /// Where the price comes from.
    pub source: PriceSource<'a>,
    /// What a list says, also where its price is not that which counts.
    pub listed: Option<Listed<'a>>,
    /// Whether how much it takes is assumed, since nothing says it.
    pub is_assumed: bool,
}

impl PriceSource<'_> {
    /// As a run keeps it.
    #[must_use]
    pub fn origin(&self) -> PriceOrigin {
        match self {
            Self::Declared | Self::Free | Self::Listed(_) => PriceOrigin::Known,
            Self::AssumedFree => PriceOrigin::AssumedFree,
            Self::Guessed => PriceOrigin::Guessed,
        }
    }

    /// What other tiers of service cost, where that is known.
    #[must_use]
    pub fn tiers(&self) -> Option<&Arc<[Tier]>> {
        match self {
            Self::Listed(listed) => Some(&listed.model.tiers),
            Self::Declared | Self::Free | Self::AssumedFree | Self::Guessed => None,
        }
    }
}

/// What is known of the model with these names, the last of which is its name at its upstream, which says this of its `sizes`.
#[must_use]
pub fn priced<'a>(models: &'a Models, terms: &Terms, names: [&str; 3], sizes: Sizes) -> Priced<'a> {
    let undeclared = ModelConfig::default();
    let declared = names.iter().find_map(|name| models.declared.get(*name)).unwrap_or(&undeclared);
    let listed = find([&models.files, built_in()], &terms.host, names[2]);
    let certain = listed.filter(|listed| listed.holds);
    let surcharge = |price: &Price| if terms.charges_cache_writes { price.input.div_ceil(4) } else { 0 };
    let usual = |price: &Price| Micros(price.input.saturating_add(surcharge(price)));
    let with_cache_write = |price: Price| price.with_cache_write(declared.cache_write.unwrap_or_else(|| usual(&price)));
    let (price, source) = match (declared.price, certain, terms.undeclared) {
        (Some(price), _, _) => (with_cache_write(price), PriceSource::Declared),
        (None, _, Undeclared::Free) => (Price::default(), PriceSource::Free),
        (None, Some(listed), _) => (listed.model.price, PriceSource::Listed(listed)),
        (None, None, Undeclared::AssumedFree) => (Price::default(), PriceSource::AssumedFree),
        (None, None, Undeclared::Guessed) => {
            let guess = listed.map_or_else(|| with_cache_write(fallback().price), |listed| listed.model.price);
            (guess, PriceSource::Guessed)
        }
    };
    let facts = listed.map_or_else(fallback, |listed| listed.model.into());
    // The upstream knows how it runs the model, which may be with less than the model can take.
    let said = Sizes {
        context_window: declared.context_window.or(sizes.context_window),
        max_output_tokens: declared.max_output_tokens.or(sizes.max_output_tokens),
    };
    let facts = ModelFacts {
        price,
        context_window: said.context_window.unwrap_or(facts.context_window),
        max_output_tokens: said.max_output_tokens.unwrap_or(facts.max_output_tokens),
    };
    let is_assumed = listed.is_none() && (said.context_window.is_none() || said.max_output_tokens.is_none());
    Priced { facts, source, listed, is_assumed }
}

/// What the built-in list says of a model, whichever upstream has it.
#[must_use]
pub fn known(model: &str) -> Option<ModelFacts> {
    find([&[], built_in()], "", model).map(|listed| listed.model.into())
}

/// More tokens than any model takes or says: a guess must neither refuse what a model takes, nor cut what it says, nor make
/// what its upstream reports unbelievable.
pub const MORE_THAN_ANY: u64 = 10_000_000;

/// What is assumed of every other model: the price of the well-known middle class, so that a budget
/// is not passed unseen, and no bounds.
#[must_use]
pub fn fallback() -> ModelFacts {
    let price = Price::from_usd(3.0, 3.0, 15.0);
    ModelFacts { price, context_window: MORE_THAN_ANY, max_output_tokens: MORE_THAN_ANY }
}

impl From<&ListedModel> for ModelFacts {
    fn from(model: &ListedModel) -> Self {
        let &ListedModel { price, context_window, max_output_tokens, .. } = model;
        Self { price, context_window, max_output_tokens }
    }
}

#[cfg(test)]
mod tests;
