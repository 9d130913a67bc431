//! What many runs amount to, in numbers.

use std::collections::BTreeMap;
use std::fmt;

use super::apis::BodyEnd;
use super::evidence::{ClientTrace, End, Evidence};

/// Times in milliseconds, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Times(Vec<u64>);

/// The numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Runs by how they ended.
    pub(crate) ends: BTreeMap<String, usize>,
    /// Requests without a run.
    pub(crate) not_accepted: usize,
    /// Connections that broke, and clients that had one.
    pub(crate) broken: (usize, usize),
    /// How often clients were told to begin anew.
    pub(crate) resets: u32,
    /// How long runs stood still before another process went on with them.
    pub(crate) takeovers: Times,
    /// Each client's longest time without an event.
    pub(crate) gaps: Times,
    /// Model calls, and tool calls.
    pub(crate) calls: (usize, usize),
}

impl Times {
    fn of(times: impl Iterator<Item = u64>) -> Self {
        let mut times: Vec<_> = times.collect();
        times.sort_unstable();
        Self(times)
    }

    /// All of these.
    pub(crate) fn together(times: impl IntoIterator<Item = Self>) -> Self {
        Self::of(times.into_iter().flat_map(|times| times.0))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The least time that so many percent do not exceed; 0 if there is none.
    pub(crate) fn percentile(&self, percent: usize) -> u64 {
        let rank = (self.0.len() * percent).div_ceil(100).max(1) - 1;
        self.0.get(rank).copied().unwrap_or(0)
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [half, most, all] = [50, 99, 100].map(|percent| self.percentile(percent));
        write!(f, "{} (p50 {half} ms, p99 {most} ms, max {all} ms)", self.len())
    }
}

impl Figures {
    /// Those of this evidence.
    pub(crate) fn of(evidence: &Evidence) -> Self {
        let accepted = || evidence.clients.iter().filter(|trace| trace.run().is_some());
        let mut ends = BTreeMap::new();
        for trace in accepted() {
            let view = trace.run().and_then(|run| evidence.runs.get(run));
            let reason = view.and_then(|view| view.object["stop_reason"].as_str()).unwrap_or("nothing");
            *ends.entry(reason.to_owned()).or_default() += 1;
        }
        let breaks = |trace: &ClientTrace| {
            let attempts = trace.asked.iter().flat_map(|asked| &asked.attempts);
            trace.readings.iter().filter(|reading| reading.end != End::Done).count()
                + attempts.filter(|attempt| attempt.end != BodyEnd::Whole).count()
        };
        Self {
            ends,
            not_accepted: evidence.clients.len() - accepted().count(),
            broken: (accepted().map(breaks).sum(), accepted().filter(|trace| breaks(trace) > 0).count()),
            resets: evidence.clients.iter().map(|trace| trace.resets).sum(),
            takeovers: Times::of(evidence.clients.iter().flat_map(takeovers)),
            gaps: Times::of(accepted().map(ClientTrace::longest_silence_ms)),
            calls: (evidence.model.len(), evidence.tools.len()),
        }
    }
}

/// For each time that a run was taken up again, how long its client saw nothing before: the longest silence
/// since it began or was taken up before.
fn takeovers(trace: &ClientTrace) -> Vec<u64> {
    let (mut last, mut silence, mut times) = (None, 0, Vec::new());
    for (at, event) in trace.readings.iter().flat_map(|reading| &reading.events) {
        silence = silence.max(at.saturating_sub(last.unwrap_or(*at)));
        last = Some(*at);
        if event.name == "run.resumed" {
            times.push(std::mem::take(&mut silence));
        }
    }
    times
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ends, not_accepted, broken, resets, takeovers, gaps, calls } = self;
        let ends: Vec<_> = ends.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        write!(
            f,
            "runs {}; not accepted {not_accepted}; broken connections {} of {} clients; begun anew {resets}; takeovers {takeovers}; \
             longest silences {gaps}; model calls {}, tool calls {}",
            ends.join(", "),
            broken.0,
            broken.1,
            calls.0,
            calls.1
        )
    }
}
