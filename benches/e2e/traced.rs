//! What traces add to a request where one in ten is sent: instructions, counted as `counts` counts them.

use tokio::time::sleep;

use crate::callgrind::Callgrind;
use crate::client::{Ask, drive};
use crate::failure::Failure;
use crate::report;
use crate::scenarios::{SETTLE, bytes};
use crate::script;
use crate::servers::{Servers, Subject};

/// Requests before those that are counted.
const WARM_UP: u32 = 60;
/// Requests that are counted. About one in ten of them is sent, so there are many: the share varies by a sixteenth.
const REQUESTS: u32 = 2_000;
/// How many percent traces may add.
const MOST_PERCENT: f64 = 5.0;

/// What is asked: a title, the model, and whether the answer is a stream.
const ASKED: [(&str, &str, bool); 2] = [
    ("two calls of the calculator, then 10 tokens", script::TOOLS3, true),
    ("three calls of an HTTP tool, then 20 tokens, not streamed", script::LOOP, false),
];

/// Counts with and without traces, and prints both.
pub(crate) async fn run() -> Result<(), Failure> {
    let without = count(Subject::LoopgateCounted).await?;
    let with = count(Subject::LoopgateTraced).await?;
    let rows = without.into_iter().zip(with).zip(ASKED).map(|((without, with), asked)| (asked.0, [without, with]));
    report::traced(REQUESTS, MOST_PERCENT, &rows.collect::<Vec<_>>());
    Ok(())
}

/// Thousands of instructions of each of the requests.
async fn count(subject: Subject) -> Result<Vec<f64>, Failure> {
    let servers = Servers::start(&[subject], false).await?;
    let process = servers.process(subject).ok_or("there is nothing to count")?;
    let mut callgrind = Callgrind::of(process.id(), process.directory());
    let mut means = Vec::new();
    for (_, model, streamed) in ASKED {
        let ask = if streamed { Ask::new } else { Ask::whole };
        let ask = ask(subject, process.address, model);
        drive(&ask, 1, WARM_UP).await?;
        // A batch of traces waits a second for others.
        sleep(SETTLE).await;
        callgrind.begin()?;
        drive(&ask, 1, REQUESTS).await?;
        sleep(SETTLE).await;
        means.push(bytes(callgrind.report()?.instructions) / f64::from(REQUESTS) / 1000.0);
    }
    Ok(means)
}
