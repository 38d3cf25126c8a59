//! Preemption: chooses the running jobs that make room for a waiting job, as few as possible and of
//! the lowest rank. Jobs that are already ending count before others are chosen. Resources that
//! become free are held for the waiting job: nodes, and licenses if these are reclaimed.

mod preemptable;

pub(crate) use self::preemptable::PreemptableJobs;

use self::preemptable::VictimKey;
use super::{reservations, starts};
use crate::NODES_PER_PASS_MAX;
use crate::demand::licenses::{LicenseDue, Licenses, Span};
use crate::demand::pick::Pick;
use crate::nodes::allocations::{EndOnNode, JobEnds};
use crate::nodes::fleet::Fleet;
use crate::order::LaneHead;
use crate::pass::Pass;
use crate::place::after_preemption::{AfterPreemption, StoppedCpus};
use crate::place::holds::Holds;
use crate::place::{Placement, Shortfall, choose};
use muster_core::state::{Priorities, State};
use muster_model::command::PlannedPreemption;
use muster_model::cpuset::CpuSet;
use muster_model::ids::JobId;
use muster_model::job::Job;
use muster_model::licenses::Counts;
use muster_model::preemption::PreemptMode;
use muster_model::time::Timestamp;
use std::cell::{Cell, OnceCell};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of waiting jobs for which one pass makes room; the others follow when those have
/// started.
const CLAIMS_MAX: usize = 64;
/// Number of chosen victims that are checked one by one for whether they can be spared.
const SPARED_MAX: usize = 128;
/// Number of times that other victims are chosen for a job because it would not keep the room of those chosen before.
const OTHERS_MAX: usize = 3;
/// Number of nodes, and of what jobs leave on them, that one pass looks at for room that is refused before it chooses no
/// other victims.
const REFUSED_NODES_MAX: u64 = NODES_PER_PASS_MAX;

/// Number of nodes, and of what jobs leave on them, that one pass looks at to choose victims. A pass whose successor goes on
/// where it ended ends then; another makes no more room.
const VICTIM_NODES_MAX: u64 = NODES_PER_PASS_MAX;

/// The result of an attempt to preempt jobs for a waiting one.
pub(crate) enum PreemptOutcome {
    /// The job starts, or waits for preempted jobs to leave.
    Settled,
    /// Preemption cannot make room. Contains what nodes lack after all possible victims have left,
    /// and whether reservations for other jobs prevented a placement.
    Short(Shortfall, bool),
}

/// A job whose shares of nodes become free.
#[derive(Clone, Copy)]
struct FreedShares<'s> {
    job: &'s Job,
    /// True if the job ends and returns all of its resources; false if it is stopped and returns
    /// only CPUs.
    whole: bool,
    /// The time at which the job leaves: the end of its grace time, if it has any.
    at: Timestamp,
}

impl<'s> FreedShares<'s> {
    fn of(pass: &Pass<'_>, job: &'s Job, whole: bool) -> FreedShares<'s> {
        let at = match job.grace_end() {
            _ if job.completing || !whole => pass.now,
            Some(end) => end.max(pass.now),
            None => pass.now.plus_s(u64::from(pass.state.grace_s(job))),
        };
        FreedShares { job, whole, at }
    }
}

/// A possible victim, in the order of victims.
#[derive(Clone, Copy)]
struct VictimCandidate<'s> {
    key: VictimKey,
    release: FreedShares<'s>,
}

/// The chosen victims, and the room that they make.
struct VictimChoice<'s> {
    picks: Vec<Pick>,
    jobs: Vec<FreedShares<'s>>,
}

/// Jobs that make room without being chosen.
struct AlreadyLeaving<'s> {
    /// Jobs that are stopped and that the waiting job could have stopped.
    stopped: Vec<FreedShares<'s>>,
    /// Jobs that are leaving: in their grace time, chosen earlier in this pass, or being cleaned
    /// up.
    leaving: Vec<FreedShares<'s>>,
    /// Jobs that are stopped and that the waiting job may not preempt. They go on when their resources are free.
    others: Vec<&'s Job>,
}

