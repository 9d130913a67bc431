//! The figures as Markdown tables, with what was aimed at and whether it was reached.

use std::time::Duration;

use crate::servers::Subject;

/// A figure of each server for each round.
#[derive(Default)]
pub(crate) struct Rounds(Vec<(Subject, Vec<f64>)>);

/// A ratio that is not to be exceeded.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) of: Subject,
    pub(crate) over: Subject,
    pub(crate) at_most: f64,
    /// What is aimed at beyond that.
    pub(crate) stretch: f64,
}

/// What must be reached, and what is aimed at beyond.
#[derive(Clone, Copy)]
struct Marks {
    at_most: f64,
    stretch: f64,
    unit: &'static str,
}

impl Marks {
    fn one(at_most: f64, unit: &'static str) -> Self {
        Self::two(at_most, at_most, unit)
    }

    fn two(at_most: f64, stretch: f64, unit: &'static str) -> Self {
        Self { at_most, stretch, unit }
    }
}

/// One case over memory and over Redis.
pub(crate) struct OverRedis {
    pub(crate) title: &'static str,
    /// CPU µs of the server per request.
    pub(crate) server: Rounds,
    /// CPU µs of Redis per request.
    pub(crate) redis: Rounds,
    /// Requests a second.
    pub(crate) rate: Rounds,
    /// Entries of a run's log.
    pub(crate) entries: f64,
    /// Tokens that a request streams, where that is all there is to it.
    pub(crate) tokens: Option<f64>,
}

/// What is stored of a run with a tool loop of three rounds, in bytes.
pub(crate) struct Stored {
    /// Resident memory of the idle server over memory and over Redis, and of idle Redis.
    pub(crate) idle: [f64; 3],
    /// What Redis holds of it at first.
    pub(crate) at_once: f64,
    /// What it holds once it has forgotten the operations.
    pub(crate) after: f64,
    /// What of that its own keys take, and how many they are.
    pub(crate) of_keys: f64,
    pub(crate) keys: f64,
}

/// How much of something a request took, and how much it may take.
pub(crate) struct Count {
    pub(crate) what: &'static str,
    pub(crate) counted: f64,
    pub(crate) budget: f64,
    /// By how much it may miss its budget, in either direction.
    pub(crate) tolerance: f64,
}

/// What one of something costs where there are few of them, and where there are many.
pub(crate) struct Growth {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) few: u32,
    pub(crate) at_few: Vec<f64>,
    pub(crate) many: u32,
    pub(crate) at_many: Vec<f64>,
}

/// Many streams at once.
pub(crate) struct Live {
    pub(crate) subject: Subject,
    /// Cores of the server and of Redis.
    pub(crate) server: f64,
    pub(crate) redis: Option<f64>,
    /// Resident memory of the server without and with streams, in bytes.
    pub(crate) idle: f64,
    pub(crate) streaming: f64,
    pub(crate) failed: u32,
    /// How long each stream took, in order.
    pub(crate) took: Vec<Duration>,
}

/// A median with its extremes.
#[derive(Clone, Copy)]
struct Summary {
    low: f64,
    median: f64,
    high: f64,
}

impl Rounds {
    /// Adds the next round's figure of `subject`.
    pub(crate) fn add(&mut self, subject: Subject, figure: f64) {
        match self.0.iter_mut().find(|(known, _)| *known == subject) {
            Some((_, figures)) => figures.push(figure),
            None => self.0.push((subject, vec![figure])),
        }
    }

    /// All figures less this.
    fn above(&self, floor: f64) -> Self {
        let less = |figures: &Vec<f64>| figures.iter().map(|figure| figure - floor).collect();
        Self(self.0.iter().map(|(subject, figures)| (*subject, less(figures))).collect())
    }

    fn of(&self, subject: Subject) -> &[f64] {
        self.0.iter().find(|(known, _)| *known == subject).map_or(&[], |(_, figures)| figures)
    }

    fn summary(&self, subject: Subject) -> Option<Summary> {
        Summary::of(self.of(subject).to_vec())
    }

