//! Nodes that are rebooted when no job is there.

use crate::world::{World, config, spec};
use muster_model::command::UserCommand;
use muster_model::config::ClusterConfig;
use muster_model::effect::Effect;
use muster_model::ids::NodeIdx;
use muster_model::refusal::RefusalCode;

#[test]
fn nodes_are_rebooted_when_no_job_is_there() {
    let reboot = |nodes: &str, asap: bool, down_after: bool| UserCommand::Reboot {
        nodes: nodes.into(),
        asap,
        down_after,
        reason: None,
    };
    let mut world = World::new();
    assert_eq!(
        world.refused(0, reboot("n1", false, false)),
        RefusalCode::NotSupported
    );
    let mut world = World::with(ClusterConfig {
        can_reboot: true,
        ..config()
    });
    let ordered = |world: &World, node: u32| {
        let order = Effect::Reboot {
            node: NodeIdx(node),
        };
        world.effects.contains(&order)
    };
    assert_eq!(
        world.refused(1000, reboot("n1", false, false)),
        RefusalCode::AccessDenied
    );
    let id = world.submit(spec("j"));
    world.start(id, &[0]);
    world.must(0, reboot("n[1-2]", true, false));
    assert!(!ordered(&world, 0) && ordered(&world, 1));
    assert!(world.state.nodes[0].drain && !world.state.nodes[1].is_usable());
    world.finish(id, 0);
    assert!(ordered(&world, 0));
    // A connection that breaks meanwhile: the order is given again; a new boot is what ends it.
    world.register(0, "boot1", &[]);
    let orders = world.state.orders_for_node(NodeIdx(0), &[]);
    assert_eq!(orders, [Effect::Reboot { node: NodeIdx(0) }]);
    world.register(0, "boot2", &[]);
    let node = &world.state.nodes[0];
    assert!(node.reboot.is_none() && node.is_usable() && node.reason.is_none());
    world.must(0, UserCommand::CancelReboot { nodes: "n2".into() });
    assert!(world.state.nodes[1].is_usable());
    assert_eq!(
        world.refused(0, UserCommand::CancelReboot { nodes: "n2".into() }),
        RefusalCode::InvalidNodeState
    );
    world.must(0, reboot("n3", false, true));
    world.register(2, "boot2", &[]);
    let node = &world.state.nodes[2];
    assert!(node.down && node.reboot.is_none());
    let reason = node.reason.as_ref().map(|r| r.text.as_str());
    assert_eq!(reason, Some("reboot requested : reboot complete"));
    world.check_replay();
}
