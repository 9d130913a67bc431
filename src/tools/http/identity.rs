//! Tells the service of a tool in headers which caller a call is made for, if the operator allows that.
//!
//! The values are the caller's, so they are percent-encoded: none of them can end a header or begin another one.

use std::collections::BTreeMap;

use ::http::header::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::config::{Identity, SentIdentity};
use crate::tools::{CallContext, Told, ToolError};

/// What is encoded beside all that is not ASCII: what means something in a header that is a list, and `%` itself.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%').add(b',').add(b';').add(b'\\');
/// The longest value, encoded: common servers refuse longer headers.
const MAX_VALUE: usize = 8 << 10;

/// Puts what the operator allows of the caller into the headers of a call. What the run does not have has no header.
pub(super) fn add(headers: &mut HeaderMap, sent: &SentIdentity, context: &CallContext) -> Result<(), ToolError> {
    for identity in &sent.0 {
        let (name, value) = header(*identity, context);
        // A service that reads the header must not take one of the configuration for the caller's.
        headers.remove(&name);
        let Some(value) = value else { continue };
        let value = HeaderValue::try_from(encoded(&value)).ok().filter(|value| value.len() <= MAX_VALUE);
        let Some(mut value) = value else {
            let what = name.as_str();
            return Err(ToolError::Failed(format!("The value of the header {what} is too long. Nothing was sent.")));
        };
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(())
}

/// What of a caller is too long for the header that would tell it: the service could not be called.
pub(super) fn too_long(sent: &SentIdentity, told: Told<'_>) -> Option<Identity> {
    let value = |identity| match identity {
        // Ids of tenants and sessions are short.
        Identity::Tenant | Identity::Session => None,
        Identity::User => told.user.map(encoded),
        Identity::Metadata => Some(encoded(&json(told.metadata))),
    };
    sent.0.iter().copied().find(|identity| value(*identity).is_some_and(|value| value.len() > MAX_VALUE))
}

fn encoded(value: &str) -> String {
    utf8_percent_encode(value, ENCODED).to_string()
}

/// The header that tells one thing of the caller, and what it says.
fn header(identity: Identity, context: &CallContext) -> (HeaderName, Option<String>) {
    let CallContext { tenant, session, user, metadata, .. } = context;
    let (name, value) = match identity {
        Identity::Tenant => ("x-loopgate-tenant", Some(tenant.to_string())),
        Identity::Session => ("x-loopgate-session-id", session.as_ref().map(ToString::to_string)),
        Identity::User => ("x-loopgate-user", user.clone().filter(|user| !user.is_empty())),
        Identity::Metadata => ("x-loopgate-metadata", (!metadata.is_empty()).then(|| json(metadata))),
    };
    (HeaderName::from_static(name), value)
}

fn json(metadata: &BTreeMap<String, String>) -> String {
    serde_json::to_string(metadata).expect("a map of texts is always JSON text")
}
