use std::fs;
use std::path::Path;

use super::*;
use crate::types::context::{CompactionFailed, ContextEvent, FlushEnded, Method};
use crate::types::delegate::{CompletedChild, Delegated, StartedChild};
use crate::types::guard::{Asked, GuardPoint, Guarded, Judge, Judged, Verdict};
use crate::types::hook::HookPoint;
use crate::types::taken::Taken;

/// `UPDATE_DOCS=1 cargo test --lib metrics` writes the table anew.
#[test]
fn the_documented_metrics_are_the_declared_ones() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let written = fs::read_to_string(&path).unwrap();
    let (before, rest) = written.split_once("<!-- metrics -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end -->").unwrap();
    let table = to_markdown(Metrics::new(true).rows());
    let rendered = format!("{before}<!-- metrics -->\n{table}<!-- end -->{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, rendered).unwrap();
    } else {
        assert_eq!(written, rendered, "UPDATE_DOCS=1 cargo test --lib metrics writes docs/metrics.md anew");
    }
}

/// The documented name is the one under which a metric is read.
/// What a guardrail's service said.
fn judged() -> Guarded {
    let asked = Asked {
        step: 1,
        name: "g".into(),
        of: Judge::Webhook,
        on: GuardPoint::Output,
        message: None,
        call_id: None,
        digest: 0,
    };
    Guarded::Judged(Judged { asked, verdict: Verdict::Pass, reason: None, latency_ms: 1, call: None })
}

fn failed_compaction() -> ContextEvent {
    let (method, reason) = (Method::Local, String::new());
    ContextEvent::CompactionFailed(CompactionFailed {
        step: 1,
        method,
        reason,
        interrupted: false,
        latency_ms: 0,
        call: None,
    })
}

/// A run that another one begins, and its end.
fn delegated() -> [Delegated; 2] {
    let (step, call_id, run) = (1, crate::types::CallId::foreign("c"), crate::types::RunId::mint());
    let child = StartedChild { step, call_id: call_id.clone(), run: run.clone(), agent: "a".into(), depth: 1 };
    let (status, reason, own) = (crate::types::RunStatus::Completed, None, Taken::default());
    let ended = CompletedChild { step, call_id, run, status, reason, own, tree: own };
    [Delegated::Started(child), Delegated::Completed(ended)]
}

fn ended_flush() -> ContextEvent {
    let (upto, messages, writes) = (4, 4, 0);
    let ended = FlushEnded { step: 1, round: 1, upto, messages, writes, error: None, latency_ms: 0, call: None };
    ContextEvent::FlushEnded(ended)
}

fn ran_hook() -> crate::types::hook::HookRan {
    crate::types::hook::HookRan {
        step: 1,
        hook: "h".into(),
        point: HookPoint::RunEnd,
        call_id: None,
        reply: crate::types::hook::HookReply::default(),
        failed: false,
        latency_ms: 1,
    }
}

