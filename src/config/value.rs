//! How single values are written: strings, whole numbers, lists and words.
//!
//! A type that is read is a value that is valid; rules that need a second value are elsewhere.

use std::str::FromStr;

use toml::Spanned;
use toml::de::DeValue;

use super::values::Recorded;
use crate::types::json::MAX_NUMBER;

/// Something that a key can hold.
pub(super) trait FromToml: Sized {
    /// What it is, in a few words.
    fn form() -> String;

    /// Reads it.
    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread>;

    /// Writes it as TOML.
    fn show(&self) -> String;

    /// What is noted of it for comparing. Types that may hold a secret override this.
    fn recorded(&self) -> Recorded {
        Recorded::shown(self.show())
    }
}

/// Why a value could not be read. Never repeats the value, which may be a secret put in a wrong place.
#[derive(Debug, PartialEq)]
pub(super) struct Misread {
    /// Byte offset in the file.
    pub(super) at: usize,
    /// What is wrong and what would be right.
    pub(super) what: String,
}

impl Misread {
    /// The value is of the right kind but not allowed.
    pub(super) fn new(value: &Spanned<DeValue<'_>>, what: impl Into<String>) -> Self {
        Self { at: value.span().start, what: what.into() }
    }

    /// The value is of another kind.
    pub(super) fn expected(value: &Spanned<DeValue<'_>>, what: &str) -> Self {
        Self::new(value, format!("expected {what}, found {}", Self::kind(value.get_ref())))
    }

    /// What a value is, for a sentence.
    pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
        match value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        }
    }
}

/// A string, or a sentence that expects `what`.
pub(super) fn text<'v>(value: &'v Spanned<DeValue<'_>>, what: &str) -> Result<&'v str, Misread> {
    value.get_ref().as_str().ok_or_else(|| Misread::expected(value, what))
}

/// Something written as a string that parses, or a sentence that expects `what`.
pub(super) fn parsed<T: FromStr>(value: &Spanned<DeValue<'_>>, what: &str) -> Result<T, Misread> {
    text(value, what)?.parse().map_err(|_| Misread::new(value, format!("this is not {what}")))
}

impl FromToml for String {
    fn form() -> String {
        "string".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        text(value, "a string").map(str::to_owned)
    }

    fn show(&self) -> String {
        format!("{self:?}")
    }
}

impl FromToml for bool {
    fn form() -> String {
        "boolean".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        value.get_ref().as_bool().ok_or_else(|| Misread::expected(value, "true or false"))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl FromToml for u32 {
    fn form() -> String {
        "integer".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        whole(value, Self::MAX)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// A number of tokens.
impl FromToml for u64 {
    fn form() -> String {
        "integer".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        whole(value, MAX_NUMBER)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// An integer from 1 to `most`. What may be absent is left out, so that 0 need not mean it.
pub(super) fn whole<T: TryFrom<u64> + Into<u64> + Copy>(value: &Spanned<DeValue<'_>>, most: T) -> Result<T, Misread> {
    let allowed = format!("an integer from 1 to {}", most.into());
    let DeValue::Integer(number) = value.get_ref() else { return Err(Misread::expected(value, &allowed)) };
    u64::from_str_radix(number.as_str(), number.radix())
        .ok()
        .filter(|number| (1..=most.into()).contains(number))
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| Misread::new(value, format!("must be {allowed}")))
}

/// A list; the first element that is wrong is reported where it stands.
impl<T: FromToml> FromToml for Vec<T> {
    fn form() -> String {
        format!("list of {}s", T::form())
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let elements = value
            .get_ref()
            .as_array()
            .ok_or_else(|| Misread::expected(value, &format!("a list of {}s in brackets", T::form())))?;
        elements.iter().map(T::read).collect()
    }

    fn show(&self) -> String {
        let elements: Vec<_> = self.iter().map(T::show).collect();
        format!("[{}]", elements.join(", "))
    }
}

/// One of a few words.
pub(super) trait Word: Copy + PartialEq + 'static {
    /// Each word and what it stands for.
    const WORDS: &'static [(&'static str, Self)];
}

impl<T: Word> FromToml for T {
    fn form() -> String {
        let words: Vec<_> = T::WORDS.iter().map(|(word, _)| format!("{word:?}")).collect();
        words.join(" or ")
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let form = T::form();
        let text = text(value, &form)?;
        let found = T::WORDS.iter().find(|(word, _)| *word == text);
        found.map(|&(_, meant)| meant).ok_or_else(|| Misread::new(value, format!("must be {form}")))
    }

    fn show(&self) -> String {
        T::WORDS.iter().find(|(_, meant)| meant == self).map_or_else(String::new, |(word, _)| format!("{word:?}"))
    }
}

/// Whether a name is fit for paths, headers and metric labels: 1–64 of `A-Z a-z 0-9 . _ -`, and
/// not only dots. Then it is also fit for a tenant.
#[must_use]
pub fn is_plain_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(allowed) && !name.bytes().all(|byte| byte == b'.')
}

/// What [`is_plain_name`] asks for, in words.
pub const PLAIN_NAME: &str = "a name is 1 to 64 of A-Z a-z 0-9 . _ - and not only dots";
