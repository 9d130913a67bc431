//! `[mcp.NAME]`: servers of the Model Context Protocol, whose tools models may call.
//!
//! `[mcpServers.NAME]` is the same table under the name that desktop clients give it.

mod access;
mod command;
mod credentials;
mod desktop;
mod effect;
mod elicitation;
mod header;
mod name;
mod oauth;
mod server;

use toml::Spanned;
use toml::de::DeValue;
use url::Url;

pub use self::access::{McpAccess, McpSession};
pub use self::command::McpCommand;
pub(super) use self::command::{CommandLine, given_and_passed_on, read_env};
pub use self::credentials::{CallerCredentials, CredentialFile};
use self::desktop::read_desktop_file;
pub use self::effect::{Hints, McpEffects};
use self::header::OWN_HEADERS;
pub use self::header::may_be_chosen as is_free_header;
pub use self::name::{MAX_NAME, is_name};
pub use self::oauth::{ClientAuth, Grant, OAuthConfig};
pub use self::server::{McpEndpoint, McpProtocol, McpServerConfig, McpTransport};
use super::headers::read_headers;
use super::pins::PinPolicy;
use super::quantity::{Size, seconds};
use super::reader::Section;
use super::value::{FromToml, Misread, Word, text};
use super::values::Recorded;

impl Word for McpProtocol {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("initialize", Self::Initialize), ("discover", Self::Discover)];
}

/// The transport as desktop clients name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stdio,
    Http,
    Sse,
}

impl Word for Kind {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("stdio", Self::Stdio),
        ("http", Self::Http),
        ("streamable-http", Self::Http),
        ("streamableHttp", Self::Http),
        ("sse", Self::Sse),
    ];
}

/// The servers of a configuration, in the order of the file.
pub(super) fn read_all(root: &mut Section<'_>) -> Vec<McpServerConfig> {
    let mut servers: Vec<McpServerConfig> = root.named("mcp", None, McpServerConfig::read);
    // The reference describes the table once.
    if !root.is_described() {
        servers.extend(root.named("mcpServers", None, McpServerConfig::read));
    }
    let file: Option<String> = root.optional(
        "mcp_file",
        "File in JSON with the `mcpServers` of a desktop client, which are taken as if they were declared here.",
    );
    if let Some(path) = file {
        match read_desktop_file(&path, |variable| root.env(variable)) {
            Ok(found) => servers.extend(found),
            Err(what) => root.refuse("mcp_file", what),
        }
    }
    for (index, server) in servers.iter().enumerate() {
        if servers[..index].iter().any(|other| other.name == server.name) {
            root.refuse_outside(&format!("mcp.{}", server.name), "two servers have this name");
        }
    }
    servers
}

/// Their names.
pub(super) fn names(servers: &[McpServerConfig]) -> Vec<String> {
    servers.iter().map(|server| server.name.clone()).collect()
}

impl McpServerConfig {
    fn read(name: &str, section: &mut Section<'_>) -> Option<Self> {
        check_name(name, section);
        let disabled = section.key("disabled", "Whether the server is left alone.", false);
        let transport = read_transport(section);
        let effects = section.section("effect", McpEffects::read);
        let tools = section.key(
            "tools",
            "The tools that are taken, by the names that the server gives them; `*` matches any characters.",
            vec!["*".to_owned()],
        );
        let exclude = section.key("exclude", "Tools that are not taken, of those.", Vec::new());
        let timeout = section.optional("timeout", "Most time for one call; if absent, the agent's `tool_timeout`.");
        let start_timeout = section.key(
            "start_timeout",
            "Most time from the start of the server, or of a connection to it, until its tools are listed. The start of Loopgate \
             does not wait for that.",
            seconds(30),
        );
        let refresh = section.key(
            "refresh",
            "How often the server is asked for its tools again. It is also asked when it says that they have changed.",
            seconds(300),
        );
        let protocol = section.key(
            "protocol",
            "Which revisions of the protocol are spoken: `auto` the newest that both know, `initialize` those up to 2025-11-25, \
             `discover` those from 2026-07-28 on. A server that does not answer what it does not know starts sooner with \
             `initialize`.",
            McpProtocol::Auto,
        );
        let Size(max_response) = section.key(
            "max_response",
            "Most bytes of a message of the server; a longer one fails its call.",
            Size(4 << 20),
        );
        let max_concurrent_calls =
            section.key("max_concurrent_calls", "Most calls of its tools at once; others wait for these.", 16);
        let access = McpAccess::read(section);
        let elicitation = elicitation::read(section);
        let pins = PinPolicy::read(section);
        (!disabled).then_some(())?;
        Some(Self {
            name: name.to_owned(),
            transport: transport?,
            effects,
            tools,
            exclude,
            timeout,
            start_timeout,
            refresh,
            protocol,
            max_response,
            max_concurrent_calls,
            access,
            elicitation,
            pins,
        })
    }
}

/// Reports a name that cannot be part of the names of tools.
fn check_name(name: &str, section: &mut Section<'_>) {
    if !is_name(name) && !section.is_described() {
        section.refuse_here(format!(
            "a server's name has 1 to {MAX_NAME} characters of A-Z a-z 0-9 _ -, and no `_` at its ends or beside another: its \
             tools are named NAME__TOOL"
        ));
    }
}

/// Reads how the server is reached. Reports if that is not said, or said twice.
fn read_transport(section: &mut Section<'_>) -> Option<McpTransport> {
    let kind: Option<Kind> = section.optional(
        "type",
        "`stdio` or `http`, as desktop clients write it. If absent, it is known by `command` or `url`.",
    );
    let command = McpCommand::read(section);
    let url: Option<EndpointUrl> =
        section.optional("url", "Where the server listens: the URL of its endpoint for streamable HTTP.");
    let headers = read_headers(section, &OWN_HEADERS);
    if section.is_described() {
        return None;
    }
    let (by_command, by_url) = (section.is_written("command"), section.is_written("url"));
    match (by_command, by_url, kind) {
        (_, _, Some(Kind::Sse)) => section.refuse(
            "type",
            "the HTTP transport of 2024-11-05 with its separate stream is not spoken; name the server's endpoint for streamable \
             HTTP in `url`",
        ),
        (true, true, _) => section.refuse_here("give `command` or `url`, not both"),
        (false, false, _) => section.refuse_here("give `command`, to start the server, or the `url` at which it listens"),
        (true, false, Some(Kind::Http)) => section.refuse("type", "a server with a `command` is spoken to by stdio"),
        (false, true, Some(Kind::Stdio)) => section.refuse("type", "a server with a `url` is spoken to by http"),
        (true, false, _) => return command.map(McpTransport::Stdio),
        (false, true, _) => return url.map(|EndpointUrl(url)| McpTransport::Http(McpEndpoint { url, headers })),
    }
    None
}

/// The URL of an endpoint.
struct EndpointUrl(Url);

impl FromToml for EndpointUrl {
    fn form() -> String {
        "URL".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        const FORM: &str = "a URL such as \"https://mcp.example.com/mcp\"";
        let url = Url::parse(text(value, FORM)?).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or_else(|| Misread::new(value, format!("this is not {FORM}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Misread::new(value, "must not hold a user or password; name the secret in headers"));
        }
        if url.fragment().is_some() {
            return Err(Misread::new(value, "must have no fragment, which is never sent"));
        }
        Ok(Self(url))
    }

    fn show(&self) -> String {
        self.0.as_str().to_owned().show()
    }

    /// Its query may hold a key.
    fn recorded(&self) -> Recorded {
        Recorded::hidden(self.0.as_str())
    }
}
