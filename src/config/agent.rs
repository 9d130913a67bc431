//! `[agents.NAME]`: agents, which a request's `model` may name.

use std::sync::Arc;
use std::time::Duration;

use toml::de::DeTable;

use super::composite;
use super::context;
use super::fallbacks::{self, find_upstream};
use super::guard::{self, TextBounds};
use super::known_tools::{KnownTools, refuse_flush_without_tool, refuse_unknown_tools};
use super::limits::LimitsConfig;
use super::profile::Profile;
use super::prompt::PromptConfig;
use super::reader::Section;
use super::report::Report;
use super::rules;
use super::tool_pattern::ToolPattern;
use super::upstream::Upstream;
use super::value::{PLAIN_NAME, Word, is_plain_name};
use crate::types::approval::ApprovalTerms;
use crate::types::guard::{Guards, InputMode};
use crate::types::policy::{Layer, LayerOwner};
use crate::types::rules::LoopRules;
use crate::types::run::OnLimit;

/// The agent that a request runs as if it names a model, and that other agents inherit from.
pub const DEFAULT_AGENT: &str = "default";

/// The tools that come with the server, and need no settings.
pub const BUILTIN_TOOLS: [&str; 3] = ["calculator", "current_time", "json_query"];

/// Those that a model is offered if nothing else is said.
const OFFERED_TOOLS: [&str; 2] = ["calculator", "current_time"];

/// A model with instructions, tools and bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentConfig {
    /// Its name.
    pub name: String,
    /// What it is for, as agents are told that may delegate to it or hand runs off to it.
    pub description: Option<String>,
    /// `UPSTREAM/MODEL`, or a bare model name; `None` leaves it to the request.
    pub model: Option<String>,
    /// The models that are asked in place of that one, in order; `None` leaves them to the model.
    pub fallbacks: Option<Vec<String>>,
    /// Its instructions.
    pub system: Option<String>,
    /// Names of the server-side tools that its model is offered; `*` matches any characters.
    pub tools: Vec<String>,
    /// How long its model may say nothing before another one is asked beside it; `None` for as long as it likes.
    pub hedge_after: Option<Duration>,
    /// How many of them are offered from the start at most; where there are more, the model finds them.
    pub max_offered_tools: usize,
    /// Of more, those that are offered from the start in any case; `*` matches any characters.
    pub always_offered: Vec<String>,
    /// What happens when a limit ends a run.
    pub on_limit: OnLimit,
    /// Whether a request that does not say how it is to be answered is answered with a stream, where it may be either.
    pub streams: bool,
    /// How the loop of its runs treats what goes wrong in it.
    pub rules: Arc<LoopRules>,
    /// Whether traces may tell what is said in its runs.
    pub trace_content: bool,
    /// The bounds of its runs; a request may ask for less.
    pub limits: LimitsConfig,
    /// Which calls its runs make, ask for and deny.
    pub policy: Arc<Layer>,
    /// How the calls are approved that a policy asks for.
    pub approval: ApprovalTerms,
    /// What the messages, answers and results of its runs are held to.
    pub guards: Arc<Guards>,
    /// What its prompts have beside `system`.
    pub prompt: Arc<PromptConfig>,
}

impl AgentConfig {
    /// Reads an agent that inherits from its profile and from `parent`, or the default agent if there is none.
    pub(super) fn read(
        name: &str,
        section: &mut Section<'_>,
        parent: Option<&Self>,
        upstreams: &[Upstream],
        known_tools: &KnownTools,
        input_guard: InputMode,
    ) -> Self {
        let profile = Profile::read(section);
        let start = profile.map(|profile| {
            let (document, _) = DeTable::parse_recoverable(profile.text());
            // What is wrong with the agent is said of its own section.
            let report = Report::new("", profile.text(), &|_| None);
            Section::read_root(&report, Some(document.get_ref()), |section| {
                Self::read_settings(name, section, parent, upstreams, known_tools, input_guard)
            })
        });
        Self::read_settings(name, section, start.as_ref().or(parent), upstreams, known_tools, input_guard)
    }

