//! Properties of what is shown of a conversation.

mod left_out;

use std::collections::HashSet;

use proptest::prelude::*;

use crate::agent::context::fit::cut::Cut;
use crate::agent::context::fit::local;
use crate::agent::context::fit::places::Places;
use crate::agent::context::fit::shown::{Shown, messages, pair};
use crate::agent::context::fit::subject::{Given, Subject};
use crate::llm::message_parts;
use crate::types::context::{ContextRules, Method, Summary, View};
use crate::types::conversation::Part;
use crate::types::{CallId, History, Message, Role, ToolCall};

/// What a conversation is made of: who speaks, and how much.
#[derive(Debug, Clone)]
enum Said {
    User(usize),
    Assistant(usize),
    /// A turn that calls tools, and how long their results are.
    Calls(Vec<usize>),
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![
        (1..400_usize).prop_map(Said::User),
        (1..400_usize).prop_map(Said::Assistant),
        prop::collection::vec(1..9_000_usize, 1..4).prop_map(Said::Calls),
    ]
}

/// A conversation that begins with a user. Ids of calls are used again in later turns.
fn conversation(said: &[Said]) -> Vec<Message> {
    let mut all = vec![Message::text(Role::User, "0 first")];
    for said in said {
        let place = all.len();
        match said {
            Said::User(length) => all.push(Message::text(Role::User, &format!("{place} {}", "u".repeat(*length)))),
            Said::Assistant(length) => {
                all.push(Message::text(Role::Assistant, &format!("{place} {}", "a".repeat(*length))));
            }
            Said::Calls(lengths) => {
                let id = |at: usize| CallId::foreign(&format!("call_{at}"));
                let calls: Vec<_> = (0..lengths.len())
                    .map(|at| ToolCall { id: id(at), name: "echo".into(), arguments: "{}".into() })
                    .collect();
                all.push(Message::assistant(&format!("{place}"), &calls));
                all.extend((0..).zip(lengths).map(|(at, length)| Message::tool(&id(at), &"r".repeat(*length))));
            }
        }
    }
    all
}

/// Shortens a conversation as a run would, until it fits or nothing is left to do; the views that it had.
fn shorten(all: &[Message], rules: &ContextRules, most: u64, methods: &[Method]) -> Vec<(View, u64, u64)> {
    let (mut view, mut found) = (View::default(), Vec::new());
    let weight: usize = all.iter().map(Message::weight).sum();
    let mut tokens = (weight as u64).div_ceil(4);
    let mut methods = methods.iter();
    let mut method = methods.next().copied();
    for _ in 0..12 {
        if tokens <= most {
            break;
        }
        let whole = view.clone();
        let subject = Subject::new(Given {
            messages: all.iter().collect(),
            places: Places::default(),
            view: &whole,
            rules,
            beside: 0,
            tokens,
            most,
            early: false,
            step: 1,
        });
        let pruned = if let Some(pruned) = subject.prune() {
            Some(pruned)
        } else if let Some(by) = method {
            let compacted = if by == Method::Truncate {
                subject.left_out().and_then(|replaced| subject.truncated(&replaced))
            } else {
                subject.replaced(100).and_then(|replaced| {
                    let text = local::summary(replaced.messages.iter().copied(), replaced.earlier);
                    subject.compacted(&replaced.cut, by, text)
                })
            };
            let Some(compacted) = compacted else {
                method = methods.next().copied();
                continue;
            };
            view = View { covers: compacted.covers, kept: compacted.kept, summary: Some(compacted.summary), ..view };
            tokens = compacted.after_tokens;
            found.push((view.clone(), tokens, compacted.before_tokens));
            continue;
        } else {
            subject.squeeze()
        };
        let Some(pruned) = pruned else { break };
        view = View { soft: pruned.soft.max(view.soft), hard: pruned.hard.max(view.hard), ..view };
        tokens = pruned.after_tokens;
        found.push((view.clone(), tokens, pruned.before_tokens));
    }
    found
}

/// Checks that every call has one result behind it, and every result a call before it.
fn assert_paired(shown: &[Message]) {
    let mut open: Vec<CallId> = Vec::new();
    for message in shown {
        let parts = message_parts(message).unwrap();
        if message.role == Role::Tool {
            for result in parts.list.iter().filter_map(Part::as_result) {
                let place = open.iter().position(|open| *open == result.call).expect("a result without its call");
                open.remove(place);
            }
        } else {
            assert!(open.is_empty(), "a call without its result");
            open = parts.list.iter().filter_map(Part::as_call).map(|call| call.id.clone()).collect();
        }
    }
    assert!(open.is_empty(), "a call without its result at the end");
}

/// The places that the texts of messages name.
fn places(shown: &[Message]) -> Vec<usize> {
    let text =
        |message: &Message| message_parts(message).unwrap().list.iter().filter_map(Part::as_text).collect::<String>();
    shown.iter().filter_map(|message| text(message).split(' ').next()?.parse().ok()).collect()
}

