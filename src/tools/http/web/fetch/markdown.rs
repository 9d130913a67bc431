//! A page as text with the marks of Markdown: headings, lists, links, code and tables. Pure.
//!
//! The library splits the page into tags and text; no tree is built. So a page takes time and memory in proportion to its
//! length, however deeply its elements are nested, and one that is broken off is read as far as it goes. What stands around
//! the content of a page, such as navigation, is left out, unless next to nothing would remain.

use std::cell::RefCell;
use std::ops::Range;
use std::time::Duration;

use html5ever::interface::TokenizerResult;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};
use tokio::time::Instant;
use url::Url;

use super::text::Text;

/// So many bytes are read at a time; between them the time is looked at.
const STEP: usize = 4 << 10;
/// Most time for a page. Only a page that is made for it takes so long.
const MOST_TIME: Duration = Duration::from_secs(2);
/// A page with less text than this is read again with all that stands around it.
const LEAST_TEXT: usize = 200;
/// What is marked as the content is taken for it if it is at least this part of the page.
const LEAST_PART: usize = 5;
/// Longest address of a link that is shown.
const MAX_LINK: usize = 1_000;

/// What is never text.
const UNSEEN: [&str; 13] = [
    "script", "style", "noscript", "template", "svg", "math", "iframe", "object", "canvas", "select", "button",
    "audio", "video",
];
/// What stands around the content.
const AROUND: [&str; 5] = ["nav", "footer", "aside", "form", "dialog"];

/// A page that can be read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// Its title; may be empty.
    pub(super) title: String,
    /// Its text.
    pub(super) text: String,
    /// Whether it is read in part, for the time that it takes.
    pub(super) was_cut: bool,
}

/// Reads a page. Addresses in it are completed by `base`.
pub(super) fn read(html: &str, base: &Url) -> Page {
    let content = read_with(html, base, true);
    if content.text.len() >= LEAST_TEXT || content.was_cut {
        return content;
    }
    let all = read_with(html, base, false);
    if all.text.len() > content.text.len() * 2 { all } else { content }
}

fn read_with(html: &str, base: &Url, leaves_out: bool) -> Page {
    let sink = Sink(RefCell::new(Reader::new(base.clone(), leaves_out)));
    let tokenizer = Tokenizer::new(sink, TokenizerOpts::default());
    let begun = Instant::now();
    let (input, mut rest, mut was_cut) = (BufferQueue::default(), html, false);
    while !rest.is_empty() && !was_cut {
        let (step, after) = rest.split_at(rest.floor_char_boundary(STEP));
        input.push_back(StrTendril::from_slice(step));
        // A script or a declared encoding interrupts the reading; neither means anything here.
        while !matches!(tokenizer.feed(&input), TokenizerResult::Done) {}
        rest = after;
        was_cut = begun.elapsed() > MOST_TIME;
    }
    if !was_cut {
        tokenizer.end();
    }
    let Reader { title, text, mut content, content_begin, .. } = tokenizer.sink.0.into_inner();
    // One that was not closed reaches to the end.
    content.extend(content_begin.map(|begin| begin..text.len()));
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    Page { title, text: text.finish(&content, LEAST_PART), was_cut }
}

struct Sink(RefCell<Reader>);

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut reader = self.0.borrow_mut();
        match token {
            Token::TagToken(tag) => return reader.tag(&tag),
            Token::CharacterTokens(text) => reader.characters(&text),
            Token::DoctypeToken(_)
            | Token::CommentToken(_)
            | Token::NullCharacterToken
            | Token::EOFToken
            | Token::ParseError(_) => {}
        }
        TokenSinkResult::Continue
    }
}

