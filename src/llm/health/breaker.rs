//! The circuit breaker of one model, as one process sees it. Pure: times come in, decisions go out.
//!
//! | it is | a call | and then |
//! | --- | --- | --- |
//! | closed | goes through, and is counted | too many failures open it |
//! | open | is refused | once its cooldown is over, it is half-open |
//! | half-open | is its probe, or is refused while another call is | an answer closes it; a failure opens it for twice as long |
//!
//! There is one probe at a time, for as long as its call is under way. It is answered once the model speaks. Where
//! calls failed because answers broke off, it is answered once its answer is whole. Where a person must mend what is wrong,
//! calls that have no other model to ask go through as well; each of them may close the breaker, and none opens it anew.
//!
//! Milliseconds are those of any clock that does not go back.

pub use super::policy::{BreakerPolicy, Failure};
use super::policy::{Treatment, is_lenient};
use super::window::{Share, Window};
use crate::llm::error_class::ErrorClass;

/// When those are to ask again that find a probe under way.
const PROBE_POLL_MS: u64 = 2_000;

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

/// What others know of a breaker that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Why it is open.
    pub opening: Opening,
    /// Until when at most another process probes.
    pub probed_until_ms: Option<u64>,
}

/// The call that is to find out whether a model is well again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    /// A call of this process, by its number.
    Own(u64),
    /// One of another process, until then at most.
    Other(u64),
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

/// A call that went through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    kind: Kind,
    number: u64,
    epoch: u64,
    /// Whether it is counted as answered.
    is_answered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Made while the breaker was closed.
    Ordinary,
    Probe,
    /// Made though it was open, as there was no other model to ask.
    Lenient,
}

/// What is heard of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// The upstream took it.
    Begun,
    /// The model spoke.
    Word,
    /// The answer is whole.
    End,
    /// It failed.
    Failed(Failure),
    /// Its caller went away before.
    Dropped,
}

/// What of a breaker others are to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It opened.
    Opened(Opening),
    /// Its probe failed.
    Reopened(Opening),
    /// It closed.
    Closed,
    /// Its probe came to nothing: another call may probe.
    Released,
}

/// A circuit breaker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breaker {
    policy: BreakerPolicy,
    /// `None` while it is closed.
    opening: Option<Opening>,
    probe: Option<Probe>,
    window: Window,
    /// The number of the last call.
    admitted: u64,
    /// Grows as it opens and closes. An ordinary call counts while it is as it was then.
    epoch: u64,
    /// The streak of its last opening, and when that was over.
    last: Option<(u32, u64)>,
    has_failed: bool,
}

impl Breaker {
    /// A closed one.
    #[must_use]
    pub fn new(policy: BreakerPolicy) -> Self {
        let window = Window::new(policy.window_ms);
        Self { policy, opening: None, probe: None, window, admitted: 0, epoch: 0, last: None, has_failed: false }
    }

    /// Whether a call goes through now. `alone` says that there is no other model to ask.
    pub fn admit(&mut self, now_ms: u64, alone: bool) -> Admission {
        let Some(opening) = self.opening else {
            self.window.roll(now_ms, self.admitted);
            return Admission::Pass(self.ticket(Kind::Ordinary));
        };
        if alone && is_lenient(opening.class) {
            return Admission::Pass(self.ticket(Kind::Lenient));
        }
        if let Some(refused) = self.refusal(now_ms) {
            return Admission::Refuse(refused);
        }
        let ticket = self.ticket(Kind::Probe);
        self.probe = Some(Probe::Own(ticket.number));
        Admission::Probe(ticket)
    }

    /// Why a call would not go through now. Changes nothing.
    #[must_use]
    pub fn refusal(&self, now_ms: u64) -> Option<Opening> {
        let opening = self.opening?;
        let poll_ms = now_ms.saturating_add(PROBE_POLL_MS);
        let until_ms = match self.probe {
            _ if now_ms < opening.until_ms => opening.until_ms,
            Some(Probe::Own(_)) => poll_ms,
            Some(Probe::Other(until_ms)) if now_ms < until_ms => until_ms.min(poll_ms),
            Some(Probe::Other(_)) | None => return None,
        };
        Some(Opening { until_ms, ..opening })
    }

    /// Why it is not closed.
    #[must_use]
    pub fn opening(&self) -> Option<Opening> {
        self.opening
    }

    /// Where it stands.
    #[must_use]
    pub fn standing(&self, now_ms: u64) -> Standing {
        match self.opening {
            None => Standing::Closed,
            Some(opening) if now_ms < opening.until_ms => Standing::Open,
            Some(_) => Standing::HalfOpen,
        }
    }

    /// Whether a call of this process probes.
    #[must_use]
    pub fn is_probing(&self) -> bool {
        matches!(self.probe, Some(Probe::Own(_)))
    }

    /// Whether calls failed, so that it is worth showing.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether what it knows makes a difference.
    pub fn is_of_use(&mut self, now_ms: u64) -> bool {
        self.window.roll(now_ms, self.admitted);
        self.opening.is_some() || self.window.failures() > 0
    }

