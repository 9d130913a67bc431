//! When a rate limit ends, by the headers in which vendors tell what is left of it.

use std::time::Duration;

use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};

/// What the names of such headers begin with; the rest names the limit.
const RESETS: [&str; 2] = ["x-ratelimit-reset", "anthropic-ratelimit"];
/// Above it, a number is a moment, not a number of seconds.
const MOST_SECONDS: f64 = 1e9;
/// Above it, a moment is in milliseconds.
const MOST_MOMENT_SECONDS: f64 = 1e11;

/// In how long the limits are reset that are used up; if the headers do not say which are, the first that is reset.
pub fn reset(headers: &HeaderMap, now_ms: u64) -> Option<Duration> {
    let resets = headers.iter().filter_map(|(name, value)| {
        let (name, text) = (name.as_str(), value.to_str().ok()?.trim());
        let is_reset = RESETS.iter().any(|begin| name.starts_with(begin)) && name.contains("reset");
        let after = is_reset.then(|| time(text, now_ms))??;
        let remaining = headers.get(name.replacen("reset", "remaining", 1));
        Some((after, remaining.is_some_and(|remaining| remaining.as_bytes() == b"0")))
    });
    let resets: Vec<_> = resets.collect();
    let used_up = resets.iter().filter(|(_, is_used_up)| *is_used_up).map(|(after, _)| *after).max();
    used_up.or_else(|| resets.iter().map(|(after, _)| *after).min())
}

/// A time from now: `20ms`, `1s`, `6m0s`, `2m59.56s`, a number of seconds, or a moment as a date or as Unix time.
fn time(text: &str, now_ms: u64) -> Option<Duration> {
    let now = Timestamp::from_millisecond(i64::try_from(now_ms).ok()?).ok()?;
    let until = |moment: Timestamp| moment.duration_since(now).max(SignedDuration::ZERO).unsigned_abs();
    if let Ok(number) = text.parse::<f64>() {
        #[expect(clippy::cast_possible_truncation, reason = "what is out of range is no moment")]
        return match number {
            _ if !number.is_finite() || number < 0.0 => None,
            _ if number <= MOST_SECONDS => Duration::try_from_secs_f64(number).ok(),
            _ if number <= MOST_MOMENT_SECONDS => Timestamp::from_second(number as i64).ok().map(until),
            _ => Timestamp::from_millisecond(number as i64).ok().map(until),
        };
    }
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Some(until(moment));
    }
    parts(text)
}

/// The sum of numbers with units.
fn parts(text: &str) -> Option<Duration> {
    let (mut sum, mut rest) = (0.0, text);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let unit_ends = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_ends);
        let seconds = match unit {
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        sum += number.parse::<f64>().ok()? * seconds;
        rest = after;
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(sum).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-23T08:00:00Z.
    const NOW_MS: u64 = 1_795_420_800_000;

    fn reset_of(headers: &[(&'static str, &'static str)]) -> Option<Duration> {
        let headers = headers.iter().map(|&(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        reset(&headers.collect(), NOW_MS)
    }

    #[test]
    fn a_time_is_read_in_every_form() {
        for (text, ms) in [
            ("20ms", 20),
            ("1s", 1_000),
            ("6m0s", 360_000),
            ("2m59.56s", 179_560),
            ("1h2m3s", 3_723_000),
            ("1d", 86_400_000),
            ("7", 7_000),
            ("0.5", 500),
            ("1795420830", 30_000),
            ("1795420830000", 30_000),
            ("2026-11-23T08:00:30Z", 30_000),
            ("2026-11-23T07:00:30Z", 0),
        ] {
            assert_eq!(time(text, NOW_MS), Some(Duration::from_millis(ms)), "{text}");
        }
        for nonsense in ["", "soon", "-1", "NaN", "1e400", "1x", "m", "1.2.3s", "s1"] {
            assert_eq!(time(nonsense, NOW_MS), None, "{nonsense}");
        }
    }

    #[test]
    fn the_limit_that_is_used_up_counts() {
        let (requests, tokens) = (("x-ratelimit-reset-requests", "1s"), ("x-ratelimit-reset-tokens", "6m0s"));
        let left =
            |requests, tokens| [("x-ratelimit-remaining-requests", requests), ("x-ratelimit-remaining-tokens", tokens)];
        let with = |left: [(&'static str, &'static str); 2]| reset_of(&[requests, tokens, left[0], left[1]]);
        assert_eq!(with(left("0", "9000")), Some(Duration::from_secs(1)));
        assert_eq!(with(left("5", "0")), Some(Duration::from_secs(360)));
        assert_eq!(with(left("0", "0")), Some(Duration::from_secs(360)));
        assert_eq!(with(left("5", "10")), Some(Duration::from_secs(1)));
        assert_eq!(
            reset_of(&[
                ("anthropic-ratelimit-requests-reset", "2026-11-23T08:00:12Z"),
                ("anthropic-ratelimit-requests-remaining", "0")
            ]),
            Some(Duration::from_secs(12))
        );
        assert_eq!(
            reset_of(&[("x-ratelimit-reset", "1795420801000"), ("x-ratelimit-remaining", "0")]),
            Some(Duration::from_secs(1))
        );
        assert_eq!(reset_of(&[("x-ratelimit-limit", "5"), ("reset", "9")]), None);
    }
}
