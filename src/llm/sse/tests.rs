use proptest::prelude::*;

use super::*;

/// All events of a stream that arrives in these chunks, and how it failed.
fn read<'c>(chunks: impl IntoIterator<Item = &'c [u8]>) -> (Vec<Vec<u8>>, Option<SseError>) {
    let (mut parser, mut events) = (Parser::default(), Vec::new());
    for mut rest in chunks {
        loop {
            match parser.next_event(&mut rest) {
                Ok(Some(event)) => events.push(event.to_vec()),
                Ok(None) => break,
                Err(error) => return (events, Some(error)),
            }
        }
    }
    (events, None)
}

fn events(text: &str) -> Vec<String> {
    let (events, error) = read([text.as_bytes()]);
    assert_eq!(error, None);
    events.into_iter().map(|event| String::from_utf8(event).unwrap()).collect()
}

#[test]
fn lines_end_in_any_of_three_ways() {
    assert_eq!(events("data: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\n\r\n"), ["a", "b", "c", "d"]);
}

#[test]
fn only_data_counts_and_one_space_is_dropped() {
    assert_eq!(events(": hello\nevent: x\nid: 7\nretry: 1\ndata:  a\nDATA: b\n\n"), [" a"]);
}

#[test]
fn data_of_several_lines_is_joined() {
    assert_eq!(events("data: a\ndata\ndata: b\n\n"), ["a\n\nb"]);
    assert_eq!(events("data\ndata:\n\n"), ["\n"]);
}

#[test]
fn an_event_needs_data_and_an_end() {
    assert_eq!(events("event: ping\n\n\n\ndata:\n\ndata: cut\n"), [""]);
}

#[test]
fn a_byte_order_mark_counts_only_at_the_start() {
    assert_eq!(events("\u{feff}data: a\n\n\u{feff}data: b\n\n"), ["a"]);
}

#[test]
fn a_whole_event_is_not_copied() {
    let chunk = b"data: abc\n\n";
    let (mut parser, mut rest) = (Parser::default(), &chunk[..]);
    let event = parser.next_event(&mut rest).unwrap().unwrap();
    assert_eq!(event.as_ptr(), chunk[6..].as_ptr());
}

#[test]
fn lines_and_events_have_a_longest_length_wherever_they_are_cut() {
    let longest = format!("data: {}\n\n", "x".repeat(MAX_EVENT));
    let too_long = format!("data: {}\n\n", "x".repeat(MAX_EVENT + 1));
    let in_two = format!("data: {}\ndata: {}\n\n", "x".repeat(MAX_EVENT / 2), "x".repeat(MAX_EVENT / 2));
    let comment = format!(": {}\n\n", "x".repeat(MAX_LINE));
    for size in [1 << 12, 1 << 16, 1 << 21] {
        assert_eq!(read(longest.as_bytes().chunks(size)).1, None);
        assert_eq!(read(too_long.as_bytes().chunks(size)).1, Some(SseError::EventTooLong(MAX_EVENT)));
        assert_eq!(read(in_two.as_bytes().chunks(size)).1, Some(SseError::EventTooLong(MAX_EVENT)));
        assert_eq!(read(comment.as_bytes().chunks(size)).1, Some(SseError::LineTooLong(MAX_LINE)));
    }
    let endless = vec![b'x'; MAX_LINE + 1];
    assert_eq!(read(endless.chunks(1000)).1, Some(SseError::LineTooLong(MAX_LINE)));
}

/// What streams are made of, and what they should not be.
const PIECES: &[&[u8]] =
    &[b"\n", b"\r", b"\r\n", b"data", b":", b" ", b"data: ", b"x", b"\xFF", b"\xE2\x82\xAC", BYTE_ORDER_MARK];

proptest! {
    #[test]
    fn cutting_changes_nothing(
        pieces in prop::collection::vec(
            prop::sample::select(PIECES),
            0..40,
        ),
        size in 1..9_usize,
    ) {
        let stream = pieces.concat();
        prop_assert_eq!(read([&stream[..]]), read(stream.chunks(size)));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(stream: Vec<u8>) {
        read(stream.chunks(3));
    }
}
