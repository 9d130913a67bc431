//! Conversations and their items in the dialect of OpenAI's Responses: sessions, and their messages written as items.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::agent::session::NewSession;
use crate::api::wire::body::{check_metadata, clip, parse};
use crate::api::wire::error::{ErrorCode, WireError};
use crate::api::wire::responses::input_items::of_message;
use crate::api::wire::responses::item::{Item, read_item};
use crate::api::wire::responses::items::messages_of;
use crate::api::wire::vocabulary::metadata;
use crate::llm::openai::messages::parts;
use crate::types::conversation::{Part, Parts};
use crate::types::session::Session;
use crate::types::{Message, Role, SessionId};

/// Most items of one request.
const MAX_ITEMS: usize = 20;
/// What the ids of conversations that are minted begin with.
const PREFIX: &str = "conv_";

/// A conversation.
#[derive(Debug, Serialize, ToSchema)]
pub struct ConversationObject {
    /// The session that it is.
    #[schema(example = "conv_019a0000000070008000000000000000")]
    pub id: String,
    /// `conversation`.
    pub object: &'static str,
    /// When it was created, Unix seconds.
    pub created_at: u64,
    /// The caller's notes.
    pub metadata: BTreeMap<String, String>,
}

impl From<&Session> for ConversationObject {
    fn from(session: &Session) -> Self {
        Self {
            id: session.id.to_string(),
            object: "conversation",
            created_at: session.created_ms / 1000,
            metadata: session.metadata.clone(),
        }
    }
}

/// A conversation to create. Unknown members have no effect.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub struct CreateConversation<'a> {
    /// Its first items.
    #[serde(borrow)]
    #[schema(value_type = Option<Vec<Value>>, max_items = 20)]
    pub items: Option<Vec<&'a RawValue>>,
    /// Up to 16 short entries.
    #[schema(schema_with = metadata)]
    pub metadata: Option<BTreeMap<String, String>>,
}

/// What to change in a conversation.
#[derive(Debug, Deserialize, ToSchema)]
pub struct UpdateConversation {
    /// Entries that take the place of those that it has.
    #[schema(schema_with = metadata)]
    pub metadata: BTreeMap<String, String>,
}

/// Items to add. Unknown members have no effect.
#[derive(Debug, Deserialize, ToSchema)]
pub struct AddItems<'a> {
    /// The items. A call and its output come together.
    #[serde(borrow)]
    #[schema(value_type = Vec<Value>, max_items = 20)]
    pub items: Vec<&'a RawValue>,
}

/// Reads the body of `POST /v1/conversations`; an empty one is `{}`.
pub fn read_create(body: &str) -> Result<NewSession, WireError> {
    let create: CreateConversation<'_> =
        if body.trim().is_empty() { CreateConversation::default() } else { parse(body)? };
    check_metadata(create.metadata.as_ref())?;
    let messages = read_items(create.items.as_deref().unwrap_or_default())?;
    Ok(NewSession { metadata: create.metadata.unwrap_or_default(), messages, ..NewSession::default() })
}

/// The id of a conversation that is created now.
pub fn mint() -> SessionId {
    let session = SessionId::mint();
    let digits = session.as_str().rsplit('_').next().unwrap_or_default();
    SessionId::parse(&[PREFIX, digits].concat()).expect("it has letters and digits alone")
}

/// Reads the body of `POST /v1/conversations/{id}`.
pub fn read_update(body: &str) -> Result<BTreeMap<String, String>, WireError> {
    let UpdateConversation { metadata } = parse(body)?;
    check_metadata(Some(&metadata))?;
    Ok(metadata)
}

/// Reads the body of `POST /v1/conversations/{id}/items`.
pub fn read_add(body: &str) -> Result<Vec<Message>, WireError> {
    let AddItems { items } = parse(body)?;
    if items.is_empty() {
        return Err(WireError::invalid("items", "must not be empty"));
    }
    read_items(&items)
}

