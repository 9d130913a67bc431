//! The three tools of `examples/tools` in Rust: `cargo run --example tool_service`, with a port after `--` if it is not 9000.
//!
//! Then, in `examples/tools` and another terminal, `loopgate serve`, which reads `loopgate.toml` there.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// What an endpoint answers. The model is told the body of an error too, so it says what would help.
type Answer = (StatusCode, Json<Value>);

/// What the shop has, and what was ordered, by the key of its call.
#[derive(Debug)]
struct Shop {
    stock: BTreeMap<String, u32>,
    orders: HashMap<String, Value>,
}

/// The arguments of `order`. The server has checked them by the schema of the tool.
#[derive(Debug, Deserialize)]
struct Order {
    sku: String,
    count: u32,
}

async fn weather(Query(query): Query<HashMap<String, String>>) -> Answer {
    (StatusCode::OK, Json(json!({"city": query.get("city"), "celsius": 7, "sky": "rain"})))
}

async fn stock(State(shop): State<Arc<Mutex<Shop>>>, Path(sku): Path<String>) -> Answer {
    let shop = shop.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(count) = shop.stock.get(&sku) else {
        let skus: Vec<_> = shop.stock.keys().collect();
        return (StatusCode::NOT_FOUND, Json(json!({"error": format!("no {sku} here"), "skus": skus})));
    };
    (StatusCode::OK, Json(json!({"sku": sku, "in_stock": count})))
}

async fn order(State(shop): State<Arc<Mutex<Shop>>>, headers: HeaderMap, Json(order): Json<Order>) -> Answer {
    // After a crash an `idempotent` call may come a second time, with the same key.
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned();
    let mut shop = shop.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(done) = shop.orders.get(&key) {
        return (StatusCode::CREATED, Json(done.clone()));
    }
    let number = shop.orders.len() + 1;
    let left = shop.stock.entry(order.sku.clone()).or_default();
    if *left < order.count {
        return (StatusCode::CONFLICT, Json(json!({"error": "not enough in stock", "in_stock": left})));
    }
    *left -= order.count;
    let done = json!({"order": format!("O-{number}"), "sku": order.sku, "count": order.count});
    shop.orders.insert(key, done.clone());
    (StatusCode::CREATED, Json(done))
}

#[expect(clippy::print_stdout, reason = "what is asked of it is what the program has to say")]
fn tell(method: &str, uri: &Uri, headers: &HeaderMap) {
    let run = headers.get("x-loopgate-run-id").and_then(|run| run.to_str().ok()).unwrap_or("nobody");
    println!("{method} {uri} of {run}");
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "where it listens is what the program has to say")]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::args().nth(1).map_or(Ok(9000), |port| port.parse::<u16>())?;
    let stock_at_first = BTreeMap::from([("raincoat".to_owned(), 3), ("umbrella".to_owned(), 12)]);
    let shop = Arc::new(Mutex::new(Shop { stock: stock_at_first, orders: HashMap::new() }));
    let told = axum::middleware::from_fn(async |request: axum::extract::Request, next: axum::middleware::Next| {
        tell(request.method().as_str(), request.uri(), request.headers());
        next.run(request).await
    });
    let routes = Router::new()
        .route("/weather", get(weather))
        .route("/stock/{sku}", get(stock))
        .route("/orders", post(order))
        .layer(told)
        .with_state(shop);
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, routes).await?;
    Ok(())
}
