//! What an agent knows how to do: the operator's skills and those of the tenant, as far as the agent has them.

use std::fmt::Write;
use std::sync::Arc;

use crate::agent::context::prompt::frame;
use crate::agent::documents::entry::Entry;
use crate::agent::documents::name::MAX_NAME;
use crate::agent::documents::{Collection, Documents, Kind, Limits};
use crate::store::Unavailable;
use crate::types::Tenant;
use crate::types::pattern::matches;
use crate::types::skill::{MAX_DESCRIPTION, MAX_INSTRUCTIONS, Skill};

/// Bytes that are a token, about.
const BYTES_PER_TOKEN: usize = 4;

/// How much a tenant's skills may have.
pub const SKILL_LIMITS: Limits =
    Limits { document: (MAX_INSTRUCTIONS + MAX_DESCRIPTION + MAX_NAME) as u64, documents: 200, bytes: 2 << 20 };

/// The skills of a tenant.
#[must_use]
pub fn skills_of_tenant() -> Collection {
    Collection { kind: Kind::Skills, agent: None, user: None }
}

/// A skill, wherever it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it is for.
    pub description: &'a str,
    /// The instructions.
    pub instructions: &'a str,
}

/// The skills of an agent.
#[derive(Debug, Default)]
pub struct AgentSkills {
    of_operator: Arc<[Skill]>,
    of_tenant: Option<Arc<Entry>>,
    patterns: Vec<String>,
}

impl AgentSkills {
    /// All of them, the operator's first. Of two with one name the operator's counts.
    pub fn iter(&self) -> impl Iterator<Item = Known<'_>> {
        let of_operator = self.of_operator.iter().map(|skill| Known {
            name: &skill.name,
            description: &skill.description,
            instructions: &skill.instructions,
        });
        let of_tenant = self.of_tenant.iter().flat_map(|entry| entry.documents()).map(|document| Known {
            name: &document.name,
            description: &document.text.description,
            instructions: &document.text.content,
        });
        let of_tenant = of_tenant.filter(|skill| !self.of_operator.iter().any(|other| other.name == skill.name));
        let is_allowed = |name: &str| self.patterns.iter().any(|pattern| matches(pattern, name));
        of_operator.chain(of_tenant).filter(move |skill| is_allowed(skill.name))
    }
}

impl Documents {
    /// The skills of an agent that has those that match these patterns.
    pub async fn skills(
        &self,
        tenant: &Tenant,
        of_operator: &Arc<[Skill]>,
        patterns: &[String],
    ) -> Result<AgentSkills, Unavailable> {
        let of_tenant = self.searchable(tenant, &skills_of_tenant()).await?;
        Ok(AgentSkills { of_operator: of_operator.clone(), of_tenant, patterns: patterns.to_vec() })
    }
}

/// What a model is told of its skills.
#[derive(Debug, PartialEq, Eq)]
pub struct ToldSkills {
    /// What it is told.
    pub text: String,
    /// How it comes by the instructions that it is not told.
    pub access: SkillAccess,
}

/// How a model comes by the instructions of skills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkillAccess {
    /// It is told all of them.
    Told,
    /// It knows the names, and asks for the instructions.
    ByName,
    /// It looks for skills first.
    BySearch,
}

/// What a model is told of these skills; `None` if there are none.
pub fn told(skills: &AgentSkills, most: u32, most_tokens: u32) -> Option<ToldSkills> {
    let count = skills.iter().count();
    if count == 0 {
        return None;
    }
    let room = usize::try_from(most_tokens).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN);
    if count <= usize::try_from(most).unwrap_or(usize::MAX)
        && let Some(text) = within(
            room,
            "You have these skills. Follow the instructions of one where its description fits.",
            skills,
            in_full,
        )
    {
        return Some(ToldSkills { text, access: SkillAccess::Told });
    }
    let before = "You have these skills. Before you do what one of them is for, call `use_skill` with its name and follow the \
                  instructions that it returns.";
    if let Some(text) = within(room, before, skills, in_a_line) {
        return Some(ToldSkills { text, access: SkillAccess::ByName });
    }
    let text = format!(
        "You have {count} skills: instructions for tasks of many kinds. Before you begin a task, call `skill_search` to see whether one \
         of them is for it; then call `use_skill` with its name and follow the instructions that it returns."
    );
    Some(ToldSkills { text, access: SkillAccess::BySearch })
}

/// All skills written in this way, if they have no more than so many bytes.
fn within(room: usize, before: &str, skills: &AgentSkills, write: impl Fn(&mut String, Known<'_>)) -> Option<String> {
    let mut text = before.to_owned();
    for skill in skills.iter() {
        write(&mut text, skill);
        if text.len() - before.len() > room {
            return None;
        }
    }
    Some(text)
}

fn in_full(text: &mut String, Known { name, description, instructions }: Known<'_>) {
    // What a skill says must not end it. Writing to a string cannot fail.
    let instructions = frame::within(instructions, "skill");
    let _ = write!(text, "\n\n<skill name=\"{name}\">\n{}\n\n{instructions}\n</skill>", line(description));
}

fn in_a_line(text: &mut String, Known { name, description, .. }: Known<'_>) {
    let _ = write!(text, "\n- {name}: {}", line(description));
}

/// A description in one line.
pub(super) fn line(description: &str) -> String {
    description.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skills(count: usize, instructions: &str) -> AgentSkills {
        let skill = |number: usize| Skill {
            name: format!("s{number}"),
            description: "Does\n things.".into(),
            instructions: instructions.into(),
        };
        AgentSkills { of_operator: (0..count).map(skill).collect(), of_tenant: None, patterns: vec!["s*".into()] }
    }

    fn access(skills: &AgentSkills, most: u32, most_tokens: u32) -> Option<SkillAccess> {
        told(skills, most, most_tokens).map(|told| told.access)
    }

    #[test]
    fn few_skills_are_told_more_are_listed_and_many_are_searched_for() {
        assert_eq!(told(&skills(0, "x"), 20, 3_500), None);
        let none = AgentSkills { patterns: vec!["t*".into()], ..skills(3, "x") };
        assert_eq!(told(&none, 20, 3_500), None, "the agent has none of them");
        assert_eq!(access(&skills(20, "Do this."), 20, 3_500), Some(SkillAccess::Told));
        assert_eq!(access(&skills(21, "Do this."), 20, 3_500), Some(SkillAccess::ByName));
        assert_eq!(access(&skills(2, &"x".repeat(9_000)), 20, 3_500), Some(SkillAccess::ByName));
        assert_eq!(access(&skills(900, "Do this."), 20, 3_500), Some(SkillAccess::BySearch));
        let text = told(&skills(1, "Do this.</skill>"), 20, 3_500).unwrap().text;
        let shown = "<skill name=\"s0\">\nDoes things.\n\nDo this.<\u{200b}/skill>\n</skill>";
        assert!(text.ends_with(shown), "{text}");
        assert!(told(&skills(21, "x"), 20, 3_500).unwrap().text.ends_with("\n- s20: Does things."));
    }
}
