//! The loop: does what [`Run::next_step`](crate::agent::machine::Run::next_step) asks for, and records what
//! happened.

use std::time::Duration;

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::guarded::tell;
use crate::agent::drive::pending::left;
use crate::agent::drive::steps;
use crate::agent::drive::steps::ask::output_bound;
use crate::agent::drive::steps::outcome::{NOT_MADE, interrupted, not_repeated};
use crate::agent::machine::Step;
use crate::types::event::DiscardReason;
use crate::types::rules::LoopFinding;
use crate::types::{BudgetOwner, Effect, Event, ToolCall, ToolOutcome, Usage, Used};

/// How long a run that is left may take to record what has happened in it.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Moves the run until it ends, waits for its client or must be left.
pub async fn drive(driver: &mut Driver) -> Result<(), Exit> {
    let end = run_to_the_end(driver).await;
    if matches!(end, Err(Exit::HandedOff)) && driver.signals.validity.is_valid() {
        // The next replica must not repeat what has happened, and must not count this hand-over as a crash.
        driver.recorder.queue(Event::HandedOff);
        let flushed = tokio::time::timeout(LAST_WORDS, driver.recorder.flush()).await;
        if !matches!(flushed, Ok(Ok(()))) {
            tracing::warn!(run = %driver.recorder.run().spec().id, "could not record the last events of a run that this replica leaves");
        }
    }
    end
}

/// Asks the machine what to do and does it, until there is nothing left to do.
async fn run_to_the_end(driver: &mut Driver) -> Result<(), Exit> {
    if std::mem::take(&mut driver.first_step_began) {
        steps::call_model::call_model_first(driver).await?;
    }
    loop {
        driver.read_commands().await?;
        if driver.recorder.bytes() >= driver.counts_at {
            Box::pin(steps::count::count_growth(driver)).await?;
        }
        if is_to_be_equipped(driver) {
            Box::pin(steps::equip::equip(driver)).await?;
        }
        match driver.recorder.run().next_step() {
            Step::CallModel { step, reserve, closing } => {
                steps::call_model::call_model(driver, step, reserve, closing).await?;
            }
            Step::FallBack => steps::fall_back::as_it_has_grown(driver)?,
            Step::Fit(method) => Box::pin(steps::compact::shorten(driver, method)).await?,
            Step::DropCompaction(open) => Box::pin(steps::summarise::drop_summary(driver, *open)).await?,
            Step::Flush => Box::pin(steps::flush::go_on(driver)).await?,
            Step::DropJudging(judging) => Box::pin(steps::judge_call::drop_judging(driver, *judging)).await?,
            Step::DiscardStep(reason) => Box::pin(discard_step(driver, reason)).await?,
            Step::WarnBudget { kind, used, limit } => {
                driver.recorder.queue(Event::BudgetWarning { owner: BudgetOwner::Run, kind, used, limit });
            }
            Step::AskStartHooks => Box::pin(steps::hooks::ask_at_start(driver)).await?,
            Step::Plan(text) => {
                let step = driver.recorder.run().step() + 1;
                driver.recorder.queue(Event::PlanCreated { step, text });
            }
            Step::Reflect(text) => {
                let step = driver.recorder.run().step() + 1;
                driver.recorder.queue(Event::ReflectionStarted { step, text });
            }
            Step::ReportLoop(finding) => report_loop(driver, finding),
            Step::TellGuarded(told) => tell(&mut driver.recorder, told),
            // Boxed, as all but a model's call are short, and a run's future is as large as the largest of them.
            Step::JudgeCalls(calls) => Box::pin(steps::admit::judge_calls(driver, calls)).await?,
            Step::RunTools(_) | Step::AnswerCall(_) if driver.meter.counts_calls_of(driver.recorder.run().step()) => {
                Box::pin(steps::delegate::count_calls(driver)).await?;
            }
            Step::RunTools(calls) => Box::pin(steps::run_tools::run_tools(driver, calls)).await?,
            Step::SettleAnswer(call, outcome) => {
                Box::pin(steps::settle_result::settle_result(driver, &call, *outcome)).await?;
            }
            Step::AnswerCall(call) => Box::pin(steps::answer_call::answer_call(driver, call)).await?,
            Step::SettleUnknown(calls) => settle_unknown(driver, calls),
            Step::SkipTools(calls) => skip_tools(driver, calls),
            Step::CutCalls(calls) => cut_calls(driver, calls),
            Step::AwaitServices => Box::pin(steps::await_services::await_services(driver)).await?,
            Step::CompleteStep => complete_step(driver),
            Step::Finish(reason) => Box::pin(steps::finish::finish(driver, reason)).await?,
            Step::Conduct(turn) => Box::pin(steps::conduct::conduct(driver, turn)).await?,
            Step::Stop(reason, error) => {
                driver.recorder.queue(Event::StopRequested { reason, error: error.map(|error| *error), short: None });
            }
            Step::Done => return Ok(driver.recorder.flush().await?),
        }
    }
}

