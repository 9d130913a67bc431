//! Probes beside requests that keep all threads busy; `reuse` tests what one connection serves.

mod reuse;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{channel, sync_channel};

use axum::routing::get;

use super::*;

fn ask(address: SocketAddr, path: &str) -> std::net::TcpStream {
    let mut connection = std::net::TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    connection.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).unwrap();
    connection
}

#[test]
fn a_probe_is_answered_while_requests_keep_all_threads_busy() {
    let (began, busy) = channel();
    let (release, released) = sync_channel::<()>(1);
    let released = Arc::new(parking_lot::Mutex::new(released));
    let keep_busy = move || {
        began.send(()).unwrap();
        // It keeps its thread, as work does that waits for nothing.
        let _ = released.lock().recv();
        std::future::ready("done")
    };
    let router = Router::new().route("/healthz", get(|| async { "alive" })).route("/busy", get(keep_busy));
    let timeout = Duration::from_secs(30);
    let limits = Limits { connections: 10, per_address: None };
    let bounds = Bounds { limits, header_timeout: timeout, keep_alive: timeout, write_timeout: timeout };
    let serving = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = serving.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let listening = serving.spawn(listen(listener, router, bounds, stop.clone(), Connections::default()));
    let mut slow = ask(address, "/busy");
    busy.recv().unwrap();
    let mut answer = String::new();
    ask(address, "/healthz").read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("alive"), "{answer}");
    release.send(()).unwrap();
    let mut head = [0; 12];
    slow.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    stop.cancel();
    serving.block_on(listening).unwrap();
}
