//! Which file of `src` uses which: every path that begins with `crate`, `self`, `super` or a child's name,
//! resolved to the file that defines what it names, whoever hands that on. What is compiled for tests alone
//! does not count.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Word, without_tests, words};

/// A module's path from the crate's root.
type Module = Vec<String>;

/// The files of `src` and what they use.
#[derive(Debug, Default)]
pub(super) struct Modules {
    files: BTreeMap<Module, File>,
}

#[derive(Debug, Default)]
struct File {
    path: String,
    /// What other files find here although it is defined elsewhere.
    handed_on: BTreeMap<String, Module>,
    /// What it names, with the line.
    named: Vec<(Module, usize)>,
}

/// That one file uses another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    pub(super) from: String,
    pub(super) line: usize,
    pub(super) to: String,
}

impl Modules {
    /// The modules of these files, paths and texts.
    pub(super) fn of<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut modules = Self::default();
        let files: Vec<_> = files.into_iter().filter(|(path, _)| is_source(path)).collect();
        for (path, _) in &files {
            let file = File { path: (*path).to_owned(), ..File::default() };
            modules.files.insert(module_of(path), file);
        }
        for (path, text) in files {
            let (all, module) = (words(text), module_of(path));
            let (handed_on, named) = Reader { modules: &modules, module: module.clone() }.read(&without_tests(&all));
            if let Some(file) = modules.files.get_mut(&module) {
                (file.handed_on, file.named) = (handed_on, named);
            }
        }
        modules
    }

    /// Who uses whom, each pair once.
    pub(super) fn uses(&self) -> Vec<Use> {
        let mut seen = BTreeSet::new();
        let mut uses = Vec::new();
        for (module, file) in &self.files {
            for (path, line) in &file.named {
                let home = self.home(path, 0);
                if home != *module && seen.insert((module, home.clone())) {
                    let to = self.files[&home].path.clone();
                    uses.push(Use { from: file.path.clone(), line: *line, to });
                }
            }
        }
        uses
    }

    /// The module that defines what a path names.
    fn home(&self, path: &[String], hops: usize) -> Module {
        let length = (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length])).unwrap_or(0);
        let (module, rest) = path.split_at(length);
        let handed_on = rest.first().and_then(|name| self.files.get(module)?.handed_on.get(name));
        match handed_on {
            Some(further) if hops < 8 => self.home(&[further.as_slice(), &rest[1..]].concat(), hops + 1),
            Some(_) | None => module.to_vec(),
        }
    }

    /// The circles: groups of files each of which can be reached from each other.
    pub(super) fn circles(&self) -> Vec<BTreeSet<String>> {
        let mut reached: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for used in self.uses() {
            reached.entry(used.from).or_default().insert(used.to);
        }
        loop {
            let mut grown = reached.clone();
            for known in grown.values_mut() {
                let further: Vec<_> = known.iter().filter_map(|to| reached.get(to)).flatten().cloned().collect();
                known.extend(further);
            }
            if grown == reached {
                break;
            }
            reached = grown;
        }
        let circles = reached.iter().filter(|(from, known)| known.contains(*from)).map(|(from, known)| {
            let back = |to: &&String| reached.get(*to).is_some_and(|known| known.contains(from));
            known.iter().filter(back).cloned().collect::<BTreeSet<_>>()
        });
        circles.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

fn is_source(path: &str) -> bool {
    let is_rust = path.strip_prefix("src/").and_then(|path| path.strip_suffix(".rs")).is_some();
    is_rust && !path.ends_with("/tests.rs") && !path.contains("/tests/") && path != "src/main.rs"
}

fn module_of(path: &str) -> Module {
    let name = path.trim_start_matches("src/").trim_end_matches(".rs");
    let name = name.strip_suffix("/mod").unwrap_or(name);
    if name == "lib" { Vec::new() } else { name.split('/').map(str::to_owned).collect() }
}

struct Reader<'a> {
    modules: &'a Modules,
    module: Module,
}

type Named = Vec<(Module, usize)>;

