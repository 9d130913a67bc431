//! What is wrong with a configuration, in sentences for its author.

use std::error::Error;
use std::fmt;

/// One mistake: where it stands and what would be right. Holds no secret and no value that may be one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file, and the line counted from 1; `None` for what did not come from a file.
    pub place: Option<(String, usize)>,
    /// The key, `agents.researcher.limits.timeout`, or the flag or variable that holds the mistake.
    pub path: String,
    /// What is wrong and what would be right.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((file, line)) = &self.place {
            write!(f, "{file}:{line}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.what)
    }
}

/// Every mistake of a configuration, in the order of the file, one a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<Mistake>);

impl ConfigErrors {
    /// A mistake outside of any line of a file.
    pub(super) fn unplaced(path: impl Into<String>, what: impl Into<String>) -> Self {
        Self(vec![Mistake { place: None, path: path.into(), what: what.into() }])
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            let line_break = if index == 0 { "" } else { "\n" };
            write!(f, "{line_break}{mistake}")?;
        }
        Ok(())
    }
}

impl Error for ConfigErrors {}

/// The name that was probably meant, if there is one.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |known: &str| strsim::jaro_winkler(name, known);
    let is_close = |known: &&str| likeness(known) > 0.8 || strsim::damerau_levenshtein(name, known) <= 1;
    known.into_iter().filter(is_close).max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
}

/// The name that was probably meant, or all that there are.
pub(super) fn suggestion(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None if known.is_empty() => "nothing is known here".to_owned(),
        None => format!("known here: {}", known.join(", ")),
    }
}
