//! Starts runs, and continues those that wait for their client.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::error::{StartError, unavailable};
use crate::agent::follow::Follower;
use crate::agent::head::{Head, encode};
use crate::agent::machine::{Run, Step};
use crate::agent::recorder;
use crate::agent::sessions::{Versioned, forget_session};
use crate::agent::toolbox::Toolbox;
use crate::agent::{Agent, active_run, context, keys};
use crate::config::AgentConfig;
use crate::kill;
use crate::store::{CommitError, Tx, Write};
use crate::types::clock::now_ms;
use crate::types::run::{ClientTool, OnDisconnect, OnLimit, OnUnknownOutcome, ToolChoice};
use crate::types::session::Session;
use crate::types::{
    CallId, Event, Limits, Message, Micros, Role, RunId, RunSpec, RunStatus, SessionId, StopReason, Tenant,
};

/// How often a session that changed meanwhile is read again.
const ATTEMPTS: usize = 8;
/// How long an unfinished run's index entry is kept, beyond its timeout and an ended run's time.
const UNFINISHED: Duration = Duration::from_secs(24 * 3600);

/// A valid request for a run.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Whose it is.
    pub tenant: Tenant,
    /// The agents that the caller's key may use; `None` for all.
    pub allowed_agents: Option<Vec<String>>,
    /// The model or agent; a session may name the agent instead.
    pub model: Option<String>,
    /// The conversation that it continues.
    pub session: Option<SessionId>,
    /// The waiting run that its tool messages answer.
    pub run: Option<RunId>,
    /// Instructions for this run only.
    pub system: Vec<Message>,
    /// The other messages.
    pub messages: Vec<Message>,
    /// Where in `messages` those begin that answer the calls of a waiting run.
    pub answers_from: usize,
    /// The calls that they answer, in their order.
    pub answered: Vec<CallId>,
    /// The client's own tools.
    pub client_tools: Vec<ClientTool>,
    /// OpenAI's `tool_choice`.
    pub tool_choice: Option<ToolChoice>,
    /// Members for the upstream's request that pass through.
    pub parameters: String,
    /// Most output tokens of one model call.
    pub max_output_tokens: Option<u64>,
    /// Whether several calls of one turn may run at once.
    pub parallel_tool_calls: bool,
    /// Names and globs of the server's tools; `None` for all of the agent's.
    pub tools: Option<Vec<String>>,
    /// Narrower limits than the agent's.
    pub limits: LimitsPatch,
    /// What happens at a limit; `None` for the agent's setting.
    pub on_limit: Option<OnLimit>,
    /// What happens when the last reader has gone.
    pub on_disconnect: OnDisconnect,
    /// What happens after a crash in a tool with side effects.
    pub on_unknown_outcome: OnUnknownOutcome,
    /// How long the run outlives its last reader.
    pub reconnect_grace_ms: u64,
    /// Whether a step's text is held until it is known to be the last.
    pub hide_intermediate_text: bool,
    /// Whether arguments are shown as the model writes them.
    pub stream_tool_arguments: bool,
    /// How many steps may be voided because the model's stream broke after text went out.
    pub max_discards: u32,
}

/// Limits that a request asks for.
#[derive(Debug, Clone, Copy, Default)]
pub struct LimitsPatch {
    /// Most model calls.
    pub max_iterations: Option<u32>,
    /// From start to end, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// For each tool call, in milliseconds.
    pub tool_timeout_ms: Option<u64>,
    /// Most tokens.
    pub token_budget: Option<u64>,
    /// Most money.
    pub cost_budget: Option<Micros>,
}

/// A run that goes on now.
#[derive(Debug)]
pub struct Started {
    /// Its head.
    pub head: Head,
    /// Its events from where this request set in.
    pub follower: Follower,
}

impl Agent {
    /// Starts a run, or continues the waiting one whose calls the request answers.
    pub async fn start(&self, new: NewRun) -> Result<Started, StartError> {
        if self.refusing.is_cancelled() {
            return Err(StartError::Draining);
        }
        for _ in 0..ATTEMPTS {
            let session = match &new.session {
                Some(id) => self.find_session(&new.tenant, id).await?,
                None => None,
            };
            if let Some(waiting) = self.waiting_run(&new, session.as_ref()).await? {
                return self.continue_run(&new, &waiting).await;
            }
            if let Some(started) = self.try_start(&new, session).await? {
                return Ok(started);
            }
        }
        Err(StartError::Store(crate::store::Unavailable("the session is being changed by others".to_owned())))
    }

