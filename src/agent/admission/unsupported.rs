//! What a model cannot take of a request, and of the messages that its session has already.

use crate::agent::error::{Field, StartError};
use crate::llm::{Model, Place, Unsupported};
use crate::types::sampling::Sampling;
use crate::types::{History, Message};

/// Refuses what the upstream of a run cannot do, before anything is spent.
pub(super) fn refuse(
    model: &dyn Model,
    sampling: &Sampling,
    messages: &[Message],
    history: &History,
) -> Result<(), StartError> {
    match find(model, sampling, messages, history) {
        Some((field, message)) => Err(StartError::Invalid { field, message }),
        None => Ok(()),
    }
}

/// What the upstream cannot do, and where the request asks for it.
pub(super) fn find(
    model: &dyn Model,
    sampling: &Sampling,
    messages: &[Message],
    history: &History,
) -> Option<(Field, String)> {
    if let Some(Unsupported { place, message }) = model.refuses(sampling, messages) {
        let field = match place {
            Place::Member(name) => Field::Member(name),
            Place::Part { message, part } => Field::Part { message, part },
        };
        return Some((field, message));
    }
    // A message of the session was fit for the model that it was sent to, and this may be another one.
    history.placed().find_map(|(index, message)| {
        let (part, what) = model.refuses_part(message)?;
        let place = format!("messages[{index}].content[{part}] of the session");
        Some((Field::Session, format!("{place} cannot be sent: {what}")))
    })
}