    /// The summary of by how much one subject's figures exceed another's, in units of a third one's.
    fn added(&self, one: Subject, other: Subject, unit: Subject) -> Option<Summary> {
        let units = self.of(unit);
        let figures = self.of(one).iter().zip(self.of(other)).zip(units);
        Summary::of(figures.map(|((one, other), unit)| (one - other) / unit).collect())
    }

    /// The summary of what `combine` makes of two subjects' figures of the same round.
    fn compared(&self, one: Subject, other: Subject, combine: fn(f64, f64) -> f64) -> Option<Summary> {
        Summary::of(self.of(one).iter().zip(self.of(other)).map(|(&one, &other)| combine(one, other)).collect())
    }
}

impl Summary {
    fn of(mut figures: Vec<f64>) -> Option<Self> {
        figures.sort_by(f64::total_cmp);
        let (&low, &high) = (figures.first()?, figures.last()?);
        let middle = figures.len() / 2;
        let median =
            if figures.len() % 2 == 1 { figures[middle] } else { f64::midpoint(figures[middle - 1], figures[middle]) };
        Some(Self { low, median, high })
    }
}

/// Where and how the figures below were taken.
pub(crate) fn machine(rounds: u32, pinned: bool) {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("?", |(_, m)| m);
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let pinning = if pinned && cores > 1 { "servers on one core of their own" } else { "servers on every core" };
    println!("{model}, {cores} cores, Linux {}; {rounds} rounds; {pinning}", kernel.trim());
    println!("Figures are medians over the rounds (lowest–highest); ratios are taken within a round.");
}

/// CPU time per request.
pub(crate) fn cpu(title: &str, load: &str, subjects: &[Subject], rounds: &Rounds, targets: &[Target]) {
    println!("\n### CPU: {title}\n\n{load}\n");
    let ratio = |one, other| two_decimals(rounds.compared(one, other, |one, other| one / other));
    let measured = subjects.iter().filter(|&&subject| rounds.summary(subject).is_some());
    let rows = measured.map(|&subject| {
        [
            subject.name().into(),
            one_decimal(rounds.summary(subject)),
            ratio(subject, Subject::PassThrough),
            ratio(subject, Subject::LeastLoop),
        ]
    });
    table(["server", "CPU µs per request", "÷ pass-through", "÷ least loop"], rows);
    for target in targets {
        let reached = rounds.compared(target.of, target.over, |one, other| one / other);
        let what = format!("{} ÷ {}", target.of.name(), target.over.name());
        let marks = Marks { at_most: target.at_most, stretch: target.stretch, unit: "" };
        verdict(&what, marks, reached);
    }
}

/// Time to the first token, and what each server adds to it.
pub(crate) fn first_token(load: &str, subjects: &[Subject], medians: &Rounds, slow: &Rounds) {
    println!("\n### Time to the first token\n\n{load}\n");
    let rows = subjects.iter().map(|&subject| {
        [
            subject.name().into(),
            one_decimal(medians.summary(subject)),
            one_decimal(medians.compared(subject, Subject::Direct, |one, other| one - other)),
            one_decimal(slow.summary(subject)),
        ]
    });
    table(["path", "median µs", "added µs", "99th percentile µs"], rows);
    let direct = medians.summary(Subject::Direct).map_or(0.0, |summary| summary.median);
    let added = medians.above(direct);
    let ratio = added.compared(Subject::LoopgateChat, Subject::PassThrough, |one, other| one / other);
    verdict("time added to the first token ÷ that of the proxy", Marks::two(2.2, 1.6, ""), ratio);
}

/// How fast a process is ready, and what it takes while idle.
pub(crate) fn ready(starts: u32, ready: &Rounds, idle: &Rounds) {
    println!("\n### Start and idle memory\n\n{starts} starts each\n");
    let subjects = [
        (Subject::PassThrough, "pass-through proxy"),
        (Subject::LeastLoop, "least loop server"),
        (Subject::LoopgateChat, "Loopgate"),
    ];
    let rows = subjects
        .map(|(subject, name)| [name.into(), one_decimal(ready.summary(subject)), one_decimal(idle.summary(subject))]);
    table(["server", "ready after ms", "idle RSS MB"], rows);
    verdict("Loopgate ready after", Marks::one(100.0, " ms"), ready.summary(Subject::LoopgateChat));
    verdict("Loopgate idle RSS", Marks::two(17.5, 12.0, " MB"), idle.summary(Subject::LoopgateChat));
}

