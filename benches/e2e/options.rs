//! What the command line asks the benchmark to measure.

use clap::{Parser, ValueEnum};

/// Compares Loopgate with a pass-through proxy and the least possible loop server.
#[derive(Parser)]
#[command(name = "e2e")]
pub(crate) struct Options {
    /// What to measure; everything if nothing is named.
    #[arg(value_enum)]
    pub(crate) scenarios: Vec<Scenario>,
    /// How many rounds; in each, every server gets the same block of requests.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// How many streams the `streams` scenario opens, if the limit on open files permits.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) streams: u32,
    /// Let the servers use every core instead of one of their own.
    #[arg(long)]
    pub(crate) unpinned: bool,
    /// Fail where a count does not keep its budget, or cannot be taken.
    #[arg(long)]
    pub(crate) hold: bool,
    /// Given by `cargo bench`; without it nothing is measured.
    #[arg(long = "bench", hide = true)]
    _bench: bool,
}

/// One thing to measure.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Time until a process answers, and its memory while idle.
    Ready,
    /// CPU of a short answer.
    Plain,
    /// CPU of two rounds of calculator calls and the answer after them.
    Tools3,
    /// CPU of three rounds of calls of an HTTP tool and the answer after them.
    Loop,
    /// Time of the same loop, one at a time.
    LoopTime,
    /// CPU of an answer in one piece.
    Chat,
    /// CPU of 100 tokens that arrive at once.
    Burst100,
    /// CPU of 100 tokens that arrive one every 2 ms.
    Paced100,
    /// CPU of these through each API of Loopgate.
    Apis,
    /// What a server adds to the time until the first token.
    Ttft,
    /// What Redis adds to each of these, and what it takes itself.
    Redis,
    /// Time of a loop over the embedded store, beside one sync of the same disk.
    Embedded,
    /// A thousand streams at a reader's pace, over memory and over Redis.
    Live,
    /// Instructions, allocations and tasks of a request, each beside its budget; needs valgrind.
    Counts,
    /// What sending one trace in ten adds to the instructions of a request; needs valgrind.
    Traces,
    /// What one thing costs where there are few of them, and where there are ten times as many.
    Growth,
    /// What a message costs in a session of 100 messages and of 10,000, of which a summary stands for all but ten.
    Sessions,
    /// CPU of the same load on one worker and on two.
    Workers,
    /// Memory of streams that wait for an upstream that fell silent.
    Streams,
}
