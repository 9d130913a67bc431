//! What an agent's prompts have beside its `system`: layers, and sections that the server writes.

use std::sync::Arc;

use super::prompt_template::{PromptTemplates, Text};
use super::reader::Section;
use super::value::{FromToml, Misread, PLAIN_NAME, Word, is_plain_name};
use crate::types::prompt::{Channel, Lasts, Merge, OF_DOCUMENTS, PRIORITY_CONTEXT, PRIORITY_LAYER, PRIORITY_SYSTEM};
use crate::types::prompt::{PromptLayer, PromptMode, TAG_SYSTEM, Written};

/// What an agent's prompts have.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptConfig {
    /// Which sections the server writes.
    pub mode: PromptMode,
    /// Which it writes in place of those of `mode`.
    pub sections: Option<Vec<Written>>,
    /// Layers with one of these tags are part of prompts.
    pub tags: Vec<String>,
    /// Patterns of what sessions and requests may replace.
    pub replaceable: Vec<String>,
    /// Who the model is to be.
    pub identity: Option<String>,
    /// What it is told at the first request of a conversation.
    pub first_run: Option<String>,
    /// The time zone of what it is told of the time.
    pub time_zone: String,
    /// How its answers are written.
    pub channel: Option<Channel>,
    /// Most characters of what a request adds; `None` if it may add nothing.
    pub max_extra_context: Option<u32>,
    /// Whether requests may bring layers.
    pub request_layers: bool,
    /// Whether callers may read what it says.
    pub reveal: bool,
    /// The texts of sections.
    pub templates: PromptTemplates,
    /// The agent whose layers it has beside its own.
    pub parent: Option<String>,
    /// Layers, those of its parents first; later ones replace earlier ones of the same name, or add to them.
    pub layers: Vec<PromptLayer>,
}

impl Default for PromptConfig {
    fn default() -> Self {
        Self {
            mode: PromptMode::None,
            sections: None,
            tags: vec![TAG_SYSTEM.to_owned()],
            replaceable: Vec::new(),
            identity: None,
            first_run: None,
            time_zone: "UTC".to_owned(),
            channel: None,
            max_extra_context: None,
            request_layers: false,
            reveal: false,
            templates: PromptTemplates::default(),
            parent: None,
            layers: Vec::new(),
        }
    }
}

impl PromptConfig {
    /// Whether prompts of a mode have this section.
    #[must_use]
    pub fn has(&self, section: Written, mode: PromptMode) -> bool {
        self.sections.as_ref().map_or_else(|| section.is_of(mode), |sections| sections.contains(&section))
    }

