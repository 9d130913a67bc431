//! Types that only describe OpenAI's shapes for the description of the HTTP contract. The reader takes these shapes
//! apart piece by piece, without a type.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A message in OpenAI's shape. Members that are not named here are kept.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatMessage {
    /// Who speaks.
    role: ChatRole,
    /// What is said; assistant messages that call tools may have none.
    content: Option<ChatContent>,
    /// The speaker's name.
    name: Option<String>,
    /// The calls of an assistant message.
    tool_calls: Option<Vec<ChatToolCall>>,
    /// The call that a `tool` message answers.
    tool_call_id: Option<String>,
    /// The model's refusal, as it was given.
    refusal: Option<String>,
}

/// Who speaks.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChatRole {
    /// Instructions.
    System,
    /// Instructions, by their newer name.
    Developer,
    /// The caller.
    User,
    /// The model.
    Assistant,
    /// A tool's result.
    Tool,
}

/// A text, or a list of parts.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ChatContent {
    /// A text.
    Text(String),
    /// Texts, pictures, sound and files.
    Parts(ChatParts),
}

/// Parts of a message.
#[derive(Debug, Serialize, ToSchema)]
#[schema(min_items = 1)]
pub struct ChatParts(Vec<ChatPart>);

/// A part of a message: the member that `type` names is there. Members that are not named here are kept.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatPart {
    /// What it is.
    r#type: ChatPartType,
    /// A text.
    text: Option<String>,
    /// A picture.
    image_url: Option<ChatImageUrl>,
    /// Sound.
    input_audio: Option<BTreeMap<String, Value>>,
    /// A file.
    file: Option<BTreeMap<String, Value>>,
    /// A refusal of the model.
    refusal: Option<String>,
}

/// What a part is.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChatPartType {
    /// A text.
    Text,
    /// A picture, in a user's message.
    ImageUrl,
    /// Sound, in a user's message.
    InputAudio,
    /// A file, in a user's message.
    File,
    /// What the model refused, in an assistant's message.
    Refusal,
}

/// A picture. Members that are not named here are kept.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatImageUrl {
    /// `https:`, `http:` or an image in a `data:` URL.
    url: String,
}

/// A call of a function.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatToolCall {
    /// What the answer names.
    id: String,
    /// `function`.
    r#type: FunctionType,
    /// The call.
    function: ChatFunctionCall,
}

/// What is called with which arguments.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatFunctionCall {
    /// The function.
    name: String,
    /// JSON, as the model wrote it.
    arguments: String,
}

/// A function that the client executes, or a server of tools.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ChatTool {
    /// A function.
    Function(ChatFunctionTool),
    /// A server.
    Mcp(ChatMcpTool),
}

/// An MCP server whose tools this server calls, where the caller's key allows it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatMcpTool {
    /// `mcp`.
    r#type: McpType,
    /// What the names of its tools begin with: models know them as `LABEL__TOOL`.
    #[schema(pattern = "^[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*$", min_length = 1, max_length = 32, example = "crm")]
    server_label: String,
    /// Where it listens, by streamable HTTP.
    #[schema(min_length = 1, max_length = 4096, example = "https://mcp.example.com/mcp")]
    server_url: String,
    /// What it is for, in words for the model.
    #[schema(max_length = 1024)]
    server_description: Option<String>,
    /// What each request to it shows: up to 32 headers.
    headers: Option<BTreeMap<String, String>>,
    /// A token that each request to it shows as `authorization: Bearer …`.
    authorization: Option<String>,
    /// The tools that are taken; if absent, all.
    allowed_tools: Option<ChatAllowedTools>,
    /// Which calls need an approval; if absent, all.
    require_approval: Option<ChatRequireApproval>,
}

/// A kind of tools.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum McpType {
    /// A server of tools.
    Mcp,
}

/// Names of tools, or what they have in common.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ChatAllowedTools {
    /// The names that the server gives them; `*` stands for any characters.
    Names(ChatToolNames),
    /// What they have in common.
    Filter(ChatToolFilter),
}

/// Names of tools.
#[derive(Debug, Serialize, ToSchema)]
#[schema(min_items = 1, max_items = 256)]
pub struct ChatToolNames(Vec<String>);