    /// Another process probes: this one does not until then.
    pub fn forgo(&mut self, ticket: Ticket, until_ms: u64) {
        if let Some(opening) = &mut self.opening
            && self.probe == Some(Probe::Own(ticket.number))
        {
            opening.until_ms = opening.until_ms.max(until_ms);
            self.probe = None;
        }
    }

    /// Takes in what is heard of a call. Returns what others are to know.
    pub fn hear(&mut self, now_ms: u64, ticket: &mut Ticket, heard: Heard) -> Option<Change> {
        match (ticket.kind, self.opening) {
            (Kind::Ordinary, None) if ticket.epoch == self.epoch => self.count(now_ms, ticket, heard),
            (Kind::Ordinary, _) => None,
            (Kind::Probe | Kind::Lenient, Some(opening)) => self.judge(now_ms, ticket, heard, opening),
            (Kind::Probe | Kind::Lenient, None) => {
                // Others have closed it: the call is one as any other.
                *ticket = self.ticket(Kind::Ordinary);
                self.count(now_ms, ticket, heard)
            }
        }
    }

    /// Takes in what others know: that it is open, or that it is not.
    pub fn learn(&mut self, now_ms: u64, known: Option<Known>) {
        let Some(Known { opening, probed_until_ms }) = known else {
            self.close(now_ms);
            return;
        };
        self.epoch += u64::from(self.opening.is_none());
        (self.opening, self.has_failed) = (Some(opening), true);
        // A call of its own that is under way may still tell.
        self.probe = self.probe.filter(|probe| matches!(probe, Probe::Own(_))).or(probed_until_ms.map(Probe::Other));
    }

    /// Counts what is heard of an ordinary call.
    fn count(&mut self, now_ms: u64, ticket: &mut Ticket, heard: Heard) -> Option<Change> {
        self.window.roll(now_ms, self.admitted);
        let failure = match heard {
            Heard::Dropped => return None,
            Heard::Failed(failure) if failure.treatment() != Treatment::Pass => failure,
            Heard::Begun | Heard::Word | Heard::End | Heard::Failed(_) => {
                if !std::mem::replace(&mut ticket.is_answered, true) {
                    self.window.answer();
                }
                return None;
            }
        };
        self.has_failed = true;
        let share = self.window.fail(ticket.number, ticket.is_answered);
        if self.policy.failures == 0 || !self.is_too_much(failure, share) {
            return None;
        }
        let before = self.last.filter(|(_, closed_ms)| now_ms.saturating_sub(*closed_ms) < self.policy.window_ms);
        let streak = before.map_or(1, |(streak, _)| streak.saturating_add(1));
        Some(Change::Opened(self.open(now_ms, failure, streak)))
    }

    /// Takes in what is heard of a call that went through though the breaker is open.
    fn judge(&mut self, now_ms: u64, ticket: &mut Ticket, heard: Heard, opening: Opening) -> Option<Change> {
        let is_probe = self.probe == Some(Probe::Own(ticket.number));
        match heard {
            Heard::Begun => None,
            Heard::Word if opening.class == ErrorClass::Broken => None,
            Heard::Failed(failure) if failure.treatment() != Treatment::Pass => is_probe.then(|| {
                let is_same = opening.class == failure.class;
                let streak = opening.streak.saturating_add(u32::from(is_same));
                Change::Reopened(self.open(now_ms, failure, streak))
            }),
            Heard::Word | Heard::End | Heard::Failed(_) => {
                self.close(now_ms);
                *ticket = self.ticket(Kind::Ordinary);
                self.count(now_ms, ticket, heard);
                Some(Change::Closed)
            }
            Heard::Dropped => is_probe.then(|| {
                self.probe = None;
                Change::Released
            }),
        }
    }

    /// Whether a breaker is to open after this failure, with which so many have failed.
    fn is_too_much(&self, failure: Failure, Share { failures, of, answers }: Share) -> bool {
        let is_half = u64::from(failures) * 2 >= of;
        match failure.treatment() {
            Treatment::Pass => false,
            Treatment::Open => true,
            Treatment::OpenIfRepeated if failures > 1 && answers == 0 && is_half => true,
            Treatment::OpenIfRepeated | Treatment::Count => failures >= self.policy.failures && is_half,
        }
    }

    fn ticket(&mut self, kind: Kind) -> Ticket {
        self.admitted += 1;
        Ticket { kind, number: self.admitted, epoch: self.epoch, is_answered: false }
    }

    fn close(&mut self, now_ms: u64) {
        let Some(opening) = self.opening.take() else { return };
        self.last = Some((opening.streak, now_ms));
        self.probe = None;
        self.epoch += 1;
        self.window.clear(self.admitted);
    }

    fn open(&mut self, now_ms: u64, failure: Failure, streak: u32) -> Opening {
        let until_ms = now_ms.saturating_add(self.policy.open_ms(failure, streak));
        let opening = Opening { class: failure.class, streak, until_ms };
        self.epoch += u64::from(self.opening.is_none());
        (self.opening, self.probe) = (Some(opening), None);
        opening
    }
}

#[cfg(test)]
mod tests;
