//! `loopgate ask`: one question, its text and tool events as they come.

use std::collections::HashMap;
use std::error::Error;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::local_server::with_ollama;
use super::process::{Failure, complain, env, runtime};
use crate::config::{Options, Settings, StoreUrl};
use crate::llm::sse::Parser;
use crate::server::{Server, Stopping};

/// How long a server on this machine may take to accept a connection. Not a setting: without one, the command
/// starts its own.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// Ask a question and watch the run.
#[derive(Debug, Args)]
pub(super) struct Ask {
    /// The question
    question: String,

    /// The server to ask; without it, the one that listens where the configuration says, or else one
    /// inside this process for the time of the answer
    #[arg(long, env = "LOOPGATE_URL", value_name = "URL")]
    url: Option<String>,

    /// The server's API key
    #[arg(long, env = "LOOPGATE_KEY", value_name = "KEY", hide_env_values = true)]
    key: Option<String>,

    /// The model or agent; without it, the first that the server lists
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,

    /// The conversation to continue
    #[arg(long, value_name = "ID")]
    session: Option<String>,

    #[command(flatten)]
    options: Options,
}

pub(super) fn run(ask: &Ask) -> Result<(), Failure> {
    runtime()?.block_on(async {
        if let Some(url) = &ask.url {
            return ask_server(ask, url.trim_end_matches('/')).await;
        }
        let settings = Settings::load(&ask.options, &env).map_err(Failure::config)?;
        let listen = settings.server.listen;
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(listen)).await;
        if matches!(connected, Ok(Ok(_))) {
            ask_server(ask, &format!("http://{listen}")).await
        } else {
            ask_own_server(ask, settings).await
        }
    })
}

/// Serves on a free port of this machine for as long as the answer takes. Nothing is kept, unless a
/// store or a session is named.
async fn ask_own_server(ask: &Ask, settings: Settings) -> Result<(), Failure> {
    let mut settings = with_ollama(&ask.options, settings).await;
    settings.keys.clear();
    if ask.options.store.is_none() && ask.session.is_none() {
        settings.store.url = StoreUrl::Memory;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Failure::new)?;
    let url = format!("http://{}", listener.local_addr().map_err(Failure::new)?);
    let (server, _) = Server::build(settings).await.map_err(Failure::new)?;
    let (stopping, told) = watch::channel(Stopping::No);
    let asking = async {
        let answered = ask_server(ask, &url).await;
        stopping.send_replace(Stopping::Now);
        answered
    };
    let ((), answered) = tokio::join!(server.serve(listener, told), asking);
    answered
}

async fn ask_server(ask: &Ask, url: &str) -> Result<(), Failure> {
    let client = reqwest::Client::new();
    let authorized = |request: reqwest::RequestBuilder| match &ask.key {
        Some(key) => request.bearer_auth(key),
        None => request,
    };
    let model = match &ask.model {
        Some(model) => model.clone(),
        None => first_model(url, authorized(client.get(format!("{url}/v1/models")))).await?,
    };
    let mut body = serde_json::json!({
        "model": model, "stream": true, "messages": [{"role": "user", "content": ask.question}],
        "agent": {"include_report": false},
    });
    if let Some(session) = &ask.session {
        body["agent"]["session_id"] = session.as_str().into();
    }
    let request = client.post(format!("{url}/v1/agent/completions")).header("content-type", "application/json");
    let response = authorized(request.body(body.to_string())).send().await.map_err(|error| unreachable(url, &error))?;
    if !response.status().is_success() {
        return Err(refused(response).await);
    }
    show(url, response).await
}

async fn first_model(url: &str, request: reqwest::RequestBuilder) -> Result<String, Failure> {
    #[derive(Deserialize)]
    struct List {
        data: Vec<Model>,
    }
    #[derive(Deserialize)]
    struct Model {
        id: String,
    }
    let response = request.send().await.map_err(|error| unreachable(url, &error))?;
    if !response.status().is_success() {
        return Err(refused(response).await);
    }
    let body = response.bytes().await.map_err(|error| unreachable(url, &error))?;
    let list: List = serde_json::from_slice(&body).map_err(Failure::new)?;
    let first = list.data.into_iter().next();
    first.map(|model| model.id).ok_or_else(|| Failure::new("the server lists no models; name one with --model"))
}

async fn refused(response: reqwest::Response) -> Failure {
    let status = response.status();
    let body = response.bytes().await.unwrap_or_default();
    let said = serde_json::from_slice::<ErrorFrame>(&body).map(|frame| frame.error.message);
    Failure::new(format_args!("{status}: {}", said.unwrap_or_default()))
}

