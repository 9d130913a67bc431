//! How long a service asks to wait before it is asked again.

use std::time::Duration;

use http::HeaderMap;
use jiff::fmt::rfc2822;

/// How long a service asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now_ms: u64) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let date = |text: &str| {
        let at_ms = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?.as_millisecond();
        Some(Duration::from_millis(u64::try_from(at_ms).ok()?.saturating_sub(now_ms)))
    };
    let exact = text("retry-after-ms").and_then(|text| seconds(text, 1e-3));
    exact.or_else(|| text("retry-after").and_then(|text| seconds(text, 1.0).or_else(|| date(text))))
}

fn seconds(text: &str, unit: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse::<f64>().ok()? * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_read_in_every_form() {
        let now_ms = 1_445_412_480_000; // Wed, 21 Oct 2015 07:28:00 GMT
        let wait = |headers: &[(&'static str, &'static str)]| {
            let headers = headers.iter().map(|&(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            retry_after(&headers.collect(), now_ms)
        };
        assert_eq!(wait(&[]), None);
        assert_eq!(wait(&[("retry-after", "7")]), Some(Duration::from_secs(7)));
        assert_eq!(wait(&[("retry-after", "0.5")]), Some(Duration::from_millis(500)));
        assert_eq!(wait(&[("retry-after", "7"), ("retry-after-ms", "20")]), Some(Duration::from_millis(20)));
        assert_eq!(wait(&[("retry-after", "Wed, 21 Oct 2015 07:28:30 GMT")]), Some(Duration::from_secs(30)));
        assert_eq!(wait(&[("retry-after", "Wed, 21 Oct 2015 07:00:00 GMT")]), Some(Duration::ZERO));
        for nonsense in ["", "soon", "-1", "1e30", "NaN"] {
            assert_eq!(wait(&[("retry-after", nonsense)]), None, "{nonsense}");
        }
    }
}
