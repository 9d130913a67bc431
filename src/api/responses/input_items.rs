//! `/v1/responses/{id}/input_items`: what came with a response's request.

use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::{Query, Texts};
use crate::api::params::ItemsQuery;
use crate::api::responses::json;
use crate::api::responses::read::ResponsePath;
use crate::api::responses::stored::Stored;
use crate::api::state::Api;
use crate::api::wire::body::clip;
use crate::api::wire::error::ErrorCode;
use crate::api::wire::responses::input_items::items;
use crate::store::Order;

/// A page of items.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemList {
    /// `list`.
    object: &'static str,
    /// The items.
    #[schema(value_type = Vec<Value>)]
    data: Vec<Box<RawValue>>,
    /// The id of the first.
    first_id: Option<String>,
    /// The id of the last.
    last_id: Option<String>,
    /// Whether more follow.
    has_more: bool,
}

/// The items of a response's own request.
#[utoipa::path(
    get, path = "/v1/responses/{id}/input_items", tag = "responses", operation_id = "listInputItems",
    params(ResponsePath, ItemsQuery),
    responses((status = 200, description = "A page of items", body = ItemList)),
)]
pub async fn list(
    State(api): State<Api>,
    caller: Caller,
    Texts(id): Texts<String>,
    query: Query,
) -> Result<Response, ApiError> {
    let limit = query.limit()?;
    let order = query.parsed("order", parse_order)?.unwrap_or(Order::Descending);
    let stored = Stored::find(&api, &caller, &id).await?;
    let messages = stored.input(&api, &caller, &id).await?;
    let mut all = items(&stored.head.id, stored.leg, &messages);
    if order == Order::Descending {
        all.reverse();
    }
    if let Some(after) = query.get("after") {
        let Some(place) = all.iter().position(|(id, _)| id == after) else {
            let message = format!("Item with id '{}' not found.", clip(after));
            return Err(ApiError::new(ErrorCode::ItemNotFound, message).at("after"));
        };
        all.drain(..=place);
    }
    let has_more = all.len() > limit;
    all.truncate(limit);
    let (first_id, last_id) = (all.first().map(|(id, _)| id.clone()), all.last().map(|(id, _)| id.clone()));
    let data = all.into_iter().map(|(_, json)| json).collect();
    Ok(json(&ItemList { object: "list", data, first_id, last_id, has_more }))
}

/// `asc` or `desc`.
pub fn parse_order(text: &str) -> Option<Order> {
    match text {
        "asc" => Some(Order::Ascending),
        "desc" => Some(Order::Descending),
        _ => None,
    }
}
