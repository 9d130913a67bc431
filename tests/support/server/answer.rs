//! A JSON answer of a server, read with a check of its shape.

use reqwest::Response;
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::support::within;

/// A JSON answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body; `null` if it is empty.
    pub(crate) body: Value,
}

impl Answer {
    /// Reads a response whose body is JSON or empty.
    pub(crate) async fn read(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = within("the rest of an answer", response.text()).await.expect("the answer is whole");
        let body = if text.is_empty() { Ok(Value::Null) } else { serde_json::from_str(&text) };
        let body = body.unwrap_or_else(|error| panic!("{status} with a body that is not JSON ({error}): {text}"));
        Self { status, headers, body }
    }

    /// A header's value, or `""`.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body, after a check that all went well.
    pub(crate) fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.body);
        self.body
    }

    /// The error's code, after a check that the error has the one shape that is promised.
    pub(crate) fn code(&self) -> &str {
        let error = self.body["error"].as_object().unwrap_or_else(|| panic!("{} {}", self.status, self.body));
        for key in ["message", "type", "param", "code"] {
            assert!(error.contains_key(key), "the error has no {key}: {}", self.body);
        }
        assert!(error["message"].as_str().is_some_and(|message| message.len() > 5), "{}", self.body);
        assert!(error["type"].is_string(), "{}", self.body);
        assert!(error["param"].is_string() || error["param"].is_null(), "{}", self.body);
        assert!(!self.header("x-request-id").is_empty(), "the answer has no request id: {}", self.body);
        error["code"].as_str().unwrap_or_else(|| panic!("the code is no string: {}", self.body))
    }
}
