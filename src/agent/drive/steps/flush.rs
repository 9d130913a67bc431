//! Lets a model write into its memory what matters in messages that are to be replaced, before they are: a small loop of its own, under
//! the run's lease, in which the model has nothing but its memory.
//!
//! The commit that begins it names the messages in the session's document, so no other run writes down the same. Each call of the model
//! is reserved before and charged however it ends, and what it said is stored before its calls are made. Whatever fails, the messages
//! are replaced all the same: the report and the metrics say that it failed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_128;

use crate::agent::context::filter::find_written_calls;
use crate::agent::context::fit::transcript::transcript;
use crate::agent::context::request::flush_request;
use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::signals::Interruption;
use crate::agent::drive::steps::beside::{End, Heard, called, charge, hear, reserve_and_record};
use crate::agent::drive::steps::conversation::tell;
use crate::agent::drive::steps::finish::read_session;
use crate::agent::drive::steps::flush_call;
use crate::agent::ledger::commits::claim_flush;
use crate::agent::ledger::session::Versioned;
use crate::agent::limits::quota::Refusal;
use crate::agent::machine::Run;
use crate::agent::machine::budget::{self, partial_usage};
use crate::agent::machine::flushed::{Flush, Next};
use crate::failpoint;
use crate::llm::{ModelCall, ModelPart, ModelTurn, Spent};
use crate::store::{CommitError, Tx};
use crate::types::context::{ContextEvent, FLUSH_PROMPT, FlushAnswered, FlushAsked, FlushEnded, SummaryCall};
use crate::types::conversation::{Part, PartKind};
use crate::types::event::Reservation;
use crate::types::fallback::CallTerms;
use crate::types::memory::MEMORY_TOOLS;
use crate::types::offer::ToolOffer;
use crate::types::price::StepModel;
use crate::types::{CallId, Event, Message, Role, ToolCall, Used};

/// How many bytes of what a model is given are a token at least.
const BYTES: u64 = 3;
/// An answer has at most this part of the model's window, and so has what was said in all rounds before.
const MOST_PART: u64 = 4;
/// Most calls of one turn that are made.
const MOST_CALLS: usize = 16;
/// What stands behind the messages: small models answer these otherwise.
const ASKED: &str = "Write down now, with memory_write, what of this will matter later, and answer NO_REPLY then.";
/// How often others may change the session before it is given up.
const MOST_CONFLICTS: u32 = 8;

/// Which messages are to be written down.
#[derive(Debug, Clone, Copy)]
pub struct Due {
    /// The place of the first that nobody wrote down yet, as far as the run knows.
    pub from: u64,
    /// The place behind the last that is to be replaced.
    pub upto: u64,
}

/// Begins to write down what matters in messages that are to be replaced.
pub async fn flush(driver: &mut Driver, mut due: Due) -> Result<(), Exit> {
    for _ in 0..MOST_CONFLICTS {
        let session = read_session(driver).await?;
        let known = session.as_ref().and_then(|found| found.session.context.as_ref()).map_or(0, |known| known.flushed);
        due.from = due.from.max(known);
        let claimed = due.upto.min(driver.recorder.run().spec().history_len);
        if due.from >= due.upto || session.is_none() {
            end(driver, ended(driver, due, 0, None));
            return Ok(());
        }
        let claims = session.filter(|_| known < claimed).map(|session| (session, claimed));
        match ask(driver, due, (1, claims), patience(driver)).await {
            Err(Asking::Conflict) => {}
            Err(Asking::Exit(exit)) => return Err(exit),
            Ok(()) => return Ok(()),
        }
    }
    let why = "the session is being changed by others".to_owned();
    end(driver, ended(driver, due, messages(driver, due).len() as u64, Some(why)));
    Ok(())
}

