//! How an agent's loop treats what goes wrong in it, and what it asks its model beside the conversation.

use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::delegation;
use super::files;
use super::handoff;
use super::memory;
use super::reader::Section;
use super::skills;
use super::tool_pattern::ToolPattern;
use super::value::{FromToml, Misread, text, whole};
use crate::types::composite::Composite;
use crate::types::context::ContextRules;
use crate::types::rules::{
    LoopGuardRules, LoopRules, MOST_PROMPT, PLAN, REFLECT, REFLECT_EVERY, Reflection, ToolErrors,
};

/// Reads an agent's rules, which inherits those of `parent` but for what it is made of.
pub(super) fn read(
    section: &mut Section<'_>,
    parent: Option<&LoopRules>,
    (context, composite): (ContextRules, Option<Arc<Composite>>),
) -> Arc<LoopRules> {
    let default = LoopRules::default();
    let parent = parent.unwrap_or(&default);
    Arc::new(LoopRules {
        tool_errors: section.section("tool_errors", |section| tool_errors(section, &parent.tool_errors)),
        loop_guard: section.section("loop_guard", |section| loop_guard(section, &parent.loop_guard)),
        planning: section.section("planning", |section| planning(section, parent.planning.as_deref())),
        reflection: section.section("reflection", |section| reflection(section, parent.reflection.as_ref())),
        context,
        memory: section.section("memory", |section| memory::rules(section, &parent.memory)),
        files: files::read(section, &parent.files),
        skills: skills::patterns(section, &parent.skills),
        delegation: delegation::read(section, &parent.delegation),
        composite,
        handoff: handoff::read(section, &parent.handoff),
    })
}

fn tool_errors(section: &mut Section<'_>, parent: &ToolErrors) -> ToolErrors {
    let patterns = section.key(
        "end_run",
        "Tools of which a failed call ends the run, with `stop_reason` `tool_error`; `*` matches any characters, so `[\"*\"]` names \
         all. The model is told of failed calls of other tools, and goes on. A call that is not made, because its arguments or \
         its tool are wrong, does not end a run.",
        patterns(&parent.ends_run),
    );
    let Texts(fallback_results) = section.key(
        "fallback_results",
        "What the model is told in place of a failure, by the names of tools, such as `{ weather = \"The weather is not known.\" }`; \
         `*` matches any characters, and of several names that match the longest counts. Such a call does not end the run.",
        Texts(parent.fallback_results.clone()),
    );
    ToolErrors { ends_run: names(patterns), fallback_results }
}

fn loop_guard(section: &mut Section<'_>, parent: &LoopGuardRules) -> LoopGuardRules {
    let is_on = section.key(
        "enabled",
        "Whether a model is stopped that repeats tool calls which bring nothing new: turns in a row with the same calls and the \
         same results, also where two or three turns alternate.",
        parent.is_on(),
    );
    let default = LoopGuardRules::default();
    let numbers = if parent.is_on() { parent } else { &default };
    let mut after = |name, help, inherited: Option<u32>, default: Option<u32>| {
        let number = inherited.or(default).unwrap_or(Repeats::LEAST);
        let Repeats(number) = section.key(name, help, Repeats(number));
        Some(number)
    };
    let guard = LoopGuardRules {
        warn_after: after("warn_after", "After so many such turns the model is warned.", numbers.warn_after, default.warn_after),
        stop_after: after(
            "stop_after",
            "After so many the run ends with `stop_reason` `loop_guard`, and `on_limit` says what follows.",
            numbers.stop_after,
            default.stop_after,
        ),
        same_result_warn_after: after(
            "same_result_warn_after",
            "After so many turns in a row whose results are the same although their arguments are not, the model is warned. Only \
             turns count whose calls change nothing, or have failed.",
            numbers.same_result_warn_after,
            default.same_result_warn_after,
        ),
        same_result_stop_after: after(
            "same_result_stop_after",
            "After so many the run ends.",
            numbers.same_result_stop_after,
            default.same_result_stop_after,
        ),
        ignored: names(section.key(
            "ignored",
            "Tools that may answer the same again and again, such as one that waits or looks whether something is done; `*` matches any \
             characters. Their calls neither count nor interrupt a count.",
            patterns(&parent.ignored),
        )),
    };
    if is_on { guard } else { LoopGuardRules::off() }
}