    /// Whether prompts have nothing but `system`, unless callers add something.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let Self { mode, sections, identity, first_run, channel, layers, .. } = self;
        let writes = sections.as_ref().map_or(*mode != PromptMode::None, |sections| !sections.is_empty());
        !writes && identity.is_none() && first_run.is_none() && channel.is_none() && layers.is_empty()
    }

    /// Reads what is under `prompt` and `layers` of an agent that inherits from `parent`.
    pub(super) fn read(agent: &mut Section<'_>, parent: Option<&Self>) -> Arc<Self> {
        let config = agent.section("prompt", |section| Self::read_prompt(section, parent));
        let layers = agent.named("layers", None, |name, section| read_layer(name, section));
        Arc::new(Self { layers, ..config })
    }

    fn read_prompt(section: &mut Section<'_>, parent: Option<&Self>) -> Self {
        let default = Self::default();
        let parent = parent.unwrap_or(&default);
        let mode = section.key(
            "mode",
            "Which [sections](prompts.md#sections) the server writes: `none`, so that a prompt has what is declared and no more, \
             `minimal`, or `full`.",
            parent.mode,
        );
        let sections = section.optional("sections", "Which it writes in place of those of `mode`.");
        let (tags, replaceable) = read_layering(section, parent);
        let Zone(time_zone) = section.key(
            "time_zone",
            "IANA name of the time zone of what the model is told of the time, such as `\"Europe/Oslo\"`. A request may name another.",
            Zone(parent.time_zone.clone()),
        );
        let channel = section.optional(
            "channel",
            "How answers are written, so that they can be shown where they go. A request may say it otherwise.",
        );
        let max_extra_context = section.optional(
            "max_extra_context",
            "Most characters of the `extra_context` of a request. If absent, a request may have none.",
        );
        let (request_layers, reveal) = read_openness(section, parent);
        Self {
            mode,
            sections: section.or_inherited("sections", sections, parent.sections.clone()),
            tags,
            replaceable,
            identity: read_text(section, "identity", "Who the model is to be: the first it is told.", parent.identity.as_ref()),
            first_run: read_text(
                section,
                "first_run",
                "What it is told at the first request of a conversation only.",
                parent.first_run.as_ref(),
            ),
            time_zone,
            channel: section.or_inherited("channel", channel, parent.channel),
            max_extra_context: section.or_inherited(
                "max_extra_context",
                max_extra_context,
                parent.max_extra_context,
            ),
            request_layers,
            reveal,
            templates: section.section("templates", |section| PromptTemplates::read(section, &parent.templates)),
            parent: section.optional(
                "parent",
                "Agent whose layers this one has too, before its own; if absent, `default`. What an agent says replaces what its parents \
                 say under the same name, or adds to it.",
            ),
            layers: Vec::new(),
        }
    }
}

/// Whether requests may bring layers, and callers read what a prompt says.
fn read_openness(section: &mut Section<'_>, parent: &PromptConfig) -> (bool, bool) {
    let request_layers = section.key(
        "request_layers",
        "Whether requests may bring [layers](prompts.md#layers): instructions, for whoever may send requests.",
        parent.request_layers,
    );
    let reveal = section.key(
        "reveal",
        "Whether a [dry run](prompts.md#dry-run) shows any caller whose key has the scope `read` what the prompt says, and not only its \
         sections and their sizes.",
        parent.reveal,
    );
    (request_layers, reveal)
}

/// Which layers are part of prompts, and which of them callers may replace.
fn read_layering(section: &mut Section<'_>, parent: &PromptConfig) -> (Vec<String>, Vec<String>) {
    let tags = section.key(
        "tags",
        "Which [layers](prompts.md#layers) prompts have: those with one of these tags.",
        tags_of(&parent.tags),
    );
    let replaceable: Vec<String> = section.key(
        "replaceable",
        "Layers and sections of the configuration that sessions and requests may replace, or add to; `*` matches any characters. Names \
         that the configuration does not use are theirs anyway.",
        parent.replaceable.clone(),
    );
    (tags.into_iter().map(|Tag(tag)| tag).collect(), replaceable)
}

fn read_text(
    section: &mut Section<'_>,
    name: &'static str,
    help: &'static str,
    parent: Option<&String>,
) -> Option<String> {
    let own = section.optional(name, help);
    section.or_inherited(name, own, parent.cloned().map(Text)).map(|Text(text)| text)
}

/// Reads a layer.
pub(super) fn read_layer(name: &str, section: &mut Section<'_>) -> Option<PromptLayer> {
    if !is_plain_name(name) {
        section.refuse_here(PLAIN_NAME);
    }
    if OF_DOCUMENTS.contains(&name) {
        section.refuse_here("is the name of a section that the server writes of documents; take another");
    }
    let text: Option<Text> =
        section.required("text", "What the model is told. Without any, an earlier layer of the name is left out.");
    let Priority(priority) = section.key(
        "priority",
        "Where it stands, from 0 to 1000, lower numbers first; or `\"system\"` (10), `\"layer\"` (50), `\"context\"` (100).",
        Priority(PRIORITY_LAYER),
    );
    let tags = section.key("tags", "What it is about.", vec![Tag(TAG_SYSTEM.to_owned())]);
    let merge = section.key(
        "merge",
        "What becomes of a layer of the same name that is declared further up, for the server, the key or a parent: `replace` or `add`.",
        Merge::Replace,
    );
    let stable = section.key(
        "stable",
        "Whether it stays as it is from run to run, and so stands before the conversation. Otherwise it stands behind the earlier \
         conversation, so that a change of it costs no cache.",
        true,
    );
    let Text(text) = text?;
    let tags = tags.into_iter().map(|Tag(tag)| tag).collect();
    let lasts = if stable { Lasts::Stable } else { Lasts::Run };
    Some(PromptLayer { name: name.to_owned(), text, priority, tags, merge, lasts })
}

