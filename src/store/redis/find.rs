//! Finds the primaries: asks Sentinels, or nodes of a cluster.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use futures_util::future::join_all;
use redis::{FromRedisValue, Value};

use super::dial::Dialer;
use super::error::ConnectionError;
use crate::config::RedisHost;

/// How many servers are asked at once.
const ASKED: usize = 6;

/// Slots and the primary that serves them.
pub(super) type Ranges = Vec<(RangeInclusive<u16>, RedisHost)>;

/// All slots: what a server serves that is no node of a cluster.
pub(super) const ALL_SLOTS: RangeInclusive<u16> = 0..=16_383;

/// How primaries are found.
#[derive(Debug)]
pub(super) enum Finder {
    /// The URL names the only server.
    Fixed(RedisHost),
    /// The Sentinels at `hosts` know the primary by the name `master`.
    Sentinels { hosts: Vec<RedisHost>, master: String, dialer: Dialer },
    /// Any node knows all primaries. These nodes are asked, and those that were primaries lately.
    Cluster { hosts: Vec<RedisHost>, dialer: Dialer },
}

impl Finder {
    /// Asks for the primaries. `known` are the primaries that the last search found.
    pub(super) async fn find(&self, known: &[RedisHost]) -> Result<Ranges, ConnectionError> {
        match self {
            Self::Fixed(host) => Ok(vec![(ALL_SLOTS, host.clone())]),
            Self::Sentinels { hosts, master, dialer } => {
                let primary = ask_sentinels(hosts, master, dialer).await?;
                Ok(vec![(ALL_SLOTS, primary)])
            }
            Self::Cluster { hosts, dialer } => {
                let mut asked = known.to_vec();
                asked.extend(hosts.iter().filter(|host| !known.contains(host)).cloned());
                ask_nodes(asked, dialer).await
            }
        }
    }

    /// Whether the primary never changes.
    pub(super) fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed(_))
    }
}

/// The primary, from the Sentinel that knows the latest epoch. Every failover is voted for by most Sentinels and
/// begins a new epoch. So Sentinels that were cut off meanwhile know only an earlier epoch.
async fn ask_sentinels(hosts: &[RedisHost], master: &str, dialer: &Dialer) -> Result<RedisHost, ConnectionError> {
    let mut questions = redis::pipe();
    // Towards the end of a failover only the second answer names the new primary; the first has its epoch.
    questions.cmd("SENTINEL").arg("MASTER").arg(master);
    questions.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let asked = hosts.iter().map(async |host| read_master(&dialer.ask(host, &questions).await?, host, master));
    latest(join_all(asked).await).unwrap_or_else(|| Err(ConnectionError::unreachable("there are no Sentinels")))
}

/// Reads a Sentinel's answers: the epoch, and the primary's address.
fn read_master(answers: &[Value], host: &RedisHost, master: &str) -> Result<(u64, RedisHost), ConnectionError> {
    let [state, address] = answers else { return Err(ConnectionError::unreachable(format!("{host} did not answer"))) };
    if matches!(address, Value::Nil) {
        return Err(ConnectionError::unfit(format!("the Sentinel at {host} knows no master {master:?}")));
    }
    let Ok((name, port)) = <(String, u16)>::from_redis_value_ref(address) else {
        return Err(unexpected_answer(host, address));
    };
    let state = HashMap::<String, Value>::from_redis_value_ref(state).map_err(|_| unexpected_answer(host, state))?;
    let epoch = state.get("config-epoch").and_then(|epoch| u64::from_redis_value_ref(epoch).ok());
    let epoch = epoch.ok_or_else(|| ConnectionError::unfit(format!("the Sentinel at {host} names no epoch")))?;
    Ok((epoch, RedisHost { name, port }))
}

/// The map of the cluster, from the node that knows the latest epoch.
async fn ask_nodes(mut hosts: Vec<RedisHost>, dialer: &Dialer) -> Result<Ranges, ConnectionError> {
    shuffle(&mut hosts);
    hosts.truncate(ASKED);
    let mut questions = redis::pipe();
    questions.cmd("CLUSTER").arg("INFO");
    questions.cmd("CLUSTER").arg("SLOTS");
    let asked = hosts.iter().map(async |host| read_map(&dialer.ask(host, &questions).await?, host));
    latest(join_all(asked).await).unwrap_or_else(|| Err(ConnectionError::unreachable("there are no nodes")))
}

