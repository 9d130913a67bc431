//! What is shown: a line that says how all do, a table of replicas, a table of runs. Pure.

use super::super::runs::shared::Run;
use super::super::table::{Column, lines};
use super::super::text::{clip, count, line};
use super::super::when::{clock, duration};
use super::metrics::{Counted, Figures};
use super::replica::Replica;
use super::runs::LiveRuns;
use super::watch::Rates;
use crate::types::clock::now_ms;

const REPLICAS: [Column; 12] = [
    ("REPLICA", Some(12)),
    ("LIVE", None),
    ("QUEUED", None),
    ("STREAMS", None),
    ("IN/S", None),
    ("OUT/S", None),
    ("$/H", None),
    ("RUNS", None),
    ("FAILED", None),
    ("UPSTREAM", None),
    ("TOOLS", None),
    ("5XX", None),
];

const RUNS: [Column; 8] = [
    ("RUN", None),
    ("AGE", None),
    ("STEP", None),
    ("TOKENS", None),
    ("DOES", Some(14)),
    ("CALLS", None),
    ("MODEL", Some(8)),
    ("SESSION", Some(8)),
];

/// Most characters of a cell.
const MOST_SHOWN: usize = 128;

/// Where it is shown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Display {
    /// How wide it is; without it there is no bound.
    pub(super) columns: Option<usize>,
    /// How high it is.
    pub(super) rows: Option<usize>,
}

/// A line, and how it looks where there are colours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) look: Look,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Plain,
    /// The titles of a table.
    Title,
    /// Something does not work, or has failed lately.
    Bad,
    /// A replica that shuts down.
    Odd,
}

/// What was seen.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    replicas: &'a [Replica],
    runs: &'a LiveRuns,
    now_ms: u64,
}

impl<'a> Seen<'a> {
    /// What was seen until now.
    pub(super) fn of(replicas: &'a [Replica], runs: &'a LiveRuns) -> Self {
        Self { replicas, runs, now_ms: now_ms() }
    }
}

/// A replica, or all of them.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
    figures: Figures,
    recent: Counted,
    /// `None` until some was looked at twice.
    rates: Option<Rates>,
}

impl Display {
    pub(super) fn lines(&self, seen: &Seen<'_>) -> Vec<Line> {
        let rows: Vec<_> = seen.replicas.iter().map(|replica| (replica.url(), Row::of(replica))).collect();
        let answering = rows.iter().filter_map(|(_, row)| *row);
        let (answer, all) = answering.fold((0, Row::default()), |(count, sum), row| (count + 1, sum.plus(&row)));
        let mut shown = vec![Line::plain(summary(seen, answer, &all)), Line::plain(String::new())];
        if answer > 0 {
            let named = rows.iter().filter_map(|(url, row)| Some((url.as_str(), (*row)?)));
            let all = (rows.len() > 1).then_some(("all", all));
            shown.extend(self.replicas(&named.chain(all).collect::<Vec<_>>()));
        }
        for replica in seen.replicas {
            if let Some(why) = replica.failure() {
                let text = line(&format!("{} {why}", replica.url()), MOST_SHOWN * 2);
                shown.push(Line { text, look: Look::Bad });
            }
        }
        shown.push(Line::plain(String::new()));
        let left = self.rows.map(|rows| rows.saturating_sub(shown.len()));
        shown.extend(self.runs(seen, left));
        shown.truncate(self.rows.unwrap_or(usize::MAX));
        if let Some(columns) = self.columns {
            for line in &mut shown {
                line.text = clip(&line.text, columns);
            }
        }
        shown
    }

    fn replicas(&self, rows: &[(&str, Row)]) -> Vec<Line> {
        let cells: Vec<_> = rows.iter().map(|(name, row)| row.cells(name)).collect();
        let looks = std::iter::once(Look::Title).chain(rows.iter().map(|(_, row)| row.look()));
        let lines = lines(&REPLICAS, &cells, self.columns).into_iter().zip(looks);
        lines.map(|(text, look)| Line { text, look }).collect()
    }

    fn runs(&self, seen: &Seen<'_>, most: Option<usize>) -> Vec<Line> {
        let found = match seen.runs.found() {
            Ok(found) => found,
            Err(error) => {
                let text = line(&format!("the runs cannot be listed: {error}"), MOST_SHOWN * 2);
                return vec![Line { text, look: Look::Bad }];
            }
        };
        if found.runs.is_empty() {
            let text = if found.has_more { "none of the newest runs is under way" } else { "no run is under way" };
            return vec![Line::plain(text.to_owned())];
        }
        // One line for the titles, and one that says that there are more.
        let room = most.map_or(usize::MAX, |most| most.saturating_sub(2));
        let cells: Vec<_> = found.runs.iter().take(room).map(|run| run_cells(run, seen.now_ms)).collect();
        let looks = std::iter::once(Look::Title).chain(std::iter::repeat(Look::Plain));
        let shown = lines(&RUNS, &cells, self.columns).into_iter().zip(looks);
        let mut shown: Vec<_> = shown.map(|(text, look)| Line { text, look }).collect();
        if found.has_more || cells.len() < found.runs.len() {
            shown.push(Line::plain("… and more".to_owned()));
        }
        shown
    }
}

