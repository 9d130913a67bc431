//! Every setting once: where it comes from, its default and what it means.
//!
//! Plain data, resolved and validated as a whole. A value is looked for among flags, environment
//! variables, the file and the defaults, in this order. Knows nothing of who uses the settings, and
//! opens no connections; it reads the file itself, and files and variables that hold secrets.

mod agent;
mod caller;
pub mod key;
mod mistake;
mod options;
mod quantity;
mod quota;
mod reader;
mod redis_url;
pub mod reference;
mod secret;
mod server;
mod tool;
mod upstream;
mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use toml::de::DeTable;

pub use agent::{AgentConfig, DEFAULT_AGENT, LimitsConfig, MAX_ITERATIONS_CEILING};
pub use caller::KeyConfig;
pub use mistake::{ConfigErrors, Mistake};
pub use options::{LogFormat, Options};
pub use quota::{Allotment, Period, QuotaConfig};
pub use redis_url::{RedisHost, RedisLayout, RedisLogin, RedisTls, RedisUrl};
pub use secret::Secret;
pub use server::{ServerConfig, StoreConfig, StoreUrl};
pub use tool::HttpToolConfig;
pub use upstream::{ModelConfig, OpenAiUpstream, Upstream, UpstreamKind, UpstreamOrigin};

use reader::{Env, Report, Section};

/// The file that is read when none is named.
const DEFAULT_FILE: &str = "loopgate.toml";

/// The whole configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How the HTTP server behaves.
    pub server: ServerConfig,
    /// Where runs and sessions are kept.
    pub store: StoreConfig,
    /// Who answers, in the order of the file; never empty.
    pub upstreams: Vec<Upstream>,
    /// Where the upstreams were found.
    pub upstream_origin: UpstreamOrigin,
    /// What is known of models, by name.
    pub models: BTreeMap<String, ModelConfig>,
    /// Agents by name; [`DEFAULT_AGENT`] is always there.
    pub agents: BTreeMap<String, AgentConfig>,
    /// HTTP tools, in the order of the file.
    pub tools: Vec<HttpToolConfig>,
    /// Who may call; empty for everyone.
    pub keys: Vec<KeyConfig>,
}

impl Settings {
    /// Reads the configuration that `options` name. `env` looks environment variables up.
    ///
    /// Fails with all mistakes at once.
    pub fn load(options: &Options, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigErrors> {
        Self::load_from(Path::new(""), options, env)
    }

    /// Whether nothing named an upstream, so that only the demo model answers.
    #[must_use]
    pub fn found_no_upstream(&self) -> bool {
        self.upstream_origin == UpstreamOrigin::Nowhere
    }

    fn load_from(directory: &Path, options: &Options, env: Env<'_>) -> Result<Self, ConfigErrors> {
        let path = options.config.clone().unwrap_or_else(|| directory.join(DEFAULT_FILE));
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound && options.config.is_none() => String::new(),
            Err(error) => return Err(ConfigErrors::unplaced(name, format!("cannot be read: {error}"))),
        };
        Self::parse(&name, &text, options, env)
    }

    fn parse(file: &str, text: &str, options: &Options, env: Env<'_>) -> Result<Self, ConfigErrors> {
        let (document, syntax_errors) = DeTable::parse_recoverable(text);
        let report = Report::new(file, text, env);
        for error in &syntax_errors {
            // The error's own display would quote the line, which may hold a secret.
            report.refuse_syntax(error.span(), error.message());
        }
        if !syntax_errors.is_empty() {
            return Err(report.into_errors());
        }
        let settings = report.read_root(Some(document.get_ref()), |root| Self::read(root, options));
        let errors = report.into_errors();
        if errors.0.is_empty() { Ok(settings) } else { Err(errors) }
    }

    /// Reads all tables; each mistake is reported to `root`.
    fn read(root: &mut Section<'_>, options: &Options) -> Self {
        let has_keys = root.has_entries("keys");
        let server = root.section("server", |section| ServerConfig::read(section, options, has_keys));
        let store = root.section("store", |section| StoreConfig::read(section, options));
        let mut upstreams = root.named("upstreams", None, |name, section| Some(Upstream::read(name, section)));
        let mut upstream_origin = UpstreamOrigin::File(root.file().to_owned());
        if upstreams.is_empty() {
            let (upstream, origin) = root.unwritten(upstream::without_declaration);
            upstreams.push(upstream);
            upstream_origin = origin;
        }
        let models = root.named("models", None, |name, section| Some((name.to_owned(), ModelConfig::read(section))));
        let mut agents: BTreeMap<String, AgentConfig> = BTreeMap::new();
        root.named("agents", Some(DEFAULT_AGENT), |name, section| {
            let agent = AgentConfig::read(name, section, agents.get(DEFAULT_AGENT), &upstreams);
            agents.insert(name.to_owned(), agent);
            Some(())
        });
        let tools = root.named("tools", None, HttpToolConfig::read);
        let mut keys: Vec<KeyConfig> = Vec::new();
        root.named("keys", None, |name, section| {
            let key = KeyConfig::read(name, section, &agents, &keys)?;
            keys.push(key);
            Some(())
        });
        Self { server, store, upstreams, upstream_origin, models: models.into_iter().collect(), agents, tools, keys }
    }
}