/// A way to make room.
struct RoomPlan<'s> {
    picks: Vec<Pick>,
    victims: Vec<FreedShares<'s>>,
    /// All jobs whose shares the plan uses.
    freed: Vec<FreedShares<'s>>,
    /// Whether the job can start now, without waiting for a job to leave.
    now: bool,
}

/// Makes room for the next job of a lane that does not fit, if preemption is allowed. `nowhere`
/// says that the job lacks nodes, and not only nodes that are close to each other.
pub(super) fn preempt<'a>(
    pass: &mut Pass<'a>,
    lane: u32,
    id: JobId,
    nowhere: bool,
) -> PreemptOutcome {
    let state = pass.state;
    let Some(waiting) = state.jobs.get(&id) else {
        return PreemptOutcome::Short(Shortfall::NO_NODES, false);
    };
    if !nowhere || !pass.s.queue.lane(lane).preempts {
        return PreemptOutcome::Short(Shortfall::NO_NODES, false);
    }
    let is_costly = pass.s.cost.victim_nodes >= VICTIM_NODES_MAX;
    if pass.claimed >= CLAIMS_MAX || is_costly {
        return PreemptOutcome::Short(Shortfall::ANYTHING, true);
    }
    let part = pass.s.queue.lane(lane).part;
    let name = pass.s.fleet.parts[part as usize].config.name.clone();
    let own = OnceCell::new();
    let is_higher = |victim: &'a Job| {
        let own = own.get_or_init(|| priority_in(pass, waiting, &name));
        *own > priority_in(pass, victim, &victim.partition)
    };
    let outranked = |job: &'a Job| state.outranks(waiting, &name, job, || is_higher(job));
    let going = going(pass, outranked);
    let preemptable = &pass.s.preemptable;
    let candidate = |key: &VictimKey| {
        let job = state.jobs.get(&key.job).filter(|job| outranked(job))?;
        let whole = state.preempt_mode(job) != PreemptMode::Suspend;
        let release = FreedShares::of(pass, job, whole);
        Some(VictimCandidate { key: *key, release })
    };
    let may_be_chosen = |key: &&VictimKey| {
        let is_chosen = pass.chosen.contains_key(&key.job);
        !is_chosen && preemptable.of[&key.job].until <= pass.now
    };
    let victims = preemptable.by_key.iter().filter(may_be_chosen);
    let mut candidates: Vec<VictimCandidate<'a>> = victims.filter_map(candidate).collect();
    // Also those that the waiting job may not preempt: each was compared with it.
    pass.s.cost.victim_nodes += (preemptable.by_key.len() + preemptable.aside.len()) as u64;
    let mut refused = 0;
    let room = loop {
        let Some(search) = VictimSearch::new(pass, lane, &going.others) else {
            return PreemptOutcome::Short(Shortfall::NO_NODES, false);
        };
        let found = search.find_room(&going, &candidates, state);
        let (short, held) = (search.short.get(), search.narrowed.get());
        let looked_at = search.looked_at.get();
        pass.s.cost.nodes_visited += 1 + candidates.len() as u64;
        pass.s.cost.victim_nodes += looked_at;
        let room = match found {
            Some(room) => room,
            None if refused == 0 => return PreemptOutcome::Short(short, held),
            None => return PreemptOutcome::Short(Shortfall::ANYTHING, true),
        };
        if starts::limit_on(pass, lane, id, &room.picks).is_some() {
            return PreemptOutcome::Short(Shortfall::ANYTHING, held || refused > 0);
        }
        if room.now || keeps_room(pass, lane, &room, &going.others) {
            break room;
        }
        let is_costly = pass.s.cost.refused_nodes >= REFUSED_NODES_MAX;
        pass.s.cost.refused_nodes += looked_at;
        if refused == OTHERS_MAX || is_costly {
            return PreemptOutcome::Short(Shortfall::ANYTHING, true);
        }
        refused += 1;
        let before: BTreeSet<JobId> = room.victims.iter().map(|victim| victim.job.id).collect();
        candidates.retain(|candidate| !before.contains(&candidate.key.job));
    };
    for victim in &room.victims {
        pass.chosen.insert(victim.job.id, !victim.whole);
        pass.plan.preemptions.push(PlannedPreemption {
            victim: victim.job.id,
            by: id,
            partition: name.clone(),
        });
    }
    if room.now {
        start_in_place_of(pass, lane, id, &room);
    } else {
        claim(pass, lane, id, (&room, &going.others));
    }
    if !room.victims.is_empty() {
        look_again_behind(pass, lane);
    }
    PreemptOutcome::Settled
}

