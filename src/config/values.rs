//! The value of every setting by its path, so that two configurations can be compared.

use std::collections::{BTreeMap, BTreeSet};

use super::secret::Secret;

/// What a configuration says, defaults included.
#[derive(Debug, Clone, Default)]
pub struct Values {
    /// Tables whose names the operator chose, such as `keys.acme-web`.
    pub(super) tables: BTreeSet<String>,
    /// Values by path, such as `agents.default.limits.timeout`.
    pub(super) settings: BTreeMap<String, Setting>,
}

/// The value of one setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// The value, and when a change of it counts.
    pub(super) value: Recorded,
    /// Whether it is read at the start only.
    pub(super) at_start: bool,
}

/// A value: all of it for comparing, and what a person may see of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Recorded {
    /// As TOML, without secrets; `None` where nothing of it is to be shown.
    pub(super) shown: Option<String>,
    whole: Secret,
}

impl Recorded {
    /// A value that everyone may see.
    pub(super) fn shown(text: String) -> Self {
        Self { whole: Secret::new(text.as_str()), shown: Some(text) }
    }

    /// A value that is not shown: it holds a secret, or is too long.
    pub(super) fn hidden(whole: &str) -> Self {
        Self { shown: None, whole: Secret::new(whole) }
    }

    /// The same value with a secret that belongs to it and is not shown.
    pub(super) fn with_secret(self, secret: &str) -> Self {
        Self { whole: Secret::new(format!("{}\n{secret}", self.whole.expose())), ..self }
    }
}

impl Values {
    /// These values, but `running`'s where a setting is read at the start only.
    pub(super) fn while_running(mut self, running: &Self) -> Self {
        self.settings.retain(|_, setting| !setting.at_start);
        let kept = running.settings.iter().filter(|(_, setting)| setting.at_start);
        self.settings.extend(kept.map(|(path, setting)| (path.clone(), setting.clone())));
        self
    }

    /// What may be shown of the settings within a table, as TOML by their paths within it.
    pub(super) fn within(&self, table: &str) -> BTreeMap<String, String> {
        let settings = self.settings.iter().filter_map(|(path, setting)| {
            let path = path.strip_prefix(table)?.strip_prefix('.')?;
            Some((path.to_owned(), setting.value.shown.clone()?))
        });
        settings.collect()
    }

    /// All that may be shown of the settings, as TOML by their paths.
    pub(super) fn shown(&self) -> BTreeMap<String, String> {
        let settings = self.settings.iter();
        settings.filter_map(|(path, setting)| Some((path.clone(), setting.value.shown.clone()?))).collect()
    }

    /// Gives a table another name.
    pub(super) fn rename_table(&mut self, from: &str, to: &str) {
        if self.tables.remove(from) {
            self.tables.insert(to.to_owned());
        }
        let within = format!("{from}.");
        let renamed: Vec<_> = self.settings.extract_if(.., |path, _| path.starts_with(&within)).collect();
        self.settings.extend(renamed.into_iter().map(|(path, setting)| (path.replacen(from, to, 1), setting)));
    }
}
