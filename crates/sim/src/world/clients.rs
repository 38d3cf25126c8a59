//! Users and administrators: the cluster that they make, their submissions and changes of jobs, the answers that
//! reached them, and, after the faults, their actions so that everything can end.

use super::hostile_users::is_hostile;
use super::submission::Submission;
use super::{Outcome, World, WorldEvent, trace};
use crate::outlets::{RequestId, lock};
use crate::random::Random;
use crate::world::invariants;
use muster_ctld::mail::ToWriter;
use muster_model::command::{
    Identity, JobSelection, JobTarget, JobUpdate, NodeUpdate, Reply, UserCommand,
};
use muster_model::config::{PartitionConfig, PartitionState};
use muster_model::ids::{BlobId, JobAttempt, JobId};
use muster_model::index_set::IndexSet;
use muster_model::job::{ExitStatus, Hold, JobState, Reason};
use muster_model::node::NodeConfig;
use muster_model::spec::{
    ArraySpec, Dependency, DependencyKind, DependencyTerm, JobKind, JobSpec, MemoryAsk, ResourceAsk,
};
use muster_model::task_range::TaskRange;
use muster_model::time::TimeLimit;
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// Virtual time after the last fault in which all that can start has started, milliseconds.
const LONG_MS: u64 = 3 * 3600 * 1000;

/// The users' side of the world.
pub(crate) struct Clients {
    steps_left: u32,
    next_request: RequestId,
    next_job: u64,
    requests: BTreeMap<RequestId, Request>,
    /// Acknowledged submissions, by number.
    acknowledged: BTreeMap<JobId, Submission>,
    /// Every submission that was sent, by its name.
    sent: BTreeMap<String, Submission>,
}

struct Request {
    identity: Identity,
    command: UserCommand,
    submission: Option<Submission>,
    stage: Stage,
    /// When it came to the controller, milliseconds.
    at: u64,
}

/// A request that got no answer.
pub(crate) struct Lost {
    pub(super) uid: u32,
    pub(super) command: UserCommand,
    pub(super) is_submission: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Sent,
    AtWriter,
}

/// Behaviour of a script.
pub(crate) struct Script {
    pub(crate) duration_ms: u64,
    pub(crate) exit: ExitStatus,
    pub(crate) fails_to_launch: bool,
    pub(crate) node_fault: bool,
    /// It fails in the process that was to become the script.
    pub(crate) fails_late: bool,
    pub(crate) ignores_term: bool,
}

/// Behaviour of the script of this run: it follows from the job's name.
pub(crate) fn script_of(name: &str, attempt: JobAttempt) -> Script {
    let seed = name.bytes().fold(attempt.job.0, |h, b| {
        h.wrapping_mul(31).wrapping_add(u64::from(b))
    });
    let mut random = Random::new(seed, u64::from(attempt.attempt.0));
    let exit = match random.below(6) {
        0 => ExitStatus {
            code: random.small(1, 255),
            signal: 0,
        },
        1 => ExitStatus {
            code: 0,
            signal: 11,
        },
        _ => ExitStatus::default(),
    };
    Script {
        duration_ms: random.around(15_000),
        exit,
        fails_to_launch: random.one_in(20),
        node_fault: random.one_in(2),
        fails_late: random.one_in(2),
        ignores_term: random.one_in(4),
    }
}

impl Clients {
    pub(crate) fn new(steps: u32) -> Clients {
        Clients {
            steps_left: steps,
            next_request: 1,
            next_job: 1,
            requests: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            sent: BTreeMap::new(),
        }
    }

