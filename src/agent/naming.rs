//! Who may name servers of tools in requests, and what these servers say of their tools before a run begins.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::config::{Hints, KeyConfig};
use crate::tools::mcp::{McpServer, NamedServers, NotOpened};
use crate::tools::{RegisteredTool, ToolSource};
use crate::types::named_server::{AskedServer, ToolFilter};
use crate::types::{RunId, Tenant};

/// Most tools of a server of which the caller is told that they are missing.
const MOST_TOLD: usize = 8;

/// How much longer than a server may take its list is waited for.
const GRACE: Duration = Duration::from_secs(1);

/// Who may name servers of tools, and what opens them.
#[derive(Debug)]
pub struct Naming {
    servers: NamedServers,
    /// The names of the keys whose requests may.
    keys: HashSet<String>,
}

/// The servers that a request names, and what they listed once they were asked.
#[derive(Debug)]
pub struct AskedServers {
    /// In the order of the request.
    pub all: Vec<AskedServer>,
    listed: OnceCell<Listed>,
}

/// What the servers of a request listed.
#[derive(Debug)]
pub struct Listed {
    /// The tools that the request takes, each with whether its calls need an approval.
    pub tools: Vec<(Arc<RegisteredTool>, bool)>,
    /// What the caller should know.
    pub warnings: Vec<String>,
    open: OpenServers,
}

/// Why servers that a request names cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NotListed {
    /// The request may not name any.
    #[error("{0}")]
    Forbidden(String),
    /// The server at this place of the request's tools may not be reached.
    #[error("{1}")]
    Refused(usize, String),
    /// There are too many of them.
    #[error("{0}")]
    TooMany(NotOpened),
    /// A server gave no list.
    #[error("the list of tools of the MCP server {label:?} could not be had: {why}")]
    Failed {
        /// What the request calls it.
        label: String,
        /// Why, as the end of a sentence about the server.
        why: String,
    },
}

/// The connections of a run that is not stored yet. They end with this, unless they are kept for the run.
#[derive(Debug)]
struct OpenServers {
    servers: NamedServers,
    run: RunId,
    are_kept: AtomicBool,
}

impl Drop for OpenServers {
    fn drop(&mut self) {
        if !self.are_kept.load(Ordering::Relaxed) {
            self.servers.end(&self.run);
        }
    }
}

impl AskedServers {
    /// These servers, which were not asked yet.
    #[must_use]
    pub fn new(all: Vec<AskedServer>) -> Self {
        Self { all, listed: OnceCell::new() }
    }

    /// Keeps their connections for the run, which begins here.
    pub(super) fn keep(&self) {
        if let Some(listed) = self.listed.get() {
            listed.open.are_kept.store(true, Ordering::Relaxed);
        }
    }
}

impl Naming {
    /// For those of these keys that may, and for callers without a key as the bounds of `servers` say.
    #[must_use]
    pub fn new(servers: NamedServers, keys: &[KeyConfig]) -> Self {
        let keys = keys.iter().filter(|key| key.request_mcp).map(|key| key.name.clone()).collect();
        Self { servers, keys }
    }

    /// What opens servers.
    pub(super) fn servers(&self) -> &NamedServers {
        &self.servers
    }

    /// Refuses a request that may not name these servers.
    pub(super) fn check(&self, asked: &AskedServers, key_name: Option<&str>) -> Result<(), NotListed> {
        let bounds = self.servers.config();
        if !key_name.map_or(bounds.enabled, |name| self.keys.contains(name)) {
            return Err(may_not_name(key_name));
        }
        if u32::try_from(asked.all.len()).is_ok_and(|count| count > bounds.max_servers) {
            let why = format!("a request may name at most {} MCP servers", bounds.max_servers);
            return Err(NotListed::Refused(asked.all.last().map_or(0, |last| last.place), why));
        }
        asked
            .all
            .iter()
            .try_for_each(|one| self.servers.check(&one.server).map_err(|why| NotListed::Refused(one.place, why)))
    }