    fn read_settings(
        name: &str,
        section: &mut Section<'_>,
        parent: Option<&Self>,
        upstreams: &[Upstream],
        known_tools: &KnownTools,
        input_guard: InputMode,
    ) -> Self {
        if !is_plain_name(name) {
            section.refuse_here(PLAIN_NAME);
        }
        let description = read_description(section);
        let model = read_model(section, upstreams);
        let composite = composite::read(name, section);
        let stripped = parent.filter(|_| composite.is_some()).map(Self::without_model);
        let parent = stripped.as_ref().or(parent);
        let may_lack_model = name == DEFAULT_AGENT || composite.is_some();
        let inherited = parent.and_then(|parent| parent.model.as_ref());
        if !may_lack_model && model.is_none() && inherited.is_none() && models_at_least(upstreams) > 1 {
            section.refuse_here("it has no model, and the upstreams have several: name one of them in its `model`");
        }
        let fallbacks = read_fallbacks(section, model.as_deref(), upstreams);
        let hedge_after = read_hedge_after(section, parent);
        let system = section.optional("system", "System prompt, put before the messages of every run.");
        let tools = read_tools(section, parent, known_tools);
        let (on_limit, streams) = (read_on_limit(section, parent), read_stream(section, parent));
        composite::refuse_synthesis(section, composite.as_deref(), on_limit);
        let (context, texts) = section.section("context", |context| {
            let texts = TextBounds::read(context, parent.map(|parent| &*parent.guards));
            (context::read(context, parent.map(|parent| &parent.rules.context), upstreams), texts)
        });
        refuse_flush_without_tool(section, &context, &tools);
        let agent = Self {
            name: name.to_owned(),
            description,
            model: section.or_inherited("model", model, parent.and_then(|parent| parent.model.clone())),
            fallbacks: section.or_inherited("fallbacks", fallbacks, parent.and_then(|parent| parent.fallbacks.clone())),
            hedge_after,
            system: section.or_inherited("system", system, parent.and_then(|parent| parent.system.clone())),
            tools: tools.into_iter().map(|ToolPattern(pattern)| pattern).collect(),
            max_offered_tools: read_max_offered_tools(section, parent),
            always_offered: read_always_offered(section, parent),
            on_limit,
            streams,
            rules: rules::read(section, parent.map(|parent| &*parent.rules), (context, composite)),
            trace_content: read_trace_content(section, parent),
            limits: section.section("limits", |limits| LimitsConfig::read(limits, parent.map(|parent| &parent.limits))),
            policy: read_policy(section, parent),
            approval: read_approval(section, parent),
            guards: guard::read(section, parent.map(|parent| &*parent.guards), input_guard, texts),
            prompt: PromptConfig::read(section, parent.map(|parent| &*parent.prompt)),
        };
        if agent.rules.handoff.to.iter().any(|to| to == name) {
            section.refuse("handoffs", "an agent cannot hand a run off to itself");
        }
        agent
    }

    fn tool_patterns(&self) -> Vec<ToolPattern> {
        patterns(&self.tools)
    }
}

fn read_description(section: &mut Section<'_>) -> Option<String> {
    section.optional(
            "description",
            "What it is for, in a sentence: the models of agents are told that may [delegate to it](delegation.md) or [hand runs off to \
             it](handoff.md). No other agent inherits it.",
        )
}

fn read_model(section: &mut Section<'_>, upstreams: &[Upstream]) -> Option<String> {
    let model: Option<String> = section.optional(
        "model",
        "`UPSTREAM/MODEL`, or a bare model name. Without one, `default` runs the model that the request names, and \
             any other agent the only model that the upstreams have; if they have several, an agent must name one.",
    );
    if let Some(model) = &model
        && let Err(what) = find_upstream(model, upstreams)
    {
        section.refuse("model", what);
    }
    model
}

fn read_fallbacks(section: &mut Section<'_>, model: Option<&str>, upstreams: &[Upstream]) -> Option<Vec<String>> {
    fallbacks::read(
        section,
        "Models that are asked in order if the one before fails in a way that another may not: each `UPSTREAM/MODEL`, or a \
             bare model name. If absent, those of the model are asked.",
        model,
        upstreams,
    )
}

