//! `/v1/conversations/{id}/items`: a session's messages as items.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::agent::session::splice::Asked;
use crate::api::auth::Caller;
use crate::api::conversations::{ConversationPath, named};
use crate::api::error::ApiError;
use crate::api::extract::{JsonText, Query, Texts};
use crate::api::layers::refuse_bound;
use crate::api::params::ItemsQuery;
use crate::api::responses::input_items::parse_order;
use crate::api::state::Api;
use crate::api::wire::conversations::{
    AddItems, ConversationObject, ItemPlace, items, not_found, read_add, without_last,
};
use crate::store::Order;
use crate::types::SessionId;

/// Messages that are read at a time.
const PAGE: u64 = 100;

/// A page of items.
#[derive(Debug, Serialize, ToSchema)]
pub struct ConversationItems {
    /// `list`.
    object: &'static str,
    /// The items.
    data: Vec<Value>,
    /// The id of the first.
    first_id: Option<String>,
    /// The id of the last.
    last_id: Option<String>,
    /// Whether more follow.
    has_more: bool,
}

impl ConversationItems {
    /// The first `limit` of these.
    fn new(mut found: Vec<Value>, limit: usize) -> Self {
        let has_more = found.len() > limit;
        found.truncate(limit);
        let id = |item: Option<&Value>| item.and_then(|item| item["id"].as_str()).map(str::to_owned);
        let (first_id, last_id) = (id(found.first()), id(found.last()));
        Self { object: "list", data: found, first_id, last_id, has_more }
    }
}

/// Adds items to the end of a conversation, which must have no run that has not ended.
#[utoipa::path(
    post, path = "/v1/conversations/{id}/items", tag = "conversations", operation_id = "addConversationItems",
    params(ConversationPath),
    request_body = AddItems<'_>,
    responses((status = 200, description = "The items that were added", body = ConversationItems)),
)]
pub async fn add(
    State(api): State<Api>,
    caller: Caller,
    ConversationPath(id): ConversationPath,
    body: JsonText,
) -> Result<Response, ApiError> {
    let messages = read_add(body.as_str()?)?;
    let added = async {
        refuse_bound(&api, &caller, &id).await?;
        if messages.is_empty() {
            // Items that are left out, as they are of tools that ran elsewhere.
            api.agent.sessions().get(&caller.tenant, &id).await?;
            return Ok(Vec::new());
        }
        let count = messages.len() as u64;
        let session = api.agent.sessions().append(&caller.tenant, &id, messages.clone()).await?.session;
        let places = session.message_count - count + 1..;
        Ok::<_, ApiError>(places.zip(&messages).flat_map(|(place, message)| items(place, message)).collect())
    };
    let added: Vec<_> = added.await.map_err(ApiError::in_responses)?;
    let all = added.len();
    Ok(axum::Json(ConversationItems::new(added.into_iter().map(|(_, item)| item).collect(), all)).into_response())
}

/// Lists a conversation's items.
#[utoipa::path(
    get, path = "/v1/conversations/{id}/items", tag = "conversations", operation_id = "listConversationItems",
    params(ConversationPath, ItemsQuery),
    responses((status = 200, description = "A page of items", body = ConversationItems)),
)]
pub async fn list(
    State(api): State<Api>,
    caller: Caller,
    ConversationPath(id): ConversationPath,
    query: Query,
) -> Result<Response, ApiError> {
    let limit = query.limit()?;
    let order = query.parsed("order", parse_order)?.unwrap_or(Order::Descending);
    let listed = async {
        let after = match query.get("after") {
            Some(after) => Some(find(&api, &caller, &id, after).await.map_err(|error| error.at("after"))?.0),
            None => None,
        };
        page(&api, &caller, &id, (after, limit + 1, order)).await
    };
    let found = listed.await.map_err(ApiError::in_responses)?;
    Ok(axum::Json(ConversationItems::new(found, limit)).into_response())
}

/// Reads an item.
#[utoipa::path(
    get, path = "/v1/conversations/{id}/items/{item}", tag = "conversations", operation_id = "getConversationItem",
    params(ConversationPath, ("item" = String, Path, description = "The item")),
    responses((status = 200, description = "The item", body = Value)),
)]
pub async fn get(
    State(api): State<Api>,
    caller: Caller,
    Texts((id, item)): Texts<(String, String)>,
) -> Result<Response, ApiError> {
    let (_, found) = find(&api, &caller, &named(&id)?, &item).await.map_err(ApiError::in_responses)?;
    Ok(axum::Json(found).into_response())
}

