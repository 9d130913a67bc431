//! Continues a run that waits for its client.

use std::sync::Arc;

use crate::agent::admission::approve::Decided;
use crate::agent::admission::backoff::Backoff;
use crate::agent::admission::claims::HeldClaim;
use crate::agent::admission::question::answered_in_words;
use crate::agent::admission::screened::screened;
use crate::agent::admission::{Admission, Started, named, previous, rules, transcript, unsupported};
use crate::agent::error::{Field, LookupError, PreviousError, StartError};
use crate::agent::generation::Generation;
use crate::agent::launch::ready::Idle;
use crate::agent::launch::resume::{Answer, NotResumed};
use crate::agent::ledger::claim::Target;
use crate::agent::ledger::head::Head;
use crate::agent::limits::left::SharedSession;
use crate::agent::limits::quota::Account;
use crate::agent::machine::Run;
use crate::agent::request::NewRun;
use crate::agent::run_memory::{self, Purpose};
use crate::types::approval::Approval;
use crate::types::conversation::requested;
use crate::types::event::{Asked, Decision, Leg};
use crate::types::offer::{ToolChoice, ToolDefinition};
use crate::types::outcome::RequiredCall;
use crate::types::pattern::matches;
use crate::types::sampling::Sampling;
use crate::types::{CallId, History, Message, Role, RunId, RunSpec, RunStatus};

/// What a request to a waiting run comes to.
enum Admitted {
    /// The run goes on.
    GoesOn(Vec<Approval>, Option<Leg>),
    /// The run waits on, for what is not decided yet.
    WaitsOn(Vec<Approval>),
}

