//! What changes when one configuration replaces another, in sentences without secrets.

use std::collections::BTreeSet;
use std::fmt;

use super::values::{Setting, Values};

/// The longest value that is shown, in characters.
const MOST_SHOWN: usize = 80;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What changes: a setting, `agents.default.limits.timeout`, or a whole table, `keys.acme-web`.
    pub path: String,
    /// How it changes.
    pub kind: ChangeKind,
    /// When the change counts.
    pub counts: Counts,
}

/// How something changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// The table is new.
    Added,
    /// The table is gone.
    Removed,
    /// A setting has another value; `None` for one that was, or is now, absent.
    Value {
        /// The value before.
        from: Option<String>,
        /// The value now.
        to: Option<String>,
    },
    /// A setting has another value, which is not shown.
    Hidden,
}

/// When a change counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// As soon as the configuration is read again.
    AtReload,
    /// When the server is started again.
    AtRestart,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
        let path = &self.path;
        match &self.kind {
            ChangeKind::Added => write!(f, "{path}: added"),
            ChangeKind::Removed => write!(f, "{path}: removed"),
            ChangeKind::Value { from, to } => write!(f, "{path}: {}, was {}", value(to), value(from)),
            ChangeKind::Hidden => write!(f, "{path}: changed"),
        }
    }
}

/// What changes when `new` replaces `old`, by path. A table that is added or removed is one change.
pub(super) fn difference(old: &Values, new: &Values) -> Vec<Change> {
    let added: BTreeSet<&str> = new.tables.difference(&old.tables).map(String::as_str).collect();
    let removed: BTreeSet<&str> = old.tables.difference(&new.tables).map(String::as_str).collect();
    let is_part = |path: &str| added.iter().chain(&removed).any(|table| *table == path || is_within(table, path));
    let paths: BTreeSet<&String> = old.settings.keys().chain(new.settings.keys()).collect();
    let settings = paths.into_iter().filter(|path| !is_part(path));
    let mut changes: Vec<_> = settings.filter_map(|path| change(path, old, new)).collect();
    changes.extend(of_tables(&added, &ChangeKind::Added));
    changes.extend(of_tables(&removed, &ChangeKind::Removed));
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    changes
}

/// One change for each of these tables that is not within another of them.
fn of_tables(tables: &BTreeSet<&str>, kind: &ChangeKind) -> impl Iterator<Item = Change> {
    let outermost = tables.iter().filter(|path| !tables.iter().any(|table| is_within(table, path)));
    outermost.map(|path| Change { path: (*path).to_owned(), kind: kind.clone(), counts: Counts::AtReload })
}

fn is_within(table: &str, path: &str) -> bool {
    path.strip_prefix(table).is_some_and(|rest| rest.starts_with('.'))
}

/// How a setting changes, if it does.
fn change(path: &str, old: &Values, new: &Values) -> Option<Change> {
    let (from, to) = (old.settings.get(path), new.settings.get(path));
    if from.map(|setting| &setting.value) == to.map(|setting| &setting.value) {
        return None;
    }
    let at_start = from.or(to).is_some_and(|setting| setting.at_start);
    let counts = if at_start { Counts::AtRestart } else { Counts::AtReload };
    Some(Change { path: path.to_owned(), kind: kind(from, to), counts })
}

fn kind(from: Option<&Setting>, to: Option<&Setting>) -> ChangeKind {
    let is_fit = |text: &str| text.chars().count() <= MOST_SHOWN;
    // An absent setting can be named as such; one that is hidden cannot.
    let shown = |setting: Option<&Setting>| match setting.map(|setting| setting.value.shown.as_deref()) {
        None => Some(None),
        Some(Some(text)) if is_fit(text) => Some(Some(text.to_owned())),
        Some(_) => None,
    };
    match (shown(from), shown(to)) {
        // What is shown of them is the same: the difference is a secret.
        (Some(from), Some(to)) if from != to => ChangeKind::Value { from, to },
        _ => ChangeKind::Hidden,
    }
}
