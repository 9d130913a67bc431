//! Where an answer ends, and how: reasons that come too early, errors outside of events, words of other dialects.

use super::*;

/// Whether a stream of these chunks is known to be at its end though its connection is not, and what comes of it.
fn known_end(chunks: &[Value]) -> (bool, Result<ModelTurn, Fault>) {
    let mut decoder = Decoder::new(AUTHOR.into(), true);
    decoder.feed(stream(chunks).as_bytes(), &mut Vec::new()).unwrap();
    (decoder.is_finished(), decoder.finish())
}

/// The same chunk without a count of the answer's tokens.
fn uncounted(mut chunk: Value) -> Value {
    chunk["usageMetadata"] = json!({ "promptTokenCount": 60, "totalTokenCount": 60 });
    chunk
}

#[test]
fn a_reason_that_more_follows_on_is_not_that_of_the_end() {
    let (early, said) = (uncounted(ended(&[], "STOP")), uncounted(ended(&[text("a")], "STOP")));
    let last = ended(&[text("b")], "STOP");
    let (is_known, turn) = known_end(&[early.clone(), early.clone(), chunk(&[text("a")]), last.clone()]);
    assert_eq!((is_known, turn.unwrap().text().as_ref()), (false, "ab"), "its reasons are known to come early");
    let (is_known, turn) = known_end(&[early.clone(), early.clone(), chunk(&[text("a")])]);
    assert_eq!((is_known, turn), (false, Err(Fault::Truncated)), "nothing tells that it ended");
    let of_each = [said.clone(), said, last.clone()];
    let (is_known, turn) = known_end(&of_each);
    assert_eq!((is_known, turn.unwrap().text().as_ref()), (false, "aab"));
    for begun in 1..of_each.len() {
        assert!(!known_end(&of_each[..begun]).0, "{begun}");
    }

    assert!(!known_end(&[early]).0 && known_end(&[last]).0);
    let usage = json!({ "usageMetadata": { "promptTokenCount": 60, "candidatesTokenCount": 1 } });
    assert!(known_end(&[uncounted(ended(&[text("a")], "STOP")), usage]).0, "the count may come apart");
}

#[test]
fn what_withholds_or_cuts_an_answer_is_not_taken_back_by_an_ordinary_end() {
    let safety = uncounted(ended(&[text("a")], "SAFETY"));
    assert!(known_end(std::slice::from_ref(&safety)).0, "nothing else is to be expected");
    for (reason, end) in [("SAFETY", TurnEnd::ContentFilter), ("MAX_TOKENS", TurnEnd::Length)] {
        let turn = turn(&[ended(&[text("a")], reason), ended(&[text("")], "STOP")]).unwrap();
        assert_eq!(turn.end, end, "{reason}");
    }
    assert_eq!(turn(&[safety, ended(&[text("b")], "STOP")]).unwrap().end, TurnEnd::ContentFilter);
    assert_eq!(turn(&[ended(&[text("a")], "MAX_TOKENS"), ended(&[text("b")], "STOP")]).unwrap().end, TurnEnd::Stop);
    let unspecified = json!({ "promptFeedback": { "blockReason": "BLOCK_REASON_UNSPECIFIED" } });
    assert!(!known_end(std::slice::from_ref(&unspecified)).0);
    assert_eq!(turn(&[unspecified, ended(&[text("a")], "STOP")]).unwrap().end, TurnEnd::Stop);
}

#[test]
fn an_error_that_is_no_event_is_told_once_it_is_whole() {
    let delay = json!({ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s" });
    let error =
        json!({ "error": { "code": 429, "message": "No.", "status": "RESOURCE_EXHAUSTED", "details": [delay] } });
    let half = stream(&[chunk(&[text("half")])]);
    for json in [format!("{error:#}\n"), format!("{error}"), format!("\r\n{error:#}"), format!(": ping\n{error:#}\n\n")]
    {
        let whole = format!("{half}{json}");
        for cut in half.len()..whole.len() {
            let (before, after) = whole.as_bytes().split_at(cut);
            let (deltas, turn) = decode([before, after]);
            let Err(Fault::Reported(report)) = turn else { panic!("{json} cut at {cut}: {turn:?}") };
            assert_eq!((report.to_string().as_str(), report.kind(None)), ("failed: No.", ModelErrorKind::Transient));
            assert_eq!((report.status(), report.retry_after()), (Some(429), Some(std::time::Duration::from_secs(7))));
            assert_eq!(deltas, [Delta::Text("half".to_owned())]);
        }
        let cut_short = &whole.as_bytes()[..half.len() + json.trim_end().len() - 1];
        assert_eq!(decode([cut_short]).1, Err(Fault::Truncated), "{json}");
    }
    // Other lines are nobody's.
    for line in ["{\"note\": 1}\n", "{\n", "error\n", "{\"error\": null}\n"] {
        let whole = format!("{line}{}", stream(&[ended(&[text("a")], "STOP")]));
        assert_eq!(decode([whole.as_bytes()]).1.unwrap().text(), "a", "{line}");
    }
    let long = format!("{{\"error\": {{\"message\": \"{}\"}}}}\n", "x".repeat(64 << 10));
    assert_eq!(decode([format!("{half}{long}").as_bytes()]).1, Err(Fault::Truncated), "it is not kept");
}

#[test]
fn the_last_event_of_another_dialect_ends_a_stream() {
    for (name, stream, expected) in recorded() {
        let (mut decoder, mut deltas) = (Decoder::new(AUTHOR.into(), true), Vec::new());
        let fed = decoder.feed(format!("{stream}data: [DONE]\n\n").as_bytes(), &mut deltas);
        assert_eq!((fed, decoder.finish()), (Ok(Progress::Done), Ok(expected)), "{name}");
    }
    assert_eq!(decode([&b"data: [DONE]\n\n"[..]]).1, Err(Fault::Truncated));
}
