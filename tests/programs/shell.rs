//! Which programs a shell script starts: the first word of every command, wherever a command may stand.
//!
//! Reads as much of bash as our scripts use. What it does not know it takes for a program, so its mistakes
//! are complaints.

use std::collections::BTreeSet;

/// Words after which a command still begins.
const BEFORE_COMMANDS: [&str; 14] =
    ["if", "then", "else", "elif", "while", "until", "do", "!", "{", "time", "exec", "as_root", "env", "sudo"];
/// Words that bash knows itself; `kill` and `printf` are among them.
const BUILTINS: &str = "if then else elif while until do ! { time exec . : [ } break case cd command continue done \
                        echo esac exit export false fi for jobs kill local mapfile printf read return set shift \
                        source test trap true unset wait";

/// The functions that a script defines.
pub(super) fn functions(script: &str) -> impl Iterator<Item = &str> {
    script.lines().filter_map(|line| line.split_once("() {")).map(|(name, _)| name)
}

/// The programs that a script starts, as it names them: `curl`, `scripts/run`, `$loopgate`.
pub(super) fn started(script: &str) -> BTreeSet<String> {
    let mut reader = Reader { text: script.chars().collect(), at: 0, started: BTreeSet::new(), documents: Vec::new() };
    reader.commands(None);
    let mut started = reader.started;
    started.retain(|word| !BUILTINS.split_whitespace().any(|builtin| builtin == word));
    let interpreter = script.strip_prefix("#!").and_then(|rest| rest.lines().next()).unwrap_or_default();
    started.extend(interpreter.split_whitespace().filter_map(|word| word.rsplit('/').next()).map(str::to_owned));
    started
}

struct Reader {
    text: Vec<char>,
    at: usize,
    started: BTreeSet<String>,
    /// The last lines of the documents (`<<END`) that begin on the next line.
    documents: Vec<String>,
}

impl Reader {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, expected: &str) -> bool {
        let is_there = expected.chars().eq(self.text.iter().copied().skip(self.at).take(expected.len()));
        self.at += if is_there { expected.len() } else { 0 };
        is_there
    }

    /// Reads commands up to the bracket that closes them, or to the end of the script.
    fn commands(&mut self, closing: Option<char>) {
        let mut begins = true;
        while let Some(c) = self.peek() {
            if Some(c) == closing {
                self.at += 1;
                return;
            }
            match c {
                '#' => drop(self.line()),
                '\n' => {
                    self.at += 1;
                    self.skip_documents();
                    begins = true;
                }
                // A bracket that closes nothing ends a pattern of `case`.
                ';' | '&' | '|' | ')' => {
                    self.at += 1;
                    begins = true;
                }
                '(' => {
                    self.at += 1;
                    self.commands(Some(')'));
                }
                '<' | '>' => self.redirection(),
                _ if c.is_whitespace() || self.take("\\\n") => self.at += usize::from(c != '\\'),
                _ => begins = self.word_of_command(begins, closing),
            }
        }
    }

    /// Reads a word. Returns whether the next one may be the name of a program.
    fn word_of_command(&mut self, begins: bool, closing: Option<char>) -> bool {
        let word = self.word();
        if word == "[[" {
            while self.peek().is_some() && self.word() != "]]" {
                while self.peek().is_some_and(ends_word) {
                    self.at += 1;
                }
            }
            return false;
        }
        let is_descriptor = word.chars().all(|c| c.is_ascii_digit()) && matches!(self.peek(), Some('<' | '>'));
        if !begins || is_descriptor {
            return begins;
        }
        if word.ends_with('=') && self.take("(") {
            while self.peek().is_some() && !self.take(")") {
                let before = self.at;
                self.word();
                self.at += usize::from(self.at == before);
            }
            return true;
        }
        let is_pattern = self.peek() == Some(')') && closing.is_none();
        let is_assignment = word.split_once('=').is_some_and(|(name, _)| is_name(name.trim_end_matches('+')));
        let is_definition = self.take("()");
        let goes_on = is_assignment || is_definition || BEFORE_COMMANDS.contains(&word.as_str());
        if !is_pattern && !is_assignment && !is_definition {
            self.started.insert(word);
        }
        goes_on
    }

    /// Reads a word without its quotes, and the commands that are substituted in it.
    fn word(&mut self) -> String {
        let (mut word, mut is_quoted) = (String::new(), false);
        while let Some(c) = self.peek().filter(|c| is_quoted || !ends_word(*c)) {
            self.at += 1;
            match c {
                '"' => is_quoted = !is_quoted,
                '\'' if !is_quoted => word.push_str(&self.up_to("'")),
                '\\' => word.extend(self.peek().inspect(|_| self.at += 1)),
                '$' if self.take("((") => drop(self.up_to("))")),
                '$' if self.take("(") => {
                    self.commands(Some(')'));
                    word.push_str("$()");
                }
                '$' if self.take("{") => word.extend(["${", &self.up_to("}"), "}"]),
                _ => word.push(c),
            }
        }
        word
    }

    fn redirection(&mut self) {
        if self.take("<<<") {
        } else if self.take("<<") {
            let end = self.word();
            self.documents.push(end);
        } else if self.take("<(") {
            self.commands(Some(')'));
        } else {
            while self.peek().is_some_and(|c| "<>&".contains(c)) {
                self.at += 1;
            }
            while self.peek() == Some(' ') {
                self.at += 1;
            }
            // `< <(…)`: the commands are next.
            if self.peek() != Some('<') {
                self.word();
            }
        }
    }

    fn skip_documents(&mut self) {
        for end in std::mem::take(&mut self.documents) {
            while self.peek().is_some() && self.line() != end {
                self.at += 1;
            }
        }
    }

    fn line(&mut self) -> String {
        let rest = &self.text[self.at..];
        let line: String = rest.iter().take_while(|c| **c != '\n').collect();
        self.at += line.chars().count();
        line
    }

    fn up_to(&mut self, end: &str) -> String {
        let mut skipped = String::new();
        while !self.take(end) {
            let Some(c) = self.peek() else { break };
            skipped.push(c);
            self.at += 1;
        }
        skipped
    }
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || ";&|()<>".contains(c)
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[test]
fn the_programs_of_a_script_are_found_wherever_they_stand() {
    let script = r#"#!/usr/bin/env bash
# comment: awk
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
of_ours() { gawk 1; }
if ! { cat a | cmp -s - "$b"; } 2>&1; then rm -rf "$dir"; fi
case $1 in
    --seed) [[ ${2-} =~ ^([0-9]+)$ ]] || tr a b ;;
    '') ;;
esac
list=("$tools/bin/python" -m pip)
"${list[@]}" $((1 + 2)) 'x; awk' >"$out"
mapfile -t names < <(PATH=/bin sort x | uniq)
cat <<END
yes awk
END
sudo env A=b apt-get install make && scripts/run \
    --once
"#;
    let found: Vec<_> = started(script).into_iter().collect();
    let expected = "${list[@]} apt-get bash cat cmp dirname env gawk rm scripts/run sort sudo tr uniq";
    assert_eq!(found.join(" "), expected);
    assert_eq!(functions(script).collect::<Vec<_>>(), ["of_ours"]);
}
