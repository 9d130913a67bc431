//! Makes an answer of a tool one that every vendor takes: what a tool says of its media is not believed.
//!
//! A vendor refuses a whole request for one picture that is not what its type says, so that the run would fail. So the type
//! of a picture is read from its first bytes, what is no base64 becomes words, and what lies elsewhere becomes a link: tools
//! may name addresses that only they reach, and no vendor is to be sent to them.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::guard::result::sanitise;
use crate::tools::truncate::cut_to_size;
use crate::types::ToolOutcome;
use crate::types::conversation::{Extra, Link, Part, PartKind, Source};
use crate::types::guard::ResultBounds;
use crate::types::tool::Measurement;

/// Most measurements of a call.
const MAX_MEASUREMENTS: usize = 16;
/// Longest name of a measurement and of its unit, in bytes.
const MAX_NAME: usize = 64;
/// Longest media type, in bytes.
const MAX_MEDIA_TYPE: usize = 127;
/// Longest address of a link, in bytes. One that is cut leads nowhere, so a longer one is told to be there and no more.
const MAX_URI: usize = 2_048;
/// Longest name of a file or link, and longest description, in bytes.
const MAX_LABEL: usize = 1_024;

/// The first bytes of pictures that models look at.
const PICTURES: [(&[u8], &str); 4] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
];

/// Base64 as tools write it, some of them without padding.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const UNPADDED: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Makes all that is kept of an answer fit to be kept and sent, and cuts it to size. What no model reads is taken out
/// before, so that it takes no room.
pub fn settle(outcome: &mut ToolOutcome, bounds: ResultBounds) {
    let ToolOutcome { parts, structured, measurements, .. } = outcome;
    fit(parts, measurements);
    let hex_run = usize::try_from(bounds.hex_run).unwrap_or(usize::MAX);
    let mut pictures = sanitise(parts, structured, hex_run);
    fit(&mut pictures, &mut Vec::new());
    parts.append(&mut pictures);
    outcome.truncated |= cut_to_size(parts, structured, bounds.max_bytes);
}

/// Makes the parts and measurements of an answer fit to be kept and sent.
fn fit(parts: &mut Vec<Part>, measurements: &mut Vec<Measurement>) {
    for part in &mut *parts {
        fit_part(part);
    }
    parts.retain(|part| !part.is_empty());
    measurements.retain(|measured| measured.value.is_finite() && !measured.name.is_empty());
    measurements.truncate(MAX_MEASUREMENTS);
    for Measurement { name, unit, .. } in measurements {
        clip(name, MAX_NAME);
        if let Some(unit) = unit {
            clip(unit, MAX_NAME);
        }
    }
}

fn fit_part(part: &mut Part) {
    part.extra = Extra::default();
    let told = match &mut part.kind {
        PartKind::Text(_) => None,
        PartKind::Image { source, .. } => fit_media(source, "image", None),
        PartKind::Audio { source } => fit_media(source, "audio", None),
        PartKind::File { source, name } => {
            if let Some(name) = name {
                clip(name, MAX_LABEL);
            }
            fit_media(source, "file", name.as_deref())
        }
        PartKind::Link(link) => {
            fit_link(link);
            None
        }
        // No answer has these, which are parts of a model's turn.
        PartKind::Refusal(_)
        | PartKind::Thinking(_)
        | PartKind::ToolCall(_)
        | PartKind::ToolResult(_)
        | PartKind::Unknown { .. } => Some(Part::text(part.in_words())),
    };
    if let Some(told) = told {
        *part = told;
    }
}

