//! Recent changes for clients that follow them: a ring of changes that the replica keeps beside its state, and the clients
//! that wait for the next. The writer has no part in it, whatever their number: it passes a turn's events to the replica
//! only. Clients with equal rights share the same bytes, which are encoded once. Steps, loads of nodes and states of the
//! scheduler are no changes.

use crate::clock::now;
use crate::outbox::Outbox;
use muster_core::event::{Event, JobChange, NodeChange};
use muster_core::policy::access::privacy::{JobScope, hides, sees_reservation, shows_node};
use muster_core::state::State;
use muster_journal::Position;
use muster_model::command::Identity;
use muster_model::ids::{JobId, NodeIdx};
use muster_model::job::{ArrayRole, Job};
use muster_model::node::Node;
use muster_model::private_data::PrivateData;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::time::Timestamp;
use muster_proto::changes::{
    ChangeNotice, ChangePosition, ChangedJob, ChangedNode, ChangedRecord, ChangesAnswer,
    ChangesQuery, JobChangeKind,
};
use muster_proto::client::Response;
use muster_proto::frame;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Changes that are kept.
const KEPT_MAX: usize = 1 << 15;
/// Bytes of their texts.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Changes that one answer looks at.
const LOOKED_AT_MAX: usize = 1024;
/// Bytes of a name or reason that a change has.
const TEXT_BYTES: usize = 128;
/// Clients of one user that wait for changes.
const WAITING_OF_ONE: usize = 16;
/// Clients of all users that do.
const WAITING_MAX: usize = 1024;
/// Answers that are kept while clients are looked after, for others who see the same.
const SHARED_MAX: usize = 8;
/// Least time between two rounds over waiting clients.
const PACE: Duration = Duration::from_millis(100);
/// Number of changes not for a client after which it is answered with nothing but a new position, lest its own be
/// forgotten.
const UNSEEN_MAX: u64 = KEPT_MAX as u64 / 4;

/// The ring, and who waits.
pub(crate) struct Changes {
    kept: VecDeque<ChangeNotice>,
    bytes: usize,
    /// Changes up to here are kept no more.
    forgotten: ChangePosition,
    /// The last event that was looked at.
    last: Position,
    /// Changes that there were since the start.
    count: u64,
    /// Records that the next event removes.
    going: Vec<ChangedRecord>,
    waiting: VecDeque<WaitingClient>,
    /// Something has changed since clients were looked after.
    is_fresh: bool,
    looked_after: Option<Instant>,
    /// Answers that were encoded.
    #[cfg(test)]
    encoded: usize,
}

/// A client that waits.
struct WaitingClient {
    identity: Identity,
    /// It has, or may not see, what there is up to here.
    after: ChangePosition,
    /// Changes that there were when it asked.
    count: u64,
    out: Outbox,
}

/// An answer that was made for one client, and is that of others who see the same.
struct SharedAnswer {
    after: ChangePosition,
    view: View,
    last: ChangePosition,
    is_empty: bool,
    more: bool,
    frame: Vec<u8>,
}

/// The rights of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
struct View {
    jobs: JobScope,
    nodes: bool,
    partitions: bool,
    /// The uid of whose reservations alone are seen, if not all are.
    reservations_of: Option<u32>,
}

impl View {
    fn of(state: &State, identity: &Identity) -> View {
        let hides = |words| hides(state, identity, words);
        View {
            jobs: JobScope::of(state, identity),
            nodes: !hides(PrivateData::NODES),
            partitions: !hides(PrivateData::PARTITIONS),
            reservations_of: hides(PrivateData::RESERVATIONS).then_some(identity.uid),
        }
    }

    /// Whether a change is among what listings show.
    fn has(&self, state: &State, identity: &Identity, record: &ChangedRecord) -> bool {
        let is_hidden = |name: &str| state.partition(name).is_some_and(|p| p.hidden);
        match record {
            // Jobs of hidden partitions, too: listings of slurmrestd have them.
            ChangedRecord::Job(job) => self.jobs.contains(job.uid, &job.account),
            ChangedRecord::Node(_) => self.nodes,
            // That the configuration was read again is no secret.
            ChangedRecord::Partition(name) => {
                name.is_empty() || (self.partitions && !is_hidden(name))
            }
            ChangedRecord::Reservation(name) => match self.reservations_of {
                None => true,
                Some(_) => (state.reservations.get(name))
                    .is_some_and(|reservation| sees_reservation(state, identity, reservation)),
            },
        }
    }
}

