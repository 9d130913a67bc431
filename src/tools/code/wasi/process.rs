//! Calls about the program itself: what it was called with, time, chance, and waiting.

use std::time::Duration;

use super::errno::Errno;
use super::guest::Guest;
use crate::types::clock::now_ms;

/// Clocks, as the interface numbers them.
const WALL: u32 = 0;
const LAST_CLOCK: u32 = 3;
/// The clock is read in steps of a microsecond.
const STEP_NS: u64 = 1_000;
/// Most random bytes that one call may ask for.
const MAX_RANDOM: u32 = 64 << 10;
/// Most things that one call may wait for.
const MAX_WAITS: u32 = 128;
/// The lengths of what is waited for, and of what is told of it.
const SUBSCRIPTION: u32 = 48;
const EVENT: u32 = 32;
/// A time that is no span from now on.
const ABSOLUTE: u8 = 1;

/// Which of the texts a program was started with.
#[derive(Debug, Clone, Copy)]
pub enum Texts {
    /// Its arguments.
    Arguments,
    /// Its environment.
    Environment,
}

fn texts<'g>(guest: &'g Guest<'_>, which: Texts) -> &'g [String] {
    match which {
        Texts::Arguments => &guest.host.arguments,
        Texts::Environment => &guest.host.environment,
    }
}

/// Tells how many texts there are, and how many bytes they take.
pub fn text_sizes(guest: &mut Guest<'_>, which: Texts, count_at: u32, bytes_at: u32) -> Result<(), Errno> {
    let texts = texts(guest, which);
    let (count, bytes) = (texts.len(), texts.iter().map(|text| text.len() + 1).sum());
    guest.put_length(count_at, count)?;
    guest.put_length(bytes_at, bytes)
}

/// Writes the texts, and where each begins.
pub fn put_texts(guest: &mut Guest<'_>, which: Texts, mut list: u32, mut at: u32) -> Result<(), Errno> {
    for text in texts(guest, which).to_vec() {
        guest.put_u32(list, at)?;
        guest.put(at, text.as_bytes())?;
        let end = at.checked_add(u32::try_from(text.len()).map_err(|_| Errno::Overflow)?).ok_or(Errno::Fault)?;
        guest.put(end, &[0])?;
        (list, at) = (list.checked_add(4).ok_or(Errno::Fault)?, end.checked_add(1).ok_or(Errno::Fault)?);
    }
    Ok(())
}

/// Tells how fine a clock is.
pub fn clock_step(guest: &mut Guest<'_>, clock: u32, at: u32) -> Result<(), Errno> {
    if clock > LAST_CLOCK { Err(Errno::Invalid) } else { guest.put_u64(at, STEP_NS) }
}

/// Tells the time.
pub fn clock_time(guest: &mut Guest<'_>, clock: u32, at: u32) -> Result<(), Errno> {
    let now = clock_ns(guest, clock)?;
    guest.put_u64(at, now / STEP_NS * STEP_NS)
}

fn clock_ns(guest: &Guest<'_>, clock: u32) -> Result<u64, Errno> {
    let asleep = nanos(guest.host.asleep);
    match clock {
        WALL => Ok(now_ms().saturating_mul(1_000_000).saturating_add(asleep)),
        clock if clock <= LAST_CLOCK => Ok(nanos(guest.host.began.elapsed()).saturating_add(asleep)),
        _ => Err(Errno::Invalid),
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Fills memory with random bytes.
pub fn random(guest: &mut Guest<'_>, at: u32, length: u32) -> Result<(), Errno> {
    if length > MAX_RANDOM {
        return Err(Errno::Invalid);
    }
    getrandom::fill(guest.bytes_mut(at, length)?).map_err(|_| Errno::NotSupported)
}

/// Waits until the first of some things happens. All descriptors are ready at once, and time that nothing else ends passes
/// at once.
pub fn wait(guest: &mut Guest<'_>, list: u32, told: u32, count: u32, happened_at: u32) -> Result<(), Errno> {
    if count == 0 || count > MAX_WAITS {
        return Err(Errno::Invalid);
    }
    let (mut events, mut shortest) = (Vec::new(), None);
    for index in 0..count {
        let at = list.checked_add(index * SUBSCRIPTION).ok_or(Errno::Fault)?;
        let wanted = guest.bytes(at, SUBSCRIPTION)?.to_vec();
        let number = |at: usize| wanted[at..at + 8].try_into().map(u64::from_le_bytes).map_err(|_| Errno::Fault);
        let (id, kind) = (number(0)?, wanted[8]);
        if kind > 2 {
            return Err(Errno::Invalid);
        }
        if kind != 0 {
            let fd = u32::try_from(number(16)? & 0xffff_ffff).map_err(|_| Errno::Fault)?;
            let error = guest.host.descriptors.get(fd).err();
            events.push((id, kind, error));
            continue;
        }
        let clock = u32::try_from(number(16)? & 0xffff_ffff).map_err(|_| Errno::Fault)?;
        let mut time = number(24)?;
        if wanted[40] & ABSOLUTE != 0 {
            time = time.saturating_sub(clock_ns(guest, clock)?);
        }
        if shortest.is_none_or(|(shortest, _)| time < shortest) {
            shortest = Some((time, id));
        }
    }
    if let (true, Some((time, id))) = (events.is_empty(), shortest) {
        guest.host.asleep = guest.host.asleep.saturating_add(Duration::from_nanos(time));
        events.push((id, 0, None));
    }
    for (index, (id, kind, error)) in (0..).zip(&events) {
        let mut event = [0; EVENT as usize];
        event[..8].copy_from_slice(&id.to_le_bytes());
        event[8] = error.map_or(0, |error| error as u8);
        event[10] = *kind;
        let at = told.checked_add(index * EVENT).ok_or(Errno::Fault)?;
        guest.put(at, &event)?;
    }
    guest.put_length(happened_at, events.len())
}
