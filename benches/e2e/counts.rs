//! What one request costs, counted instead of timed, and held by a budget: instructions, allocations, tasks.
//!
//! A count is the same on a busy machine as on an idle one. It does not see the kernel, nor what waits for memory.

use std::env::consts::ARCH;

use tokio::time::sleep;

use crate::callgrind::Callgrind;
use crate::client::{Ask, drive};
use crate::failure::Failure;
use crate::options::Options;
use crate::report::{self, Count};
use crate::scenarios::AFTERMATH;
use crate::script;
use crate::servers::{Servers, Subject};

/// Requests before those that are counted: connections to the upstream, tables that grow.
const WARM_UP: u32 = 60;
/// Requests that are counted, one after the other over one connection; a figure is their mean.
const REQUESTS: u32 = 50;

/// Instructions may differ by so much, in either direction: with another compiler's version, C library or processor.
/// A request that became cheaper by more gets a new budget, as the next change could use up what this one has saved.
const TOLERANCE: f64 = 0.03;
/// Where the budgets of instructions were taken. Elsewhere these counts are reported and not held.
const TAKEN_ON: &str = "x86_64";

/// What a request may cost.
struct Budget {
    title: &'static str,
    model: &'static str,
    streamed: bool,
    /// Thousands of instructions, allocations, tasks; nothing is held where there is none.
    most: Option<[f64; 3]>,
}

/// By the profile `bench`. To renew them run `cargo bench --bench e2e -- counts` and say in the commit why they changed.
const BUDGETS: [Budget; 4] = [
    Budget {
        title: "an answer of 20 tokens, not streamed",
        model: script::CHAT,
        streamed: false,
        most: Some([628.2, 469.0, 3.0]),
    },
    Budget {
        title: "two calls of the calculator, then 10 tokens",
        model: script::TOOLS3,
        streamed: true,
        most: Some([1229.6, 894.0, 7.0]),
    },
    Budget {
        title: "three calls of an HTTP tool, then 20 tokens, not streamed",
        model: script::LOOP,
        streamed: false,
        most: Some([1652.5, 1254.0, 9.0]),
    },
    Budget {
        title: "100 tokens in one burst",
        model: script::BURST100,
        streamed: true,
        most: Some([1323.5, 684.0, 3.0]),
    },
];

/// Counts, prints, and with `--hold` fails where a budget is not kept.
pub(crate) async fn run(options: &Options) -> Result<(), Failure> {
    let servers = Servers::start(&[Subject::LoopgateCounted], false).await?;
    let process = servers.process(Subject::LoopgateCounted).ok_or("there is nothing to count")?;
    let mut callgrind = Callgrind::of(process.id(), process.directory());
    let (mut rows, mut complaints) = (Vec::new(), Vec::new());
    for budget in &BUDGETS {
        let ask = if budget.streamed { Ask::new } else { Ask::whole };
        let ask = ask(Subject::LoopgateCounted, process.address, budget.model);
        drive(&ask, 1, WARM_UP).await?;
        sleep(AFTERMATH).await;
        callgrind.begin()?;
        drive(&ask, 1, REQUESTS).await?;
        sleep(AFTERMATH).await;
        let counts = callgrind.report()?;
        let counted = [
            ("thousand instructions", mean(counts.instructions) / 1000.0),
            ("allocations", mean(counts.calls(allocates)).round()),
            ("tasks", mean(counts.calls(spawns)).round()),
        ];
        let row: [Count; 3] = std::array::from_fn(|index| {
            let (what, counted) = counted[index];
            Count { what, counted, budget: budget.most.map(|most| most[index]) }
        });
        complaints.extend(row.iter().filter(|count| !is_kept(count)).map(|count| complaint(budget.title, count)));
        rows.push((budget.title, row));
    }
    report::counts(REQUESTS, &rows);
    if options.hold && !complaints.is_empty() { Err(complaints.join("\n").into()) } else { Ok(()) }
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
    let Some(budget) = count.budget else { return true };
    if count.what == "thousand instructions" {
        return ARCH != TAKEN_ON || (count.counted / budget - 1.0).abs() <= TOLERANCE;
    }
    // The mean of so many allocations falls to one side of a half or the other.
    let tolerance = if count.what == "tasks" { 0.5 } else { 1.5 };
    (count.counted - budget).abs() < tolerance
}

fn complaint(title: &str, count: &Count) -> String {
    let Count { what, counted, budget } = count;
    let budget = budget.unwrap_or_default();
    let verdict = if *counted > budget { "are more than" } else { "are fewer than; lower" };
    format!("{title}: {counted:.1} {what} {verdict} the budget of {budget:.1}")
}

fn mean(sum: u64) -> f64 {
    crate::scenarios::bytes(sum) / f64::from(REQUESTS)
}
