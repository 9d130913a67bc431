//! A summary that is made by rules: what the user asked, which tools were called, what is still open, which files were named.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::agent::context::fit::words::{head, line};
use crate::llm::message_parts;
use crate::types::conversation::{Part, lines};
use crate::types::{Message, Role};

/// Most characters of a summary.
const MOST: usize = 4_000;
/// Most characters of one item.
const ITEM: usize = 160;
/// Most characters of what an earlier summary says.
const EARLIER: usize = 1_500;
/// Newest requests of the user.
const REQUESTS: usize = 3;
/// Newest things that are still open.
const OPEN: usize = 3;
/// Files, newest last.
const FILES: usize = 8;
/// Words by which something is still open.
const OPEN_WORDS: [&str; 5] = ["todo", "next", "pending", "remaining", "follow up"];
/// How the names of files end.
const FILE_ENDS: [&str; 16] = [
    ".rs", ".go", ".ts", ".js", ".py", ".md", ".toml", ".json", ".yaml", ".yml", ".sh", ".sql", ".html", ".css",
    ".java", ".txt",
];
/// What precedes an earlier summary. A later one leaves this line out, so that they do not nest.
const BEFORE: &str = "Before that:";

/// What is found in messages.
#[derive(Default)]
struct Found {
    users: usize,
    assistants: usize,
    results: usize,
    tools: BTreeSet<String>,
    requests: Vec<String>,
    open: Vec<String>,
    files: Vec<String>,
    work: String,
}

/// A summary of these messages, before which an `earlier` one was made.
#[must_use]
pub fn summary<'m>(messages: impl Iterator<Item = &'m Message>, earlier: Option<&str>) -> String {
    let mut found = Found::default();
    for message in messages {
        found.add(message);
    }
    head(&found.write(earlier), MOST)
}

impl Found {
    fn add(&mut self, message: &Message) {
        let Ok(parts) = message_parts(message) else { return };
        let text = lines(&parts.list);
        match message.role {
            Role::User => {
                self.users += 1;
                self.requests.push(line(&text, ITEM));
            }
            Role::Assistant => {
                self.assistants += 1;
                self.tools.extend(parts.list.iter().filter_map(Part::as_call).map(|call| call.name.clone()));
                let said: Vec<&str> = parts.list.iter().filter_map(Part::as_text).collect();
                if !said.is_empty() {
                    self.work = line(&said.join(" "), 200);
                }
            }
            Role::Tool => self.results += 1,
            Role::System | Role::Developer => return,
        }
        if message.role != Role::Tool {
            let is_open = |text: &&str| OPEN_WORDS.iter().any(|word| text.to_lowercase().contains(word));
            self.open.extend(text.lines().filter(is_open).map(|text| line(text, ITEM)));
        }
        for word in text.split(|letter: char| letter.is_whitespace() || "\"'`()[]{},;:".contains(letter)) {
            let word = word.trim_end_matches('.');
            if word.contains('/') && FILE_ENDS.iter().any(|end| word.ends_with(end)) && word.len() <= ITEM {
                self.files.retain(|known| known != word);
                self.files.push(word.to_owned());
            }
        }
    }

    fn write(&self, earlier: Option<&str>) -> String {
        let Self { users, assistants, results, .. } = self;
        let mut text =
            format!("{users} messages of the user, {assistants} of the assistant, {results} results of tools.\n");
        if !self.tools.is_empty() {
            let tools: Vec<&str> = self.tools.iter().map(String::as_str).collect();
            writeln!(text, "Tools that were called: {}.", tools.join(", ")).expect("a string takes it");
        }
        list(&mut text, "What the user asked, newest last:", newest(&self.requests, REQUESTS));
        list(&mut text, "Still open:", newest(&self.open, OPEN));
        list(&mut text, "Files:", newest(&self.files, FILES));
        if !self.work.is_empty() {
            writeln!(text, "What the assistant said last: {}", self.work).expect("a string takes it");
        }
        if let Some(earlier) = earlier.filter(|earlier| !earlier.is_empty()) {
            let flat: Vec<&str> = earlier.lines().filter(|line| *line != BEFORE).collect();
            writeln!(text, "{BEFORE}\n{}", head(&flat.join("\n"), EARLIER)).expect("a string takes it");
        }
        text
    }
}

fn newest(items: &[String], most: usize) -> &[String] {
    &items[items.len().saturating_sub(most)..]
}

fn list(text: &mut String, title: &str, items: &[String]) {
    if !items.is_empty() {
        writeln!(text, "{title}").expect("a string takes it");
        for item in items {
            writeln!(text, "- {item}").expect("a string takes it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{CallId, ToolCall};

    #[test]
    fn it_says_what_was_asked_called_named_and_left_open() {
        let call = ToolCall {
            id: CallId::foreign("c"),
            name: "read_file".into(),
            arguments: r#"{"path":"src/a/b.rs"}"#.into(),
        };
        let messages = [
            Message::text(Role::User, "Mend src/main.rs.\nTODO: write tests"),
            Message::assistant("I read it.", &[call]),
            Message::tool(&CallId::foreign("c"), "fn next() {}"),
            Message::text(Role::User, "And now?"),
        ];
        insta::assert_snapshot!(summary(messages.iter(), Some("1 messages of the user\nBefore that:\nolder")), @r"
        2 messages of the user, 1 of the assistant, 1 results of tools.
        Tools that were called: read_file.
        What the user asked, newest last:
        - Mend src/main.rs. TODO: write tests
        - And now?
        Still open:
        - TODO: write tests
        Files:
        - src/main.rs
        - src/a/b.rs
        What the assistant said last: I read it.
        Before that:
        1 messages of the user
        older
        ");
    }

    #[test]
    fn it_does_not_grow_with_what_it_is_of() {
        let long = Message::text(Role::User, &"next word ".repeat(10_000));
        let once = summary([&long].into_iter(), None);
        let again = (0..20).fold(once, |earlier, _| summary([&long; 9].into_iter(), Some(&earlier)));
        assert!(again.chars().count() <= MOST + 1, "{}", again.len());
    }
}
