//! The conversation as vendors want it that know two sides: instructions apart, and turns of user and model by turns.
//!
//! Neighbouring messages of one side are one turn. The results of calls stand apart in the turn that answers them.

use std::borrow::Cow;

use crate::types::{Conversation, Message, Role};

/// A conversation as JSON, by messages.
#[derive(Debug, Default)]
pub struct Turns<'c> {
    /// All instructions, wherever they stood: these dialects have one place for them.
    pub system: Vec<Cow<'c, str>>,
    /// What the two sides said.
    pub turns: Vec<Turn<'c>>,
}

/// What one side says before the other one does.
#[derive(Debug)]
pub struct Turn<'c> {
    /// Whether it is the user's.
    pub is_user: bool,
    /// Results of calls.
    pub results: Vec<Cow<'c, str>>,
    /// Everything else.
    pub parts: Vec<Cow<'c, str>>,
}

impl<'c> Turns<'c> {
    /// The conversation, of which `encode` writes each message. A message that has nothing to say is left out.
    pub fn of(conversation: &'c Conversation, mut encode: impl FnMut(&'c Message) -> Cow<'c, str>) -> Self {
        let mut all = Self::default();
        for message in conversation.iter() {
            let parts = encode(message);
            if parts.is_empty() {
                continue;
            }
            match message.role {
                Role::System | Role::Developer => all.system.push(parts),
                Role::User => all.turn(true).parts.push(parts),
                Role::Tool => all.turn(true).results.push(parts),
                Role::Assistant => all.turn(false).parts.push(parts),
            }
        }
        all
    }

    /// The turn of one side that goes on, or a new one.
    fn turn(&mut self, is_user: bool) -> &mut Turn<'c> {
        if self.turns.last().is_none_or(|turn| turn.is_user != is_user) {
            self.turns.push(Turn { is_user, results: Vec::new(), parts: Vec::new() });
        }
        self.turns.last_mut().expect("one was pushed if there was none")
    }

    /// How long it is, about.
    pub fn bytes(&self) -> usize {
        let turns = self.turns.iter().flat_map(|turn| turn.results.iter().chain(&turn.parts));
        self.system.iter().chain(turns).map(|parts| parts.len() + 32).sum()
    }
}
