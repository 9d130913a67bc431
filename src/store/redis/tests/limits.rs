//! What happens at the limits: full memory, too few replicas, large commits, long logs, the ends of numbers, expiry.

use futures_util::TryStreamExt;
use tokio::time::Instant;

use super::proxy::Way;
use super::servers::eventually;
use super::*;
use crate::store::pages::log_pages;

#[tokio::test]
async fn full_memory_refuses_changes_as_a_whole_and_nothing_else() {
    let server = RedisServer::start_with(&["--maxmemory", "4mb"]).await;
    let store = open(&server.url()).await;
    let partition = partition("p");
    let ttl = Duration::from_secs(60);
    let fence = store.acquire(&partition, &key("lease"), ttl).await.unwrap().unwrap();
    let mut number = 0;
    let filling = |number: u64| {
        let filler = Write::Put { key: key(&format!("filler/{number}")), value: vec![7; 100_000].into(), ttl: None };
        appending(&partition, number).write(filler)
    };
    while store.commit(filling(number)).await.is_ok() {
        number += 1;
        assert!(number < 100, "memory is never full");
    }
    let Err(CommitError::Unavailable(Unavailable(what))) = store.commit(filling(number)).await else {
        panic!("there is room again");
    };
    assert!(what.contains("OOM"), "{what}");
    assert_eq!(appended_once(&store, &partition).await, number);
    let scan = Scan { prefix: "filler/".into(), after: None, limit: 1000, order: Order::Ascending };
    assert_eq!(store.scan(&partition, scan).await.unwrap().len() as u64, number);
    assert_eq!(store.renew(&partition, &key("lease"), fence, ttl, &key("log")).await, Ok(Some(number)));
    assert_eq!(store.release(&partition, &key("lease"), fence).await, Ok(()));
    // With no room even for what is small, nothing can be done here.
    server.cli(&["CONFIG", "SET", "maxmemory", "1mb"]).await;
    let health = store.health().await.unwrap_err().to_string();
    assert!(health.contains("OOM"), "{health}");
}

#[tokio::test]
async fn server_with_too_few_replicas_to_write_is_not_healthy() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    assert_eq!(store.health().await, Ok(()));
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let health = store.health().await.unwrap_err().to_string();
    assert!(health.contains("NOREPLICAS"), "{health}");
}

