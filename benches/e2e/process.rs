//! The processes of a benchmark: started, found by what they print, killed when dropped.

use std::fmt::Write;
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::callgrind;
use crate::dialects;
use crate::failure::Failure;
use crate::machine::Cores;
use crate::script;

/// The arguments by which this program is one of the servers.
pub(crate) const UPSTREAM: &str = "__upstream";
pub(crate) const PASSTHROUGH: &str = "__passthrough";
pub(crate) const LEAST_LOOP: &str = "__least_loop";

/// The environment variable that holds the path of smg's command.
const SMG: &str = "LOOPGATE_BENCH_SMG";

/// A process that does not answer by then never will.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// The same under callgrind, where everything takes fifty times as long.
const COUNTED_START_TIMEOUT: Duration = Duration::from_mins(2);

/// What a process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Program {
    /// The scripted upstream.
    Upstream,
    /// The proxy.
    PassThrough,
    /// The loop server without features.
    LeastLoop,
    /// What this is all about.
    Loopgate,
    /// The same under callgrind, with one worker.
    LoopgateCounted,
    /// The same under callgrind, which sends one trace in ten to a collector.
    LoopgateTraced,
    /// The same with another store.
    LoopgateOverRedis,
    /// The same with its embedded store.
    LoopgateEmbedded,
    /// The same with `ask_in_one_piece`.
    LoopgateInOnePiece,
    /// Another gateway, which [`SMG`] names.
    Smg,
}

impl Program {
    /// Whether it runs under callgrind.
    fn is_counted(self) -> bool {
        matches!(self, Self::LoopgateCounted | Self::LoopgateTraced)
    }
}

/// What a process needs outside of itself.
#[derive(Clone, Copy, Default)]
pub(crate) struct Addresses {
    /// Where the upstream listens.
    pub(crate) upstream: Option<SocketAddr>,
    /// Where Redis listens.
    pub(crate) redis: Option<SocketAddr>,
    /// How many workers Loopgate has; one for each core if nothing is said.
    pub(crate) workers: Option<u32>,
}

/// A running server. It is killed when this is dropped, however that comes about.
pub(crate) struct Process {
    child: Child,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// From its start until it answered its first request.
    pub(crate) ready_after: Duration,
    /// Holds its output, its configuration and its working directory.
    directory: TempDir,
}

impl Process {
    /// Starts `program` with what it needs of `addresses`, on the server's core if `cores` are divided, and waits
    /// until it answers.
    pub(crate) async fn start(program: Program, addresses: Addresses, cores: Option<&Cores>) -> Result<Self, Failure> {
        let directory = TempDir::with_prefix("loopgate-bench-")?;
        let output = directory.path().join("output");
        let mut command = command(program, addresses, directory.path())?;
        let file = File::create(&output)?;
        command.current_dir(directory.path()).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let started = Instant::now();
        let child = match cores {
            Some(cores) => cores.on_server_core(|| command.spawn()),
            None => command.spawn(),
        };
        let child = child.map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))?;
        let unspecified = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut process = Self { child, address: unspecified, ready_after: Duration::ZERO, directory };
        let patience = if program.is_counted() { COUNTED_START_TIMEOUT } else { START_TIMEOUT };
        let probe = if program == Program::Smg { "/readiness" } else { "/healthz" };
        match timeout(patience, process.wait_until_ready(&output, addresses, probe)).await {
            Ok(ready) => ready?,
            Err(_) => return Err(format!("{program:?} did not answer in time; {}", last_words(&output)).into()),
        }
        process.ready_after = started.elapsed();
        Ok(process)
    }

    /// Its id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where it works.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    async fn wait_until_ready(&mut self, output: &PathBuf, addresses: Addresses, probe: &str) -> Result<(), Failure> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("it ended with {status} before it answered; {}", last_words(output)).into());
            }
            if let Some(address) = announced(&std::fs::read_to_string(output)?, addresses) {
                self.address = address;
                if is_healthy(address, probe).await.unwrap_or(false) {
                    return Ok(());
                }
            }
            sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is gone after the wait.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn command(program: Program, addresses: Addresses, directory: &Path) -> Result<Command, Failure> {
    if program == Program::Smg {
        return smg(addresses.upstream.ok_or("smg needs an upstream")?);
    }
    let itself = std::env::current_exe()?;
    let (executable, role) = match program {
        Program::Upstream => (itself, Some(UPSTREAM)),
        Program::PassThrough => (itself, Some(PASSTHROUGH)),
        Program::LeastLoop => (itself, Some(LEAST_LOOP)),
        Program::Loopgate
        | Program::LoopgateCounted
        | Program::LoopgateTraced
        | Program::LoopgateOverRedis
        | Program::LoopgateEmbedded
        | Program::LoopgateInOnePiece
        | Program::Smg => (loopgate(), None),
    };
    let Addresses { upstream, redis, workers } = addresses;
    let store = match redis.filter(|_| program == Program::LoopgateOverRedis) {
        Some(redis) => format!("redis://{redis}"),
        None if program == Program::LoopgateEmbedded => format!("embedded:{}", directory.join("store").display()),
        None => "memory:".to_owned(),
    };
    let mut command =
        if program.is_counted() { callgrind::command(&executable, directory) } else { Command::new(executable) };
    if let Some(role) = role {
        command.arg(role).args(upstream.map(|address| address.to_string()));
        return Ok(command);
    }
    let file = directory.join("loopgate.toml");
    let upstream = upstream.ok_or("Loopgate needs an upstream")?;
    // What happens to calls that only read is recorded by time, of which a counted server has more.
    let effect = if program.is_counted() { "idempotent" } else { "read" };
    let mut text = configuration(upstream, program == Program::LoopgateInOnePiece, effect);
    if program == Program::LoopgateTraced {
        write!(text, "\n[traces]\nendpoint = \"http://{upstream}\"\nratio = 0.1\n")?;
    }
    if program.is_counted() {
        text.extend(dialects::ALL.map(|dialect| dialect.configuration(upstream)));
    }
    std::fs::write(&file, text)?;
    // Only what is set here, so that the caller's environment is not part of the result.
    command.env_clear().env("OPENAI_API_KEY", "bench");
    if let Some(workers) = workers {
        command.env("TOKIO_WORKER_THREADS", workers.to_string());
    }
    if program.is_counted() {
        command.env("TOKIO_WORKER_THREADS", "1").envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    }
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", &store, "--log", "info", "--config"]).arg(file);
    Ok(command)
}

