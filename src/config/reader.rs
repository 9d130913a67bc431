//! Reads tables of a TOML file and collects what is wrong with them.
//!
//! The call that reads a key is also its declaration: name, sentence and default stand there and
//! nowhere else. The keys that the code never reads are unknown keys; the keys that it reads make up the reference.
//! Knows nothing of what the settings mean.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::declaration::{Absent, Row};
use super::mistake::suggestion;
use super::report::Report;
use super::value::{FromToml, Misread};
use super::values::Recorded;

/// A table that is being read, or one that is not written and so is all defaults.
pub(super) struct Section<'a> {
    report: &'a Report<'a>,
    path: String,
    at: Option<usize>,
    table: Option<&'a DeTable<'a>>,
    known: Vec<&'static str>,
    rows: Vec<Row>,
    at_start: bool,
}

impl<'a> Section<'a> {
    /// Reads a whole document.
    pub(super) fn read_root<T>(
        report: &'a Report<'a>,
        root: Option<&'a DeTable<'a>>,
        read: impl FnOnce(&mut Section<'a>) -> T,
    ) -> T {
        Self::read_table(report, String::new(), None, root, read)
    }

    fn read_table<T>(
        report: &'a Report<'a>,
        path: String,
        at: Option<usize>,
        table: Option<&'a DeTable<'a>>,
        read: impl FnOnce(&mut Section<'a>) -> T,
    ) -> T {
        let place = report.begin_table(&path);
        let mut section = Section { report, path, at, table, known: Vec::new(), rows: Vec::new(), at_start: false };
        let settings = read(&mut section);
        section.refuse_unknown();
        report.end_table(place, section.rows);
        settings
    }

    /// A key with a default.
    pub(super) fn key<T: FromToml>(&mut self, name: &'static str, help: &'static str, default: T) -> T {
        self.declare::<T>(name, help, Absent::Default(default.show()));
        let value = self.take(name).unwrap_or(default);
        self.record(name, value.recorded());
        value
    }

    /// A key that may be left out.
    pub(super) fn optional<T: FromToml>(&mut self, name: &'static str, help: &'static str) -> Option<T> {
        self.declare::<T>(name, help, Absent::Nothing);
        self.taken(name)
    }

    /// A key that must be there; `None` once its absence or its mistake has been reported.
    pub(super) fn required<T: FromToml>(&mut self, name: &'static str, help: &'static str) -> Option<T> {
        self.declare::<T>(name, help, Absent::Mistake);
        if !self.is_written(name) {
            self.refuse_here(format!("`{name}` is missing: {}", lower_first(help)));
        }
        self.taken(name)
    }

    /// What holds for a key of [`Section::optional`] that may be inherited: its own value or else this one.
    pub(super) fn or_inherited<T: FromToml>(&self, name: &str, own: Option<T>, inherited: Option<T>) -> Option<T> {
        let value = own.or(inherited);
        if let Some(value) = &value {
            self.record(name, value.recorded());
        }
        value
    }

    /// The settings of this table, but not of those within it, are read at the start only.
    pub(super) fn read_at_start(&mut self) {
        self.at_start = true;
    }

    /// Notes the value of a key for comparing, in the place of what was noted for it.
    pub(super) fn record(&self, name: &str, value: Recorded) {
        self.report.record(child(&self.path, name), value, self.at_start);
    }

    /// Notes the value of something that is no table with keys only.
    pub(super) fn record_here(&self, value: Recorded) {
        self.report.record(self.path.clone(), value, self.at_start);
    }

    /// Notes the secret that a key names, such as by a variable.
    pub(super) fn record_secret(&self, name: &str, secret: &str) {
        let path = child(&self.path, name);
        if let Some(setting) = self.report.values.borrow_mut().settings.get_mut(&path) {
            setting.value = setting.value.clone().with_secret(secret);
        }
    }

    /// A table of known name.
    pub(super) fn section<T>(&mut self, name: &'static str, read: impl FnOnce(&mut Section<'a>) -> T) -> T {
        self.known.push(name);
        let path = child(&self.path, name);
        let (at, table) = match self.entry(name) {
            None => (self.at, None),
            Some((at, value)) => (Some(at), self.report.as_table(&path, value)),
        };
        Self::read_table(self.report, path, at, table, read)
    }

    /// A table of known name that may be left out; its required keys are missing only from one that is there.
    pub(super) fn optional_section<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Section<'a>) -> Option<T>,
    ) -> Option<T> {
        if self.is_written(name) || self.report.describes() {
            return self.section(name, read);
        }
        self.known.push(name);
        None
    }

    /// A table whose keys are names that the operator chose, each a table, in the order of the file.
    /// `always` is read first, also where it is not written.
    pub(super) fn named<T>(
        &mut self,
        name: &'static str,
        always: Option<&'static str>,
        mut read: impl FnMut(&str, &mut Section<'a>) -> Option<T>,
    ) -> Vec<T> {
        let mut found = Vec::new();
        for Child { at, key, path, value } in self.children(name, always) {
            let table = value.and_then(|value| self.report.as_table(&path, value));
            if value.is_none() || table.is_some() {
                self.report.record_table(&path);
                found.extend(Self::read_table(self.report, path, Some(at), table, |section| read(key, section)));
            }
        }
        found
    }

    /// As [`Section::named`], but each may also be a string, which `read` then gets beside an empty table.
    pub(super) fn named_or_text<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(&str, Option<&'a str>, &mut Section<'a>) -> Option<T>,
    ) -> Vec<T> {
        let mut found = Vec::new();
        for Child { at, key, path, value } in self.children(name, None) {
            let text = value.and_then(|value| value.get_ref().as_str());
            let table = value.filter(|_| text.is_none()).and_then(|value| self.report.as_table(&path, value));
            if value.is_none() || text.is_some() || table.is_some() {
                self.report.record_table(&path);
                found.extend(Self::read_table(self.report, path, Some(at), table, |section| read(key, text, section)));
            }
        }
        found
    }