/// Deletes the last item of a conversation, which must have no run that has not ended.
#[utoipa::path(
    delete, path = "/v1/conversations/{id}/items/{item}", tag = "conversations", operation_id = "deleteConversationItem",
    params(ConversationPath, ("item" = String, Path, description = "The item")),
    responses((status = 200, description = "The conversation without it", body = ConversationObject)),
)]
pub async fn delete(
    State(api): State<Api>,
    caller: Caller,
    Texts((id, item)): Texts<(String, String)>,
) -> Result<Response, ApiError> {
    let id = named(&id)?;
    let deleted = async {
        refuse_bound(&api, &caller, &id).await?;
        let (place, _) = find(&api, &caller, &id, &item).await?;
        let sessions = api.agent.sessions();
        let count = sessions.get(&caller.tenant, &id).await?.session.message_count;
        let (last, _) = sessions.messages(&caller.tenant, &id, count.saturating_sub(1), 1, Order::Ascending).await?;
        let is_last = |message| items(count, message).last().is_some_and(|(last, _)| *last == place);
        let Some(message) = last.first().filter(|message| is_last(message)) else {
            return Err(ApiError::invalid("item_id", "only the last item of a conversation can be deleted"));
        };
        let messages = without_last(message).into_iter().collect();
        let asked = Asked { after: count - 1, remove: 1, messages, version: None, count: Some(count) };
        Ok(sessions.splice(&caller.tenant, &id, asked).await?.session)
    };
    let left = deleted.await.map_err(ApiError::in_responses)?;
    Ok(axum::Json(ConversationObject::from(&left.session)).into_response())
}

/// The item of this id, with its place.
async fn find(api: &Api, caller: &Caller, id: &SessionId, item: &str) -> Result<(ItemPlace, Value), ApiError> {
    let place = ItemPlace::parse(item).filter(|place| place.message > 0);
    let before = place.map_or(u64::MAX, |place| place.message - 1);
    // Whether or not it could be an item, the conversation must be there.
    let (found, before) = api.agent.sessions().messages(&caller.tenant, id, before, 1, Order::Ascending).await?;
    let all = found.first().map(|message| items(before.saturating_add(1), message)).unwrap_or_default();
    let found = all.into_iter().find(|(_, found)| found["id"] == item);
    found.ok_or_else(|| ApiError::from(not_found(item)))
}

/// At most so many items beyond a place, in this order.
async fn page(
    api: &Api,
    caller: &Caller,
    id: &SessionId,
    (after, most, order): (Option<ItemPlace>, usize, Order),
) -> Result<Vec<Value>, ApiError> {
    let sessions = api.agent.sessions();
    let total = sessions.get(&caller.tenant, id).await?.session.message_count;
    let (mut from, mut upto) = match (order, after) {
        (_, None) => (0, total),
        (Order::Ascending, Some(after)) => (after.message - 1, total),
        (Order::Descending, Some(after)) => (0, after.message.min(total)),
    };
    let mut found = Vec::new();
    while from < upto && found.len() < most {
        let count = PAGE.min(upto - from);
        let first = if order == Order::Ascending { from } else { upto - count };
        let asked = usize::try_from(count).unwrap_or(usize::MAX);
        let (messages, before) = sessions.messages(&caller.tenant, id, first, asked, order).await?;
        if messages.is_empty() {
            break;
        }
        let read = messages.len() as u64;
        let mut some: Vec<_> = (before + 1..).zip(&messages).flat_map(|(place, said)| items(place, said)).collect();
        match order {
            Order::Ascending => {
                some.retain(|(place, _)| after.is_none_or(|after| *place > after));
                from = before + read;
            }
            Order::Descending => {
                some.retain(|(place, _)| after.is_none_or(|after| *place < after));
                some.reverse();
                upto = before;
            }
        }
        found.extend(some.into_iter().map(|(_, item)| item));
    }
    found.truncate(most);
    Ok(found)
}
