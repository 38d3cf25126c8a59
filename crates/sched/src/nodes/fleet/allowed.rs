//! Resources of the fleet's nodes that partition rules and advance reservations allow.

use super::{Fleet, PartView};
use crate::nodes::allocations::EndAssumption;
use crate::nodes::class::{unavailable, whole_granules};
use crate::nodes::room::{Detail, Room, Want};
use muster_model::cpuset::CpuSet;
use muster_model::job::{NodeShare, Reason};
use muster_model::reservation::RunWindow;
use muster_model::time::Timestamp;
use std::borrow::Cow;

impl Fleet {
    /// Number of the free CPUs of the node at a place that a job of the partition may use.
    pub(crate) fn open_count(&self, part: &PartView, pos: usize, free: &CpuSet) -> u32 {
        let node = &self.nodes[part.order[pos] as usize];
        let class = &self.classes[node.class as usize];
        whole_granules(&part.cpus.open(class, pos, free), class.granule)
    }

    /// Number of its free CPUs that jobs of the partition may use after the jobs that end by then
    /// have left.
    pub(crate) fn open_at(
        &self,
        part: &PartView,
        pos: usize,
        at: Timestamp,
        assumed: EndAssumption,
    ) -> u32 {
        let node = part.order[pos];
        let class = &self.classes[self.nodes[node as usize].class as usize];
        let rule = &part.cpus.rule;
        let mut held = part.cpus.held(pos).unwrap_or_default();
        held.subtract(&self.leaving(node, &part.config.name, at, assumed));
        let open = match self.detail_at(node, at, assumed) {
            Some(detail) => whole_granules(&rule.open(class, &held, &detail.free), class.granule),
            None => u32::MAX,
        };
        let most = rule.per_node.unwrap_or(u32::MAX);
        open.min(most.saturating_sub(held.len()))
    }
}

impl Fleet {
    /// Number of CPUs and other resources of a node's room that reservations leave now to a job of
    /// the partition that ends at `end`, checked by individual CPU.
    pub(crate) fn left_now<'r>(
        &self,
        part: &PartView,
        node: u32,
        end: Timestamp,
        room: Cow<'r, Room>,
    ) -> (Cow<'r, Room>, Option<Reason>) {
        if self.blocks.all.is_empty() {
            return (room, None);
        }
        let window = RunWindow::from_now(self.now, end);
        let (mut left, why) = self.blocks.narrow(part.own.as_ref(), node, window, room);
        let by_core = self.blocks.by_core(node);
        if by_core && left.usable {
            let class = &self.classes[self.nodes[node as usize].class as usize];
            let mut free = self.free_cpus(node).clone();
            free.subtract(
                &self
                    .blocks
                    .hidden(part.own.as_ref(), node, class.cpus, window),
            );
            let cpus = whole_granules(&free, class.granule);
            if cpus != left.cpus {
                left.to_mut().cpus = cpus;
            }
        }
        (left, why)
    }

    /// Individual free CPUs and devices that reservations leave now.
    pub(crate) fn detail_now(&self, part: &PartView, node: u32, end: Timestamp) -> Detail {
        let view = &self.nodes[node as usize];
        let mut free = view.free.clone();
        let class = &self.classes[view.class as usize];
        let list = self.blocks.on_node.get(node as usize);
        if list.is_some_and(|list| !list.is_empty()) {
            let window = RunWindow::from_now(self.now, end);
            free.subtract(
                &self
                    .blocks
                    .hidden(part.own.as_ref(), node, class.cpus, window),
            );
        }
        Detail {
            free,
            gres_used: unavailable(class, &view.gres_used).into_owned(),
        }
    }

    /// Takes a share of a node for a job, out of the resources that reservations leave.
    pub(crate) fn take_allowed(
        &mut self,
        node: u32,
        part: u32,
        want: &Want,
        window: RunWindow,
    ) -> NodeShare {
        if self
            .blocks
            .on_node
            .get(node as usize)
            .is_none_or(Vec::is_empty)
        {
            return self.take(node, part, want);
        }
        let cpus = self.classes[self.nodes[node as usize].class as usize].cpus;
        let hidden = self
            .blocks
            .hidden(self.parts[part as usize].own.as_ref(), node, cpus, window);
        let kept = self.hide_cpus(node, &hidden);
        let share = self.take(node, part, want);
        self.show_cpus(node, &kept);
        share
    }
}