    fn children(&mut self, name: &'static str, always: Option<&'static str>) -> Vec<Child<'a>> {
        self.known.push(name);
        let parent = child(&self.path, name);
        let (at, table) = match self.entry(name) {
            None => (0, None),
            Some((at, value)) => (at, self.report.as_table(&parent, value)),
        };
        let new = |at, key: &'a str, value| Child { at, key, path: child(&parent, key), value };
        let entries = table.into_iter().flatten();
        let mut children: Vec<_> =
            entries.map(|(key, value)| new(key.span().start, key.as_ref(), Some(value))).collect();
        if self.report.describes() {
            children.push(new(0, "NAME", None));
        } else if let Some(always) = always.filter(|always| children.iter().all(|child| child.key != *always)) {
            children.push(new(at, always, None));
        }
        children.sort_by_key(|child| (Some(child.key) != always, child.at));
        children
    }

    /// A table of the operator's that is nowhere written, for its defaults.
    pub(super) fn unwritten<T>(&self, path: &str, read: impl FnOnce(&mut Section<'a>) -> T) -> T {
        self.report.record_table(path);
        Self::read_table(self.report, path.to_owned(), None, None, read)
    }

    /// Whether nothing is read, and what is asked for is described.
    pub(super) fn is_described(&self) -> bool {
        self.report.describes()
    }

    /// Whether the file says anything of this key.
    pub(super) fn is_written(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }

    /// Whether the file holds a table of this name with something in it.
    pub(super) fn has_entries(&self, name: &str) -> bool {
        self.entry(name).and_then(|(_, value)| value.get_ref().as_table()).is_some_and(|table| !table.is_empty())
    }

    /// What the file names in a table whose keys the operator chose.
    pub(super) fn names_in(&self, name: &str) -> Vec<String> {
        let table = self.entry(name).and_then(|(_, value)| value.get_ref().as_table());
        table.into_iter().flat_map(|table| table.keys().map(|key| key.get_ref().to_string())).collect()
    }

    /// Reports a mistake of a key, at the place where it is written, or of the table.
    pub(super) fn refuse(&self, name: &str, what: impl Into<String>) {
        let at = self.entry(name).map(|(at, _)| at).or(self.at);
        self.report.refuse(at, child(&self.path, name), what.into());
    }

    /// Reports a mistake of the whole table.
    pub(super) fn refuse_here(&self, what: impl Into<String>) {
        self.report.refuse(self.at, self.path.clone(), what.into());
    }

    /// Reports a mistake of something that is not in the file.
    pub(super) fn refuse_outside(&self, path: &str, what: impl Into<String>) {
        self.report.refuse(None, path.to_owned(), what.into());
    }

    /// The value of an environment variable that is set and not empty.
    pub(super) fn env(&self, variable: &str) -> Option<String> {
        (self.report.env)(variable).filter(|value| !value.is_empty())
    }

    /// The name of the file.
    pub(super) fn file(&self) -> &str {
        self.report.file
    }

    fn declare<T: FromToml>(&mut self, name: &'static str, help: &'static str, absent: Absent) {
        self.known.push(name);
        if self.report.describes() {
            self.rows.push(Row { name, form: T::form(), absent, help });
        }
    }

    fn taken<T: FromToml>(&self, name: &str) -> Option<T> {
        let value: Option<T> = self.take(name);
        if let Some(value) = &value {
            self.record(name, value.recorded());
        }
        value
    }

    fn take<T: FromToml>(&self, name: &str) -> Option<T> {
        let (_, value) = self.entry(name)?;
        match T::read(value) {
            Ok(value) => Some(value),
            Err(Misread { at, what }) => {
                self.report.refuse(Some(at), child(&self.path, name), what);
                None
            }
        }
    }

    /// Where the key stands, and its value.
    fn entry(&self, name: &str) -> Option<(usize, &'a Spanned<DeValue<'a>>)> {
        self.table?.get_key_value(name).map(|(key, value)| (key.span().start, value))
    }

    fn refuse_unknown(&self) {
        for (key, _) in self.table.into_iter().flatten() {
            let name: &str = key.as_ref();
            if !self.known.contains(&name) {
                let what = format!("unknown key; {}", suggestion(name, &self.known));
                self.report.refuse(Some(key.span().start), child(&self.path, name), what);
            }
        }
    }
}

/// An entry of a table whose keys the operator chose; without a value, one that is not written.
struct Child<'a> {
    at: usize,
    key: &'a str,
    path: String,
    value: Option<&'a Spanned<DeValue<'a>>>,
}

/// The path of a key within a table, quoted as TOML wants it.
fn child(path: &str, name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let dot = if path.is_empty() { "" } else { "." };
    if !name.is_empty() && name.bytes().all(bare) {
        format!("{path}{dot}{name}")
    } else {
        format!("{path}{dot}{name:?}")
    }
}

/// A sentence as the end of another. An acronym at its beginning stays as it is.
fn lower_first(sentence: &str) -> String {
    let sentence = sentence.trim_end_matches('.');
    let mut letters = sentence.chars();
    let (first, second) = (letters.next(), letters.next());
    match first {
        Some(first) if !second.is_some_and(char::is_uppercase) => {
            first.to_lowercase().chain(sentence.chars().skip(1)).collect()
        }
        _ => sentence.to_owned(),
    }
}