    /// The waiting run that the request's tool messages answer.
    async fn waiting_run(&self, new: &NewRun, session: Option<&Versioned>) -> Result<Option<Head>, StartError> {
        let named = new.run.as_ref();
        let sessions = session.and_then(|session| session.session.active_run.as_ref());
        let minted = new.answered.first().and_then(CallId::run);
        let Some(run) = named.or(sessions.filter(|_| !new.answered.is_empty())).or(minted.as_ref()) else {
            return Ok(None);
        };
        match self.find_run(&new.tenant, run).await {
            Ok((_, head)) if head.status == RunStatus::RequiresAction => Ok(Some(head)),
            Ok(_) if named.is_some() => Err(StartError::NotWaiting(run.clone())),
            Err(crate::agent::error::LookupError::Store(error)) => Err(error.into()),
            Err(_) if named.is_some() => Err(StartError::RunNotFound(run.to_string())),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// Starts a run; `None` if its session changed meanwhile.
    async fn try_start(&self, new: &NewRun, session: Option<Versioned>) -> Result<Option<Started>, StartError> {
        if new.answers_from == 0 && !new.answered.is_empty() {
            let message = "no run waits for the results of these tool calls".to_owned();
            return Err(StartError::Invalid { param: "messages[0]".to_owned(), message });
        }
        if let Some(Versioned { session, .. }) = &session {
            if let Some(run) = active_run(self, &new.tenant, session).await? {
                return Err(StartError::SessionBusy { session: session.id.clone(), run });
            }
            if let Some(abandoned) = &session.active_run {
                // It waited for its client, which asks for something else now. A request that is refused
                // changes nothing, so this one is checked first.
                let spec = Arc::new(self.specify(new, Some(session), "").await?);
                self.has_budget(&spec, Some(session)).await?;
                self.abandon(&new.tenant, session, abandoned).await?;
            }
        }
        let session = match &new.session {
            Some(id) => self.find_session(&new.tenant, id).await?,
            None => None,
        };
        if let Some(Versioned { session, .. }) = &session
            && let Some(run) = active_run(self, &new.tenant, session).await?
        {
            return Err(StartError::SessionBusy { session: session.id.clone(), run });
        }
        let history = match &session {
            Some(Versioned { session, .. }) => self.history(&new.tenant, &session.id, session.message_count).await?,
            None => String::new(),
        };
        let found = session.as_ref().map(|found| &found.session);
        let spec = Arc::new(self.specify(new, found, &history).await?);
        self.has_budget(&spec, found).await?;
        let lease = self.leases.acquire(&spec).await?.ok_or(StartError::Draining)?;
        let created = self.create(&spec, session).await;
        match created {
            Ok(true) => {}
            Ok(false) => {
                lease.release().await?;
                return Ok(None);
            }
            Err(error) => {
                lease.release().await?;
                return Err(error);
            }
        }
        let record = recorder::encode(&mut 0, Event::RunStarted).0;
        let head = Head::new(&spec);
        let follower = self.spawn(spec, std::slice::from_ref(&*record), lease, history.into(), 0).await?;
        Ok(Some(Started { head, follower }))
    }

    /// Pins everything that shapes the run.
    async fn specify(&self, new: &NewRun, session: Option<&Session>, history: &str) -> Result<RunSpec, StartError> {
        let asked = new.model.as_deref().or(session.and_then(|session| session.agent.as_deref())).ok_or_else(|| {
            StartError::Invalid { param: "model".to_owned(), message: "name a model or an agent".to_owned() }
        })?;
        let resolved = self.catalog.resolve(asked).await?;
        if new.allowed_agents.as_ref().is_some_and(|allowed| !allowed.contains(&resolved.agent_name)) {
            return Err(StartError::AgentForbidden(resolved.agent_name));
        }
        let settings = &resolved.settings;
        let tools = self.offer(settings, new)?;
        let system = settings.system.iter().map(|text| Message::text(Role::System, text));
        let mut spec = RunSpec {
            id: RunId::mint(),
            tenant: new.tenant.clone(),
            session: new.session.clone(),
            created_ms: now_ms(),
            model: asked.to_owned(),
            agent: resolved.agent_name,
            upstream: resolved.upstream,
            upstream_model: resolved.model_name,
            system: system.chain(new.system.iter().cloned()).collect(),
            history_len: session.map_or(0, |session| session.message_count),
            input: new.messages.clone(),
            context_tokens: 0,
            tools,
            client_tools: new.client_tools.clone(),
            tool_choice: new.tool_choice.clone(),
            parameters: new.parameters.clone(),
            max_output_tokens: new.max_output_tokens.unwrap_or(u64::MAX).min(resolved.facts.max_output_tokens),
            limits: narrow(settings, new.limits)?,
            price: resolved.facts.price,
            price_estimated: resolved.price_estimated,
            parallel_tool_calls: new.parallel_tool_calls,
            on_limit: new.on_limit.unwrap_or(settings.on_limit),
            on_disconnect: new.on_disconnect,
            on_unknown_outcome: new.on_unknown_outcome,
            reconnect_grace_ms: new.reconnect_grace_ms,
            hide_intermediate_text: new.hide_intermediate_text,
            stream_tool_arguments: new.stream_tool_arguments,
            max_discards: new.max_discards,
        };
        let definitions = Toolbox::new(&self.tools, &spec).definitions();
        spec.context_tokens = context::estimate(&spec, history.len(), definitions.len());
        if spec.context_tokens > resolved.facts.context_window {
            let message = format!(
                "the messages take about {} tokens; the model {} takes {}",
                spec.context_tokens, spec.upstream_model, resolved.facts.context_window
            );
            return Err(StartError::ContextLength(message));
        }
        Ok(spec)
    }

    /// The server's tools that the run is offered.
    fn offer(&self, settings: &AgentConfig, new: &NewRun) -> Result<Vec<String>, StartError> {
        let allowed = self.tools.select(&settings.tools);
        let mut names: Vec<String> = allowed.iter().map(|tool| tool.spec().name.clone()).collect();
        if let Some(patterns) = &new.tools {
            let wanted = self.tools.select(patterns);
            names.retain(|name| wanted.iter().any(|tool| tool.spec().name == *name));
            let unmatched = patterns.iter().find(|pattern| {
                let matched = self.tools.select(std::slice::from_ref(pattern));
                !matched.iter().any(|tool| names.iter().any(|name| *name == tool.spec().name))
            });
            if let Some(pattern) = unmatched {
                return Err(StartError::ToolNotAllowed(pattern.clone()));
            }
        }
        for (index, tool) in new.client_tools.iter().enumerate() {
            if let Some(message) = Toolbox::refusal(tool) {
                return Err(StartError::Invalid { param: format!("tools[{index}].function.parameters"), message });
            }
        }
        if let Some(index) = new.client_tools.iter().position(|tool| names.contains(&tool.name)) {
            return Err(StartError::Invalid {
                param: format!("tools[{index}].function.name"),
                message: format!("the server has a tool named {:?} already", new.client_tools[index].name),
            });
        }
        match &new.tool_choice {
            Some(ToolChoice::Required) if names.is_empty() && new.client_tools.is_empty() => {
                let message = "a tool is required, and there is none".to_owned();
                Err(StartError::Invalid { param: "tool_choice".to_owned(), message })
            }
            Some(ToolChoice::Function(name))
                if !names.contains(name) && !new.client_tools.iter().any(|tool| tool.name == *name) =>
            {
                let message = format!("there is no tool named {name:?}");
                Err(StartError::Invalid { param: "tool_choice".to_owned(), message })
            }
            Some(ToolChoice::Required | ToolChoice::Function(_)) | None => Ok(names),
        }
    }

    /// Refuses a run whose budgets have no room for a single model call.
    async fn has_budget(&self, spec: &Arc<RunSpec>, session: Option<&Session>) -> Result<(), StartError> {
        let started = recorder::encode(&mut 0, Event::RunStarted).0;
        let mut run = Run::new(spec.clone());
        run.apply(&started);
        let reserve = match run.next_step() {
            Step::CallModel { reserve, .. } => reserve,
            Step::Finish(reason) => return Err(StartError::BudgetExceeded(reason)),
            Step::DiscardStep(_)
            | Step::WarnBudget { .. }
            | Step::RunTools(_)
            | Step::SettleUnknown { .. }
            | Step::SkipTools(_)
            | Step::CompleteStep
            | Step::Done => return Ok(()),
        };
        let Some(session) = session else { return Ok(()) };
        let partition = keys::session_partition(&spec.tenant, &session.id);
        let mut left = [u64::MAX; 2];
        let budgets = [
            (session.token_budget, keys::session_tokens()),
            (session.cost_budget.map(|cost| cost.0), keys::session_cost()),
        ];
        for (left, (budget, counter)) in left.iter_mut().zip(budgets) {
            if let Some(budget) = budget {
                let used = self.store.counter(&partition, &counter).await?;
                *left = budget.saturating_sub(u64::try_from(used).unwrap_or(0));
            }
        }
        let [tokens, cost] = left;
        match crate::agent::budget::shrink(spec, reserve, tokens, Micros(cost)) {
            Some(_) => Ok(()),
            None if tokens < reserve.tokens() => Err(StartError::BudgetExceeded(StopReason::TokenBudget)),
            None => Err(StartError::BudgetExceeded(StopReason::CostBudget)),
        }
    }

    /// Stores the run with its first event; `false` if its session changed meanwhile.
    async fn create(&self, spec: &RunSpec, session: Option<Versioned>) -> Result<bool, StartError> {
        kill::point("run.before_create");
        let (_, entry) = recorder::encode(&mut 0, Event::RunStarted);
        let mut tx = Tx::new(keys::partition_of(spec))
            .put_at(keys::spec(&spec.id), 0, encode(spec), None)
            .write(Write::Put { key: keys::head(&spec.id), value: encode(&Head::new(spec)), ttl: None })
            .write(Write::Append { log: keys::events(&spec.id), after: 0, entries: vec![entry] });
        if let Some(id) = &spec.session {
            let (version, session) = match session {
                Some(found) => (found.version, found.session),
                None => (0, Session::new(id.clone())),
            };
            let ttl = self.session_ttl_under(&session, spec);
            let session = Session { active_run: Some(spec.id.clone()), ..session };
            if version == 0 {
                // An expired session of the same name leaves nothing to its successor.
                tx = forget_session(tx);
            }
            tx = tx
                .put_at(keys::session(), version, encode(&session), Some(ttl))
                .write(Write::ExpireLog { log: keys::messages(), ttl });
            self.index_session(&spec.tenant, &session).await?;
        }
        // The indexes come first: what they name may not exist yet, but nothing exists unnamed.
        let live = Self::mark_live(&spec.tenant, spec.session.as_ref(), &spec.id);
        tokio::try_join!(self.store.commit(self.index_entry(spec)), self.store.commit(live)).map_err(unavailable)?;
        kill::point("run.indexed");
        match self.store.commit(tx).await {
            Ok(()) => {
                kill::point("run.created");
                Ok(true)
            }
            Err(CommitError::VersionConflict { .. }) => Ok(false),
            Err(error) => Err(unavailable(error).into()),
        }
    }

    /// The run's entry in its tenant's index.
    pub(super) fn index_entry(&self, spec: &RunSpec) -> Tx {
        let ttl = UNFINISHED + self.keep.run + Duration::from_millis(spec.limits.timeout_ms);
        let entry = Write::Put { key: keys::run_entry(&spec.id), value: encode(&spec.session), ttl: Some(ttl) };
        Tx::new(keys::tenant_partition(&spec.tenant)).write(entry)
    }

    /// Goes on with a waiting run, whose client answered.
    async fn continue_run(&self, new: &NewRun, head: &Head) -> Result<Started, StartError> {
        let idle = self.take_up(&new.tenant, head).await?.ok_or_else(|| StartError::NotWaiting(head.id.clone()))?;
        if new.allowed_agents.as_ref().is_some_and(|allowed| !allowed.contains(&idle.spec.agent)) {
            let agent = idle.spec.agent.clone();
            idle.release().await?;
            return Err(StartError::AgentForbidden(agent));
        }
        let required = Run::new(idle.spec.clone()).replayed(&idle.records).required_calls();
        let unanswered = required.iter().find(|call| !new.answered.contains(&call.id));
        let unasked = new.answered.iter().position(|id| !required.iter().any(|call| call.id == *id));
        let problem = match (unanswered, unasked) {
            (Some(call), _) => Some((new.answers_from, format!("the call {} is not answered", call.id))),
            (None, Some(index)) => {
                let what = format!("the run does not wait for the call {}", new.answered[index]);
                Some((new.answers_from + index, what))
            }
            (None, None) => None,
        };
        if let Some((index, message)) = problem {
            idle.release().await?;
            return Err(StartError::Invalid { param: format!("messages[{index}]"), message });
        }
        // Results first, in call order, so that nothing stands between a call and its result; what
        // else the client says follows. A session keeps no instructions.
        let said = &new.messages[new.answers_from..];
        let results = said.iter().filter(|message| message.role == Role::Tool);
        let mut results: Vec<_> = new.answered.iter().zip(results).collect();
        results.sort_by_key(|(id, _)| required.iter().position(|call| call.id == **id));
        let in_session = idle.spec.session.is_some();
        let rest = said.iter().filter(|message| match message.role {
            Role::Tool => false,
            Role::System | Role::Developer => !in_session,
            Role::User | Role::Assistant => true,
        });
        let answers = results.into_iter().map(|(_, message)| message).chain(rest).cloned().collect();
        let follower = self.resume(idle, answers).await?;
        Ok(Started { head: Head { status: RunStatus::InProgress, ..head.clone() }, follower })
    }

    /// Ends a run that waited for its client.
    async fn abandon(&self, tenant: &Tenant, session: &Session, run: &RunId) -> Result<(), StartError> {
        let partition = keys::session_partition(tenant, &session.id);
        match crate::agent::head::read(&*self.store, &partition, run).await? {
            Some(head) if head.status == RunStatus::RequiresAction => Ok(self.stop_idle(tenant, &head).await?),
            Some(_) | None => Ok(()),
        }
    }
}

/// The agent's limits, lowered to what the request asks for. They are a ceiling: asking for more is an
/// error.
fn narrow(settings: &AgentConfig, asked: LimitsPatch) -> Result<Limits, StartError> {
    let ceiling = &settings.limits;
    let above = |param: &str, ceiling: String| {
        let message = format!("this is above the agent's limit of {ceiling}");
        StartError::Invalid { param: format!("agent.limits.{param}"), message }
    };
    let bounded = |param, asked: Option<u64>, ceiling: Option<u64>| match (asked, ceiling) {
        (Some(asked), Some(ceiling)) if asked > ceiling => Err(above(param, ceiling.to_string())),
        (Some(asked), _) => Ok(Some(asked)),
        (None, ceiling) => Ok(ceiling),
    };
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let time = |param, asked, ceiling| -> Result<u64, StartError> {
        Ok(bounded(param, asked, Some(millis(ceiling)))?.unwrap_or(millis(ceiling)))
    };
    let iterations =
        bounded("max_iterations", asked.max_iterations.map(u64::from), Some(u64::from(ceiling.max_iterations)))?;
    let cost = match (asked.cost_budget, ceiling.cost_budget) {
        (Some(asked), Some(ceiling)) if asked > ceiling => {
            return Err(above("cost_budget_usd", ceiling.as_usd().to_string()));
        }
        (asked, ceiling) => asked.or(ceiling),
    };
    Ok(Limits {
        max_iterations: iterations.and_then(|count| u32::try_from(count).ok()).unwrap_or(ceiling.max_iterations),
        timeout_ms: time("timeout_ms", asked.timeout_ms, ceiling.timeout)?,
        tool_timeout_ms: time("tool_timeout_ms", asked.tool_timeout_ms, ceiling.tool_timeout)?,
        token_budget: bounded("token_budget", asked.token_budget, ceiling.token_budget)?,
        cost_budget: cost,
    })
}
