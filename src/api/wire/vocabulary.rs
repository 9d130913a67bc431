//! The values that text members of objects may have, as the description of the HTTP contract lists them.

use utoipa::openapi::schema::{Object, ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::types::approval::ApprovalMode;
use crate::types::context::Compaction;
use crate::types::guard::InputMode;
use crate::types::policy::Mode;
use crate::types::prompt::{Channel, Merge, PromptMode};
use crate::types::run::{OnConflict, OnDisconnect, OnLimit, OnUnknownOutcome};
use crate::types::schedule::{OnMissed, OnOverlap};
use crate::types::{Effect, RunStatus, StopReason};

/// Declares the schema of an enum as it is written in JSON. A variant that is left out does not compile; one after
/// `without` stands for another on the wire.
macro_rules! vocabulary {
    ($($(#[doc = $meaning:literal])+ $schema:ident of $values:ident: $($variant:ident),+ $(without $unseen:ident)?;)+) => {$(
        $(#[doc = $meaning])+
        #[derive(Debug)]
        pub struct $schema;

        impl PartialSchema for $schema {
            fn schema() -> RefOr<Schema> {
                let text = |value: $values| match value {
                    $($values::$variant => serde_json::to_value(value).expect("a variant without members encodes"),)+
                    $($values::$unseen => serde_json::Value::Null,)?
                };
                let texts = [$($values::$variant),+].map(text);
                let meaning = concat!($($meaning),+).trim_ascii();
                let schema = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(texts));
                schema.description(Some(meaning)).into()
            }
        }

        impl ToSchema for $schema {
            fn name() -> std::borrow::Cow<'static, str> {
                stringify!($values).into()
            }
        }
    )+};
}

vocabulary! {
    /// Where a run stands.
    RunStatusText of RunStatus: Queued, InProgress, RequiresAction, Completed, Incomplete, Cancelled, Failed;
    /// Why a run's loop stopped.
    StopReasonText of StopReason: Done, NoReply, Length, ContentFilter, Guardrail, MaxIterations, MaxToolCalls, LoopGuard, TokenBudget, CostBudget,
        Timeout, ClientTools, OutcomeAsked, AskUser, Approval, ToolPending, Cancelled, ProviderError, ContextLimit, EmptyResponse, OutcomeUnknown, ToolError, CrashLoop,
        StoreLostState, InternalError without Abandoned;
    /// What happens at a limit.
    OnLimitText of OnLimit: Stop, Synthesize, Error;
    /// What happens when the last reader of a run has gone.
    OnDisconnectText of OnDisconnect: Cancel, Continue;
    /// What happens when the session has a live run.
    OnConflictText of OnConflict: Reject, Enqueue, Interrupt, Concurrent;
    /// What happens when it is unknown whether a call with side effects took effect.
    OnUnknownOutcomeText of OnUnknownOutcome: Fail, Ask, TellModel;
    /// How what is left out of a conversation is replaced.
    CompactionText of Compaction: Auto, Llm, Local, Truncate, Off;
    /// Which sections of a prompt the server writes.
    PromptModeText of PromptMode: None, Minimal, Full;
    /// How answers are written.
    ChannelText of Channel: Plain, Markdown, Html;
    /// What becomes of a firing whose time passed while no server could act on it.
    OnMissedText of OnMissed: Once, Skip;
    /// What becomes of a firing while the run of an earlier one is live.
    OnOverlapText of OnOverlap: Skip, Allow;
    /// What becomes of an earlier layer of the same name.
    MergeText of Merge: Replace, Add;
    /// What becomes of tool calls that no rule names.
    ModeText of Mode: Allow, ReadOnly, WorkspaceWrite, AskWrites, Prompt, Deny;
    /// What a run does while a call needs an approval.
    ApprovalModeText of ApprovalMode: Pause, Wait, Deny;
    /// What happens to a message that looks like an attempt to instruct the model in the operator's place.
    InputModeText of InputMode: Off, Log, Warn, Block;
    /// What repeating a call of a tool would do.
    EffectText of Effect: Read, Idempotent, Write;
}

/// In which order a list shows its entries.
#[derive(Debug, serde::Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = Order)]
pub enum OrderText {
    /// The least first.
    Asc,
    /// The greatest first.
    Desc,
}

/// The caller's notes, within OpenAI's bounds.
pub fn metadata() -> Object {
    notes(SchemaType::from_iter([Type::Object, Type::Null]))
}

/// The notes that a list goes by.
pub fn wanted_metadata() -> Object {
    notes(SchemaType::new(Type::Object))
}

fn notes(kind: SchemaType) -> Object {
    let text = |longest| ObjectBuilder::new().schema_type(Type::String).max_length(Some(longest));
    let notes = ObjectBuilder::new().schema_type(kind);
    let notes = notes.property_names(Some(text(64).min_length(Some(1)).build()));
    notes.additional_properties(Some(RefOr::T(text(512).build().into()))).max_properties(Some(16)).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_that_stand_on_the_wire() {
        for status in [RunStatus::InProgress, RunStatus::RequiresAction] {
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
        for reason in [StopReason::Done, StopReason::StoreLostState, StopReason::ClientTools, StopReason::OutcomeAsked]
        {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
        let RefOr::T(Schema::Object(schema)) = EffectText::schema() else { panic!("it is an object") };
        assert_eq!(schema.enum_values.unwrap(), ["read", "idempotent", "write"]);
    }
}
