//! Which nodes and partitions sinfo shows.

use crate::listing::Failure;
use crate::listing::context::Ctx;
use crate::listing::node::NodeView;
use muster_model::config::PartitionConfig;
use muster_model::node_state::{BaseState, StateFlag, StatePattern};
use std::collections::HashSet;

/// Conditions; all that are given must hold.
#[derive(Debug, Default)]
pub(super) struct NodeSelection {
    pub(super) nodes: Option<HashSet<String>>,
    pub(super) partitions: Vec<String>,
    /// Any of these sets of states, of which all must hold.
    pub(super) states: Vec<Vec<StatePattern>>,
    pub(super) dead: bool,
    pub(super) responding: bool,
    pub(super) hidden: bool,
    pub(super) future: bool,
}

/// Reads `--states`: `idle,mix`, `drain&idle`, `all`.
pub(super) fn parse_states(list: &str) -> Result<Vec<Vec<StatePattern>>, Failure> {
    let mut any = Vec::new();
    for words in list.split(',').filter(|w| !w.is_empty()) {
        if words.eq_ignore_ascii_case("all") {
            return Ok(Vec::new());
        }
        let all: Result<Vec<StatePattern>, Failure> = words.split('&').map(parse_state).collect();
        any.push(all?);
    }
    Ok(any)
}

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
}

impl NodeSelection {
    /// Whether the partition is shown.
    pub(super) fn wants_partition(&self, partition: &PartitionConfig, ctx: &Ctx) -> bool {
        if self.partitions.is_empty() {
            return self.hidden || ctx.shows(partition);
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
            .any(|w| *w == StatePattern::Base(BaseState::Future))
    }
}
