//! What the configuration says of prices, and what it leaves open.

use crate::config::{AgentConfig, HttpUpstream, Settings, Upstream, UpstreamKind};
use crate::llm::offered::Sizes;
use crate::llm::pricing::{Terms, Undeclared, priced};
use crate::net::public_address::is_private_host;
use crate::types::price::PriceOrigin;

/// What an upstream charges beside the prices of its models.
#[must_use]
pub fn terms(upstream: &Upstream) -> Terms {
    let Some(http) = upstream.kind.http() else {
        return Terms { undeclared: Undeclared::Free, allows_uncounted: true, ..Terms::default() };
    };
    Terms {
        undeclared: match http.free {
            Some(true) => Undeclared::Free,
            None if http.urls().all(is_private_host) => Undeclared::AssumedFree,
            Some(false) | None => Undeclared::Guessed,
        },
        allows_uncounted: http.allow_uncounted_cost,
        charges_cache_writes: matches!(upstream.kind, UpstreamKind::Anthropic(_)),
        host: common_host(http).unwrap_or_default().into(),
    }
}

/// The host of all addresses of an upstream.
fn common_host(http: &HttpUpstream) -> Option<&str> {
    let host = http.base_url().host_str();
    host.filter(|_| http.urls().all(|url| url.host_str() == host))
}

/// What is taken for free without being declared so.
#[must_use]
pub fn assumptions(settings: &Settings) -> Vec<String> {
    let free = settings.upstreams.iter().filter(|upstream| terms(upstream).undeclared == Undeclared::AssumedFree);
    let free = free.map(|Upstream { name, .. }| {
        format!(
            "upstreams.{name}: its address is private, so models without a known price are counted as free; write `free = \
             true` or `free = false` to decide"
        )
    });
    free.collect()
}

/// Whose runs are all refused for the want of a price.
#[must_use]
pub fn refusals(settings: &Settings) -> Vec<String> {
    settings.agents.values().filter_map(|agent| refused(settings, agent)).collect()
}

/// Why every run of an agent is refused, if a cost budget of its own or of a key is in force and no price is known for its
/// model.
fn refused(settings: &Settings, agent: &AgentConfig) -> Option<String> {
    let (upstream, model) = locate(settings, agent.model.as_deref()?)?;
    let name = format!("{}/{model}", upstream.name);
    let priced = priced(&settings.models, &terms(upstream), [&name, model, model], Sizes::default());
    if priced.source.origin() != PriceOrigin::Guessed {
        return None;
    }
    let may_use = |allowed: &Option<Vec<String>>| allowed.as_ref().is_none_or(|names| names.contains(&agent.name));
    let key = settings.keys.iter().find(|key| key.quota.cost_budget.is_some() && may_use(&key.agents));
    let whose = match (agent.limits.cost_budget, key) {
        (Some(_), _) => "its cost budget".to_owned(),
        (None, Some(key)) => format!("the cost budget of the key {}", key.name),
        (None, None) => return None,
    };
    let agent = &agent.name;
    Some(format!(
        "agents.{agent}: no price is known for {name}, so {whose} refuses its runs; declare [models.\"{name}\".price]"
    ))
}

/// The upstream of an agent's model and the model's name there, as far as the configuration tells.
fn locate<'a>(settings: &'a Settings, model: &'a str) -> Option<(&'a Upstream, &'a str)> {
    let named = |name: &str| settings.upstreams.iter().find(|upstream| upstream.name == name);
    if let Some((prefix, rest)) = model.split_once('/')
        && let Some(upstream) = named(prefix)
    {
        return Some((upstream, rest));
    }
    match settings.upstreams.as_slice() {
        [only] => Some((only, model)),
        several => several.iter().find(|upstream| upstream.lists(model)).map(|upstream| (upstream, model)),
    }
}