impl Reader<'_> {
    fn read(&self, words: &[Word<'_>]) -> (BTreeMap<String, Module>, Named) {
        let (mut handed_on, mut named, mut at) = (BTreeMap::new(), Vec::new(), 0);
        while at < words.len() {
            let before = at.checked_sub(1).map_or("", |before| words[before].text);
            if words[at].text == "use" {
                let end = at + words[at..].iter().position(|word| word.text == ";").unwrap_or(words.len() - at - 1);
                let is_public = before == "pub" || before == ")";
                for (path, name, line) in self.imports(&words[at + 1..end]) {
                    if is_public {
                        handed_on.insert(name, path);
                    } else {
                        named.push((path, line));
                    }
                }
                at = end;
            } else if before == "in" && at > 2 && words[at - 3].text == "pub" {
                // Who may see it, not what it uses.
                at += path_at(&words[at..]).1;
            } else if before != "::" && before != "." && before != "mod" {
                let (path, length) = path_at(&words[at..]);
                if length > 1
                    && let Some(path) = self.absolute(&path)
                {
                    named.push((path, words[at].line));
                    at += length - 1;
                }
            }
            at += 1;
        }
        (handed_on, named)
    }

    /// What a `use` names: the path, the name that it has here, the line.
    fn imports(&self, tree: &[Word<'_>]) -> Vec<(Module, String, usize)> {
        let mut found = Vec::new();
        expand(tree, &[], &mut found);
        let absolute = |(path, name, line): (Vec<String>, String, usize)| Some((self.absolute(&path)?, name, line));
        found.into_iter().filter_map(absolute).collect()
    }

    /// A path from the crate's root; `None` for one that leads elsewhere.
    fn absolute(&self, path: &[String]) -> Option<Module> {
        let mut module = self.module.clone();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" | "loopgate" => (module, rest) = (Vec::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {}
            child => {
                module.push(child.to_owned());
                return self.modules.files.contains_key(&module).then(|| [&self.module, path].concat());
            }
        }
        while rest.first().is_some_and(|name| name == "super") {
            (_, rest) = (module.pop(), &rest[1..]);
        }
        Some([module.as_slice(), rest].concat())
    }
}

/// The path that begins here, and of how many words it is.
fn path_at(words: &[Word<'_>]) -> (Vec<String>, usize) {
    let is_name = |word: &Word<'_>| word.text.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let (mut path, mut length) = (Vec::new(), 0);
    while words.get(length).is_some_and(is_name) {
        path.push(words[length].text.to_owned());
        length += 1;
        if words.get(length).is_none_or(|word| word.text != "::") || !words.get(length + 1).is_some_and(is_name) {
            break;
        }
        length += 1;
    }
    (path, length)
}

/// Adds the paths of a tree such as `a::{b, c as d, e::*}`.
fn expand(tree: &[Word<'_>], prefix: &[String], found: &mut Vec<(Vec<String>, String, usize)>) {
    let (path, length) = path_at(tree);
    let whole = [prefix, &path].concat();
    let line = tree.first().map_or(0, |word| word.line);
    match tree.get(length).map(|word| word.text) {
        Some("as") => {
            let name = tree.get(length + 1).map_or_else(String::new, |word| word.text.to_owned());
            found.push((whole, name, line));
        }
        Some("::") if tree.get(length + 1).is_some_and(|word| word.text == "{") => {
            let inner = &tree[length + 2..tree.len() - 1];
            branches(inner).for_each(|branch| expand(branch, &whole, found));
        }
        Some("::") | None => {
            let whole = if whole.last().is_some_and(|name| name == "self") && whole.len() > 1 {
                whole[..whole.len() - 1].to_vec()
            } else {
                whole
            };
            found.push((whole.clone(), whole.last().cloned().unwrap_or_default(), line));
        }
        Some(_) => {}
    }
}

/// What stands between the commas of one level.
fn branches<'w, 'a>(words: &'w [Word<'a>]) -> impl Iterator<Item = &'w [Word<'a>]> {
    let mut nesting = 0_i32;
    words
        .split(move |word| {
            nesting += match word.text {
                "{" => 1,
                "}" => -1,
                _ => 0,
            };
            word.text == "," && nesting == 0
        })
        .filter(|branch| !branch.is_empty())
}
