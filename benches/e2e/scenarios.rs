//! The scenarios without Redis, and how rounds are measured: every server in turn, round after round.

use std::time::Duration;

use tokio::time::sleep;

use crate::client::{Ask, drive, open_streams};
use crate::failure::Failure;
use crate::machine::{CpuTime, resident};
use crate::options::Options;
use crate::process::Process;
use crate::report::{self, Rounds, Target};
use crate::script;
use crate::servers::{Servers, Subject};

/// All servers that loop.
const LOOPS: [Subject; 3] = [Subject::LeastLoop, Subject::LoopgateChat, Subject::LoopgateAgent];
/// All servers.
const SERVERS: [Subject; 5] =
    [Subject::PassThrough, Subject::LeastLoop, Subject::LoopgateChat, Subject::LoopgateAgent, Subject::Smg];
/// All servers, and Loopgate's responses.
const DIALECTS: [Subject; 6] = [
    Subject::PassThrough,
    Subject::LeastLoop,
    Subject::LoopgateChat,
    Subject::LoopgateAgent,
    Subject::LoopgateResponses,
    Subject::Smg,
];
/// All servers, and none.
const PATHS: [Subject; 5] =
    [Subject::Direct, Subject::PassThrough, Subject::LeastLoop, Subject::LoopgateChat, Subject::LoopgateAgent];

/// What the other gateway takes.
const BELOW_SMG: Target = Target { of: Subject::LoopgateChat, over: Subject::Smg, at_most: 1.0, stretch: 1.0 };

/// What responses may take beside chat completions: they have more frames, and say more in each.
const RESPONSES: Target = beside_chat(Subject::LoopgateResponses);

/// What an API may take beside chat completions.
const fn beside_chat(of: Subject) -> Target {
    Target { of, over: Subject::LoopgateChat, at_most: 1.3, stretch: 1.3 }
}

/// What a server still does after an answer is its cost, too: this long is waited for it.
pub(crate) const AFTERMATH: Duration = Duration::from_millis(100);
/// How long memory is given to settle before it is read.
pub(crate) const SETTLE: Duration = Duration::from_secs(3);
/// When it is read after streams that were given up: for 15 s their runs wait for a client that comes back.
const AFTER_STREAMS: Duration = Duration::from_secs(20);
/// How often a process is started to see how long that takes.
const STARTS: u32 = 10;
/// How many streams are opened at a time.
pub(crate) const OPENED_AT_ONCE: u32 = 64;

/// A comparison of CPU time per request.
pub(crate) struct CpuPlan {
    pub(crate) title: &'static str,
    pub(crate) model: &'static str,
    pub(crate) connections: u32,
    /// In one block, which is what each server gets in each round.
    pub(crate) requests: u32,
    pub(crate) subjects: &'static [Subject],
    /// Whether the answers are asked for as streams.
    pub(crate) streamed: bool,
    pub(crate) targets: &'static [Target],
}

impl CpuPlan {
    /// What `subject` is asked.
    pub(crate) fn ask(&self, subject: Subject, process: &Process) -> Ask {
        if self.streamed || subject == Subject::LoopgateStreamed {
            Ask::new(subject, process.address, self.model)
        } else {
            Ask::whole(subject, process.address, self.model)
        }
    }
}

pub(crate) const PLAIN: CpuPlan = CpuPlan {
    title: "a short answer of 10 tokens",
    model: script::PLAIN,
    connections: 16,
    requests: 1000,
    subjects: &DIALECTS,
    streamed: true,
    targets: &[
        Target { of: Subject::LoopgateChat, over: Subject::LeastLoop, at_most: 2.0, stretch: 2.0 },
        BELOW_SMG,
        RESPONSES,
    ],
};

pub(crate) const TOOLS3: CpuPlan = CpuPlan {
    title: "a tool loop of 3 rounds: two calculator calls, then 10 tokens",
    model: script::TOOLS3,
    connections: 16,
    requests: 500,
    subjects: &LOOPS,
    streamed: true,
    targets: &[Target { of: Subject::LoopgateChat, over: Subject::LeastLoop, at_most: 1.1, stretch: 0.8 }],
};

