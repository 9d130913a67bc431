//! A proxy that lets its clients down when it is told to.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::within;

/// The proxy. Dropping it ends it and all connections through it.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    cut: Arc<Notify>,
    accepted: watch::Sender<usize>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Listens on a free port and passes everything on to `address`.
    pub(crate) async fn start(address: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let own = listener.local_addr().expect("it is bound");
        let (cut, accepted, to) = (Arc::new(Notify::new()), watch::Sender::new(0), address.to_owned());
        let (told, count) = (cut.clone(), accepted.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                count.send_modify(|count| *count += 1);
                let (told, to) = (told.clone(), to.clone());
                connections.spawn(async move {
                    let Ok(mut server) = TcpStream::connect(to).await else { return };
                    tokio::select! {
                        // That a peer breaks off is its own business.
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        () = told.notified() => {}
                    }
                });
            }
        });
        Self { address: own, cut, accepted, _tasks: tasks }
    }

    /// `http://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts the connections that stand now.
    pub(crate) fn cut(&self) {
        self.cut.notify_waiters();
    }

    /// Returns once it took `count` connections.
    pub(crate) async fn accepted(&self, count: usize) {
        let mut accepted = self.accepted.subscribe();
        let what = format!("connection number {count} to the proxy");
        within(&what, accepted.wait_for(|accepted| *accepted >= count)).await.expect("we hold a sender");
    }
}
