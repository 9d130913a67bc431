//! Whatever a program passes, a call of it ends with an answer.

use proptest::prelude::*;
use wasmi::StoreLimits;

use super::guest::Guest;
use super::paths::PathAt;
use super::process::Texts;
use super::tree::{Node, resolve};
use super::{Host, WORKSPACE, files, paths, process};

const ROOM: usize = 100_000;

fn host() -> Host {
    let texts = || vec!["main".to_owned(), "äö".to_owned()];
    let mut host = Host::new(texts(), texts(), ROOM, 1_000, StoreLimits::default());
    assert!(host.place("a/b.txt", b"some bytes".to_vec()) && host.place_code("main", "code"));
    host
}

/// How many bytes the files with names have.
fn named(host: &Host) -> usize {
    let all = ["workspace", "code", "tmp"].into_iter().flat_map(|mount| host.tree.below(mount));
    all.map(|(_, node)| if let Node::File(contents) = node { contents.borrow().len() } else { 0 }).sum()
}

/// Makes the call of this number.
#[expect(clippy::many_single_char_names, reason = "what an argument means depends on the call")]
fn call(guest: &mut Guest<'_>, number: u8, [a, b, c, d, e]: [u32; 5], wide: u64) {
    let (here, there) = (PathAt { fd: a, at: b, length: c }, PathAt { fd: c, at: d, length: e });
    let wide_signed = i64::from_ne_bytes(wide.to_ne_bytes());
    let _ = match number {
        0 => process::put_texts(guest, Texts::Arguments, a, b),
        1 => process::text_sizes(guest, Texts::Environment, a, b),
        2 => process::clock_time(guest, a, b),
        3 => process::random(guest, a, b),
        4 => process::wait(guest, a, b, c, d),
        5 => files::close(guest, a),
        6 => files::renumber(guest, a, b),
        7 => files::state(guest, a, b),
        8 => files::status(guest, a, b),
        9 => files::set_size(guest, a, wide),
        10 => files::allocate(guest, a, wide, u64::from(b)),
        11 => files::given_kind(guest, a, b),
        12 => files::given_name(guest, a, b, c),
        13 => files::read(guest, a, b, c, d),
        14 => files::read_at(guest, a, b, c, wide, d),
        15 => files::write(guest, a, b, c, d),
        16 => files::write_at(guest, a, b, c, wide, d),
        17 => files::seek(guest, a, wide_signed, b, c),
        18 => files::list(guest, a, b, c, wide, d),
        19 => files::set_flags(guest, a, b),
        20 => paths::open(guest, here, d, wide, e, 0),
        21 => paths::status(guest, here, d),
        22 => paths::create_directory(guest, here),
        23 => paths::remove_directory(guest, here),
        24 => paths::unlink(guest, here),
        25 => paths::rename(guest, here, there),
        26 => paths::read_link(guest, here),
        _ => process::clock_step(guest, a, b),
    };
}

/// What names the file at the beginning of the memory, numbers of descriptors, addresses near the beginning and near the end,
/// and any others.
fn number() -> impl Strategy<Value = u32> {
    let file = prop_oneof![Just(3_u32), Just(0), Just(7)];
    prop_oneof![6 => file, 4 => 0_u32..12, 3 => 0_u32..600, 1 => 4_000_u32..4_200, 1 => any::<u32>(), 1 => Just(u32::MAX)]
}

fn wide() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0_u64..2_000, 1 => any::<u64>(), 1 => Just(u64::MAX), 1 => Just(i64::MAX as u64)]
}

/// Memory that holds names, lists of pieces, and anything.
fn memory() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => Just(b"a/b.txt\0".to_vec()),
        2 => Just(b"../../x\0".to_vec()),
        2 => Just(b"./new/..".to_vec()),
        4 => (0_u32..600, 0_u32..600).prop_map(|(at, length)| [at.to_le_bytes(), length.to_le_bytes()].concat()),
        2 => any::<[u8; 8]>().prop_map(Vec::from),
    ];
    let rest = proptest::collection::vec(piece, 511).prop_map(|pieces| pieces.concat());
    rest.prop_map(|rest| [&b"a/b.txt\0"[..], &rest].concat())
}

#[test]
fn room_is_given_back_with_the_last_that_holds_a_file() {
    let (mut host, mut memory) = (host(), b"a/b.txt\0\0\0\0\0".to_vec());
    let mut guest = Guest { memory: &mut memory, host: &mut host };
    let file = PathAt { fd: 3, at: 0, length: 7 };
    paths::open(&mut guest, file, 0, 0, 0, 8).unwrap();
    paths::unlink(&mut guest, file).unwrap();
    assert_eq!(guest.host.tree.used(), "some bytes".len() + "code".len());
    let fd = guest.u32_at(8).unwrap();
    files::close(&mut guest, fd).unwrap();
    assert_eq!(guest.host.tree.used(), "code".len());
}

#[test]
fn directories_are_paid_for_by_what_is_in_them() {
    let (mut host, mut memory) = (host(), b"a\0b\0\0\0\0\0".to_vec());
    for number in 0..1_000 {
        assert!(host.place(&format!("a/deep/{number}"), Vec::new()));
    }
    let mut guest = Guest { memory: &mut memory, host: &mut host };
    let (from, to) = (PathAt { fd: 3, at: 0, length: 1 }, PathAt { fd: 3, at: 2, length: 1 });
    paths::open(&mut guest, from, 2, 0, 0, 4).unwrap();
    let directory = guest.u32_at(4).unwrap();
    guest.host.take_work();
    files::list(&mut guest, directory, 0, 8, 0, 4).unwrap();
    assert!(guest.host.take_work() < 1_000, "what is not looked at costs nothing");
    files::list(&mut guest, directory, 0, 8, 100, 4).unwrap();
    assert!(guest.host.take_work() > 500_000, "also what lies deeper has to be passed");
    guest.put(0, b"a\0b\0").unwrap();
    guest.host.take_work();
    paths::rename(&mut guest, from, to).unwrap();
    assert!(guest.host.take_work() > 8_000_000);
}

proptest! {
    #[test]
    fn no_call_panics_or_takes_more_than_its_room(
        mut memory in memory(),
        calls in proptest::collection::vec((0_u8..28, [number(), number(), number(), number(), number()], wide()), 1..120),
    ) {
        let mut host = host();
        for (which, arguments, wide) in calls {
            call(&mut Guest { memory: &mut memory, host: &mut host }, which, arguments, wide);
            prop_assert!(named(&host) <= host.tree.used() && host.tree.used() <= ROOM);
            prop_assert!(host.output.text().0.len() <= 3_000);
        }
        // What is open without a name counts until it is closed.
        for fd in 0..200 {
            let _ = files::close(&mut Guest { memory: &mut memory, host: &mut host }, fd);
        }
        prop_assert_eq!(named(&host), host.tree.used());
    }

    #[test]
    fn no_path_leads_out_of_its_directory(path in "[a./]{0,20}", base in prop_oneof![Just("workspace"), Just("workspace/a/a")]) {
        if let Ok(resolved) = resolve(WORKSPACE, base, &path) {
            prop_assert!(resolved == WORKSPACE || resolved.starts_with("workspace/"));
            prop_assert!(!resolved.split('/').any(|name| name.is_empty() || name == "." || name == ".."));
        }
    }
}
