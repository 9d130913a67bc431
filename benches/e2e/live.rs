//! Many runs that stream at once, at the pace at which people read.

use std::time::Duration;

use tokio::time::sleep;

use crate::client::{self, Ask};
use crate::failure::Failure;
use crate::machine::{CpuTime, resident};
use crate::report::{self, Live};
use crate::scenarios::bytes;
use crate::script;
use crate::servers::{Servers, Subject};

/// How many streams there are.
const STREAMS: u32 = 1000;
/// They begin one after the other in this time.
const BEGIN: Duration = Duration::from_secs(5);
/// From when on it is looked at what they take, and for how long: all of them stream then.
const QUIET: Duration = Duration::from_millis(500);
const WATCHED: Duration = Duration::from_secs(8);

/// Measures it over memory and over Redis.
pub(crate) async fn run() -> Result<(), Failure> {
    let mut lives = Vec::new();
    for subject in [Subject::LoopgateChat, Subject::OverRedis] {
        // The servers have all cores: what is asked for is whether they keep up.
        let servers = match Servers::start(&[subject], false).await {
            Ok(servers) => servers,
            Err(error) => {
                println!("\nnot measured: {}: {error}", subject.name());
                continue;
            }
        };
        let Some(process) = servers.process(subject) else { continue };
        sleep(Duration::from_secs(1)).await;
        let idle = resident(process.id())?;
        let ask = Ask::new(subject, process.address, script::LIVE);
        let streams = tokio::spawn(async move { client::live(&ask, STREAMS, BEGIN).await });
        sleep(BEGIN + QUIET).await;
        let store = servers.redis.as_ref();
        let before = CpuTime::of(process.id())?;
        let store_before = store.map(|store| CpuTime::of(store.id())).transpose()?;
        sleep(WATCHED).await;
        let server = CpuTime::of(process.id())?.since(&before).as_secs_f64() / WATCHED.as_secs_f64();
        let redis = match (store, store_before) {
            (Some(store), Some(before)) => {
                Some(CpuTime::of(store.id())?.since(&before).as_secs_f64() / WATCHED.as_secs_f64())
            }
            _ => None,
        };
        let streaming = bytes(resident(process.id())?);
        let (mut took, mut failed) = (Vec::new(), 0);
        for stream in streams.await? {
            match stream {
                Ok(stream) => took.push(stream),
                Err(error) => {
                    failed += 1;
                    if failed == 1 {
                        println!("\n{}: {error}", subject.name());
                    }
                }
            }
        }
        took.sort_unstable();
        lives.push(Live { subject, server, redis, idle: bytes(idle), streaming, failed, took });
    }
    report::live(STREAMS, &lives);
    Ok(())
}
