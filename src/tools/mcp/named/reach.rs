//! Which servers that requests name may be reached, and how: pure decisions over what the request says and the operator allows.

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use url::Url;

use crate::config::{
    McpAccess, McpEffects, McpEndpoint, McpProtocol, McpServerConfig, McpTransport, PinPolicy, RequestMcpConfig,
    Secret, SentValue,
};
use crate::net::guard::{Guard, Refusal};
use crate::types::named_server::NamedServer;

/// How old the list of tools may become: a run keeps the tools that it was accepted with, so this only shows whether the server
/// still answers.
const REFRESH: Duration = Duration::from_secs(300);

/// The URL of a server, if it may be reached. The error is a clause, and names no more of the URL than its host.
pub(super) fn url(server: &NamedServer, config: &RequestMcpConfig, guard: &Guard) -> Result<Url, String> {
    const HTTPS: &str = "the URL must begin with https://";
    let url = guard.parse(&server.url).map_err(|refusal| {
        if refusal == Refusal::Scheme && !config.allow_http { HTTPS.to_owned() } else { refusal.to_string() }
    })?;
    if url.scheme() != "https" && !config.allow_http {
        return Err(HTTPS.to_owned());
    }
    if url.fragment().is_some() {
        return Err("the URL must have no fragment, which is never sent".to_owned());
    }
    let host = url.host_str().unwrap_or_default();
    if config.hosts.as_ref().is_some_and(|hosts| !hosts.name(host)) {
        return Err(Refusal::Host(host.to_owned()).to_string());
    }
    Ok(url)
}

/// How the server at this URL is looked after. The request does not say what repeating a call does, and the server is not
/// believed: no call is made twice.
pub(super) fn config(server: &NamedServer, url: Url, bounds: &RequestMcpConfig) -> McpServerConfig {
    let headers = server.headers.iter().filter_map(|(name, value)| header(name, value)).collect();
    McpServerConfig {
        name: server.label.clone(),
        transport: McpTransport::Http(McpEndpoint { url, headers }),
        effects: McpEffects::default(),
        tools: server.tools.clone().unwrap_or_else(|| vec!["*".to_owned()]),
        exclude: Vec::new(),
        timeout: None,
        start_timeout: bounds.list_timeout,
        refresh: REFRESH,
        protocol: McpProtocol::Auto,
        max_response: bounds.max_response,
        max_concurrent_calls: bounds.max_concurrent_calls,
        access: McpAccess::default(),
        elicitation: None,
        pins: PinPolicy::default(),
    }
}

/// A header as it is sent. All of its value is secret, or what follows the name of a scheme such as `Bearer`.
fn header(name: &str, value: &str) -> Option<(HeaderName, SentValue)> {
    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
    HeaderValue::from_str(value).ok()?;
    let secret = value.split_once(' ').map_or(value, |(_, after)| after.trim_start());
    Some((name, SentValue { whole: Secret::new(value), secret: Some(Secret::new(secret)) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::guard::{Hosts, Policy};

    fn named(url: &str) -> NamedServer {
        NamedServer { label: "s".to_owned(), url: url.to_owned(), headers: Vec::new(), tools: None }
    }

    fn refused(written: &str, config: &RequestMcpConfig) -> String {
        url(&named(written), config, &Guard::new(Policy::default())).map_or_else(|why| why, |url| url.to_string())
    }

    #[test]
    fn only_public_hosts_that_are_allowed_are_reached_and_only_with_tls() {
        let usual = RequestMcpConfig::default();
        assert_eq!(refused("https://mcp.example.com/a?k=1", &usual), "https://mcp.example.com/a?k=1");
        for url in ["http://mcp.example.com/", "ftp://mcp.example.com/", "file:///etc/passwd"] {
            assert_eq!(refused(url, &usual), "the URL must begin with https://", "{url}");
        }
        for url in [
            "https://127.0.0.1/",
            "https://[::1]/",
            "https://localhost/",
            "https://169.254.169.254/",
            "https://2130706433/",
        ] {
            assert!(refused(url, &usual).contains("private, local or reserved"), "{url}: {}", refused(url, &usual));
        }
        assert!(refused("https://a:b@mcp.example.com/", &usual).contains("user name or password"));
        assert!(refused("https://mcp.example.com/#x", &usual).contains("fragment"));
        let listed: Hosts = ["*.example.org".parse().unwrap()].into_iter().collect();
        let listed = RequestMcpConfig { hosts: Some(listed), allow_http: true, ..usual };
        assert_eq!(refused("http://a.example.org/", &listed), "http://a.example.org/");
        assert_eq!(refused("https://8.8.8.8/", &listed), "the host 8.8.8.8 is not one that may be reached");
    }

    #[test]
    fn a_header_is_a_secret_and_is_sent_as_it_is() {
        let bearer = header("Authorization", "Bearer sk-1").unwrap();
        assert_eq!((bearer.0.as_str(), bearer.1.whole.expose()), ("authorization", "Bearer sk-1"));
        assert_eq!(bearer.1.secret.unwrap().expose(), "sk-1");
        assert_eq!(header("x-key", "0123").unwrap().1.secret.unwrap().expose(), "0123");
        assert!(header("x key", "a").is_none() && header("x-key", "a\nb").is_none());
    }
}
