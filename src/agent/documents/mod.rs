//! Documents that outlive runs and sessions: what agents remember, and what they know how to do.
//!
//! They lie in the store, so every replica sees them. A change is one commit with the head of its collection; two writers
//! never lose each other's changes, and a change that a crash interrupts is made whole or not at all.

mod change;
mod entry;
mod erase;
mod error;
pub mod files;
mod found;
pub mod limits;
pub mod memory_tools;
mod name;
mod named;
mod passages;
pub mod recall;
pub mod skill_tools;
pub mod skills;
mod write;

use std::sync::Arc;

use futures_util::TryStreamExt;

pub use self::change::{Change, Limits};
pub use self::entry::{Entry, Found};
pub use self::error::DocumentError;
pub use self::name::{NAME, is_name};
pub use self::named::Named;
use crate::agent::documents::entry::Indexes;
use crate::agent::documents::named::named;
use crate::agent::ledger::Ledger;
use crate::agent::ledger::collection::user_partition;
pub use crate::agent::ledger::collection::{Collection, CollectionHead, Kind, StoredText};
use crate::agent::ledger::document::decode;
use crate::agent::ledger::keys;
use crate::agent::lifecycle::Lifecycle;
use crate::store::pages::scan_pages;
use crate::store::{Document, Order, Scan, Unavailable};
use crate::types::Tenant;

/// Documents read at a time. Each may be long.
const PAGE: usize = 64;

/// The documents in a store.
#[derive(Debug)]
pub struct Documents {
    ledger: Ledger,
    lifecycle: Arc<Lifecycle>,
    indexes: Indexes,
}

impl Documents {
    /// The documents of this ledger.
    pub(super) fn new(ledger: Ledger, lifecycle: Arc<Lifecycle>) -> Self {
        Self { ledger, lifecycle, indexes: Indexes::default() }
    }

    /// A document.
    pub async fn get(&self, tenant: &Tenant, of: &Collection, name: &str) -> Result<Option<Named>, Unavailable> {
        if !is_name(name) {
            return Ok(None);
        }
        let found = self.ledger.store().get(&of.partition(tenant), &of.document(name)).await?;
        found.map(|found| named(name, &found)).transpose()
    }

    /// Documents whose names come after this one, in the order of their names.
    pub async fn list(
        &self,
        tenant: &Tenant,
        of: &Collection,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Named>, Unavailable> {
        let (partition, prefix) = (of.partition(tenant), of.prefix());
        let after = after.map(|name| [&*prefix, name].concat());
        let scan = Scan { prefix: prefix.clone(), after, limit, order: Order::Ascending };
        let found = self.ledger.store().scan(&partition, scan).await?;
        found.iter().map(|(key, document)| named(key.strip_prefix(&*prefix).unwrap_or(key), document)).collect()
    }

    /// How much a collection has, and the number of its changes; `None` if it has nothing.
    pub async fn head(&self, tenant: &Tenant, of: &Collection) -> Result<Option<(CollectionHead, u64)>, Unavailable> {
        let head = self.ledger.store().get(&of.partition(tenant), &of.head()).await?;
        let head = head.map(|head| Ok::<_, Unavailable>((decode(&head.value)?, head.version))).transpose()?;
        Ok(head.filter(|(head, _): &(CollectionHead, u64)| head.of.is_some()))
    }

    /// The collections about a user, of whatever kind and agent.
    pub async fn collections_of(&self, tenant: &Tenant, user: &str) -> Result<Vec<Collection>, Unavailable> {
        let partition = user_partition(tenant, user);
        let scan = Scan { prefix: keys::COLLECTIONS.to_owned(), after: None, limit: PAGE, order: Order::Ascending };
        let heads: Vec<_> = scan_pages(&**self.ledger.store(), &partition, scan).try_concat().await?;
        let of = |document: &Document| decode::<CollectionHead>(&document.value).map(|head| head.of);
        heads.iter().filter_map(|(_, head)| of(head).transpose()).collect()
    }
}
