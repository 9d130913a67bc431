//! What a model writes into memory before messages are replaced: once of each message, within its bounds, and only its user's.

use super::super::quota::{count, counter, keyed, memory, quotas, standing, tokens};
use super::requested::{known, tenant, turns};
use super::*;
use crate::agent::documents::recall::memory_of;
use crate::agent::session::{NewSession, SessionPatch};
use crate::config::MemoryConfig;
use crate::store::Store;
use crate::types::context::{FlushEnded, FlushRules};
use crate::types::memory::MemoryScope;
use crate::types::policy::{Layer, Rule};
use crate::types::report::FlushReport;
use crate::types::shortfall::BudgetKind;

/// What the model takes: much more than is said.
pub(super) const LARGE: u64 = 100_000;

pub(super) fn flushing() -> LoopRules {
    let mut rules = rules(Compaction::Auto);
    rules.context.flush = FlushRules { enabled: true, ..FlushRules::default() };
    rules
}

/// An agent over this store with a memory, and a session of so many turns.
pub(super) async fn agent_of(
    store: &Arc<dyn Store>,
    rules: LoopRules,
    (window, count): (u64, usize),
) -> (TestAgent, Arc<Windowed>) {
    let model = Windowed::new(window, true, 1, Summaries::Written);
    let builder = TestAgent::builder().windowed(&model, window).rules(rules).memory(MemoryConfig::default());
    let agent = builder.store(store.clone()).quotas(quotas(tokens(1_000_000))).build();
    let new = NewSession { id: Some(session()), messages: turns(count), ..NewSession::default() };
    // Another replica may have made it.
    let _ = agent.sessions().create(&tenant(), new).await;
    (agent, model)
}

async fn agent(count: usize) -> (TestAgent, Arc<Windowed>) {
    agent_of(&memory(), flushing(), (LARGE, count)).await
}

pub(super) fn of_user(new: NewRun) -> NewRun {
    new.of_user(Some("ann".to_owned()))
}

pub(super) fn compacting() -> NewRun {
    let new = NewRun { model: Some("m".into()), key_name: keyed().key_name, ..NewRun::compacting(tenant(), session()) };
    of_user(new)
}

pub(super) async fn notes(agent: &TestAgent, user: Option<&str>) -> Option<(String, u64)> {
    let of = memory_of(MemoryScope::AgentAndUser, "default", user);
    let found = agent.documents().get(&tenant(), &of, "log").await.unwrap();
    found.map(|found| (found.text.content, found.version))
}

pub(super) fn flushes(records: &[Record]) -> Vec<FlushReport> {
    outcome(records).report.compactions.clone().map(|reports| reports.1).unwrap_or_default()
}

async fn flushed(agent: &TestAgent) -> u64 {
    known(agent).await.context.map_or(0, |context| context.flushed)
}

#[tokio::test(start_paused = true)]
async fn what_matters_is_written_into_memory_before_messages_are_replaced() {
    let store = memory();
    let (agent, model) = agent_of(&store, flushing(), (LARGE, 20)).await;
    let records = watch(agent.start(compacting(), None).await.unwrap()).await;
    let end = outcome(&records);
    assert_eq!((end.reason, methods(&records)), (StopReason::Done, vec![Method::Llm]), "{:?}", end.error);
    assert_eq!(notes(&agent, Some("ann")).await, Some(("note 0".to_owned(), 1)));
    let order = shortened(&records);
    let at = |found: fn(&ContextEvent) -> bool| order.iter().position(found).unwrap();
    let [asked, ended, compacted] = [
        at(|event| matches!(event, ContextEvent::FlushAsked(_))),
        at(|event| matches!(event, ContextEvent::FlushEnded(_))),
        at(|event| matches!(event, ContextEvent::CompactionStarted(_))),
    ];
    assert!(asked < ended && ended < compacted, "{order:?}");
    let [report] = &*flushes(&records) else { panic!("{:?}", end.report) };
    assert_eq!((report.messages, report.iterations, report.writes, &report.error), (34, 2, 1, &None));
    let asked = model.flushed.lock().iter().map(joined).collect::<Vec<_>>();
    assert!(asked[0].contains("User 0 x") && asked[0].contains("User 16 x") && !asked[0].contains("User 17 x"));
    assert!(asked[1].contains("was written") && asked[1].contains("There is no tool named"), "{}", asked[1]);
    // It is charged as all that is asked.
    assert!(report.usage.total() > 2_000 && report.cost.0 > 0, "{report:?}");
    let compaction = end.report.compactions.as_ref().unwrap().0[0].usage.total();
    assert_eq!(end.usage.total(), report.usage.total() + compaction);
    agent.idle(Duration::from_secs(5)).await;
    assert_eq!(count(&store, &counter(BudgetKind::Tokens)).await, end.usage.total());
    assert!(standing(&store).await.is_empty());
    let session = known(&agent).await;
    assert_eq!((session.usage.total(), session.context.unwrap().flushed), (end.usage.total(), 34));
}