fn read_items(items: &[&RawValue]) -> Result<Vec<Message>, WireError> {
    if items.len() > MAX_ITEMS {
        return Err(WireError::invalid("items", format!("may be at most {MAX_ITEMS}")));
    }
    let read = |(index, json): (usize, &&RawValue)| {
        let place = format!("items[{index}]");
        match read_item(json.get()).map_err(|error| error.within(&place))? {
            Item::Reference(id) => Err(not_found(&id).at(&place)),
            Item::Approval(_) => Err(WireError::invalid(&place, "decisions are made with POST /v1/responses")),
            item @ (Item::Message(..)
            | Item::Call(_)
            | Item::Output(_)
            | Item::Made(..)
            | Item::Asked
            | Item::Known
            | Item::Dropped(_)) => Ok(item),
        }
    };
    let items = items.iter().enumerate().map(read).collect::<Result<_, _>>()?;
    let input = messages_of(items, false).map_err(|error| error.at("items"))?;
    if input.unpaired > 0 {
        return Err(WireError::invalid("items", "an output must follow its call: a conversation has both or neither"));
    }
    Ok(input.messages.all)
}

/// That there is no item of this id.
pub fn not_found(id: &str) -> WireError {
    WireError::new(ErrorCode::ItemNotFound, format!("Item with id '{}' not found.", clip(id)))
}

/// Where an item stands: in which message, counted from 1, and which of its items it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ItemPlace {
    /// The message's place.
    pub message: u64,
    /// The item's place in it.
    pub part: u32,
}

impl ItemPlace {
    /// The place that an id tells; `None` if it is none of ours.
    pub fn parse(id: &str) -> Option<Self> {
        let (_, digits) = id.split_once('_')?;
        let (message, part) = digits.split_once('p')?;
        let number = |text: &str| {
            let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_plain)
        };
        Some(Self { message: number(message)?, part: u32::try_from(number(part)?).ok()? })
    }

    fn id(self, kind: &str) -> String {
        let prefix = match kind {
            "function_call" => "fc",
            "function_call_output" => "fco",
            _ => "msg",
        };
        format!("{prefix}_{:012}p{}", self.message, self.part)
    }
}

/// The items of the message at this place, each with its id.
pub fn items(message: u64, said: &Message) -> Vec<(ItemPlace, Value)> {
    let numbered = (0..).zip(of_message(said));
    let named = numbered.map(|(part, mut item)| {
        let place = ItemPlace { message, part };
        item["id"] = place.id(item["type"].as_str().unwrap_or_default()).into();
        (place, item)
    });
    named.collect()
}

/// A message without the last of its items; `None` if nothing is left of it.
pub fn without_last(message: &Message) -> Option<Message> {
    let has_one = of_message(message).len() <= 1;
    let parts = parts(message).ok().filter(|_| !has_one && message.role == Role::Assistant)?;
    let mut list: Vec<Part> = parts.list.clone();
    let one =
        |part: &Part| Message::from_parts(Role::Assistant, Parts { list: vec![part.clone()], ..Parts::default() });
    let last = list.iter().rposition(|part| !of_message(&one(part)).is_empty())?;
    list.truncate(last);
    Some(Message::from_parts(Role::Assistant, Parts { list, ..Parts::default() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_the_place_of_its_item() {
        let place = ItemPlace { message: 12, part: 3 };
        for kind in ["message", "function_call", "function_call_output"] {
            assert_eq!(ItemPlace::parse(&place.id(kind)), Some(place), "{kind}");
        }
        let more = ItemPlace { message: u64::MAX, part: u32::MAX };
        assert_eq!(ItemPlace::parse(&more.id("message")), Some(more));
        for id in ["", "msg_", "msg_1", "msg_p1", "msg_1p", "msg_+1p1", "msg_1p99999999999", "1p1"] {
            assert_eq!(ItemPlace::parse(id), None, "{id}");
        }
    }

    #[test]
    fn what_is_left_of_a_message_has_its_first_items() {
        let two = Parts { list: vec![Part::text("One"), Part::text("two")], ..Parts::default() };
        let left = without_last(&Message::from_parts(Role::Assistant, two)).unwrap();
        assert_eq!(items(1, &left).len(), 1);
        assert_eq!(items(1, &left)[0].1["content"][0]["text"], "One");
        assert!(without_last(&left).is_none());
        assert!(without_last(&Message::text(Role::User, "Hi")).is_none());
    }

    #[test]
    fn a_conversation_is_a_session_with_a_name_of_its_own() {
        let id = mint();
        assert!(id.as_str().starts_with(PREFIX) && id.as_str().len() == PREFIX.len() + 32, "{id}");
    }
}
