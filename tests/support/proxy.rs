//! A TCP proxy that fails as networks do, when it is told to.
//!
//! It forwards bytes between its clients and a target that may change. Each direction can be slow,
//! narrow or held back; connections can be cut, reset, refused or swallowed. It knows of Redis only how
//! a subscription looks, so that those connections alone can be made deaf, and how a script looks, so that single
//! ones can come late.
//!
//! The integration tests and the unit tests of `store::redis` both include this file, so it imports nothing of this
//! crate.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::seed::Seed;

/// How long a test waits for a connection.
const MAX_WAIT: Duration = Duration::from_secs(20);
/// How much longer than asked a task may sleep.
const SLEPT: Duration = Duration::from_millis(20);
/// Pieces that are under way in one direction of one connection.
const IN_FLIGHT: usize = 1024;

/// How one direction behaves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Way {
    /// How much later bytes arrive.
    pub(crate) latency: Duration,
    /// At most so much later still.
    pub(crate) jitter: Duration,
    /// Bytes a second.
    pub(crate) rate: Option<u32>,
    /// Bytes are written in pieces of at most so many.
    pub(crate) slice: Option<usize>,
    /// Nothing is read for now; what was sent arrives afterwards.
    pub(crate) held: bool,
}

/// What happens to connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// They are forwarded.
    Open,
    /// Nobody listens.
    Refusing,
    /// They are made, and whatever is said on them is lost; they never recover.
    Hole,
}

/// How connections are ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    Cut,
    Reset,
}

#[derive(Debug, Clone, Copy)]
struct State {
    target: SocketAddr,
    /// To the target, and back.
    ways: [Way; 2],
    mode: Mode,
    deaf_subscribers: bool,
    /// A word: connections are cut when the reply comes to a request that has it.
    unheard: Option<&'static str>,
    /// Counts the blows; every connection that lives when one falls feels it.
    blow: (u64, Blow),
}

/// A proxy. Dropping it ends it and its connections.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    state: watch::Sender<State>,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Shared {
    accepted: watch::Sender<usize>,
    connections: AtomicUsize,
    swallow_replies: AtomicUsize,
    hold_scripts: AtomicUsize,
    /// Notified to pass on the scripts that are kept back.
    pass_on: Notify,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and forwards to `target`.
    pub(crate) async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let state = watch::Sender::new(State {
            target,
            ways: [Way::default(); 2],
            mode: Mode::Open,
            deaf_subscribers: false,
            unheard: None,
            blow: (0, Blow::Cut),
        });
        let shared = Arc::new(Shared::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, address, state.subscribe(), shared.clone()));
        Self { address, state, shared, _tasks: tasks }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns once it took `count` connections.
    pub(crate) async fn accepted(&self, count: usize) {
        let mut accepted = self.shared.accepted.subscribe();
        let enough = timeout(MAX_WAIT, accepted.wait_for(|accepted| *accepted >= count)).await;
        enough.unwrap_or_else(|_| panic!("waited for connection number {count}")).expect("we hold a sender");
    }

    /// Connections that are open now.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// New connections go there.
    pub(crate) fn retarget(&self, target: SocketAddr) {
        self.state.send_modify(|state| state.target = target);
    }

    /// How bytes to the target fare from now on.
    pub(crate) fn requests(&self, way: Way) {
        self.state.send_modify(|state| state.ways[0] = way);
    }

    /// How bytes from the target fare from now on.
    pub(crate) fn replies(&self, way: Way) {
        self.state.send_modify(|state| state.ways[1] = way);
    }

    /// Half of `latency` each way, from now on.
    pub(crate) fn slow(&self, latency: Duration) {
        let way = Way { latency: latency / 2, jitter: latency / 10, ..Way::default() };
        self.state.send_modify(|state| state.ways = [way; 2]);
    }

    /// Holds everything back, both ways, until [`Proxy::heal`].
    pub(crate) fn hold(&self) {
        self.state.send_modify(|state| state.ways = [Way { held: true, ..Way::default() }; 2]);
    }

    /// Closes all connections.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| state.blow = (state.blow.0 + 1, Blow::Cut));
    }

    /// Resets all connections.
    pub(crate) fn reset(&self) {
        self.state.send_modify(|state| state.blow = (state.blow.0 + 1, Blow::Reset));
    }

    /// Refuses new connections until [`Proxy::heal`]. Those that there are stay.
    pub(crate) fn refuse(&self) {
        self.state.send_modify(|state| state.mode = Mode::Refusing);
    }

    /// Swallows what is said on all connections, old ones and new, which never recover: after
    /// [`Proxy::heal`] only new ones work.
    pub(crate) fn swallow(&self) {
        self.state.send_modify(|state| state.mode = Mode::Hole);
    }

    /// Swallows what the target says on connections that subscribed to something, until
    /// [`Proxy::heal`].
    pub(crate) fn deafen_subscribers(&self) {
        self.state.send_modify(|state| state.deaf_subscribers = true);
    }

    /// The next `count` requests arrive, but each one's connection is cut when the reply comes, unheard.
    pub(crate) fn swallow_replies(&self, count: usize) {
        self.shared.swallow_replies.store(count, Ordering::SeqCst);
    }

    /// The same of every request that has this word, until [`Proxy::heal`].
    pub(crate) fn swallow_replies_to(&self, word: &'static str) {
        self.state.send_modify(|state| state.unheard = Some(word));
    }

    /// Keeps the next `count` scripts back until [`Proxy::pass_on`].
    pub(crate) fn hold_scripts(&self, count: usize) {
        self.shared.hold_scripts.store(count, Ordering::SeqCst);
    }

    /// Passes on the scripts that were kept back, even if nobody waits for them any more.
    pub(crate) fn pass_on(&self) {
        self.shared.pass_on.notify_waiters();
    }

    /// All is well for what comes from now on.
    pub(crate) fn heal(&self) {
        self.shared.swallow_replies.store(0, Ordering::SeqCst);
        self.state.send_modify(|state| {
            state.ways = [Way::default(); 2];
            state.mode = Mode::Open;
            state.deaf_subscribers = false;
            state.unheard = None;
        });
    }
}

