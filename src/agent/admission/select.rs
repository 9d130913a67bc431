//! Which tools a run is offered.

use std::sync::Arc;

use crate::agent::context::toolbox::Toolbox;
use crate::agent::error::{Field, StartError};
use crate::agent::generation::Generation;
use crate::agent::request::NewRun;
use crate::config::{AgentConfig, Identity, nearest};
use crate::tools::Told;
use crate::types::offer::{ToolChoice, ToolDefinition};
use crate::types::pattern::matches;

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
        let all = || generation.tools.iter().map(|tool| &tool.spec().name);
        let servers = all().filter(|name| is_wanted(name));
        let own = generation.own_tools.iter().map(|tool| tool.definition());
        let own = own.filter(|tool| generation.tools.get(&tool.name).is_none() && is_wanted(&tool.name));
        let selected = Self { names: servers.cloned().collect(), own: own.cloned().collect() };
        selected.check_caller(generation, new)?;
        let has = |name: &&str| settings.tools.iter().any(|pattern| matches(pattern, name));
        selected.check(new, all().map(String::as_str).filter(has))?;
        Ok(selected)
    }

    /// Refuses what a tool would have to tell its service of the caller and cannot, because it is too long.
    fn check_caller(&self, generation: &Generation, new: &NewRun) -> Result<(), StartError> {
        let told = Told { user: new.options.sampling.user.as_deref(), metadata: &new.metadata };
        let refused =
            self.names.iter().find_map(|name| Some((name, generation.tools.get(name)?.tool().too_long(told)?)));
        let (name, field) = match refused {
            None | Some((_, Identity::Tenant | Identity::Session)) => return Ok(()),
            Some((name, Identity::User)) => (name, Field::Member("user")),
            Some((name, Identity::Metadata)) => (name, Field::Member("metadata")),
        };
        let message = format!("is too long for the header in which the tool {name:?} tells it to its service");
        Err(StartError::Invalid { field, message })
    }

    fn all(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str).chain(self.own.iter().map(|tool| tool.name.as_str()))
    }

    fn has(&self, name: &str) -> bool {
        self.all().any(|known| known == name)
    }

    /// Refuses names that lead to no tool. `agents` are the names of all tools of the agent.
    fn check<'a>(&'a self, new: &'a NewRun, agents: impl Iterator<Item = &'a str>) -> Result<(), StartError> {
        let mut patterns = new.tools.iter().flatten();
        if let Some(pattern) = patterns.find(|pattern| !self.all().any(|name| matches(pattern, name))) {
            let nearest = nearest(pattern, agents).map(str::to_owned);
            return Err(StartError::ToolNotAllowed { name: pattern.clone(), nearest });
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
                let clients = new.client_tools.iter().map(|tool| tool.name.as_str());
                let near = nearest(name, self.all().chain(clients));
                let hint = near.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
                format!("there is no tool named {name:?}{hint}")
            }
            ToolChoice::Auto | ToolChoice::None | ToolChoice::Required | ToolChoice::Function(_) => return Ok(()),
        };
        Err(StartError::Invalid { field: Field::ToolChoice, message: wrong })
    }
}