pub(crate) const LOOP: CpuPlan = CpuPlan {
    title: "a tool loop of 4 rounds: three calls of an HTTP tool, then 20 tokens, not streamed",
    model: script::LOOP,
    connections: 16,
    requests: 500,
    subjects: &[Subject::LeastLoop, Subject::LoopgateChat, Subject::LoopgateInOnePiece, Subject::LoopgateStreamed],
    streamed: false,
    targets: &[
        Target { of: Subject::LoopgateChat, over: Subject::LeastLoop, at_most: 2.8, stretch: 2.0 },
        Target { of: Subject::LoopgateInOnePiece, over: Subject::LeastLoop, at_most: 2.8, stretch: 2.0 },
        Target { of: Subject::LoopgateStreamed, over: Subject::LoopgateChat, at_most: 1.3, stretch: 1.2 },
    ],
};

pub(crate) const CHAT: CpuPlan = CpuPlan {
    title: "an answer of 20 tokens, not streamed",
    model: script::CHAT,
    connections: 16,
    requests: 1000,
    subjects: &[
        Subject::PassThrough,
        Subject::LeastLoop,
        Subject::LoopgateChat,
        Subject::LoopgateInOnePiece,
        Subject::Smg,
    ],
    streamed: false,
    targets: &[
        Target { of: Subject::LoopgateChat, over: Subject::LeastLoop, at_most: 4.5, stretch: 3.0 },
        Target { of: Subject::LoopgateInOnePiece, over: Subject::LeastLoop, at_most: 4.5, stretch: 3.0 },
        BELOW_SMG,
        Target { of: Subject::LoopgateInOnePiece, over: Subject::Smg, at_most: 1.0, stretch: 1.0 },
    ],
};

pub(crate) const BURST100: CpuPlan = CpuPlan {
    title: "100 tokens in one burst",
    model: script::BURST100,
    connections: 16,
    requests: 400,
    subjects: &DIALECTS,
    streamed: true,
    targets: &[
        Target { of: Subject::LoopgateChat, over: Subject::LeastLoop, at_most: 0.6, stretch: 0.6 },
        Target { of: Subject::LoopgateChat, over: Subject::PassThrough, at_most: 0.5, stretch: 0.3 },
        BELOW_SMG,
        RESPONSES,
    ],
};

pub(crate) const PACED100: CpuPlan = CpuPlan {
    title: "100 tokens, one every 2 ms",
    model: script::PACED100,
    connections: 32,
    requests: 160,
    subjects: &SERVERS,
    streamed: true,
    targets: &[
        Target { of: Subject::LoopgateChat, over: Subject::PassThrough, at_most: 1.25, stretch: 1.1 },
        BELOW_SMG,
    ],
};

/// The same through each API that Loopgate has, one event for each token.
pub(crate) const APIS: CpuPlan = CpuPlan {
    title: "100 tokens, one every 2 ms, through each API",
    model: script::PACED100,
    connections: 32,
    requests: 160,
    subjects: &[
        Subject::LoopgateChat,
        Subject::LoopgateAgent,
        Subject::LoopgateResponses,
        Subject::LoopgateMessages,
        Subject::LoopgateAiSdk,
        Subject::LoopgateAgUi,
    ],
    streamed: true,
    targets: &[
        beside_chat(Subject::LoopgateAgent),
        RESPONSES,
        beside_chat(Subject::LoopgateMessages),
        beside_chat(Subject::LoopgateAiSdk),
        beside_chat(Subject::LoopgateAgUi),
    ],
};

/// CPU time per request, server by server, round by round.
pub(crate) async fn cpu(plan: &CpuPlan, options: &Options) -> Result<(), Failure> {
    let servers = Servers::start(plan.subjects, !options.unpinned).await?;
    let mut rounds = Rounds::default();
    let block = async |subject: Subject, process: &Process| {
        let before = CpuTime::of(process.id())?;
        drive(&plan.ask(subject, process), plan.connections, plan.requests).await?;
        sleep(AFTERMATH).await;
        Ok(CpuTime::of(process.id())?.since(&before))
    };
    in_turn(&servers, plan.subjects, options.rounds, block, |subject, spent| {
        rounds.add(subject, micros(spent) / f64::from(plan.requests));
    })
    .await;
    let load = format!("{} connections, {} requests per block", plan.connections, plan.requests);
    report::cpu(plan.title, &load, plan.subjects, &rounds, plan.targets);
    Ok(())
}