async fn accept(listener: TcpListener, address: SocketAddr, mut state: watch::Receiver<State>, shared: Arc<Shared>) {
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        let refusing = state.borrow_and_update().mode == Mode::Refusing;
        if refusing {
            listener = None;
        } else if listener.is_none() {
            listener = TcpListener::bind(address).await.ok();
        }
        let Some(open) = &listener else {
            tokio::select! {
                changed = state.changed() => if changed.is_err() { return },
                // Whatever took the port meanwhile may give it back.
                () = sleep(Duration::from_millis(50)) => {}
            }
            continue;
        };
        tokio::select! {
            accepted = open.accept() => if let Ok((client, _)) = accepted {
                shared.accepted.send_modify(|accepted| *accepted += 1);
                connections.spawn(serve(client, state.clone(), shared.clone()));
            },
            changed = state.changed() => if changed.is_err() { return },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// What the two directions of a connection know of each other.
#[derive(Debug, Default)]
struct Link {
    /// Whatever is said is lost.
    holed: AtomicBool,
    /// The client subscribed to something.
    subscribed: AtomicBool,
    /// The next reply is swallowed, and the connection cut.
    cut_at_reply: AtomicBool,
}

async fn serve(mut client: TcpStream, mut state: watch::Receiver<State>, shared: Arc<Shared>) {
    let _open = Open::new(&shared);
    let link = Link::default();
    let now = *state.borrow_and_update();
    let Ok(mut target) = TcpStream::connect(now.target).await else {
        // As if the target itself had refused.
        return drop(client.set_zero_linger());
    };
    let _ = (client.set_nodelay(true), target.set_nodelay(true));
    let (from_client, to_client) = client.split();
    let (from_target, to_target) = target.split();
    let blow = tokio::select! {
        // Whether it ended well or broke off is between the two ends.
        _ = pump(0, from_client, to_target, state.clone(), &link, &shared) => Blow::Cut,
        _ = pump(1, from_target, to_client, state.clone(), &link, &shared) => Blow::Cut,
        blow = until_blown(&mut state, now.blow.0, &link) => blow,
    };
    if blow == Blow::Reset {
        let _ = (client.set_zero_linger(), target.set_zero_linger());
    }
}

/// Returns once a blow falls after number `born`; meanwhile keeps in mind that there was a hole.
async fn until_blown(state: &mut watch::Receiver<State>, born: u64, link: &Link) -> Blow {
    loop {
        let now = *state.borrow_and_update();
        if now.mode == Mode::Hole {
            link.holed.store(true, Ordering::SeqCst);
        }
        if now.blow.0 != born || state.changed().await.is_err() {
            return now.blow.1;
        }
    }
}

/// Moves bytes one way until either end is gone. `way` is 0 to the target and 1 back.
async fn pump(
    way: usize,
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut state: watch::Receiver<State>,
    link: &Link,
    shared: &Shared,
) -> io::Result<()> {
    let (sender, mut due) = mpsc::channel::<(Instant, Vec<u8>)>(IN_FLIGHT);
    let mut writing = state.clone();
    let read = async move {
        let mut seed = Seed::new(way as u64);
        let mut buffer = vec![0; 16 * 1024];
        loop {
            while_held(&mut state, way).await?;
            // What was read before the end, or before a reset, is still delivered.
            let Ok(length @ 1..) = from.read(&mut buffer).await else { return io::Result::Ok(()) };
            let bytes = &buffer[..length];
            if way == 0 {
                link.hear_request(bytes, state.borrow().unheard, shared);
                if bytes.windows(4).any(|word| word == b"EVAL") && spend(&shared.hold_scripts) {
                    shared.pass_on.notified().await;
                }
            } else if link.cut_at_reply.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let now = *state.borrow();
            let is_deaf = way == 1 && now.deaf_subscribers && link.subscribed.load(Ordering::SeqCst);
            if link.holed.load(Ordering::SeqCst) || is_deaf {
                continue;
            }
            let Way { latency, jitter, .. } = now.ways[way];
            let jitter = Duration::from_micros(seed.below(u64::try_from(jitter.as_micros()).unwrap_or(0) + 1));
            let arrives = Instant::now() + latency + jitter;
            sender.send((arrives, bytes.to_vec())).await.map_err(io::Error::other)?;
        }
    };
    let write = async {
        let (mut before, mut paced) = (Instant::now(), Instant::now());
        while let Some((arrives, bytes)) = due.recv().await {
            // Bytes never overtake each other.
            before = before.max(arrives);
            sleep_until(before).await;
            let now = while_held(&mut writing, way).await?;
            if link.holed.load(Ordering::SeqCst) {
                continue;
            }
            for piece in bytes.chunks(now.slice.unwrap_or(bytes.len()).max(1)) {
                to.write_all(piece).await?;
                if let Some(rate) = now.rate {
                    let seconds = f64::from(u32::try_from(piece.len()).unwrap_or(u32::MAX)) / f64::from(rate.max(1));
                    // What was slept too long is made up for.
                    paced = paced.max(Instant::now() - SLEPT) + Duration::from_secs_f64(seconds);
                    sleep_until(paced).await;
                }
            }
        }
        io::Result::Ok(())
    };
    tokio::try_join!(read, write).map(|_| ())
}

/// Returns once this way is not held back, and how it is then.
async fn while_held(state: &mut watch::Receiver<State>, way: usize) -> io::Result<Way> {
    let state = state.wait_for(|state| !state.ways[way].held).await;
    Ok(state.map_err(io::Error::other)?.ways[way])
}

impl Link {
    /// Takes note of what the client asks for.
    fn hear_request(&self, bytes: &[u8], unheard: Option<&str>, shared: &Shared) {
        let subscribes = bytes.windows(9).any(|word| word.eq_ignore_ascii_case(b"SUBSCRIBE"));
        self.subscribed.fetch_or(subscribes, Ordering::SeqCst);
        let has = |word: &str| bytes.windows(word.len()).any(|some| some == word.as_bytes());
        if unheard.is_some_and(has) || spend(&shared.swallow_replies) {
            self.cut_at_reply.store(true, Ordering::SeqCst);
        }
    }
}

/// Takes one from a number of faults; whether there was one.
fn spend(faults: &AtomicUsize) -> bool {
    faults.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

/// Counts a connection while it is open.
struct Open<'a>(&'a Shared);

impl<'a> Open<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.connections.fetch_add(1, Ordering::SeqCst);
        Self(shared)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::SeqCst);
    }
}
