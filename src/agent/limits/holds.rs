//! What is reserved of budgets for model calls under way.

use std::pin::pin;

use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::agent::ledger::document::decode;
use crate::agent::ledger::keys;
use crate::agent::machine::budget::signed;
use crate::store::pages::scan_pages;
use crate::store::{Key, Order, Partition, Scan, Store, Unavailable, Write};
use crate::types::RunId;
use crate::types::shortfall::BudgetKind;

/// Reservations that are read at a time.
const PAGE: usize = 64;
/// Reservations of a key that are looked at to say how much is set aside.
const MOST_READ: usize = 1_024;

/// What is counted of a reservation, and where.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::agent) struct Hold {
    pub(in crate::agent) kind: BudgetKind,
    pub(in crate::agent) counter: Key,
    pub(in crate::agent) amount: u64,
}

impl Hold {
    /// Leaves `charged` counted of what was reserved.
    pub(super) fn settled_at(&self, charged: u64) -> Write {
        let delta = signed(charged) - signed(self.amount);
        Write::Add { counter: self.counter.clone(), delta, ceiling: None }
    }
}

/// How much of a counter is what runs have reserved, or other runs than `own`; at least, where these are very many.
pub(in crate::agent) async fn set_aside(
    store: &dyn Store,
    partition: &Partition,
    counter: &Key,
    own: Option<&RunId>,
) -> Result<u64, Unavailable> {
    let (own, mut sum, mut read) = (own.map(keys::reserved_by), 0_u64, 0);
    let is_own = |key: &str| own.as_ref().is_some_and(|own| key.starts_with(own));
    let scan = Scan { prefix: keys::RESERVED.to_owned(), after: None, limit: PAGE, order: Order::Ascending };
    let mut pages = pin!(scan_pages(store, partition, scan));
    while let Some(page) = pages.try_next().await? {
        for (key, document) in &page {
            let holds: Vec<Hold> = decode(&document.value)?;
            let others = holds.iter().filter(|hold| hold.counter == *counter && !is_own(key));
            sum = others.fold(sum, |sum, hold| sum.saturating_add(hold.amount));
        }
        read += page.len();
        if read >= MOST_READ {
            break;
        }
    }
    Ok(sum)
}
