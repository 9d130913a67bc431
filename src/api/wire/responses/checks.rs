//! What of a request is refused, and what follows from its parts together.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::agent::NewRun;
use crate::api::wire::agent::options::{AgentOptions, EventsMode};
use crate::api::wire::body::{located, missing};
use crate::api::wire::error::{ErrorCode, WireError};
use crate::api::wire::json_object::JsonObject;
use crate::api::wire::openai_chat::message::Messages;
use crate::api::wire::responses::items::Input;
use crate::types::Role;
use crate::types::json::RawValueEq;
use crate::types::policy::{Layer, LayerOwner, Mode, Rule};
use crate::types::run::OnUnknownOutcome;
use crate::types::sampling::ResponseFormat;

/// Refuses what other endpoints have for the same, or what the dialect cannot show.
pub(super) fn check_options(agent: &AgentOptions) -> Result<(), WireError> {
    let refused = [
        (agent.run_id.is_some(), "agent.run_id", "is not for responses: use previous_response_id"),
        (agent.background.is_some(), "agent.background", "is not for responses: use the top-level background"),
        (agent.dry_run == Some(true), "agent.dry_run", "is not for responses: use /v1/agent/completions"),
        (
            agent.events.is_some_and(|events| !matches!(events, EventsMode::Native | EventsMode::None)),
            "agent.events",
            "must be native or none: clients of responses know no other events",
        ),
        (
            agent.on_unknown_outcome == Some(OnUnknownOutcome::Ask),
            "agent.on_unknown_outcome",
            "must be fail or tell_model: responses have no item by which a client could be asked",
        ),
    ];
    match refused.into_iter().find(|(is_given, ..)| *is_given) {
        Some((_, param, message)) => Err(WireError::invalid(param, message)),
        None => Ok(()),
    }
}

/// Checks that the items make a request together. One that decides about calls says nothing else; what stands before its
/// decisions is the run's own.
pub(super) fn check_input(input: &mut Input, is_after_response: bool, continues: bool) -> Result<(), WireError> {
    if !input.approvals.is_empty() {
        let run = input.approvals[0].call.run();
        if input.approvals.iter().any(|approval| approval.call.run() != run) {
            return Err(WireError::invalid("input", "the approvals are of calls of different runs"));
        }
        let says_more = input.messages.all[input.beside..].iter().any(|message| message.role != Role::Tool);
        if says_more || input.unpaired > 0 {
            let message = "decisions about calls must stand alone: say what else there is once the calls are made";
            return Err(WireError::invalid("input", message));
        }
        input.messages = Messages::default();
        return Ok(());
    }
    let is_empty = input.messages.all.is_empty();
    if is_empty && !continues {
        return Err(WireError::new(ErrorCode::MissingField, "input is missing").at("input"));
    }
    if is_after_response {
        // Outputs before what a model said are no longer among those that answer.
        let paired = input.messages.answered.len().saturating_sub(input.unpaired);
        if input.unpaired == 0 {
            // Its own calls have their own results: the response that it continues is asked nothing.
            input.messages.answered.clear();
        } else if paired > 0 || input.messages.answers_from > 0 {
            let message = "outputs for the previous response's calls must not stand beside other calls";
            return Err(WireError::invalid("input", message));
        }
    }
    Ok(())
}

/// What a caller should know about items that were left out.
pub(super) fn dropped(kinds: &[String]) -> Option<String> {
    let names = kinds.join(", ");
    (!names.is_empty()).then(|| format!("these items were made elsewhere and were left out: {names}"))
}

/// Has these tools ask for approvals, whatever else the request says.
pub(super) fn require_approval(new: &mut NewRun, patterns: Vec<String>) {
    let ask = patterns.into_iter().map(Rule::of);
    let layer = new.policy.get_or_insert_with(|| {
        let (owner, mode) = (LayerOwner::Request, Mode::unless_said(&[]));
        Arc::new(Layer { owner, mode, allow: Vec::new(), ask: Vec::new(), deny: Vec::new() })
    });
    Arc::make_mut(layer).ask.extend(ask);
}

/// Reads `text.format`.
pub(super) fn read_format(raw: &RawValue) -> Result<ResponseFormat, WireError> {
    #[derive(Deserialize)]
    struct View<'a> {
        r#type: String,
        name: Option<String>,
        description: Option<String>,
        #[serde(borrow)]
        schema: Option<&'a RawValue>,
        strict: Option<bool>,
    }
    let read = || {
        let JsonObject(view): JsonObject<View<'_>> = located(raw.get())?;
        Ok(match view.r#type.as_str() {
            "text" => ResponseFormat::Text,
            "json_object" => ResponseFormat::JsonObject,
            "json_schema" => ResponseFormat::JsonSchema {
                name: view.name.ok_or_else(|| missing("name"))?,
                description: view.description,
                schema: Some(RawValueEq(view.schema.ok_or_else(|| missing("schema"))?.to_owned())),
                strict: view.strict,
            },
            _ => return Err(WireError::invalid("type", "must be text, json_object or json_schema")),
        })
    };
    read().map_err(|error: WireError| error.within("text.format"))
}