    /// Number of acknowledged submissions.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.len() as u64
    }

    /// A name that no other job has.
    pub(crate) fn next_name(&mut self) -> String {
        let name = format!("j{}", self.next_job);
        self.next_job += 1;
        name
    }

    /// A submission is sent.
    pub(crate) fn remember(&mut self, submission: Submission) {
        self.sent.insert(submission.name.clone(), submission);
    }

    /// Submissions whose acknowledgement arrived.
    pub(crate) fn submissions(&self) -> impl Iterator<Item = (JobId, &Submission)> {
        self.acknowledged
            .iter()
            .map(|(id, submission)| (*id, submission))
    }

    /// Every submission ever sent, answered or not.
    pub(crate) fn sent(&self, name: &str) -> Option<&Submission> {
        self.sent.get(name)
    }

    /// No request is under way.
    pub(crate) fn nothing_in_flight(&self) -> bool {
        self.requests.is_empty()
    }

    /// The controller died: requests without an answer never get one.
    pub(crate) fn lose_requests(&mut self) -> Vec<Lost> {
        let requests = std::mem::take(&mut self.requests).into_iter();
        let (lost, kept) = requests.partition(|(_, request)| request.stage == Stage::AtWriter);
        self.requests = kept;
        let lost: BTreeMap<RequestId, Request> = lost;
        lost.into_values()
            .map(|request| Lost {
                uid: request.identity.uid,
                command: request.command,
                is_submission: request.submission.is_some(),
            })
            .collect()
    }

    /// The request that the controller has had for longest, and since when.
    pub(crate) fn oldest_at_writer(&self) -> Option<(RequestId, u64)> {
        let there = self.requests.iter();
        let there = there.filter(|(_, request)| request.stage == Stage::AtWriter);
        there
            .map(|(id, request)| (*id, request.at))
            .min_by_key(|(_, at)| *at)
    }

    fn some_job(&self, random: &mut Random) -> Option<JobId> {
        let lately = self
            .acknowledged
            .keys()
            .rev()
            .take(15)
            .copied()
            .collect::<Vec<_>>();
        (!lately.is_empty()).then(|| *random.pick(&lately))
    }
}

/// Users and administrators, with the cluster around them.
pub(super) struct Users<'w> {
    pub(super) world: &'w mut World,
}

impl World {
    /// Users and administrators, with the cluster around them.
    pub(super) fn users(&mut self) -> Users<'_> {
        Users { world: self }
    }
}

