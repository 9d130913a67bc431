//! Chunks that are not parsed because they are like the one before.

use super::*;

#[test]
fn of_the_chunks_that_say_one_token_each_only_the_first_is_parsed_and_the_last_counted() {
    let mut decoder = Decoder::new(AUTHOR.into(), true);
    let events = (0..100_usize).map(|token| {
        let mut chunk = chunk(&[text(&format!("token {token}{}", ["", "\n", " \"it\""][token % 3]))]);
        chunk["usageMetadata"] =
            json!({ "promptTokenCount": 5, "candidatesTokenCount": token + 1, "totalTokenCount": 6 + token });
        chunk.to_string()
    });
    let parsed = events.filter(|event| {
        let is_parsed = decoder.reader.surroundings.piece_of(event.as_bytes()).is_none();
        decoder.feed(format!("data: {event}\r\n\r\n").as_bytes(), &mut Vec::new()).unwrap();
        is_parsed
    });
    assert_eq!(parsed.count(), 1);
    let usage = Usage { prompt_tokens: 5, completion_tokens: 100, ..Usage::default() };
    assert_eq!(decoder.usage(), Some(usage));
    let end = json!({ "candidates": [{ "finishReason": "STOP" }] });
    decoder.feed(stream(&[end]).as_bytes(), &mut Vec::new()).unwrap();
    assert_eq!(decoder.finish().unwrap().usage, Some(usage));
}

#[test]
fn text_after_a_reason_takes_the_reason_back_whether_it_is_parsed_or_not() {
    let reason = json!({ "candidates": [{ "finishReason": "STOP", "index": 0 }], "usageMetadata": { "candidatesTokenCount": 1 } });
    let said = |said: &str| chunk(&[text(said)]);
    let mut decoder = Decoder::new(AUTHOR.into(), true);
    decoder.feed(stream(&[said("a"), reason, said("b")]).as_bytes(), &mut Vec::new()).unwrap();
    assert!(!decoder.is_finished());
    assert_eq!(decoder.finish(), Err(Fault::Truncated));
}
