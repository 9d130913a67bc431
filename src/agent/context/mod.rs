//! What a model is sent, and how its turn is read. Pure.

mod ask_user;
pub(super) mod filter;
pub(super) mod find_tools;
pub mod fit;
pub mod joined;
pub(super) mod offer;
pub mod prompt;
pub mod recover;
pub(super) mod request;
pub mod screen;
pub(super) mod search;
pub mod selection;
pub mod server_tools;
pub mod toolbox;
pub(super) mod turn;

pub(super) use request::model_request;
