//! What a run is once another agent goes on with it: specified as a new run of that agent would be, of what its request asked for.
//!
//! What the request asked for in its prompt, rules and guards was asked of the agent that it named. Of another agent it holds as far
//! as that agent takes it, and never loosens what the agent says.

use std::sync::Arc;

use crate::agent::admission::choose::Chosen;
use crate::agent::admission::delegates::place_in_tree;
use crate::agent::admission::handoffs::AskedOfRun;
use crate::agent::admission::said::said;
use crate::agent::admission::screened::screened;
use crate::agent::admission::specify::{pinned, unsent};
use crate::agent::admission::{Admission, models, price};
use crate::agent::catalog::Resolved;
use crate::agent::context::fit::cut::turns;
use crate::agent::context::selection::Patterns;
use crate::agent::context::server_tools::ServerTools;
use crate::agent::context::toolbox::Toolbox;
use crate::agent::drive::handing_over::{Successor, Wanted};
use crate::agent::error::{Field, StartError, unavailable};
use crate::agent::generation::Generation;
use crate::agent::machine::{Run, budget};
use crate::agent::request::{ApprovalPatch, ChildOf, ContextPatch, GuardsPatch, LoopGuardPatch, NewRun, RulesPatch};
use crate::config::AgentConfig;
use crate::llm::pricing::Terms;
use crate::types::approval::{ApprovalMode, ApprovalTerms};
use crate::types::context::{Compaction, ContextRules, View};
use crate::types::delegate::DELEGATE;
use crate::types::guard::Guards;
use crate::types::handoff::{HANDOFF, HandedHistory};
use crate::types::lineage::Tree;
use crate::types::offer::ToolChoice;
use crate::types::pattern::matches;
use crate::types::question::ASK_USER;
use crate::types::rules::{LoopGuardRules, LoopRules};
use crate::types::session::Session;
use crate::types::{History, Limits, RunSpec};

/// What a run is as another agent, and its tools.
struct Next {
    spec: RunSpec,
    servers: Arc<ServerTools>,
}

impl Admission {
    /// What a run is as the agent that it is to be handed to. What it is offered then is stored.
    pub(in crate::agent) async fn successor(&self, wanted: Wanted<'_>) -> Result<Successor, StartError> {
        let Wanted { run, history, generation, offered, to } = wanted;
        let session = match &run.spec().session {
            Some(id) => self.ledger.find_session(&run.spec().tenant, id).await?,
            None => None,
        };
        let session = session.as_ref().map(|found| &found.session);
        let mut new = request(run, to)?;
        let next = match self.next(run, &new, (session, history), generation).await {
            // The agent takes nothing of the kind from requests, or not so much.
            Err(StartError::Invalid { .. } | StartError::Blocked { .. }) if new.prompt.is_some() => {
                new.prompt = None;
                new.warnings
                    .push(format!("the agent {to:?} took over without what the request says in `agent.prompt`"));
                self.next(run, &new, (session, history), generation).await?
            }
            next => next?,
        };
        let Next { mut spec, servers } = next;
        price::check(&spec, &spec.step_model(), &terms_of(&spec, generation), session, &generation.quotas)?;
        models::leave_countable(&mut spec, generation, session, &generation.quotas);
        let tools = toolbox(&servers, generation, &spec);
        let shown_from = shown_from(run, history);
        let now = run.spec().told_weight() + offered + left_out(run, history, shown_from);
        let heavier = tokens(spec.told_weight() + tools.offer(&[]).weight()) - tokens(now);
        fit(&spec, run.context_tokens().saturating_add_signed(heavier))?;
        self.launcher.offers.keep(&spec, servers.offer().written()).await.map_err(unavailable)?;
        Ok(Successor { spec, heavier, shown_from })
    }

