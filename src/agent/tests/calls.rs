//! How the tool calls of one turn run: in which order, for how long, and what becomes of those that break.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::value::RawValue;

use super::fencing::records;
use super::support::{Echo, Say, TestAgent, outcome, request, watch};
use crate::agent::error::StartError;
use crate::agent::{CallApproval, NewRun};
use crate::llm::openai::messages::json;
use crate::store::faulty::{Fate, Faulty};
use crate::tools::{CallContext, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::approval::ApprovalDecision;
use crate::types::event::Decision;
use crate::types::policy::{Layer, Rule};
use crate::types::run::OnUnknownOutcome;
use crate::types::tool::CallEnding;
use crate::types::{CallId, Effect, Event, Message, Record, RunStatus, StopReason, Tenant, ToolOutcome};

/// What a [`Worker`] does in one of its calls.
#[derive(Debug, Clone, Copy)]
enum Does {
    Work,
    Lose,
    Panic,
    Hang,
}

/// Takes a second for each call, and notes which began and ended. Plays its script, then works.
#[derive(Debug)]
struct Worker {
    spec: ToolSpec,
    script: Mutex<VecDeque<Does>>,
    journal: Arc<Mutex<Vec<String>>>,
    calls: Arc<Mutex<Vec<(CallId, u32)>>>,
    timeouts: Arc<Mutex<Vec<Duration>>>,
}

#[async_trait]
impl Tool for Worker {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        self.calls.lock().push((context.call.clone(), context.attempt));
        self.timeouts.lock().push(context.timeout);
        let does = self.script.lock().pop_front().unwrap_or(Does::Work);
        self.journal.lock().push(format!("+{}", self.spec.name));
        match does {
            Does::Work => tokio::time::sleep(Duration::from_secs(1)).await,
            Does::Lose => return Err(ToolError::Lost("The connection broke.".into())),
            Does::Panic => panic!("as told"),
            Does::Hang => std::future::pending().await,
        }
        self.journal.lock().push(format!("-{}", self.spec.name));
        Ok(ToolAnswer::text("done"))
    }
}

/// Workers that note what they do in one journal.
#[derive(Default)]
struct Workshop {
    journal: Arc<Mutex<Vec<String>>>,
    calls: Arc<Mutex<Vec<(CallId, u32)>>>,
    /// How long each call was allowed to take.
    timeouts: Arc<Mutex<Vec<Duration>>>,
    tools: Vec<Arc<dyn Tool>>,
}

impl Workshop {
    /// Adds a worker whose calls do what `script` says, one after the other.
    fn with(mut self, name: &str, effect: Effect, script: &[Does]) -> Self {
        let spec = Echo::new(name, effect, 0).spec().clone();
        self.add(spec, script);
        self
    }

    fn add(&mut self, spec: ToolSpec, script: &[Does]) {
        let (journal, calls, timeouts) = (self.journal.clone(), self.calls.clone(), self.timeouts.clone());
        self.tools.push(Arc::new(Worker {
            spec,
            script: Mutex::new(script.iter().copied().collect()),
            journal,
            calls,
            timeouts,
        }));
    }

