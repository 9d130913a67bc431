//! What one request costs, counted instead of timed, and held by a budget: instructions, allocations, tasks.
//!
//! A count is the same on a busy machine as on an idle one. It does not see the kernel, nor what waits for memory.

use std::collections::HashMap;
use std::env::consts::ARCH;
use std::time::Duration;

use tokio::time::sleep;

use crate::callgrind::Callgrind;
use crate::client::{Ask, drive};
use crate::dialects::Dialect;
use crate::failure::Failure;
use crate::options::Options;
use crate::report::{self, Count};
use crate::script;
use crate::servers::{Servers, Subject};

/// Requests before those that are counted: connections to the upstream, tables that grow.
const WARM_UP: u32 = 60;
/// Requests that are counted together, one after the other over one connection.
const REQUESTS: u32 = 5;
/// What a server does after an answer is its cost, too: this long is waited for it. It counts and unregisters together the runs
/// that end within a second.
const COUNTED: Duration = Duration::from_millis(1_300);
/// So many means are taken, of which the least counts: on a busy machine a text is stored and sent in more pieces.
const BATCHES: u32 = 5;

/// Instructions may differ by so much, in either direction: with another compiler's version, C library or processor.
/// A request that became cheaper by more gets a new budget, as the next change could use up what this one has saved.
const TOLERANCE: f64 = 0.03;
/// Where the budgets of instructions were taken. Elsewhere these counts are reported and not held.
const TAKEN_ON: &str = "x86_64";

/// What is counted.
const WHAT: [&str; 3] = ["thousand instructions", "allocations", "tasks"];

/// What a request may cost.
struct Budget {
    title: &'static str,
    model: &'static str,
    /// The dialect of the upstream; OpenAI's chat completions if none is said.
    dialect: Option<Dialect>,
    streamed: bool,
    /// Thousands of instructions, allocations, tasks, by the profile `bench`.
    optimized: [f64; 3],
    /// The same by the profile `dev`, which is built anyway where changes are tested.
    unoptimized: [f64; 3],
    /// By how many allocations an unoptimized server may miss its budget: under callgrind it is so slow that on a busy machine
    /// a text comes in a few pieces more.
    spread: f64,
}

impl Budget {
    /// One of the three, and what it may be missed by, for the profile of this program, which is that of the server.
    fn most(&self, index: usize) -> (f64, f64) {
        let most = if cfg!(debug_assertions) { self.unoptimized } else { self.optimized }[index];
        let tolerance = match index {
            // Elsewhere they are reported and not held.
            0 if ARCH != TAKEN_ON => f64::INFINITY,
            0 => most * TOLERANCE,
            1 if cfg!(debug_assertions) => self.spread,
            1 => 1.5,
            _ => 0.5,
        };
        (most, tolerance)
    }
}

/// How to renew them is told in `benches/README.md`; say in the commit why they changed.
const BUDGETS: [Budget; 8] = [
    Budget {
        title: "an answer of 20 tokens, not streamed",
        model: script::CHAT,
        dialect: None,
        streamed: false,
        optimized: [455.0, 404.0, 2.6],
        unoptimized: [4673.0, 409.0, 2.6],
        spread: 6.0,
    },
    Budget {
        title: "two calls of the calculator, then 10 tokens",
        model: script::TOOLS3,
        dialect: None,
        streamed: true,
        optimized: [927.5, 784.5, 2.6],
        unoptimized: [8769.0, 789.0, 2.6],
        spread: 6.0,
    },
    Budget {
        title: "three calls of an HTTP tool, then 20 tokens, not streamed",
        model: script::LOOP,
        dialect: None,
        streamed: false,
        optimized: [1263.5, 1087.0, 2.6],
        unoptimized: [11820.0, 1091.5, 2.6],
        spread: 5.0,
    },
    Budget {
        title: "100 tokens in one burst",
        model: script::BURST100,
        dialect: None,
        streamed: true,
        optimized: [703.0, 493.0, 2.6],
        unoptimized: [6933.0, 499.0, 2.6],
        spread: 6.0,
    },
    Budget {
        title: "20 tokens in Anthropic's Messages, not streamed",
        model: script::CHAT,
        dialect: Some(Dialect::Messages),
        streamed: false,
        optimized: [480.5, 441.0, 2.6],
        unoptimized: [4910.0, 441.0, 2.6],
        spread: 6.0,
    },
    Budget {
        title: "100 tokens in Anthropic's Messages",
        model: script::BURST100,
        dialect: Some(Dialect::Messages),
        streamed: true,
        optimized: [719.0, 516.5, 2.6],
        unoptimized: [7102.0, 521.0, 2.6],
        spread: 6.0,
    },
    Budget {
        title: "100 tokens in OpenAI's Responses",
        model: script::BURST100,
        dialect: Some(Dialect::Responses),
        streamed: true,
        optimized: [808.0, 553.0, 2.6],
        unoptimized: [8118.0, 559.0, 2.6],
        spread: 6.0,
    },
    Budget {
        title: "100 tokens in the Gemini API",
        model: script::BURST100,
        dialect: Some(Dialect::Gemini),
        streamed: true,
        optimized: [765.0, 542.0, 2.6],
        unoptimized: [7687.0, 549.0, 2.6],
        spread: 6.0,
    },
];

