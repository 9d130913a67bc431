//! The circuit breaker of one model of an upstream. Pure: times come in, decisions go out.
//!
//! Closed, it lets every call through and counts failures. Once too many calls have failed it opens: no call is made until its
//! cooldown is over. Then it is half-open: one call goes through as a probe, whose outcome closes it or opens it for twice as
//! long. Milliseconds are those of any clock that does not go back.

use crate::llm::error_class::ErrorClass;

/// When it opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// So many failures open it, if they are at least half of the calls; 0 for never.
    pub failures: u32,
    /// Within this time.
    pub window_ms: u64,
    /// How long it is open the first time.
    pub cooldown_ms: u64,
    /// How long it is open at most, unless the upstream itself names a time.
    pub most_cooldown_ms: u64,
    /// How long a probe may take before another call becomes one.
    pub probe_ms: u64,
    /// How many retries a hundred calls of the upstream earn.
    pub retry_percent: u32,
}

impl BreakerPolicy {
    /// It never opens, and every call may be repeated as often as its caller likes.
    pub const OFF: Self =
        Self { failures: 0, window_ms: 0, cooldown_ms: 0, most_cooldown_ms: 0, probe_ms: 0, retry_percent: 10_000 };
}

/// The longest that an upstream may ask to be left alone.
const MOST_RETRY_AFTER_MS: u64 = 10 * 60_000;
/// A shorter wait than this is no reason to let no other call through.
const LEAST_RETRY_AFTER_MS: u64 = 1_000;
/// How long a refusal lasts that a person must mend, at first and at most.
const REFUSED_MS: (u64, u64) = (60_000, 10 * 60_000);
/// When those are to ask again that find a probe under way.
const PROBE_POLL_MS: u64 = 2_000;
/// Doublings of a cooldown that make a difference.
const MOST_STREAK: u32 = 16;

/// What a failure does to a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Treatment {
    /// Nothing: the upstream is well.
    Pass,
    /// It counts; enough of them open the breaker.
    Count,
    /// It opens the breaker if it is the second and no call is answered: one may be too large for what is left of a limit.
    OpenIfRepeated,
    /// It opens the breaker at once.
    Open,
}

fn treatment(class: ErrorClass, retry_after_ms: Option<u64>) -> Treatment {
    match class {
        ErrorClass::ContextLength | ErrorClass::NotTaken | ErrorClass::InvalidRequest => Treatment::Pass,
        ErrorClass::Unreachable
        | ErrorClass::Overloaded
        | ErrorClass::TimedOut
        | ErrorClass::Broken
        // These may be about what one caller asks for, and the next one does not.
        | ErrorClass::Forbidden
        | ErrorClass::NotFound
        | ErrorClass::Misconfigured => Treatment::Count,
        ErrorClass::Denied | ErrorClass::Unpaid => Treatment::Open,
        ErrorClass::RateLimited => match retry_after_ms {
            Some(wait) if wait >= LEAST_RETRY_AFTER_MS => Treatment::OpenIfRepeated,
            Some(_) => Treatment::Pass,
            None => Treatment::Count,
        },
    }
}

/// Whether a call may be made nevertheless where there is no other model: the upstream refuses it at once and at no cost, and only
/// a call tells whether someone has mended what is wrong.
fn is_lenient(class: ErrorClass) -> bool {
    needs_a_person(class) || matches!(class, ErrorClass::Forbidden | ErrorClass::NotFound | ErrorClass::Misconfigured)
}

/// Whether no call succeeds before a person mends what is wrong, whatever is asked.
fn needs_a_person(class: ErrorClass) -> bool {
    matches!(class, ErrorClass::Denied | ErrorClass::Unpaid)
}

/// Why a breaker is open, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// The failure that opened it.
    pub class: ErrorClass,
    /// How often in a row it opened.
    pub streak: u32,
    /// When it is half-open.
    pub until_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    Open(Opening),
    /// A probe is under way here, for so long at most.
    Probing(Opening, u64),
}

