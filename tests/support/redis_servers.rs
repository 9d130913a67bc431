//! Redis servers for tests: started on free ports in directories of their own, and gone with the test.
//!
//! The integration tests and the unit tests of `store::redis` both include this file, so it imports nothing of this
//! crate.

use std::fmt::Write as _;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::Pid;
pub(crate) use rustix::process::Signal;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// How long anything may take before a test is given up.
const MAX_WAIT: Duration = Duration::from_secs(20);

/// What a Sentinel reads and writes.
const SENTINEL_FILE: &str = "sentinel.conf";

/// A server that is alone, a primary, a replica, a Sentinel or a node of a cluster.
#[derive(Debug)]
pub(crate) struct RedisServer {
    port: u16,
    kind: Kind,
    arguments: Vec<String>,
    dir: TempDir,
    /// `None` after it was killed.
    child: Option<Child>,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Data,
    Sentinel,
}

impl RedisServer {
    /// A server that keeps nothing on disk.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// A server with more arguments, such as `--appendonly yes`.
    pub(crate) async fn start_with(arguments: &[&str]) -> Self {
        // Another process may take the port first: then once more.
        for _ in 0..10 {
            let arguments = arguments.iter().map(ToString::to_string).collect();
            let mut server = Self { port: free_port(), kind: Kind::Data, arguments, dir: directory(), child: None };
            if server.run().await {
                return server;
            }
        }
        panic!("redis-server does not start");
    }

    /// A replica of this server that is connected to it.
    pub(crate) async fn replica(&self) -> Self {
        let primary = format!("127.0.0.1 {}", self.port);
        let replica = Self::start_with(&["--replicaof", &primary, "--repl-diskless-load", "swapdb"]).await;
        eventually("the replica is connected", async || {
            replica.cli(&["INFO", "replication"]).await.contains("master_link_status:up")
                && self.cli(&["INFO", "replication"]).await.contains("state=online")
        })
        .await;
        replica
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Ends it as a power cut would.
    pub(crate) async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.expect("a server of ours can be killed");
        }
    }

    /// Starts it again after [`kill`](Self::kill): same port, same directory.
    pub(crate) async fn restart(&mut self) {
        self.kill().await;
        assert!(self.run().await, "redis-server does not start again on port {}", self.port);
    }

    /// Stops it where it is: connections stay open, and nothing is answered.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on after [`stop`](Self::stop).
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Makes a replica a primary.
    pub(crate) async fn promote(&self) {
        assert_eq!(self.cli(&["REPLICAOF", "NO", "ONE"]).await, "OK");
    }

    /// What `redis-cli` prints for a command.
    pub(crate) async fn cli(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &self.port.to_string()]).args(arguments).kill_on_drop(true);
        let output =
            timeout(MAX_WAIT, command.output()).await.expect("redis-cli ends in time").expect("redis-cli runs");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    fn signal(&self, signal: Signal) {
        send_signal(self.child.as_ref().expect("the server runs"), signal);
    }

    /// Starts the process; whether it answers.
    async fn run(&mut self) -> bool {
        let mut command = bound_to_this_process("redis-server");
        if self.kind == Kind::Sentinel {
            command.arg(self.dir.path().join(SENTINEL_FILE)).arg("--sentinel");
        } else {
            command.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--enable-debug-command", "yes"]);
            command.args(["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"]);
            command.args(["--port", &self.port.to_string()]).args(&self.arguments);
        }
        command.args(["--logfile", "redis.log", "--dir"]).arg(self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let child = command.spawn().expect("setpriv and redis-server are there: scripts/test installs them");
        let child = self.child.insert(child);
        let deadline = Instant::now() + MAX_WAIT;
        while Instant::now() < deadline {
            if let Ok(Some(_)) = child.try_wait() {
                return false;
            }
            if answers(self.port).await {
                return true;
            }
            sleep(Duration::from_millis(5)).await;
        }
        false
    }
}

/// A primary, its replica, and three Sentinels that watch them.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) primary: RedisServer,
    pub(crate) replica: RedisServer,
    pub(crate) sentinels: Vec<RedisServer>,
}

impl Watched {
    /// Starts them. Sentinels take a primary for dead after half a second.
    pub(crate) async fn start() -> Self {
        let primary = RedisServer::start().await;
        let replica = primary.replica().await;
        let mut sentinels = Vec::new();
        for _ in 0..3 {
            sentinels.push(sentinel(primary.port).await);
        }
        eventually("the Sentinels know each other and the replica", async || {
            for sentinel in &sentinels {
                let known = sentinel.cli(&["SENTINEL", "MASTER", "mymaster"]).await;
                let known: Vec<&str> = known.lines().collect();
                let value = |name: &str| known.iter().position(|line| *line == name).and_then(|at| known.get(at + 1));
                if value("num-other-sentinels") != Some(&"2") || value("num-slaves") != Some(&"1") {
                    return false;
                }
            }
            true
        })
        .await;
        Self { primary, replica, sentinels }
    }

