//! The tools of one run: the model can call only the tools that it was offered.
//!
//! A run keeps the definitions that it was accepted with, and calls are checked by them. A call is made to the tool
//! that has the name in the present configuration, at its present address. If there is none, the call gets an error
//! result.

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::agent::context::offer::{Offer, OfferedTool};
use crate::tools::schema::{Schema, compile, refusal};
use crate::tools::{RegisteredTool, Registry, check_arguments};
use crate::types::offer::{ToolDefinition, ToolOffer};
use crate::types::tool::WrittenCalls;
use crate::types::{Effect, RunSpec, ToolCall};

/// Longest schema of a client's tool.
const MAX_SCHEMA_BYTES: usize = 64 * 1024;

/// The server's and the client's tools that one run was given.
#[derive(Debug, Clone, Default)]
pub struct Toolbox(Arc<Tools>);

#[derive(Debug, Default)]
struct Tools {
    ours: Vec<ServerTool>,
    /// The run's own, with the schemas of their arguments.
    own: Vec<(String, Option<Schema>)>,
    clients: Vec<(String, Option<Schema>)>,
    offer: ToolOffer,
}

/// A tool of the server, as the run was offered it and as it is now.
#[derive(Debug)]
struct ServerTool {
    name: String,
    /// By what was offered or by what is configured now, whichever asks for more care.
    effect: Effect,
    /// The schema of the arguments as the model was offered it. `None` if it cannot be compiled any more.
    schema: Option<Arc<Schema>>,
    /// The tool of the present configuration. `None` if the configuration has it no longer.
    current: Option<Arc<RegisteredTool>>,
}

/// A call that may be made.
#[derive(Debug)]
pub struct CheckedCall {
    /// What to call.
    pub tool: Arc<RegisteredTool>,
    /// What repeating it would do.
    pub effect: Effect,
    /// Its arguments.
    pub arguments: Box<RawValue>,
}

impl Toolbox {
    /// The tools of `offer`, to be called where the registry has them now, and those of the run and of its client.
    pub fn new(offer: &Offer, registry: &Registry, spec: &RunSpec) -> Self {
        let ours = offer.tools().iter().map(|offered| ServerTool::new(offered, registry)).collect();
        let ours_first = offer.tools().iter().map(|tool| &tool.definition);
        let offer = ours_first.chain(&spec.own_tools).chain(&spec.client_tools).cloned().collect();
        let named = |tool: &Arc<ToolDefinition>| {
            (tool.name.clone(), tool.parameters.as_ref().and_then(|schema| compile(&schema.0).ok()))
        };
        let own = spec.own_tools.iter().map(named).collect();
        let clients = spec.client_tools.iter().map(named).collect();
        Self(Arc::new(Tools { ours, own, clients, offer }))
    }

    /// What the model is offered.
    pub fn offer(&self) -> ToolOffer {
        self.0.offer.clone()
    }

    /// Whether the model has any tools.
    pub fn offers_any(&self) -> bool {
        !self.0.offer.is_empty()
    }

    /// What a call comes to, or what to tell the model that made it.
    pub fn check(&self, call: &ToolCall) -> Result<CheckedCall, String> {
        let name = &call.name;
        let Some(ours) = self.find(name) else {
            let ours = self.0.ours.iter().filter(|tool| tool.current.is_some()).map(|tool| &tool.name);
            let others = self.0.own.iter().chain(&self.0.clients).map(|(name, _)| name);
            let names: Vec<&str> = ours.chain(others).map(String::as_str).collect();
            return Err(format!("There is no tool named {name:?}. The tools are: {}.", names.join(", ")));
        };
        let (Some(tool), Some(schema)) = (&ours.current, &ours.schema) else {
            return Err(format!("The tool `{name}` is no longer available. Go on without it."));
        };
        let arguments = check_arguments(name, schema, &call.arguments)?;
        Ok(CheckedCall { tool: tool.clone(), effect: ours.effect, arguments })
    }

    /// Whether the arguments of a call of one of the run's own tools fit, or what to tell the model that made it.
    pub fn check_own(&self, call: &ToolCall) -> Result<(), String> {
        let schema = self.0.own.iter().find(|(name, _)| *name == call.name).and_then(|(_, schema)| schema.as_ref());
        schema.map_or(Ok(()), |schema| check_arguments(&call.name, schema, &call.arguments).map(drop))
    }

    /// Whether this text would be a valid call of those that are made: of one of our tools with arguments that it
    /// takes, or of one of the client's with a JSON object. What a client's tool does is not known here.
    pub fn allows(&self, name: &str, arguments: &str, written: WrittenCalls) -> bool {
        if let Some(tool) = self.find(name) {
            let fits = |schema: &Arc<Schema>| check_arguments(name, schema, arguments).is_ok();
            return written.include(tool.effect) && tool.schema.as_ref().is_some_and(fits);
        }
        let arguments = serde_json::from_str::<Value>(arguments).ok().filter(Value::is_object);
        let client = self.0.clients.iter().find(|(client, _)| client == name);
        client.filter(|_| written.include(Effect::Write)).zip(arguments).is_some_and(|((_, schema), arguments)| {
            schema.as_ref().is_none_or(|schema| schema.check(&arguments).is_ok())
        })
    }

    /// Why a client's tool cannot be offered.
    pub fn refusal(tool: &ToolDefinition) -> Option<String> {
        match tool.parameters.as_ref()?.get() {
            schema if !schema.starts_with('{') => Some("must be a JSON schema, an object".to_owned()),
            schema if schema.len() > MAX_SCHEMA_BYTES => {
                Some(format!("must not be longer than {MAX_SCHEMA_BYTES} bytes"))
            }
            _ => refusal(&tool.parameters.as_ref()?.0),
        }
    }

    fn find(&self, name: &str) -> Option<&ServerTool> {
        self.0.ours.iter().find(|tool| tool.name == name)
    }
}

impl ServerTool {
    fn new(offered: &OfferedTool, registry: &Registry) -> Self {
        let OfferedTool { definition, effect } = offered;
        let current = registry.get(&definition.name);
        let schema = match current.filter(|tool| tool.definition().parameters == definition.parameters) {
            Some(same) => Some(same.schema().clone()),
            None => definition.parameters.as_ref().and_then(|schema| compile(&schema.0).ok()).map(Arc::new),
        };
        let effect = current.map_or(*effect, |tool| tool.spec().effect.max(*effect));
        Self { name: definition.name.clone(), effect, schema, current: current.cloned() }
    }
}
