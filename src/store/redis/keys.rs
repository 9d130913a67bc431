//! The names of Redis keys: `lg:{PARTITION}:KIND:KEY`.
//!
//! Redis Cluster chooses a key's slot by the text in braces. So all keys of a partition lie in one slot, where one
//! script can change them together.

use std::borrow::Cow;

use crate::store::{Key, Partition, Topic};

/// How many slots a cluster has.
const SLOTS: u16 = 16_384;

/// The keys of one partition.
#[derive(Debug, Clone)]
pub(super) struct KeySpace {
    /// What all keys begin with.
    prefix: String,
    /// The slot of all keys.
    pub(super) slot: u16,
}

impl KeySpace {
    /// The keys of this partition.
    pub(super) fn of(partition: &Partition) -> Self {
        let tag = escaped(partition.as_str());
        Self { slot: crc16(tag.as_bytes()) % SLOTS, prefix: ["lg:{", &tag, "}:"].concat() }
    }

    /// A document.
    pub(super) fn document(&self, key: &str) -> String {
        self.named("d:", key)
    }

    /// The sorted set of the keys of all documents.
    pub(super) fn index(&self) -> String {
        self.named("i", "")
    }

    /// The sorted set of the documents that keep the index from expiring.
    pub(super) fn kept(&self) -> String {
        self.named("k", "")
    }

    /// A log.
    pub(super) fn log(&self, key: &Key) -> String {
        self.named("l:", key)
    }

    /// A counter.
    pub(super) fn counter(&self, key: &Key) -> String {
        self.named("c:", key)
    }

    /// A lease.
    pub(super) fn lease(&self, key: &Key) -> String {
        self.named("h:", key)
    }

    /// A bucket.
    pub(super) fn bucket(&self, key: &Key) -> String {
        self.named("r:", key)
    }

    /// The operations that a process did in this partition lately.
    pub(super) fn operations(&self, whose: &str) -> String {
        self.named("o:", whose)
    }

    /// The operations that a process repeated in this partition lately.
    pub(super) fn repeats(&self, whose: &str) -> String {
        self.named("q:", whose)
    }

    /// The key that a health check writes.
    pub(super) fn probe(&self) -> String {
        format!("{}p", self.prefix)
    }

    /// A topic's channel.
    pub(super) fn channel(&self, name: &str) -> String {
        self.named("n:", name)
    }

    /// A key, in a single allocation.
    fn named(&self, kind: &str, name: &str) -> String {
        [self.prefix.as_str(), kind, name].concat()
    }
}

/// The channel of a topic and its slot.
pub(super) fn channel(topic: &Topic) -> (String, u16) {
    let space = KeySpace::of(&topic.partition);
    (space.channel(&topic.name), space.slot)
}

/// The topic of a channel; `None` if the channel is not one of this store.
pub(super) fn topic(channel: &str) -> Option<Topic> {
    let (tag, name) = channel.strip_prefix("lg:{")?.split_once("}:n:")?;
    Some(Topic::new(Partition::new(unescaped(tag)), name))
}

/// A partition's name, not empty and without braces, which would end the hash tag early.
fn escaped(name: &str) -> Cow<'_, str> {
    if name.is_empty() {
        "%".into()
    } else if memchr::memchr2(b'%', b'}', name.as_bytes()).is_some() {
        name.replace('%', "%25").replace('}', "%7D").into()
    } else {
        name.into()
    }
}

fn unescaped(tag: &str) -> String {
    if tag == "%" { String::new() } else { tag.replace("%7D", "}").replace("%25", "%") }
}

/// CRC-16 as clusters compute it: polynomial 0x1021, starting from 0.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ REMAINDERS[usize::from((crc >> 8) ^ u16::from(*byte))])
}

const REMAINDERS: [u16; 256] = remainders();

const fn remainders() -> [u16; 256] {
    let mut table = [0; 256];
    let (mut byte, mut top): (usize, u16) = (0, 0);
    while byte < 256 {
        let mut crc = top;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
        top = top.wrapping_add(0x100);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        // As CLUSTER KEYSLOT answers.
        assert_eq!(KeySpace::of(&Partition::new("acme/session/s1")).slot, crc16(b"acme/session/s1") % 16_384);
        assert_eq!(crc16(b"foo") % SLOTS, 12_182);
    }

    #[test]
    fn partitions_do_not_share_keys_whatever_their_names() {
        let key = |name: &str, key: &str| KeySpace::of(&Partition::new(name)).document(key);
        assert_eq!(key("a/b", "run/1"), "lg:{a/b}:d:run/1");
        assert_ne!(key("a", "x}:d:b"), key("a}:d:x", "b"));
        assert_ne!(key("a}", "b"), key("a%7D", "b"));
        assert!(key("", "b").starts_with("lg:{%}"));
    }

    #[test]
    fn channels_lead_back_to_their_topics() {
        for partition in ["", "a", "a}b%7D", "%"] {
            let wanted = Topic::new(Partition::new(partition), "run}:n:1");
            assert_eq!(topic(&channel(&wanted).0), Some(wanted));
        }
        assert_eq!(topic("other"), None);
    }
}
