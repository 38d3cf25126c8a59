//! Numbers of jobs and of their resources, for metrics: counted beside the records, since the numbers are few and the
//! records many.

use crate::job::{Hold, Job, JobState, Reason};
use minicbor::{Decode, Encode};

/// Counts over records of jobs. The tasks of an array that wait have one record and count each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct JobCounts {
    /// Records.
    #[n(0)]
    pub records: u64,
    /// Jobs and tasks that wait.
    #[n(1)]
    pub pending: u64,
    /// Pending jobs that are held.
    #[n(2)]
    pub held: u64,
    /// Pending jobs that have run before, by record.
    #[n(3)]
    pub requeued: u64,
    /// Jobs that run.
    #[n(4)]
    pub running: u64,
    /// Jobs that are suspended.
    #[n(5)]
    pub suspended: u64,
    /// Ended, with exit code 0.
    #[n(6)]
    pub completed: u64,
    /// Ended by being cancelled.
    #[n(7)]
    pub cancelled: u64,
    /// Ended with another exit code.
    #[n(8)]
    pub failed: u64,
    /// Ended at their time limit.
    #[n(9)]
    pub timeout: u64,
    /// Ended since a node failed.
    #[n(10)]
    pub node_failed: u64,
    /// Ended by preemption.
    #[n(11)]
    pub preempted: u64,
    /// Ended since a node did not start.
    #[n(12)]
    pub boot_failed: u64,
    /// Ended at their deadline.
    #[n(13)]
    pub deadline: u64,
    /// Ended since memory was used up.
    #[n(14)]
    pub out_of_memory: u64,
    /// Jobs whose nodes are being cleaned up.
    #[n(15)]
    pub completing: u64,
    /// Jobs that wait for their nodes to be ready.
    #[n(16)]
    pub configuring: u64,
    /// Jobs that wait for a node to be powered up.
    #[n(17)]
    pub powering_up: u64,
    /// CPUs that jobs have.
    #[n(18)]
    pub cpus: u64,
    /// Nodes that jobs have, a node for each of them.
    #[n(19)]
    pub nodes: u64,
    /// Memory that jobs have, MiB.
    #[n(20)]
    pub memory_mib: u64,
    /// GPUs that jobs have.
    #[n(21)]
    pub gpus: u64,
}

impl JobCounts {
    /// Adds a record.
    pub fn count(&mut self, job: &Job) {
        let waiting = u64::from(job.tasks());
        self.records += 1;
        let (state, tasks) = match job.state {
            JobState::Pending => (&mut self.pending, waiting),
            JobState::Running => (&mut self.running, 1),
            JobState::Suspended => (&mut self.suspended, 1),
            JobState::Completed => (&mut self.completed, 1),
            JobState::Cancelled => (&mut self.cancelled, 1),
            JobState::Failed => (&mut self.failed, 1),
            JobState::Timeout => (&mut self.timeout, 1),
            JobState::NodeFail => (&mut self.node_failed, 1),
            JobState::Preempted => (&mut self.preempted, 1),
            JobState::BootFail => (&mut self.boot_failed, 1),
            JobState::Deadline => (&mut self.deadline, 1),
            JobState::OutOfMemory => (&mut self.out_of_memory, 1),
        };
        *state += tasks;
        self.completing += u64::from(job.completing);
        self.powering_up += u64::from(job.power_up.is_some());
        match job.state {
            JobState::Pending => {
                self.held += if job.hold == Hold::None { 0 } else { waiting };
                self.requeued += u64::from(job.restarts > 0);
            }
            JobState::Running => {
                self.configuring += u64::from(job.configuring);
                self.count_held(job);
            }
            JobState::Suspended => self.count_held(job),
            _ => {}
        }
    }

    fn count_held(&mut self, job: &Job) {
        let shares = job.alloc.iter().flat_map(|alloc| &alloc.nodes);
        for share in shares {
            self.nodes += 1;
            self.cpus += u64::from(share.cpus.len());
            self.memory_mib += share.memory_mib;
            let gpus = share.gres.iter().filter(|gres| gres.name == "gpu");
            self.gpus += gpus.map(|gres| gres.ids.len() as u64).sum::<u64>();
        }
    }

    /// Jobs that have started and not ended.
    pub fn started(&self) -> u64 {
        self.running + self.suspended
    }

