//! Random but possible histories, and directories that vanish.
#![allow(dead_code, clippy::unwrap_used)]

use muster_core::event::{Event, JobChange};
use muster_core::state::State;
use muster_model::config::{ClusterConfig, EnforcePartLimits};
use muster_model::cpuset::CpuSet;
use muster_model::ids::{Attempt, JobId, NodeIdx, StepNo};
use muster_model::index_set::IndexSet;
use muster_model::job::{
    Allocation, ArrayRole, ExitStatus, Hold, Job, JobState, NodeShare, Phase, Reason,
    ResourceUsage, Step, StepEnd,
};
use muster_model::node::NodeConfig;
use muster_model::spec::{ArraySpec, JobKind, JobSpec, MemoryAsk, Owner, StdioSpec};
use muster_model::time::{TimeLimit, Timestamp};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is removed when it is dropped.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Directory {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "muster-acct-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) const BEGAN: i64 = 1_780_000_000;

pub(crate) fn at(s: i64) -> Timestamp {
    Timestamp::from_unix_s(BEGAN + s)
}

/// What to try: kind, which job, detail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op(pub(crate) u8, pub(crate) u16, pub(crate) u8);

/// Turns wishes into events that the state allows.
#[derive(Default)]
pub(crate) struct Driver {
    pub(crate) state: State,
    now: i64,
    /// Seconds from one event to the next, beside one.
    pub(crate) pace_s: i64,
}

pub(crate) fn config(nodes: u32) -> ClusterConfig {
    ClusterConfig {
        cluster_name: "c".to_owned(),
        nodes: (0..nodes)
            .map(|n| NodeConfig {
                name: format!("n{n}"),
                cpus: 100_000 / nodes,
                memory_mib: 1 << 30,
                ..NodeConfig::default()
            })
            .collect(),
        partitions: Vec::new(),
        first_job_id: 1,
        max_job_count: 10_000,
        max_array_size: 1001,
        min_job_age_s: 300,
        kill_wait_s: 30,
        node_timeout_s: 300,
        return_to_service: 0,
        job_requeue: true,
        default_memory: MemoryAsk::PerCpu(100),
        max_memory: MemoryAsk::Default,
        enforce_part_limits: EnforcePartLimits::No,
        memory_is_consumable: true,
        whole_nodes: false,
        backfill: true,
        over_time_limit_min: None,
        kill_invalid_depend: false,
        inactive_limit_s: 0,
        admin_uids: Vec::new(),
        whole_cores: false,
        select_parameters: Vec::new(),
        scheduler_parameters: Vec::new(),
        ..ClusterConfig::default()
    }
}

pub(crate) fn spec(n: u16, array: Option<u32>, batch: bool) -> JobSpec {
    let mut indices = IndexSet::default();
    indices.insert_range(1, array.unwrap_or(0));
    JobSpec {
        name: format!("job{}", n % 5),
        owner: Owner {
            uid: 1000 + u32::from(n % 3),
            gid: 100,
            user: format!("u{}", n % 3),
            group: "g".to_owned(),
        },
        partitions: vec!["batch".to_owned()],
        kind: if batch {
            JobKind::Batch
        } else {
            JobKind::Allocation
        },
        array: array.map(|_| ArraySpec {
            indices,
            throttle: Some(2),
        }),
        comment: (n.is_multiple_of(7)).then(|| "a comment".to_owned()),
        ..JobSpec::default()
    }
}

impl Driver {
    fn pick(&self, which: u16, want: impl Fn(&Job) -> bool) -> Option<&Job> {
        let jobs: Vec<&Job> = self.state.jobs.values().filter(|job| want(job)).collect();
        let count = jobs.len();
        (count > 0).then(|| jobs[usize::from(which) % count])
    }

    pub(crate) fn events(&mut self, op: &Op) -> Vec<Event> {
        self.now += 1 + self.pace_s;
        let now = at(self.now);
        if self.state.config.is_none() {
            return vec![Event::Configured {
                config: Arc::new(config(4)),
                at: now,
                partitions: None,
            }];
        }
        let Op(kind, which, detail) = *op;
        let phase = |wanted: &'static [Phase]| move |job: &Job| wanted.contains(&job.phase());
        let active: &[Phase] = &[Phase::Running, Phase::Suspended];
        let event = match kind % 13 {
            0 | 1 => Some(self.submit(which, detail, now)),
            2 | 3 => return self.start(which, detail, now),
            4 => self
                .pick(
                    which,
                    phase(&[Phase::Pending, Phase::Running, Phase::Suspended]),
                )
                .map(|job| end(job, detail, now)),
            5 => self
                .pick(
                    which,
                    phase(&[Phase::Running, Phase::Suspended, Phase::Completing]),
                )
                .map(|job| requeue(job, detail, now)),
            6 => return self.release(which, now),
            7 => self
                .pick(which, phase(&[Phase::Running]))
                .map(|job| Event::JobSuspended {
                    id: job.id,
                    at: now,
                    turn: None,
                    by_calendar: false,
                }),
            8 => self
                .pick(which, phase(&[Phase::Suspended]))
                .map(|job| Event::JobResumed {
                    id: job.id,
                    at: now,
                }),
            9 => self
                .pick(which, |job| active.contains(&job.phase()))
                .map(|job| step_start(job, now)),
            10 => self
                .pick(which, |job| !job.steps.is_empty())
                .map(|job| step_end(job, detail, now)),
            11 => self
                .pick(which, phase(&[Phase::Pending, Phase::Running]))
                .map(|job| change(job, detail, now)),
            _ => self
                .pick(which, phase(&[Phase::Ended]))
                .map(|job| match detail % 2 {
                    0 => Event::JobsPurged { ids: vec![job.id] },
                    _ if matches!(job.array, ArrayRole::Pending { .. }) => {
                        Event::JobsPurged { ids: vec![job.id] }
                    }
                    _ => Event::JobRequeued {
                        id: job.id,
                        at: now,
                        hold: Hold::None,
                        not_before: None,
                    },
                }),
        };
        event.into_iter().collect()
    }

    fn submit(&self, which: u16, detail: u8, at: Timestamp) -> Event {
        let array = (detail.is_multiple_of(3)).then_some(u32::from(detail % 6) + 1);
        let hold = if detail.is_multiple_of(7) {
            Hold::User
        } else {
            Hold::None
        };
        Event::JobSubmitted {
            id: JobId(self.state.next_job_id),
            spec: Arc::new(spec(which, array, detail.is_multiple_of(2))),
            at,
            priority: if hold == Hold::None {
                u32::from(which)
            } else {
                0
            },
            hold,
            time_limit: TimeLimit::Minutes(u32::from(detail)),
            waiting_on: Vec::new(),
            reason: Reason::None,
            partition: "batch".to_owned(),
            requeueable: true,
            het: None,
        }
    }

    fn start(&self, which: u16, detail: u8, at: Timestamp) -> Vec<Event> {
        let Some(job) = self.pick(which, Job::is_startable) else {
            return Vec::new();
        };
        let mut events = Vec::new();
        let mut id = job.id;
        if let ArrayRole::Pending { indices } = &job.array {
            let Some(index) = indices.first() else {
                return Vec::new();
            };
            if indices.len() > 1 {
                id = JobId(self.state.next_job_id);
            }
            events.push(Event::TaskSplit {
                base: job.id,
                index,
                id,
            });
        }
        let nodes: Vec<u32> = (0..=u32::from(detail % 3)).collect();
        let Some(cpu) = self.free_cpu(&nodes) else {
            return events;
        };
        events.push(Event::JobStarted {
            id,
            attempt: Attempt(job.attempt.0 + 1),
            at,
            alloc: Arc::new(allocation(&nodes, cpu)),
            configuring: false,
            priority: None,
        });
        events
    }

    fn free_cpu(&self, nodes: &[u32]) -> Option<u32> {
        let cpus = nodes
            .iter()
            .map(|n| &self.state.nodes[*n as usize].free_cpus);
        let sets: Vec<&CpuSet> = cpus.collect();
        sets[0]
            .iter()
            .find(|cpu| sets.iter().all(|set| set.contains(*cpu)))
    }

    fn release(&self, which: u16, at: Timestamp) -> Vec<Event> {
        let wanted = |job: &Job| matches!(job.phase(), Phase::Completing | Phase::Requeueing);
        let Some(job) = self.pick(which, wanted) else {
            return Vec::new();
        };
        let mut events: Vec<Event> = job
            .nodes_held
            .iter()
            .map(|position| Event::NodeReleased {
                id: job.id,
                position,
                at,
            })
            .collect();
        if job.phase() == Phase::Requeueing {
            events.push(Event::JobRequeued {
                id: job.id,
                at,
                hold: Hold::None,
                not_before: None,
            });
        }
        events
    }
}

pub(crate) fn allocation(nodes: &[u32], cpu: u32) -> Allocation {
    let names: Vec<String> = nodes.iter().map(|n| format!("n{n}")).collect();
    Allocation {
        reservation: None,
        end_by: None,
        billing_milli: 0,
        billing_units_milli: None,
        cpus_counted: None,
        mcs_label: None,
        usage_factor_millionths: None,
        backfilled: false,
        sharers: 0,
        only_user: None,
        licenses: Vec::new(),
        nodes: (nodes.iter().zip(&names))
            .map(|(n, name)| NodeShare {
                node: NodeIdx(*n),
                name: name.clone(),
                cpus: std::iter::once(cpu).collect(),
                memory_mib: 100,
                tasks: 1,
                gres: Vec::new(),
            })
            .collect(),
        partition: "batch".to_owned(),
        exclusive: false,
        hostlist: muster_model::hostlist::compress(&names),
        ntasks: nodes.len() as u32,
    }
}

fn end(job: &Job, detail: u8, at: Timestamp) -> Event {
    let (state, code) = match detail % 4 {
        0 => (JobState::Completed, 0),
        1 => (JobState::Failed, u32::from(detail)),
        2 => (JobState::Timeout, 0),
        _ => (JobState::Cancelled, 0),
    };
    Event::JobEnding {
        id: job.id,
        at,
        state,
        reason: Reason::None,
        exit: ExitStatus { code, signal: 0 },
        cancelled_by: (state == JobState::Cancelled).then_some(0),
        requeue: None,
    }
}

fn requeue(job: &Job, detail: u8, at: Timestamp) -> Event {
    let reasons = [Reason::None, Reason::NodeDown, Reason::JobLaunchFailure];
    Event::JobEnding {
        id: job.id,
        at,
        state: JobState::Pending,
        reason: reasons[usize::from(detail) % 3],
        exit: ExitStatus::default(),
        cancelled_by: None,
        requeue: Some(false),
    }
}

fn step_start(job: &Job, at: Timestamp) -> Event {
    let alloc = job.alloc.as_ref().expect("an active job has nodes");
    Event::StepStarted {
        id: job.id,
        step: Arc::new(Step {
            step: StepNo(job.next_step),
            name: "hostname".to_owned(),
            hostlist: alloc.hostlist.clone(),
            nodes: alloc.nodes.len() as u32,
            tasks: 1,
            cpus: 1,
            memory_mib: 100,
            start_time: at,
            stdio: StdioSpec::default(),
            submit_line: "srun hostname".to_owned(),
            time_limit: None,
            distribution: None,
            maker: None,
            devices: Vec::new(),
            device_ask: None,
        }),
    }
}

pub(crate) fn step_end(job: &Job, detail: u8, at: Timestamp) -> Event {
    Event::StepEnded {
        id: job.id,
        step: job.steps[usize::from(detail) % job.steps.len()].step,
        end: Box::new(StepEnd {
            end_time: job.end_time.unwrap_or(at),
            exit: ExitStatus {
                code: u32::from(detail % 3),
                signal: 0,
            },
            state: if detail.is_multiple_of(3) {
                JobState::Completed
            } else {
                JobState::Failed
            },
            usage: ResourceUsage {
                user_us: 5,
                max_rss_kib: 7,
                tasks: 1,
                ..ResourceUsage::default()
            },
            cancelled_by: None,
            last_lines: None,
        }),
    }
}

fn change(job: &Job, detail: u8, at: Timestamp) -> Event {
    let mut spec = (*job.spec).clone();
    spec.name = format!("renamed{detail}");
    let change = match detail % 5 {
        0 => JobChange::Spec(Arc::new(spec)),
        1 => JobChange::TimeLimit(TimeLimit::Unlimited),
        2 => JobChange::Hold {
            hold: Hold::None,
            priority: u32::from(detail),
        },
        3 => JobChange::Hold {
            hold: Hold::Admin,
            priority: 0,
        },
        _ => JobChange::Warned,
    };
    Event::JobChanged {
        id: job.id,
        change,
        at,
    }
}
