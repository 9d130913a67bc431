//! The configuration as a whole: read, read again, and compared with another.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use toml::de::DeTable;

use super::agent::{AgentConfig, BUILTIN_TOOLS, DEFAULT_AGENT};
use super::agent_reader::AgentReader;
use super::approval;
use super::asked_guardrails;
use super::builtin_tool::BuiltinTools;
use super::caller::KeyConfig;
use super::composites;
use super::delegates;
use super::difference::{Change, difference};
use super::egress;
use super::guard;
use super::hook::HookConfig;
use super::known_tools::KnownTools;
use super::mcp::{self, McpServerConfig};
use super::memory::{self, MemoryConfig};
use super::metrics::MetricsConfig;
use super::mistake::ConfigErrors;
use super::model::Models;
use super::openapi::OpenApiConfig;
use super::options::Options;
use super::prompt::read_layer;
use super::prompt_parents::inherit_layers;
use super::reader::Section;
use super::report::{Env, Report};
use super::request_mcp::RequestMcpConfig;
use super::server::{ServerConfig, exposure};
use super::skills::SkillsConfig;
use super::store::StoreConfig;
use super::store_url::StoreUrl;
use super::tokens::TokensConfig;
use super::tool::HttpToolConfig;
use super::traces::TracesConfig;
use super::upstream::{self, Preset, Upstream, UpstreamOrigin};
use super::values::Values;
use super::workspace::{WORKSPACE_TOOLS, WorkspaceConfig};
use crate::net::guard::Policy;
use crate::types::guard::InputMode;
use crate::types::memory::MEMORY_TOOLS;
use crate::types::policy::{Layer, LayerOwner};
use crate::types::prompt::PromptLayer;
use crate::types::question::ASK_USER;

/// The file that is read when none is named.
const DEFAULT_FILE: &str = "loopgate.toml";

/// How long load balancers get to send new runs to other replicas.
const SHARED_DRAIN_DELAY: Duration = Duration::from_secs(5);

