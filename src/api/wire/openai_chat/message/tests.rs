//! What is checked of messages.

use super::*;
use crate::api::wire::openai_error::row;

fn check(json: &str, continues: bool) -> Result<Messages, (String, String)> {
    let raw: Vec<&RawValue> = serde_json::from_str(json).unwrap();
    check_messages(&raw, continues)
        .map_err(|error| (row(error.code).code.to_owned(), error.param.clone().unwrap_or_default()))
}

#[test]
fn what_openai_refuses_is_refused_with_its_path() {
    let call =
        r#"{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
    let cases = [
        ("[]".to_owned(), "invalid_value", "messages"),
        (r#"[["user","hi",null,null]]"#.to_owned(), "invalid_value", "messages[0]"),
        (r#"[{"role":"user","content":[["text","x"]]}]"#.to_owned(), "invalid_value", "messages[0].content[0]"),
        (r#"[{"role":"robot","content":"x"}]"#.to_owned(), "invalid_value", "messages[0].role"),
        (r#"[{"role":"user"}]"#.to_owned(), "invalid_value", "messages[0].content"),
        (r#"[{"role":"user","content":[{"text":"x"}]}]"#.to_owned(), "missing_field", "messages[0].content[0].type"),
        (
            r#"[{"role":"user","content":[{"type":"image_url","image_url":"x"}]}]"#.to_owned(),
            "invalid_value",
            "messages[0].content[0].image_url",
        ),
        (
            r#"[{"role":"assistant","content":"x","tool_calls":[]}]"#.to_owned(),
            "invalid_value",
            "messages[0].tool_calls",
        ),
        (r#"[{"role":"user","content":7}]"#.to_owned(), "invalid_value", "messages[0].content"),
        (r#"[{"role":"user","content":null}]"#.to_owned(), "invalid_value", "messages[0].content"),
        (r#"[{"role":"user","content":"\ud800"}]"#.to_owned(), "invalid_json", "messages[0].content"),
        (r#"[{"content":"x"}]"#.to_owned(), "missing_field", "messages[0].role"),
        (
            r#"[{"role":"user","content":[{"type":"video"}]}]"#.to_owned(),
            "invalid_value",
            "messages[0].content[0].type",
        ),
        (
            r#"[{"role":"user","content":[{"type":"text","text":"x"},
                                          {"type":"image_url","image_url":{"url":"http://127.1/"}}]}]"#
                .to_owned(),
            "invalid_value",
            "messages[0].content[1].image_url.url",
        ),
        (
            r#"[{"role":"tool","tool_call_id":"a","content":"x"}]"#.to_owned(),
            "invalid_value",
            "messages[0].tool_call_id",
        ),
        (format!("[{call}]"), "invalid_value", "messages[0]"),
        (
            format!(r#"[{call},{{"role":"user","content":"x"}},{{"role":"user","content":"y"}}]"#),
            "invalid_value",
            "messages[1]",
        ),
        (
            r#"[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"a","function":{"name":"g","arguments":"{}"}}]}]"#.to_owned(),
            "invalid_value",
            "messages[0].tool_calls[1].id",
        ),
    ];
    for (json, code, param) in cases {
        assert_eq!(check(&json, false).err(), Some((code.to_owned(), param.to_owned())), "{json}");
    }
}

#[test]
fn a_calls_id_may_come_again_in_a_later_turn() {
    let call = r#"{"role":"assistant","tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
    let result = r#"{"role":"tool","tool_call_id":"call_1","content":"x"}"#;
    let found = check(&format!("[{call},{result},{call},{result}]"), false).unwrap();
    assert_eq!((found.answers_from, found.answered.len()), (3, 1), "only the last turn's call is answered");
    let twice = check(&format!("[{call},{result},{result}]"), false).err();
    assert_eq!(twice, Some(("invalid_value".to_owned(), "messages[2].tool_call_id".to_owned())));
}

#[test]
fn a_text_weighs_the_same_however_it_is_escaped() {
    let weight =
        |content: &str| check(&format!(r#"[{{"role":"user","content":"{content}"}}]"#), false).unwrap().all[0].weight();
    assert_eq!(weight(r"\u00e9\u20ac\ud83d\ude00\u0041"), weight("é€😀A"));
    assert_eq!(weight(r"\\u00e9"), weight("xxu00e9"), "a backslash that is escaped begins no escape");
}

#[test]
fn pictures_and_sound_weigh_what_models_read_in_them() {
    let weight =
        |part: &str| check(&format!(r#"[{{"role":"user","content":[{part}]}}]"#), false).unwrap().all[0].weight();
    let long = "A".repeat(100_000);
    let image = |url: &str| weight(&format!(r#"{{"type":"image_url","image_url":{{"url":"{url}"}}}}"#));
    let embedded = image(&format!("data:image/png;base64,{long}"));
    assert_eq!(embedded, image("https://example.com/a.png"));
    assert!((MEDIA_WEIGHT..MEDIA_WEIGHT + 100).contains(&embedded), "{embedded}");
    let file = format!(r#"{{"type":"file","file":{{"file_data":"data:application/pdf;base64,{long}"}}}}"#);
    assert!(weight(&file) > 100_000, "{}", weight(&file));
    for (format, expected) in [("wav", 1_600), ("mp3", 6_300)] {
        let audio =
            weight(&format!(r#"{{"type":"input_audio","input_audio":{{"format":"{format}","data":"{long}"}}}}"#));
        assert!((expected..expected + 100).contains(&audio), "{format}: {audio}");
    }
}

#[test]
fn escapes_in_sound_hide_no_text_and_weigh_nothing() {
    let text = "x".repeat(100_000);
    let weight = |sound: &str| {
        let messages = format!(
            r#"[{{"role":"user","content":[{{"type":"text","text":"{text}"}},
                {{"type":"input_audio","input_audio":{{"format":"wav","data":"{sound}"}}}}]}}]"#
        );
        check(&messages, false).unwrap().all[0].weight()
    };
    let plain = weight(&"A".repeat(20_000));
    assert!((100_300..100_600).contains(&plain), "{plain}");
    assert_eq!(weight(&r"\u0041".repeat(20_000)), plain);
}

#[test]
fn results_of_a_waiting_run_are_found_with_or_without_the_transcript() {
    let transcript = r#"[{"role":"user","content":"q"},
        {"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},
        {"role":"tool","tool_call_id":"a","content":"x"},{"role":"user","content":"and?"}]"#;
    let found = check(transcript, false).unwrap();
    assert_eq!((found.answers_from, found.answered.len(), found.all.len()), (2, 1, 4));
    let bare = r#"[{"role":"tool","tool_call_id":"a","content":"x"}]"#;
    let found = check(bare, true).unwrap();
    assert_eq!((found.answers_from, found.answered[0].as_str()), (0, "a"));
    assert!(check(r#"[{"role":"user","content":"q"}]"#, true).unwrap().answered.is_empty());
}
