//! Turns a request into a run's specification: everything that shapes the run is pinned before it begins.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::admission::choose::Chosen;
use crate::agent::admission::delegates::place_in_tree;
use crate::agent::admission::said::said;
use crate::agent::admission::screened::{screened, tightened};
use crate::agent::admission::select::Selected;
use crate::agent::admission::told::begins_conversation;
use crate::agent::admission::{Admission, composite, handoffs, models, named, price, rules};
use crate::agent::catalog::Resolved;
use crate::agent::context::fit::begin;
use crate::agent::context::server_tools::ServerTools;
use crate::agent::context::toolbox::Toolbox;
use crate::agent::error::{Field, StartError};
use crate::agent::generation::Generation;
use crate::agent::limits::shares::StartRates;
use crate::agent::machine::budget;
use crate::agent::request::{LimitsPatch, NewRun};
use crate::config::AgentConfig;
use crate::llm::Model;
use crate::types::clock::now_ms;
use crate::types::context::Compaction;
use crate::types::conversation::requested;
use crate::types::handoff::HandoffState;
use crate::types::run::OnConflict;
use crate::types::session::Session;
use crate::types::share::RunsAtOnce;
use crate::types::{History, Limits, RunSpec};

/// Most output tokens that are reserved for a call whose request does not say how many it may have: an answer is
/// rarely longer, and what is reserved is kept from other runs.
const DEFAULT_OUTPUT: u64 = 8_192;

/// A run to be, and its tools.
pub(super) struct Specified {
    pub(super) spec: Arc<RunSpec>,
    pub(super) servers: Arc<ServerTools>,
    pub(super) tools: Toolbox,
    /// How many requests a minute may begin such runs.
    pub(super) rates: StartRates,
}

impl Admission {
    /// Pins everything that shapes the run: the agent that it names, the tools that it selects, and its limits within
    /// those of the agent.
    pub(super) async fn specify(
        &self,
        new: &NewRun,
        generation: &Generation,
        session: Option<&Session>,
        history: &History,
    ) -> Result<Specified, StartError> {
        let asked = asked_model(new, session)?;
        let may_use = |agent: &str| new.allowed_agents.as_ref().is_none_or(|all| all.iter().any(|one| one == agent));
        let mut resolved = self.agents.resolve(generation, &new.tenant, asked, may_use).await?;
        may_use(&resolved.agent_name)
            .then_some(())
            .ok_or_else(|| StartError::AgentForbidden(resolved.agent_name.clone()))?;
        if new.of.is_some() && resolved.agent_name != asked {
            // The agent is there no more, and a model has its name.
            return Err(StartError::ModelNotFound { name: asked.to_owned(), nearest: None });
        }
        let Chosen { policy, hooks, selected, listed, told, warnings } =
            self.choose(new, generation, (session, history), &mut resolved).await?;
        let servers = selected.servers();
        let terms = resolved.called.terms.clone();
        let (of_agent, of_user) =
            (resolved.settings.limits.shared, generation.quotas.per_user(new.key_name.as_deref()));
        let mut spec = pinned(new, (session, asked), resolved, (&selected, &servers))?;
        place_in_tree(&mut spec, new, session);
        // One that shortens a conversation in the background must not be in the way of its user.
        if !spec.compacts {
            spec.at_once = RunsAtOnce { of_agent: of_agent.max_concurrent_runs, of_user: of_user.max_concurrent_runs };
        }
        composite::pin(&mut spec);
        spec.warnings.extend(warnings.into_iter().chain(told.warnings));
        (spec.system, spec.prompt) = (told.system, told.prompt);
        may_compact(&spec)?;
        (spec.policy, spec.hooks) = (policy, hooks);
        handoffs::note(&mut spec, new);
        let of_prompt = said(new.prompt.as_deref(), &mut spec)?;
        spec.warnings.extend(of_prompt);
        if let Some((asked, listed)) = listed {
            named::note(&mut spec, asked, listed);
        }
        spec.guarded = screened(&mut spec.input, &spec.guards, 0, &[])?;
        spec.warnings.extend(unsent(&spec, &*generation.catalog.model(&spec.upstream)));
        spec.trace = self.launcher.telemetry.traces.trace_of(&spec.id, new.trace.clone());
        let tools = Toolbox::new(servers.clone(), generation.tools.clone(), generation.servers_of(&spec), &spec);
        let offered = tools.offer(&[]).weight();
        begin::begin(&mut spec, session.and_then(|session| session.context.as_deref()), history, offered);
        price::check(&spec, &spec.step_model(), &terms, session, &generation.quotas)?;
        models::leave_countable(&mut spec, generation, session, &generation.quotas);
        fit(&spec, offered)?;
        let rates = StartRates { of_agent: of_agent.requests_per_minute, of_user: of_user.requests_per_minute };
        Ok(Specified { spec: Arc::new(spec), servers, tools, rates })
    }
}

