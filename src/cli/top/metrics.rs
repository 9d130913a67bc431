//! Reads a page of metrics in Prometheus' text format. Pure.

use std::borrow::Cow;

/// What a replica has counted since its start, and what it holds now.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Figures {
    /// Runs that it drives.
    pub(super) live: f64,
    /// Runs that wait for their turn.
    pub(super) queued: f64,
    /// Requests that get events as these happen.
    pub(super) streams: f64,
    /// Whether it shuts down.
    pub(super) is_draining: bool,
    /// What it has counted since its start.
    pub(super) counted: Counted,
}

/// What a replica has counted since its start.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Counted {
    /// Tokens that models read.
    pub(super) input: f64,
    /// Tokens that models wrote.
    pub(super) output: f64,
    /// US dollars.
    pub(super) cost: f64,
    /// Runs that ended.
    pub(super) ended: f64,
    /// Those of them that failed.
    pub(super) failed: f64,
    /// Attempts to get an answer of an upstream that failed.
    pub(super) upstream_errors: f64,
    /// Tool calls that failed.
    pub(super) tool_errors: f64,
    /// Requests that were answered with a status of 500 or more.
    pub(super) server_errors: f64,
}

impl Figures {
    /// What the page says; `None` if it is not one of Loopgate's.
    pub(super) fn read(page: &str) -> Option<Self> {
        let (mut figures, mut is_ours) = (Self::default(), false);
        for sample in page.lines().filter_map(Sample::read) {
            is_ours |= sample.name == "loopgate_build_info";
            figures.add(&sample);
        }
        is_ours.then_some(figures)
    }

    fn add(&mut self, sample: &Sample<'_>) {
        let (value, counted) = (sample.value, &mut self.counted);
        match sample.name {
            "loopgate_live_runs" => self.live += value,
            "loopgate_queued_runs" => self.queued += value,
            "loopgate_streams" => self.streams += value,
            "loopgate_draining" => self.is_draining |= value > 0.0,
            "loopgate_tokens_total" => match sample.label("kind").as_deref() {
                Some("output" | "reasoning") => counted.output += value,
                Some(_) | None => counted.input += value,
            },
            "loopgate_cost_usd_total" => counted.cost += value,
            "loopgate_runs_finished_total" => {
                counted.ended += value;
                if sample.label("status").as_deref() == Some("failed") {
                    counted.failed += value;
                }
            }
            "loopgate_upstream_errors_total" => counted.upstream_errors += value,
            "loopgate_tool_calls_total" if matches!(sample.label("outcome").as_deref(), Some("error" | "lost")) => {
                counted.tool_errors += value;
            }
            "loopgate_http_requests_total" if sample.label("status").is_some_and(|status| status.starts_with('5')) => {
                counted.server_errors += value;
            }
            _ => {}
        }
    }
}

impl Counted {
    /// All figures.
    pub(super) fn all(&self) -> [f64; 8] {
        let Self { input, output, cost, ended, failed, upstream_errors, tool_errors, server_errors } = *self;
        [input, output, cost, ended, failed, upstream_errors, tool_errors, server_errors]
    }

    /// All figures, together with those of another one.
    pub(super) fn combined(&self, other: &Self, combine: impl Fn(f64, f64) -> f64) -> Self {
        let (mine, theirs) = (self.all(), other.all());
        let [input, output, cost, ended, failed, upstream_errors, tool_errors, server_errors] =
            std::array::from_fn(|index| combine(mine[index], theirs[index]));
        Self { input, output, cost, ended, failed, upstream_errors, tool_errors, server_errors }
    }
}

/// A line that has a value.
pub(in crate::cli) struct Sample<'a> {
    pub(in crate::cli) name: &'a str,
    /// Between the braces.
    labels: &'a str,
    pub(in crate::cli) value: f64,
}

impl<'a> Sample<'a> {
    /// The sample of a line; `None` if it is none.
    pub(in crate::cli) fn read(line: &'a str) -> Option<Self> {
        let named = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(named);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => rest.split_at(end_of_labels(rest)?),
            None => ("", rest),
        };
        // A time may follow.
        let value = rest.trim_start_matches('}').split_whitespace().next()?.parse().ok()?;
        (!name.starts_with('#')).then_some(Self { name, labels, value })
    }

    /// The value of a label.
    pub(in crate::cli) fn label(&self, name: &str) -> Option<Cow<'a, str>> {
        let mut rest = self.labels;
        while let Some((found, after)) = rest.split_once("=\"") {
            let end = end_of_value(after)?;
            if found.trim_start_matches([',', ' ']) == name {
                let value = &after[..end];
                let is_plain = !value.contains('\\');
                return Some(if is_plain {
                    value.into()
                } else {
                    value.replace("\\\"", "\"").replace("\\\\", "\\").into()
                });
            }
            rest = &after[end + 1..];
        }
        None
    }
}

/// Where a value ends whose first quote was read.
fn end_of_value(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.find(|c| {
        let is_end = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    })
}

/// Where the brace is that ends labels: values may have some, too.
fn end_of_labels(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let next = at + text[at..].find(['"', '}'])?;
        if text[next..].starts_with('}') {
            return Some(next);
        }
        at = next + 1 + end_of_value(&text[next + 1..])? + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_added_up() {
        let page = r#"# HELP loopgate_tokens_total Tokens.
# TYPE loopgate_tokens_total counter
loopgate_build_info{version="1"} 1
loopgate_live_runs 2
loopgate_queued_runs{} 3
loopgate_draining 1
loopgate_streams 4 1700000000000
loopgate_tokens_total{upstream="a",model="m",kind="input"} 10
loopgate_tokens_total{upstream="a",model="kind=\"input\"}",kind="output"} 3
loopgate_tokens_total{upstream="a\\",model="m",kind="cached_input"} 5
loopgate_tokens_total{upstream="a",model="m",kind="reasoning"} 1
loopgate_cost_usd_total{upstream="a",model="m"} 2.5e-3
loopgate_runs_finished_total{agent="x",status="completed",reason="done"} 7
loopgate_runs_finished_total{agent="x",status="failed",reason="provider_error"} 2
loopgate_upstream_errors_total{upstream="a",class="timeout"} 6
loopgate_tool_calls_total{tool="t",outcome="ok"} 8
loopgate_tool_calls_total{tool="t",outcome="error"} 1
loopgate_tool_calls_total{tool="t",outcome="lost"} 1
loopgate_http_requests_total{route="/",status="200"} 50
loopgate_http_requests_total{route="/",status="503"} 4
loopgate_run_duration_seconds_bucket{agent="x",le="+Inf"} 9
"#;
        let counted = Counted {
            input: 15.0,
            output: 4.0,
            cost: 0.0025,
            ended: 9.0,
            failed: 2.0,
            upstream_errors: 6.0,
            tool_errors: 2.0,
            server_errors: 4.0,
        };
        let expected = Figures { live: 2.0, queued: 3.0, streams: 4.0, is_draining: true, counted };
        assert_eq!(Figures::read(page), Some(expected));
        for other in ["", "<html>{\"}</html>", "up 1\n", "loopgate_live_runs{a=\"\\\"} 1\n"] {
            assert_eq!(Figures::read(other), None, "{other}");
        }
    }
}
