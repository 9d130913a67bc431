//! Numbers from 0 to 1.

use toml::Spanned;
use toml::de::{DeFloat, DeInteger, DeValue};

use super::value::{FromToml, Misread};

/// A number from 0 to 1.
pub(super) struct Ratio(pub(super) f64);

impl FromToml for Ratio {
    fn form() -> String {
        "number from 0 to 1".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let written = value.get_ref().as_float().map(DeFloat::as_str);
        let written = written.or_else(|| value.get_ref().as_integer().map(DeInteger::as_str));
        let written = written.ok_or_else(|| Misread::expected(value, "a number from 0 to 1"))?;
        let ratio = written.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        ratio.map(Self).ok_or_else(|| Misread::new(value, "must be a number from 0 to 1"))
    }

    fn show(&self) -> String {
        format!("{:?}", self.0)
    }
}
