//! The earlier messages of a session as a run holds them: all, or those that a summary does not stand for.

use std::sync::Arc;

use super::{Conversation, Message};

/// A session's messages from some place on, and single ones before it. Places are counted from 0. Cheap to clone.
#[derive(Debug, Clone)]
pub struct History(Held);

/// Which messages are there. The rare case is behind a pointer, as a live run has room for this.
#[derive(Debug, Clone)]
enum Held {
    Whole(Conversation),
    Part(Arc<Part>),
}

/// Messages of which the earlier ones are not there but for a few.
#[derive(Debug, Clone)]
struct Part {
    /// From which place on they are there.
    begins: u64,
    /// Those before that are there, with their places, in order.
    kept: Vec<(u64, Message)>,
    messages: Conversation,
}

impl Default for History {
    fn default() -> Self {
        Self(Held::Whole(Conversation::default()))
    }
}

impl History {
    /// A history without messages from this place on, of which these stand before it.
    #[must_use]
    pub fn from(begins: u64, kept: Vec<(u64, Message)>) -> Self {
        if begins == 0 {
            return Self::default();
        }
        Self(Held::Part(Arc::new(Part { begins, kept, messages: Conversation::default() })))
    }

    /// How many messages the session has, those included that are not there.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.begins() + self.messages().count() as u64
    }

    /// From which place on all messages are there.
    #[must_use]
    pub fn begins(&self) -> u64 {
        match &self.0 {
            Held::Whole(_) => 0,
            Held::Part(part) => part.begins,
        }
    }

    /// The places of those that are there before.
    pub fn kept(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.single().iter().map(|(place, _)| *place)
    }

    /// Whether the message at this place is there.
    #[must_use]
    pub fn has(&self, place: u64) -> bool {
        place >= self.begins() || self.kept().any(|kept| kept == place)
    }

    /// The messages that are there.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.single().iter().map(|(_, message)| message).chain(self.messages().iter())
    }

    /// The same with their places.
    pub fn placed(&self) -> impl Iterator<Item = (u64, &Message)> {
        let single = self.single().iter().map(|(place, message)| (*place, message));
        single.chain((self.begins()..).zip(self.messages().iter()))
    }

    /// How many bytes of text the messages are to a model that are there, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.single().iter().map(|(_, message)| message.weight()).sum::<usize>() + self.messages().weight()
    }

    /// How many bytes of memory they take, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.single().iter().map(|(_, message)| message.memory()).sum::<usize>() + self.messages().memory()
    }

    /// The messages that are there, as a conversation.
    #[must_use]
    pub fn to_conversation(&self) -> Conversation {
        match &self.0 {
            Held::Whole(messages) => messages.clone(),
            Held::Part(part) => {
                let kept: Vec<Message> = part.kept.iter().map(|(_, message)| message.clone()).collect();
                part.messages.clone().after(&kept)
            }
        }
    }

    /// Adds messages.
    pub fn append(&mut self, messages: Vec<Message>) {
        match &mut self.0 {
            Held::Whole(whole) => whole.append(messages),
            Held::Part(part) => Arc::make_mut(part).messages.append(messages),
        }
    }

    /// The first `count` messages of the session.
    #[must_use]
    pub fn first(self, count: u64) -> Self {
        if count < self.begins() {
            let kept = self.single().iter().filter(|(place, _)| *place < count);
            return Self::from(count, kept.cloned().collect());
        }
        let left = usize::try_from(count - self.begins()).unwrap_or(usize::MAX);
        let messages = self.messages().clone().first(left);
        Self::of(self.begins(), self.single().to_vec(), messages)
    }

    /// The same without the messages before this place, but for those at these places.
    #[must_use]
    pub fn without_first(self, count: u64, kept: &[u64]) -> Self {
        if count <= self.begins() {
            return self;
        }
        let is_kept = |(place, _): &(u64, &Message)| *place < count && kept.contains(place);
        let single = self.placed().filter(is_kept).map(|(place, message)| (place, message.clone())).collect();
        let skipped = usize::try_from(count - self.begins()).unwrap_or(usize::MAX);
        let messages = self.messages().clone().without_first(skipped);
        Self::of(count, single, messages)
    }

    fn of(begins: u64, kept: Vec<(u64, Message)>, messages: Conversation) -> Self {
        Self(if begins == 0 { Held::Whole(messages) } else { Held::Part(Arc::new(Part { begins, kept, messages })) })
    }

    fn messages(&self) -> &Conversation {
        match &self.0 {
            Held::Whole(messages) => messages,
            Held::Part(part) => &part.messages,
        }
    }

    /// Those that are there before the others.
    fn single(&self) -> &[(u64, Message)] {
        match &self.0 {
            Held::Whole(_) => &[],
            Held::Part(part) => &part.kept,
        }
    }
}

impl FromIterator<Message> for History {
    fn from_iter<T: IntoIterator<Item = Message>>(messages: T) -> Self {
        Self(Held::Whole(messages.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Role;

    fn message(place: u64) -> Message {
        Message::text(Role::User, &place.to_string())
    }

    fn whole(count: u64) -> History {
        (0..count).map(message).collect()
    }

    #[test]
    fn it_takes_no_more_room_than_a_conversation() {
        assert_eq!(size_of::<History>(), size_of::<Conversation>());
    }

    #[test]
    fn messages_keep_their_places_whichever_are_there() {
        let history = whole(10).without_first(6, &[0, 4]);
        let found: Vec<_> = history.placed().map(|(place, message)| (place, message.clone())).collect();
        assert_eq!(found, [0, 4, 6, 7, 8, 9].map(|place| (place, message(place))));
        assert_eq!((history.count(), history.begins(), history.iter().count()), (10, 6, 6));
        assert!(history.has(4) && history.has(6) && !history.has(5));
        assert_eq!(history.to_conversation().count(), 6);
        let later = history.clone().without_first(8, &[4]);
        assert_eq!(later.placed().map(|(place, _)| place).collect::<Vec<_>>(), [4, 8, 9]);
        assert_eq!(later.clone().without_first(3, &[0]).count(), 10, "what is not there stays so");
        let first = history.first(7);
        assert_eq!((first.count(), first.placed().map(|(place, _)| place).collect::<Vec<_>>()), (7, vec![0, 4, 6]));
        assert_eq!(first.first(3).placed().map(|(place, _)| place).collect::<Vec<_>>(), [0]);
        assert_eq!((whole(3).first(2).count(), whole(3).without_first(0, &[]).begins()), (2, 0));
    }
}
