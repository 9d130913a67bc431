//! What is counted of the records of runs.

use std::fmt::Write;
use std::sync::Arc;

use crate::agent::machine::Run;
use crate::agent::machine::tests::spec;
use crate::telemetry::metrics::{Figures, Format, Metrics, Names};
use crate::types::event::{DiscardReason, Reservation, Turn};
use crate::types::price::StepModel;
use crate::types::{
    BudgetStatus, CallId, ErrorKind, Event, Outcome, Record, RunError, RunId, RunSpec, RunTrace, StopReason, Tenant,
    ToolOutcome, TurnEnd, Usage, Used,
};

fn count(metrics: &Metrics, spec: &RunSpec, events: impl IntoIterator<Item = Event>) {
    let run = Run::new(Arc::new(spec.clone()));
    let mut counter = metrics.of_run(spec, || run.counted());
    for (seq, event) in (1..).zip(events) {
        counter.recorded(&Record { seq, at_ms: 5, event });
    }
}

fn text(metrics: &Metrics, format: Format) -> String {
    metrics.write(format, Figures::default()).unwrap().unwrap()
}

fn model(upstream: &str, model: &str) -> Arc<StepModel> {
    Arc::new(StepModel { upstream: upstream.into(), model: model.into(), ..StepModel::default() })
}

/// Everything that has a label, with these names.
fn story(upstream: &str, name: &str, tool: &str) -> Vec<Event> {
    let usage = Usage { prompt_tokens: 10, completion_tokens: 5, ..Usage::default() };
    let turn = Turn { usage, latency_ms: 100, first_token_ms: Some(20), ..Turn::default() };
    let discarded = |reason| Event::StepDiscarded { step: 1, reason, usage, unconfirmed: Used::default() };
    let finished = |outcome| {
        let call_id = CallId::foreign("c");
        Event::ToolFinished { step: 1, call_id, name: tool.into(), outcome }
    };
    vec![
        Event::RunStarted,
        Event::StepStarted {
            step: 1,
            reserved: Reservation::default(),
            model: Some(model(upstream, name)),
            closing: None,
        },
        discarded(DiscardReason::StreamBroke),
        discarded(DiscardReason::NoAnswer),
        discarded(DiscardReason::Interrupted),
        discarded(DiscardReason::EmptyResponse),
        Event::TurnFinished { step: 1, turn: Box::new(turn) },
        finished(ToolOutcome::default()),
        finished(ToolOutcome::failed("no")),
        finished(ToolOutcome::lost("no")),
        finished(ToolOutcome::skipped("no")),
        finished(ToolOutcome::stopped("no")),
        Event::StepCompleted {
            step: 1,
            usage,
            turn_end: TurnEnd::Stop,
            latency_ms: 1,
            budget: BudgetStatus::default(),
        },
        Event::RunFinished(Box::new(Outcome::unknown(StopReason::ClientTools))),
        Event::RunResumed { leg: None },
        Event::stop(StopReason::Cancelled),
        Event::RunFinished(Box::new(Outcome::unknown(StopReason::Cancelled))),
    ]
}

#[test]
fn however_many_things_have_names_the_metrics_are_small() {
    let metrics = Metrics::new(true);
    let names = |kind: &'static str| (0..10_000).map(move |number| format!("the-{kind}-of-the-department-{number}"));
    metrics.know(Names {
        agents: names("agent").collect(),
        models: names("model").map(|model| format!("up/{model}")).collect(),
        tools: names("tool").collect(),
        tenants: names("tenant").collect(),
    });
    let reasons = [
        StopReason::Done,
        StopReason::MaxIterations,
        StopReason::TokenBudget,
        StopReason::ProviderError,
        StopReason::Timeout,
        StopReason::InternalError,
    ];
    for (((agent, name), tool), tenant) in names("agent").zip(names("model")).zip(names("tool")).zip(names("tenant")) {
        let trace = Some(RunTrace::of_run(&RunId::mint(), None));
        let spec = RunSpec { agent, tenant: Tenant::parse(&tenant).unwrap(), trace, ..spec() };
        count(&metrics, &spec, story("up", &name, &tool));
        for reason in reasons {
            count(&metrics, &spec, [Event::RunFinished(Box::new(Outcome::unknown(reason)))]);
        }
    }
    for format in [Format::Prometheus, Format::OpenMetrics] {
        let text = text(&metrics, format);
        assert!(text.len() < 1 << 20, "{} bytes", text.len());
        let ended = "loopgate_runs_finished_total{agent=\"other\",status=\"cancelled\",reason=\"cancelled\"} 9950\n";
        assert!(text.contains(ended), "the names beyond the bound are counted together");
        assert!(text.contains("{agent=\"the-agent-of-the-department-49\""), "the first ones have names");
        assert!(!text.contains("department-50\""));
    }
}