/// Time to the first token of one request at a time.
pub(crate) async fn first_token(options: &Options) -> Result<(), Failure> {
    const REQUESTS: u32 = 300;
    let servers = Servers::start(&PATHS, !options.unpinned).await?;
    let (mut medians, mut slow) = (Rounds::default(), Rounds::default());
    let block = async |subject: Subject, process: &Process| {
        let mut times = drive(&Ask::new(subject, process.address, script::PLAIN), 1, REQUESTS).await?;
        times.sort_unstable();
        Ok((times[times.len() / 2], times[times.len() * 99 / 100]))
    };
    in_turn(&servers, &PATHS, options.rounds, block, |subject, (median, slowest)| {
        medians.add(subject, micros(median));
        slow.add(subject, micros(slowest));
    })
    .await;
    report::first_token(&format!("1 connection, {REQUESTS} requests per block"), &PATHS, &medians, &slow);
    Ok(())
}

/// Gives each of `subjects` a block in each round. One that fails is out from then on.
pub(crate) async fn in_turn<T>(
    servers: &Servers,
    subjects: &[Subject],
    rounds: u32,
    block: impl AsyncFn(Subject, &Process) -> Result<T, Failure>,
    mut keep: impl FnMut(Subject, T),
) {
    let mut subjects = subjects.to_vec();
    // Round 0 warms up: connections to the upstream, allocators, branch predictors.
    for round in 0..=rounds {
        for subject in subjects.clone() {
            let Some(process) = servers.process(subject) else { continue };
            match block(subject, process).await {
                Ok(measured) if round > 0 => keep(subject, measured),
                Ok(_) => {}
                Err(error) => {
                    println!("\n{} failed in round {round}: {error}", subject.name());
                    subjects.retain(|&other| other != subject);
                }
            }
        }
    }
}

/// Time until a fresh process answers, and its memory when it has done nothing else.
pub(crate) async fn ready() -> Result<(), Failure> {
    let (mut ready, mut idle) = (Rounds::default(), Rounds::default());
    for subject in [Subject::PassThrough, Subject::LeastLoop, Subject::LoopgateChat] {
        for start in 1..=STARTS {
            let servers = Servers::start(&[subject], false).await?;
            let Some(process) = servers.process(subject) else { break };
            ready.add(subject, micros(process.ready_after) / 1000.0);
            if start == STARTS {
                sleep(Duration::from_secs(1)).await;
                idle.add(subject, bytes(resident(process.id())?) / 1e6);
            }
        }
    }
    report::ready(STARTS, &ready, &idle);
    Ok(())
}

/// How many of the streams that are wanted may be open at once.
pub(crate) fn possible_streams(wanted: u32, open_files: u64) -> u32 {
    // A server has two sockets for each stream; some files are everyone's.
    let possible = u32::try_from(open_files.saturating_sub(200) / 2).unwrap_or(u32::MAX);
    if possible < wanted {
        println!("\nonly {possible} of {wanted} streams: the limit on open files is {open_files}");
    }
    wanted.min(possible)
}

/// Memory per stream that got its first token and then nothing.
pub(crate) async fn streams(wanted: u32, open_files: u64) -> Result<(), Failure> {
    let count = possible_streams(wanted, open_files);
    let (mut before, mut per_stream, mut after) = (Rounds::default(), Rounds::default(), Rounds::default());
    for subject in SERVERS {
        let servers = Servers::start(&[subject], false).await?;
        let Some(process) = servers.process(subject) else { continue };
        sleep(Duration::from_secs(1)).await;
        let idle = resident(process.id())?;
        let ask = Ask::new(subject, process.address, script::STALL);
        let opened = match open_streams(&ask, count, OPENED_AT_ONCE).await {
            Ok(opened) => opened,
            Err(error) => {
                println!("\n{} failed: {error}", subject.name());
                continue;
            }
        };
        sleep(SETTLE).await;
        let holding = resident(process.id())?;
        drop(opened);
        sleep(AFTER_STREAMS).await;
        after.add(subject, bytes(resident(process.id())?) / 1e6);
        before.add(subject, bytes(idle) / 1e6);
        per_stream.add(subject, (bytes(holding) - bytes(idle)) / f64::from(count) / 1024.0);
    }
    report::streams(count, &SERVERS, &before, &per_stream, &after);
    Ok(())
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[expect(clippy::cast_precision_loss, reason = "memory sizes are far below 2^53")]
pub(crate) fn bytes(count: u64) -> f64 {
    count as f64
}
