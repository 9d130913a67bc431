//! Who is the primary: asking Sentinels, or nodes of a cluster.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use futures_util::future::join_all;
use redis::{FromRedisValue, Value};

use super::dial::Dialer;
use super::fault::Trouble;
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
    /// There is one, here.
    Fixed(RedisHost),
    /// Sentinels know it by this name.
    Sentinels { hosts: Vec<RedisHost>, master: String, dialer: Dialer },
    /// Any node knows all; these are asked beside those that are known.
    Cluster { hosts: Vec<RedisHost>, dialer: Dialer },
}

impl Finder {
    /// Asks for the primaries. `known` are those of the last time.
    pub(super) async fn find(&self, known: &[RedisHost]) -> Result<Ranges, Trouble> {
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

    /// Whether there is nothing to find.
    pub(super) fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed(_))
    }
}

/// The primary that most of the Sentinels that answer name.
async fn ask_sentinels(hosts: &[RedisHost], master: &str, dialer: &Dialer) -> Result<RedisHost, Trouble> {
    let mut question = redis::pipe();
    question.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let answers = join_all(hosts.iter().map(|host| dialer.ask(host, &question))).await;
    let mut votes: HashMap<RedisHost, usize> = HashMap::new();
    let mut trouble = Trouble::away("there are no Sentinels");
    for (host, answer) in hosts.iter().zip(answers) {
        match answer.map(|answer| answer.into_iter().next()) {
            Ok(Some(Value::Nil)) => {
                trouble = Trouble::unfit(format!("the Sentinel at {host} knows no master {master:?}"));
            }
            Ok(Some(answer)) => match <(String, u16)>::from_redis_value_ref(&answer) {
                Ok((name, port)) => *votes.entry(RedisHost { name, port }).or_default() += 1,
                Err(_) => trouble = told(host, &answer),
            },
            Ok(None) => {}
            Err(found) => trouble = found,
        }
    }
    votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(host, _)| host).ok_or(trouble)
}

/// The map of the cluster, from the node that saw the latest configuration.
async fn ask_nodes(mut hosts: Vec<RedisHost>, dialer: &Dialer) -> Result<Ranges, Trouble> {
    shuffle(&mut hosts);
    hosts.truncate(ASKED);
    let mut questions = redis::pipe();
    questions.cmd("CLUSTER").arg("INFO");
    questions.cmd("CLUSTER").arg("SLOTS");
    let answers = join_all(hosts.iter().map(|host| dialer.ask(host, &questions))).await;
    let mut trouble = Trouble::away("there are no nodes");
    let mut best: Option<(u64, Ranges)> = None;
    for (host, answer) in hosts.iter().zip(answers) {
        match answer.and_then(|answers| read_map(&answers, host)) {
            Ok((epoch, ranges)) if best.as_ref().is_none_or(|(known, _)| epoch > *known) => {
                best = Some((epoch, ranges));
            }
            Ok(_) => {}
            Err(found) => trouble = found,
        }
    }
    best.map(|(_, ranges)| ranges).ok_or(trouble)
}

/// Reads what a node says of its cluster: the epoch of the configuration, and who serves what.
fn read_map(answers: &[Value], host: &RedisHost) -> Result<(u64, Ranges), Trouble> {
    let [info, slots] = answers else { return Err(Trouble::away(format!("{host} did not answer"))) };
    let Ok(text) = String::from_redis_value_ref(info) else { return Err(told(host, info)) };
    let epoch = text.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:")?.trim().parse().ok());
    let Some(rows) = slots.as_sequence() else { return Err(told(host, slots)) };
    let ranges: Option<Ranges> = rows.iter().map(|row| read_row(row, host)).collect();
    match (epoch, ranges) {
        (Some(epoch), Some(ranges)) if !ranges.is_empty() => Ok((epoch, ranges)),
        (_, Some(_)) => Err(Trouble::away(format!("{host} knows nobody who serves a slot"))),
        (_, None) => Err(told(host, slots)),
    }
}

fn read_row(row: &Value, host: &RedisHost) -> Option<(RangeInclusive<u16>, RedisHost)> {
    let [first, last, primary, ..] = row.as_sequence()? else { return None };
    let (first, last) = (u16::from_redis_value_ref(first).ok()?, u16::from_redis_value_ref(last).ok()?);
    let [name, port, ..] = primary.as_sequence()? else { return None };
    // A node that does not know its own address means the one that was asked.
    let name = String::from_redis_value_ref(name).ok().filter(|name| !name.is_empty() && name != "?");
    let name = name.unwrap_or_else(|| host.name.clone());
    Some((first..=last, RedisHost { name, port: u16::from_redis_value_ref(port).ok()? }))
}

/// An answer that is none.
fn told(host: &RedisHost, answer: &Value) -> Trouble {
    if let Value::ServerError(error) = answer {
        return Trouble::refused(host, error);
    }
    Trouble::unfit(format!("what answers at {host} does not know who is the primary"))
}

fn shuffle<T>(items: &mut [T]) {
    for last in (1..items.len()).rev() {
        let other = getrandom::u32().unwrap_or(0) as usize % (last + 1);
        items.swap(last, other);
    }
}
