//! What callers may take together, on all replicas: budgets and slots of a key, requests a minute.

pub mod charge;
pub mod quota;
pub mod rate;
pub(super) mod slots;
