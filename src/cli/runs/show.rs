//! `loopgate runs show`: what happened in a run, in words.

use clap::Args;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as Unknown;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::client::Client;
use super::super::process::{Failure, say};
use super::super::story::{Detail, Ending, Event, Story, Told};
use super::super::text::{clean_json, count, line};
use super::super::when;
use super::shared::{Named, Progress, Run, failure, read};
use crate::types::StopReason;
use crate::types::clock::now_ms;

/// Most characters of a name, of an error and of a step's text that are shown.
const MOST_SHOWN: usize = 400;

/// Say what happened in a run.
#[derive(Debug, Args)]
pub(in crate::cli) struct Show {
    #[command(flatten)]
    named: Named,

    /// Print the run as the server's JSON
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Events {
    data: Vec<Box<RawValue>>,
}

pub(super) async fn run(show: &Show) -> Result<(), Failure> {
    let (client, id) = (show.named.target.client()?, &show.named.id);
    let value: Value = client.get(&["v1", "runs", id], &[]).await.map_err(|error| failure(&error))?;
    if show.json {
        say(clean_json(&serde_json::to_string_pretty(&value).map_err(Failure::new)?));
        return Ok(());
    }
    let run = read(&value)?;
    summary(&run).iter().for_each(say);
    say("\nWhat happened:");
    match events(&client, id).await {
        Ok(lines) => lines.iter().for_each(|line| say(format_args!("  {line}"))),
        Err(Failure { message, .. }) => say(format_args!("  its events cannot be read: {message}")),
    }
    Ok(())
}

/// The run's name, as it may be shown.
pub(super) fn name(run: &Run) -> String {
    line(&run.id, MOST_SHOWN)
}

/// How the run stands, a fact a line.
pub(super) fn summary(run: &Run) -> Vec<String> {
    let until = run.ended_ms.filter(|_| !run.is_under_way()).unwrap_or_else(now_ms);
    let took = when::duration(until.saturating_sub(run.created_ms));
    let status = match &run.stop_reason {
        Some(reason) => format!("{} ({reason}): {}", run.status, reason_sentence(reason)),
        None => run.status.clone(),
    };
    let mut facts = vec![
        ("status", status),
        ("model", run.model.clone()),
        (
            "created",
            format!("{}, {} {took}", when::time(run.created_ms), if run.is_under_way() { "for" } else { "took" }),
        ),
    ];
    facts.extend(run.tenant.clone().map(|tenant| ("tenant", tenant)));
    facts.extend(run.session_id.clone().map(|session| ("session", session)));
    facts.extend(run.usage.as_ref().map(|usage| ("usage", usage.to_string())));
    facts.extend(run.agent.as_ref().map(|agent| ("cost", format!("${}", agent.cost_usd))));
    facts.extend(run.error.as_ref().map(|error| ("error", error.message.clone())));
    facts.extend(run.progress.iter().flat_map(|progress| under_way(progress, now_ms())));
    let facts = facts.into_iter().map(|(name, value)| format!("  {name:10} {}", line(&value, MOST_SHOWN)));
    let remarks = run.agent.iter().flat_map(Ending::remarks).map(|remark| format!("  {:10} {remark}", "note"));
    std::iter::once(name(run)).chain(facts).chain(remarks).collect()
}

/// How far a run under way came.
fn under_way(progress: &Progress, now: u64) -> Vec<(&'static str, String)> {
    let Progress { step, iterations, tool_calls, tools, replica, last_event } = progress;
    let for_so_long = |since: u64| when::duration(now.saturating_sub(since));
    let (models, calls) = (count(iterations, "model call"), count(tool_calls, "tool call"));
    let mut facts = vec![("step", format!("{step}, after {models} and {calls} that ended"))];
    facts.extend(
        tools.iter().map(|tool| ("tool", format!("{}, called for {}", tool.name, for_so_long(tool.started_ms)))),
    );
    facts.extend(replica.iter().map(|replica| ("replica", replica.clone())));
    let last = last_event.as_ref();
    facts.extend(
        last.map(|last| ("last event", format!("{} {}, {} ago", last.seq, last.r#type, for_so_long(last.at_ms)))),
    );
    facts
}

/// What happened, a line each. The text of a step is one line.
async fn events(client: &Client, id: &str) -> Result<Vec<String>, Failure> {
    let path = ["v1", "runs", id, "events"];
    let events: Events = client.get(&path, &[("stream", "false")]).await.map_err(|error| failure(&error))?;
    let (mut story, mut lines, mut text) = (Story::new(Detail::All), Vec::new(), String::new());
    for event in events.data {
        // An event that this version does not know says nothing to it.
        let Ok(event) = serde_json::from_str::<Event>(event.get()) else { continue };
        for told in story.tell(&event) {
            match told {
                Told::Text(more) => text.push_str(&more),
                Told::Note(note) | Told::End { line: note, .. } => {
                    lines.extend(quoted(&std::mem::take(&mut text)));
                    lines.push(note);
                }
            }
        }
    }
    lines.extend(quoted(&text));
    Ok(lines)
}

fn quoted(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| format!("“{}”", line(text, MOST_SHOWN)))
}

/// Why a run ended or waits.
fn reason_sentence(reason: &str) -> &'static str {
    let known: Result<StopReason, Unknown> = StopReason::deserialize(reason.into_deserializer());
    let Ok(known) = known else { return "for a reason that this version does not know" };
    match known {
        StopReason::Done => "the model answered",
        StopReason::NoReply => "the model has nothing to say",
        StopReason::Length => "the model reached its own limit of length",
        StopReason::Guardrail => "a guardrail stopped it",
        StopReason::ContentFilter => "the upstream's content filter held the answer back",
        StopReason::MaxIterations => "its limit of model calls was reached",
        StopReason::MaxToolCalls => "its limit of tool calls was reached",
        StopReason::LoopGuard => "its model repeated tool calls that brought nothing new",
        StopReason::TokenBudget => "a token budget has no room for another model call",
        StopReason::CostBudget => "a cost budget has no room for another model call",
        StopReason::Timeout => "its time was up",
        StopReason::ClientTools => "it waits for its client's tools",
        StopReason::OutcomeAsked => "it waits until its caller says whether a tool call took effect",
        StopReason::AskUser => "its model asks the user",
        StopReason::Approval => "it waits for an approval of tool calls",
        StopReason::ToolPending => "it waits for services or for runs below it",
        StopReason::Cancelled | StopReason::Abandoned => "it was cancelled, or its last reader left",
        StopReason::ProviderError => "the upstream failed",
        StopReason::ContextLimit => "the conversation has grown beyond what the model takes",
        StopReason::EmptyResponse => "the model answered nothing",
        StopReason::OutcomeUnknown => "it is unknown whether a tool call took effect",
        StopReason::ToolError => "a tool call failed, and it was not to go on then",
        StopReason::CrashLoop => "it was interrupted too often without progress",
        StopReason::StoreLostState => "part of it is no longer in the store or the configuration",
        StopReason::InternalError => "the server failed",
    }
}