    /// An agent whose model calls these tools in one turn, then answers.
    fn agent(&self, calls: &[&'static str]) -> TestAgent {
        let calls = calls.iter().map(|name| (*name, "{}")).collect();
        let turns = vec![Say::Calls("", calls), Say::Text(&["fine"])];
        TestAgent::builder().turns(turns).tools(self.tools.clone()).begin()
    }

    fn journal(&self) -> String {
        self.journal.lock().join(" ")
    }
}

fn asking(policy: OnUnknownOutcome) -> NewRun {
    let mut new = request();
    new.options.on_unknown_outcome = policy;
    new
}

fn results(records: &[Record]) -> Vec<ToolOutcome> {
    let results = records.iter().filter_map(|record| match &record.event {
        Event::ToolFinished { outcome, .. } => Some(outcome.clone()),
        _ => None,
    });
    results.collect()
}

async fn run(agent: &TestAgent, new: NewRun) -> Vec<Record> {
    watch(agent.start(new, None).await.unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn a_call_with_side_effects_waits_for_those_before_it_and_holds_those_after_it() {
    for effect in [Effect::Write, Effect::Idempotent] {
        let workshop = Workshop::default().with("r", Effect::Read, &[]).with("w", effect, &[]);
        run(&workshop.agent(&["r", "r", "w", "w", "r", "r"]), request()).await;
        assert_eq!(workshop.journal(), "+r +r -r -r +w -w +w -w +r +r -r -r", "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_parallel_calls_each_waits_for_the_one_before_it() {
    let workshop = Workshop::default().with("a", Effect::Read, &[]).with("b", Effect::Read, &[]);
    let mut new = request();
    new.options.parallel_tool_calls = false;
    let agent = workshop.agent(&["a", "b", "a"]);
    run(&agent, new).await;
    assert_eq!(workshop.journal(), "+a -a +b -b +a -a");
    assert!(!agent.model.requests.lock()[0].parallel_tool_calls, "the model is told");
}

#[tokio::test(start_paused = true)]
async fn a_tool_has_no_more_than_its_own_time() {
    let mut workshop = Workshop::default();
    let spec = Echo::new("slow", Effect::Read, 0).spec().clone();
    workshop.add(ToolSpec { timeout: Some(Duration::from_millis(200)), ..spec }, &[]);
    let records = run(&workshop.agent(&["slow"]), request()).await;
    let result = &results(&records)[0];
    assert_eq!((&*result.text(), result.latency_ms), ("The tool `slow` did not answer within 200 ms.", 200));
    assert_eq!(outcome(&records).reason, StopReason::Done);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_panics_hurts_nothing_but_its_call() {
    let workshop = Workshop::default().with("r", Effect::Read, &[Does::Panic]).with("s", Effect::Read, &[]);
    let records = run(&workshop.agent(&["r", "s"]), request()).await;
    let results = results(&records);
    assert_eq!((&*results[0].text(), results[0].is_error), ("The tool `r` crashed.", true));
    assert_eq!((&*results[1].text(), results[1].is_error), ("done", false));
    assert_eq!(outcome(&records).output_text, "fine");
}

#[tokio::test(start_paused = true)]
async fn a_call_with_side_effects_that_broke_has_an_unknown_outcome_whatever_broke_it() {
    for does in [Does::Lose, Does::Panic, Does::Hang] {
        let workshop = || Workshop::default().with("w", Effect::Write, &[does]).with("r", Effect::Read, &[]);
        let failing = workshop();
        let records = run(&failing.agent(&["w", "r"]), asking(OnUnknownOutcome::Fail)).await;
        let outcome = super::support::outcome(&records);
        assert_eq!((outcome.reason, outcome.status()), (StopReason::OutcomeUnknown, RunStatus::Failed), "{does:?}");
        assert_eq!(failing.journal(), "+w", "what was asked after it is not made");

        let telling = workshop();
        let records = run(&telling.agent(&["w", "r"]), asking(OnUnknownOutcome::TellModel)).await;
        let result = &results(&records)[0];
        assert_eq!(result.ending, CallEnding::Lost, "{does:?}");
        assert!(result.text().contains("Whether it took effect is unknown"), "{}", result.text());
        assert_eq!(super::support::outcome(&records).output_text, "fine");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_changes_nothing_has_failed_if_its_answer_is_lost() {
    let workshop = Workshop::default().with("r", Effect::Read, &[Does::Lose]);
    let records = run(&workshop.agent(&["r"]), request()).await;
    assert_eq!(results(&records)[0].text(), "The connection broke.");
    assert_eq!(outcome(&records).output_text, "fine");
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_call_whose_answer_is_lost_is_repeated_once_under_its_id() {
    let workshop = Workshop::default().with("i", Effect::Idempotent, &[Does::Lose]);
    let records = run(&workshop.agent(&["i"]), request()).await;
    assert_eq!((&*results(&records)[0].text(), outcome(&records).reason), ("done", StopReason::Done));
    let calls = workshop.calls.lock().clone();
    assert_eq!((calls.len(), &calls[0].0, calls[0].1, calls[1].1), (2, &calls[1].0, 1, 2));

    let workshop = Workshop::default().with("i", Effect::Idempotent, &[Does::Lose, Does::Hang]);
    let records = run(&workshop.agent(&["i"]), request()).await;
    assert_eq!(outcome(&records).reason, StopReason::OutcomeUnknown);
    assert_eq!(workshop.calls.lock().len(), 2, "and no more");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_stopped_when_the_runs_time_is_up_is_stopped_with_the_run() {
    for (effect, ending, told) in [
        (Effect::Read, CallEnding::Stopped, "The call was stopped with the run."),
        (Effect::Idempotent, CallEnding::Lost, "stopped with the run. Whether it took effect is unknown"),
        (Effect::Write, CallEnding::Lost, "stopped with the run. Whether it took effect is unknown"),
    ] {
        let workshop = Workshop::default().with("w", effect, &[Does::Hang, Does::Hang]);
        let mut new = request();
        new.limits.timeout_ms = Some(3_000);
        let records = run(&workshop.agent(&["w"]), new).await;
        let found = &results(&records)[0];
        assert!(found.ending == ending && found.text().contains(told), "{effect:?}: {found:?}");
        let outcome = outcome(&records);
        let reported = outcome.report.steps[0].tool_calls[0].outcome_unknown;
        assert_eq!((outcome.reason, reported), (StopReason::Timeout, ending == CallEnding::Lost), "{effect:?}");
        let timeouts = workshop.timeouts.lock();
        assert_eq!(*timeouts, [Duration::from_secs(3)], "of five, by the settings, and once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_at_work_when_its_run_is_cancelled_may_have_taken_effect() {
    for (effect, ending) in
        [(Effect::Read, CallEnding::Stopped), (Effect::Idempotent, CallEnding::Lost), (Effect::Write, CallEnding::Lost)]
    {
        let workshop = Workshop::default().with("w", effect, &[Does::Hang]);
        let agent = workshop.agent(&["w"]);
        let started = agent.start(request(), None).await.unwrap();
        let run = started.head.id.clone();
        while workshop.calls.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        agent.runs().cancel(&Tenant::default_tenant(), &run).await.unwrap();
        let records = watch(started).await;
        let (found, outcome) = (&results(&records)[0], outcome(&records));
        assert!(found.ending == ending && found.text().contains("stopped with the run"), "{effect:?}: {found:?}");
        let reported = outcome.report.steps[0].tool_calls[0].outcome_unknown;
        assert_eq!((outcome.reason, reported), (StopReason::Cancelled, ending == CallEnding::Lost), "{effect:?}");
    }
}

/// Asks the caller what came of `w`, and goes on with what the caller says.
async fn asked(workshop: &Workshop, agent: &TestAgent, content: &str, decision: Option<Decision>) -> Vec<Record> {
    let waiting = outcome(&run(agent, asking(OnUnknownOutcome::Ask)).await);
    assert_eq!((waiting.reason, waiting.status()), (StopReason::OutcomeAsked, RunStatus::RequiresAction));
    let asked = &waiting.required_calls[0];
    assert!(asked.reason.as_ref().unwrap().contains("unknown") && workshop.calls.lock().len() == 1);
    let id = asked.call.id.clone();
    let messages = vec![Message::tool(&id, content)];
    let decisions = decision.map(|decision| (id.clone(), decision)).into_iter().collect();
    run(agent, NewRun { run: id.run(), answered: vec![id], messages, decisions, ..request() }).await
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_asked_says_what_came_of_the_call() {
    for (content, decision, calls, told) in [
        ("paid", None, 1, "paid"),
        ("skip", Some(Decision::Skip), 1, "took effect is unknown"),
        ("retry", Some(Decision::Retry), 2, "done"),
    ] {
        let workshop = Workshop::default().with("w", Effect::Write, &[Does::Lose]);
        let agent = workshop.agent(&["w"]);
        let records = asked(&workshop, &agent, content, decision).await;
        assert_eq!(outcome(&records).output_text, "fine", "{content}");
        let made = workshop.calls.lock().clone();
        assert!(made.len() == calls && made.iter().all(|(id, _)| *id == made[0].0), "{content}: {made:?}");
        let request = agent.model.requests.lock().pop().unwrap();
        let last = request.conversation.iter().last().map(|message| json(message).to_owned());
        assert!(last.as_ref().is_some_and(|last| last.contains(told)), "{content}: {last:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_says_nothing_about_a_call_whose_outcome_is_not_known() {
    let workshop = Workshop::default().with("w", Effect::Write, &[Does::Lose]);
    let agent = workshop.agent(&["w"]);
    let waiting = outcome(&run(&agent, asking(OnUnknownOutcome::Ask)).await);
    let id = waiting.required_calls[0].call.id.clone();
    for (content, decision) in [("paid", None), ("retry", Some(Decision::Retry))] {
        let decisions = decision.map(|decision| (id.clone(), decision)).into_iter().collect();
        let (messages, answered) = (vec![Message::tool(&id, content)], vec![id.clone()]);
        let new = NewRun { run: id.run(), answered, messages, decisions, of_page: true, ..request() };
        let refused = agent.start(new, None).await.map(drop);
        assert!(matches!(refused, Err(StartError::OutcomeForbidden(_))), "{content}: {refused:?}");
    }
    assert_eq!(workshop.calls.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_to_be_repeated_is_not_said_not_to_have_been_made_when_its_run_stops() {
    let workshop = Workshop::default().with("v", Effect::Write, &[Does::Lose, Does::Hang]);
    let workshop = workshop.with("w", Effect::Write, &[Does::Lose]);
    let agent = workshop.agent(&["v", "w"]);
    let mut new = asking(OnUnknownOutcome::Ask);
    new.limits.timeout_ms = Some(3_000);
    let waiting = outcome(&run(&agent, new).await);
    let ids: Vec<_> = waiting.required_calls.iter().map(|asked| asked.call.id.clone()).collect();
    assert_eq!((waiting.reason, ids.len()), (StopReason::OutcomeAsked, 2));
    let messages = ids.iter().map(|id| Message::tool(id, "retry")).collect();
    let decisions = ids.iter().map(|id| (id.clone(), Decision::Retry)).collect();
    let named = ids[0].run();
    let records = run(&agent, NewRun { run: named, answered: ids, messages, decisions, ..request() }).await;
    assert_eq!(outcome(&records).reason, StopReason::Timeout, "the first one hangs");
    assert_eq!(workshop.calls.lock().len(), 3, "the second one is not made again");
    let last = results(&records).pop().unwrap();
    assert!(last.ending == CallEnding::Lost && last.text().contains("took effect is unknown"), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_needs_an_approval_is_not_repeated_without_another_one() {
    for (decision, calls, told) in [
        (ApprovalDecision::Approve, 2, "done"),
        (
            ApprovalDecision::Deny,
            1,
            "was not made again. The call was not made: it was denied. Whether it took effect is unknown",
        ),
    ] {
        let workshop = Workshop::default().with("w", Effect::Write, &[Does::Lose]);
        let agent = workshop.agent(&["w"]);
        let layer = Layer { ask: vec![Rule::of("w")], ..Layer::default() };
        let new = NewRun { policy: Some(Arc::new(layer)), ..asking(OnUnknownOutcome::Ask) };
        let id = outcome(&run(&agent, new).await).required_calls[0].call.id.clone();
        let named = id.run().unwrap();
        let decide = |decision| {
            let (call, none) = (id.clone(), None::<String>);
            let approval = CallApproval { call, decision, digest: None, reason: None, arguments: None, result: none };
            NewRun::deciding(Tenant::default_tenant(), named.clone(), vec![approval])
        };
        let lost = outcome(&run(&agent, decide(ApprovalDecision::Approve)).await);
        assert_eq!((lost.reason, workshop.calls.lock().len()), (StopReason::OutcomeAsked, 1));
        let retry = NewRun {
            run: Some(named.clone()),
            answered: vec![id.clone()],
            messages: vec![Message::tool(&id, "retry")],
            decisions: vec![(id.clone(), Decision::Retry)],
            ..request()
        };
        let again = outcome(&run(&agent, retry).await);
        assert_eq!((again.reason, workshop.calls.lock().len()), (StopReason::Approval, 1), "it is asked for again");
        let records = run(&agent, decide(decision)).await;
        // Without another attempt the outcome stays unknown, and the caller is asked once more.
        let is_denied = decision == ApprovalDecision::Deny;
        let reason = if is_denied { StopReason::OutcomeAsked } else { StopReason::Done };
        assert_eq!((outcome(&records).reason, workshop.calls.lock().len()), (reason, calls));
        let last = results(&records).pop().unwrap();
        assert!(last.text().contains(told), "{last:?}");
    }
}

/// Answers after two waits of a second, the second of which begins when the first is seen to be over.
#[derive(Debug)]
struct Slow(Echo);

#[async_trait]
impl Tool for Slow {
    fn spec(&self) -> &ToolSpec {
        self.0.spec()
    }

    async fn call(&self, arguments: &RawValue, _: &CallContext) -> Result<ToolAnswer, ToolError> {
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(ToolAnswer::text(arguments.get()))
    }
}

#[tokio::test(start_paused = true)]
async fn calls_go_on_while_the_store_is_slow_to_record_an_answer_beside_them() {
    let store = Faulty::memory();
    let tools: Vec<Arc<dyn Tool>> =
        vec![Arc::new(Echo::new("echo", Effect::Read, 1_000)), Arc::new(Slow(Echo::new("slow", Effect::Read, 1_000)))];
    let turns = vec![Say::Calls("", vec![("slow", "{}"), ("echo", "{}")]), Say::Text(&["done"])];
    let agent = TestAgent::builder().store(store.clone()).tools(tools).turns(turns).begin();
    store.next(records(|event| matches!(event, Event::ToolFinished { .. })), Fate::Hangs);
    let started = agent.start(request(), None).await.unwrap();
    store.reached().await;
    // Longer than a call may take.
    tokio::time::sleep(Duration::from_secs(8)).await;
    store.go_on();
    let records = watch(started).await;
    let failed = records.iter().filter_map(|record| match &record.event {
        Event::ToolFinished { outcome, .. } => Some(outcome.is_error),
        _ => None,
    });
    assert_eq!(failed.collect::<Vec<_>>(), [false; 2]);
}