fn tags_of(tags: &[String]) -> Vec<Tag> {
    tags.iter().cloned().map(Tag).collect()
}

/// What a layer is about.
struct Tag(String);

impl FromToml for Tag {
    fn form() -> String {
        "tag".into()
    }

    fn read(value: &toml::Spanned<toml::de::DeValue<'_>>) -> Result<Self, Misread> {
        let tag = String::read(value)?;
        if is_plain_name(&tag) {
            Ok(Self(tag))
        } else {
            Err(Misread::new(value, "must be 1 to 64 of A-Z a-z 0-9 . _ -"))
        }
    }

    fn show(&self) -> String {
        self.0.show()
    }
}

/// Where a section stands.
struct Priority(u32);

impl FromToml for Priority {
    fn form() -> String {
        "integer or name".into()
    }

    fn read(value: &toml::Spanned<toml::de::DeValue<'_>>) -> Result<Self, Misread> {
        const FORM: &str = "must be an integer from 0 to 1000, \"system\", \"layer\" or \"context\"";
        let number = value.get_ref().as_integer().and_then(|number| number.as_str().parse().ok());
        let named = value.get_ref().as_str().and_then(priority_of);
        let found = number.filter(|number| *number <= MOST_PRIORITY).or(named);
        found.map(Self).ok_or_else(|| Misread::new(value, FORM))
    }

    fn show(&self) -> String {
        self.0.show()
    }
}

/// The last place.
pub const MOST_PRIORITY: u32 = 1_000;

/// The place that has this name.
#[must_use]
pub fn priority_of(name: &str) -> Option<u32> {
    match name {
        "system" => Some(PRIORITY_SYSTEM),
        "layer" => Some(PRIORITY_LAYER),
        "context" => Some(PRIORITY_CONTEXT),
        _ => None,
    }
}

/// A time zone.
struct Zone(String);

impl FromToml for Zone {
    fn form() -> String {
        "time zone".into()
    }

    fn read(value: &toml::Spanned<toml::de::DeValue<'_>>) -> Result<Self, Misread> {
        let name = String::read(value)?;
        if jiff::tz::TimeZone::get(&name).is_ok() {
            Ok(Self(name))
        } else {
            Err(Misread::new(value, "must be the IANA name of a time zone, such as \"Europe/Oslo\", or \"UTC\""))
        }
    }

    fn show(&self) -> String {
        self.0.show()
    }
}

impl Word for PromptMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("none", Self::None), ("minimal", Self::Minimal), ("full", Self::Full)];
}

impl Word for Channel {
    const WORDS: &'static [(&'static str, Self)] =
        &[("plain", Self::Plain), ("markdown", Self::Markdown), ("html", Self::Html)];
}

impl Word for Merge {
    const WORDS: &'static [(&'static str, Self)] = &[("replace", Self::Replace), ("add", Self::Add)];
}

impl Word for Written {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("tooling", Self::Tooling),
        ("safety", Self::Safety),
        ("workspace", Self::Workspace),
        ("sandbox", Self::Sandbox),
        ("no_reply", Self::NoReply),
        ("user", Self::User),
        ("time", Self::Time),
        ("runtime", Self::Runtime),
    ];
}