/// Names that are not from the configuration come from callers, upstreams and models.
#[test]
fn names_from_outside_the_configuration_are_not_told() {
    let metrics = Metrics::new(false);
    let evil = "a\"} 1\nloopgate_runs_finished_total{agent=\"x # {";
    let spec = RunSpec { agent: evil.into(), ..spec() };
    count(&metrics, &spec, story(evil, evil, evil));
    metrics.know(Names { models: vec![format!("up/{evil}")], ..Names::default() });
    count(&metrics, &spec, story("up", evil, "t"));
    for format in [Format::Prometheus, Format::OpenMetrics] {
        let text = text(&metrics, format);
        let mut lines = String::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').expect("a sample has a value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            writeln!(lines, "{line}").unwrap();
        }
        assert!(!lines.contains("x #") && !lines.contains("agent=\"x"), "{lines}");
        assert!(lines.contains("model=\"a___1_loopgate_runs_finished_total_agent__x____\""), "{lines}");
        assert!(!lines.contains("tenant"), "tenants are not counted by name unless that is asked for");
    }
}

#[test]
fn a_step_lasts_from_its_begin_to_its_last_result() {
    let metrics = Metrics::new(false);
    let began = |step| Event::StepStarted { step, reserved: Reservation::default(), model: None, closing: None };
    let completed = |step| Event::StepCompleted {
        step,
        usage: Usage::default(),
        turn_end: TurnEnd::ToolCalls,
        latency_ms: 1_000,
        budget: BudgetStatus::default(),
    };
    let told = [
        (1_000, began(1)),
        (4_000, completed(1)),
        (5_000, began(2)),
        // Another replica went on with the second step.
        (60_000, Event::RunResumed { leg: None }),
        (61_000, completed(2)),
    ];
    let spec = spec();
    let run = Run::new(Arc::new(spec.clone()));
    let mut counter = metrics.of_run(&spec, || run.counted());
    for (seq, (at_ms, event)) in (1..).zip(told) {
        counter.recorded(&Record { seq, at_ms, event });
    }
    let text = text(&metrics, Format::Prometheus);
    for sample in ["sum{agent=\"other\"} 3.0\n", "count{agent=\"other\"} 1\n"] {
        assert!(text.contains(&format!("loopgate_step_duration_seconds_{sample}")), "{sample}: {text}");
    }
}

#[test]
fn what_is_reserved_is_released_with_its_run() {
    let metrics = Metrics::new(false);
    let reserved = Reservation { input_tokens: 30, output_tokens: 12, cost: crate::types::Micros(500_000) };
    let began = || Event::StepStarted { step: 1, reserved, model: Some(model("u", "m")), closing: None };
    let spec = spec();
    let run = Run::new(Arc::new(spec.clone()));
    let mut first = metrics.of_run(&spec, || run.counted());
    let mut second = metrics.of_run(&spec, || run.counted());
    for counter in [&mut first, &mut second] {
        counter.recorded(&Record { seq: 1, at_ms: 1, event: began() });
    }
    let held = |metrics: &Metrics| {
        let text = text(metrics, Format::Prometheus);
        let value = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).expect("it is written");
            line.rsplit_once(' ').unwrap().1.to_owned()
        };
        (value("loopgate_reserved_tokens"), value("loopgate_reserved_cost_usd"))
    };
    let amounts = |tokens: &str, usd: &str| (tokens.to_owned(), usd.to_owned());
    assert_eq!(held(&metrics), amounts("84", "1.0"));
    first.recorded(&Record { seq: 2, at_ms: 1, event: Event::TurnFinished { step: 1, turn: Box::default() } });
    assert_eq!(held(&metrics), amounts("42", "0.5"));
    drop(second);
    assert_eq!(held(&metrics), amounts("0", "0.0"), "a run that is left has nothing reserved here");
}

#[test]
fn an_upstreams_failure_is_counted_once_by_its_class() {
    let metrics = Metrics::new(false);
    metrics.know(Names { models: vec!["u/m".into()], ..Names::default() });
    let discarded =
        |reason| Event::StepDiscarded { step: 1, reason, usage: Usage::default(), unconfirmed: Used::default() };
    let retry = |kind| Event::ProviderRetry {
        step: 1,
        upstream: "u".into(),
        model: "m".into(),
        attempt: 1,
        delay_ms: 1,
        kind,
        cause: "secret".into(),
    };
    let began = |step| Event::StepStarted {
        step,
        reserved: Reservation::default(),
        model: Some(model("u", "m")),
        closing: None,
    };
    let error = Some(RunError::new(ErrorKind::UpstreamTimeout, "secret"));
    count(
        &metrics,
        &spec(),
        [
            began(1),
            retry(ErrorKind::UpstreamUnavailable),
            discarded(DiscardReason::StreamBroke),
            began(2),
            discarded(DiscardReason::NoAnswer),
            began(3),
            Event::StopRequested { reason: StopReason::ProviderError, error, short: None },
            discarded(DiscardReason::NoAnswer),
        ],
    );
    let text = text(&metrics, Format::Prometheus);
    for (class, count) in [("unavailable", 1), ("stream_broke", 1), ("no_answer", 1), ("timeout", 1)] {
        let line = format!("loopgate_upstream_errors_total{{upstream=\"u\",class=\"{class}\"}} {count}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
    for (class, count) in [("unavailable", 1), ("stream_broke", 1), ("no_answer", 1)] {
        let line = format!("loopgate_model_retries_total{{upstream=\"u\",model=\"m\",class=\"{class}\"}} {count}\n");
        assert!(text.contains(&line), "the last failure was not repeated: {line}{text}");
    }
    assert!(!text.contains("secret"));
}
