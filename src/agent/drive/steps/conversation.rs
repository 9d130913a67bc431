//! The conversation as the steps see it that shorten it, and how they tell what they did.

use crate::agent::context::fit::places::Places;
use crate::agent::context::fit::shown::Shown;
use crate::agent::context::fit::subject::{Given, Subject};
use crate::agent::drive::driver::Driver;
use crate::agent::machine::Run;
use crate::types::context::{CompactionFailed, ContextEvent, Method, View};
use crate::types::{Event, History, Message};

/// Shows the model what of the conversation it is to see, for the calls from now on.
pub(super) fn show(driver: &mut Driver) {
    let run = driver.recorder.run();
    let Some(view) = run.view() else { return };
    if driver.shown.as_ref().is_none_or(|shown| !shown.is_of(view)) {
        let rules = &run.spec().rules.context.pruning;
        driver.shown = Some(Box::new(Shown::of(view, rules, &driver.history, run.messages())));
    }
}

/// The conversation as it is now.
pub(super) fn subject<'a>(driver: &'a Driver, whole: &'a View) -> Subject<'a> {
    let run = driver.recorder.run();
    Subject::new(Given {
        messages: messages(&driver.history, run),
        places: Places::of(&driver.history),
        view: run.view().unwrap_or(whole),
        rules: &run.spec().rules.context,
        beside: run.spec().told_weight() + driver.tools.offer(run.found_tools()).weight(),
        tokens: run.context_tokens(),
        most: run.most_context(),
        early: run.shortens_early(),
        step: run.step() + 1,
    })
}

fn messages<'a>(history: &'a History, run: &'a Run) -> Vec<&'a Message> {
    history.iter().chain(run.messages()).collect()
}

/// That a method shortened nothing, without a call of a model.
pub(super) fn failed(step: u32, method: Method, reason: &str) -> ContextEvent {
    let (reason, call) = (reason.to_owned(), None);
    ContextEvent::CompactionFailed(CompactionFailed { step, method, reason, interrupted: false, latency_ms: 0, call })
}

/// Records what happened with what comes next, and tells it.
pub(super) fn queue(driver: &mut Driver, event: ContextEvent) {
    tell(driver, &event);
    driver.recorder.queue(Event::Context(Box::new(event)));
}

/// A line of the log.
pub(super) fn tell(driver: &Driver, event: &ContextEvent) {
    let run = &driver.recorder.run().spec().id;
    match event {
        ContextEvent::Pruned(pruned) => {
            let (results, before, after) = (pruned.results, pruned.before_tokens, pruned.after_tokens);
            tracing::info!(%run, results, before, after, "old tool results are shortened, so that the conversation fits");
        }
        ContextEvent::Compacted(compacted) => {
            let (method, covers) = (compacted.summary.method.as_str(), compacted.covers);
            let (before, after) = (compacted.before_tokens, compacted.after_tokens);
            tracing::info!(%run, method, covers, before, after, "messages are replaced, so that the conversation fits");
        }
        ContextEvent::CompactionFailed(failed) => {
            let (method, reason) = (failed.method.as_str(), &failed.reason);
            tracing::warn!(%run, method, reason, "the conversation could not be shortened in this way");
        }
        ContextEvent::FlushEnded(ended) if ended.messages > 0 => {
            let (messages, iterations, writes, error) = (ended.messages, ended.round, ended.writes, &ended.error);
            if let Some(error) = error {
                tracing::warn!(%run, messages, iterations, writes, error, "what matters was not written into memory to the end");
            } else {
                tracing::info!(%run, messages, iterations, writes, "a model wrote into memory what matters");
            }
        }
        ContextEvent::CompactionStarted(_)
        | ContextEvent::WindowLearned(_)
        | ContextEvent::FlushAsked(_)
        | ContextEvent::FlushAnswered(_)
        | ContextEvent::FlushCalled(_)
        | ContextEvent::FlushEnded(_) => {}
    }
}
