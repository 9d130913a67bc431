//! A Redis server of the benchmark's own: on a free port, in a directory that goes with it.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, cmd};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::failure::Failure;

/// One that does not answer by then never will.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Logs that are looked at to see how long they are.
const SAMPLE: usize = 100;

/// A running server, with its append-only file as operators are told to have it. It is killed when this
/// is dropped.
pub(crate) struct RedisServer {
    child: Child,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    connection: MultiplexedConnection,
    _directory: TempDir,
}

impl RedisServer {
    /// Starts one, if `redis-server` is installed.
    pub(crate) async fn start() -> Result<Self, Failure> {
        let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let directory = TempDir::with_prefix("loopgate-bench-")?;
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
        // Neither snapshots nor rewriting in between, which would be in some rounds and not in others.
        command.args(["--save", "", "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0", "--logfile", "log"]);
        command.current_dir(directory.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("cannot start redis-server: {error}"))?;
        match connect(address).await {
            Ok(connection) => Ok(Self { child, address, connection, _directory: directory }),
            Err(error) => {
                child.kill().ok();
                child.wait().ok();
                Err(error)
            }
        }
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Bytes that its allocator has given out.
    pub(crate) async fn used_memory(&self) -> Result<u64, Failure> {
        let info: String = cmd("INFO").arg("memory").query_async(&mut self.connection.clone()).await?;
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        Ok(used.ok_or("INFO has no used_memory")?.trim().parse()?)
    }

    /// Bytes that the keys take that match `pattern`, and how many they are.
    pub(crate) async fn memory_of(&self, pattern: &str) -> Result<(u64, u64), Failure> {
        let mut connection = self.connection.clone();
        let keys: Vec<String> = cmd("KEYS").arg(pattern).query_async(&mut connection).await?;
        let mut bytes = 0;
        for key in &keys {
            let usage = cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0).query_async(&mut connection).await;
            bytes += usage.unwrap_or(0);
        }
        Ok((bytes, keys.len() as u64))
    }

    /// Entries of the longest log among some of those whose keys match `pattern`.
    pub(crate) async fn longest(&self, pattern: &str) -> Result<u64, Failure> {
        let mut connection = self.connection.clone();
        let keys: Vec<String> = cmd("KEYS").arg(pattern).query_async(&mut connection).await?;
        let mut longest = 0;
        for key in keys.into_iter().take(SAMPLE) {
            let length: u64 = cmd("LLEN").arg(key).query_async(&mut connection).await?;
            longest = longest.max(length);
        }
        Ok(longest)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

async fn connect(address: SocketAddr) -> Result<MultiplexedConnection, Failure> {
    let client = Client::open(format!("redis://{address}"))?;
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        match client.get_multiplexed_async_connection().await {
            Ok(connection) => return Ok(connection),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => sleep(Duration::from_millis(5)).await,
        }
    }
}