/// Goes on with it, also where another replica left it.
pub async fn go_on(driver: &mut Driver) -> Result<(), Exit> {
    let Some(flush) = driver.recorder.run().flush() else { return Ok(()) };
    let (due, count, round) = (Due { from: flush.from, upto: flush.upto }, flush.messages, flush.round);
    if let Some(open) = flush.open.clone() {
        return drop_call(driver, open).await;
    }
    match driver.recorder.run().next_of_flush() {
        None => Ok(()),
        Some(Next::Call(call)) => {
            if let Some(interruption) = driver.signals.before_a_step() {
                return driver.handle_interruption(interruption);
            }
            if let Some(called) = flush_call::make(driver, call).await? {
                driver.recorder.queue(Event::Context(Box::new(ContextEvent::FlushCalled(called))));
            }
            Ok(())
        }
        Some(Next::Ask { round, within_ms }) => {
            match ask(driver, due, (round, None), Duration::from_millis(within_ms)).await {
                Ok(()) | Err(Asking::Conflict) => Ok(()),
                Err(Asking::Exit(exit)) => Err(exit),
            }
        }
        Some(Next::End(error)) => {
            end(driver, FlushEnded { round, ..ended(driver, due, count, error) });
            Ok(())
        }
    }
}

/// Why the model was not asked.
enum Asking {
    /// Another run changed the session first.
    Conflict,
    Exit(Exit),
}

impl<E: Into<Exit>> From<E> for Asking {
    fn from(error: E) -> Self {
        Self::Exit(error.into())
    }
}

/// Asks the model once, and records what it said, or that it ends here.
async fn ask(
    driver: &mut Driver,
    due: Due,
    (round, claims): (u32, Option<(Versioned, u64)>),
    within: Duration,
) -> Result<(), Asking> {
    if let Some(interruption) = driver.signals.before_a_step() {
        return Ok(driver.handle_interruption(interruption)?);
    }
    let count =
        driver.recorder.run().flush().map_or_else(|| messages(driver, due).len() as u64, |flush| flush.messages);
    let gives_up =
        |driver: &Driver, why: String| FlushEnded { round: round - 1, ..ended(driver, due, count, Some(why)) };
    let question = match question(driver, due).await {
        Ok(question) => question,
        Err(why) => {
            end(driver, gives_up(driver, why));
            return Ok(());
        }
    };
    let asked = match begin(driver, (due, round, count), claims, &question).await? {
        Begun::Made(asked) => asked,
        Begun::Refused(why) => {
            end(driver, gives_up(driver, why));
            return Ok(());
        }
        Begun::Told => return Ok(()),
    };
    failpoint::hit("flush.before_call");
    Ok(hear_out(driver, asked, question, within).await?)
}

/// Hears the model that was asked, and records what it said.
async fn hear_out(driver: &mut Driver, asked: FlushAsked, question: Question, within: Duration) -> Result<(), Exit> {
    let begun = Instant::now();
    let request = flush_request(driver.recorder.run(), &asked, (question.told, question.tools), within);
    let model = driver.generation.catalog.model(&asked.model.upstream);
    let mut deltas = model.stream(request);
    let mut heard = Heard::default();
    let mut end = hear(driver, &mut deltas, &mut heard, (within, "no answer")).await;
    drop(deltas);
    failpoint::hit("flush.answered");
    if matches!(end, End::Interrupted(Interruption::Leave)) && heard.spent() != Spent::Nothing {
        return Err(Exit::HandedOff);
    }
    let (usage, unconfirmed) = charge(asked.reserved, &asked.model, &end, &heard);
    let call = Box::new(SummaryCall { model: asked.model.clone(), messages: asked.messages, usage, unconfirmed });
    let latency_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (step, round) = (asked.step, asked.round);
    let event = match &mut end {
        End::Said(turn) => {
            let rules = driver.recorder.run().spec().guards.output.of_answer(false);
            find_written_calls(turn, rules, (&driver.tools, model.written_calls()));
            let parts = parts(driver.recorder.run(), &asked, turn);
            ContextEvent::FlushAnswered(FlushAnswered { step, round, parts, lost: false, latency_ms, call })
        }
        End::Interrupted(Interruption::Leave) => {
            let parts = Vec::new();
            ContextEvent::FlushAnswered(FlushAnswered { step, round, parts, lost: true, latency_ms, call })
        }
        End::Failed(_) | End::Interrupted(_) => {
            let error = if let End::Failed(error) = &end { error.to_string() } else { "it was interrupted".to_owned() };
            let FlushAsked { upto, messages, .. } = asked;
            let writes = driver.recorder.run().flush().map_or(0, |flush| flush.writes);
            let (error, call) = (Some(error), Some(call));
            ContextEvent::FlushEnded(FlushEnded { step, round, upto, messages, writes, error, latency_ms, call })
        }
    };
    tell(driver, &event);
    settle(driver, event).await?;
    failpoint::hit("flush.settled");
    match end {
        End::Interrupted(interruption) => driver.handle_interruption(interruption),
        End::Said(_) | End::Failed(_) => Ok(()),
    }
}

