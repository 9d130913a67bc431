//! Cuts a tool's result to a size that fits a model's context, and the store.

use std::borrow::Cow;

use crate::types::conversation::{Part, PartKind};
use crate::types::json::RawValueEq;

/// Most bytes of the pictures and the sound of a result, in base64. Models read little in a large picture, and vendors take
/// pictures of this size.
pub const MAX_MEDIA_BYTES: usize = 4 << 20;

/// Most bytes of the files of a result, in base64. Unlike pictures they fill a model's context as they grow.
pub const MAX_FILE_BYTES: usize = 128 << 10;

/// Most bytes of the pictures, the sound and the files of all results of one run, in base64: all of them are kept in memory
/// and go upstream again with each call.
pub const MAX_RUN_MEDIA_BYTES: usize = 16 << 20;

/// Most parts of a result. One that only points elsewhere takes no bytes, and a place in every request all the same.
pub const MAX_PARTS: usize = 256;

/// Room for words about a part that is not text.
const MAX_TOLD_BYTES: usize = 256;

/// Room for the marker between head and tail.
const MARKER_BYTES: usize = 64;

/// Cuts an answer so that it is within `max_bytes`, [`MAX_MEDIA_BYTES`], [`MAX_FILE_BYTES`] and [`MAX_PARTS`]; whether
/// anything was cut. Texts lose their middles; a picture or the like for which there is no room is described in words.
pub fn cut_to_size(parts: &mut Vec<Part>, structured: &mut Option<RawValueEq>, max_bytes: usize) -> bool {
    let mut any = parts.len() > MAX_PARTS;
    if any {
        let removed = parts.drain(MAX_PARTS - 1..).count();
        parts.push(Part::text(format!("[… {removed} parts removed …]")));
    }
    if let Some(json) = structured.take_if(|json| json.get().len() > max_bytes) {
        any = true;
        // It stands for the text, so it is cut as text.
        if parts.is_empty() {
            parts.push(Part::text(json.get()));
        }
    }
    let taken = structured.as_ref().map_or(0, |json| json.get().len());
    let mut rooms = MediaRooms { media: Room(MAX_MEDIA_BYTES), files: Room(MAX_FILE_BYTES) };
    let without_room = parts.iter_mut().filter_map(|part| (!rooms.has_taken(part)).then_some(part));
    let (texts, others): (Vec<&mut Part>, Vec<_>) = without_room.partition(|part| part.as_text().is_some());
    // However long the texts are, that there was a picture is told.
    let most = MAX_TOLD_BYTES.min((max_bytes - taken) / others.len().max(1));
    let told: Vec<usize> = others.iter().map(|part| part.in_words().len().min(most)).collect();
    let mut room = Room(max_bytes - taken - told.iter().sum::<usize>());
    for part in texts {
        any |= room.take(part);
    }
    for (part, told) in others.into_iter().zip(told) {
        room.0 += told;
        any |= room.take(part);
    }
    if any {
        parts.retain(|part| !part.is_empty());
    }
    any
}

/// Describes in words what of the pictures, sound and files of a result is more than `room` bytes; whether anything is.
pub fn leave_media_out(parts: &mut [Part], room: usize) -> bool {
    let (mut room, mut any) = (Room(room), false);
    for part in parts.iter_mut().filter(|part| part.is_media()) {
        if !room.has_taken(part) {
            *part = Part::text(truncate(&part.in_words(), MAX_TOLD_BYTES).0);
            any = true;
        }
    }
    any
}

/// How much of what is no text may still be kept.
struct MediaRooms {
    media: Room,
    files: Room,
}

impl MediaRooms {
    /// Whether a part is media for which there is room, which it takes.
    fn has_taken(&mut self, part: &Part) -> bool {
        let is_file = matches!(part.kind, PartKind::File { .. });
        part.is_media() && (if is_file { &mut self.files } else { &mut self.media }).has_taken(part)
    }
}

/// How many bytes may still be kept.
struct Room(usize);

impl Room {
    /// Whether there is room for a part, which it takes.
    fn has_taken(&mut self, part: &Part) -> bool {
        let left = self.0.checked_sub(part.bytes());
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }

    /// Takes the room that a part needs; whether the part had to be cut, or told in words.
    fn take(&mut self, part: &mut Part) -> bool {
        let fits = part.bytes() <= self.0;
        if !fits {
            *part = Part::text(truncate(&part.in_words(), self.0).0);
        }
        self.0 -= part.bytes();
        !fits
    }
}

