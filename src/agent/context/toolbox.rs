//! The tools of one run: the model can call only the tools that it was offered, or can find.
//!
//! A run keeps the definitions that it was accepted with, and calls are checked by them. A call is made to the tool
//! that has the name in the present configuration, at its present address. If there is none, the call gets an error
//! result. Of a source, whose tools change by themselves, it must have the same definition, too.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::agent::context::find_tools;
use crate::agent::context::server_tools::{ServerTool, ServerTools};
use crate::tools::mcp::RunServers;
use crate::tools::schema::{Schema, compile, refusal};
use crate::tools::{LiveTools, RegisteredTool, check_arguments};
use crate::types::offer::{OfferPiece, ToolDefinition, ToolOffer};
use crate::types::tool::{FoundTool, WrittenCalls};
use crate::types::{Effect, RunSpec, ToolCall};

/// Longest schema of a client's tool.
const MAX_SCHEMA_BYTES: usize = 64 * 1024;
/// Most names of tools that a model is told which called one that there is not.
const MAX_NAMED: usize = 64;

/// The server's and the client's tools that one run was given.
#[derive(Debug, Clone, Default)]
pub struct Toolbox(Arc<Tools>);

#[derive(Debug, Default)]
struct Tools {
    servers: Arc<ServerTools>,
    /// The tools of the configuration as they are now.
    live: Arc<LiveTools>,
    /// The servers that the request named.
    named: Option<RunServers>,
    /// The run's own, with the schemas of their arguments.
    own: Vec<(String, Option<Schema>)>,
    clients: Vec<(String, Option<Schema>)>,
    /// What is offered from the start.
    offer: ToolOffer,
    /// How often the run was handed off that they were made for.
    handoffs: u32,
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
    /// The server's tools, to be called where `live` has them now or by `named`, and those of the run and of its client.
    pub fn new(servers: Arc<ServerTools>, live: Arc<LiveTools>, named: Option<RunServers>, spec: &RunSpec) -> Self {
        let beyond = spec.tools.get(servers.first()..).unwrap_or_default();
        let beyond = beyond.iter().filter_map(|name| servers.get(name)).map(|tool| tool.piece().clone());
        let of_run: OfferPiece = spec.own_tools.iter().chain(&spec.client_tools).cloned().collect();
        let offer = ToolOffer::of([servers.base().clone()].into_iter().chain(beyond).chain([Arc::new(of_run)]));
        let compiled = |tool: &Arc<ToolDefinition>| {
            (tool.name.clone(), tool.parameters.as_ref().and_then(|schema| compile(&schema.0).ok()))
        };
        let own = spec.own_tools.iter().map(compiled).collect();
        let clients = spec.client_tools.iter().map(compiled).collect();
        Self(Arc::new(Tools { servers, live, named, own, clients, offer, handoffs: spec.handoff.before }))
    }

    /// Whether they are those of a run as it is now, which may go on as another agent than they were made for.
    pub fn is_of(&self, spec: &RunSpec) -> bool {
        self.0.handoffs == spec.handoff.before
    }

    /// What the model is offered once the run has found these tools. What is offered from the start comes first, and what is
    /// found stands behind it in the order in which it was found.
    pub fn offer(&self, found: &[FoundTool]) -> ToolOffer {
        if found.is_empty() {
            return self.0.offer.clone();
        }
        let pieces = found.iter().filter_map(|tool| self.0.servers.get(&tool.name)).map(|tool| tool.piece().clone());
        self.0.offer.followed_by(pieces)
    }

    /// Whether the model has any tools.
    pub fn offers_any(&self) -> bool {
        !self.0.offer.is_empty()
    }

    /// The server's tools.
    pub fn servers(&self) -> &ServerTools {
        &self.0.servers
    }

    /// What a call comes to, or what to tell the model that made it.
    pub fn check(&self, call: &ToolCall) -> Result<CheckedCall, String> {
        let name = &call.name;
        let Some(offered) = self.0.servers.get(name) else { return Err(self.unknown(name)) };
        let tool = self.current(offered).map_err(|why| format!("The tool `{name}` {why}. Go on without it."))?;
        let schema =
            offered.schema().ok_or_else(|| format!("The tool `{name}` is no longer available. Go on without it."))?;
        let arguments = check_arguments(name, schema, &call.arguments)?;
        Ok(CheckedCall { effect: tool.spec().effect.max(offered.effect), tool, arguments })
    }

