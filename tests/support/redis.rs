//! Real Redis servers, alone or watched by Sentinels, that can be killed and come back.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::server::free_port;
use super::within;

/// The name under which Sentinels know their master.
const MASTER: &str = "fleet";

/// How often one looks whether something has happened.
const OFTEN: Duration = Duration::from_millis(20);

/// A Redis server that keeps an append-only file. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Redis {
    directory: TempDir,
    port: u16,
    arguments: Vec<String>,
    child: Child,
}

impl Redis {
    /// Starts one.
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    /// Starts one with these arguments besides those that it needs.
    async fn with(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let port = free_port();
        let settings =
            "appendonly yes\nsave \"\"\nmaxmemory-policy noeviction\ndatabases 512\nrepl-diskless-sync-delay 0\n";
        std::fs::write(directory.path().join("redis.conf"), settings).expect("it can be written to");
        let arguments: Vec<_> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let child = spawn(&directory, port, &arguments);
        let redis = Self { directory, port, arguments, child };
        redis.ready().await;
        redis
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Kills it with a signal that it cannot catch.
    pub(crate) async fn kill9(&mut self) {
        self.child.kill().await.expect("it is running");
    }

    /// Starts it again, with what it had written.
    pub(crate) async fn restart(&mut self) {
        self.child = spawn(&self.directory, self.port, &self.arguments);
        self.ready().await;
    }

    async fn ready(&self) {
        within("Redis to be ready", async {
            while command(self.address(), "PING").await.as_deref() != Some("+PONG") {
                sleep(OFTEN).await;
            }
        })
        .await;
    }
}

fn spawn(directory: &TempDir, port: u16, arguments: &[String]) -> Child {
    let mut command = Command::new("redis-server");
    command.args(["redis.conf", "--bind", "127.0.0.1", "--port", &port.to_string()]).args(arguments);
    command.current_dir(directory.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop(true).spawn().expect("redis-server is installed: apt-get install redis-server redis-sentinel")
}

/// Sends an inline command and returns the first kilobytes of its reply; `None` if there is none.
async fn command(address: SocketAddr, text: &str) -> Option<String> {
    let exchange = async {
        let mut socket = TcpStream::connect(address).await.ok()?;
        socket.write_all(format!("{text}\r\n").as_bytes()).await.ok()?;
        let mut reply = vec![0; 16 * 1024];
        let length = socket.read(&mut reply).await.ok()?;
        Some(String::from_utf8_lossy(&reply[..length]).trim_end().to_owned())
    };
    timeout(Duration::from_secs(1), exchange).await.ok().flatten()
}

/// A primary, its replica, and three Sentinels that watch over them. Dropping it kills them all.
#[derive(Debug)]
pub(crate) struct Watched {
    servers: Vec<Redis>,
    sentinels: Vec<Redis>,
}

impl Watched {
    /// Starts all of them and waits until the Sentinels know of each other and of the replica.
    pub(crate) async fn start() -> Self {
        let primary = Redis::start().await;
        let port = primary.port.to_string();
        let replica = Redis::with(&["--replicaof", "127.0.0.1", &port]).await;
        let mut sentinels = Vec::new();
        for _ in 0..3 {
            sentinels.push(sentinel(primary.port).await);
        }
        let watched = Self { servers: vec![primary, replica], sentinels };
        within("the Sentinels to find each other", async {
            while !watched.is_settled().await {
                sleep(OFTEN).await;
            }
        })
        .await;
        watched
    }

    /// The store's URL: the Sentinels and the master's name.
    pub(crate) fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect();
        format!("redis-sentinel://{}/{MASTER}", hosts.join(","))
    }

    /// Kills the primary, waits until its replica has been promoted, and starts the killed one again,
    /// which then becomes a replica.
    pub(crate) async fn fail_over(&mut self) {
        let before = self.primary().await;
        let dead = self.servers.iter_mut().find(|server| Some(server.address()) == before);
        let dead = dead.expect("the Sentinels name one of ours");
        dead.kill9().await;
        within("a failover", async {
            loop {
                let now = self.primary().await;
                if now.is_some() && now != before {
                    return;
                }
                sleep(OFTEN).await;
            }
        })
        .await;
        let dead = self.servers.iter_mut().find(|server| Some(server.address()) == before);
        dead.expect("it was there before").restart().await;
        within("the replica to be back", async {
            while !self.is_settled().await {
                sleep(OFTEN).await;
            }
        })
        .await;
    }

    /// Asks the Sentinels to change the roles of both servers, which stay alive.
    pub(crate) async fn switch(&self) {
        let before = self.primary().await;
        within("a switch", async {
            let reply = command(self.sentinels[0].address(), &format!("SENTINEL FAILOVER {MASTER}")).await;
            assert_eq!(reply.as_deref(), Some("+OK"));
            while self.primary().await == before || !self.is_settled().await {
                sleep(OFTEN).await;
            }
        })
        .await;
    }

    /// Where the Sentinels say that the primary is.
    async fn primary(&self) -> Option<SocketAddr> {
        let asked = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {MASTER}");
        let reply = command(self.sentinels[0].address(), &asked).await?;
        let port = reply.lines().last()?.trim().parse().ok()?;
        Some(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// Whether the primary has its replica, in step, and every Sentinel knows the others and both.
    async fn is_settled(&self) -> bool {
        let Some(primary) = self.primary().await else { return false };
        let replication = command(primary, "INFO replication").await.unwrap_or_default();
        if !(replication.contains("role:master") && replication.contains("state=online")) {
            return false;
        }
        for sentinel in &self.sentinels {
            let known = command(sentinel.address(), "INFO sentinel").await.unwrap_or_default();
            let port = format!("address=127.0.0.1:{}", primary.port());
            if !(known.contains("status=ok,") && known.contains(&port) && known.contains("slaves=1,sentinels=3")) {
                return false;
            }
        }
        true
    }
}

async fn sentinel(primary: u16) -> Redis {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let port = free_port();
    let settings = format!(
        "sentinel monitor {MASTER} 127.0.0.1 {primary} 2\nsentinel down-after-milliseconds {MASTER} 1000\n\
         sentinel failover-timeout {MASTER} 2000\nsentinel parallel-syncs {MASTER} 1\n"
    );
    std::fs::write(directory.path().join("redis.conf"), settings).expect("it can be written to");
    let arguments = vec!["--sentinel".to_owned()];
    let child = spawn(&directory, port, &arguments);
    let sentinel = Redis { directory, port, arguments, child };
    sentinel.ready().await;
    sentinel
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_written_survives_kills_and_failovers() {
        let mut redis = Redis::start().await;
        assert_eq!(command(redis.address(), "SET a 1").await.unwrap(), "+OK");
        redis.kill9().await;
        assert_eq!(command(redis.address(), "GET a").await, None);
        redis.restart().await;
        assert_eq!(command(redis.address(), "GET a").await.unwrap(), "$1\r\n1");

        let mut watched = Watched::start().await;
        let before = watched.primary().await.unwrap();
        assert_eq!(command(before, "SET b 1").await.unwrap(), "+OK");
        assert_eq!(command(before, "WAIT 1 1000").await.unwrap(), ":1");
        watched.fail_over().await;
        let after = watched.primary().await.unwrap();
        assert_ne!(after, before);
        watched.switch().await;
        assert_eq!(watched.primary().await, Some(before));
    }
}
