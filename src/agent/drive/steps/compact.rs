//! Shortens what the model is shown of a conversation that is too long, one round at a time, and shows it.
//!
//! Results of tools are shortened first, if that is enough. Else messages are replaced: by a model's summary, by one that rules
//! make, or by a note. What was done is an event, stored before the call that it is for, so a replica that takes the run over goes
//! on with what was done.

use crate::agent::context::fit::local;
use crate::agent::context::fit::subject::{Replaced, Subject};
use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::steps::conversation::{failed, queue, subject};
use crate::agent::drive::steps::flush::{self, Due};
use crate::agent::drive::steps::summarise::{self, Asked};
use crate::agent::machine::Run;
use crate::llm::{ModelError, ModelErrorKind};
use crate::types::context::{ContextEvent, ContextRules, Method, View, WindowLearned};

/// About how many tokens a summary has that rules make.
const LOCAL_TOKENS: u64 = 600;

/// What a round comes to.
enum Round {
    /// This happens.
    Event(ContextEvent),
    /// A model is asked for a summary.
    Ask(Asked),
    /// A model first writes down what matters in what is to be replaced.
    Flush(Due),
}

/// Shortens what the model is shown by this method, or in the last way that is left.
pub async fn shorten(driver: &mut Driver, method: Option<Method>) -> Result<(), Exit> {
    if let Some(interruption) = driver.signals.before_a_step() {
        return driver.handle_interruption(interruption);
    }
    match round(driver, method) {
        Round::Event(event) => {
            queue(driver, event);
            Ok(())
        }
        Round::Ask(asked) => Box::pin(summarise::summarise(driver, asked)).await,
        Round::Flush(due) => Box::pin(flush::flush(driver, due)).await,
    }
}

/// What an upstream said of the window by refusing a conversation, if the conversation can be shortened for it.
pub(super) fn learned(run: &Run, error: &ModelError) -> Option<WindowLearned> {
    if error.kind != ModelErrorKind::ContextLength || !run.may_shorten() {
        return None;
    }
    let (told, estimated) = (error.told.as_deref().copied().unwrap_or_default(), run.next_input());
    // Where nothing is said of the window, it has less than what was sent.
    let window = told.window.unwrap_or(estimated - estimated / 10);
    let tokens = told.tokens.unwrap_or_else(|| estimated.max(window.saturating_add(1)));
    Some(WindowLearned { step: run.step(), model: run.model().full_name(), window, tokens })
}

/// What this method would replace.
fn replaced<'a>(subject: &Subject<'a>, rules: &ContextRules, method: Method) -> Option<Replaced<'a>> {
    match method {
        Method::Llm => subject.replaced(u64::from(rules.summary.max_tokens)),
        Method::Local => subject.replaced(LOCAL_TOKENS),
        Method::Truncate => subject.left_out(),
    }
}

/// The place behind the last message that any method would replace: where one fails, what the next one replaces is written down, too.
fn furthest(subject: &Subject<'_>, rules: &ContextRules) -> u64 {
    let cuts = rules.compaction.methods().iter().filter_map(|method| replaced(subject, rules, *method));
    cuts.map(|replaced| subject.place_of(&replaced.cut)).max().unwrap_or(0)
}

fn round(driver: &Driver, method: Option<Method>) -> Round {
    let whole = View::default();
    let subject = subject(driver, &whole);
    let step = driver.recorder.run().step() + 1;
    let Some(method) = method else {
        let squeezed = subject.squeeze().map(ContextEvent::Pruned);
        let nothing = || failed(step, Method::Truncate, "nothing is left that could be left out");
        return Round::Event(squeezed.unwrap_or_else(nothing));
    };
    if let Some(pruned) = subject.prune() {
        return Round::Event(ContextEvent::Pruned(pruned));
    }
    let run = driver.recorder.run();
    let rules = &run.spec().rules.context;
    let too_few = "the messages that could be left out are too few";
    let Some(replaced) = replaced(&subject, rules, method) else {
        return Round::Event(failed(step, method, too_few));
    };
    let upto = subject.place_of(&replaced.cut);
    if let Some(from) = run.due_flush(upto) {
        return Round::Flush(Due { from, upto: upto.max(furthest(&subject, rules)) });
    }
    let compacted = match method {
        Method::Llm => return Round::Ask(Asked { cut: replaced.cut.clone() }),
        Method::Local => {
            let text = local::summary(replaced.messages.iter().copied(), replaced.earlier);
            subject.compacted(&replaced.cut, method, text)
        }
        Method::Truncate => subject.truncated(&replaced),
    };
    let compacted = compacted.map(ContextEvent::Compacted);
    Round::Event(compacted.unwrap_or_else(|| failed(step, method, too_few)))
}
