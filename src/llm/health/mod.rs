//! How well the models of upstreams are, and what that means for calls.
//!
//! | file | what |
//! | --- | --- |
//! | `breaker` | the circuit breaker of one model; pure |
//! | `retry_budget` | how many retries an upstream's calls have earned; pure |
//! | `call` | one call: whether it is made, and what came of it |
//! | `shared` | what processes that share a store tell each other |
//!
//! A model that is well takes a look at a table and no more; nothing is kept of it. Knows nothing of stores: what is shared
//! goes through [`SharedHealth`].

pub mod breaker;
pub mod call;
pub mod retry_budget;
pub mod shared;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use self::breaker::{Breaker, BreakerPolicy, Change, Opening, Standing};
use self::retry_budget::RetryBudget;
use self::shared::{SharedHealth, Target};
use crate::llm::error_class::ErrorClass;
use crate::llm::refusal::Refusal;
use crate::llm::{ModelError, ModelErrorKind};

/// Most models of an upstream that are told apart: callers may name any.
const MOST_MODELS: usize = 1_000;

/// The health of all upstreams of a process.
#[derive(Debug, Default)]
pub struct Health {
    process: Arc<Process>,
    upstreams: Mutex<Vec<Weak<UpstreamHealth>>>,
}

/// What all upstreams of a process have in common.
#[derive(Debug)]
struct Process {
    /// Times are milliseconds since then.
    origin: Instant,
    shared: OnceLock<Arc<dyn SharedHealth>>,
}

impl Default for Process {
    fn default() -> Self {
        Self { origin: Instant::now(), shared: OnceLock::new() }
    }
}

impl Process {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The health of one upstream as it is configured.
#[derive(Debug)]
pub struct UpstreamHealth {
    process: Arc<Process>,
    name: Arc<str>,
    fingerprint: Arc<str>,
    policy: BreakerPolicy,
    /// Those that have failed lately.
    models: RwLock<HashMap<Arc<str>, Arc<ModelHealth>>>,
    retries: Mutex<RetryBudget>,
}

/// The health of one model.
#[derive(Debug)]
struct ModelHealth {
    target: Target,
    breaker: Mutex<Breaker>,
    /// How many changes others are to be told yet: until then they know less.
    untold: AtomicU32,
}

/// Where the breaker of a model stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelStanding {
    /// The upstream.
    pub upstream: Arc<str>,
    /// The model.
    pub model: Arc<str>,
    /// Where its breaker stands.
    pub standing: Standing,
    /// How it failed, if its breaker is not closed.
    pub class: Option<ErrorClass>,
}

impl ModelStanding {
    /// Whether it is not asked because its calls fail, and not for what a caller asks for or the rate of all calls.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        let is_callers = self.class.is_some_and(|class| {
            use ErrorClass::{Forbidden, Misconfigured, NotFound, RateLimited};
            matches!(class, Forbidden | Misconfigured | NotFound | RateLimited)
        });
        self.standing == Standing::Open && !is_callers
    }
}

impl Health {
    /// The health of this upstream. `fingerprint` tells it apart from others that had its name.
    pub fn of_upstream(&self, name: &str, fingerprint: &str, policy: BreakerPolicy) -> Arc<UpstreamHealth> {
        let upstream = Arc::new(UpstreamHealth {
            process: self.process.clone(),
            name: name.into(),
            fingerprint: fingerprint.into(),
            policy,
            models: RwLock::default(),
            retries: Mutex::new(RetryBudget::new(policy.retry_percent)),
        });
        let mut upstreams = self.upstreams.lock();
        upstreams.retain(|known| known.strong_count() > 0);
        upstreams.push(Arc::downgrade(&upstream));
        upstream
    }

    /// Shares the health with other processes from now on. Only the first call counts.
    pub fn share(&self, shared: Arc<dyn SharedHealth>) {
        let _ = self.process.shared.set(shared);
    }

    /// A change of this model was told to the others, or cannot be.
    pub fn note_told(&self, target: &Target) {
        for upstream in self.upstreams() {
            if let Some(model) = upstream.known(&target.model).filter(|model| model.target == *target) {
                let before = model.untold.fetch_sub(1, Ordering::AcqRel);
                if before == 1 {
                    model.breaker.lock().note_shared();
                }
            }
        }
    }

    /// Takes in all that is open by what the others know, with times from now.
    pub fn learn(&self, open: &[(Target, Opening)]) {
        let now_ms = self.process.now_ms();
        for upstream in self.upstreams() {
            for (target, opening) in open.iter().filter(|(target, _)| upstream.has(target)) {
                let opening = Opening { until_ms: now_ms.saturating_add(opening.until_ms), ..*opening };
                if let Some(model) = upstream.tracked(&target.model) {
                    model.learn(Some(opening));
                }
            }
            for model in upstream.models.read().values() {
                if !open.iter().any(|(target, _)| *target == model.target) {
                    model.learn(None);
                }
            }
        }
    }