impl Changes {
    /// The state before an event is not known.
    pub(crate) fn new(last: Position) -> Changes {
        Changes {
            kept: VecDeque::new(),
            bytes: 0,
            forgotten: ChangePosition::behind(last),
            last,
            count: 0,
            going: Vec::new(),
            waiting: VecDeque::new(),
            is_fresh: false,
            looked_after: None,
            #[cfg(test)]
            encoded: 0,
        }
    }

    /// An event is about to be applied: the records that it removes are noted while they are there.
    pub(crate) fn before(&mut self, state: &State, event: &Event) {
        self.going.clear();
        match event {
            Event::JobsPurged { ids } => {
                let jobs = ids.iter().filter_map(|id| state.jobs.get(id));
                let records = jobs.map(|job| changed_job(job, JobChangeKind::Purged));
                self.going.extend(records);
            }
            Event::NodesDeleted { nodes, .. } => {
                let nodes = nodes.iter().filter_map(|idx| state.node(*idx));
                let gone = nodes.map(|node| ChangedNode {
                    name: node.config.name.clone(),
                    ..ChangedNode::default()
                });
                self.going.extend(gone.map(ChangedRecord::Node));
            }
            _ => {}
        }
    }

    /// An event was applied.
    pub(crate) fn after(&mut self, state: &State, position: Position, event: &Event) {
        let mut records = std::mem::take(&mut self.going);
        let time = match (job_change(state, event), event) {
            (Some((id, kind, at)), _) => {
                let job = state.jobs.get(&id);
                records.extend(job.map(|job| changed_job(job, kind)));
                at
            }
            (None, Event::NodeRegistered { node, at, .. }) => {
                records.extend(changed_node(state, *node));
                *at
            }
            (None, Event::NodeChanged { node, change, at }) => {
                if !matches!(
                    change,
                    NodeChange::Health { .. } | NodeChange::LaunchFailed(_)
                ) {
                    records.extend(changed_node(state, *node));
                }
                *at
            }
            (None, Event::NodesCreated { nodes, at }) => {
                let nodes = nodes
                    .iter()
                    .filter_map(|(idx, _)| changed_node(state, *idx));
                records.extend(nodes);
                *at
            }
            (None, Event::Configured { at, .. }) => {
                records.push(ChangedRecord::Partition(String::new()));
                *at
            }
            (None, Event::PartitionChanged { partition }) => {
                records.push(ChangedRecord::Partition(partition.name.clone()));
                now()
            }
            (None, Event::PartitionRemoved { name }) => {
                records.push(ChangedRecord::Partition(name.clone()));
                now()
            }
            (None, Event::ReservationSet { reservation, .. }) => {
                records.push(ChangedRecord::Reservation(reservation.name.clone()));
                now()
            }
            (
                None,
                Event::ReservationStarted { name, at } | Event::ReservationGone { name, at },
            ) => {
                records.push(ChangedRecord::Reservation(name.clone()));
                *at
            }
            (None, Event::NodesDeleted { at, .. }) => *at,
            (None, _) => now(),
        };
        for (part, subject) in (0..).zip(records) {
            let event = position;
            self.keep(ChangeNotice {
                at: ChangePosition { event, part },
                time,
                subject,
            });
        }
        self.last = position;
    }

    fn keep(&mut self, change: ChangeNotice) {
        self.bytes += text_bytes(&change.subject);
        self.kept.push_back(change);
        self.count += 1;
        self.is_fresh = true;
        while self.kept.len() > KEPT_MAX || self.bytes > KEPT_BYTES_MAX {
            let Some(first) = self.kept.pop_front() else {
                return;
            };
            self.bytes -= text_bytes(&first.subject);
            self.forgotten = first.at;
        }
    }

    /// Time until waiting clients are to be served; none if there is nothing for any.
    pub(crate) fn due_in(&self, now: Instant) -> Option<Duration> {
        if !self.is_fresh || self.waiting.is_empty() {
            return None;
        }
        let gone = |since: Instant| PACE.saturating_sub(now.saturating_duration_since(since));
        Some(self.looked_after.map_or(Duration::ZERO, gone))
    }

