//! Which tools a run is offered.

use std::sync::Arc;

use crate::agent::context::joined::Joined;
use crate::agent::context::selection::{Patterns, Selection};
use crate::agent::context::server_tools::ServerTools;
use crate::agent::context::toolbox::Toolbox;
use crate::agent::error::{Field, StartError};
use crate::agent::generation::Generation;
use crate::agent::naming::Listed;
use crate::agent::request::NewRun;
use crate::config::{AgentConfig, Identity, nearest};
use crate::tools::{RegisteredTool, Told};
use crate::types::delegate::DELEGATE;
use crate::types::handoff::HANDOFF;
use crate::types::offer::{ToolChoice, ToolDefinition};
use crate::types::pattern::matches;
use crate::types::policy::Policy;
use crate::types::run::{RunOptions, ToolSearch};

/// The tools that a run is offered beside its client's, or can find.
#[derive(Debug)]
pub(super) struct Selected {
    of_agent: Arc<Selection>,
    /// The same with the tools of servers that the request names, if it names any.
    joined: Option<Box<Joined>>,
    /// The tools by which it comes by its skills.
    of_skills: Vec<Arc<ToolDefinition>>,
}

impl Selected {
    /// The tools that the agent has and the request wants.
    pub(super) fn new(
        generation: &Generation,
        settings: &AgentConfig,
        new: &NewRun,
        policy: Option<&Arc<Policy>>,
    ) -> Result<Self, StartError> {
        let of_agent = generation.select(&Patterns::of(settings, new.tools.as_deref(), policy));
        let selected = Self { of_agent, joined: None, of_skills: Vec::new() };
        selected.check_caller(new)?;
        selected.check_patterns(generation, settings)?;
        Ok(selected)
    }

    /// Adds the tools that servers of the request listed, but those of which no call would be made.
    pub(super) fn join(&mut self, listed: &Listed, settings: &AgentConfig, policy: Option<&Policy>) {
        let is_permitted = |tool: &Arc<RegisteredTool>| {
            let spec = tool.spec();
            policy.is_none_or(|policy| !policy.always_denies(&spec.name, spec.effect))
        };
        let tools: Vec<_> = listed.tools.iter().map(|(tool, _)| tool.clone()).filter(is_permitted).collect();
        self.joined = Some(Box::new(Joined::of(&self.of_agent, &tools, settings.max_offered_tools)));
    }

    fn all(&self) -> &Arc<ServerTools> {
        self.joined.as_ref().map_or(&self.of_agent.servers, |joined| &joined.servers)
    }

    fn own_tools(&self) -> impl Iterator<Item = &Arc<ToolDefinition>> {
        self.joined.as_ref().map_or(&self.of_agent.own, |joined| &joined.own).iter().chain(&self.of_skills)
    }

    /// Adds tools that the run answers itself.
    pub(super) fn add_own(&mut self, tools: impl Iterator<Item = Arc<ToolDefinition>>) {
        self.of_skills.extend(tools);
    }

    /// All of the server's, ready to be called.
    pub(super) fn servers(&self) -> Arc<ServerTools> {
        self.all().clone()
    }

    /// The names of those that are offered from the start: also the one that must be called, if it is to be found otherwise.
    pub(super) fn names(&self, options: &RunOptions) -> Vec<String> {
        let mut names = self.joined.as_ref().map_or(&self.of_agent.names, |joined| &joined.names).clone();
        if let ToolChoice::Function(name) = &options.tool_choice
            && self.all().has(name)
            && !names.contains(name)
        {
            names.push(name.clone());
        }
        names
    }

    /// What the caller should know of servers of tools that have not told yet what they have.
    pub(super) fn unheard(&self) -> Option<String> {
        let names = self.of_agent.unheard.join(", ");
        (!names.is_empty())
            .then(|| format!("it is not known yet which tools these servers have, so their tools are missing: {names}"))
    }

    /// How more of them are found.
    pub(super) fn search(&self) -> Option<ToolSearch> {
        self.joined.as_ref().map_or(self.of_agent.search, |joined| joined.search)
    }

    /// The tools that the run answers itself. Where one has the name of a server's tool, it is not offered.
    pub(super) fn own(&self) -> Vec<Arc<ToolDefinition>> {
        self.own_tools().cloned().collect()
    }

    /// Refuses what a tool would have to tell its service of the caller and cannot, because it is too long.
    fn check_caller(&self, new: &NewRun) -> Result<(), StartError> {
        let told = Told { user: new.options.sampling.user.as_deref(), metadata: &new.metadata };
        let refused =
            self.of_agent.telling.iter().find_map(|tool| Some((&tool.spec().name, tool.tool().too_long(told)?)));
        let (name, field) = match refused {
            None | Some((_, Identity::Tenant | Identity::Session)) => return Ok(()),
            Some((name, Identity::User)) => (name, Field::Member("user")),
            Some((name, Identity::Metadata)) => (name, Field::Member("metadata")),
        };
        let message = format!("is too long for the header in which the tool {name:?} tells it to its service");
        Err(StartError::Invalid { field, message })
    }

    /// Whether there is any tool.
    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty() && self.own_tools().next().is_none()
    }

    /// Whether it has a tool of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.all().has(name) || self.own_tools().any(|tool| tool.name == name)
    }

    /// Refuses patterns that lead to no tool, and not to those either that are offered to runs that delegate or are handed off.
    fn check_patterns(&self, generation: &Generation, settings: &AgentConfig) -> Result<(), StartError> {
        let rules = &settings.rules;
        let offered = [(DELEGATE, &rules.delegation.to), (HANDOFF, &rules.handoff.to)];
        let leads_nowhere =
            |pattern: &&String| !offered.iter().any(|(tool, to)| !to.is_empty() && matches(pattern, tool));
        if let Some(pattern) = self.of_agent.unmatched.iter().find(leads_nowhere) {
            let registry = generation.tools.current();
            let has = |name: &&str| settings.tools.iter().any(|pattern| matches(pattern, name));
            let agents = registry.iter().map(|tool| tool.spec().name.as_str()).filter(has);
            let nearest = nearest(pattern, agents).map(str::to_owned);
            return Err(StartError::ToolNotAllowed { name: pattern.clone(), nearest });
        }
        Ok(())
    }

    /// Refuses names of the client's tools that are not their own, and a choice that leads to no tool.
    pub(super) fn check_names(&self, new: &NewRun) -> Result<(), StartError> {
        for (index, tool) in new.client_tools.iter().enumerate() {
            if let Some(message) = Toolbox::refusal(tool) {
                return Err(StartError::Invalid { field: Field::ClientToolParameters(place(new, index)), message });
            }
        }
        if let Some(index) = new.client_tools.iter().position(|tool| self.has(&tool.name)) {
            return Err(StartError::Invalid {
                field: Field::ClientToolName(place(new, index)),
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
                let own = self.own_tools().map(|tool| tool.name.as_str());
                let near = nearest(name, self.all().names().chain(own).chain(clients));
                let hint = near.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
                format!("there is no tool named {name:?}{hint}")
            }
            ToolChoice::Auto | ToolChoice::None | ToolChoice::Required | ToolChoice::Function(_) => return Ok(()),
        };
        Err(StartError::Invalid { field: Field::ToolChoice, message: wrong })
    }
}

/// Where the request has this one of its client's tools, among the servers of tools that it names.
fn place(new: &NewRun, index: usize) -> usize {
    let servers = new.servers.iter().flat_map(|servers| &servers.all);
    // They are in the order of the request.
    servers.fold(index, |place, server| if server.place <= place { place + 1 } else { place })
}
