//! The thread that accepts connections and answers liveness probes.
//!
//! It has a runtime of its own, so a probe does not wait behind requests, however many there are and however long they
//! keep the threads that serve them. A connection whose first request is another one is handed over to these at once.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::heartbeat::Heartbeat;
use super::listening::Listening;
use super::slots::{Slot, Slots};

/// How a liveness probe begins.
const PROBE: &[u8] = b"GET /healthz ";
/// A pause after an error that another connection would meet too, such as too many open files. Not a setting: it
/// only keeps the loop from spinning.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections.
#[derive(Debug, Clone)]
pub(super) struct Acceptor {
    pub(super) listening: Arc<Listening>,
    /// Where connections are served that are no probes.
    pub(super) serving: Handle,
    /// That of `serving`.
    pub(super) heartbeat: Arc<Heartbeat>,
}

impl Acceptor {
    /// Accepts connections in a thread until the listening stops. Returns what tells of the thread's end.
    pub(super) fn start(self, listener: TcpListener) -> io::Result<oneshot::Receiver<()>> {
        let (ended, told) = oneshot::channel();
        let listener = listener.into_std()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("acceptor".to_owned()).spawn(move || {
            runtime.block_on(self.accept(listener));
            drop(ended);
        })?;
        Ok(told)
    }

    async fn accept(self, listener: std::net::TcpListener) {
        let listener = match TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "could not listen"),
        };
        let slots = Slots::new(self.listening.bounds.limits, self.listening.counted.clone());
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.listening.stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => {
                    // Without a slot it is closed at once.
                    if let Some(slot) = slots.take(address.ip()) {
                        self.listening.connections.spawn(self.clone().sort(stream, address, slot));
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Waits for the first bytes of a connection, and serves it where it belongs.
    async fn sort(self, stream: TcpStream, address: SocketAddr, slot: Slot) {
        let (since, header_timeout) = (Instant::now(), self.listening.bounds.header_timeout);
        let mut first = [0; PROBE.len()];
        let arrived = tokio::select! {
            arrived = tokio::time::timeout(header_timeout, stream.peek(&mut first)) => arrived,
            () = slot.give_way.cancelled() => {
                return tracing::debug!(%address, "an idle connection gives way to another");
            }
        };
        let left = header_timeout.saturating_sub(since.elapsed());
        match arrived {
            Ok(Ok(_)) if first == PROBE => {
                self.listening.serve(stream, address, slot, left, Some(self.heartbeat)).await;
            }
            Ok(Ok(_)) => {
                if let Err(error) = self.hand_over(stream, address, slot, left) {
                    tracing::debug!(%address, %error, "a connection could not be handed over");
                }
            }
            Ok(Err(error)) => tracing::debug!(%address, %error, "a connection broke"),
            Err(_) => tracing::debug!(%address, "a connection sent no request"),
        }
    }

    fn hand_over(self, stream: TcpStream, address: SocketAddr, slot: Slot, begin_within: Duration) -> io::Result<()> {
        let stream = stream.into_std()?;
        let Self { listening, serving, heartbeat: _ } = self;
        let connections = listening.connections.clone();
        let served = async move {
            match TcpStream::from_std(stream) {
                Ok(stream) => listening.serve(stream, address, slot, begin_within, None).await,
                Err(error) => tracing::debug!(%address, %error, "a connection could not be taken over"),
            }
        };
        connections.spawn_on(served, &serving);
        Ok(())
    }
}
