//! Limits of connections: how many in all, how many from one address, and which one is closed for a new one.
//!
//! A connection is idle while no request of it is being answered. When all slots are taken, the connection that has
//! been idle for longest is closed. If none is idle there is a reserve, whose connections get answers to probes
//! alone. Otherwise a client that holds all slots would make Kubernetes restart the server.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::net::client_address::counted_as;
use crate::telemetry::metrics::Connections;
use crate::types::maps::HashMap;

/// Connections beyond the limits. Not a setting: probes need a few, and refusals do not last.
const RESERVE: usize = 64;

/// How many connections there may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// In all.
    pub connections: u32,
    /// From one address; `None` without end.
    pub per_address: Option<u32>,
}

/// Why a connection gets answers to probes alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surplus {
    /// All slots are taken by connections that are busy.
    Full,
    /// Its address has too many.
    Address,
}

/// The slots of a listener.
#[derive(Debug)]
pub(super) struct Slots {
    limits: Limits,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    /// What counts them for the metrics. Here, so that no connection is larger for it.
    counted: Connections,
    /// Counts connections, and moments at which one became idle.
    next: u64,
    open: HashMap<u64, Place>,
    regular: Pool,
    reserve: Pool,
    addresses: HashMap<IpAddr, u32>,
}

/// The connections of one kind.
#[derive(Debug, Default)]
struct Pool {
    count: usize,
    /// Idle ones by since when.
    idle: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Place {
    address: IpAddr,
    surplus: Option<Surplus>,
    /// `None` while a request is being answered.
    idle_since: Option<u64>,
    give_way: CancellationToken,
}

/// A connection's slot, free again once it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    id: u64,
    /// Why only probes are answered, if that is so.
    pub(super) surplus: Option<Surplus>,
    /// Fires when the connection must give way to another one.
    pub(super) give_way: CancellationToken,
    table: Arc<Mutex<Table>>,
}

/// Keeps a connection from being idle.
#[derive(Debug)]
pub(super) struct Busy(Arc<Slot>);

impl Slots {
    pub(super) fn new(limits: Limits, counted: Connections) -> Self {
        let table = Table { counted, ..Table::default() };
        Self { limits, table: Arc::new(Mutex::new(table)) }
    }

    /// A slot for a new connection; `None` if even the reserve is used up.
    pub(super) fn take(&self, address: IpAddr) -> Option<Slot> {
        let address = counted_as(address);
        let mut table = self.table.lock();
        let of_address = table.addresses.get(&address).copied().unwrap_or(0);
        let surplus = if self.limits.per_address.is_some_and(|most| of_address >= most) {
            Some(Surplus::Address)
        } else {
            let has_room = table.regular.count < self.limits.connections as usize || table.close_idle(false);
            (!has_room).then_some(Surplus::Full)
        };
        if surplus.is_some() && table.reserve.count >= RESERVE && !table.close_idle(true) {
            table.counted.refused();
            return None;
        }
        let give_way = CancellationToken::new();
        let id = table.add(Place { address, surplus, idle_since: None, give_way: give_way.clone() });
        table.counted.opened();
        Some(Slot { id, surplus, give_way, table: self.table.clone() })
    }
}

impl Slot {
    /// The connection is busy until what this returns is dropped.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.table.lock().set_idle(self.id, false);
        Busy(self.clone())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        table.remove(self.id);
        table.counted.closed();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.table.lock().set_idle(self.0.id, true);
    }
}

impl Table {
    fn pool(&mut self, in_reserve: bool) -> &mut Pool {
        if in_reserve { &mut self.reserve } else { &mut self.regular }
    }

    fn add(&mut self, place: Place) -> u64 {
        self.next += 1;
        let id = self.next;
        // Those in the reserve do not count for their address: they are answered by nothing but refusals.
        if place.surplus.is_none() {
            *self.addresses.entry(place.address).or_default() += 1;
        }
        self.pool(place.surplus.is_some()).count += 1;
        self.open.insert(id, place);
        self.set_idle(id, true);
        id
    }

