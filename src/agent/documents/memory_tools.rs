//! The tools by which a model uses its memory.

use std::fmt::Write;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::agent::documents::change::{Change, Limits};
use crate::agent::documents::recall::{memory_of_run, shown};
use crate::agent::documents::{Documents, Named};
use crate::agent::own_tool::{OwnContext, OwnTool};
use crate::types::conversation::Part;
use crate::types::json::RawValueEq;
use crate::types::memory::MEMORY_TOOLS;
use crate::types::offer::ToolDefinition;
use crate::types::{Effect, ToolCall, ToolOutcome};

/// How many passages a search finds if it is not told.
const USUAL: usize = 5;
/// How many at most.
const MOST: usize = 20;
/// Most characters of them.
const MOST_CHARS: usize = 12_000;
/// Names of documents that are listed at once.
const LISTED: usize = 100;

const NAME: &str = r#""name":{"type":"string","minLength":1,"maxLength":100,"pattern":"^[A-Za-z0-9._-]+$","description":"Name of the note, such as preferences"}"#;

/// What a tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Delete,
    Read,
    Search,
    Write,
}

/// One of the tools.
#[derive(Debug)]
struct MemoryTool {
    does: Does,
    definition: Arc<ToolDefinition>,
    documents: Arc<Documents>,
    limits: Limits,
}