#[tokio::test]
async fn large_changes_are_made_at_once() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let partition = partition("p");
    let entries = (0..20_000).map(|number| Bytes::from(number.to_string())).collect();
    let mut tx = Tx::new(partition.clone()).write(Write::Append { log: key("log"), after: 0, entries });
    for number in 0..500 {
        tx = tx.write(Write::Put { key: key(&format!("document/{number:03}")), value: Bytes::new(), ttl: None });
    }
    store.commit(tx).await.unwrap();
    let page = store.read_log(&partition, &key("log"), 19_998, 10).await.unwrap();
    assert_eq!((page.head, page.entries), (20_000, vec![Bytes::from("19998"), Bytes::from("19999")]));
    let scan = Scan { prefix: "document/".into(), after: None, limit: usize::MAX, order: Order::Descending };
    let found = store.scan(&partition, scan).await.unwrap();
    assert_eq!((found.len(), found[0].0.as_str()), (500, "document/499"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_log_is_read_whole_while_others_have_their_turns() {
    const ENTRY: usize = 1 << 20;
    let server = RedisServer::start().await;
    let proxy = proxy_of(&server).await;
    let store = open(&url_of(&proxy)).await;
    let partition = partition("p");
    for after in 0..40 {
        let entry = Bytes::from(vec![b'a' + u8::try_from(after).unwrap(); ENTRY]);
        let append = Write::Append { log: key("log"), after, entries: vec![entry] };
        store.commit(Tx::new(partition.clone()).write(append)).await.unwrap();
    }
    assert_eq!(store.read_log(&partition, &key("log"), 39, 1).await.unwrap().entries.len(), 1);
    // All of it takes longer than a server may take to answer.
    proxy.replies(Way { rate: Some(32 << 20), ..Way::default() });
    let (exchanges, began) = (calls(&server, "evalsha").await, Instant::now());
    let log = key("log");
    let mut whole = std::pin::pin!(whole(&store, &partition));
    let mut slowest = Duration::ZERO;
    let entries = loop {
        let asked = Instant::now();
        tokio::select! {
            entries = &mut whole => break entries,
            counted = store.counter(&partition, &log) => assert_eq!(counted, Ok(0)),
        }
        slowest = slowest.max(asked.elapsed());
    };
    assert!(began.elapsed() > Duration::from_secs(1), "it took {:?}", began.elapsed());
    assert!(slowest < began.elapsed() / 2, "somebody waited for {slowest:?} of {:?}", began.elapsed());
    assert_eq!(entries.len(), 40);
    for (entry, first) in entries.iter().zip(b'a'..) {
        assert!(entry.len() == ENTRY && entry.iter().all(|byte| *byte == first));
    }
    assert_eq!(calls(&server, "evalsha").await, exchanges + 40);
}

#[tokio::test]
async fn common_page_of_a_log_is_one_exchange() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let partition = partition("p");
    let entries = (0..600).map(|number| Bytes::from(vec![b'x'; number])).collect::<Vec<_>>();
    let write = Write::Append { log: key("log"), after: 0, entries: entries.clone() };
    store.commit(Tx::new(partition.clone()).write(write)).await.unwrap();
    assert_eq!(store.read_log(&partition, &key("log"), 600, 1).await.unwrap().head, 600);
    for (after, limit) in [(0_usize, 512), (0, 0), (0, 600), (599, 9), (7, usize::MAX)] {
        let before = calls(&server, "evalsha").await;
        let page = store.read_log(&partition, &key("log"), after as u64, limit).await.unwrap();
        assert_eq!(page.entries, entries[after..600.min(after.saturating_add(limit))]);
        assert_eq!(calls(&server, "evalsha").await, before + 1);
    }
}

/// Entries of one length tell nothing of those behind them.
#[tokio::test]
async fn long_entries_behind_short_ones_do_not_make_an_exchange_large() {
    const SHORT: u64 = 600;
    const LONG: u64 = 61;
    const ENTRY: usize = 1 << 20;
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let partition = partition("p");
    let short = (0..SHORT).map(|_| Bytes::from("x")).collect();
    let write = Write::Append { log: key("log"), after: 0, entries: short };
    store.commit(Tx::new(partition.clone()).write(write)).await.unwrap();
    for number in 0..LONG {
        let entries = vec![Bytes::from(vec![b'x'; ENTRY])];
        let write = Write::Append { log: key("log"), after: SHORT + number, entries };
        store.commit(Tx::new(partition.clone()).write(write)).await.unwrap();
    }
    let (exchanges, peak) = (calls(&server, "evalsha").await, most_memory(&server).await);
    assert_eq!(whole(&store, &partition).await.len() as u64, SHORT + LONG);
    assert_eq!(calls(&server, "evalsha").await, exchanges + LONG, "a long one is enough for each");
    let more = most_memory(&server).await - peak;
    assert!(more < 24 * ENTRY, "the server needed {more} bytes more to read them");
}

/// All of the log, page by page.
async fn whole(store: &RedisStore, partition: &Partition) -> Vec<Bytes> {
    log_pages(store, partition, key("log"), 0..u64::MAX, usize::MAX).try_concat().await.unwrap()
}

/// The most memory that the server ever needed, in bytes.
async fn most_memory(server: &RedisServer) -> usize {
    let memory = server.cli(&["INFO", "memory"]).await;
    let line = memory.lines().find_map(|line| line.strip_prefix("used_memory_peak:"));
    line.expect("it tells").trim().parse().unwrap()
}

#[tokio::test]
async fn counters_are_exact_and_end_where_numbers_do() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let partition = partition("p");
    let add = async |delta, ceiling| {
        store.commit(Tx::new(partition.clone()).write(Write::Add { counter: key("c"), delta, ceiling })).await
    };
    let most = (1 << 53) + 1;
    add(most - 1, None).await.unwrap();
    assert_eq!(add(2, Some(most)).await, Err(CommitError::CeilingReached { counter: key("c"), value: most - 1 }));
    add(1, Some(most)).await.unwrap();
    assert_eq!(store.counter(&partition, &key("c")).await, Ok(most));
    add(i64::MAX, None).await.unwrap();
    assert_eq!(store.counter(&partition, &key("c")).await, Ok(i64::MAX));
    add(i64::MIN, None).await.unwrap();
    add(i64::MIN, None).await.unwrap();
    assert_eq!(store.counter(&partition, &key("c")).await, Ok(i64::MIN));
    assert_eq!(add(1, Some(i64::MIN)).await, Err(CommitError::CeilingReached { counter: key("c"), value: i64::MIN }));
    add(1, Some(-5)).await.unwrap();
}

