use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::guard::output::silence::is_silent;
use crate::llm::said;

/// What is shown, what the model thought, and what the turn is at the end.
type Passed = (String, String, Vec<ModelPart>);

/// The turn has its text in two parts; the first has so many bytes.
fn passed<'t>(
    (rules, scans): (OutputRules, bool),
    pieces: impl IntoIterator<Item = &'t str>,
    (first, end): (usize, &TurnEnd),
) -> Passed {
    let mut filter = TextFilter::new(rules, None, WrittenCalls::None);
    let is_call: IsCall = Box::new(|name, _| name == "add");
    filter.answer.scanner = scans.then(|| LoneCalls::new(is_call));
    let (mut shown, mut thought, mut whole) = (String::new(), String::new(), String::new());
    let mut take = |piece| match piece {
        Piece::Text(text) => shown.push_str(&text),
        Piece::Thinking(text) => thought.push_str(&text),
    };
    for piece in pieces {
        whole.push_str(piece);
        filter.push(piece.to_owned(), &mut take);
    }
    let (first, second) = whole.split_at(whole.floor_char_boundary(first));
    let parts = [first, second].into_iter().filter(|text| !text.is_empty());
    let mut turn: Vec<_> = parts.map(|text| ModelPart::Part(Part::text(text))).collect();
    filter.finish(&mut turn, end, &mut take);
    (shown, thought, turn)
}

fn texts() -> impl Strategy<Value = String> {
    let pieces = [
        "<think>",
        "</think>",
        "<Thinking >",
        "</thinking>",
        "<thi",
        "<",
        ">",
        "\n",
        "\n\n",
        " ",
        "word",
        "word\n\nword",
        "```\n",
        "`",
        "{\"name\": \"add\", \"arguments\": {}}",
        "[add(a=1)]",
        "[TOOL_CALLS]",
        "<tool_call>",
        "</tool_call>",
        "<final>",
        "[System Message] x",
        "NO_REPLY",
        "é🦀",
    ];
    let cut = (select(pieces.to_vec()), any::<Index>(), 0_u8..4).prop_map(|(piece, end, cut)| {
        let length = if cut == 0 { end.index(piece.chars().count() + 1) } else { piece.chars().count() };
        piece.chars().take(length).collect::<String>()
    });
    prop::collection::vec(cut, 0..12).prop_map(|pieces| pieces.concat())
}

/// What is shown of a text that comes character by character in a turn that ends so, and whether calls were found in it.
fn shown(rules: OutputRules, text: &str, end: &TurnEnd) -> (String, bool) {
    let chars: Vec<String> = text.chars().map(String::from).collect();
    let (shown, _, turn) = passed((rules, true), chars.iter().map(String::as_str), (0, end));
    (shown, has_calls(&turn))
}

#[test]
fn calls_in_writing_are_made_only_of_a_text_that_ended_well_or_at_its_limit() {
    let rules = OutputRules::default();
    let made = (String::new(), true);
    assert_eq!(shown(rules, "[add(a=1)]", &TurnEnd::Stop), made);
    assert_eq!(shown(rules, "<think>x</think>\n[add(a=1)]\n[add(a=", &TurnEnd::Length), made);
    for (text, end) in [
        ("[add(a=1)]\n`add` is what I would call, but I won't because", TurnEnd::Length),
        ("[add(a=1)]", TurnEnd::Other("eos".into())),
        ("[add(a=1)]", TurnEnd::Interrupted),
        ("[malloc(3)](https://x.y) allocates", TurnEnd::Stop),
    ] {
        assert_eq!(shown(rules, text, &end), (text.to_owned(), false));
    }
}

#[test]
fn an_answer_of_nothing_but_what_goes_is_no_part_of_the_turn() {
    let rules = OutputRules { sanitise: Sanitise::Full, ..OutputRules::default() };
    for text in ["<tool_call>{}</tool_call>\n", "[Tool Call: x]\n{}\n", "\n\n"] {
        assert_eq!(passed((rules, false), [text], (4, &TurnEnd::Stop)), (String::new(), String::new(), Vec::new()));
    }
}

#[test]
fn tags_are_text_once_thinking_came_by_itself() {
    let mut filter = TextFilter::new(OutputRules::default(), None, WrittenCalls::None);
    let mut shown = String::new();
    let mut take = |piece| match piece {
        Piece::Text(text) => shown.push_str(&text),
        Piece::Thinking(_) => {}
    };
    filter.push("<think>a</think>b\n".to_owned(), &mut take);
    filter.separate_thinking();
    filter.push("<think>c".to_owned(), &mut take);
    let mut turn = vec![ModelPart::Part(Part::text("<think>a</think>b\n<think>c"))];
    filter.finish(&mut turn, &TurnEnd::Stop, &mut take);
    assert_eq!((shown.as_str(), said(&turn).as_ref()), ("b\n<think>c", "b\n<think>c"));
}

/// Would take very long if all that is held were read for each character.
#[test]
fn what_is_held_is_not_read_again_and_again() {
    let rules = OutputRules { sanitise: Sanitise::Full, allow_no_reply: true };
    for text in [
        format!("[add(a=\"{}\")]", "x".repeat(60_000)),
        "[add(a=1)]".repeat(6_000),
        "<tool_call>".to_owned() + &"<function=add></function>".repeat(2_400),
        format!("<invoke name=\"add\">{}", "<parameter name=\"a\">1</parameter>".repeat(1_900)),
        " ".repeat(1 << 17),
        "<".repeat(1 << 17),
    ] {
        shown(rules, &text, &TurnEnd::Length);
    }
}

proptest! {
    /// However a stream is cut, the same is shown, and it is what the turn says in the end.
    #[test]
    fn what_a_text_becomes_does_not_depend_on_how_its_stream_is_cut(
        text in texts(),
        sanitise in select(vec![Sanitise::Off, Sanitise::Thinking, Sanitise::Full]),
        (allow_no_reply, scans) in any::<(bool, bool)>(),
        cuts in prop::collection::vec(any::<Index>(), 0..6),
        (first, end) in (0_usize..200, select(vec![TurnEnd::Stop, TurnEnd::Length, TurnEnd::Other("eos".into())])),
    ) {
        let rules = OutputRules { sanitise, allow_no_reply };
        let (how, turn_of) = ((rules, scans), (first, &end));
        let whole = passed(how, [text.as_str()], turn_of);
        let chars: Vec<String> = text.chars().map(String::from).collect();
        prop_assert_eq!(&passed(how, chars.iter().map(String::as_str), turn_of), &whole);
        let mut ends: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
        ends.push(text.len());
        ends.sort_unstable();
        let mut from = 0;
        let pieces: Vec<&str> = ends.into_iter().map(|end| &text[std::mem::replace(&mut from, end)..end]).collect();
        prop_assert_eq!(&passed(how, pieces, turn_of), &whole);
        let (shown, thought, turn) = whole;
        let kept = said(&turn);
        if !(allow_no_reply && is_silent(&kept)) {
            prop_assert_eq!(shown, kept);
        }
        let kept = turn.iter().filter_map(|part| match part {
            ModelPart::Part(Part { kind: PartKind::Thinking(Thinking { text, .. }), .. }) => Some(text.as_str()),
            ModelPart::Part(_) | ModelPart::Call(_) => None,
        });
        prop_assert_eq!(thought, kept.collect::<String>());
        if sanitise == Sanitise::Off && !scans && !allow_no_reply {
            prop_assert_eq!(said(&turn), text);
        }
    }
}
