//! What guards an agent's runs: guards of messages, what is removed from answers, bounds of results, and guardrails.

use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::reader::Section;
use super::value::{FromToml, Misread, Word, whole};
use crate::types::guard::{Guards, InputMode, MAX_RESULT_BYTES, OutputRules, ResultBounds, Sanitise};

/// Reads what happens to messages for agents of which nothing else is said.
pub(super) fn read_input(section: &mut Section<'_>) -> InputMode {
    section.key("input", "`input_guard` of all agents that say nothing else.", InputMode::default())
}

/// Reads what an agent's messages, answers and results are held to.
pub(super) fn read(
    section: &mut Section<'_>,
    parent: Option<&Guards>,
    input: InputMode,
    TextBounds { max_message_chars, results }: TextBounds,
) -> Arc<Guards> {
    let parent = parent.cloned().unwrap_or_else(|| Guards { input, ..Guards::default() });
    let input = section.key(
        "input_guard",
        "What happens to a message that looks like an attempt to instruct the model in the operator's place \
         ([guards](guards.md#messages)): `off` does not look, `log` and `warn` tell of it in the log and in an event, `block` \
         refuses the request.",
        parent.input,
    );
    let output = read_output(section, parent.output);
    let guardrails = section.key(
        "guardrails",
        "Rules by which texts are judged, in order, each `{ name, on, kind, … }` ([guards](guards.md#guardrails)).",
        parent.guardrails,
    );
    Arc::new(Guards { input, max_message_chars, output, results, guardrails })
}

/// How long single texts may be.
pub(super) struct TextBounds {
    /// Most characters of a message of a user.
    max_message_chars: u32,
    /// What is kept of the results of tools.
    results: ResultBounds,
}

impl TextBounds {
    /// Reads them where an agent says what becomes of its conversations.
    pub(super) fn read(context: &mut Section<'_>, parent: Option<&Guards>) -> Self {
        let default = Guards::default();
        let parent = parent.unwrap_or(&default);
        Self {
            max_message_chars: context.key(
                "max_message_chars",
                "Most characters of a message of a user. A longer one is cut, which the model is told.",
                parent.max_message_chars,
            ),
            results: read_results(context, parent.results),
        }
    }
}

impl Word for InputMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("log", Self::Log), ("warn", Self::Warn), ("block", Self::Block)];
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
