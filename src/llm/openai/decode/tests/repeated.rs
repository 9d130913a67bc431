//! Chunks that are not parsed because they are like the one before.

use super::*;

/// What comes of these events if each is parsed.
fn decode_parsed(events: &[Vec<u8>]) -> (Vec<Delta>, Result<ModelTurn, Fault>) {
    let (mut assembler, mut deltas) = (Assembler::default(), Vec::new());
    for event in events {
        if let Err(fault) = parse(event).and_then(|(_, chunk)| assembler.push(chunk, &mut deltas)) {
            return (deltas, Err(fault));
        }
    }
    (deltas, assembler.finish())
}

/// Something that a model may say, as the inside of a JSON string, and things that must not stand there as they are.
fn any_string() -> impl Strategy<Value = Vec<u8>> {
    let plain = "[a-z é✓]{0,6}".prop_map(String::into_bytes);
    let odd: [&[u8]; 11] =
        [b"12", b"07", b"\\n", b"\\\"", b"\\", b"\"", b"\n", b"\x1f", b"\xff", b"\",\"refusal\":\"no", b"\\u0041"];
    prop_oneof![
        4 => plain,
        // More than is kept.
        1 => Just(vec![b'x'; 3_000]),
        1 => prop::sample::select(odd.map(<[u8]>::to_vec).to_vec()),
        1 => ("[a-z]{1,3}", prop::sample::select(odd.map(<[u8]>::to_vec).to_vec()))
            .prop_map(|(text, odd)| [text.as_bytes(), &odd].concat()),
    ]
}

/// A chunk that says this: mostly like the one before, sometimes with something else beside it.
fn any_event() -> impl Strategy<Value = Vec<u8>> {
    let forms = [
        r#"{"id":"1","choices":[{"index":0,"delta":{"content":"@"},"finish_reason":null}]}"#,
        r#"{"id":"1","choices":[{"index":0,"delta":{"content":"@","reasoning":null},"finish_reason":null}]}"#,
        r#"{"id":"1","choices":[{"delta":{"content":null,"reasoning_content":"@"}}],"usage":null}"#,
        r#"{"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"@"}}]}}]}"#,
        r#"{"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"@"}}]}}]}"#,
        r#"{"id":"1","choices":[{"delta":{"content":"x","reasoning":"@"}}]}"#,
        r#"{"id":"1","choices":[{"delta":{"refusal":"@"}}]}"#,
        r#"{"id":"1","choices":[{"index":1,"delta":{"content":"@"}}]}"#,
        r#"{"id":"1","choices":[{"delta":{"content":"a"}},{"delta":{"content":"@"}}]}"#,
        r#"{"id":"1","choices":[{"message":{"content":"@"}}]}"#,
        r#"{"id":"1","choices":[{"delta":{"content":"@"}}],"usage":{"prompt_tokens":3}}"#,
        r#"{"id":"1","choices":[{"delta":{"content":"@"},"finish_reason":"stop"}]}"#,
        r#"{"id":"1","choices":[{"delta":{"content":"b","tool_calls":[{"index":0,"function":{"name":"@"}}]}}]}"#,
        r#"{"id":"@","choices":[{"delta":{"content":"c"}}]}"#,
        r#"{"id":"1","choices":[{"delta":{"content":"@"}}],"error":{"message":"no"}}"#,
        r#"{"id":"1","choices":[{"delta":{"content":"d"}}],"obfuscation":"@"}"#,
        r#"{"id":"1","choices":[{"delta":{"content":"@"}}],"obfuscation":"aB3"}"#,
        r#"{"sequence_number":7,"choices":[{"delta":{"content":"@"}}]}"#,
        r#"{"sequence_number":@,"choices":[{"delta":{"content":"e"}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c@","function":{"name":"f","arguments":""}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"@"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":@,"function":{"arguments":"1"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"g","arguments":"@"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":{"a":"@"}}}]}}]}"#,
        r#"{"choices":[{"delta":{"content":"@","tool_calls":[{"index":0,"function":{"arguments":"2"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"@"}},{"function":{"arguments":"3"}}]}}]}"#,
        r#"{"choices":[{"index":1,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"@"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"@"}}]},"finish_reason":"stop"}]}"#,
    ];
    (prop_oneof![3 => 0..5_usize, 1 => 0..forms.len()], any_string()).prop_map(move |(form, said)| {
        let (before, after) = forms[form].split_once('@').expect("each has a place");
        [before.as_bytes(), &said, after.as_bytes()].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn chunks_that_are_not_parsed_mean_what_they_would_if_they_were(
        mut events in prop::collection::vec(any_event(), 1..12),
        ends in any::<bool>(),
    ) {
        if ends {
            events.push(br#"{"choices":[{"finish_reason":"stop"}]}"#.to_vec());
        }
        let (mut repeated, mut assembler, mut deltas) = (Repeated::default(), Assembler::default(), Vec::new());
        let mut fault = None;
        for event in &events {
            if let Err(found) = read_chunk(event, &mut repeated, &mut assembler, &mut deltas) {
                fault = Some(found);
                break;
            }
        }
        let turn = fault.map_or_else(|| assembler.finish(), Err);
        prop_assert_eq!((deltas, turn), decode_parsed(&events));
    }
}

/// How many of these events are parsed.
fn parsed(events: impl Iterator<Item = Value>) -> usize {
    let (mut repeated, mut assembler) = (Repeated::default(), Assembler::default());
    let is_parsed = |event: &Value| {
        let event = event.to_string().into_bytes();
        let is_like_before = repeated.said.piece_of(&event).is_some() || repeated.arguments.piece_of(&event).is_some();
        read_chunk(&event, &mut repeated, &mut assembler, &mut Vec::new()).unwrap();
        !is_like_before
    };
    events.filter(is_parsed).count()
}

#[test]
fn of_the_chunks_that_say_one_token_each_only_the_first_is_parsed() {
    for member in ["content", "reasoning_content", "reasoning"] {
        let events = (0..100).map(|token| {
            let mut event = said(json!({ member: format!("token {token}{}", ["", "\n", " \"it\""][token % 3]) }));
            event["obfuscation"] = "Xy9".repeat(token % 4).into();
            event
        });
        assert_eq!(parsed(events), 1, "{member}");
    }
}

#[test]
fn of_the_pieces_of_a_calls_arguments_only_the_first_without_escapes_is_parsed() {
    let pieces = ["{\"a\"", ":1", ",\"b", "\":", "[2,", "3]", "}"];
    let events = pieces.map(|piece| said(json!({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})));
    assert_eq!(parsed(events.into_iter()), 2);
}
