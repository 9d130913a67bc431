//! What a run's model is told beside the conversation: the one place where the sections of its prompt are gathered. What they say is
//! pinned with the run.

use std::sync::Arc;

use jiff::tz::TimeZone;

use crate::agent::admission::Admission;
use crate::agent::admission::named::described;
use crate::agent::admission::select::Selected;
use crate::agent::catalog::Resolved;
use crate::agent::context::prompt::compose::{Composed, compose};
use crate::agent::context::prompt::layers::Stack;
use crate::agent::context::prompt::written::{Facts, written};
use crate::agent::error::{Field, StartError};
use crate::agent::generation::Generation;
use crate::agent::request::{AskedPrompt, NewRun};
use crate::config::{PromptConfig, WORKSPACE_TOOLS};
use crate::types::clock::now_ms;
use crate::types::memory::AgentFiles;
use crate::types::prompt::{Lasts, PRIORITY_SYSTEM, Prompt, PromptMode, Section, SectionOwner, TAG_SYSTEM};
use crate::types::session::{Session, SessionLayer};
use crate::types::{Message, Role, SessionId};

/// The tool that runs code.
const RUN_CODE: &str = "run_code";

/// What the sections of a run's prompt are made of.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    /// The request.
    pub(super) new: &'a NewRun,
    /// Its session, if it has one that exists.
    pub(super) session: Option<&'a Session>,
    /// The agent and the model that it means.
    pub(super) resolved: &'a Resolved,
    /// The tools that it is offered.
    pub(super) selected: &'a Selected,
    /// The configuration that it is served by.
    pub(super) generation: &'a Generation,
    /// What it is told of its skills.
    pub(super) skills: Option<&'a str>,
}

impl<'a> Given<'a> {
    /// Whether the agent, the session and the request ask for no more than the agent's `system` and the instructions of the request.
    pub(super) fn is_plain(self) -> bool {
        let plain = self.resolved.settings.prompt.is_plain() && self.new.prompt.is_none() && !has_layers(self);
        plain && !self.has_documents()
    }

    /// What the sections are made of, for a request of this session.
    pub(super) fn new(
        new: &'a NewRun,
        session: Option<&'a Session>,
        (resolved, selected, generation, skills): (&'a Resolved, &'a Selected, &'a Generation, Option<&'a str>),
    ) -> Self {
        Self { new, session, resolved, selected, generation, skills }
    }

    /// Whether it is told anything of documents.
    pub(super) fn has_documents(self) -> bool {
        self.skills.is_some() || self.resolved.settings.rules.files != AgentFiles::default() || self.recalls()
    }

    /// Whether it is told what is remembered.
    pub(super) fn recalls(self) -> bool {
        self.resolved.settings.rules.memory.recalls && self.generation.memory.is_some()
    }

    /// What a run's model is told for which nothing is to be gathered.
    pub(super) fn plain(self) -> Told {
        let Self { new, resolved, .. } = self;
        let system = resolved.settings.system.iter().map(|text| Message::text(Role::System, text));
        let system = system.chain(described(new)).chain(new.system.iter().cloned()).collect();
        Told { system, prompt: None, warnings: Vec::new() }
    }
}

/// What a run's model is told beside the conversation.
pub(super) struct Told {
    /// Its instructions, ahead of the history.
    pub(super) system: Vec<Message>,
    /// What it is told besides, and of which sections all of it was made; `None` if no more than its agent's `system` and the
    /// instructions of its request.
    pub(super) prompt: Option<Arc<Prompt>>,
    /// What the caller should know.
    pub(super) warnings: Vec<String>,
}

/// Sections of a prompt, and what the caller should know of them.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) sections: Vec<Section>,
    pub(super) warnings: Vec<String>,
}

impl Admission {
    /// What a run's model is told beside the conversation.
    pub(super) async fn told(&self, given: Given<'_>) -> Result<Told, StartError> {
        if given.is_plain() {
            return Ok(given.plain());
        }
        let new = given.new;
        let Gathered { sections: written, mut warnings } = self.gather(given).await?;
        let sections = layered(given, written, &mut warnings)?;
        let of_request = described(new).chain(new.system.iter().cloned());
        let Composed { system, prompt } = compose(sections, of_request.collect());
        let prompt = Prompt { asked: new.prompt.as_ref().map(|asked| asked.digest()), ..prompt };
        Ok(Told { system, prompt: Some(Arc::new(prompt)), warnings })
    }

    /// All sections that the server adds to what is declared, in the order that counts between those of the same priority. What is
    /// gathered here counts in [`Given::is_plain`] too.
    async fn gather(&self, given: Given<'_>) -> Result<Gathered, StartError> {
        let documents = self.documents(given).await?;
        let mut sections = written_for(given)?;
        sections.extend(documents);
        Ok(Gathered { sections, warnings: Vec::new() })
    }
}