impl Users<'_> {
    /// Whether all that can start must have done so.
    fn heals_long(&self) -> bool {
        let since = self.world.healing_since.unwrap_or(self.world.now);
        self.world.now - since > LONG_MS
    }

    /// A user or administrator does something; the last step ends the faults.
    pub(crate) fn step(&mut self) {
        let Some(left) = self.world.clients.steps_left.checked_sub(1) else {
            self.world.fault_injector().end_faults();
            self.world.healing_since = Some(self.world.now);
            return self.world.later(1000, WorldEvent::Heal);
        };
        self.world.clients.steps_left = left;
        let delay = self.world.random.around(1_500);
        self.world.later(delay, WorldEvent::Step);
        match self.world.random.below(46) {
            0..=19 => self.submit(),
            20 | 21 => {
                for _ in 0..8 {
                    self.submit();
                }
            }
            40..=42 => self.submit_het(),
            43..=45 => self.reserve(),
            choice => self.change_something(choice),
        }
    }

    fn change_something(&mut self, choice: u64) {
        let root = self.world.random.one_in(2);
        let Some(job) = self.world.clients.some_job(&mut self.world.random) else {
            return self.submit();
        };
        let owner = self
            .world
            .clients
            .acknowledged
            .get(&job)
            .map_or(0, |s| s.uid);
        let uid = if root { 0 } else { owner };
        let mut target = JobTarget {
            job,
            tasks: None,
            component: None,
        };
        if self.world.random.one_in(4) {
            let mut tasks = IndexSet::default();
            tasks.insert_range(self.world.random.small(0, 3), self.world.random.small(2, 6));
            target.tasks = Some(tasks);
        }
        let command = match choice {
            22..=24 => cancel(vec![target]),
            25 => UserCommand::Cancel {
                selection: JobSelection {
                    uid: Some(owner),
                    ..JobSelection::default()
                },
            },
            26 | 27 => UserCommand::Hold {
                target,
                user: !root,
            },
            28 | 29 => UserCommand::Release { target },
            30 | 31 => UserCommand::Requeue {
                target,
                hold: self.world.random.one_in(4),
                special_exit: false,
                incomplete: false,
            },
            32 | 33 => return self.ask(0, UserCommand::Suspend { target }, None),
            34 => return self.ask(0, UserCommand::Resume { target }, None),
            35 => {
                let time_limit = Some(TimeLimit::Minutes(self.world.random.small(1, 10)));
                let update = Box::new(JobUpdate {
                    time_limit,
                    ..JobUpdate::default()
                });
                UserCommand::UpdateJob { target, update }
            }
            36 | 37 => {
                let code = self.world.random.small(0, 1);
                UserCommand::EndAllocation {
                    job,
                    exit: ExitStatus { code, signal: 0 },
                }
            }
            38 => return self.update_a_node(),
            _ if self.world.random.below(3) == 0 => return self.make_or_remove_a_partition(),
            _ => {
                let state = *self.world.random.pick(&["UP", "DOWN", "DRAIN", "UP"]);
                let pairs = vec![("State".to_owned(), state.to_owned())];
                return self.ask(
                    0,
                    UserCommand::UpdatePartition {
                        name: "few".to_owned(),
                        pairs,
                        read: Vec::new(),
                    },
                    None,
                );
            }
        };
        self.ask(uid, command, None);
    }

    fn make_or_remove_a_partition(&mut self) {
        let name = (*self.world.random.pick(&["made", "spare"])).to_owned();
        let command = if self.world.random.below(2) == 0 {
            let node = self.world.random.below(self.world.nodes.len() as u64) as usize;
            let pairs = vec![("Nodes".to_owned(), self.world.nodes[node].name.clone())];
            UserCommand::CreatePartition { name, pairs }
        } else {
            UserCommand::DeletePartition { name }
        };
        self.ask(0, command, None);
    }

    fn update_a_node(&mut self) {
        let node = self.world.random.below(self.world.nodes.len() as u64) as usize;
        let state = *self
            .world
            .random
            .pick(&["DRAIN", "RESUME", "DOWN", "UNDRAIN", "RESUME"]);
        let nodes = self.world.nodes[node].name.clone();
        let update = NodeUpdate {
            state: Some(state.to_owned()),
            reason: Some("maintenance".to_owned()),
            ..NodeUpdate::default()
        };
        self.ask(0, UserCommand::UpdateNodes { nodes, update }, None);
    }

    fn submit(&mut self) {
        let name = self.world.clients.next_name();
        let uid = 1000 + self.world.random.small(0, 2);
        let mut spec = self.make_spec(&name);
        self.ask_for_scarce_resources(&mut spec);
        let submission = Submission::of(&spec, uid);
        self.world.clients.remember(submission.clone());
        let blobs = spec
            .script
            .map(|id| (id, b"#!/bin/sh\nexit\n".to_vec().into()))
            .into_iter()
            .collect();
        let command = UserCommand::Submit {
            spec: Box::new(spec),
            blobs,
            test_only: false,
        };
        self.ask(uid, command, Some(submission));
    }

    pub(super) fn make_spec(&mut self, name: &str) -> JobSpec {
        let reservation = self.requested_reservation();
        let random = &mut self.world.random;
        let few = random.one_in(4);
        let partition = &self.world.config.partitions[usize::from(few)];
        let mut ask = make_ask(random, partition, &self.world.config.nodes);
        ask.gres = self.world.devices.requested();
        let array = random.one_in(6).then(|| make_array(random));
        let kind = if array.is_none() && random.one_in(10) {
            JobKind::Allocation
        } else {
            JobKind::Batch
        };
        let script = (kind == JobKind::Batch).then(|| BlobId([random.small(1, 9) as u8; 32]));
        let begin_in = random.one_in(12).then(|| random.around(20_000));
        let dependency = self.make_dependency();
        let random = &mut self.world.random;
        let partitions = if few && random.one_in(3) {
            // Refused while there is no such partition. One that takes no jobs now is left out, and the other may have one
            // node only.
            ask = one_task(ask);
            vec!["few".to_owned(), "made".to_owned()]
        } else if few {
            vec!["few".to_owned()]
        } else {
            Vec::new()
        };
        JobSpec {
            name: name.to_owned(),
            partitions,
            kind,
            interactive: kind == JobKind::Allocation,
            script,
            work_dir: "/tmp".to_owned(),
            ask,
            array,
            dependency,
            time_limit: random
                .one_in(2)
                .then(|| TimeLimit::Minutes(random.small(1, 3))),
            hold: random.one_in(15),
            nice: i32::try_from(random.small(0, 200)).unwrap_or(0),
            requeue: random.one_in(3).then(|| random.one_in(2)),
            kill_on_invalid_dep: random.one_in(4).then(|| random.one_in(2)),
            begin: begin_in.map(|ms| self.world.wall().plus_ms(ms)),
            no_kill: self.world.random.one_in(10),
            reservation,
            ..JobSpec::default()
        }
    }

    fn make_dependency(&mut self) -> Dependency {
        let random = &mut self.world.random;
        if !random.one_in(5) {
            return Dependency::default();
        }
        if random.one_in(6) {
            return Dependency {
                terms: vec![DependencyTerm::Singleton],
                any: false,
            };
        }
        let kinds = [
            DependencyKind::After,
            DependencyKind::AfterAny,
            DependencyKind::AfterOk,
            DependencyKind::AfterNotOk,
            DependencyKind::AfterCorr,
        ];
        let terms = (0..random.small(1, 2))
            .filter_map(|_| {
                let job = self.world.clients.some_job(random)?;
                let kind = *random.pick(&kinds);
                let task = random.one_in(4).then(|| random.small(0, 5));
                Some(DependencyTerm::Job {
                    kind,
                    job,
                    task,
                    delay_minutes: 0,
                })
            })
            .collect();
        Dependency {
            terms,
            any: random.one_in(3),
        }
    }

    pub(super) fn ask(&mut self, uid: u32, command: UserCommand, submission: Option<Submission>) {
        let id = self.world.clients.next_request;
        self.world.clients.next_request += 1;
        let user = if uid == 0 {
            "root".to_owned()
        } else {
            format!("u{uid}")
        };
        let identity = Identity {
            uid,
            gid: uid,
            group: user.clone(),
            groups: vec![user.clone()],
            gids: vec![uid],
            user,
            host: None,
            granted: Default::default(),
            is_ordinary: false,
        };
        match &submission {
            Some(submission) => trace!(
                self.world,
                "request {id}: {} submits {}", identity.user, submission.name
            ),
            None => trace!(
                self.world,
                "request {id}: {} {}",
                identity.user,
                brief(&command)
            ),
        }
        let request = Request {
            identity,
            command,
            submission,
            stage: Stage::Sent,
            at: 0,
        };
        self.world.clients.requests.insert(id, request);
        let delay = self.world.latency();
        self.world.later(delay, WorldEvent::Request { id });
    }

    pub(crate) fn request_arrives(&mut self, id: RequestId) -> Outcome {
        if self.world.controller.is_none() {
            self.world.clients.requests.remove(&id);
            return Ok(());
        }
        let Some(request) = self.world.clients.requests.get(&id) else {
            return Ok(());
        };
        if is_hostile(request.identity.uid) {
            let (identity, command) = (request.identity.clone(), request.command.clone());
            self.judge(&identity, &command)?;
        }
        let (Some(controller), Some(request)) = (
            &self.world.controller,
            self.world.clients.requests.get_mut(&id),
        ) else {
            return Ok(());
        };
        request.stage = Stage::AtWriter;
        request.at = self.world.now;
        let (reply, answer) = oneshot::channel();
        lock(&controller.watch).outlets.replies.insert(id, answer);
        let identity = request.identity.clone();
        let command = Box::new(request.command.clone());
        self.world.controller_process().mail(ToWriter::User {
            identity,
            command,
            reply: reply.into(),
        });
        Ok(())
    }

    /// An answer reached its client: its content holds from now on.
    pub(crate) fn answer_arrives(&mut self, id: RequestId, reply: &Reply) -> Outcome {
        invariants::invariant_nothing_panics(reply)?;
        let request = self.world.clients.requests.remove(&id);
        if (request.as_ref()).is_some_and(|r| is_hostile(r.identity.uid)) {
            self.attack_is_answered(reply);
            return Ok(());
        }
        invariants::invariant_refusals_have_a_reason(self.world, reply)?;
        match (reply, request.and_then(|r| r.submission)) {
            (Reply::Submitted { id: job, .. }, Some(submission)) => {
                trace!(self.world, "request {id} is answered: job {job}");
                self.acknowledge(*job, submission)
            }
            (reply, _) => {
                trace!(self.world, "request {id} is answered: {reply:?}");
                Ok(())
            }
        }
    }

    fn acknowledge(&mut self, job: JobId, submission: Submission) -> Outcome {
        invariants::invariant_an_acknowledged_job_is_what_was_asked(self.world, job, &submission)?;
        self.world.clients.acknowledged.insert(job, submission);
        Ok(())
    }

    /// Actions of an administrator at the end so that nothing waits for somebody. Repeated until all is over.
    pub(crate) fn heal(&mut self) {
        self.world.later(20_000, WorldEvent::Heal);
        let Some(controller) = &self.world.controller else {
            return;
        };
        if !self.world.clients.nothing_in_flight() {
            return;
        }
        let state = controller.writer.state();
        let mut commands = Vec::new();
        for node in state.nodes.iter().filter(|n| n.down || n.drain || n.fail) {
            let update = NodeUpdate {
                state: Some("RESUME".to_owned()),
                ..NodeUpdate::default()
            };
            commands.push(UserCommand::UpdateNodes {
                nodes: node.config.name.clone(),
                update,
            });
        }
        for partition in state
            .partitions
            .iter()
            .filter(|p| p.state != PartitionState::Up)
        {
            let pairs = vec![("State".to_owned(), "UP".to_owned())];
            commands.push(UserCommand::UpdatePartition {
                name: partition.name.clone(),
                pairs,
                read: Vec::new(),
            });
        }
        for job in state.jobs.values().filter(|job| !job.completing) {
            let target = JobTarget {
                job: job.id,
                tasks: None,
                component: None,
            };
            match job.state {
                _ if is_hostile(job.spec.owner.uid) => {
                    commands.push(cancel(vec![target]));
                }
                JobState::Pending if job.reason == Reason::DependencyNeverSatisfied => {
                    commands.push(cancel(vec![target]));
                }
                // Its components may never fit beside each other.
                JobState::Pending if job.het.is_some() && self.heals_long() => {
                    commands.push(cancel(vec![target]));
                }
                // There will be no more reservations.
                JobState::Pending if job.spec.reservation.is_some() => {
                    commands.push(cancel(vec![target]));
                }
                JobState::Pending if job.hold != Hold::None => {
                    commands.push(UserCommand::Release { target });
                }
                JobState::Suspended => commands.push(UserCommand::Resume { target }),
                // Components end with the first one.
                JobState::Running
                    if job.spec.kind == JobKind::Allocation
                        && job.het.is_none_or(|part| part.leads()) =>
                {
                    let exit = ExitStatus::default();
                    commands.push(UserCommand::EndAllocation { job: job.id, exit });
                }
                _ => {}
            }
        }
        self.end_reservations(&mut commands);
        commands
            .into_iter()
            .for_each(|command| self.ask(0, command, None));
    }
}