/// Whether the job still has the room when those who make it have left. Reservations of jobs before it in line are made
/// again then; one that is brought forward by the same room may take it, so that victims would have ended for nobody.
fn keeps_room(pass: &mut Pass<'_>, lane: u32, room: &RoomPlan<'_>, others: &[&Job]) -> bool {
    let state = pass.state;
    let leave = |victim: FreedShares<'_>| {
        let (job, at) = (victim.job.id, victim.at);
        let held = victim.job.held();
        let nodes = held.map(|(share, _)| share.node.0).collect::<Vec<u32>>();
        nodes.into_iter().map(move |node| {
            let (planned, limit) = (at, at);
            let ends = JobEnds {
                job,
                planned,
                limit,
            };
            EndOnNode { node, ends }
        })
    };
    let victims = room.victims.iter().filter(|victim| victim.whole).copied();
    let mut ends: Vec<EndOnNode> = victims.flat_map(leave).collect();
    if ends.is_empty() {
        return true;
    }
    let nodes = ends.iter().map(|end| end.node).collect();
    let all_gone = ends.iter().map(|end| end.ends.planned).max();
    // Jobs chosen for others in this pass leave too, and the reservations were made as if they stayed.
    let chosen = pass.chosen.iter().filter(|(_, stops)| !**stops);
    let chosen = chosen.filter_map(|(id, _)| state.jobs.get(id));
    ends.extend(chosen.flat_map(|job| leave(FreedShares::of(pass, job, true))));
    pass.s.fleet.swap_ends(&mut ends);
    let holds = reservations::made_anew(pass, &nodes, all_gone.unwrap_or(pass.now));
    let keeps = holds.is_none_or(|holds| {
        let search = VictimSearch::new(pass, lane, others);
        search.is_none_or(|mut search| {
            search.holds = &holds;
            search.place(&room.freed, Departure::Later).is_some()
        })
    });
    pass.s.fleet.swap_ends(&mut ends);
    keeps
}

/// A job's priority in a partition. Factors are worked out once a pass for all jobs that have the same.
fn priority_in<'a>(pass: &Pass<'a>, job: &'a Job, partition: &str) -> u32 {
    let mut priorities = pass.priorities.borrow_mut();
    if priorities.is_none() {
        *priorities = Priorities::new(pass.state);
    }
    let priorities = priorities.as_mut();
    priorities.map_or(job.priority, |all| all.of_in(job, partition))
}

/// Preempted jobs may leave more than the preempting job needs, enough for later jobs.
fn look_again_behind(pass: &mut Pass<'_>, lane: u32) {
    let view = pass.s.queue.lane(lane);
    let Some(key) = view.key else { return };
    let component = pass.s.fleet.parts[view.part as usize].component;
    let parts = pass.s.queue.parts.iter().zip(&pass.s.fleet.parts);
    let behind = parts
        .filter(|(_, view)| view.component == component)
        .flat_map(|(part, _)| part.order.range(LaneHead { key, lane }..))
        .map(|other| other.lane)
        .filter(|other| *other != lane && pass.s.queue.lane(*other).preempts);
    for other in behind.collect::<Vec<u32>>() {
        pass.s.queue.wake(&pass.s.fleet, other);
        pass.push(other);
    }
    pass.s.queue.touched.clear();
}

