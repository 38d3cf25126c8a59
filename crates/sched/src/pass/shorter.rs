//! `--time-min`: a job that accepts less time than it requests starts in a gap that is too short
//! for its full limit, with as much time as the gap allows.

use super::Pass;
use crate::demand::pick::Pick;
use crate::place::node_source::{CurrentNodes, end_after};
use crate::place::{NodeSource as _, Placement, Shortfall, choose};
use muster_model::ids::JobId;
use muster_model::time::{TimeLimit, Timestamp};
use std::cell::Cell;
use std::collections::BTreeSet;

/// Milliseconds of a minute, the unit of time limits.
const MINUTE_MS: u64 = 60_000;

/// Nodes on which a job of the lane could start now with a shorter limit, at least its
/// `--time-min`, and that limit.
///
/// # Errors
/// The shortfall even with the shortest limit.
pub(super) fn try_shorter(
    pass: &mut Pass<'_>,
    lane: u32,
    job: JobId,
) -> Result<(Vec<Pick>, TimeLimit), Shortfall> {
    // The job accepts no shorter limit.
    let as_it_is = Err(Shortfall::NO_NODES);
    let spec = pass.state.jobs.get(&job).map(|job| &job.spec);
    let least = spec.and_then(|spec| spec.time_min);
    let Some(least_s) = least.and_then(|least| least.seconds()) else {
        return as_it_is;
    };
    let (least_ms, lane) = (least_s.saturating_mul(1000), pass.s.queue.lane(lane));
    let Ok(demand) = &lane.demand else {
        return as_it_is;
    };
    if demand.length_ms.is_some_and(|ms| ms <= least_ms) {
        return as_it_is;
    }
    let part = &pass.s.fleet.parts[lane.part as usize];
    let least = end_after(pass.now, Some(least_ms));
    let source = until(pass, lane.part, least);
    let switches = demand.switches.map(|limit| limit.most);
    let found = choose(demand, &pass.s.fleet, part, &source, switches);
    let visited = source.visited.get();
    let tries = source.tries.get();
    let picks = match found {
        Placement::Here(picks) => picks,
        Placement::Nowhere(short) => {
            pass.s.cost.nodes_visited += visited;
            pass.s.cost.socket_tries += tries;
            return Err(short);
        }
        Placement::Scattered => {
            pass.s.cost.nodes_visited += visited;
            pass.s.cost.socket_tries += tries;
            return Err(Shortfall::ANYTHING);
        }
    };
    // Reservations for other jobs on these nodes begin at certain times; the job can run until one
    // of them.
    let full = end_after(pass.now, demand.length_ms);
    let holds = picks.iter().map(|p| pass.reservations.holds.of(p.node));
    let starts: BTreeSet<Timestamp> = holds.flatten().map(|hold| hold.start).collect();
    let between = starts.into_iter().rev().filter(|t| *t > least && *t < full);
    let longest = between.chain([least]).find(|end| {
        let source = until(pass, lane.part, *end);
        picks.iter().all(|pick| {
            let class = pass.s.fleet.nodes[pick.node as usize].class;
            let room = source.room(part.pos_of[pick.node as usize] as usize);
            demand.tasks_in(&pass.s.fleet.classes[class as usize], &room) >= pick.tasks.max(1)
        })
    });
    pass.s.cost.nodes_visited += visited;
    pass.s.cost.socket_tries += tries;
    let minutes = longest.map_or(0, |end| end.since_ms(pass.now) / MINUTE_MS);
    match u32::try_from(minutes).ok().filter(|m| *m > 0) {
        Some(minutes) => Ok((picks, TimeLimit::Minutes(minutes))),
        None => Err(Shortfall::ANYTHING),
    }
}

/// The nodes of a partition for a job that ends at this time.
fn until<'b>(pass: &'b Pass<'_>, part: u32, end: Timestamp) -> CurrentNodes<'b> {
    CurrentNodes {
        fleet: &pass.s.fleet,
        part: &pass.s.fleet.parts[part as usize],
        holds: &pass.reservations.holds,
        closed: &pass.reservations.closed,
        end,
        latest: end,
        narrowed: Cell::new(false),
        reserved: Cell::new(None),
        visited: Cell::new(0),
        tries: Cell::new(0),
        shared: false,
    }
}
