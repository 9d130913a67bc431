//! How quantities with a unit are written: durations, sizes and money.

use std::time::Duration;

use toml::Spanned;
use toml::de::{DeFloat, DeInteger, DeValue};

use super::value::{FromToml, Misread, text, whole};
use crate::types::Micros;
use crate::types::usage::MAX_USD;

/// The longest duration: a hundred years, so that a moment plus a duration is always a moment.
const LONGEST: Duration = Duration::from_secs(36_500 * DAY);
const DAY: u64 = 86_400;
/// The largest size, which is where the counters of stores end.
const MOST_BYTES: u64 = i64::MAX.unsigned_abs();

impl FromToml for Duration {
    fn form() -> String {
        "duration".into()
    }

    /// Above zero.
    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let Delay(duration) = Delay::read(value)?;
        if duration.is_zero() { Err(Misread::new(value, "must be longer than 0s")) } else { Ok(duration) }
    }

    fn show(&self) -> String {
        Delay(*self).show()
    }
}

/// A duration that may be zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Delay(pub(super) Duration);

impl FromToml for Delay {
    fn form() -> String {
        "duration".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        const FORM: &str = "a duration such as \"500ms\", \"30s\", \"5m\", \"24h\" or \"30d\"";
        let text = text(value, FORM)?;
        let duration = amount(text, |unit| match unit {
            "ms" => Some(1),
            "s" => Some(1_000),
            "m" => Some(60_000),
            "h" => Some(3_600_000),
            "d" => Some(DAY * 1_000),
            _ => None,
        })
        .map(Duration::from_millis);
        match duration {
            Some(duration) if duration <= LONGEST => Ok(Self(duration)),
            Some(_) => Err(Misread::new(value, format!("must be at most \"{}d\"", LONGEST.as_secs() / DAY))),
            None => Err(Misread::new(value, format!("this is not {FORM}"))),
        }
    }

    fn show(&self) -> String {
        let (seconds, millis) = (self.0.as_secs(), self.0.subsec_millis());
        match seconds {
            _ if millis != 0 => format!("\"{}ms\"", self.0.as_millis()),
            s if s >= 2 * DAY && s % DAY == 0 => format!("\"{}d\"", s / DAY),
            s if s >= 3_600 && s % 3_600 == 0 => format!("\"{}h\"", s / 3_600),
            s => format!("\"{s}s\""),
        }
    }
}

/// A number of bytes above zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Size(pub(super) u64);

impl FromToml for Size {
    fn form() -> String {
        "size".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        const FORM: &str = "a size such as \"512KiB\", \"10MiB\", \"1GiB\" or a number of bytes";
        if matches!(value.get_ref(), DeValue::Integer(_)) {
            return whole(value, MOST_BYTES).map(Self);
        }
        let bytes = amount(text(value, FORM)?, |unit| match unit {
            "B" => Some(1),
            "KiB" => Some(1 << 10),
            "MiB" => Some(1 << 20),
            "GiB" => Some(1 << 30),
            _ => None,
        });
        match bytes {
            Some(bytes) if (1..=MOST_BYTES).contains(&bytes) => Ok(Self(bytes)),
            Some(_) => Err(Misread::new(value, "must be above 0 and below 8192 PiB")),
            None => Err(Misread::new(value, format!("this is not {FORM}"))),
        }
    }

    fn show(&self) -> String {
        match self.0 {
            bytes if bytes % (1 << 30) == 0 => format!("\"{}GiB\"", bytes >> 30),
            bytes if bytes % (1 << 20) == 0 => format!("\"{}MiB\"", bytes >> 20),
            bytes if bytes % (1 << 10) == 0 => format!("\"{}KiB\"", bytes >> 10),
            bytes => bytes.to_string(),
        }
    }
}

/// A number directly followed by a unit. A product that is too large is the largest number.
fn amount(text: &str, unit: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, name) = text.split_at(digits);
    let unit = unit(name)?;
    if number.is_empty() { None } else { Some(number.parse().map_or(u64::MAX, |n: u64| n.saturating_mul(unit))) }
}

impl FromToml for Micros {
    fn form() -> String {
        "US dollars".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let written = value.get_ref().as_float().map(DeFloat::as_str);
        let written =
            written.or_else(|| value.get_ref().as_integer().filter(|n| n.radix() == 10).map(DeInteger::as_str));
        let written = written.ok_or_else(|| Misread::expected(value, "a number of US dollars"))?;
        let usd: f64 = written.parse().unwrap_or(f64::NAN);
        if (0.0..=MAX_USD).contains(&usd) {
            Ok(Self::from_usd(usd))
        } else {
            Err(Misread::new(value, format!("must be a number of US dollars from 0 to {MAX_USD}")))
        }
    }

