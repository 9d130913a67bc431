//! `[skills]`: what agents know how to do, by the operator's folders.
//!
//! A folder has a file `SKILL.md`, which begins with a name and a description between two lines `---`, as YAML.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;
use toml::de::DeValue;

use super::reader::Section;
use super::value::{FromToml, Misread, PLAIN_NAME, is_plain_name, text};
use crate::types::skill::{INLINE_MAX, INLINE_TOKENS, MAX_DESCRIPTION, MAX_INSTRUCTIONS, Skill};

/// The file that makes a folder a skill.
const FILE: &str = "SKILL.md";
/// Most skills of all folders.
const MOST: usize = 1_000;

/// The operator's skills, and how agents are told of skills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillsConfig {
    /// The skills, by their names.
    pub skills: Arc<[Skill]>,
    /// An agent with no more than so many is told all their instructions.
    pub inline_max: u32,
    /// If they have no more than so many tokens together.
    pub inline_tokens: u32,
}

impl Default for SkillsConfig {
    fn default() -> Self {
        Self { skills: Arc::default(), inline_max: INLINE_MAX, inline_tokens: INLINE_TOKENS }
    }
}

impl SkillsConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let directories: Vec<String> = section.key(
            "directories",
            "Directories of skills: each has a folder with a `SKILL.md` for each skill, or is such a folder itself. They are read \
             with the configuration.",
            Vec::new(),
        );
        let inline_max = section.key(
            "inline_max",
            "An agent with at most so many skills is told the instructions of all of them, if `inline_tokens` has room. Otherwise its \
             model reads a skill when it needs it.",
            INLINE_MAX,
        );
        let inline_tokens = section.key(
            "inline_tokens",
            "Most tokens of instructions, or else of names and descriptions, that a model is told of its skills.",
            INLINE_TOKENS,
        );
        let skills = match read_all(&directories) {
            Ok(skills) => skills,
            Err(why) => {
                section.refuse("directories", why);
                Vec::new()
            }
        };
        if !skills.is_empty() {
            // So that a reload tells that a skill changed.
            section.record_secret("directories", &format!("{skills:?}"));
        }
        Self { skills: skills.into(), inline_max, inline_tokens }
    }
}

fn read_all(directories: &[String]) -> Result<Vec<Skill>, String> {
    let mut all: Vec<Skill> = Vec::new();
    for directory in directories {
        for folder in folders(Path::new(directory)).map_err(|error| format!("{directory} cannot be read: {error}"))? {
            let file = folder.join(FILE);
            let place = file.display();
            let text = std::fs::read_to_string(&file).map_err(|error| format!("{place} cannot be read: {error}"))?;
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            all.push(skill(&text, &name).map_err(|why| format!("{place} {why}"))?);
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    if let Some(pair) = all.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(format!("there are two skills named {:?}", pair[0].name));
    }
    if all.len() > MOST {
        return Err(format!("there are {} skills; {MOST} are the most", all.len()));
    }
    Ok(all)
}

/// The folders with a skill in a directory, or the directory itself.
fn folders(directory: &Path) -> std::io::Result<Vec<std::path::PathBuf>> {
    if directory.join(FILE).is_file() {
        return Ok(vec![directory.to_owned()]);
    }
    let entries = std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    Ok(entries.into_iter().filter(|path| path.join(FILE).is_file()).collect())
}

/// What stands at the begin of a file. Other members are for other programs.
#[derive(Deserialize)]
struct FrontMatter {
    name: Option<String>,
    description: Option<String>,
}

/// The skill of a file in a folder of this name, or what is wrong with it.
fn skill(text: &str, folder: &str) -> Result<Skill, String> {
    let text = text.trim_start_matches('\u{feff}');
    let (front, instructions) =
        split(text).ok_or("does not begin with a name and a description between two lines `---`")?;
    let options = serde_saphyr::options! { strict_booleans: true };
    let read: Result<FrontMatter, _> = serde_saphyr::from_str_with_options(front, options);
    let FrontMatter { name, description } =
        read.map_err(|error| format!("has a begin that is not YAML: {}", first_line(&error.to_string())))?;
    let name = name.unwrap_or_else(|| folder.to_owned());
    if !is_plain_name(&name) {
        return Err(format!("names the skill {name:?}: {PLAIN_NAME}"));
    }
    let description = description.unwrap_or_default().trim().to_owned();
    if description.is_empty() || description.len() > MAX_DESCRIPTION {
        return Err(format!("needs a `description` of 1 to {MAX_DESCRIPTION} bytes, which says when to use the skill"));
    }
    let instructions = instructions.trim().to_owned();
    if instructions.is_empty() || instructions.len() > MAX_INSTRUCTIONS {
        return Err(format!("needs 1 to {MAX_INSTRUCTIONS} bytes of instructions; it has {}", instructions.len()));
    }
    Ok(Skill { name, description, instructions })
}

/// What stands between the two lines, and behind them.
fn split(text: &str) -> Option<(&str, &str)> {
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().filter(|line| line.trim_end() == "---")?;
    let mut at = first.len();
    for line in lines {
        if line.trim_end() == "---" {
            return Some((&text[first.len()..at], &text[at + line.len()..]));
        }
        at += line.len();
    }
    None
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(120).collect()
}

/// A skill's name, in which `*` matches any characters.
pub(super) struct SkillPattern(pub(super) String);

impl FromToml for SkillPattern {
    fn form() -> String {
        "skill name".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let pattern = text(value, "the name of a skill")?;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'*');
        if pattern.is_empty() || !pattern.bytes().all(allowed) {
            let what = "a skill's name has only characters of A-Z a-z 0-9 . _ -, and * for any characters";
            return Err(Misread::new(value, what));
        }
        Ok(Self(pattern.to_owned()))
    }

    fn show(&self) -> String {
        self.0.show()
    }
}

/// Reads which skills an agent has, which inherits those of `parent`.
pub(super) fn patterns(section: &mut Section<'_>, parent: &[String]) -> Vec<String> {
    let patterns = section.key(
        "skills",
        "The [skills](skills.md) that the model has, those of `[skills]` and those of the tenant; `*` matches any characters.",
        parent.iter().map(|pattern| SkillPattern(pattern.clone())).collect::<Vec<_>>(),
    );
    patterns.into_iter().map(|SkillPattern(pattern)| pattern).collect()
}