    /// The specification of what a run is next, but for how long its conversation is.
    async fn next(
        &self,
        run: &Run,
        new: &NewRun,
        (session, history): (Option<&Session>, &History),
        generation: &Generation,
    ) -> Result<Next, StartError> {
        let to = new.model.as_deref().ok_or(StartError::ModelMissing)?;
        let may_use = |agent: &str| new.allowed_agents.as_ref().is_none_or(|all| all.iter().any(|one| one == agent));
        let mut resolved = self.agents.resolve(generation, &new.tenant, to, may_use).await?;
        if resolved.agent_name != to {
            // The agent is there no more, and a model has its name.
            return Err(StartError::ModelNotFound { name: to.to_owned(), nearest: None });
        }
        may_use(to).then_some(()).ok_or_else(|| StartError::AgentForbidden(to.to_owned()))?;
        let new = &held_to(new.clone(), &resolved, generation);
        let Chosen { policy, hooks, selected, told, warnings, .. } =
            self.choose(new, generation, (session, history), &mut resolved).await?;
        let servers = selected.servers();
        let mut spec = pinned(new, (session, to), resolved, (&selected, &servers))?;
        spec.limits = run.limits_under(&spec.limits);
        place(run, &mut spec, new, session);
        spec.warnings.extend(warnings.into_iter().chain(told.warnings));
        (spec.system, spec.prompt) = (told.system, told.prompt);
        (spec.policy, spec.hooks) = (policy, hooks);
        spec.rules = within_rules(run, spec.rules);
        if spec.own_tools.iter().any(|tool| tool.name == HANDOFF) {
            spec.handoff.terms.clone_from(&run.spec().handoff.terms);
        }
        let of_prompt = said(new.prompt.as_deref(), &mut spec)?;
        spec.warnings.extend(of_prompt);
        // What users said stays as the agent before was told it, but an agent that refuses it does not go on with it.
        screened(&mut spec.input, &spec.guards, 0, &[])?;
        spec.warnings.extend(unsent(&spec, &*generation.catalog.model(&spec.upstream)));
        spec.trace.clone_from(&run.spec().trace);
        Ok(Next { spec, servers })
    }
}

/// What is asked of a run as another agent: what its request asked for, and its conversation so far.
fn request(run: &Run, to: &str) -> Result<NewRun, StartError> {
    let spec = run.spec();
    let lost = || {
        let message = "the run keeps nothing of its request that it could be handed over with".to_owned();
        StartError::Invalid { field: Field::Member("model"), message }
    };
    let terms = spec.handoff.terms.as_ref().ok_or_else(lost)?;
    let asked: AskedOfRun = serde_json::from_str(terms.asked.get()).map_err(|_| lost())?;
    let mut new = NewRun::again(spec.tenant.clone(), spec.id.clone());
    new.key_name.clone_from(&spec.key_name);
    new.allowed_agents.clone_from(&terms.allowed_agents);
    new.model = Some(to.to_owned());
    new.session.clone_from(&spec.session);
    new.messages = run.messages().to_vec();
    new.client_tools.clone_from(&spec.client_tools);
    new.request_id.clone_from(&spec.request_id);
    new.max_output_tokens = spec.bounds_output.then_some(spec.max_output_tokens);
    new.options = spec.options.clone();
    // It was for the first call, of the first agent.
    new.options.tool_choice = ToolChoice::Auto;
    new.of = spec.parent.clone().map(|parent| {
        let (tree, policy) = (spec.tree.clone().unwrap_or_default(), terms.above.clone());
        Box::new(ChildOf { parent, tree, policy, max_iterations: u32::MAX, timeout_ms: u64::MAX })
    });
    AskedOfRun {
        system: new.system,
        tools: new.tools,
        policy: new.policy,
        approval: new.approval,
        rules: new.rules,
        guards: new.guards,
        prompt: new.prompt,
    } = asked;
    if terms.names_servers {
        new.warnings.push(format!("the agent {to:?} took over without the tools of servers that the request names"));
    }
    Ok(new)
}

/// The request as far as it says something of an agent with these settings, and nothing looser than the agent.
fn held_to(mut new: NewRun, resolved: &Resolved, generation: &Generation) -> NewRun {
    let AgentConfig { rules, guards, approval, .. } = &resolved.settings;
    new.approval = approval_within(new.approval, approval);
    new.guards = guards_within(new.guards, guards);
    new.rules = RulesPatch {
        loop_guard: loop_guard_within(new.rules.loop_guard, &rules.loop_guard),
        context: context_within(new.rules.context, &rules.context),
        ..new.rules
    };
    if let Some(tools) = &mut new.tools {
        let selected = generation.select(&Patterns::of(&resolved.settings, Some(&tools[..]), None));
        let offered = [(DELEGATE, &rules.delegation.to), (HANDOFF, &rules.handoff.to)];
        let leads_somewhere = |pattern: &String| {
            let is_of = |(tool, to): &(&str, &Vec<String>)| !to.is_empty() && matches(pattern, tool);
            !selected.unmatched.contains(pattern) || offered.iter().any(is_of)
        };
        tools.retain(leads_somewhere);
    }
    new
}

fn approval_within(asked: ApprovalPatch, terms: &ApprovalTerms) -> ApprovalPatch {
    ApprovalPatch {
        mode: asked.mode.filter(|_| terms.mode != ApprovalMode::Deny),
        timeout_ms: asked.timeout_ms.filter(|asked| *asked <= terms.timeout_ms),
    }
}

fn guards_within(asked: GuardsPatch, guards: &Guards) -> GuardsPatch {
    GuardsPatch {
        input: asked.input.filter(|asked| *asked >= guards.input),
        max_message_chars: asked.max_message_chars.filter(|asked| *asked <= guards.max_message_chars),
        max_tool_result_bytes: asked.max_tool_result_bytes.filter(|asked| *asked <= guards.results.max_bytes),
    }
}

