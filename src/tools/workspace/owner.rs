//! Which directory belongs to whom: names of directories that are made of ids. Pure.
//!
//! Two ids never have the same name, also where a file system takes upper and lower case, or two ways to write a letter, for one:
//! a name has only the characters `a-z 0-9 . _ - =`. No name is `.` or `..`, and an id can be read back from its name, but that
//! of a long user.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::types::{RunId, SessionId, Tenant};

/// Longest id that is written so that people can read it, in bytes of its name.
const MAX_READABLE: usize = 200;
/// Before an id in base 32, and before the hash of one. Neither stands in a readable name: there, two digits follow a `=`.
const IN_BASE_32: &str = "==";
const HASHED: &str = "=h";
/// Longest id that is written in base 32, in bytes: the longest that a tenant and a session can have.
const MAX_IN_BASE_32: usize = 128;
const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// What has a workspace within a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A session.
    Session(SessionId),
    /// A run without a session.
    Run(RunId),
    /// A user, as requests name it.
    User(String),
}

/// The name of a tenant's directory.
pub(super) fn tenant_directory(tenant: &Tenant) -> String {
    format!("t-{}", name(tenant.as_str()))
}

/// Whose directory this is; `None` if it is no tenant's.
pub(super) fn tenant_of(directory: &str) -> Option<Tenant> {
    let tenant = Tenant::parse(&id(directory.strip_prefix("t-")?)?)?;
    (tenant_directory(&tenant) == directory).then_some(tenant)
}

impl Owner {
    /// The name of its directory in that of its tenant.
    pub(super) fn directory(&self) -> String {
        match self {
            Self::Session(session) => format!("s-{}", name(session.as_str())),
            Self::Run(run) => format!("r-{}", name(run.as_str())),
            Self::User(user) => format!("u-{}", name(user)),
        }
    }

    /// Whose directory this is; `None` if it is none of a session or run.
    pub(super) fn passing_of(directory: &str) -> Option<Self> {
        let owner = match directory.split_at_checked(2)? {
            ("s-", rest) => Self::Session(SessionId::parse(&id(rest)?)?),
            ("r-", rest) => Self::Run(RunId::parse(&id(rest)?)?),
            _ => return None,
        };
        (owner.directory() == directory).then_some(owner)
    }
}

/// An id as the name of a directory.
fn name(id: &str) -> String {
    let mut readable = String::new();
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' => readable.push(byte.into()),
            byte => {
                // Writing to a string cannot fail.
                let _ = write!(readable, "={byte:02x}");
            }
        }
    }
    match id.len() {
        _ if readable.len() <= MAX_READABLE => readable,
        ..=MAX_IN_BASE_32 => IN_BASE_32.to_owned() + &base_32(id.as_bytes()),
        _ => {
            let hash = Sha256::digest(id.as_bytes());
            hash.iter().fold(HASHED.to_owned(), |name, byte| name + &format!("{byte:02x}"))
        }
    }
}

/// The id that has this name, if it can be read back.
fn id(name: &str) -> Option<String> {
    if name.starts_with(HASHED) {
        return None;
    }
    if let Some(digits) = name.strip_prefix(IN_BASE_32) {
        return String::from_utf8(of_base_32(digits)?).ok();
    }
    let (mut bytes, mut rest) = (Vec::new(), name);
    while let Some(first) = rest.bytes().next() {
        let taken = if first == b'=' { 3 } else { 1 };
        let (written, after) = rest.split_at_checked(taken)?;
        bytes.push(if first == b'=' { u8::from_str_radix(&written[1..], 16).ok()? } else { first });
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

fn base_32(bytes: &[u8]) -> String {
    let (mut digits, mut kept, mut bits) = (String::new(), 0_u32, 0);
    for byte in bytes {
        kept = kept << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            digits.push(DIGITS[(kept >> bits & 31) as usize].into());
        }
        kept &= (1 << bits) - 1;
    }
    if bits > 0 {
        digits.push(DIGITS[(kept << (5 - bits) & 31) as usize].into());
    }
    digits
}

fn of_base_32(digits: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut kept, mut bits) = (Vec::new(), 0_u32, 0);
    for digit in digits.bytes() {
        let value = u32::try_from(DIGITS.iter().position(|known| *known == digit)?).ok()?;
        kept = kept << 5 | value;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(kept >> bits).ok()?);
            kept &= (1 << bits) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_can_be_read_by_people() {
        let tenant = Tenant::parse("acme").unwrap();
        assert_eq!(tenant_directory(&tenant), "t-acme");
        let directory = |user: &str| Owner::User(user.to_owned()).directory();
        assert_eq!(directory("ann.lee-1"), "u-ann.lee-1");
        assert_eq!(directory("Ann/../x"), "u-=41nn=2f..=2fx");
        assert_eq!([directory(".."), directory("é"), directory("")], ["u-..", "u-=c3=a9", "u-"]);
    }

    #[test]
    fn ids_that_look_alike_have_directories_of_their_own() {
        let long = "A".repeat(128);
        let ids =
            ["a", "A", "a=41", "=41", "a.", "a ", "\u{e9}", "e\u{301}", "a/b", "a_b", "..", ".", &long, &long[1..]];
        let directory = |id: &&str| Owner::User((*id).to_owned()).directory();
        let names: Vec<String> = ids.iter().map(directory).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name}");
            assert!(name.len() <= 255 && !name.contains('/') && *name == name.to_lowercase(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn an_id_can_be_read_back_and_no_other_has_its_name(id in "[A-Za-z0-9._:-]{1,128}", other in "\\PC{0,300}") {
            if let (Some(tenant), Some(session)) = (Tenant::parse(&id), SessionId::parse(&id)) {
                let directory = tenant_directory(&tenant);
                prop_assert!(directory.len() <= 255);
                prop_assert_eq!(tenant_of(&directory), Some(tenant));
                let owner = Owner::Session(session);
                prop_assert_eq!(Owner::passing_of(&owner.directory()), Some(owner));
            }
            let name = Owner::User(other.clone()).directory();
            prop_assert!(name.len() <= 255 && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'=')));
            prop_assert!(other == id || name != Owner::User(id).directory());
            prop_assert_eq!(Owner::passing_of(&name), None);
        }

        #[test]
        fn any_name_can_be_met(name in "[trsu]-[a-z=0-9A-Z._-]{0,80}") {
            if let Some(owner) = Owner::passing_of(&name) {
                prop_assert_eq!(owner.directory(), name.clone());
            }
            if let Some(tenant) = tenant_of(&name) {
                prop_assert_eq!(tenant_directory(&tenant), name);
            }
        }
    }
}
