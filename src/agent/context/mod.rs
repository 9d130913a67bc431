//! What a model is sent, and how its turn is read. Pure.

pub(super) mod offer;
pub mod recover;
pub(super) mod request;
pub(super) mod toolbox;
pub(super) mod turn;

pub(super) use request::{estimate, model_request};