/// The answer with the highest epoch, or an error if every answer is one.
fn latest<T>(said: Vec<Result<(u64, T), ConnectionError>>) -> Option<Result<T, ConnectionError>> {
    let epoch = |said: &Result<(u64, T), ConnectionError>| said.as_ref().ok().map(|(epoch, _)| *epoch);
    Some(said.into_iter().max_by_key(epoch)?.map(|(_, found)| found))
}

/// Reads a node's answers: the epoch, and the primary of each range of slots.
fn read_map(answers: &[Value], host: &RedisHost) -> Result<(u64, Ranges), ConnectionError> {
    let [info, slots] = answers else { return Err(ConnectionError::unreachable(format!("{host} did not answer"))) };
    let Ok(text) = String::from_redis_value_ref(info) else { return Err(unexpected_answer(host, info)) };
    let epoch = text.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:")?.trim().parse().ok());
    let Some(rows) = slots.as_sequence() else { return Err(unexpected_answer(host, slots)) };
    let ranges: Option<Ranges> = rows.iter().map(|row| read_row(row, host)).collect();
    match (epoch, ranges) {
        (Some(epoch), Some(ranges)) if !ranges.is_empty() => Ok((epoch, ranges)),
        (_, Some(_)) => Err(ConnectionError::unreachable(format!("{host} knows no server of any slot"))),
        (_, None) => Err(unexpected_answer(host, slots)),
    }
}

fn read_row(row: &Value, host: &RedisHost) -> Option<(RangeInclusive<u16>, RedisHost)> {
    let [first, last, primary, ..] = row.as_sequence()? else { return None };
    let (first, last) = (u16::from_redis_value_ref(first).ok()?, u16::from_redis_value_ref(last).ok()?);
    let [name, port, ..] = primary.as_sequence()? else { return None };
    // A node that does not know its own address leaves it out: it is the address that was asked.
    let name = String::from_redis_value_ref(name).ok().filter(|name| !name.is_empty() && name != "?");
    let name = name.unwrap_or_else(|| host.name.clone());
    Some((first..=last, RedisHost { name, port: u16::from_redis_value_ref(port).ok()? }))
}

/// The error of an answer that names no primary.
fn unexpected_answer(host: &RedisHost, answer: &Value) -> ConnectionError {
    if let Value::ServerError(error) = answer {
        return ConnectionError::refused(host, error);
    }
    ConnectionError::unfit(format!("what answers at {host} does not know who is the primary"))
}

fn shuffle<T>(items: &mut [T]) {
    for last in (1..items.len()).rev() {
        let other = getrandom::u32().unwrap_or(0) as usize % (last + 1);
        items.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use redis::Value::{Array, BulkString, Map, Nil};

    use super::*;

    fn text(text: &str) -> Value {
        BulkString(text.as_bytes().to_vec())
    }

    fn host(name: &str) -> RedisHost {
        RedisHost { name: name.to_owned(), port: 6379 }
    }

    #[test]
    fn answer_with_the_latest_epoch_counts() {
        let away = || ConnectionError::unreachable("it is away");
        let said = vec![Err(away()), Ok((3, "old")), Ok((4, "new")), Ok((3, "old")), Err(away())];
        assert_eq!(latest(said), Some(Ok("new")));
        assert_eq!(latest::<&str>(vec![Err(away())]), Some(Err(away())));
        assert_eq!(latest::<&str>(vec![]), None);
    }

    #[test]
    fn sentinel_names_the_primary_and_its_epoch() {
        let sentinel = host("sentinel");
        let address = Array(vec![text("new"), text("6379")]);
        let map = vec![(text("ip"), text("old")), (text("config-epoch"), text("7"))];
        let list = map.iter().flat_map(|(name, value)| [name.clone(), value.clone()]).collect();
        for state in [Map(map), Array(list)] {
            assert_eq!(read_master(&[state, address.clone()], &sentinel, "m").unwrap(), (7, host("new")));
        }
        let unknown = read_master(&[text("?"), Nil], &sentinel, "m").unwrap_err();
        assert!(unknown.to_string().contains("knows no master \"m\""), "{unknown}");
        assert!(read_master(&[Map(vec![]), address], &sentinel, "m").is_err());
        assert!(read_master(&[], &sentinel, "m").is_err());
    }
}
