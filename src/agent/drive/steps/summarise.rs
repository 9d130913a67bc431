//! Asks a model for a summary of messages, which then replaces them: one call, of which what it may take is reserved before, and
//! which is charged however it ends.
//!
//! The call is made under the run's lease, so no other replica makes it too. Its summary is stored with what it took. Where the call
//! fails, or a budget has no room for it, another method follows, and the run goes on.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::context::fit::cut::Cut;
use crate::agent::context::fit::transcript::{INSTRUCTIONS, transcript};
use crate::agent::context::request::summary_request;
use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::signals::Interruption;
use crate::agent::drive::steps::beside::{End, Heard, called, charge, hear, reserve_and_record};
use crate::agent::drive::steps::conversation::{failed, queue, subject, tell};
use crate::agent::limits::quota::Refusal;
use crate::agent::machine::budget::{self, partial_usage};
use crate::failpoint;
use crate::llm::Spent;
use crate::types::context::{Compacted, CompactionFailed, CompactionStarted, ContextEvent, Method, SummaryCall, View};
use crate::types::event::Reservation;
use crate::types::fallback::CallTerms;
use crate::types::price::StepModel;
use crate::types::{Event, Used};

/// How many bytes of what a model is given are a token at least: more than what text usually has would not fit.
const BYTES: u64 = 3;
/// A summary has at most this part of the model's window.
const MOST_PART: u64 = 4;

/// What a model is asked.
pub(super) struct Asked {
    /// Which messages the summary is to replace.
    pub(super) cut: Cut,
}

/// A model, what its call is planned by, and what it is told.
struct Question {
    model: Arc<StepModel>,
    terms: CallTerms,
    messages: u64,
    text: String,
}

/// Asks, and records the summary or that there is none.
pub(super) async fn summarise(driver: &mut Driver, asked: Asked) -> Result<(), Exit> {
    let step = driver.recorder.run().step() + 1;
    let question = match question(driver, &asked.cut).await {
        Ok(question) => question,
        Err(why) => {
            give_up(driver, step, &why);
            return Ok(());
        }
    };
    let started = match begin(driver, step, &question).await? {
        Begun::Made(started) => started,
        Begun::Refused(why) => {
            give_up(driver, step, &why);
            return Ok(());
        }
        // A command came first. What it brings may matter.
        Begun::Told => return Ok(()),
    };
    failpoint::hit("compaction.before_call");
    let begun = Instant::now();
    let timeout = Duration::from_millis(driver.recorder.run().spec().rules.context.summary.timeout_ms);
    let request = summary_request(driver.recorder.run(), &started, (INSTRUCTIONS, &question.text), timeout);
    let mut deltas = driver.generation.catalog.model(&started.model.upstream).stream(request);
    let mut heard = Heard::default();
    let end = hear(driver, &mut deltas, &mut heard, (timeout, "no summary")).await;
    drop(deltas);
    failpoint::hit("compaction.answered");
    if matches!(end, End::Interrupted(Interruption::Leave)) && heard.spent() != Spent::Nothing {
        return Err(Exit::HandedOff);
    }
    let (usage, unconfirmed) = charge(started.reserved, &started.model, &end, &heard);
    let call = SummaryCall { model: started.model.clone(), messages: started.messages, usage, unconfirmed };
    let latency_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let event = ended(driver, step, (&asked.cut, &end), (latency_ms, call));
    tell(driver, &event);
    settle(driver, event).await?;
    failpoint::hit("compaction.settled");
    match end {
        End::Interrupted(interruption) => driver.handle_interruption(interruption),
        End::Said(_) | End::Failed(_) => Ok(()),
    }
}

/// Charges a call that a crash interrupted: what it had said is lost, and a summary is asked for again if the run goes on.
pub async fn drop_summary(driver: &mut Driver, started: CompactionStarted) -> Result<(), Exit> {
    let CompactionStarted { step, messages, model, reserved } = started;
    let (usage, unconfirmed) = partial_usage(reserved, Some(reserved.output_tokens), &model.price, 0);
    let call = Some(Box::new(SummaryCall { model, messages, usage, unconfirmed }));
    let reason = "it was interrupted".to_owned();
    let failed = CompactionFailed { step, method: Method::Llm, reason, interrupted: true, latency_ms: 0, call };
    settle(driver, ContextEvent::CompactionFailed(failed)).await
}

