//! `loopgate tools call`.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read, stderr, stdin};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use jiff::SignedDuration;
use serde_json::json;
use tokio::sync::mpsc;

use super::super::process::{Failure, complain, env, say, takes_colours};
use super::super::text::{clean, clean_json, line};
use super::super::when::duration;
use super::save;
use super::scratch::Scratch;
use super::shared::{agents_with, exit, opened};
use crate::config::{DEFAULT_AGENT, LogFormat, Options, Settings, nearest};
use crate::telemetry::logs;
use crate::tools::fit::settle;
use crate::tools::{CallContext, ProgressSink, QuestionSink, RegisteredTool, Registry, Told, check_arguments, invoke};
use crate::types::guard::ResultBounds;
use crate::types::tool::CallEnding;
use crate::types::{CallId, RunId, SessionId, Tenant, ToolOutcome, ToolProgress};

/// Most characters of what a tool says of its progress.
const MOST_SHOWN: usize = 160;
/// Reports that wait to be shown.
const REPORTS: usize = 16;

/// Call a tool for real.
#[derive(Debug, Args)]
pub(in crate::cli) struct Call {
    /// The tool
    #[arg(value_name = "NAME")]
    name: String,

    /// Its arguments, a JSON object; `-` reads them from standard input
    #[arg(value_name = "JSON", default_value = "{}")]
    arguments: String,

    /// Most time for the call, such as 30s; without it, the tool's own or the agent's
    #[arg(long, value_name = "TIME", value_parser = time)]
    timeout: Option<Duration>,

    /// The tenant that the tool is told, if it is told any
    #[arg(long, value_name = "NAME", value_parser = tenant)]
    tenant: Option<Tenant>,

    /// The end user that the tool is told, if it is told any
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// The session that the tool is told, if it is told any
    #[arg(long, value_name = "ID", value_parser = session)]
    session: Option<SessionId>,

    /// Directory that has the files of workspaces, in the place of workspace.directory; without it, an empty one that is removed
    /// after the call
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,

    /// Save the first picture, sound or file of the answer there, and more of them beside it; nothing is overwritten
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    /// Print what came of the call as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    options: Options,
}

fn time(text: &str) -> Result<Duration, String> {
    let read = text.parse::<SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
    read.filter(|time| !time.is_zero()).ok_or_else(|| "must be a duration such as 30s or 2m".to_owned())
}

fn tenant(text: &str) -> Result<Tenant, String> {
    Tenant::parse(text).ok_or_else(|| "is no tenant's name".to_owned())
}

fn session(text: &str) -> Result<SessionId, String> {
    SessionId::parse(text).ok_or_else(|| "is no session's id".to_owned())
}

pub(super) async fn run(call: &Call) -> Result<(), Failure> {
    let mut settings = Settings::load(&call.options, &env).map_err(Failure::config)?;
    // It says why a tool could not be reached, which the answer to a model does not.
    let _log = logs::begin("warn", LogFormat::Text, takes_colours(stderr().is_terminal())).map_err(Failure::new)?;
    let _scratch = Scratch::replace_workspace(&mut settings, call.workspace.as_deref())?;
    let (settings, opened) = opened(settings).await?;
    let called = make(call, &settings, &opened.registry).await;
    opened.close().await;
    called
}

async fn make(call: &Call, settings: &Settings, registry: &Registry) -> Result<(), Failure> {
    let Some(tool) = registry.get(&call.name) else { return Err(unknown(&call.name, registry)) };
    let arguments = read(&call.arguments)?;
    if let Some(why) = call.save.as_deref().and_then(save::refusal) {
        return Err(Failure { code: exit::USAGE, ..Failure::new(why) });
    }
    let arguments = check_arguments(&call.name, tool.schema(), &arguments).map_err(|message| {
        complain(clean(&message));
        complain(format_args!("They must fit {}", clean(tool.spec().parameters.get())));
        Failure::code(exit::USAGE)
    })?;
    let (sink, mut reports) = mpsc::channel(REPORTS);
    let context = context(call, tool, settings, sink)?;
    let id = context.call.clone();
    let calling = invoke(Arc::clone(tool), arguments, context);
    tokio::pin!(calling);
    let mut outcome = loop {
        tokio::select! {
            biased;
            Some((_, progress)) = reports.recv() => show(&progress),
            outcome = &mut calling => break outcome,
        }
    };
    settle(&mut outcome, ResultBounds::default());
    let saved = call.save.as_deref().map(|path| save::save(path, &outcome.parts)).transpose();
    // What came of the call is told in any case.
    let told = tell(call, &id, &outcome, saved.as_ref().ok().and_then(Option::as_deref).unwrap_or_default());
    saved.map_err(Failure::new)?;
    told
}

