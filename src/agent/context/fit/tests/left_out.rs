//! What a note that messages are left out keeps of the summary before it.

use std::sync::Arc;

use super::*;
use crate::agent::context::fit::subject::NOTE_TOKENS;

/// What a model once made of a conversation stays, though more of it is left out; but not at the price of what does not fit.
#[test]
fn leaving_messages_out_keeps_the_summary_of_those_before() {
    let all = conversation(&vec![Said::Calls(vec![50]); 40]);
    let rules = ContextRules::default();
    // What is left out, the place up to which a note alone would stand for it.
    let left_out = |words: usize, early: bool| {
        let summary = Summary { version: 1, method: Method::Llm, text: "It was long ago. ".repeat(words) };
        let view = View { covers: 20, summary: Some(Arc::new(summary)), ..View::default() };
        let given = Given {
            messages: all.iter().collect(),
            places: Places::default(),
            view: &view,
            rules: &rules,
            beside: 0,
            tokens: 4_000,
            most: 3_000,
            early,
            step: 1,
        };
        let subject = Subject::new(given);
        let compacted = subject.left_out().and_then(|replaced| subject.truncated(&replaced))?;
        assert!(compacted.covers > 20 && compacted.summary.version == 2);
        Some((compacted, subject.replaced(NOTE_TOKENS).map(|noted| noted.cut.covers as u64)))
    };
    let told = |words, early| left_out(words, early).map(|(compacted, _)| compacted.summary.text.clone());
    assert!(told(10, false).unwrap().starts_with("It was long ago."));
    assert!(told(10, true).unwrap().starts_with("It was long ago."));
    assert_eq!(told(2_000, false).as_deref(), Some(""), "it fills the window by itself");
    assert_eq!(told(2_000, true), None, "nothing is lost where nothing must be");
    // However long the summary is, the newest messages do not go with it, and go for it only where both do not fit.
    let newest = left_out(1, false).unwrap().0.covers;
    let (mut covers, mut is_kept, mut fills) = (newest, true, false);
    for words in (1..2_000).step_by(7) {
        let (compacted, noted) = left_out(words, false).unwrap();
        assert!(compacted.after_tokens <= 3_000, "{words}: {}", compacted.after_tokens);
        if compacted.summary.text.is_empty() {
            assert_eq!(Some(compacted.covers), noted, "{words}");
            is_kept = false;
        } else {
            assert!(is_kept && compacted.covers >= covers, "{words}: {} after {covers}", compacted.covers);
            covers = compacted.covers;
            fills |= covers == newest && compacted.after_tokens > 2_500;
        }
    }
    assert!(fills && !is_kept, "the newest stay beside a summary that nearly fills the window");
}
