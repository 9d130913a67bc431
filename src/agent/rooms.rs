//! Builds the rooms of an agent, from the lowest to the highest.

use std::sync::Arc;

use crate::agent::admission::Admission;
use crate::agent::control::Control;
use crate::agent::definitions::StoredDefinitions;
use crate::agent::delegation::Delegation;
use crate::agent::documents::Documents;
use crate::agent::documents::limits::memory_limits;
use crate::agent::documents::memory_tools::memory_tools;
use crate::agent::documents::skill_tools::skill_tools;
use crate::agent::drive::handing_over::Successors;
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
use crate::agent::revocations::Revocations;
use crate::agent::run_memory::RunMemory;
use crate::agent::schedules::Schedules;
use crate::agent::session::Sessions;
use crate::agent::stored_agents::StoredAgents;
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
    pub(super) agents: Arc<StoredAgents>,
    pub(super) schedules: Arc<Schedules>,
    pub(super) revocations: Revocations,
    delegation: Arc<Delegation>,
}

impl Rooms {
    /// The rooms over these parts, of which the first generation will be replaced.
    pub(super) fn new(store: Arc<dyn Store>, first: Generation, retention: Retention, telemetry: Telemetry) -> Self {
        let (lifecycle, ledger) = (Arc::new(Lifecycle::new(store.is_shared())), Ledger::new(store, retention));
        let (active, usage) = (Arc::<Active>::default(), Arc::new(Usage::new(ledger.clone())));
        let limits = Arc::new(Limits::new(ledger.clone(), active.clone()));
        let (documents, delegation) = (Arc::new(Documents::new(ledger.clone(), lifecycle.clone())), Arc::default());
        let generations = Arc::new(Generations::new(equipped(first, (&documents, &delegation))));
        let ownership = Arc::new(Ownership::new(ledger.store(), lifecycle.clone(), telemetry.metrics.lease_losses()));
        let sessions = Arc::new(Sessions::new(ledger.clone(), usage.clone(), lifecycle.clone(), generations.clone()));
        let launcher = Arc::new(Launcher {
            ledger: ledger.clone(),
            offers: Offers::new(ledger.clone()),
            generations: generations.clone(),
            sessions: sessions.clone(),
            documents,
            limits: limits.clone(),
            ownership: ownership.clone(),
            active: active.clone(),
            memory: Arc::new(RunMemory::new(retention.run_bytes)),
            followers: Arc::new(Followers::new(ledger.store().clone(), active.clone(), lifecycle.clone())),
            lifecycle: lifecycle.clone(),
            usage: usage.clone(),
            uncounted: UncountedRuns::default(),
            outbox: Outbox::new(ledger.clone(), generations.clone(), lifecycle.clone(), telemetry.metrics.hooks()),
            telemetry: telemetry.clone(),
            compactions: Compactions::default(),
            handing_over: Arc::new(Successors(Box::new(delegation.clone()))),
        });
        let agents = Arc::new(StoredAgents::new(ledger.store().clone(), generations.clone()));
        let admission = Arc::new(Admission::new(&launcher, agents.clone()));
        Self {
            schedules: Arc::new(Schedules::new(&admission, telemetry.metrics.schedules())),
            delegation: Delegation::connected(delegation, &admission),
            health: StoredHealth::new(ledger.store().clone(), &generations.current().health, ownership.replica.id()),
            definitions: StoredDefinitions::new(ledger.store().clone(), generations.clone()),
            agents,
            revocations: Revocations::new(ledger.store().clone()),
            ledger,
            generations,
            lifecycle,
            ownership,
            active,
            limits,
            sessions,
            recovery: Arc::new(Recovery::new(&launcher)),
            control: admission.control.clone(),
            admission,
            usage,
            telemetry,
            launcher,
        }
    }

    /// A generation with what runs need of the rooms: tools that they answer from their documents, and what begins runs for them.
    pub(super) fn equipped(&self, generation: Generation) -> Generation {
        equipped(generation, (&self.launcher.documents, &self.delegation))
    }
}

fn equipped(mut generation: Generation, (documents, delegation): (&Arc<Documents>, &Arc<Delegation>)) -> Generation {
    if let Some(memory) = &generation.memory {
        generation.own_tools.extend(memory_tools(documents, memory_limits(memory)));
    }
    generation.delegating = Some(delegation.clone());
    generation.skill_tools = skill_tools(documents, &generation.skills.skills);
    generation
}
