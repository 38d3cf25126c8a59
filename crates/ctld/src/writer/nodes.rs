//! What nodes say: who registers, what they report, and which of them have yet to come back.

use super::{NewLink, Work, Writer, cluster_name, joining};
use crate::configuration::containers;
use crate::mail::Link;
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
        let (address, pattern) = self.places.get(node).cloned().unwrap_or_default();
        let mut settings = NodeSettings {
            topology_addr: address,
            topology_pattern: pattern,
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
        let welcome = (Box::new(welcome), Box::new(settings));
        out.welcomes.push(NewLink {
            node,
            link,
            welcome,
            answer,
        });
        out.registered.push((node, present));
    }

    /// Decides the reports of a node that are left in this turn.
    pub(super) fn reports(&mut self, now: Timestamp, work: &mut Work) {
        while let Some((node, reports)) = &mut work.reports {
            let node = *node;
            let Some(report) = reports.next() else {
                work.reports = None;
                return;
            };
            self.retry.mark(work);
            let command = node_command(report);
            if self.retry.is_poison(node, &command) {
                continue;
            }
            let command = work.report.insert(Command::Node(node, command));
            self.engine.decide(0, command, now, &mut work.turn);
            work.report = None;
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
