//! The tools. Of HTTP tools: that their addresses can be resolved and reached, and that their headers are safe on the way. No tool is
//! called.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use url::Url;

use super::finding::Finding;
use super::openapi;
use crate::config::{HttpToolConfig, Settings};
use crate::net::public_address::is_private_host;
#[cfg(feature = "run-code")]
use crate::tools::code;
use crate::tools::http::{self, HttpTool};

/// How long a name server and a service may take.
const MOST_TIME: Duration = Duration::from_secs(5);

/// Looks at all tools at the same time.
pub(in crate::cli) async fn check(settings: &Settings) -> Vec<Finding> {
    let mut findings: Vec<_> = join_all(settings.tools.iter().map(examine)).await.into_iter().flatten().collect();
    #[cfg(feature = "run-code")]
    findings.extend(run_code(settings));
    findings.extend(join_all(settings.openapi.iter().map(openapi::examine)).await.into_iter().flatten());
    findings
}

/// Whether there are interpreters for code.
#[cfg(feature = "run-code")]
fn run_code(settings: &Settings) -> Option<Finding> {
    let config = settings.builtin_tools.run_code.as_ref()?;
    let area = "tools.run_code";
    Some(match code::RunCode::new(config, None) {
        Ok(_) => {
            let names: Vec<_> = config.languages.iter().map(|language| language.name.as_str()).collect();
            Finding::ok(area, format!("code can be run in {}", names.join(", ")))
        }
        Err(why) => Finding::fail(area, why).advice("Name a WebAssembly module for WASI preview 1 as `module`."),
    })
}

async fn examine(tool: &HttpToolConfig) -> Vec<Finding> {
    let area = format!("tools.{}", tool.name);
    let usable = http::client().map_err(|error| error.to_string());
    let usable = usable.and_then(|client| HttpTool::new(tool, client).map_err(|error| error.to_string()));
    if let Err(error) = usable {
        return vec![Finding::fail(area, error)];
    }
    // Placeholders stand after the host only. The path and query are not shown: they may hold a key.
    let Some((url, host)) = Url::parse(&tool.url).ok().and_then(|url| Some((url.clone(), url.host_str()?.to_owned())))
    else {
        return vec![Finding::fail(area, "its URL names no host").advice("Write a URL such as https://host/path.")];
    };
    let port = url.port_or_known_default().unwrap_or(80);
    let mut findings = vec![reach(&area, host.trim_matches(['[', ']']), port).await];
    if url.scheme() == "http" && !tool.headers.is_empty() && !is_private_host(&url) {
        let message = format!("sends its headers to {host} without encryption");
        findings.push(Finding::warn(area, message).advice("Use https, unless the network between is yours."));
    }
    findings
}

/// Resolves a name and opens a connection that nothing is sent over.
async fn reach(area: &str, host: &str, port: u16) -> Finding {
    let addresses = match timeout(MOST_TIME, lookup_host((host, port))).await {
        Ok(Ok(addresses)) => addresses.collect::<Vec<_>>(),
        Ok(Err(error)) => {
            return Finding::fail(area, format!("the name {host} cannot be resolved: {error}"))
                .advice("Check the host of its `url`, and this machine's name servers.");
        }
        Err(_) => {
            return Finding::fail(area, format!("the name {host} is not resolved within {} s", MOST_TIME.as_secs()))
                .advice("Check this machine's name servers.");
        }
    };
    match timeout(MOST_TIME, TcpStream::connect(&addresses[..])).await {
        Ok(Ok(_)) => Finding::ok(area, format!("{host}:{port} can be reached")),
        Ok(Err(error)) => Finding::warn(area, format!("{host}:{port} cannot be reached: {error}"))
            .advice("Calls fail until its service listens there."),
        Err(_) => Finding::warn(area, format!("{host}:{port} does not answer within {} s", MOST_TIME.as_secs()))
            .advice("Calls fail until its service listens there, and networks between let connections pass."),
    }
}
