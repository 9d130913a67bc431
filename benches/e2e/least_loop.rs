//! The second baseline: the least server that runs a tool loop. It has no features, no limits, and
//! no answer to anything that goes wrong; it is what one writes in an hour.

use std::net::SocketAddr;

use async_stream::try_stream;
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{self, get};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::Stream;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::failure::Failure;
use crate::script::{LOOP, MULTIPLY, MULTIPLY_PATH};

type HttpClient = Client<HttpConnector, Full<Bytes>>;
/// The upstream, and the HTTP tool beside it.
type Upstream = (HttpClient, String);

/// Runs tool loops against `upstream` until the process is killed.
pub(crate) async fn serve(listener: TcpListener, upstream: SocketAddr) -> Result<(), Failure> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let upstream: Upstream = (client, format!("http://{upstream}"));
    let routes = Router::new().route("/healthz", get(async || "ok")).route("/v1/chat/completions", routing::post(chat));
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap_or_default());
    Ok(axum::serve(listener, routes.with_state(upstream)).await?)
}

async fn chat(State(upstream): State<Upstream>, Json(mut body): Json<Value>) -> Result<Response, StatusCode> {
    let (name, parameters) = if body["model"] == LOOP {
        (MULTIPLY, json!({"a": {"type": "integer"}, "b": {"type": "integer"}}))
    } else {
        ("calculator", json!({"expression": {"type": "string"}}))
    };
    let parameters = json!({"type": "object", "properties": parameters});
    body["tools"] = json!([{"type": "function", "function": {"name": name, "parameters": parameters}}]);
    if body["stream"] == true {
        return Ok(Sse::new(stream(upstream, body)).into_response());
    }
    whole(&upstream, body).await.map(|answer| Json(answer).into_response()).map_err(|_| StatusCode::BAD_GATEWAY)
}

fn stream((client, base): Upstream, mut body: Value) -> impl Stream<Item = Result<Event, Failure>> {
    try_stream! {
        loop {
            let mut response = client.request(post(&format!("{base}/v1/chat/completions"), &body)?).await?;
            let (mut unread, mut text, mut calls) = (Vec::new(), String::new(), Vec::<Value>::new());
            while let Some(frame) = response.frame().await {
                unread.extend_from_slice(frame?.data_ref().map_or(&[], |data| data));
                while let Some(end) = memchr::memmem::find(&unread, b"\n\n") {
                    let event: Vec<u8> = unread.drain(..end + 2).collect();
                    let Ok(chunk) = serde_json::from_slice::<Value>(&event["data: ".len()..]) else { continue };
                    let delta = &chunk["choices"][0]["delta"];
                    for piece in delta["tool_calls"].as_array().into_iter().flatten() {
                        match piece["id"].as_str() {
                            Some(_) => calls.push(piece.clone()),
                            None => append(&mut calls, piece),
                        }
                    }
                    text += delta["content"].as_str().unwrap_or_default();
                    if calls.is_empty() {
                        yield Event::default().json_data(&chunk)?;
                    }
                }
            }
            if calls.is_empty() {
                yield Event::default().data("[DONE]");
                break;
            }
            let said = json!({"role": "assistant", "content": text, "tool_calls": calls});
            add_turn(&client, &base, &mut body, said).await?;
        }
    }
}

/// The same loop for an answer that is not streamed.
async fn whole((client, base): &Upstream, mut body: Value) -> Result<Value, Failure> {
    loop {
        let response = client.request(post(&format!("{base}/v1/chat/completions"), &body)?).await?;
        let mut answer: Value = serde_json::from_slice(&response.collect().await?.to_bytes())?;
        let said = &mut answer["choices"][0]["message"];
        if said["tool_calls"].is_null() {
            return Ok(answer);
        }
        let said = said.take();
        add_turn(client, base, &mut body, said).await?;
    }
}

/// Adds what the model said and the results of its calls to the conversation.
async fn add_turn(client: &HttpClient, base: &str, body: &mut Value, said: Value) -> Result<(), Failure> {
    let mut results = Vec::new();
    for call in said["tool_calls"].as_array().into_iter().flatten() {
        results.push(result(client, base, call).await?);
    }
    let messages = body["messages"].as_array_mut().ok_or("no messages")?;
    messages.push(said);
    messages.extend(results);
    Ok(())
}

fn post(url: &str, body: &Value) -> Result<Request<Full<Bytes>>, Failure> {
    Ok(Request::post(url).header("content-type", "application/json").body(Full::from(body.to_string()))?)
}

fn append(calls: &mut [Value], piece: &Value) {
    if let (Some(call), Some(more)) = (calls.last_mut(), piece["function"]["arguments"].as_str())
        && let Value::String(arguments) = &mut call["function"]["arguments"]
    {
        arguments.push_str(more);
    }
}

async fn result(client: &HttpClient, base: &str, call: &Value) -> Result<Value, Failure> {
    let arguments: Value =
        serde_json::from_str(call["function"]["arguments"].as_str().unwrap_or("")).unwrap_or_default();
    let content = if call["function"]["name"] == MULTIPLY {
        let response = client.request(post(&format!("{base}{MULTIPLY_PATH}"), &arguments)?).await?;
        String::from_utf8(response.collect().await?.to_bytes().into())?
    } else {
        let (a, b) = arguments["expression"].as_str().and_then(|text| text.split_once('*')).unwrap_or_default();
        let product = a.trim().parse().unwrap_or(0_u64) * b.trim().parse().unwrap_or(0_u64);
        product.to_string()
    };
    Ok(json!({"role": "tool", "tool_call_id": call["id"], "content": content}))
}
