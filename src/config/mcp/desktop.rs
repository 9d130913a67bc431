//! The file in which desktop clients keep their servers: `{"mcpServers": {NAME: {command, args, env} or {url, headers}}}`.
//!
//! What else such a file holds is about other clients, and is ignored.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use url::Url;

use super::super::secret::Secret;
use super::super::sent_value::SentValue;
use super::command::{McpCommand, environment, is_variable, names_secret};
use super::name::cleaned;
use super::server::{McpEndpoint, McpServerConfig, McpTransport};

#[derive(Deserialize)]
struct DesktopFile {
    #[serde(rename = "mcpServers")]
    servers: BTreeMap<String, DesktopServer>,
}

#[derive(Deserialize)]
struct DesktopServer {
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    disabled: bool,
}

/// The servers of such a file that are not disabled. The error is one sentence without secrets.
pub fn read_desktop_file(path: &str, env: impl Fn(&str) -> Option<String>) -> Result<Vec<McpServerConfig>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path} cannot be read: {error}"))?;
    parse(&text, &env).map_err(|what| format!("{path}: {what}"))
}

fn parse(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Vec<McpServerConfig>, String> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let file: DesktopFile = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        // The error's own words may quote a value, which may be a key.
        let (line, column) = (error.inner().line(), error.inner().column());
        format!("{} is not what desktop clients write there, line {line} column {column}", error.path())
    })?;
    let enabled = file.servers.into_iter().filter(|(_, server)| !server.disabled);
    let read = enabled.map(|(name, server)| {
        let known_as = cleaned(&name);
        if known_as.is_empty() {
            return Err(format!("mcpServers.{name}: the name has none of the characters A-Z a-z 0-9 -"));
        }
        let transport = server.transport(env).map_err(|what| format!("mcpServers.{name}: {what}"))?;
        Ok(McpServerConfig::with_defaults(known_as, transport))
    });
    read.collect()
}

impl DesktopServer {
    fn transport(self, env: &dyn Fn(&str) -> Option<String>) -> Result<McpTransport, String> {
        match (self.command, self.url) {
            (Some(program), None) if !program.is_empty() => {
                if let Some(name) = self.env.keys().find(|name| !is_variable(name)) {
                    return Err(format!("{name:?} is not the name of an environment variable"));
                }
                let own: Vec<_> = self.env.into_iter().map(|(name, value)| (name, Secret::new(value))).collect();
                let secrets =
                    own.iter().filter(|(name, _)| names_secret(name)).map(|(_, value)| value.clone()).collect();
                let env = environment(own, env);
                let directory = self.cwd.map(Into::into);
                Ok(McpTransport::Stdio(McpCommand { program, arguments: self.args, env, secrets, directory }))
            }
            (None, Some(url)) => {
                let url = Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
                let url = url.ok_or("its `url` does not begin with http:// or https://")?;
                let headers = self.headers.into_iter().map(|(name, value)| sent_header(&name, &value));
                Ok(McpTransport::Http(McpEndpoint { url, headers: headers.collect::<Result<_, _>>()? }))
            }
            (Some(_), Some(_)) => Err("give `command` or `url`, not both".to_owned()),
            _ => Err("give `command`, to start the server, or the `url` at which it listens".to_owned()),
        }
    }
}

fn sent_header(name: &str, value: &str) -> Result<(HeaderName, SentValue), String> {
    let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is not the name of a header"))?;
    HeaderValue::from_str(value).map_err(|_| format!("the header {name} cannot be sent"))?;
    Ok((known, SentValue { whole: Secret::new(value), secret: Some(Secret::new(value)) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<McpServerConfig>, String> {
        parse(text, &|name| (name == "PATH").then(|| "/bin".to_owned()))
    }

    #[test]
    fn what_desktop_clients_write_is_taken_as_it_is() {
        let servers = parsed(
            r#"{"theme": "dark", "mcpServers": {
                "My Files": {"command": "npx", "args": ["-y", "server", "/data"], "env": {"TOKEN": "t"}, "autoApprove": ["x"]},
                "web": {"type": "http", "url": "https://a.test/mcp", "headers": {"Authorization": "Bearer b"}},
                "off": {"command": "x", "disabled": true}
            }}"#,
        );
        let servers = servers.unwrap();
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["My_Files", "web"]);
        let McpTransport::Stdio(command) = &servers[0].transport else { panic!("{servers:?}") };
        assert_eq!((command.program.as_str(), command.arguments.len()), ("npx", 3));
        let env: Vec<_> = command.env.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        assert_eq!(env, [("TOKEN", "t"), ("PATH", "/bin")]);
        assert_eq!(command.secrets, [Secret::new("t")], "of the environment, only what is given as one is a secret");
        let McpTransport::Http(endpoint) = &servers[1].transport else { panic!("{servers:?}") };
        assert_eq!((endpoint.url.as_str(), endpoint.headers[0].1.whole.expose()), ("https://a.test/mcp", "Bearer b"));
    }

    #[test]
    fn mistakes_are_told_without_values() {
        for (text, what) in [
            (r#"{"mcpServers": {"a": {"command": ["sk-secret"]}}}"#, "mcpServers.a.command is not"),
            (r#"{"mcpServers": {"a": {}}}"#, "mcpServers.a: give `command`"),
            (r#"{"mcpServers": {"a": {"url": "file:///x"}}}"#, "does not begin with http"),
            (r#"{"mcpServers": {"a": {"url": "http://x/", "headers": {"b": "sk-secret\n"}}}}"#, "the header b cannot"),
            ("{", "line 1"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(what) && !error.contains("sk-secret"), "{error}");
        }
    }
}
