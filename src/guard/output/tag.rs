//! Reads tags as they come.

/// A longer tag is none.
const MAX_TAG: usize = 256;
/// Most bytes of a tag without attributes behind its name.
const MAX_SPACE: usize = 8;

/// What a text that begins with `<` is so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// It may become a tag.
    MayBe,
    /// A tag, which ends here.
    Whole(Tag),
    /// No tag of these names.
    Not,
}

/// A tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) name: &'static str,
    pub(super) is_closing: bool,
    /// Whether it closes itself.
    pub(super) is_empty: bool,
    pub(super) has_attributes: bool,
}

/// Reads a text that begins with `<` as a tag of one of these names, in any case, which may have attributes or not.
pub(super) fn read(text: &str, names: &[&'static str], takes_attributes: bool) -> Read {
    let inside = text.strip_prefix('<').unwrap_or(text);
    let (inside, is_closing) = inside.strip_prefix('/').map_or((inside, false), |inside| (inside, true));
    let end = inside.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | ':'))).unwrap_or(inside.len());
    let (name, rest) = inside.split_at(end);
    if rest.is_empty() {
        let begins = |known: &&str| known.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        return if names.iter().any(begins) { Read::MayBe } else { Read::Not };
    }
    let Some(known) = names.iter().find(|known| known.eq_ignore_ascii_case(name)) else { return Read::Not };
    let (attributes, is_whole) = rest.strip_suffix('>').map_or((rest, false), |rest| (rest, true));
    let (attributes, is_empty) =
        attributes.strip_suffix('/').filter(|_| is_whole).map_or((attributes, false), |rest| (rest, true));
    let has_attributes = !attributes.trim_ascii().is_empty();
    // An attribute begins with space; `=` may stand for it, as in `<parameter=a>`.
    let fits = if takes_attributes {
        rest.starts_with([' ', '\n', '\t', '>', '=', '/']) && text.len() <= MAX_TAG
    } else {
        !has_attributes && !is_empty && attributes.len() <= MAX_SPACE
    };
    match (fits, is_whole) {
        (false, _) => Read::Not,
        (true, false) => Read::MayBe,
        (true, true) => Read::Whole(Tag { name: known, is_closing, is_empty, has_attributes }),
    }
}
