//! The tools of a request, and which of them must be called.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::agent::AskedServers;
use crate::api::wire::body::{clip, located, missing};
use crate::api::wire::error::WireError;
use crate::api::wire::json_object::JsonObject;
use crate::api::wire::openai_chat::mcp_tool::read_server;
use crate::api::wire::openai_chat::tool::AskedTools;
use crate::api::wire::responses::tool_names;
use crate::types::json::RawValueEq;
use crate::types::named_server::AskedServer;
use crate::types::offer::{ToolChoice, ToolDefinition};
use crate::types::pattern::matches;

/// Most tools of one request, those of namespaces included.
const MAX_TOOLS: usize = 128;
/// OpenAI's own tools, which some clients send unasked.
const LEFT_OUT: [&str; 5] =
    ["image_generation", "tool_search", "web_search", "web_search_preview", "web_search_preview_2025_03_11"];
/// What of a server a response does not repeat.
const SECRET: [&str; 2] = ["authorization", "headers"];

/// What a request says of tools.
#[derive(Debug, Default)]
pub struct ReadTools {
    /// The client's own.
    pub client_tools: Vec<Arc<ToolDefinition>>,
    /// The servers of tools that it names.
    servers: Vec<AskedServer>,
    /// Patterns of the server's tools that are offered alone; `None` for all.
    pub selected: Option<Vec<String>>,
    /// Patterns of tools whose calls need an approval.
    pub need_approval: Vec<String>,
    /// The labels under which the client can be asked for approvals.
    pub labels: Vec<String>,
    /// What the client calls the servers whose tools it selects.
    pub places: BTreeMap<String, String>,
    /// The client's tools that are called with a text.
    pub custom: Vec<String>,
    /// The client's tools that stand in a namespace.
    pub namespaced: BTreeMap<String, (String, String)>,
    /// What the response repeats of them.
    pub echo: Vec<RawValueEq>,
    /// The types of OpenAI's own tools, which are left out.
    left_out: Vec<String>,
}

/// An entry as it is written.
#[derive(Deserialize)]
struct View<'a> {
    r#type: String,
    name: Option<String>,
    description: Option<String>,
    #[serde(borrow)]
    parameters: Option<&'a RawValue>,
    strict: Option<bool>,
    #[serde(borrow)]
    format: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<Vec<&'a RawValue>>,
    server_url: Option<serde::de::IgnoredAny>,
    server_label: Option<String>,
    connector_id: Option<String>,
    #[serde(borrow)]
    allowed_tools: Option<&'a RawValue>,
    #[serde(borrow)]
    require_approval: Option<&'a RawValue>,
}

/// Reads `tools`.
pub fn read_tools(raw: &[&RawValue]) -> Result<ReadTools, WireError> {
    let mut read = ReadTools::default();
    for (index, json) in raw.iter().enumerate() {
        let path = format!("tools[{index}]");
        read.take(json, index).map_err(|error| error.within(&path))?;
        if read.client_tools.len() + read.servers.len() > MAX_TOOLS {
            return Err(WireError::invalid("tools", format!("there may be at most {MAX_TOOLS} tools")));
        }
    }
    Ok(read)
}

