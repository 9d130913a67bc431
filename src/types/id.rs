//! Names of things: tenants, runs, sessions and tool calls.
//!
//! Ids are validated when they are made, so an id can be put into a store key or a header as it is.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_128;

/// The longest id that a caller may choose, in bytes.
const MAX_CHOSEN_LEN: usize = 128;
/// No session may have this id: it is a path of its own beside the sessions.
const RESERVED: &str = "import";

/// The digits of a call's number.
const HEX: [&str; 16] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d", "e", "f"];

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The id as it is written on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id! {
    /// Whose runs and sessions these are. Part of every store key; `default` where there are no keys.
    Tenant
}
id! {
    /// One run of the loop: `run_` and a UUIDv7, so ids sort by time.
    ///
    /// The last two bytes are zero; [`RunId::call`] puts a counter there, which makes a call's id
    /// lead back to its run.
    RunId
}
id! {
    /// A conversation that outlives its runs: chosen by the caller or minted as `sess_…`.
    SessionId
}
id! {
    /// A schedule: chosen by the caller or minted as `sched_…`.
    ScheduleId
}
id! {
    /// One tool call, unique over all runs: `call_…`, minted from its run's id.
    CallId
}

impl Tenant {
    /// The tenant of a server without keys.
    #[must_use]
    pub fn default_tenant() -> Self {
        Self("default".into())
    }

    /// A tenant named in the configuration; `None` unless 1–128 of `A-Z a-z 0-9 . _ : -`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        is_plain(name).then(|| Self(name.into()))
    }
}

impl RunId {
    /// A new id, later in order than every id minted in an earlier millisecond.
    #[must_use]
    pub fn mint() -> Self {
        let mut bytes = Uuid::now_v7().into_bytes();
        bytes[14..].fill(0);
        Self(prefixed("run_", Uuid::from_bytes(bytes)))
    }

    /// The id that a caller sent; `None` if it is not of our making.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        minted(text, "run_").map(|_| Self(text.into()))
    }

    /// The part after `run_`, with which the run's `chatcmpl-…` ids begin. Its last four digits are zeros.
    #[must_use]
    pub fn suffix(&self) -> &str {
        &self.0[4..]
    }

    /// A place in lists of runs, newest first, right before this run. It does not tell the run's id.
    #[must_use]
    pub fn place(&self) -> Self {
        Self([&self.0[..28], "ffff0000"].concat().into())
    }

    /// The id of this run's `number`th tool call, counted from 1.
    #[must_use]
    pub fn call(&self, number: u16) -> CallId {
        let digits = [number >> 12, number >> 8, number >> 4, number].map(|digit| HEX[usize::from(digit & 0xf)]);
        let [a, b, c, d] = digits;
        CallId(["call_", &self.suffix()[..28], a, b, c, d].concat().into())
    }
}

impl CallId {
    /// Keeps an id that a client or a model chose.
    #[must_use]
    pub fn foreign(text: &str) -> Self {
        Self(text.into())
    }

    /// The run that minted this id; `None` for an id that came from elsewhere.
    #[must_use]
    pub fn run(&self) -> Option<RunId> {
        let mut bytes = minted(&self.0, "call_")?.into_bytes();
        bytes[14..].fill(0);
        Some(RunId(prefixed("run_", Uuid::from_bytes(bytes))))
    }

    /// The id of the run that this call begins, if a run minted it: always the same one. It stands beside the run that makes the call.
    #[must_use]
    pub fn child(&self) -> Option<RunId> {
        let call = minted(&self.0, "call_")?;
        let mut bytes = xxh3_128(self.0.as_bytes()).to_be_bytes();
        bytes[..6].copy_from_slice(&call.as_bytes()[..6]);
        bytes[6] = 0x70 | bytes[6] & 0x0f;
        bytes[8] = 0x80 | bytes[8] & 0x3f;
        bytes[14..].fill(0);
        Some(RunId(prefixed("run_", Uuid::from_bytes(bytes))))
    }
}

impl SessionId {
    /// A new id.
    #[must_use]
    pub fn mint() -> Self {
        Self(prefixed("sess_", Uuid::now_v7()))
    }

    /// An id that the caller chose; `None` unless 1–128 of `A-Z a-z 0-9 . _ : -`, and not only dots.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (is_plain(text) && text != RESERVED).then(|| Self(text.into()))
    }
}

impl ScheduleId {
    /// A new id.
    #[must_use]
    pub fn mint() -> Self {
        Self(prefixed("sched_", Uuid::now_v7()))
    }

    /// An id that the caller chose; `None` unless 1–128 of `A-Z a-z 0-9 . _ : -`, and not only dots.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        is_plain(text).then(|| Self(text.into()))
    }
}

fn prefixed(prefix: &str, id: Uuid) -> Arc<str> {
    [prefix, id.simple().encode_lower(&mut Uuid::encode_buffer())].concat().into()
}

fn minted(text: &str, prefix: &str) -> Option<Uuid> {
    let suffix = text.strip_prefix(prefix)?;
    let lower_hex = suffix.len() == 32 && suffix.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    lower_hex.then(|| Uuid::try_parse(suffix).ok()).flatten()
}

fn is_plain(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
    (1..=MAX_CHOSEN_LEN).contains(&text.len()) && text.bytes().all(allowed) && !text.bytes().all(|b| b == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_id_leads_back_to_its_run() {
        let run = RunId::mint();
        let call = run.call(258);
        assert_eq!(call.run(), Some(run.clone()));
        assert_ne!(call, run.call(259));
        assert!(call.as_str().len() <= 40, "OpenAI refuses longer call ids");
        assert_eq!(CallId::foreign("call_1").run(), None);
        assert_eq!(RunId::parse(run.as_str()), Some(run));
    }

    #[test]
    fn a_call_begins_always_the_same_run() {
        let run = RunId::mint();
        let (one, other) = (run.call(1).child().unwrap(), run.call(2).child().unwrap());
        assert_eq!(run.call(1).child(), Some(one.clone()));
        assert!(one != other && one != run && other != run);
        assert_eq!(RunId::parse(one.as_str()), Some(one.clone()));
        assert_eq!(one.call(3).run(), Some(one));
        assert_eq!(CallId::foreign("call_1").child(), None);
    }

    #[test]
    fn chosen_ids_are_plain() {
        for good in ["a", "sess_42", "user:7.chat-1", &"x".repeat(128)] {
            assert!(SessionId::parse(good).is_some(), "{good}");
        }
        for bad in ["", "..", "a/b", "{x}", "a b", "ü", "a\n", "import", &"x".repeat(129)] {
            assert!(SessionId::parse(bad).is_none(), "{bad}");
        }
        for bad in ["run_", "run_zz", "RUN_0", "run_00000000000000000000000000000000x"] {
            assert!(RunId::parse(bad).is_none(), "{bad}");
        }
    }
}
