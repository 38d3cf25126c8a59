//! `slurmctld -c`: requests of root by which the controller starts as if it had no saved state. Jobs end as by scancel, so that
//! nodes stop them and accounting has their ends; partitions are read from slurm.conf alone before.

use muster_core::state::State;
use muster_model::command::{JobSelection, NodeUpdate, ReservationAsk, UserCommand};
use muster_model::hostlist;
use muster_model::node::Node;
use muster_model::node_state::InitialState;
use muster_model::time::Timestamp;
use muster_model::trigger::TriggerAsk;

/// The requests, in the order in which they are to be made.
pub(crate) fn commands(state: &State, now: Timestamp) -> Vec<UserCommand> {
    let selection = JobSelection::default();
    let mut commands = vec![UserCommand::Cancel { selection }];
    for name in state.reservations.iter().map(|r| &r.name) {
        // Jobs that ran in it keep it until their nodes are clean, so that one ends instead.
        if state.by_reservation.contains_key(name) {
            commands.push(UserCommand::UpdateReservation(Box::new(ReservationAsk {
                name: Some(name.clone()),
                end: Some(Timestamp(now.0.saturating_add(1000))),
                ..ReservationAsk::default()
            })));
        }
        let name = name.clone();
        commands.push(UserCommand::DeleteReservation { name });
    }
    commands.extend(state.triggers.all().keys().map(|id| {
        UserCommand::Trigger(Box::new(TriggerAsk::Clear {
            id: Some(*id),
            job: None,
            uid: None,
        }))
    }));
    let changed = state.nodes.iter().filter(|node| is_out_of_service(node));
    let changed: Vec<String> = changed.map(|node| node.config.name.clone()).collect();
    // One at a time: a node that an event has brought back meanwhile is refused.
    commands.extend(changed.iter().map(|node| UserCommand::UpdateNodes {
        nodes: hostlist::compress(std::slice::from_ref(node)),
        update: NodeUpdate {
            state: Some("RESUME".to_owned()),
            ..NodeUpdate::default()
        },
    }));
    commands
}

/// DOWN, DRAIN or FAIL, and not by slurm.conf.
fn is_out_of_service(node: &Node) -> bool {
    let is_by_file = node.config.state != InitialState::Unknown;
    (node.down || node.drain || node.fail) && !is_by_file && !node.removed && !node.future
}