/// Jobs that make room without being chosen for this one.
fn going<'a>(pass: &Pass<'a>, outranked: impl Fn(&'a Job) -> bool) -> AlreadyLeaving<'a> {
    let state = pass.state;
    let (mut stopped, mut leaving, mut others) = (Vec::new(), Vec::new(), Vec::new());
    let known = |id: &JobId| state.jobs.get(id);
    for job in pass.s.preemptable.aside.iter().filter_map(known) {
        if !job.is_stopped_for_another() {
            leaving.push(FreedShares::of(pass, job, true));
        } else if outranked(job) {
            stopped.push(FreedShares::of(pass, job, false));
        } else {
            others.push(job);
        }
    }
    let chosen = pass.chosen.iter().filter(|(_, stops)| !**stops);
    let chosen = chosen.map(|(id, _)| id);
    for job in chosen.chain(&pass.s.completing).filter_map(known) {
        leaving.push(FreedShares::of(pass, job, true));
    }
    AlreadyLeaving {
        stopped,
        leaving,
        others,
    }
}

/// Starts a job on the CPUs of stopped jobs.
fn start_in_place_of(pass: &mut Pass<'_>, lane: u32, id: JobId, room: &RoomPlan<'_>) {
    let mut freed: Vec<(u32, CpuSet)> = Vec::new();
    for pick in &room.picks {
        let mut cpus = CpuSet::default();
        for FreedShares { job, .. } in &room.freed {
            for (share, _) in job.held().filter(|(s, _)| s.node.0 == pick.node) {
                cpus.union_with(
                    &pass
                        .s
                        .fleet
                        .free_stopped(share, !job.cpus_released_by_preemption),
                );
            }
        }
        freed.push((pick.node, cpus));
    }
    starts::start(pass, lane, id, &room.picks);
    for (node, cpus) in freed {
        pass.s.fleet.keep_for_stopped(node, &cpus);
        // The job took more than partitions had gained.
        for &part in &pass.s.fleet.nodes[node as usize].parts {
            pass.s.queue.parts[part as usize]
                .fresh
                .recount(&pass.s.fleet);
        }
    }
}

/// Holds the resources that become free for the job.
fn claim(pass: &mut Pass<'_>, lane: u32, id: JobId, made: (&RoomPlan<'_>, &[&Job])) {
    let (room, others) = made;
    let (made, licenses) = {
        let Some(search) = VictimSearch::new(pass, lane, others) else {
            return;
        };
        // Others that leave do not count here: the job does not wait for them.
        let nodes = nodes_of(&room.picks);
        let helps =
            |freed: &&FreedShares<'_>| is_near(freed.job, &nodes) || search.has_licenses(freed.job);
        let freed: Vec<FreedShares<'_>> = room.freed.iter().filter(helps).copied().collect();
        let after_preemption = search.without(&freed, Departure::Later);
        let made = after_preemption.pledge(search.demand, &room.picks);
        (made, search.licenses(&freed).unwrap_or_default())
    };
    let made = Arc::new(made);
    pass.reservations.holds.add(&made);
    pass.budget.licenses.keep(pass.now, licenses);
    pass.reservations
        .ends
        .extend(made.first().map(|hold| hold.end));
    pass.claimed += 1;
    pass.s.queue.claim(&pass.s.fleet, lane, id);
    starts::took_its_turn(pass, id);
}

/// When jobs leave.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Departure {
    /// Resources that jobs that leave in any case give back, and when.
    AtOnce,
    /// Some of them end first. Meanwhile stopped jobs may go on.
    Later,
}

/// Resources that jobs that leave in any case give back, and when.
#[derive(Clone, Copy)]
struct FreedRoom<'a, 's> {
    freed: &'a [FreedShares<'s>],
    departure: Departure,
}

/// The nodes on which a job would run.
fn nodes_of(picks: &[Pick]) -> BTreeSet<u32> {
    picks.iter().map(|pick| pick.node).collect()
}

/// Whether a job has one of these nodes.
fn is_near(job: &Job, nodes: &BTreeSet<u32>) -> bool {
    job.held().any(|(share, _)| nodes.contains(&share.node.0))
}

/// A job's search for room.
struct VictimSearch<'a> {
    fleet: &'a Fleet,
    part: &'a crate::nodes::fleet::PartView,
    demand: &'a crate::demand::Demand,
    holds: &'a Holds,
    closed: &'a [bool],
    others: StoppedCpus,
    now: Timestamp,
    licensing: Licensing<'a>,
    /// Licenses are missing: other jobs may have to leave because of the licenses that they use.
    lacks_licenses: bool,
    /// The shortfall of the last attempt.
    short: Cell<Shortfall>,
    /// Reservations for other jobs have reduced the room of nodes.
    narrowed: Cell<bool>,
    /// Number of nodes, and of what jobs leave on them, that were looked at.
    looked_at: Cell<u64>,
}

