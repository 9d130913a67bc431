//! Turns as Anthropic wants them, with breakpoints of its cache. The results of calls come first in the turn that answers
//! them.

use std::borrow::Cow;

use crate::llm::turns::Turns;

/// What asks the upstream to cache everything up to the block that bears it.
const BREAKPOINT: &str = ",\"cache_control\":{\"type\":\"ephemeral\"}";

/// The list of instructions.
pub(super) fn write_system(turns: &Turns<'_>, caches: bool, out: &mut Vec<u8>) {
    out.push(b'[');
    write_all(&turns.system, caches, out);
    out.push(b']');
}

/// The list of messages. With `caches`, breakpoints follow the user's last turn, which the next call repeats, and the
/// one before, up to which the last call wrote: the upstream finds that one again however much came in between.
pub(super) fn write(turns: &Turns<'_>, caches: bool, out: &mut Vec<u8>) {
    let users = turns.turns.iter().enumerate().rev().filter(|(_, turn)| turn.is_user);
    let marked: Vec<usize> = users.map(|(index, _)| index).take(if caches { 2 } else { 0 }).collect();
    let mut before = b'[';
    for (index, turn) in turns.turns.iter().enumerate() {
        out.push(before);
        before = b',';
        let role = if turn.is_user { "user" } else { "assistant" };
        out.extend_from_slice(b"{\"role\":\"");
        out.extend_from_slice(role.as_bytes());
        out.extend_from_slice(b"\",\"content\":[");
        let is_marked = marked.contains(&index);
        write_all(&turn.results, is_marked && turn.parts.is_empty(), out);
        if !turn.results.is_empty() && !turn.parts.is_empty() {
            out.push(b',');
        }
        write_all(&turn.parts, is_marked && !turn.parts.is_empty(), out);
        out.extend_from_slice(b"]}");
    }
    out.extend_from_slice(if before == b'[' { b"[]" } else { b"]" });
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
