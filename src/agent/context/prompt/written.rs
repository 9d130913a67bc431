//! The sections that the server writes by itself, from what is known of a run when it is accepted.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::agent::context::prompt::frame::within;
use crate::config::PromptConfig;
use crate::types::prompt::{Channel, Lasts, PRIORITY_CONTEXT, PromptMode, Section, SectionOwner, Written};

/// Most characters of a user's name.
const MOST_NAME: usize = 128;
/// Where prompts have what is declared for these.
const PRIORITY_IDENTITY: u32 = 5;
const PRIORITY_CHANNEL: u32 = 40;
const PRIORITY_FIRST_RUN: u32 = 60;

/// What is known of a run.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// Which sections are written.
    pub mode: PromptMode,
    /// Its agent.
    pub agent: &'a str,
    /// The model that it calls.
    pub model: &'a str,
    /// Its session.
    pub session: Option<&'a str>,
    /// The run.
    pub run: &'a str,
    /// Who asks.
    pub user: Option<&'a str>,
    /// When it is accepted, Unix milliseconds.
    pub now_ms: u64,
    /// In which time zone that is told.
    pub zone: &'a TimeZone,
    /// Whether it is offered any tools.
    pub has_tools: bool,
    /// Whether some of them are of a workspace.
    pub has_files: bool,
    /// Whether one of them runs code.
    pub runs_code: bool,
    /// Whether its model may say nothing.
    pub may_be_silent: bool,
    /// Whether it begins a conversation.
    pub is_first: bool,
    /// How its answers are written.
    pub channel: Option<Channel>,
    /// What its request adds.
    pub extra_context: Option<&'a str>,
}

/// The sections that the server writes for a run.
#[must_use]
pub fn written(config: &PromptConfig, facts: &Facts<'_>) -> Vec<Section> {
    let declared = |name, priority, lasts, text: &String| Section {
        owner: SectionOwner::Agent,
        ..Section::of_run(name, priority, lasts, text.clone())
    };
    let identity = config.identity.iter();
    let identity = identity.map(|text| declared("identity", PRIORITY_IDENTITY, Lasts::Stable, text));
    let first_run = config.first_run.iter().filter(|_| facts.is_first);
    let first_run = first_run.map(|text| declared("first_run", PRIORITY_FIRST_RUN, Lasts::Run, text));
    let channel = facts.channel.and_then(|channel| config.templates.of_channel(channel));
    let channel = channel.map(|template| template.filled(|_| ""));
    let channel = channel.map(|text| Section::of_run("channel", PRIORITY_CHANNEL, Lasts::Stable, text));
    let by_mode = Written::ALL.into_iter().filter(|written| config.has(*written, facts.mode));
    let by_mode = by_mode.filter_map(|written| section(config, facts, written));
    let extra_context = facts.extra_context.map(extra_context);
    identity.chain(first_run).chain(channel).chain(by_mode).chain(extra_context).collect()
}

/// A section, if there is something to say.
fn section(config: &PromptConfig, facts: &Facts<'_>, written: Written) -> Option<Section> {
    let template = config.templates.of(written)?;
    let plain = |has_any: bool| has_any.then(|| template.filled(|_| ""));
    let text = match written {
        Written::Tooling => plain(facts.has_tools),
        Written::Safety => plain(true),
        Written::Workspace => plain(facts.has_files),
        Written::Sandbox => plain(facts.runs_code),
        Written::NoReply => plain(facts.may_be_silent),
        Written::User => facts.user.map(|user| {
            let name: String = user.chars().filter(|char| !char.is_control()).take(MOST_NAME).collect();
            template.filled(|_| &name)
        }),
        Written::Time => now(facts).map(|now| template.filled(|slot| now.slot(slot))),
        Written::Runtime => Some(template.filled(|slot| match slot {
            "agent" => facts.agent,
            "model" => facts.model,
            "run" => facts.run,
            _ => facts.session.unwrap_or("none"),
        })),
    };
    let (priority, lasts) = place(written);
    Some(Section::of_run(written.as_str(), priority, lasts, text?))
}

