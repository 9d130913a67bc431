//! One conversation for all dialects: messages of typed parts, each of which knows where it came from.
//!
//! | file | holds |
//! | --- | --- |
//! | `part` | parts: text, pictures, thinking, calls, results, and what is not known |
//! | `message` | a message, as it arrived or as parts |
//! | `origin` | where a message came from |
//! | `history` | the earlier messages of a session, as far as a run has them |
//! | `size` | how much a message is: to a model, and in memory |

mod history;
mod link;
mod message;
mod origin;
mod part;
mod size;

use std::sync::Arc;

pub use self::history::History;
pub use self::link::Link;
pub use self::message::{Content, MEDIA_WEIGHT, Message, Role, audio_weight, is_compressed_audio};
pub use self::origin::Origin;
pub use self::part::{
    Dialect, Extra, Part, PartKind, Parts, Proof, Seal, Source, Thinking, ToolCall, ToolResult, joined, lines,
};

use crate::types::RunId;

/// Messages in their order. Cheap to clone, and to append to.
#[derive(Debug, Clone, Default)]
pub struct Conversation(Vec<Arc<Stretch>>);

/// Consecutive messages.
#[derive(Debug, Default)]
struct Stretch {
    messages: Vec<Message>,
    weight: usize,
    memory: usize,
}

impl Conversation {
    /// How many messages there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.iter().map(|stretch| stretch.messages.len()).sum()
    }

    /// How many bytes of text they are to a model, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.0.iter().map(|stretch| stretch.weight).sum()
    }

    /// How many bytes of memory they take, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.0.iter().map(|stretch| stretch.memory).sum()
    }

    /// The messages.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.0.iter().flat_map(|stretch| &stretch.messages)
    }

    /// These messages, then those of `self`.
    #[must_use]
    pub fn after(mut self, messages: &[Message]) -> Self {
        if !messages.is_empty() {
            self.0.insert(0, Arc::new(messages.iter().cloned().collect()));
        }
        self
    }

    /// Adds messages as they are, in a stretch of their own: for a conversation that is used once.
    #[must_use]
    pub fn then(mut self, messages: impl IntoIterator<Item = Message>) -> Self {
        let last: Stretch = messages.into_iter().collect();
        if !last.messages.is_empty() {
            self.0.push(Arc::new(last));
        }
        self
    }

    /// Adds messages to a conversation that is kept. Stretches at least double in length from the last to
    /// the first, so that there are few of them and each message is moved few times, however many come
    /// one by one.
    pub fn append(&mut self, messages: Vec<Message>) {
        if messages.is_empty() {
            return;
        }
        let mut last: Stretch = messages.into_iter().collect();
        while let Some(before) = self.0.pop_if(|before| before.messages.len() < 2 * last.messages.len()) {
            last = before.messages.iter().chain(&last.messages).cloned().collect();
        }
        self.0.push(Arc::new(last));
    }

    /// The first `count` messages.
    #[must_use]
    pub fn first(mut self, count: usize) -> Self {
        let mut excess = self.count().saturating_sub(count);
        while excess > 0
            && let Some(last) = self.0.pop()
        {
            let kept = last.messages.len().saturating_sub(excess);
            excess = excess.saturating_sub(last.messages.len());
            if kept > 0 {
                self.0.push(Arc::new(last.messages[..kept].iter().cloned().collect()));
            }
        }
        self
    }

    /// The messages but the first `count`.
    #[must_use]
    pub fn without_first(mut self, count: usize) -> Self {
        let (mut excess, mut whole) = (count, 0);
        for stretch in &self.0 {
            if excess < stretch.messages.len() {
                break;
            }
            excess -= stretch.messages.len();
            whole += 1;
        }
        self.0.drain(..whole);
        if let Some(first) = self.0.first_mut().filter(|_| excess > 0) {
            *first = Arc::new(first.messages[excess..].iter().cloned().collect());
        }
        self
    }
}

/// The messages of a run's request, each with its place.
#[must_use]
pub fn requested(run: &RunId, leg: u32, messages: Vec<Message>) -> Vec<Message> {
    let placed = |(index, message): (u32, Message)| message.from(Origin::Request { run: run.clone(), leg, index });
    (0..).zip(messages).map(placed).collect()
}

impl FromIterator<Message> for Stretch {
    fn from_iter<T: IntoIterator<Item = Message>>(messages: T) -> Self {
        let messages: Vec<Message> = messages.into_iter().collect();
        let weight = messages.iter().map(Message::weight).sum();
        let memory = messages.iter().map(Message::memory).sum();
        Self { messages, weight, memory }
    }
}

impl FromIterator<Message> for Conversation {
    fn from_iter<T: IntoIterator<Item = Message>>(messages: T) -> Self {
        Self::default().then(messages)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(conversation: &Conversation) -> Vec<Message> {
        conversation.iter().cloned().collect()
    }

    proptest! {
        #[test]
        fn stretches_are_the_messages_and_a_prefix_is_the_first_of_them(
            pages in prop::collection::vec(prop::collection::vec("[a-z]{0,9}", 0..4), 0..40),
            count in 0_usize..100,
        ) {
            let pages: Vec<Vec<Message>> =
                pages.iter().map(|page| page.iter().map(|text| Message::text(Role::User, text)).collect()).collect();
            let all = pages.concat();
            let mut conversation = Conversation::default();
            for page in pages {
                conversation.append(page);
                for pair in conversation.0.windows(2) {
                    prop_assert!(pair[0].messages.len() >= 2 * pair[1].messages.len());
                }
            }
            prop_assert_eq!(texts(&conversation), all.clone());
            prop_assert_eq!(conversation.count(), all.len());
            prop_assert_eq!(conversation.weight(), all.iter().map(Message::weight).sum::<usize>());
            let count = count.min(all.len());
            prop_assert_eq!(texts(&conversation.clone().first(count)), all[..count].to_vec());
            prop_assert_eq!(texts(&conversation.clone().without_first(count)), all[count..].to_vec());
            let around = conversation.first(count).after(&all[..1.min(all.len())]).then(all.iter().take(1).cloned());
            prop_assert_eq!(around.count(), count + 2 * 1.min(all.len()));
        }
    }
}
