//! Which tools a run is offered.

use std::sync::Arc;

use crate::agent::context::toolbox::Toolbox;
use crate::agent::error::{Field, StartError};
use crate::agent::generation::Generation;
use crate::agent::request::NewRun;
use crate::config::AgentConfig;
use crate::tools::registry::matches;
use crate::types::offer::{ToolChoice, ToolDefinition};

/// The tools that a run is offered beside its client's.
#[derive(Debug)]
pub(super) struct Selected {
    /// The names of the server's tools.
    pub(super) names: Vec<String>,
    /// The tools that the run answers itself. Where one has the name of a server's tool, it is not offered.
    pub(super) own: Vec<Arc<ToolDefinition>>,
}

impl Selected {
    /// The tools that the agent has and the request wants. The client's must have names of their own.
    pub(super) fn new(generation: &Generation, settings: &AgentConfig, new: &NewRun) -> Result<Self, StartError> {
        let is_wanted = |name: &str| {
            let names_it = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
            names_it(&settings.tools) && new.tools.as_deref().is_none_or(names_it)
        };
        let servers = generation.tools.iter().map(|tool| &tool.spec().name).filter(|name| is_wanted(name));
        let own = generation.own_tools.iter().map(|tool| tool.definition());
        let own = own.filter(|tool| generation.tools.get(&tool.name).is_none() && is_wanted(&tool.name));
        let selected = Self { names: servers.cloned().collect(), own: own.cloned().collect() };
        selected.check(new)?;
        Ok(selected)
    }

    fn all(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str).chain(self.own.iter().map(|tool| tool.name.as_str()))
    }

    fn has(&self, name: &str) -> bool {
        self.all().any(|known| known == name)
    }

    fn check(&self, new: &NewRun) -> Result<(), StartError> {
        let mut patterns = new.tools.iter().flatten();
        if let Some(pattern) = patterns.find(|pattern| !self.all().any(|name| matches(pattern, name))) {
            return Err(StartError::ToolNotAllowed(pattern.clone()));
        }
        for (index, tool) in new.client_tools.iter().enumerate() {
            if let Some(message) = Toolbox::refusal(tool) {
                return Err(StartError::Invalid { field: Field::ClientToolParameters(index), message });
            }
        }
        if let Some(index) = new.client_tools.iter().position(|tool| self.has(&tool.name)) {
            return Err(StartError::Invalid {
                field: Field::ClientToolName(index),
                message: format!("the server has a tool named {:?} already", new.client_tools[index].name),
            });
        }
        let is_clients = |name: &str| new.client_tools.iter().any(|tool| tool.name == name);
        let wrong = match &new.options.tool_choice {
            ToolChoice::Required if self.all().next().is_none() && new.client_tools.is_empty() => {
                "a tool is required, and there is none".to_owned()
            }
            ToolChoice::Function(name) if !self.has(name) && !is_clients(name) => {
                format!("there is no tool named {name:?}")
            }
            ToolChoice::Auto | ToolChoice::None | ToolChoice::Required | ToolChoice::Function(_) => return Ok(()),
        };
        Err(StartError::Invalid { field: Field::ToolChoice, message: wrong })
    }
}
