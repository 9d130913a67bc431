//! The scripted upstream: a raw HTTP server that says what [`Script`] holds, and answers calls of an HTTP tool.
//!
//! It answers by the model's name and by how many tool results the conversation holds, and remembers
//! nothing between requests.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;
use std::rc::Rc;

use bytes::Bytes;
use futures_util::Stream;
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::LocalSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::dialects::Dialect;
use crate::failure::Failure;
use crate::script::{self, MODELS, MULTIPLY_PATH, Script, TRACES_PATH};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The scripts that have been asked for, so that they are written once.
type Scripts = std::cell::RefCell<HashMap<(String, usize), Script>>;

/// What matters of a chat request.
#[derive(Deserialize)]
struct Asked {
    model: String,
    #[serde(default)]
    stream: bool,
    messages: Vec<RequestMessage>,
}

#[derive(Deserialize)]
struct RequestMessage {
    role: String,
}

/// Answers until the process is killed.
pub(crate) async fn serve(listener: TcpListener) -> Result<(), Failure> {
    let scripts = Rc::new(Scripts::default());
    let connections = LocalSet::new();
    connections
        .run_until(async {
            loop {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let scripts = Rc::clone(&scripts);
                tokio::task::spawn_local(async move {
                    let service = service_fn(move |request| answer(request, Rc::clone(&scripts)));
                    // Without vectored writes, events that are ready at once leave in one piece. That a
                    // client goes away is part of the play.
                    let connection =
                        http1::Builder::new().writev(false).serve_connection(TokioIo::new(stream), service);
                    connection.await.ok();
                });
            }
        })
        .await
}

async fn answer(request: Request<Incoming>, scripts: Rc<Scripts>) -> Result<Response<Body>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    Ok(match path.as_str() {
        "/healthz" => json_response(StatusCode::OK, &json!({"status": "ok"})),
        "/v1/models" => {
            let models: Vec<_> = MODELS.iter().map(|model| json!({"id": model, "object": "model"})).collect();
            json_response(StatusCode::OK, &json!({"object": "list", "data": models}))
        }
        "/v1/chat/completions" => completion(&body, &scripts),
        MULTIPLY_PATH => match script::product(&body) {
            Some(product) => in_json(StatusCode::OK, product),
            None => refusal(StatusCode::BAD_REQUEST, "not two factors"),
        },
        // What a collector says that took everything is an empty message.
        TRACES_PATH => Response::new(Full::default().boxed_unsync()),
        path => match Dialect::of_path(path) {
            Some((dialect, model)) => in_dialect(dialect, model, &body),
            None => refusal(StatusCode::NOT_FOUND, "no such path"),
        },
    })
}

fn completion(body: &[u8], scripts: &Scripts) -> Response<Body> {
    let Ok(asked) = serde_json::from_slice::<Asked>(body) else {
        return refusal(StatusCode::BAD_REQUEST, "not a chat request");
    };
    let tool_results = asked.messages.iter().filter(|said| said.role == "tool").count();
    if !asked.stream {
        return in_json(StatusCode::OK, script::whole(&asked.model, tool_results));
    }
    let known = scripts.borrow().get(&(asked.model.clone(), tool_results)).cloned();
    let Some(script) = known.or_else(|| Script::of(&asked.model, tool_results)) else {
        return refusal(StatusCode::NOT_FOUND, "no such model");
    };
    scripts.borrow_mut().entry((asked.model, tool_results)).or_insert_with(|| script.clone());
    stream(script)
}

/// What a model answers that speaks another dialect.
fn in_dialect(dialect: Dialect, model: Option<&str>, body: &[u8]) -> Response<Body> {
    #[derive(Deserialize)]
    struct Named {
        model: String,
    }
    let named = || serde_json::from_slice(body).ok().map(|Named { model }| model);
    let Some(model) = model.map(str::to_owned).or_else(named) else {
        return refusal(StatusCode::BAD_REQUEST, "it names no model");
    };
    stream(Script { events: dialect.events(&model), pace: None, stalls: false })
}

fn stream(script: Script) -> Response<Body> {
    let body = StreamBody::new(play(script)).boxed_unsync();
    Response::builder().header(CONTENT_TYPE, "text/event-stream").body(body).expect("a constant header is valid")
}

fn play(script: Script) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send {
    // The role and the first token come at once, the finish, the usage and the end with the last token.
    let paced = 2..script.events.len().saturating_sub(3);
    async_stream::stream! {
        let mut ticks = script.pace.map(interval);
        if let Some(ticks) = &mut ticks {
            // A late upstream must not catch up in bursts, which are what this model is not about.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks.tick().await;
        }
        for (index, event) in script.events.into_iter().enumerate() {
            if let Some(ticks) = ticks.as_mut().filter(|_| paced.contains(&index)) {
                ticks.tick().await;
            }
            yield Ok(Frame::data(event));
        }
        if script.stalls {
            pending::<()>().await;
        }
    }
}

fn refusal(status: StatusCode, message: &str) -> Response<Body> {
    json_response(
        status,
        &json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": null}}),
    )
}

fn json_response(status: StatusCode, body: &serde_json::Value) -> Response<Body> {
    in_json(status, body.to_string())
}

fn in_json(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let body = Full::from(body.into()).boxed_unsync();
    Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/json")
        .body(body)
        .expect("a constant header is valid")
}
