//! When a schedule fires.
//!
//! A firing at certain hours happens once on each day that has them, also when clocks change: an hour that is left out is
//! made up for right after it, and of an hour that comes twice the first counts. Firings in every hour, or every so many hours
//! or minutes, happen as time passes. So do those of cron (Debian's manual page of `cron`, "Daylight Saving Time").

use cronexpr::{Crontab, FallbackTimezoneOption, MakeTimestamp, ParseOptions, parse_crontab_with};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// By how much clocks may be set back or forth in a night.
const MOST_CHANGE_HOURS: i64 = 3;

/// When something happens, again and again.
#[derive(Debug)]
pub struct Timetable {
    crontab: Crontab,
    zone: TimeZone,
    /// Whether its hours are certain ones, so that it goes by what clocks show.
    by_clock: bool,
}

/// What is wrong with what a timetable is to be made of.
#[derive(Debug, PartialEq, Eq)]
pub enum BadTimetable {
    /// The expression; why.
    Cron(String),
    /// The name of the time zone; why.
    TimeZone(String),
}

impl Timetable {
    /// The timetable of a cron expression of five fields, by the clocks of a time zone.
    pub fn parse(cron: &str, time_zone: &str) -> Result<Self, BadTimetable> {
        let unknown = |_| BadTimetable::TimeZone("is no time zone; an example is \"Europe/Oslo\"".to_owned());
        let zone = TimeZone::get(time_zone).map_err(unknown)?;
        let fields: Vec<&str> = cron.split_ascii_whitespace().collect();
        let [_, hours, ..] = fields[..] else { return Err(BadTimetable::Cron(FIVE.to_owned())) };
        if fields.len() != 5 {
            return Err(BadTimetable::Cron(FIVE.to_owned()));
        }
        let by_clock = !hours.contains('*');
        // What goes by the clock is looked up as if clocks never changed, and found in the time zone then.
        let zone_name = if by_clock { "UTC" } else { time_zone };
        let mut options = ParseOptions::default();
        options.fallback_timezone_option = FallbackTimezoneOption::None;
        let crontab = parse_crontab_with(&format!("{} {zone_name}", fields.join(" ")), options);
        let crontab = crontab.map_err(|error| BadTimetable::Cron(in_words(&error.to_string())))?;
        Ok(Self { crontab, zone, by_clock })
    }

    /// When it happens next after this time; both in Unix milliseconds. `None` if it never does, as on 30 February.
    pub fn next_after(&self, ms: u64) -> Option<u64> {
        let after = Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
        let next = if self.by_clock { self.next_by_clock(after)? } else { self.find(after)? };
        u64::try_from(next.as_millisecond()).ok()
    }

    fn find(&self, after: Timestamp) -> Option<Timestamp> {
        self.crontab.find_next(MakeTimestamp(after)).ok().map(|found| found.timestamp())
    }

    /// The earliest time after this one at which clocks show, or would have shown, what the expression says.
    fn next_by_clock(&self, after: Timestamp) -> Option<Timestamp> {
        let shown = after.to_zoned(self.zone.clone()).datetime();
        // A time that clocks leave out, or show twice, is found before what they show now.
        let mut from = as_utc(shown.checked_sub(MOST_CHANGE_HOURS.hours()).ok()?)?;
        let (mut earliest, mut until): (Option<Timestamp>, Option<Timestamp>) = (None, None);
        loop {
            from = self.find(from)?;
            if until.is_some_and(|until| from > until) {
                return earliest;
            }
            let found = from.to_zoned(TimeZone::UTC).datetime().to_zoned(self.zone.clone()).ok()?.timestamp();
            if found > after {
                earliest = Some(earliest.map_or(found, |earliest| earliest.min(found)));
                // What clocks leave out may come after what they show later.
                until = until.or_else(|| from.checked_add(MOST_CHANGE_HOURS.hours()).ok());
            }
        }
    }
}

const FIVE: &str =
    "must have five fields: minute, hour, day of the month, month and day of the week, such as \"0 7 * * 1-5\"";

