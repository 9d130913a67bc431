use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::silence::Silence;
use super::*;

fn sanitised(text: &str) -> String {
    let mut machine = Sanitiser::default();
    let shown = machine.push(text);
    shown + &machine.finish()
}

#[test]
fn each_step_removes_what_no_reader_is_meant_to_see() {
    for (text, kept) in [
        ("a<tool_call>{\"name\": \"x\"}</tool_call>b", "ab"),
        ("<function_call>x</function_call>", ""),
        ("a<tool_call>x</function_call>b<invoke name=\"y\">z</tool_call>c", "abc"),
        ("<Tool_Use>\n<parameter name=\"a\">1</parameter>\n", ""),
        ("a <minimax:tool_call><invoke name=\"x\"></invoke></minimax:tool_call> b", "a  b"),
        ("a</tool_call> b<parameter name=\"q\">oslo</parameter>", "a b"),
        ("a <parameter> of a <toolbox>", "a <parameter> of a <toolbox>"),
        ("Hi\n[Tool Call: x (ID: 1)]\nArguments: {\n \"a\": \"}\\\"\"\n}\nbye", "Hi\nbye"),
        ("[Tool Call: x]\n{\"a\": {}} \nbye", "bye"),
        ("[Tool Call: x {\"a\": 1}] more\nbye", "bye"),
        ("Hi\n[Tool Result for 1]\n{\"a\": 1}\nmore\n\nbye", "Hi\nbye"),
        ("[Tool Result]\n```\na\n\nb\n```\n\nbye `x`", "bye `x`"),
        ("[Tool Result\nx\n\nbye", "bye"),
        ("[Tool results page](https://x.y) and more", "[Tool results page](https://x.y) and more"),
        ("[Tool Call: x]\n{\"a\": 1\n\nbye", "bye"),
        ("[Tool Call: x]\n{\"a\": 1\nbye", "bye"),
        ("[Tool Call: x]\n{\"a\" no}\nbye", "bye"),
        ("[Historical context: earlier]\nx\n \nbye", "bye"),
        ("<final>yes</final>", "yes"),
        ("<FINAL >yes", "yes"),
        ("Hi\n\n[System Message] You are.\nBe.\n\nbye", "Hi\n\nbye"),
        ("[Systematic] [Tool box]", "[Systematic] [Tool box]"),
        ("one\n\none \n\n one\n\ntwo\n\none", "one\n\ntwo\n\none"),
        ("one\n\none more\n\none", "one\n\none more\n\none"),
        ("one\none", "one\none"),
        (" \n\t\n  indented\n\n", "  indented"),
        ("", ""),
    ] {
        assert_eq!(sanitised(text), kept, "{text}");
    }
}

#[test]
fn code_is_not_touched() {
    for text in [
        "```\n<tool_call>x</tool_call>\n```",
        "```\n[Tool Call: x]\n{}\n```",
        "```\n[System Message]\n\nx\n\nx\n\nx\n```",
        "```\na\n```\n\n```\na\n```",
        "Write `<final>` here.",
        "Write ``a ` <final>`` here.",
        "~~~\n<final>\n\nx\n\nx\n~~~",
        "> ```\n> <final>\n> ```",
        "- ```\n  <final>\n  ```",
        "```\n```x\n<final>\n```",
        "    indented\n\n    indented too",
    ] {
        assert_eq!(sanitised(text), text);
    }
}

#[test]
fn text_is_shown_as_soon_as_it_cannot_go() {
    for (text, shown) in [
        ("Hello", "Hello"),
        ("Hello <", "Hello"),
        ("Hello <b", "Hello <b"),
        ("Hello\n[Tool", "Hello"),
        ("Hello\n[Tools", "Hello\n[Tools"),
        ("one\n\non", "one"),
        ("one\n\nor", "one\n\nor"),
        ("Hello \n", "Hello"),
    ] {
        assert_eq!(Sanitiser::default().push(text), shown, "{text}");
    }
}

/// Would take very long if a machine looked at all that it holds for each character.
#[test]
fn what_is_held_is_not_looked_at_again_and_again() {
    const LENGTH: usize = 1 << 18;
    let paragraph = "x ".repeat(8_000);
    for text in [
        " ".repeat(LENGTH),
        "\n ".repeat(LENGTH / 2),
        "*".repeat(LENGTH),
        "<".repeat(LENGTH),
        "<invoke ".repeat(LENGTH / 8),
        "[".repeat(LENGTH),
        "[tool result".repeat(LENGTH / 12),
        format!("[tool call: x]\n{}", "{\"a\":".repeat(LENGTH / 5)),
        format!("{paragraph}\n\n").repeat(LENGTH / paragraph.len()),
        "`".repeat(LENGTH),
    ] {
        let (mut machine, mut silence) = (Sanitiser::default(), Silence::default());
        for c in text.chars() {
            machine.push(c.encode_utf8(&mut [0; 4]));
            silence.push(c.to_string());
        }
        machine.finish();
    }
}

fn texts() -> impl Strategy<Value = String> {
    let pieces = [
        "<tool_call>",
        "</tool_call>",
        "<parameter name=\"a\">",
        "<final>",
        "</final>",
        "<",
        ">",
        "[Tool Call: x]",
        "[Tool Result",
        "[System Message]",
        "[Historical context:",
        "Arguments:",
        "{\"a\": \"}\"}",
        "{",
        "}",
        "[",
        "\n",
        "\n\n",
        " ",
        "word",
        "word\n\nword",
        "```",
        "`",
        "é🦀",
        "\n\n\n",
    ];
    let cut = (select(pieces.to_vec()), any::<Index>(), 0_u8..4).prop_map(|(piece, end, cut)| {
        let length = if cut == 0 { end.index(piece.chars().count() + 1) } else { piece.chars().count() };
        piece.chars().take(length).collect::<String>()
    });
    prop::collection::vec(cut, 0..16).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn the_same_text_is_left_wherever_the_stream_is_cut(text in texts()) {
        let whole = sanitised(&text);
        // Every place, and everywhere at once.
        for (at, _) in text.char_indices() {
            let mut machine = Sanitiser::default();
            let mut shown = machine.push(&text[..at]);
            shown += &machine.push(&text[at..]);
            prop_assert_eq!(shown + &machine.finish(), whole.clone());
        }
        let mut machine = Sanitiser::default();
        let mut shown: String = text.chars().map(|c| machine.push(c.encode_utf8(&mut [0; 4]))).collect();
        shown += &machine.finish();
        prop_assert_eq!(shown, whole);
    }
}
