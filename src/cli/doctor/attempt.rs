//! Tries a store out: opens it, writes to it, reads it, and sees how long that takes.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::finding::Finding;
use crate::config::Settings;
use crate::store::{self, CommitError, Partition, Store, Tx, Write};

pub(super) const AREA: &str = "store";

/// How often the store is written to and read, to see how long that takes.
const SAMPLES: usize = 5;
/// Steps and streams feel slower from here on.
const SLOW: Duration = Duration::from_millis(50);
/// Drivers begin to give up their runs from here on.
const TOO_SLOW: Duration = Duration::from_millis(500);
/// How long the document is kept should the command be killed before it removes it.
const KEPT: Duration = Duration::from_secs(60);

/// Opens the store, and sees how long a change and a read take.
pub(super) async fn try_out(settings: &Settings) -> Result<Finding, String> {
    let store = store::open(&settings.store.url, settings.store.tenant_limit, None);
    let store = store.await.map_err(|error| error.to_string())?;
    let tried = exchange(&*store).await;
    store.close().await;
    let took = tried.map_err(|error| error.to_string())?;
    let message = format!("{}: a change and a read take {:.1} ms", settings.store.url, took.as_secs_f64() * 1e3);
    Ok(match took {
        _ if took >= TOO_SLOW => Finding::fail(AREA, message)
            .advice("Runs stop while the store is that slow: look at its load, its disk and the network."),
        _ if took >= SLOW => Finding::warn(AREA, message)
            .advice("Each step waits for several changes: bring the store nearer, or look at its load and its disk."),
        _ => Finding::ok(AREA, message),
    })
}

/// How long a change and a read take together, in the middle of some attempts. Removes what it wrote.
async fn exchange(store: &dyn Store) -> Result<Duration, CommitError> {
    let name = format!("doctor/{}", uuid::Uuid::now_v7().simple());
    let (partition, key) = (Partition::new(name), store::Key::from("try"));
    let mut times = Vec::new();
    for _ in 0..SAMPLES {
        let begun = Instant::now();
        let value = Bytes::from_static(b"doctor");
        let put = Write::Put { key: key.clone(), value: value.clone(), ttl: Some(KEPT) };
        store.commit(Tx::new(partition.clone()).write(put)).await?;
        let found = store.get(&partition, &key).await?;
        if found.is_none_or(|found| found.value != value) {
            return Err(store::Unavailable("what was just written cannot be read".to_owned()).into());
        }
        times.push(begun.elapsed());
    }
    store.commit(Tx::new(partition).write(Write::Delete { key })).await?;
    times.sort();
    Ok(times[SAMPLES / 2])
}