fn planning(section: &mut Section<'_>, parent: Option<&str>) -> Option<String> {
    let is_on = section.key(
        "enabled",
        "Whether the first model call of a conversation asks for a plan. On where `prompt` is written.",
        parent.is_some() || section.is_written("prompt"),
    );
    let Prompt(prompt) = section.key(
        "prompt",
        "What it asks, as one more message of the user in that call alone: no history keeps it.",
        Prompt(parent.unwrap_or(PLAN).to_owned()),
    );
    is_on.then_some(prompt)
}

fn reflection(section: &mut Section<'_>, parent: Option<&Reflection>) -> Option<Reflection> {
    let is_on = section.key(
        "enabled",
        "Whether the model is asked from time to time how far it has come. On where `every` or `prompt` is written.",
        parent.is_some() || section.is_written("every") || section.is_written("prompt"),
    );
    let every = section.key(
        "every",
        "After so many tool calls the next model call asks that.",
        parent.map_or(REFLECT_EVERY, |parent| parent.every),
    );
    let Prompt(prompt) = section.key(
        "prompt",
        "What it asks, as one more message of the user in that call alone: no history keeps it.",
        Prompt(parent.map_or(REFLECT, |parent| &parent.prompt).to_owned()),
    );
    is_on.then_some(Reflection { every, prompt })
}

fn patterns(names: &[String]) -> Vec<ToolPattern> {
    names.iter().map(|name| ToolPattern::new(name)).collect()
}

fn names(patterns: Vec<ToolPattern>) -> Vec<String> {
    patterns.into_iter().map(|ToolPattern(pattern)| pattern).collect()
}

/// Texts by the names of tools.
struct Texts(Vec<(String, String)>);

impl FromToml for Texts {
    fn form() -> String {
        "table of strings".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let table = value.get_ref().as_table().ok_or_else(|| Misread::expected(value, "a table of strings"))?;
        let entry = |(name, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
            let name: &str = AsRef::<str>::as_ref(name.get_ref());
            ToolPattern::check(name).map_err(|what| Misread::new(value, what))?;
            Ok((name.to_owned(), text(value, "a string")?.to_owned()))
        };
        table.iter().map(entry).collect::<Result<_, _>>().map(Self)
    }

    fn show(&self) -> String {
        let entries: Vec<_> = self.0.iter().map(|(name, text)| format!("{name:?} = {text:?}")).collect();
        if entries.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", entries.join(", ")) }
    }
}

/// How often something comes in a row: what came once is no repetition.
struct Repeats(u32);

impl Repeats {
    const LEAST: u32 = 2;
    const MOST: u32 = 1_000;
}

impl FromToml for Repeats {
    fn form() -> String {
        format!("integer from {} to {}", Self::LEAST, Self::MOST)
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let number = whole(value, Self::MOST)?;
        if number < Self::LEAST {
            return Err(Misread::new(value, "must be at least 2; `enabled = false` turns the guard off"));
        }
        Ok(Self(number))
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// What a model is asked.
struct Prompt(String);

impl FromToml for Prompt {
    fn form() -> String {
        String::form()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let prompt = String::read(value)?;
        if prompt.trim().is_empty() || prompt.len() > MOST_PROMPT {
            return Err(Misread::new(value, format!("must be a text of 1 to {MOST_PROMPT} bytes")));
        }
        Ok(Self(prompt))
    }

    fn show(&self) -> String {
        self.0.show()
    }
}
