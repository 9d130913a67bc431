//! For tests: name servers that answer by a script, and listeners that must never be connected to.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::lookup::Lookup;
use super::{Guard, Policy};

/// Answers to names. Each question takes the next answer; the last one stays.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script {
    answers: Arc<Mutex<HashMap<String, Vec<Vec<IpAddr>>>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Script {
    /// Lets a name be answered so, one list after the other.
    pub(crate) fn answering(self, name: &str, answers: &[&[&str]]) -> Self {
        let parsed = |answer: &&[&str]| answer.iter().map(|address| address.parse().unwrap()).collect();
        self.answers.lock().insert(name.to_owned(), answers.iter().map(parsed).collect());
        self
    }

    /// The names that were asked for.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    fn ask(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.lock().push(name.to_owned());
        let mut answers = self.answers.lock();
        let answers = answers.get_mut(name.trim_end_matches('.')).ok_or(io::ErrorKind::NotFound)?;
        Ok(if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() })
    }
}

impl Guard {
    /// Decides by `policy`, and asks `script`.
    pub(crate) fn scripted(policy: Policy, script: &Script) -> Self {
        let script = script.clone();
        Self { lookup: Lookup::by(move |name| script.ask(name)), ..Self::new(policy) }
    }
}

/// Something that must not be reached.
pub(crate) struct Canary(TcpListener);

impl Canary {
    /// Listens on all addresses of this machine.
    pub(crate) async fn start() -> Self {
        let on_both = TcpListener::bind("[::]:0").await;
        Self(match on_both {
            Ok(listener) => listener,
            // A machine without IPv6.
            Err(_) => TcpListener::bind("0.0.0.0:0").await.unwrap(),
        })
    }

    /// Listens on one address.
    pub(crate) async fn at(address: &str) -> Self {
        Self(TcpListener::bind((address, 0)).await.unwrap())
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    /// Asserts that not one connection was opened. Connections are in the listener's queue before their clients hear of it, so
    /// one of our own that comes after all others shows that there were none.
    pub(crate) async fn is_untouched(&self) {
        let own = std::net::TcpStream::connect(("127.0.0.1", self.port())).unwrap();
        let (_, peer) = self.0.accept().await.unwrap();
        let is_own = peer.port() == own.local_addr().unwrap().port();
        assert!(is_own, "{peer} reached what it must not reach");
    }
}
