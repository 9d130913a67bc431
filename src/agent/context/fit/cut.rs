//! Where a conversation may be cut, so that calls and their results stay together.

use crate::types::conversation::Origin;
use crate::types::{Message, Role};

/// Messages, and the place of each in the whole conversation, of which those between may not be there.
pub(super) type Numbered<'a> = (&'a [&'a Message], &'a [u64]);

/// A place where a conversation is cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// How many messages are replaced.
    pub covers: usize,
    /// The places of those that are shown all the same: the first of the user, and what the user asks now.
    pub kept: Vec<usize>,
}

/// Places at which so many messages may be cut that fewer and fewer are left: the newest `keep` first, and from the turn of the
/// user on that they are part of.
pub(super) fn places((messages, numbers): Numbered<'_>, covered: usize, keep: usize) -> Vec<usize> {
    let mut places = Vec::new();
    for keep in [keep, keep / 2, 1, 0] {
        let at = messages.len().saturating_sub(keep);
        let begins_turn = (covered + 1..=at).rev().find(|place| is_asked((messages, numbers), *place));
        // A result stays with its call.
        let whole =
            (covered + 1..=at).rev().find(|place| messages.get(*place).is_none_or(|found| found.role != Role::Tool));
        places.extend([begins_turn, whole].into_iter().flatten());
    }
    places.dedup();
    places
}

/// What is kept of the messages before this place.
pub(super) fn keep((messages, numbers): Numbered<'_>, covers: usize, keep_first_user: bool) -> Vec<usize> {
    let is_user = |place: &usize| messages[*place].role == Role::User;
    let follows = |place: usize, begin| place == begin || numbers[place] == numbers[place - 1] + 1;
    // Where messages before it are not there, another one was the first.
    let is_first = |place: &usize| keep_first_user && numbers[*place] == *place as u64;
    let first = (0..covers).find(is_user).filter(is_first);
    let turn = (0..messages.len()).rev().find(|place| is_asked((messages, numbers), *place));
    let asked = turn
        .into_iter()
        .flat_map(|begin| (begin..messages.len()).take_while(move |place| is_user(place) && follows(*place, begin)));
    // Or what was sent to the run under way.
    let last = (0..messages.len()).rev().find(is_user);
    let mut kept: Vec<usize> = first.into_iter().chain(asked).chain(last).filter(|place| *place < covers).collect();
    kept.sort_unstable();
    kept.dedup();
    kept
}

/// Where the newest turns of the user begin in messages that have places, if there are more than so many. What was sent to a run
/// under way begins no turn.
#[must_use]
pub fn turns<'m>(messages: impl Iterator<Item = (u64, &'m Message)>, most: u32) -> u64 {
    let (numbers, messages): (Vec<u64>, Vec<&Message>) = messages.unzip();
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let begins = (0..messages.len()).rev().filter(|place| is_asked((&messages, &numbers), *place));
    let mut begins = begins.skip(most.saturating_sub(1));
    match (most, begins.next()) {
        (0, _) | (_, None) => 0,
        (_, Some(place)) => numbers[place],
    }
}

/// Whether a turn of the user begins at this place.
fn is_asked((messages, numbers): Numbered<'_>, place: usize) -> bool {
    let is_asked =
        |message: &&Message| message.role == Role::User && !matches!(message.origin, Origin::Steering { .. });
    messages.get(place).is_some_and(is_asked)
        && !place.checked_sub(1).is_some_and(|before| {
            // What stands before it here may stand elsewhere in the whole conversation.
            numbers[place] == numbers[before] + 1 && is_asked(&messages[before])
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{CallId, RunId, ToolCall};

    /// A conversation in letters: a user, an assistant, an assistant that calls a tool, its result.
    fn conversation(letters: &str) -> Vec<Message> {
        let call = |at: usize| CallId::foreign(&format!("call_{at}"));
        let message = |(at, letter): (usize, char)| match letter {
            'u' => Message::text(Role::User, "question"),
            'a' => Message::text(Role::Assistant, "answer"),
            'c' => Message::assistant("", &[ToolCall { id: call(at), name: "echo".into(), arguments: "{}".into() }]),
            _ => Message::tool(&call(at - 1), "result"),
        };
        letters.chars().enumerate().map(message).collect()
    }

    fn numbers(messages: &[Message]) -> Vec<u64> {
        (0..messages.len() as u64).collect()
    }

    fn places_of(letters: &str, covered: usize, keep: usize) -> Vec<usize> {
        let messages = conversation(letters);
        places((&messages.iter().collect::<Vec<_>>(), &numbers(&messages)), covered, keep)
    }

    #[test]
    fn a_cut_begins_a_turn_or_at_least_parts_no_call_from_its_result() {
        assert_eq!(places_of("uauauaua", 0, 4), [4, 6, 7, 6, 8]);
        assert_eq!(places_of("ucrcrcr", 0, 2), [5, 7]);
        assert_eq!(places_of("ucr", 0, 6), [1, 3]);
        assert_eq!(places_of("ucrcr", 3, 0), [5], "what is covered stays covered");
        assert_eq!(places_of("u", 0, 0), [1]);
        assert!(places_of("", 0, 4).is_empty());
    }

    #[test]
    fn what_the_user_asked_first_and_asks_now_is_kept() {
        let kept = |letters: &str, covers| {
            let messages = conversation(letters);
            keep((&messages.iter().collect::<Vec<_>>(), &numbers(&messages)), covers, true)
        };
        assert_eq!(kept("uauaua", 4), [0]);
        assert_eq!(kept("uaucrcr", 5), [0, 2]);
        assert_eq!(kept("uauucrcr", 6), [0, 2, 3]);
        assert_eq!(kept("ucrcr", 3), [0]);
    }

    #[test]
    fn turns_are_counted_from_the_newest_and_what_was_sent_meanwhile_is_none() {
        let mut messages = conversation("uauacruau");
        let begins = |messages: &[Message], most| turns((0..).zip(messages), most);
        assert_eq!([0, 1, 2, 3, 4, 5].map(|most| begins(&messages, most)), [0, 8, 6, 2, 0, 0]);
        messages[6] = messages[6].clone().from(Origin::Steering { run: RunId::mint(), command: 1 });
        assert_eq!(begins(&messages, 2), 2);
    }
}