/// The whole configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How the HTTP server behaves.
    pub server: ServerConfig,
    /// Where runs and sessions are kept.
    pub store: StoreConfig,
    /// What is counted, and who may read it.
    pub metrics: MetricsConfig,
    /// Where the traces of runs are sent, and which.
    pub traces: TracesConfig,
    /// Which URLs may be asked that models, tools and callers name.
    pub egress: Policy,
    /// Who answers, in the order of the file; never empty.
    pub upstreams: Vec<Upstream>,
    /// Where the upstreams were found.
    pub upstream_origin: UpstreamOrigin,
    /// What is known of models.
    pub models: Models,
    /// Agents by name; [`DEFAULT_AGENT`] is always there.
    pub agents: BTreeMap<String, AgentConfig>,
    /// HTTP tools, in the order of the file.
    pub tools: Vec<HttpToolConfig>,
    /// Servers of the Model Context Protocol, in the order of the file.
    pub mcp: Vec<McpServerConfig>,
    /// Within which bounds servers are reached that requests name.
    pub request_mcp: RequestMcpConfig,
    /// Documents whose operations are tools, in the order of the file.
    pub openapi: Vec<OpenApiConfig>,
    /// Built-in tools that are declared.
    pub builtin_tools: BuiltinTools,
    /// Where tools keep files, if they may.
    pub workspace: Option<WorkspaceConfig>,
    /// How much each memory of an agent may have, if agents may remember anything.
    pub memory: Option<MemoryConfig>,
    /// What agents know how to do.
    pub skills: SkillsConfig,
    /// Hooks, in the order of the file: that in which they are asked.
    pub hooks: Vec<HookConfig>,
    /// Who may call; empty for everyone.
    pub keys: Vec<KeyConfig>,
    /// What tokens for pages are signed with; `None` where keys give none.
    pub tokens: Option<TokensConfig>,
    /// Which tool calls are made, asked for and denied, of all callers.
    pub policy: Arc<Layer>,
    /// What agents may name as tools.
    known_tools: KnownTools,
    /// The mode of the input guard of agents that say none.
    input_guard: InputMode,
    /// Layers of the prompts of all runs.
    pub layers: Arc<[PromptLayer]>,
    /// The file that was read, if there was one.
    file: Option<PathBuf>,
    /// The same settings by path.
    values: Values,
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

    /// How long new runs are still accepted after the signal to stop: for load balancers, which may have other replicas to choose.
    #[must_use]
    pub fn drain_delay(&self) -> Duration {
        let usual = if matches!(self.store.url, StoreUrl::Redis(_)) { SHARED_DRAIN_DELAY } else { Duration::ZERO };
        self.server.drain_delay.unwrap_or(usual)
    }

    /// Reads the configuration again for a server that runs by this one.
    ///
    /// Fails with all mistakes at once. It is a mistake as well if the file is gone that was read before, or if
    /// everyone could then call a server that other machines reach.
    pub fn load_again(&self, options: &Options, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigErrors> {
        let config = options.config.clone().or_else(|| self.file.clone());
        let options = Options { config, ..options.clone() };
        let next = Self::load(&options, env)?;
        let metrics = self.metrics.listen.filter(|_| !self.metrics.open);
        let mut listens = [Some(self.server.listen), metrics].into_iter().flatten();
        match listens.find_map(|listen| exposure(listen, &options, !next.keys.is_empty())) {
            Some(what) => Err(ConfigErrors::unplaced("keys", what)),
            None => Ok(next),
        }
    }

    /// Reads agents that are kept elsewhere than in the file, as if they stood there.
    #[must_use]
    pub fn agent_reader(&self) -> AgentReader {
        AgentReader {
            agents: self.agents.clone(),
            written: self.values.within("agents"),
            upstreams: self.upstreams.clone(),
            known_tools: self.known_tools.clone(),
            input_guard: self.input_guard,
            hooks: self.hooks.clone(),
            keys: self.keys.clone(),
            remembers: self.memory.is_some(),
        }
    }

    /// What changes if `next` replaces these settings.
    #[must_use]
    pub fn changes_to(&self, next: &Self) -> Vec<Change> {
        difference(&self.values, &next.values)
    }

    /// These settings as far as a server can take them over that runs by `running`: the rest is `running`'s.
    #[must_use]
    pub fn while_running(self, running: &Self) -> Self {
        let requests_per_minute = self.server.requests_per_minute;
        Self {
            server: ServerConfig { requests_per_minute, ..running.server.clone() },
            store: running.store.clone(),
            metrics: running.metrics,
            traces: running.traces.clone(),
            values: self.values.while_running(&running.values),
            ..self
        }
    }

    /// Renames the upstream that was found outside the file, and says where that was.
    pub fn name_found_upstream(&mut self, name: &str, origin: String) {
        for upstream in &mut self.upstreams {
            let was = std::mem::replace(&mut upstream.name, name.to_owned());
            self.values.rename_table(&format!("upstreams.{was}"), &format!("upstreams.{name}"));
        }
        self.upstream_origin = UpstreamOrigin::Found(origin);
    }

    pub(super) fn load_from(directory: &Path, options: &Options, env: Env<'_>) -> Result<Self, ConfigErrors> {
        if let Some(text) = &options.embedded.config {
            return Self::parse("configuration", text, options, env);
        }
        let path = options.config.clone().unwrap_or_else(|| directory.join(DEFAULT_FILE));
        let name = path.display().to_string();
        let (text, file) = match std::fs::read_to_string(&path) {
            Ok(text) => (text, Some(path)),
            Err(error) if error.kind() == ErrorKind::NotFound && options.config.is_none() => (String::new(), None),
            Err(error) => return Err(ConfigErrors::unplaced(name, format!("cannot be read: {error}"))),
        };
        Ok(Self { file, ..Self::parse(&name, &text, options, env)? })
    }

    pub(super) fn parse(file: &str, text: &str, options: &Options, env: Env<'_>) -> Result<Self, ConfigErrors> {
        let (document, syntax_errors) = DeTable::parse_recoverable(text);
        let report = Report::new(file, text, env);
        for error in &syntax_errors {
            // The error's own display would quote the line, which may hold a secret.
            report.refuse_syntax(error.span(), error.message());
        }
        if !syntax_errors.is_empty() {
            return Err(report.into_errors());
        }
        let settings = Section::read_root(&report, Some(document.get_ref()), |root| Self::read(root, options));
        Ok(Self { values: report.into_values()?, ..settings })
    }

    /// Reads all tables; each mistake is reported to `root`.
    pub(super) fn read(root: &mut Section<'_>, options: &Options) -> Self {
        let has_keys = root.has_entries("keys");
        let preset: Option<&'static Preset> = root.optional(
            "upstream",
            "The only upstream, by the name of its [preset](#presets). Its key is read from the variable of the preset.",
        );
        let server = root.section("server", |section| ServerConfig::read(section, options, has_keys));
        let store = root.section("store", |section| StoreConfig::read(section, options));
        let metrics = root.section("metrics", |section| MetricsConfig::read(section, options, has_keys));
        let traces = root.section("traces", TracesConfig::read);
        let egress = root.section("egress", egress::read);
        let (upstreams, upstream_origin) = read_upstreams(root, preset, options);
        let models = Models::read(root, &upstreams);
        let mcp = mcp::read_all(root);
        let request_mcp = root.section("request_mcp", RequestMcpConfig::read);
        let known_tools = known_tools(root, &mcp, options);
        let (mut agents, input_guard) = read_agents(root, &upstreams, &known_tools);
        let (builtin_tools, tools) = BuiltinTools::read_beside(root, |name, section| {
            HttpToolConfig::read(name, section, server.public_url.as_ref())
        });
        let workspace = root.optional_section("workspace", WorkspaceConfig::read);
        let memory = root.optional_section("memory", |section| Some(MemoryConfig::read(section)));
        memory::check(root, agents.iter().map(|(name, agent)| (name, agent.rules.memory)));
        let skills = root.section("skills", SkillsConfig::read);
        let openapi =
            root.named("openapi", None, |name, section| OpenApiConfig::read(name, section, server.public_url.as_ref()));
        let layers = read_layers(root, &mut agents);
        let policy = Arc::new(root.section("policy", |section| Layer::read(section, LayerOwner::Server, None)));
        let hooks = root.named("hooks", None, HookConfig::read);
        let (keys, tokens) = read_callers(root, &agents);
        check_agents(root, &agents, (&keys, &upstreams, &hooks));
        Self {
            server,
            store,
            metrics,
            traces,
            egress,
            upstreams,
            upstream_origin,
            models,
            agents,
            tools,
            mcp,
            request_mcp,
            openapi,
            builtin_tools,
            workspace,
            memory,
            skills,
            hooks,
            keys,
            tokens,
            policy,
            known_tools,
            input_guard,
            layers,
            file: None,
            values: Values::default(),
        }
    }
}

