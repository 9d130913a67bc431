//! Which of the server's tools a run is offered, by the patterns of its agent and of its request.
//!
//! The same patterns come again and again. So what they select is worked out once, and costs a run nothing however many
//! tools there are.

use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use moka::sync::Cache;
use xxhash_rust::xxh3::Xxh3;

use crate::agent::context::offer::Offer;
use crate::agent::context::server_tools::ServerTools;
use crate::agent::context::{ask_user, find_tools};
use crate::config::AgentConfig;
use crate::tools::definitions::SEPARATOR;
use crate::tools::{RegisteredTool, Registry, ToolSpec};
use crate::types::Effect;
use crate::types::offer::{OfferHash, ToolDefinition};
use crate::types::pattern::{matches, may_match};
use crate::types::policy::Policy;
use crate::types::question::ASK_USER;
use crate::types::run::ToolSearch;

/// Most bytes of definitions that are kept of what was selected lately.
const MAX_KEPT: u64 = 32 << 20;
/// What a selection takes beside its definitions, about, in bytes.
const FRAME: usize = 4_096;
/// The fewest tools that a run may have found at a time, however many it was offered from the start: all that one search finds.
pub const LEAST_FOUND: usize = find_tools::MOST;

/// What selects tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patterns<'a> {
    /// The agent's.
    pub agent: &'a [String],
    /// The request's, where it has any.
    pub asked: Option<&'a [String]>,
    /// The agent's, of tools that are offered from the start in any case.
    pub always: &'a [String],
    /// How many tools are offered from the start at most.
    pub most: usize,
    /// What calls are judged by: a tool of which no call would be made is not offered.
    pub policy: Option<&'a Arc<Policy>>,
}

/// The tools that patterns select.
#[derive(Debug)]
pub struct Selection {
    key: Key,
    /// The names of those that are offered from the start.
    pub names: Vec<String>,
    /// All of them, ready to be called.
    pub servers: Arc<ServerTools>,
    /// The tools that the run answers itself.
    pub own: Vec<Arc<ToolDefinition>>,
    /// How more tools than those are found.
    pub search: Option<ToolSearch>,
    /// The tools whose service is told of the caller.
    pub telling: Vec<Arc<RegisteredTool>>,
    /// The sources that may have more, and have not told yet what they have.
    pub unheard: Vec<String>,
    /// Those of the request's patterns that lead to no tool.
    pub unmatched: Vec<String>,
}

/// What a selection was made by.
#[derive(Debug)]
struct Key {
    version: u64,
    agent: Box<[String]>,
    asked: Option<Box<[String]>>,
    always: Box<[String]>,
    most: usize,
    policy: Option<Arc<Policy>>,
}

impl<'a> Patterns<'a> {
    /// Those of an agent and of a request.
    #[must_use]
    pub fn of(agent: &'a AgentConfig, asked: Option<&'a [String]>, policy: Option<&'a Arc<Policy>>) -> Self {
        Self { agent: &agent.tools, asked, always: &agent.always_offered, most: agent.max_offered_tools, policy }
    }

    fn select(&self, name: &str) -> bool {
        let names_it = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        names_it(self.agent) && self.asked.is_none_or(names_it)
    }

    /// Whether the agent or the request names this very tool, and not one by a pattern of others.
    fn name(&self, name: &str) -> bool {
        let names_it = |patterns: &[String]| patterns.iter().any(|pattern| pattern == name);
        self.select(name) && (names_it(self.agent) || self.asked.is_some_and(names_it))
    }

    /// Whether calls of this tool may be made.
    pub fn permit(&self, name: &str, effect: Effect) -> bool {
        self.policy.is_none_or(|policy| !policy.always_denies(name, effect))
    }

    fn hash(&self, version: u64) -> u64 {
        let mut hasher = Xxh3::new();
        hasher.write_u64(version);
        hasher.write_usize(self.most);
        for list in [Some(self.agent), self.asked, Some(self.always)] {
            hasher.write_usize(list.map_or(usize::MAX, <[String]>::len));
            for pattern in list.unwrap_or_default() {
                hasher.write_usize(pattern.len());
                hasher.write(pattern.as_bytes());
            }
        }
        if let Some(policy) = self.policy {
            policy.layers.hash(&mut hasher);
        }
        hasher.finish()
    }
}

impl Key {
    fn new(patterns: &Patterns<'_>, version: u64) -> Self {
        let Patterns { agent, asked, always, most, policy } = *patterns;
        let policy = policy.cloned();
        Self { version, agent: agent.into(), asked: asked.map(Into::into), always: always.into(), most, policy }
    }

    /// How many bytes it keeps, about. A request chooses much of it.
    fn bytes(&self) -> u32 {
        let lists = [&self.agent, &self.always].into_iter().chain(&self.asked);
        let texts: usize = lists.flat_map(|list| list.iter()).map(|text| text.len() + size_of::<String>()).sum();
        let policy = self.policy.as_ref().map_or(0, |policy| policy.bytes());
        u32::try_from(texts + policy).unwrap_or(u32::MAX)
    }

    fn is(&self, patterns: &Patterns<'_>, version: u64) -> bool {
        let Self { agent, asked, always, most, policy, version: own } = self;
        let policy = policy.as_ref();
        *own == version && Patterns { agent, asked: asked.as_deref(), always, most: *most, policy } == *patterns
    }
}