    /// A client asks.
    pub(crate) fn ask(
        &mut self,
        state: &State,
        (identity, query): (&Identity, ChangesQuery),
        out: &Outbox,
        now: Instant,
    ) {
        let view = View::of(state, identity);
        let answer = match query.after {
            Some(after) => self.read(state, (identity, &view), after),
            None => ChangesAnswer {
                last: ChangePosition::behind(self.last),
                ..ChangesAnswer::default()
            },
        };
        let is_empty = answer.changes.is_empty() && !answer.reset && !answer.more;
        if !(query.wait && is_empty && query.after.is_some()) {
            return drop(out.send(self.frame(answer)));
        }
        self.waiting.retain(|waiting| !waiting.out.is_closed());
        let own = self
            .waiting
            .iter()
            .filter(|w| w.identity.uid == identity.uid);
        if own.count() >= WAITING_OF_ONE || self.waiting.len() >= WAITING_MAX {
            let detail = format!(
                "too many clients follow changes: at most {WAITING_OF_ONE} a user, {WAITING_MAX} in all"
            );
            let refusal = Refusal::new(RefusalCode::Busy, detail);
            return drop(out.send(frame::encode(&Response::Refused(refusal))));
        }
        if self.waiting.is_empty() {
            // It has what there is.
            (self.is_fresh, self.looked_after) = (false, Some(now));
        }
        self.waiting.push_back(WaitingClient {
            identity: identity.clone(),
            after: answer.last,
            count: self.count,
            out: out.clone(),
        });
    }

    /// Answers those who wait, and for whom there is something.
    pub(crate) fn pass_on(&mut self, state: &State, now: Instant) {
        (self.is_fresh, self.looked_after) = (false, Some(now));
        // Answers that were encoded already: most clients have equal rights.
        let mut made: Vec<SharedAnswer> = Vec::new();
        // After a fault, clients that were not processed yet are still in the queue.
        for _ in 0..self.waiting.len() {
            let Some(mut waiting) = self.waiting.pop_front() else {
                break;
            };
            if waiting.out.is_closed() {
                continue;
            }
            let view = View::of(state, &waiting.identity);
            let is_same = |made: &SharedAnswer| made.after == waiting.after && made.view == view;
            let known = made.iter().position(is_same).unwrap_or_else(|| {
                let answer = self.read(state, (&waiting.identity, &view), waiting.after);
                if made.len() == SHARED_MAX {
                    made.remove(0);
                }
                made.push(SharedAnswer {
                    after: waiting.after,
                    view,
                    last: answer.last,
                    is_empty: answer.changes.is_empty() && !answer.reset,
                    more: answer.more,
                    frame: self.frame(answer),
                });
                made.len() - 1
            });
            let Some(made) = made.get(known) else {
                continue;
            };
            if !made.is_empty || self.count - waiting.count > UNSEEN_MAX {
                let _ = waiting.out.send(made.frame.clone());
            } else {
                waiting.after = made.last;
                self.is_fresh |= made.more;
                self.waiting.push_back(waiting);
            }
        }
    }

    /// Drops all waiting clients; their connections are closing.
    pub(crate) fn give_up_waiting(&mut self) {
        let refusal = Refusal::new(
            RefusalCode::InvalidValue,
            "changes met a fault in the controller; see the log of slurmctld",
        );
        let frame = frame::encode(&Response::Refused(refusal));
        for waiting in std::mem::take(&mut self.waiting) {
            let _ = waiting.out.send(frame.clone());
        }
    }

    /// The changes after a position that a client may see.
    fn read(
        &self,
        state: &State,
        (identity, view): (&Identity, &View),
        after: ChangePosition,
    ) -> ChangesAnswer {
        let end = ChangePosition::behind(self.last);
        if after < self.forgotten || after > end {
            return ChangesAnswer {
                last: end,
                reset: true,
                ..ChangesAnswer::default()
            };
        }
        let begin = self.kept.partition_point(|change| change.at <= after);
        let left = self.kept.range(begin..);
        let more = left.len() > LOOKED_AT_MAX;
        let looked_at = left.take(LOOKED_AT_MAX);
        let last = match more {
            true => looked_at
                .clone()
                .next_back()
                .map_or(end, |change| change.at),
            false => end,
        };
        let seen = looked_at.filter(|change| view.has(state, identity, &change.subject));
        ChangesAnswer {
            changes: seen.cloned().collect(),
            last,
            reset: false,
            more,
        }
    }

