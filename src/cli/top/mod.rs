//! `loopgate top`: how replicas do and which runs are under way, anew each second.
//!
//! It reads what any operator can read: the metrics of replicas, and the list of runs. It asks for the runs, which costs
//! the server more than its metrics do, a tenth of the time at most.

mod display;
pub(super) mod metrics;
mod replica;
mod runs;
mod screen;
mod watch;

use clap::Args;
use tokio::time::{Instant, sleep_until};

use self::display::{Display, Seen};
use self::replica::Replica;
use self::runs::LiveRuns;
use self::screen::Screen;
use super::client::Target;
use super::process::{Failure, env, runtime, say};

/// How often everything is drawn, and the metrics are read.
const PERIOD: std::time::Duration = std::time::Duration::from_secs(1);

/// Watch replicas and their runs: live runs, tokens, cost and errors, anew each second.
#[derive(Debug, Args)]
pub(super) struct Top {
    /// A replica whose metrics are read, by its address or that of its `metrics.listen`; repeat it for several. Without it,
    /// the server at `--url`
    #[arg(long = "server", value_name = "URL")]
    servers: Vec<String>,

    /// Print one table and end; this is also what happens where the output is no terminal
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    target: Target,
}

pub(super) fn run(top: &Top) -> Result<(), Failure> {
    runtime()?.block_on(watch(top))
}

async fn watch(top: &Top) -> Result<(), Failure> {
    let api = match top.servers.first() {
        Some(server) if !top.target.names_server() => top.target.client_at(server)?,
        Some(_) | None => top.target.client()?,
    };
    let replicas = if top.servers.is_empty() {
        vec![api.clone()]
    } else {
        top.servers.iter().map(|server| top.target.client_at(server)).collect::<Result<_, _>>()?
    };
    let mut replicas: Vec<_> = replicas.into_iter().map(Replica::new).collect();
    let mut runs = LiveRuns::new(api);
    if screen::is_there() && !top.once {
        again_and_again(&mut replicas, &mut runs).await
    } else {
        once(&mut replicas, &mut runs).await
    }
}

/// Prints one table. Two looks, as one alone tells no rates.
async fn once(replicas: &mut [Replica], runs: &mut LiveRuns) -> Result<(), Failure> {
    let next = Instant::now() + PERIOD;
    look(replicas).await;
    sleep_until(next).await;
    tokio::join!(look(replicas), runs.look());
    if let Some(failure) = runs.failure().filter(|_| replicas.iter().all(|replica| !replica.answers())) {
        return Err(failure);
    }
    let columns = env("COLUMNS").and_then(|columns| columns.parse().ok()).filter(|columns| *columns > 0);
    let display = Display { columns, ..Display::default() };
    display.lines(&Seen::of(replicas, runs)).iter().for_each(|line| say(&line.text));
    Ok(())
}

/// Draws everything each second until it is interrupted.
async fn again_and_again(replicas: &mut [Replica], runs: &mut LiveRuns) -> Result<(), Failure> {
    let mut screen = Screen::enter().map_err(Failure::new)?;
    loop {
        let next = Instant::now() + PERIOD;
        tokio::select! {
            () = screen.interrupted() => return Ok(()),
            _ = async { tokio::join!(look(replicas), runs.look()) } => {}
        }
        screen.draw(&Seen::of(replicas, runs));
        tokio::select! {
            () = screen.interrupted() => return Ok(()),
            () = sleep_until(next) => {}
        }
    }
}

/// Reads the metrics of all replicas.
async fn look(replicas: &mut [Replica]) {
    futures_util::future::join_all(replicas.iter_mut().map(Replica::look)).await;
}