/// All of them, for memories within these limits.
pub fn memory_tools(documents: &Arc<Documents>, limits: Limits) -> Vec<Arc<dyn OwnTool>> {
    let tool = |(does, name, description, parameters): (Does, &str, &str, String)| -> Arc<dyn OwnTool> {
        let parameters = format!(r#"{{"type":"object","properties":{{{parameters},"additionalProperties":false}}"#);
        let definition = Arc::new(ToolDefinition {
            name: name.to_owned(),
            description: Some(description.to_owned()),
            parameters: Some(RawValueEq(RawValue::from_string(parameters).expect("it is JSON"))),
            ..ToolDefinition::default()
        });
        Arc::new(MemoryTool { does, definition, documents: documents.clone(), limits })
    };
    let [delete, read, search, write] = MEMORY_TOOLS;
    vec![
        tool((Does::Delete, delete, "Deletes a note from your memory.", format!(r#"{NAME}}},"required":["name"]"#))),
        tool((
            Does::Read,
            read,
            "Returns a note of your memory, or without a name the list of all notes.",
            format!(r"{NAME}}}"),
        )),
        tool((
            Does::Search,
            search,
            "Finds passages in your memory by words. Your memory outlives conversations: search it before you answer what may \
             depend on earlier ones, such as preferences, decisions, people and dates.",
            concat!(
                r#""query":{"type":"string","minLength":1,"description":"What to look for, in a few words"},"#,
                r#""limit":{"type":"integer","minimum":1,"maximum":20}},"required":["query"]"#
            )
            .to_owned(),
        )),
        tool((
            Does::Write,
            write,
            "Writes a note into your memory, which outlives this conversation. Keep what will matter later, in few words and a note \
             for each subject; never passwords or keys.",
            format!(
                r#"{NAME},"content":{{"type":"string","description":"What to remember"}},"mode":{{"enum":["replace","append"],"description":"Whether this takes the place of the note, as it does if absent, or is added to it"}},"version":{{"type":"integer","minimum":0,"description":"Write only if the note still has this version; 0 if it must be new"}}}},"required":["name","content"]"#
            ),
        )),
    ]
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Arguments {
    name: Option<String>,
    content: String,
    mode: Option<String>,
    version: Option<u64>,
    query: String,
    limit: Option<usize>,
}

#[async_trait]
impl OwnTool for MemoryTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    fn effect(&self) -> Effect {
        match self.does {
            Does::Read | Does::Search => Effect::Read,
            Does::Write | Does::Delete => Effect::Idempotent,
        }
    }

    async fn answer(&self, call: &ToolCall, context: OwnContext<'_>) -> ToolOutcome {
        let arguments = match call.arguments.trim() {
            "" => "{}",
            written => written,
        };
        let arguments: Arguments = match serde_json::from_str(arguments) {
            Ok(arguments) => arguments,
            Err(error) => return ToolOutcome::failed(format!("The arguments cannot be read: {error}.")),
        };
        let answered = match self.does {
            Does::Search => self.search(&arguments, context).await,
            Does::Read => self.read(&arguments, context).await,
            Does::Write => self.write(call, &arguments, context).await,
            Does::Delete => self.delete(call, &arguments, context).await,
        };
        match answered {
            Ok(text) => {
                ToolOutcome { bytes: text.len() as u64, parts: vec![Part::text(text)], ..ToolOutcome::default() }
            }
            Err(why) => ToolOutcome::failed(why),
        }
    }
}

impl MemoryTool {
    async fn search(&self, arguments: &Arguments, context: OwnContext<'_>) -> Result<String, String> {
        let (spec, most) = (context.run.spec(), arguments.limit.unwrap_or(USUAL).clamp(1, MOST));
        let entry =
            self.documents.searchable(&spec.tenant, &memory_of_run(spec)).await.map_err(|error| unavailable(&error))?;
        let found = entry.as_ref().and_then(|entry| shown(entry.find(&arguments.query, most), MOST_CHARS));
        Ok(found.unwrap_or_else(|| match entry {
            Some(_) => "Nothing in your memory fits these words. Try others.".to_owned(),
            None => "Your memory is empty.".to_owned(),
        }))
    }

    async fn read(&self, arguments: &Arguments, context: OwnContext<'_>) -> Result<String, String> {
        let (spec, of) = (context.run.spec(), memory_of_run(context.run.spec()));
        let Some(name) = arguments.name.as_deref().filter(|name| !name.is_empty()) else {
            let all =
                self.documents.list(&spec.tenant, &of, None, LISTED + 1).await.map_err(|error| unavailable(&error))?;
            return Ok(listed(&all));
        };
        let found = self.documents.get(&spec.tenant, &of, name).await.map_err(|error| unavailable(&error))?;
        let Named { text, version, .. } =
            found.ok_or_else(|| format!("There is no note {name:?}. `memory_read` without a name lists all."))?;
        Ok(format!("[version {version}]\n{}", text.content))
    }

    async fn write(&self, call: &ToolCall, arguments: &Arguments, context: OwnContext<'_>) -> Result<String, String> {
        let (spec, of) = (context.run.spec(), memory_of_run(context.run.spec()));
        let name = arguments.name.as_deref().unwrap_or_default();
        let change = Change {
            content: &arguments.content,
            appends: arguments.mode.as_deref() == Some("append"),
            version: arguments.version,
            once: Some(call.id.as_str()),
            ..Change::default()
        };
        let made = self.documents.put(&spec.tenant, &of, name, (&change, &self.limits)).await;
        let Named { text, version, .. } =
            made.map_err(|error| format!("The note {name:?} was not written: {error}."))?;
        if version == 0 {
            return Ok(format!("The note {name:?} was written, and deleted since."));
        }
        Ok(format!("The note {name:?} was written. It has version {version} and {} bytes.", text.content.len()))
    }

    async fn delete(&self, call: &ToolCall, arguments: &Arguments, context: OwnContext<'_>) -> Result<String, String> {
        let (spec, name) = (context.run.spec(), arguments.name.as_deref().unwrap_or_default());
        let asked = (name, Some(call.id.as_str()));
        let deleted = self.documents.delete(&spec.tenant, &memory_of_run(spec), asked).await;
        deleted.map_err(|error| format!("The note {name:?} was not deleted: {error}."))?;
        Ok(format!("The note {name:?} was deleted."))
    }
}

/// The names of notes, and how long each is.
fn listed(all: &[Named]) -> String {
    let mut text = String::from(if all.is_empty() { "Your memory is empty." } else { "Your memory has these notes:" });
    for Named { name, text: note, version } in all.iter().take(LISTED) {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n- {name} ({} bytes, version {version})", note.content.len());
    }
    if all.len() > LISTED {
        text.push_str("\nThere are more; `memory_search` finds them.");
    }
    text
}

fn unavailable(error: &crate::store::Unavailable) -> String {
    tracing::warn!(%error, "the memory of an agent cannot be read");
    "The memory cannot be read now. Go on without it, or try again later.".to_owned()
}
