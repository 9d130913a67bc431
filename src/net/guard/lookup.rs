//! Asks name servers.
//!
//! The operating system's way to ask them holds a thread until it has an answer, and who names a URL may have a name server that gives
//! none. So there are only so many such threads, apart from those that all other work shares, and a question that finds none free or
//! has waited for long is given up. A thread that hangs stays counted until the system lets it go.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Most questions at once. Each holds one of the 512 threads of the runtime that may block.
const MAX_AT_ONCE: usize = 64;
/// Most time for an answer, the wait for a thread included.
const MOST_TIME: Duration = Duration::from_secs(5);

/// How the addresses of a name are found. May take as long as it likes.
type Ask = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// Asks for the addresses of names. Clones share their threads.
#[derive(Clone)]
pub(super) struct Lookup {
    ask: Arc<Ask>,
    free: Arc<Semaphore>,
}

impl Lookup {
    /// Asks the operating system. All that do share their threads.
    pub(super) fn system() -> Self {
        static SYSTEM: LazyLock<Lookup> =
            LazyLock::new(|| Lookup::by(|name| Ok((name, 0).to_socket_addrs()?.map(|answer| answer.ip()).collect())));
        SYSTEM.clone()
    }

    /// Asks `ask`.
    pub(super) fn by(ask: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        Self { ask: Arc::new(ask), free: Arc::new(Semaphore::new(MAX_AT_ONCE)) }
    }

    /// The addresses of a name, in the order in which they should be tried. May be empty.
    pub(super) async fn ask(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        timeout(MOST_TIME, self.answer(name)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    async fn answer(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let permit = self.free.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (ask, name) = (self.ask.clone(), name.to_owned());
        let asking = tokio::task::spawn_blocking(move || {
            // The thread is held until the answer is there, also once the caller has given up.
            let _permit = permit;
            ask(&name)
        });
        let mut addresses: Vec<IpAddr> = Vec::new();
        for address in asking.await.map_err(io::Error::other)?? {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Ok(addresses)
    }
}

impl std::fmt::Debug for Lookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lookup").field("free", &self.free.available_permits()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use parking_lot::Mutex;
    use tokio::task::JoinSet;

    use super::*;

    /// Hangs at names below `slow.test` until the sender is dropped, and tells of each question that hangs.
    fn hanging() -> (Lookup, mpsc::Sender<()>, mpsc::Receiver<()>) {
        let (release, held) = mpsc::channel::<()>();
        let (tell, hung) = mpsc::channel();
        let held = Mutex::new(held);
        let lookup = Lookup::by(move |name| {
            if name.ends_with("slow.test") {
                tell.send(()).expect("the test listens");
                // All of them wait for the one that waits for the test.
                let _ = held.lock().recv();
            }
            Ok(vec![[93, 184, 216, 34].into()])
        });
        (lookup, release, hung)
    }

    #[tokio::test(start_paused = true)]
    async fn name_servers_that_hang_hold_only_so_many_threads() {
        let (lookup, release, hung) = hanging();
        let mut asking = JoinSet::new();
        for number in 0..MAX_AT_ONCE + 50 {
            let lookup = lookup.clone();
            asking.spawn(async move { lookup.ask(&format!("{number}.slow.test")).await });
        }
        // Each task comes as far as it can. The runtime runs only some of them before this one's next turn.
        for _ in 0..asking.len() {
            tokio::task::yield_now().await;
        }
        for _ in 0..MAX_AT_ONCE {
            hung.recv_timeout(Duration::from_secs(60)).expect("another question hangs");
        }
        // Other work that blocks goes on.
        assert_eq!(tokio::task::spawn_blocking(|| 7).await.unwrap(), 7);
        // No time passes by itself while threads block.
        tokio::time::advance(MOST_TIME).await;
        while let Some(one) = asking.join_next().await {
            assert_eq!(one.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        let (late, ()) = tokio::join!(lookup.ask("a.test"), tokio::time::advance(MOST_TIME));
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut, "those that gave up still hold their threads");
        assert_eq!(hung.try_recv(), Err(mpsc::TryRecvError::Empty), "more threads hang");
        drop(release);
        assert_eq!(lookup.ask("a.test").await.unwrap().len(), 1);
    }
}