fn place(written: Written) -> (u32, Lasts) {
    match written {
        Written::Tooling => (20, Lasts::Stable),
        Written::Safety => (22, Lasts::Stable),
        Written::Workspace => (24, Lasts::Stable),
        Written::Sandbox => (26, Lasts::Stable),
        Written::NoReply => (44, Lasts::Stable),
        Written::User => (70, Lasts::Run),
        Written::Time => (75, Lasts::Run),
        Written::Runtime => (80, Lasts::Run),
    }
}

/// What a request adds. It cannot end the tags in which it stands.
fn extra_context(text: &str) -> Section {
    let text = format!("<extra_context>\n{}\n</extra_context>", within(text.trim(), "extra_context"));
    let section = Section::of_run("extra_context", PRIORITY_CONTEXT, Lasts::Run, text);
    Section { owner: SectionOwner::Request, ..section }
}

/// A moment in words.
struct Now {
    time: String,
    date: String,
    weekday: String,
    zone: String,
}

impl Now {
    fn slot(&self, slot: &str) -> &str {
        match slot {
            "time" => &self.time,
            "date" => &self.date,
            "weekday" => &self.weekday,
            _ => &self.zone,
        }
    }
}

fn now(facts: &Facts<'_>) -> Option<Now> {
    let now = Timestamp::from_millisecond(i64::try_from(facts.now_ms).ok()?).ok()?.to_zoned(facts.zone.clone());
    let name = facts.zone.iana_name().unwrap_or("UTC");
    Some(Now {
        time: now.strftime("%H:%M").to_string(),
        date: now.strftime("%Y-%m-%d").to_string(),
        weekday: now.strftime("%A").to_string(),
        zone: format!("{name}, UTC{}", now.strftime("%:z")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(zone: &TimeZone) -> Facts<'_> {
        Facts {
            mode: PromptMode::Full,
            agent: "a",
            model: "m",
            session: None,
            run: "r",
            user: None,
            now_ms: 1_763_762_712_900,
            zone,
            has_tools: false,
            has_files: false,
            runs_code: false,
            may_be_silent: false,
            is_first: false,
            channel: None,
            extra_context: None,
        }
    }

    fn names(sections: &[Section]) -> Vec<&str> {
        sections.iter().map(|section| &*section.name).collect()
    }

    /// Row G23.
    #[test]
    fn files_and_code_are_told_of_where_there_are_tools_for_them() {
        let (config, zone) = (PromptConfig::default(), TimeZone::UTC);
        let few = written(&config, &facts(&zone));
        assert_eq!(names(&few), ["safety", "time", "runtime"]);
        let all = Facts { has_tools: true, has_files: true, runs_code: true, may_be_silent: true, ..facts(&zone) };
        let all = written(&config, &all);
        assert_eq!(names(&all), ["tooling", "safety", "workspace", "sandbox", "no_reply", "time", "runtime"]);
        assert!(all[2].text.contains("relative paths") && all[3].text.contains("/workspace"), "{all:?}");
        let minimal = Facts { mode: PromptMode::Minimal, user: Some("u"), may_be_silent: true, ..facts(&zone) };
        assert_eq!(names(&written(&config, &minimal)), ["safety", "time"]);
        let none = Facts { mode: PromptMode::None, ..facts(&zone) };
        assert!(written(&config, &none).is_empty());
    }

    #[test]
    fn the_time_is_told_with_its_zone() {
        let (config, oslo) = (PromptConfig::default(), TimeZone::get("Europe/Oslo").unwrap());
        let told = written(&config, &facts(&oslo));
        assert_eq!(told[1].text, "It is Friday, 2025-11-21, 23:05 (Europe/Oslo, UTC+01:00).");
        let told = written(&config, &facts(&TimeZone::UTC));
        assert_eq!(told[1].text, "It is Friday, 2025-11-21, 22:05 (UTC, UTC+00:00).");
    }
}