/// What an open stream takes that waits for its upstream.
pub(crate) fn streams(count: u32, subjects: &[Subject], before: &Rounds, per_stream: &Rounds, after: &Rounds) {
    println!("\n### Memory of {count} open streams\n\neach got its first token, then nothing\n");
    let rows = subjects.iter().map(|&subject| {
        let figures = [before, per_stream, after].map(|figure| one_decimal(figure.summary(subject)));
        let [before, per_stream, after] = figures;
        [subject.name().into(), before, per_stream, after]
    });
    table(["server", "RSS MB before", "RSS KiB per stream", "RSS MB 20 s after their end"], rows);
    verdict(
        "Loopgate, chat endpoint, per stream",
        Marks::two(43.0, 25.0, " KiB"),
        per_stream.summary(Subject::LoopgateChat),
    );
    let ratio = per_stream.compared(Subject::LoopgateChat, Subject::PassThrough, |one, other| one / other);
    verdict("Loopgate, chat endpoint ÷ pass-through proxy, per stream", Marks::two(1.2, 0.7, ""), ratio);
}

/// Each case over memory and over Redis; what is aimed at is judged in the case of this title.
pub(crate) fn over_redis(cases: &[OverRedis], judged: &str) {
    println!("\n### Redis beside the memory store\n\nthe chat endpoint; CPU µs are per request\n");
    let ratio = |case: &OverRedis| {
        case.server.compared(Subject::OverRedis, Subject::LoopgateChat, |redis, memory| redis / memory)
    };
    let per_token = |summary: Option<Summary>, tokens: Option<f64>| match (summary, tokens) {
        (Some(summary), Some(tokens)) => format!("{:.1}", summary.median / tokens),
        _ => "–".into(),
    };
    let rows = cases.iter().map(|case| {
        let over = case.server.summary(Subject::OverRedis);
        let rate = case.rate.summary(Subject::OverRedis);
        [
            case.title.into(),
            one_decimal(case.server.summary(Subject::LoopgateChat)),
            one_decimal(over),
            two_decimals(ratio(case)),
            per_token(over, case.tokens),
            one_decimal(case.redis.summary(Subject::OverRedis)),
            rate.map_or("–".into(), |rate| format!("{:.0}", rate.median * case.entries)),
        ]
    });
    let head = ["case", "over memory", "over Redis", "÷", "per token", "redis-server", "log entries a second"];
    table(head, rows);
    for case in cases.iter().filter(|case| case.title == judged) {
        verdict("over Redis ÷ over memory, tool loop", Marks::one(1.4, ""), ratio(case));
        let added = case.server.added(Subject::OverRedis, Subject::LoopgateChat, Subject::LeastLoop);
        verdict("(over Redis − over memory) ÷ least loop server, tool loop", Marks::two(0.7, 0.45, ""), added);
    }
}

/// Time of a loop of one connection after the other.
pub(crate) fn loop_time(load: &str, subjects: &[Subject], rounds: &Rounds) {
    println!("\n### Time of a tool loop\n\n{load}\n");
    let ratio = |subject| rounds.compared(subject, Subject::LeastLoop, |one, other| one / other);
    let rows = subjects
        .iter()
        .map(|&subject| [subject.name().into(), one_decimal(rounds.summary(subject)), two_decimals(ratio(subject))]);
    table(["server", "µs per loop", "÷ least loop"], rows);
    verdict("Loopgate, chat endpoint ÷ least loop server", Marks::two(1.5, 1.2, ""), ratio(Subject::LoopgateChat));
}