/// What tools have in common.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatToolFilter {
    /// The names that the server gives them.
    #[schema(min_items = 1, max_items = 256)]
    tool_names: Option<Vec<String>>,
    /// Whether the server says that they only read.
    read_only: Option<bool>,
}

/// Which calls need an approval.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ChatRequireApproval {
    /// All or none.
    Mode(ChatApprovalMode),
    /// All but those of `never` that `always` does not name.
    Unless(ChatApprovalFilters),
}

/// All or none.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChatApprovalMode {
    /// All.
    Always,
    /// None.
    Never,
}

/// Calls that need an approval, and calls that need none.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatApprovalFilters {
    /// Those that need one in any case.
    always: Option<ChatToolFilter>,
    /// Those that need none.
    never: Option<ChatToolFilter>,
}

/// A function that the client executes.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatFunctionTool {
    /// `function`.
    r#type: FunctionType,
    /// The function.
    function: ChatFunction,
}

/// The one kind of tools.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FunctionType {
    /// A function.
    Function,
}

/// What is known of a function.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatFunction {
    /// Its name.
    #[schema(pattern = "^[A-Za-z0-9_-]{1,64}$", example = "get_weather")]
    name: String,
    /// What it does.
    description: Option<String>,
    /// JSON schema of its arguments.
    parameters: Option<BTreeMap<String, Value>>,
    /// Whether the model must keep to the schema.
    strict: Option<bool>,
}

/// Which tool the first model call must call.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ChatToolChoice {
    /// Any or none.
    Mode(ChatToolMode),
    /// This one.
    Function(ChatNamedTool),
}

/// How free the model is to call tools.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChatToolMode {
    /// No tool is offered.
    None,
    /// The model decides.
    Auto,
    /// Some tool must be called.
    Required,
}

/// A function, by its name.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatNamedTool {
    /// `function`.
    r#type: FunctionType,
    /// Which one.
    function: ChatFunctionName,
}

/// A function's name.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatFunctionName {
    /// The name.
    name: String,
}

/// Texts that end the answer.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ChatStop {
    /// One.
    Text(String),
    /// Up to four.
    Texts(ChatStops),
}

/// Up to four texts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(max_items = 4)]
pub struct ChatStops(Vec<String>);

/// The form of the answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatResponseFormat {
    /// Which form.
    r#type: ChatFormatType,
    /// The schema, for `json_schema`.
    json_schema: Option<ChatJsonSchema>,
}

/// A form of answers.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChatFormatType {
    /// Text.
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON of a schema.
    JsonSchema,
}

/// A schema that the answer keeps to. Members that are not named here are kept.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatJsonSchema {
    /// Its name.
    name: String,
    /// What it is for.
    description: Option<String>,
    /// The JSON schema.
    schema: Option<BTreeMap<String, Value>>,
    /// Whether the model must keep to it.
    strict: Option<bool>,
}

/// Why an answer ended.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChatFinishReason {
    /// The model came to its end, or the run was cancelled.
    Stop,
    /// The model's length, or a limit of the run.
    Length,
    /// The client's tools are called.
    ToolCalls,
    /// The upstream withheld the rest.
    ContentFilter,
}

/// A chunk of an answer's text.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatChunk {
    /// That of the response.
    id: String,
    /// `chat.completion.chunk`.
    object: ChatChunkObject,
    /// Unix seconds.
    created: u64,
    /// The model or agent as it was asked for.
    model: String,
    /// One, or none in the chunk of the usage.
    choices: Vec<ChatChunkChoice>,
    /// The event's number, in lists of events.
    seq: Option<u64>,
}

/// What a chunk is.
#[derive(Debug, Serialize, ToSchema)]
pub enum ChatChunkObject {
    /// A chunk.
    #[serde(rename = "chat.completion.chunk")]
    Chunk,
}

/// What a chunk adds.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatChunkChoice {
    /// 0.
    index: u32,
    /// What is added: `content`, `refusal`, `role` or `tool_calls`.
    delta: BTreeMap<String, Value>,
    /// In the last one: why the answer ended.
    finish_reason: Option<ChatFinishReason>,
}