/// Licenses that exist, and those that a job requests.
#[derive(Clone, Copy)]
struct Licensing<'a> {
    available: &'a Licenses,
    asked: &'a [Counts],
    /// Includes the reservation whose licenses the job may use.
    span: Span<'a>,
}

impl<'a> VictimSearch<'a> {
    /// `others`: stopped jobs that the waiting job may not preempt.
    fn new(pass: &'a Pass<'_>, lane: u32, others: &[&Job]) -> Option<VictimSearch<'a>> {
        let view = pass.s.queue.lane(lane);
        let demand = view.demand.as_ref().ok()?;
        let span = pass.span(view, demand);
        let fleet = &pass.s.fleet;
        let part = &fleet.parts[view.part as usize];
        Some(VictimSearch {
            fleet,
            part,
            demand,
            holds: &pass.reservations.holds,
            closed: &pass.reservations.closed,
            others: StoppedCpus::new(fleet, part, others.iter().copied()),
            now: pass.now,
            licensing: Licensing {
                available: &pass.budget.licenses,
                asked: &view.licenses,
                span,
            },
            lacks_licenses: pass
                .budget
                .licenses
                .to_be_had(&view.licenses, span)
                .is_none(),
            short: Cell::new(Shortfall::ANYTHING),
            narrowed: Cell::new(false),
            looked_at: Cell::new(0),
        })
    }

    /// The nodes after these jobs have left.
    fn without(&self, freed: &[FreedShares<'_>], departure: Departure) -> AfterPreemption<'_> {
        let times = (self.now, self.demand.length_ms);
        let mut after_preemption = AfterPreemption::new(self.fleet, self.part, self.holds, times);
        if departure == Departure::Later {
            after_preemption.leave_to(&self.others);
            let here = |freed: &&FreedShares<'_>| self.has_nodes_of(freed.job);
            let last = freed.iter().filter(here).map(|freed| freed.at).max();
            after_preemption.start_after(last.unwrap_or(self.now));
        }
        let mut looked_at = self.part.order.len() as u64;
        for FreedShares { job, whole, .. } in freed {
            for (share, _) in job.held() {
                after_preemption.release_of(job, share, *whole);
                looked_at += 1;
            }
        }
        self.looked_at.set(self.looked_at.get() + looked_at);
        after_preemption
    }

    /// Whether a job has nodes of the partition.
    fn has_nodes_of(&self, job: &Job) -> bool {
        job.held().any(|(share, _)| self.part.has(share.node.0))
    }

    /// Finds nodes, and the jobs that leave them.
    fn find_room<'s>(
        &self,
        going: &AlreadyLeaving<'s>,
        candidates: &[VictimCandidate<'s>],
        state: &State,
    ) -> Option<RoomPlan<'s>> {
        let AlreadyLeaving {
            stopped, leaving, ..
        } = going;
        let of = |picks, victims: Vec<FreedShares<'s>>, freed, now| RoomPlan {
            picks,
            victims,
            freed,
            now,
        };
        let at_once = |freed: &[FreedShares<'s>]| {
            let picks = self.place(freed, Departure::AtOnce);
            picks.filter(|picks| self.can_take(picks))
        };
        if !stopped.is_empty()
            && let Some(picks) = at_once(stopped)
        {
            return Some(of(picks, Vec::new(), stopped.clone(), true));
        }
        let mut base = stopped.clone();
        base.extend(leaving);
        let mut found = self.room_beside(&base, candidates, state);
        if found.is_none() && base.iter().any(|leaving| leaving.at > self.now) {
            // The job need not wait for those who leave for others after a grace time.
            let short = self.short.get();
            base.retain(|leaving| leaving.at <= self.now);
            found = self.room_beside(&base, candidates, state);
            self.short.set(short.or(self.short.get()));
        }
        let Some(VictimChoice {
            picks,
            jobs: victims,
        }) = found
        else {
            let VictimChoice { picks, jobs } = self.victims_at_once(stopped, candidates, state)?;
            let mut freed = stopped.clone();
            freed.extend(&jobs);
            return Some(of(picks, jobs, freed, true));
        };
        if victims.is_empty() {
            return Some(of(picks, victims, base, false));
        }
        // If jobs only have to stop, the job starts in their place.
        if victims.iter().all(|victim| !victim.whole) {
            let mut freed = stopped.clone();
            freed.extend(&victims);
            if let Some(picks) = at_once(&freed) {
                return Some(of(picks, victims, freed, true));
            }
        }
        let mut chosen = victims.clone();
        let nodes = nodes_of(&picks);
        let ends_there = |freed: &FreedShares<'_>| freed.whole && is_near(freed.job, &nodes);
        if leaving.iter().chain(&victims).any(ends_there) {
            // Nobody stops before the others have left: the job stops them in the moment in which it starts. Meanwhile
            // stopped jobs may go on, and then reservations for other jobs are brought forward.
            chosen.retain(|victim| victim.whole);
        }
        base.extend(&victims);
        Some(of(picks, chosen, base, false))
    }

    /// Nodes that these jobs leave, and jobs to choose besides if they do not suffice.
    fn room_beside<'s>(
        &self,
        base: &[FreedShares<'s>],
        candidates: &[VictimCandidate<'s>],
        state: &State,
    ) -> Option<VictimChoice<'s>> {
        if let Some(picks) = self.place(base, Departure::Later) {
            let jobs = Vec::new();
            return Some(VictimChoice { picks, jobs });
        }
        let base = FreedRoom {
            freed: base,
            departure: Departure::Later,
        };
        self.victims(base, candidates, state)
    }

    /// Jobs to stop in the moment in which the waiting job starts, if these have CPUs of stopped jobs that it may not
    /// preempt.
    fn victims_at_once<'s>(
        &self,
        stopped: &[FreedShares<'s>],
        candidates: &[VictimCandidate<'s>],
        state: &State,
    ) -> Option<VictimChoice<'s>> {
        if self.others.is_empty() {
            return None;
        }
        let stops = candidates.iter().filter(|c| !c.release.whole).copied();
        let stops: Vec<VictimCandidate<'s>> = stops.collect();
        let short = self.short.get();
        let found = self.victims(
            FreedRoom {
                freed: stopped,
                departure: Departure::AtOnce,
            },
            &stops,
            state,
        );
        self.short.set(short.or(self.short.get()));
        found.filter(|found| self.can_take(&found.picks))
    }

    /// The best result of two searches: one looks at small or young jobs first, the other at large
    /// ones.
    fn victims<'s>(
        &self,
        base: FreedRoom<'_, 's>,
        candidates: &[VictimCandidate<'s>],
        state: &State,
    ) -> Option<VictimChoice<'s>> {
        if candidates.is_empty() {
            return None;
        }
        let best = self.greedy(base, candidates)?;
        let settings = state.preemption();
        if settings.is_some_and(|s| s.strict_order || s.youngest_first) {
            return Some(best);
        }
        let mut large = candidates.to_vec();
        large.sort_by_key(|candidate| {
            let key = &candidate.key;
            (key.rank, Reverse(key.cpus), key.start, key.job)
        });
        let Some(other) = self.greedy(base, &large) else {
            return Some(best);
        };
        let cost = |victims: &[FreedShares<'s>]| {
            let ranks = victims.iter().map(|victim| state.preempt_rank(victim.job));
            let cpus = victims
                .iter()
                .filter_map(|victim| victim.job.alloc.as_ref());
            (
                ranks.max(),
                victims.len(),
                cpus.map(|a| a.cpus()).sum::<u64>(),
            )
        };
        Some(if cost(&other.jobs) < cost(&best.jobs) {
            other
        } else {
            best
        })
    }

    /// The licenses that the job requests, if enough are free after these jobs have left. A job
    /// that is only stopped keeps its licenses.
    fn licenses(&self, freed: &[FreedShares<'_>]) -> Option<Vec<LicenseDue>> {
        let Licensing {
            available,
            asked,
            span,
        } = self.licensing;
        if asked.is_empty() {
            return Some(Vec::new());
        }
        let ended = freed.iter().filter(|release| release.whole);
        let ended: Vec<&Job> = ended.map(|release| release.job).collect();
        available.without(asked, span, &ended)
    }

    /// Whether a job uses some of the missing licenses.
    fn has_licenses(&self, job: &Job) -> bool {
        let held = job.alloc.iter().flat_map(|alloc| &alloc.licenses);
        let mut held = held.map(|license| &license.name);
        let asked = || self.licensing.asked.iter().flatten().map(|l| &l.name);
        self.lacks_licenses && held.any(|name| asked().any(|n| n == name))
    }

    fn place(&self, freed: &[FreedShares<'_>], departure: Departure) -> Option<Vec<Pick>> {
        self.licenses(freed)?;
        let after_preemption = self.without(freed, departure);
        let switches = self.demand.switches.map(|limit| limit.most);
        let placement = choose(
            self.demand,
            self.fleet,
            self.part,
            &after_preemption,
            switches,
        );
        self.narrowed
            .set(self.narrowed.get() || after_preemption.narrowed.get());
        self.short.set(match placement {
            Placement::Nowhere(short) => short,
            Placement::Here(_) | Placement::Scattered => Shortfall::ANYTHING,
        });
        let picks = placement.picks()?;
        let open = |p: &Pick| !self.closed.get(p.node as usize).copied().unwrap_or(false);
        picks.iter().all(open).then_some(picks)
    }

    /// Whether the job can start on these nodes at once, which a count of CPUs does not tell.
    fn can_take(&self, picks: &[Pick]) -> bool {
        picks.iter().all(|pick| {
            let pos = self.part.pos_of[pick.node as usize] as usize;
            let class = &self.fleet.classes[self.fleet.nodes[pick.node as usize].class as usize];
            let want = self.demand.want(class, pick);
            let within = self
                .part
                .cpus_left(pos)
                .is_none_or(|left| want.cpus <= left);
            within && !self.part.cpus.rule.by_socket() && !self.fleet.blocks.by_core(pick.node)
        })
    }

    /// Takes candidates in order until the job fits, then spares as many as possible, those of the
    /// highest rank first.
    fn greedy<'s>(
        &self,
        base: FreedRoom<'_, 's>,
        candidates: &[VictimCandidate<'s>],
    ) -> Option<VictimChoice<'s>> {
        let mut all: Vec<FreedShares<'s>> = candidates
            .iter()
            .map(|candidate| candidate.release)
            .filter(|release| self.has_nodes_of(release.job) || self.has_licenses(release.job))
            .collect();
        let with = |victims: &[FreedShares<'s>]| {
            let mut freed = base.freed.to_vec();
            freed.extend(victims.iter().copied());
            self.place(&freed, base.departure)
        };
        // Binary search for the shortest sufficient prefix of victims; a longer prefix is sufficient
        // too, unless the job would run into a reservation after a longer grace time.
        let mut found = with(&all);
        if found.is_none() && all.iter().any(|victim| victim.at > self.now) {
            let short = self.short.get();
            all.retain(|victim| victim.at <= self.now);
            found = with(&all);
            self.short.set(short.or(self.short.get()));
        }
        let mut picks = found?;
        let (mut low, mut high) = (0, all.len());
        while low < high {
            let middle = low.midpoint(high);
            match with(&all[..middle]) {
                Some(found) => (picks, high) = (found, middle),
                None => low = middle + 1,
            }
        }
        let mut victims = all[..high].to_vec();
        let nodes = nodes_of(&picks);
        let kept: Vec<FreedShares<'s>> = victims
            .iter()
            .copied()
            .filter(|victim| is_near(victim.job, &nodes) || self.has_licenses(victim.job))
            .collect();
        if kept.len() < victims.len()
            && let Some(found) = with(&kept)
        {
            (victims, picks) = (kept, found);
        }
        let mut at = victims.len();
        for _ in 0..SPARED_MAX {
            let Some(next) = at.checked_sub(1) else { break };
            at = next;
            let mut fewer = victims.clone();
            fewer.remove(at);
            if let Some(found) = with(&fewer) {
                (victims, picks) = (fewer, found);
            }
        }
        Some(VictimChoice {
            picks,
            jobs: victims,
        })
    }
}