impl Selection {
    /// What patterns select of these tools, and of those that runs answer themselves.
    fn new<'o>(
        patterns: &Patterns<'_>,
        registry: &Registry,
        own_tools: impl Iterator<Item = &'o Arc<ToolDefinition>>,
    ) -> Self {
        let is_offered = |tool: &ToolSpec| patterns.select(&tool.name) && patterns.permit(&tool.name, tool.effect);
        let all: Vec<&Arc<RegisteredTool>> = registry.iter().filter(|tool| is_offered(tool.spec())).collect();
        let own = own_tools.filter(|tool| registry.get(&tool.name).is_none() && patterns.select(&tool.name));
        let mut own: Vec<_> = own.cloned().collect();
        let is_always =
            |tool: &RegisteredTool| patterns.always.iter().any(|pattern| matches(pattern, &tool.spec().name));
        let (first, more): (Vec<_>, Vec<_>) = if all.len() > patterns.most {
            all.iter().copied().partition(|tool| is_always(tool))
        } else {
            (all.clone(), Vec::new())
        };
        let search = (!more.is_empty()).then(|| ToolSearch {
            first: u32::try_from(first.len()).unwrap_or(u32::MAX),
            most: u32::try_from(patterns.most.saturating_sub(first.len()).max(LEAST_FOUND)).unwrap_or(u32::MAX),
        });
        own.extend(search.map(|_| find_tools::definition().clone()));
        if registry.get(ASK_USER).is_none() && patterns.name(ASK_USER) && patterns.permit(ASK_USER, Effect::Read) {
            own.push(ask_user::definition().clone());
        }
        let selects = |pattern: &str| {
            all.iter().any(|tool| matches(pattern, &tool.spec().name))
                || own.iter().any(|tool| matches(pattern, &tool.name))
        };
        // What a source has is not known before it tells.
        let may_be_of = |pattern: &str, source: &str| may_match(pattern, &format!("{source}{SEPARATOR}"));
        let may_have = |patterns: &[String], source: &str| patterns.iter().any(|pattern| may_be_of(pattern, source));
        let unheard = registry.unheard().iter().filter(|source| {
            may_have(patterns.agent, source) && patterns.asked.is_none_or(|asked| may_have(asked, source))
        });
        let unheard: Vec<String> = unheard.cloned().collect();
        let leads_nowhere = |asked: &&String| !selects(asked) && !unheard.iter().any(|source| may_be_of(asked, source));
        let unmatched = patterns.asked.unwrap_or_default().iter().filter(leads_nowhere).cloned().collect();
        let (names, telling) = (
            first.iter().map(|tool| tool.spec().name.clone()).collect(),
            all.iter().filter(|tool| tool.tool().tells_caller()).map(|tool| Arc::clone(tool)).collect(),
        );
        let count = first.len();
        let offer = Offer::of(first.into_iter().chain(more));
        let servers = Arc::new(ServerTools::new(offer, count, registry));
        Self { key: Key::new(patterns, registry.version()), names, servers, own, search, telling, unheard, unmatched }
    }
}

/// What was selected lately.
#[derive(Debug)]
pub struct Selections {
    by_patterns: Cache<u64, Arc<Selection>>,
    /// By how they are defined, and how many of them are offered from the start.
    by_offer: Cache<(OfferHash, usize), Arc<ServerTools>>,
}

impl Default for Selections {
    fn default() -> Self {
        let weight = |servers: &ServerTools| u32::try_from(FRAME + servers.offer().written().len()).unwrap_or(u32::MAX);
        Self {
            by_patterns: Cache::builder()
                .max_capacity(MAX_KEPT)
                .weigher(move |_, selection: &Arc<Selection>| {
                    weight(&selection.servers).saturating_add(selection.key.bytes())
                })
                .build(),
            by_offer: Cache::builder()
                .max_capacity(MAX_KEPT)
                .weigher(move |_, servers: &Arc<ServerTools>| weight(servers))
                .build(),
        }
    }
}

impl Selections {
    /// What patterns select of these tools. `own_tools` must be the same each time.
    pub fn get<'o>(
        &self,
        patterns: &Patterns<'_>,
        registry: &Registry,
        own_tools: impl Iterator<Item = &'o Arc<ToolDefinition>>,
    ) -> Arc<Selection> {
        let (version, hash) = (registry.version(), patterns.hash(registry.version()));
        // A caller might find patterns with the hash of others.
        if let Some(known) = self.by_patterns.get(&hash).filter(|known| known.key.is(patterns, version)) {
            return known;
        }
        let selection = Arc::new(Selection::new(patterns, registry, own_tools));
        self.by_patterns.insert(hash, selection.clone());
        self.keep(&selection.servers);
        selection
    }

    /// The tools of this offer, if they were needed lately.
    pub fn offered(&self, hash: &OfferHash, first: usize) -> Option<Arc<ServerTools>> {
        self.by_offer.get(&(hash.clone(), first))
    }

    /// Keeps the tools of an offer for runs that are resumed.
    pub fn keep(&self, servers: &Arc<ServerTools>) {
        self.by_offer.insert((servers.offer().hash().clone(), servers.first()), servers.clone());
    }
}