/// Charges a call that a crash interrupted: what it had said is lost.
async fn drop_call(driver: &mut Driver, open: FlushAsked) -> Result<(), Exit> {
    let FlushAsked { step, round, messages, model, reserved, .. } = open;
    let (usage, unconfirmed) = partial_usage(reserved, Some(reserved.output_tokens), &model.price, 0);
    let call = Box::new(SummaryCall { model, messages, usage, unconfirmed });
    let parts = Vec::new();
    let answered = FlushAnswered { step, round, parts, lost: true, latency_ms: 0, call };
    settle(driver, ContextEvent::FlushAnswered(answered)).await
}

async fn settle(driver: &mut Driver, event: ContextEvent) -> Result<(), Exit> {
    let event = Event::Context(Box::new(event));
    Ok(driver.meter.settle(&mut driver.recorder, Reservation::default(), event, None).await?)
}

/// That it ends without another call of the model.
fn ended(driver: &Driver, due: Due, messages: u64, error: Option<String>) -> FlushEnded {
    let run = driver.recorder.run();
    let (step, writes) = (run.step() + 1, run.flush().map_or(0, |flush| flush.writes));
    FlushEnded { step, round: 0, upto: due.upto, messages, writes, error, latency_ms: 0, call: None }
}

fn end(driver: &mut Driver, ended: FlushEnded) {
    let event = ContextEvent::FlushEnded(ended);
    tell(driver, &event);
    driver.recorder.queue(Event::Context(Box::new(event)));
    failpoint::hit("flush.recorded");
}

fn patience(driver: &Driver) -> Duration {
    Duration::from_millis(driver.recorder.run().spec().rules.context.flush.timeout_ms)
}

/// What is kept of what the model said. Its calls get ids that are the same whoever hears them, and that no other call has.
fn parts(run: &Run, asked: &FlushAsked, turn: &mut ModelTurn) -> Vec<Part> {
    let mut calls = 0;
    let said = std::mem::take(&mut turn.parts).into_iter().filter_map(|part| match part {
        ModelPart::Part(part) => Some(part).filter(|part| !part.is_unsealed_thinking()),
        ModelPart::Call(_) if calls == MOST_CALLS => None,
        ModelPart::Call(ModelCall { name, arguments }) => {
            calls += 1;
            let of = format!("{}/{}/{}/{calls}", run.spec().id, asked.upto, asked.round);
            let id = CallId::foreign(&format!("note_{:032x}", xxh3_128(of.as_bytes())));
            Some(PartKind::ToolCall(ToolCall { id, name, arguments }).into())
        }
    });
    said.collect()
}

