//! A lane's turn in a pass: its first job starts, waits for something other than nodes, or gets
//! nodes held for it.

use super::{NextLane, Pass, PlacementResult, Unplaced, het, more_tasks, starts};
use crate::order::LaneHead;
use crate::place::node_source::end_after;
use crate::place::{Placement, Shortfall};
use muster_model::job::Reason;

/// The result of trying a lane's first job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visited {
    /// The job started, or waits for something other than nodes.
    Done,
    WaitsForNodes,
}

/// Starts jobs of a lane, or holds nodes for its first job.
pub(super) fn visit(pass: &mut Pass<'_>, next: NextLane) {
    let Some(head) = head_in_turn(pass, next) else {
        return;
    };
    let LaneHead { key, lane } = head;
    let view = pass.s.queue.lane(lane);
    // A backfilled job respects the reservations of all jobs that are first in line; a job that is
    // first itself does not.
    let leads = view.held
        && pass.s.planned.predicts()
        && pass.lists.parts[view.part as usize].head.is_none();
    let het = pass.s.queue.het_of(lane);
    if let Some(place) = het {
        if het::try_het(pass, lane, place, leads) != het::HetResult::Waits {
            return;
        }
    } else if leads || lane_may_fit(pass, lane) {
        if try_lane(pass, head) == Visited::Done {
            return;
        }
    } else if is_limited(pass, lane) {
        // A limit blocks the lane, not a lack of nodes; the next lane in line is then the first
        // that waits for nodes.
        return;
    }
    pass.reserve_for(lane, key, het);
}

/// The first job of a lane that is to be visited; `None` if the lane is visited later or not at
/// all.
fn head_in_turn(pass: &mut Pass<'_>, NextLane { head, in_order }: NextLane) -> Option<LaneHead> {
    let LaneHead { key, lane } = head;
    let part = pass.s.queue.lane(lane).part;
    if pass.lists.parts[part as usize].head.is_none() {
        // Until a job waits here, every lane in line is visited.
        pass.push_next_after(head);
    } else if !pass.backfill {
        return None;
    } else if in_order && pass.s.planned.predicts() {
        pass.put_back(head);
        return None;
    }
    let Some(first) = pass.head(lane) else {
        // All of its jobs start in this pass, or wait for preempted jobs to leave.
        if pass.s.queue.has_claim(lane) {
            pass.s.queue.block(lane, Shortfall::ANYTHING, false);
        }
        return None;
    };
    let now = LaneHead {
        key: pass.s.queue.head_key(lane, key.tier, first),
        lane,
    };
    if now.key != key {
        // Another lane of the shape has started the job that was its head.
        pass.put_back(now);
        return None;
    }
    Some(now)
}

/// Whether the gains of nodes may cover the lane's shortfall.
fn lane_may_fit(pass: &mut Pass<'_>, lane: u32) -> bool {
    if !pass.backfill || pass.s.queue.woken.contains(&lane) {
        return true;
    }
    let length_ms = pass.length_ms(lane);
    let least_ms = pass.s.queue.lane(lane).least_ms.or(length_ms);
    let end = end_after(pass.now, least_ms.min(length_ms).or(least_ms));
    let holds = &pass.reservations.holds;
    pass.s.queue.is_unblocked(&pass.s.fleet, lane, holds, end)
}

fn is_limited(pass: &Pass<'_>, lane: u32) -> bool {
    pass.s
        .queue
        .lane(lane)
        .cause()
        .is_some_and(Reason::is_limit)
}

/// Starts the first job of a lane, now or by preemption, or records why it waits.
fn try_lane(pass: &mut Pass<'_>, head: LaneHead) -> Visited {
    let (lane, job) = (head.lane, head.key.job);
    let PlacementResult {
        placement,
        narrowed,
        cause,
    } = pass.try_now(lane, job);
    pass.s.queue.set_cause(lane, cause);
    if placement == Placement::Scattered {
        pass.wait_for_switches(lane);
    }
    if let Placement::Here(picks) = placement {
        pass.s.queue.wake(&pass.s.fleet, lane);
        let picks = more_tasks::most_tasks(pass, lane, job, picks);
        starts::start(pass, lane, job, &picks);
        pass.put_back(head);
        return Visited::Done;
    }
    let short = match placement {
        Placement::Nowhere(short) => Some(short),
        _ => None,
    };
    let (other, held) = match pass.try_alternatives(head, narrowed, cause, short.is_some()) {
        Unplaced::Settled => {
            pass.s.queue.wake(&pass.s.fleet, lane);
            pass.put_back(head);
            return Visited::Done;
        }
        Unplaced::Waits(short, held) => (short, held),
    };
    let short = short.map_or(Shortfall::ANYTHING, |short| short.or(other));
    pass.s.queue.block(lane, short, narrowed || held);
    if cause.is_some_and(Reason::is_limit) {
        // The job waits for a limit, so other lanes get their turn.
        starts::limited(pass, lane, job);
        return Visited::Done;
    }
    if cause == Some(Reason::Licenses) && !pass.backfill {
        // No nodes are held for a job that waits for something else.
        return Visited::Done;
    }
    Visited::WaitsForNodes
}