/// The arguments as they were written.
fn read(arguments: &str) -> Result<String, Failure> {
    if arguments != "-" {
        return Ok(arguments.to_owned());
    }
    let mut text = String::new();
    stdin().read_to_string(&mut text).map_err(|error| Failure {
        code: exit::USAGE,
        ..Failure::new(format_args!("the arguments cannot be read from standard input: {error}"))
    })?;
    Ok(text)
}

fn unknown(name: &str, registry: &Registry) -> Failure {
    let message = match nearest(name, registry.iter().map(|tool| tool.spec().name.as_str())) {
        Some(near) => format!("there is no tool named {name:?}; did you mean {near}?"),
        None => format!("there is no tool named {name:?}; `loopgate tools list` names all"),
    };
    Failure { code: exit::NOT_FOUND, ..Failure::new(clean(&message)) }
}

/// What the tool is told of the call: that it is of a run of its own, which nothing else is part of.
fn context(
    call: &Call,
    tool: &RegisteredTool,
    settings: &Settings,
    sink: mpsc::Sender<(CallId, ToolProgress)>,
) -> Result<CallContext, Failure> {
    let agent = agents_with(settings, &call.name).first().map_or(DEFAULT_AGENT, |agent| agent).to_owned();
    let of_agent = settings.agents.get(&agent).map(|agent| agent.limits.tool_timeout);
    let timeout = call.timeout.or(tool.spec().timeout).or(of_agent).unwrap_or(Duration::MAX);
    let metadata = BTreeMap::new();
    if tool.tool().too_long(Told { user: call.user.as_deref(), metadata: &metadata }).is_some() {
        return Err(Failure {
            code: exit::USAGE,
            ..Failure::new("the user's name is too long for the tool to be told")
        });
    }
    let run = RunId::mint();
    let id = run.call(1);
    Ok(CallContext {
        tenant: call.tenant.clone().unwrap_or_else(Tenant::default_tenant),
        session: call.session.clone(),
        user: call.user.clone(),
        metadata,
        agent,
        progress: ProgressSink::new(id.clone(), sink),
        questions: QuestionSink::default(),
        call: id,
        run,
        step: 1,
        attempt: 1,
        trace: None,
        request_id: None,
        timeout,
        fence: 1,
        callback_token: None,
    })
}

fn show(ToolProgress { done, total, message }: &ToolProgress) {
    let part = match (done, total) {
        (Some(done), Some(total)) => format!("{done}/{total} "),
        (Some(done), None) => format!("{done} "),
        (None, _) => String::new(),
    };
    complain(format_args!("… {part}{}", line(message.as_deref().unwrap_or_default(), MOST_SHOWN)));
}

/// Says what came of the call; its answer goes to standard output.
fn tell(call: &Call, id: &CallId, outcome: &ToolOutcome, saved: &[PathBuf]) -> Result<(), Failure> {
    let is_lost = outcome.ending == CallEnding::Lost;
    if call.json {
        let told = json!({
            "ok": !outcome.is_error,
            "tool": call.name,
            "call_id": id.as_str(),
            "is_error": outcome.is_error,
            "outcome_unknown": is_lost,
            "content": outcome.text(),
            "structured": outcome.structured,
            "truncated": outcome.truncated,
            "status": outcome.status,
            "bytes": outcome.bytes,
            "latency_ms": outcome.latency_ms,
            "saved": saved,
        });
        say(clean_json(&serde_json::to_string_pretty(&told).map_err(Failure::new)?));
    } else {
        say(clean(&outcome.text()));
        let status = outcome.status.map_or_else(String::new, |status| format!(" with status {status}"));
        let cut = if outcome.truncated { ", of which the middle was left out" } else { "" };
        let how = match (is_lost, outcome.is_error) {
            (true, _) => "broke off, and whether the call took effect is not known",
            (false, true) => "answered with an error",
            (false, false) => "answered",
        };
        for path in saved {
            complain(format_args!("saved {}", clean(&path.display().to_string())));
        }
        if call.save.is_some() && saved.is_empty() {
            complain("The answer holds no picture, sound or file: nothing was saved.");
        }
        let (took, bytes) = (duration(outcome.latency_ms), outcome.bytes);
        complain(format_args!("{} {how}{status} after {took}: {bytes} bytes{cut}", call.name));
    }
    match (is_lost, outcome.is_error) {
        (true, _) => Err(Failure::code(exit::LOST)),
        (false, true) => Err(Failure::code(exit::IS_ERROR)),
        (false, false) => Ok(()),
    }
}