/// Corrects a source, or gives the part that stands in for it.
fn fit_media(source: &mut Source, what: &str, name: Option<&str>) -> Option<Part> {
    let (media_type, data) = match source {
        Source::Base64 { media_type, data } => (media_type, data),
        Source::Url(uri) => {
            let mut link = Link { uri: std::mem::take(uri), name: name.map(str::to_owned), ..Link::default() };
            fit_link(&mut link);
            return Some(Part::link(link));
        }
        Source::Id(id) => return Some(Part::text(format!("[{what} {id}]"))),
    };
    let Some(bytes) = decoded(data).filter(|bytes| !bytes.is_empty()) else {
        return Some(Part::text(format!("[{what} that is empty or not in base64]")));
    };
    clip(media_type, MAX_MEDIA_TYPE);
    if what == "image"
        && let Some(known) = picture(&bytes)
    {
        known.clone_into(media_type);
    }
    if what == "file"
        && is_text(media_type)
        && let Ok(text) = std::str::from_utf8(&bytes)
    {
        let title = name.map(|name| format!("[file {name}]\n")).unwrap_or_default();
        return Some(Part::text(title + text));
    }
    let written = STANDARD.encode(&bytes);
    if *data != written {
        *data = written;
    }
    None
}

/// The type of a picture, by how it begins.
fn picture(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return Some("image/webp");
    }
    PICTURES.iter().find(|(begin, _)| bytes.starts_with(begin)).map(|(_, known)| *known)
}

/// The bytes of base64, of which some tools write another alphabet, or lines.
fn decoded(data: &str) -> Option<Vec<u8>> {
    let data: Cow<'_, str> = if data.contains(|c: char| c.is_ascii_whitespace()) {
        Cow::Owned(data.split_ascii_whitespace().collect())
    } else {
        Cow::Borrowed(data)
    };
    UNPADDED.decode(&*data).or_else(|_| URL_SAFE.decode(&*data)).ok()
}

/// Whether a file of this type is text, which every model reads.
fn is_text(media_type: &str) -> bool {
    let kind = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_written = ["json", "xml", "yaml", "toml", "javascript", "sql"];
    kind.starts_with("text/")
        || kind
            .strip_prefix("application/")
            .is_some_and(|rest| is_written.iter().any(|known| rest == *known || rest.ends_with(&format!("+{known}"))))
}

fn fit_link(link: &mut Link) {
    if link.uri.len() > MAX_URI {
        link.uri = format!("an address of {} bytes", link.uri.len());
    }
    let Link { name, description, media_type, .. } = link;
    for (label, most) in [(name, MAX_LABEL), (description, MAX_LABEL), (media_type, MAX_MEDIA_TYPE)] {
        if let Some(label) = label {
            clip(label, most);
        }
    }
}

