//! Which tools a run is offered.

use std::sync::Arc;

use crate::agent::context::selection::{Patterns, Selection};
use crate::agent::context::server_tools::ServerTools;
use crate::agent::context::toolbox::Toolbox;
use crate::agent::error::{Field, StartError};
use crate::agent::generation::Generation;
use crate::agent::request::NewRun;
use crate::config::{AgentConfig, Identity, nearest};
use crate::tools::Told;
use crate::types::offer::{ToolChoice, ToolDefinition};
use crate::types::pattern::matches;
use crate::types::policy::Policy;
use crate::types::run::{RunOptions, ToolSearch};

/// The tools that a run is offered beside its client's, or can find.
#[derive(Debug)]
pub(super) struct Selected(Arc<Selection>);

impl Selected {
    /// The tools that the agent has and the request wants. The client's must have names of their own.
    pub(super) fn new(
        generation: &Generation,
        settings: &AgentConfig,
        new: &NewRun,
        policy: Option<&Arc<Policy>>,
    ) -> Result<Self, StartError> {
        let selected = Self(generation.select(&Patterns::of(settings, new.tools.as_deref(), policy)));
        selected.check_caller(new)?;
        selected.check(new, generation, settings)?;
        Ok(selected)
    }

    /// All of the server's, ready to be called.
    pub(super) fn servers(&self) -> Arc<ServerTools> {
        self.0.servers.clone()
    }

    /// The names of those that are offered from the start: also the one that must be called, if it is to be found otherwise.
    pub(super) fn names(&self, options: &RunOptions) -> Vec<String> {
        let mut names = self.0.names.clone();
        if let ToolChoice::Function(name) = &options.tool_choice
            && self.0.servers.has(name)
            && !names.contains(name)
        {
            names.push(name.clone());
        }
        names
    }

    /// What the caller should know of servers of tools that have not told yet what they have.
    pub(super) fn unheard(&self) -> Option<String> {
        let names = self.0.unheard.join(", ");
        (!names.is_empty())
            .then(|| format!("it is not known yet which tools these servers have, so their tools are missing: {names}"))
    }

    /// How more of them are found.
    pub(super) fn search(&self) -> Option<ToolSearch> {
        self.0.search
    }

    /// The tools that the run answers itself. Where one has the name of a server's tool, it is not offered.
    pub(super) fn own(&self) -> Vec<Arc<ToolDefinition>> {
        self.0.own.clone()
    }

    /// Refuses what a tool would have to tell its service of the caller and cannot, because it is too long.
    fn check_caller(&self, new: &NewRun) -> Result<(), StartError> {
        let told = Told { user: new.options.sampling.user.as_deref(), metadata: &new.metadata };
        let refused = self.0.telling.iter().find_map(|tool| Some((&tool.spec().name, tool.tool().too_long(told)?)));
        let (name, field) = match refused {
            None | Some((_, Identity::Tenant | Identity::Session)) => return Ok(()),
            Some((name, Identity::User)) => (name, Field::Member("user")),
            Some((name, Identity::Metadata)) => (name, Field::Member("metadata")),
        };
        let message = format!("is too long for the header in which the tool {name:?} tells it to its service");
        Err(StartError::Invalid { field, message })
    }

    /// Whether there is any tool.
    fn is_empty(&self) -> bool {
        self.0.servers.is_empty() && self.0.own.is_empty()
    }

    fn has(&self, name: &str) -> bool {
        self.0.servers.has(name) || self.0.own.iter().any(|tool| tool.name == name)
    }

    /// Refuses names that lead to no tool.
    fn check(&self, new: &NewRun, generation: &Generation, settings: &AgentConfig) -> Result<(), StartError> {
        if let Some(pattern) = &self.0.unmatched {
            let registry = generation.tools.current();
            let has = |name: &&str| settings.tools.iter().any(|pattern| matches(pattern, name));
            let agents = registry.iter().map(|tool| tool.spec().name.as_str()).filter(has);
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
            ToolChoice::Required if self.is_empty() && new.client_tools.is_empty() => {
                "a tool is required, and there is none".to_owned()
            }
            ToolChoice::Function(name) if !self.has(name) && !is_clients(name) => {
                let clients = new.client_tools.iter().map(|tool| tool.name.as_str());
                let own = self.0.own.iter().map(|tool| tool.name.as_str());
                let near = nearest(name, self.0.servers.names().chain(own).chain(clients));
                let hint = near.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
                format!("there is no tool named {name:?}{hint}")
            }
            ToolChoice::Auto | ToolChoice::None | ToolChoice::Required | ToolChoice::Function(_) => return Ok(()),
        };
        Err(StartError::Invalid { field: Field::ToolChoice, message: wrong })
    }
}
