//! What agents remember, and what they know how to do.

use std::fs;

use super::{load, mistakes};
use crate::config::MemoryConfig;
use crate::types::memory::{MemoryRules, MemoryScope};

#[test]
fn agents_remember_where_the_file_says_so_and_inherit_how() {
    assert_eq!(load("").memory, None);
    let text = "[memory]\nquota = '1MiB'\n[agents.default]\ntools = ['memory_*']\nskills = ['a*']\n\
                [agents.default.memory]\nscope = 'user'\nrecall = true\n[agents.b.memory]\nrecall_chars = 9\n";
    let settings = load(text);
    assert_eq!(settings.memory, Some(MemoryConfig { quota: 1 << 20, ..MemoryConfig::default() }));
    let rules = MemoryRules { scope: MemoryScope::User, recalls: true, ..MemoryRules::default() };
    assert_eq!(settings.agents["default"].rules.memory, rules);
    assert_eq!(settings.agents["b"].rules.memory, MemoryRules { most_chars: 9, ..rules });
    assert_eq!(settings.agents["b"].rules.skills, ["a*"]);
}

#[test]
fn mistakes_are_told() {
    for (text, what) in [
        (
            "[agents.default]\ntools = ['memory_read']\n",
            "agents.default.tools: declare [memory] to have the tool `memory_read`",
        ),
        (
            "[agents.b.memory]\nrecall = true\n",
            "agents.b.memory.recall: declare [memory] to have agents remember anything",
        ),
        ("[memory]\nquota = '1GiB'\n", "memory.quota: must be at most 16 MiB"),
        ("[memory]\nmax_documents = 0\n", "memory.max_documents: must be an integer from 1 to 10000"),
        ("[agents.default.memory]\nrecall_passages = 51\n", "recall_passages: must be an integer from 1 to 50"),
        ("[agents.default.memory]\nscope = 'tenant'\n", "scope: must be \"agent_and_user\" or \"user\" or \"agent\""),
        ("[agents.default]\nskills = ['a/b']\n", "agents.default.skills: a skill's name has only characters of"),
        ("[agents.default]\nfiles = ['../x']\n", "agents.default.files: a name is 1 to 64 of"),
    ] {
        let told = mistakes(text);
        assert!(told.contains(what), "{told}\n{what}");
    }
}

#[test]
fn skills_are_read_from_folders() {
    let directory = tempfile::tempdir().unwrap();
    let write = |folder: &str, text: &str| {
        fs::create_dir_all(directory.path().join(folder)).unwrap();
        fs::write(directory.path().join(folder).join("SKILL.md"), text).unwrap();
    };
    write("b", "---\nname: bake\ndescription: |\n  Bakes bread.\nlicense: x\n---\n\n# How\n\n---\nKnead.\n");
    write("a", "\u{feff}---\r\ndescription: 'Adds: numbers'\r\n---\r\nAdd.\r\n");
    fs::create_dir_all(directory.path().join("empty")).unwrap();
    let path = directory.path().display().to_string();
    let skills = load(&format!("[skills]\ndirectories = ['{path}']\n")).skills.skills;
    let found: Vec<_> = skills.iter().map(|one| (&*one.name, &*one.description, &*one.instructions)).collect();
    assert_eq!(found, [("a", "Adds: numbers", "Add."), ("bake", "Bakes bread.", "# How\n\n---\nKnead.")]);
    let one = load(&format!("[skills]\ndirectories = ['{path}/a']\n")).skills.skills;
    assert_eq!(one.len(), 1);
    let before = load(&format!("[skills]\ndirectories = ['{path}/a']\n"));
    write("a", "---\ndescription: d\n---\nSubtract.\n");
    let after = load(&format!("[skills]\ndirectories = ['{path}/a']\n"));
    assert_eq!(before.changes_to(&after).len(), 1, "a reload tells that the skill changed");
    for (text, what) in [
        ("Knead.", "does not begin with a name and a description between two lines `---`"),
        ("---\nname: x\n", "does not begin with a name and a description"),
        ("---\nname: [\n---\nx", "has a begin that is not YAML"),
        ("---\nname: x\n---\nx", "needs a `description` of 1 to 1024 bytes"),
        ("---\nname: a b\ndescription: d\n---\nx", "names the skill \"a b\": a name is"),
        ("---\ndescription: d\n---\n \n", "needs 1 to 65536 bytes of instructions; it has 0"),
        ("---\nname: bake\ndescription: d\n---\nx", "there are two skills named \"bake\""),
    ] {
        write("a", text);
        let told = mistakes(&format!("[skills]\ndirectories = ['{path}']\n"));
        assert!(told.contains(what), "{told}\n{what}");
    }
    assert!(mistakes("[skills]\ndirectories = ['nowhere']\n").contains("nowhere cannot be read"));
}