impl ReadTools {
    fn take(&mut self, json: &RawValue, index: usize) -> Result<(), WireError> {
        let JsonObject(view): JsonObject<View<'_>> = located(json.get())?;
        match view.r#type.as_str() {
            "function" => {
                self.echo.push(function_echo(&view)?);
                self.add(function(view, None)?)
            }
            "custom" => {
                self.echo.push(RawValueEq(json.to_owned()));
                let tool = custom(view)?;
                self.custom.push(tool.name.clone());
                self.add(tool)
            }
            "namespace" => {
                self.echo.push(RawValueEq(json.to_owned()));
                self.add_namespace(view)
            }
            "mcp" if view.server_url.is_some() => {
                self.echo.push(without_secrets(json));
                let server = read_server(json, index, &self.servers).map_err(|error| unplaced(error, index))?;
                let label = &server.server.label;
                self.labels.push(label.clone());
                self.places.insert(label.clone(), label.clone());
                self.servers.push(server);
                Ok(())
            }
            "mcp" => {
                self.echo.push(without_secrets(json));
                self.select(view)
            }
            own if LEFT_OUT.contains(&own) => {
                self.left_out.push(own.to_owned());
                Ok(())
            }
            other => {
                let message = format!("tools of the type {:?} are not supported", clip(other));
                Err(WireError::invalid("type", message))
            }
        }
    }

    fn add(&mut self, tool: ToolDefinition) -> Result<(), WireError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !(1..=64).contains(&tool.name.len()) || !tool.name.bytes().all(allowed) {
            return Err(WireError::invalid("name", "a tool's name has 1 to 64 characters of A-Z a-z 0-9 _ -"));
        }
        if self.client_tools.iter().any(|other| other.name == tool.name) {
            return Err(WireError::invalid("name", format!("there are two tools named {:?}", tool.name)));
        }
        self.client_tools.push(Arc::new(tool));
        Ok(())
    }

    fn add_namespace(&mut self, view: View<'_>) -> Result<(), WireError> {
        let namespace = view.name.ok_or_else(|| missing("name"))?;
        for (index, json) in view.tools.unwrap_or_default().into_iter().enumerate() {
            let mut read = || {
                let JsonObject(view): JsonObject<View<'_>> = located(json.get())?;
                if view.r#type != "function" {
                    return Err(WireError::invalid("type", "a namespace has functions alone"));
                }
                let own = view.name.clone().ok_or_else(|| missing("name"))?;
                let tool = function(view, Some(&namespace))?;
                self.namespaced.insert(tool.name.clone(), (namespace.clone(), own));
                self.add(tool)
            };
            read().map_err(|error: WireError| error.within(&format!("tools[{index}]")))?;
        }
        Ok(())
    }

    /// Selects tools that the server has.
    fn select(&mut self, view: View<'_>) -> Result<(), WireError> {
        let label = view.connector_id.or_else(|| view.server_label.clone()).ok_or_else(|| missing("server_label"))?;
        let names = view.allowed_tools.map(allowed).transpose()?.flatten();
        let patterns: Vec<String> = match names {
            Some(names) => names.iter().map(|name| tool_names::joined(&label, name)).collect(),
            None => vec![all_of(&label)],
        };
        match view.require_approval.map(RawValue::get) {
            None | Some("null" | "\"never\"") => {}
            Some("\"always\"") => self.need_approval.extend(patterns.iter().cloned()),
            Some(_) => {
                let message = "must be always or never for tools that the server has; agent.policy names single tools";
                return Err(WireError::invalid("require_approval", message));
            }
        }
        let own = view.server_label.unwrap_or_else(|| label.clone());
        self.labels.push(own.clone());
        self.places.insert(label, own);
        self.selected.get_or_insert_default().extend(patterns);
        Ok(())
    }

    /// What a caller should know about them.
    pub fn warning(&self) -> Option<String> {
        let names = self.left_out.join(", ");
        (!names.is_empty()).then(|| format!("these tools are not offered here and were left out: {names}"))
    }

    /// The tools with the choice among them.
    pub fn offer(&mut self, choice: Option<&RawValue>) -> Result<AskedTools, WireError> {
        let tool_choice = self.read_choice(choice).map_err(|error| error.within("tool_choice"))?;
        let client_tools = std::mem::take(&mut self.client_tools);
        let servers = std::mem::take(&mut self.servers);
        if tool_choice == ToolChoice::None {
            return Ok(AskedTools { tool_choice, client_tools: Vec::new(), servers: None });
        }
        let servers = (!servers.is_empty()).then(|| Arc::new(AskedServers::new(servers)));
        Ok(AskedTools { tool_choice, client_tools, servers })
    }

    fn read_choice(&mut self, raw: Option<&RawValue>) -> Result<ToolChoice, WireError> {
        #[derive(Deserialize)]
        struct Choice {
            r#type: String,
            name: Option<String>,
            server_label: Option<String>,
            namespace: Option<String>,
            mode: Option<String>,
            tools: Option<Vec<Choice>>,
        }
        let json = match raw.map(RawValue::get) {
            None | Some("null" | "\"auto\"") => return Ok(ToolChoice::Auto),
            Some("\"none\"") => return Ok(ToolChoice::None),
            Some("\"required\"") => return Ok(ToolChoice::Required),
            Some(json) => json,
        };
        let JsonObject(choice): JsonObject<Choice> = located(json)?;
        let full_name = |choice: &Choice| {
            let own = choice.name.as_ref()?;
            let place = choice.namespace.as_deref();
            let place = place.or_else(|| choice.server_label.as_deref().map(|label| self.place(label)));
            Some(place.map_or_else(|| own.clone(), |label| tool_names::joined(label, own)))
        };
        let pattern = |choice: &Choice| {
            let label = || choice.server_label.as_deref().filter(|_| choice.r#type == "mcp");
            full_name(choice).or_else(|| label().map(|label| all_of(self.place(label)))).ok_or_else(|| missing("tools"))
        };
        match choice.r#type.as_str() {
            "function" | "custom" => full_name(&choice).map(ToolChoice::Function).ok_or_else(|| missing("name")),
            // Any tool of the server: which one is the model's choice.
            "mcp" => Ok(full_name(&choice).map_or(ToolChoice::Required, ToolChoice::Function)),
            "allowed_tools" => {
                let names = choice.tools.iter().flatten().map(pattern).collect::<Result<Vec<_>, _>>()?;
                self.narrow(&names);
                let is_required = choice.mode.as_deref() == Some("required");
                Ok(if is_required { ToolChoice::Required } else { ToolChoice::Auto })
            }
            other => Err(WireError::invalid("type", format!("{:?} cannot be forced here", clip(other)))),
        }
    }

    /// Offers only those of these names and patterns.
    fn narrow(&mut self, names: &[String]) {
        self.client_tools.retain(|tool| names.contains(&tool.name));
        for AskedServer { server, .. } in &mut self.servers {
            let all = all_of(&server.label);
            if names.contains(&all) {
                continue;
            }
            let own = names.iter().filter_map(|name| own_name(&server.label, name));
            let taken = |own: &&str| {
                server.tools.as_ref().is_none_or(|tools| tools.iter().any(|pattern| matches(pattern, own)))
            };
            server.tools = Some(own.filter(taken).map(str::to_owned).collect());
        }
        self.servers.retain(|asked| asked.server.tools.as_ref().is_none_or(|tools| !tools.is_empty()));
        let is_of_others = |name: &&String| {
            let is_clients = self.client_tools.iter().any(|tool| tool.name == **name);
            !is_clients && !self.servers.iter().any(|asked| own_name(&asked.server.label, name).is_some())
        };
        let names = names.iter().filter(is_of_others);
        // What entries do not select is not offered, whoever names it.
        self.selected = Some(match self.selected.take() {
            None => names.cloned().collect(),
            Some(selected) => names.flat_map(|name| common(name, &selected)).collect(),
        });
    }

    /// The server that a label of the client's means.
    pub fn place<'a>(&'a self, label: &'a str) -> &'a str {
        let found = self.places.iter().find(|(_, own)| *own == label);
        found.map_or(label, |(place, _)| place)
    }
}