/// The time at which clocks of UTC show this.
fn as_utc(shown: DateTime) -> Option<Timestamp> {
    shown.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

/// The last line of the library's message, which points at what is wrong.
fn in_words(message: &str) -> String {
    let last = message.lines().last().unwrap_or_default();
    let words = last.trim_start_matches([' ', '^']).trim();
    format!("is no cron expression: {words}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times that follow one, as clocks of the zone show them.
    fn following(cron: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let table = Timetable::parse(cron, zone).unwrap();
        let mut at = u64::try_from(after.parse::<Timestamp>().unwrap().as_millisecond()).unwrap();
        let mut next = || {
            at = table.next_after(at).unwrap();
            let shown = Timestamp::from_millisecond(i64::try_from(at).unwrap()).unwrap();
            shown.to_zoned(TimeZone::get(zone).unwrap()).strftime("%m-%d %H:%M%:z").to_string()
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn times_come_by_the_clocks_of_the_zone() {
        let days = following("0 7 * * 1-5", "Europe/Oslo", "2026-11-26T05:00:00Z", 3);
        assert_eq!(days, ["11-26 07:00+01:00", "11-27 07:00+01:00", "11-30 07:00+01:00"]);
        let quarters = following("*/15 * * * *", "UTC", "2026-11-26T23:50:00.001Z", 2);
        assert_eq!(quarters, ["11-27 00:00+00:00", "11-27 00:15+00:00"]);
        assert_eq!(following("0 9 L * *", "UTC", "2026-11-26T05:00:00Z", 1), ["11-30 09:00+00:00"]);
    }

    /// Clocks of Oslo go from 02:00 to 03:00 on 29 March 2026 and from 03:00 to 02:00 on 25 October.
    #[test]
    fn certain_hours_come_once_a_day_when_clocks_change() {
        let spring = following("30 2 * * *", "Europe/Oslo", "2026-03-27T12:00:00Z", 3);
        assert_eq!(spring, ["03-28 02:30+01:00", "03-29 03:30+02:00", "03-30 02:30+02:00"]);
        let autumn = following("30 2 * * *", "Europe/Oslo", "2026-10-24T12:00:00Z", 2);
        assert_eq!(autumn, ["10-25 02:30+02:00", "10-26 02:30+01:00"]);
        let both = following("30 2,3 * * *", "Europe/Oslo", "2026-03-28T12:00:00Z", 2);
        assert_eq!(both, ["03-29 03:30+02:00", "03-30 02:30+02:00"], "two times that fall together are one");
        let half_hours = following("0,30 2,3 29 3 *", "Europe/Oslo", "2026-03-28T12:00:00Z", 2);
        assert_eq!(half_hours, ["03-29 03:00+02:00", "03-29 03:30+02:00"]);
    }

    #[test]
    fn every_hour_comes_as_time_passes_when_clocks_change() {
        let spring = following("0 * * * *", "Europe/Oslo", "2026-03-29T00:00:00Z", 2);
        assert_eq!(spring, ["03-29 03:00+02:00", "03-29 04:00+02:00"]);
        let autumn = following("0 * * * *", "Europe/Oslo", "2026-10-24T23:30:00Z", 3);
        assert_eq!(autumn, ["10-25 02:00+02:00", "10-25 02:00+01:00", "10-25 03:00+01:00"]);
    }

    #[test]
    fn what_is_no_timetable_is_said() {
        for (cron, zone, is_cron) in [
            ("* * * *", "UTC", true),
            ("* * * * * *", "UTC", true),
            ("0 25 * * *", "UTC", true),
            ("0 7 * * 1-5 UTC", "UTC", true),
            ("", "UTC", true),
            ("H * * * *", "UTC", true),
            ("0 7 * * *", "Europe/Atlantis", false),
            ("0 7 * * *", "", false),
        ] {
            let refused = Timetable::parse(cron, zone).unwrap_err();
            assert_eq!(matches!(refused, BadTimetable::Cron(_)), is_cron, "{cron} {zone}: {refused:?}");
        }
        let BadTimetable::Cron(why) = Timetable::parse("0 25 * * *", "UTC").unwrap_err() else { panic!() };
        assert!(why.starts_with("is no cron expression: ") && why.contains("25") && !why.contains('\n'), "{why}");
        assert_eq!(Timetable::parse("0 0 30 2 *", "UTC").unwrap().next_after(0), None);
    }
}
