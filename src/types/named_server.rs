//! Servers of tools that a request names, as the request asks for them and as its run keeps them.
//!
//! What is shown to such a server is the caller's secret. It is kept with the specification of the run, so that another
//! process can go on with the run, and goes with it; nothing here shows it to anyone who prints a value.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A server of tools that a request names, as its run keeps it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedServer {
    /// What the names of its tools begin with.
    pub label: String,
    /// Where it listens. It may hold a key.
    pub url: String,
    /// What each request to it shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The tools that are taken, by the names that it gives them, in which `*` stands for any characters; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
}

impl fmt::Debug for NamedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the URL nor a header: each may hold a key.
        f.debug_struct("NamedServer").field("label", &self.label).finish_non_exhaustive()
    }
}

/// What a request asks of a server of tools that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedServer {
    /// Where it stands among the tools of the request, counted from 0.
    pub place: usize,
    /// The server.
    pub server: NamedServer,
    /// If given, only tools of which the server says that they only read, or only others.
    pub only_reading: Option<bool>,
    /// Which calls need an approval.
    pub approval: ServerApproval,
    /// What the server is for, in the caller's words.
    pub description: Option<String>,
}

/// Which calls of a server's tools need an approval because the request says so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ServerApproval {
    /// All.
    #[default]
    Always,
    /// None.
    Never,
    /// All but those that `never` names and `always` does not.
    Unless {
        /// Those that need one in any case.
        always: Option<ToolFilter>,
        /// Those that need none.
        never: Option<ToolFilter>,
    },
}

/// Some of a server's tools. A tool must be in each list that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// The names that the server gives them.
    pub names: Option<Vec<String>>,
    /// Whether the server says that they only read.
    pub reading: Option<bool>,
}

impl ServerApproval {
    /// Whether calls of this tool need an approval. `reads` is what the server says of it.
    #[must_use]
    pub fn asks_for(&self, tool: &str, reads: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Unless { always, never } => {
                let names = |filter: &Option<ToolFilter>| filter.as_ref().is_some_and(|filter| filter.has(tool, reads));
                names(always) || !names(never)
            }
        }
    }
}

impl ToolFilter {
    /// Whether this tool is one of them.
    #[must_use]
    pub fn has(&self, tool: &str, reads: bool) -> bool {
        self.names.as_ref().is_none_or(|names| names.iter().any(|name| name == tool))
            && self.reading.is_none_or(|reading| reading == reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_printed_shows_what_a_server_is_shown() {
        let server = NamedServer {
            label: "crm".to_owned(),
            url: "https://mcp.example.com/SECRET/mcp".to_owned(),
            headers: vec![("authorization".to_owned(), "Bearer SECRET".to_owned())],
            tools: None,
        };
        let asked =
            AskedServer { place: 0, server, only_reading: None, approval: ServerApproval::Always, description: None };
        assert!(!format!("{asked:?}").contains("SECRET"));
    }

    #[test]
    fn a_call_needs_an_approval_unless_the_request_says_that_it_needs_none() {
        let named = |names: &[&str]| {
            Some(ToolFilter { names: Some(names.iter().map(ToString::to_string).collect()), reading: None })
        };
        let reading = Some(ToolFilter { names: None, reading: Some(true) });
        assert!(ServerApproval::default().asks_for("a", true) && !ServerApproval::Never.asks_for("a", false));
        let never = ServerApproval::Unless { always: None, never: named(&["a"]) };
        assert!(!never.asks_for("a", false) && never.asks_for("b", false));
        let both = ServerApproval::Unless { always: named(&["a"]), never: reading.clone() };
        assert!(both.asks_for("a", true), "the stricter counts");
        assert!(!both.asks_for("b", true) && both.asks_for("b", false));
        let only_always = ServerApproval::Unless { always: named(&["a"]), never: None };
        assert!(only_always.asks_for("b", true), "what is not named needs one");
    }
}