/// The pattern of all tools under a label.
fn all_of(label: &str) -> String {
    if label == tool_names::OWN { "*".to_owned() } else { tool_names::joined(label, "*") }
}

/// What a server calls the tool of this name.
fn own_name<'n>(label: &str, name: &'n str) -> Option<&'n str> {
    let (place, own) = tool_names::split(name);
    (place == label).then_some(own)
}

/// What a pattern has in common with the patterns of those that are selected: one of the two has the other within it.
fn common(name: &str, selected: &[String]) -> Vec<String> {
    if selected.iter().any(|pattern| matches(pattern, name)) {
        return vec![name.to_owned()];
    }
    selected.iter().filter(|pattern| matches(name, pattern)).cloned().collect()
}

/// The same error without the place of the tool, which it names already.
fn unplaced(mut error: WireError, index: usize) -> WireError {
    let place = format!("tools[{index}]");
    let rest = error.param.take().and_then(|param| param.strip_prefix(&place).map(str::to_owned));
    error.param = rest.map(|rest| rest.trim_start_matches('.').to_owned()).filter(|rest| !rest.is_empty());
    error
}

fn function(view: View<'_>, namespace: Option<&str>) -> Result<ToolDefinition, WireError> {
    let own = view.name.ok_or_else(|| missing("name"))?;
    let name = namespace.map_or_else(|| own.clone(), |namespace| tool_names::joined(namespace, &own));
    let parameters = view.parameters.filter(|schema| schema.get() != "null");
    if parameters.is_some_and(|schema| !schema.get().starts_with('{')) {
        return Err(WireError::invalid("parameters", "must be a JSON schema of an object"));
    }
    let parameters = parameters.map(|schema| RawValueEq(schema.to_owned()));
    Ok(ToolDefinition { name, description: view.description, parameters, strict: view.strict, ..Default::default() })
}