/// Where a breaker stands, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Standing {
    /// Calls go through.
    Closed,
    /// None does.
    Open,
    /// One may: the cooldown is over.
    HalfOpen,
}

/// Whether a call goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It does.
    Pass(Ticket),
    /// It is the probe, if this process may probe.
    Probe(Ticket),
    /// It does not until then.
    Refuse(Opening),
}

/// A call that went through. Its outcome counts only while the breaker is as it was then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    epoch: u64,
}

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// The model spoke.
    Answered,
    /// It failed so; the upstream may have asked to wait.
    Failed(ErrorClass, Option<u64>),
    /// Its caller went away before.
    Dropped,
}

/// What of a breaker others are to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It opened.
    Opened(Opening),
    /// It closed.
    Closed,
    /// Its probe came to nothing: another call may probe.
    Released,
}

/// A circuit breaker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breaker {
    policy: BreakerPolicy,
    state: State,
    /// Grows with every change of the state.
    epoch: u64,
    /// Since when calls are counted.
    since_ms: u64,
    calls: u32,
    failures: u32,
    /// Whether others know that it is open.
    is_shared: bool,
}

impl Breaker {
    /// A closed one.
    pub fn new(policy: BreakerPolicy) -> Self {
        Self { policy, state: State::Closed, epoch: 0, since_ms: 0, calls: 0, failures: 0, is_shared: false }
    }

    /// Whether a call goes through now. `alone` says that there is no other model to ask.
    pub fn admit(&mut self, now_ms: u64, alone: bool) -> Admission {
        match self.state {
            State::Closed => Admission::Pass(self.ticket()),
            State::Open(opening) | State::Probing(opening, _) if alone && is_lenient(opening.class) => {
                Admission::Pass(self.ticket())
            }
            State::Open(opening) if now_ms < opening.until_ms => Admission::Refuse(opening),
            State::Probing(opening, until_ms) if now_ms < until_ms => {
                let until_ms = until_ms.min(now_ms + PROBE_POLL_MS);
                Admission::Refuse(Opening { until_ms, ..opening })
            }
            State::Open(opening) | State::Probing(opening, _) => {
                self.enter(State::Probing(opening, now_ms + self.policy.probe_ms));
                Admission::Probe(self.ticket())
            }
        }
    }

    /// Why a call would not go through now. Changes nothing.
    pub fn refusal(&self, now_ms: u64) -> Option<Opening> {
        match self.state {
            State::Open(opening) if now_ms < opening.until_ms => Some(opening),
            State::Probing(opening, until_ms) if now_ms < until_ms => Some(Opening { until_ms, ..opening }),
            State::Closed | State::Open(_) | State::Probing(..) => None,
        }
    }

    /// The ticket of a call that was made before anything was known of the model; `None` if it is open by now.
    pub fn admit_late(&self) -> Option<Ticket> {
        (self.state == State::Closed).then(|| self.ticket())
    }

    /// Why it is not closed.
    pub fn opening(&self) -> Option<Opening> {
        match self.state {
            State::Closed => None,
            State::Open(opening) | State::Probing(opening, _) => Some(opening),
        }
    }

    /// Another process probes: this one does not until then.
    pub fn forgo(&mut self, ticket: Ticket, until_ms: u64) {
        if let State::Probing(opening, _) = self.state
            && ticket == self.ticket()
        {
            self.enter(State::Open(Opening { until_ms, ..opening }));
        }
    }

