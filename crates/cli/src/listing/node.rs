//! A node as listings see it: its state with Slurm's names and flags, its resources and their use.

use super::text::{self, put};
use muster_model::config::{OverSubscribe, PartitionConfig, PartitionState};
use muster_model::node::{GresConfig, Node};
use muster_model::node_state::{NodeState, StateFlag};
use muster_model::time::TimeLimit;

/// A node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeView<'a> {
    /// The record.
    pub(crate) node: &'a Node,
    /// Its state.
    pub(crate) state: NodeState,
}

impl<'a> NodeView<'a> {
    /// A node: whether a job that holds it is completing, and whether a reservation has it now, with true one for maintenance.
    pub(crate) fn new(node: &'a Node, completing: bool, reserved: Option<bool>) -> NodeView<'a> {
        NodeView {
            node,
            state: node.state(completing, reserved),
        }
    }

    /// CPUs that jobs hold.
    pub(crate) fn used_cpus(&self) -> u32 {
        self.job_cpus().saturating_sub(self.node.free_cpus.len())
    }

    /// CPUs that jobs may get.
    pub(crate) fn job_cpus(&self) -> u32 {
        self.node.config.job_cpus().len()
    }

    /// `%T`.
    pub(crate) fn write_state(&self, out: &mut String) {
        out.push_str(self.state.words().0);
        out.extend(self.state.mark());
    }

    /// `%t`.
    pub(crate) fn write_state_code(&self, out: &mut String) {
        out.push_str(self.state.words().1);
        out.extend(self.state.mark());
    }

    /// Names of the flags beside the base state.
    pub(crate) fn flags(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.state.flags().map(StateFlag::name)
    }

    /// Load average over a minute, times 100.
    pub(crate) fn load_centi(&self) -> Option<u32> {
        self.node.report.as_ref().map(|r| r.load_centi)
    }

    /// Free memory, MiB.
    pub(crate) fn free_mib(&self) -> Option<u64> {
        self.node.report.as_ref().map(|r| r.free_mib)
    }

    /// Release that its agent runs.
    pub(crate) fn version(&self) -> Option<&'a str> {
        self.node.report.as_ref().map(|r| r.version.as_str())
    }

    /// Sockets, never 0.
    pub(crate) fn sockets(&self) -> u32 {
        self.node.config.sockets.max(1)
    }

    /// `%G`: `gpu:a100:2`.
    pub(crate) fn write_gres(&self, out: &mut String) {
        if self.node.config.gres.is_empty() {
            return out.push_str("(null)");
        }
        for (i, gres) in self.node.config.gres.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            write_gres_name(out, gres);
            put!(out, ":{}", gres.count);
        }
    }

    /// Devices in use: `gpu:a100:1(IDX:0)`.
    pub(crate) fn write_gres_used(&self, out: &mut String) {
        if self.node.config.gres.is_empty() {
            return out.push_str("(null)");
        }
        for (i, gres) in self.node.config.gres.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            write_gres_name(out, gres);
            // Numbered over all types of the name, as in the environment of jobs.
            let before = self.node.config.gres[..i].iter();
            let first: u64 = (before.filter(|g| g.name == gres.name))
                .map(|g| g.count)
                .sum();
            let first = u32::try_from(first).unwrap_or(u32::MAX);
            let used = self.node.used_gres.get(i);
            let used: Vec<u32> = used.map_or(Vec::new(), |s| {
                s.iter().map(|id| first.saturating_add(id)).collect()
            });
            put!(out, ":{}", used.len());
            if let Some(parts) = &gres.parts {
                let taken = |range: std::ops::Range<u32>| {
                    let used = self.node.used_gres.get(i);
                    let used = used.into_iter().flat_map(|used| used.iter());
                    used.filter(|id| range.contains(id)).count()
                };
                // For each GPU: parts in use, and all.
                let each: Vec<String> = (parts.gpus())
                    .map(|(_, range)| {
                        let all = range.end - range.start;
                        format!("{}/{all}", taken(range))
                    })
                    .collect();
                put!(out, "({})", each.join(","));
            } else if used.is_empty() {
                out.push_str("(IDX:N/A)");
            } else {
                put!(out, "(IDX:{})", muster_model::hostlist::ranges(&used));
            }
        }
    }

    /// `cpu=16,mem=8000M,billing=16`.
    pub(crate) fn write_tres(&self, out: &mut String) {
        let config = &self.node.config;
        put!(out, "cpu={},mem=", self.job_cpus());
        text::memory(out, config.memory_mib, false);
        put!(out, ",billing={}", self.job_cpus());
        for gres in &config.gres {
            put!(out, ",gres/{}={}", gres.name, gres.count);
        }
    }

    /// Resources held by jobs: `cpu=7,mem=100M`; empty when nothing.
    pub(crate) fn write_used_tres(&self, out: &mut String) {
        let used = self.used_cpus();
        if used == 0 {
            return;
        }
        put!(out, "cpu={used}");
        if self.node.used_mib > 0 {
            out.push_str(",mem=");
            text::memory(out, self.node.used_mib, false);
        }
        for (gres, used) in self.node.config.gres.iter().zip(&self.node.used_gres) {
            if !used.is_empty() {
                put!(out, ",gres/{}={}", gres.name, used.len());
            }
        }
    }
}

fn write_gres_name(out: &mut String, gres: &GresConfig) {
    out.push_str(&gres.name);
    if let Some(kind) = &gres.kind {
        put!(out, ":{kind}");
    }
}

/// `%a` of sinfo.
pub(crate) fn availability(state: PartitionState) -> &'static str {
    match state {
        PartitionState::Up => "up",
        PartitionState::Down => "down",
        PartitionState::Drain => "drain",
        PartitionState::Inactive => "inact",
    }
}

/// `%h` of sinfo: `NO`, `YES:4`, `FORCE:4`, `EXCLUSIVE`.
pub(crate) fn write_over_subscribe(out: &mut String, partition: &PartitionConfig) {
    match partition.over_subscribe {
        OverSubscribe::No => out.push_str("NO"),
        OverSubscribe::Yes(n) => put!(out, "YES:{n}"),
        OverSubscribe::Force(n) => put!(out, "FORCE:{n}"),
        OverSubscribe::Exclusive => out.push_str("EXCLUSIVE"),
    }
}

/// `%s` of sinfo: `1-infinite`, `2-3`, `2`.
pub(crate) fn write_job_size(out: &mut String, partition: &PartitionConfig) {
    let least = partition.min_nodes.max(1);
    match partition.max_nodes {
        None => put!(out, "{least}-infinite"),
        Some(most) if most == least => put!(out, "{most}"),
        Some(most) => put!(out, "{least}-{most}"),
    }
}

/// A limit as sinfo writes it.
pub(crate) fn write_limit(out: &mut String, limit: Option<TimeLimit>) {
    match limit {
        None => out.push_str("n/a"),
        Some(TimeLimit::Unlimited) => out.push_str("infinite"),
        Some(TimeLimit::Minutes(m)) => text::short_duration(out, i64::from(m) * 60),
    }
}
