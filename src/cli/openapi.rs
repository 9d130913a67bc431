//! `loopgate openapi`.

use super::process::{Failure, say};

pub(super) fn run() -> Result<(), Failure> {
    say(crate::api::openapi().to_pretty_json().map_err(Failure::new)?);
    Ok(())
}
