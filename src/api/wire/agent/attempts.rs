//! Native events of model calls that others take the place of.

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::wire::usage::UsageObject;
use crate::types::fallback::FellBack;
use crate::types::hedge::{HedgeEnded, HedgeStarted};

/// The run goes on with another model.
#[derive(Debug, Serialize, ToSchema)]
pub struct Fallback<'a> {
    pub seq: u64,
    pub step: u32,
    pub upstream: &'a str,
    pub model: &'a str,
    pub attempt: u32,
    pub delay_ms: u64,
    pub cause: &'a str,
    pub from_upstream: &'a str,
    pub from_model: &'a str,
    pub skipped: &'a [String],
}

/// A second call of a step begins.
#[derive(Debug, Serialize, ToSchema)]
pub struct Hedge<'a> {
    pub seq: u64,
    pub step: u32,
    pub upstream: &'a str,
    pub model: &'a str,
    pub after_ms: u64,
    pub from_upstream: &'a str,
    pub from_model: &'a str,
}

/// One of the two calls of a step is dropped.
#[derive(Debug, Serialize, ToSchema)]
pub struct EndOfHedge<'a> {
    pub seq: u64,
    pub step: u32,
    pub kept: &'static str,
    pub dropped_upstream: &'a str,
    pub dropped_model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'a str>,
    pub usage: UsageObject,
}

impl<'a> Fallback<'a> {
    /// The event of this number.
    pub fn new(seq: u64, fell_back: &'a FellBack) -> Self {
        let FellBack { step, to, from_upstream, from_model, attempt, kind: _, cause, skipped } = fell_back;
        let (step, upstream, model) = (*step, &to.upstream, &to.model);
        Self { seq, step, upstream, model, attempt: *attempt, delay_ms: 0, cause, from_upstream, from_model, skipped }
    }
}

impl<'a> Hedge<'a> {
    /// The event of this number.
    pub fn new(seq: u64, started: &'a HedgeStarted) -> Self {
        let HedgeStarted { step, to, from_upstream, from_model, after_ms, reserved: _ } = started;
        let (upstream, model) = (&to.upstream, &to.model);
        Self { seq, step: *step, upstream, model, after_ms: *after_ms, from_upstream, from_model }
    }
}

impl<'a> EndOfHedge<'a> {
    /// The event of this number.
    pub fn new(seq: u64, ended: &'a HedgeEnded) -> Self {
        let HedgeEnded { step, kept, to: _, dropped, usage, unconfirmed: _, failed } = ended;
        Self {
            seq,
            step: *step,
            kept: kept.as_str(),
            dropped_upstream: &dropped.upstream,
            dropped_model: &dropped.model,
            cause: failed.as_ref().map(|(_, cause)| cause.as_str()),
            usage: usage.into(),
        }
    }
}
