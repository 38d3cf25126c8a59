//! Which nodes and partitions sinfo shows.

use super::super::Failure;
use super::super::node::NodeView;
use muster_core::config::PartitionConfig;
use muster_core::node_state::{BaseState, StateFlag, StatePattern};
use std::collections::HashSet;

<<<<<<< HEAD
=======
/// A state of `--states`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeStateFilter {
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

>>>>>>> 978349d4736df0d3cc1958dff6792a19015de62f
/// Conditions; all that are given must hold.
#[derive(Debug, Default)]
pub(super) struct Selection {
    pub(super) nodes: Option<HashSet<String>>,
    pub(super) partitions: Vec<String>,
    /// Any of these sets of states, of which all must hold.
<<<<<<< HEAD
    pub(super) states: Vec<Vec<StatePattern>>,
=======
    pub(super) states: Vec<Vec<NodeStateFilter>>,
>>>>>>> 978349d4736df0d3cc1958dff6792a19015de62f
    pub(super) dead: bool,
    pub(super) responding: bool,
    pub(super) hidden: bool,
    pub(super) future: bool,
}

<<<<<<< HEAD
/// Reads `--states`: `idle,mix`, `drain&idle`, `all`.
pub(super) fn parse_states(list: &str) -> Result<Vec<Vec<StatePattern>>, Failure> {
=======
const STATES: &[(&str, NodeStateFilter)] = &[
    ("UNKNOWN", NodeStateFilter::Base(BaseState::Unknown)),
    ("UNK", NodeStateFilter::Base(BaseState::Unknown)),
    ("DOWN", NodeStateFilter::Base(BaseState::Down)),
    ("IDLE", NodeStateFilter::Base(BaseState::Idle)),
    ("ALLOCATED", NodeStateFilter::Base(BaseState::Allocated)),
    ("ALLOC", NodeStateFilter::Base(BaseState::Allocated)),
    ("MIXED", NodeStateFilter::Base(BaseState::Mixed)),
    ("MIX", NodeStateFilter::Base(BaseState::Mixed)),
    ("FUTURE", NodeStateFilter::Base(BaseState::Future)),
    ("FUTR", NodeStateFilter::Base(BaseState::Future)),
    ("DRAIN", NodeStateFilter::Drain),
    ("DRAINED", NodeStateFilter::Drained),
    ("DRAINING", NodeStateFilter::Draining),
    ("DRNG", NodeStateFilter::Draining),
    ("COMPLETING", NodeStateFilter::Completing),
    ("COMP", NodeStateFilter::Completing),
    ("FAIL", NodeStateFilter::Fail),
    ("NO_RESPOND", NodeStateFilter::NoRespond),
    ("NOT_RESPONDING", NodeStateFilter::NoRespond),
    ("RESERVED", NodeStateFilter::Reserved),
    ("RESV", NodeStateFilter::Reserved),
    ("PLANNED", NodeStateFilter::Never),
    ("PLND", NodeStateFilter::Never),
    ("MAINT", NodeStateFilter::Maintenance),
    ("PERFCTRS", NodeStateFilter::Never),
    ("NPC", NodeStateFilter::Never),
    ("CLOUD", NodeStateFilter::Flag("CLOUD")),
    ("POWER_DOWN", NodeStateFilter::Flag("POWER_DOWN")),
    ("POWERING_DOWN", NodeStateFilter::Flag("POWERING_DOWN")),
    ("POWERED_DOWN", NodeStateFilter::Flag("POWERED_DOWN")),
    ("POWER_UP", NodeStateFilter::Flag("POWERING_UP")),
    ("POWERING_UP", NodeStateFilter::Flag("POWERING_UP")),
    ("REBOOT_ISSUED", NodeStateFilter::Flag("REBOOT_ISSUED")),
    (
        "REBOOT_REQUESTED",
        NodeStateFilter::Flag("REBOOT_REQUESTED"),
    ),
    ("INVAL", NodeStateFilter::Never),
    ("BLOCKED", NodeStateFilter::Never),
];

/// Reads `--states`: `idle,mix`, `drain&idle`, `all`.
pub(super) fn parse_states(list: &str) -> Result<Vec<Vec<NodeStateFilter>>, Failure> {
>>>>>>> 978349d4736df0d3cc1958dff6792a19015de62f
    let mut any = Vec::new();
    for words in list.split(',').filter(|w| !w.is_empty()) {
        if words.eq_ignore_ascii_case("all") {
            return Ok(Vec::new());
        }
<<<<<<< HEAD
        let all: Result<Vec<StatePattern>, Failure> = words.split('&').map(parse_state).collect();
=======
        let all: Result<Vec<NodeStateFilter>, Failure> =
            words.split('&').map(parse_state).collect();
>>>>>>> 978349d4736df0d3cc1958dff6792a19015de62f
        any.push(all?);
    }
    Ok(any)
}

<<<<<<< HEAD
fn parse_state(word: &str) -> Result<StatePattern, Failure> {
    let wanted = word.trim();
    StatePattern::parse(wanted).ok_or_else(|| {
        let names = StatePattern::NAMES.iter();
        let names: Vec<String> = names.map(|(n, _)| n.to_ascii_lowercase()).collect();
        Failure::new(format!(
            "sinfo: error: Bad state string: \"{wanted}\"\nsinfo: error: valid states: {}",
            names.join(",")
        ))
    })
=======
fn parse_state(word: &str) -> Result<NodeStateFilter, Failure> {
    let wanted = word.trim();
    STATES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
        .map(|(_, filter)| *filter)
        .ok_or_else(|| {
            let names: Vec<String> = STATES.iter().map(|(n, _)| n.to_ascii_lowercase()).collect();
            Failure::new(format!(
                "sinfo: error: Bad state string: \"{wanted}\"\nsinfo: error: valid states: {}",
                names.join(",")
            ))
        })
>>>>>>> 978349d4736df0d3cc1958dff6792a19015de62f
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
            && (!self.dead || view.state.has(StateFlag::NotResponding))
            && (!self.responding || !view.state.has(StateFlag::NotResponding))
            && (view.state.base != BaseState::Future || self.future || self.asks_for_future())
            && (self.states.is_empty()
                || self
                    .states
                    .iter()
                    .any(|all| all.iter().all(|pattern| pattern.fits(view.state))))
    }

    fn asks_for_future(&self) -> bool {
        self.states
            .iter()
            .flatten()
<<<<<<< HEAD
            .any(|w| *w == StatePattern::Base(BaseState::Future))
=======
            .any(|w| *w == NodeStateFilter::Base(BaseState::Future))
    }
}

fn fits(filter: NodeStateFilter, view: &NodeView<'_>) -> bool {
    match filter {
        // Slurm counts a node with some CPUs taken among the allocated ones.
        NodeStateFilter::Base(BaseState::Allocated) => {
            matches!(view.base(), BaseState::Allocated | BaseState::Mixed)
        }
        NodeStateFilter::Base(base) => view.base() == base,
        NodeStateFilter::Drain => view.node.drain,
        NodeStateFilter::Drained => view.node.drain && !view.busy(),
        NodeStateFilter::Draining => view.node.drain && view.busy(),
        NodeStateFilter::Completing => view.completing,
        NodeStateFilter::Fail => view.node.fail,
        NodeStateFilter::NoRespond => view.silent(),
        NodeStateFilter::Reserved => view.reserved.is_some(),
        NodeStateFilter::Maintenance => view.reserved == Some(true),
        NodeStateFilter::Flag(wanted) => view.flags().any(|flag| flag == wanted),
        NodeStateFilter::Never => false,
>>>>>>> 978349d4736df0d3cc1958dff6792a19015de62f
    }
}
