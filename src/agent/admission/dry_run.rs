//! What a request would be as a run, without one: nothing is called, stored or reserved.

use std::sync::Arc;

use tokio::time::Instant;

use crate::agent::admission::Admission;
use crate::agent::admission::budget::begun;
use crate::agent::admission::composite::refuse_dry_run;
use crate::agent::admission::specify::Specified;
use crate::agent::admission::told::of_agent;
use crate::agent::admission::transcript::refuse_unasked_results;
use crate::agent::context::fit::shown::Shown;
use crate::agent::context::model_request;
use crate::agent::error::{Field, StartError};
use crate::agent::generation::Generation;
use crate::agent::machine::ceiling::{Ceiling, ceiling};
use crate::agent::machine::{Run, Step, budget};
use crate::agent::request::NewRun;
use crate::llm::pricing::MORE_THAN_ANY;
use crate::types::context::Method;
use crate::types::event::Reservation;
use crate::types::offer::ToolOffer;
use crate::types::prompt::SectionNote;
use crate::types::{Conversation, Message, RunSpec};

/// What a request would be as a run.
#[derive(Debug)]
pub struct DryRun {
    /// All that would shape the run.
    pub spec: Arc<RunSpec>,
    /// What its first model call would send, unless it is made to fit before.
    pub conversation: Conversation,
    /// How many of the session's messages precede its own.
    pub history: usize,
    /// How much of that what is.
    pub sizes: Sizes,
    /// The tools that it would be offered.
    pub tools: ToolOffer,
    /// The sections of its prompt, in their order.
    pub sections: Vec<SectionNote>,
    /// Whether the caller may read what the configuration tells models.
    pub shows_prompt: bool,
    /// Its input by estimate, and how much of that is too much.
    pub context_tokens: u64,
    /// More than this is too much.
    pub most_context: u64,
    /// The model's window; `None` if it is not known.
    pub window: Option<u64>,
    /// How the conversation would be shortened first, if it is too long.
    pub shortens: Option<Method>,
    /// What would be reserved for its first call; `None` if none can be made now.
    pub first_call: Option<Reservation>,
    /// What all of it can come to.
    pub ceiling: Ceiling,
    /// Why it would be refused by a budget now.
    pub refused: Option<String>,
}

/// How many bytes of text what is sent is to a model, about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// What it is told before the conversation.
    pub system: usize,
    /// What it is told for this run alone.
    pub of_run: usize,
    /// The session's earlier messages, as far as they are shown.
    pub history: usize,
    /// The messages of the request.
    pub input: usize,
    /// The definitions of tools.
    pub tools: usize,
}

impl Admission {
    /// What a request would be as a run now.
    pub async fn dry_run(&self, new: &NewRun) -> Result<DryRun, StartError> {
        let Some(previous) = &new.previous else { return self.dry_run_of(new).await };
        let new = self.with_previous(new, previous).await?;
        self.dry_run_of(&new).await
    }

    async fn dry_run_of(&self, new: &NewRun) -> Result<DryRun, StartError> {
        refuse_unfit(new)?;
        refuse_unasked_results(new)?;
        let session = match &new.session {
            Some(id) => self.ledger.find_session(&new.tenant, id).await?.map(|found| found.session),
            None => None,
        };
        self.take_memory(new, session.as_ref())?;
        let history = self.history_of(new, session.as_ref()).await?;
        let generation = self.generation_of(new);
        let Specified { spec, tools, .. } = self.specify(new, &generation, session.as_ref(), &history).await?;
        refuse_dry_run(&spec)?;
        let refused = match self.has_budget(&spec, session.as_ref(), &generation.quotas).await {
            Err(StartError::BudgetExceeded { short, .. }) => Some(short.to_string()),
            result => result.map(|()| None)?,
        };
        let run = begun(&spec);
        let shown = run.view().map(|view| Shown::of(view, &spec.rules.context.pruning, &history, run.messages()));
        let parts = (&history, shown.as_ref());
        let request = model_request(&run, parts, &tools, None, None, true, Instant::now());
        let (first_call, shortens) = first_step(&run);
        let shown =
            shown.map_or(history.weight() + weight(run.messages()), |shown| shown.with(run.messages()).weight());
        let sizes = Sizes {
            system: weight(&spec.system),
            of_run: spec.told_weight() - weight(&spec.system),
            history: shown.saturating_sub(weight(&spec.input)),
            input: weight(&spec.input),
            tools: request.tools.weight(),
        };
        Ok(DryRun {
            history: usize::try_from(history.count()).unwrap_or(usize::MAX),
            sizes,
            tools: request.tools,
            conversation: request.conversation,
            sections: sections(&spec, &generation),
            shows_prompt: shows_prompt(&spec, &generation),
            context_tokens: run.next_input(),
            most_context: run.most_context(),
            window: Some(run.spec().context_window).filter(|window| *window < MORE_THAN_ANY),
            shortens,
            first_call,
            ceiling: ceiling(&spec),
            refused,
            spec,
        })
    }
}

/// Refuses what would have to be done to say anything about it.
fn refuse_unfit(new: &NewRun) -> Result<(), StartError> {
    let why = if new.run.is_some() {
        "begins no run, and cannot go on with one"
    } else if new.servers.is_some() {
        "asks no MCP servers for their tools; leave those of the request out"
    } else {
        return Ok(());
    };
    Err(StartError::Invalid { field: Field::Member("agent.dry_run"), message: why.to_owned() })
}

/// What would be reserved for the first call, or how the conversation would be made to fit before it.
fn first_step(run: &Run) -> (Option<Reservation>, Option<Method>) {
    let step = run.next_step();
    if let Step::CallModel { reserve, .. } = step {
        return (Some(reserve), None);
    }
    let Step::Fit(method) = step else { return (None, None) };
    let purpose = budget::Purpose::Step { keep_reserve: false };
    let planned = budget::plan(&run.spec().limits, &run.terms(), run.used(), run.most_context(), purpose);
    (planned.ok(), method)
}

/// The sections of a prompt. One that is nothing but its agent's `system` has that one.
fn sections(spec: &RunSpec, generation: &Generation) -> Vec<SectionNote> {
    if let Some(prompt) = &spec.prompt {
        return prompt.sections.clone();
    }
    let agent = generation.catalog.agent(&spec.agent);
    agent.and_then(|agent| agent.system.as_deref()).map(|text| of_agent(text).note()).into_iter().collect()
}

fn shows_prompt(spec: &RunSpec, generation: &Generation) -> bool {
    generation.catalog.agent(&spec.agent).is_some_and(|agent| agent.prompt.reveal)
}

fn weight(messages: &[Message]) -> usize {
    messages.iter().map(Message::weight).sum()
}
