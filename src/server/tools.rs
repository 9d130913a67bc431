//! The tools of a server: those that come with it, and those that the configuration declares.
//!
//! All tools are made here, so that a server and the commands that run without one have the same.

use std::sync::Arc;

use futures_util::future::join_all;

use crate::config::{OpenApiConfig, Settings};
use crate::net::client::{CannotConnect, HttpClient};
use crate::net::fetch::Fetcher;
use crate::net::guard::{Guard, Policy};
#[cfg(feature = "run-code")]
use crate::tools::code;
use crate::tools::http::openapi::{self, OpenApiTools};
use crate::tools::http::{self, HttpTool, web};
use crate::tools::mcp::{McpClients, McpServer, McpServers};
use crate::tools::workspace::offered;
use crate::tools::{Registry, RegistryError, Tool, ToolSource, Workspaces, builtin};

/// Most operations of a document of which the log says why they are no tools.
const MOST_TOLD: usize = 20;

/// What tools reach other servers with. Each is made when a tool needs it, and outlives a configuration as its open
/// connections do.
#[derive(Debug, Default)]
pub struct ToolClients {
    http: Option<HttpClient>,
    /// Tools of the program that the server is part of.
    embedded: Vec<Arc<dyn Tool>>,
    /// With the policy that it holds to.
    fetcher: Option<(Policy, Fetcher)>,
}

impl ToolClients {
    /// Those of a program that has these tools of its own.
    pub(super) fn with(embedded: Vec<Arc<dyn Tool>>) -> Self {
        Self { embedded, ..Self::default() }
    }

    fn http(&mut self) -> Result<HttpClient, CannotConnect> {
        if let Some(client) = &self.http {
            return Ok(client.clone());
        }
        Ok(self.http.insert(http::client()?).clone())
    }

    /// What asks URLs that a model names.
    fn fetcher(&mut self, policy: &Policy) -> Result<Fetcher, CannotConnect> {
        if let Some((_, fetcher)) = self.fetcher.as_ref().filter(|(of, _)| of == policy) {
            return Ok(fetcher.clone());
        }
        let fetcher = Fetcher::new(Guard::new(policy.clone()))?;
        self.fetcher = Some((policy.clone(), fetcher.clone()));
        Ok(fetcher)
    }
}

/// A tool of the configuration, or why there can be none.
#[derive(Debug)]
pub struct Made {
    /// Its name.
    pub name: String,
    /// The tool, or a sentence without secrets.
    pub tool: Result<Arc<dyn Tool>, String>,
}

