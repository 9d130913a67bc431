//! Servers of the Model Context Protocol, as they are declared.

use insta::assert_snapshot;

use super::{load, load_with, mistakes};
use crate::config::{McpTransport, Options, Settings};
use crate::types::Effect;

fn command(settings: &Settings) -> (&str, Vec<&str>, Vec<(&str, &str)>) {
    let McpTransport::Stdio(command) = &settings.mcp[0].transport else { panic!("{:?}", settings.mcp) };
    let arguments = command.arguments.iter().map(String::as_str).collect();
    (&command.program, arguments, command.env.iter().map(|(name, value)| (name.as_str(), value.expose())).collect())
}

#[test]
fn a_server_is_a_command_or_a_url() {
    let text = r#"
        [mcp.files]
        command = ["npx", "-y"]
        args = ["server", "/data", "--key=hush"]
        env = { LEVEL = "debug", TOKEN = { env = "FILES_TOKEN" } }
        [mcpServers.web]
        type = "http"
        url = "https://mcp.example.com/mcp?key=hush"
        headers = { authorization = { env = "FILES_TOKEN", prefix = "Bearer " } }
        effect = { default = "read", write = ["set_*"] }
        [mcp.off]
        command = "x"
        disabled = true
        [agents.default]
        tools = ["files__*", "web__get", "off__x", "*__get", "calculator"]
        "#;
    let env = [("FILES_TOKEN", "hush"), ("PATH", "/bin"), ("OPENAI_API_KEY", "sk-1")];
    let settings = load_with(text, &Options::default(), &env).unwrap();
    let (program, arguments, env) = command(&settings);
    assert_eq!((program, arguments), ("npx", vec!["-y", "server", "/data", "--key=hush"]));
    assert_eq!(env, [("LEVEL", "debug"), ("TOKEN", "hush"), ("PATH", "/bin")], "our own key is not passed on");
    let [_, web] = &settings.mcp[..] else { panic!("{:?}", settings.mcp) };
    let McpTransport::Http(endpoint) = &web.transport else { panic!("{web:?}") };
    assert_eq!(endpoint.headers[0].1.whole.expose(), "Bearer hush");
    assert_eq!(web.effects.of("get_x", crate::config::Hints::default()), Effect::Read);
    let shown = format!("{:?}", settings.mcp);
    assert!(!shown.contains("hush"), "{shown}");
}

#[test]
fn servers_of_a_desktop_client_are_read_from_its_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), r#"{"mcpServers": {"fetch": {"command": "uvx", "args": ["mcp-server-fetch"]}}}"#)
        .unwrap();
    let path = file.path().display();
    let settings = load(&format!("mcp_file = {:?}\n[agents.default]\ntools = [\"fetch__*\"]\n", path.to_string()));
    assert_eq!(command(&settings).0, "uvx");
    let twice = mistakes(&format!("mcp_file = {:?}\n[mcp.fetch]\ncommand = \"x\"\n", path.to_string()));
    assert!(twice.contains("mcp.fetch: two servers have this name"), "{twice}");
}

#[test]
fn mistakes_name_what_is_right() {
    assert_snapshot!(mistakes(r#"
[mcp.a__b]
command = "x"
[mcp.both]
command = "x"
url = "https://a.test/"
[mcp.none]
[mcp.old]
type = "sse"
url = "https://a.test/sse"
[mcp.odd]
type = "stdio"
url = "https://hush:hush@a.test/"
[mcp.empty]
command = []
env = { "A=B" = "x", C = { env = "UNSET" } }
headers = { "mcp-session-id" = "x" }
effect = { default = "none" }
[agents.default]
tools = ["a__b", "both__", "booth__x"]
"#), @r#"
    loopgate.toml:2: mcp.a__b: a server's name has 1 to 32 characters of A-Z a-z 0-9 _ -, and no `_` at its ends or beside another: its tools are named NAME__TOOL
    loopgate.toml:4: mcp.both: give `command` or `url`, not both
    loopgate.toml:7: mcp.none: give `command`, to start the server, or the `url` at which it listens
    loopgate.toml:9: mcp.old.type: the HTTP transport of 2024-11-05 with its separate stream is not spoken; name the server's endpoint for streamable HTTP in `url`
    loopgate.toml:12: mcp.odd.type: a server with a `url` is spoken to by http
    loopgate.toml:13: mcp.odd.url: must not hold a user or password; name the secret in headers
    loopgate.toml:15: mcp.empty.command: must name a program
    loopgate.toml:16: mcp.empty.env."A=B": this is not the name of an environment variable
    loopgate.toml:16: mcp.empty.env.C: the environment variable UNSET is unset or empty
    loopgate.toml:17: mcp.empty.headers.mcp-session-id: the server itself sends this header
    loopgate.toml:18: mcp.empty.effect.default: must be "read" or "idempotent" or "write"
    loopgate.toml:20: agents.default.tools: there is no tool `a__b`; did you mean `a__b__*`?
    "#);
}
