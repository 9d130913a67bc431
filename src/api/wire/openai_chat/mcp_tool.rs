//! Servers of tools among the tools of a request, in the shape that OpenAI's Responses have for them.
//!
//! What a server is to be shown is a secret: no message here quotes a value that may hold one.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::wire::body::{clip, malformed, missing};
use crate::api::wire::error::WireError;
use crate::config::{MAX_MCP_NAME, is_free_header, is_mcp_name};
use crate::types::named_server::{AskedServer, NamedServer, ServerApproval, ToolFilter};

/// Longest URL of a server, in bytes.
const MAX_URL: usize = 4_096;
/// Most headers, and most bytes of their names and values together.
const MAX_HEADERS: usize = 32;
const MAX_HEADER_BYTES: usize = 8_192;
/// Longest description, in characters.
const MAX_DESCRIPTION: usize = 1_024;
/// Most names of tools in a list, and the longest of them, in bytes.
const MAX_NAMES: usize = 256;
const MAX_NAME_BYTES: usize = 256;

/// A server as the request writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct View<'a> {
    #[serde(rename = "type")]
    _type: IgnoredAny,
    server_label: Option<String>,
    #[serde(borrow)]
    server_url: Option<&'a RawValue>,
    server_description: Option<String>,
    connector_id: Option<IgnoredAny>,
    #[serde(borrow)]
    headers: Option<&'a RawValue>,
    #[serde(borrow)]
    authorization: Option<&'a RawValue>,
    #[serde(borrow)]
    allowed_tools: Option<&'a RawValue>,
    #[serde(borrow)]
    require_approval: Option<&'a RawValue>,
}

/// Reads the server at this place of the request's tools, of which `others` stand before it.
pub fn read_server(json: &RawValue, place: usize, others: &[AskedServer]) -> Result<AskedServer, WireError> {
    let path = format!("tools[{place}]");
    let view: View<'_> = serde_json::from_str(json.get())
        .map_err(|error| malformed(&error))
        .and_then(|view: View<'_>| check_kind(&view).map(|()| view))
        .map_err(|error| error.within(&path))?;
    let read = || {
        let label = label(view.server_label, others)?;
        let url = text(view.server_url, "server_url", MAX_URL)?.ok_or_else(|| missing("server_url"))?;
        let headers = headers(view.headers, view.authorization)?;
        let allowed = filter_or_names(view.allowed_tools, "allowed_tools")?.unwrap_or_default();
        let approval = approval(view.require_approval)?;
        let description = view.server_description.filter(|text| !text.trim().is_empty());
        if description.as_ref().is_some_and(|text| text.chars().count() > MAX_DESCRIPTION) {
            let message = format!("must have at most {MAX_DESCRIPTION} characters");
            return Err(WireError::invalid("server_description", message));
        }
        let server = NamedServer { label, url, headers, tools: allowed.names };
        Ok(AskedServer { place, server, only_reading: allowed.reading, approval, description })
    };
    read().map_err(|error: WireError| error.within(&path))
}

fn check_kind(view: &View<'_>) -> Result<(), WireError> {
    match view.connector_id {
        None => Ok(()),
        Some(_) => {
            Err(WireError::invalid("connector_id", "connectors are not supported; name the server's URL in server_url"))
        }
    }
}

fn label(label: Option<String>, others: &[AskedServer]) -> Result<String, WireError> {
    let label = label.ok_or_else(|| missing("server_label"))?;
    if !is_mcp_name(&label) {
        let message = format!(
            "a label has 1 to {MAX_MCP_NAME} characters of A-Z a-z 0-9 _ -, and no `_` at its ends or beside another: the tools are \
             named LABEL__TOOL"
        );
        return Err(WireError::invalid("server_label", message));
    }
    if others.iter().any(|other| other.server.label == label) {
        return Err(WireError::invalid("server_label", format!("there are two servers with the label {label:?}")));
    }
    Ok(label)
}

/// A text that may be a secret.
fn text(raw: Option<&RawValue>, name: &str, most: usize) -> Result<Option<String>, WireError> {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(None) };
    let text: String = serde_json::from_str(raw.get()).map_err(|_| WireError::invalid(name, "must be a string"))?;
    if text.is_empty() || text.len() > most {
        return Err(WireError::invalid(name, format!("must have 1 to {most} bytes")));
    }
    Ok(Some(text))
}

