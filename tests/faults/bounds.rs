//! A server of 512 MiB holds as much as many callers may ask of it, one kind after the other and all at once, and says
//! within 100 ms that it lives, all the while.
//!
//! In full the server is built with optimizations, as it is shipped. Without them it is slower than what is promised.

mod load;
mod probe;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::{Duration, Instant};

use self::load::{ACTS, Amounts, Load};
use self::probe::{Probe, Seen};
use super::{is_full, scaled};
use crate::support::TestServer;

const MIB: u64 = 1 << 20;
/// What the server may need, as the manifests limit it.
const MEMORY: u64 = 512 * MIB;
/// What it may need for the sample beside its binary, which is larger without optimizations, and with every feature.
const SAMPLE_MEMORY: u64 = 160 * MIB;
/// Within which time the server says that it lives, beside what the machine takes for the same.
const PROMPT: Duration = Duration::from_millis(100);
/// Files that clients, upstream and server have open: a stream takes two of each process.
const FILES: u64 = 16_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_512_mib_holds_what_is_promised_and_answers_probes_meanwhile() {
    allow_files();
    let amounts = scaled(
        Amounts { streams: 200, bodies: 16, readers: 20, logs: 10, runs: 3 },
        Amounts { streams: 5_000, bodies: 60, readers: 100, logs: 30, runs: 10 },
    );
    let mut load = Load::start(amounts).await;
    let mut server = TestServer::builder(&load.config()).optimized(is_full()).memory(MEMORY).start().await;
    println!("bounds: the server {} if it needs more", if server.has_memory_limit() { "is killed" } else { "fails" });
    load.prepare(&server).await;
    let probe = Probe::start(server.address());
    let mut worst = report("a run with a long log", &server, &probe);
    for act in ACTS {
        let begun = Instant::now();
        let what = load.act(act).await;
        worst = worst.max(report(&format!("{what}, in {:.1?}", begun.elapsed()), &server, &probe));
    }
    assert!(!server.has_ended(), "the server was killed");
    let (most, needed) = scaled((SAMPLE_MEMORY, server.most_own_memory()), (MEMORY, server.most_memory()));
    assert!(needed <= most, "the server needed {} MiB", needed / MIB);
    assert!(worst.failed == 0 && worst.longest <= PROMPT + worst.of_machine, "/healthz: {worst:?}");
}

/// Prints what the server needs, and how long it took to answer probes since the last report.
#[expect(clippy::print_stdout, reason = "it is what is measured")]
fn report(what: &str, server: &TestServer, probe: &Probe) -> Seen {
    let seen = probe.take();
    let (now, most, own) = (server.resident_memory(), server.most_memory(), server.most_own_memory());
    println!("bounds: {what}: {} MiB, {} at most, {} of its own; {seen:?}", now / MIB, most / MIB, own / MIB);
    seen
}

/// Raises the number of files that this process and its children may open.
fn allow_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < FILES) {
        let raised = Rlimit { current: Some(FILES.min(maximum.unwrap_or(FILES))), maximum };
        setrlimit(Resource::Nofile, raised).expect("a process may raise its limit up to the hard one");
    }
}
