//! Default binding of tasks (`CpuBind` of nodes and partitions): agents get it with their settings, and again when an
//! administrator changes it.

use super::Writer;
use crate::mail::ToLink;
use muster_core::state::State;
use muster_model::command::UserCommand;
use muster_model::hostlist;
use muster_proto::node::CpuBindDefaults;
use std::collections::BTreeMap;

/// Whether a command may change how tasks are bound.
pub(super) fn may_change(command: &UserCommand) -> bool {
    match command {
        UserCommand::UpdateNodes { update, .. } => update.cpu_bind.is_some(),
        UserCommand::UpdatePartition { .. }
        | UserCommand::CreatePartition { .. }
        | UserCommand::DeletePartition { .. }
        | UserCommand::CreateNodes { .. }
        | UserCommand::DeleteNodes { .. } => true,
        _ => false,
    }
}

/// Bindings that nodes and partitions set.
pub(super) fn defaults(state: &State) -> CpuBindDefaults {
    let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in state.nodes.iter().filter(|node| !node.removed) {
        if let Some(bind) = node.config.cpu_bind {
            nodes
                .entry(bind.name())
                .or_default()
                .push(&node.config.name);
        }
    }
    let nodes = nodes.into_iter();
    let partitions = state.partitions.iter();
    CpuBindDefaults {
        nodes: nodes
            .map(|(bind, names)| (hostlist::compress(&names), bind.to_owned()))
            .collect(),
        partitions: partitions
            .filter_map(|p| Some((p.name.clone(), p.cpu_bind?.name().to_owned())))
            .collect(),
    }
}

impl Writer {
    /// A command has been decided that may have changed it.
    pub(super) fn publish_bindings(&mut self) {
        let now = defaults(self.engine.state());
        if now != self.settings.cpu_bind {
            self.settings.cpu_bind = now;
            self.send_settings();
        }
    }

    /// Sends all agents their settings.
    pub(super) fn send_settings(&self) {
        for (node, link) in &self.links {
            let known = self.engine.state().node(*node);
            let settings = self.settings_of(known.map_or("", |n| &n.config.name));
            let _ = link.send.send(ToLink::Settings(Box::new(settings)));
        }
    }
}