/// What each request to the server shows.
fn headers(raw: Option<&RawValue>, token: Option<&RawValue>) -> Result<Vec<(String, String)>, WireError> {
    let mut headers: Vec<(String, String)> = Vec::new();
    let raw = raw.filter(|raw| raw.get() != "null");
    let members: Option<BTreeMap<String, Value>> = raw
        .map(|raw| serde_json::from_str(raw.get()))
        .transpose()
        .map_err(|_| WireError::invalid("headers", "must be an object of strings"))?;
    for (name, value) in members.into_iter().flatten() {
        let path = format!("headers.{}", clip(&name));
        let refuse = |message: &str| Err(WireError::invalid(path.as_str(), message));
        let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
            return refuse("this is not the name of an HTTP header");
        };
        let Value::String(value) = value else { return refuse("must be a string") };
        if !is_free_header(&header) {
            return refuse("this header belongs to the connection or the protocol: the server decides about it");
        }
        if HeaderValue::from_str(&value).is_err() || value.trim().is_empty() {
            return refuse("must be a text that an HTTP header can carry");
        }
        if headers.iter().any(|(known, _)| known == header.as_str()) {
            return refuse("this header is given twice; upper and lower case are the same");
        }
        headers.push((header.as_str().to_owned(), value));
    }
    if let Some(token) = text(token, "authorization", MAX_HEADER_BYTES)? {
        let refuse = |message: &str| Err(WireError::invalid("authorization", message));
        if headers.iter().any(|(name, _)| name == "authorization") {
            return refuse("headers has an authorization already");
        }
        // The token alone, as OpenAI takes it; some callers write the scheme too.
        let value = if token.starts_with("Bearer ") { token } else { format!("Bearer {token}") };
        if HeaderValue::from_str(&value).is_err() {
            return refuse("must be a text that an HTTP header can carry");
        }
        headers.push(("authorization".to_owned(), value));
    }
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if headers.len() > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
        let message = format!("may have at most {MAX_HEADERS} headers of {MAX_HEADER_BYTES} bytes together");
        return Err(WireError::invalid("headers", message));
    }
    Ok(headers)
}

/// A list of names, or an object that names tools.
fn filter_or_names(raw: Option<&RawValue>, path: &str) -> Result<Option<ToolFilter>, WireError> {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(None) };
    if !raw.get().starts_with('[') {
        return filter(raw, path).map(Some);
    }
    let names: Vec<String> = serde_json::from_str(raw.get()).map_err(|error| malformed(&error).within(path))?;
    check_names(&names).map_err(|message| WireError::invalid(path, message))?;
    Ok(Some(ToolFilter { names: Some(names), reading: None }))
}

fn filter(raw: &RawValue, path: &str) -> Result<ToolFilter, WireError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct View {
        tool_names: Option<Vec<String>>,
        read_only: Option<bool>,
    }
    if !raw.get().starts_with('{') {
        return Err(WireError::invalid(path, "must be an object with tool_names or read_only"));
    }
    let View { tool_names, read_only } =
        serde_json::from_str(raw.get()).map_err(|error| malformed(&error).within(path))?;
    if let Some(names) = &tool_names {
        check_names(names).map_err(|message| WireError::invalid(format!("{path}.tool_names"), message))?;
    }
    Ok(ToolFilter { names: tool_names, reading: read_only })
}

fn check_names(names: &[String]) -> Result<(), String> {
    let is_valid = |name: &String| (1..=MAX_NAME_BYTES).contains(&name.len());
    if !(1..=MAX_NAMES).contains(&names.len()) || !names.iter().all(is_valid) {
        return Err(format!("must have 1 to {MAX_NAMES} names of 1 to {MAX_NAME_BYTES} bytes each"));
    }
    Ok(())
}

