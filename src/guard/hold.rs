//! Holds a text that is being written back until no guardrail can object to it.
//!
//! An expression whose matches have a greatest length needs that much of the end of the text, and a length needs nothing.
//! Where matches may have any length, the whole text is held. What is shown is decided at fixed places of the text, so it does
//! not depend on how the stream is cut.

use regex::Regex;

use crate::guard::rails::{compiled, failed};
use crate::types::guard::{GuardPoint, Guardrail, GuardrailRule};

/// Between two places at which is decided, in bytes.
const BLOCK: usize = 64;

/// Holds a text.
#[derive(Debug, Clone)]
pub struct Hold {
    /// The guardrails whose tripwire ends the text.
    rails: Vec<Guardrail>,
    /// How much of the end of the text is held, in bytes; `None` for all of it.
    tail: Option<usize>,
    /// The text so far.
    text: String,
    /// How much of it is shown.
    shown: usize,
    /// Up to where it is judged.
    judged: usize,
    tripped: Option<usize>,
}

impl Hold {
    /// For the answers of a run with these guardrails; `None` if none of them can end an answer.
    #[must_use]
    pub fn new(guardrails: &[Guardrail]) -> Option<Self> {
        let rails: Vec<_> =
            guardrails.iter().filter(|rail| rail.on == GuardPoint::Output && rail.tripwire).cloned().collect();
        let tail = rails.iter().map(|rail| reach(&rail.rule)).try_fold(0, |most, reach| Some(most.max(reach?)));
        (!rails.is_empty()).then(|| Self { rails, tail, text: String::new(), shown: 0, judged: 0, tripped: None })
    }

    /// Takes the next piece of text and returns what may be shown now.
    pub fn push(&mut self, text: &str) -> String {
        if self.tripped.is_some() {
            return String::new();
        }
        self.text.push_str(text);
        let Some(tail) = self.tail else { return String::new() };
        let mut shown = String::new();
        while self.tripped.is_none() && self.judged + BLOCK <= self.text.len() {
            let end = self.judged + BLOCK;
            self.judged = end;
            // A character that the place cuts counts to the next.
            let end = self.text.floor_char_boundary(end);
            self.judge(end, false);
            shown.push_str(&self.release(end.saturating_sub(tail)));
        }
        shown
    }

    /// Ends the text: what is left to show, or nothing if a guardrail objects.
    pub fn finish(&mut self) -> String {
        if self.tripped.is_none() {
            self.judge(self.text.len(), true);
        }
        self.release(self.text.len())
    }

    /// Ends a text that was broken off: what is left to show, which is nothing if somebody was to be asked about it.
    pub fn break_off(&mut self) -> String {
        if self.rails.iter().any(|rail| rail.rule.is_asked()) { String::new() } else { self.finish() }
    }

    /// The guardrail that objects to the text.
    #[must_use]
    pub fn tripped(&self) -> Option<&Guardrail> {
        self.tripped.and_then(|place| self.rails.get(place))
    }

    /// Judges the text up to a place, where it may end.
    fn judge(&mut self, end: usize, is_whole: bool) {
        let text = &self.text[..end];
        self.tripped = self.rails.iter().position(|rail| match &rail.rule {
            GuardrailRule::Regex { pattern } => {
                compiled(pattern).is_ok_and(|regex| has_match(&regex, text, self.shown, is_whole))
            }
            GuardrailRule::MaxLength { .. } => {
                failed(std::slice::from_ref(rail), GuardPoint::Output, &[text]).next().is_some()
            }
            GuardrailRule::Webhook { .. } | GuardrailRule::Model(_) => false,
        });
    }

    fn release(&mut self, end: usize) -> String {
        if self.tripped.is_some() {
            return String::new();
        }
        let end = self.text.floor_char_boundary(end).max(self.shown);
        let released = self.text[self.shown..end].to_owned();
        self.shown = end;
        released
    }
}

/// Whether an expression matches a text from a place on. A match that ends with what is there may be none once more is there.
fn has_match(regex: &Regex, text: &str, from: usize, is_whole: bool) -> bool {
    let mut at = from;
    while let Some(found) = regex.find_at(text, at) {
        if is_whole || found.end() < text.len() {
            return true;
        }
        at = text.ceil_char_boundary(found.end().max(at + 1).min(text.len()));
        if at >= text.len() {
            break;
        }
    }
    false
}

/// How much of the end of a text a rule needs; `None` for all of it.
fn reach(rule: &GuardrailRule) -> Option<usize> {
    match rule {
        GuardrailRule::Regex { pattern } => {
            let longest = regex_syntax::parse(pattern).ok()?.properties().maximum_len()?;
            // What stands beside a match may decide whether it is one.
            Some(longest + 4)
        }
        GuardrailRule::MaxLength { .. } => Some(0),
        // Who is asked is asked once, about the whole text.
        GuardrailRule::Webhook { .. } | GuardrailRule::Model(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;
    use crate::types::guard::Severity;

    fn hold(pattern: &str) -> Hold {
        let rule = GuardrailRule::Regex { pattern: pattern.into() };
        let rail =
            Guardrail { name: "r".into(), on: GuardPoint::Output, rule, tripwire: true, severity: Severity::Low };
        Hold::new(&[rail]).unwrap()
    }

    /// What is shown, and whether a guardrail objects.
    fn shown<'t>(pattern: &str, pieces: impl IntoIterator<Item = &'t str>) -> (String, bool) {
        let mut hold = hold(pattern);
        let mut shown: String = pieces.into_iter().map(|piece| hold.push(piece)).collect();
        shown += &hold.finish();
        (shown, hold.tripped().is_some())
    }

    #[test]
    fn only_the_end_is_held_where_a_match_is_short_and_nothing_of_a_match_is_shown() {
        let text = "x".repeat(1_000);
        let mut short = hold(r"\b[0-9]{16}\b");
        assert_eq!(short.push(&text).len(), 960 - 20);
        assert_eq!(short.finish().len(), 60);
        assert_eq!(hold("secret.*").push(&text), "", "a match may be as long as the text");
        for (text, trips) in [
            ("the card 4111111111111111 is mine", true),
            ("the card 4111111111111111", true),
            ("the number 41111111111111112 is long", false),
        ] {
            let (said, tripped) = shown(r"\b[0-9]{16}\b", [text, &"y".repeat(99)]);
            assert_eq!(tripped, trips && !text.ends_with('1'), "{text}");
            assert!(!tripped || !said.contains("41"), "{said}");
        }
        assert!(shown(r"\b[0-9]{16}\b", ["the card 4111111111111111"]).1);
    }

    proptest! {
        #[test]
        fn the_same_is_shown_wherever_the_stream_is_cut(
            text in "[ab1é ]{0,300}",
            cuts in prop::collection::vec(any::<Index>(), 0..8),
            pattern in prop::sample::select(vec![r"\b1{2,3}\b", "a[ab]{3}1", "é1+", "(?:^|b)b1$", "1 a"]),
        ) {
            let whole = shown(pattern, [text.as_str()]);
            let mut ends: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
            ends.push(text.len());
            ends.sort_unstable();
            let mut from = 0;
            let pieces: Vec<&str> = ends.into_iter().map(|end| &text[std::mem::replace(&mut from, end)..end]).collect();
            prop_assert_eq!(shown(pattern, pieces), whole.clone());
            let objects = compiled(pattern).unwrap().is_match(&text);
            prop_assert_eq!(whole.1, objects);
            if objects {
                prop_assert!(text.starts_with(&whole.0));
            } else {
                prop_assert_eq!(whole.0, text);
            }
        }
    }
}