/// Loops over the embedded store, in syncs of its disk, and how many more there are with more connections.
pub(crate) fn embedded(load: &str, connections: u32, [sync, alone, together]: [&Rounds; 3]) {
    println!("\n### The embedded store\n\n{load}\n");
    let subject = Subject::Embedded;
    let rate = |summary: Option<Summary>| summary.map_or("–".into(), |rate| format!("{:.0}", rate.median));
    let times = Rounds(
        alone.0.iter().map(|(subject, rates)| (*subject, rates.iter().map(|rate| 1e6 / rate).collect())).collect(),
    );
    let rows = [
        ["one fdatasync, µs".into(), one_decimal(sync.summary(subject))],
        ["a loop at one connection, µs".into(), one_decimal(times.summary(subject))],
        ["loops a second at one connection".into(), rate(alone.summary(subject))],
        [format!("loops a second at {connections}"), rate(together.summary(subject))],
    ];
    table(["what", "takes"], rows);
    let pairs = |one: &Rounds, other: &Rounds| {
        Summary::of(one.of(subject).iter().zip(other.of(subject)).map(|(one, other)| one / other).collect())
    };
    verdict("a loop at one connection ÷ one fdatasync", Marks::two(8.0, 3.0, ""), pairs(&times, sync));
    let gain = pairs(together, alone);
    let is_met = gain.is_some_and(|gain| gain.median >= 12.0);
    let verdict = if is_met { "met" } else { "MISSED" };
    println!(
        "\ntarget: loops a second at {connections} connections ÷ at one ≥ 12 (next mark 20): {} – {verdict}",
        two_decimals(gain)
    );
}

/// What is stored of a run.
pub(crate) fn stored(stored: &Stored) {
    println!("\n### What Redis holds\n");
    let mb = |bytes: f64| format!("{:.1} MB", bytes / 1e6);
    let kib = |bytes: f64| format!("{:.1} KiB", bytes / 1024.0);
    let rows = [
        ["idle RSS of Loopgate over memory".into(), mb(stored.idle[0])],
        ["idle RSS of Loopgate over Redis".into(), mb(stored.idle[1])],
        ["idle RSS of redis-server".into(), mb(stored.idle[2])],
        ["a tool loop of 3 rounds, at first".into(), kib(stored.at_once)],
        ["… 20 s after its end".into(), kib(stored.after)],
        [format!("… of which its own {:.1} keys", stored.keys), kib(stored.of_keys)],
    ];
    table(["what", "takes"], rows);
}

/// What requests took, counted.
pub(crate) fn counts<const N: usize>(batches: u32, requests: u32, rows: &[(&str, [Count; N])]) {
    println!("\n### Counts of a request\n\nthe least of {batches} means of {requests} requests, one after the other\n");
    let Some((_, first)) = rows.first() else { return };
    let head = [vec!["request".to_owned()], first.iter().map(|count| count.what.to_owned()).collect()].concat();
    let rows = rows.iter().map(|(title, counts)| {
        let counts = counts.iter().map(|count| format!("{:.1} of {:.1}", count.counted, count.budget));
        [vec![(*title).to_owned()], counts.collect()].concat()
    });
    lines(&[vec![head], rows.collect()].concat());
}

/// What requests took whose upstream speaks another dialect: a title, the ratio to OpenAI's chat completions, and its mark.
pub(crate) fn dialects(ratios: &[(&str, f64, f64)]) {
    for (title, ratio, most) in ratios {
        let verdict = if ratio <= most { "met" } else { "MISSED" };
        println!("\ntarget: instructions of {title} ÷ those of chat completions ≤ {most}: {ratio:.3} – {verdict}");
    }
}

/// What traces add to the instructions of requests: a title, thousands without and with them.
pub(crate) fn traced(requests: u32, most_percent: f64, rows: &[(&str, [f64; 2])]) {
    println!("\n### Traces, one in ten of which is sent\n\nthousand instructions, the mean of {requests} requests\n");
    let head = ["request", "without traces", "with traces", "more %"].map(str::to_owned).to_vec();
    let percent = |[without, with]: [f64; 2]| (with / without - 1.0) * 100.0;
    let cells = rows.iter().map(|(title, counts)| {
        let [without, with] = counts.map(|count| format!("{count:.1}"));
        vec![(*title).to_owned(), without, with, format!("{:.1}", percent(*counts))]
    });
    lines(&std::iter::once(head).chain(cells).collect::<Vec<_>>());
    for (title, counts) in rows {
        let verdict = if percent(*counts) <= most_percent { "met" } else { "MISSED" };
        println!("\ntarget: {title}: ≤ {most_percent} % more: {:.1} – {verdict}", percent(*counts));
    }
}

