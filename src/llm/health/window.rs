//! How many calls of a model failed of late, and of how many. Pure.
//!
//! Failures may be told long before the calls that began with them are answered. So a failure is compared with all calls that
//! were admitted before it, or with all that were heard of if these are more.

/// In so many parts the past is forgotten.
const PARTS: usize = 4;

/// What was heard of calls within a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Window {
    part_ms: u64,
    /// When the newest part began.
    since_ms: u64,
    /// The newest is the last.
    parts: [Part; PARTS],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Part {
    /// How many calls were admitted before it began.
    before: u64,
    answers: u32,
    failures: u32,
}

/// How many calls failed, of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) failures: u32,
    pub(super) of: u64,
    /// How many of them are known to be answered.
    pub(super) answers: u32,
}

impl Window {
    /// One over so many milliseconds, of which nothing is known yet.
    pub(super) fn new(window_ms: u64) -> Self {
        Self { part_ms: (window_ms / PARTS as u64).max(1), since_ms: 0, parts: [Part::default(); PARTS] }
    }

    /// Forgets what is older than the window, before a call or a failure is counted. So many calls were admitted until now.
    pub(super) fn roll(&mut self, now_ms: u64, admitted: u64) {
        let passed = now_ms.saturating_sub(self.since_ms) / self.part_ms;
        for _ in 0..passed.min(PARTS as u64) {
            self.parts.rotate_left(1);
            self.parts[PARTS - 1] = Part { before: admitted, answers: 0, failures: 0 };
        }
        self.since_ms += passed * self.part_ms;
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self, admitted: u64) {
        self.parts = [Part { before: admitted, answers: 0, failures: 0 }; PARTS];
    }

    /// A call is answered.
    pub(super) fn answer(&mut self) {
        self.newest().answers += 1;
    }

    /// The call of this number failed, counted from 1, which was taken for answered or not.
    pub(super) fn fail(&mut self, number: u64, was_answered: bool) -> Share {
        if was_answered && let Some(part) = self.parts.iter_mut().rev().find(|part| part.answers > 0) {
            part.answers -= 1;
        }
        self.newest().failures += 1;
        let (failures, answers) = (self.failures(), self.parts.iter().map(|part| part.answers).sum::<u32>());
        let heard = u64::from(failures) + u64::from(answers);
        Share { failures, of: heard.max(number.saturating_sub(self.parts[0].before)), answers }
    }

    /// How many failures are known.
    pub(super) fn failures(&self) -> u32 {
        self.parts.iter().map(|part| part.failures).sum()
    }

    fn newest(&mut self) -> &mut Part {
        &mut self.parts[PARTS - 1]
    }
}
