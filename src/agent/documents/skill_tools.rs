//! The tools by which a model finds skills and reads their instructions.

use std::fmt::Write;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::agent::context::search::Index;
use crate::agent::documents::Documents;
use crate::agent::documents::skills::{AgentSkills, SkillAccess, line};
use crate::agent::own_tool::{OwnContext, OwnTool};
use crate::types::conversation::Part;
use crate::types::json::RawValueEq;
use crate::types::offer::ToolDefinition;
use crate::types::skill::{SKILL_TOOLS, Skill};
use crate::types::{Effect, ToolCall, ToolOutcome};

/// How many skills a search finds if it is not told, and at most.
const USUAL: usize = 5;
const MOST: usize = 20;
/// A word of a name says more than one of a description.
const NAME: u32 = 2;

/// One of the tools.
#[derive(Debug)]
struct SkillTool {
    searches: bool,
    definition: Arc<ToolDefinition>,
    documents: Arc<Documents>,
    of_operator: Arc<[Skill]>,
}

/// Both of them, for the operator's skills and those of each tenant.
pub fn skill_tools(documents: &Arc<Documents>, of_operator: &Arc<[Skill]>) -> Vec<Arc<dyn OwnTool>> {
    let tool = |searches: bool, name: &str, description: &str, parameters: &str| -> Arc<dyn OwnTool> {
        let definition = Arc::new(ToolDefinition {
            name: name.to_owned(),
            description: Some(description.to_owned()),
            parameters: Some(RawValueEq(RawValue::from_string(parameters.to_owned()).expect("it is JSON"))),
            ..ToolDefinition::default()
        });
        Arc::new(SkillTool { searches, definition, documents: documents.clone(), of_operator: of_operator.clone() })
    };
    let [search, read] = SKILL_TOOLS;
    vec![
        tool(
            true,
            search,
            "Finds skills, which are instructions for tasks, by what they are for.",
            concat!(
                r#"{"type":"object","properties":{"query":{"type":"string","minLength":1,"description":"The task, in a few words"},"#,
                r#""limit":{"type":"integer","minimum":1,"maximum":20}},"required":["query"],"additionalProperties":false}"#,
            ),
        ),
        tool(
            false,
            read,
            "Returns the instructions of a skill.",
            concat!(
                r#"{"type":"object","properties":{"name":{"type":"string","description":"Name of the skill"}},"#,
                r#""required":["name"],"additionalProperties":false}"#,
            ),
        ),
    ]
}

/// Those that a model needs which comes by its skills in this way.
pub fn needed(all: &[Arc<dyn OwnTool>], access: SkillAccess) -> impl Iterator<Item = &Arc<dyn OwnTool>> {
    let [search, read] = SKILL_TOOLS;
    all.iter().filter(move |tool| match access {
        SkillAccess::Told => false,
        SkillAccess::ByName => tool.definition().name == read,
        SkillAccess::BySearch => tool.definition().name == read || tool.definition().name == search,
    })
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(default)]
    name: String,
    #[serde(default)]
    query: String,
    limit: Option<usize>,
}

#[async_trait]
impl OwnTool for SkillTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    fn effect(&self) -> Effect {
        Effect::Read
    }

    async fn answer(&self, call: &ToolCall, context: OwnContext<'_>) -> ToolOutcome {
        let arguments: Arguments = match serde_json::from_str(&call.arguments) {
            Ok(arguments) => arguments,
            Err(error) => return ToolOutcome::failed(format!("The arguments cannot be read: {error}.")),
        };
        let spec = context.run.spec();
        let skills = match self.documents.skills(&spec.tenant, &self.of_operator, &spec.rules.skills).await {
            Ok(skills) => skills,
            Err(error) => {
                tracing::warn!(%error, "the skills of an agent cannot be read");
                return ToolOutcome::failed("The skills cannot be read now. Go on without them, or try again later.");
            }
        };
        let answered =
            if self.searches { Ok(found(&skills, &arguments)) } else { instructions(&skills, &arguments.name) };
        match answered {
            Ok(text) => {
                ToolOutcome { bytes: text.len() as u64, parts: vec![Part::text(text)], ..ToolOutcome::default() }
            }
            Err(why) => ToolOutcome::failed(why),
        }
    }
}

/// The names and descriptions of the skills that fit best.
fn found(skills: &AgentSkills, arguments: &Arguments) -> String {
    let all: Vec<_> = skills.iter().collect();
    let index = Index::of_texts(all.iter().map(|skill| [(skill.name, NAME), (skill.description, 1)]));
    let places = index.find(&arguments.query, arguments.limit.unwrap_or(USUAL).clamp(1, MOST));
    if places.is_empty() {
        return "No skill fits these words. Try others, or go on without.".to_owned();
    }
    let mut text = String::from("These skills may be for it; `use_skill` returns the instructions of one:");
    for skill in places.into_iter().map(|place| all[place]) {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n- {}: {}", skill.name, line(skill.description));
    }
    text
}

fn instructions(skills: &AgentSkills, name: &str) -> Result<String, String> {
    let found = skills.iter().find(|skill| skill.name == name);
    found.map(|skill| skill.instructions.to_owned()).ok_or_else(|| format!("There is no skill named {name:?}."))
}
