//! The second baseline: the least server that runs a tool loop. It has no features, no limits, and
//! no answer to anything that goes wrong; it is what one writes in an hour.

use std::net::SocketAddr;

use async_stream::try_stream;
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::Stream;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::failure::Failure;

type Upstream = (Client<HttpConnector, Full<Bytes>>, String);

/// Runs tool loops against `upstream` until the process is killed.
pub(crate) async fn serve(listener: TcpListener, upstream: SocketAddr) -> Result<(), Failure> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let upstream: Upstream = (client, format!("http://{upstream}/v1/chat/completions"));
    let routes = Router::new().route("/healthz", get(async || "ok")).route("/v1/chat/completions", post(chat));
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap_or_default());
    Ok(axum::serve(listener, routes.with_state(upstream)).await?)
}

async fn chat(
    State((client, url)): State<Upstream>,
    Json(mut body): Json<Value>,
) -> Sse<impl Stream<Item = Result<Event, Failure>>> {
    body["tools"] = json!([{"type": "function", "function": {"name": "calculator", "parameters":
        {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}]);
    Sse::new(try_stream! {
        loop {
            let request = Request::post(&url).header("content-type", "application/json");
            let mut response = client.request(request.body(Full::from(body.to_string()))?).await?;
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
            let messages = body["messages"].as_array_mut().ok_or("no messages")?;
            if calls.is_empty() {
                yield Event::default().data("[DONE]");
                break;
            }
            let results: Vec<Value> = calls.iter().map(result).collect();
            messages.push(json!({"role": "assistant", "content": text, "tool_calls": calls}));
            messages.extend(results);
        }
    })
}

fn append(calls: &mut [Value], piece: &Value) {
    if let (Some(call), Some(more)) = (calls.last_mut(), piece["function"]["arguments"].as_str())
        && let Value::String(arguments) = &mut call["function"]["arguments"]
    {
        arguments.push_str(more);
    }
}

fn result(call: &Value) -> Value {
    let arguments: Value =
        serde_json::from_str(call["function"]["arguments"].as_str().unwrap_or("")).unwrap_or_default();
    let (a, b) = arguments["expression"].as_str().and_then(|text| text.split_once('*')).unwrap_or_default();
    let product = a.trim().parse().unwrap_or(0_u64) * b.trim().parse().unwrap_or(0_u64);
    json!({"role": "tool", "tool_call_id": call["id"], "content": product.to_string()})
}
