//! What the primaries of a deployment tell of themselves, for an operator who wants to know whether they can be used.

use std::time::Duration;

use futures_util::future::try_join_all;
use redis::{FromRedisValue, Value};

use super::dial::{Dialer, field, read_role};
use super::error::ConnectionError;
use super::open::{Refusal, ways_in};
use crate::config::{RedisHost, RedisUrl};
use crate::types::clock::now_ms;

/// How long a primary may take to answer. Slower ones than the store can use are told from those that are gone.
const MOST_TIME: Duration = Duration::from_secs(5);

/// What a primary tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkup {
    /// Where it is.
    pub host: String,
    /// Its version.
    pub version: String,
    /// How many replicas are connected to it.
    pub replicas: usize,
    /// By how much its clock is ahead of this machine's, as far as the time of an exchange lets it be seen.
    pub clock_difference_ms: i64,
    /// Its `appendonly`; `None` if it does not tell.
    pub appendonly: Option<String>,
    /// Its `maxmemory-policy`; `None` if it does not tell.
    pub maxmemory_policy: Option<String>,
}

/// Asks each primary of the deployment that a URL names. Fails if one does not answer, in words without passwords.
pub async fn checkup(url: &RedisUrl) -> Result<Vec<Checkup>, String> {
    let (finder, dialer) = ways_in(url).map_err(|Refusal(why)| why)?;
    let ranges = finder.find(&[]).await.map_err(|error| error.to_string())?;
    let mut hosts: Vec<RedisHost> = ranges.into_iter().map(|(_, host)| host).collect();
    hosts.sort();
    hosts.dedup();
    try_join_all(hosts.iter().map(|host| ask(&dialer, host))).await.map_err(|error| error.to_string())
}

async fn ask(dialer: &Dialer, host: &RedisHost) -> Result<Checkup, ConnectionError> {
    let mut questions = redis::pipe();
    questions.add_command(redis::cmd("HELLO")).add_command(redis::cmd("ROLE"));
    for setting in ["appendonly", "maxmemory-policy"] {
        questions.cmd("CONFIG").arg("GET").arg(setting);
    }
    questions.cmd("TIME");
    let answers = dialer.ask_within(MOST_TIME, host, &questions).await?;
    let now = now_ms();
    let malformed = || ConnectionError::unfit(format!("what answers at {host} is not Redis or Valkey"));
    let [hello, role, appendonly, policy, time] = &answers[..] else { return Err(malformed()) };
    if let Value::ServerError(error) = hello {
        return Err(ConnectionError::refused(host, error));
    }
    let (seconds, micros) = <(i64, i64)>::from_redis_value_ref(time).map_err(|_| malformed())?;
    let server_ms = seconds.saturating_mul(1_000).saturating_add(micros / 1_000);
    Ok(Checkup {
        host: host.to_string(),
        version: field(hello, "version").ok_or_else(malformed)?,
        replicas: read_role(role, host)?.replicas,
        clock_difference_ms: server_ms.saturating_sub(i64::try_from(now).unwrap_or(i64::MAX)),
        appendonly: field(appendonly, "appendonly"),
        maxmemory_policy: field(policy, "maxmemory-policy"),
    })
}