#[tokio::test(start_paused = true)]
async fn it_happens_in_the_middle_of_a_run_as_well_and_each_time_of_what_came_since() {
    let model = Windowed::new(WINDOW, true, 2, Summaries::Written);
    let builder = TestAgent::builder().windowed(&model, WINDOW).rules(flushing()).memory(MemoryConfig::default());
    let agent = builder.begin();
    let (mut compacted, mut reports) = (0, Vec::new());
    for turn in 0..40 {
        let new = of_user(says(&format!("turn {turn} {}", "x".repeat(400))));
        let records = watch(agent.start(new, None).await.unwrap()).await;
        assert_eq!(outcome(&records).reason, StopReason::Done, "turn {turn}");
        compacted += methods(&records).len();
        reports.extend(flushes(&records));
    }
    assert!(compacted > 3, "{compacted}");
    assert!(reports.len() == compacted && reports.iter().all(|report| report.error.is_none()), "{reports:?}");
    let lines: Vec<String> = (0..compacted).map(|number| format!("note {number}")).collect();
    assert_eq!(notes(&agent, Some("ann")).await.unwrap().0, lines.join("\n"));
    let about = |turn: usize| {
        let asked = model.flushed.lock();
        let first = asked.iter().filter(|asked| asked.iter().count() == 2).map(joined);
        first.filter(|asked| asked.contains(&format!("User: turn {turn} "))).count()
    };
    let seen: Vec<usize> = (0..40).map(about).collect();
    assert!(seen.iter().all(|times| *times <= 1) && seen[..20].iter().all(|times| *times == 1), "{seen:?}");
    let covered: u64 = reports.iter().map(|report| report.messages).sum();
    assert_eq!(flushed(&agent).await, covered, "each message once");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_unless_the_agent_says_so() {
    for (rules, new) in [
        (rules(Compaction::Auto), compacting()),
        // A request that may not call the tool has nothing written in its name.
        (flushing(), NewRun { tools: Some(vec!["echo".into()]), ..compacting() }),
        // Nobody says whose memory it is.
        (flushing(), NewRun { model: Some("m".into()), ..NewRun::compacting(tenant(), session()) }),
    ] {
        let (agent, model) = agent_of(&memory(), rules, (LARGE, 20)).await;
        let records = watch(agent.start(new, None).await.unwrap()).await;
        assert_eq!(methods(&records), [Method::Llm]);
        assert_eq!((flushed(&agent).await, flushes(&records).len()), (0, 0));
        assert!(model.flushed.lock().is_empty());
        assert_eq!((notes(&agent, Some("ann")).await, notes(&agent, None).await), (None, None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_fork_writes_nothing_down_that_its_session_has() {
    let (agent, model) = agent(20).await;
    watch(agent.start(compacting(), None).await.unwrap()).await;
    let fork = SessionId::parse("fork").unwrap();
    let asked = crate::agent::session::fork::Fork { at: None, id: Some(fork.clone()), round_down: false };
    agent.sessions().fork(&tenant(), &session(), asked).await.unwrap();
    for turn in 0..4 {
        let new = NewRun { session: Some(fork.clone()), ..of_user(says(&format!("fork {turn}"))) };
        watch(agent.start(new, None).await.unwrap()).await;
    }
    let new = NewRun { session: Some(fork), ..compacting() };
    let records = watch(agent.start(new, None).await.unwrap()).await;
    let [report] = &*flushes(&records) else { panic!("it is written down once more") };
    assert!(report.messages < 34, "{report:?}");
    let asked = joined(model.flushed.lock().iter().rfind(|asked| asked.iter().count() == 2).unwrap());
    assert!(!asked.contains("User 16 x") && asked.contains("User 17 x"), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn two_runs_beside_each_other_write_the_same_down_once() {
    let (agent, model) = agent_of(&memory(), flushing(), (WINDOW, 60)).await;
    agent.begin();
    let beside = || NewRun { on_conflict: crate::types::run::OnConflict::Concurrent, ..of_user(says("beside")) };
    let (one, other) = tokio::join!(agent.start(beside(), None), agent.start(beside(), None));
    let (one, other) = tokio::join!(watch(one.unwrap()), watch(other.unwrap()));
    assert_eq!((methods(&one), methods(&other)), (vec![Method::Llm], vec![Method::Llm]));
    assert_eq!(flushes(&one).len() + flushes(&other).len(), 1);
    assert_eq!(notes(&agent, Some("ann")).await, Some(("note 0".into(), 1)));
    assert_eq!(model.flushed.lock().len(), 2);
}

/// What became of a flush of this kind, and what the memory has then.
async fn fails_as(flushes_as: Flushes, change: impl Fn(&mut FlushRules)) -> (FlushReport, Option<String>) {
    let mut rules = flushing();
    change(&mut rules.context.flush);
    let (agent, model) = agent_of(&memory(), rules, (LARGE, 20)).await;
    *model.flushes.lock() = flushes_as;
    let records = watch(agent.start(compacting(), None).await.unwrap()).await;
    assert_eq!((outcome(&records).reason, methods(&records)), (StopReason::Done, vec![Method::Llm]), "{flushes_as:?}");
    assert_eq!(flushed(&agent).await, 34, "{flushes_as:?}");
    let [report] = &*flushes(&records) else { panic!("{flushes_as:?}") };
    (report.clone(), notes(&agent, Some("ann")).await.map(|(text, _)| text))
}

#[tokio::test(start_paused = true)]
async fn whatever_fails_in_it_the_conversation_is_shortened_and_the_report_says_so() {
    let (report, notes) = fails_as(Flushes::Failing, |_| ()).await;
    assert!(report.error.unwrap().contains("it broke") && report.usage.total() > 0 && notes.is_none());
    let (report, notes) = fails_as(Flushes::Stalled, |rules| rules.timeout_ms = 2_000).await;
    assert!(report.error.unwrap().contains("within 2000 ms") && notes.is_none());
    // It is called five times at most, and in no more time than it has.
    let (report, notes) = fails_as(Flushes::Endless, |_| ()).await;
    assert_eq!((report.iterations, report.writes, report.error), (5, 5, None));
    assert_eq!(notes.unwrap().lines().count(), 5);
}

#[tokio::test(start_paused = true)]
async fn all_of_its_calls_together_take_no_longer_than_they_may() {
    let mut rules = flushing();
    rules.context.flush.timeout_ms = 45_000;
    let (agent, model) = agent_of(&memory(), rules, (LARGE, 20)).await;
    *model.flushes.lock() = Flushes::Slow;
    agent.begin();
    let records = watch(agent.start(compacting(), None).await.unwrap()).await;
    let [report] = &*flushes(&records) else { panic!("it failed") };
    assert!(report.error.as_ref().unwrap().contains("45000 ms") && report.iterations == 1, "{report:?}");
    assert!((45_000..46_000).contains(&report.latency_ms), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_budget_without_room_keeps_it_from_being_asked() {
    let (agent, model) = agent(20).await;
    let patch = SessionPatch { token_budget: Some(Some(10)), ..SessionPatch::default() };
    agent.sessions().patch(&tenant(), &session(), patch).await.unwrap();
    let records = watch(agent.start(compacting(), None).await.unwrap()).await;
    assert_eq!((methods(&records), model.flushed.lock().len()), (vec![Method::Local], 0));
    let [report] = &*flushes(&records) else { panic!("it is not said") };
    assert!(report.error.as_ref().unwrap().contains("a budget of the session has no room"), "{report:?}");
    assert_eq!((report.iterations, report.usage.total()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_looks_at_other_calls_looks_at_these_too() {
    let layer = |deny: Vec<Rule>, ask: Vec<Rule>| Some(Arc::new(Layer { ask, deny, ..Layer::default() }));
    for (policy, told) in [
        (layer(vec![Rule::of("memory_write")], Vec::new()), "memory_write"),
        (layer(Vec::new(), vec![Rule::of("memory_*")]), "Nobody is asked now"),
    ] {
        let (agent, model) = agent(20).await;
        let records = watch(agent.start(NewRun { policy, ..compacting() }, None).await.unwrap()).await;
        assert_eq!((methods(&records), notes(&agent, Some("ann")).await), (vec![Method::Llm], None));
        if let [_, second] = &model.flushed.lock()[..] {
            assert!(joined(second).contains(told), "{}", joined(second));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_cancelled_with_its_run() {
    let (agent, model) = agent(20).await;
    agent.begin();
    *model.flushes.lock() = Flushes::Stalled;
    let started = agent.start(compacting(), None).await.unwrap();
    let run = started.head.id.clone();
    tokio::time::sleep(Duration::from_secs(1)).await;
    agent.runs().cancel(&tenant(), &run).await.unwrap();
    let records = watch(started).await;
    assert_eq!((outcome(&records).reason, methods(&records)), (StopReason::Cancelled, Vec::new()));
    let ended = shortened(&records).into_iter().find_map(|event| match event {
        ContextEvent::FlushEnded(FlushEnded { error, call, .. }) => Some((error, call.is_some())),
        _ => None,
    });
    assert_eq!(ended, Some((Some("it was interrupted".to_owned()), true)));
}

#[tokio::test(start_paused = true)]
async fn after_a_run_it_is_written_into_the_memory_of_that_runs_user() {
    let mut rules = flushing();
    rules.context.triggers = crate::types::context::TriggerRules {
        messages: Some(20),
        after_run: true,
        ..crate::types::context::TriggerRules::default()
    };
    let (agent, _) = agent_of(&memory(), rules, (LARGE, 20)).await;
    agent.begin();
    watch(agent.start(of_user(says("So?")), None).await.unwrap()).await;
    agent.idle(Duration::from_secs(20)).await;
    assert_eq!(known(&agent).await.context.unwrap().view.summary.unwrap().version, 1);
    assert_eq!((notes(&agent, Some("ann")).await, notes(&agent, None).await), (Some(("note 0".into(), 1)), None));
}
