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
/// How often reservations are read again because their counter changed meanwhile.
const LOOKS: usize = 3;

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

/// How much of a counter is taken: used, or reserved by live runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) struct Taken {
    pub(in crate::agent) total: u64,
    /// The part of it that is reserved, by other runs than the one that asks.
    pub(in crate::agent) set_aside: u64,
}

/// What of a counter that stood at `seen` is taken, and how much of that runs other than `own` have reserved.
///
/// The counter and the reservations are not read in one moment, and what is settled in between would count as used. So
/// the counter is read once more, until it stands still. If it never does, the amount that is used is rather told too
/// low: a run that looks again soon takes no harm, unlike a run that is stopped for what others gave back.
pub(in crate::agent) async fn taken(
    store: &dyn Store,
    partition: &Partition,
    counter: &Key,
    own: Option<&RunId>,
    seen: u64,
) -> Result<Taken, Unavailable> {
    let (mut before, mut least, mut most_set_aside) = (seen, seen, 0);
    for _ in 0..LOOKS {
        let set_aside = set_aside(store, partition, counter, own).await?;
        let after = counted(store, partition, counter).await?;
        if before == after {
            return Ok(Taken { total: after, set_aside: set_aside.min(after) });
        }
        (least, most_set_aside, before) = (least.min(after), most_set_aside.max(set_aside), after);
    }
    Ok(Taken { total: least, set_aside: most_set_aside.min(least) })
}

/// What a budget's counter stands at.
pub(in crate::agent) async fn counted(
    store: &dyn Store,
    partition: &Partition,
    counter: &Key,
) -> Result<u64, Unavailable> {
    Ok(u64::try_from(store.counter(partition, counter).await?).unwrap_or(0))
}

/// How much of a counter is what runs have reserved, or other runs than `own`; at least, where these are very many.
async fn set_aside(
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
