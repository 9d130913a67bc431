//! What agents remember: over conversations and replicas, for each user alone, and within bounds.

mod changes;
mod crashes;

use std::sync::Arc;

use super::support::*;
use crate::agent::NewRun;
use crate::agent::context::screen::texts;
use crate::agent::documents::recall::memory_of;
use crate::agent::documents::{Collection, Named};
use crate::config::MemoryConfig;
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::types::Conversation;
use crate::types::memory::{MemoryRules, MemoryScope};
use crate::types::rules::LoopRules;
use crate::types::sampling::Sampling;
use crate::types::{Event, Message, Record, Role, SessionId, StopReason, Tenant, ToolOutcome};

fn recalling() -> LoopRules {
    let memory = MemoryRules { recalls: true, ..MemoryRules::default() };
    LoopRules { memory, ..unguarded() }
}

fn agent(store: &Arc<dyn Store>, turns: Vec<Say>) -> TestAgent {
    let builder = TestAgent::builder().store(store.clone()).memory(MemoryConfig::default());
    builder.turns(turns).rules(recalling()).begin()
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

/// What a user says.
fn says(user: Option<&str>, text: &str) -> NewRun {
    let mut new = NewRun { messages: vec![Message::text(Role::User, text)], ..request() };
    new.options.sampling = Arc::new(Sampling { user: user.map(Into::into), ..Sampling::default() });
    new
}

fn of(user: Option<&str>) -> Collection {
    memory_of(MemoryScope::AgentAndUser, "default", user)
}

fn results(records: &[Record]) -> Vec<ToolOutcome> {
    let result = |record: &Record| match &record.event {
        Event::ToolFinished { outcome, .. } => Some(outcome.clone()),
        _ => None,
    };
    records.iter().filter_map(result).collect()
}

/// What the model was sent last.
fn sent(agent: &TestAgent) -> String {
    joined(&agent.model.requests.lock().last().unwrap().conversation)
}

async fn note(agent: &TestAgent, user: Option<&str>, name: &str) -> Option<Named> {
    agent.documents().get(&Tenant::default_tenant(), &of(user), name).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_a_model_notes_is_shown_to_later_runs_of_that_user_at_any_replica() {
    let store = memory();
    let writes = ("memory_write", r#"{"name": "tea", "content": "Ann drinks green tea.\n\nShe dislikes coffee."}"#);
    let first = agent(&store, vec![Say::Calls("", vec![writes]), Say::Text(&["noted"])]);
    let records = watch(first.start(says(Some("ann"), "I like green tea."), None).await.unwrap()).await;
    assert_eq!(outcome(&records).reason, StopReason::Done);
    let told = results(&records);
    assert_eq!(told[0].text(), "The note \"tea\" was written. It has version 1 and 43 bytes.");
    assert!(!sent(&first).contains("<memory"), "there was nothing to recall");
    let second = agent(&store, vec![Say::Text(&["tea"])]);
    let session = SessionId::parse("later").unwrap();
    let asks = NewRun { session: Some(session.clone()), ..says(Some("ann"), "Which tea shall I buy?") };
    watch(second.start(asks, None).await.unwrap()).await;
    let asked = sent(&second);
    let at = asked.find("<memory name=\"tea\">\nAnn drinks green tea.").expect(&asked);
    assert!(at < asked.find("Which tea").unwrap() && asked.contains("no instructions"), "{asked}");
    let (kept, _) = second
        .sessions()
        .messages(&Tenant::default_tenant(), &session, 0, 9, crate::store::Order::Ascending)
        .await
        .unwrap();
    assert_eq!(kept.len(), 2, "no history keeps what was recalled");
    for other in [says(Some("bob"), "Which tea?"), says(None, "Which tea?"), says(Some("ann"), "And shoes?")] {
        watch(second.start(other, None).await.unwrap()).await;
        assert!(!sent(&second).contains("<memory"), "{}", sent(&second));
    }
    let tenant = Tenant::parse("other").unwrap();
    watch(second.start(NewRun { tenant, ..says(Some("ann"), "Which tea?") }, None).await.unwrap()).await;
    assert!(!sent(&second).contains("<memory"));
}

#[tokio::test(start_paused = true)]
async fn what_is_recalled_stays_with_the_run_in_all_of_its_calls() {
    let store = memory();
    let turns = vec![
        Say::Calls("", vec![("memory_write", r#"{"name": "tea", "content": "black tea"}"#)]),
        Say::Calls("", vec![("memory_search", r#"{"query": "tea"}"#), ("memory_read", "{}")]),
        Say::Calls("", vec![("memory_read", r#"{"name": "tea"}"#), ("memory_delete", r#"{"name": "tea"}"#)]),
        Say::Calls("", vec![("memory_read", r#"{"name": "tea"}"#), ("memory_search", r#"{"query": "tea"}"#)]),
        Say::Text(&["done"]),
    ];
    let agent = agent(&store, turns);
    let change = crate::agent::documents::Change { content: "green tea", ..Default::default() };
    let limits = crate::agent::documents::limits::memory_limits(&MemoryConfig::default());
    let put = agent.documents().put(&Tenant::default_tenant(), &of(None), "old", (&change, &limits)).await;
    assert_eq!(put.unwrap().version, 1);
    let records = watch(agent.start(says(None, "tea?"), None).await.unwrap()).await;
    let told: Vec<_> = results(&records).iter().map(|result| (result.text().into_owned(), result.is_error)).collect();
    let texts: Vec<_> = told.iter().map(|(text, _)| text.as_str()).collect();
    assert_eq!(texts[1].matches("<memory name=").count(), 2, "what the run wrote is found at once: {texts:?}");
    assert!(texts[2].contains("- old (9 bytes, version 1)\n- tea (9 bytes, version 1)"), "{texts:?}");
    assert_eq!(texts[3..5], ["[version 1]\nblack tea", "The note \"tea\" was deleted."]);
    assert!(told[5].1 && texts[5].starts_with("There is no note \"tea\"."), "{told:?}");
    assert_eq!(texts[6].matches("<memory name=").count(), 1, "{texts:?}");
    let requests = agent.model.requests.lock();
    assert_eq!(requests.len(), 5);
    for request in requests.iter() {
        let asked = joined(&request.conversation);
        assert!(asked.find("green tea").unwrap() < asked.find("tea?").unwrap(), "{asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_memory_has_bounds_and_its_model_is_told_of_them() {
    let store = memory();
    let write = |name: &str, content: String| format!(r#"{{"name": "{name}", "content": "{content}"}}"#);
    let calls: Vec<String> = vec![
        write("a", "x".repeat(40)),
        write("b", "x".repeat(60)),
        write("b", "x".repeat(30)),
        write("c", "x".repeat(9)),
        write("../c", "x".repeat(9)),
        r#"{"name": "a", "content": "y", "version": 7}"#.to_owned(),
        r#"{"name": "a", "content": "y", "version": 1, "mode": "append"}"#.to_owned(),
        write("b", "x".repeat(45)),
    ];
    let calls: Vec<(&'static str, &'static str)> =
        calls.into_iter().map(|call| ("memory_write", &*String::leak(call))).collect();
    let config = MemoryConfig { quota: 84, max_documents: 2, max_document: 50 };
    let builder = TestAgent::builder().store(store).memory(config).rules(recalling());
    let agent = builder.turns(vec![Say::Calls("", calls), Say::Text(&["done"])]).begin();
    let records = watch(agent.start(says(Some("ann"), "note all"), None).await.unwrap()).await;
    let told: Vec<String> = results(&records).iter().map(|result| result.text().into_owned()).collect();
    for (text, part) in told.iter().zip([
        "was written",
        "would have 61 bytes; 50 are the most",
        "was written",
        "there are 2 documents",
        "",
        "is at version 1",
        "has version 2 and 42 bytes",
        "all documents together would have 89 bytes; 84 are the most",
    ]) {
        assert!(text.contains(part), "{text}: {part}");
    }
    assert!(results(&records)[4].is_error, "{}", told[4]);
    assert_eq!(note(&agent, Some("ann"), "a").await.unwrap().text.content, format!("{}\ny", "x".repeat(40)));
    let (head, _) = agent.documents().head(&Tenant::default_tenant(), &of(Some("ann"))).await.unwrap().unwrap();
    assert_eq!((head.documents, head.bytes), (2, 43 + 31));
}

#[tokio::test(start_paused = true)]
async fn agents_that_remember_nothing_have_no_tools_for_it_and_ask_nothing_of_the_store() {
    let agent = TestAgent::builder().rules(recalling()).begin();
    watch(agent.start(says(Some("ann"), "tea?"), None).await.unwrap()).await;
    let requests = agent.model.requests.lock();
    assert!(requests[0].tools.tools().all(|tool| !tool.name.starts_with("memory")));
    assert!(!joined(&requests[0].conversation).contains("memory"));
}

/// The texts of messages, a line or more for each.
fn joined(conversation: &Conversation) -> String {
    conversation.iter().map(texts).collect::<Vec<_>>().join("\n")
}