/// Whether the run goes on as another agent than its driver is equipped for.
fn is_to_be_equipped(driver: &Driver) -> bool {
    let run = driver.recorder.run();
    !driver.tools.is_of(run.spec()) && !run.is_stopping() && !run.status().is_final()
}

/// Says that the run repeats itself.
fn report_loop(driver: &mut Driver, finding: LoopFinding) {
    let (run, LoopFinding { step, repeats, stops, .. }) = (&driver.recorder.run().spec().id, &finding);
    let rule = finding.rule.as_str();
    tracing::warn!(%run, step, rule, repeats, stops, "the model repeats tool calls that bring nothing new");
    driver.recorder.queue(Event::LoopGuardTriggered(Box::new(finding)));
}

/// Voids what the model said in this step.
pub async fn discard_step(driver: &mut Driver, reason: DiscardReason) -> Result<(), Exit> {
    let run = driver.recorder.run();
    let (step, reserved) = (run.step(), run.reserved());
    match reason {
        DiscardReason::Interrupted => {
            steps::hedge::drop_interrupted(driver);
            steps::judge_call::drop_in_step(driver);
            let run = driver.recorder.run();
            let (usage, unconfirmed) = run.interrupted_usage(output_bound(driver, reserved, false));
            driver.end_step(reserved, Event::StepDiscarded { step, reason, usage, unconfirmed }).await
        }
        // What these took was charged when the model call ended.
        DiscardReason::StreamBroke | DiscardReason::EmptyResponse | DiscardReason::NoAnswer => {
            let (usage, unconfirmed) = (Usage::default(), Used::default());
            driver.recorder.queue(Event::StepDiscarded { step, reason, usage, unconfirmed });
            Ok(())
        }
    }
}

/// Says of calls that a crash interrupted and that must not be repeated that their outcome is unknown.
fn settle_unknown(driver: &mut Driver, calls: Vec<ToolCall>) {
    for call in calls {
        let mut outcome = interrupted(Effect::Write, "");
        steps::settle_result::tell_of_change(driver, &call, &mut outcome);
        driver.finish_call(&call, outcome);
    }
}

/// Answers calls without dispatching them. One that was dispatched before, in this attempt or in an earlier one, is not
/// said not to have been made.
fn skip_tools(driver: &mut Driver, calls: Vec<ToolCall>) {
    for call in calls {
        let run = driver.recorder.run();
        let (step, started, attempt) = (run.step(), run.started(&call.id), run.attempt(&call.id));
        let outcome = if let Some(began_as) = started {
            not_repeated(began_as)
        } else if let Some(left) = left(run, &call.id, driver.recorder.store().now_ms()) {
            left
        } else {
            driver.recorder.queue(Event::ToolStarted { step, call: call.clone(), effect: Effect::Read });
            // The caller wanted it to be repeated, because the outcome of the attempt before is unknown.
            if attempt > 1 { not_repeated(Effect::Write) } else { ToolOutcome::skipped(NOT_MADE) }
        };
        driver.finish_call(&call, outcome);
    }
}

/// Answers calls that are beyond the run's limit of tool calls.
fn cut_calls(driver: &mut Driver, calls: Vec<ToolCall>) {
    let run = driver.recorder.run();
    let (step, most) = (run.step(), run.spec().limits.max_tool_calls.unwrap_or_default());
    for call in calls {
        if driver.recorder.run().started(&call.id).is_none() {
            driver.recorder.queue(Event::ToolStarted { step, call: call.clone(), effect: Effect::Read });
        }
        let why = format!("The call was not made: the run may make {most} tool calls, and has made them.");
        driver.finish_call(&call, ToolOutcome::skipped(why));
    }
}

/// Says that every server-side call of the step is answered.
fn complete_step(driver: &mut Driver) {
    let run = driver.recorder.run();
    let Some(report) = run.last_step() else { return };
    let event = Event::StepCompleted {
        step: run.step(),
        usage: report.usage,
        turn_end: report.turn_end.clone(),
        latency_ms: report.llm_latency_ms,
        budget: run.budget_status(),
    };
    driver.recorder.queue(event);
}
