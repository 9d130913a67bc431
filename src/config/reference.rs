//! Every setting as the code that reads it declares it, for `docs/configuration.md`.

use std::fmt::Write;

use clap::{Args, Command};

use super::declaration::{Absent, Row, Table};
use super::options::Options;
use super::reader::Section;
use super::report::Report;
use super::settings::Settings;

/// All tables that have keys of their own, in the order in which the file is read.
#[must_use]
pub fn tables() -> Vec<Table> {
    let report = Report::describing();
    Section::read_root(&report, None, |root| Settings::read(root, &Options::default()));
    report.into_tables().into_iter().filter(|table| !table.rows.is_empty()).collect()
}

impl Table {
    /// The table in Markdown.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut text = String::from("| key | holds | default | meaning |\n| --- | --- | --- | --- |\n");
        for Row { name, form, absent, help } in &self.rows {
            let default = match absent {
                Absent::Default(default) => format!("`{default}`"),
                Absent::Nothing => "–".to_owned(),
                Absent::Mistake => "required".to_owned(),
            };
            writeln!(text, "| `{name}` | {form} | {default} | {help} |").expect("writing to a string cannot fail");
        }
        text
    }
}

/// The flags and their variables, as a table in Markdown.
#[must_use]
pub fn flags_to_markdown() -> String {
    let mut text = String::from("| flag | variable | default | meaning |\n| --- | --- | --- | --- |\n");
    for flag in Options::augment_args(Command::new("loopgate")).get_arguments() {
        let value = flag.get_value_names().filter(|_| flag.get_action().takes_values());
        let value = value.and_then(<[_]>::first).map_or_else(String::new, |name| format!(" {name}"));
        let variable = flag.get_env().map_or_else(|| "–".into(), |name| format!("`{}`", name.display()));
        let defaults = flag.get_default_values();
        let default = defaults.first().map_or_else(|| "–".into(), |value| format!("`{}`", value.display()));
        let (name, help) = (flag.get_long().unwrap_or_default(), flag.get_help().map(ToString::to_string));
        writeln!(text, "| `--{name}{value}` | {variable} | {default} | {}. |", help.unwrap_or_default())
            .expect("writing to a string cannot fail");
    }
    text
}
