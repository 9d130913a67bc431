//! Lists: their order, their pages, and lists of which little matches.

use std::sync::Arc;
use std::time::Duration;

use super::support::{RETENTION, TestAgent, request, watch};
use crate::agent::NewRun;
use crate::agent::control::Filter;
use crate::agent::error::LookupError;
use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::listed::{MOST_LOOKED_AT, Traits};
use crate::agent::session::fork::Fork;
use crate::agent::session::history::in_pages;
use crate::agent::session::list::AfterSession;
use crate::store::memory::MemoryStore;
use crate::store::{Order, Store, Tx, Write};
use crate::types::session::Session;
use crate::types::{RunId, RunStatus, SessionId, Tenant};

#[tokio::test(start_paused = true)]
async fn a_list_looks_at_so_many_entries_a_request_and_says_where_to_go_on() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = TestAgent::builder().store(store.clone()).begin();
    let tenant = Tenant::default_tenant();
    let kept = agent.start(request(), None).await.unwrap();
    let oldest = kept.head.id.clone();
    watch(kept).await;
    let gone = 2 * MOST_LOOKED_AT + 7;
    let partition = keys::tenant_partition(&tenant);
    let mut tx = Tx::new(partition);
    for number in 0..gone {
        let session = SessionId::parse(&format!("gone-{number:05}")).unwrap();
        let run = Write::Put { key: keys::run_entry(&RunId::mint()), value: encode(&None::<SessionId>), ttl: None };
        let key = keys::session_by_time(number as u64 / 3, &session);
        tx = tx.write(run).write(Write::Put { key, value: encode(&()), ttl: None });
    }
    store.commit(tx).await.unwrap();
    let mut filter = Filter { status: Some(RunStatus::Completed), limit: 10, ..Filter::default() };
    let mut found = Vec::new();
    for page in 1.. {
        let listed = agent.runs().list(&tenant, &filter).await.unwrap();
        found.extend(listed.found.into_iter().map(|head| head.id));
        assert_eq!(listed.searched_to.is_some(), page < 3, "page {page}");
        let Some(last) = listed.searched_to else { break };
        assert!(last.as_str().ends_with("ffff0000"), "it names no run that is not shown");
        filter.after = RunId::parse(last.as_str());
        assert_eq!(filter.after, Some(last), "callers send it back");
    }
    assert_eq!(found, [oldest]);
    let all = Traits::default();
    let sessions = agent.sessions().list(&tenant, &all, None, (10, Order::Ascending)).await.unwrap();
    let number = MOST_LOOKED_AT - 1;
    let place = AfterSession::parse(&format!("{}/gone-{number:05}", number / 3)).unwrap();
    assert_eq!(sessions.searched_to.map(AfterSession::Place), Some(place.clone()));
    let sessions = agent.sessions().list(&tenant, &all, Some(place), (10, Order::Ascending)).await.unwrap();
    assert_eq!(sessions.searched_to.unwrap().id.as_str(), format!("gone-{:05}", 2 * MOST_LOOKED_AT - 1));
}

#[tokio::test(start_paused = true)]
async fn a_list_over_tenants_is_one_by_time_and_looks_at_so_many_entries_a_request() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = TestAgent::builder().store(store.clone()).begin();
    let tenants = ["one", "two", "three"].map(|name| Tenant::parse(name).unwrap());
    let of = |tenant: &Tenant| NewRun { tenant: tenant.clone(), ..request() };
    let oldest = agent.start(of(&tenants[1]), None).await.unwrap();
    let oldest_id = oldest.head.id.clone();
    watch(oldest).await;
    for tenant in &tenants {
        let mut tx = Tx::new(keys::tenant_partition(tenant));
        for _ in 0..MOST_LOOKED_AT / 2 {
            let key = keys::run_entry(&RunId::mint());
            tx = tx.write(Write::Put { key, value: encode(&None::<SessionId>), ttl: None });
        }
        store.commit(tx).await.unwrap();
    }
    let mut newest = Vec::new();
    for tenant in tenants.iter().cycle().take(7) {
        let started = agent.start(of(tenant), None).await.unwrap();
        newest.push((tenant.clone(), started.head.id.clone()));
        watch(started).await;
    }
    newest.sort_by(|(_, one), (_, other)| other.as_str().cmp(one.as_str()));
    let mut filter = Filter { limit: 3, ..Filter::default() };
    let (mut found, mut pages) = (Vec::new(), Vec::new());
    loop {
        let listed = agent.runs().list_over(&tenants, None, &filter).await.unwrap();
        pages.push((listed.found.len(), listed.searched_to.is_some()));
        let last = listed.found.last().map(|(_, head)| head.id.clone());
        found.extend(listed.found.into_iter().map(|(tenant, head)| (tenant, head.id)));
        let Some(last) =
            listed.searched_to.or_else(|| last.filter(|_| pages.last().is_some_and(|(count, _)| *count == 3)))
        else {
            break;
        };
        filter.after = Some(last);
    }
    newest.push((tenants[1].clone(), oldest_id.clone()));
    assert_eq!(found, newest);
    assert_eq!(pages, [(3, false), (3, false), (1, true), (1, false)]);
    let bound = agent.runs().list_over(&tenants, Some(&[]), &Filter { limit: 3, ..Filter::default() }).await.unwrap();
    assert!(bound.found.is_empty() && bound.searched_to.is_some(), "a key without agents sees none of their runs");
    let traits = Traits { agent: Some("another".to_owned()), ..Traits::default() };
    let other = Filter { traits, limit: 3, ..Filter::default() };
    let of_another = agent.runs().list_over(&tenants, None, &other).await.unwrap();
    assert!(of_another.found.is_empty(), "the list goes by agents, as that of one tenant does");
    assert_eq!(agent.runs().tenant_of(&tenants, &oldest_id).await.unwrap(), Some(tenants[1].clone()));
    assert_eq!(agent.runs().tenant_of(&tenants[2..], &oldest_id).await.unwrap(), None);
}

