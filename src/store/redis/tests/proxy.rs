//! Something between us and a server that loses what servers answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// How much longer than asked a task may sleep.
const SLEPT: Duration = Duration::from_millis(20);

/// Passes bytes on between its port and a server's.
#[derive(Debug)]
pub(super) struct Proxy {
    port: u16,
    faults: Arc<Faults>,
    _task: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Faults {
    /// How many bytes of answers pass in a millisecond; 0 for as many as come.
    pace: AtomicUsize,
    /// How many answers are lost with their connections.
    lose: AtomicUsize,
    /// Whether nothing passes any more, though connections stay open.
    hole: AtomicBool,
    /// Notified to close all connections.
    close: Notify,
    /// How many scripts are kept back, though connections stay open.
    hold: AtomicUsize,
    /// Notified to pass on what was kept back.
    pass_on: Notify,
}

impl Proxy {
    /// Stands before the server at `server`.
    pub(super) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let faults = Arc::new(Faults::default());
        let mut task = JoinSet::new();
        let shared = faults.clone();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
                connections.spawn(pass(client, server, shared.clone()));
            }
        });
        Self { port, faults, _task: task }
    }

    /// Its URL.
    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Passes so many bytes of answers a millisecond on each connection.
    pub(super) fn slow_to(&self, pace: usize) {
        self.faults.pace.store(pace, Ordering::SeqCst);
    }

    /// Loses the next answers, each with its connection, after the server has done what it was asked.
    pub(super) fn lose(&self, answers: usize) {
        self.faults.lose.store(answers, Ordering::SeqCst);
    }

    /// How many answers are still to be lost.
    pub(super) fn to_lose(&self) -> usize {
        self.faults.lose.load(Ordering::SeqCst)
    }

    /// Lets nothing through on the connections that are open, and closes none of them.
    pub(super) fn swallow(&self, all: bool) {
        self.faults.hole.store(all, Ordering::SeqCst);
    }

    /// Keeps the next scripts back until [`pass_on`](Self::pass_on).
    pub(super) fn hold(&self, scripts: usize) {
        self.faults.hold.store(scripts, Ordering::SeqCst);
    }

    /// Passes on what was kept back, even if nobody waits for it any more.
    pub(super) fn pass_on(&self) {
        self.faults.pass_on.notify_waiters();
    }

    /// Closes all connections.
    pub(super) fn close(&self) {
        self.faults.close.notify_waiters();
    }
}

async fn pass(client: TcpStream, server: TcpStream, faults: Arc<Faults>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let asking = async {
        let mut bytes = [0; 16_384];
        while let Ok(read @ 1..) = from_client.read(&mut bytes).await {
            let is_script = bytes[..read].windows(4).any(|word| word == b"EVAL");
            if is_script && spend(&faults.hold) {
                faults.pass_on.notified().await;
            }
            if !faults.hole.load(Ordering::SeqCst) && to_server.write_all(&bytes[..read]).await.is_err() {
                return;
            }
        }
    };
    let answering = async {
        let (mut bytes, mut due) = ([0; 16_384], Instant::now());
        while let Ok(read @ 1..) = from_server.read(&mut bytes).await {
            if let Some(took) = (1000 * read).checked_div(faults.pace.load(Ordering::SeqCst)) {
                // What was slept too long is made up for.
                due = due.max(Instant::now() - SLEPT) + Duration::from_micros(took as u64);
                sleep_until(due).await;
            }
            if spend(&faults.lose) {
                return;
            }
            if !faults.hole.load(Ordering::SeqCst) && to_client.write_all(&bytes[..read]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = asking => {}
        () = answering => {}
        () = faults.close.notified() => {}
    }
}

/// Takes one from a number of faults; whether there was one.
fn spend(faults: &AtomicUsize) -> bool {
    faults.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}
