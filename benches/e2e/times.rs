//! How long a tool loop takes: one after the other, and over the embedded store.

use std::io::{Seek, Write};
use std::time::Duration;

use tokio::time::Instant;

use crate::client::{Ask, drive};
use crate::failure::Failure;
use crate::options::Options;
use crate::process::Process;
use crate::report::{self, Rounds};
use crate::scenarios::{in_turn, micros};
use crate::script;
use crate::servers::{Servers, Subject};

const SUBJECTS: [Subject; 3] = [Subject::LeastLoop, Subject::LoopgateChat, Subject::LoopgateInOnePiece];
/// Loops of one connection in a block.
const ALONE: u32 = 100;
/// Connections that share the disk, and their loops in a block.
const CONNECTIONS: u32 = 32;
const TOGETHER: u32 = 640;
/// Syncs in a block.
const SYNCS: u32 = 100;

/// The time of a loop with an HTTP tool over one connection.
pub(crate) async fn loop_time(options: &Options) -> Result<(), Failure> {
    let servers = Servers::start(&SUBJECTS, !options.unpinned).await?;
    let mut rounds = Rounds::default();
    let block = async |subject: Subject, process: &Process| rate(subject, process, 1, ALONE).await;
    in_turn(&servers, &SUBJECTS, options.rounds, block, |subject, rate| rounds.add(subject, 1e6 / rate)).await;
    report::loop_time(&format!("1 connection, {ALONE} loops per block"), &SUBJECTS, &rounds);
    Ok(())
}

/// Loops over the embedded store, beside one sync of the disk that it lies on.
pub(crate) async fn embedded(options: &Options) -> Result<(), Failure> {
    let servers = Servers::start(&[Subject::Embedded], false).await?;
    let [mut sync, mut alone, mut together] = [(); 3].map(|()| Rounds::default());
    let block = async |subject: Subject, process: &Process| {
        let sync = one_sync()?;
        let alone = rate(subject, process, 1, ALONE).await?;
        Ok((sync, alone, rate(subject, process, CONNECTIONS, TOGETHER).await?))
    };
    in_turn(&servers, &[Subject::Embedded], options.rounds, block, |subject, (took, one, many)| {
        sync.add(subject, micros(took));
        alone.add(subject, one);
        together.add(subject, many);
    })
    .await;
    let load =
        format!("{ALONE} loops of one connection and {TOGETHER} of {CONNECTIONS} per block; `TMPDIR` is the disk");
    report::embedded(&load, CONNECTIONS, [&sync, &alone, &together]);
    Ok(())
}

/// Loops a second.
async fn rate(subject: Subject, process: &Process, connections: u32, loops: u32) -> Result<f64, Failure> {
    let began = Instant::now();
    drive(&Ask::whole(subject, process.address, script::LOOP), connections, loops).await?;
    Ok(f64::from(loops) / began.elapsed().as_secs_f64())
}

/// The mean time of one sync of a file that does not grow.
fn one_sync() -> Result<Duration, Failure> {
    let mut file = tempfile::tempfile()?;
    file.write_all(&[0; 4096])?;
    file.sync_all()?;
    let began = Instant::now();
    for _ in 0..SYNCS {
        file.rewind()?;
        file.write_all(&[1; 600])?;
        file.sync_data()?;
    }
    Ok(began.elapsed() / SYNCS)
}
