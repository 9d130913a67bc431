//! Listens in on a Redis server: which commands its clients send.
//!
//! The server's own statistics count what scripts do inside as well, which costs no round trip.

use std::collections::BTreeMap;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::redis::RedisServer;
use super::within;

/// One listener. It hears what is sent from its start on.
#[derive(Debug)]
pub(crate) struct Monitor {
    lines: BufReader<TcpStream>,
    looks: u32,
}

impl Monitor {
    /// Begins to listen.
    pub(crate) async fn start(server: &RedisServer) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).await.expect("the server listens");
        stream.write_all(b"MONITOR\r\n").await.expect("it reads");
        let mut monitor = Self { lines: BufReader::new(stream), looks: 0 };
        assert_eq!(monitor.line().await, "+OK");
        monitor
    }

    /// The exchanges since the last look, once one of them is what `is_last` wants.
    pub(crate) async fn until(&mut self, is_last: impl Fn(&str) -> bool) -> Vec<String> {
        let mut exchanges = Vec::new();
        loop {
            let line = self.line().await;
            let last = is_last(&line);
            exchanges.extend(Some(line).filter(|line| is_exchange(line)));
            if last {
                return exchanges;
            }
        }
    }

    /// The exchanges since the last look, up to now.
    pub(crate) async fn now(&mut self, server: &RedisServer) -> Vec<String> {
        self.looks += 1;
        let mark = format!("look {} of the monitor", self.looks);
        server.cli(&["ECHO", &mark]).await;
        let mut exchanges = self.until(|line| line.contains("\"ECHO\"") && line.contains(&mark)).await;
        exchanges.pop();
        exchanges
    }

    /// How counters stood after each change that a script made to them, from its start on until now: by the names of those that
    /// `is_it` wants. None of them may have been there before.
    pub(crate) async fn counters(
        &mut self,
        until: impl Fn(&str) -> bool,
        is_it: impl Fn(&str) -> bool,
    ) -> BTreeMap<String, Vec<i64>> {
        let mut counters = BTreeMap::<String, Vec<i64>>::new();
        loop {
            let line = self.line().await;
            if until(&line) {
                return counters;
            }
            let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
            let [command, key, more @ ..] = words.as_slice() else { continue };
            if !line.contains(" lua] ") || !is_it(key) {
                continue;
            }
            let stood = counters.entry((*key).to_owned()).or_default();
            let amount = more.first().and_then(|amount| amount.parse::<i64>().ok());
            match (*command, amount) {
                ("INCRBY", Some(amount)) => stood.push(stood.last().copied().unwrap_or(0) + amount),
                ("SET", Some(amount)) => stood.push(amount),
                ("UNLINK", _) => stood.push(0),
                _ => {}
            }
        }
    }

    async fn line(&mut self) -> String {
        let mut line = Vec::new();
        within("a command", self.lines.read_until(b'\n', &mut line)).await.expect("the server goes on");
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }
}

/// Whether a command is the first of what is sent together and answered together, by a client.
fn is_exchange(line: &str) -> bool {
    let by_script = line.contains(" lua] ");
    // The length of a list is asked for with a part of it, confirmation with what is to be confirmed.
    let follows = ["\"LLEN\"", "\"WAIT\""].iter().any(|command| line.contains(&format!("] {command}")));
    !by_script && !follows
}
