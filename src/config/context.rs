//! When and how the conversations of an agent's runs are shortened.

use std::time::Duration;

use super::fallbacks::find_upstream;
use super::ratio::Ratio;
use super::reader::Section;
use super::upstream::Upstream;
use super::value::Word;
use crate::types::context::{Compaction, ContextRules, FlushRules, PruningRules, SummaryRules, TriggerRules};

/// A conversation that fills less is always left as it is.
const LEAST_THRESHOLD: f64 = 0.05;
/// A model that has not written down what matters by then will not.
const MOST_FLUSH_ITERATIONS: u32 = 10;

/// Reads an agent's rules for long conversations, which inherits those of `parent`.
pub(super) fn read(section: &mut Section<'_>, parent: Option<&ContextRules>, upstreams: &[Upstream]) -> ContextRules {
    let default = ContextRules::default();
    let parent = parent.unwrap_or(&default);
    let compaction = section.key(
        "compaction",
        "What becomes of a conversation that does not fit the model's window: its earlier messages are replaced in what the model is \
         sent, and kept in the session. `llm` replaces them by a summary that a model writes, `local` by one that rules make, `truncate` \
         by a note; where one fails, the next is tried. `auto` is the best that works. With `off`, a conversation that does not fit \
         ends its run.",
        parent.compaction,
    );
    let Ratio(threshold) = section.key(
        "threshold",
        "Which part of the window, less what is reserved for the answer, a conversation may fill before it is shortened; at least 0.05.",
        Ratio(parent.threshold),
    );
    if threshold < LEAST_THRESHOLD {
        section.refuse("threshold", "must be at least 0.05");
    }
    let reserve_tokens = section.key(
        "reserve_tokens",
        "Most tokens of the window that are reserved for the answer: at most as many as an answer may have, and a quarter of the window.",
        parent.reserve_tokens,
    );
    let keep_last = section.key(
        "keep_last",
        "How many of the newest messages are kept as they are, and with them the turn of the user that they are part of. Where they \
         do not fit, fewer are.",
        parent.keep_last,
    );
    let keep_first_user = section.key(
        "keep_first_user",
        "Whether the first message of the user is kept as it is, unless it alone takes a quarter of what fits.",
        parent.keep_first_user,
    );
    let turn_limit =
        section.optional("turn_limit", "How many turns of the user a model is sent at most. If absent, all that fit.");
    ContextRules {
        compaction,
        threshold,
        reserve_tokens,
        keep_last,
        keep_first_user,
        turn_limit: section.or_inherited("turn_limit", turn_limit, parent.turn_limit),
        pruning: section.section("pruning", |section| pruning(section, &parent.pruning)),
        triggers: section.section("triggers", |section| triggers(section, &parent.triggers)),
        summary: section.section("summary", |section| summary(section, &parent.summary, upstreams)),
        flush: section.section("flush", |section| flush(section, &parent.flush, upstreams)),
    }
}

fn pruning(section: &mut Section<'_>, parent: &PruningRules) -> PruningRules {
    let rules = PruningRules {
        enabled: section.key(
            "enabled",
            "Whether old tool results are shortened first, if that makes the conversation fit: those that are long, then all.",
            parent.enabled,
        ),
        keep_last_turns: section.key(
            "keep_last_turns",
            "How many of the model's newest turns keep the results of their calls as they are.",
            parent.keep_last_turns,
        ),
        max_chars: section.key(
            "max_chars",
            "A longer old result keeps its beginning and its end, in characters.",
            parent.max_chars,
        ),
        head_chars: section.key("head_chars", "How much of the beginning it keeps.", parent.head_chars),
        tail_chars: section.key("tail_chars", "How much of the end it keeps.", parent.tail_chars),
    };
    if u64::from(rules.head_chars) + u64::from(rules.tail_chars) >= u64::from(rules.max_chars) {
        section.refuse("max_chars", "must be more than `head_chars` and `tail_chars` together");
    }
    rules
}

fn triggers(section: &mut Section<'_>, parent: &TriggerRules) -> TriggerRules {
    let messages = section.optional(
        "messages",
        "A conversation is also shortened once a model is shown more messages than this, and than twice `keep_last`. If absent, their number does not matter.",
    );
    let input_tokens = section.optional(
        "input_tokens",
        "A conversation is also shortened once its calls took so many input tokens since it was shortened last. If absent, what they \
         took does not matter.",
    );
    TriggerRules {
        messages: section.or_inherited("messages", messages, parent.messages),
        input_tokens: section.or_inherited("input_tokens", input_tokens, parent.input_tokens),
        after_run: section.key(
            "after_run",
            "Whether a session's conversation is shortened for these in the background after a run, and not before the next call, and \
             also when it nearly fills what it may.",
            parent.after_run,
        ),
    }
}

fn flush(section: &mut Section<'_>, parent: &FlushRules, upstreams: &[Upstream]) -> FlushRules {
    let enabled = section.key(
        "enabled",
        "Whether a model writes into memory what matters in a session's messages before they are replaced. The agent needs \
         `memory_write` among its `tools`.",
        parent.enabled,
    );
    let model: Option<String> = section
        .optional("model", "The model that does: `UPSTREAM/MODEL`, or a bare model name. If absent, the run's own.");
    if let Some(model) = &model
        && let Err(what) = find_upstream(model, upstreams)
    {
        section.refuse("model", what);
    }
    let written: Option<String> =
        section.optional("prompt", "What that model is told in place of what the server tells it.");
    let max_iterations =
        section.key("max_iterations", "How often that model is called at most, from 1 to 10.", parent.max_iterations);
    if !(1..=MOST_FLUSH_ITERATIONS).contains(&max_iterations) {
        section.refuse("max_iterations", "must be from 1 to 10");
    }
    let timeout = section.key("timeout", "Most time for all of its calls.", Duration::from_millis(parent.timeout_ms));
    FlushRules {
        enabled,
        model: section.or_inherited("model", model, parent.model.clone()),
        prompt: section.or_inherited("prompt", written, parent.prompt.clone()),
        max_iterations,
        max_tokens: section.key(
            "max_tokens",
            "Most tokens of each of its answers, and at most a quarter of its window.",
            parent.max_tokens,
        ),
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
    }
}

fn summary(section: &mut Section<'_>, parent: &SummaryRules, upstreams: &[Upstream]) -> SummaryRules {
    let model: Option<String> = section.optional(
        "model",
        "The model that writes summaries: `UPSTREAM/MODEL`, or a bare model name. If absent, the run's own.",
    );
    if let Some(model) = &model
        && let Err(what) = find_upstream(model, upstreams)
    {
        section.refuse("model", what);
    }
    let timeout = section.key("timeout", "Most time for a summary.", Duration::from_millis(parent.timeout_ms));
    SummaryRules {
        model: section.or_inherited("model", model, parent.model.clone()),
        max_tokens: section.key(
            "max_tokens",
            "Most tokens of a summary, and at most a quarter of its model's window.",
            parent.max_tokens,
        ),
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
    }
}

impl Word for Compaction {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("llm", Self::Llm),
        ("local", Self::Local),
        ("truncate", Self::Truncate),
        ("off", Self::Off),
    ];
}