impl Line {
    fn plain(text: String) -> Self {
        Self { text, look: Look::Plain }
    }
}

impl Row {
    fn of(replica: &Replica) -> Option<Self> {
        let watch = replica.seen()?;
        Some(Self { figures: *watch.newest()?, recent: watch.recent(), rates: watch.rates() })
    }

    fn plus(&self, other: &Self) -> Self {
        let (mine, theirs) = (&self.figures, &other.figures);
        let figures = Figures {
            live: mine.live + theirs.live,
            queued: mine.queued + theirs.queued,
            streams: mine.streams + theirs.streams,
            is_draining: false,
            counted: mine.counted.combined(&theirs.counted, |a, b| a + b),
        };
        let rates = match (self.rates, other.rates) {
            (Some(a), Some(b)) => {
                Some(Rates { input: a.input + b.input, output: a.output + b.output, cost: a.cost + b.cost })
            }
            (one, other) => one.or(other),
        };
        Self { figures, recent: self.recent.combined(&other.recent, |a, b| a + b), rates }
    }

    /// What the table says of it.
    fn cells(&self, name: &str) -> Vec<String> {
        let (figures, counted, recent) = (&self.figures, &self.figures.counted, &self.recent);
        let name = if figures.is_draining { format!("{name} (shuts down)") } else { name.to_owned() };
        let rate = |of: fn(&Rates) -> f64| self.rates.as_ref().map_or_else(|| "–".to_owned(), |rates| small(of(rates)));
        let cost = self.rates.map_or_else(|| "–".to_owned(), |rates| money(rates.cost * 3_600.0));
        vec![
            line(&name, MOST_SHOWN),
            whole(figures.live),
            whole(figures.queued),
            whole(figures.streams),
            rate(|rates| rates.input),
            rate(|rates| rates.output),
            cost,
            whole(counted.ended),
            with_recent(counted.failed, recent.failed),
            with_recent(counted.upstream_errors, recent.upstream_errors),
            with_recent(counted.tool_errors, recent.tool_errors),
            with_recent(counted.server_errors, recent.server_errors),
        ]
    }

    fn look(&self) -> Look {
        let Counted { failed, upstream_errors, server_errors, .. } = self.recent;
        match self.figures.is_draining {
            _ if failed + upstream_errors + server_errors > 0.0 => Look::Bad,
            true => Look::Odd,
            false => Look::Plain,
        }
    }
}

/// How all of them do, in a line.
fn summary(seen: &Seen<'_>, answer: usize, all: &Row) -> String {
    let replicas = match (seen.replicas.len(), answer) {
        (1, 1) => String::new(),
        (1, _) => " · the metrics of the replica cannot be read".to_owned(),
        (asked, _) => format!(" · {answer} of {} answer", count(asked, "replica")),
    };
    let all = (answer > 0).then(|| {
        let rates = all.rates.unwrap_or_default();
        let runs = count(whole(all.figures.live), "live run");
        format!(" · {runs} · {} tokens/s · ${}/h", small(rates.input + rates.output), money(rates.cost * 3_600.0))
    });
    format!("loopgate top · {}{replicas}{}", clock(seen.now_ms), all.unwrap_or_default())
}

fn run_cells(run: &Run, now_ms: u64) -> Vec<String> {
    let (mut step, mut calls, mut does) = (String::new(), String::new(), String::new());
    if let Some(progress) = &run.progress {
        (step, calls) = (progress.step.to_string(), progress.tool_calls.to_string());
        let tools: Vec<_> = progress.tools.iter().map(|call| call.name.as_str()).collect();
        does = if tools.is_empty() { "asks the model".to_owned() } else { format!("calls {}", tools.join(", ")) };
    }
    [
        run.id.clone(),
        duration(now_ms.saturating_sub(run.created_ms)),
        step,
        run.usage.as_ref().map(|usage| usage.total().to_string()).unwrap_or_default(),
        does,
        calls,
        run.model.clone(),
        run.session_id.clone().unwrap_or_default(),
    ]
    .map(|cell| line(&cell, MOST_SHOWN))
    .to_vec()
}

fn whole(number: f64) -> String {
    format!("{number:.0}")
}

fn small(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { whole(rate) }
}

fn money(usd: f64) -> String {
    if usd < 1.0 { format!("{usd:.4}") } else { format!("{usd:.2}") }
}

/// A count since the start, and how much of it is of the last minute.
fn with_recent(counted: f64, recent: f64) -> String {
    if recent > 0.0 { format!("{counted:.0} (+{recent:.0})") } else { whole(counted) }
}
