//! Builds the rooms of an agent, from the lowest to the highest.

use std::sync::Arc;

use crate::agent::admission::Admission;
use crate::agent::control::Control;
use crate::agent::definitions::StoredDefinitions;
use crate::agent::follow::Followers;
use crate::agent::follow::active::Active;
use crate::agent::generation::Generations;
use crate::agent::health::StoredHealth;
use crate::agent::launch::Launcher;
use crate::agent::launch::compactions::Compactions;
use crate::agent::launch::uncounted::UncountedRuns;
use crate::agent::ledger::Ledger;
use crate::agent::ledger::offers::Offers;
use crate::agent::lifecycle::Lifecycle;
use crate::agent::limits::Limits;
use crate::agent::outbox::Outbox;
use crate::agent::ownership::Ownership;
use crate::agent::recovery::Recovery;
use crate::agent::run_memory::RunMemory;
use crate::agent::session::Sessions;
use crate::agent::usage::Usage;
use crate::agent::{Generation, Retention};
use crate::store::Store;
use crate::telemetry::run::Telemetry;

/// What all runs of this process share.
#[derive(Debug)]
pub(super) struct Rooms {
    pub(super) ledger: Ledger,
    pub(super) generations: Arc<Generations>,
    pub(super) lifecycle: Arc<Lifecycle>,
    pub(super) ownership: Arc<Ownership>,
    pub(super) active: Arc<Active>,
    pub(super) limits: Arc<Limits>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) recovery: Arc<Recovery>,
    pub(super) control: Arc<Control>,
    pub(super) admission: Arc<Admission>,
    pub(super) usage: Arc<Usage>,
    pub(super) telemetry: Telemetry,
    pub(super) launcher: Arc<Launcher>,
    pub(super) health: Arc<StoredHealth>,
    pub(super) definitions: StoredDefinitions,
}

impl Rooms {
    /// The rooms over these parts, of which the first generation will be replaced.
    pub(super) fn new(store: Arc<dyn Store>, first: Generation, retention: Retention, telemetry: Telemetry) -> Self {
        let generations = Arc::new(Generations::new(first));
        let lifecycle = Arc::new(Lifecycle::new(store.is_shared()));
        let (ledger, active) = (Ledger::new(store, retention), Arc::<Active>::default());
        let ownership = Arc::new(Ownership::new(ledger.store(), lifecycle.clone(), telemetry.metrics.lease_losses()));
        let followers = Arc::new(Followers::new(ledger.store().clone(), active.clone(), lifecycle.clone()));
        let (usage, limits) =
            (Arc::new(Usage::new(ledger.clone())), Arc::new(Limits::new(ledger.clone(), active.clone())));
        let sessions = Arc::new(Sessions::new(ledger.clone(), usage.clone(), lifecycle.clone(), generations.clone()));
        let launcher = Arc::new(Launcher {
            ledger: ledger.clone(),
            offers: Offers::new(ledger.clone()),
            generations: generations.clone(),
            sessions: sessions.clone(),
            limits: limits.clone(),
            ownership: ownership.clone(),
            active: active.clone(),
            memory: Arc::new(RunMemory::new(retention.run_bytes)),
            followers: followers.clone(),
            lifecycle: lifecycle.clone(),
            usage: usage.clone(),
            uncounted: UncountedRuns::default(),
            outbox: Outbox::new(ledger.clone(), generations.clone(), lifecycle.clone(), telemetry.metrics.hooks()),
            telemetry: telemetry.clone(),
            compactions: Compactions::default(),
        });
        let control = Arc::new(Control::new(&launcher));
        let admission = Arc::new(Admission {
            ledger: ledger.clone(),
            generations: generations.clone(),
            sessions: sessions.clone(),
            limits: limits.clone(),
            ownership: ownership.clone(),
            followers,
            launcher: launcher.clone(),
            control: control.clone(),
            lifecycle: lifecycle.clone(),
        });
        Self {
            health: StoredHealth::new(ledger.store().clone(), &generations.current().health, ownership.replica.id()),
            definitions: StoredDefinitions::new(ledger.store().clone(), generations.clone()),
            ledger,
            generations,
            lifecycle,
            ownership,
            active,
            limits,
            sessions,
            recovery: Arc::new(Recovery::new(&launcher)),
            control,
            admission,
            usage,
            telemetry,
            launcher,
        }
    }
}
