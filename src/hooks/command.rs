//! Runs programs: each in a group of its own, with a message on its standard input.
//!
//! What it writes is read while it runs, so that no full pipe holds it up. A program that does not read its input is fine.
//! Whoever stops waiting for a program ends it, and all that it started.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::failure::HookFailure;
use crate::config::HookCommand;
use crate::process::{Pipes, Program, Running};

/// The status with which a program refuses.
const DENIED: i32 = 2;
/// How many bytes of its errors are a reason.
const MOST_REASON: usize = 4 << 10;
/// How long its pipes are read once it has ended: what it started may have left its group, and keep them open.
const GRACE: Duration = Duration::from_secs(1);

/// What came of a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// It succeeded, and wrote this.
    Wrote(Vec<u8>),
    /// It refuses, for this reason.
    Denied(String),
}

/// Runs the program to its end.
pub(super) async fn run(command: &HookCommand, message: Bytes) -> Result<Ran, HookFailure> {
    let HookCommand { program, arguments, env, directory, max_output } = command;
    let program = Program { path: program, arguments, env, directory: directory.as_deref() };
    let Running { mut child, mut group, pipes } = program.start().map_err(HookFailure::new)?;
    let Pipes { mut input, output: out, errors: err } = pipes;
    let (mut output, mut errors) = (Kept::new(*max_output), Kept::new(MOST_REASON));
    let status = {
        let write = async move {
            // A program that closes its input, or never reads it, need not know the message.
            let _ = input.write_all(&message).await;
        };
        let mut talk = pin!(async { tokio::join!(write, output.read(out), errors.read(err)) });
        let mut ended = pin!(child.wait());
        tokio::select! {
            status = &mut ended => {
                group.end();
                // What was read until then counts.
                let _ = timeout(GRACE, talk).await;
                status
            }
            _ = &mut talk => {
                let status = ended.await;
                group.end();
                status
            }
        }
    };
    let status = status.map_err(|error| HookFailure::new(format!("the program was lost: {error}")))?;
    match status.code() {
        Some(0) if output.is_cut => {
            let most = command.max_output;
            Err(HookFailure::new(format!("the program wrote more than max_response, {most} bytes")))
        }
        Some(0) => Ok(Ran::Wrote(output.bytes)),
        Some(DENIED) => Ok(Ran::Denied(String::from_utf8_lossy(&errors.bytes).trim().to_owned())),
        Some(code) => Err(HookFailure::new(format!("the program ended with status {code}"))),
        None => Err(HookFailure::new("the program was ended by a signal")),
    }
}

/// What is kept of what a program writes into one of its pipes.
struct Kept {
    bytes: Vec<u8>,
    most: usize,
    /// Whether there was more.
    is_cut: bool,
}

impl Kept {
    fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most, is_cut: false }
    }

    /// Reads a pipe to its end.
    async fn read(&mut self, mut pipe: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; 8 << 10];
        // What was read before a pipe broke counts.
        while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
            let room = self.most - self.bytes.len();
            self.bytes.extend_from_slice(&buffer[..read.min(room)]);
            self.is_cut |= read > room;
        }
    }
}