impl Admission {
    /// Continues this run if it waits for its client, who may have named it.
    pub(super) async fn continue_waiting(
        &self,
        new: &NewRun,
        run: &RunId,
        claim: Option<&mut HeldClaim>,
    ) -> Result<Option<Started>, StartError> {
        let is_named = new.run.is_some();
        match self.ledger.find_run(&new.tenant, run).await {
            Ok((_, head)) if head.status == RunStatus::RequiresAction => {
                self.continue_run(new, &head, claim).await.map(Some)
            }
            Ok(_) if is_named => Err(StartError::NotWaiting(run.clone())),
            Err(LookupError::Store(error)) => Err(error.into()),
            Err(_) if is_named => Err(StartError::RunNotFound(run.to_string())),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// The lease and the log of a waiting run. While another process has the lease, this waits: that process is about
    /// to resume the run, or it died and its lease expires.
    async fn acquire_waiting(&self, new: &NewRun, head: &Head) -> Result<Idle, StartError> {
        let (tenant, mut wait) = (&new.tenant, Backoff::new(self.lifecycle.ending(), new.memory.clone()));
        loop {
            if let Some(idle) = self.launcher.acquire_idle(tenant, head).await? {
                if idle.status() == RunStatus::RequiresAction {
                    return Ok(idle);
                }
                // Its log is the truth, should the head be older.
                idle.release().await?;
                return Err(StartError::NotWaiting(head.id.clone()));
            }
            match self.ledger.find_run(tenant, &head.id).await {
                Ok((_, head)) if head.status == RunStatus::RequiresAction => wait.pause().await?,
                Err(LookupError::Store(error)) => return Err(error.into()),
                Ok(_) | Err(_) => return Err(StartError::NotWaiting(head.id.clone())),
            }
        }
    }

    /// Goes on with a waiting run whose client answered all of its calls, or leaves it waiting. If its tenant seems to
    /// have no room for the answers, what it stores is counted anew.
    async fn continue_run(
        &self,
        new: &NewRun,
        head: &Head,
        mut claim: Option<&mut HeldClaim>,
    ) -> Result<Started, StartError> {
        loop {
            match self.try_to_continue(new, head, claim.as_deref_mut()).await? {
                Ok(started) => return Ok(started),
                Err(NotResumed::NoRoom(bytes)) => self.ledger.recount(&new.tenant, bytes).await?,
                Err(NotResumed::Failed(error)) => return Err(error.into()),
            }
        }
    }

    async fn try_to_continue(
        &self,
        new: &NewRun,
        head: &Head,
        claim: Option<&mut HeldClaim>,
    ) -> Result<Result<Started, NotResumed>, StartError> {
        let generation = self.generation_of(new);
        let stored = self.launcher.memory_of(&new.tenant, head).await?;
        let bytes = stored.saturating_add(run_memory::size(&new.messages));
        let memory = self.launcher.memory.take(bytes, Purpose::Request).ok_or(StartError::OutOfMemory)?;
        let idle = self.acquire_waiting(new, head).await?;
        let admitted = match self.admit_request(new, &idle, &generation, claim).await {
            Ok(admitted) => admitted,
            Err(error) => {
                idle.release().await?;
                return Err(error);
            }
        };
        let (approvals, leg) = match admitted {
            Admitted::GoesOn(approvals, leg) => (approvals, leg),
            Admitted::WaitsOn(approvals) => {
                let follower = self.launcher.keep_approvals(idle, approvals).await?;
                let (head, session) = (head.clone(), SharedSession::unread(head));
                let follower = follower.to_first_end();
                return Ok(Ok(Started { head, follower, session, joined: false, replayed: false, answer: None }));
            }
        };
        let claim = new.claim.as_ref().map(|claim| self.ledger.claim_end(claim.ttl));
        let answer = Answer { approvals, leg, is_of_client: true, claim };
        let resumed = self.launcher.resume(idle, Some(answer), generation, memory).await;
        Ok(resumed.map(|follower| {
            let head = Head { status: RunStatus::InProgress, ..head.clone() };
            let session = SharedSession::unread(&head);
            Started { head, follower: follower.to_first_end(), session, joined: false, replayed: false, answer: None }
        }))
    }

    /// Checks what a request brings to a waiting run: answers of its client, or decisions about its calls.
    async fn admit_request(
        &self,
        new: &NewRun,
        idle: &Idle,
        generation: &Arc<Generation>,
        claim: Option<&mut HeldClaim>,
    ) -> Result<Admitted, StartError> {
        let pending: Vec<_> = idle.run().pending_calls().map(|pending| pending.name.as_str()).collect();
        if !pending.is_empty() {
            return Err(StartError::WaitsForServices { run: idle.spec().id.clone(), tools: pending.join(", ") });
        }
        let tools: Vec<_> = idle.run().approval_requests().map(|request| request.call.name.as_str()).collect();
        if new.approvals.is_empty() {
            if !tools.is_empty() {
                return Err(StartError::WaitsForApproval { run: idle.spec().id.clone(), tools: tools.join(", ") });
            }
            let leg = self.admit_answers(new, idle, generation, claim).await?;
            return Ok(Admitted::GoesOn(Vec::new(), Some(leg)));
        }
        let Decided { approvals, is_all } = self.check_approvals(new, idle, generation).await?;
        if !is_all {
            if new.options.response.is_some() {
                let left = idle.run().approval_requests().map(|request| request.call.id.clone());
                return Err(PreviousError::Undecided(previous::first_left(left, new)).into());
            }
            self.aim_claim(claim, idle, None).await?;
            return Ok(Admitted::WaitsOn(approvals));
        }
        let account = self.limits.take_slot(idle.spec(), &generation.quotas).await?;
        self.aim_claim(claim, idle, account).await?;
        let leg = idle.run().leg_of_decisions().map(|leg| asked_by(new, idle.run(), leg));
        Ok(Admitted::GoesOn(approvals, leg))
    }

    /// Lets a request's claim name the run that it continues. If that fails, the run goes on waiting: this request has its
    /// lease, so no other acquired the slot.
    async fn aim_claim(
        &self,
        claim: Option<&mut HeldClaim>,
        idle: &Idle,
        account: Option<Box<Account>>,
    ) -> Result<(), StartError> {
        let Some(claim) = claim else { return Ok(()) };
        let spec = idle.spec();
        let target = Target::Run { id: spec.id.clone(), session: spec.session.clone(), after: idle.seq() };
        if let Err(error) = self.set_target(claim, target).await {
            if let Some(mut account) = account {
                account.free_slot().await;
            }
            return Err(error);
        }
        Ok(())
    }

    /// Checks the answers to a waiting run, acquires the slot that the run needs, and returns the leg that resumes it.
    async fn admit_answers(
        &self,
        new: &NewRun,
        idle: &Idle,
        generation: &Generation,
        claim: Option<&mut HeldClaim>,
    ) -> Result<Leg, StartError> {
        let in_words = answered_in_words(new, idle.run());
        let (new, spec) = (in_words.as_ref().unwrap_or(new), idle.spec());
        if new.allowed_agents.as_ref().is_some_and(|allowed| !allowed.contains(&spec.agent)) {
            return Err(StartError::AgentForbidden(spec.agent.clone()));
        }
        // The client repeats what its first request said.
        check_unchanged(new, idle.run().first_spec())?;
        let model = generation.catalog.model(&idle.run().model().upstream);
        unsupported::refuse(&*model, &Sampling::default(), &new.messages, &History::default())?;
        let required = idle.run().required_calls();
        check_answered(new, &required)?;
        if let Some(lost) = required.iter().find(|required| new.of_page && required.reason.is_some()) {
            return Err(StartError::OutcomeForbidden(lost.call.id.clone()));
        }
        let decisions = decisions(new, &required);
        let mut answers = answers(new, &required, &decisions, spec.session.is_some());
        let guarded = screened(&mut answers, &spec.guards, new.answers_from, &idle.run().asked())?;
        let account = self.limits.take_slot(spec, &generation.quotas).await?;
        self.aim_claim(claim, idle, account).await?;
        let number = idle.run().leg() + 1;
        let (asked, answers) = (Box::new(asked(new)), requested(&spec.id, number, answers));
        let claim = new.claim.as_ref().map(|claim| claim.name.clone());
        Ok(Leg { number, claim, asked, answers, decisions, warnings: warnings(new, idle.run()), guarded })
    }
}

/// The leg with what the log keeps of the request whose decisions let a run go on.
fn asked_by(new: &NewRun, run: &Run, mut leg: Leg) -> Leg {
    // What its response says is the request's own, if it came through the Responses API.
    leg.asked.options.response.clone_from(&new.options.response);
    let claim = new.claim.as_ref().map(|claim| claim.name.clone());
    Leg { claim, warnings: warnings(new, run), ..leg }
}

/// What the request asks for beside its messages, as the log keeps it.
fn asked(new: &NewRun) -> Asked {
    Asked {
        model: new.model.clone(),
        system: new.system.clone(),
        client_tools: new.client_tools.iter().map(|tool| tool.name.clone()).collect(),
        max_output_tokens: new.max_output_tokens,
        options: new.options.clone(),
    }
}

/// Refuses a request that continues a run and asks for other settings than the run began with.
fn check_unchanged(new: &NewRun, spec: &RunSpec) -> Result<(), StartError> {
    let (asked, has) = (&new.limits, &spec.limits);
    let differs = |asked: Option<u64>, has: Option<u64>| asked.is_some() && asked != has;
    let removes_tools =
        new.tools.as_ref().filter(|patterns| !patterns.is_empty()).is_some_and(|patterns| {
            spec.tools.iter().any(|name| !patterns.iter().any(|pattern| matches(pattern, name)))
        });
    let is_clients = |tool: &Arc<ToolDefinition>| spec.client_tools.contains(tool);
    let changed = [
        (Field::Model, new.model.as_ref().is_some_and(|model| *model != spec.model)),
        (Field::ClientTools, !new.client_tools.iter().all(is_clients) || named::differ(new, spec).servers),
        (Field::Tools, removes_tools),
        (Field::MaxIterations, differs(asked.max_iterations.map(u64::from), Some(has.max_iterations.into()))),
        (
            Field::Member("agent.limits.max_tool_calls"),
            differs(asked.max_tool_calls.map(u64::from), has.max_tool_calls.map(u64::from)),
        ),
        (Field::Member("agent"), !rules::hold(&spec.rules, &new.rules)),
        (Field::InputGuard, new.guards.input.is_some_and(|input| input != spec.guards.input)),
        (
            Field::MaxMessageChars,
            new.guards.max_message_chars.is_some_and(|chars| chars != spec.guards.max_message_chars),
        ),
        (
            Field::MaxToolResultBytes,
            new.guards.max_tool_result_bytes.is_some_and(|bytes| bytes != spec.guards.results.max_bytes),
        ),
        (Field::Timeout, differs(asked.timeout_ms, Some(has.timeout_ms))),
        (Field::ToolTimeout, differs(asked.tool_timeout_ms, Some(has.tool_timeout_ms))),
        (Field::TokenBudget, differs(asked.token_budget, has.token_budget)),
        (Field::CostBudget, differs(asked.cost_budget.map(|cost| cost.0), has.cost_budget.map(|cost| cost.0))),
    ];
    let Some((field, _)) = changed.into_iter().find(|(_, is_changed)| *is_changed) else { return Ok(()) };
    let message = "a run that goes on keeps what it was begun with; leave this out, or repeat it".to_owned();
    Err(StartError::Invalid { field, message })
}

/// What a client should know whose request goes on with a run: what of it changes nothing.
fn warnings(new: &NewRun, run: &Run) -> Vec<String> {
    let spec = run.spec();
    let (asked, has) = (&new.options, &spec.options);
    let other_choice = asked.tool_choice != ToolChoice::Auto && asked.tool_choice != has.tool_choice;
    // A tier may have been left out when the run was accepted.
    let [wanted, kept] = [asked, has].map(|options| Sampling { service_tier: None, ..(*options.sampling).clone() });
    let other_sampling = wanted != Sampling::default() && wanted != kept;
    let ignored = [
        (
            transcript::differs(&new.messages[..new.answers_from], run) || !is_told(spec, &new.system),
            "the messages before the tool results are not those of the run, which went on with its own",
        ),
        (
            !new.metadata.is_empty() && new.metadata != spec.metadata,
            "the run keeps the metadata of the request that began it",
        ),
        (
            other_choice || other_sampling,
            "the run asks its model as the request that began it said: other parameters changed nothing",
        ),
    ];
    let other_prompt = new
        .prompt
        .as_ref()
        .is_some_and(|asked| Some(asked.digest()) != spec.prompt.as_ref().and_then(|prompt| prompt.asked));
    let keeps = "the run keeps the prompt that it began with: `agent.prompt` changed nothing";
    let shows = "the run shows the MCP servers that it named what the request that began it says: other headers changed nothing";
    let ignored = ignored.into_iter().chain([(named::differ(new, spec).headers, shows), (other_prompt, keeps)]);
    let ignored = ignored.filter(|(is_ignored, _)| *is_ignored);
    new.warnings.iter().cloned().chain(ignored.map(|(_, warning)| warning.to_owned())).collect()
}

/// Whether a run is told all of these instructions of a request.
fn is_told(spec: &RunSpec, system: &[Message]) -> bool {
    system.is_empty() || spec.system.windows(system.len()).any(|told| told == system)
}

/// Refuses a request that answers other calls than those that the run waits for.
fn check_answered(new: &NewRun, required: &[RequiredCall]) -> Result<(), StartError> {
    let unanswered = required.iter().map(|required| &required.call).find(|call| !new.answered.contains(&call.id));
    let unasked = new.answered.iter().position(|id| !required.iter().any(|required| required.call.id == *id));
    let (index, message) = match (unanswered, unasked) {
        (Some(call), _) => (new.answers_from, format!("the call {} is not answered", call.id)),
        (None, Some(index)) => {
            (new.answers_from + index, format!("the run does not wait for the call {}", new.answered[index]))
        }
        (None, None) => return Ok(()),
    };
    Err(StartError::Invalid { field: Field::Message(index), message })
}

/// What the client decides. Only of calls whose outcome is not known there is something to decide: of any other, the
/// same words are its result.
fn decisions(new: &NewRun, required: &[RequiredCall]) -> Vec<(CallId, Decision)> {
    let is_asked = |id: &CallId| required.iter().any(|required| required.call.id == *id && required.reason.is_some());
    new.decisions.iter().filter(|(id, _)| is_asked(id)).cloned().collect()
}

/// What joins the conversation: results first, in call order, so that nothing stands between a call and its
/// result; what else the client says follows. A session keeps no instructions.
fn answers(
    new: &NewRun,
    required: &[RequiredCall],
    decisions: &[(CallId, Decision)],
    in_session: bool,
) -> Vec<Message> {
    let said = &new.messages[new.answers_from..];
    let results = said.iter().filter(|message| message.role == Role::Tool);
    let mut results: Vec<_> = new.answered.iter().zip(results).collect();
    results.retain(|(id, _)| !decisions.iter().any(|(decided, _)| decided == *id));
    results.sort_by_key(|(id, _)| required.iter().position(|required| required.call.id == **id));
    let rest = said.iter().filter(|message| match message.role {
        Role::Tool => false,
        Role::System | Role::Developer => !in_session,
        Role::User | Role::Assistant => true,
    });
    results.into_iter().map(|(_, message)| message).chain(rest).cloned().collect()
}