    /// Takes in what came of a call. Returns what others are to know.
    pub fn settle(&mut self, now_ms: u64, ticket: Ticket, outcome: CallOutcome) -> Option<Change> {
        if ticket != self.ticket() {
            return None;
        }
        let failed = match outcome {
            CallOutcome::Failed(class, retry_after_ms) => {
                Some((class, retry_after_ms, treatment(class, retry_after_ms)))
            }
            CallOutcome::Answered | CallOutcome::Dropped => None,
        };
        match (self.state, failed) {
            (State::Probing(opening, _), _) if outcome == CallOutcome::Dropped => {
                self.enter(State::Open(Opening { until_ms: now_ms, ..opening }));
                Some(Change::Released)
            }
            (State::Closed | State::Open(_), _) if outcome == CallOutcome::Dropped => None,
            (State::Closed, None | Some((.., Treatment::Pass))) => {
                self.count(now_ms, 0);
                None
            }
            (State::Closed, Some((class, retry_after_ms, treatment))) => {
                self.count(now_ms, 1);
                let is_due = self.is_much() || treatment == Treatment::Open;
                let is_repeated = treatment == Treatment::OpenIfRepeated && self.failures > 1;
                let opens = is_due || (is_repeated && self.failures == self.calls);
                (self.policy.failures > 0 && opens).then(|| self.open(now_ms, class, retry_after_ms, 1))
            }
            (State::Open(_) | State::Probing(..), None | Some((.., Treatment::Pass))) => {
                self.close();
                Some(Change::Closed)
            }
            (State::Open(_), Some(_)) => None,
            (State::Probing(opening, _), Some((class, retry_after_ms, _))) => {
                let streak = if opening.class == class { opening.streak + 1 } else { opening.streak };
                Some(self.open(now_ms, class, retry_after_ms, streak))
            }
        }
    }

    /// Takes in what others know: that it is open, or that it is not.
    pub fn learn(&mut self, known: Option<Opening>) {
        match (self.state, known) {
            (State::Closed, Some(opening)) => self.adopt(opening),
            (State::Open(own), Some(opening)) if self.is_shared || opening.until_ms > own.until_ms => {
                self.adopt(opening);
            }
            (State::Open(_), None) if self.is_shared => self.close(),
            // A probe of its own says more.
            (State::Probing(..) | State::Open(_) | State::Closed, _) => {}
        }
    }

    /// Others know by now that it is open.
    pub fn note_shared(&mut self) {
        self.is_shared = self.state != State::Closed;
    }

    /// Where it stands.
    pub fn standing(&self, now_ms: u64) -> Standing {
        match self.state {
            State::Closed => Standing::Closed,
            State::Open(opening) if now_ms < opening.until_ms => Standing::Open,
            State::Open(_) | State::Probing(..) => Standing::HalfOpen,
        }
    }

    fn ticket(&self) -> Ticket {
        Ticket { epoch: self.epoch }
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.epoch += 1;
    }

    fn adopt(&mut self, opening: Opening) {
        if self.state != State::Open(opening) {
            self.enter(State::Open(opening));
        }
        self.is_shared = true;
    }

    fn close(&mut self) {
        self.enter(State::Closed);
        (self.calls, self.failures, self.is_shared) = (0, 0, false);
    }

    fn open(&mut self, now_ms: u64, class: ErrorClass, retry_after_ms: Option<u64>, streak: u32) -> Change {
        let (first, most) = if needs_a_person(class) {
            REFUSED_MS
        } else {
            (self.policy.cooldown_ms, self.policy.most_cooldown_ms.max(self.policy.cooldown_ms))
        };
        let own = first.saturating_mul(1 << (streak.clamp(1, MOST_STREAK) - 1)).min(most);
        let asked =
            retry_after_ms.filter(|wait| *wait >= LEAST_RETRY_AFTER_MS).map(|wait| wait.min(MOST_RETRY_AFTER_MS));
        let opening = Opening { class, streak, until_ms: now_ms.saturating_add(asked.unwrap_or(own)) };
        self.enter(State::Open(opening));
        (self.calls, self.failures, self.is_shared) = (0, 0, false);
        Change::Opened(opening)
    }

    /// Whether enough calls failed.
    fn is_much(&self) -> bool {
        self.failures >= self.policy.failures && self.failures * 2 >= self.calls
    }

    /// Counts a call, and whether it failed, in the window that lasts now.
    fn count(&mut self, now_ms: u64, failed: u32) {
        if now_ms.saturating_sub(self.since_ms) >= self.policy.window_ms {
            (self.since_ms, self.calls, self.failures) = (now_ms, 0, 0);
        }
        self.calls = self.calls.saturating_add(1);
        self.failures += failed;
    }
}

#[cfg(test)]
mod tests;
