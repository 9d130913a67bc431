//! A run as those see it who watch it: its state, and what of its records the state does not keep. Pure.

use super::Run;
use crate::types::progress::{CallUnderWay, Progress};
use crate::types::{Event, Record};

/// A run whose records pass.
#[derive(Debug)]
pub struct Watched {
    run: Run,
    /// Calls that began. Which of them have a result the run knows.
    begun: Vec<CallUnderWay>,
    last: Option<Record>,
}

impl Watched {
    /// A run of which nothing was seen yet.
    #[must_use]
    pub fn new(run: Run) -> Self {
        Self { run, begun: Vec::new(), last: None }
    }

    /// Takes in what happened.
    pub fn take(&mut self, record: Record) {
        self.run.apply(&record);
        if let Event::ToolStarted { call, .. } = &record.event {
            self.begun.retain(|begun| begun.call_id != call.id && self.run.started(&begun.call_id).is_some());
            let (call_id, name) = (call.id.clone(), call.name.clone());
            self.begun.push(CallUnderWay { call_id, name, since_ms: record.at_ms });
        }
        if record.event.is_public() {
            self.last = Some(record);
        }
    }

    /// How far the run came. Who drives it its records do not tell.
    #[must_use]
    pub fn progress(self) -> Progress {
        let Self { run, mut begun, last } = self;
        begun.retain(|begun| run.started(&begun.call_id).is_some());
        Progress {
            step: run.step,
            iterations: run.iterations,
            tool_calls: run.tool_calls,
            usage: run.usage,
            budget: run.budget_status(),
            open_calls: begun,
            last,
            replica: None,
        }
    }
}