    fn set_idle(&mut self, id: u64, idle: bool) {
        self.next += 1;
        let now = self.next;
        // It may have had to give way already.
        let Some(place) = self.open.get_mut(&id) else { return };
        let since = std::mem::replace(&mut place.idle_since, idle.then_some(now));
        let in_reserve = place.surplus.is_some();
        let pool = self.pool(in_reserve);
        if let Some(since) = since {
            pool.idle.remove(&since);
        }
        if idle {
            pool.idle.insert(now, id);
        }
    }

    fn remove(&mut self, id: u64) -> Option<Place> {
        self.set_idle(id, false);
        let place = self.open.remove(&id)?;
        self.pool(place.surplus.is_some()).count -= 1;
        if place.surplus.is_none()
            && let Some(count) = self.addresses.get_mut(&place.address)
        {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&place.address);
            }
        }
        Some(place)
    }

    /// Lets the connection give way that has been idle for longest. Returns whether there was one.
    fn close_idle(&mut self, in_reserve: bool) -> bool {
        let Some((_, &id)) = self.pool(in_reserve).idle.first_key_value() else { return false };
        if let Some(place) = self.remove(id) {
            place.give_way.cancel();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(connections: u32, per_address: Option<u32>) -> Slots {
        Slots::new(Limits { connections, per_address }, Connections::default())
    }

    fn take(slots: &Slots, address: &str) -> Arc<Slot> {
        Arc::new(slots.take(address.parse().unwrap()).unwrap())
    }

    #[test]
    fn the_longest_idle_connection_gives_way() {
        let slots = slots(2, None);
        let (first, second) = (take(&slots, "10.0.0.1"), take(&slots, "10.0.0.1"));
        drop(first.busy());
        let third = take(&slots, "10.0.0.2");
        assert!(second.give_way.is_cancelled() && !first.give_way.is_cancelled());
        assert_eq!(third.surplus, None);
        drop(second);
        let busy = (first.busy(), third.busy());
        let fourth = take(&slots, "10.0.0.3");
        assert_eq!(fourth.surplus, Some(Surplus::Full), "all others are busy");
        drop(busy);
        assert_eq!(take(&slots, "10.0.0.3").surplus, None);
        assert!(!fourth.give_way.is_cancelled(), "it is none of the regular ones");
    }

    #[test]
    fn an_address_has_a_share_of_its_own() {
        let slots = slots(100, Some(1));
        let first = take(&slots, "10.0.0.1");
        assert_eq!(take(&slots, "::ffff:10.0.0.1").surplus, Some(Surplus::Address));
        assert_eq!(take(&slots, "10.0.0.2").surplus, None);
        drop(first);
        assert_eq!(take(&slots, "10.0.0.1").surplus, None);
        let _first = take(&slots, "2001:db8::1");
        assert_eq!(take(&slots, "2001:db8::2").surplus, Some(Surplus::Address));
        assert_eq!(take(&slots, "2001:db8:0:1::1").surplus, None);
    }

    #[test]
    fn the_reserve_is_bounded_and_nothing_is_left_behind() {
        let slots = slots(1, None);
        let regular = take(&slots, "10.0.0.1");
        let busy = regular.busy();
        let reserve: Vec<_> = (0..RESERVE).map(|_| take(&slots, "10.0.0.1")).collect();
        let all_busy: Vec<_> = reserve.iter().map(Slot::busy).collect();
        assert!(slots.take("10.0.0.1".parse().unwrap()).is_none());
        drop(all_busy);
        let last = take(&slots, "10.0.0.1");
        assert!(reserve[0].give_way.is_cancelled() && !reserve[1].give_way.is_cancelled());
        drop((busy, regular, reserve, last));
        let table = slots.table.lock();
        assert!(table.open.is_empty() && table.addresses.is_empty(), "{table:?}");
        assert!(table.regular.idle.is_empty() && table.reserve.idle.is_empty(), "{table:?}");
        assert_eq!((table.regular.count, table.reserve.count), (0, 0));
    }
}