#[tokio::test]
async fn index_ends_with_documents_that_were_permanent_for_a_while() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let put = |name: &str, ttl| Write::Put { key: key(name), value: Bytes::new(), ttl };
    let delete = |name: &str| Write::Delete { key: key(name) };
    let end =
        async |partition: &str| server.cli(&["PTTL", &format!("lg:{{{partition}}}:i")]).await.parse::<i64>().unwrap();
    let (short, long) = (Some(Duration::from_millis(50)), Some(Duration::from_secs(60)));

    let run = Tx::new(partition("run")).write(put("spec", None)).write(put("head", None));
    store.commit(run).await.unwrap();
    assert_eq!(end("run").await, -1);
    let kept = Tx::new(partition("run")).write(put("head", long));
    store.commit(kept).await.unwrap();
    assert_eq!(end("run").await, -1, "the other is permanent still");
    let ended = Tx::new(partition("run")).write(put("head", short)).write(delete("spec"));
    store.commit(ended).await.unwrap();
    eventually("nothing is left", async || end("run").await == -2).await;

    let first = Tx::new(partition("two")).write(put("a", None)).write(put("b", long)).write(put("c", short));
    store.commit(first).await.unwrap();
    store.commit(Tx::new(partition("two")).write(delete("a"))).await.unwrap();
    assert!((50_000..=60_000).contains(&end("two").await), "the longest of the others counts");
}

#[tokio::test]
async fn nothing_is_left_of_what_expired() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let short = Some(Duration::from_millis(20));
    for number in 0..50 {
        let put = |name: String, ttl| Write::Put { key: key(&name), value: Bytes::new(), ttl };
        let tx = Tx::new(partition("all"));
        store.commit(tx.write(put(format!("{number}"), short))).await.unwrap();
        let tx = Tx::new(partition("some")).write(put("kept".to_owned(), None));
        store.commit(tx.write(put(format!("{number}"), short))).await.unwrap();
    }
    eventually("all of it expired", async || server.cli(&["EXISTS", "lg:{all}:d:49", "lg:{some}:d:49"]).await == "0")
        .await;
    assert_eq!(server.cli(&["EXISTS", "lg:{all}:i"]).await, "0", "an index outlives its documents");
    let scan = Scan { prefix: String::new(), after: None, limit: 10, order: Order::Ascending };
    assert_eq!(store.scan(&partition("some"), scan).await.unwrap().len(), 1);
    assert_eq!(server.cli(&["ZCARD", "lg:{some}:i"]).await, "1");

    // Where nobody scans, an index is at most about twice as long as it should be.
    for number in 0..400 {
        let put =
            Write::Put { key: key(&format!("{number}")), value: Bytes::new(), ttl: Some(Duration::from_millis(1)) };
        let kept = Write::Put { key: key("kept"), value: Bytes::new(), ttl: None };
        store.commit(Tx::new(partition("busy")).write(kept).write(put)).await.unwrap();
    }
    let length: u64 = server.cli(&["ZCARD", "lg:{busy}:i"]).await.parse().unwrap();
    assert!(length < 60, "{length} names of a few documents");
}

#[tokio::test]
async fn an_index_of_any_length_ends_with_its_documents() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let hour = Some(Duration::from_secs(3600));
    let put = |name: String, ttl| Write::Put { key: name.into(), value: Bytes::new(), ttl };
    let runs = |numbers: std::ops::Range<u32>| {
        numbers.fold(Tx::new(partition("long")), |tx, number| tx.write(put(format!("run/{number:04}"), hour)))
    };
    store.commit(runs(0..1_000)).await.unwrap();
    store
        .commit(Tx::new(partition("long")).write(put("alive/1".into(), None)).write(put("spec/1".into(), None)))
        .await
        .unwrap();
    for thousand in 1..5 {
        store.commit(runs(thousand * 1_000..(thousand + 1) * 1_000)).await.unwrap();
    }
    let left = async || server.cli(&["PTTL", "lg:{long}:i"]).await.parse::<i64>().unwrap();
    assert_eq!(left().await, -1, "two documents in it are permanent");
    store.commit(Tx::new(partition("long")).write(Write::Delete { key: "spec/1".into() })).await.unwrap();
    assert_eq!(left().await, -1, "one is permanent still");
    let minute = Some(Duration::from_secs(60));
    store.commit(Tx::new(partition("long")).write(put("alive/1".into(), minute))).await.unwrap();
    assert!((3_500_000..=3_600_000).contains(&left().await), "{}", left().await);
    assert_eq!(server.cli(&["EXISTS", "lg:{long}:k"]).await, "0", "nothing keeps it any more");
}
