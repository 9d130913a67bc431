//! The conversation as Anthropic wants it: instructions apart, and turns of user and assistant by turns.
//!
//! Neighbouring messages of one side are one turn. The results of calls come first in the turn that answers them.

use std::borrow::Cow;

use super::blocks::blocks;
use crate::types::{Conversation, Role};

/// What asks the upstream to cache everything up to the block that bears it.
const BREAKPOINT: &str = ",\"cache_control\":{\"type\":\"ephemeral\"}";

/// A conversation in this dialect.
#[derive(Debug, Default)]
pub(super) struct Turns<'c> {
    /// The blocks of all instructions, wherever they stood: the dialect has one place for them.
    pub(super) system: Vec<Cow<'c, str>>,
    turns: Vec<Turn<'c>>,
}

/// What one side says before the other one does, as blocks by messages.
#[derive(Debug)]
struct Turn<'c> {
    is_user: bool,
    /// Results of calls.
    results: Vec<Cow<'c, str>>,
    blocks: Vec<Cow<'c, str>>,
}

impl<'c> Turns<'c> {
    /// The conversation, for the model that signs as `author`.
    pub(super) fn of(conversation: &'c Conversation, author: &str) -> Self {
        let mut all = Self::default();
        for message in conversation.iter() {
            let blocks = blocks(message, author);
            if blocks.is_empty() {
                continue;
            }
            match message.role {
                Role::System | Role::Developer => all.system.push(blocks),
                Role::User => all.turn(true).blocks.push(blocks),
                Role::Tool => all.turn(true).results.push(blocks),
                Role::Assistant => all.turn(false).blocks.push(blocks),
            }
        }
        all
    }

    /// The turn of one side that goes on, or a new one.
    fn turn(&mut self, is_user: bool) -> &mut Turn<'c> {
        if self.turns.last().is_none_or(|turn| turn.is_user != is_user) {
            self.turns.push(Turn { is_user, results: Vec::new(), blocks: Vec::new() });
        }
        self.turns.last_mut().expect("one was pushed if there was none")
    }

    /// How long it is, about.
    pub(super) fn bytes(&self) -> usize {
        let turns = self.turns.iter().flat_map(|turn| turn.results.iter().chain(&turn.blocks));
        self.system.iter().chain(turns).map(|blocks| blocks.len() + 32).sum()
    }

    /// The list of instructions.
    pub(super) fn write_system(&self, caches: bool, out: &mut Vec<u8>) {
        out.push(b'[');
        write_all(&self.system, caches, out);
        out.push(b']');
    }

    /// The list of messages. With `caches`, breakpoints follow the user's last turn, which the next call repeats, and the
    /// one before, up to which the last call wrote: the upstream finds that one again however much came in between.
    pub(super) fn write(&self, caches: bool, out: &mut Vec<u8>) {
        let users = self.turns.iter().enumerate().rev().filter(|(_, turn)| turn.is_user);
        let marked: Vec<usize> = users.map(|(index, _)| index).take(if caches { 2 } else { 0 }).collect();
        let mut before = b'[';
        for (index, turn) in self.turns.iter().enumerate() {
            out.push(before);
            before = b',';
            let role = if turn.is_user { "user" } else { "assistant" };
            out.extend_from_slice(b"{\"role\":\"");
            out.extend_from_slice(role.as_bytes());
            out.extend_from_slice(b"\",\"content\":[");
            let is_marked = marked.contains(&index);
            write_all(&turn.results, is_marked && turn.blocks.is_empty(), out);
            if !turn.results.is_empty() && !turn.blocks.is_empty() {
                out.push(b',');
            }
            write_all(&turn.blocks, is_marked && !turn.blocks.is_empty(), out);
            out.extend_from_slice(b"]}");
        }
        out.extend_from_slice(if before == b'[' { b"[]" } else { b"]" });
    }
}

/// Writes blocks, the last of which may be a breakpoint of the cache.
pub(super) fn write_blocks(blocks: &str, is_breakpoint: bool, out: &mut Vec<u8>) {
    match blocks.strip_suffix('}').filter(|_| is_breakpoint) {
        Some(open) => {
            out.extend_from_slice(open.as_bytes());
            out.extend_from_slice(BREAKPOINT.as_bytes());
            out.push(b'}');
        }
        None => out.extend_from_slice(blocks.as_bytes()),
    }
}

/// Writes the blocks of several messages, the last of which may be a breakpoint.
fn write_all(messages: &[Cow<'_, str>], is_breakpoint: bool, out: &mut Vec<u8>) {
    for (index, blocks) in messages.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_blocks(blocks, is_breakpoint && index + 1 == messages.len(), out);
    }
}
