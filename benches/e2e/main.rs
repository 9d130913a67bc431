//! The end-to-end benchmark: Loopgate beside a pass-through proxy and the least possible loop server.
//!
//! One run starts a scripted upstream and the three servers as processes of their own, sends each of
//! them the same requests in turn, round after round, and prints what the operating system says they
//! spent. What is compared is the ratio within a round, so that a machine that slows down meanwhile
//! slows all of them. `benches/README.md` says how to read it. Linux only, since it reads `/proc`.
#![expect(clippy::disallowed_methods, reason = "the baselines and the load client have no task tracker to drain")]
#![expect(clippy::print_stdout, reason = "a benchmark exists to print its figures")]

mod client;
mod fleet;
mod least_loop;
mod live;
mod machine;
mod over_redis;
mod passthrough;
mod process;
mod redis_server;
mod report;
mod scenarios;
mod script;
mod upstream;

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

/// What went wrong, as a sentence for whoever runs the benchmark.
type Failure = Box<dyn Error + Send + Sync>;

/// However slow the machine, the benchmark is over by then.
const LONGEST_RUN: Duration = Duration::from_mins(30);

/// Compares Loopgate with a pass-through proxy and the least possible loop server.
#[derive(Parser)]
#[command(name = "e2e")]
struct Options {
    /// What to measure; everything if nothing is named.
    #[arg(value_enum)]
    scenarios: Vec<Scenario>,
    /// How many rounds; in each, every server gets the same block of requests.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How many streams the `streams` scenario opens, if the limit on open files permits.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    streams: u32,
    /// Let the servers use every core instead of one of their own.
    #[arg(long)]
    unpinned: bool,
    /// Given by `cargo bench`; without it nothing is measured.
    #[arg(long = "bench", hide = true)]
    _bench: bool,
}

/// One thing to measure.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// Time until a process answers, and its memory while idle.
    Ready,
    /// CPU of a short answer.
    Plain,
    /// CPU of two rounds of calculator calls and the answer after them.
    Tools3,
    /// CPU of 100 tokens that arrive at once.
    Burst100,
    /// CPU of 100 tokens that arrive one every 2 ms.
    Paced100,
    /// What a server adds to the time until the first token.
    Ttft,
    /// What Redis adds to each of these, and what it takes itself.
    Redis,
    /// A thousand streams at a reader's pace, over memory and over Redis.
    Live,
    /// Memory of streams that wait for an upstream that fell silent.
    Streams,
}

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

/// Measures what is asked for. What cannot be measured is reported and does not fail the run.
fn measure(options: &Options) -> Result<(), Failure> {
    let open_files = machine::raise_open_files();
    // One thread: the client shares a core with the upstream and must not take the servers' one.
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // Whichever ends it, the servers' guards are dropped with the future that holds them.
        tokio::select! {
            () = scenarios::run(options, open_files) => {}
            _ = interrupt.recv() => println!("interrupted"),
            _ = terminate.recv() => println!("terminated"),
            () = tokio::time::sleep(LONGEST_RUN) => println!("gave up after {} minutes", LONGEST_RUN.as_secs() / 60),
        }
        Ok(())
    })
}
