//! What guards an agent's runs: what is removed from answers, and bounds of results.

use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::reader::Section;
use super::value::{FromToml, Misread, Word, whole};
use crate::types::guard::{Guards, MAX_RESULT_BYTES, OutputRules, ResultBounds, Sanitise};

/// Reads what an agent's answers and results are held to.
pub(super) fn read(section: &mut Section<'_>, parent: Option<&Guards>) -> Arc<Guards> {
    let parent = parent.cloned().unwrap_or_default();
    let output = read_output(section, parent.output);
    let results = section.section("context", |context| read_results(context, parent.results));
    Arc::new(Guards { output, results })
}

fn read_output(section: &mut Section<'_>, parent: OutputRules) -> OutputRules {
    let sanitise = section.key(
        "sanitize_output",
        "What is removed from the model's text: `off` nothing; `thinking` what stands in tags such as `<think>`, which becomes \
         reasoning; `full` also what small models leak ([guards](guards.md#answers)). Code is not touched.",
        parent.sanitise,
    );
    let allow_no_reply = section.key(
        "allow_no_reply",
        "Whether a model may answer `NO_REPLY` if it has nothing to say: the run then ends with `no_reply`, and nothing is shown.",
        parent.allow_no_reply,
    );
    OutputRules { sanitise, allow_no_reply }
}

impl Word for Sanitise {
    const WORDS: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("thinking", Self::Thinking), ("full", Self::Full)];
}

fn read_results(section: &mut Section<'_>, parent: ResultBounds) -> ResultBounds {
    let ResultBytes(max_bytes) = section.key(
        "max_tool_result_bytes",
        "Most bytes that are kept of the result of a tool call. A result takes half of the model's context window at most, too. \
         Head and tail of a longer one are kept.",
        ResultBytes(u32::try_from(parent.max_bytes).unwrap_or(u32::MAX)),
    );
    let HexRun(hex_run) = section.key(
        "max_tool_result_hex",
        "As many hexadecimal digits in a row, or more, are data in a result: a note of their number takes their place.",
        HexRun(parent.hex_run),
    );
    ResultBounds { max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX), hex_run }
}

/// How long a result may be.
struct ResultBytes(u32);

impl FromToml for ResultBytes {
    fn form() -> String {
        format!("integer from {} to {MAX_RESULT_BYTES}", ResultBounds::LEAST_BYTES)
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let bytes = whole(value, u32::MAX)?;
        let fits = |bytes: usize| (ResultBounds::LEAST_BYTES..=MAX_RESULT_BYTES).contains(&bytes);
        if usize::try_from(bytes).is_ok_and(fits) {
            Ok(Self(bytes))
        } else {
            Err(Misread::new(value, format!("must be an {}", Self::form())))
        }
    }

    fn show(&self) -> String {
        self.0.show()
    }
}

/// How many digits are data.
struct HexRun(u32);

impl HexRun {
    /// Shorter ones are names and checksums, which models read and repeat.
    const LEAST: u32 = 32;
}

impl FromToml for HexRun {
    fn form() -> String {
        format!("integer of at least {}", Self::LEAST)
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let digits = whole(value, u32::MAX)?;
        if digits >= Self::LEAST {
            Ok(Self(digits))
        } else {
            Err(Misread::new(value, format!("must be an {}", Self::form())))
        }
    }

    fn show(&self) -> String {
        self.0.show()
    }
}
