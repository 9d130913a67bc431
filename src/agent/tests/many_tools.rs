//! An agent with more tools than are sent to a model: the model finds those that it needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::value::RawValue;

use super::link::Link;
use super::replicas::{Replica, over, replica, shared, tenant};
use super::support::{Echo, Say, TestAgent, client_tool, instructed, outcome, request, watch};
use crate::agent::ledger::keys;
use crate::agent::{Generation, NewRun};
use crate::llm::ModelRequest;
use crate::llm::openai::messages::joined;
use crate::store::layer::StoreLayer;
use crate::store::memory::MemoryStore;
use crate::store::{CommitError, Store, Tx, Write};
use crate::tools::{CallContext, Registry, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::offer::ToolChoice;
use crate::types::{Effect, Event, Message, StopReason};

const NUMBER: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}"#;

/// Two hundred tools that nothing is needed of, and one that sends mail.
fn many() -> Vec<Echo> {
    let other = |n: u32| Echo::new(&format!("crm__record_{n}"), Effect::Read, 1_000).defined("Reads a record.", NUMBER);
    let mail = Echo::new("mail__send", Effect::Read, 1_000).defined("Sends an e-mail.", NUMBER);
    (0..200).map(other).chain([mail]).collect()
}

fn configure(replica: &Replica, tools: Vec<Echo>) {
    let tools = tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>);
    let catalog = instructed(replica.agent.model.clone(), None);
    let tools = Arc::new(Registry::new(tools).unwrap().into());
    replica.agent.replace_generation(Generation { catalog, tools, ..Generation::default() });
}

fn one(turns: Vec<Say>) -> Replica {
    let replica = replica(Link::to(&shared()), turns);
    configure(&replica, many());
    replica
}

/// The names of the tools that each call of the model was offered.
fn offered(replica: &Replica) -> Vec<Vec<String>> {
    let names = |request: &ModelRequest| request.tools.tools().map(|tool| tool.name.clone()).collect();
    replica.agent.model.requests.lock().iter().map(names).collect()
}

fn finds(query: &'static str) -> Say {
    Say::Calls("", vec![("find_tools", query)])
}

