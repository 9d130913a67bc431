//! Asks the models and services of guardrails about texts of a run, and does what they say.
//!
//! They are asked once the rules have passed that need nobody's answer, in the order of the configuration; the first that ends
//! the run is the last that is asked. What was said is queued before anything follows from it, and recorded with the next event
//! that waits for the store. So a run that is resumed goes on with what was said, or asks again if that was lost.

use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::guarded::tell;
use crate::agent::drive::judge::{WITHHELD, user_texts};
use crate::agent::drive::signals::Interruption;
use crate::agent::drive::steps::judge_call::{Question, judge};
use crate::failpoint;
use crate::guard::plain::plain;
use crate::hooks::delivery::{About, message_id};
use crate::hooks::{HookFailure, Message, Text, What, Whose};
use crate::types::conversation::Part;
use crate::types::guard::{Asked, GuardPoint, Guarded, Guardrail, GuardrailRule, Judge, Judged, Triggered, Verdict};
use crate::types::hook::{HookDecision, HookPoint};
use crate::types::{CallId, Effect, Event, ToolCall, ToolOutcome, Used};

/// What takes the place of a result whose judgement the run did not wait for.
const UNJUDGED: &str = "The result was withheld: the run stopped before a guardrail had judged it.";

/// What comes of asking about a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    /// It passes, or what it fails does not end the run.
    Passed,
    /// It ends the run, and the log says so.
    Tripped,
    /// The run is to stop before all were asked.
    Stopped,
}

/// A text that is judged.
struct Subject<'a> {
    on: GuardPoint,
    step: u32,
    text: &'a str,
    message: Option<u32>,
    call: Option<&'a ToolCall>,
    /// What the step's own call took, if the step is under way.
    in_step: Option<Used>,
}

/// Asks about what users said since that was last asked; whether the model is to be called now.
pub async fn about_input(driver: &mut Driver) -> Result<bool, Exit> {
    let (step, known) = (driver.recorder.run().step() + 1, driver.recorder.run().messages().len());
    for rail in asked_at(driver, GuardPoint::Input) {
        let run = driver.recorder.run();
        let after = run.judged_up_to(&rail.name);
        let is_new = |place: Option<u32>| after.is_none_or(|after| place.is_some_and(|place| place > after));
        let mut texts = user_texts(run, &driver.history);
        texts.retain(|(place, _)| is_new(*place));
        let Some((message, _)) = texts.last() else { continue };
        let message = *message;
        let text = texts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("\n\n");
        let subject = Subject { on: GuardPoint::Input, step, text: &text, message, call: None, in_step: None };
        if ask(driver, &rail, &subject).await? != Ruling::Passed {
            return Ok(false);
        }
    }
    // What users said meanwhile is judged by all guardrails before the model is asked.
    Ok(driver.recorder.run().messages().len() == known && !driver.recorder.run().is_stopping())
}

/// Asks about the text of a turn that is whole, whose call took this much.
pub async fn about_output(driver: &mut Driver, text: &str, taken: Used) -> Result<Ruling, Exit> {
    let step = driver.recorder.run().step();
    let subject = Subject { on: GuardPoint::Output, step, text, message: None, call: None, in_step: Some(taken) };
    ask_all(driver, &subject).await
}

/// Asks about the arguments of a call that is to be made.
pub async fn about_arguments(driver: &mut Driver, call: &ToolCall) -> Result<Ruling, Exit> {
    let (on, step) = (GuardPoint::ToolArguments, driver.recorder.run().step());
    let text = plain(&call.arguments);
    let subject = Subject { on, step, text: &text, message: None, call: Some(call), in_step: None };
    ask_all(driver, &subject).await
}

/// Asks about the result of a call; whether that ends the run. A result that does is withheld, and so is one that might have.
pub async fn about_result(driver: &mut Driver, call: &ToolCall, outcome: &mut ToolOutcome) -> Result<bool, Exit> {
    let (on, step) = (GuardPoint::ToolResult, driver.recorder.run().step());
    let text = result_text(outcome);
    let subject = Subject { on, step, text: &text, message: None, call: Some(call), in_step: None };
    let ruling = ask_all(driver, &subject).await?;
    let may_trip = || asked_at(driver, on).iter().any(|rail| rail.tripwire);
    let withheld = match ruling {
        Ruling::Tripped => WITHHELD,
        Ruling::Stopped if may_trip() => UNJUDGED,
        Ruling::Stopped | Ruling::Passed => return Ok(false),
    };
    outcome.parts = vec![Part::text(withheld)];
    (outcome.structured, outcome.is_error) = (None, true);
    Ok(true)
}

/// What is asked about a result: what the model is told, and the JSON beside it.
fn result_text(outcome: &ToolOutcome) -> String {
    let told = if outcome.parts.is_empty() { plain(&outcome.text()).into_owned() } else { outcome.text().into_owned() };
    outcome.beside_text().map(|json| format!("{told}\n\n{}", plain(json))).unwrap_or(told)
}

/// Stores what a tool with side effects answered, so that a crash while guardrails are asked does not make its outcome unknown.
pub async fn store_answer(driver: &mut Driver, call: &ToolCall, outcome: &ToolOutcome) -> Result<(), Exit> {
    if driver.recorder.run().started(&call.id) == Some(Effect::Write) {
        let answered = Event::ToolAnswered { call_id: call.id.clone(), outcome: Box::new(outcome.clone()) };
        driver.recorder.record(answered).await?;
    }
    Ok(())
}

