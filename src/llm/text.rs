//! Texts of upstreams' answers.

use std::borrow::Cow;
use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

/// The room that a text has to which more is added most of the time, token by token, in bytes.
const ROOM: usize = 128;

/// A text to which more is added most of the time.
pub fn with_room(said: Cow<'_, str>) -> String {
    match said {
        Cow::Owned(text) => text,
        Cow::Borrowed(said) => {
            let mut text = String::new();
            add(&mut text, said);
            text
        }
    }
}

/// Adds to such a text.
pub fn add(text: &mut String, said: &str) {
    if text.capacity() == 0 {
        text.reserve(said.len().max(ROOM));
    }
    text.push_str(said);
}

/// A string, borrowed where it holds no escapes; null is the empty one.
#[derive(Debug, Default)]
pub struct Text<'a>(pub Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or null")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Text::default())
            }
        }

        deserializer.deserialize_any(TextVisitor)
    }
}
