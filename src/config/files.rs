//! Which files of an agent its model is told from the start.

use toml::Spanned;
use toml::de::DeValue;

use super::reader::Section;
use super::value::{FromToml, Misread, PLAIN_NAME, is_plain_name, text};
use crate::types::memory::{AgentFiles, MOST_FILES};

/// Reads an agent's, which inherits those of `parent`.
pub(super) fn read(section: &mut Section<'_>, parent: &AgentFiles) -> AgentFiles {
    let mut names = |key, help, inherited: &[String]| {
        let inherited: Vec<FileName> = inherited.iter().map(|name| FileName(name.clone())).collect();
        let names = section.key(key, help, inherited);
        if names.len() > MOST_FILES {
            section.refuse(key, format!("may name at most {MOST_FILES} files"));
        }
        names.into_iter().map(|FileName(name)| name).collect::<Vec<_>>()
    };
    AgentFiles {
        shared: names(
            "files",
            "[Files of the agent](memory.md#files-of-an-agent) that its model is told from the start, in this order, such as \
             `[\"SOUL.md\", \"AGENTS.md\"]`. Those that the tenant has not written are left out.",
            &parent.shared,
        ),
        of_user: names(
            "user_files",
            "Files of which each `user` has a copy, made of the agent's at the user's first run. They follow `files`.",
            &parent.of_user,
        ),
    }
}

struct FileName(String);

impl FromToml for FileName {
    fn form() -> String {
        "file name".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let name = text(value, "the name of a file")?;
        if !is_plain_name(name) {
            return Err(Misread::new(value, PLAIN_NAME));
        }
        Ok(Self(name.to_owned()))
    }

    fn show(&self) -> String {
        self.0.show()
    }
}