/// The innermost error says what happened, the outer ones only during what.
fn unreachable(url: &str, error: &reqwest::Error) -> Failure {
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    Failure::new(format_args!("the server at {url} does not answer: {cause}"))
}

#[derive(Deserialize)]
struct ErrorFrame {
    error: ErrorText,
}

#[derive(Deserialize)]
struct ErrorText {
    message: String,
}

/// What of an event is shown.
#[derive(Deserialize)]
struct Shown {
    /// Chunks of text have none.
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    call_id: String,
    #[serde(default)]
    name: String,
    arguments: Option<Box<RawValue>>,
    #[serde(default)]
    content: String,
    #[serde(default)]
    is_error: bool,
    #[serde(default)]
    latency_ms: u64,
    #[serde(default)]
    text: String,
    agent: Option<Ending>,
    error: Option<ErrorText>,
    #[serde(default)]
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Ending {
    status: String,
    stop_reason: String,
    run_id: String,
    iterations: u32,
    tool_calls: u32,
    cost_usd: f64,
}

#[derive(Deserialize)]
struct Choice {
    delta: Delta,
}

#[derive(Deserialize)]
struct Delta {
    #[serde(default)]
    content: String,
    #[serde(default)]
    refusal: String,
}

async fn show(url: &str, mut response: reqwest::Response) -> Result<(), Failure> {
    let mut parser = Parser::default();
    let mut screen = Screen::new();
    let mut ended = None;
    while let Some(bytes) = response.chunk().await.map_err(|error| unreachable(url, &error))? {
        let mut rest = &bytes[..];
        while let Some(data) = parser.next_event(&mut rest).map_err(Failure::new)? {
            // What is no JSON object is the closing `[DONE]`.
            if let Ok(shown) = serde_json::from_slice::<Shown>(data) {
                ended = screen.show(&shown).or(ended.take());
            }
        }
    }
    match ended {
        Some(Ok(())) => Ok(()),
        Some(Err(message)) => Err(Failure::new(message)),
        None => Err(Failure::new("the stream ended before the run did")),
    }
}

/// Text on standard output, everything else dimmed on standard error.
struct Screen {
    dim: &'static str,
    plain: &'static str,
    names: HashMap<String, String>,
    in_text: bool,
}

impl Screen {
    fn new() -> Self {
        let colours = std::io::stderr().is_terminal() && env("NO_COLOR").is_none_or(|value| value.is_empty());
        let (dim, plain) = if colours { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
        Self { dim, plain, names: HashMap::new(), in_text: false }
    }

    /// Shows an event; the last one says how the run ended.
    fn show(&mut self, shown: &Shown) -> Option<Result<(), String>> {
        match shown.r#type.as_str() {
            "" => {
                let said = shown.choices.iter().flat_map(|Choice { delta }| [&*delta.content, &*delta.refusal]);
                let text: String = said.collect();
                self.write(&text);
            }
            "tool.call" => {
                let arguments = shown.arguments.as_ref().map_or("", |arguments| arguments.get());
                self.names.insert(shown.call_id.clone(), shown.name.clone());
                self.note(&format!("→ {} {arguments}", shown.name));
            }
            "tool.result" => {
                let mark = if shown.is_error { "✗" } else { "←" };
                let first = shown.content.lines().next().unwrap_or_default();
                self.note(&format!("{mark} {}: {first} ({} ms)", shown.name, shown.latency_ms));
            }
            "thinking.delta" => self.note(shown.text.trim_end()),
            "step.discarded" => self.note("(the answer broke off; the text above is void)"),
            "provider.retry" => self.note("(the model did not answer; trying again)"),
            _ => {}
        }
        let ending = shown.agent.as_ref()?;
        self.note(&format!(
            "{} ({}), {} model calls, {} tool calls, ${}, {}",
            ending.status, ending.stop_reason, ending.iterations, ending.tool_calls, ending.cost_usd, ending.run_id
        ));
        Some(match &shown.error {
            Some(error) => Err(error.message.clone()),
            None => Ok(()),
        })
    }

    fn write(&mut self, text: &str) {
        let mut out = std::io::stdout().lock();
        // A closed pipe ends the output, not the run.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        self.in_text |= !text.is_empty();
    }

    fn note(&mut self, text: &str) {
        if std::mem::take(&mut self.in_text) {
            let _ = writeln!(std::io::stdout());
        }
        complain(format_args!("{}{text}{}", self.dim, self.plain));
    }
}