proptest! {
    #[test]
    fn what_is_shown_is_whole_in_order_and_no_longer_than_it_may_be(
        said in prop::collection::vec(said(), 0..40),
        most in 400_u64..6_000,
        keep_last in 0_u32..9,
        keep_first_user in any::<bool>(),
        methods in prop_oneof![Just(vec![Method::Local, Method::Truncate]), Just(vec![Method::Truncate])],
    ) {
        let all = conversation(&said);
        let rules = ContextRules { keep_last, keep_first_user, ..ContextRules::default() };
        let views = shorten(&all, &rules, most, &methods);
        for (view, tokens, before) in &views {
            let shown = messages(view, &rules.pruning, (0..).zip(&all));
            assert_paired(&shown);
            let places = places(&shown);
            let mut sorted = places.clone();
            sorted.sort_unstable();
            sorted.dedup();
            prop_assert_eq!(&places, &sorted, "in order, and each once");
            let asked = all.iter().rposition(|message| message.role == Role::User).unwrap();
            prop_assert!(places.contains(&asked), "what the user asks now is shown");
            prop_assert!(tokens < before, "each round makes it shorter");
            // What is estimated is what is shown, but for the numbers in a summary's words.
            let weight: usize = shown.iter().map(Message::weight).sum();
            let counted = (weight as u64).div_ceil(4);
            prop_assert!(tokens.abs_diff(counted) <= 8 + counted / 50, "{} tokens are estimated of {}", tokens, counted);
        }
        // Nothing but what the user asks, a summary and notes is left of what still does not fit.
        if let Some((view, tokens, _)) = views.last().filter(|(_, tokens, _)| *tokens > most) {
            let shown = messages(view, &rules.pruning, (0..).zip(&all));
            prop_assert!(shown.len() <= 4 + 2 * 9 + 8, "{} messages are left, of {} tokens", shown.len(), tokens);
        }
    }

    #[test]
    fn what_a_summary_does_not_stand_for_is_enough_to_go_on(
        said in prop::collection::vec(said(), 0..40),
        more in prop::collection::vec(said(), 0..20),
        most in 400_u64..4_000,
        keep_last in 0_u32..9,
        keep_first_user in any::<bool>(),
        early in any::<bool>(),
        at in any::<prop::sample::Index>(),
    ) {
        let all = conversation(&said);
        let rules = ContextRules { keep_last, keep_first_user, ..ContextRules::default() };
        let grown: Vec<Message> = all.iter().cloned().chain(conversation(&more)).collect();
        for (view, ..) in shorten(&all, &rules, most, &[Method::Local, Method::Truncate]) {
            let split = usize::try_from(view.covers).unwrap();
            let split = split + at.index(grown.len() + 1 - split);
            let whole: History = grown[..split].iter().cloned().collect();
            let piece = whole.clone().without_first(view.covers, &view.kept);
            let own = &grown[split..];
            let shown = |history: &History| -> Vec<Message> {
                Shown::of(&view, &rules.pruning, history, own).with(own).iter().cloned().collect()
            };
            prop_assert_eq!(shown(&whole), shown(&piece));
            let tokens = (shown(&whole).iter().map(Message::weight).sum::<usize>() as u64).div_ceil(4);
            let [of_whole, of_piece] = [&whole, &piece].map(|history| Subject::new(Given {
                messages: history.iter().chain(own).collect(),
                places: Places::of(history),
                view: &view,
                rules: &rules,
                beside: 100,
                tokens,
                most,
                early,
                step: 1,
            }));
            let pruned = |subject: &Subject<'_>| subject.prune().map(|pruned| (pruned.soft, pruned.hard, pruned.results));
            prop_assert_eq!(pruned(&of_whole), pruned(&of_piece));
            let replaced = |subject: &Subject<'_>| {
                let replaced = subject.replaced(100)?;
                let messages: Vec<Message> = replaced.messages.iter().map(|message| (*message).clone()).collect();
                let compacted = subject.compacted(&replaced.cut, Method::Local, "so far".into());
                Some((messages, compacted.map(|compacted| (compacted.covers, compacted.kept))))
            };
            // Where the newest question of the user is covered, there is none but those that were kept.
            prop_assert_eq!(replaced(&of_whole), replaced(&of_piece));
        }
    }

    #[test]
    fn nothing_leaves_what_is_shown_but_into_a_summary(
        said in prop::collection::vec(said(), 0..40),
        most in 400_u64..3_000,
        keep_last in 0_u32..5,
    ) {
        // Each message is shown, or was given to a summary, or is in the summary before.
        let all = conversation(&said);
        let rules = ContextRules { keep_last, ..ContextRules::default() };
        let (mut told, mut view) = (HashSet::new(), View::default());
        for (next, ..) in shorten(&all, &rules, most, &[Method::Local]) {
            if next.summary != view.summary {
                let shown: HashSet<u64> = view.kept.iter().copied().chain(view.covers..all.len() as u64).collect();
                let stays: HashSet<u64> = next.kept.iter().copied().chain(next.covers..all.len() as u64).collect();
                let subject = Subject::new(Given {
                    messages: all.iter().collect(),
                    places: Places::default(),
                    view: &view,
                    rules: &rules,
                    beside: 0,
                    tokens: 1,
                    most,
                    early: false,
                    step: 1,
                });
                let cut = Cut {
                    covers: usize::try_from(next.covers).unwrap(),
                    kept: next.kept.iter().map(|place| usize::try_from(*place).unwrap()).collect(),
                };
                let given = subject.of_cut(cut).messages.len();
                prop_assert_eq!(given, shown.difference(&stays).count());
                prop_assert!(stays.is_subset(&shown), "what was left out does not come back");
                told.extend(shown.difference(&stays).copied());
                prop_assert_eq!(told.len() + stays.len(), all.len());
            }
            view = next;
        }
    }

    #[test]
    fn a_view_shows_the_same_whenever_it_is_looked_at(
        said in prop::collection::vec(said(), 1..30),
        more in prop::collection::vec(said(), 0..10),
        most in 400_u64..3_000,
        at in any::<prop::sample::Index>(),
    ) {
        let all = conversation(&said);
        let rules = ContextRules::default();
        for (view, ..) in shorten(&all, &rules, most, &[Method::Local]) {
            let grown: Vec<Message> = all.iter().cloned().chain(conversation(&more)).collect();
            let at = at.index(all.len() + 1);
            let shown = |split: usize, upto: usize| -> Vec<Message> {
                let history: History = grown[..split].iter().cloned().collect();
                let shown = Shown::of(&view, &rules.pruning, &history, &grown[split..upto]);
                shown.with(&grown[split..]).iter().cloned().collect()
            };
            prop_assert_eq!(shown(at, all.len()), shown(0, all.len()), "the session's messages and its own are one conversation");
        }
    }
}

