//! Numbers of the interface: times, limits and amounts in the widths and with the marks that structures have.

use crate::abi::members::OwnedBlock;
use crate::names::INFINITE;
use libc::time_t;
use muster_model::job::ExitStatus;
use muster_model::time::{TimeLimit, Timestamp};

/// `MEM_PER_CPU`.
pub const PER_CPU: u64 = 1 << 63;
/// `NICE_OFFSET`.
pub const NICE_OFFSET: u32 = 1 << 31;
/// Seconds since 1970, 0 for no time.
pub fn seconds(at: Option<Timestamp>) -> time_t {
    at.map_or(0, Timestamp::unix_s)
}

/// Minutes of a limit.
pub fn minutes(limit: TimeLimit) -> u32 {
    match limit {
        TimeLimit::Minutes(minutes) => minutes,
        TimeLimit::Unlimited => INFINITE,
    }
}

/// A number in 16 bits.
pub fn short(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

/// As wait(2) has it.
pub fn wait_status(exit: ExitStatus) -> u32 {
    exit.code << 8 | exit.signal
}

/// First and last places of nodes, with -1 behind the last.
pub fn ranges(mut places: Vec<u32>) -> OwnedBlock<i32> {
    places.sort_unstable();
    places.dedup();
    let mut pairs: Vec<i32> = Vec::new();
    for place in places {
        let place = i32::try_from(place).unwrap_or(i32::MAX);
        match pairs.last_mut() {
            Some(last) if *last + 1 == place => *last = place,
            _ => pairs.extend([place, place]),
        }
    }
    pairs.push(-1);
    OwnedBlock::of(&pairs)
}
