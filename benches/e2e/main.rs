//! The end-to-end benchmark: Loopgate beside a pass-through proxy and the least possible loop server.
//!
//! One run starts a scripted upstream and the three servers as processes of their own, sends each of
//! them the same requests in turn, round after round, and prints what the operating system says they
//! spent. What is compared is the ratio within a round, so that a machine that slows down meanwhile
//! slows all of them. `benches/README.md` says how to read it. Linux only, since it reads `/proc`.
#![expect(clippy::disallowed_methods, reason = "the baselines and the load client have no task tracker to drain")]
#![expect(clippy::print_stdout, reason = "a benchmark exists to print its figures")]

mod callgrind;
mod client;
mod counts;
mod dialects;
mod failure;
mod growth;
mod least_loop;
mod live;
mod machine;
mod options;
mod over_redis;
mod passthrough;
mod process;
mod redis_server;
mod report;
mod scenarios;
mod script;
mod servers;
mod suite;
mod times;
mod traced;
mod upstream;

use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;
use crate::options::Options;

/// However slow the machine, the benchmark is over by then.
const LONGEST_RUN: Duration = Duration::from_mins(30);

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [process::UPSTREAM] => serve(&runtime::Builder::new_current_thread().enable_all().build()?, upstream::serve),
        [process::PASSTHROUGH, upstream] => {
            let upstream: SocketAddr = upstream.parse()?;
            serve(&runtime::Runtime::new()?, |listener| passthrough::serve(listener, upstream))
        }
        [process::LEAST_LOOP, upstream] => {
            let upstream: SocketAddr = upstream.parse()?;
            serve(&runtime::Runtime::new()?, |listener| least_loop::serve(listener, upstream))
        }
        // A test runner that builds all targets also runs them, with flags of its own.
        _ if !arguments.iter().any(|argument| argument == "--bench") => Ok(()),
        _ => measure(&Options::parse()),
    }
}

/// Is one of the servers until it is killed.
fn serve<S>(runtime: &runtime::Runtime, server: impl FnOnce(TcpListener) -> S) -> Result<(), Failure>
where
    S: Future<Output = Result<(), Failure>>,
{
    runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        println!("listening on http://{}", listener.local_addr()?);
        server(listener).await
    })
}

/// Measures what is asked for. What cannot be measured is reported, and fails the run with `--hold` only.
fn measure(options: &Options) -> Result<(), Failure> {
    let open_files = machine::raise_open_files();
    // One thread: the client shares a core with the upstream and must not take the servers' one.
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // Whichever ends it, the servers' guards are dropped with the future that holds them.
        tokio::select! {
            measured = suite::run(options, open_files) => return measured,
            _ = interrupt.recv() => println!("interrupted"),
            _ = terminate.recv() => println!("terminated"),
            () = tokio::time::sleep(LONGEST_RUN) => println!("gave up after {} minutes", LONGEST_RUN.as_secs() / 60),
        }
        Ok(())
    })
}