    fn show(&self) -> String {
        format!("{:?}", self.as_usd())
    }
}

/// Shorthand for defaults.
pub(super) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read<T: FromToml>(toml: &str) -> Result<T, String> {
        T::read(&DeValue::parse(toml).unwrap()).map_err(|misread| misread.what)
    }

    #[test]
    fn durations_are_read() {
        let good = [("1ms", 1), ("500ms", 500), ("300s", 300_000), ("5m", 300_000), ("1h", 3_600_000)];
        for (text, millis) in good {
            assert_eq!(read(&format!("{text:?}")), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(read(r#""30d""#), Ok(seconds(30 * DAY)));
        assert_eq!(read(r#""0s""#), Ok(Delay(Duration::ZERO)));
        for bad in ["", "s", "5", "5 s", "-5s", "+5s", "1.5s", "5sec", "5S", "1h30m", "٣s"] {
            let wrong = read::<Duration>(&format!("{bad:?}")).unwrap_err();
            assert!(wrong.starts_with("this is not a duration such as \"500ms\""), "{bad}: {wrong}");
        }
        assert_eq!(read::<Duration>(r#""0s""#).unwrap_err(), "must be longer than 0s");
        for long in ["36501d", "99999999999999999999999d"] {
            assert_eq!(read::<Duration>(&format!("{long:?}")).unwrap_err(), r#"must be at most "36500d""#);
        }
        assert!(read::<Duration>("300").unwrap_err().ends_with("found an integer"));
    }

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [("1", 1), (r#""7B""#, 7), (r#""512KiB""#, 524_288), (r#""1GiB""#, 1 << 30), ("0x10", 16)]
        {
            assert_eq!(read(text), Ok(Size(bytes)), "{text}");
        }
        for bad in [r#""10MB""#, r#""10""#, r#""1.5MiB""#, r#""MiB""#, r#""10 MiB""#] {
            assert!(read::<Size>(bad).unwrap_err().starts_with("this is not a size such as"), "{bad}");
        }
        for bad in [r#""0MiB""#, r#""9999999999999GiB""#, "0", "-1"] {
            assert!(read::<Size>(bad).unwrap_err().starts_with("must be "), "{bad}");
        }
        assert!(read::<Size>("true").unwrap_err().ends_with("found a boolean"));
    }

    #[test]
    fn money_and_counts_are_read() {
        assert_eq!(read("0.5"), Ok(Micros(500_000)));
        assert_eq!(read("3"), Ok(Micros(3_000_000)));
        assert_eq!(read("1e9"), Ok(Micros(1_000_000_000_000_000)));
        for bad in ["-1", "nan", "inf", "1e300", "-0.1", "1000000001"] {
            let wrong = read::<Micros>(bad).unwrap_err();
            assert_eq!(wrong, "must be a number of US dollars from 0 to 1000000000", "{bad}");
        }
        assert_eq!(read("9007199254740992"), Ok(1_u64 << 53));
        let wrong = read::<u64>("9007199254740993").unwrap_err();
        assert_eq!(wrong, "must be an integer from 1 to 9007199254740992");
        assert_eq!(read("9223372036854775807"), Ok(Size(MOST_BYTES)));
        assert_eq!(read("4294967295"), Ok(u32::MAX));
        for bad in ["0", "-3", "4294967296", "99999999999999999999999"] {
            assert_eq!(read::<u32>(bad).unwrap_err(), "must be an integer from 1 to 4294967295", "{bad}");
        }
        assert_eq!(read::<u32>("2.0").unwrap_err(), "expected an integer from 1 to 4294967295, found a float");
        assert_eq!(
            read::<Vec<u32>>("[1, 2, \"3\"]").unwrap_err(),
            "expected an integer from 1 to 4294967295, found a string"
        );
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(millis in 1..u64::from(u32::MAX), whole in 1..40_000_u64, bytes in 1..u64::from(u32::MAX)) {
            for duration in [Duration::from_millis(millis), seconds(whole), seconds(whole * 3_600), seconds(whole * DAY / 2)] {
                prop_assert_eq!(read(&duration.show()), Ok(duration));
            }
            for size in [bytes, bytes << 10, bytes << 20, bytes << 30] {
                prop_assert_eq!(read(&Size(size).show()), Ok(Size(size)));
            }
        }
    }
}
