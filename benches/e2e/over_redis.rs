//! What Redis adds: every case beside the memory store, and what is stored of a run.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::client::{Ask, drive};
use crate::failure::Failure;
use crate::machine::{CpuTime, resident};
use crate::options::Options;
use crate::process::Process;
use crate::report::{self, OverRedis, Rounds, Stored};
use crate::scenarios::{AFTERMATH, BURST100, CpuPlan, PACED100, PLAIN, TOOLS3, bytes, in_turn, micros};
use crate::script;
use crate::servers::{Servers, Subject};

const BOTH: [Subject; 2] = [Subject::LoopgateChat, Subject::OverRedis];
/// These, and what the difference is compared with.
const ALL: [Subject; 3] = [Subject::LeastLoop, Subject::LoopgateChat, Subject::OverRedis];
/// The logs of runs without a session.
const LOGS: &str = "lg:{*/run/*}:l:events/*";
/// All that lies with them.
const RUNS: &str = "lg:{*/run/*}:*";
/// Runs of which it is seen what they take.
const STORED: u32 = 1000;
/// By then Redis has forgotten what is remembered of a run's operations.
const FORGOTTEN: Duration = Duration::from_secs(25);

/// One block of one server.
struct Block {
    server: Duration,
    redis: Option<Duration>,
    took: Duration,
}

/// Measures all of it.
pub(crate) async fn run(options: &Options) -> Result<(), Failure> {
    let mut cases = Vec::new();
    for plan in [&PLAIN, &TOOLS3, &BURST100, &PACED100] {
        cases.push(case(plan, options).await?);
    }
    report::over_redis(&cases, TOOLS3.title);
    report::stored(&stored().await?);
    Ok(())
}

async fn case(plan: &CpuPlan, options: &Options) -> Result<OverRedis, Failure> {
    let servers = Servers::start(&ALL, !options.unpinned).await?;
    let (mut server, mut redis, mut rate) = (Rounds::default(), Rounds::default(), Rounds::default());
    let block = async |subject: Subject, process: &Process| {
        let store = servers.redis.as_ref().filter(|_| subject == Subject::OverRedis);
        let store_before = store.map(|store| CpuTime::of(store.id())).transpose()?;
        let (before, began) = (CpuTime::of(process.id())?, Instant::now());
        drive(&plan.ask(subject, process), plan.connections, plan.requests).await?;
        let took = began.elapsed();
        sleep(AFTERMATH).await;
        let server = CpuTime::of(process.id())?.since(&before);
        let redis = match (store, store_before) {
            (Some(store), Some(before)) => Some(CpuTime::of(store.id())?.since(&before)),
            _ => None,
        };
        Ok(Block { server, redis, took })
    };
    let requests = f64::from(plan.requests);
    in_turn(&servers, &ALL, options.rounds, block, |subject, block| {
        server.add(subject, micros(block.server) / requests);
        rate.add(subject, requests / block.took.as_secs_f64());
        if let Some(spent) = block.redis {
            redis.add(subject, micros(spent) / requests);
        }
    })
    .await;
    let store = servers.redis.as_ref().ok_or("there is no Redis")?;
    let entries = bytes(store.longest(LOGS).await?);
    let tokens = plan.model != script::TOOLS3;
    let tokens = tokens.then(|| f64::from(u32::try_from(script::tokens(plan.model)).unwrap_or(u32::MAX)));
    Ok(OverRedis { title: plan.title, server, redis, rate, entries, tokens })
}

async fn stored() -> Result<Stored, Failure> {
    let servers = Servers::start(&BOTH, false).await?;
    let (Some(store), Some(process)) = (&servers.redis, servers.process(Subject::OverRedis)) else {
        return Err("there is no Redis".into());
    };
    sleep(Duration::from_secs(1)).await;
    let memory = servers.process(Subject::LoopgateChat).map(|process| resident(process.id())).transpose()?;
    let idle = [memory.unwrap_or(0), resident(process.id())?, resident(store.id())?].map(bytes);
    let ask = Ask::new(Subject::OverRedis, process.address, script::TOOLS3);
    drive(&ask, 16, 16).await?;
    sleep(FORGOTTEN).await;
    let before = bytes(store.used_memory().await?);
    drive(&ask, 16, STORED).await?;
    let at_once = bytes(store.used_memory().await?);
    sleep(FORGOTTEN).await;
    let after = bytes(store.used_memory().await?);
    let (of_keys, keys) = store.memory_of(RUNS).await?;
    let per_run = |all: f64| all / f64::from(STORED);
    Ok(Stored {
        idle,
        at_once: per_run(at_once - before),
        after: per_run(after - before),
        of_keys: bytes(of_keys) / f64::from(STORED + 16),
        keys: bytes(keys) / f64::from(STORED + 16),
    })
}