fn loop_guard_within(asked: LoopGuardPatch, rules: &LoopGuardRules) -> LoopGuardPatch {
    let lower = |asked: Option<u32>, has: Option<u32>| asked.filter(|asked| has.is_none_or(|has| *asked <= has));
    LoopGuardPatch {
        warn_after: lower(asked.warn_after, rules.warn_after),
        stop_after: lower(asked.stop_after, rules.stop_after),
        same_result_warn_after: lower(asked.same_result_warn_after, rules.same_result_warn_after),
        same_result_stop_after: lower(asked.same_result_stop_after, rules.same_result_stop_after),
    }
}

fn context_within(asked: ContextPatch, rules: &ContextRules) -> ContextPatch {
    ContextPatch {
        compaction: asked.compaction.filter(|asked| rules.compaction.allows(*asked)),
        threshold: asked.threshold.filter(|asked| *asked <= rules.threshold),
        turn_limit: asked.turn_limit.filter(|asked| rules.turn_limit.is_none_or(|most| *asked <= most)),
        ..asked
    }
}

/// The rules of the next agent. How often the run may be handed off is never widened.
fn within_rules(run: &Run, mut rules: Arc<LoopRules>) -> Arc<LoopRules> {
    let most = run.spec().rules.handoff.most;
    if rules.handoff.most > most {
        Arc::make_mut(&mut rules).handoff.most = most;
    }
    rules
}

/// Pins what the run has of those above it, and what it shares with those below. What it shares already stays as it is.
fn place(run: &Run, next: &mut RunSpec, new: &NewRun, session: Option<&Session>) {
    let spec = run.spec();
    let shares = |tree: &Tree| tree.bounds.iter().any(|bound| bound.run == spec.id);
    if spec.parent.is_some() {
        next.own_tools.retain(|tool| tool.name != ASK_USER);
    }
    if let Some(tree) = spec.tree.as_ref().filter(|tree| spec.parent.is_none() || shares(tree)) {
        next.tree = Some(tree.clone());
        return;
    }
    // What it took so far is not counted where runs below it count.
    let (limits, used) = (next.limits, run.used());
    next.limits = Limits {
        token_budget: limits.token_budget.map(|budget| budget.saturating_sub(used.tokens)),
        cost_budget: limits.cost_budget.map(|budget| budget.saturating_sub(used.cost)),
        max_tool_calls: limits.max_tool_calls.map(|most| most.saturating_sub(run.calls_made())),
        ..limits
    };
    place_in_tree(next, new, session);
    next.limits = limits;
}

/// The tools of a run as it is next.
fn toolbox(servers: &Arc<ServerTools>, generation: &Generation, spec: &RunSpec) -> Toolbox {
    Toolbox::new(servers.clone(), generation.tools.clone(), None, spec)
}

/// What its model's upstream says of what it charges for.
fn terms_of(spec: &RunSpec, generation: &Generation) -> Terms {
    generation.catalog.upstream(&spec.upstream).map(|upstream| upstream.terms().clone()).unwrap_or_default()
}

/// The first place of the conversation that the next agent is shown; `None` for all that the agent before was shown.
fn shown_from(run: &Run, history: &History) -> Option<u64> {
    if run.spec().rules.handoff.history == HandedHistory::All {
        return None;
    }
    let from = turns(history.placed().chain((history.count()..).zip(run.messages())), 1);
    let begins = run.view().map_or(0, View::begins);
    (from > begins).then_some(from)
}

/// How many bytes of the conversation the next agent is not shown, which the one before was.
fn left_out(run: &Run, history: &History, shown_from: Option<u64>) -> usize {
    let Some(from) = shown_from else { return 0 };
    let begins = run.view().map_or(0, View::begins);
    let all = history.placed().chain((history.count()..).zip(run.messages()));
    all.filter(|(place, _)| (begins..from).contains(place)).map(|(_, message)| message.weight()).sum()
}

/// Refuses an agent whose models do not take the conversation, and that does not make it fit either.
fn fit(spec: &RunSpec, tokens: u64) -> Result<(), StartError> {
    let window = spec.fallbacks.iter().map(|fallback| fallback.context_window).fold(spec.context_window, u64::max);
    if tokens > window && spec.rules.context.compaction == Compaction::Off {
        let model = &spec.upstream_model;
        let message = format!("the conversation takes about {tokens} tokens; the model {model} takes {window}");
        return Err(StartError::ContextLength(message));
    }
    Ok(())
}

fn tokens(bytes: usize) -> i64 {
    i64::try_from(budget::estimate(bytes)).unwrap_or(i64::MAX)
}
