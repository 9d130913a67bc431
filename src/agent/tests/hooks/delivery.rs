//! What lies in the outbox is led to by the due index, until it is taken or given up.

use super::super::resume::undisturbed;
use super::*;
use crate::agent::ledger::due::{Due, Owner};
use crate::agent::ledger::outbox::KeptMessage;
use crate::store::Tx;
use crate::types::json::RawValueEq;
use crate::types::{RunId, Tenant};

const HOUR_MS: u64 = 3_600_000;

fn message(hook: &str, number: u64, written_ms: u64, attempts: u32) -> KeptMessage {
    KeptMessage {
        id: format!("msg_{hook}_{number}"),
        hook: hook.to_owned(),
        body: RawValueEq(serde_json::value::to_raw_value("said").unwrap()),
        written_ms,
        attempts,
        next_ms: written_ms,
    }
}

/// An entry that leads to this message of a run without a session.
fn entry(run: &RunId, message: &KeptMessage) -> Due {
    let owner = Owner { tenant: Tenant::default_tenant(), session: None };
    let run = run.clone();
    Due { at_ms: message.next_ms, kind: DueKind::Message, run, message: None, owner }
        .of_message(message.next_ms, &message.id)
}

/// Puts messages of a run into the store, with the entry that leads to the first of them and so to all.
async fn put(store: &dyn Store, run: &RunId, messages: &[KeptMessage]) -> Due {
    let due = entry(run, &messages[0]);
    store.commit(due.put()).await.unwrap();
    let tx = Tx::new(keys::run_partition(&due.owner.tenant, None, run));
    let tx =
        (1..).zip(messages).fold(tx, |tx, (seq, message)| tx.write(message.put(run, seq, Duration::from_secs(60))));
    store.commit(tx).await.unwrap();
    due
}

/// What is left of a run's messages.
async fn left(store: &dyn Store, run: &RunId) -> Vec<KeptMessage> {
    let partition = keys::run_partition(&Tenant::default_tenant(), None, run);
    let all = Scan { prefix: keys::messages_of(run), after: None, limit: 1_000, order: Order::Ascending };
    let found = store.scan(&partition, all).await.unwrap();
    found.iter().map(|(_, document)| serde_json::from_slice(&document.value).unwrap()).collect()
}

/// So many messages that some of them are due in the same millisecond: next attempts are spread over 2.5 s.
#[tokio::test]
async fn a_message_that_is_taken_takes_no_other_out_of_the_due_index() {
    const EACH: u64 = 150;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let hooks = vec![
        hook("down", HookPoint::RunEnd, program("exit 1")),
        hook(
            "up",
            HookPoint::RunEnd,
            HookAction::Command(HookCommand {
                program: "/bin/true".to_owned(),
                arguments: Vec::new(),
                env: Vec::new(),
                directory: None,
                max_output: 1 << 10,
            }),
        ),
    ];
    let agent = TestAgent::builder().store(store.clone()).hooks(hooks).build();
    let (run, now_ms) = (RunId::mint(), store.now_ms());
    let all: Vec<_> =
        ["down", "up"].iter().flat_map(|hook| (0..EACH).map(|number| message(hook, number, now_ms, 0))).collect();
    let due = put(&*store, &run, &all).await;
    agent.rooms.launcher.outbox.send_due(&due).await.unwrap();
    let left = left(&*store, &run).await;
    assert_eq!(left.len() as u64, EACH, "those of the hook that is up were taken");
    let entries = due::until(&*store, u64::MAX).await.unwrap();
    for message in &left {
        assert!(entries.contains(&entry(&run, message)), "no entry leads to {} any more", message.id);
    }
    assert_eq!(entries.len(), left.len(), "and none leads to nothing");
}

#[tokio::test]
async fn a_replica_that_lacks_a_hook_neither_sends_its_messages_nor_gives_them_up() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (agent, now_ms) = (TestAgent::builder().store(store.clone()).build(), store.now_ms());
    for (hours, attempts, is_kept) in [(25, 3, true), (1, 0, true), (8 * 24, 0, false), (8 * 24, 3, false)] {
        let run = RunId::mint();
        let due = put(&*store, &run, &[message("other", 1, now_ms - hours * HOUR_MS, attempts)]).await;
        agent.rooms.launcher.outbox.send_due(&due).await.unwrap();
        let left = left(&*store, &run).await;
        assert_eq!(left.len(), usize::from(is_kept), "after {hours} hours and {attempts} attempts");
        if let [message] = &*left {
            assert!(message.attempts == attempts && message.next_ms > now_ms, "{message:?}");
            assert!(due::until(&*store, u64::MAX).await.unwrap().contains(&entry(&run, message)));
        }
    }
}

#[tokio::test]
async fn an_entry_whose_messages_may_yet_be_stored_stays() {
    let (spec, whole) = undisturbed().await;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = TestAgent::builder().store(store.clone()).build();
    leave(&store, &spec, &whole[..2]).await;
    let late = message("end", 1, store.now_ms() - HOUR_MS, 0);
    let (under_way, over) = (entry(&spec.id, &late), entry(&RunId::mint(), &late));
    for due in [&under_way, &over] {
        store.commit(due.put()).await.unwrap();
        agent.rooms.launcher.outbox.send_due(due).await.unwrap();
    }
    assert_eq!(due::until(&*store, u64::MAX).await.unwrap(), [under_way], "its driver may wait for the store");
}