    /// The tool of the present configuration that was offered so, or why there is none.
    fn current(&self, offered: &ServerTool) -> Result<Arc<RegisteredTool>, &'static str> {
        if let Some(named) = self.0.named.as_ref().filter(|named| named.have(&offered.definition().name)) {
            let schema = offered.schema().cloned();
            let tool = schema.and_then(|schema| named.tool(offered.definition(), offered.effect, schema));
            return tool.ok_or("is no longer available");
        }
        let (name, now) = (&offered.definition().name, self.0.live.current());
        let changed = "has changed since this conversation was offered it, and cannot be called as it was";
        let Some(tool) = now.get(name) else {
            if let Some(pending) = self.0.live.pending(offered.definition(), offered.effect) {
                return Ok(pending);
            }
            return Err(if now.held().contains_key(name) { changed } else { "is no longer available" });
        };
        if now.is_of_source(name) && tool.definition() != offered.definition() {
            return Err(changed);
        }
        Ok(tool.clone())
    }

    /// How long after a call of this tool its answer may come, if the tool may say that the call goes on.
    pub fn answers_within(&self, name: &str) -> Option<Duration> {
        self.current(self.0.servers.get(name)?).ok()?.tool().answers_within()
    }

    /// What to tell a model that called a tool that it does not have.
    fn unknown(&self, name: &str) -> String {
        let now = self.0.live.current();
        let mut names = self
            .0
            .offer
            .tools()
            .map(|tool| &tool.name)
            .filter(|name| self.0.servers.get(name).is_none() || now.get(name).is_some() || self.is_named(name));
        let named: Vec<&str> = names.by_ref().take(MAX_NAMED).map(String::as_str).collect();
        let more = if names.next().is_some() { ", …" } else { "" };
        format!("There is no tool named {name:?}. The tools are: {}{more}.", named.join(", "))
    }

    /// Whether a tool of this name is one of a server that the request named.
    fn is_named(&self, name: &str) -> bool {
        self.0.named.as_ref().is_some_and(|named| named.have(name))
    }

    /// Ends the connections to servers that the request named.
    pub fn let_go(&self) {
        if let Some(named) = &self.0.named {
            named.end();
        }
    }

    /// Whether the run has a tool of this name that the server or the run itself answers.
    pub fn has(&self, name: &str) -> bool {
        self.0.servers.get(name).is_some() || self.0.own.iter().any(|(own, _)| own == name)
    }

    /// Whether the arguments of a call of one of the run's own tools fit, or what to tell the model that made it.
    pub fn check_own(&self, call: &ToolCall) -> Result<(), String> {
        let schema = self.0.own.iter().find(|(name, _)| *name == call.name).and_then(|(_, schema)| schema.as_ref());
        schema.map_or(Ok(()), |schema| check_arguments(&call.name, schema, &call.arguments).map(drop))
    }

    /// Whether this text would be a valid call of those that are made: of one of our tools or of the run's own with arguments
    /// that it takes, or of one of the client's with a JSON object. What a client's tool does is not known here.
    pub fn allows(&self, name: &str, arguments: &str, written: WrittenCalls) -> bool {
        if let Some(offered) = self.0.servers.get(name) {
            let effect = self.current(offered).map_or(offered.effect, |tool| tool.spec().effect.max(offered.effect));
            let fits = |schema: &Arc<Schema>| check_arguments(name, schema, arguments).is_ok();
            return written.include(effect) && offered.schema().is_some_and(fits);
        }
        let arguments = serde_json::from_str::<Value>(arguments).ok().filter(Value::is_object);
        if let Some((_, schema)) = self.0.own.iter().find(|(own, _)| own == name) {
            // Of the others it is not known here what they do.
            let effect = if name == find_tools::NAME { Effect::Read } else { Effect::Write };
            let fits = |arguments: Value| schema.as_ref().is_none_or(|schema| schema.check(&arguments).is_ok());
            return written.include(effect) && arguments.is_some_and(fits);
        }
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
}
