//! Nodes that lie: reports of jobs that they do not have, of other launches, of steps that ended long ago; machines
//! that nobody could build; a second connection beside the first. The controller keeps every job of other nodes, and
//! all of the node's own that the lie is not about.

use super::faults::FaultInjector;
use super::{Outcome, World, WorldEvent, trace};
use crate::Violation;
use crate::classes::FaultClass;
use crate::node::batch_ended;
use crate::outlets::Conn;
use muster_core::decide::decide;
use muster_core::event::{Event, NodeChange};
use muster_core::state::State;
use muster_ctld::writer::node_command;
use muster_model::command::Command;
use muster_model::ids::{Attempt, JobAttempt, JobId, NodeIdx, StepNo};
use muster_model::job::{ExitStatus, Step, StepEnd};
use muster_model::spec::StdioSpec;
use muster_proto::node::{NodeHello, NumberedReport, Report};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Keys of nobody.
const LIARS_KEYS: [[u8; 32]; 2] = [[9; 32], [11; 32]];

impl FaultInjector<'_> {
    /// A node lies.
    pub(crate) fn lie(&mut self) -> Outcome {
        if self.world.healing_since.is_some() || !self.world.has(FaultClass::LyingNodes) {
            return Ok(());
        }
        let delay = self.world.chaos.around(5_000);
        self.world.later(delay, WorldEvent::Lie);
        let node = self.world.chaos.below(self.world.nodes.len() as u64) as usize;
        match self.world.chaos.below(4) {
            0 => self.connect_beside(node),
            1 => self.report_again(node),
            _ => return self.report_lies(node),
        }
        Ok(())
    }

    /// Reports about jobs that the node does not have.
    fn report_lies(&mut self, node: usize) -> Outcome {
        let here = &self.world.nodes[node];
        let Some(conn) = here.conn().filter(|_| here.is_welcomed()) else {
            return Ok(());
        };
        let count = self.world.chaos.between(1, 8);
        let mut reports = Vec::new();
        for _ in 0..count {
            let Some(report) = self.lie_of(node) else {
                return Ok(());
            };
            self.check_lie(node, &report)?;
            reports.push(report);
        }
        trace!(
            self.world,
            "LIE {} reports {} lies",
            self.world.nodes[node].name,
            reports.len()
        );
        self.world.network().send_to_ctld(conn, reports);
        Ok(())
    }

    /// A report about a launch that is not on this node. Its number is one that was acknowledged long ago, so that
    /// the answer to it acknowledges nothing else.
    fn lie_of(&mut self, node: usize) -> Option<NumberedReport> {
        let state = self.world.controller.as_ref()?.writer.state();
        let jobs: Vec<JobId> = state.jobs.keys().copied().collect();
        let random = &mut self.world.chaos;
        let job = match jobs.is_empty() || random.one_in(6) {
            true => JobId(random.next()),
            false => *random.pick(&jobs),
        };
        let current = state.jobs.get(&job).map_or(Attempt(0), |job| job.attempt);
        let attempt = match random.below(4) {
            0 => Attempt(current.0.wrapping_sub(1)),
            1 => Attempt(u32::MAX),
            _ => current,
        };
        // The truth, or what will be the truth when the report arrives, is no lie.
        if attempt == current && on_node(state, job, World::idx(node)) || random.one_in(40) {
            return None;
        }
        let report = self.some_report();
        Some(NumberedReport {
            seq: 0,
            job,
            attempt,
            report,
        })
    }

    fn some_report(&mut self) -> Report {
        let now = self.world.time();
        let random = &mut self.world.chaos;
        let exit = ExitStatus {
            code: *random.pick(&[0, 1, 256, u32::MAX]),
            signal: *random.pick(&[0, 9, u32::MAX]),
        };
        let step = StepNo(*random.pick(&[0, 1, 1000, u32::MAX, u32::MAX - 1, u32::MAX - 2]));
        match random.below(7) {
            0 => batch_ended(exit, random.one_in(2), now),
            1 => Report::Released,
            2 => Report::Vanished,
            3 => Report::LaunchFailed {
                error: "x".repeat(random.below(100_000) as usize),
                node_fault: random.one_in(2),
                prolog: random.one_in(2),
                lack: random.one_in(2),
            },
            4 => Report::NodeFault {
                error: String::new(),
            },
            5 => Report::StepStarted(Box::new(Step {
                step,
                name: "s".to_owned(),
                hostlist: "n[0-4294967295]".to_owned(),
                nodes: u32::MAX,
                tasks: u32::MAX,
                cpus: u32::MAX,
                memory_mib: u64::MAX,
                start_time: now,
                stdio: StdioSpec::default(),
                submit_line: String::new(),
                time_limit: None,
                distribution: None,
                maker: None,
                devices: Vec::new(),
                device_ask: None,
            })),
            _ => Report::StepEnded {
                step,
                end: Box::new(StepEnd::never_ran(now)),
            },
        }
    }

    /// Reports that were acknowledged are said again, as they were and with other numbers.
    fn report_again(&mut self, node: usize) {
        let here = &self.world.nodes[node];
        let Some(conn) = here.conn().filter(|_| here.is_welcomed()) else {
            return;
        };
        let mut reports = self.world.nodes[node].said.clone();
        if reports.is_empty() {
            return;
        }
        let at = self.world.chaos.below(reports.len() as u64) as usize;
        reports.rotate_left(at);
        reports.truncate(self.world.chaos.between(1, 20) as usize);
        reports.iter_mut().for_each(|report| report.seq = 0);
        let count = reports.len();
        trace!(
            self.world,
            "LIE {} says {count} old reports again", self.world.nodes[node].name
        );
        self.world.network().send_to_ctld(conn, reports);
    }

    /// Somebody connects in the name of a node that is connected, tells of an absurd machine and of jobs that are not
    /// there, acknowledges what never was, and goes.
    fn connect_beside(&mut self, node: usize) {
        let here = &self.world.nodes[node];
        if self.world.controller.is_none()
            || self.world.now < here.cut_off_until
            || !here.machine_up
        {
            return;
        }
        let present = here.present().into_iter().collect();
        let mut hello = here.hello(self.world.time(), present, LIARS_KEYS.map(Vec::from));
        self.spoil_hello(&mut hello);
        let conn = self.open(node);
        trace!(
            self.world,
            "LIE somebody connects as {} ({conn}): {} CPUs, {} MiB",
            hello.name,
            hello.info.cpus,
            hello.info.memory_mib
        );
        self.world.later(
            1,
            WorldEvent::Hello {
                conn,
                hello: Box::new(hello),
            },
        );
        let seq = *self.world.chaos.pick(&[0, 1, u64::MAX]);
        let job = JobId(u64::MAX);
        let attempt = Attempt(1);
        let report = Report::Released;
        let nothing = NumberedReport {
            seq,
            job,
            attempt,
            report,
        };
        self.world.network().send_to_ctld(conn, vec![nothing]);
        let delay = self.world.chaos.between(5, 3_000);
        self.world.later(delay, WorldEvent::CtldSeesClosed { conn });
    }

    /// The boot is the true one: what runs on a machine is the truth of this model, and a boot would end it.
    fn spoil_hello(&mut self, hello: &mut NodeHello) {
        let random = &mut self.world.chaos;
        let info = &mut hello.info;
        info.cpus = *random.pick(&[0, 1, info.cpus, u32::MAX]);
        info.memory_mib = *random.pick(&[0, info.memory_mib, 1 << 32, u64::MAX]);
        info.free_mib = u64::MAX;
        info.load_centi = u32::MAX;
        info.numa_domains = Some(u32::MAX);
        info.numa_distances = vec![u32::MAX; random.below(100) as usize];
        info.boot_time.0 = *random.pick(&[i64::MIN, 0, i64::MAX]);
        if random.one_in(8) {
            hello.name = (*random.pick(&["", "nobody", "n[0-3]"])).to_owned();
        }
        for _ in 0..random.below(5) {
            hello.present.push(JobAttempt::new(
                JobId(1 << 40 | random.next()),
                Attempt(random.small(0, 9)),
            ));
        }
    }

    /// A lie changes no job, and no other node.
    fn check_lie(&mut self, node: usize, report: &NumberedReport) -> Outcome {
        let now = self.world.clock();
        let Some(controller) = &self.world.controller else {
            return Ok(());
        };
        let (state, idx) = (controller.writer.state(), World::idx(node));
        let command = Command::Node(idx, node_command(report.clone()));
        let decision = catch_unwind(AssertUnwindSafe(|| decide(state, &command, now)));
        let Ok(decision) = decision else {
            let detail = format!("a decision on a report of node {node}: {report:?}");
            return Err(Violation::new("invariant_nothing_panics", detail));
        };
        let about_itself = |event: &Event| match event {
            Event::NodeChanged { node, change, .. } => {
                *node == idx && !matches!(change, NodeChange::Down(_))
            }
            Event::ReservationSet { .. } | Event::ReservationGone { .. } => true,
            _ => false,
        };
        match decision.events.iter().find(|event| !about_itself(event)) {
            None => Ok(()),
            Some(event) => Err(Violation::new(
                "invariant_nodes_report_own_jobs_only",
                format!("node {node} reports {report:?}: {event:?}"),
            )),
        }
    }

    /// A connection in the name of a node.
    fn open(&mut self, node: usize) -> Conn {
        let conn = self.world.next_conn;
        self.world.next_conn += 1;
        self.world
            .connections
            .insert(conn, self.world.new_connection(node));
        conn
    }
}

/// Whether a job holds a node, or is led by it.
fn on_node(state: &State, job: JobId, node: NodeIdx) -> bool {
    let Some(job) = state.jobs.get(&job) else {
        return false;
    };
    let lead = job.alloc.as_ref().and_then(|alloc| alloc.nodes.first());
    job.held().any(|(share, _)| share.node == node) || lead.is_some_and(|l| l.node == node)
}