    /// Jobs that have ended.
    pub fn finished(&self) -> u64 {
        self.completed
            + self.cancelled
            + self.failed
            + self.timeout
            + self.node_failed
            + self.preempted
            + self.boot_failed
            + self.deadline
            + self.out_of_memory
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &JobCounts) {
        self.add_times(other, 1);
    }

    /// Adds other counts, each as often: those of records that count the same.
    pub fn add_times(&mut self, other: &JobCounts, times: u64) {
        for (own, other) in self.all().into_iter().zip(other.clone().all()) {
            *own += *other * times;
        }
    }

    fn all(&mut self) -> [&mut u64; 22] {
        let JobCounts {
            records,
            pending,
            held,
            requeued,
            running,
            suspended,
            completed,
            cancelled,
            failed,
            timeout,
            node_failed,
            preempted,
            boot_failed,
            deadline,
            out_of_memory,
            completing,
            configuring,
            powering_up,
            cpus,
            nodes,
            memory_mib,
            gpus,
        } = self;
        [
            records,
            pending,
            held,
            requeued,
            running,
            suspended,
            completed,
            cancelled,
            failed,
            timeout,
            node_failed,
            preempted,
            boot_failed,
            deadline,
            out_of_memory,
            completing,
            configuring,
            powering_up,
            cpus,
            nodes,
            memory_mib,
            gpus,
        ]
    }
}

/// Counts of the jobs of a user, an account and a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct JobCountGroup {
    /// The owner's name.
    #[n(0)]
    pub user: String,
    /// The account; empty if there is none.
    #[n(1)]
    pub account: String,
    /// The partition that it runs in, or is in line for first.
    #[n(2)]
    pub partition: String,
    /// The counts.
    #[n(3)]
    pub counts: JobCounts,
    /// Jobs of the group by state and reason; none from a controller of an earlier version.
    #[n(4)]
    #[cbor(default)]
    pub shown: Vec<ShownCount>,
    /// The partition has `Hidden=YES`.
    #[n(5)]
    #[cbor(default)]
    pub hidden: bool,
    /// Nodes that its pending jobs ask for.
    #[n(6)]
    #[cbor(default)]
    pub nodes_asked: NodesAsked,
}

/// The most nodes that any of several pending jobs asks for; 0 without such a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NodesAsked {
    /// The largest of their minima.
    #[n(0)]
    pub min: u32,
    /// The largest of their maxima. The maximum of a job that names none is its minimum.
    #[n(1)]
    pub max: u32,
    /// As `min`, of those that are not held.
    #[n(2)]
    pub min_released: u32,
    /// As `max`, of those that are not held.
    #[n(3)]
    pub max_released: u32,
}

impl NodesAsked {
    /// Adds a record.
    pub fn count(&mut self, job: &Job) {
        if job.state != JobState::Pending {
            return;
        }
        let min = job.spec.ask.min_nodes;
        let max = job.spec.ask.max_nodes.unwrap_or(min);
        let is_released = job.hold == Hold::None;
        self.add(&NodesAsked {
            min,
            max,
            min_released: if is_released { min } else { 0 },
            max_released: if is_released { max } else { 0 },
        });
    }

    /// Adds those of other jobs.
    pub fn add(&mut self, other: &NodesAsked) {
        self.min = self.min.max(other.min);
        self.max = self.max.max(other.max);
        self.min_released = self.min_released.max(other.min_released);
        self.max_released = self.max_released.max(other.max_released);
    }
}

/// State and reason of a job in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShownJob {
    /// Its state, or the flag in its place (`COMPLETING`).
    pub state: &'static str,
    /// The reason of its waiting; `None` if it does not wait.
    pub reason: Option<Reason>,
    /// It has ended, and its nodes are free again.
    pub is_over: bool,
}

impl ShownJob {
    /// That of a job.
    pub fn of(job: &Job) -> ShownJob {
        let waits = job.state == JobState::Pending && !job.completing;
        ShownJob {
            state: job.shown_state(),
            reason: waits.then_some(job.reason),
            is_over: job.state.is_ended() && !job.completing,
        }
    }
}

/// Number of jobs with the same state and reason in a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ShownCount {
    /// See [`ShownJob`].
    #[n(0)]
    pub state: String,
    /// See [`ShownJob`].
    #[n(1)]
    pub reason: Option<Reason>,
    /// See [`ShownJob`].
    #[n(2)]
    pub is_over: bool,
    /// Jobs, with each task of an array that waits.
    #[n(3)]
    pub jobs: u64,
}