fn clip(text: &mut String, max_bytes: usize) {
    text.truncate(text.floor_char_boundary(max_bytes));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::guard::MAX_RESULT_BYTES;

    fn settled(text: String, bounds: ResultBounds) -> ToolOutcome {
        let mut outcome = ToolOutcome { parts: vec![Part::text(text)], ..ToolOutcome::default() };
        settle(&mut outcome, bounds);
        outcome
    }

    #[test]
    fn data_takes_no_room_in_an_answer() {
        let text = format!("a data:application/zip;base64,{} b \u{1b}[1m{}", "QUJD".repeat(30_000), "z".repeat(50_000));
        let outcome = settled(text, ResultBounds::default());
        assert!(!outcome.truncated);
        assert_eq!(outcome.text(), format!("a [application/zip, 90000 bytes] b {}", "z".repeat(50_000)));
        let png = STANDARD.encode([b"\x89PNG\r\n\x1a\n", &[7; 300][..]].concat());
        let outcome = settled(format!("<img src=\"data:image/jpeg;base64,{png}\">"), ResultBounds::default());
        assert_eq!(outcome.parts[0].as_text(), Some("<img src=\"[image/jpeg, 308 bytes]\">"));
        assert_eq!(outcome.parts[1].in_words(), "[image, image/png, 308 bytes]");
    }

    #[test]
    fn a_long_answer_is_cut_within_no_character() {
        let outcome = settled("é".repeat(100_000), ResultBounds::default());
        assert!(outcome.truncated && !outcome.is_error);
        assert!(outcome.text().len() <= MAX_RESULT_BYTES && outcome.text().len() > MAX_RESULT_BYTES - 100);
        assert!(outcome.text().starts_with('é') && outcome.text().ends_with('é'));
        assert!(outcome.text().contains(" bytes removed …]"));
        let small = settled("x".repeat(9_000), ResultBounds::default().within(1_000));
        assert!(small.truncated && (1_900..=2_000).contains(&small.text().len()), "half of a small window");
    }

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\nrest";

    fn fitted(kind: PartKind) -> Part {
        let mut parts = vec![kind.into()];
        fit(&mut parts, &mut Vec::new());
        parts.pop().expect("it is not empty")
    }

    fn image(media_type: &str, data: impl Into<String>) -> PartKind {
        PartKind::Image { source: Source::Base64 { media_type: media_type.into(), data: data.into() }, detail: None }
    }

    fn file(media_type: &str, bytes: &[u8]) -> PartKind {
        let source = Source::Base64 { media_type: media_type.into(), data: STANDARD.encode(bytes) };
        PartKind::File { source, name: Some("a.bin".into()) }
    }

    #[test]
    fn the_bytes_of_a_picture_say_what_it_is() {
        let right = Part::from(image("image/png", STANDARD.encode(PNG)));
        assert_eq!(fitted(image("image/jpeg", STANDARD.encode(PNG))), right);
        let (lines, bare) = (STANDARD.encode(PNG), STANDARD.encode(PNG).trim_end_matches('=').to_owned());
        for written in [format!("{}\r\n{}\n", &lines[..8], &lines[8..]), bare] {
            assert_eq!(fitted(image("image/png", written)), right);
        }
        let other = image("image/svg+xml", STANDARD.encode("<svg/>"));
        assert_eq!(fitted(other.clone()), other.into(), "what is not known stays what its tool calls it");
        for (bytes, known) in [
            (&b"\xff\xd8\xff\xe0"[..], "image/jpeg"),
            (b"GIF89a", "image/gif"),
            (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        ] {
            assert_eq!(fitted(image("x/y", STANDARD.encode(bytes))), image(known, STANDARD.encode(bytes)).into());
        }
    }

    #[test]
    fn what_no_vendor_would_take_is_told_in_words() {
        for bad in ["", "%%%", "a"] {
            assert_eq!(fitted(image("image/png", bad)).as_text(), Some("[image that is empty or not in base64]"));
        }
        let elsewhere = PartKind::Image { source: Source::Url("http://169.254.169.254/".into()), detail: None };
        assert_eq!(fitted(elsewhere).in_words(), "[link to http://169.254.169.254/]");
        let link = Link { uri: "x".repeat(9_000), name: Some("é".repeat(900)), ..Link::default() };
        let PartKind::Link(link) = fitted(PartKind::Link(Box::new(link))).kind else { panic!("it is a link") };
        assert_eq!(link.uri, "an address of 9000 bytes");
        assert_eq!(link.name.map(|name| name.len()), Some(1_024));
    }

    #[test]
    fn files_of_text_are_text() {
        assert_eq!(fitted(file("application/ld+json; charset=utf-8", b"{}")).as_text(), Some("[file a.bin]\n{}"));
        assert_eq!(fitted(file("text/csv", b"a,b")).as_text(), Some("[file a.bin]\na,b"));
        for (kind, bytes) in [("application/pdf", &b"%PDF-"[..]), ("text/plain", b"\xff\xfe")] {
            assert_eq!(fitted(file(kind, bytes)), file(kind, bytes).into());
        }
    }

    #[test]
    fn measurements_are_few_finite_and_named() {
        let measured = |name: &str, value| Measurement { name: name.into(), value, unit: Some("u".repeat(99)) };
        let mut all = vec![measured("", 1.0), measured("nan", f64::NAN), measured(&"n".repeat(99), 2.0)];
        all.extend((0..20).map(|n| measured("n", f64::from(n))));
        fit(&mut Vec::new(), &mut all);
        assert_eq!(all.len(), MAX_MEASUREMENTS);
        assert_eq!((all[0].name.len(), all[0].unit.as_ref().map(String::len), all[0].value), (64, Some(64), 2.0));
    }
}
