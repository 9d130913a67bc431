//! The tools of a request, and which of all tools must be called.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::api::wire::body::{clip, located, missing};
use crate::api::wire::error::WireError;
use crate::api::wire::json_object::JsonObject;
use crate::api::wire::openai_chat::tool::AskedTools;
use crate::api::wire::responses::tool_names;
use crate::types::json::RawValueEq;
use crate::types::offer::{ToolChoice, ToolDefinition};

/// Most tools of one request.
const MAX_TOOLS: usize = 128;
/// The longest name of a tool in this dialect.
const MAX_NAME: usize = 128;

/// What a request offers its model.
#[derive(Debug, Default)]
pub struct ReadTools {
    client_tools: Vec<Arc<ToolDefinition>>,
    /// Patterns of the server's tools that are offered alone; `None` for all.
    pub selected: Option<Vec<String>>,
    /// Whether several tools may be called in one turn.
    pub parallel: Option<bool>,
    /// What a caller should know.
    pub warnings: Vec<String>,
}

/// An entry of `tools` as it is written.
#[derive(Deserialize)]
struct View<'a> {
    r#type: Option<String>,
    name: Option<String>,
    description: Option<String>,
    #[serde(borrow)]
    input_schema: Option<&'a RawValue>,
    strict: Option<bool>,
    mcp_server_name: Option<String>,
    #[serde(default)]
    default_config: Option<JsonObject<Config>>,
    configs: Option<BTreeMap<String, JsonObject<Config>>>,
}

/// What is said of a tool of a server.
#[derive(Default, Deserialize)]
struct Config {
    enabled: Option<bool>,
}

/// An entry of `mcp_servers` as it is written.
#[derive(Deserialize)]
struct ServerView {
    name: Option<String>,
    url: Option<IgnoredAny>,
    tool_configuration: Option<JsonObject<Narrowed>>,
}

/// Which of a server's tools are offered.
#[derive(Deserialize)]
struct Narrowed {
    enabled: Option<bool>,
    allowed_tools: Option<Vec<String>>,
}

/// Reads `tools`, `mcp_servers` and `tool_choice`.
pub fn read_tools(
    tools: &[&RawValue],
    servers: &[&RawValue],
    choice: Option<&RawValue>,
) -> Result<(ReadTools, AskedTools), WireError> {
    let mut read = ReadTools::default();
    if tools.len() > MAX_TOOLS {
        return Err(WireError::invalid("tools", format!("there may be at most {MAX_TOOLS} tools")));
    }
    let mut toolsets = BTreeMap::new();
    for (index, json) in tools.iter().enumerate() {
        let path = format!("tools[{index}]");
        read.take(json, &mut toolsets).map_err(|error| error.within(&path))?;
    }
    for (index, json) in servers.iter().enumerate() {
        let path = format!("mcp_servers[{index}]");
        read.take_server(json, &mut toolsets).map_err(|error| error.within(&path))?;
    }
    if let Some((label, _)) = toolsets.first_key_value() {
        let message = format!("the mcp_toolset of {:?} needs an entry of this name in mcp_servers", clip(label));
        return Err(WireError::invalid("tools", message));
    }
    let tool_choice = read.read_choice(choice).map_err(|error| error.within("tool_choice"))?;
    let offers = tool_choice != ToolChoice::None;
    let client_tools = if offers { std::mem::take(&mut read.client_tools) } else { Vec::new() };
    Ok((read, AskedTools { tool_choice, client_tools, servers: None }))
}

