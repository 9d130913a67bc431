//! Schedules: fired once, in the name of their keys, and as their settings say.

mod clocks;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::contention::Distant;
use super::replicas::shared;
use super::support::{Say, TestAgent, catalog, outcome, request, watch};
use crate::agent::control::Filter;
use crate::agent::error::StartError;
use crate::agent::ledger::keys;
use crate::agent::schedules::{BadRequest, MOST_SCHEDULES, RequestReader, RequestedBy, ScheduleError, Scheduler};
use crate::agent::{Generation, NewRun};
use crate::config::{KeyConfig, QuotaConfig, Scope, Scopes};
use crate::store::faulty::{Fate, Faulty};
use crate::store::{Order, Scan, Store, Tx, Write};
use crate::types::clock;
use crate::types::schedule::{Firing, FiringResult, OnMissed, OnOverlap, Schedule, ScheduleSettings, SkipReason};
use crate::types::{Expected, Message, Role, RunId, RunStatus, ScheduleId, SessionId, Tenant};

const MINUTE: i64 = 60_000;

/// Reads a request that is a text of the user's.
#[derive(Debug)]
struct Texts;

impl RequestReader for Texts {
    fn read(&self, body: &str, by: RequestedBy) -> Result<NewRun, BadRequest> {
        if body.is_empty() {
            return Err(BadRequest { param: Some("messages".into()), message: "is missing".into() });
        }
        let RequestedBy { tenant, generation, key_name, allowed_agents } = by;
        let messages = vec![Message::text(Role::User, body)];
        Ok(NewRun { tenant, generation: Some(generation), key_name, allowed_agents, messages, ..request() })
    }
}

fn tenant() -> Tenant {
    Tenant::default_tenant()
}

fn id() -> ScheduleId {
    ScheduleId::parse("report").unwrap()
}

fn every_minute() -> ScheduleSettings {
    ScheduleSettings {
        cron: "* * * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        request: "report".to_owned(),
        on_missed: OnMissed::Once,
        on_overlap: OnOverlap::Skip,
        enabled: true,
    }
}

fn replica(store: &Arc<dyn Store>, turns: Vec<Say>) -> TestAgent {
    let agent = TestAgent::builder().store(store.clone()).turns(turns).build();
    agent.schedules().read_with(Arc::new(Texts));
    agent
}

fn says() -> Vec<Say> {
    (0..9).map(|_| Say::Text(&["done"])).collect()
}

async fn create(agent: &TestAgent, settings: ScheduleSettings) -> Result<Schedule, ScheduleError> {
    create_as(agent, None, id(), settings).await
}

async fn create_as(
    agent: &TestAgent,
    key_name: Option<&str>,
    id: ScheduleId,
    settings: ScheduleSettings,
) -> Result<Schedule, ScheduleError> {
    let (tenant, generation) = (tenant(), agent.generation());
    let by = Scheduler { tenant: &tenant, key_name, agents: None, generation: &generation };
    agent.schedules().create(by, id, settings).await
}

async fn change(agent: &TestAgent, to: ScheduleSettings) -> Schedule {
    let (tenant, generation) = (tenant(), agent.generation());
    let by = Scheduler { tenant: &tenant, key_name: None, agents: None, generation: &generation };
    agent.schedules().change(by, &id(), Expected::Anything, |settings| settings.clone_from(&to)).await.unwrap()
}

async fn read(agent: &TestAgent) -> Schedule {
    agent.schedules().get(&tenant(), &id()).await.unwrap()
}

/// Whether each firing began a run, and if not, why.
fn results(schedule: &Schedule) -> Vec<Option<SkipReason>> {
    let result = |firing: &Firing| match &firing.result {
        FiringResult::Started { .. } => None,
        FiringResult::Skipped(why) => Some(*why),
        FiringResult::Refused(why) => panic!("refused: {why}"),
    };
    schedule.firings.iter().map(result).collect()
}

/// Follows the run that a schedule began last to its end.
async fn ended(replicas: &[TestAgent], schedule: &Schedule) {
    let run = schedule.last_run().unwrap().0;
    for replica in replicas {
        let mut follower = replica.runs().follow(&tenant(), run, 0).await.unwrap().follower.unwrap();
        while follower.next().await.unwrap().is_some() {}
    }
}