/// What of the page was read.
struct Reader {
    base: Url,
    leaves_out: bool,
    title: String,
    in_title: bool,
    text: Text,
    /// The element that is left out, and how many of its name are open.
    left_out: Option<(String, usize)>,
    /// How many elements are open that are marked as the content, and where the text of the outermost one begins.
    contents: usize,
    content_begin: Option<usize>,
    /// Where the text of those stands that are closed: in order, and none within another.
    content: Vec<Range<usize>>,
    /// The address of the link that is open, and where its text begins.
    link: Option<(String, usize)>,
    /// The lists that are open: the number of the next item, where they are numbered.
    lists: Vec<Option<u32>>,
    cells: usize,
}

impl Reader {
    fn new(base: Url, leaves_out: bool) -> Self {
        Self {
            base,
            leaves_out,
            title: String::new(),
            in_title: false,
            text: Text::default(),
            left_out: None,
            contents: 0,
            content_begin: None,
            content: Vec::new(),
            link: None,
            lists: Vec::new(),
            cells: 0,
        }
    }

    fn characters(&mut self, text: &str) {
        if self.in_title {
            self.title.push_str(text);
        } else if self.left_out.is_none() {
            self.text.push(text);
        }
    }

    fn tag(&mut self, tag: &Tag) -> TokenSinkResult<()> {
        let name: &str = &tag.name;
        match tag.kind {
            TagKind::StartTag => {
                if self.skips(name, tag) {
                    return raw(name);
                }
                self.begin(name, tag);
                raw(name)
            }
            TagKind::EndTag => {
                if let Some((of, open)) = &mut self.left_out {
                    if *of == name {
                        *open -= 1;
                        self.left_out = Some((of.clone(), *open)).filter(|(_, open)| *open > 0);
                    }
                } else {
                    self.end(name);
                }
                TokenSinkResult::Continue
            }
        }
    }

    /// Whether the element is left out, or stands in one that is.
    fn skips(&mut self, name: &str, tag: &Tag) -> bool {
        if let Some((of, open)) = &mut self.left_out {
            *open += usize::from(*of == name && !tag.self_closing);
            return true;
        }
        let is_around = self.leaves_out && (AROUND.contains(&name) || (name == "header" && self.contents == 0));
        let is_hidden = attribute(tag, "hidden").is_some() || attribute(tag, "aria-hidden") == Some("true");
        let leaves_out = UNSEEN.contains(&name) || is_around || (is_hidden && !is_void(name));
        if leaves_out && !tag.self_closing {
            self.left_out = Some((name.to_owned(), 1));
        }
        leaves_out
    }

    fn begin(&mut self, name: &str, tag: &Tag) {
        match name {
            "title" => self.in_title = self.title.is_empty(),
            "base" => {
                if let Some(base) = attribute(tag, "href").and_then(|href| self.base.join(href).ok()) {
                    self.base = base;
                }
            }
            "main" | "article" => {
                self.text.paragraph();
                self.content_begin.get_or_insert(self.text.len());
                self.contents += 1;
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.text.paragraph();
                let level = usize::from(name.as_bytes()[1] - b'0');
                self.text.mark(&format!("{} ", "#".repeat(level)));
            }
            "a" => {
                self.close_link();
                let address = attribute(tag, "href").and_then(|href| self.address(href));
                self.link = address.map(|address| (address, self.text.mark("[")));
            }
            "img" => {
                if let Some(words) = attribute(tag, "alt").filter(|words| !words.trim().is_empty()) {
                    self.text.push(&format!("[image: {}]", words.trim()));
                }
            }
            "hr" => {
                self.text.paragraph();
                self.text.rule("---");
                self.text.paragraph();
            }
            _ => self.begin_block(name),
        }
    }

