//! Messages of nodes: registrations, reports, and which nodes have yet to come back.

use super::queue::{Cost, Queue};
use super::retry::ReportAck;
use super::{NewLink, Work, Writer, cluster_name, joining};
use crate::configuration::containers;
use crate::mail::{Link, ToWriter};
use log::info;
use muster_model::command::{Command, NodeCommand};
use muster_model::ids::NodeIdx;
use muster_model::node::{GresConfig, NodeInfo, NodeLink};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::time::Timestamp;
use muster_proto::cgroup::DeviceFiles;
use muster_proto::node::{NodeHello, NodeSettings, NumberedReport, Report, Welcome};
use muster_proto::version::Versions;
use muster_sched::engine::Turn;
use tokio::sync::oneshot;

/// Reports of a message that are being decided.
pub(super) struct NodeReports {
    pub(super) node: NodeIdx,
    /// The connection by which they came.
    pub(super) generation: u64,
    /// Reports that are not decided yet.
    pub(super) left: std::vec::IntoIter<NumberedReport>,
    /// The cost of the others.
    pub(super) cost: u64,
}

impl NodeReports {
    /// Puts the remaining reports back for the next turn. They came by a connection: if that is not the node's latest any more
    /// by then, they are dropped, as they were not acknowledged.
    fn put_back(self, queue: &mut Queue) {
        let reports: Vec<NumberedReport> = self.left.collect();
        if reports.is_empty() {
            return;
        }
        let rest = ToWriter::Reports {
            node: self.node,
            generation: self.generation,
            reports,
        };
        queue.put_back(self.node, rest);
    }
}

impl Writer {
    /// After a restart the history says that nodes are connected which have yet to come back; if they do not, their
    /// time runs from now.
    pub(super) fn miss_nodes(&mut self, now: Timestamp, turn: &mut Turn) {
        let nodes = &self.engine.state().nodes;
        let missing: Vec<NodeIdx> = nodes
            .iter()
            .filter(|node| node.link == NodeLink::Up && !self.generations.contains_key(&node.idx))
            .map(|node| node.idx)
            .collect();
        for node in missing {
            self.engine
                .decide(0, &Command::Node(node, NodeCommand::Lost), now, turn);
        }
    }

    /// The settings as one node gets them.
    pub(super) fn settings_of(&self, node: &str) -> NodeSettings {
        let place = self.places.get(node).cloned().unwrap_or_default();
        let mut settings = NodeSettings {
            topology_addr: place.address,
            topology_pattern: place.pattern,
            ..self.settings.clone()
        };
        let container = containers::of_node(&settings.containers, node);
        settings.containers = container.into_iter().collect();
        if let Some(cgroups) = settings.cgroups.as_mut().filter(|c| c.devices) {
            let mut nodes = self.engine.state().nodes.iter();
            let gres = nodes
                .find(|n| n.config.name == node)
                .map(|n| &n.config.gres);
            let files = |gres: &GresConfig| DeviceFiles {
                name: gres.name.clone(),
                kind: gres.kind.clone(),
                files: gres.files.clone(),
            };
            cgroups.gres = gres.into_iter().flatten().map(files).collect();
        }
        settings
    }

