//! What a request would be as a run, as a dry run answers it.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::agent::admission::DryRun;
use crate::agent::machine::budget::estimate;
use crate::api::wire::body::malformed;
use crate::api::wire::error::WireError;
use crate::api::wire::openai_chat::completion::Completion;
use crate::api::wire::openai_chat::described::ChatMessage;
use crate::api::wire::openai_chat::message::encoded;
use crate::types::Role;
use crate::types::context::{Method, View};
use crate::types::offer::ToolDefinition;
use crate::types::prompt::{Lasts, SectionNote};

/// What a request is answered with: the outcome of its run, or what the run would be.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum CompletionAnswer<'a> {
    /// The outcome.
    Completion(Box<Completion<'a>>),
    /// What it would be.
    DryRun(Box<DryRunObject>),
}

/// What a request would be as a run. Nothing was called, stored or reserved.
#[derive(Debug, Serialize, ToSchema)]
pub struct DryRunObject {
    /// `agent.dry_run`.
    #[schema(value_type = String, example = "agent.dry_run")]
    object: &'static str,
    /// The agent that it would run as.
    agent: String,
    /// The model that it would call, as `upstream/model`.
    model: String,
    /// The sections of its prompt, in their order.
    sections: Vec<SectionObject>,
    /// The messages of its first model call, as far as the caller may read them: what the prompt says is left out where the
    /// agent does not reveal it.
    #[schema(value_type = Vec<ChatMessage>)]
    messages: Vec<Box<RawValue>>,
    /// Whether `messages` has what the prompt says.
    reveals_prompt: bool,
    /// The tools that the model would be offered.
    tools: Vec<OfferedTool>,
    /// How many tokens what is, by estimate.
    tokens: TokensObject,
    /// What of the conversation would be left out.
    context: DryContext,
    /// What the first model call would reserve; null if none can be made now.
    first_call: Option<CallCeiling>,
    /// What the run can come to at most.
    most: RunCeiling,
    /// Whether the model's price is known; the costs are no promise otherwise.
    price_known: bool,
    /// The budget that would refuse it now, in a sentence.
    refused: Option<String>,
    /// What the caller should know of the request.
    warnings: Vec<String>,
}

/// A section of a prompt.
#[derive(Debug, Serialize, ToSchema)]
pub struct SectionObject {
    /// Its name.
    #[schema(example = "safety")]
    name: String,
    /// Who wrote it: `server`, `key`, `agent`, `session`, `request` or `run`.
    #[schema(value_type = String, example = "agent")]
    owner: &'static str,
    /// Its place, lower numbers first.
    priority: u32,
    /// What it is about.
    tags: Vec<String>,
    /// Whether it stays as it is from run to run, and so stands before the conversation.
    stable: bool,
    /// How many characters it has.
    chars: u64,
    /// How many tokens that is, by estimate.
    tokens: u64,
}

/// A tool that a model is offered.
#[derive(Debug, Serialize, ToSchema)]
pub struct OfferedTool {
    /// Its name.
    name: String,
    /// What it does.
    description: Option<String>,
}

/// How many tokens what is, by estimate.
#[derive(Debug, Serialize, ToSchema)]
pub struct TokensObject {
    /// Instructions, before the conversation.
    instructions: u64,
    /// What of the prompt is of this run alone.
    of_run: u64,
    /// The session's earlier messages, as far as they are shown.
    history: u64,
    /// The request's messages.
    input: u64,
    /// The definitions of tools.
    tools: u64,
    /// All of it, as the run would count it: of what an upstream counted before, only what came since is estimated.
    total: u64,
}

/// What of a conversation is left out, or would be.
#[derive(Debug, Serialize, ToSchema)]
pub struct DryContext {
    /// Messages of the session.
    history_messages: u64,
    /// How many of the first messages are replaced in what the model is shown.
    replaced_messages: u64,
    /// Whether a summary takes their place.
    has_summary: bool,
    /// Whether tool results are shortened.
    prunes_results: bool,
    /// The model's window; null if it is not known.
    window_tokens: Option<u64>,
    /// More tokens than this are too many.
    limit_tokens: u64,
    /// How the conversation would be shortened before the first call, after old tool results; null if it fits.
    #[schema(value_type = Option<String>, example = "llm")]
    would_compact: Option<&'static str>,
}