/// Creates a session at this time.
async fn create(agent: &TestAgent, id: &str, created_ms: u64) {
    let session = Session { created_ms, ..Session::new(SessionId::parse(id).unwrap()) };
    agent.sessions().write(&Tenant::default_tenant(), session, in_pages(&[])).await.unwrap();
}

/// All sessions, listed in pages of one; `between` happens after each.
async fn listed(agent: &TestAgent, order: Order, between: impl AsyncFn(&SessionId)) -> Vec<String> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page =
            agent.sessions().list(&Tenant::default_tenant(), &Traits::default(), after, (1, order)).await.unwrap();
        let Some(found) = page.found.first() else { return ids };
        let id = &found.session.id;
        ids.push(id.to_string());
        between(id).await;
        after = AfterSession::parse(id.as_str());
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_are_listed_by_the_time_of_their_creation_whatever_they_are_called() {
    let agent = TestAgent::builder().begin();
    let tenant = Tenant::default_tenant();
    let nothing = async |_: &SessionId| {};
    for (id, created_ms) in [("zoe", 1), ("sess_1", 999), ("b", 1_000), ("a", 20_000), ("sess_0", 20_001)] {
        create(&agent, id, created_ms).await;
    }
    let ascending = ["zoe", "sess_1", "b", "a", "sess_0"];
    let mut descending = ascending;
    descending.reverse();
    assert_eq!(listed(&agent, Order::Ascending, nothing).await, ascending);
    assert_eq!(listed(&agent, Order::Descending, nothing).await, descending);
    // A change of a session leaves it where it stands.
    let new = NewRun { session: SessionId::parse("zoe"), ..request() };
    watch(agent.start(new, None).await.unwrap()).await;
    assert_eq!(listed(&agent, Order::Descending, nothing).await, descending);
    // One that is deleted and created anew is as new as that.
    let again = SessionId::parse("sess_1").unwrap();
    agent.sessions().delete(&tenant, &again).await.unwrap();
    create(&agent, "sess_1", 30_000).await;
    assert_eq!(listed(&agent, Order::Ascending, nothing).await, ["zoe", "b", "a", "sess_0", "sess_1"]);
    // So is one that expired, of which an entry is left.
    let patience = RETENTION.session + Duration::from_secs(1);
    tokio::time::advance(patience).await;
    assert_eq!(listed(&agent, Order::Ascending, nothing).await, [""; 0]);
    create(&agent, "b", 50_000).await;
    create(&agent, "c", 40_000).await;
    assert_eq!(listed(&agent, Order::Ascending, nothing).await, ["c", "b"]);
    let expired = AfterSession::parse("a");
    let page = agent.sessions().list(&tenant, &Traits::default(), expired, (9, Order::Ascending)).await.unwrap();
    assert_eq!(page.found.len(), 2, "it is known where it stood");
    let unknown =
        agent.sessions().list(&tenant, &Traits::default(), AfterSession::parse("nobody"), (9, Order::Ascending)).await;
    assert!(matches!(unknown, Err(LookupError::SessionNotFound(_))));
}

#[tokio::test(start_paused = true)]
async fn a_client_may_delete_what_a_page_of_sessions_shows_before_it_asks_for_the_next() {
    let agent = TestAgent::builder().begin();
    for (id, created_ms) in [("c", 1), ("a", 2), ("b", 3)] {
        create(&agent, id, created_ms).await;
    }
    let delete = async |id: &SessionId| agent.sessions().delete(&Tenant::default_tenant(), id).await.unwrap();
    assert_eq!(listed(&agent, Order::Ascending, delete).await, ["c", "a", "b"]);
    assert_eq!(listed(&agent, Order::Ascending, delete).await, [""; 0]);
}