    /// What the servers of a request list. They are asked once, all at the same time.
    pub(super) async fn listed<'a>(
        &self,
        asked: &'a AskedServers,
        (run, owner): (&RunId, &Arc<str>),
    ) -> Result<&'a Listed, NotListed> {
        asked.listed.get_or_try_init(|| self.list(&asked.all, run, owner)).await
    }

    async fn list(&self, all: &[AskedServer], run: &RunId, owner: &Arc<str>) -> Result<Listed, NotListed> {
        let (servers, run) = (self.servers.clone(), run.clone());
        // What was opened is closed if one of them cannot be.
        let open = OpenServers { servers, run, are_kept: AtomicBool::new(false) };
        let opened = all.iter().map(|asked| {
            let opened = self.servers.open(&open.run, owner, &asked.server);
            opened.map_err(|not_opened| match not_opened {
                NotOpened::Refused(why) => NotListed::Refused(asked.place, why),
                NotOpened::TooManyOfKey(_) | NotOpened::TooMany(_) => NotListed::TooMany(not_opened),
            })
        });
        let opened: Vec<Arc<McpServer>> = opened.collect::<Result<_, _>>()?;
        let first_tries = join_all(opened.iter().map(|server| server.first_try()));
        // They end by themselves, unless this process is about to end and nothing looks after the servers any more.
        drop(timeout(self.servers.config().list_timeout + GRACE, first_tries).await);
        let (mut tools, mut warnings) = (Vec::new(), Vec::new());
        for (asked, server) in all.iter().zip(&opened) {
            let (of_server, missing) = taken(asked, server)?;
            tools.extend(of_server);
            warnings.extend(missing);
        }
        Ok(Listed { tools, warnings, open })
    }
}

/// That callers with this key, or those without one, may name no servers.
pub(super) fn may_not_name(key_name: Option<&str>) -> NotListed {
    NotListed::Forbidden(match key_name {
        Some(_) => {
            "this key may not name MCP servers: `keys.NAME.request_mcp` in the configuration allows it".to_owned()
        }
        None => {
            "requests may not name MCP servers here: `request_mcp.enabled` in the configuration allows it".to_owned()
        }
    })
}

/// A tool of a server, and whether its calls need an approval.
type TakenTool = (Arc<RegisteredTool>, bool);

/// The tools that a request takes of a server, and what the caller should know.
fn taken(asked: &AskedServer, server: &McpServer) -> Result<(Vec<TakenTool>, Vec<String>), NotListed> {
    let label = &asked.server.label;
    let Some(tools) = server.tools() else {
        let why = server.trouble().unwrap_or_else(|| "it does not answer".to_owned());
        return Err(NotListed::Failed { label: label.clone(), why });
    };
    let wanted = ToolFilter { names: None, reading: asked.only_reading };
    let definitions = server.definitions();
    let take = |tool: &Arc<RegisteredTool>| {
        let definition = definitions.iter().find(|definition| definition.name == tool.spec().name)?;
        let (name, Hints { read_only, .. }) = (&definition.own_name, definition.hints);
        wanted.has(name, read_only).then(|| (tool.clone(), asked.approval.asks_for(name, read_only)))
    };
    let taken: Vec<_> = tools.iter().filter_map(take).collect();
    let mut warnings = Vec::new();
    let left_out = server.left_out();
    let unusable: Vec<&str> = left_out.iter().map(|(name, _)| name.as_str()).filter(|name| !name.is_empty()).collect();
    let has = |name: &str| definitions.iter().any(|one| one.own_name == name) || unusable.contains(&name);
    let absent: Vec<&str> = asked
        .server
        .tools
        .iter()
        .flatten()
        .map(String::as_str)
        .filter(|name| !name.contains('*') && !has(name))
        .collect();
    for (what, names) in [("as it does not list them", absent), ("as they cannot be offered", unusable)] {
        if !names.is_empty() {
            let names: Vec<&str> = names.into_iter().take(MOST_TOLD).collect();
            warnings.push(format!("of the MCP server {label:?} these tools are missing, {what}: {}", names.join(", ")));
        }
    }
    Ok((taken, warnings))
}

/// Whose places the servers of a run take.
pub(super) fn owner(tenant: &Tenant, key_name: Option<&str>) -> Arc<str> {
    // A tenant has no `/` in its name.
    format!("{}/{}", tenant.as_str(), key_name.unwrap_or_default()).into()
}
