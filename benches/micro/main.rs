//! What one token costs on its way: parsed from the upstream's bytes, recorded, encoded for a reader.
//! Time and allocations; see `README.md` beside this file. And what a loop waits for the embedded store, beside one sync
//! of the same disk.

mod dialects;

use std::fs::File;
use std::io::{Seek, Write as _};
use std::sync::Arc;

use bytes::BytesMut;
use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use futures_util::future::join_all;
use loopgate::agent::drive::recorder::Recorder;
use loopgate::agent::drive::replay::Replay;
use loopgate::agent::ownership::lease::Leases;
use loopgate::api::wire::agent::stream::AgentEvents;
use loopgate::api::wire::openai_chat::stream::ChatChunks;
use loopgate::api::wire::{Encoder, RunNames};
use loopgate::store::embedded::EmbeddedStore;
use loopgate::store::memory::MemoryStore;
use loopgate::store::{Partition, Store, Tx, Write};
use loopgate::telemetry::metrics::LeaseLosses;
use loopgate::telemetry::run::RunReaders;
use loopgate::types::{Event, Record, RunId, RunSpec};
use serde_json::json;

use crate::dialects::{DIALECTS, Dialect};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

const TOKENS: usize = 100;

fn main() {
    divan::main();
}

/// 100 tokens that arrive one by one, in each dialect. The ratio to the first one is what a dialect costs.
#[divan::bench(args = &DIALECTS)]
fn parse_paced(bencher: Bencher<'_, '_>, dialect: &Dialect) {
    let begin = std::iter::once(dialect.begin.to_owned());
    let chunks: Vec<String> = begin.chain((0..TOKENS).map(dialect.event)).collect();
    bencher.counter(ItemsCount::new(TOKENS)).bench(|| (dialect.parse)(&chunks));
}

/// 100 tokens that arrive in one piece.
#[divan::bench(args = &DIALECTS)]
fn parse_burst(bencher: Bencher<'_, '_>, dialect: &Dialect) {
    let burst = [dialect.begin, &(0..TOKENS).map(dialect.event).collect::<String>()].concat();
    bencher.counter(ItemsCount::new(TOKENS)).bench(|| (dialect.parse)(std::slice::from_ref(&burst)));
}

/// 100 pieces of text, each stored, applied and shown by itself.
#[divan::bench]
fn record(bencher: Bencher<'_, '_>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let events: Vec<Event> = (0..TOKENS).map(text).collect();
    bencher.counter(ItemsCount::new(TOKENS)).with_inputs(|| runtime.block_on(recorder())).bench_values(
        |mut recorder| {
            runtime.block_on(async {
                for event in &events {
                    recorder.record(event.clone()).await.expect("the memory store takes everything");
                }
            });
            recorder
        },
    );
}

/// One sync of a file that does not grow: the least that a change costs which survives a power cut.
#[divan::bench(sample_count = 50, sample_size = 10)]
fn one_fdatasync(bencher: Bencher<'_, '_>) {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&[0; 4096]).expect("a written file");
    file.sync_all().expect("a synced file");
    let write =
        |file: &mut File| file.rewind().and_then(|()| file.write_all(&[1; 600])).and_then(|()| file.sync_data());
    bencher.bench_local(|| write(&mut file).expect("a synced file"));
}

/// The commits of a loop of three rounds in the embedded store, by so many connections at once.
#[divan::bench(args = [1, 32], sample_count = 20, sample_size = 1)]
fn embedded_loop(bencher: Bencher<'_, '_>, connections: u64) {
    const COMMITS: u64 = 12;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let dir = tempfile::tempdir().expect("a directory");
    let store = runtime.block_on(EmbeddedStore::open(dir.path())).expect("a store");
    let mut loops = 0;
    bencher.counter(ItemsCount::new(connections)).bench_local(|| {
        loops += 1;
        let connection = async |connection| {
            let partition = Partition::new(format!("bench/run/{connection}/{loops}"));
            for after in 0..COMMITS {
                let append = Write::Append { log: "log".into(), after, entries: vec![vec![b'x'; 300].into()] };
                store.commit(Tx::new(partition.clone()).write(append)).await.expect("the disk takes it");
            }
        };
        runtime.block_on(join_all((0..connections).map(connection)));
    });
}

/// 100 pieces of text as named events and chunks with ids.
#[divan::bench]
fn encode_agent_endpoint(bencher: Bencher<'_, '_>) {
    encode(bencher, || AgentEvents::new(names(), false));
}

/// 100 pieces of text as OpenAI's chunks.
#[divan::bench]
fn encode_chat_endpoint(bencher: Bencher<'_, '_>) {
    encode(bencher, || ChatChunks::new(names(), false, false, false));
}

fn encode<E: Encoder>(bencher: Bencher<'_, '_>, encoder: impl Fn() -> E + Sync) {
    let records: Vec<Record> =
        (1..).zip((0..TOKENS).map(text)).map(|(seq, event)| Record { seq, at_ms: 0, event }).collect();
    bencher
        .counter(ItemsCount::new(TOKENS))
        .with_inputs(|| (encoder(), BytesMut::with_capacity(1 << 16)))
        .bench_values(|(mut encoder, mut out)| {
            for record in &records {
                encoder.encode(record, &mut out);
            }
            out
        });
}

fn text(number: usize) -> Event {
    Event::TextDelta { step: 1, text: format!(" word{number}") }
}

fn names() -> RunNames {
    RunNames {
        id: RunId::mint(),
        session: None,
        model: "m".into(),
        names_agent: false,
        created_ms: 1,
        leg: 0,
        trace: None,
    }
}

async fn recorder() -> Recorder {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let id = RunId::mint();
    let spec: RunSpec = serde_json::from_value(json!({
        "id": id, "tenant": "default", "session": null, "created_ms": 1, "model": "m", "agent": "default",
        "upstream": "u", "upstream_model": "m", "system": [], "history_len": 0, "input": [], "context_tokens": 1,
        "tools": [], "offer": "", "client_tools": [], "max_output_tokens": 100, "context_window": 128_000, "bounds_output": true,
        "limits": {"max_iterations": 1, "timeout_ms": 1000, "tool_timeout_ms": 1000, "token_budget": null, "cost_budget": null},
        "price": {"input": 0, "cached_input": 0, "output": 0}, "on_limit": "stop",
        "options": {
            "parallel_tool_calls": true, "on_disconnect": "cancel", "on_unknown_outcome": "fail", "reconnect_grace_ms": 1000,
            "hide_intermediate_text": false, "stream_tool_arguments": false, "max_discards": 0,
        },
    }))
    .expect("the specification is whole");
    let partition = Partition::new(format!("default/run/{id}"));
    let lease = format!("lease/{id}").into();
    let granted =
        Leases::new(store.clone(), LeaseLosses::default()).acquire_named(partition, lease, "inbox".into()).await;
    let granted = granted.expect("the memory store answers").expect("the lease is free");
    Recorder::resume(store, Replay::new(Arc::new(spec)), RunReaders::default(), &granted)
}
