//! What a change makes of a document and its collection. Pure.

use crate::agent::documents::error::DocumentError;
use crate::agent::ledger::collection::{CollectionHead, StoredText};

/// How much a collection may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a document.
    pub document: u64,
    /// Most documents.
    pub documents: u32,
    /// Most bytes of all together.
    pub bytes: u64,
}

/// A change of one document.
#[derive(Debug, Clone, Default)]
pub struct Change<'a> {
    /// What it is to say, or what is added to it.
    pub content: &'a str,
    /// Whether that is added to what it says.
    pub appends: bool,
    /// What it is for; `None` leaves that as it is.
    pub description: Option<&'a str>,
    /// The version that it must have; 0 if it must not be there.
    pub version: Option<u64>,
    /// By which the change is known: it is made once, also if it is asked for again.
    pub once: Option<&'a str>,
}

impl Change<'_> {
    /// What it makes of a document. One that is new begins above `floor`.
    pub(super) fn of(
        &self,
        (name, before, floor): (&str, Option<&StoredText>, u64),
        now_ms: u64,
    ) -> Result<StoredText, DocumentError> {
        let version = before.map_or(0, |before| before.version);
        if self.version.is_some_and(|expected| expected != version) {
            return Err(DocumentError::Changed { name: name.to_owned(), actual: version });
        }
        let content = match before {
            Some(before) if self.appends => appended(&before.content, self.content),
            _ => self.content.to_owned(),
        };
        let description = self.description.map(str::to_owned);
        let description = description.or_else(|| before.map(|before| before.description.clone())).unwrap_or_default();
        let created_ms = before.map_or(now_ms, |before| before.created_ms);
        let version = before.map_or(floor, |before| before.version) + 1;
        Ok(StoredText { content, description, created_ms, updated_ms: now_ms, version })
    }
}

/// A text and what is added to it, in a line of its own.
fn appended(before: &str, added: &str) -> String {
    let between = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    [before, between, added].concat()
}

/// What a collection has once a document of this name says something else, or is gone.
pub(super) fn counted(
    head: &CollectionHead,
    name: &str,
    (before, after): (Option<&StoredText>, Option<&StoredText>),
    limits: Option<&Limits>,
) -> Result<CollectionHead, DocumentError> {
    let bytes = |text: Option<&StoredText>| text.map_or(0, |text| text.bytes(name));
    let (had, has) = (bytes(before), bytes(after));
    let documents = head.documents.saturating_sub(before.is_some().into()).saturating_add(after.is_some().into());
    let all = head.bytes.saturating_sub(had).saturating_add(has);
    if let Some(limits) = limits {
        if has > limits.document {
            return Err(DocumentError::TooLong { bytes: has, most: limits.document });
        }
        if documents > limits.documents && documents > head.documents {
            return Err(DocumentError::TooMany { most: limits.documents });
        }
        if all > limits.bytes && all > head.bytes {
            return Err(DocumentError::Full { bytes: all, most: limits.bytes });
        }
    }
    Ok(CollectionHead { documents, bytes: all, ..head.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(content: &str) -> StoredText {
        StoredText { content: content.into(), created_ms: 1, updated_ms: 1, version: 3, ..StoredText::default() }
    }

    fn made(change: &Change<'_>, before: Option<&StoredText>) -> StoredText {
        change.of(("a", before, 5), 9).unwrap()
    }

    #[test]
    fn what_is_added_stands_in_a_line_of_its_own() {
        let change = Change { content: "b", appends: true, ..Change::default() };
        for (before, after) in [("a", "a\nb"), ("a\n", "a\nb"), ("", "b")] {
            let changed = made(&change, Some(&text(before)));
            assert_eq!((changed.content.as_str(), changed.created_ms, changed.updated_ms), (after, 1, 9));
        }
        assert_eq!(made(&change, None).content, "b");
        assert_eq!(made(&Change { appends: false, ..change }, Some(&text("a"))).content, "b");
    }

    #[test]
    fn a_change_of_another_version_is_refused_and_no_version_comes_again() {
        let change = |version| Change { content: "x", version: Some(version), ..Change::default() };
        assert_eq!(change(3).of(("a", Some(&text("a")), 5), 9).map(|text| text.version), Ok(4));
        let refused = Err(DocumentError::Changed { name: "a".into(), actual: 3 });
        assert_eq!(change(2).of(("a", Some(&text("a")), 5), 9), refused);
        assert_eq!(change(0).of(("a", Some(&text("a")), 5), 9), refused);
        assert_eq!(change(0).of(("a", None, 5), 9).map(|text| text.version), Ok(6));
    }

    #[test]
    fn what_is_beyond_a_limit_is_refused_and_less_is_always_allowed() {
        let limits = Limits { document: 5, documents: 2, bytes: 8 };
        let head = CollectionHead { documents: 2, bytes: 8, ..CollectionHead::default() };
        let count = |head: &CollectionHead, before: Option<&str>, after: Option<&str>| {
            let (before, after) = (before.map(text), after.map(text));
            counted(head, "n", (before.as_ref(), after.as_ref()), Some(&limits))
                .map(|head| (head.documents, head.bytes))
        };
        assert_eq!(count(&head, Some("aaa"), Some("bbb")), Ok((2, 8)));
        assert_eq!(count(&head, Some("aaa"), Some("bbbb")), Err(DocumentError::Full { bytes: 9, most: 8 }));
        assert_eq!(count(&head, Some("aaa"), Some("bbbbb")), Err(DocumentError::TooLong { bytes: 6, most: 5 }));
        assert_eq!(count(&head, None, Some("")), Err(DocumentError::TooMany { most: 2 }));
        assert_eq!(count(&head, Some("aaa"), None), Ok((1, 4)));
        let over = CollectionHead { documents: 9, bytes: 90, ..CollectionHead::default() };
        assert_eq!(count(&over, Some("aaa"), Some("bb")), Ok((9, 89)), "limits may have been lowered");
    }
}