fn run_of(firing: Firing) -> RunId {
    match firing.result {
        FiringResult::Started { run, .. } => run,
        other => panic!("{other:?}"),
    }
}

async fn runs(agent: &TestAgent) -> Vec<RunId> {
    let filter = Filter { limit: 100, ..Filter::default() };
    let listed = agent.runs().list(&tenant(), &filter).await.unwrap();
    listed.found.into_iter().map(|head| head.id).collect()
}

#[tokio::test(start_paused = true)]
async fn a_schedule_fires_once_however_many_replicas_look() {
    let store: Arc<dyn Store> = Arc::new(Distant(shared()));
    let replicas = [(); 3].map(|()| replica(&store, says()));
    let made = create(&replicas[0], every_minute()).await.unwrap();
    join_all(replicas.iter().map(|replica| replica.schedules().fire_what_is_due())).await;
    assert_eq!(read(&replicas[0]).await.firings, [], "its time has not come");
    for round in 1..4 {
        clock::shift(round * MINUTE);
        join_all(replicas.iter().map(|replica| replica.schedules().fire_what_is_due())).await;
        let now = read(&replicas[0]).await;
        assert_eq!(now.firings.len(), usize::try_from(round).unwrap());
        assert_eq!(results(&now).pop(), Some(None));
        assert!(now.next_ms > made.next_ms && now.version == 1, "{now:?}");
        ended(&replicas, &now).await;
    }
    let fired: Vec<_> = read(&replicas[0]).await.firings.into_iter().rev().map(run_of).collect();
    assert_eq!(runs(&replicas[0]).await, fired);
}

