//! `current_time`: the time of day, anywhere.

use async_trait::async_trait;
use jiff::Timestamp;
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::{self, TimeZone};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::tools::builtin::define;
use crate::tools::{CallContext, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::clock::now_ms;

/// The tool.
#[derive(Debug)]
pub struct CurrentTime {
    spec: ToolSpec,
}

impl CurrentTime {
    pub(super) fn new() -> Self {
        let description =
            "Returns the current date and time with its UTC offset and weekday, in UTC or in the given time zone.";
        let parameters = r#"{"type":"object","properties":{"timezone":{"type":"string","description":"An IANA name such as Europe/Oslo, the city of one (Oslo, New York), an offset such as +02:00, or UTC, which is the default"}},"additionalProperties":false}"#;
        Self { spec: define::spec("current_time", description, parameters) }
    }
}

#[async_trait]
impl Tool for CurrentTime {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn only_computes(&self) -> bool {
        true
    }

    async fn call(&self, arguments: &RawValue, _: &CallContext) -> Result<ToolAnswer, ToolError> {
        #[derive(Deserialize)]
        struct Arguments {
            #[serde(default)]
            timezone: Option<String>,
        }
        let Arguments { timezone } = define::decode(arguments)?;
        let now = i64::try_from(now_ms()).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let now = now.ok_or_else(|| ToolError::Failed("The server's clock is beyond the calendar.".into()))?;
        describe(now, timezone.as_deref().unwrap_or("UTC")).map(ToolAnswer::text)
    }
}

fn describe(now: Timestamp, zone: &str) -> Result<String, ToolError> {
    let zone = zone.trim();
    let Some((name, zone)) = find(zone) else {
        let shown: String = zone.chars().take(60).collect();
        return Err(ToolError::Failed(format!(
            "The time zone `{shown}` is not known. Use an IANA name such as Europe/Oslo or America/New_York, a city such as Tokyo, an offset such as +02:00, or UTC."
        )));
    };
    let local = now.to_zoned(zone);
    Ok(format!("{} ({}, {name})", local.strftime("%Y-%m-%dT%H:%M:%S%:z"), local.strftime("%A")))
}

/// A zone by its own name, by its offset, or by its city.
fn find(text: &str) -> Option<(String, TimeZone)> {
    if text.eq_ignore_ascii_case("UTC") || text.eq_ignore_ascii_case("Z") {
        return Some(("UTC".to_owned(), TimeZone::UTC));
    }
    if text.starts_with(['+', '-']) {
        let zone = DateTimeParser::new().parse_time_zone(text).ok()?;
        return Some((text.to_owned(), zone));
    }
    if let Ok(zone) = tz::db().get(text) {
        return Some((zone.iana_name().unwrap_or(text).to_owned(), zone));
    }
    let city = text.replace(' ', "_");
    // Names come in order; of several zones with the same city, each is that city's.
    let name = tz::db()
        .available()
        .find(|name| name.as_str().rsplit_once('/').is_some_and(|(_, last)| last.eq_ignore_ascii_case(&city)))?;
    Some((name.to_string(), tz::db().get(name.as_str()).ok()?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tools::testing::context;

    fn at(zone: &str) -> Result<String, String> {
        describe("2026-11-21T22:05:12.9Z".parse().unwrap(), zone).map_err(|error| error.to_string())
    }

    #[test]
    fn zones_by_name_offset_and_city() {
        for (zone, time) in [
            ("Europe/Oslo", "2026-11-21T23:05:12+01:00 (Saturday, Europe/Oslo)"),
            ("europe/oslo", "2026-11-21T23:05:12+01:00 (Saturday, Europe/Oslo)"),
            ("Oslo", "2026-11-21T23:05:12+01:00 (Saturday, Europe/Oslo)"),
            (" new york ", "2026-11-21T17:05:12-05:00 (Saturday, America/New_York)"),
            ("Tokyo", "2026-11-22T07:05:12+09:00 (Sunday, Asia/Tokyo)"),
            ("Buenos Aires", "2026-11-21T19:05:12-03:00 (Saturday, America/Argentina/Buenos_Aires)"),
            ("Kolkata", "2026-11-22T03:35:12+05:30 (Sunday, Asia/Kolkata)"),
            ("utc", "2026-11-21T22:05:12+00:00 (Saturday, UTC)"),
            ("+02:00", "2026-11-22T00:05:12+02:00 (Sunday, +02:00)"),
            ("-0930", "2026-11-21T12:35:12-09:30 (Saturday, -0930)"),
        ] {
            assert_eq!(at(zone).as_deref(), Ok(time), "{zone}");
        }
    }

    #[test]
    fn an_unknown_zone_is_answered_with_examples() {
        for zone in ["Atlantis", "", "+99:00", "+", "Europe/", "../etc/passwd", &"x".repeat(10_000)] {
            let error = at(zone).unwrap_err();
            assert!(error.contains("is not known") && error.contains("Europe/Oslo") && error.len() < 300, "{error}");
        }
    }

    #[tokio::test]
    async fn without_a_zone_it_is_utc_now() {
        let arguments = RawValue::from_string("{}".into()).unwrap();
        let answer = CurrentTime::new().call(&arguments, &context(Duration::from_secs(1))).await.unwrap();
        let answer = answer.parts[0].as_text().unwrap();
        let (time, zone) = answer.split_once(' ').unwrap();
        let told = time.parse::<Timestamp>().unwrap().as_millisecond();
        assert!(now_ms().abs_diff(u64::try_from(told).unwrap()) < 60_000, "{answer}");
        assert!(zone.ends_with(", UTC)"), "{answer}");
    }
}