#[test]
fn every_declared_metric_is_written_under_its_name() {
    let metrics = Metrics::new(true);
    let all = metrics.0.as_ref().unwrap();
    all.runs.agents.of("a").finish(StopReason::Done);
    all.runs.agents.of("a").wait(StopReason::ClientTools);
    all.runs.tenants.of("t").finish(StopReason::Done);
    let (model, class) = (all.runs.models.of("u/m"), crate::telemetry::fold::FailureClass::NoAnswer);
    model.fail(class);
    model.retry(class);
    model.fall_back(class);
    model.hedge(crate::types::hedge::KeptCall::Second);
    all.runs.tools.of("t").finish(&crate::types::ToolOutcome::default(), None);
    metrics.answered_request("/v1/models", 200, Duration::ZERO);
    metrics.refused_request("not_found");
    let (upstreams, hooks) = (metrics.upstreams().unwrap(), metrics.hooks());
    upstreams.queue("u").waited(Duration::ZERO);
    let rests = upstreams.rests("u");
    rests.address("a:8000");
    rests.key(1, "quota");
    all.store.failed(StoreOperation::Get, StoreFailure::Unavailable);
    metrics.show_breakers([BreakerState { upstream: "u".into(), model: "m".into(), state: "open" }]);
    metrics.mcp().count_failure("s", "ended");
    metrics.mcp().show([McpServerState { name: "s".into(), state: "up", held: 1 }]);
    hooks.ran(&ran_hook());
    hooks.delivered("h", Delivery::Delivered);
    hooks.matched("h", HookPoint::RunEnd);
    metrics.schedules().fired("started");
    all.runs.guards.count(&Guarded::Triggered(crate::types::guard::Triggered {
        name: "g".into(),
        on: GuardPoint::Output,
        tripwire: false,
        severity: crate::types::guard::Severity::Low,
        reason: String::new(),
        step: 1,
        message: None,
        call_id: None,
    }));
    all.runs.guards.count(&judged());
    for delegated in delegated() {
        all.runs.count_delegated(&delegated);
    }
    all.runs.count_handoff("a");
    all.runs.context.count(&failed_compaction());
    all.runs.context.count(&ended_flush());
    let text = metrics.write(Format::Prometheus, Figures::default()).unwrap().unwrap();
    for Row { name, kind, help, .. } in metrics.rows() {
        assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name} {kind}: {text}");
        assert!(text.contains(&format!("# HELP {name} {help}\n")), "{name}: {text}");
        let sample = if *kind == "histogram" { format!("\n{name}_count") } else { format!("\n{name}") };
        let is_sampled = text.match_indices(&sample).any(|(at, _)| text[at + sample.len()..].starts_with([' ', '{']));
        assert!(is_sampled, "{name}: {text}");
    }
}

#[test]
fn a_run_that_could_not_be_resumed_is_counted_for_its_tenant_too() {
    for by_tenant in [true, false] {
        let metrics = Metrics::new(by_tenant);
        let tenant = Tenant::parse("acme").unwrap();
        metrics.know(Names { tenants: vec!["acme".to_owned()], agents: vec!["a".to_owned()], ..Names::default() });
        metrics.failed_run("a", &tenant, StopReason::CrashLoop);
        let text = metrics.write(Format::Prometheus, Figures::default()).unwrap().unwrap();
        let of_agent = "loopgate_runs_finished_total{agent=\"a\",status=\"failed\",reason=\"crash_loop\"} 1\n";
        let of_tenant = "loopgate_tenant_runs_finished_total{tenant=\"acme\",status=\"failed\"} 1\n";
        assert!(text.contains(of_agent), "{text}");
        assert_eq!(text.contains(of_tenant), by_tenant, "{text}");
    }
}

#[test]
fn ten_thousand_models_that_answer_leave_the_page_below_a_megabyte() {
    let metrics = Metrics::new(false);
    metrics.know(Names { models: vec!["u/named".to_owned()], ..Names::default() });
    let all = metrics.0.as_ref().unwrap();
    for number in 0..10_000 {
        let name = format!("u/model-{number}");
        all.runs.models.admit(&name);
        let meters = all.runs.models.of(&name);
        meters.duration.observe_ms(1_000, None);
        meters.completed.inc();
    }
    all.runs.models.of("u/named").completed.inc();
    let text = metrics.write(Format::Prometheus, Figures::default()).unwrap().unwrap();
    assert!(text.len() < 1_000_000, "{}", text.len());
    let steps = |model: &str| {
        let sample = format!("loopgate_steps_total{{upstream=\"u\",model=\"{model}\",outcome=\"completed\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&sample)).map(str::to_owned)
    };
    assert_eq!(["named", "model-0"].map(steps), [Some("1".to_owned()), Some("1".to_owned())]);
    let of_others = "loopgate_steps_total{upstream=\"other\",model=\"other\",outcome=\"completed\"} 9951\n";
    assert!(text.contains(of_others), "one of 50 names is the configuration's");
}
