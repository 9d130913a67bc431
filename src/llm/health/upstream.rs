//! The health of one upstream: that of its models, and the retries that its calls have earned.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use super::breaker::{BreakerPolicy, Change, Opening};
use super::model::ModelHealth;
use super::retry_budget::RetryBudget;
use super::shared::{SharedHealth, Target};
use crate::llm::error_class::ErrorClass;
use crate::llm::refusal::Refusal;
use crate::llm::{ModelError, ModelErrorKind};
use crate::types::maps::HashMap;

/// Most models of an upstream that are told apart: callers may name any.
const MOST_MODELS: usize = 1_000;

/// What all upstreams of a process have in common.
#[derive(Debug)]
pub(super) struct Process {
    /// Times are milliseconds since then.
    origin: Instant,
    ticks: AtomicU64,
    pub(super) shared: OnceLock<Arc<dyn SharedHealth>>,
}

impl Default for Process {
    fn default() -> Self {
        Self { origin: Instant::now(), ticks: AtomicU64::new(0), shared: OnceLock::new() }
    }
}

impl Process {
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A number above all before.
    pub(super) fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// The health of one upstream as it is configured.
#[derive(Debug)]
pub struct UpstreamHealth {
    pub(super) process: Arc<Process>,
    pub(super) name: Arc<str>,
    pub(super) fingerprint: Arc<str>,
    pub(super) policy: BreakerPolicy,
    models: RwLock<HashMap<Arc<str>, Arc<ModelHealth>>>,
    /// Outlives a configuration: one that is replaced earns nothing by that.
    pub(super) retries: Arc<Mutex<RetryBudget>>,
}

impl UpstreamHealth {
    pub(super) fn new(
        process: Arc<Process>,
        (name, fingerprint): (&str, &str),
        policy: BreakerPolicy,
        retries: Arc<Mutex<RetryBudget>>,
    ) -> Self {
        let models = RwLock::default();
        Self { process, name: name.into(), fingerprint: fingerprint.into(), policy, models, retries }
    }

    /// Why a call of this model would not be made now.
    pub fn refusal(&self, model: &str) -> Option<Refusal> {
        let opening = self.known(model)?.refusal(self.process.now_ms())?;
        Some(self.refused(opening))
    }

    /// A call that is no retry is made.
    pub fn earn_retries(&self) {
        self.retries.lock().earn(self.policy.retry_percent);
    }

    /// Takes a retry, if the calls before have earned one.
    pub fn take_retry(&self) -> bool {
        self.retries.lock().take()
    }

    /// A retry was answered: another call may take it.
    pub(super) fn give_retry_back(&self) {
        self.retries.lock().give_back();
    }

    /// The failure of a call that is not made.
    pub fn error(&self, refusal: &Refusal) -> ModelError {
        let message = format!("upstream {} is left alone: {refusal}", self.name);
        let status = (refusal.class == ErrorClass::RateLimited).then_some(429);
        ModelError { retry_after: Some(refusal.for_now), status, ..ModelError::new(ModelErrorKind::Transient, message) }
    }

    pub(super) fn refused(&self, opening: Opening) -> Refusal {
        let left = opening.until_ms.saturating_sub(self.process.now_ms());
        Refusal { class: opening.class, for_now: Duration::from_millis(left) }
    }

    pub(super) fn has(&self, target: &Target) -> bool {
        target.upstream == self.name && target.fingerprint == self.fingerprint
    }

    pub(super) fn known(&self, model: &str) -> Option<Arc<ModelHealth>> {
        self.models.read().get(model).cloned()
    }

    pub(super) fn models(&self) -> Vec<Arc<ModelHealth>> {
        self.models.read().values().cloned().collect()
    }

    /// The health of a model, which is kept from now on.
    pub(super) fn tracked(&self, model: &str) -> Arc<ModelHealth> {
        if let Some(known) = self.known(model) {
            return known;
        }
        let mut models = self.models.write();
        if models.len() >= MOST_MODELS {
            make_room(&mut models, self.process.now_ms());
        }
        let name: Arc<str> = model.into();
        let target = Target { upstream: self.name.clone(), fingerprint: self.fingerprint.clone(), model: name.clone() };
        let made = || Arc::new(ModelHealth::new(target, self.policy));
        models.entry(name).or_insert_with(made).clone()
    }

    /// Tells the others, and the log, of a change.
    pub(super) fn tell(&self, target: &Target, change: Change) {
        let Target { upstream, model, .. } = target;
        match change {
            Change::Opened(opening) | Change::Reopened(opening) => {
                let refusal = self.refused(opening);
                let (cause, seconds) = (opening.class.clause(), refusal.for_now.as_secs_f64());
                tracing::warn!(%upstream, %model, cause, seconds, "a model is not asked for a while");
            }
            Change::Closed => tracing::info!(%upstream, %model, "a model is asked again"),
            Change::Released => {}
        }
        if let Some(shared) = self.process.shared.get() {
            shared.note_changes();
        }
    }
}

/// Forgets the models that are well and not asked now, or else the one that will be asked first again.
fn make_room(models: &mut HashMap<Arc<str>, Arc<ModelHealth>>, now_ms: u64) {
    models.retain(|_, model| Arc::strong_count(model) > 1 || model.is_of_use(now_ms));
    if models.len() < MOST_MODELS {
        return;
    }
    let until_ms = |model: &ModelHealth| model.opening().map_or(0, |opening| opening.until_ms);
    let first = models.iter().min_by_key(|(_, model)| until_ms(model)).map(|(name, _)| name.clone());
    if let Some(first) = first {
        models.remove(&first);
    }
}