/// Why there are no tools.
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    /// One of them cannot be made.
    #[error("tool `{name}`: {reason}")]
    Unusable {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// There is no place for files.
    #[error("workspace.directory: {0}")]
    Workspaces(String),
    /// One of them cannot be offered.
    #[error(transparent)]
    Unregistered(#[from] RegistryError),
}

/// The workspaces of these settings, if there are any.
pub fn workspaces(settings: &Settings) -> Result<Option<Arc<Workspaces>>, ToolsError> {
    let made = settings.workspace.as_ref().map(|config| Workspaces::new(config).map(Arc::new)).transpose();
    made.map_err(ToolsError::Workspaces)
}

/// Makes each tool of these settings.
pub fn each(settings: &Settings, workspaces: Option<&Arc<Workspaces>>, clients: &mut ToolClients) -> Vec<Made> {
    let built_in = builtin::all().into_iter().map(|tool| Made { name: tool.spec().name.clone(), tool: Ok(tool) });
    let declared = settings.tools.iter().map(|config| {
        let client = clients.http().map_err(|error| error.to_string());
        let tool = client.and_then(|client| HttpTool::new(config, client).map_err(|error| error.to_string()));
        Made { name: config.name.clone(), tool: tool.map(|tool| Arc::new(tool) as Arc<dyn Tool>) }
    });
    let mut made: Vec<Made> = built_in.chain(declared).collect();
    for config in &settings.openapi {
        made.extend(of_document(config, clients));
    }
    let builtin =
        web::declared(&settings.builtin_tools, || clients.fetcher(&settings.egress).map_err(|error| error.to_string()));
    let of_workspaces = workspaces.into_iter().flat_map(offered::all);
    made.extend(of_workspaces.map(|tool| Made { name: tool.spec().name.clone(), tool: Ok(tool) }));
    made.extend(run_code(settings, workspaces));
    made.extend(clients.embedded.iter().map(|tool| Made { name: tool.spec().name.clone(), tool: Ok(tool.clone()) }));
    made.extend(builtin.into_iter().map(|(name, tool)| Made { name: name.to_owned(), tool }));
    made
}

/// The tool that runs code, if it is declared and this build can run code.
fn run_code(settings: &Settings, workspaces: Option<&Arc<Workspaces>>) -> Option<Made> {
    let config = settings.builtin_tools.run_code.as_ref()?;
    #[cfg(feature = "run-code")]
    let tool = code::RunCode::new(config, workspaces).map(|tool| Arc::new(tool) as Arc<dyn Tool>);
    #[cfg(not(feature = "run-code"))]
    let tool = Err(format!("this build runs no code in {:?} and {workspaces:?}", config.languages));
    Some(Made { name: "run_code".to_owned(), tool })
}

/// The tools of a document, or why there are none.
fn of_document(config: &OpenApiConfig, clients: &mut ToolClients) -> Vec<Made> {
    let client = clients.http().map_err(|error| error.to_string());
    let made = client.and_then(|client| openapi::tools(config, &client).map_err(|error| error.to_string()));
    let OpenApiTools { tools, skipped } = match made {
        Ok(made) => made,
        Err(reason) => return vec![Made { name: format!("{}__*", config.name), tool: Err(reason) }],
    };
    let (openapi, count, left_out) = (&config.name, tools.len(), skipped.len());
    tracing::info!(openapi, tools = count, skipped = left_out, "the operations of a document are tools");
    for skipped in skipped.iter().take(MOST_TOLD) {
        tracing::warn!(openapi, operation = skipped.operation, reason = skipped.reason, "an operation is no tool");
    }
    tools.into_iter().map(|tool| Made { name: tool.spec().name.clone(), tool: Ok(tool) }).collect()
}

/// Fetches the documents that are not in files. The names of those that cannot be had stand in the error.
pub async fn fetch_documents(settings: &mut Settings) -> Result<(), ToolsError> {
    for config in &mut settings.openapi {
        if let (Some(url), None) = (&config.url, &config.document) {
            let unusable = |reason| ToolsError::Unusable { name: format!("{}__*", config.name), reason };
            config.document = Some(openapi::fetch(url).await.map_err(unusable)?.into());
        }
    }
    Ok(())
}

/// All tools of these settings.
pub(super) fn registry(
    settings: &Settings,
    workspaces: Option<&Arc<Workspaces>>,
    clients: &mut ToolClients,
) -> Result<Registry, ToolsError> {
    let made = each(settings, workspaces, clients).into_iter();
    let tools = made.map(|Made { name, tool }| tool.map_err(|reason| ToolsError::Unusable { name, reason }));
    Ok(Registry::new(tools.collect::<Result<Vec<_>, _>>()?)?)
}

/// The tools of a configuration without a server, and what some of them need.
#[derive(Debug)]
pub struct Opened {
    /// The tools.
    pub registry: Registry,
    /// The servers that some of them are of. Each was tried: it has listed its tools, or is in trouble.
    pub servers: Vec<Arc<McpServer>>,
    all: McpServers,
}

impl Opened {
    /// Ends the servers. Returns once their processes have ended.
    pub async fn close(&self) {
        self.all.close().await;
    }
}

/// The tools that a server with these settings would have, for a command that runs without one.
pub async fn open(settings: &Settings) -> Result<Opened, ToolsError> {
    let mut settings = settings.clone();
    fetch_documents(&mut settings).await?;
    let workspaces = workspaces(&settings)?;
    let registry = registry(&settings, workspaces.as_ref(), &mut ToolClients::default())?;
    let (all, mut servers) = (McpServers::default(), Vec::new());
    for config in &settings.mcp {
        let unusable =
            |error: CannotConnect| ToolsError::Unusable { name: config.name.clone(), reason: error.to_string() };
        servers.push(all.start(config, McpClients::new(&settings.egress).map_err(unusable)?, true));
    }
    join_all(servers.iter().map(|server| server.first_try())).await;
    let tools = servers.iter().filter_map(|server| server.tools()).flat_map(|tools| tools.to_vec());
    Ok(Opened { registry: registry.and(tools), servers, all })
}
