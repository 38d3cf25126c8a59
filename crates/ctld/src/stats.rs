//! Counters for sdiag, written by the threads that do the work and read by the replica.

use muster_model::time::Timestamp;
use muster_proto::client::{KindRequests, ThrottledUser, UserRequests};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters since the start of the controller.
#[derive(Default)]
pub struct Stats {
    /// Scheduler passes.
    pub passes: AtomicU64,
    /// Microseconds of the last pass.
    pub pass_last_us: AtomicU64,
    /// Time of all passes.
    pub pass_total_us: AtomicU64,
    /// Time of the longest pass.
    pub pass_max_us: AtomicU64,
    /// Journal commits.
    pub commits: AtomicU64,
    /// Events in them.
    pub events: AtomicU64,
    /// Messages from agents; that they are there is not counted, nor the question.
    pub from_nodes: AtomicU64,
    /// Messages to agents.
    pub to_nodes: AtomicU64,
    /// Open connections.
    pub connections: AtomicU64,
    durable: AtomicU64,
    snapshots: Mutex<SnapshotFailures>,
    requests: Mutex<Requests>,
}

/// Snapshots that failed since the last that was written.
#[derive(Default)]
struct SnapshotFailures {
    count: u32,
    since: Option<Timestamp>,
}

/// Number of requests, and their time.
#[derive(Clone, Copy, Default)]
struct RequestCount {
    requests: u64,
    total_us: u64,
}

impl RequestCount {
    fn add(&mut self, us: u64) {
        self.requests += 1;
        self.total_us += us;
    }
}

#[derive(Default)]
struct Requests {
    by_kind: BTreeMap<&'static str, RequestCount>,
    by_user: BTreeMap<u32, RequestCount>,
    /// Numbers of times that users were refused or made to wait because they asked for too much.
    held_back: BTreeMap<u32, u64>,
}

/// Users that are counted one by one.
const USERS_MAX: usize = 65_536;

impl Stats {
    /// Counts a pass.
    pub fn pass(&self, us: u64) {
        self.passes.fetch_add(1, Relaxed);
        self.pass_last_us.store(us, Relaxed);
        self.pass_total_us.fetch_add(us, Relaxed);
        self.pass_max_us.fetch_max(us, Relaxed);
    }

    /// Everything up to this journal position was handed to the replica; set before it is acknowledged.
    pub fn set_durable(&self, position: u64) {
        self.durable
            .store(position, std::sync::atomic::Ordering::Release);
    }

    /// The position that a reader that arrives now must see.
    pub fn durable(&self) -> u64 {
        self.durable.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Counts a request.
    pub fn request(&self, kind: &'static str, uid: u32, us: u64) {
        let mut requests = self.requests.lock().unwrap_or_else(|e| e.into_inner());
        requests.by_kind.entry(kind).or_default().add(us);
        if requests.by_user.len() >= USERS_MAX && !requests.by_user.contains_key(&uid) {
            return;
        }
        requests.by_user.entry(uid).or_default().add(us);
    }

    /// Counts that a user was held back; how often that was.
    pub(crate) fn held_back(&self, uid: u32) -> u64 {
        let mut requests = self.requests.lock().unwrap_or_else(|e| e.into_inner());
        if requests.held_back.len() >= USERS_MAX && !requests.held_back.contains_key(&uid) {
            return 1;
        }
        let count = requests.held_back.entry(uid).or_default();
        *count += 1;
        *count
    }

    /// Counts a snapshot that failed; how many did since the last that was written.
    pub(crate) fn snapshot_failed(&self, now: Timestamp) -> u32 {
        let mut snapshots = self.snapshots.lock().unwrap_or_else(|e| e.into_inner());
        snapshots.count = snapshots.count.saturating_add(1);
        snapshots.since.get_or_insert(now);
        snapshots.count
    }

    /// A snapshot was written.
    pub(crate) fn snapshot_written(&self) {
        let mut snapshots = self.snapshots.lock().unwrap_or_else(|e| e.into_inner());
        *snapshots = SnapshotFailures::default();
    }

    /// Sets counts to zero; other values stay.
    pub fn reset(&self) {
        let counts = [
            &self.passes,
            &self.pass_last_us,
            &self.pass_total_us,
            &self.pass_max_us,
            &self.commits,
            &self.events,
            &self.from_nodes,
            &self.to_nodes,
        ];
        for count in counts {
            count.store(0, Relaxed);
        }
        *self.requests.lock().unwrap_or_else(|e| e.into_inner()) = Requests::default();
    }

    /// Fills the request tables of an answer.
    pub fn fill(&self, diag: &mut muster_proto::client::Diag) {
        diag.passes = self.passes.load(Relaxed);
        diag.pass_last_us = self.pass_last_us.load(Relaxed);
        diag.pass_total_us = self.pass_total_us.load(Relaxed);
        diag.pass_max_us = self.pass_max_us.load(Relaxed);
        diag.commits = self.commits.load(Relaxed);
        diag.events = self.events.load(Relaxed);
        diag.from_nodes = self.from_nodes.load(Relaxed);
        diag.to_nodes = self.to_nodes.load(Relaxed);
        diag.connections = self.connections.load(Relaxed);
        let snapshots = self.snapshots.lock().unwrap_or_else(|e| e.into_inner());
        (diag.snapshots_failed, diag.snapshots_failing_since) = (snapshots.count, snapshots.since);
        drop(snapshots);
        let requests = self.requests.lock().unwrap_or_else(|e| e.into_inner());
        diag.requests = requests
            .by_kind
            .iter()
            .map(|(kind, count)| KindRequests {
                kind: (*kind).to_owned(),
                count: count.requests,
                total_us: count.total_us,
            })
            .collect();
        diag.users = requests
            .by_user
            .iter()
            .map(|(uid, count)| UserRequests {
                uid: *uid,
                count: count.requests,
                total_us: count.total_us,
            })
            .collect();
        let held_back = requests.held_back.iter();
        diag.held_back = held_back
            .map(|(&uid, &count)| ThrottledUser { uid, count })
            .collect();
    }
}
