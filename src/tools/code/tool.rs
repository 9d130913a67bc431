//! The tool: what a model gives, and how a run is made of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::answer;
use super::program::{Bounds, Ending, Input, Program, Ran};
use super::worker;
use super::written::{FoundFiles, Written};
use crate::config::{LanguageConfig, RunCodeConfig};
use crate::tools::builtin::define;
use crate::tools::workspace::{Workspace, Workspaces};
use crate::tools::{CallContext, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::Effect;

/// What a run leaves of a call's time, so that the model is told what the code said until then.
const REST: Duration = Duration::from_millis(200);
/// The same where files are to be kept after the run.
const REST_TO_KEEP: Duration = Duration::from_secs(2);
/// Stands for the path of the code in the arguments of an interpreter.
const FILE: &str = "{file}";

/// The tool.
#[derive(Debug)]
pub struct RunCode {
    spec: ToolSpec,
    languages: Vec<Language>,
    bounds: Bounds,
    room: Arc<Semaphore>,
    workspaces: Option<Arc<Workspaces>>,
}

/// An interpreter of a language.
#[derive(Debug)]
struct Language {
    config: LanguageConfig,
    program: Arc<Program>,
}

impl RunCode {
    /// One with these interpreters, each of which must be there. It works in the files of these workspaces, if it may.
    pub fn new(config: &RunCodeConfig, workspaces: Option<&Arc<Workspaces>>) -> Result<Self, String> {
        let open = |config: &LanguageConfig| {
            let program = Program::open(&config.module).map_err(|why| told_of(&config.module, &why))?;
            Ok(Language { config: config.clone(), program: Arc::new(program) })
        };
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(Self {
            spec: spec(config, workspaces.is_some() && config.workspace),
            languages: config.languages.iter().map(open).collect::<Result<_, String>>()?,
            bounds: Bounds {
                time: config.timeout,
                memory: size(config.memory),
                files: size(config.files),
                output: size(config.output),
            },
            room: Arc::new(Semaphore::new(config.concurrent as usize)),
            workspaces: workspaces.filter(|_| config.workspace).cloned(),
        })
    }

    /// The language that the model names; the only one, if it names none.
    fn language(&self, name: Option<&str>) -> Result<&Language, ToolError> {
        let named = |language: &&Language| name.is_none_or(|name| language.config.name.eq_ignore_ascii_case(name));
        self.languages.iter().find(named).ok_or_else(|| {
            let names: Vec<_> = self.languages.iter().map(|language| language.config.name.as_str()).collect();
            ToolError::Failed(format!("Code is run in: {}.", names.join(", ")))
        })
    }
}

fn told_of(module: &Path, why: &str) -> String {
    format!("{} cannot be used as an interpreter: {why}", module.display())
}

/// What the model is offered.
fn spec(config: &RunCodeConfig, keeps_files: bool) -> ToolSpec {
    let names: Vec<_> = config.languages.iter().map(|language| language.name.as_str()).collect();
    let files = if keeps_files { ": that of the workspace, so files stay for later." } else { "." };
    let description = format!(
        "Runs {} code in a sandbox and returns what it prints, so print what you want to know. Each call starts afresh. There is no \
         network and nothing but the standard library, and a call has {} s. Files are read and written in the current directory, \
         which is /workspace{files}",
        names.join(" or "),
        config.timeout.as_secs_f64()
    );
    let hints = config.languages.iter().filter_map(|language| language.hint.as_deref());
    let description = [description.as_str()].into_iter().chain(hints).collect::<Vec<_>>().join(" ");
    let mut properties = json!({
        "code": {"type": "string", "description": "The program"},
        "files": {
            "type": "object",
            "description": "Text files that it needs, by their names",
            "additionalProperties": {"type": "string"},
        },
    });
    let mut required = vec!["code"];
    if names.len() > 1 {
        properties["language"] = json!({"type": "string", "enum": names});
        required.insert(0, "language");
    }
    let parameters =
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    let parameters = to_raw_value(&parameters).expect("a schema is JSON");
    // A program that was interrupted may have written, and would do so twice.
    let effect = if keeps_files { Effect::Write } else { Effect::Read };
    ToolSpec { parameters, effect, ..define::spec("run_code", &description, "{}") }
}

/// What a model gives.
#[derive(Debug, Deserialize)]
struct Arguments {
    code: String,
    language: Option<String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
}

#[async_trait]
impl Tool for RunCode {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        let Arguments { code, language, files } = define::decode(arguments)?;
        let begun = Instant::now();
        let language = self.language(language.as_deref())?;
        let given: BTreeMap<_, _> = files.into_iter().map(|(name, text)| (name, text.into_bytes())).collect();
        let permit = self.room.clone().acquire_owned().await.expect("the semaphore is never closed");
        let workspace = self.workspaces.as_ref().and_then(|workspaces| workspaces.of(context));
        let mut files = match &workspace {
            Some(workspace) => Box::pin(workspace.read_all(workspace.config().quota)).await?,
            None => BTreeMap::new(),
        };
        let found = FoundFiles::of(&files, &given);
        // What a program finds in its workspace takes nothing of the room for what it writes.
        let kept: usize = files.values().map(Vec::len).sum();
        files.extend(given);
        let most = if self.workspaces.is_some() { REST_TO_KEEP } else { REST };
        let rest = context.timeout.saturating_sub(begun.elapsed());
        let time = self.bounds.time.min(rest.saturating_sub(most.min(rest / 4)));
        let bounds = Bounds { time, files: self.bounds.files.saturating_add(kept), ..self.bounds };
        let input = language.input(code, files);
        let ran = worker::run(language.program.clone(), input, bounds, permit).await.map_err(ToolError::Failed)?;
        let written = found.compare(&ran);
        if self.workspaces.is_none() {
            return Ok(answer::tell(&ran, &bounds, &written, None));
        }
        let kept = Box::pin(keep(workspace.as_ref(), &ran, &written)).await?;
        let failed = kept.is_err();
        let mut answer = answer::tell(&ran, &bounds, &written, kept.as_ref().err().map(String::as_str));
        answer.is_error |= failed;
        Ok(answer)
    }
}

