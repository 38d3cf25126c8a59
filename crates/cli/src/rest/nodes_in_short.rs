//! The nodes in short: what maps and sums show of each, with nodes that are the same in it together. `GET nodes` says everything of a
//! node, which is twenty times as much.

use super::call::{Call, Outcome};
use super::cluster;
use crate::listing::context::Ctx;
use crate::listing::document::Writer;
use crate::listing::node::NodeView;
use crate::listing::node_document::PartitionsOfNodes;
use crate::listing::text::collect;
use muster_model::hostlist;
use muster_model::node_state::StateFlag;
use muster_model::private_data::PrivateData;
use std::collections::HashMap;

/// Values of a node that its configuration gives.
#[derive(PartialEq, Eq, Hash)]
struct NodeHardware<'a> {
    cpus: u32,
    memory_mib: u64,
    gres: String,
    features: &'a [String],
    partitions: &'a [&'a str],
}

impl<'a> NodeHardware<'a> {
    fn of(view: &NodeView<'a>, partitions: &'a PartitionsOfNodes<'_>) -> NodeHardware<'a> {
        let config = &view.node.config;
        let has_gres = !config.gres.is_empty();
        NodeHardware {
            cpus: config.cpus,
            memory_mib: config.memory_mib,
            gres: collect(|out| {
                if has_gres {
                    view.write_gres(out);
                }
            }),
            features: &config.features,
            partitions: partitions.names(view),
        }
    }

    fn write(&self, w: &mut Writer<'_>) {
        w.raw("cpus", self.cpus);
        w.raw("memory", self.memory_mib);
        w.text("gres", &self.gres);
        w.texts("features", self.features);
        w.texts("partitions", self.partitions);
    }
}

/// Values of a node that change.
#[derive(PartialEq, Eq, Hash)]
struct Condition {
    /// The place of its hardware in the answer.
    hardware: usize,
    state: Vec<&'static str>,
    used_cpus: u32,
    used_mib: u64,
}

/// Things in the order in which they came, each once.
struct Places<K>(HashMap<K, usize>);

impl<K: Eq + std::hash::Hash> Places<K> {
    fn of(&mut self, key: K) -> usize {
        let next = self.0.len();
        *self.0.entry(key).or_insert(next)
    }

    fn in_order(&self) -> Vec<&K> {
        let mut all: Vec<(&K, &usize)> = self.0.iter().collect();
        all.sort_by_key(|(_, place)| **place);
        all.into_iter().map(|(key, _)| key).collect()
    }
}

/// `GET nodes`.
pub(super) fn nodes(call: &mut Call<'_>) -> Outcome {
    let (ctx, completing) = cluster::load(call, PrivateData::NODES)?;
    let views = ctx.nodes.iter();
    let views = views.map(|node| cluster::view(node, &ctx, &completing));
    let views: Vec<NodeView<'_>> = views.collect();
    Ok(call.document(&ctx, |w| write(w, &views, &ctx)))
}

fn write(w: &mut Writer<'_>, views: &[NodeView<'_>], ctx: &Ctx) {
    let (mut hardware, mut conditions) = (Places(HashMap::new()), Places(HashMap::new()));
    let partitions = PartitionsOfNodes::shown(ctx);
    let mut named: Vec<Vec<&str>> = Vec::new();
    for view in views {
        let flags = view.state.flags().map(StateFlag::name);
        let place = conditions.of(Condition {
            hardware: hardware.of(NodeHardware::of(view, &partitions)),
            state: std::iter::once(view.state.base.name())
                .chain(flags)
                .collect(),
            used_cpus: view.used_cpus(),
            used_mib: view.node.used_mib,
        });
        if named.len() == place {
            named.push(Vec::new());
        }
        named[place].push(&view.node.config.name);
    }
    w.list("hardware", |w| {
        for one in hardware.in_order() {
            w.item(|w| one.write(w));
        }
    });
    w.list("groups", |w| {
        for (condition, names) in conditions.in_order().into_iter().zip(&named) {
            w.item(|w| {
                w.text("nodes", &hostlist::compress(names));
                w.raw("hardware", condition.hardware);
                w.texts("state", &condition.state);
                w.raw("used_cpus", condition.used_cpus);
                w.raw("used_memory", condition.used_mib);
            });
        }
    });
    write_reasons(w, views, ctx);
}

/// Why nodes are not in service: those of one reason together.
fn write_reasons(w: &mut Writer<'_>, views: &[NodeView<'_>], ctx: &Ctx) {
    let mut reasons = Places(HashMap::new());
    let mut named: Vec<Vec<&str>> = Vec::new();
    for view in views {
        let Some(reason) = &view.node.reason else {
            continue;
        };
        let place = reasons.of((reason.text.as_str(), reason.since.unix_s(), reason.uid));
        if named.len() == place {
            named.push(Vec::new());
        }
        named[place].push(&view.node.config.name);
    }
    w.list("reasons", |w| {
        for ((text, since, uid), names) in reasons.in_order().into_iter().zip(&named) {
            w.item(|w| {
                w.text("nodes", &hostlist::compress(names));
                w.text("reason", text);
                w.raw("since", since);
                w.text("user", &ctx.user_name(*uid));
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::document::{Dialect, document};
    use crate::listing::fixture;

    fn written(ctx: &Ctx) -> serde_json::Value {
        let views: Vec<NodeView<'_>> = ctx
            .nodes
            .iter()
            .map(|node| NodeView::new(node, false, None))
            .collect();
        let mut out = String::new();
        document(&mut out, Dialect::newest(false), "", ctx, |w| {
            write(w, &views, ctx);
        });
        serde_json::from_str(&out).unwrap()
    }

    /// Each node of a large cluster took two kilobytes.
    #[test]
    fn nodes_that_are_the_same_are_written_once() {
        let mut ctx = fixture::ctx();
        let few = written(&ctx);
        let model = ctx.nodes[0].clone();
        for number in 1..=1000 {
            let mut node = model.clone();
            node.config.name = format!("x{number}");
            ctx.nodes.push(node);
        }
        let many = written(&ctx);
        let lens = |value: &serde_json::Value| {
            ["hardware", "groups", "reasons"].map(|key| value[key].as_array().unwrap().len())
        };
        let [hardware, groups, reasons] = lens(&few);
        let [more_hardware, more_groups, more_reasons] = lens(&many);
        assert_eq!(reasons, more_reasons);
        // They are in no partition, which the first node is.
        assert!(more_hardware <= hardware + 1 && more_groups <= groups + 1);
        let names = many["groups"].to_string();
        assert!(names.contains("x[1-1000]"), "{names}");
        // Partitions that squeue does not show are not named.
        let hidden = ctx.partitions[0].name.clone();
        assert!(few["hardware"].to_string().contains(&hidden));
        ctx.partitions[0].hidden = true;
        assert!(!written(&ctx)["hardware"].to_string().contains(&hidden));
    }
}