/// The messages that it is about, as far as they are there.
fn messages(driver: &Driver, due: Due) -> Vec<&Message> {
    let (history, own) = (&driver.history, driver.recorder.run().messages());
    let placed = history.placed().chain((history.count()..).zip(own));
    placed.filter(|(place, _)| (due.from..due.upto).contains(place)).map(|(_, message)| message).collect()
}

/// A model, what its call is planned by, what it is told, and what it may call.
struct Question {
    model: Arc<StepModel>,
    terms: CallTerms,
    told: Vec<Message>,
    tools: ToolOffer,
}

/// What the model is asked now; else why none is asked.
async fn question(driver: &Driver, due: Due) -> Result<Question, String> {
    let run = driver.recorder.run();
    let rules = &run.spec().rules.context.flush;
    let (model, terms) = called(driver, rules.model.as_deref()).await?;
    let own = run.spec().own_tools.iter().filter(|tool| MEMORY_TOOLS.contains(&tool.name.as_str()));
    let tools: ToolOffer = own.cloned().collect();
    let instructions = rules.prompt.as_deref().unwrap_or(FLUSH_PROMPT);
    let most = u64::from(rules.max_tokens).min(terms.max_output_tokens).min(terms.context_window / MOST_PART);
    let beside = most + budget::estimate(instructions.len() + tools.weight()) + terms.context_window / MOST_PART;
    let room = terms.context_window.saturating_sub(beside) * BYTES;
    let earlier = run.view().and_then(|view| view.summary.as_ref()).map(|summary| summary.text.as_str());
    let text = transcript(&messages(driver, due), earlier, usize::try_from(room).unwrap_or(usize::MAX));
    let told = [Message::text(Role::System, instructions), Message::text(Role::User, &format!("{text}\n\n{ASKED}"))];
    let told = told.into_iter().chain(run.flush().into_iter().flat_map(Flush::said));
    let terms = CallTerms { max_output_tokens: most, ..terms };
    Ok(Question { model, terms, told: told.collect(), tools })
}

/// Whether a call begins.
enum Begun {
    Made(FlushAsked),
    Refused(String),
    /// A command came first, and is applied.
    Told,
}

/// Reserves what the call may take and records that it is made, and which messages it is about.
async fn begin(
    driver: &mut Driver,
    (due, round, messages): (Due, u32, u64),
    claims: Option<(Versioned, u64)>,
    question: &Question,
) -> Result<Begun, Asking> {
    let tokens = budget::estimate(question.told.iter().map(Message::weight).sum::<usize>() + question.tools.weight());
    let run = driver.recorder.run();
    // It is of no use to a run that cannot pay for the call that follows.
    let next = budget::least_of(&run.terms(), run.most_context()).whole();
    let next = if run.spec().compacts { Used::default() } else { next };
    let reserved = match run.plan_judging(&question.terms, tokens, next) {
        Ok(reserved) => reserved,
        Err(reason) => {
            return Ok(Begun::Refused(format!("a budget of the run has no room for it ({})", reason.as_str())));
        }
    };
    let (step, model) = (run.step() + 1, question.model.clone());
    let asked = FlushAsked { step, round, from: due.from, upto: due.upto, messages, model, reserved };
    let event = Event::Context(Box::new(ContextEvent::FlushAsked(asked.clone())));
    let (spec, retention) = (run.spec().clone(), *driver.retention);
    let claim = |tx: Tx| match claims {
        Some((session, upto)) => claim_flush(tx, session, upto, &spec, retention),
        None => tx,
    };
    match reserve_and_record(driver, (step, reserved), event, claim).await {
        Ok(true) => Ok(Begun::Made(asked)),
        Ok(false) => Ok(Begun::Told),
        Err(Refusal::Short(short)) => Ok(Begun::Refused(format!("a budget of the {} has no room for it", short.owner))),
        Err(Refusal::Failed(CommitError::VersionConflict { .. })) => Err(Asking::Conflict),
        Err(Refusal::Failed(error)) => Err(error.into()),
    }
}
