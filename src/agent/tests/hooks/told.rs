//! What hooks are told is stored with what it tells, and kept until it is taken.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use serde_json::value::RawValue;

use super::*;
use crate::agent::CallApproval;
use crate::store::faulty::{Fate, Faulty};
use crate::store::layer::StoreLayer;
use crate::store::{Document, Key, Tx, Unavailable, Write};
use crate::tools::{CallContext, Source, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::approval::{ApprovalDecision, ApprovalTerms};
use crate::types::policy::{Layer, Rule};
use crate::types::{SessionId, Tenant};

/// A hook that is told at these points, and takes nothing.
fn deaf(name: &str, points: &[HookPoint]) -> HookConfig {
    HookConfig { points: points.to_vec(), is_asked: false, ..hook(name, HookPoint::RunEnd, program("exit 1")) }
}

/// The messages about a run that are kept.
async fn kept(store: &dyn Store, record: &NewRun) -> Vec<(String, Value)> {
    let prefix = keys::messages_of(&record.id);
    messages(store, &keys::run_partition(&record.tenant, record.session.as_ref(), &record.id), prefix).await
}

async fn messages(store: &dyn Store, partition: &Partition, prefix: String) -> Vec<(String, Value)> {
    let found = store.scan(partition, Scan { prefix, after: None, limit: 100, order: Order::Ascending }).await.unwrap();
    found.into_iter().map(|(key, document)| (key, serde_json::from_slice(&document.value).unwrap())).collect()
}

/// The points of messages that are kept, in the order of what they tell.
async fn told(store: &dyn Store, new: &NewRun) -> Vec<String> {
    let kept = kept(store, new).await;
    kept.iter().map(|(_, message)| message["body"]["event"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_message_is_stored_with_what_it_tells_and_goes_once_it_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let (taken, open) = (dir.path().join("taken"), dir.path().join("open"));
    let tells = program(&format!("test -e {} || exit 1; cat >> {}", open.display(), taken.display()));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let hooks = vec![HookConfig { timeout: Duration::from_millis(900), ..hook("end", HookPoint::RunEnd, tells) }];
    let agent = TestAgent::builder().store(store.clone()).hooks(hooks).begin();
    let new = request();
    let records = watch(agent.start(NewRun { id: new.id.clone(), ..request() }, None).await.unwrap()).await;
    let last = records.last().unwrap().seq;
    let messages = kept(&*store, &new).await;
    assert_eq!(messages.len(), 1);
    let (id, body) = (messages[0].1["id"].clone(), &messages[0].1["body"]);
    assert_eq!((body["seq"].as_u64(), body["run"]["status"].as_str()), (Some(last), Some("completed")));
    let leads = due::until(&*store, u64::MAX).await.unwrap();
    assert!(leads.iter().any(|due| due.kind == DueKind::Message && due.run == new.id), "{leads:?}");

    std::fs::write(open, "").unwrap();
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    while !kept(&*store, &new).await.is_empty() {
        assert!(tokio::time::Instant::now() < until, "the message {id} was not taken");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let told: Value = serde_json::from_str(&std::fs::read_to_string(taken).unwrap()).unwrap();
    assert_eq!(told["run_id"], new.id.as_str());
}

#[tokio::test]
async fn a_run_without_hooks_stores_no_message_and_no_event_of_hooks() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let hooks =
        vec![HookConfig { agents: vec!["other".to_owned()], ..hook("end", HookPoint::RunEnd, program("exit 1")) }];
    let agent = TestAgent::builder().store(store.clone()).hooks(hooks).turns(calls("echo", "{}")).begin();
    let new = request();
    let records = watch(agent.start(NewRun { id: new.id.clone(), ..request() }, None).await.unwrap()).await;
    assert!(ran(&records).is_empty() && kept(&*store, &new).await.is_empty());
    assert!(due::until(&*store, u64::MAX).await.unwrap().is_empty());
}

#[tokio::test]
async fn hooks_are_told_of_calls_that_are_made_and_of_no_others() {
    let made = ["before_tool", "after_tool"].as_slice();
    for (called, arguments, expected) in
        [("echo", "{}", made), ("save", "{}", &[]), ("echo", r#"{"m":1}"#, &[]), ("x", "{}", &[])]
    {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let hooks = vec![
            HookConfig {
                tools: vec!["save".to_owned()],
                ..hook("a", HookPoint::BeforeTool, HookAction::Block("no".to_owned()))
            },
            deaf("t", &[HookPoint::BeforeTool, HookPoint::AfterTool, HookPoint::OnError]),
        ];
        let agent = TestAgent::builder().store(store.clone()).hooks(hooks).turns(calls(called, arguments)).begin();
        let new = request();
        watch(agent.start(NewRun { id: new.id.clone(), ..request() }, None).await.unwrap()).await;
        assert_eq!(told(&*store, &new).await, expected, "{called} {arguments}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_run_that_no_replica_could_drive_is_told() {
    let replica = |store: &Arc<dyn Store>| {
        let hooks = vec![deaf("end", &[HookPoint::RunEnd]), hook("error", HookPoint::OnError, program("exit 1"))];
        TestAgent::builder().store(store.clone()).hooks(hooks).turns(vec![Say::Text(&["done"])]).build()
    };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (spec, whole) = log_of(&replica(&store), &store).await;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = replica(&store);
    leave(&store, &spec, &whole[..2]).await;
    let lose = Tx::new(keys::partition_of(&spec)).write(Write::DeleteLog { log: keys::events(&spec.id) });
    store.commit(lose).await.unwrap();
    agent.begin();
    let records = ended(&store, &spec).await;
    assert_eq!(outcome(&records).status(), RunStatus::Failed);
    let new = NewRun { id: spec.id.clone(), ..request() };
    let mut told = told(&*store, &new).await;
    told.sort();
    assert_eq!(told, ["on_error", "run_end"]);
}

/// A store that once does not answer when this document is read, after so many times that it was.
#[derive(Debug)]
struct Blinks {
    inner: Arc<dyn Store>,
    key: Key,
    reads: AtomicUsize,
    answered: usize,
}

#[async_trait]
impl StoreLayer for Blinks {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn on_get(&self, partition: &Partition, key: &Key) -> Result<Option<Document>, Unavailable> {
        if *key == self.key && self.reads.fetch_add(1, Ordering::Relaxed) == self.answered {
            return Err(Unavailable("it blinks".to_owned()));
        }
        self.inner.get(partition, key).await
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_run_is_told_whichever_read_of_its_specification_finds_no_answer() {
    let replica = |store: &Arc<dyn Store>| {
        let builder = TestAgent::builder().store(store.clone()).hooks(vec![deaf("end", &[HookPoint::RunEnd])]);
        builder.turns(vec![Say::Text(&["done"])]).build()
    };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (spec, whole) = log_of(&replica(&store), &store).await;
    for answered in 0..4 {
        let (key, inner): (_, Arc<dyn Store>) = (keys::spec(&spec.id), Arc::new(MemoryStore::default()));
        let blinks = Arc::new(Blinks { inner, key, reads: AtomicUsize::new(0), answered });
        let store: Arc<dyn Store> = blinks.clone();
        let agent = replica(&store);
        leave(&store, &spec, &whole[..2]).await;
        let lose = Tx::new(keys::partition_of(&spec)).write(Write::DeleteLog { log: keys::events(&spec.id) });
        store.commit(lose).await.unwrap();
        agent.begin();
        ended(&store, &spec).await;
        let new = NewRun { id: spec.id.clone(), ..request() };
        assert_eq!(told(&*store, &new).await, ["run_end"], "after {answered} answers");
        assert!(answered > 1 || blinks.reads.load(Ordering::Relaxed) > answered, "none of them was refused");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_lacks_a_hook_keeps_its_messages_for_others() {
    let builder = |store: &Arc<dyn Store>| TestAgent::builder().store(store.clone()).turns(vec![Say::Text(&["done"])]);
    let hooks = vec![deaf("end", &[HookPoint::RunEnd]), hook("line", HookPoint::RunEnd, HookAction::Log)];
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (spec, whole) = log_of(&builder(&store).hooks(hooks).build(), &store).await;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let lacks_it = builder(&store).build();
    leave(&store, &spec, &whole[..2]).await;
    lacks_it.begin();
    ended(&store, &spec).await;
    let new = NewRun { id: spec.id.clone(), ..request() };
    let kept = kept(&*store, &new).await;
    assert_eq!(kept.len(), 1, "a line is no message: {kept:?}");
    assert_eq!((kept[0].1["hook"].as_str(), &kept[0].1["body"]["event"]), (Some("end"), &Value::from("run_end")));
}

#[tokio::test]
async fn a_run_that_waits_on_after_some_of_its_calls_were_decided_is_told() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let turns = vec![Say::Calls("", vec![("echo", r#"{"n":1}"#), ("echo", r#"{"n":2}"#)]), Say::Text(&["done"])];
    let agent = TestAgent::builder()
        .store(store.clone())
        .hooks(vec![deaf("end", &[HookPoint::RunEnd])])
        .approval(ApprovalTerms::default())
        .turns(turns)
        .begin();
    let asks = Layer { ask: vec![Rule::of("echo")], ..Layer::default() };
    let new = request();
    let first = NewRun { id: new.id.clone(), policy: Some(Arc::new(asks)), ..request() };
    let required = outcome(&watch(agent.start(first, None).await.unwrap()).await).required_calls;
    assert_eq!((required.len(), told(&*store, &new).await.len()), (2, 1));
    let approval = CallApproval {
        call: required[0].call.id.clone(),
        decision: ApprovalDecision::Approve,
        digest: Some(required[0].call.digest()),
        reason: None,
        arguments: None,
        result: None,
    };
    let one = NewRun::deciding(Tenant::default_tenant(), new.id.clone(), vec![approval]);
    let left = outcome(&watch(agent.start(one, None).await.unwrap()).await).required_calls;
    assert_eq!((left.len(), told(&*store, &new).await), (1, vec!["run_end".to_owned(), "run_end".to_owned()]));
}

/// A tool that only computes, and fails.
#[derive(Debug)]
struct Fails(ToolSpec);

#[async_trait]
impl Tool for Fails {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn only_computes(&self) -> bool {
        true
    }

    async fn call(&self, _arguments: &RawValue, _context: &CallContext) -> Result<ToolAnswer, ToolError> {
        Err(ToolError::Failed("It cannot be computed.".into()))
    }
}

#[tokio::test]
async fn hooks_hear_nothing_of_the_calls_behind_one_that_ended_the_run() {
    let spec = ToolSpec {
        name: "compute".into(),
        description: "Computes.".into(),
        parameters: RawValue::from_string(r#"{"type":"object"}"#.into()).unwrap(),
        effect: Effect::Read,
        timeout: None,
        source: Source::Builtin,
    };
    let ends = LoopRules {
        tool_errors: ToolErrors { ends_run: vec!["*".into()], fallback_results: Vec::new() },
        ..unguarded()
    };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = TestAgent::builder()
        .store(store.clone())
        .hooks(vec![deaf("t", &[HookPoint::BeforeTool, HookPoint::AfterTool, HookPoint::OnError])])
        .rules(ends)
        .tools(vec![Arc::new(Fails(spec))])
        .turns(vec![Say::Calls("", vec![("compute", "{}"), ("compute", r#"{"n":2}"#)])])
        .begin();
    let new = request();
    let records = watch(agent.start(NewRun { id: new.id.clone(), ..request() }, None).await.unwrap()).await;
    assert_eq!(outcome(&records).status(), RunStatus::Failed);
    let about: Vec<_> = kept(&*store, &new).await.into_iter().map(|(_, message)| message["body"].clone()).collect();
    let calls: std::collections::BTreeSet<_> = about.iter().filter_map(|body| body["call_id"].as_str()).collect();
    assert_eq!(calls.len(), 1, "the second call was made by nobody: {about:?}");
    let skipped: Vec<_> = outcome(&records).report.steps[0].tool_calls.iter().map(|call| call.skipped).collect();
    assert_eq!(skipped, [false, true]);
}

#[tokio::test]
async fn a_session_stays_until_the_messages_about_its_runs_are_gone() {
    let faulty = Faulty::memory();
    let store: Arc<dyn Store> = faulty.clone();
    let agent = TestAgent::builder().store(store.clone()).hooks(vec![deaf("end", &[HookPoint::RunEnd])]).begin();
    let (new, session) = (request(), SessionId::parse("s").unwrap());
    let new = NewRun { session: Some(session.clone()), ..new };
    watch(agent.start(NewRun { id: new.id.clone(), session: new.session.clone(), ..request() }, None).await.unwrap())
        .await;
    let deletes =
        |tx: &Tx| tx.writes.iter().any(|write| matches!(write, Write::Delete { key } if key.starts_with(keys::OUTBOX)));
    faulty.next(deletes, Fate::Fails);
    agent.sessions().delete(&new.tenant, &session).await.unwrap_err();
    assert!(faulty.has_struck());
    agent.sessions().delete(&new.tenant, &session).await.unwrap();
    assert!(kept(&*store, &new).await.is_empty());
}

#[tokio::test]
async fn messages_about_the_runs_of_a_session_go_with_it() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = TestAgent::builder().store(store.clone()).hooks(vec![deaf("end", &[HookPoint::RunEnd])]).begin();
    let (new, session) = (request(), SessionId::parse("s").unwrap());
    let new = NewRun { session: Some(session.clone()), ..new };
    watch(agent.start(NewRun { id: new.id.clone(), session: new.session.clone(), ..request() }, None).await.unwrap())
        .await;
    assert_eq!(told(&*store, &new).await, ["run_end"]);
    agent.sessions().delete(&new.tenant, &session).await.unwrap();
    assert!(kept(&*store, &new).await.is_empty());
}
