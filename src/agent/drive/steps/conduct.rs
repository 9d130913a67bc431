//! Records what a run does whose agent is made of others, and says what these are to work on.

use crate::agent::delegating::{Shared, Task};
use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::steps::conversation::show;
use crate::agent::machine::{Brief, Run};
use crate::failpoint;
use crate::llm::message_parts;
use crate::types::conversation::{Part, PartKind, Parts};
use crate::types::event::{Reservation, Turn};
use crate::types::{Event, Message, Role};

/// Records a turn that the run makes itself. It follows from what is recorded before, so a crash repeats none and loses none.
pub async fn conduct(driver: &mut Driver, turn: Box<Turn>) -> Result<(), Exit> {
    if let Some(interruption) = driver.signals.before_a_step() {
        return driver.handle_interruption(interruption);
    }
    driver.count_memory();
    let run = driver.recorder.run();
    let (step, model) = (run.step() + 1, run.unnamed_model().cloned());
    let begun = Event::StepStarted { step, reserved: Reservation::default(), model, closing: None };
    let text = turn.text().into_owned();
    let said = (!text.is_empty()).then(|| Event::TextDelta { step, text });
    failpoint::hit("composite.before_turn");
    let events = [begun].into_iter().chain(said).chain([Event::TurnFinished { step, turn }]);
    driver.record_unless_told(events, |tx| tx).await?;
    failpoint::hit("composite.turn_made");
    Ok(())
}

/// What an agent is to work on of which a composite one is made: the conversation as the run has it, and what others answered.
pub(super) fn shared(driver: &mut Driver, brief: Brief) -> Task {
    let system = driver.recorder.run().spec().system.clone();
    with_conversation(driver, Some(system), brief)
}

/// What an agent is to do to which a model delegates that has it see the conversation: that, and then its task. What the model itself is
/// told is not for others.
pub(super) fn forked(driver: &mut Driver, task: &str) -> Task {
    let brief = Brief { answers: vec![Message::text(Role::User, task)], is_last: false };
    with_conversation(driver, None, brief)
}

/// What was said before the run began to work, with these instructions of the request and those in its midst, or without any.
fn with_conversation(driver: &mut Driver, system: Option<Vec<Message>>, brief: Brief) -> Task {
    show(driver);
    let run = driver.recorder.run();
    let shown = driver.shown.as_ref().filter(|shown| run.view().is_some_and(|view| shown.is_of(view)));
    let conversation = match shown {
        Some(shown) => shown.with(run.messages()),
        None => driver.history.to_conversation().then(run.messages().iter().cloned()),
    };
    let messages = conversation.iter().filter_map(|message| match message.role {
        Role::System | Role::Developer => system.is_some().then(|| message.clone()),
        Role::User | Role::Assistant | Role::Tool => said(run, message),
    });
    let messages = messages.chain(brief.answers).collect();
    Task::Shared(Box::new(Shared { system: system.unwrap_or_default(), messages, is_last: brief.is_last }))
}

/// What of a message an agent is told that had no part in it: what was said. Calls of tools, and their results, are nothing to it.
fn said(run: &Run, message: &Message) -> Option<Message> {
    match message.role {
        Role::User => Some(message.clone()),
        Role::System | Role::Developer | Role::Tool => None,
        Role::Assistant if run.is_own(message) => None,
        Role::Assistant => {
            let Parts { list, extra } = message_parts(message).ok()?.into_owned();
            let is_said = |part: &Part| {
                let is_thought = matches!(part.kind, PartKind::Thinking(_));
                !is_thought && part.as_call().is_none() && part.as_result().is_none()
            };
            if list.iter().all(is_said) {
                return Some(message.clone());
            }
            let list: Vec<Part> = list.into_iter().filter(is_said).collect();
            (!list.is_empty()).then(|| Message::from_parts(Role::Assistant, Parts { list, extra }))
        }
    }
}