/// The model or agent that the request names, or that its session does.
fn asked_model<'a>(new: &'a NewRun, session: Option<&'a Session>) -> Result<&'a str, StartError> {
    let named = new.model.as_deref().or(session.and_then(|session| session.agent.as_deref()));
    named.ok_or(StartError::ModelMissing)
}

/// Refuses a compaction for an agent that makes none.
fn may_compact(spec: &RunSpec) -> Result<(), StartError> {
    if spec.compacts && spec.rules.context.compaction == Compaction::Off {
        let message = format!("the agent {:?} shortens no conversations: its `context.compaction` is off", spec.agent);
        return Err(StartError::Invalid { field: Field::Member("model"), message });
    }
    Ok(())
}

/// What the caller should know of members that the upstream is not sent.
pub(super) fn unsent(spec: &RunSpec, model: &dyn Model) -> Option<String> {
    let names = model.unsent(&spec.upstream_model, &spec.options.sampling);
    let named: Vec<String> = names.into_iter().take(8).map(|name| name.chars().take(80).collect()).collect();
    (!named.is_empty()).then(|| {
        let (upstream, names) = (&spec.upstream, named.join(", "));
        format!("the upstream {upstream} was not sent these members, which it or its model does not take: {names}")
    })
}

/// The session of a request, and the model or agent that it means.
pub(super) type Asked<'a> = (Option<&'a Session>, &'a str);

/// Which tools a run may use.
pub(super) type Offered<'a> = (&'a Selected, &'a ServerTools);

/// The specification of a run, or why it cannot be one.
type Pinned = Result<RunSpec, StartError>;

/// The specification of a run that is told nothing yet, and whose context is not estimated.
pub(super) fn pinned(new: &NewRun, (session, name): Asked<'_>, of: Resolved, (tools, servers): Offered<'_>) -> Pinned {
    let price::Counted { options, price, warnings } = price::counted(&new.options, &of.called);
    let Resolved { agent_name, settings, called, fallbacks, agent_version } = of;
    let (fallbacks, left_out) = models::in_tier(fallbacks, &options);
    Ok(RunSpec {
        id: new.id.clone(),
        tenant: new.tenant.clone(),
        key_name: new.key_name.clone(),
        at_once: RunsAtOnce::default(),
        session: new.session.clone(),
        concurrent: new.on_conflict == OnConflict::Concurrent,
        queued_at: None,
        created_ms: now_ms(),
        parent: None,
        tree: None,
        model: name.to_owned(),
        agent: agent_name,
        agent_version,
        upstream: called.upstream,
        upstream_model: called.model_name,
        fallbacks: models::pinned(fallbacks, most_output(new)),
        system: Vec::new(),
        prompt: None,
        history_len: session.map_or(0, |session| session.message_count),
        splices: session.map_or(0, |session| session.spliced().times),
        view: None,
        compacts: new.compacts(),
        input_since: 0,
        input: requested(&new.id, 0, new.messages.clone()),
        context_tokens: 0,
        tools: tools.names(&options),
        search: tools.search(),
        offer: servers.offer().hash().clone(),
        own_tools: tools.own(),
        client_tools: new.client_tools.clone(),
        servers: None,
        trace: None,
        hides_content: !settings.trace_content,
        streams: settings.streams,
        request_id: new.request_id.clone(),
        claim: new.claim.as_ref().map(|claim| claim.name.clone()),
        metadata: new.metadata.clone(),
        context_window: called.facts.context_window,
        max_output_tokens: most_output(new).min(called.facts.max_output_tokens),
        bounds_output: new.max_output_tokens.is_some(),
        limits: narrow(&settings, new.limits)?,
        policy: None,
        price,
        price_origin: called.price_origin,
        warnings: warnings.into_iter().chain(new.warnings.iter().cloned()).chain(left_out).collect(),
        on_limit: new.on_limit.unwrap_or(settings.on_limit),
        rules: rules::of_run(&settings.rules, &new.rules, begins_conversation(new, session))?,
        hedge_after_ms: settings.hedge_after.map(millis),
        guards: tightened(&settings.guards, new.guards)?,
        hooks: Vec::new(),
        guarded: Vec::new(),
        handoff: HandoffState::default(),
        options,
    })
}

