//! `query`: what the operator adds to the URLs of requests.

use super::reader::Section;
use super::sent_value::{self, SentValue};
use super::values::Recorded;

/// Reads the table `query`.
pub(super) fn read_query(section: &mut Section<'_>) -> Vec<(String, SentValue)> {
    read_with_text(section).into_iter().map(|(name, value, _)| (name, value)).collect()
}

/// The same, each with the text in the file that it is, if it is one.
pub(super) fn read_with_text<'a>(section: &mut Section<'a>) -> Vec<(String, SentValue, Option<&'a str>)> {
    section.named_or_text("query", |name, text, section| {
        let value = sent_value::read("", text, section)?;
        section.record_here(Recorded::hidden(value.whole.expose()));
        Some((name.to_owned(), value, text))
    })
}