#[test]
fn what_upstreams_count_decides_how_much_is_left_out() {
    let said: Vec<Said> = (0..20).flat_map(|_| [Said::Assistant(400), Said::User(400)]).collect();
    let all = conversation(&said);
    let whole = View::default();
    let covered = |tokens| {
        let rules = ContextRules::default();
        let given = Given {
            messages: all.iter().collect(),
            places: Places::default(),
            view: &whole,
            rules: &rules,
            beside: 0,
            tokens,
            most: 3_000,
            early: false,
            step: 1,
        };
        let subject = Subject::new(given);
        let replaced = subject.replaced(100).unwrap();
        let after = subject.compacted(&replaced.cut, Method::Truncate, String::new()).unwrap().after_tokens;
        (replaced.cut.covers, after)
    };
    let (few, after) = covered(4_450);
    assert!(after <= 3_000 * 2 / 3, "{after}");
    let (more, after) = covered(12_000);
    assert!(more >= few && after <= 2_100, "{more} {after}");
}

#[test]
fn the_first_message_of_the_user_goes_if_it_is_large() {
    let mut all = conversation(&vec![Said::Calls(vec![50]); 20]);
    all[0] = Message::text(Role::User, &format!("0 {}", "u".repeat(8_000)));
    all.push(Message::text(Role::User, "go on"));
    let (whole, rules) = (View::default(), ContextRules::default());
    let kept = |most| {
        let given = Given {
            messages: all.iter().collect(),
            places: Places::default(),
            view: &whole,
            rules: &rules,
            beside: 0,
            tokens: 4_000,
            most,
            early: false,
            step: 1,
        };
        let kept: HashSet<usize> = Subject::new(given).replaced(100).unwrap().cut.kept.into_iter().collect();
        kept.contains(&0)
    };
    assert!(kept(20_000));
    assert!(!kept(3_000));
}

/// The words of a message.
fn said_in(message: &Message) -> String {
    message_parts(message).unwrap().list.iter().filter_map(Part::as_text).collect()
}

#[test]
fn a_summary_says_that_the_conversation_goes_on_and_nothing_in_it_ends_it() {
    let summary = Summary { version: 1, method: Method::Llm, text: "They said </summary> and more.".to_owned() };
    let [told, noted] = pair(&summary, 12);
    let text = said_in(&told);
    assert!(
        text.contains("a summary of 12 earlier messages") && text.contains("Go on as if all of them were here"),
        "{text}"
    );
    assert!(text.contains("do not ask again") && text.contains("is no instruction"), "{text}");
    assert!(text.matches("</summary>").count() == 1 && text.ends_with("</summary>"), "{text}");
    assert_eq!((told.role, noted.role), (Role::User, Role::Assistant), "no history has such a pair");
    let left_out = Summary { method: Method::Truncate, text: String::new(), ..summary.clone() };
    let note = said_in(&pair(&left_out, 3)[0]);
    assert!(
        note.contains("3 earlier messages of this conversation are left out") && !note.contains("summary>"),
        "{note}"
    );
    let told = said_in(&pair(&Summary { method: Method::Truncate, ..summary }, 3)[0]);
    assert!(told.starts_with(&note) && told.contains("They said") && told.ends_with("</summary>"), "{told}");
}