    fn frame(&mut self, answer: ChangesAnswer) -> Vec<u8> {
        #[cfg(test)]
        {
            self.encoded += 1;
        }
        frame::encode(&Response::Changes(Box::new(answer)))
    }
}

/// Which job an event changes for those who look at listings, how, and when.
pub(crate) fn job_change(
    state: &State,
    event: &Event,
) -> Option<(JobId, JobChangeKind, Timestamp)> {
    use JobChangeKind::{Ended, Ending, Requeued, Resumed, Started, Submitted, Suspended, Updated};
    let completing = |id: &JobId| state.jobs.get(id).is_some_and(|job| job.completing);
    Some(match event {
        Event::JobSubmitted { id, at, .. } => (*id, Submitted, *at),
        Event::JobChanged {
            change: JobChange::Accrues(_) | JobChange::Warned | JobChange::StepLimit { .. },
            ..
        } => return None,
        Event::JobChanged { id, at, .. } => (*id, Updated, *at),
        Event::JobStarted { id, at, .. } => (*id, Started, *at),
        Event::JobEnding { id, at, .. } if completing(id) => (*id, Ending, *at),
        Event::JobEnding { id, at, .. } => (*id, Ended, *at),
        Event::NodeReleased { id, at, .. } => {
            let is_over = |job: &Job| job.state.is_ended() && !job.completing;
            state.jobs.get(id).filter(|job| is_over(job))?;
            (*id, Ended, *at)
        }
        Event::JobRequeued { id, at, .. } => (*id, Requeued, *at),
        Event::JobSuspended { id, at, .. } => (*id, Suspended, *at),
        Event::JobResumed { id, at } => (*id, Resumed, *at),
        _ => return None,
    })
}

fn changed_job(job: &Job, kind: JobChangeKind) -> ChangedRecord {
    let (array, index) = match &job.array {
        ArrayRole::None => (None, None),
        ArrayRole::Pending { .. } => (Some(job.id), None),
        ArrayRole::Task { base, index } => (Some(*base), Some(*index)),
    };
    ChangedRecord::Job(Box::new(ChangedJob {
        kind,
        id: job.id,
        array,
        index,
        uid: job.spec.owner.uid,
        user: job.spec.owner.user.clone(),
        account: job.spec.account_name().to_owned(),
        partition: job.partition.clone(),
        name: begin_of(&job.spec.name),
        state: job.state,
        completing: job.completing,
        reason: job.reason,
    }))
}

/// A node as listings show it; with its name alone if they do not.
fn changed_node(state: &State, idx: NodeIdx) -> Option<ChangedRecord> {
    let node = state.node(idx)?;
    let mut changed = ChangedNode {
        name: node.config.name.clone(),
        ..ChangedNode::default()
    };
    if !node.removed && shows_node(state, node) {
        changed.state = state_of(state, node);
        let reason = node.reason.as_ref();
        changed.reason = reason.map_or_else(String::new, |reason| begin_of(&reason.text));
    }
    Some(ChangedRecord::Node(changed))
}

/// A node's state as listings write it.
pub(crate) fn state_of(state: &State, node: &Node) -> String {
    let completing = |id| state.jobs.get(id).is_some_and(|job: &Job| job.completing);
    let mut text = String::new();
    node.state(
        node.jobs.iter().any(completing),
        state.reservations.holds_now(node.idx),
    )
    .write_complete(&mut text);
    text
}

/// The begin of a text that may be long.
fn begin_of(text: &str) -> String {
    let fits = |(at, c): &(usize, char)| at + c.len_utf8() <= TEXT_BYTES;
    let chars = text.char_indices().take_while(fits);
    chars.map(|(_, c)| c).collect()
}

/// The memory that a change takes, about.
fn text_bytes(record: &ChangedRecord) -> usize {
    match record {
        ChangedRecord::Job(job) => {
            let texts = [&job.user, &job.account, &job.partition, &job.name];
            size_of::<ChangedJob>() + texts.map(String::len).iter().sum::<usize>()
        }
        ChangedRecord::Node(node) => node.name.len() + node.state.len() + node.reason.len(),
        ChangedRecord::Partition(name) | ChangedRecord::Reservation(name) => name.len(),
    }
}

#[cfg(test)]
mod tests;
