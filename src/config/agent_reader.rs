//! Agents that are not in the file: JSON objects with the keys of `[agents.NAME]`, which mean the same there.
//!
//! They inherit from the file's `default`, and name what the file declares. Knows nothing of where they are kept.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use toml::de::DeTable;

use super::agent::{AgentConfig, DEFAULT_AGENT};
use super::hook::HookConfig;
use super::known_tools::KnownTools;
use super::mistake::{ConfigErrors, Mistake};
use super::prompt_parents::inherit_layers_of;
use super::reader::Section;
use super::report::Report;
use super::to_json::to_json;
use super::upstream::Upstream;
use super::value::{FromToml, PLAIN_NAME, is_plain_name};
use super::{KeyConfig, approval, asked_guardrails, delegates, memory};
use crate::types::guard::InputMode;

/// What agents are read against.
#[derive(Debug, Default)]
pub struct AgentReader {
    /// Those of the file.
    pub(super) agents: BTreeMap<String, AgentConfig>,
    /// What may be shown of their settings, as TOML by path.
    pub(super) written: BTreeMap<String, String>,
    pub(super) upstreams: Vec<Upstream>,
    pub(super) known_tools: KnownTools,
    pub(super) input_guard: InputMode,
    pub(super) hooks: Vec<HookConfig>,
    pub(super) keys: Vec<KeyConfig>,
    /// Whether agents may remember anything.
    pub(super) remembers: bool,
}

/// An agent that was read.
#[derive(Debug)]
pub struct ReadAgent {
    /// What it is.
    pub config: AgentConfig,
    /// All of its settings, defaults and what is inherited included.
    pub settings: Map<String, Value>,
}

impl AgentReader {
    /// Whether the file has an agent of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.agents.contains_key(name)
    }

    /// Whether an agent that is not in the file may have this name.
    #[must_use]
    pub fn may_be_stored(&self, name: &str) -> bool {
        is_plain_name(name) && !self.has(name)
    }

    /// The names of the file's agents.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.agents.keys().map(String::as_str)
    }

    /// An agent of the file.
    #[must_use]
    pub fn of_file(&self, name: &str) -> Option<ReadAgent> {
        let config = self.agents.get(name)?.clone();
        let settings = self.written.iter().filter_map(|(path, value)| {
            let path = path.strip_prefix(name).or_else(|| path.strip_prefix(&format!("{name:?}")))?;
            Some((path.strip_prefix('.')?, value.as_str()))
        });
        Some(ReadAgent { config, settings: as_json(settings) })
    }

    /// Whether an agent may have this name at all.
    ///
    /// Fails with what a name is.
    pub fn check_name(name: &str) -> Result<(), ConfigErrors> {
        if is_plain_name(name) { Ok(()) } else { Err(ConfigErrors::unplaced("", PLAIN_NAME)) }
    }

    /// Reads an agent that has these keys. The paths of mistakes are within it.
    ///
    /// Fails with all mistakes at once.
    pub fn read(&self, name: &str, keys: &Map<String, Value>) -> Result<ReadAgent, ConfigErrors> {
        if let Some(path) = keys.iter().find_map(|(key, value)| null_within(key, value)) {
            return Err(ConfigErrors::unplaced(path, "is null; leave it out, and what is inherited holds"));
        }
        let text = toml::to_string(keys).map_err(|error| ConfigErrors::unplaced("", error.to_string()))?;
        let (document, mistakes) = DeTable::parse_recoverable(&text);
        let report = Report::new("", &text, &|_| None);
        for mistake in &mistakes {
            report.refuse_syntax(mistake.span(), mistake.message());
        }
        let config = Section::read_root(&report, Some(document.get_ref()), |section| self.read_section(name, section));
        let values = report.into_values().map_err(without_places)?;
        let shown = values.shown();
        let settings = as_json(shown.iter().map(|(path, value)| (path.as_str(), value.as_str())));
        Ok(ReadAgent { config, settings })
    }

    fn read_section(&self, name: &str, section: &mut Section<'_>) -> AgentConfig {
        let parent = self.agents.get(DEFAULT_AGENT);
        let mut agent = AgentConfig::read(name, section, parent, &self.upstreams, &self.known_tools, self.input_guard);
        inherit_layers_of(section, &self.agents, &mut agent);
        if agent.rules.memory.recalls && !self.remembers {
            section.refuse_outside("memory.recall", memory::UNDECLARED);
        }
        if let Some(what) = asked_guardrails::mistake(&agent, &self.upstreams, &self.hooks) {
            section.refuse("guardrails", what);
        }
        if let Some(what) = approval::mistake(&agent.approval, &self.keys) {
            section.refuse("approval", what);
        }
        // What is kept for as long as any run may take is kept so long only.
        let longest = self.agents.values().map(|agent| agent.limits.timeout).max().unwrap_or_default();
        if agent.limits.timeout > longest {
            section.refuse_outside(
                "limits.timeout",
                format!("may be {} at most, as the longest in the file", longest.show()),
            );
        }
        if let Some(what) = delegates::above(&agent.rules.delegation, self.agents.values()) {
            section.refuse("delegation", what);
        }
        if let Some(what) = delegates::hands_off_above(&agent.rules.handoff, self.agents.values()) {
            section.refuse("handoff", what);
        }
        agent
    }
}

/// Where a value is null, if it is anywhere.
fn null_within(path: &str, value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(path.to_owned()),
        Value::Object(members) => members.iter().find_map(|(key, value)| null_within(&format!("{path}.{key}"), value)),
        Value::Array(elements) => {
            let mut numbered = elements.iter().enumerate();
            numbered.find_map(|(index, value)| null_within(&format!("{path}[{index}]"), value))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// The lines are of a text that the reader made of JSON.
fn without_places(ConfigErrors(mistakes): ConfigErrors) -> ConfigErrors {
    ConfigErrors(mistakes.into_iter().map(|mistake| Mistake { place: None, ..mistake }).collect())
}

/// Settings as JSON. What is shown of one need not be a value of TOML; then it is left out.
fn as_json<'a>(settings: impl Iterator<Item = (&'a str, &'a str)>) -> Map<String, Value> {
    let lines = settings.map(|(path, value)| format!("{path} = {value}\n"));
    let text: String = lines.filter(|line| DeTable::parse(line).is_ok()).collect();
    let Ok(document) = DeTable::parse(&text) else { return Map::new() };
    let members = document.get_ref().iter();
    members.filter_map(|(key, value)| Some((key.get_ref().to_string(), to_json(value).ok()?))).collect()
}