/// The sections that the server writes for a run.
fn written_for(given: Given<'_>) -> Result<Vec<Section>, StartError> {
    let Given { new, session, resolved, selected, .. } = given;
    let (settings, asked) = (&resolved.settings, new.prompt.as_deref());
    let config = &settings.prompt;
    if config.is_plain() && asked.is_none() {
        return Ok(Vec::new());
    }
    let zone = zone(asked.and_then(|asked| asked.time_zone.as_deref()), &config.time_zone)?;
    let facts = Facts {
        mode: mode(config, asked, new.of.is_some())?,
        agent: &resolved.agent_name,
        model: &resolved.called.model_name,
        session: new.session.as_ref().map(SessionId::as_str),
        run: new.id.as_str(),
        user: new.options.sampling.user.as_deref().filter(|user| !user.trim().is_empty()),
        now_ms: now_ms(),
        zone: &zone,
        has_tools: !selected.is_empty() || !new.client_tools.is_empty(),
        has_files: WORKSPACE_TOOLS.iter().any(|tool| selected.has(tool)),
        runs_code: selected.has(RUN_CODE),
        may_be_silent: settings.guards.output.allow_no_reply,
        is_first: begins_conversation(new, session),
        channel: asked.and_then(|asked| asked.channel).or(config.channel),
        extra_context: extra_context(config, asked)?,
    };
    Ok(written(config, &facts))
}

/// Which sections are written: a request may ask for fewer, but not for none where the agent has some.
fn mode(config: &PromptConfig, asked: Option<&AskedPrompt>, is_child: bool) -> Result<PromptMode, StartError> {
    match asked.and_then(|asked| asked.mode) {
        None => Ok(config.mode),
        // A run that another one begins is told no more than tasks need that no user watches.
        Some(PromptMode::Minimal) if is_child => Ok(config.mode.min(PromptMode::Minimal)),
        Some(mode) if mode == config.mode || (mode == PromptMode::Minimal && config.mode == PromptMode::Full) => {
            Ok(mode)
        }
        Some(_) => {
            let message =
                "a request may ask for `minimal` where the agent has `full`; leave it out for what the agent has";
            Err(invalid("agent.prompt.mode", message.to_owned()))
        }
    }
}

fn zone(asked: Option<&str>, agents: &str) -> Result<TimeZone, StartError> {
    let unknown = || {
        let message = "must be the IANA name of a time zone, such as Europe/Oslo, or UTC".to_owned();
        invalid("agent.prompt.time_zone", message)
    };
    TimeZone::get(asked.unwrap_or(agents)).map_err(|_| unknown())
}

fn extra_context<'a>(config: &PromptConfig, asked: Option<&'a AskedPrompt>) -> Result<Option<&'a str>, StartError> {
    let Some(text) = asked.and_then(|asked| asked.extra_context.as_deref()) else { return Ok(None) };
    let refused = |message| Err(invalid("agent.prompt.extra_context", message));
    let Some(most) = config.max_extra_context else {
        return refused("the agent takes no extra context from requests".to_owned());
    };
    let chars = text.chars().count();
    if chars > most as usize {
        return refused(format!("has {chars} characters; the agent takes {most}"));
    }
    Ok(Some(text).filter(|text| !text.trim().is_empty()))
}

/// Whether anyone declares layers for the run.
fn has_layers(given: Given<'_>) -> bool {
    let Given { new, session, resolved, generation, .. } = given;
    !resolved.settings.prompt.layers.is_empty()
        || session.is_some_and(|session| !session.layers.is_empty())
        || new.prompt.as_ref().is_some_and(|asked| !asked.layers.is_empty())
        || generation.layers.of(new.key_name.as_deref()).next().is_some()
}

/// These sections under all layers of the run. The caller is warned of those that are left out.
fn layered(given: Given<'_>, written: Vec<Section>, warnings: &mut Vec<String>) -> Result<Vec<Section>, StartError> {
    let Given { new, session, resolved, generation, .. } = given;
    let settings = &resolved.settings;
    let mut stack = Stack::on(written, &settings.prompt.tags, &settings.prompt.replaceable);
    for (owner, layer) in generation.layers.of(new.key_name.as_deref()) {
        stack.declare(owner, layer);
    }
    if let Some(text) = &settings.system {
        stack.replace(of_agent(text));
    }
    for layer in &settings.prompt.layers {
        stack.declare(SectionOwner::Agent, layer);
    }
    for SessionLayer { layer, .. } in session.iter().flat_map(|session| &session.layers) {
        if stack.put(SectionOwner::Session, layer).is_err() {
            let name = &layer.name;
            warnings.push(format!(
                "the layer {name:?} of the session was left out: the agent does not let sessions change it"
            ));
        }
    }
    if new.prompt.as_ref().is_some_and(|asked| !asked.layers.is_empty()) && !settings.prompt.request_layers {
        return Err(invalid("agent.prompt.layers", "the agent takes no layers from requests".to_owned()));
    }
    for (place, layer) in new.prompt.iter().flat_map(|asked| &asked.layers).enumerate() {
        if stack.put(SectionOwner::Request, layer).is_err() {
            let message = format!("the agent does not let requests change the layer {:?}", layer.name);
            return Err(StartError::Invalid { field: Field::Layer(place), message });
        }
    }
    Ok(stack.into_sections())
}

fn invalid(member: &'static str, message: String) -> StartError {
    StartError::Invalid { field: Field::Member(member), message }
}

/// Whether a request is the first of its conversation.
pub(super) fn begins_conversation(new: &NewRun, session: Option<&Session>) -> bool {
    let is_new = session.is_none_or(|session| session.message_count == 0);
    is_new && !new.messages.iter().any(|message| message.role == Role::Assistant)
}

/// What an agent's `system` says.
pub(super) fn of_agent(text: &str) -> Section {
    Section {
        name: "system".into(),
        priority: PRIORITY_SYSTEM,
        tags: vec![TAG_SYSTEM.to_owned()],
        owner: SectionOwner::Agent,
        lasts: Lasts::Stable,
        text: text.to_owned(),
    }
}