/// A replica that dies after it began the run, and before that is stored, leaves the firing to another one, which says that the
/// run began, however late it comes.
#[tokio::test(start_paused = true)]
async fn a_firing_that_was_not_noted_leads_to_the_same_run() {
    let store = shared();
    let faulty = Faulty::new(store.clone(), |_| Fate::Happens);
    let first = replica(&(faulty.clone() as Arc<dyn Store>), says());
    create(&first, ScheduleSettings { on_missed: OnMissed::Skip, ..every_minute() }).await.unwrap();
    clock::shift(MINUTE);
    // The entry of the index comes before the note.
    faulty.next(|tx| tx.partition == keys::due_schedules_partition(), Fate::DiesBefore);
    let fires = tokio::time::timeout(Duration::from_secs(5), first.schedules().fire_what_is_due());
    fires.await.expect_err("the process is dead");
    let second = replica(&store, says());
    assert_eq!(read(&second).await.firings, []);
    let begun = runs(&second).await;
    assert_eq!(begun.len(), 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    clock::shift(9 * MINUTE);
    second.schedules().fire_what_is_due().await;
    assert_eq!(read(&second).await.firings.into_iter().map(run_of).collect::<Vec<_>>(), begun);
    assert_eq!(runs(&second).await, begun);
}

#[tokio::test(start_paused = true)]
async fn a_firing_waits_for_no_earlier_run_and_makes_up_for_what_was_missed_as_the_schedule_says() {
    let never = || vec![Say::Calls("", vec![("hang", "{}")]), Say::Text(&["done"])];
    let (skips, happens) = ((OnMissed::Skip, OnOverlap::Skip), (OnMissed::Once, OnOverlap::Allow));
    for ((on_missed, on_overlap), missed, overlapping) in
        [(skips, Some(SkipReason::Missed), Some(SkipReason::Overlap)), (happens, None, None)]
    {
        clock::shift(0);
        let agent = replica(&shared(), [never(), never(), never()].concat());
        create(&agent, ScheduleSettings { on_missed, on_overlap, ..every_minute() }).await.unwrap();
        for minutes in [1, 2, 60] {
            clock::shift(minutes * MINUTE);
            agent.schedules().fire_what_is_due().await;
            agent.schedules().fire_what_is_due().await;
        }
        let now = read(&agent).await;
        assert_eq!(results(&now), [None, overlapping, missed], "of an hour that was missed one firing is left");
    }
}

#[tokio::test(start_paused = true)]
async fn a_schedule_fires_as_it_was_changed_and_not_once_it_is_off_or_gone() {
    let agent = replica(&shared(), says());
    create(&agent, every_minute()).await.unwrap();
    let off = change(&agent, ScheduleSettings { enabled: false, ..every_minute() }).await;
    assert_eq!((off.version, off.next_ms), (2, None));
    clock::shift(MINUTE);
    agent.schedules().fire_what_is_due().await;
    assert_eq!(read(&agent).await.firings, []);
    let on = change(&agent, every_minute()).await;
    assert_eq!((on.version, change(&agent, every_minute()).await), (3, on.clone()), "the same settings change nothing");
    clock::shift(2 * MINUTE);
    agent.schedules().fire_what_is_due().await;
    assert_eq!(results(&read(&agent).await), [None]);
    let stale = agent.schedules().delete(&tenant(), &id(), Expected::Version(2)).await;
    assert!(matches!(stale, Err(ScheduleError::OtherVersion { version: 3, .. })), "{stale:?}");
    agent.schedules().delete(&tenant(), &id(), Expected::Version(3)).await.unwrap();
    clock::shift(3 * MINUTE);
    agent.schedules().fire_what_is_due().await;
    assert_eq!(runs(&agent).await.len(), 1);
    let gone = agent.schedules().get(&tenant(), &id()).await;
    assert!(matches!(gone, Err(ScheduleError::NotFound(_))), "{gone:?}");
}

/// What a key may do counts when the schedule fires, not when it was made.
#[tokio::test(start_paused = true)]
async fn a_schedule_asks_in_the_name_of_its_key_as_the_key_is_then() {
    let agent = replica(&shared(), says());
    let keys = |scopes: &[Scope], agents: Option<&[&str]>| {
        let key = KeyConfig {
            name: "nightly".into(),
            tenant: tenant(),
            hash: [7; 32],
            agents: agents.map(|agents| agents.iter().map(|agent| (*agent).to_owned()).collect()),
            scopes: Scopes::of(scopes.iter().copied()),
            requests_per_minute: None,
            request_mcp: false,
            quota: QuotaConfig::default(),
            per_user: crate::config::ShareConfig::default(),
            policy: Arc::default(),
            layers: [].into(),
        };
        Generation {
            catalog: catalog(agent.model.clone()),
            keys: HashMap::from([(key.hash, key)]),
            ..Generation::default()
        }
    };
    agent.replace_generation(keys(&[Scope::Schedules], None));
    let settings = ScheduleSettings { on_overlap: OnOverlap::Allow, ..every_minute() };
    create_as(&agent, Some("nightly"), id(), settings).await.unwrap();
    let mut minutes = 0;
    let mut fire = async |generation: Generation| {
        minutes += 1;
        clock::shift(minutes * MINUTE);
        agent.replace_generation(generation);
        agent.schedules().fire_what_is_due().await;
        read(&agent).await.firings.pop().unwrap().result
    };
    assert!(matches!(fire(keys(&[Scope::Schedules], None)).await, FiringResult::Started { .. }));
    for (generation, why) in [
        (keys(&[Scope::Run], None), "lacks the scope `schedules` now"),
        (keys(&[Scope::Schedules], Some(&["other"])), "may not use the agent"),
        (Generation { catalog: catalog(agent.model.clone()), ..Generation::default() }, "is gone"),
    ] {
        let FiringResult::Refused(said) = fire(generation).await else { panic!("it is refused") };
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(runs(&agent).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn there_are_so_many_schedules_and_each_can_be_asked_to_run() {
    let agent = replica(&(Arc::new(Distant(shared())) as Arc<dyn Store>), says());
    let made = (0..MOST_SCHEDULES + 5).map(|number| {
        let id = ScheduleId::parse(&format!("s{number}")).unwrap();
        create_as(&agent, None, id, every_minute())
    });
    let made = join_all(made).await;
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), MOST_SCHEDULES);
    assert!(made.iter().flatten().all(|made| made.firings.is_empty()));
    assert!(made.iter().any(|made| matches!(made, Err(ScheduleError::TooMany(_)))));
    let listed = agent.schedules().list(&tenant()).await.unwrap();
    assert_eq!(listed.len(), MOST_SCHEDULES);
    agent.schedules().delete(&tenant(), &listed[0].id, Expected::Anything).await.unwrap();
    create(&agent, every_minute()).await.unwrap();
    let again = create(&agent, every_minute()).await.unwrap();
    assert_eq!(again.version, 1, "the same again is the same");
    let other = create(&agent, ScheduleSettings { enabled: false, ..every_minute() }).await;
    assert!(matches!(other, Err(ScheduleError::Exists(_))), "{other:?}");

    let (tenant, generation) = (tenant(), agent.generation());
    let by = Scheduler { tenant: &tenant, key_name: None, agents: None, generation: &generation };
    let started = agent.schedules().run_now(by, &again, None).await.unwrap();
    let run = started.head.id.clone();
    assert_eq!(started.head.metadata.get("schedule_id").map(String::as_str), Some("report"));
    assert_eq!(outcome(&watch(started).await).status(), RunStatus::Completed);
    let now = read(&agent).await;
    assert_eq!((now.next_ms, now.firings[0].due_ms, now.last_run().unwrap().0), (again.next_ms, None, &run));
}

/// What another version has put into the index, or what cannot be read, keeps nobody from firing.
#[tokio::test(start_paused = true)]
async fn a_replica_that_has_begun_fires_what_is_due_beside_entries_that_it_does_not_know() {
    let store = shared();
    for key in ["00000000000000000001/other", "no-time/at/all/0"] {
        let put = Write::Put { key: key.into(), value: "?".into(), ttl: None };
        store.commit(Tx::new(keys::due_schedules_partition()).write(put)).await.unwrap();
    }
    let agent = replica(&store, says());
    agent.begin();
    create(&agent, every_minute()).await.unwrap();
    clock::shift(MINUTE);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(results(&read(&agent).await), [None]);
}

/// Who is slow to remove its entry removes no other.
#[tokio::test(start_paused = true)]
async fn a_schedule_that_is_turned_off_and_on_at_once_fires() {
    let store = shared();
    let faulty = Faulty::new(store.clone(), |_| Fate::Happens);
    let (slow, quick) = (replica(&(faulty.clone() as Arc<dyn Store>), says()), replica(&store, says()));
    create(&slow, every_minute()).await.unwrap();
    let removes = |tx: &Tx| tx.writes.iter().any(|write| matches!(write, Write::Delete { .. }));
    faulty.next(move |tx| tx.partition == keys::due_schedules_partition() && removes(tx), Fate::Hangs);
    let off = change(&slow, ScheduleSettings { enabled: false, ..every_minute() });
    let on = async {
        faulty.reached().await;
        let on = change(&quick, every_minute()).await;
        faulty.go_on();
        on
    };
    let (off, on) = futures_util::future::join(off, on).await;
    assert_eq!((off.version, on.version), (2, 3));
    clock::shift(MINUTE);
    quick.schedules().fire_what_is_due().await;
    assert_eq!(results(&read(&quick).await), [None]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_refused_leaves_nothing_in_the_index() {
    let store = shared();
    let agent = replica(&store, says());
    create(&agent, every_minute()).await.unwrap();
    let cron = ScheduleSettings { cron: "0 0 29 2 *".to_owned(), ..every_minute() };
    create(&agent, cron.clone()).await.unwrap_err();
    let long = ScheduleSettings { cron: format!("{}0 7 * * *", "0,".repeat(200)), ..cron };
    let refused = create(&agent, long).await;
    assert!(matches!(&refused, Err(ScheduleError::Invalid { field, .. }) if field == "cron"), "{refused:?}");
    let scan = Scan { prefix: String::new(), after: None, limit: 100, order: Order::Ascending };
    assert_eq!(store.scan(&keys::due_schedules_partition(), scan).await.unwrap().len(), 1);
}

/// What a schedule says to a session in which a run asks its user is no answer.
#[tokio::test(start_paused = true)]
async fn a_request_that_nobody_attends_answers_no_question() {
    let question = r#"{"question":"Delete all?"}"#;
    let agent = replica(&shared(), vec![Say::Calls("", vec![("ask_user", question)]), Say::Text(&["done"])]);
    let session = SessionId::parse("s");
    let tools = Some(vec!["ask_user".to_owned()]);
    let asks = agent.start(NewRun { session: session.clone(), tools, ..request() }, None).await.unwrap();
    let asking = asks.head.id.clone();
    assert_eq!(outcome(&watch(asks).await).status(), RunStatus::RequiresAction);
    let says = NewRun { session, unattended: true, ..request() };
    let refused = agent.start(says.clone(), None).await;
    assert!(matches!(refused, Err(StartError::SessionBusy { run, .. }) if run == asking));
    let answers = agent.start(NewRun { unattended: false, ..says }, None).await.unwrap();
    assert_eq!(answers.head.id, asking);
}
