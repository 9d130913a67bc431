//! The pages of a server's list of tools, as far as they are taken.
//!
//! A server may list without end, so the number of pages, that of tools and the bytes of all of them are bounded. What is beyond
//! is left out: the tools before it can still be used.

use serde_json::Value;

use crate::tools::mcp::fault::Fault;

/// Most pages.
const MAX_PAGES: usize = 100;
/// Most tools.
const MAX_TOOLS: usize = 2_000;
/// Most bytes of all tools together, as JSON.
const MAX_BYTES: usize = 8 << 20;

/// What was taken of a list.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// The tools, as the server lists them.
    pub(super) tools: Vec<Value>,
    /// Why the rest was left out, as the end of a sentence about the server.
    pub(super) cut: Option<String>,
    bytes: usize,
    taken: usize,
}

impl Pages {
    /// Takes the tools of a page. Returns where the next page begins, if it is wanted.
    pub(super) fn take(&mut self, mut page: Value) -> Result<Option<String>, Fault> {
        let Some(Value::Array(listed)) = page.get_mut("tools").map(Value::take) else {
            return Err(Fault::Failed("its list of tools is not one of the protocol".to_owned()));
        };
        self.taken += 1;
        for tool in listed {
            self.bytes += tool.to_string().len();
            if self.bytes > MAX_BYTES {
                return Ok(self.cut_off(format!("it lists tools of more than {MAX_BYTES} bytes")));
            }
            if self.tools.len() == MAX_TOOLS {
                return Ok(self.cut_off(format!("it lists more than {MAX_TOOLS} tools")));
            }
            self.tools.push(tool);
        }
        match page["nextCursor"].as_str() {
            // Some servers say so where there is no next page.
            None | Some("") => Ok(None),
            Some(_) if self.taken == MAX_PAGES => {
                Ok(self.cut_off(format!("its list of tools has more than {MAX_PAGES} pages")))
            }
            Some(next) => Ok(Some(next.to_owned())),
        }
    }

    /// Takes no more.
    fn cut_off(&mut self, why: String) -> Option<String> {
        self.cut = Some(why);
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is taken of a list that goes on without end.
    fn taken(page: impl Fn(usize) -> Value) -> Pages {
        let mut pages = Pages::default();
        for number in 0.. {
            let mut page = page(number);
            page["nextCursor"] = "again".into();
            if pages.take(page).unwrap().is_none() {
                break;
            }
        }
        pages
    }

    #[test]
    fn a_list_without_end_takes_bounded_memory_and_what_came_before_is_kept() {
        let short = taken(|number| json!({"tools": [{"name": number}]}));
        assert_eq!((short.tools.len(), short.cut.as_deref()), (100, Some("its list of tools has more than 100 pages")));
        let many = taken(|_| json!({"tools": vec![json!({"name": "a"}); 999]}));
        assert_eq!((many.tools.len(), many.cut.as_deref()), (2_000, Some("it lists more than 2000 tools")));
        let huge = taken(|_| json!({"tools": [{"name": "a", "description": "x".repeat(1 << 20)}]}));
        assert_eq!((huge.tools.len(), huge.cut.as_deref()), (7, Some("it lists tools of more than 8388608 bytes")));
    }

    #[test]
    fn the_last_page_names_no_next() {
        let mut pages = Pages::default();
        assert_eq!(pages.take(json!({"tools": [1], "nextCursor": "b"})).unwrap().as_deref(), Some("b"));
        assert_eq!(pages.take(json!({"tools": [2], "nextCursor": ""})).unwrap(), None);
        assert_eq!((pages.tools, pages.cut), (vec![json!(1), json!(2)], None));
        assert!(Pages::default().take(json!({"tools": {}})).is_err());
    }
}
