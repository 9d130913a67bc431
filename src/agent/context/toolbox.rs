//! The tools of one run: what the model is offered is what may be executed.

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::tools::schema::{Schema, compile};
use crate::tools::{RegisteredTool, Registry};
use crate::types::offer::{ToolDefinition, ToolOffer};
use crate::types::{RunSpec, ToolCall};

/// Longest schema of a client's tool.
const MAX_SCHEMA_BYTES: usize = 64 * 1024;

/// The server's and the client's tools that one run was given.
#[derive(Debug, Clone)]
pub struct Toolbox(Arc<Tools>);

#[derive(Debug)]
struct Tools {
    ours: Vec<Arc<RegisteredTool>>,
    clients: Vec<(String, Option<Schema>)>,
    offer: ToolOffer,
}

impl Toolbox {
    /// The tools that `spec` names, as far as the registry still has them.
    pub fn new(registry: &Registry, spec: &RunSpec) -> Self {
        let ours: Vec<_> = spec.tools.iter().filter_map(|name| registry.get(name).cloned()).collect();
        let ours_first = ours.iter().map(|tool| tool.definition());
        let offer = ours_first.chain(&spec.own_tools).chain(&spec.client_tools).cloned().collect();
        let clients = spec
            .client_tools
            .iter()
            .map(|tool| (tool.name.clone(), tool.parameters.as_ref().and_then(|schema| compile(&schema.0).ok())))
            .collect();
        Self(Arc::new(Tools { ours, clients, offer }))
    }

    /// What the model is offered.
    pub fn offer(&self) -> ToolOffer {
        self.0.offer.clone()
    }

    /// Whether the model has any tools.
    pub fn offers_any(&self) -> bool {
        !self.0.offer.is_empty()
    }

    /// The tool that a call means and its arguments, or what to tell the model that made it.
    pub fn check(&self, call: &ToolCall) -> Result<(Arc<RegisteredTool>, Box<RawValue>), String> {
        let Some(tool) = self.find(&call.name) else {
            let names: Vec<&str> = self.0.ours.iter().map(|tool| tool.spec().name.as_str()).collect();
            return Err(format!("There is no tool named {:?}. The tools are: {}.", call.name, names.join(", ")));
        };
        let arguments = tool.check(&call.arguments)?;
        Ok((tool.clone(), arguments))
    }

    /// Whether this would be a valid call: of one of our tools with arguments that it takes, or of one
    /// of the client's with a JSON object.
    pub fn allows(&self, name: &str, arguments: &str) -> bool {
        if let Some(tool) = self.find(name) {
            return tool.check(arguments).is_ok();
        }
        let arguments = serde_json::from_str::<Value>(arguments).ok().filter(Value::is_object);
        let client = self.0.clients.iter().find(|(client, _)| client == name);
        client.zip(arguments).is_some_and(|((_, schema), arguments)| {
            schema.as_ref().is_none_or(|schema| schema.check(&arguments).is_ok())
        })
    }

    /// Why a client's tool cannot be offered. Its schema is its own business, and the upstream's; here
    /// it only helps to recognise calls that are written as text.
    pub fn refusal(tool: &ToolDefinition) -> Option<String> {
        match tool.parameters.as_ref()?.get() {
            schema if !schema.starts_with('{') => Some("must be a JSON schema, an object".to_owned()),
            schema if schema.len() > MAX_SCHEMA_BYTES => {
                Some(format!("must not be longer than {MAX_SCHEMA_BYTES} bytes"))
            }
            _ => None,
        }
    }

    fn find(&self, name: &str) -> Option<&Arc<RegisteredTool>> {
        self.0.ours.iter().find(|tool| tool.spec().name == name)
    }
}
