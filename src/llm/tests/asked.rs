//! An upstream of each kind, and the bodies of the requests that it is sent.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::config::{AnthropicUpstream, ChatManner, GeminiUpstream, HttpUpstream, OpenAiUpstream, ResponsesUpstream};
use crate::llm::anthropic::AnthropicModel;
use crate::llm::gemini::GeminiModel;
use crate::llm::http::http_client;
use crate::llm::openai::OpenAiModel;
use crate::llm::responses::ResponsesModel;
use crate::llm::testing::{http_upstream, request};
use crate::llm::{Model, ModelRequest};
use crate::net::testing::{Act, serve_with};
use crate::types::tool::WrittenCalls;
use crate::types::{Message, Role};

const LONG: Duration = Duration::from_secs(20);

/// A kind of upstream, and a model of it.
pub(super) struct Kind {
    /// The head of its column.
    pub(super) column: &'static str,
    /// Whether it stands in tables that do not tell a vendor from others that speak the same.
    pub(super) is_first: bool,
    pub(super) model: Box<dyn Model>,
    /// What the model is called.
    pub(super) name: &'static str,
}

/// All kinds. What they are sent arrives at one server.
pub(super) struct Kinds {
    pub(super) all: Vec<Kind>,
    received: Arc<Mutex<Vec<String>>>,
    _server: JoinSet<()>,
}

impl Kinds {
    /// Starts the server, which refuses whatever it is asked.
    pub(super) async fn start() -> Self {
        let received: Arc<Mutex<Vec<String>>> = Arc::default();
        let record = received.clone();
        let (address, server) = serve_with(move |request| {
            record.lock().push(request);
            Act::from("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        })
        .await;
        let http = http_upstream(&format!("http://{address}/v1"), "sk-key", LONG);
        let all = vec![
            chat("`openai` at OpenAI", true, &http, (ChatManner::OPENAI, false)),
            chat("`openai` elsewhere", false, &http, (ChatManner::COMPATIBLE, true)),
            responses("`openai_responses` at OpenAI", true, &http, false),
            responses("`openai_responses` elsewhere", false, &http, true),
            anthropic(&http),
            gemini(&http),
        ];
        Self { all, received, _server: server }
    }

    /// The heads of the columns.
    pub(super) fn columns(&self) -> Vec<&'static str> {
        self.all.iter().map(|kind| kind.column).collect()
    }

    /// The body of the request that a kind is sent.
    pub(super) async fn body(&self, kind: &Kind, change: impl FnOnce(&mut ModelRequest)) -> Value {
        let hi = [Message::text(Role::User, "hi")];
        let mut request = ModelRequest { max_tokens: Some(20_000), ..request(kind.name, hi) };
        change(&mut request);
        drop(kind.model.stream(request).collect::<Vec<_>>().await);
        let whole = self.received.lock().pop().expect("it was asked");
        let (_, body) = whole.split_once("\r\n\r\n").expect("a head ends");
        serde_json::from_str(body).expect("the body is JSON")
    }
}

fn chat(column: &'static str, is_first: bool, http: &HttpUpstream, (chat, takes_unknown): (ChatManner, bool)) -> Kind {
    let config = OpenAiUpstream {
        http: http.clone(),
        written_calls: WrittenCalls::None,
        pass_unknown_members: takes_unknown,
        ask_in_one_piece: false,
        chat,
        key_header: None,
        provider: None,
        api_version: None,
    };
    let model = OpenAiModel::new("u", &config, http_client(LONG).unwrap()).unwrap();
    Kind { column, is_first, model: Box::new(model), name: "gpt-4.1" }
}

fn responses(column: &'static str, is_first: bool, http: &HttpUpstream, takes_unknown: bool) -> Kind {
    let config = ResponsesUpstream {
        http: http.clone(),
        pass_unknown_members: takes_unknown,
        reasoning_summary: None,
        encrypted_reasoning: None,
        key_header: None,
        provider: None,
    };
    let model = ResponsesModel::new("u", &config, http_client(LONG).unwrap()).unwrap();
    Kind { column, is_first, model: Box::new(model), name: "gpt-4.1" }
}

fn anthropic(http: &HttpUpstream) -> Kind {
    let config = AnthropicUpstream {
        http: http.clone(),
        version: "2023-06-01".to_owned(),
        beta: Vec::new(),
        max_tokens: None,
        prompt_cache: false,
    };
    let model = AnthropicModel::new("u", &config, http_client(LONG).unwrap()).unwrap();
    Kind { column: "`anthropic`", is_first: true, model: Box::new(model), name: "claude-sonnet-4-5" }
}

fn gemini(http: &HttpUpstream) -> Kind {
    let config = GeminiUpstream { http: http.clone(), ask_in_one_piece: false };
    let model = GeminiModel::new("u", &config, http_client(LONG).unwrap()).unwrap();
    Kind { column: "`gemini`", is_first: true, model: Box::new(model), name: "gemini-3-flash" }
}