/// Counts, prints, and with `--hold` fails where a budget is not kept.
pub(crate) async fn run(options: &Options) -> Result<(), Failure> {
    let servers = Servers::start(&[Subject::LoopgateCounted], false).await?;
    let process = servers.process(Subject::LoopgateCounted).ok_or("there is nothing to count")?;
    let mut callgrind = Callgrind::of(process.id(), process.directory());
    let (mut rows, mut complaints, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut plain = HashMap::new();
    for budget in &BUDGETS {
        let ask = if budget.streamed { Ask::new } else { Ask::whole };
        let model = budget.dialect.map_or_else(|| budget.model.to_owned(), |dialect| dialect.model(budget.model));
        let least = count(&ask(Subject::LoopgateCounted, process.address, &model), &mut callgrind).await?;
        let row: [Count; 3] = std::array::from_fn(|index| {
            let (most, tolerance) = budget.most(index);
            Count { what: WHAT[index], counted: least[index], budget: most, tolerance }
        });
        complaints.extend(row.iter().filter(|count| !is_kept(count)).map(|count| complaint(budget.title, count)));
        rows.push((budget.title, row));
        match budget.dialect {
            None => _ = plain.insert(budget.model, least[0]),
            Some(dialect) => {
                let ratio = plain.get(budget.model).map_or(f64::INFINITY, |plain| least[0] / plain);
                ratios.push((budget.title, ratio, dialect.most()));
            }
        }
    }
    report::counts(BATCHES, REQUESTS, &rows);
    report::dialects(&ratios);
    let dear = ratios.iter().filter(|(_, ratio, most)| ratio > most);
    complaints.extend(dear.map(|(title, ratio, most)| {
        format!("{title}: {ratio:.2} times the instructions of chat completions are more than {most}")
    }));
    if options.hold && !complaints.is_empty() { Err(complaints.join("\n").into()) } else { Ok(()) }
}

/// Thousands of instructions, allocations and tasks of such a request.
async fn count(ask: &Ask, callgrind: &mut Callgrind) -> Result<[f64; 3], Failure> {
    drive(ask, 1, WARM_UP).await?;
    sleep(COUNTED).await;
    let mut least = [f64::INFINITY; 3];
    for _ in 0..BATCHES {
        callgrind.begin()?;
        drive(ask, 1, REQUESTS).await?;
        sleep(COUNTED).await;
        let counts = callgrind.report()?;
        let means = [mean(counts.instructions) / 1000.0, mean(counts.calls(allocates)), mean(counts.calls(spawns))];
        least = std::array::from_fn(|index| least[index].min(means[index]));
    }
    Ok(least)
}

/// Whether this is one of the allocator's functions that give memory out.
fn allocates(function: &str) -> bool {
    ["_rjem_malloc", "_rjem_mallocx", "_rjem_calloc", "_rjem_realloc", "_rjem_rallocx"].contains(&function)
}

/// Whether this is where the runtime takes up a new task.
fn spawns(function: &str) -> bool {
    function.contains("OwnedTasks") && function.contains("bind_inner")
}

fn is_kept(count: &Count) -> bool {
    (count.counted - count.budget).abs() <= count.tolerance
}

fn complaint(title: &str, count: &Count) -> String {
    let Count { what, counted, budget, .. } = count;
    let verdict = if counted > budget { "are more than" } else { "are fewer than; lower" };
    format!("{title}: {counted:.1} {what} {verdict} the budget of {budget:.1}")
}

fn mean(sum: u64) -> f64 {
    crate::scenarios::bytes(sum) / f64::from(REQUESTS)
}