    /// Where the breakers stand that are known of, by name.
    #[must_use]
    pub fn standings(&self) -> Vec<ModelStanding> {
        let now_ms = self.process.now_ms();
        let mut all = Vec::new();
        for upstream in self.upstreams() {
            all.extend(upstream.models.read().values().map(|model| {
                let (breaker, Target { upstream, model, .. }) = (model.breaker.lock(), model.target.clone());
                let class = breaker.opening().map(|opening| opening.class);
                ModelStanding { upstream, model, standing: breaker.standing(now_ms), class }
            }));
        }
        all.sort_by(|a, b| (&a.upstream, &a.model).cmp(&(&b.upstream, &b.model)));
        all
    }

    fn upstreams(&self) -> Vec<Arc<UpstreamHealth>> {
        self.upstreams.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

impl UpstreamHealth {
    /// Why a call of this model would not be made now.
    pub fn refusal(&self, model: &str) -> Option<Refusal> {
        let now_ms = self.process.now_ms();
        let opening = self.known(model)?.breaker.lock().refusal(now_ms)?;
        Some(self.refused(opening))
    }

    /// A call that is no retry is made.
    pub fn earn_retries(&self) {
        self.retries.lock().earn();
    }

    /// Takes a retry, if the calls before have earned one.
    pub fn take_retry(&self) -> bool {
        self.retries.lock().take()
    }

    /// The failure of a call that is not made.
    pub fn error(&self, refusal: &Refusal) -> ModelError {
        let error =
            ModelError::new(ModelErrorKind::Transient, format!("upstream {} is left alone: {refusal}", self.name));
        ModelError { retry_after: Some(refusal.for_now), ..error }
    }

    fn refused(&self, opening: Opening) -> Refusal {
        let left = opening.until_ms.saturating_sub(self.process.now_ms());
        Refusal { class: opening.class, for_now: Duration::from_millis(left) }
    }

    fn has(&self, target: &Target) -> bool {
        target.upstream == self.name && target.fingerprint == self.fingerprint
    }

    fn known(&self, model: &str) -> Option<Arc<ModelHealth>> {
        self.models.read().get(model).cloned()
    }

    /// The health of a model that has failed; `None` if there is no room for another.
    fn tracked(&self, model: &str) -> Option<Arc<ModelHealth>> {
        if let Some(known) = self.known(model) {
            return Some(known);
        }
        let mut models = self.models.write();
        if models.len() >= MOST_MODELS {
            let now_ms = self.process.now_ms();
            models.retain(|_, model| model.breaker.lock().standing(now_ms) == Standing::Open);
        }
        if models.len() >= MOST_MODELS {
            return None;
        }
        let name: Arc<str> = model.into();
        let made = || {
            let target =
                Target { upstream: self.name.clone(), fingerprint: self.fingerprint.clone(), model: name.clone() };
            let breaker = Mutex::new(Breaker::new(self.policy));
            Arc::new(ModelHealth { target, breaker, untold: AtomicU32::new(0) })
        };
        Some(models.entry(name.clone()).or_insert_with(made).clone())
    }

    /// Tells the others, and the log, of a change.
    fn tell(&self, model: &ModelHealth, change: Change) {
        let Target { upstream, model: name, .. } = &model.target;
        match change {
            Change::Opened(opening) => {
                let refusal = self.refused(opening);
                let (cause, seconds) = (opening.class.clause(), refusal.for_now.as_secs_f64());
                tracing::warn!(%upstream, model = %name, cause, seconds, "a model is not asked for a while");
            }
            Change::Closed => tracing::info!(%upstream, model = %name, "a model is asked again"),
            Change::Released => {}
        }
        let Some(shared) = self.process.shared.get() else { return };
        model.untold.fetch_add(1, Ordering::AcqRel);
        let change = match change {
            Change::Opened(opening) => {
                let until_ms = opening.until_ms.saturating_sub(self.process.now_ms());
                Change::Opened(Opening { until_ms, ..opening })
            }
            Change::Closed | Change::Released => change,
        };
        shared.tell(&model.target, change);
    }
}

impl ModelHealth {
    fn learn(&self, known: Option<Opening>) {
        let mut breaker = self.breaker.lock();
        if self.untold.load(Ordering::Acquire) == 0 {
            breaker.learn(known);
        }
    }
}