fn read_tools(section: &mut Section<'_>, parent: Option<&AgentConfig>, known_tools: &KnownTools) -> Vec<ToolPattern> {
    let tools = section.key(
        "tools",
        "Server-side tools that the model is offered; `*` matches any characters, and never `ask_user`.",
        parent.map_or_else(|| offered(&known_tools.embedded), AgentConfig::tool_patterns),
    );
    if section.is_written("tools") {
        refuse_unknown_tools(section, &tools, known_tools);
    }
    tools
}

fn read_policy(section: &mut Section<'_>, parent: Option<&AgentConfig>) -> Arc<Layer> {
    let inherited = parent.map(|parent| &*parent.policy);
    Arc::new(section.section("policy", |policy| Layer::read(policy, LayerOwner::Agent, inherited)))
}

fn read_approval(section: &mut Section<'_>, parent: Option<&AgentConfig>) -> ApprovalTerms {
    let inherited = parent.map(|parent| &parent.approval);
    section.section("approval", |approval| ApprovalTerms::read(approval, inherited))
}

fn read_on_limit(section: &mut Section<'_>, parent: Option<&AgentConfig>) -> OnLimit {
    section.key(
        "on_limit",
        "What a limit does to a run: `stop` ends it with the answer so far, `synthesize` asks the model for a \
         closing answer, `error` fails it.",
        parent.map_or(OnLimit::Stop, |parent| parent.on_limit),
    )
}

fn read_stream(section: &mut Section<'_>, parent: Option<&AgentConfig>) -> bool {
    section.key(
        "stream",
        "Whether `POST /v1/agent/completions` answers a request with a stream that says neither `stream` nor `agent.events` of `none` or `extension`. All other endpoints do what \
         their dialect does.",
        parent.is_some_and(|parent| parent.streams),
    )
}

fn read_hedge_after(section: &mut Section<'_>, parent: Option<&AgentConfig>) -> Option<Duration> {
    let own = section.optional(
        "hedge_after",
        "How long its model may say nothing before a second call is made beside the first, and the one that speaks first is \
         kept ([hedging](api.md#hedging)). If absent, no second call is made.",
    );
    section.or_inherited("hedge_after", own, parent.and_then(|parent| parent.hedge_after))
}

/// What a model is offered if nothing else is said: also the tools of the program that the server is part of.
fn offered(embedded: &[String]) -> Vec<ToolPattern> {
    let embedded = embedded.iter().map(String::as_str);
    OFFERED_TOOLS.into_iter().chain(embedded).map(ToolPattern::new).collect()
}

fn patterns(patterns: &[String]) -> Vec<ToolPattern> {
    patterns.iter().map(|pattern| ToolPattern::new(pattern)).collect()
}

fn read_max_offered_tools(section: &mut Section<'_>, parent: Option<&AgentConfig>) -> usize {
    let most: u32 = section.key(
        "max_offered_tools",
        "Most tools whose definitions are sent to the model. If the agent has more, the model is offered `find_tools`, and from \
         the next step on what that finds: models choose better among few tools, and each definition is paid for with every \
         call.",
        parent.map_or(64, |parent| u32::try_from(parent.max_offered_tools).unwrap_or(u32::MAX)),
    );
    usize::try_from(most).unwrap_or(usize::MAX)
}

fn read_always_offered(section: &mut Section<'_>, parent: Option<&AgentConfig>) -> Vec<String> {
    let always = section.key(
        "always_offered",
        "Where the agent has more tools than `max_offered_tools`: those of them that are offered from the start, beside \
         `find_tools`; `*` matches any characters.",
        patterns(parent.map_or(&[], |parent| &parent.always_offered)),
    );
    always.into_iter().map(|ToolPattern(pattern)| pattern).collect()
}

fn read_trace_content(section: &mut Section<'_>, parent: Option<&AgentConfig>) -> bool {
    section.key(
        "trace_content",
        "Whether traces may tell what is said in runs of the agent, if [`traces.content`](#traces) has them tell anything.",
        parent.is_none_or(|parent| parent.trace_content),
    )
}

/// How many models the upstreams have by what is declared; those that are not declared are unknown yet.
fn models_at_least(upstreams: &[Upstream]) -> usize {
    upstreams.iter().filter_map(Upstream::declared_models).sum()
}

impl Word for OnLimit {
    const WORDS: &'static [(&'static str, Self)] =
        &[("stop", Self::Stop), ("synthesize", Self::Synthesize), ("error", Self::Error)];
}
