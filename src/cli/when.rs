//! Moments and durations for people. Pure.

use std::time::Duration;

use jiff::civil::Date;
use jiff::{Span, SpanRelativeTo, Timestamp, tz::TimeZone};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The moment that `text` names, in Unix milliseconds: how long ago it was (`30m`, `2h`, `7d`), a day or a time.
pub(super) fn since(text: &str, now_ms: u64) -> Result<u64, String> {
    let ms = |time: Timestamp| u64::try_from(time.as_millisecond()).unwrap_or(0);
    let span = || text.parse::<Span>().ok()?.to_duration(SpanRelativeTo::days_are_24_hours()).ok();
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(ms(time));
    }
    if let Ok(day) = text.parse::<Date>() {
        return day.to_zoned(TimeZone::UTC).map(|time| ms(time.timestamp())).map_err(|error| error.to_string());
    }
    if let Some(span) = span() {
        let ago = u64::try_from(span.unsigned_abs().as_millis()).unwrap_or(u64::MAX);
        return Ok(now_ms.saturating_sub(ago));
    }
    Err("must be how long ago, such as 30m, 2h or 7d, a day such as 2026-01-31 (UTC), or a time such as \
         2026-01-31T12:00:00Z"
        .to_owned())
}

/// A duration in its two greatest units at most.
pub(super) fn duration(ms: u64) -> String {
    match ms {
        _ if ms < SECOND => format!("{ms} ms"),
        _ if ms < MINUTE => format!("{:.1} s", Duration::from_millis(ms).as_secs_f64()),
        _ if ms < HOUR => format!("{} m {} s", ms / MINUTE, ms % MINUTE / SECOND),
        _ if ms < DAY => format!("{} h {} m", ms / HOUR, ms % HOUR / MINUTE),
        _ => format!("{} d {} h", ms / DAY, ms % DAY / HOUR),
    }
}

/// The time of day.
pub(super) fn clock(ms: u64) -> String {
    let time = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(|| format!("{ms} ms"), |time| time.strftime("%H:%M:%S UTC").to_string())
}

/// A moment, to the second.
pub(super) fn time(ms: u64) -> String {
    let time = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(|| format!("{ms} ms"), |time| time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_in_every_way() {
        let now = 1_800_000_000_000;
        for (text, ms) in [
            ("30m", now - 30 * MINUTE),
            ("2h", now - 2 * HOUR),
            ("7d", now - 7 * DAY),
            ("1h30m", now - 90 * MINUTE),
            ("2026-01-31", 1_769_817_600_000),
            ("2026-01-31T12:00:00Z", 1_769_860_800_000),
            ("2026-01-31T12:00:00+01:00", 1_769_857_200_000),
        ] {
            assert_eq!(since(text, now), Ok(ms), "{text}");
        }
        for bad in ["", "yesterday", "7", "2026-13-01"] {
            assert!(since(bad, now).is_err(), "{bad}");
        }
    }

    #[test]
    fn moments_and_durations_are_short() {
        let shown = [0, 999, 1_250, 61_000, 2 * HOUR + 5 * MINUTE, 3 * DAY + 4 * HOUR].map(duration);
        assert_eq!(shown, ["0 ms", "999 ms", "1.2 s", "1 m 1 s", "2 h 5 m", "3 d 4 h"]);
        assert_eq!(time(1_769_860_800_123), "2026-01-31 12:00:00 UTC");
        assert_eq!(time(u64::MAX), format!("{} ms", u64::MAX));
    }
}