/// What a model call reserves.
#[derive(Debug, Serialize, ToSchema)]
pub struct CallCeiling {
    /// Input by estimate, with a margin.
    input_tokens: u64,
    /// Most output.
    output_tokens: u64,
    /// The most that both cost, in US dollars.
    cost_usd: f64,
}

/// What a run can come to.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunCeiling {
    /// Most model calls of its steps.
    calls: u64,
    /// Most tokens of all of them.
    tokens: u64,
    /// Most cost of all of them, in US dollars.
    cost_usd: f64,
}

impl DryRunObject {
    /// What was found out.
    pub fn new(dry: &DryRun) -> Result<Self, WireError> {
        let (spec, run_text) = (&dry.spec, dry.spec.prompt.as_ref().and_then(|prompt| prompt.of_run.as_ref()));
        let is_shown = |role: Role| dry.shows_prompt || !matches!(role, Role::System | Role::Developer);
        let shown = dry.conversation.iter().filter(|message| is_shown(message.role));
        let shown = shown.filter(|message| dry.shows_prompt || Some(*message) != run_text);
        let raw = shown.map(|message| RawValue::from_string(encoded(message).to_owned()));
        let messages = raw.collect::<Result<_, _>>().map_err(|error| malformed(&error))?;
        let tool =
            |tool: &Arc<ToolDefinition>| OfferedTool { name: tool.name.clone(), description: tool.description.clone() };
        let first_call = dry.first_call.map(|call| CallCeiling {
            input_tokens: call.input_tokens,
            output_tokens: call.output_tokens,
            cost_usd: call.cost.as_usd(),
        });
        let ceiling = dry.ceiling;
        Ok(Self {
            object: "agent.dry_run",
            agent: spec.agent.clone(),
            model: spec.step_model().full_name(),
            sections: dry.sections.iter().map(SectionObject::from).collect(),
            messages,
            reveals_prompt: dry.shows_prompt,
            tools: dry.tools.tools().map(tool).collect(),
            tokens: tokens(dry),
            context: context(dry),
            first_call,
            most: RunCeiling {
                calls: ceiling.calls,
                tokens: ceiling.used.tokens,
                cost_usd: ceiling.used.cost.as_usd(),
            },
            price_known: spec.price_origin.is_known(),
            refused: dry.refused.clone(),
            warnings: spec.warnings.clone(),
        })
    }
}

fn tokens(dry: &DryRun) -> TokensObject {
    let sizes = dry.sizes;
    TokensObject {
        instructions: estimate(sizes.system),
        of_run: estimate(sizes.of_run),
        history: estimate(sizes.history),
        input: estimate(sizes.input),
        tools: estimate(sizes.tools),
        total: dry.context_tokens,
    }
}

fn context(dry: &DryRun) -> DryContext {
    let whole = View::default();
    let view = dry.spec.view.as_deref().unwrap_or(&whole);
    DryContext {
        history_messages: dry.history as u64,
        replaced_messages: view.begins().saturating_sub(view.kept.len() as u64),
        has_summary: view.summary.is_some(),
        prunes_results: view.soft > 0 || view.hard > 0,
        window_tokens: dry.window,
        limit_tokens: dry.most_context,
        would_compact: dry.shortens.map(Method::as_str),
    }
}

impl From<&SectionNote> for SectionObject {
    fn from(note: &SectionNote) -> Self {
        Self {
            name: note.name.clone(),
            owner: note.owner.as_str(),
            priority: note.priority,
            tags: note.tags.clone(),
            stable: note.lasts == Lasts::Stable,
            chars: note.chars,
            tokens: estimate(usize::try_from(note.bytes).unwrap_or(usize::MAX)),
        }
    }
}
