//! Which nodes and partitions sinfo shows.

use super::super::Failure;
use super::super::node::{BaseState, NodeView};
use muster_core::config::PartitionConfig;
use std::collections::HashSet;

/// A state of `--states`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Base(BaseState),
    Drain,
    Drained,
    Draining,
    Completing,
    Fail,
    NoRespond,
    Reserved,
    Maintenance,
    /// One of the flags that `scontrol show node` puts beside the state.
    Flag(&'static str),
    /// A state of Slurm that nodes here are never in.
    Never,
}

/// Conditions; all that are given must hold.
#[derive(Debug, Default)]
pub(super) struct Selection {
    pub(super) nodes: Option<HashSet<String>>,
    pub(super) partitions: Vec<String>,
    /// Any of these sets of states, of which all must hold.
    pub(super) states: Vec<Vec<Wish>>,
    pub(super) dead: bool,
    pub(super) responding: bool,
    pub(super) hidden: bool,
    pub(super) future: bool,
}

const STATES: &[(&str, Wish)] = &[
    ("UNKNOWN", Wish::Base(BaseState::Unknown)),
    ("UNK", Wish::Base(BaseState::Unknown)),
    ("DOWN", Wish::Base(BaseState::Down)),
    ("IDLE", Wish::Base(BaseState::Idle)),
    ("ALLOCATED", Wish::Base(BaseState::Allocated)),
    ("ALLOC", Wish::Base(BaseState::Allocated)),
    ("MIXED", Wish::Base(BaseState::Mixed)),
    ("MIX", Wish::Base(BaseState::Mixed)),
    ("FUTURE", Wish::Base(BaseState::Future)),
    ("FUTR", Wish::Base(BaseState::Future)),
    ("DRAIN", Wish::Drain),
    ("DRAINED", Wish::Drained),
    ("DRAINING", Wish::Draining),
    ("DRNG", Wish::Draining),
    ("COMPLETING", Wish::Completing),
    ("COMP", Wish::Completing),
    ("FAIL", Wish::Fail),
    ("NO_RESPOND", Wish::NoRespond),
    ("NOT_RESPONDING", Wish::NoRespond),
    ("RESERVED", Wish::Reserved),
    ("RESV", Wish::Reserved),
    ("PLANNED", Wish::Never),
    ("PLND", Wish::Never),
    ("MAINT", Wish::Maintenance),
    ("PERFCTRS", Wish::Never),
    ("NPC", Wish::Never),
    ("CLOUD", Wish::Flag("CLOUD")),
    ("POWER_DOWN", Wish::Flag("POWER_DOWN")),
    ("POWERING_DOWN", Wish::Flag("POWERING_DOWN")),
    ("POWERED_DOWN", Wish::Flag("POWERED_DOWN")),
    ("POWER_UP", Wish::Flag("POWERING_UP")),
    ("POWERING_UP", Wish::Flag("POWERING_UP")),
    ("REBOOT_ISSUED", Wish::Flag("REBOOT_ISSUED")),
    ("REBOOT_REQUESTED", Wish::Flag("REBOOT_REQUESTED")),
    ("INVAL", Wish::Never),
    ("BLOCKED", Wish::Never),
];

/// Reads `--states`: `idle,mix`, `drain&idle`, `all`.
pub(super) fn parse_states(list: &str) -> Result<Vec<Vec<Wish>>, Failure> {
    let mut any = Vec::new();
    for words in list.split(',').filter(|w| !w.is_empty()) {
        if words.eq_ignore_ascii_case("all") {
            return Ok(Vec::new());
        }
        let all: Result<Vec<Wish>, Failure> = words.split('&').map(parse_state).collect();
        any.push(all?);
    }
    Ok(any)
}

fn parse_state(word: &str) -> Result<Wish, Failure> {
    let wanted = word.trim();
    STATES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
        .map(|(_, wish)| *wish)
        .ok_or_else(|| {
            let names: Vec<String> = STATES.iter().map(|(n, _)| n.to_ascii_lowercase()).collect();
            Failure::new(format!(
                "sinfo: error: Bad state string: \"{wanted}\"\nsinfo: error: valid states: {}",
                names.join(",")
            ))
        })
}

impl Selection {
    /// Whether the partition is shown.
    pub(super) fn wants_partition(&self, partition: &PartitionConfig) -> bool {
        if self.partitions.is_empty() {
            return self.hidden || !partition.hidden;
        }
        self.partitions.contains(&partition.name)
    }

    /// Whether the node is shown.
    pub(super) fn wants_node(&self, view: &NodeView<'_>) -> bool {
        let named = self.nodes.as_ref();
        named.is_none_or(|names| names.contains(&view.node.config.name))
            && (!self.dead || view.silent())
            && (!self.responding || !view.silent())
            && (view.base() != BaseState::Future || self.future || self.asks_for_future())
            && (self.states.is_empty()
                || self
                    .states
                    .iter()
                    .any(|all| all.iter().all(|w| fits(*w, view))))
    }

    fn asks_for_future(&self) -> bool {
        self.states
            .iter()
            .flatten()
            .any(|w| *w == Wish::Base(BaseState::Future))
    }
}

fn fits(wish: Wish, view: &NodeView<'_>) -> bool {
    match wish {
        // Slurm counts a node with some CPUs taken among the allocated ones.
        Wish::Base(BaseState::Allocated) => {
            matches!(view.base(), BaseState::Allocated | BaseState::Mixed)
        }
        Wish::Base(base) => view.base() == base,
        Wish::Drain => view.node.drain,
        Wish::Drained => view.node.drain && !view.busy(),
        Wish::Draining => view.node.drain && view.busy(),
        Wish::Completing => view.completing,
        Wish::Fail => view.node.fail,
        Wish::NoRespond => view.silent(),
        Wish::Reserved => view.reserved.is_some(),
        Wish::Maintenance => view.reserved == Some(true),
        Wish::Flag(wanted) => view.flags().any(|flag| flag == wanted),
        Wish::Never => false,
    }
}