/// The agents by name.
fn read_agents(
    root: &mut Section<'_>,
    upstreams: &[Upstream],
    known_tools: &KnownTools,
) -> (BTreeMap<String, AgentConfig>, InputMode) {
    let mut agents: BTreeMap<String, AgentConfig> = BTreeMap::new();
    let input_guard = root.section("guard", guard::read_input);
    root.named("agents", Some(DEFAULT_AGENT), |name, section| {
        let parent = agents.get(DEFAULT_AGENT);
        let agent = AgentConfig::read(name, section, parent, upstreams, known_tools, input_guard);
        agents.insert(name.to_owned(), agent);
        Some(())
    });
    delegates::check(root, &agents);
    composites::check(root, &agents);
    (agents, input_guard)
}

/// The layers of the server, once agents have those of their parents.
fn read_layers(root: &mut Section<'_>, agents: &mut BTreeMap<String, AgentConfig>) -> Arc<[PromptLayer]> {
    inherit_layers(root, agents);
    root.named("layers", None, read_layer).into()
}

/// Reports what agents name that is not there.
fn check_agents(
    root: &Section<'_>,
    agents: &BTreeMap<String, AgentConfig>,
    (keys, upstreams, hooks): (&[KeyConfig], &[Upstream], &[HookConfig]),
) {
    approval::check(root, agents, keys);
    asked_guardrails::check(root, agents, upstreams, hooks);
}

/// The keys, each of which knows those before it, and what their tokens are signed with.
fn read_callers(
    root: &mut Section<'_>,
    agents: &BTreeMap<String, AgentConfig>,
) -> (Vec<KeyConfig>, Option<TokensConfig>) {
    let mut keys: Vec<KeyConfig> = Vec::new();
    root.named("keys", None, |name, section| {
        let key = KeyConfig::read(name, section, agents, &keys)?;
        keys.push(key);
        Some(())
    });
    (keys, root.optional_section("tokens", TokensConfig::read))
}

/// The upstreams, and where they were found.
fn read_upstreams(
    root: &mut Section<'_>,
    preset: Option<&'static Preset>,
    options: &Options,
) -> (Vec<Upstream>, UpstreamOrigin) {
    let mut upstreams = root.named("upstreams", None, |name, section| Some(Upstream::read(name, section)));
    let mut upstream_origin = UpstreamOrigin::File(root.file().to_owned());
    if let Some(preset) = preset {
        if upstreams.is_empty() && preset.has_address() {
            upstreams.push(Upstream::of_preset(preset, root));
        } else {
            let name = preset.name;
            root.refuse("upstream", format!("declare [upstreams.{name}] with preset = {name:?} in place of this"));
        }
    }
    upstreams.extend(options.embedded.upstreams.iter().map(Upstream::embedded));
    if upstreams.is_empty() {
        (upstreams, upstream_origin) = upstream::without_declaration(root);
    }
    (upstreams, upstream_origin)
}

/// What agents may name as tools. What a server of tools has is not known yet: its entry ends with a star.
fn known_tools(root: &Section<'_>, mcp: &[McpServerConfig], options: &Options) -> KnownTools {
    let embedded = options.embedded.tools.clone();
    let servers =
        [root.names_in("mcp"), root.names_in("mcpServers"), mcp::names(mcp), root.names_in("openapi")].concat();
    let of_servers = servers.into_iter().map(|server| format!("{server}__*"));
    let of_runs = [ASK_USER.to_owned()];
    let of_workspace = WORKSPACE_TOOLS.map(str::to_owned).into_iter().filter(|_| root.is_written("workspace"));
    let of_memory = MEMORY_TOOLS.map(str::to_owned).into_iter().filter(|_| root.is_written("memory"));
    let built_in = BUILTIN_TOOLS.map(str::to_owned).into_iter().chain(of_runs).chain(of_workspace).chain(of_memory);
    let names = built_in.chain(root.names_in("tools")).chain(of_servers);
    KnownTools { names: names.chain(embedded.iter().cloned()).collect(), embedded }
}
