//! Shows that the proxy does each kind of harm, and no other.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::support::proxy::{Proxy, Way};
use crate::support::within;

/// How long nothing must happen.
const QUIET: Duration = Duration::from_millis(200);

/// A server that says everything back, and begins by its name.
async fn echo(name: u8, tasks: &mut JoinSet<()>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move {
        let mut open = JoinSet::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            open.spawn(async move {
                let _ = socket.write_all(&[name]).await;
                let (mut from, mut to) = socket.split();
                drop(tokio::io::copy(&mut from, &mut to).await);
            });
        }
    });
    address
}

async fn connect(proxy: &Proxy) -> (u8, TcpStream) {
    let mut socket = TcpStream::connect(proxy.address()).await.unwrap();
    let name = within("the server's name", socket.read_u8()).await.unwrap();
    (name, socket)
}

async fn ask(socket: &mut TcpStream, text: &[u8]) -> std::io::Result<Vec<u8>> {
    socket.write_all(text).await?;
    let mut answer = vec![0; text.len()];
    socket.read_exact(&mut answer).await?;
    Ok(answer)
}

async fn is_silent(socket: &mut TcpStream) -> bool {
    timeout(QUIET, ask(socket, b"hello")).await.is_err()
}

#[tokio::test]
async fn bytes_pass_and_targets_change() {
    let mut tasks = JoinSet::new();
    let (first, second) = (echo(b'1', &mut tasks).await, echo(b'2', &mut tasks).await);
    let proxy = Proxy::start(first).await;
    let (name, mut one) = connect(&proxy).await;
    proxy.retarget(second);
    let (other, mut two) = connect(&proxy).await;
    assert_eq!((name, other, proxy.connections()), (b'1', b'2', 2));
    let long = vec![b'x'; 300_000];
    let (mut from, mut to) = one.split();
    let mut answer = vec![0; long.len()];
    let (sent, read) =
        within("an echo", async { tokio::join!(to.write_all(&long), from.read_exact(&mut answer)) }).await;
    sent.unwrap();
    assert_eq!((read.unwrap(), &answer), (long.len(), &long));
    drop(one);
    assert_eq!(ask(&mut two, b"still").await.unwrap(), b"still");
    within("the proxy to notice", async {
        while proxy.connections() > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn ways_are_slow_narrow_and_held() {
    let mut tasks = JoinSet::new();
    let proxy = Proxy::start(echo(b'1', &mut tasks).await).await;
    let (_, mut socket) = connect(&proxy).await;
    let timed = async |socket: &mut TcpStream| {
        let start = Instant::now();
        ask(socket, &[b'x'; 1000]).await.unwrap();
        start.elapsed()
    };
    proxy.slow(Duration::from_millis(200));
    let elapsed = timed(&mut socket).await;
    assert!(elapsed >= QUIET && elapsed < QUIET * 10, "{elapsed:?}");
    proxy.heal();
    proxy.replies(Way { rate: Some(4000), slice: Some(100), ..Way::default() });
    let elapsed = timed(&mut socket).await;
    assert!(elapsed >= QUIET && elapsed < QUIET * 10, "1000 bytes at 4000 a second took {elapsed:?}");
    proxy.heal();
    proxy.requests(Way { held: true, ..Way::default() });
    assert!(is_silent(&mut socket).await);
    proxy.heal();
    let mut late = [0; 5];
    within("what was held back", socket.read_exact(&mut late)).await.unwrap();
    assert_eq!(&late, b"hello");
    proxy.hold();
    assert!(is_silent(&mut socket).await);
}

#[tokio::test]
async fn connections_are_cut_reset_and_refused() {
    let mut tasks = JoinSet::new();
    let proxy = Proxy::start(echo(b'1', &mut tasks).await).await;
    let (_, mut socket) = connect(&proxy).await;
    proxy.cut();
    assert_eq!(within("the cut", socket.read(&mut [0; 1])).await.unwrap(), 0);
    let (_, mut socket) = connect(&proxy).await;
    proxy.reset();
    let error = within("the reset", socket.read(&mut [0; 1])).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let (_, mut socket) = connect(&proxy).await;
    proxy.refuse();
    within("a refusal", async {
        while TcpStream::connect(proxy.address()).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(ask(&mut socket, b"still").await.unwrap(), b"still");
    proxy.heal();
    within("a connection", async {
        while TcpStream::connect(proxy.address()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_swallowed_is_lost_for_good() {
    let mut tasks = JoinSet::new();
    let proxy = Proxy::start(echo(b'1', &mut tasks).await).await;
    let (_, mut old) = connect(&proxy).await;
    proxy.swallow();
    assert!(is_silent(&mut old).await);
    let mut new = TcpStream::connect(proxy.address()).await.unwrap();
    timeout(QUIET, new.read_u8()).await.expect_err("even its name is lost");
    proxy.heal();
    assert!(is_silent(&mut old).await && is_silent(&mut new).await);
    let (_, mut healthy) = connect(&proxy).await;
    assert_eq!(ask(&mut healthy, b"hello").await.unwrap(), b"hello");
}

#[tokio::test]
async fn subscribers_go_deaf_and_replies_get_lost() {
    let mut tasks = JoinSet::new();
    let proxy = Proxy::start(echo(b'1', &mut tasks).await).await;
    let (_, mut subscriber) = connect(&proxy).await;
    let (_, mut other) = connect(&proxy).await;
    ask(&mut subscriber, b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n").await.unwrap();
    proxy.deafen_subscribers();
    assert!(is_silent(&mut subscriber).await);
    assert_eq!(ask(&mut other, b"hello").await.unwrap(), b"hello");
    proxy.heal();
    assert_eq!(ask(&mut subscriber, b"hello").await.unwrap(), b"hello");
    proxy.swallow_replies(1);
    ask(&mut other, b"lost").await.expect_err("the reply is swallowed");
    assert_eq!(ask(&mut subscriber, b"hello").await.unwrap(), b"hello");
}

#[tokio::test]
async fn scripts_come_late_even_if_nobody_waits_for_them() {
    let mut tasks = JoinSet::new();
    let proxy = Proxy::start(echo(b'1', &mut tasks).await).await;
    proxy.hold_scripts(1);
    let (_, mut patient) = connect(&proxy).await;
    assert_eq!(ask(&mut patient, b"PING").await.unwrap(), b"PING", "it is no script");
    patient.write_all(b"EVALSHA 1").await.unwrap();
    let mut answer = [0; 9];
    assert!(timeout(QUIET, patient.read_exact(&mut answer)).await.is_err(), "it is kept back");
    let (_, mut other) = connect(&proxy).await;
    assert_eq!(ask(&mut other, b"EVALSHA 2").await.unwrap(), b"EVALSHA 2", "one was to be kept back");
    proxy.pass_on();
    within("the script", patient.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"EVALSHA 1");
}