/// What the call came to.
fn ended(driver: &Driver, step: u32, (cut, end): (&Cut, &End), (latency_ms, call): (u64, SummaryCall)) -> ContextEvent {
    let (call, whole) = (Some(Box::new(call)), View::default());
    let (reason, interrupted) = match end {
        End::Said(turn) => {
            let text = turn.text().trim().to_owned();
            if text.is_empty() {
                ("the model gave no summary".to_owned(), false)
            } else if let Some(compacted) = subject(driver, &whole).compacted(cut, Method::Llm, text) {
                return ContextEvent::Compacted(Compacted { latency_ms, call, ..compacted });
            } else {
                ("the summary is as long as what it is of".to_owned(), false)
            }
        }
        End::Failed(error) => (error.to_string(), false),
        End::Interrupted(_) => ("it was interrupted".to_owned(), true),
    };
    let method = Method::Llm;
    ContextEvent::CompactionFailed(CompactionFailed { step, method, reason, interrupted, latency_ms, call })
}

/// Records that no model is asked, and why.
fn give_up(driver: &mut Driver, step: u32, why: &str) {
    queue(driver, failed(step, Method::Llm, why));
}

async fn settle(driver: &mut Driver, event: ContextEvent) -> Result<(), Exit> {
    let event = Event::Context(Box::new(event));
    Ok(driver.meter.settle(&mut driver.recorder, Reservation::default(), event, None).await?)
}

/// The model that is asked, and what it is told; else why none is asked.
async fn question(driver: &Driver, cut: &Cut) -> Result<Question, String> {
    let run = driver.recorder.run();
    let rules = &run.spec().rules.context.summary;
    let (model, terms) = called(driver, rules.model.as_deref()).await?;
    let most = u64::from(rules.max_tokens).min(terms.max_output_tokens).min(terms.context_window / MOST_PART);
    let room = terms.context_window.saturating_sub(most + budget::estimate(INSTRUCTIONS.len())) * BYTES;
    let whole = View::default();
    let subject = subject(driver, &whole);
    let replaced = subject.of_cut(cut.clone());
    let text = transcript(&replaced.messages, replaced.earlier, usize::try_from(room).unwrap_or(usize::MAX));
    let terms = CallTerms { max_output_tokens: most, ..terms };
    Ok(Question { model, terms, messages: replaced.messages.len() as u64, text })
}

/// Whether a call begins.
enum Begun {
    Made(CompactionStarted),
    Refused(String),
    /// A command came first, and is applied.
    Told,
}

/// Reserves what the call may take and records that it is made.
async fn begin(driver: &mut Driver, step: u32, question: &Question) -> Result<Begun, Exit> {
    let tokens = budget::estimate(INSTRUCTIONS.len() + question.text.len());
    let run = driver.recorder.run();
    // A summary is of no use to a run that cannot pay for the call that follows.
    let next = budget::least_of(&run.terms(), run.most_context()).whole();
    let next = if run.spec().compacts { Used::default() } else { next };
    let reserved = match run.plan_judging(&question.terms, tokens, next) {
        Ok(reserved) => reserved,
        Err(reason) => {
            return Ok(Begun::Refused(format!("a budget of the run has no room for it ({})", reason.as_str())));
        }
    };
    let (model, messages) = (question.model.clone(), question.messages);
    let started = CompactionStarted { step, messages, model, reserved };
    let event = Event::Context(Box::new(ContextEvent::CompactionStarted(started.clone())));
    match reserve_and_record(driver, (step, reserved), event, |tx| tx).await {
        Ok(true) => Ok(Begun::Made(started)),
        Ok(false) => Ok(Begun::Told),
        Err(Refusal::Short(short)) => Ok(Begun::Refused(format!("a budget of the {} has no room for it", short.owner))),
        Err(Refusal::Failed(error)) => Err(error.into()),
    }
}
