//! What the commands about tools share.

use super::super::process::{Failure, complain, env};
use super::super::text::clean;
use crate::config::{Options, Settings};
use crate::server::tools::{Opened, open};
use crate::types::pattern::matches;

/// Exit codes beside 0 for success, 1 for other errors, 2 for a command line that cannot be read and 78 for a wrong
/// configuration.
pub(super) mod exit {
    /// The tool answered with an error.
    pub(in crate::cli::tools) const IS_ERROR: u8 = 3;
    /// Whether the call took effect is not known.
    pub(in crate::cli::tools) const LOST: u8 = 4;
    /// There is no such tool.
    pub(in crate::cli::tools) const NOT_FOUND: u8 = 7;
    /// The arguments are not those that the tool takes: that of a command line that cannot be read.
    pub(in crate::cli::tools) const USAGE: u8 = 2;
}

/// The configuration, and the tools that it gives a server. Says which servers of tools cannot be used.
pub(super) async fn load(options: &Options) -> Result<(Settings, Opened), Failure> {
    let settings = Settings::load(options, &env).map_err(Failure::config)?;
    opened(settings).await
}

/// The same of a configuration that was read.
pub(super) async fn opened(settings: Settings) -> Result<(Settings, Opened), Failure> {
    let opened = open(&settings).await.map_err(Failure::config)?;
    for server in &opened.servers {
        if let Some(why) = server.trouble() {
            let name = &server.config().name;
            complain(clean(&format!("The MCP server `{name}` cannot be used: {why}.")));
        }
    }
    Ok((settings, opened))
}

/// The agents that have the tool.
pub(super) fn agents_with<'a>(settings: &'a Settings, tool: &str) -> Vec<&'a str> {
    let agents = settings.agents.values();
    let has_it = agents.filter(|agent| agent.tools.iter().any(|pattern| matches(pattern, tool)));
    has_it.map(|agent| agent.name.as_str()).collect()
}