impl ReadTools {
    /// Takes an entry of `tools`; those of servers are kept in `toolsets` by the server's name.
    fn take(&mut self, json: &RawValue, toolsets: &mut BTreeMap<String, Option<Vec<String>>>) -> Result<(), WireError> {
        let JsonObject(view): JsonObject<View<'_>> = located(json.get())?;
        match view.r#type.as_deref() {
            None | Some("custom") => self.add(view),
            Some("mcp_toolset") => {
                let name = view.mcp_server_name.clone().ok_or_else(|| missing("mcp_server_name"))?;
                toolsets.insert(name, narrowed(&view)?);
                Ok(())
            }
            Some(other) => {
                let message = format!(
                    "tools of the type {:?} run at Anthropic and are not offered here; the agent has its own",
                    clip(other)
                );
                Err(WireError::invalid("type", message))
            }
        }
    }

    fn add(&mut self, view: View<'_>) -> Result<(), WireError> {
        let name = view.name.ok_or_else(|| missing("name"))?;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !(1..=MAX_NAME).contains(&name.len()) || !name.bytes().all(allowed) {
            let message = format!("a tool's name has 1 to {MAX_NAME} characters of A-Z a-z 0-9 _ -");
            return Err(WireError::invalid("name", message));
        }
        if self.client_tools.iter().any(|tool| tool.name == name) {
            return Err(WireError::invalid("name", format!("there are two tools named {name:?}")));
        }
        let schema = view.input_schema.ok_or_else(|| missing("input_schema"))?;
        if !schema.get().starts_with('{') {
            return Err(WireError::invalid("input_schema", "must be a JSON schema of an object"));
        }
        let parameters = Some(RawValueEq(schema.to_owned()));
        let description = view.description;
        let tool = ToolDefinition { name, description, parameters, strict: view.strict, ..Default::default() };
        self.client_tools.push(Arc::new(tool));
        Ok(())
    }

    /// Selects tools that the server has. Nothing is fetched from the address that the entry names.
    fn take_server(
        &mut self,
        json: &RawValue,
        toolsets: &mut BTreeMap<String, Option<Vec<String>>>,
    ) -> Result<(), WireError> {
        let JsonObject(view): JsonObject<ServerView> = located(json.get())?;
        let label = view.name.ok_or_else(|| missing("name"))?;
        if view.url.is_some() {
            let warning = format!("tools of {:?} are those that the server has: no URL is called", clip(&label));
            self.warnings.push(warning);
        }
        let narrowed = view.tool_configuration.map(|JsonObject(narrowed)| narrowed);
        let is_off = narrowed.as_ref().is_some_and(|narrowed| narrowed.enabled == Some(false));
        let listed = narrowed.and_then(|narrowed| narrowed.allowed_tools);
        let names = toolsets.remove(&label).unwrap_or(listed);
        let all = || if label == tool_names::OWN { "*".to_owned() } else { tool_names::joined(&label, "*") };
        let joined = |names: &[String]| names.iter().map(|name| tool_names::joined(&label, name)).collect();
        let patterns = if is_off { Vec::new() } else { names.map_or_else(|| vec![all()], |names| joined(&names)) };
        self.selected.get_or_insert_default().extend(patterns);
        Ok(())
    }

    fn read_choice(&mut self, raw: Option<&RawValue>) -> Result<ToolChoice, WireError> {
        #[derive(Deserialize)]
        struct Choice {
            r#type: String,
            name: Option<String>,
            disable_parallel_tool_use: Option<bool>,
        }
        let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(ToolChoice::Auto) };
        let JsonObject(choice): JsonObject<Choice> = located(raw.get())?;
        self.parallel = choice.disable_parallel_tool_use.map(|disabled| !disabled);
        match choice.r#type.as_str() {
            "auto" => Ok(ToolChoice::Auto),
            "any" => Ok(ToolChoice::Required),
            "none" => Ok(ToolChoice::None),
            "tool" => choice.name.map(ToolChoice::Function).ok_or_else(|| missing("name")),
            other => {
                let message = format!("{:?} is not a choice: use auto, any, tool or none", clip(other));
                Err(WireError::invalid("type", message))
            }
        }
    }
}

/// The tools of a server that a toolset offers; `None` for all.
fn narrowed(view: &View<'_>) -> Result<Option<Vec<String>>, WireError> {
    let is_on = |config: &Option<JsonObject<Config>>| config.as_ref().and_then(|JsonObject(config)| config.enabled);
    let by_default = is_on(&view.default_config).unwrap_or(true);
    let configs = view.configs.iter().flatten().map(|(name, JsonObject(config))| (name, config.enabled));
    let (on, off): (Vec<_>, Vec<_>) = configs.partition(|(_, enabled)| enabled.unwrap_or(by_default));
    match (by_default, off.is_empty()) {
        (true, true) => Ok(None),
        (true, false) => {
            let message = "single tools cannot be left out; set default_config.enabled to false and enable the others";
            Err(WireError::invalid("configs", message))
        }
        (false, _) => Ok(Some(on.into_iter().map(|(name, _)| name.clone()).collect())),
    }
}
