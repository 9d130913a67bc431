//! `loopgate ask`: one question, its text and tool events as they come.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use clap::Args;
use http::Method;
use serde::Deserialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::client::{Client, RequestError, local_url};
use super::dry_run::DryRun;
use super::frames::Frames;
use super::local_server::with_ollama;
use super::process::{Failure, complain, env, runtime, say, takes_colours};
use super::runs::shared::{code_of, failure};
use super::screen::Screen;
use super::story::{Detail, Event, Story, Told};
use crate::config::{Options, Settings, StoreUrl};
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
    #[arg(long, env = "LOOPGATE_URL", value_name = "URL", hide_env_values = true)]
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

    /// Say what the model would be sent and what that may cost, and call nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    options: Options,
}

pub(super) fn run(ask: &Ask) -> Result<(), Failure> {
    runtime()?.block_on(async {
        if let Some(url) = &ask.url {
            return ask_server(ask, url).await;
        }
        let settings = Settings::load(&ask.options, &env).map_err(Failure::config)?;
        let listen = settings.server.listen;
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(listen)).await;
        if matches!(connected, Ok(Ok(_))) {
            ask_server(ask, &local_url(listen)).await
        } else {
            Box::pin(ask_own_server(ask, settings)).await
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
    let client = Client::new(url, ask.key.clone())?;
    let model = match &ask.model {
        Some(model) => model.clone(),
        None => first_model(&client).await?,
    };
    let mut body = serde_json::json!({
        "model": model, "stream": true, "messages": [{"role": "user", "content": ask.question}],
        "agent": {"include_report": false, "delegate_events": true},
    });
    if let Some(session) = &ask.session {
        body["agent"]["session_id"] = session.as_str().into();
    }
    if ask.dry_run {
        (body["stream"], body["agent"]["dry_run"]) = (false.into(), true.into());
    }
    let request = client.request(Method::POST, &["v1", "agent", "completions"], &[]);
    let request = request.header("content-type", "application/json").body(body.to_string());
    let response = client.send(request).await.map_err(refused)?;
    if ask.dry_run {
        let body = response.bytes().await.map_err(Failure::new)?;
        let dry: DryRun = serde_json::from_slice(&body).map_err(Failure::new)?;
        say(dry.told().trim_end());
        return Ok(());
    }
    show(&client, response).await
}

/// A server that does not answer has the exit code that it has with the commands for runs.
fn refused(error: RequestError) -> Failure {
    match error {
        RequestError::Unreachable { .. } => failure(&error),
        RequestError::Refused { .. } | RequestError::Malformed { .. } | RequestError::Ended { .. } => {
            Failure::new(error)
        }
    }
}

async fn first_model(client: &Client) -> Result<String, Failure> {
    #[derive(Deserialize)]
    struct List {
        data: Vec<Model>,
    }
    #[derive(Deserialize)]
    struct Model {
        id: String,
    }
    let list: List = client.get(&["v1", "models"], &[]).await.map_err(refused)?;
    let mut ids: Vec<_> = list.data.into_iter().map(|model| model.id).collect();
    // The list does not tell what a model is for; its name mostly does.
    let chats = ids.iter().position(|id| !is_named_for_other_work(id)).unwrap_or(0);
    let first = (!ids.is_empty()).then(|| ids.swap_remove(chats));
    first.ok_or_else(|| Failure::new("the server lists no models; name one with --model"))
}

/// Whether a model is by its name one that makes no conversation, but vectors, speech or pictures.
fn is_named_for_other_work(id: &str) -> bool {
    const OTHER_WORK: [&str; 11] = [
        "embed",
        "rerank",
        "whisper",
        "transcribe",
        "tts",
        "speech",
        "moderation",
        "dall-e",
        "imagen",
        "stable-diffusion",
        "bge-",
    ];
    let id = id.to_lowercase();
    OTHER_WORK.iter().any(|word| id.contains(word))
}

/// Text on standard output, everything else dimmed on standard error.
async fn show(client: &Client, mut response: reqwest::Response) -> Result<(), Failure> {
    let (mut frames, mut story) = (Frames::default(), Story::new(Detail::Answer));
    let mut screen = Screen::new(takes_colours(stderr().is_terminal()), |line| complain(line));
    let mut ended = None;
    let broken = |error: reqwest::Error| -> RequestError { client.unreachable(&error) };
    while let Some(bytes) = response.chunk().await.map_err(broken).map_err(Failure::new)? {
        frames.push(&bytes).map_err(Failure::new)?;
        while let Some(frame) = frames.next() {
            // What is no JSON object is the closing `[DONE]`.
            let Ok(event) = serde_json::from_str::<Event>(&frame.data) else { continue };
            if let Some(message) = event.stream_error() {
                return Err(Failure::new(message));
            }
            let told = story.tell(&event);
            for told in &told {
                screen.show(told);
            }
            ended = ending(&told);
        }
    }
    match ended {
        Some((0, _)) => Ok(()),
        Some((code, None)) => Err(Failure::code(code)),
        Some((code, Some(message))) => Err(Failure { code, ..Failure::new(message) }),
        None => Err(Failure::new("the stream ended before the run did")),
    }
}

/// The exit code and the error of a run that ends here. It need not be the run's last event: a run that waited may go on.
fn ending(told: &[Told]) -> Option<(u8, Option<String>)> {
    told.iter().find_map(|told| match told {
        Told::End { status, error, .. } => Some((code_of(status), error.clone())),
        Told::Text(_) | Told::Note(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_goes_on_after_it_waited_has_not_ended() {
        let mut story = Story::new(Detail::Answer);
        let mut ended = |event: serde_json::Value| ending(&story.tell(&serde_json::from_value(event).unwrap()));
        let end = |status: &str| {
            serde_json::json!({"type": "run.requires_action", "agent": {"status": status, "stop_reason": "approval",
                "run_id": "r", "iterations": 1, "tool_calls": 0, "cost_usd": 0}})
        };
        assert_eq!(ended(end("requires_action")), Some((6, None)));
        assert_eq!(ended(serde_json::json!({"type": "run.resumed", "run_id": "r"})), None);
        assert_eq!(ended(end("completed")), Some((0, None)));
        assert_eq!(ended(serde_json::json!({"choices": [{"delta": {"content": "More."}}]})), None);
    }

    #[test]
    fn models_that_do_not_converse_are_known_by_their_names() {
        for id in [
            "openai/text-embedding-3-small",
            "local/nomic-embed-text:latest",
            "openai/whisper-1",
            "openai/gpt-4o-mini-tts",
        ] {
            assert!(is_named_for_other_work(id), "{id}");
        }
        for id in ["default", "openai/gpt-5-mini", "local/llama3.2:3b", "anthropic/claude-sonnet-4-5", "demo/demo"] {
            assert!(!is_named_for_other_work(id), "{id}");
        }
    }
}
