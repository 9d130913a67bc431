//! Skills: named instructions for a task, which a model reads when it has the task.

/// Most skills whose instructions a model is told from the start, unless the operator says otherwise.
pub const INLINE_MAX: u32 = 20;
/// Most tokens of them.
pub const INLINE_TOKENS: u32 = 3_500;
/// Most bytes of what a skill is for.
pub const MAX_DESCRIPTION: usize = 1_024;
/// Most bytes of its instructions.
pub const MAX_INSTRUCTIONS: usize = 64 << 10;
/// The tools by which a model finds skills and reads them.
pub const SKILL_TOOLS: [&str; 2] = ["skill_search", "use_skill"];

/// A skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// What it is for, in a sentence.
    pub description: String,
    /// The instructions.
    pub instructions: String,
}
