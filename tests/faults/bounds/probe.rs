//! Asks `/healthz` all the time, as an orchestrator does: over a new connection each time. A thread does it, so that
//! the answers are not late because the clients are busy. Beside it another thread asks a server that does nothing
//! else: how late its answers are tells how busy the machine is.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tokio::time::Instant;

const REQUEST: &str = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
const PAUSE: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_secs(5);

/// The threads. They end with this.
#[derive(Debug)]
pub(super) struct Probe {
    of_server: Receiver<Option<Duration>>,
    of_machine: Receiver<Option<Duration>>,
}

/// How long the answers took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    /// How many there were.
    pub(super) count: usize,
    /// How many were none.
    pub(super) failed: usize,
    /// Of a hundred answers one took longer.
    pub(super) p99: Duration,
    /// The longest.
    pub(super) longest: Duration,
    /// The longest that the server took which does nothing else.
    pub(super) of_machine: Duration,
}

impl Probe {
    pub(super) fn start(address: &str) -> Self {
        let idle = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let idle_address = idle.local_addr().expect("it is bound").to_string();
        std::thread::spawn(move || answer(&idle));
        Self { of_server: asking(address.to_owned()), of_machine: asking(idle_address) }
    }

    /// What was seen since this was asked last.
    pub(super) fn take(&self) -> Seen {
        let answers: Vec<_> = self.of_server.try_iter().collect();
        let mut took: Vec<_> = answers.iter().flatten().copied().collect();
        took.sort_unstable();
        let p99 = took.get(took.len().saturating_sub(1 + took.len() / 100)).copied().unwrap_or_default();
        let longest = took.last().copied().unwrap_or_default();
        let of_machine = self.of_machine.try_iter().flatten().max().unwrap_or_default();
        Seen { count: answers.len(), failed: answers.len() - took.len(), p99, longest, of_machine }
    }
}

impl Seen {
    /// The worse of both.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            failed: self.failed + other.failed,
            p99: self.p99.max(other.p99),
            longest: self.longest.max(other.longest),
            of_machine: self.of_machine.max(other.of_machine),
        }
    }
}

/// Asks the server at this address until the times that it took are wanted no more.
fn asking(address: String) -> Receiver<Option<Duration>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || ask(&address, &sender));
    receiver
}

fn ask(address: &str, sender: &Sender<Option<Duration>>) {
    loop {
        let begun = Instant::now();
        let answer = answered(address).map(|()| begun.elapsed());
        if sender.send(answer.ok()).is_err() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

fn answered(address: &str) -> io::Result<()> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    connection.write_all(REQUEST.as_bytes())?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    if answer.starts_with("HTTP/1.1 200 ") { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Answers for ever, as the only thing that it does.
fn answer(listener: &TcpListener) {
    for mut connection in listener.incoming().flatten() {
        let mut request = [0; REQUEST.len()];
        // A probe that does not wait for its answer has ended.
        if connection.read_exact(&mut request).is_ok() {
            drop(connection.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"));
        }
    }
}