/// Many streams at once.
pub(crate) fn live(count: u32, lives: &[Live]) {
    println!("\n### {count} runs that stream at once\n\n20 tokens a second each, for 15 s; servers on every core\n");
    let seconds = |took: &[Duration], percent: usize| {
        took.get(took.len() * percent / 100).map_or("–".into(), |took| format!("{:.2}", took.as_secs_f64()))
    };
    let rows = lives.iter().map(|live| {
        [
            live.subject.name().into(),
            format!("{:.0}", live.server * 100.0),
            live.redis.map_or("–".into(), |redis| format!("{:.0}", redis * 100.0)),
            format!("{:.1}", live.server * 1e6 / (f64::from(count) * 20.0)),
            format!("{:.1} → {:.1}", live.idle / 1e6, live.streaming / 1e6),
            format!("{:.1}", (live.streaming - live.idle) / f64::from(count) / 1024.0),
            format!("{} ({})", seconds(&live.took, 50), seconds(&live.took, 99)),
            live.failed.to_string(),
        ]
    });
    let head =
        ["server", "% of a core", "redis-server", "µs per token", "RSS MB", "KiB per run", "took s (99 %)", "failed"];
    table(head, rows);
}

/// What one of something costs where there are ten times as many.
pub(crate) fn growth(rows: &[Growth]) {
    println!("\n### Growth\n\nwhat one of them costs where there are few and where there are ten times as many\n");
    compared(["what", "unit", "few", "each", "many", "each then", "÷"], rows);
}

/// What sharing costs.
pub(crate) fn workers(rows: &[Growth]) {
    println!("\n### One worker and two\n\nthe same load; CPU is that of all threads\n");
    compared(["what", "unit", "workers", "each", "workers then", "each then", "÷"], rows);
}

fn compared(head: [&str; 7], rows: &[Growth]) {
    let rows = rows.iter().map(|row| {
        let ratios = row.at_few.iter().zip(&row.at_many).map(|(few, many)| many / few).collect();
        [
            row.what.clone(),
            row.unit.into(),
            row.few.to_string(),
            one_decimal(Summary::of(row.at_few.clone())),
            row.many.to_string(),
            one_decimal(Summary::of(row.at_many.clone())),
            two_decimals(Summary::of(ratios)),
        ]
    });
    table(head, rows);
}

fn verdict(what: &str, Marks { at_most, stretch, unit }: Marks, measured: Option<Summary>) {
    let verdict = match &measured {
        None => "not measured",
        Some(summary) if summary.median <= stretch && stretch < at_most => "met, and the next mark too",
        Some(summary) if summary.median <= at_most => "met",
        Some(_) => "MISSED",
    };
    let next = if stretch < at_most { format!(" (next mark {stretch}{unit})") } else { String::new() };
    println!("\ntarget: {what} ≤ {at_most}{unit}{next}: {} – {verdict}", two_decimals(measured));
}

fn one_decimal(summary: Option<Summary>) -> String {
    written(summary, 1)
}

fn two_decimals(summary: Option<Summary>) -> String {
    written(summary, 2)
}

fn written(summary: Option<Summary>, decimals: usize) -> String {
    match summary {
        None => "–".into(),
        Some(Summary { low, median, high }) if low.total_cmp(&high).is_eq() => format!("{median:.decimals$}"),
        Some(Summary { low, median, high }) => format!("{median:.decimals$} ({low:.decimals$}–{high:.decimals$})"),
    }
}

fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) {
    let rows = rows.into_iter().map(Vec::from);
    lines(&[vec![head.map(String::from).to_vec()], rows.collect()].concat());
}

/// A table whose first row is its head.
fn lines(rows: &[Vec<String>]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        println!("| {} |", cells.join(" | "));
        if number == 0 {
            let rule: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
            println!("|{}|", rule.join("|"));
        }
    }
}
