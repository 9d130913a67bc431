//! What is found while one file is read: mistakes, values, and what was asked for.

use std::cell::RefCell;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::declaration::{Row, Table};
use super::mistake::{ConfigErrors, Mistake};
use super::value::Misread;
use super::values::{Recorded, Setting, Values};

/// Looks an environment variable up.
pub(super) type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Everything found while one file is read.
pub(super) struct Report<'a> {
    pub(super) file: &'a str,
    text: &'a str,
    pub(super) env: Env<'a>,
    found: RefCell<Vec<(Option<usize>, Mistake)>>,
    pub(super) values: RefCell<Values>,
    tables: Option<RefCell<Vec<Table>>>,
}

impl<'a> Report<'a> {
    /// For a file of this name and text.
    pub(super) fn new(file: &'a str, text: &'a str, env: Env<'a>) -> Self {
        Self { file, text, env, found: RefCell::default(), values: RefCell::default(), tables: None }
    }

    /// Reads nothing; what is asked for becomes [`Report::into_tables`], and nothing is a mistake.
    pub(super) fn describing() -> Self {
        Self { tables: Some(RefCell::default()), ..Self::new("", "", &|_| None) }
    }

    /// Reports a mistake of the file's syntax.
    pub(super) fn refuse_syntax(&self, span: Option<Range<usize>>, what: &str) {
        let what = match what {
            // A word without quotes is taken for the beginning of `false`, whatever it is.
            _ if what.starts_with("invalid boolean") => "not a value; a text stands in quotes".to_owned(),
            "duplicate key" => {
                self.key_at(span.as_ref()).map_or(what.to_owned(), |key| format!("{key} is there twice"))
            }
            _ => what.to_owned(),
        };
        self.refuse(span.map(|span| span.start), String::new(), what);
    }

    /// The bare key in this place.
    fn key_at(&self, span: Option<&Range<usize>>) -> Option<&str> {
        let key = self.text.get(span?.clone())?;
        let is_bare = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        Some(key).filter(|_| is_bare)
    }

    /// What was wrong, in the order of the file.
    pub(super) fn into_errors(self) -> ConfigErrors {
        let mut found = self.found.into_inner();
        found.sort_by_key(|&(at, _)| at);
        ConfigErrors(found.into_iter().map(|(_, mistake)| mistake).collect())
    }

    /// The values that were read, if nothing was wrong.
    pub(super) fn into_values(self) -> Result<Values, ConfigErrors> {
        let values = self.values.take();
        let ConfigErrors(mistakes) = self.into_errors();
        if mistakes.is_empty() { Ok(values) } else { Err(ConfigErrors(mistakes)) }
    }

    /// What was asked for, in order.
    pub(super) fn into_tables(self) -> Vec<Table> {
        self.tables.map(RefCell::into_inner).unwrap_or_default()
    }

    /// Begins the description of a table, if tables are described: its place among them.
    pub(super) fn begin_table(&self, path: &str) -> Option<usize> {
        let mut tables = self.tables.as_ref()?.borrow_mut();
        tables.push(Table { path: path.to_owned(), rows: Vec::new() });
        Some(tables.len() - 1)
    }

    /// Ends the description of the table at this place.
    pub(super) fn end_table(&self, place: Option<usize>, rows: Vec<Row>) {
        if let (Some(place), Some(tables)) = (place, &self.tables) {
            tables.borrow_mut()[place].rows = rows;
        }
    }

    /// Notes a value for comparing.
    pub(super) fn record(&self, path: String, value: Recorded, at_start: bool) {
        self.values.borrow_mut().settings.insert(path, Setting { value, at_start });
    }

    /// Notes that there is this table.
    pub(super) fn record_table(&self, path: &str) {
        self.values.borrow_mut().tables.insert(path.to_owned());
    }

    /// The value as a table; reports a mistake if it is none.
    pub(super) fn as_table(&self, path: &str, value: &'a Spanned<DeValue<'a>>) -> Option<&'a DeTable<'a>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            let what = format!("expected a table, [{path}], found {}", Misread::kind(value.get_ref()));
            self.refuse(Some(value.span().start), path.to_owned(), what);
        }
        table
    }

    /// Whether nothing is read, and what is asked for is described.
    pub(super) fn describes(&self) -> bool {
        self.tables.is_some()
    }

    /// Reports a mistake.
    pub(super) fn refuse(&self, at: Option<usize>, path: String, what: String) {
        let line = |at| self.text.get(..at).unwrap_or(self.text).matches('\n').count() + 1;
        let place = at.map(|at| (self.file.to_owned(), line(at)));
        self.found.borrow_mut().push((at, Mistake { place, path, what }));
    }
}
