//! Reads an upstream's error, and decides what kind of failure it is.
//!
//! Pure. The text is worded to follow the upstream's name. It may still contain what the upstream quoted. So the key
//! is removed and the text is cut before it is shown.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;

use crate::llm::told_window::Told;
use crate::llm::{ModelErrorKind, Spent};
use crate::types::Usage;

/// The codes of an error within an answer that repeating the request cannot help.
const REJECTIONS: [&str; 12] = [
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "invalid_api_key",
    "not_found_error",
    "request_too_large",
    "data_residency_mismatch",
    // Of Google.
    "INVALID_ARGUMENT",
    "FAILED_PRECONDITION",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "NOT_FOUND",
];
/// Those of them that blame what was asked. Besides these, every code about images does.
const BLAME_REQUEST: [&str; 3] = ["invalid_request_error", "invalid_prompt", "bio_policy"];
/// How much of a body is read that is no JSON, in characters.
const MAX_PLAIN: usize = 300;

/// An upstream's own account of a failure, as far as it can be understood.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    message: Option<String>,
    /// Its `code` and `type`; Google's `status`, and the reasons among its details.
    codes: Box<[String]>,
    /// A code that is an HTTP status.
    status: Option<u16>,
    /// How long it asks to wait.
    retry_after: Option<Duration>,
    /// What it says that the answer took until it failed.
    usage: Option<Usage>,
    /// Whether nothing of an answer had begun.
    is_before_any_answer: bool,
    /// What it may say of the model's window.
    told: Option<Box<Told>>,
}

