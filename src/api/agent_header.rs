//! What a body may have as `agent`, in a header: for clients that cannot add members to their bodies.

use http::HeaderMap;

use crate::api::error::ApiError;
use crate::api::extract::header_text;
use crate::api::wire::agent::options::AgentOptions;
use crate::api::wire::body::located;
use crate::api::wire::error::ErrorCode;
use crate::api::wire::json_object::JsonObject;

/// The header.
pub const AGENT_HEADER: &str = "x-loopgate-agent";
/// The longest of it.
const MAX_AGENT_HEADER: usize = 8 << 10;

/// Puts what the header says where the body says nothing.
pub fn read_agent_header(headers: &HeaderMap, agent: &mut Option<JsonObject<AgentOptions>>) -> Result<(), ApiError> {
    let Some(text) = header_text(headers, AGENT_HEADER)? else { return Ok(()) };
    if agent.is_some() {
        return Err(ApiError::invalid(AGENT_HEADER, "must be left out where the body has agent"));
    }
    if text.len() > MAX_AGENT_HEADER {
        return Err(ApiError::invalid(AGENT_HEADER, format!("must have at most {MAX_AGENT_HEADER} bytes")));
    }
    let read = located(text).map_err(|error| ApiError::new(ErrorCode::InvalidValue, error.message).at(AGENT_HEADER));
    *agent = Some(read?);
    Ok(())
}