/// A function with all members that readers of responses expect.
fn function_echo(view: &View<'_>) -> Result<RawValueEq, WireError> {
    let parameters = view.parameters.map(|schema| serde_json::from_str::<Value>(schema.get())).transpose();
    let parameters = parameters.map_err(|_| WireError::invalid("parameters", "is nested too deeply"))?;
    Ok(raw(&json!({
        "type": "function", "name": view.name, "description": view.description, "parameters": parameters,
        "strict": view.strict,
    })))
}

/// A tool that is called with a text: the model sees a function with one argument.
fn custom(view: View<'_>) -> Result<ToolDefinition, WireError> {
    #[derive(Deserialize)]
    struct Format {
        r#type: String,
        syntax: Option<String>,
        definition: Option<String>,
    }
    let mut description = view.description.unwrap_or_default();
    let format = view.format.filter(|format| format.get() != "null");
    if let Some(JsonObject(Format { r#type, syntax, definition: Some(definition) })) =
        format.map(|format| located(format.get())).transpose().map_err(|error| error.within("format"))?
        && r#type == "grammar"
    {
        let syntax = syntax.as_deref().unwrap_or("lark");
        description = format!("{description}\n\nThe input follows this {syntax} grammar:\n{definition}");
    }
    let parameters = json!({
        "type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"],
        "additionalProperties": false,
    });
    let name = view.name.ok_or_else(|| missing("name"))?;
    let description = Some(description).filter(|text| !text.is_empty());
    Ok(ToolDefinition { name, description, parameters: Some(raw(&parameters)), ..ToolDefinition::default() })
}

/// The names that `allowed_tools` lists.
fn allowed(raw: &RawValue) -> Result<Option<Vec<String>>, WireError> {
    #[derive(Deserialize)]
    struct Filter {
        tool_names: Option<Vec<String>>,
    }
    if raw.get() == "null" {
        return Ok(None);
    }
    let names = if raw.get().starts_with('[') {
        located::<Vec<String>>(raw.get()).map(Some)
    } else {
        located::<JsonObject<Filter>>(raw.get()).map(|JsonObject(filter)| filter.tool_names)
    };
    names.map_err(|error| error.within("allowed_tools"))
}

/// The entry of a server without what may be secret.
fn without_secrets(json: &RawValue) -> RawValueEq {
    let mut members: Map<String, Value> = serde_json::from_str(json.get()).unwrap_or_default();
    members.retain(|name, _| !SECRET.contains(&name.as_str()));
    raw(&members)
}

fn raw(value: &impl serde::Serialize) -> RawValueEq {
    RawValueEq(to_raw_value(value).expect("values and strings are JSON"))
}
