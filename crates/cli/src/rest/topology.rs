//! The network: switches or blocks with the nodes at each, as `scontrol show topology` has them, for programs.

use super::call::{Call, Outcome};
use crate::listing::context::Ctx;
use crate::listing::document::Writer;
use crate::listing::query;
use muster_model::private_data::PrivateData;
use muster_model::topology::{Switch, Topology, TopologyKind};

/// `GET topology`.
pub(super) fn topology(call: &mut Call<'_>) -> Outcome {
    let mut ctx = call.context();
    call.ask(|client| {
        query::cluster(client, &mut ctx)?;
        // It names the nodes.
        query::not_withheld(&ctx, PrivateData::NODES)
    })?;
    Ok(call.document(&ctx, |w| write(w, &ctx)))
}

fn write(w: &mut Writer<'_>, ctx: &Ctx) {
    let topologies = ctx.config.iter().flat_map(|config| &config.topologies);
    w.list("topologies", |w| {
        for topology in topologies {
            w.item(|w| write_one(w, topology, ctx));
        }
    });
}

fn write_one(w: &mut Writer<'_>, topology: &Topology, ctx: &Ctx) {
    w.text("name", &topology.name);
    let kind = match topology.kind {
        TopologyKind::Flat => "flat",
        TopologyKind::Tree => "tree",
        TopologyKind::Block => "block",
    };
    w.text("kind", kind);
    w.raw("is_default", topology.cluster_default);
    w.raw("is_optional", topology.optional);
    let sizes = topology.block_sizes.iter();
    w.texts("block_sizes", sizes.map(u32::to_string));
    // Partitions that name it; others use the default one.
    let by_name = ctx
        .partitions
        .iter()
        .filter(|p| !p.hidden && p.topology.as_ref() == Some(&topology.name));
    w.texts("partitions", by_name.map(|p| &p.name));
    w.list("switches", |w| {
        for switch in &topology.switches {
            w.item(|w| write_switch(w, switch, topology));
        }
    });
}

fn write_switch(w: &mut Writer<'_>, switch: &Switch, topology: &Topology) {
    w.text("name", &switch.name);
    w.raw("level", switch.level);
    w.raw("link_speed", switch.link_speed);
    w.text("nodes", &switch.nodes);
    let below = switch.children.iter();
    let below = below.filter_map(|child| topology.switches.get(*child as usize));
    w.texts("switches", below.map(|child| &child.name));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::document::{Dialect, document};
    use crate::listing::fixture;
    use muster_model::config::ClusterConfig;

    #[test]
    fn a_tree_names_what_is_below_each_switch() {
        let switch = |name: &str, nodes: &str, children: &[u32], level| Switch {
            name: name.into(),
            nodes: nodes.into(),
            children: children.to_vec(),
            link_speed: 1,
            level,
        };
        let mut ctx = fixture::ctx();
        let config = ClusterConfig {
            topologies: vec![Topology {
                name: "fabric".into(),
                kind: TopologyKind::Tree,
                // One that is not there is left out.
                switches: vec![
                    switch("s0", "n[1-2]", &[], 0),
                    switch("s1", "n[3-4]", &[], 0),
                    switch("root", "", &[0, 1, 9], 1),
                ],
                ..Topology::default()
            }],
            ..ctx.config.take().unwrap_or_default()
        };
        ctx.config = Some(config);
        ctx.partitions[0].topology = Some("fabric".into());
        let mut out = String::new();
        document(&mut out, Dialect::newest(false), "", &ctx, |w| {
            write(w, &ctx);
        });
        let read: serde_json::Value = serde_json::from_str(&out).unwrap();
        let one = &read["topologies"][0];
        assert_eq!(
            (&one["kind"], &one["name"]),
            (&"tree".into(), &"fabric".into())
        );
        assert_eq!(
            one["partitions"],
            serde_json::json!([ctx.partitions[0].name])
        );
        assert_eq!(one["switches"][0]["nodes"], "n[1-2]");
        assert_eq!(
            one["switches"][2]["switches"],
            serde_json::json!(["s0", "s1"])
        );
        assert_eq!(one["switches"][2]["level"], 1);
    }
}
