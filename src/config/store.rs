//! `[store]`: where runs and sessions are kept, and how long.

use std::path::PathBuf;
use std::time::Duration;

use super::options::Options;
use super::quantity::{Size, seconds};
use super::reader::Section;
use super::store_url::StoreUrl;
use super::value::FromToml;

/// Where runs and sessions are kept, and how long.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// Where.
    pub url: StoreUrl,
    /// Where copies of the embedded store are made, if they are.
    pub backup: Option<BackupConfig>,
    /// How long a session is kept after its last change.
    pub session_ttl: Duration,
    /// How long a run can be read after its end.
    pub run_ttl: Duration,
    /// How long a run waits for its client.
    pub wait_ttl: Duration,
    /// Most bytes of sessions' messages that are kept in memory.
    pub history_cache: u64,
    /// Most bytes of ended runs that `memory:` keeps.
    pub memory_limit: u64,
    /// Most bytes that a tenant may store.
    pub tenant_limit: u64,
    /// How long usage can be read.
    pub usage_ttl: Duration,
    /// How many rows of usage of a day and tenant tell users apart.
    pub usage_rows: u64,
}

/// Copies of the embedded store, which its server makes while it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupConfig {
    /// The directory that has a directory for each of them.
    pub directory: PathBuf,
    /// From one to the next.
    pub every: Duration,
    /// How many are kept.
    pub keep: usize,
}

impl BackupConfig {
    fn read(section: &mut Section<'_>, url: &StoreUrl) -> Option<Self> {
        section.read_at_start();
        let directory: Option<String> = section.required(
            "directory",
            "Directory for copies of an `embedded:` store, which the server makes while it serves, each in a directory that is \
             named after its time. No other server may use it.",
        );
        let every = section.key("every", "How long after a copy the next one is made.", seconds(86_400));
        let keep = section.key("keep", "How many copies are kept; older ones are removed.", 7_u64);
        if !section.is_described() && !matches!(url, StoreUrl::Embedded(_)) {
            section.refuse_here("only an `embedded:` store is copied by its server; Redis has backups of its own");
        }
        Some(Self { directory: directory?.into(), every, keep: usize::try_from(keep).unwrap_or(usize::MAX) })
    }
}

impl StoreConfig {
    pub(super) fn read(section: &mut Section<'_>, options: &Options) -> Self {
        section.read_at_start();
        let url = section.key(
            "url",
            "`embedded:DIR` stores everything in a directory; `memory:` loses it when the process ends; several \
             replicas share a Redis or Valkey: `redis://HOST`, `redis-sentinel://HOSTS/MASTER`, \
             `redis-cluster://HOSTS`.",
            StoreUrl::Embedded("./data".into()),
        );
        let url = options.store.clone().unwrap_or(url);
        section.record("url", url.recorded());
        let Size(history_cache) = section.key(
            "history_cache",
            "Memory for messages of sessions, so that a run reads only new ones from the store.",
            Size(64 << 20),
        );
        let Size(memory_limit) = section.key(
            "memory_limit",
            "Most memory for ended runs in `memory:`. The oldest are dropped before `run_ttl` is over, which the log \
             says. Other stores do not need it.",
            Size(64 << 20),
        );
        let Size(tenant_limit) = section.key(
            "tenant_limit",
            "Most that one tenant may store: runs, sessions, and definitions of tools. Beyond it, what would store more \
             gets 429 `storage_full` until something expires or is deleted. Choose less than the store has, divided by \
             the tenants that share it. In `memory:` the default is 128 MiB, or twice `memory_limit`.",
            Size(if matches!(url, StoreUrl::Memory) { memory_limit.saturating_mul(2).max(128 << 20) } else { 4 << 30 }),
        );
        Self {
            backup: section.optional_section("backup", |backup| BackupConfig::read(backup, &url)),
            url,
            session_ttl: section.key(
                "session_ttl",
                "How long a session is kept after it was last changed.",
                seconds(30 * 86_400),
            ),
            run_ttl: section.key("run_ttl", "How long a finished run can still be read.", seconds(86_400)),
            wait_ttl: section.key(
                "wait_ttl",
                "How long a run waits for its client to answer tool calls; then it is cancelled.",
                seconds(7 * 86_400),
            ),
            history_cache,
            memory_limit,
            tenant_limit,
            usage_ttl: section.key(
                "usage_ttl",
                "How long what runs took can be read at `/v1/usage`, from the day on which it was counted.",
                seconds(400 * 86_400),
            ),
            usage_rows: section.key(
                "usage_rows",
                "How many rows a day's usage of one tenant may have. A row is all that one process counted of a key, agent, \
                 model and user. Users beyond that are counted together as `(other)`, and from twice as many rows on so \
                 are models.",
                2_000,
            ),
        }
    }
}