/// Most output tokens of a call.
fn most_output(new: &NewRun) -> u64 {
    new.max_output_tokens.unwrap_or(DEFAULT_OUTPUT)
}

/// Refuses a run whose first request does not fit the model's context, and cannot be made to fit either.
fn fit(spec: &RunSpec, offered: usize) -> Result<(), StartError> {
    let window = spec.fallbacks.iter().map(|fallback| fallback.context_window).fold(spec.context_window, u64::max);
    let plan = spec.rules.planning.as_ref().map_or(0, String::len);
    let (tokens, model) = (spec.context_tokens.saturating_add(budget::estimate(plan)), &spec.upstream_model);
    let can_be_shortened = spec.rules.context.compaction != Compaction::Off;
    if tokens > window && !(can_be_shortened && begin::least(spec, offered + plan) <= window) {
        let message = format!("the messages take about {tokens} tokens; the model {model} takes {window}");
        return Err(StartError::ContextLength(message));
    }
    Ok(())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The agent's limits, lowered to what the request asks for. They are a ceiling: asking for more is an
/// error.
fn narrow(settings: &AgentConfig, asked: LimitsPatch) -> Result<Limits, StartError> {
    let ceiling = &settings.limits;
    let above = |field, ceiling: String| {
        let message = format!("this is above the agent's limit of {ceiling}");
        StartError::Invalid { field, message }
    };
    let bounded = |field, asked: Option<u64>, ceiling: Option<u64>| match (asked, ceiling) {
        (Some(asked), Some(ceiling)) if asked > ceiling => Err(above(field, ceiling.to_string())),
        (Some(asked), _) => Ok(Some(asked)),
        (None, ceiling) => Ok(ceiling),
    };
    let time = |field, asked, ceiling| -> Result<u64, StartError> {
        Ok(bounded(field, asked, Some(millis(ceiling)))?.unwrap_or(millis(ceiling)))
    };
    let iterations =
        bounded(Field::MaxIterations, asked.max_iterations.map(u64::from), Some(u64::from(ceiling.max_iterations)))?;
    let calls = bounded(
        Field::Member("agent.limits.max_tool_calls"),
        asked.max_tool_calls.map(u64::from),
        ceiling.max_tool_calls.map(u64::from),
    )?;
    let cost = match (asked.cost_budget, ceiling.cost_budget) {
        (Some(asked), Some(ceiling)) if asked > ceiling => {
            return Err(above(Field::CostBudget, ceiling.as_usd().to_string()));
        }
        (asked, ceiling) => asked.or(ceiling),
    };
    Ok(Limits {
        max_iterations: iterations.and_then(|count| u32::try_from(count).ok()).unwrap_or(ceiling.max_iterations),
        max_tool_calls: calls.and_then(|count| u32::try_from(count).ok()),
        timeout_ms: time(Field::Timeout, asked.timeout_ms, ceiling.timeout)?,
        tool_timeout_ms: time(Field::ToolTimeout, asked.tool_timeout_ms, ceiling.tool_timeout)?,
        token_budget: bounded(Field::TokenBudget, asked.token_budget, ceiling.token_budget)?,
        cost_budget: cost,
    })
}
