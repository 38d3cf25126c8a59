//! What each event does to one node.

use crate::cpuset::CpuSet;
use crate::event::{Event, NodeChange};
use crate::ids::{JobId, NodeIdx};
use crate::job::{Allocation, GresShare, NodeShare};
use crate::node::{Node, NodeConfig, NodeInfo, NodeLink, NodeReason};
use crate::node_state::InitialState;
use crate::power::Power;
use crate::time::Timestamp;

impl Node {
    /// A node that was just added to the configuration.
    pub(crate) fn new(idx: NodeIdx, config: &NodeConfig, at: Timestamp) -> Node {
        let reason = config.reason.clone();
        let mut node = Node {
            idx,
            config: config.clone(),
            report: None,
            link: NodeLink::Never,
            down: false,
            drain: false,
            fail: false,
            reason: None,
            free_cpus: config.job_cpus(),
            used_mib: 0,
            jobs: Vec::new(),
            exclusive: false,
            last_busy: None,
            launch_failures: 0,
            used_gres: vec![CpuSet::default(); config.gres.len()],
            removed: false,
            reboot: None,
            comment: None,
            shared_cpus: Vec::new(),
            alone: 0,
            alone_by_user: 0,
            only_user: None,
            stopped: 0,
            power: (config.state == InitialState::Cloud).then_some(Power::Down),
        };
        match config.state {
            InitialState::Down | InitialState::Future => node.down = true,
            InitialState::Drain => node.drain = true,
            InitialState::Fail => node.fail = true,
            InitialState::Unknown | InitialState::Cloud => {}
        }
        if node.down || node.drain || node.fail {
            node.reason = Some(NodeReason {
                text: reason.unwrap_or_else(|| {
                    format!("State={} in the configuration", config.state.name())
                }),
                uid: 0,
                since: at,
            });
        }
        node
    }

    /// Whether jobs may be placed on it now.
    pub fn is_usable(&self) -> bool {
        let rebooting = self.reboot.as_ref().is_some_and(|r| r.issued.is_some());
        let there = match self.power {
            None => self.link == NodeLink::Up,
            Some(power) => power.is_asleep(),
        };
        there && !self.down && !self.drain && !self.fail && !self.removed && !rebooting
    }

    /// Memory that no job holds, MiB.
    pub fn unheld_mib(&self) -> u64 {
        self.config.job_mib().saturating_sub(self.used_mib)
    }

    /// The entry of `config.gres` (and of `used_gres`) that a share is taken from.
    pub fn gres_slot(&self, share: &GresShare) -> Option<usize> {
        let entries = &self.config.gres;
        entries
            .iter()
            .position(|g| g.name == share.name && g.kind == share.kind)
            .or_else(|| match share.kind {
                None => entries.iter().position(|g| g.name == share.name),
                Some(_) => None,
            })
    }

    /// The same, of devices that are used up by those who have them.
    pub(crate) fn used_up_slot(&self, share: &GresShare) -> Option<usize> {
        let slot = self.gres_slot(share)?;
        (!self.config.gres[slot].no_consume).then_some(slot)
    }

    /// Gives a job its share.
    pub(crate) fn take(&mut self, job: JobId, share: &NodeShare, alloc: &Allocation) {
        assert!(
            !self.jobs.contains(&job),
            "job {job} is on node {} already",
            self.config.name
        );
        self.jobs.push(job);
        self.hold_resources(share, alloc, false);
    }

    /// Marks a share as used, without the entry in `jobs`; all but its CPUs if those are lent.
    pub(crate) fn hold_resources(&mut self, share: &NodeShare, alloc: &Allocation, lent: bool) {
        if lent {
            self.stopped += 1;
        } else {
            self.hold_cpus(share, alloc);
        }
        self.used_mib = self.used_mib.saturating_add(share.memory_mib);
        for gres in &share.gres {
            if let Some(used) = self
                .used_up_slot(gres)
                .and_then(|slot| self.used_gres.get_mut(slot))
            {
                used.union_with(&gres.ids);
            }
        }
        if alloc.only_user.is_some() {
            self.only_user = alloc.only_user;
            self.alone_by_user += 1;
        }
    }

    /// A job was stopped, or goes on.
    pub(crate) fn follow_stop(&mut self, share: &NodeShare, alloc: &Allocation, stopped: bool) {
        if stopped {
            self.lend_cpus(share, alloc);
            self.stopped += 1;
        } else {
            self.hold_cpus(share, alloc);
            self.stopped -= 1;
        }
    }

    /// A job starts to use its CPUs, or goes on.
    fn hold_cpus(&mut self, share: &NodeShare, alloc: &Allocation) {
        self.alone += u32::from(alloc.exclusive);
        self.exclusive = self.alone > 0;
        if self.free_cpus.is_superset(&share.cpus) {
            return self.free_cpus.subtract(&share.cpus);
        }
        // CPUs that a new configuration took away are nobody's.
        let mut more = share.cpus.clone();
        more.intersect_with(&self.config.job_cpus());
        more.subtract(&self.free_cpus);
        self.free_cpus.subtract(&share.cpus);
        let mut layer = 0;
        while !more.is_empty() {
            if layer == self.shared_cpus.len() {
                self.shared_cpus.push(CpuSet::default());
            }
            let level = &mut self.shared_cpus[layer];
            let mut next = more.clone();
            next.intersect_with(level);
            level.union_with(&more);
            more = next;
            layer += 1;
        }
    }

