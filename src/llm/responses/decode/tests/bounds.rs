//! What an answer may take: nothing that an upstream can repeat is without a bound.

use super::*;
use crate::llm::http::fault::MAX_CALLS;
use crate::llm::responses::few::MOST;

/// Events that an upstream sends until the decoder has enough, and why it has.
fn enough(events: impl IntoIterator<Item = Value>) -> Fault {
    let mut decoder = Decoder::new(AUTHOR.into());
    let mut fed = events.into_iter().map(|event| decoder.feed(stream(&[event]).as_bytes(), &mut Vec::new()));
    fed.find_map(Result::err).expect("there is a bound")
}

#[test]
fn items_of_every_kind_have_a_bound() {
    let many = || 0..=MOST as u64;
    for item in [json!({}), json!({ "type": "news" }), message(""), json!({ "type": "reasoning" })] {
        let nameless = |index| {
            let mut item = item.clone();
            item["id"] = json!(format!("{index}"));
            item
        };
        assert_eq!(enough(many().map(|index| added(index, nameless(index)))), Fault::TooManyItems, "{item}");
        assert_eq!(enough(many().map(|index| done(index, nameless(index)))), Fault::TooManyItems, "{item}");
        let whole = completed(&many().map(nameless).collect::<Vec<_>>());
        assert_eq!(turn(&[whole]), Err(Fault::NotAnEvent(API)), "{item}");
    }
    let calls = (0..=MAX_CALLS).map(|index| added(index as u64, call(&format!("f{index}"), "")));
    assert_eq!(enough(calls), Fault::TooManyCalls);
    let piece = json!({ "type": "output_text", "text": "" });
    let mut crowded = message("");
    crowded["content"] = vec![piece; MOST + 1].into();
    assert_eq!(turn(&[done(0, crowded)]), Err(Fault::NotAnEvent(API)));
}

#[test]
fn what_an_answer_says_has_a_bound() {
    let long = "x".repeat(200_000);
    let endless = || (0..50).map(|_| long.clone());
    let begun = |item: Value| std::iter::once(added(0, item));
    let texts = begun(message("")).chain(endless().map(|long| text(0, &long)));
    assert_eq!(enough(texts), Fault::TooLong);
    let all_arguments = begun(call("f", "")).chain(endless().map(|long| arguments(0, &long)));
    assert_eq!(enough(all_arguments), Fault::TooLong);
    let mut sealed = reasoning(&[], &"x".repeat(MAX_TURN));
    sealed["id"] = json!("rs_2");
    assert_eq!(enough([done(0, reasoning(&[], &long)), done(1, sealed)]), Fault::TooLong);
    let named = (0..50).flat_map(|index| {
        let mut item = call(&long, "");
        item["id"] = json!(format!("fc_{index}"));
        item["call_id"] = json!(format!("call_{index}"));
        let mut begun = item.clone();
        begun["name"] = json!("");
        [added(index, begun), done(index, item)]
    });
    assert_eq!(enough(named), Fault::TooLong);
    let ids = (0..50).map(|index| added(index, json!({ "type": "message", "id": format!("{long}{index}") })));
    assert_eq!(enough(ids), Fault::TooLong);
}

/// Each part of a message has its phase, and a part may be one character long.
#[test]
fn what_a_message_goes_back_with_is_counted_for_each_of_its_parts() {
    let in_phase = |phase: Value| {
        let mut begun = message("");
        begun["phase"] = phase;
        begun
    };
    let flip = |number: u64| {
        let mut event = text(0, "x");
        event["content_index"] = json!(number % 2);
        event
    };
    let long = "x".repeat(100_000);
    for phase in [json!(long), json!({ "word": "final" }), json!([long]), json!(7)] {
        let turn = turn(&[added(0, in_phase(phase)), flip(0), flip(1), completed(&[])]).unwrap();
        assert_eq!(turn.parts, [said("x"), said("x")]);
    }
    let phase = "p".repeat(64);
    let mut decoder = Decoder::new(AUTHOR.into());
    decoder.feed(stream(&[added(0, in_phase(json!(phase)))]).as_bytes(), &mut Vec::new()).unwrap();
    let parts = (0..).take_while(|number| decoder.feed(stream(&[flip(*number)]).as_bytes(), &mut Vec::new()).is_ok());
    assert!(parts.count() < MAX_TURN / 190, "each part takes its phase beside what any part takes");
}

#[test]
fn what_says_nothing_keeps_no_answer_alive() {
    let fed = |decoder: &mut Decoder, event: &Value| {
        decoder.feed(stream(std::slice::from_ref(event)).as_bytes(), &mut Vec::new()).unwrap()
    };
    let mut decoder = Decoder::new(AUTHOR.into());
    for (event, first) in [
        (added(0, json!({ "type": "news", "id": "n" })), Progress::Silent),
        (added(1, call("f", "")), Progress::Spoke),
        (done(1, call("f", "{}")), Progress::Spoke),
    ] {
        assert_eq!(fed(&mut decoder, &event), first, "{event}");
        assert_eq!(fed(&mut decoder, &event), Progress::Silent, "again: {event}");
    }
}
