use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;

const CALL: &str = r#"{"name": "add", "arguments": {"a": 1}}"#;

fn offered(name: &str, arguments: &str) -> bool {
    name == "add" && arguments.contains("\"a\"")
}

/// What is shown and the number of calls.
fn recover(text: &str) -> (String, usize) {
    let mut scanner = TextToolCalls::new(offered);
    let shown = scanner.push(text);
    let (rest, calls) = scanner.finish();
    assert!(calls.iter().all(|call| offered(&call.name, &call.arguments)));
    (shown + &rest, calls.len())
}

#[test]
fn recovered_calls_are_removed_with_their_wrapping() {
    for (text, shown, calls) in [
        (CALL.to_owned(), "", 1),
        (format!("\n  {CALL}\n\n"), "", 1),
        (format!("Let me see.\n\n{CALL}\n"), "Let me see.", 1),
        (format!("Let me see.\n\n{CALL}\n\nDone. "), "Let me see.\n\nDone. ", 1),
        (format!("{CALL}\nDone."), "Done.", 1),
        (format!("{CALL}\n{CALL}{CALL} {CALL}"), "", 4),
        (format!("a\n{CALL}\n\nb\n{CALL}\nc"), "a\nb\nc", 2),
        (format!("```json\n{CALL}\n```"), "", 1),
        (format!("Calling:\n```\n{CALL}\n{CALL}\n```\nok"), "Calling:\nok", 2),
        (format!("```tool_call\n[{CALL},\n {CALL}]\n```"), "", 2),
        (format!("<tool_call>\n{CALL}\n</tool_call>\n<tool_call>{CALL}</tool_call>"), "", 2),
        (format!("<tool_call>\n{CALL}"), "", 1),
        (format!("```json{CALL}\n``"), "", 1),
        (format!("[{CALL}]"), "", 1),
        (CALL.replace("arguments", "parameters"), "", 1),
    ] {
        assert_eq!(recover(&text), (shown.to_owned(), calls), "{text}");
    }
}

#[test]
fn text_that_is_no_call_is_shown_unchanged() {
    let unknown = CALL.replace("add", "subtract");
    for text in [
        String::new(),
        " \n ".into(),
        "Plain text. \n".into(),
        format!("I could write {CALL} here."),
        unknown.clone(),
        format!("```json\n{unknown}\n```\n"),
        format!("```json\n{CALL}\n{unknown}\n```"),
        format!("```json\n{CALL}\nis a call\n```"),
        format!("<tool_call>{unknown}</tool_call>"),
        format!("<tool_call>{CALL}</tool_cal>"),
        format!("[{CALL}, {unknown}]"),
        format!("[{CALL}"),
        "```json\n```".into(),
        "<tool_call></tool_call>".into(),
        "{\"name\": \"add\", \"arguments\": {\"a\": 1}".into(),
        "{\"name\": \"add\", \"arguments\": {\"a\": \"1\n\"}}".into(),
        "{\"city\": \"Oslo\"}".into(),
        "[1] A source\n[2, 3] More".into(),
        "<b>bold</b>\n`code`\n``x``\n{x}\n[]".into(),
        format!("Example:\n```python\nx = \\\n{CALL}\n```"),
        format!("````\n```json\n{CALL}\n```\n````"),
        format!("{{\"items\": [\n{CALL},\n{CALL}\n]}}"),
        format!("[\n1,\n{CALL}\n]"),
    ] {
        assert_eq!(recover(&text), (text.clone(), 0), "{text}");
    }
}

#[test]
fn calls_are_found_after_text_that_only_looked_like_one() {
    for before in [
        "{x\n",
        "[Note\n",
        "```x```\n",
        "```python\nx\n```\n",
        "`a`\n",
        "<tool_\n",
        "{\"city\": 1}\n",
        "{\n",
        "```json\n```\n",
    ] {
        let shown = before.trim_end();
        assert_eq!(recover(&format!("{before}{CALL}")), (shown.to_owned(), 1), "{before}");
    }
}