    /// Registers a node by its hello. Its link takes over when the turn is durable.
    pub(super) fn hello(
        &mut self,
        hello: NodeHello,
        link: Link,
        answer: oneshot::Sender<Result<NodeIdx, Refusal>>,
        now: Timestamp,
        work: &mut Work,
    ) {
        let node = match joining::node_of(self, &hello, now, &mut work.turn) {
            Ok(node) => node,
            Err(refusal) => {
                let _ = answer.send(Err(refusal));
                return;
            }
        };
        // A hello may wait longer than one that came after it.
        let current = self.generations.get(&node);
        if current.is_some_and(|current| *current > link.generation) {
            let detail = format!("node {} has registered on a newer connection", hello.name);
            let _ = answer.send(Err(Refusal::new(RefusalCode::Busy, detail)));
            return;
        }
        info!(
            "node {} registered ({} jobs there)",
            hello.name,
            hello.present.len()
        );
        let present = hello.present.clone();
        let info: Box<NodeInfo> = Box::new(hello.info);
        let command = NodeCommand::Register {
            info,
            present: hello.present,
        };
        if self.retry.is_poison(node, &command) {
            let detail = "what it says of itself met a fault in the controller before; see the log of slurmctld";
            let _ = answer.send(Err(Refusal::new(RefusalCode::InvalidValue, detail)));
            return;
        }
        let Work {
            turn, out, report, ..
        } = work;
        let command = report.insert(Command::Node(node, command));
        self.engine.decide(0, command, now, turn);
        *report = None;
        self.generations.insert(node, link.generation);
        let welcome = Welcome {
            public_key: self.keys.public().into(),
            cluster: cluster_name(self.engine.state()),
            greeting: Some(Versions::CLUSTER.greeting()),
        };
        let settings = self.settings_of(&hello.name);
        out.welcomes.push(NewLink {
            node,
            link,
            welcome: Box::new(welcome),
            settings: Box::new(settings),
            answer,
        });
        out.registered.push((node, present));
    }

    /// Decides the reports of a node that are left in this turn. Once the turn has no room for more they wait for the next one:
    /// a node may have thousands, and users' commands come between.
    pub(super) fn reports(&mut self, now: Timestamp, work: &mut Work) {
        while let Some(reports) = &mut work.reports {
            let node = reports.node;
            if !self.queue.has_room_for_nodes(reports.cost) {
                let left = work.reports.take();
                return left.map_or((), |reports| reports.put_back(&mut self.queue));
            }
            let Some(report) = reports.left.next() else {
                work.reports = None;
                return;
            };
            // The reports before it are decided, and durable once the turn is.
            work.out.acknowledge(ReportAck {
                node,
                generation: reports.generation,
                seq: report.seq,
            });
            self.retry.mark(work);
            let command = node_command(report);
            if self.retry.is_poison(node, &command) {
                continue;
            }
            let before = (work.turn.events.len(), work.turn.effects.len());
            let begun = (self.stopwatch)();
            let command = work.report.insert(Command::Node(node, command));
            self.engine.decide(0, command, now, &mut work.turn);
            work.report = None;
            let cost = Cost {
                events: &work.turn.events[before.0..],
                orders: work.turn.effects.len() - before.1,
                time: (self.stopwatch)().saturating_sub(begun),
            };
            if let Some(reports) = &mut work.reports {
                reports.cost = reports.cost.saturating_add(cost.total(0));
            }
        }
    }

    /// Whether a connection is the latest of its node.
    pub(super) fn is_current(&self, node: NodeIdx, generation: u64) -> bool {
        self.generations.get(&node) == Some(&generation)
    }
}

/// The command of a report.
pub fn node_command(numbered: NumberedReport) -> NodeCommand {
    let NumberedReport {
        job,
        attempt,
        report,
        ..
    } = numbered;
    match report {
        Report::BatchEnded { exit, oom, end } => NodeCommand::BatchEnded {
            job,
            attempt,
            exit,
            oom,
            end: *end,
        },
        Report::Released => NodeCommand::Released { job, attempt },
        Report::LaunchFailed {
            error,
            node_fault,
            prolog,
            lack,
        } => NodeCommand::LaunchFailed {
            job,
            attempt,
            error,
            node_fault,
            prolog,
            lack,
        },
        Report::NodeFault { error } => NodeCommand::NodeFault {
            job,
            attempt,
            error,
        },
        Report::Vanished => NodeCommand::Vanished { job, attempt },
        Report::StepStarted(step) => NodeCommand::StepStarted { job, attempt, step },
        Report::StepEnded { step, end } => NodeCommand::StepEnded {
            job,
            attempt,
            step,
            end,
        },
    }
}
