//! This machine: its port, its limit on open files, its certificate authorities.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::super::client::{Client, local_url};
use super::finding::Finding;
use crate::config::{HttpUpstream, Settings, StoreUrl, UpstreamKind};
use crate::llm::http::http_client;

/// How long what listens here may take to say what it is.
const MOST_TIME: Duration = Duration::from_secs(3);
/// Files besides connections: the store, logs, name servers.
const OTHER_FILES: u64 = 200;
/// A run with a reader takes a connection to the client and one to the model.
const FILES_OF_A_STREAM: u64 = 2;

/// What of this machine a server needs.
pub(super) async fn check(settings: &Settings) -> Vec<Finding> {
    let listen = settings.server.listen;
    let mut findings = vec![match TcpListener::bind(listen).await {
        Ok(_) => Finding::ok("port", format!("{listen} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => in_use(listen).await,
        Err(error) => Finding::fail("port", format!("cannot listen on {listen}: {error}")).advice(
            "Choose an address of this machine with --listen or server.listen, and a port that this user may use.",
        ),
    }];
    let files = getrlimit(Resource::Nofile).current;
    findings.push(judge_files(files, settings.server.max_connections));
    if uses_tls(settings) {
        findings.push(match http_client(Duration::from_secs(1)) {
            Ok(_) => Finding::ok("tls", "the system's certificate authorities can be read"),
            Err(error) => Finding::fail("tls", error.to_string())
                .advice("Install the package `ca-certificates`, or name a file of authorities in SSL_CERT_FILE."),
        });
    }
    findings
}

/// Whether what listens already is a Loopgate server.
async fn in_use(listen: SocketAddr) -> Finding {
    let url = local_url(listen);
    let Ok(client) = Client::new(&url, None) else { return taken(listen) };
    let asked = timeout(MOST_TIME, client.get::<Value>(&["healthz"], &[])).await;
    if asked.is_ok_and(|health| health.is_ok_and(|health| health["status"] == "ok")) {
        return Finding::ok("port", format!("a server listens on {listen}, and says that it lives"));
    }
    taken(listen)
}

fn taken(listen: SocketAddr) -> Finding {
    Finding::fail("port", format!("another program listens on {listen}"))
        .advice("Stop that program, or choose another address with --listen or server.listen.")
}

/// Whether a process may open as many files as the configuration allows connections. Pure.
fn judge_files(files: Option<u64>, connections: u32) -> Finding {
    let wanted = u64::from(connections) * FILES_OF_A_STREAM + OTHER_FILES;
    match files {
        None => Finding::ok("files", "a process may open any number of files"),
        Some(files) if files >= wanted => Finding::ok("files", format!("a process may open {files} files")),
        Some(files) => {
            let streams = files.saturating_sub(OTHER_FILES) / FILES_OF_A_STREAM;
            let message = format!(
                "a process may open {files} files, enough for {streams} streams; server.max_connections is {connections}"
            );
            let advice = format!(
                "Raise the limit to {wanted} (`ulimit -n {wanted}`; systemd: LimitNOFILE={wanted}), or lower max_connections."
            );
            Finding::warn("files", message).advice(advice)
        }
    }
}

/// Whether the system's certificate authorities are needed.
fn uses_tls(settings: &Settings) -> bool {
    let is_asked = |http: &HttpUpstream| http.urls().any(|url| url.scheme() == "https");
    let of_system = |http: &HttpUpstream| is_asked(http) && http.connection.authorities.is_none();
    let upstream = |kind: &UpstreamKind| kind.http().is_some_and(of_system);
    let store =
        matches!(&settings.store.url, StoreUrl::Redis(url) if url.tls.as_ref().is_some_and(|tls| tls.ca.is_none()));
    store
        || settings.upstreams.iter().any(|declared| upstream(&declared.kind))
        || settings.tools.iter().any(|tool| tool.url.starts_with("https:"))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_limit_on_files_is_compared_with_the_connections() {
        assert_eq!(judge_files(None, 10_000).level, Level::Ok);
        assert_eq!(judge_files(Some(20_200), 10_000).level, Level::Ok);
        let low = judge_files(Some(1_024), 10_000);
        assert_eq!(low.level, Level::Warn);
        assert!(low.message.contains("enough for 412 streams") && low.advice.unwrap().contains("ulimit -n 20200"));
    }
}
