//! Records what a run does whose agent is made of others, and says what these are to work on.

use tokio::time::Instant;

use crate::agent::context::model_request;
use crate::agent::delegating::{Shared, Task};
use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::steps::compact;
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
    compact::show(driver);
    let run = driver.recorder.run();
    let parts = (&driver.history, driver.shown.as_deref());
    let request = model_request(run, parts, &driver.tools, None, None, true, Instant::now());
    let messages = request.conversation.iter().filter_map(|message| said(run, message)).chain(brief.answers).collect();
    Task::Shared(Box::new(Shared { system: run.spec().system.clone(), messages, is_last: brief.is_last }))
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
