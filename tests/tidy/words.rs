//! Words of the edge stay at the edge: what a run is does not depend on who asks or who answers.

use super::texts;

/// What must not know how it is spoken of outside. HTTP tools speak HTTP, and so do some servers of tools: they are excepted.
const INWARD: [&str; 4] = ["src/agent/", "src/store/", "src/tools/", "src/types/"];
const EXCEPTED: [&str; 4] =
    ["src/tools/http/", "src/tools/mcp/auth/", "src/tools/mcp/named/reach.rs", "src/tools/mcp/streamable"];

/// HTTP's words, and OpenAI's.
const WORDS: [&str; 11] = [
    "StatusCode",
    "http::",
    "reqwest",
    "axum",
    "openai",
    "finish_reason",
    "\"tool_choice\"",
    "\"tool_calls\"",
    "\"tool_call_id\"",
    "\"image_url\"",
    "chatcmpl",
];

/// Where such a word still stands, and why. Only ever shorter.
const REMAINING: [(&str, &str); 1] = [
    // A message that is kept as it came says in which dialect.
    ("src/types/conversation/part.rs", "openai"),
];

#[test]
fn words_of_the_edge_stand_at_the_edge() {
    let mut found = Vec::new();
    for (path, text) in texts() {
        found.extend(words(&path, &text).into_iter().map(|(line, word)| (path.clone(), line, word)));
    }
    let is_known = |path: &str, word: &str| REMAINING.contains(&(path, word));
    let new: Vec<_> = found.iter().filter(|(path, _, word)| !is_known(path, word)).collect();
    assert!(new.is_empty(), "belongs to src/api/ or src/llm/: {new:#?}");
    let gone = |(path, word): &&(&str, &str)| !found.iter().any(|(at, _, said)| (at.as_str(), *said) == (*path, *word));
    let gone: Vec<_> = REMAINING.iter().filter(gone).collect();
    assert!(gone.is_empty(), "no longer there, take it off the list: {gone:#?}");
}

/// The edge's words in the code of an inward file, each with its line.
fn words(path: &str, text: &str) -> Vec<(usize, &'static str)> {
    let is_inward = INWARD.iter().any(|part| path.starts_with(part));
    let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
    if !is_inward || is_test || EXCEPTED.iter().any(|part| path.starts_with(part)) {
        return Vec::new();
    }
    // What follows is the file's own tests.
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let lines = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    let said = |line: &str| {
        let lower = line.to_lowercase();
        WORDS.into_iter().filter(move |word| lower.contains(&word.to_lowercase()))
    };
    lines.flat_map(|(number, line)| said(line).map(move |word| (number + 1, word))).collect()
}

#[test]
fn a_word_of_the_edge_is_found_in_code_and_nowhere_else() {
    let text = "//! OpenAI's.\nuse http::StatusCode;\n/// chatcmpl-1\nlet dialect = Dialect::OpenaiChat;\n\
                #[cfg(test)]\nmod tests {\n    finish_reason\n}\n";
    assert_eq!(words("src/agent/new.rs", text), [(2, "StatusCode"), (2, "http::"), (4, "openai")]);
    for path in ["src/api/new.rs", "src/llm/new.rs", "src/tools/http/new.rs", "src/agent/tests/new.rs"] {
        assert_eq!(words(path, text), [], "{path}");
    }
}
