//! Every setting once: where it comes from, its default and what it means.
//!
//! Plain data, resolved and validated as a whole. A value is looked for among flags, environment
//! variables, the file and the defaults, in this order. Knows nothing of who uses the settings, and
//! opens no connections; it reads the file itself, and files and variables that hold secrets.

mod agent;
mod agent_reader;
mod answers_later;
mod approval;
mod asked_guardrails;
mod builtin_tool;
mod caller;
mod composite;
mod composites;
mod context;
mod declaration;
mod delegates;
mod delegation;
mod difference;
mod egress;
mod fallbacks;
mod files;
mod guard;
mod guardrail;
mod handoff;
mod headers;
mod hook;
mod identity;
pub mod key;
mod known_tools;
mod limits;
mod mcp;
mod memory;
mod metrics;
mod mistake;
mod model;
mod openapi;
mod options;
mod pins;
mod policy;
mod price_file;
mod profile;
mod prompt;
mod prompt_parents;
mod prompt_template;
mod proxy;
mod quantity;
mod query;
mod quota;
mod ratio;
mod reader;
mod redis_url;
pub mod reference;
mod report;
mod request_mcp;
mod request_templates;
mod rules;
mod run_code;
mod scope;
mod secret;
mod secret_source;
mod sent_value;
mod server;
mod settings;
mod skills;
mod store;
mod store_url;
mod template;
mod to_json;
mod tokens;
mod tool;
mod tool_pattern;
mod traces;
mod upstream;
mod value;
mod values;
mod without_model;
mod workspace;

#[cfg(test)]
mod tests;

pub use agent::{AgentConfig, BUILTIN_TOOLS, DEFAULT_AGENT};
pub use agent_reader::{AgentReader, ReadAgent};
pub use answers_later::AnswersLater;
pub use builtin_tool::{BuiltinTools, DECLARED_TOOLS, HttpRequestConfig, WebFetchConfig};
pub use caller::KeyConfig;
pub use difference::{Change, ChangeKind, Counts};
pub use hook::{HookAction, HookCommand, HookConfig, LONGEST_RETRIES, SigningSecret, Webhook};
pub use identity::{Identity, SentIdentity};
pub use limits::{LimitsConfig, MAX_ITERATIONS_CEILING};
pub use mcp::{
    CallerCredentials, ClientAuth, CredentialFile, Grant, Hints, MAX_NAME as MAX_MCP_NAME, McpAccess, McpCommand,
    McpEffects, McpEndpoint, McpProtocol, McpServerConfig, McpSession, McpTransport, OAuthConfig, is_free_header,
    is_name as is_mcp_name,
};
pub use memory::MemoryConfig;
pub use metrics::MetricsConfig;
pub use mistake::{ConfigErrors, Mistake, nearest};
pub use model::{ModelConfig, Models};
pub use openapi::{EffectPatterns, OpenApiConfig};
pub use options::{EmbeddedNames, LogFormat, Options};
pub use pins::{OnDefinition, PinPolicy};
pub use price_file::{Capability, ListedModel, PriceFile, PriceFileError, Tier};
pub use prompt::{MOST_PRIORITY, PromptConfig, priority_of};
pub use prompt_template::PromptTemplates;
pub use quota::{Allotment, Period, QuotaConfig, ShareConfig};
pub use redis_url::{RedisHost, RedisLayout, RedisLogin, RedisTls, RedisUrl};
pub use request_mcp::RequestMcpConfig;
pub use request_templates::{BodyType, QueryValue, RequestTemplates};
pub use run_code::{LanguageConfig, RunCodeConfig};
pub use scope::{Scope, Scopes};
pub use secret::Secret;
pub use sent_value::SentValue;
pub use server::ServerConfig;
pub use settings::Settings;
pub use skills::SkillsConfig;
pub use store::{BackupConfig, StoreConfig};
pub use store_url::StoreUrl;
pub use template::{JsonTemplate, Piece, TextTemplate};
pub use tokens::TokensConfig;
pub use tool::HttpToolConfig;
pub use traces::{OtlpProtocol, TracedContent, TracesConfig};
pub use upstream::{
    AnthropicUpstream, Balance, BaseUrl, BreakerConfig, ChatManner, ConnectionSettings, GeminiUpstream, HttpUpstream,
    OpenAiUpstream, Pools, ReasoningSummary, ResponsesUpstream, Upstream, UpstreamKind, UpstreamOrigin,
};
pub use value::{PLAIN_NAME, is_plain_name};
pub use workspace::{WORKSPACE_TOOLS, WorkspaceConfig, WorkspaceScope};