    /// A job does not use its CPUs any more, or for now.
    fn lend_cpus(&mut self, share: &NodeShare, alloc: &Allocation) {
        let mut less = share.cpus.clone();
        less.intersect_with(&self.config.job_cpus());
        for level in self.shared_cpus.iter_mut().rev() {
            let mut here = less.clone();
            here.intersect_with(level);
            level.subtract(&here);
            less.subtract(&here);
        }
        while self.shared_cpus.last().is_some_and(CpuSet::is_empty) {
            self.shared_cpus.pop();
        }
        self.free_cpus.union_with(&less);
        self.alone = self.alone.saturating_sub(u32::from(alloc.exclusive));
        self.exclusive = self.alone > 0;
    }

    /// Takes back what a job has here.
    pub(crate) fn give_back(
        &mut self,
        job: JobId,
        (share, alloc): (&NodeShare, &Allocation),
        lent: bool,
        at: Timestamp,
    ) {
        let before = self.jobs.len();
        self.jobs.retain(|j| *j != job);
        assert_eq!(
            self.jobs.len() + 1,
            before,
            "job {job} is not on node {}",
            self.config.name
        );
        if lent {
            self.stopped -= 1;
        } else {
            self.lend_cpus(share, alloc);
        }
        self.alone_by_user -= u32::from(alloc.only_user.is_some());
        if self.alone_by_user == 0 {
            self.only_user = None;
        }
        self.used_mib = self.used_mib.saturating_sub(share.memory_mib);
        for gres in &share.gres {
            if let Some(used) = self
                .used_up_slot(gres)
                .and_then(|slot| self.used_gres.get_mut(slot))
            {
                used.subtract(&gres.ids);
            }
        }
        self.last_busy = Some(at);
    }

    /// As if no job held anything here; `jobs` stays.
    pub(crate) fn reset_use(&mut self) {
        self.free_cpus = self.config.job_cpus();
        self.used_mib = 0;
        self.used_gres = vec![CpuSet::default(); self.config.gres.len()];
        self.exclusive = false;
        self.shared_cpus = Vec::new();
        (self.alone, self.alone_by_user, self.only_user) = (0, 0, None);
        self.stopped = 0;
    }

    /// Applies an event about this node.
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::NodeRegistered { info, at, .. } => self.register(info, *at),
            Event::NodeChanged { change, at, .. } => self.change(change, *at),
            Event::Configured { .. }
            | Event::BlobStored { .. }
            | Event::JobSubmitted { .. }
            | Event::TaskSplit { .. }
            | Event::JobChanged { .. }
            | Event::JobStarted { .. }
            | Event::JobEnding { .. }
            | Event::NodeReleased { .. }
            | Event::JobRequeued { .. }
            | Event::JobSuspended { .. }
            | Event::JobResumed { .. }
            | Event::JobsPurged { .. }
            | Event::StepStarted { .. }
            | Event::StepEnded { .. }
            | Event::PartitionChanged { .. }
            | Event::PartitionRemoved { .. }
            | Event::ReservationSet { .. }
            | Event::ReservationStarted { .. }
            | Event::ReservationGone { .. }
            | Event::AccountsChanged { .. }
            | Event::PrioritiesCalculated { .. } => {
                panic!("{event:?} is not about a node")
            }
        }
    }

    /// Its agent connected.
    fn register(&mut self, info: &NodeInfo, at: Timestamp) {
        self.report = Some(info.clone());
        self.link = NodeLink::Up;
        // It idles from now on, if no job has been there.
        self.last_busy.get_or_insert(at);
    }

    /// Applies a change.
    fn change(&mut self, change: &NodeChange, at: Timestamp) {
        match change {
            NodeChange::LinkLost => self.link = NodeLink::Lost(at),
            NodeChange::Down(reason) => {
                self.down = true;
                self.reason = Some(reason.clone());
            }
            NodeChange::Drain(reason) => {
                self.drain = true;
                self.reason = Some(reason.clone());
            }
            NodeChange::Fail(reason) => {
                self.fail = true;
                self.reason = Some(reason.clone());
            }
            NodeChange::Resume => {
                self.down = false;
                self.drain = false;
                self.fail = false;
                self.reason = None;
                self.launch_failures = 0;
                // The wait for a silent node starts anew.
                if matches!(self.link, NodeLink::Lost(_)) {
                    self.link = NodeLink::Lost(at);
                }
            }
            NodeChange::Undrain => {
                self.drain = false;
                self.launch_failures = 0;
                self.drop_reason_if_in_service();
            }
            NodeChange::Reason(reason) => self.reason = Some(reason.clone()),
            NodeChange::Weight(weight) => self.config.weight = *weight,
            NodeChange::CpuBind(bind) => self.config.cpu_bind = *bind,
            NodeChange::Features(features) => self.config.features = features.clone(),
            NodeChange::Health {
                load_centi,
                free_mib,
            } => self.set_health(*load_centi, *free_mib),
            NodeChange::LaunchFailed(true) => {
                self.launch_failures = self.launch_failures.saturating_add(1);
            }
            NodeChange::LaunchFailed(false) => self.launch_failures = 0,
            NodeChange::Comment(text) => {
                self.comment = Some(text.clone()).filter(|t| !t.is_empty());
            }
            NodeChange::Reboot(reboot) => self.reboot.clone_from(reboot),
            NodeChange::Power(power) => {
                self.power = *power;
                if power.is_none() {
                    self.last_busy = Some(at);
                }
            }
            NodeChange::ResumeFailed => self.power = Some(Power::Down),
            NodeChange::Returned => {
                self.down = false;
                self.drop_reason_if_in_service();
            }
        }
    }

    /// Load and free memory, if it ever registered.
    pub(crate) fn set_health(&mut self, load_centi: u32, free_mib: u64) {
        if let Some(report) = &mut self.report {
            report.load_centi = load_centi;
            report.free_mib = free_mib;
        }
    }

    fn drop_reason_if_in_service(&mut self) {
        if !self.down && !self.drain && !self.fail {
            self.reason = None;
        }
    }
}
