//! The tables of transitions as pages of documentation. `UPDATE_DOCS=1 cargo test -p muster-core` writes it.

use muster_core::node_transition::{
    LinkMove, LinkState, NodeCondition, NodeMove, PowerMove, PowerState, RebootMove, RebootState,
    ServiceMove, next_condition,
};
use muster_core::transition::{Move, next_phase};
use muster_fixtures::pages::{assert_page, write_transitions};
use muster_model::job::Phase;
use muster_model::node_state::ServiceState;
use std::fmt::{Debug, Write as _};

fn job_page() -> String {
    let mut page = String::from(
        "# The life of a job\n\n\
         Written from the table in `crates/core/src/transition.rs` by its test; change the table, then run\n\
         `UPDATE_DOCS=1 cargo test -p muster-core`.\n\n\
         Rows are what happens, columns where the record is, cells where it goes. A dot is what cannot happen: the core\n\
         never decides it, and applying it is a bug that stops the controller before state is damaged.\n\n\
         * `Pending`: in the queue. `Running`, `Suspended`: has an allocation.\n\
         * `Completing`: its end is decided (`squeue` shows CG), nodes are still being cleaned.\n\
         * `Requeueing`: the same, but it goes back to the queue when they are.\n\
         * `Ended`: over; listed until `MinJobAge` has passed and its accounting row is durable. `Gone`: purged.\n\n",
    );
    write_transitions(&mut page, (&Phase::ALL, &Move::ALL), next_phase);
    page
}

/// Appends the table of one part of a node's state: what is done to the part while the others are as at first.
fn write_part<P: Debug + Copy + PartialEq, M: Debug + Copy>(
    page: &mut String,
    title: &str,
    (parts, moves): (&[P], &[M]),
    next: impl Fn(P, M) -> Option<P>,
) {
    let _ = write!(page, "\n## {title}\n\n");
    write_transitions(page, (parts, moves), next);
}

fn node_page() -> String {
    let mut page = String::from(
        "# The state of a node\n\n\
         Written from the tables in `crates/core/src/node_transition.rs` by their test; change them, then run\n\
         `UPDATE_DOCS=1 cargo test -p muster-core`.\n\n\
         What the controller knows of a node has four parts. What happens changes one of them, whatever the others are. Rows are\n\
         what happens, columns where the part is, cells where it goes. A dot is what cannot happen: the core never decides it.\n\n\
         `sinfo` shows more than that: whether jobs have the node (MIXED, ALLOCATED, COMPLETING) and whether a reservation has it\n\
         follow from the jobs and reservations.\n",
    );
    write_part(
        &mut page,
        "The connection to its agent",
        (&LinkState::ALL, &LinkMove::ALL),
        |link, step| {
            let from = NodeCondition {
                link,
                ..NodeCondition::default()
            };
            Some(next_condition(from, NodeMove::Link(step))?.link)
        },
    );
    write_part(
        &mut page,
        "Whether it takes jobs",
        (&ServiceState::all(), &ServiceMove::ALL),
        |service, step| {
            let from = NodeCondition {
                service,
                ..NodeCondition::default()
            };
            Some(next_condition(from, NodeMove::Service(step))?.service)
        },
    );
    write_part(
        &mut page,
        "Power saving",
        (&PowerState::ALL, &PowerMove::ALL),
        |power, step| {
            let from = NodeCondition {
                power,
                ..NodeCondition::default()
            };
            Some(next_condition(from, NodeMove::Power(step))?.power)
        },
    );
    write_part(
        &mut page,
        "Reboot",
        (&RebootState::ALL, &RebootMove::ALL),
        |reboot, step| {
            let from = NodeCondition {
                reboot,
                ..NodeCondition::default()
            };
            Some(next_condition(from, NodeMove::Reboot(step))?.reboot)
        },
    );
    page
}

#[test]
fn the_pages_are_up_to_date() {
    assert_page("muster-core", "job-states.md", &job_page());
    assert_page("muster-core", "node-states.md", &node_page());
}

#[test]
fn nothing_happens_to_a_record_that_is_gone() {
    assert!(
        Move::ALL
            .iter()
            .all(|step| next_phase(Phase::Gone, *step).is_none())
    );
}

/// `scontrol update State=RESUME` takes a node back into service, and one that sleeps can be brought up.
#[test]
fn every_node_can_come_back() {
    for service in ServiceState::all() {
        let condition = NodeCondition {
            service,
            ..NodeCondition::default()
        };
        let next = next_condition(condition, NodeMove::Service(ServiceMove::Resume));
        assert_eq!(next, Some(NodeCondition::default()));
    }
    for power in PowerState::ALL {
        let mut condition = NodeCondition {
            power,
            ..NodeCondition::default()
        };
        for step in [PowerMove::BeDown, PowerMove::WantUp, PowerMove::BeOn] {
            condition = next_condition(condition, NodeMove::Power(step)).unwrap_or(condition);
        }
        assert_eq!(condition.power, PowerState::On, "{power:?}");
    }
}