impl Report {
    /// Reads an error body, or an event that is one; anything unknown is an empty report.
    ///
    /// Besides OpenAI's `{"error": {…}}` there are servers that wrap it in a list, write `error` as a
    /// string, or put `message` or `detail` at the top.
    pub fn read(body: &[u8]) -> Self {
        let Ok(body) = serde_json::from_slice::<Value>(body) else { return Self::plain(body) };
        let top = body.get(0).unwrap_or(&body);
        let error = top.get("error").filter(|error| !error.is_null()).unwrap_or(top);
        let detail = error.get("detail").and_then(|detail| detail.get(0)?.get("msg"));
        let texts = [Some(error), error.get("message"), error.get("detail"), detail, top.get("message")];
        let message = texts.into_iter().flatten().find_map(Value::as_str).map(str::trim);
        let codes = [error.get("code"), error.get("type"), error.get("status")].into_iter().flatten();
        let details = error.get("details").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let codes = codes.chain(details.iter().filter_map(|detail| detail.get("reason")));
        let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str()?.strip_suffix('s'));
        Self {
            message: message.filter(|message| !message.is_empty()).map(str::to_owned),
            codes: codes.filter_map(Value::as_str).map(str::to_owned).collect(),
            status: error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok()),
            retry_after: delay.and_then(|delay| seconds(delay, 1.0)),
            told: message.and_then(|message| Told::read(error, message)).map(Box::new),
            ..Self::default()
        }
    }

    /// The same account of an answer that took this until it failed.
    #[must_use]
    pub fn having_used(self, usage: Option<Usage>) -> Self {
        Self { usage, ..self }
    }

    /// The same account, in place of an answer of which nothing had begun.
    #[must_use]
    pub fn before_any_answer(self) -> Self {
        Self { is_before_any_answer: true, ..self }
    }

    /// What the answer took until it failed, if the upstream says so.
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// What an answer may have cost in the middle of which this was said. A refusal in place of an answer comes when the
    /// request was read.
    pub fn spent_within(&self) -> Spent {
        let is_refusal = self.is_before_any_answer && self.kind(None) != ModelErrorKind::Transient;
        if is_refusal { Spent::Input } else { Spent::Unknown }
    }

    /// Whether the upstream cannot read the reasoning that the request brought back.
    pub fn refuses_reasoning(&self) -> bool {
        self.codes.iter().any(|code| code == "invalid_encrypted_content")
    }

    /// What the upstream says of the model's window, where it refuses the conversation as too long.
    pub fn told(&self) -> Option<Box<Told>> {
        self.told.clone().filter(|_| self.is_context_overflow())
    }

    /// How long the upstream asks to wait, where its account says so.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The report of a body that is compressed, which was not asked for.
    pub fn unreadable(encoding: &str) -> Self {
        Self {
            message: Some(format!("its explanation is compressed ({encoding}) and cannot be read")),
            ..Self::default()
        }
    }

    /// Reads a body of plain text. A web page says nothing that helps.
    fn plain(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let text: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_PLAIN).collect();
        let told = Told::read(&Value::Null, &text).map(Box::new);
        Self { message: (!text.is_empty() && !text.starts_with('<')).then_some(text), told, ..Self::default() }
    }

    /// The status that an error within an answer stands for: its code, or 400 where it blames the request.
    pub fn status(&self) -> Option<u16> {
        let says = |code: &str| self.codes.iter().any(|known| known == code);
        let blames_request = self.blames_request() && !says("invalid_api_key") && !self.wants_money();
        self.status.or(blames_request.then_some(400))
    }

    fn blames_request(&self) -> bool {
        self.codes.iter().any(|code| BLAME_REQUEST.contains(&code.as_str()) || code.contains("image"))
    }

    /// The kind of the failure: by what the upstream says, then by `status`, without which an unknown
    /// failure may pass.
    pub fn kind(&self, status: Option<u16>) -> ModelErrorKind {
        let says = |codes: &[&str]| self.codes.iter().any(|code| codes.contains(&code.as_str()));
        let status = status.or(self.status);
        if self.wants_money() {
            return ModelErrorKind::Rejected;
        }
        if !matches!(status, Some(401 | 403 | 404 | 429)) && self.is_context_overflow() {
            return ModelErrorKind::ContextLength;
        }
        match status {
            Some(408 | 409 | 425 | 429 | 500..) => ModelErrorKind::Transient,
            Some(_) => ModelErrorKind::Rejected,
            None if says(&REJECTIONS) || self.blames_request() => ModelErrorKind::Rejected,
            None => ModelErrorKind::Transient,
        }
    }

    /// Whether the operator's account with the vendor is used up.
    fn wants_money(&self) -> bool {
        const CODES: [&str; 4] =
            ["insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error"];
        const PHRASES: [&str; 3] = ["credit balance is too low", "prepayment credits are depleted", "spending cap"];
        let message = self.message.as_deref().unwrap_or_default().to_lowercase();
        self.codes.iter().any(|code| CODES.contains(&code.as_str()))
            || PHRASES.iter().any(|phrase| message.contains(phrase))
    }

    /// The status of an answer with this report: one that blames the request for what the operator's account or key lacks
    /// is corrected.
    pub fn status_of(&self, answered: StatusCode) -> StatusCode {
        let says = |code: &str| self.codes.iter().any(|known| known == code);
        match answered {
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY if self.wants_money() => {
                StatusCode::PAYMENT_REQUIRED
            }
            // Google's words for a key that it does not know, and for an account that may not use the API.
            StatusCode::BAD_REQUEST if says("API_KEY_INVALID") => StatusCode::UNAUTHORIZED,
            StatusCode::BAD_REQUEST if says("FAILED_PRECONDITION") => StatusCode::FORBIDDEN,
            _ => answered,
        }
    }

    /// What a request may have cost that was answered with this status and by this account. A server that failed, or a
    /// gateway that gave up waiting for one, may have worked on the request for its whole timeout, and bills its input.
    /// Every other refusal says that the request was not worked on.
    pub(super) fn spent(&self, status: u16) -> Spent {
        let may_have_worked = matches!(status, 500 | 502 | 504 | 520..=524);
        let is_unexplained = self.kind(Some(status)) == ModelErrorKind::Transient;
        if may_have_worked && is_unexplained { Spent::Input } else { Spent::Nothing }
    }

    fn is_context_overflow(&self) -> bool {
        const CODES: [&str; 2] = ["context_length_exceeded", "exceed_context_size_error"];
        /// Of OpenAI, vLLM, SGLang, llama.cpp, Anthropic, Gemini, Bedrock and their gateways.
        const PHRASES: [&str; 13] = [
            "maximum context length",
            "model's context length",
            "context window",
            "context limit",
            "available context size",
            "prompt is too long",
            "maximum prompt length",
            "maximum model length",
            "too large for model with",
            "inputs` tokens + `max_new_tokens` must be",
            "input is too long",
            "reduce the length of the messages",
            "exceeds the maximum number of tokens",
        ];
        let message = self.message.as_deref().unwrap_or_default().to_lowercase();
        self.codes.iter().any(|code| CODES.contains(&code.as_str()))
            || PHRASES.iter().any(|phrase| message.contains(phrase))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => write!(f, "failed: {message}"),
            None => f.write_str("failed without saying why"),
        }
    }
}

/// An answer whose status is no success, in words.
///
/// The message of a 401 is left out, because it quotes part of the key.
pub fn refusal(status: StatusCode, report: &Report) -> String {
    match (status, &report.message) {
        (StatusCode::UNAUTHORIZED, _) => "refused our key".to_owned(),
        (StatusCode::FORBIDDEN, _) => "does not allow this with our key".to_owned(),
        (_, Some(message)) => format!("answered {}: {message}", status.as_u16()),
        (_, None) if status.is_redirection() => {
            format!("answered {}: redirects are not followed, its base_url must be the final one", status.as_u16())
        }
        (_, None) => format!("answered {status}"),
    }
}