fn cancel(targets: Vec<JobTarget>) -> UserCommand {
    UserCommand::Cancel {
        selection: JobSelection {
            targets,
            ..JobSelection::default()
        },
    }
}

/// A request in a line of the trace.
pub(crate) fn brief(command: &UserCommand) -> String {
    let mut text = format!("{command:?}");
    if let Some((end, _)) = text.char_indices().nth(1500) {
        text.truncate(end);
    }
    text
}

/// A job's request for nodes of this partition, which can have it.
fn make_ask(random: &mut Random, partition: &PartitionConfig, nodes: &[NodeConfig]) -> ResourceAsk {
    let smallest = |count: usize| {
        let mut cpus: Vec<u32> = nodes
            .iter()
            .filter(|n| partition.nodes.contains(&n.name))
            .map(|n| n.cpus)
            .collect();
        cpus.sort_unstable();
        cpus[cpus.len() - count]
    };
    let most = partition.nodes.len();
    let count = if random.one_in(4) {
        random.between(1, most as u64) as usize
    } else {
        1
    };
    let per_node = random.small(1, smallest(count));
    let tasks = random.small(1, per_node);
    let wanted = u32::try_from(count).unwrap_or(1);
    // More tasks will do, too: on these nodes, or on more of them.
    let range = random.one_in(4).then(|| {
        let by_node = random.one_in(2);
        let least = if by_node { wanted } else { wanted * tasks };
        let mut range = TaskRange {
            counts: IndexSet::single(least),
            tasks_of_node: by_node.then_some(tasks),
        };
        let next = least + random.small(1, 2);
        range.counts.insert_range(next, next + random.small(0, 4));
        Box::new(range)
    });
    ResourceAsk {
        task_range: range,
        min_nodes: wanted,
        max_nodes: Some(wanted),
        ntasks: Some(wanted * tasks),
        ntasks_per_node: Some(tasks),
        cpus_per_task: Some(per_node / tasks),
        memory: if random.one_in(3) {
            MemoryAsk::PerNode(700)
        } else {
            MemoryAsk::Default
        },
        ..ResourceAsk::default()
    }
}

/// As little as each node has.
fn one_task(ask: ResourceAsk) -> ResourceAsk {
    ResourceAsk {
        min_nodes: 1,
        max_nodes: Some(1),
        ntasks: Some(1),
        memory: ask.memory,
        ..ResourceAsk::default()
    }
}

fn make_array(random: &mut Random) -> ArraySpec {
    let mut indices = IndexSet::default();
    let first = random.small(0, 3);
    indices.insert_range(first, first + random.small(0, 6));
    if random.one_in(3) {
        indices.insert(20);
    }
    ArraySpec {
        indices,
        throttle: random.one_in(3).then_some(2),
    }
}
