//! sinfo's rows: nodes whose telling columns read the same are one row. Also the order of rows.

use super::{Options, names_partition};
use crate::listing::Failure;
use crate::listing::context::Ctx;
use crate::listing::format::{FormatColumn, Layout};
use crate::listing::node::NodeView;
use crate::listing::node_fields::{FIELDS, Grouping, NodeGroup, Nodes, grouping};
use muster_model::config::PartitionConfig;
use muster_model::hostlist;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

/// A row that grows.
struct Growing<'a> {
    group: NodeGroup<'a>,
    names: HashSet<&'a str>,
}

/// Makes the rows, in the order of partitions and nodes.
pub(super) fn rows<'a>(
    options: &Options,
    layout: &Layout<Nodes>,
    views: &[NodeView<'a>],
    ctx: &'a Ctx,
) -> Vec<NodeGroup<'a>> {
    let by_name: HashMap<&str, NodeView<'a>> = views
        .iter()
        .map(|v| (v.node.config.name.as_str(), *v))
        .collect();
    let telling: Vec<&FormatColumn<Nodes>> = layout
        .columns
        .iter()
        .filter(|c| match grouping(c.field) {
            Grouping::Tells => true,
            Grouping::TellsIfExact => options.exact,
            Grouping::Sums => false,
        })
        .collect();
    let mut rows: Vec<Growing<'a>> = Vec::new();
    let mut by_key: HashMap<String, usize> = HashMap::new();
    let partitions = ctx
        .partitions
        .iter()
        .filter(|p| options.selection.wants_partition(p, ctx));
    for partition in partitions {
        let before = rows.len();
        let members = partition
            .nodes
            .iter()
            .filter_map(|name| by_name.get(name.as_str()));
        let mut found = false;
        for view in members.filter(|v| wanted(options, v)) {
            found = true;
            add(
                options,
                &telling,
                &mut rows,
                &mut by_key,
                partition,
                *view,
                ctx,
            );
        }
        let shown_empty = names_partition(&layout.columns) && !options.by_node && !options.reasons;
        if !found && shown_empty && rows.len() == before {
            rows.push(Growing {
                group: NodeGroup {
                    partition: Some(partition),
                    nodes: Vec::new(),
                },
                names: HashSet::new(),
            });
        }
    }
    rows.into_iter().map(|row| row.group).collect()
}

fn wanted(options: &Options, view: &NodeView<'_>) -> bool {
    let with_reason =
        !options.reasons || view.node.reason.is_some() && !view.node.service().is_in_service();
    with_reason && options.selection.wants_node(view)
}

fn add<'a>(
    options: &Options,
    telling: &[&FormatColumn<Nodes>],
    rows: &mut Vec<Growing<'a>>,
    by_key: &mut HashMap<String, usize>,
    partition: &'a PartitionConfig,
    view: NodeView<'a>,
    ctx: &Ctx,
) {
    let single = NodeGroup {
        partition: Some(partition),
        nodes: vec![view],
    };
    let name = view.node.config.name.as_str();
    let mut key = String::new();
    if options.by_node {
        key.push_str(name);
        key.push('\0');
        key.push_str(&partition.name);
    }
    for column in telling {
        key.push('\0');
        (column.field.render)(&single, ctx, &mut key);
    }
    match by_key.get(&key) {
        Some(&at) => {
            // A node in several partitions counts once where the partition is not shown.
            if rows[at].names.insert(name) {
                rows[at].group.nodes.push(view);
            }
        }
        None => {
            by_key.insert(key, rows.len());
            rows.push(Growing {
                group: single,
                names: HashSet::from([name]),
            });
        }
    }
}

/// Puts rows in order.
pub(super) fn sort<'a>(
    mut rows: Vec<NodeGroup<'a>>,
    options: &Options,
    ctx: &Ctx,
) -> Result<Vec<NodeGroup<'a>>, Failure> {
    let default = if options.by_node { "N" } else { "#P,-t" };
    let keys = parse(options.sort.as_deref().unwrap_or(default))?;
    let order: HashMap<&str, usize> = ctx
        .partitions
        .iter()
        .enumerate()
        .map(|(i, p)| (p.name.as_str(), i))
        .collect();
    rows.sort_by(|a, b| {
        keys.iter()
            .map(|key| {
                let by = compare(key, a, b, &order, ctx);
                if key.down { by.reverse() } else { by }
            })
            .find(|by| by.is_ne())
            .unwrap_or(Ordering::Equal)
    });
    Ok(rows)
}

struct SortKey {
    down: bool,
    configured: bool,
    letter: u8,
}

fn parse(keys: &str) -> Result<Vec<SortKey>, Failure> {
    let mut parsed = Vec::new();
    for word in keys.split(',').filter(|w| !w.is_empty()) {
        let mut key = SortKey {
            down: false,
            configured: false,
            letter: 0,
        };
        for byte in word.bytes() {
            match byte {
                b'-' => key.down = true,
                b'+' => key.down = false,
                b'#' => key.configured = true,
                letter if FIELDS.iter().any(|f| f.letter == letter) && key.letter == 0 => {
                    key.letter = letter
                }
                _ => {
                    return Err(Failure::new(format!(
                        "sinfo: error: Invalid sort specification: {word}"
                    )));
                }
            }
        }
        if key.letter != 0 {
            parsed.push(key);
        }
    }
    Ok(parsed)
}

fn compare(
    key: &SortKey,
    a: &NodeGroup<'_>,
    b: &NodeGroup<'_>,
    order: &HashMap<&str, usize>,
    ctx: &Ctx,
) -> Ordering {
    let number = |f: fn(&NodeView<'_>) -> u64| {
        let of = |g: &NodeGroup<'_>| g.nodes.first().map(f);
        of(a).cmp(&of(b))
    };
    match key.letter {
        b'P' | b'R' if key.configured => {
            let place = |g: &NodeGroup<'_>| g.partition.and_then(|p| order.get(p.name.as_str()));
            place(a).cmp(&place(b))
        }
        b't' | b'T' => number(|n| u64::from(n.state.order())),
        b'N' => {
            let name = |g: &NodeGroup<'_>| {
                g.nodes
                    .first()
                    .map_or("", |n| &n.node.config.name)
                    .to_owned()
            };
            hostlist::natural_cmp(&name(a), &name(b))
        }
        b'D' => a.nodes.len().cmp(&b.nodes.len()),
        b'c' => number(|n| u64::from(n.node.config.cpus)),
        b'd' => number(|n| n.node.config.tmp_disk_mib),
        b'm' => number(|n| n.node.config.memory_mib),
        b'w' => number(|n| u64::from(n.node.config.weight)),
        b'e' => number(|n| n.free_mib().unwrap_or(0)),
        b'O' => number(|n| u64::from(n.load_centi().unwrap_or(0))),
        letter => {
            let text = |g: &NodeGroup<'_>| {
                let mut text = String::new();
                if let Some(field) = FIELDS.iter().find(|f| f.letter == letter) {
                    (field.render)(g, ctx, &mut text);
                }
                text
            };
            text(a).cmp(&text(b))
        }
    }
}