async fn ask_all(driver: &mut Driver, subject: &Subject<'_>) -> Result<Ruling, Exit> {
    for rail in asked_at(driver, subject.on) {
        match ask(driver, &rail, subject).await? {
            Ruling::Passed => {}
            ruling @ (Ruling::Tripped | Ruling::Stopped) => return Ok(ruling),
        }
    }
    Ok(Ruling::Passed)
}

/// The guardrails of this point that ask somebody.
fn asked_at(driver: &Driver, on: GuardPoint) -> Vec<Guardrail> {
    let rails = &driver.recorder.run().guards().guardrails;
    rails.iter().filter(|rail| rail.on == on && rail.rule.is_asked()).cloned().collect()
}

/// Asks one guardrail, unless it is known what it says.
async fn ask(driver: &mut Driver, rail: &Guardrail, subject: &Subject<'_>) -> Result<Ruling, Exit> {
    let asked = Asked {
        step: subject.step,
        name: rail.name.clone(),
        of: if matches!(rail.rule, GuardrailRule::Model(_)) { Judge::Model } else { Judge::Webhook },
        on: subject.on,
        message: subject.message,
        call_id: subject.call.map(|call| call.id.clone()),
        digest: xxh3_64(subject.text.as_bytes()),
    };
    let judged = match driver.recorder.run().verdict(&asked).cloned() {
        Some(known) => known,
        None => match &rail.rule {
            GuardrailRule::Model(model) => {
                let question = Question { rail, judge: model, asked, text: subject.text, in_step: subject.in_step };
                match judge(driver, &question).await? {
                    Some(judged) => judged,
                    None => return Ok(Ruling::Stopped),
                }
            }
            GuardrailRule::Webhook { hook, .. } => match ask_service(driver, (rail, hook), subject, asked).await? {
                Some(judged) => judged,
                None => return Ok(Ruling::Stopped),
            },
            GuardrailRule::Regex { .. } | GuardrailRule::MaxLength { .. } => return Ok(Ruling::Passed),
        },
    };
    let trips = Triggered::by(rail, &judged).is_some_and(|triggered| triggered.tripwire);
    Ok(if trips { Ruling::Tripped } else { Ruling::Passed })
}

/// Asks a service, and queues what it said. `None` if the run is to stop before it has answered.
async fn ask_service(
    driver: &mut Driver,
    (rail, hook): (&Guardrail, &str),
    subject: &Subject<'_>,
    asked: Asked,
) -> Result<Option<Judged>, Exit> {
    if let Some(interruption) = driver.signals.now() {
        return driver.handle_interruption(interruption).map(|()| None);
    }
    // What is asked about is stored, so that a crash meanwhile loses no model call.
    driver.recorder.flush().await?;
    failpoint::hit("guardrail.before_ask");
    let begun = Instant::now();
    let answered = match send(driver, (rail, hook), subject).await {
        Ok(answered) => answered,
        Err(interruption) => return driver.handle_interruption(interruption).map(|()| None),
    };
    failpoint::hit("guardrail.answered");
    let (verdict, reason) = match answered {
        Ok((HookDecision::Deny, reason)) => (Verdict::Fail, reason),
        Ok(_) => (Verdict::Pass, None),
        Err(failure) => {
            let run = &driver.recorder.run().spec().id;
            tracing::warn!(%run, guardrail = rail.name, hook, %failure, "a guardrail's service gave no verdict");
            (Verdict::NoAnswer, None)
        }
    };
    let latency_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let judged = Judged { asked, verdict, reason, latency_ms, call: None };
    let triggered = Triggered::by(rail, &judged).map(Guarded::Triggered);
    tell(&mut driver.recorder, std::iter::once(Guarded::Judged(judged.clone())).chain(triggered));
    Ok(Some(judged))
}

/// Sends a service the text, and waits for what it says.
async fn send(
    driver: &mut Driver,
    (rail, hook): (&Guardrail, &str),
    subject: &Subject<'_>,
) -> Result<Result<(HookDecision, Option<String>), HookFailure>, Interruption> {
    let Driver { recorder, signals, generation, .. } = driver;
    let (spec, point) = (recorder.run().spec().clone(), HookPoint::Guardrail);
    let call: Option<(&CallId, &str)> = subject.call.map(|call| (&call.id, call.name.as_str()));
    let text = Text { guardrail: &rail.name, on: subject.on.as_str(), text: subject.text, call };
    let what = What::Text(text);
    let about = match call {
        Some((id, _)) => About::Call(id, recorder.run().dispatched_before(id)),
        None => About::Event(u64::from(subject.step)),
    };
    let id = message_id(&spec.id, hook, point, about, &what.digested());
    let (whose, at_ms) = (Whose::from(&*spec), recorder.now_ms());
    let message = Message { hook, point, whose, at_ms, step: subject.step, seq: None, what };
    let asking = async {
        match generation.hooks.get(hook) {
            Some(configured) => configured.ask(&id, &message).await,
            None => Err(HookFailure::missing()),
        }
    };
    tokio::select! {
        biased;
        answered = asking => Ok(answered.map(|reply| (reply.decision, reply.reason))),
        interruption = signals.interrupted() => Err(interruption),
    }
}
