//! The servers of one scenario, side by side, and the endpoints that are asked.

use crate::failure::Failure;
use crate::machine::Cores;
use crate::process::{Addresses, Process, Program};
use crate::redis_server::RedisServer;

/// One column of a comparison: a server and the endpoint that is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    /// The upstream, with nothing in between.
    Direct,
    /// The proxy.
    PassThrough,
    /// The loop server without features.
    LeastLoop,
    /// Loopgate, through OpenAI's path.
    LoopgateChat,
    /// The same, as a stream where the others are asked for one piece.
    LoopgateStreamed,
    /// The same with an upstream that is asked for answers in one piece where no client streams them.
    LoopgateInOnePiece,
    /// Loopgate, through its own path, with all events.
    LoopgateAgent,
    /// Loopgate, through OpenAI's Responses.
    LoopgateResponses,
    /// Loopgate, through Anthropic's Messages.
    LoopgateMessages,
    /// Loopgate, as the stream that the AI SDK's chat reads.
    LoopgateAiSdk,
    /// Loopgate, as the stream that agents of AG-UI read.
    LoopgateAgUi,
    /// The same as through OpenAI's path, under callgrind.
    LoopgateCounted,
    /// The same, which sends one trace in ten to a collector.
    LoopgateTraced,
    /// Loopgate with Redis for its store, through OpenAI's path.
    OverRedis,
    /// Loopgate with its embedded store.
    Embedded,
    /// Another gateway, if it is installed.
    Smg,
}

impl Subject {
    /// What tables call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "upstream, direct",
            Self::PassThrough => "pass-through proxy",
            Self::LeastLoop => "least loop server",
            Self::LoopgateChat => "Loopgate, chat endpoint",
            Self::LoopgateStreamed => "Loopgate, chat endpoint, streamed",
            Self::LoopgateInOnePiece => "Loopgate, `ask_in_one_piece`",
            Self::LoopgateAgent => "Loopgate, agent endpoint",
            Self::LoopgateResponses => "Loopgate, responses",
            Self::LoopgateMessages => "Loopgate, messages",
            Self::LoopgateAiSdk => "Loopgate, AI SDK",
            Self::LoopgateAgUi => "Loopgate, AG-UI",
            Self::LoopgateCounted => "Loopgate, counted",
            Self::LoopgateTraced => "Loopgate, counted, with traces",
            Self::OverRedis => "Loopgate, over Redis",
            Self::Embedded => "Loopgate, embedded store",
            Self::Smg => "smg",
        }
    }

    /// Where completions are asked for.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::LoopgateResponses => "/v1/responses",
            Self::LoopgateMessages => "/v1/messages",
            Self::LoopgateAgent | Self::LoopgateAiSdk | Self::LoopgateAgUi => "/v1/agent/completions",
            Self::Direct
            | Self::PassThrough
            | Self::LeastLoop
            | Self::LoopgateChat
            | Self::LoopgateStreamed
            | Self::LoopgateInOnePiece
            | Self::LoopgateCounted
            | Self::LoopgateTraced
            | Self::OverRedis
            | Self::Embedded
            | Self::Smg => "/v1/chat/completions",
        }
    }

    fn program(self) -> Program {
        match self {
            Self::Direct => Program::Upstream,
            Self::PassThrough => Program::PassThrough,
            Self::LeastLoop => Program::LeastLoop,
            Self::LoopgateChat
            | Self::LoopgateStreamed
            | Self::LoopgateAgent
            | Self::LoopgateResponses
            | Self::LoopgateMessages
            | Self::LoopgateAiSdk
            | Self::LoopgateAgUi => Program::Loopgate,
            Self::LoopgateCounted => Program::LoopgateCounted,
            Self::LoopgateTraced => Program::LoopgateTraced,
            Self::OverRedis => Program::LoopgateOverRedis,
            Self::LoopgateInOnePiece => Program::LoopgateInOnePiece,
            Self::Embedded => Program::LoopgateEmbedded,
            Self::Smg => Program::Smg,
        }
    }
}

/// An upstream and the servers before it. All of them end with this value.
pub(crate) struct Servers {
    processes: Vec<(Program, Process)>,
    /// What Loopgate keeps its runs in, if one of the servers does.
    pub(crate) redis: Option<RedisServer>,
    /// Gives this thread its cores back; after the processes, which is the order of fields.
    _cores: Option<Cores>,
}

impl Servers {
    /// Starts what `subjects` need, each server on the one core kept for servers if `pinned`. A server
    /// that does not start is left out, and said so.
    pub(crate) async fn start(subjects: &[Subject], pinned: bool) -> Result<Self, Failure> {
        Self::start_with(subjects, pinned, None).await
    }

    /// The same; Loopgate has so many workers.
    pub(crate) async fn start_with(subjects: &[Subject], pinned: bool, workers: Option<u32>) -> Result<Self, Failure> {
        let cores = if pinned { Cores::divide() } else { None };
        let upstream = Process::start(Program::Upstream, Addresses::default(), None).await?;
        let mut addresses = Addresses { upstream: Some(upstream.address), redis: None, workers };
        let mut processes = vec![(Program::Upstream, upstream)];
        let mut programs: Vec<Program> = subjects.iter().map(|subject| subject.program()).collect();
        programs.dedup();
        let mut redis = None;
        if programs.contains(&Program::LoopgateOverRedis) {
            // Beside the client and the upstream, so that what a server takes is the server's.
            let started = RedisServer::start().await?;
            addresses.redis = Some(started.address);
            redis = Some(started);
        }
        for program in programs.into_iter().filter(|&program| program != Program::Upstream) {
            match Process::start(program, addresses, cores.as_ref()).await {
                Ok(process) => processes.push((program, process)),
                Err(error) => println!("\nnot measured: {program:?}: {error}"),
            }
        }
        Ok(Self { processes, redis, _cores: cores })
    }

    /// The process behind `subject`, if it runs.
    pub(crate) fn process(&self, subject: Subject) -> Option<&Process> {
        self.processes.iter().find_map(|(program, process)| (*program == subject.program()).then_some(process))
    }
}
