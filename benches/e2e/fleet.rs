//! The servers of one scenario, side by side, and the doors through which they are asked.

use crate::Failure;
use crate::machine::Cores;
use crate::process::{Process, Program};

/// One column of a comparison: a server and the door it is asked through.
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
    /// Loopgate, through its own path, with all events.
    LoopgateAgent,
}

impl Subject {
    /// What tables call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "upstream, direct",
            Self::PassThrough => "pass-through proxy",
            Self::LeastLoop => "least loop server",
            Self::LoopgateChat => "Loopgate, chat door",
            Self::LoopgateAgent => "Loopgate, agent door",
        }
    }

    /// Where completions are asked for.
    pub(crate) fn path(self) -> &'static str {
        if self == Self::LoopgateAgent { "/v1/agent/completions" } else { "/v1/chat/completions" }
    }

    fn program(self) -> Program {
        match self {
            Self::Direct => Program::Upstream,
            Self::PassThrough => Program::PassThrough,
            Self::LeastLoop => Program::LeastLoop,
            Self::LoopgateChat | Self::LoopgateAgent => Program::Loopgate,
        }
    }
}

/// An upstream and the servers before it. All of them end with this value.
pub(crate) struct Fleet {
    processes: Vec<(Program, Process)>,
    /// Gives this thread its cores back; after the processes, which is the order of fields.
    _cores: Option<Cores>,
}

impl Fleet {
    /// Starts what `subjects` need, each server on the one core kept for servers if `pinned`. A server
    /// that does not start is left out, and said so.
    pub(crate) async fn start(subjects: &[Subject], pinned: bool) -> Result<Self, Failure> {
        let cores = if pinned { Cores::divide() } else { None };
        let upstream = Process::start(Program::Upstream, None, None).await?;
        let address = upstream.address;
        let mut processes = vec![(Program::Upstream, upstream)];
        let mut programs: Vec<Program> = subjects.iter().map(|subject| subject.program()).collect();
        programs.dedup();
        for program in programs.into_iter().filter(|&program| program != Program::Upstream) {
            match Process::start(program, Some(address), cores.as_ref()).await {
                Ok(process) => processes.push((program, process)),
                Err(error) => println!("\nnot measured: {program:?}: {error}"),
            }
        }
        Ok(Self { processes, _cores: cores })
    }

    /// The process behind `subject`, if it runs.
    pub(crate) fn process(&self, subject: Subject) -> Option<&Process> {
        self.processes.iter().find_map(|(program, process)| (*program == subject.program()).then_some(process))
    }
}
