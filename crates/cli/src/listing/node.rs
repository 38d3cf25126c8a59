//! A node as listings see it: its state with Slurm's names and flags, what it has and what of it is in use.

use super::text::{self, put};
use muster_core::config::{OverSubscribe, PartitionConfig, PartitionState};
use muster_core::node::{GresConfig, Node, NodeLink};
use muster_core::time::TimeLimit;

/// Base states of nodes, in Slurm's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BaseState {
    /// Has not registered yet.
    Unknown,
    /// Not in use.
    Down,
    /// No job.
    Idle,
    /// No CPU is free.
    Allocated,
    /// Some CPUs are free.
    Mixed,
    /// Not there yet (`State=FUTURE`).
    Future,
}

impl BaseState {
    /// As `scontrol show node` has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            BaseState::Unknown => "UNKNOWN",
            BaseState::Down => "DOWN",
            BaseState::Idle => "IDLE",
            BaseState::Allocated => "ALLOCATED",
            BaseState::Mixed => "MIXED",
            BaseState::Future => "FUTURE",
        }
    }

    fn number(self) -> u32 {
        match self {
            BaseState::Unknown => 0,
            BaseState::Down => 1,
            BaseState::Idle => 2,
            BaseState::Allocated => 3,
            BaseState::Mixed => 5,
            BaseState::Future => 6,
        }
    }
}

/// A node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeView<'a> {
    /// The record.
    pub(crate) node: &'a Node,
    /// A job that holds it is completing.
    pub(crate) completing: bool,
    /// A reservation has it now: whether for maintenance.
    pub(crate) reserved: Option<bool>,
}

impl<'a> NodeView<'a> {
    /// CPUs that jobs hold.
    pub(crate) fn used_cpus(&self) -> u32 {
        self.job_cpus().saturating_sub(self.node.free_cpus.len())
    }

    /// CPUs that jobs may get.
    pub(crate) fn job_cpus(&self) -> u32 {
        self.node.config.job_cpus().len()
    }

    /// The base state.
    pub(crate) fn base(&self) -> BaseState {
        let used = self.used_cpus();
        if self.node.down {
            BaseState::Down
        } else if self.node.config.state == "FUTURE" {
            BaseState::Future
        } else if used > 0 && (used >= self.job_cpus() || self.node.exclusive) {
            BaseState::Allocated
        } else if used > 0 {
            BaseState::Mixed
        } else if self.node.link == NodeLink::Never && self.node.power.is_none() {
            BaseState::Unknown
        } else {
            BaseState::Idle
        }
    }

    /// Whether its agent is not connected.
    pub(crate) fn silent(&self) -> bool {
        self.node.link != NodeLink::Up
            && self.node.config.state != "FUTURE"
            && self.node.power.is_none()
    }

    /// Whether jobs run on it or are being cleaned up.
    pub(crate) fn busy(&self) -> bool {
        self.completing || matches!(self.base(), BaseState::Allocated | BaseState::Mixed)
    }

    /// The state in one word, long and short, without the mark for silence.
    fn word(&self) -> (&'static str, &'static str) {
        if self.node.drain {
            return if self.busy() {
                ("draining", "drng")
            } else {
                ("drained", "drain")
            };
        }
        if self.node.fail {
            return if self.completing || self.base() == BaseState::Allocated {
                ("failing", "failg")
            } else {
                ("fail", "fail")
            };
        }
        match self.base() {
            BaseState::Down => ("down", "down"),
            BaseState::Allocated if self.completing => ("allocated+", "alloc+"),
            BaseState::Allocated => ("allocated", "alloc"),
            _ if self.completing => ("completing", "comp"),
            BaseState::Mixed => ("mixed", "mix"),
            BaseState::Idle if self.reserved == Some(true) => ("maint", "maint"),
            BaseState::Idle if self.reserved.is_some() => ("reserved", "resv"),
            BaseState::Idle => ("idle", "idle"),
            BaseState::Future => ("future", "futr"),
            BaseState::Unknown => ("unknown", "unk"),
        }
    }

    /// `%T`.
    pub(crate) fn write_state(&self, out: &mut String) {
        out.push_str(self.word().0);
        self.mark(out);
    }

    /// `%t`.
    pub(crate) fn write_state_code(&self, out: &mut String) {
        out.push_str(self.word().1);
        self.mark(out);
    }

    fn mark(&self, out: &mut String) {
        let in_maintenance = self.reserved == Some(true) && self.base() != BaseState::Idle;
        match self.reboot() {
            Some(true) => out.push('^'),
            Some(false) => out.push('@'),
            None if self.node.power.is_some() => {
                out.extend(self.node.power.map(|power| power.shown().1));
            }
            None if self.silent() => out.push('*'),
            None if in_maintenance => out.push('$'),
            None => {}
        }
    }

    /// Whether a reboot was asked for, and with true ordered.
    fn reboot(&self) -> Option<bool> {
        self.node.reboot.as_ref().map(|r| r.issued.is_some())
    }

    /// Flags beside the base state, in Slurm's order.
    pub(crate) fn flags(&self) -> impl Iterator<Item = &'static str> + use<> {
        [
            (self.reserved == Some(true), "MAINTENANCE"),
            (self.reserved.is_some(), "RESERVED"),
            (self.node.drain, "DRAIN"),
            (self.completing, "COMPLETING"),
            (self.silent(), "NOT_RESPONDING"),
            (self.node.fail, "FAIL"),
            (self.reboot() == Some(false), "REBOOT_REQUESTED"),
            (self.reboot() == Some(true), "REBOOT_ISSUED"),
        ]
        .into_iter()
        .filter_map(|(on, name)| on.then_some(name))
        .chain((self.node.config.state == "CLOUD").then_some("CLOUD"))
        .chain(self.node.power.map(|power| power.shown().0))
    }

    /// `IDLE+DRAIN`.
    pub(crate) fn write_complete_state(&self, out: &mut String) {
        out.push_str(self.base().name());
        for flag in self.flags() {
            out.push('+');
            out.push_str(flag);
        }
    }

    /// The state as the number that Slurm orders nodes by: base state, with a bit for each flag.
    pub(crate) fn order(&self) -> u32 {
        self.base().number()
            | u32::from(self.reserved.is_some()) << 6
            | u32::from(self.reserved == Some(true)) << 8
            | u32::from(self.node.drain) << 9
            | u32::from(self.completing) << 10
            | u32::from(self.silent()) << 11
            | u32::from(self.node.fail) << 13
    }

    /// Whether CPUs that no job holds can be given to one: otherwise they count as "other".
    pub(crate) fn offers_cpus(&self) -> bool {
        !self.node.drain
            && !matches!(
                self.base(),
                BaseState::Down | BaseState::Unknown | BaseState::Future
            )
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
                // Of each GPU: parts in use, and all.
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
                put!(out, "(IDX:{})", muster_core::hostlist::ranges(&used));
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

    /// What jobs hold of that: `cpu=7,mem=100M`; empty when nothing.
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
