//! Components of a heterogeneous job are placed together: on the nodes as they are, or at the earliest time at which
//! all of them fit side by side.

use crate::demand::Demand;
use crate::fleet::Fleet;
use crate::ground::{Holds, Running, earliest_from, promise};
use crate::place::Pick;
use muster_core::time::Timestamp;

/// Times that are tried for all components at most, so that a job of many parts cannot hold up a pass.
const TIMES_MAX: usize = 1000;

/// One component: where it may run and what it needs there, in its order.
pub(crate) struct Member<'a> {
    pub(crate) lanes: Vec<(u32, &'a Demand)>,
    /// Since when it could run on more leaf switches than it asks for, if it could.
    pub(crate) waited: Option<Timestamp>,
}

/// Where a component would run: the place in its list of lanes, and the nodes.
pub(crate) type Found = (usize, Vec<Pick>);

/// The earliest time at which all members fit at once, now included, and where. What they take is added to `holds`.
pub(crate) fn earliest_together(
    members: &[Member<'_>],
    fleet: &Fleet,
    holds: &mut Holds,
    running: &Running<'_>,
    now: Timestamp,
) -> Option<(Timestamp, Vec<Found>)> {
    // After the last end and the last promise nothing changes any more.
    let promised = holds.values().flatten().map(|hold| hold.end);
    let finite = |time: &Timestamp| time.0 < i64::MAX;
    let last = promised.filter(finite).chain(running.last_end(now)).max();
    let reserved = members.iter().flat_map(|member| &member.lanes);
    let reserved = reserved.filter_map(|(part, _)| {
        let part = &fleet.parts[*part as usize];
        fleet.blocks.ends(part, now).pop_last()
    });
    let last = reserved.chain(last).max().unwrap_or(now);
    let mut at = now;
    for _ in 0..TIMES_MAX {
        match arrange(members, fleet, holds, running, (now, at)) {
            Arranged::Together(taken, found) => {
                *holds = taken;
                return Some((at, found));
            }
            Arranged::NotBefore(time) if time > at && at <= last => at = time,
            Arranged::NotBefore(_) | Arranged::Never => return None,
        }
    }
    None
}

/// What came of placing all members at one time.
enum Arranged {
    Together(Holds, Vec<Found>),
    /// One of them fits only from that time on.
    NotBefore(Timestamp),
    Never,
}

/// Places all members at a time, one after another; one that finds no place beside those before it comes first.
fn arrange(
    members: &[Member<'_>],
    fleet: &Fleet,
    holds: &Holds,
    running: &Running<'_>,
    (now, at): (Timestamp, Timestamp),
) -> Arranged {
    let mut order: Vec<usize> = (0..members.len()).collect();
    let mut next: Option<Timestamp> = None;
    for _ in 0..members.len() {
        let mut taken = holds.clone();
        let mut found: Vec<Found> = vec![Found::default(); members.len()];
        let mut late = None;
        for (place, &number) in order.iter().enumerate() {
            let member = &members[number];
            let first = first_of(member, fleet, &taken, running, (now, at));
            let Some((start, lane, picks)) = first else {
                return Arranged::Never;
            };
            if start > at {
                next = Some(next.map_or(start, |known| known.min(start)));
                late = Some(place);
                break;
            }
            let (part, demand) = member.lanes[lane];
            let on = (fleet, &fleet.parts[part as usize]);
            promise(&mut taken, demand, on, (at, &picks), running, now);
            found[number] = (lane, picks);
        }
        match late {
            None => return Arranged::Together(taken, found),
            // It does not fit alone either.
            Some(0) => break,
            Some(place) => {
                let first = order.remove(place);
                order.insert(0, first);
            }
        }
    }
    next.map_or(Arranged::Never, Arranged::NotBefore)
}

/// The earliest of a member's lanes from a time on.
fn first_of(
    member: &Member<'_>,
    fleet: &Fleet,
    holds: &Holds,
    running: &Running<'_>,
    (now, from): (Timestamp, Timestamp),
) -> Option<(Timestamp, usize, Vec<Pick>)> {
    let mut best: Option<(Timestamp, usize, Vec<Pick>)> = None;
    for (lane, (part, demand)) in member.lanes.iter().enumerate() {
        let place = (fleet, &fleet.parts[*part as usize]);
        let times = (now, Some(from));
        let found = earliest_from(demand, place, holds, running, times, member.waited);
        if let Some((at, picks)) = found
            && best.as_ref().is_none_or(|(known, ..)| at < *known)
        {
            best = Some((at, lane, picks));
        }
    }
    best
}