/// smg in front of the upstream, with its defaults otherwise. It takes no port of the system's choice.
fn smg(upstream: SocketAddr) -> Result<Command, Failure> {
    let executable = std::env::var_os(SMG).ok_or_else(|| format!("{SMG} does not name its command"))?;
    let mut command = Command::new(executable);
    let mut free = free_ports();
    let (Some(listen), Some(metrics)) = (free.next(), free.next()) else { return Err("no port is free".into()) };
    command.args(["launch", "--host", "127.0.0.1", "--prometheus-host", "127.0.0.1", "--backend", "openai"]);
    command.args(["--port", &listen, "--prometheus-port", &metrics, "--worker-urls", &format!("http://{upstream}")]);
    Ok(command)
}

/// Ports that were free a moment ago, below those that the system gives to clients: one of these is easily taken by then.
fn free_ports() -> impl Iterator<Item = String> {
    let first = u16::try_from(std::process::id() % 8192).unwrap_or(0);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (20_000 + first..).filter(is_free).map(|port| port.to_string())
}

/// The binary that is measured.
fn loopgate() -> PathBuf {
    std::env::var_os("LOOPGATE_BIN").map_or_else(|| env!("CARGO_BIN_EXE_loopgate").into(), PathBuf::from)
}

/// Defaults but for the upstream; without keys there are no rate limits and no quotas.
fn configuration(upstream: SocketAddr, in_one_piece: bool, effect: &str) -> String {
    let (models, agent, tool, path) = (script::MODELS, script::LOOP, script::MULTIPLY, script::MULTIPLY_PATH);
    format!(
        r#"
[upstreams.bench]
kind = "openai"
base_url = "http://{upstream}/v1"
api_key_env = "OPENAI_API_KEY"
models = {models:?}
ask_in_one_piece = {in_one_piece}

[agents.default]
tools = ["calculator"]

[agents.default.limits]
max_iterations = 40

[agents.{agent}]
model = "bench/{agent}"
tools = ["{tool}"]

[tools.{tool}]
description = "Multiplies two numbers"
method = "POST"
url = "http://{upstream}{path}"
effect = "{effect}"
parameters = {{ type = "object", properties = {{ a = {{ type = "integer" }}, b = {{ type = "integer" }} }} }}
"#
    )
}

/// The address in a process's output that is its own.
fn announced(output: &str, addresses: Addresses) -> Option<SocketAddr> {
    let complete = &output[..=output.rfind('\n')?];
    let mentions = complete.match_indices("127.0.0.1:").map(|(at, _)| &complete[at..]);
    let found = mentions.filter_map(|text| {
        let port = text["127.0.0.1:".len()..].split(|c: char| !c.is_ascii_digit()).next()?;
        format!("127.0.0.1:{port}").parse().ok()
    });
    found.into_iter().find(|address: &SocketAddr| {
        address.port() != 0 && ![addresses.upstream, addresses.redis].contains(&Some(*address))
    })
}

async fn is_healthy(address: SocketAddr, probe: &str) -> Result<bool, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {probe} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await?;
    Ok(response.starts_with(b"HTTP/1.1 200"))
}

fn last_words(output: &PathBuf) -> String {
    let output = std::fs::read(output).unwrap_or_default();
    let output = String::from_utf8_lossy(&output);
    let last: Vec<&str> = output.lines().rev().take(5).collect();
    if last.is_empty() {
        return "it printed nothing".into();
    }
    format!("its last words: {}", last.into_iter().rev().collect::<Vec<_>>().join(" | "))
}