/// A request of this user, with this note, in this session.
fn of(user: Option<&str>, team: &str, session: &str) -> NewRun {
    let metadata = [("team".to_owned(), team.to_owned()), ("more".to_owned(), "x".to_owned())].into();
    NewRun { metadata, session: SessionId::parse(session), ..request() }.of_user(user.map(str::to_owned))
}

/// How many runs, and which sessions in the order of their names, a list by these traits shows.
async fn by(agent: &TestAgent, traits: Traits) -> (usize, Vec<String>) {
    let tenant = Tenant::default_tenant();
    let filter = Filter { traits: traits.clone(), limit: 100, ..Filter::default() };
    let runs = agent.runs().list(&tenant, &filter).await.unwrap().found.len();
    let sessions = agent.sessions().list(&tenant, &traits, None, (100, Order::Ascending)).await.unwrap();
    let mut names: Vec<_> = sessions.found.iter().map(|found| found.session.id.to_string()).collect();
    names.sort();
    (runs, names)
}

#[tokio::test(start_paused = true)]
async fn lists_go_by_agent_model_user_and_notes() {
    let agent = TestAgent::builder().begin();
    let long = "ä".repeat(400);
    for new in [
        of(Some("ann"), "red", "one"),
        of(Some("ann"), "blue", "one"),
        of(Some("bob"), "red", "two"),
        of(None, "red", "three"),
        of(Some(&long), "red", "four"),
    ] {
        watch(agent.start(new, None).await.unwrap()).await;
    }
    // A session that has had no run is of the agent that it names.
    let session = Session { agent: Some("default".into()), ..Session::new(SessionId::parse("bare").unwrap()) };
    agent.sessions().write(&Tenant::default_tenant(), session, in_pages(&[])).await.unwrap();
    let some = |text: &str| Some(text.to_owned());
    let traits = || Traits::default();
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let everything = ["bare", "four", "one", "three", "two"];
    assert_eq!(by(&agent, traits()).await, (5, names(&everything)));
    assert_eq!(by(&agent, traits().of_user(Some("ann"))).await, (2, names(&["one"])));
    assert_eq!(
        by(&agent, traits().of_user(Some(&long))).await,
        (1, names(&["four"])),
        "users are cut as they are kept"
    );
    assert_eq!(by(&agent, traits().of_user(Some(""))).await, (1, names(&["bare", "three"])));
    assert_eq!(by(&agent, traits().of_user(Some("nobody"))).await, (0, names(&[])));
    assert_eq!(by(&agent, Traits { agent: some("default"), ..traits() }).await, (5, names(&everything)));
    assert_eq!(by(&agent, Traits { agent: some("other"), ..traits() }).await, (0, names(&[])));
    let called = ["four", "one", "three", "two"];
    assert_eq!(by(&agent, Traits { model: some("scripted/m"), ..traits() }).await, (5, names(&called)));
    assert_eq!(by(&agent, Traits { model: some("m"), ..traits() }).await, (0, names(&[])));
    let notes = |notes: &[(&str, &str)]| Traits {
        metadata: notes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..traits()
    };
    assert_eq!(by(&agent, notes(&[("team", "red"), ("more", "x")])).await.0, 4);
    assert_eq!(by(&agent, notes(&[("team", "red"), ("more", "y")])).await.0, 0);
    let of_ann = Traits { user: some("ann"), ..notes(&[("team", "red")]) };
    assert_eq!(by(&agent, of_ann).await.0, 1, "all that is asked for holds");
}

#[tokio::test(start_paused = true)]
async fn a_session_is_of_the_user_whom_its_runs_named_last_and_so_are_its_copies() {
    let agent = TestAgent::builder().begin();
    let tenant = Tenant::default_tenant();
    for user in [Some("ann"), Some("bob"), None] {
        watch(agent.start(of(user, "red", "one"), None).await.unwrap()).await;
    }
    let found = agent.sessions().get(&tenant, &SessionId::parse("one").unwrap()).await.unwrap().session;
    assert_eq!(found.user.as_deref(), Some("bob"), "a run that names nobody changes nothing");
    let last = found.last_run.unwrap();
    assert_eq!((last.agent.as_str(), last.model.as_str()), ("default", "scripted/m"));
    let fork = agent.sessions().fork(&tenant, &found.id, Fork::default()).await.unwrap().session;
    assert_eq!((fork.user.as_deref(), fork.last_run), (Some("bob"), None));
}
