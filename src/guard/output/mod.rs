//! Cleans what a model says while it streams: thinking in tags is split off, and what small models leak into their answers
//! goes.
//!
//! Each machine takes a text character by character and decides by the characters before, so what is left of a text does
//! not depend on how its stream is cut. Text is held back only while it may be something that goes. Code is not touched.
//!
//! | file | step |
//! | --- | --- |
//! | `thinking` | splits off what stands in tags of thinking |
//! | `tag` | reads a tag, for the two steps that look for tags |
//! | `tags` | removes tool calls in tags, and the tags around a final answer |
//! | `lines` | removes calls and results in brackets, and echoed system messages |
//! | `paragraphs` | removes paragraphs that repeat the one before |
//! | `margins` | removes blank lines before the text and space behind it |
//! | `silence` | finds answers that say that there is nothing to say |

mod lines;
mod margins;
mod paragraphs;
pub mod silence;
mod tag;
mod tags;
#[cfg(test)]
mod tests;
pub mod thinking;

use self::lines::Lines;
use self::margins::Margins;
use self::paragraphs::Paragraphs;
use self::tags::Tags;

/// Removes from a text what no reader is meant to see.
#[derive(Debug, Default)]
pub struct Sanitiser {
    tags: Tags,
    lines: Lines,
    paragraphs: Paragraphs,
    margins: Margins,
}

impl Sanitiser {
    /// Takes the next piece of text and returns what may be shown now.
    pub fn push(&mut self, text: &str) -> String {
        let mut shown = String::new();
        self.take(text, &mut shown);
        shown
    }

    /// Ends the text: what is left to show.
    pub fn finish(&mut self) -> String {
        let (mut between, mut shown) = (String::new(), String::new());
        self.tags.finish(&mut between);
        let (mut lined, mut parted) = (String::new(), String::new());
        between.chars().for_each(|c| self.lines.step(c, &mut lined));
        self.lines.finish(&mut lined);
        lined.chars().for_each(|c| self.paragraphs.step(c, &mut parted));
        self.paragraphs.finish(&mut parted);
        parted.chars().for_each(|c| self.margins.step(c, &mut shown));
        shown
    }

    fn take(&mut self, text: &str, shown: &mut String) {
        let (mut tagged, mut lined, mut parted) = (String::new(), String::new(), String::new());
        text.chars().for_each(|c| self.tags.step(c, &mut tagged));
        tagged.chars().for_each(|c| self.lines.step(c, &mut lined));
        lined.chars().for_each(|c| self.paragraphs.step(c, &mut parted));
        parted.chars().for_each(|c| self.margins.step(c, shown));
    }
}
