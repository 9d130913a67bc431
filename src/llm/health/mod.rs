//! How well the models of upstreams are, and what that means for calls.
//!
//! | file | what |
//! | --- | --- |
//! | `policy` | when breakers open and for how long, by what calls fail with; pure |
//! | `window` | how many calls failed of late, and of how many; pure |
//! | `breaker` | the circuit breaker of one model; pure |
//! | `retry_budget` | how many retries an upstream's calls have earned; pure |
//! | `model`, `upstream` | the health of a model, and of an upstream |
//! | `call` | one call: whether it is made, and what came of it |
//! | `shared` | what processes that share a store tell each other |
//!
//! A call of a model that is well takes a look at a table and counts itself. Knows nothing of stores: what is shared
//! goes through [`SharedHealth`].

pub mod breaker;
pub mod call;
mod model;
mod policy;
pub mod retry_budget;
pub mod shared;
#[cfg(test)]
mod tests;
mod upstream;
mod window;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use self::breaker::{BreakerPolicy, Known, Opening, Standing};
use self::shared::{SharedHealth, Target, Unsaved};
use self::upstream::Process;
pub use self::upstream::UpstreamHealth;
use crate::llm::error_class::ErrorClass;

/// The health of all upstreams of a process.
#[derive(Debug, Default)]
pub struct Health {
    process: Arc<Process>,
    upstreams: Mutex<Vec<Weak<UpstreamHealth>>>,
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
            use ErrorClass::{Forbidden, Misconfigured, RateLimited};
            matches!(class, Forbidden | Misconfigured | RateLimited)
        });
        self.standing == Standing::Open && !is_callers
    }
}

impl Health {
    /// The health of this upstream. `fingerprint` tells it apart from others that had its name; while one with the same is in
    /// use, it is the same.
    pub fn of_upstream(&self, name: &str, fingerprint: &str, policy: BreakerPolicy) -> Arc<UpstreamHealth> {
        let mut upstreams = self.upstreams.lock();
        upstreams.retain(|known| known.strong_count() > 0);
        let mut named: Vec<_> = upstreams.iter().filter_map(Weak::upgrade).collect();
        named.retain(|known| *known.name == *name);
        let same = named.iter().find(|known| *known.fingerprint == *fingerprint && known.policy == policy);
        if let Some(same) = same {
            return same.clone();
        }
        let retries = named.last().map(|known| known.retries.clone()).unwrap_or_default();
        let upstream = UpstreamHealth::new(self.process.clone(), (name, fingerprint), policy, retries);
        let upstream = Arc::new(upstream);
        upstreams.push(Arc::downgrade(&upstream));
        upstream
    }

    /// Shares the health with other processes from now on. Only the first call counts.
    pub fn share(&self, shared: Arc<dyn SharedHealth>) {
        let _ = self.process.shared.set(shared);
    }

    /// A number that grows, to be taken before what the others know is read.
    #[must_use]
    pub fn tick(&self) -> u64 {
        self.process.tick()
    }

    /// The newest change of each model that the others do not know yet.
    #[must_use]
    pub fn unsaved(&self) -> Vec<(Target, Unsaved)> {
        let now_ms = self.process.now_ms();
        let models = self.upstreams().into_iter().flat_map(|upstream| upstream.models());
        models.filter_map(|model| Some((model.target.clone(), model.unsaved(now_ms)?))).collect()
    }

    /// The others know of this change.
    pub fn note_saved(&self, target: &Target, saved: u64) {
        let tick = self.process.tick();
        for upstream in self.upstreams().iter().filter(|upstream| upstream.has(target)) {
            if let Some(model) = upstream.known(&target.model) {
                model.note_saved(saved, tick);
            }
        }
    }

    /// The models that a call of this process probes.
    #[must_use]
    pub fn probed(&self) -> Vec<Target> {
        let models = self.upstreams().into_iter().flat_map(|upstream| upstream.models());
        models.filter(|model| model.is_probing()).map(|model| model.target.clone()).collect()
    }

    /// Takes in what the others know to be open, with times from now; it was tick `read` before it was read. Unless that
    /// `is_all`, what is not among it may be open too.
    pub fn learn(&self, read: u64, open: &HashMap<Target, Known>, is_all: bool) {
        let now_ms = self.process.now_ms();
        for upstream in self.upstreams() {
            for (target, known) in open.iter().filter(|(target, _)| upstream.has(target)) {
                let Known { opening, probed_until_ms } = *known;
                let opening = Opening { until_ms: now_ms.saturating_add(opening.until_ms), ..opening };
                let probed_until_ms = probed_until_ms.map(|until_ms| now_ms.saturating_add(until_ms));
                upstream.tracked(&target.model).learn(now_ms, read, Some(Known { opening, probed_until_ms }));
            }
            for model in upstream.models().iter().filter(|model| is_all && !open.contains_key(&model.target)) {
                model.learn(now_ms, read, None);
            }
        }
    }

    /// Where the breakers of models stand that failed of late, by name.
    #[must_use]
    pub fn standings(&self) -> Vec<ModelStanding> {
        let now_ms = self.process.now_ms();
        let models = self.upstreams().into_iter().flat_map(|upstream| upstream.models());
        let standings = models.filter_map(|model| {
            let ((standing, class), Target { upstream, model, .. }) = (model.standing(now_ms)?, model.target.clone());
            Some(ModelStanding { upstream, model, standing, class })
        });
        let mut all: Vec<_> = standings.collect();
        all.sort_by(|a, b| (&a.upstream, &a.model).cmp(&(&b.upstream, &b.model)));
        all
    }

    fn upstreams(&self) -> Vec<Arc<UpstreamHealth>> {
        self.upstreams.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
