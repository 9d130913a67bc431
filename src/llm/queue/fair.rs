//! A queue that is fair between tenants (pure): each tenant in turn gets its oldest item out.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::types::Tenant;

/// What waits, by tenant.
#[derive(Debug)]
pub struct FairQueue<T> {
    /// The tenants of which something waits, the next one first.
    turns: VecDeque<Tenant>,
    /// What waits of each tenant, the oldest first.
    waiting: HashMap<Tenant, BTreeMap<Ticket, T>>,
    last: Ticket,
    len: usize,
}

/// The place of an item; later items have higher numbers.
pub type Ticket = u64;

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { turns: VecDeque::new(), waiting: HashMap::new(), last: 0, len: 0 }
    }
}

impl<T> FairQueue<T> {
    /// Puts an item behind those of the same tenant. A tenant of which nothing waited has its turn after all others.
    pub fn push(&mut self, tenant: &Tenant, item: T) -> Ticket {
        self.last += 1;
        self.len += 1;
        let items = self.waiting.entry(tenant.clone()).or_default();
        if items.is_empty() {
            self.turns.push_back(tenant.clone());
        }
        items.insert(self.last, item);
        self.last
    }

    /// Takes the oldest item of the tenant whose turn it is. The tenant's next turn is after all others.
    pub fn pop(&mut self) -> Option<T> {
        let tenant = self.turns.pop_front()?;
        let items = self.waiting.get_mut(&tenant)?;
        let (_, item) = items.pop_first()?;
        self.len -= 1;
        if items.is_empty() {
            self.waiting.remove(&tenant);
        } else {
            self.turns.push_back(tenant);
        }
        Some(item)
    }

    /// Takes an item out of turn; `None` if it is not there any more.
    pub fn remove(&mut self, tenant: &Tenant, ticket: Ticket) -> Option<T> {
        let items = self.waiting.get_mut(tenant)?;
        let item = items.remove(&ticket)?;
        self.len -= 1;
        if items.is_empty() {
            self.waiting.remove(tenant);
            self.turns.retain(|waiting| waiting != tenant);
        }
        Some(item)
    }

    /// How many items wait.
    pub fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tenant(number: u8) -> Tenant {
        Tenant::parse(&format!("t{number}")).unwrap()
    }

    #[test]
    fn a_tenant_waits_at_most_one_turn_of_each_other_tenant() {
        let mut queue = FairQueue::default();
        for number in 0..100 {
            queue.push(&tenant(0), (0, number));
        }
        queue.pop();
        queue.push(&tenant(1), (1, 0));
        queue.push(&tenant(2), (2, 0));
        let next: Vec<_> = (0..5).map(|_| queue.pop().unwrap()).collect();
        assert_eq!(next, [(0, 1), (1, 0), (2, 0), (0, 2), (0, 3)]);
        assert_eq!(queue.len(), 96);
    }

    /// What happens to a queue.
    #[derive(Debug, Clone)]
    enum Act {
        Push(u8),
        Pop,
        /// The item that was pushed so many before the last.
        Remove(usize),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            3 => (0..5_u8).prop_map(Act::Push),
            2 => Just(Act::Pop),
            1 => (0..20_usize).prop_map(Act::Remove),
        ];
        proptest::collection::vec(act, 0..200)
    }

    proptest! {
        #[test]
        fn every_item_leaves_once_in_the_order_of_its_tenant_and_no_tenant_has_two_turns_before_another(acts in acts()) {
            let mut queue = FairQueue::default();
            let mut inside: Vec<(u8, Ticket)> = Vec::new();
            let mut pushed = Vec::new();
            // How many turns others had since this tenant began to wait or had its own, by tenant.
            let mut passed: HashMap<u8, Vec<u8>> = HashMap::new();
            for act in acts {
                match act {
                    Act::Push(of) => {
                        let ticket = queue.push(&tenant(of), (of, pushed.len()));
                        if !inside.iter().any(|(other, _)| *other == of) {
                            passed.insert(of, Vec::new());
                        }
                        inside.push((of, ticket));
                        pushed.push((of, ticket));
                    }
                    Act::Pop => {
                        let popped = queue.pop();
                        prop_assert_eq!(popped.is_none(), inside.is_empty());
                        let Some((of, number)) = popped else { continue };
                        let (_, ticket) = pushed[number];
                        let oldest = inside.iter().find(|(other, _)| *other == of).copied();
                        prop_assert_eq!(oldest, Some((of, ticket)));
                        inside.retain(|(_, other)| *other != ticket);
                        passed.insert(of, Vec::new());
                        for (other, turns) in &mut passed {
                            if *other != of && inside.iter().any(|(waiting, _)| waiting == other) {
                                prop_assert!(!turns.contains(&of), "{of} had two turns while {other} waited");
                                turns.push(of);
                            }
                        }
                    }
                    Act::Remove(back) => {
                        let Some(&(of, ticket)) = pushed.iter().rev().nth(back) else { continue };
                        let was_inside = inside.iter().any(|(_, other)| *other == ticket);
                        prop_assert_eq!(queue.remove(&tenant(of), ticket).is_some(), was_inside);
                        inside.retain(|(_, other)| *other != ticket);
                    }
                }
                prop_assert_eq!(queue.len(), inside.len());
            }
        }
    }
}
