//! Every link of a page to a file of the repository, or to a heading of a page, leads there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::texts;

#[test]
fn every_link_of_the_pages_leads_somewhere() {
    let texts = texts();
    let files: BTreeMap<&str, &str> = texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let pages = || files.iter().filter(|(path, _)| is_page(path));
    assert!(pages().map(|(_, text)| links(text).len()).sum::<usize>() > 300, "it looked in the wrong place");
    let dead: Vec<_> = pages().flat_map(|(path, text)| dead(path, text, &files)).collect();
    assert!(dead.is_empty(), "\n{}", dead.join("\n"));
}

fn is_page(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "md")
}

/// The links of a page that lead nowhere, each with its line.
fn dead(page: &str, text: &str, files: &BTreeMap<&str, &str>) -> Vec<String> {
    let mut dead = Vec::new();
    for (line, link) in links(text) {
        let (path, heading) = link.split_once('#').unwrap_or((link, ""));
        let target = if path.is_empty() { page.to_owned() } else { beside(page, path) };
        let below = format!("{target}/");
        let fault = match files.get(target.as_str()) {
            // A folder.
            None if files.keys().any(|path| path.starts_with(&below)) => continue,
            None => "there is no such file",
            Some(text) if !heading.is_empty() && is_page(&target) && !anchors(text).contains(heading) => {
                "the page has no such heading"
            }
            Some(_) => continue,
        };
        dead.push(format!("{page}:{line}: {link}: {fault}"));
    }
    dead
}

/// The path in the repository of what a page calls `path`.
fn beside(page: &str, path: &str) -> String {
    let mut found = PathBuf::new();
    for part in Path::new(page).with_file_name(path).components() {
        match part {
            Component::ParentDir => drop(found.pop()),
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => found.push(part),
        }
    }
    found.to_string_lossy().into_owned()
}

/// The lines of a page that are text and no code, each with its number.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The links of a page to what is not elsewhere, each with its line.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (number, line) in lines(text) {
        // Code goes on over lines, and ends with its paragraph, item or row.
        let begun = line.trim_start();
        is_code &= !(begun.is_empty() || begun.starts_with(['|', '#']) || begun.starts_with("- "));
        for (place, piece) in line.split('`').enumerate() {
            is_code ^= place > 0;
            // A link's text may be code, its address is not.
            let links = piece.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            let ours = links.filter(|link| !is_code && !link.contains(':') && !link.is_empty());
            found.extend(ours.map(|link| (number, link)));
        }
    }
    found
}

/// How links name the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = lines(text).filter_map(|(_, line)| line.strip_prefix('#'));
    let names = headings.map(|rest| rest.trim_start_matches('#').trim().to_lowercase().replace(' ', "-"));
    names.map(|name| name.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()).collect()
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let page = "# The way in\n\n[a](b.md) [b](b.md#one-two) [c](#the-way-in) [d](../src/lib.rs) [e](https://x.y/z) [f](more)\n\
                [g](c.md)\n[`h`](b.md#three) [i](#out)\n```\n[j](no.md)\n```\n`[k](no.md)` [l](../../x) `one\n\
                two [m](no.md)` [n](no.md)\n\n[o](b.md)\n";
    let files = BTreeMap::from([
        ("docs/a.md", page),
        ("docs/b.md", "## One, `two`\n```\n# three\n```\n"),
        ("docs/more/d.txt", ""),
        ("src/lib.rs", ""),
    ]);
    let expected = [
        "docs/a.md:4: c.md: there is no such file",
        "docs/a.md:5: b.md#three: the page has no such heading",
        "docs/a.md:5: #out: the page has no such heading",
        "docs/a.md:9: ../../x: there is no such file",
        "docs/a.md:10: no.md: there is no such file",
    ];
    assert_eq!(dead("docs/a.md", page, &files), expected);
}
