//! When a message is sent again that was not taken, and when it is given up.
//!
//! Pure. An attempt is written down before it is made, together with the time of the next one. So a process that dies in an
//! attempt neither loses the message nor makes more attempts than these.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::failure::HookFailure;
use crate::types::hook::HookPoint;
use crate::types::{CallId, RunId};

/// The pause after the first attempt; it doubles after each.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);
/// Most attempts. A message is sent for a week at most, and with these pauses, half of which may be cut off at random, that has
/// fewer.
const MOST_ATTEMPTS: u32 = 500;

/// How far the delivery of a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// When the message was written, Unix milliseconds.
    pub written_ms: u64,
    /// How many attempts were begun.
    pub attempts: u32,
}

/// Why a message is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenUp {
    /// It was sent for as long as it may be.
    TooOld,
    /// It was sent as often as it may be.
    TooOften,
    /// The service says that it wants no more of them.
    Gone,
}

impl GivenUp {
    /// The reason as it is counted.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooOld => "too_old",
            Self::TooOften => "too_often",
            Self::Gone => "gone",
        }
    }
}

impl Progress {
    /// Whether another attempt may be made now, or why the message is given up.
    pub fn may_go_on(self, now_ms: u64, retry_for: Duration) -> Result<(), GivenUp> {
        match self.attempts {
            // The first attempt is made however late it is: it may be that no replica was there.
            0 => Ok(()),
            MOST_ATTEMPTS.. => Err(GivenUp::TooOften),
            _ => self.is_worth_keeping(now_ms, retry_for),
        }
    }

    /// Whether the message is young enough to be kept for one that can send it, or why it is given up.
    pub fn is_worth_keeping(self, now_ms: u64, retry_for: Duration) -> Result<(), GivenUp> {
        let is_old = u128::from(now_ms.saturating_sub(self.written_ms)) > retry_for.as_millis();
        if is_old { Err(GivenUp::TooOld) } else { Ok(()) }
    }

    /// How long to wait for the next attempt after the one that begins now, which may take `timeout`.
    #[must_use]
    pub fn pause(self, timeout: Duration) -> Duration {
        let doubled = FIRST_PAUSE.saturating_mul(1_u32.checked_shl(self.attempts).unwrap_or(u32::MAX));
        timeout + doubled.min(LONGEST_PAUSE)
    }

    /// How long a message waits that is not sent now, as others to its hook fail or are under way: as long as it has waited.
    #[must_use]
    pub fn postponed(self, now_ms: u64) -> Duration {
        Duration::from_millis(now_ms.saturating_sub(self.written_ms)).clamp(FIRST_PAUSE, LONGEST_PAUSE)
    }
}

/// When a message is sent again that was not taken now and is to be sent next at `planned_ms`; or that it is given up. A service
/// may ask for a longer pause, and for none that is shorter.
pub fn after_failure(failure: &HookFailure, now_ms: u64, planned_ms: u64) -> Result<u64, GivenUp> {
    if failure.status.is_some_and(|status| status.as_u16() == 410) {
        return Err(GivenUp::Gone);
    }
    let asked = failure.retry_after_s.map_or(Duration::ZERO, Duration::from_secs).min(LONGEST_PAUSE);
    let asked_ms = u64::try_from(asked.as_millis()).unwrap_or(u64::MAX);
    Ok(planned_ms.max(now_ms.saturating_add(asked_ms)))
}

/// What a message is about, beside its run, hook and point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About<'a> {
    /// This call, which was made so often before its caller asked for it once more.
    Call(&'a CallId, u32),
    /// The event of this number.
    Event(u64),
    /// The run's beginning.
    Start,
}