fn seconds(text: &str, unit: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse::<f64>().ok()? * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(status: u16, body: &str) -> ModelErrorKind {
        Report::read(body.as_bytes()).kind(Some(status))
    }

    #[test]
    fn the_kind_follows_what_can_be_done() {
        use ModelErrorKind::{ContextLength, Rejected, Transient};
        for status in [408, 409, 429, 500, 502, 503, 504, 529] {
            assert_eq!(kind(status, ""), Transient, "{status}");
        }
        for status in [301, 400, 401, 402, 403, 404, 413, 422] {
            assert_eq!(kind(status, "<html>"), Rejected, "{status}");
        }
        assert_eq!(kind(429, r#"{"error":{"message":"no money","code":"insufficient_quota"}}"#), Rejected);
        assert_eq!(kind(429, r#"{"error":{"message":"no money","type":"insufficient_quota","code":null}}"#), Rejected);
        assert_eq!(kind(400, r#"{"error":{"message":"too big","code":"context_length_exceeded"}}"#), ContextLength);
        for phrase in [
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
            "prompt is too long: 200001 tokens > 200000 maximum",
            "the request exceeds the available context size, try increasing it",
            "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
        ] {
            let body = serde_json::json!({ "error": { "message": phrase } }).to_string();
            assert_eq!(kind(400, &body), ContextLength, "{phrase}");
        }
        assert_eq!(kind(404, r#"{"error":{"message":"no model with such a context window"}}"#), Rejected);
    }

    #[test]
    fn only_a_status_after_which_a_request_may_have_been_worked_on_costs_its_input() {
        let spent = |status, body: &str| Report::read(body.as_bytes()).spent(status);
        for status in [500, 502, 504, 520, 521, 522, 523, 524] {
            assert_eq!(spent(status, "<html>"), Spent::Input, "{status}");
        }
        for status in [301, 400, 401, 404, 408, 413, 422, 429, 501, 503, 525, 529] {
            assert_eq!(spent(status, ""), Spent::Nothing, "{status}");
        }
        assert_eq!(spent(500, r#"{"error":{"message":"no money","code":"insufficient_quota"}}"#), Spent::Nothing);
        assert_eq!(spent(500, r#"{"error":{"message":"the prompt is too long"}}"#), Spent::Nothing);
    }

    #[test]
    fn an_error_in_a_stream_is_classed_by_its_code() {
        let kind = |body: &str| Report::read(body.as_bytes()).kind(None);
        assert_eq!(kind(r#"{"error":{"message":"overloaded","type":"server_error"}}"#), ModelErrorKind::Transient);
        assert_eq!(kind(r#"{"error":{"message":"slow down","code":429}}"#), ModelErrorKind::Transient);
        assert_eq!(kind(r#"{"error":{"message":"bad","code":400}}"#), ModelErrorKind::Rejected);
        assert_eq!(kind(r#"{"error":{"message":"bad","type":"invalid_request_error"}}"#), ModelErrorKind::Rejected);
    }

    #[test]
    fn the_message_is_found_in_every_known_shape() {
        for body in [
            r#"{"error":{"message":" why "}}"#,
            r#"[{"error":{"message":"why"}}]"#,
            r#"{"error":"why"}"#,
            r#"{"message":"why"}"#,
            r#"{"detail":"why"}"#,
            r#"{"object":"error","message":"why","code":400}"#,
            r#"{"error":null,"message":"why"}"#,
            r#"{"detail":[{"loc":["body"],"msg":"why"}]}"#,
            " why\n",
        ] {
            assert_eq!(Report::read(body.as_bytes()).message.as_deref(), Some("why"), "{body}");
        }
        for body in ["", "<html>why</html>", "[]", "{}", "7", r#"{"error":{}}"#, r#"{"error":{"message":7}}"#] {
            assert_eq!(Report::read(body.as_bytes()).message, None, "{body}");
        }
    }

    #[test]
    fn a_refused_key_is_never_quoted() {
        let report = Report::read(br#"{"error":{"message":"Incorrect API key provided: sk-1234"}}"#);
        assert_eq!(refusal(StatusCode::UNAUTHORIZED, &report), "refused our key");
        assert_eq!(refusal(StatusCode::BAD_GATEWAY, &Report::default()), "answered 502 Bad Gateway");
    }
}