#[test]
fn text_is_shown_as_soon_as_it_cannot_become_a_call() {
    for (text, shown) in [
        ("Hello", "Hello"),
        ("Hello\n", "Hello"),
        ("Hello\n{", "Hello"),
        ("Hello\n{\"na", "Hello"),
        ("Hello\n{\"nx", "Hello\n{\"nx"),
        ("{\"name\": \"add\", \"x", "{\"name\": \"add\", \"x"),
        ("{\"city\": \"", "{\"city\": \""),
        ("```", ""),
        ("```jso", ""),
        ("```js ", "```js"),
        ("```json\nx", "```json\nx"),
        ("<tool", ""),
        ("<tr", "<tr"),
        ("[{", ""),
        ("[1", "[1"),
    ] {
        assert_eq!(TextToolCalls::new(offered).push(text), shown, "{text}");
    }
}

#[test]
fn held_back_text_is_bounded() {
    let begin = "{\"name\": \"add\", \"arguments\": {\"a\": \"";
    let mut scanner = TextToolCalls::new(offered);
    let text = format!("{begin}{}\"}}}}\n{CALL}", "x".repeat(MAX_HELD_BYTES));
    let mut shown = scanner.push(begin);
    assert_eq!(shown, "");
    shown += &scanner.push(&text[begin.len()..]);
    let (rest, calls) = scanner.finish();
    assert_eq!((shown + &rest, calls.len()), (text.strip_suffix(&format!("\n{CALL}")).unwrap().to_owned(), 1));
    let spaces = " ".repeat(MAX_HELD_BYTES + 1);
    assert_eq!(TextToolCalls::new(offered).push(&spaces), spaces);
}

fn texts() -> impl Strategy<Value = String> {
    let array = format!("[{CALL}, {CALL}]");
    let fenced = format!("```json\n{CALL}\n```");
    let tagged = format!("<tool_call>{CALL}</tool_call>");
    let unknown = CALL.replace("add", "subtract");
    let whole = [CALL.to_owned(), array, fenced, tagged, unknown];
    let pieces = [
        "```",
        "```json",
        "```python",
        "````",
        "<tool_call>",
        "</tool_call>",
        "{\"name\":",
        "\"add\"",
        ",",
        "[",
        "]",
        "{",
        "}",
        "\"",
        "\\",
        "`",
        "<",
        "é🦀",
        "word",
        " ",
        "\n",
        "\n\n",
    ];
    let piece = prop_oneof![select(whole.to_vec()), select(pieces.map(str::to_owned).to_vec()), Just("\n".to_owned())];
    // Pieces whole or cut short, so that beginnings without their ends come up too.
    let cut = (piece, any::<Index>(), 0_u8..4).prop_map(|(piece, end, cut)| {
        let length = if cut == 0 { end.index(piece.chars().count() + 1) } else { piece.chars().count() };
        piece.chars().take(length).collect::<String>()
    });
    prop::collection::vec(cut, 0..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn the_result_does_not_depend_on_how_the_stream_is_cut(text in texts(), cuts in prop::collection::vec(any::<Index>(), 0..8)) {
        let mut whole = TextToolCalls::new(offered);
        let mut shown = whole.push(&text);
        let (rest, calls) = whole.finish();
        shown += &rest;

        let mut ends: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
        ends.push(text.len());
        ends.sort_unstable();
        let mut pieces = TextToolCalls::new(offered);
        let (mut in_pieces, mut from) = (String::new(), 0);
        for end in ends {
            write!(in_pieces, "{}", pieces.push(&text[from..end])).unwrap();
            from = end;
        }
        let (rest, same_calls) = pieces.finish();
        prop_assert_eq!(in_pieces + &rest, shown);
        prop_assert_eq!(same_calls, calls);
    }

    #[test]
    fn without_calls_everything_is_shown(text in texts()) {
        let mut scanner = TextToolCalls::new(|_: &str, _: &str| false);
        let mut shown = scanner.push(&text);
        let (rest, calls) = scanner.finish();
        shown += &rest;
        prop_assert_eq!(shown, text);
        prop_assert!(calls.is_empty());
    }
}
