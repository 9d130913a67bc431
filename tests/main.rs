//! Everything that is tested from outside: the real binary over real sockets, and the repository itself.

mod agents;
mod answers;
mod anthropic;
mod bad_inputs;
mod charges;
mod command_line;
mod conflicts;
mod connections;
mod documents;
mod durability;
mod encryption;
mod faults;
mod idempotency;
mod logs;
mod memory;
mod metrics;
mod offers;
mod passing;
mod prices;
mod programs;
mod recovery;
mod reload;
mod round_trips;
mod runs;
mod sdk;
mod sessions;
mod startup;
mod support;
mod tidy;
mod tools;
mod traces;
mod unknown_outcomes;
#[cfg(target_os = "linux")]
mod usage;
mod vanished_clients;
mod waiting;