    fn begin_block(&mut self, name: &str) {
        match name {
            "ul" | "ol" | "menu" => {
                self.break_before_list();
                self.lists.push((name == "ol").then_some(1));
            }
            "li" => {
                self.text.line();
                let depth = self.lists.len().clamp(1, 8) - 1;
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    Some(None) | None => "- ".to_owned(),
                };
                self.text.mark(&format!("{}{mark}", "  ".repeat(depth)));
            }
            "pre" => {
                self.text.paragraph();
                self.text.rule("```\n");
                self.text.preformat(true);
            }
            "code" | "kbd" | "samp" => self.text.inline_mark("`"),
            "blockquote" => {
                self.text.paragraph();
                self.text.mark("> ");
            }
            "tr" => {
                self.text.line();
                self.cells = 0;
            }
            "td" | "th" => {
                if self.cells > 0 {
                    self.text.rule(" | ");
                }
                self.cells += 1;
            }
            "br" | "dt" | "dd" | "option" | "summary" => self.text.line(),
            _ if is_block(name) => self.text.paragraph(),
            _ => {}
        }
    }

    fn end(&mut self, name: &str) {
        match name {
            "title" => self.in_title = false,
            "main" | "article" => {
                self.text.paragraph();
                self.contents = self.contents.saturating_sub(1);
                if self.contents == 0
                    && let Some(begin) = self.content_begin.take()
                    && begin < self.text.len()
                {
                    self.content.push(begin..self.text.len());
                }
            }
            "a" => self.close_link(),
            "ul" | "ol" | "menu" => {
                self.lists.pop();
                self.break_before_list();
            }
            "pre" => {
                self.text.preformat(false);
                self.text.line();
                self.text.rule("```");
                self.text.paragraph();
            }
            "code" | "kbd" | "samp" => self.text.inline_mark("`"),
            "tr" | "li" | "dt" | "dd" => self.text.line(),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.text.paragraph(),
            _ if is_block(name) => self.text.paragraph(),
            _ => {}
        }
    }

    /// A list is a paragraph; one within another is not.
    fn break_before_list(&mut self) {
        if self.lists.is_empty() { self.text.paragraph() } else { self.text.line() }
    }

    fn close_link(&mut self) {
        let Some((address, begin)) = self.link.take() else { return };
        self.text.close_link(begin, &address);
    }

    /// The whole address of a link that leads to another page.
    fn address(&self, href: &str) -> Option<String> {
        let href = href.trim();
        if href.is_empty() || href.starts_with('#') || href.len() > MAX_LINK {
            return None;
        }
        let url = self.base.join(href).ok()?;
        let is_shown = matches!(url.scheme(), "http" | "https" | "mailto") && url.as_str().len() <= MAX_LINK;
        is_shown.then(|| url.into())
    }
}

/// Elements whose content is no HTML.
fn raw(name: &str) -> TokenSinkResult<()> {
    match name {
        "script" => TokenSinkResult::RawData(RawKind::ScriptData),
        "style" | "iframe" | "noembed" | "noframes" | "xmp" => TokenSinkResult::RawData(RawKind::Rawtext),
        "title" | "textarea" => TokenSinkResult::RawData(RawKind::Rcdata),
        _ => TokenSinkResult::Continue,
    }
}

fn attribute<'a>(tag: &'a Tag, name: &str) -> Option<&'a str> {
    tag.attrs.iter().find(|attribute| &*attribute.name.local == name).map(|attribute| &*attribute.value)
}

/// Elements that have no content, and no end tag.
fn is_void(name: &str) -> bool {
    matches!(
        name,
        "area"
            | "base"
            | "br"
            | "col"
            | "embed"
            | "hr"
            | "img"
            | "input"
            | "link"
            | "meta"
            | "source"
            | "track"
            | "wbr"
    )
}

fn is_block(name: &str) -> bool {
    matches!(
        name,
        "p" | "div"
            | "section"
            | "header"
            | "footer"
            | "nav"
            | "aside"
            | "form"
            | "fieldset"
            | "figure"
            | "figcaption"
            | "address"
            | "table"
            | "thead"
            | "tbody"
            | "caption"
            | "dl"
            | "details"
            | "blockquote"
            | "body"
            | "center"
    )
}