/// Keeps what a program did to the files of its workspace. The inner error says why nothing was kept.
async fn keep(
    workspace: Option<&Workspace>,
    ran: &Ran,
    written: &Written<'_>,
) -> Result<Result<(), String>, ToolError> {
    let nothing = |why: &str| Ok(Err(format!("[No file of the workspace changed: {why}]")));
    if written.files.is_empty() && written.deleted.is_empty() {
        return Ok(Ok(()));
    }
    match &ran.ending {
        Ending::Exit(_) => {}
        Ending::OutOfTime | Ending::Stopped | Ending::Trapped(_) => return nothing("the code did not come to its end"),
    }
    let Some(workspace) = workspace else {
        return nothing("files are kept for users only, and this conversation names no user");
    };
    let changes = match written.changes() {
        Ok(changes) => changes,
        Err(why) => return nothing(&why),
    };
    match workspace.change(changes).await.map_err(ToolError::from) {
        Ok(_) => Ok(Ok(())),
        Err(ToolError::Failed(why)) => nothing(&why),
        Err(lost @ ToolError::Lost(_)) => Err(lost),
    }
}

impl Language {
    /// What its interpreter is given to run this code.
    fn input(&self, code: String, files: BTreeMap<String, Vec<u8>>) -> Input {
        let LanguageConfig { name, file, arguments, environment, .. } = &self.config;
        let path = format!("/code/{file}");
        let given = arguments.iter().map(|argument| argument.replace(FILE, &path));
        Input {
            arguments: [name.clone()].into_iter().chain(given).collect(),
            environment: environment.clone(),
            code: (file.clone(), code),
            files,
        }
    }
}