/// Cuts `text` to at most `max_bytes`, never within a character, and says whether it did. Head and
/// tail stay, as beginnings explain and endings conclude; a marker between them names what is gone.
#[must_use]
pub fn truncate(text: &str, max_bytes: usize) -> (Cow<'_, str>, bool) {
    if text.len() <= max_bytes {
        return (Cow::Borrowed(text), false);
    }
    let Some(room) = max_bytes.checked_sub(MARKER_BYTES) else {
        return (Cow::Borrowed(&text[..text.floor_char_boundary(max_bytes)]), true);
    };
    let head = &text[..text.floor_char_boundary(room - room / 4)];
    let tail = &text[text.ceil_char_boundary(text.len() - room / 4)..];
    let removed = text.len() - head.len() - tail.len();
    (Cow::Owned(format!("{head}\n[… {removed} bytes removed …]\n{tail}")), true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::types::conversation::{PartKind, Source};
    use crate::types::guard::MAX_RESULT_BYTES;

    #[test]
    fn keeps_head_and_tail() {
        assert_eq!(truncate("short", 5), (Cow::Borrowed("short"), false));
        let text = format!("{}{}", "a".repeat(500), "z".repeat(500));
        let (cut, truncated) = truncate(&text, 164);
        assert!(truncated);
        assert_eq!(cut, format!("{}\n[… 900 bytes removed …]\n{}", "a".repeat(75), "z".repeat(25)));
    }

    fn file(bytes: usize) -> Part {
        let source = Source::Base64 { media_type: "application/pdf".into(), data: "A".repeat(bytes / 3 * 4) };
        PartKind::File { source, name: Some("n.pdf".into()) }.into()
    }

    fn image(bytes: usize) -> Part {
        let source = Source::Base64 { media_type: "image/png".into(), data: "A".repeat(bytes / 3 * 4) };
        PartKind::Image { source, detail: None }.into()
    }

    #[test]
    fn a_picture_that_does_not_fit_is_told_of_in_words() {
        let mut parts = vec![image(3_000_000), image(300_000)];
        assert!(cut_to_size(&mut parts, &mut None, MAX_RESULT_BYTES));
        assert_eq!(parts, [image(3_000_000), Part::text("[image, image/png, 300000 bytes]")]);
        let mut parts = vec![file(90_000), file(9_000), file(60_000)];
        assert!(cut_to_size(&mut parts, &mut None, MAX_RESULT_BYTES));
        let told = Part::text("[file n.pdf, application/pdf, 60000 bytes]");
        assert_eq!(parts, [file(90_000), file(9_000), told]);
        // Text has its own room, and leaves some to tell what is not there.
        let mut parts = vec![image(4_000_000), image(30_000), Part::text("x".repeat(60_000))];
        assert!(cut_to_size(&mut parts, &mut None, MAX_RESULT_BYTES));
        assert_eq!(parts[0], Part::text("[image, image/png, 3999999 bytes]"));
        assert_eq!(parts[1], image(30_000));
        let bytes = parts.iter().filter(|part| !part.is_media()).map(Part::bytes).sum::<usize>();
        assert!((MAX_RESULT_BYTES - 64..=MAX_RESULT_BYTES).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_run_has_room_for_so_many_pictures() {
        let mut parts = vec![Part::text("a"), image(3_000), file(3_000), image(3_000)];
        assert!(!leave_media_out(&mut parts.clone(), 12_100) && leave_media_out(&mut parts, 12_000));
        assert_eq!(parts[..3], [Part::text("a"), image(3_000), file(3_000)]);
        assert_eq!(parts[3], Part::text("[image, image/png, 3000 bytes]"));
    }

    #[test]
    fn json_that_does_not_fit_is_cut_where_it_is_the_text_and_dropped_elsewhere() {
        let json = format!("[{}1]", "1,".repeat(40_000));
        let json = || Some(RawValueEq(serde_json::value::RawValue::from_string(json.clone()).unwrap()));
        let (mut parts, mut structured) = (Vec::new(), json());
        assert!(cut_to_size(&mut parts, &mut structured, MAX_RESULT_BYTES) && structured.is_none());
        assert!(parts.len() == 1 && (MAX_RESULT_BYTES - 64..=MAX_RESULT_BYTES).contains(&parts[0].bytes()));
        let (mut parts, mut structured) = (vec![Part::text("a")], json());
        assert!(cut_to_size(&mut parts, &mut structured, MAX_RESULT_BYTES));
        assert_eq!((parts, structured), (vec![Part::text("a")], None));
    }

    #[test]
    fn parts_are_bounded_in_number_too() {
        let part = |n: usize| {
            let source = Source::Url(format!("https://example.com/{n}.png"));
            Part::from(PartKind::Image { source, detail: None })
        };
        let all: Vec<Part> = (0..MAX_PARTS + 9).map(part).collect();
        let mut parts = all.clone();
        assert!(cut_to_size(&mut parts, &mut None, MAX_RESULT_BYTES));
        assert_eq!(parts.len(), MAX_PARTS);
        assert_eq!(parts.pop(), Some(Part::text("[… 10 parts removed …]")));
        assert_eq!(parts, all[..MAX_PARTS - 1]);
        let mut most = all[..MAX_PARTS].to_vec();
        assert!(!cut_to_size(&mut most, &mut None, MAX_RESULT_BYTES) && most.len() == MAX_PARTS);
    }

    proptest! {
        #[test]
        fn an_answer_is_bounded_as_a_whole(lengths in proptest::collection::vec((any::<bool>(), 0_usize..60_000), 0..400)) {
            let part = |(is_text, length): (bool, usize)| if is_text { Part::text("x".repeat(length)) } else { image(length) };
            let parts: Vec<Part> = lengths.into_iter().map(part).collect();
            let (bytes, mut cut) = (parts.iter().map(Part::bytes).sum::<usize>(), parts.clone());
            let any = cut_to_size(&mut cut, &mut None, MAX_RESULT_BYTES);
            let of = |is_media: bool| cut.iter().filter(|part| part.is_media() == is_media).map(Part::bytes).sum::<usize>();
            prop_assert!(of(false) <= MAX_RESULT_BYTES && of(true) <= MAX_MEDIA_BYTES + MAX_FILE_BYTES);
            prop_assert!(any == (cut != parts) && (bytes <= MAX_RESULT_BYTES || any || of(true) > 0));
        }

        #[test]
        fn is_bounded_and_exact(text in "[aé€🦀]{0,400}", max_bytes in 0_usize..900) {
            let (cut, truncated) = truncate(&text, max_bytes);
            prop_assert!(cut.len() <= max_bytes);
            prop_assert_eq!(truncated, text.len() > max_bytes);
            if let Some((head, rest)) = cut.split_once("\n[… ") {
                let (removed, tail) = rest.split_once(" bytes removed …]\n").unwrap();
                prop_assert!(text.starts_with(head) && text.ends_with(tail));
                prop_assert_eq!(head.len() + removed.parse::<usize>().unwrap() + tail.len(), text.len());
            }
        }
    }
}