#[tokio::test(start_paused = true)]
async fn a_model_finds_a_tool_and_calls_it() {
    let send = Say::Calls("", vec![("mail__send", r#"{"n":7}"#)]);
    let replica = one(vec![finds(r#"{"query":"send a mail","limit":1}"#), send, Say::Text(&["sent"])]);
    let records = watch(replica.agent.start(request(), None).await.unwrap()).await;
    assert_eq!(outcome(&records).reason, StopReason::Done);
    assert_eq!(
        offered(&replica),
        [vec!["find_tools"], vec!["find_tools", "mail__send"], vec!["find_tools", "mail__send"]]
    );
    let results: Vec<String> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::ToolFinished { outcome, .. } => Some(outcome.text().into_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(results, ["These tools can be called now:\n- mail__send: Sends an e-mail.", r#"{"n":7}"#]);
}

/// Small models write their calls as text.
#[tokio::test(start_paused = true)]
async fn a_search_that_is_written_as_text_is_made() {
    let search = Say::Written(&[r#"{"name": "find_tools", "#, r#""arguments": {"query": "send a mail", "limit": 1}}"#]);
    let send = Say::Written(&[r#"{"name": "mail__send", "arguments": {"n": 7}}"#]);
    let wrong = Say::Written(&[r#"{"name": "find_tools", "arguments": {"words": "send a mail"}}"#]);
    let replica = one(vec![search, send, wrong]);
    let records = watch(replica.agent.start(request(), None).await.unwrap()).await;
    assert_eq!(outcome(&records).reason, StopReason::Done);
    assert_eq!(
        offered(&replica),
        [vec!["find_tools"], vec!["find_tools", "mail__send"], vec!["find_tools", "mail__send"]],
        "what is no call by the schema is the answer"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_found_comes_last_and_makes_room_in_the_end() {
    let mut turns: Vec<Say> = [
        r#"{"query":"record 7","limit":1}"#,
        r#"{"query":"mail"}"#,
        r#"{"query":"nothing of the kind"}"#,
        r#"{"quary":"mail"}"#,
    ]
    .map(finds)
    .into();
    turns.extend((0..8).map(|_| finds(r#"{"query":"reads a record","limit":10}"#)));
    turns.push(Say::Text(&["done"]));
    let replica = one(turns);
    let new = NewRun { client_tools: vec![client_tool("ask")], ..request() };
    watch(replica.agent.start(new, None).await.unwrap()).await;
    let offered = offered(&replica);
    let expected = ["find_tools", "ask", "crm__record_7", "mail__send"];
    for (index, names) in [(0, &expected[..2]), (1, &expected[..3]), (2, &expected), (3, &expected), (4, &expected)] {
        assert_eq!(offered[index], names);
    }
    assert!(offered.windows(2).all(|two| two[1].starts_with(&two[0])), "what upstreams cache stays good: {offered:?}");
    assert_eq!(offered.last().unwrap().len(), 14, "the same ten are found again");
}

#[tokio::test(start_paused = true)]
async fn all_tools_that_the_searches_of_one_turn_promise_are_offered() {
    let calls = (0..12).map(|ten| ("find_tools", &*numbers(ten * 10).leak())).collect();
    let replica = one(vec![Say::Calls("", calls), Say::Text(&["done"])]);
    let records = watch(replica.agent.start(request(), None).await.unwrap()).await;
    let mut promised = Vec::new();
    for record in &records {
        if let Event::ToolFinished { outcome, .. } = &record.event {
            promised.extend(outcome.found.iter().map(|found| found.name.to_string()));
        }
    }
    let offered = offered(&replica).pop().unwrap();
    assert!(promised.len() > 20, "{promised:?}");
    let lacks: Vec<_> = promised.iter().filter(|name| !offered.contains(name)).collect();
    assert!(lacks.is_empty(), "{lacks:?} of {}", promised.len());
}

/// A search for ten records.
fn numbers(first: u32) -> String {
    let numbers: Vec<String> = (first..first + 10).map(|number| number.to_string()).collect();
    format!(r#"{{"query":"record {}","limit":10}}"#, numbers.join(" "))
}

#[tokio::test(start_paused = true)]
async fn a_call_that_names_a_tool_without_finding_it_is_made() {
    let send = Say::Calls("", vec![("mail__send", r#"{"n":7}"#), ("mail__sent", "{}")]);
    let replica = one(vec![send, Say::Text(&["sent"])]);
    let records = watch(replica.agent.start(request(), None).await.unwrap()).await;
    let errors: Vec<bool> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::ToolFinished { outcome, .. } => Some(outcome.is_error),
            _ => None,
        })
        .collect();
    assert!(errors.contains(&true) && errors.contains(&false), "{errors:?}");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_must_be_called_is_offered_from_the_start() {
    let replica = one(vec![Say::Text(&["no"])]);
    let mut new = request();
    new.options.tool_choice = ToolChoice::Function("mail__send".into());
    watch(replica.agent.start(new, None).await.unwrap()).await;
    assert_eq!(offered(&replica), [["mail__send", "find_tools"]]);
    // Few tools are offered as they are.
    configure(&replica, many().split_off(150));
    watch(replica.agent.start(request(), None).await.unwrap()).await;
    assert_eq!(offered(&replica)[1].len(), 51);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_goes_on_elsewhere_has_what_it_found() {
    let store = shared();
    let turns = [
        finds(r#"{"query":"send a mail","limit":1}"#),
        Say::Calls("", vec![("ask", "{}")]),
        Say::Calls("", vec![("mail__send", r#"{"n":1}"#)]),
        Say::Text(&["done"]),
    ];
    let (a, b) = (replica(Link::to(&store), turns.to_vec()), replica(Link::to(&store), turns[2..].to_vec()));
    configure(&a, many());
    configure(&b, many().into_iter().filter(|tool| !tool.spec().name.ends_with('7')).collect());
    let new = NewRun { client_tools: vec![client_tool("ask")], ..request() };
    let started = a.agent.start(new, None).await.unwrap();
    let run = started.head.id.clone();
    let stored = store.get(&keys::run_partition(&tenant(), None, &run), &keys::spec(&run)).await.unwrap().unwrap();
    let bytes = stored.value.len();
    assert!(bytes < 2_500, "no run stores the names of all tools: {bytes}");
    let call = outcome(&watch(started).await).required_calls[0].call.id.clone();
    let answer = NewRun {
        run: Some(run.clone()),
        answered: vec![call.clone()],
        messages: vec![Message::tool(&call, "yes")],
        ..request()
    };
    watch(b.agent.start(answer, None).await.unwrap()).await;
    over(&b, &run).await;
    assert_eq!(offered(&b)[0], ["find_tools", "ask", "mail__send"]);
    assert_eq!(offered(&b)[0], offered(&a)[1]);
}

/// Counts the bytes that are put into a store.
#[derive(Debug, Default)]
struct Weighed {
    inner: MemoryStore,
    bytes: AtomicUsize,
}

#[async_trait]
impl StoreLayer for Weighed {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn on_commit(&self, tx: Tx) -> Result<(), CommitError> {
        for write in &tx.writes {
            let bytes = match write {
                Write::Put { value, .. } => value.len(),
                Write::Append { entries, .. } => entries.iter().map(Bytes::len).sum(),
                _ => 0,
            };
            self.bytes.fetch_add(bytes, Relaxed);
        }
        self.inner.commit(tx).await
    }
}

/// A tool that counts how often any of its kind is looked at.
#[derive(Debug)]
struct Looked(Echo, Arc<AtomicUsize>);

#[async_trait]
impl Tool for Looked {
    fn spec(&self) -> &ToolSpec {
        self.1.fetch_add(1, Relaxed);
        self.0.spec()
    }

    async fn call(&self, arguments: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        self.0.call(arguments, context).await
    }
}

/// What a run of three model calls takes with so many tools, once another was there before: bytes of its requests, bytes
/// that it stores, and how often its tools are looked at.
async fn cost_of(count: u32, first: Say) -> [usize; 3] {
    let (store, looks) = (Arc::new(Weighed::default()), Arc::<AtomicUsize>::default());
    let tool = |n: u32| {
        let about =
            "Reads a record of the customers' database by its number, with all of its fields and their history.";
        let echo = Echo::new(&format!("crm__record_{n}"), Effect::Read, 1_000).defined(about, NUMBER);
        Arc::new(Looked(echo, looks.clone())) as Arc<dyn Tool>
    };
    let call = || Say::Calls("", vec![("crm__record_7", r#"{"n":1}"#)]);
    let turns = vec![first.clone(), call(), Say::Text(&["done"]), first, call(), Say::Text(&["done"])];
    let agent = TestAgent::builder().store(store.clone()).turns(turns).tools((0..count).map(tool).collect()).begin();
    watch(agent.start(request(), None).await.unwrap()).await;
    agent.idle(Duration::from_secs(5)).await;
    let before = [agent.model.requests.lock().len(), store.bytes.load(Relaxed), looks.load(Relaxed)];
    watch(agent.start(request(), None).await.unwrap()).await;
    agent.idle(Duration::from_secs(5)).await;
    let sent = |request: &ModelRequest| {
        let tools = request.tools.tools().map(|tool| serde_json::to_vec(tool).unwrap().len()).sum::<usize>();
        tools + joined(&request.conversation).len()
    };
    let sent = agent.model.requests.lock()[before[0]..].iter().map(sent).sum();
    [sent, store.bytes.load(Relaxed) - before[1], looks.load(Relaxed) - before[2]]
}

#[tokio::test(start_paused = true)]
async fn a_thousand_tools_cost_a_run_no_more_than_ten_do() {
    let few = cost_of(10, Say::Calls("", vec![("crm__record_1", r#"{"n":1}"#)])).await;
    let many = cost_of(1_000, finds(r#"{"query":"record 7","limit":1}"#)).await;
    for (few, many, what) in
        [(few[0], many[0], "bytes of requests"), (few[1], many[1], "stored bytes"), (few[2], many[2], "looks at tools")]
    {
        assert!(many * 10 <= few * 12, "{what}: {few} with ten tools, {many} with a thousand");
    }
}
