//! The key of a server of models, or several keys that may be used alike.

use std::collections::BTreeSet;

use crate::config::reader::Section;
use crate::config::secret::Secret;
use crate::config::secret_source;
use crate::config::values::Recorded;

/// Most keys of one upstream.
const MOST: usize = 64;

/// The settings that say where keys are, of which an upstream has one at most.
const SOURCES: [&str; 4] = ["api_key_env", "api_key_envs", "api_key_file", "api_key_files"];

/// Reads the keys that are declared.
pub(super) fn read(section: &mut Section<'_>) -> Vec<Secret> {
    let variable: Option<String> = section.optional("api_key_env", "Environment variable that holds the API key.");
    let variables: Option<Vec<String>> = section.optional(
        "api_key_envs",
        "Environment variables that hold an API key each, of which calls use those that the upstream does not refuse. See \
         [several keys](upstreams.md#several-keys).",
    );
    let file: Option<String> = section.optional("api_key_file", "File that holds the API key.");
    let files: Option<Vec<String>> =
        section.optional("api_key_files", "Files that hold an API key each, in place of `api_key_envs`.");
    let given = [variable.is_some(), variables.is_some(), file.is_some(), files.is_some()];
    let mut given = SOURCES.into_iter().zip(given).filter_map(|(name, is_given)| is_given.then_some(name));
    let Some(name) = given.next() else { return Vec::new() };
    if let Some(other) = given.next() {
        section.refuse(other, format!("give {name} or {other}, not both"));
        return Vec::new();
    }
    let sources = variable.or(file).map(|only| vec![only]).or(variables).or(files).unwrap_or_default();
    let is_file = name.starts_with("api_key_file");
    read_all(section, name, &sources, is_file)
}

/// Whether the file says where keys are.
pub(super) fn is_written(section: &Section<'_>) -> bool {
    SOURCES.iter().any(|name| section.is_written(name))
}

/// The keys in these variables or files, which the setting `name` lists.
fn read_all(section: &Section<'_>, name: &'static str, sources: &[String], is_file: bool) -> Vec<Secret> {
    if sources.is_empty() || sources.len() > MOST {
        section.refuse(name, format!("must name 1 to {MOST} keys"));
        return Vec::new();
    }
    let mut keys: Vec<Secret> = Vec::new();
    for source in sources {
        let key = if is_file { secret_source::from_file(source) } else { secret_source::from_env(section, source) };
        keys.extend(secret_source::reported(section, name, key.and_then(secret_source::sendable)));
    }
    if keys.iter().map(Secret::expose).collect::<BTreeSet<_>>().len() < keys.len() {
        section.refuse(name, "two of them hold the same key");
    }
    for key in &keys {
        section.record_secret(name, key.expose());
    }
    keys
}

/// The key in this variable of the environment, if there is one that a header can carry.
pub(super) fn of_environment(section: &Section<'_>, variable: &str) -> Option<Secret> {
    if variable.is_empty() {
        return None;
    }
    match secret_source::sendable(Secret::new(section.env(variable)?)) {
        Ok(key) => {
            let recorded = Recorded::shown(format!("\"{variable}\"")).with_secret(key.expose());
            section.record("api_key_env", recorded);
            Some(key)
        }
        Err(what) => {
            section.refuse_outside(variable, what);
            None
        }
    }
}
