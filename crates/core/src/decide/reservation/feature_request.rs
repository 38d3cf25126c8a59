//! `Features=` of a reservation: which nodes satisfy it, and how many of which.

use super::super::ask;
use crate::state::State;
use muster_model::features::{self, Alternative, Expr};
use muster_model::ids::NodeIdx;
use muster_model::node::Node;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::reservation::Reservation;

/// The nodes that a reservation asks for.
pub(super) struct FeatureRequest {
    /// The nodes satisfy one of these together.
    alternatives: Vec<Alternative>,
    /// The counts say how many nodes there are (`[a*4&b*2]`), whatever `NodeCnt` says.
    exact: bool,
}

/// A count of nodes that satisfy an expression, any node if there is none.
struct Group<'w> {
    expr: Option<&'w Expr>,
    size: usize,
    members: Vec<&'w Node>,
}

impl FeatureRequest {
    /// As the reservation says it.
    pub(super) fn of(state: &State, reservation: &Reservation) -> Result<FeatureRequest, Refusal> {
        let Some(text) = &reservation.features else {
            let (alternatives, exact) = (Vec::new(), false);
            return Ok(FeatureRequest {
                alternatives,
                exact,
            });
        };
        ask::check_constraint(state, "Features", text)?;
        let alternatives = features::alternatives(text).ok_or_else(|| {
            let why = format!("Features={text}: counts of nodes are joined by & only");
            Refusal::new(RefusalCode::InvalidFeature, why)
        })?;
        let counted = alternatives.iter().any(|a| !a.counts.is_empty());
        let exact = counted && text.contains('[');
        Ok(FeatureRequest {
            alternatives,
            exact,
        })
    }

    /// Whether it counts nodes.
    pub(super) fn counts(&self) -> bool {
        self.alternatives.iter().any(|a| !a.counts.is_empty())
    }

    /// Tries each way to satisfy it: a test of nodes is given.
    pub(super) fn find<T>(
        &self,
        mut attempt: impl FnMut(&dyn Fn(&Node) -> bool) -> Option<T>,
    ) -> Option<T> {
        if self.alternatives.is_empty() {
            return attempt(&|_| true);
        }
        self.alternatives
            .iter()
            .find_map(|a| attempt(&|node| a.each.holds(&node.config.features)))
    }

    /// Chooses `count` of the nodes, which are in order of preference, or as many as are counted. Each fills one place:
    /// no chosen node could be replaced by one that is preferred.
    pub(super) fn choose(&self, nodes: &[&Node], count: usize) -> Option<Vec<NodeIdx>> {
        if self.alternatives.is_empty() {
            let picked = nodes.get(..count)?;
            return Some(picked.iter().map(|node| node.idx).collect());
        }
        self.alternatives
            .iter()
            .find_map(|a| self.choose_by(a, nodes, count))
    }

    fn choose_by(&self, by: &Alternative, nodes: &[&Node], count: usize) -> Option<Vec<NodeIdx>> {
        let mut groups: Vec<Group<'_>> = by
            .counts
            .iter()
            .map(|(expr, size)| Group::new(Some(expr), *size as usize))
            .collect();
        let counted: usize = groups.iter().map(|group| group.size).sum();
        if !self.exact || counted == 0 {
            groups.push(Group::new(None, count.saturating_sub(counted)));
        }
        let mut missing: usize = groups.iter().map(|group| group.size).sum();
        for &node in nodes {
            if missing == 0 {
                break;
            }
            let mut seen = vec![false; groups.len()];
            if by.each.holds(&node.config.features) && place(&mut groups, node, &mut seen) {
                missing -= 1;
            }
        }
        let members = groups.iter().flat_map(|group| &group.members);
        (missing == 0).then(|| members.map(|node| node.idx).collect())
    }
}

impl<'w> Group<'w> {
    fn new(expr: Option<&'w Expr>, size: usize) -> Group<'w> {
        Group {
            expr,
            size,
            members: Vec::new(),
        }
    }

    fn takes(&self, node: &Node) -> bool {
        self.expr
            .is_none_or(|expr| expr.holds(&node.config.features))
    }
}

/// Gives a node a place, if need be by moving others to groups that take them, too; whether that succeeded.
fn place<'w>(groups: &mut [Group<'w>], node: &'w Node, seen: &mut [bool]) -> bool {
    for i in 0..groups.len() {
        if seen[i] || !groups[i].takes(node) {
            continue;
        }
        seen[i] = true;
        if groups[i].members.len() < groups[i].size {
            groups[i].members.push(node);
            return true;
        }
        for k in 0..groups[i].members.len() {
            let other = groups[i].members[k];
            if place(groups, other, seen) {
                groups[i].members[k] = node;
                return true;
            }
        }
    }
    false
}