/// Which calls need an approval.
fn approval(raw: Option<&RawValue>) -> Result<ServerApproval, WireError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct View<'a> {
        #[serde(borrow)]
        always: Option<&'a RawValue>,
        #[serde(borrow)]
        never: Option<&'a RawValue>,
    }
    const PATH: &str = "require_approval";
    match raw.map(RawValue::get) {
        None | Some("null" | "\"always\"") => Ok(ServerApproval::Always),
        Some("\"never\"") => Ok(ServerApproval::Never),
        Some(json) if json.starts_with('{') => {
            let View { always, never } = serde_json::from_str(json).map_err(|error| malformed(&error).within(PATH))?;
            let read = |raw: Option<&RawValue>, name: &str| {
                let raw = raw.filter(|raw| raw.get() != "null");
                raw.map(|raw| filter(raw, &format!("{PATH}.{name}"))).transpose()
            };
            Ok(ServerApproval::Unless { always: read(always, "always")?, never: read(never, "never")? })
        }
        Some(_) => Err(WireError::invalid(PATH, "must be always, never or an object with always and never")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(mut server: Value) -> Result<AskedServer, WireError> {
        let given = server.as_object_mut().unwrap();
        given.entry("type").or_insert("mcp".into());
        for (name, value) in [("server_label", "crm"), ("server_url", "https://mcp.example.com/mcp")] {
            given.entry(name).or_insert(value.into());
        }
        read_server(&serde_json::value::to_raw_value(&server).unwrap(), 2, &[])
    }

    #[test]
    fn a_server_is_read_as_openai_writes_it() {
        let server = read(json!({
            "headers": {"X-Key": "k-1"}, "authorization": "sk-1", "server_description": "Customers.",
            "allowed_tools": {"tool_names": ["get"], "read_only": true},
            "require_approval": {"never": {"tool_names": ["get"]}},
        }))
        .unwrap();
        let NamedServer { label, url, headers, tools } = server.server;
        assert_eq!((label.as_str(), url.as_str()), ("crm", "https://mcp.example.com/mcp"));
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(headers, [header("x-key", "k-1"), header("authorization", "Bearer sk-1")]);
        assert_eq!((tools, server.only_reading), (Some(vec!["get".to_owned()]), Some(true)));
        assert_eq!((server.place, server.description.as_deref()), (2, Some("Customers.")));
        let never = Some(ToolFilter { names: Some(vec!["get".to_owned()]), reading: None });
        assert_eq!(server.approval, ServerApproval::Unless { always: None, never });
        let plain = read(json!({"allowed_tools": ["a", "b"], "authorization": "Bearer sk-1"})).unwrap();
        assert_eq!(plain.approval, ServerApproval::Always, "an approval is needed unless the request says otherwise");
        assert_eq!(plain.server.headers, [header("authorization", "Bearer sk-1")]);
        assert_eq!(read(json!({"require_approval": "never"})).unwrap().approval, ServerApproval::Never);
    }

    #[test]
    fn what_is_wrong_is_named_and_no_secret_is_quoted() {
        let long = "x".repeat(5_000);
        for (server, param) in [
            (json!({"server_label": null}), "server_label"),
            (json!({"server_label": "a__b"}), "server_label"),
            (json!({"server_label": 1}), ""),
            (json!({"server_url": null}), "server_url"),
            (json!({"server_url": ["SECRET"]}), "server_url"),
            (json!({"server_url": long}), "server_url"),
            (json!({"connector_id": "connector_dropbox"}), "connector_id"),
            (json!({"tunnel": 1}), "tunnel"),
            (json!({"headers": "SECRET"}), "headers"),
            (json!({"headers": {"a": ["SECRET"]}}), "headers.a"),
            (json!({"headers": {"a b": "SECRET"}}), "headers.a b"),
            (json!({"headers": {"a": "SECRET\n"}}), "headers.a"),
            (json!({"headers": {"Host": "SECRET"}}), "headers.Host"),
            (json!({"headers": {"mcp-session-id": "SECRET"}}), "headers.mcp-session-id"),
            (json!({"headers": {"transfer-encoding": "SECRET"}}), "headers.transfer-encoding"),
            (json!({"headers": {"A": "SECRET", "a": "SECRET"}}), "headers.a"),
            (json!({"headers": {"Authorization": "SECRET"}, "authorization": "SECRET"}), "authorization"),
            (json!({"authorization": {"SECRET": 1}}), "authorization"),
            (json!({"authorization": "SECRET\u{1}"}), "authorization"),
            (json!({"headers": {"a": "x".repeat(5_000), "b": "x".repeat(5_000)}}), "headers"),
            (json!({"allowed_tools": []}), "allowed_tools"),
            (json!({"allowed_tools": "get"}), "allowed_tools"),
            (json!({"allowed_tools": {"tool_names": [""]}}), "allowed_tools.tool_names"),
            (json!({"allowed_tools": {"names": []}}), "allowed_tools.names"),
            (json!({"require_approval": "sometimes"}), "require_approval"),
            (json!({"require_approval": {"never": "get"}}), "require_approval.never"),
            (json!({"server_description": "x".repeat(2_000)}), "server_description"),
        ] {
            let error = read(server.clone()).unwrap_err();
            let expected = if param.is_empty() { "tools[2]".to_owned() } else { format!("tools[2].{param}") };
            assert_eq!(error.param, Some(expected), "{server}: {error:?}");
            assert!(!error.message.contains("SECRET"), "{error:?}");
        }
    }
}