    /// Their URL.
    pub(crate) fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        format!("redis-sentinel://{}/mymaster", hosts.join(","))
    }
}

async fn sentinel(primary: u16) -> RedisServer {
    for _ in 0..10 {
        let (port, dir) = (free_port(), directory());
        let mut text = format!("port {port}\nbind 127.0.0.1\nsentinel monitor mymaster 127.0.0.1 {primary} 2\n");
        for setting in ["down-after-milliseconds mymaster 500", "failover-timeout mymaster 3000"] {
            let _ = writeln!(text, "sentinel {setting}");
        }
        std::fs::write(dir.path().join(SENTINEL_FILE), text).expect("a temporary directory can be written to");
        let mut server = RedisServer { port, kind: Kind::Sentinel, arguments: Vec::new(), dir, child: None };
        if server.run().await {
            return server;
        }
    }
    panic!("no Sentinel starts");
}

/// Primaries that share the slots, each with so many replicas.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) primaries: Vec<RedisServer>,
    pub(crate) replicas: Vec<RedisServer>,
}

impl Cluster {
    /// Starts three primaries, and a replica of each if `replicated`.
    pub(crate) async fn start(replicated: bool) -> Self {
        let mut nodes = Vec::new();
        for _ in 0..if replicated { 6 } else { 3 } {
            let bus = free_port().to_string();
            let arguments = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port", &bus];
            nodes.push((RedisServer::start_with(&arguments).await, bus));
        }
        let ranges = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];
        for (number, (node, _)) in nodes.iter().enumerate() {
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]).await;
            if let Some((first, last)) = ranges.get(number) {
                assert_eq!(node.cli(&["CLUSTER", "ADDSLOTSRANGE", first, last]).await, "OK");
            }
        }
        for (other, bus) in &nodes[1..] {
            nodes[0].0.cli(&["CLUSTER", "MEET", "127.0.0.1", &other.port.to_string(), bus]).await;
        }
        let mut primaries: Vec<_> = nodes.into_iter().map(|(node, _)| node).collect();
        let replicas = primaries.split_off(3);
        for (primary, replica) in primaries.iter().zip(&replicas) {
            let id = primary.cli(&["CLUSTER", "MYID"]).await;
            eventually("a node knows its primary", async || replica.cli(&["CLUSTER", "REPLICATE", &id]).await == "OK")
                .await;
        }
        let all = primaries.len() + replicas.len();
        for node in primaries.iter().chain(&replicas) {
            eventually("the nodes know each other", async || {
                let info = node.cli(&["CLUSTER", "INFO"]).await;
                info.contains("cluster_state:ok") && info.contains(&format!("cluster_known_nodes:{all}"))
            })
            .await;
        }
        for replica in &replicas {
            eventually("the replica is connected", async || {
                replica.cli(&["INFO", "replication"]).await.contains("master_link_status:up")
            })
            .await;
        }
        Self { primaries, replicas }
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        let hosts: Vec<_> = self.primaries.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }
}

/// Returns once something is so; panics if that takes too long.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + MAX_WAIT;
    while !is_so().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

async fn answers(port: u16) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"PING\r\n").await?;
        let mut answer = [0];
        stream.read_exact(&mut answer).await?;
        // Either it works, or it wants a password.
        Ok::<bool, std::io::Error>(answer == *b"+" || answer == *b"-")
    };
    matches!(timeout(Duration::from_secs(1), ask).await, Ok(Ok(true)))
}

/// A port that is free now and that no other test takes, in whichever process, until this process ends. It lies below
/// those that the system hands out, so that no other socket takes it while its server is down.
pub(crate) fn free_port() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let mix = std::process::id().wrapping_mul(2_654_435_761);
    let own = u16::try_from(mix % 11_000).expect("it is below 11000");
    for _ in 0..12_000 {
        let port = 20_000 + own.wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed)) % 12_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() && reserve(port).is_ok() {
            return port;
        }
    }
    panic!("no port is free")
}

/// Reserves a port by a name that only one process can have, and that the kernel frees when the process ends.
fn reserve(port: u16) -> std::io::Result<()> {
    let name = SocketAddr::from_abstract_name(format!("loopgate-test-port-{port}"))?;
    std::mem::forget(UnixListener::bind_addr(&name)?);
    Ok(())
}

/// A command whose process the kernel ends with this one, even if this one is killed.
fn bound_to_this_process(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

/// Sends a signal to a child that was not waited for yet.
pub(crate) fn send_signal(child: &Child, signal: Signal) {
    let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it is running");
    rustix::process::kill_process(id, signal).expect("a child of ours takes signals");
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("there is room for a temporary directory")
}