/// The id of a message: the same however often and by whichever replica it is sent, and another for every other message, also for
/// one that tells something else of the same.
#[must_use]
pub fn message_id(run: &RunId, hook: &str, point: HookPoint, about: About<'_>, told: &str) -> String {
    let about = match about {
        About::Call(call, before) => format!("call {call} {before}"),
        About::Event(number) => format!("event {number}"),
        About::Start => "start".to_owned(),
    };
    // What is signed has full stops between its parts, so the id has none, whatever the hook is named.
    let digest = Sha256::digest(format!("{run}\n{}\n{about}\n{hook}\n{told}", point.as_str()));
    let hex = digest.iter().take(16).map(|byte| format!("{byte:02x}"));
    std::iter::once("msg_".to_owned()).chain(hex).collect()
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);
    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn a_message_is_sent_for_a_day_and_no_more_than_so_often() {
        let (mut progress, mut now_ms) = (Progress { written_ms: 1_000, attempts: 0 }, 90_000_000_000);
        progress.written_ms = now_ms;
        let mut pauses = Vec::new();
        while progress.may_go_on(now_ms, DAY).is_ok() {
            let pause = progress.pause(TIMEOUT);
            pauses.push(pause.as_secs());
            now_ms += u64::try_from(pause.as_millis()).unwrap();
            progress.attempts += 1;
        }
        assert_eq!(pauses[..4], [10, 15, 25, 45]);
        assert_eq!(pauses.last(), Some(&3_605));
        assert_eq!((pauses.len(), progress.may_go_on(now_ms, DAY)), (33, Err(GivenUp::TooOld)));
        let endless = Progress { attempts: 500, ..progress };
        assert_eq!(endless.may_go_on(now_ms, DAY * 1_000), Err(GivenUp::TooOften));
        assert_eq!(Progress { attempts: 0, ..progress }.may_go_on(now_ms, DAY), Ok(()), "it was never sent");
    }

    #[test]
    fn a_service_may_ask_for_a_longer_pause_and_for_no_messages() {
        let after = |status, retry_after_s, planned_ms| {
            after_failure(&HookFailure { what: String::new(), status, retry_after_s }, 1_000, planned_ms)
        };
        assert_eq!(after(None, None, 6_000), Ok(6_000));
        assert_eq!(after(Some(StatusCode::GONE), None, 6_000), Err(GivenUp::Gone));
        let busy = |after_s, planned_ms| after(Some(StatusCode::TOO_MANY_REQUESTS), Some(after_s), planned_ms);
        assert_eq!((busy(60, 6_000), busy(0, 6_000)), (Ok(61_000), Ok(6_000)));
        assert_eq!(
            busy(10, 2_000_000),
            Ok(2_000_000),
            "messages are not sent sooner because a service asks for a short pause"
        );
        assert_eq!(busy(u64::MAX, 6_000), Ok(3_601_000));
    }

    #[test]
    fn a_message_outlives_a_service_that_is_down_for_hours_and_asks_for_short_pauses() {
        let (mut progress, mut now_ms) = (Progress { written_ms: 1_000, attempts: 0 }, 1_000_u64);
        let busy =
            HookFailure { what: String::new(), status: Some(StatusCode::TOO_MANY_REQUESTS), retry_after_s: Some(10) };
        let until_ms = now_ms + 23 * 3_600_000;
        while now_ms < until_ms {
            assert_eq!(progress.may_go_on(now_ms, DAY), Ok(()));
            let planned_ms = now_ms + u64::try_from(progress.pause(TIMEOUT).as_millis()).unwrap() / 2;
            now_ms = after_failure(&busy, now_ms, planned_ms).unwrap();
            progress.attempts += 1;
        }
        assert!(progress.attempts < 100, "{}", progress.attempts);
    }

    #[test]
    fn a_message_is_postponed_for_as_long_as_it_has_waited() {
        let postponed = |waited_s: u64| Progress { written_ms: 0, attempts: 3 }.postponed(waited_s * 1_000).as_secs();
        assert_eq!([postponed(0), postponed(60), postponed(86_400)], [5, 60, 3_600]);
    }

    #[test]
    fn an_id_tells_messages_apart_and_stays() {
        let run = RunId::mint();
        let id = |hook, point, about| message_id(&run, hook, point, about, "");
        let first = id("a.b", HookPoint::RunEnd, About::Event(7));
        assert_eq!(first, id("a.b", HookPoint::RunEnd, About::Event(7)));
        assert!(first.len() == 36 && !first.contains('.'), "{first}");
        for other in [
            id("a", HookPoint::RunEnd, About::Event(7)),
            id("a.b", HookPoint::OnError, About::Event(7)),
            id("a.b", HookPoint::RunEnd, About::Event(8)),
            id("a.b", HookPoint::RunEnd, About::Start),
            message_id(&RunId::mint(), "a.b", HookPoint::RunEnd, About::Event(7), ""),
            message_id(&run, "a.b", HookPoint::RunEnd, About::Event(7), "{}"),
        ] {
            assert_ne!(other, first);
        }
    }
}
