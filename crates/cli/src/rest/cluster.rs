//! The controller, nodes, partitions, reservations, licenses.

use super::call::{Call, CallFailure, Outcome};
use super::errno;
use super::http::HttpStatus;
use crate::connect::{ConnectError, unexpected};
use crate::listing::context::Ctx;
use crate::listing::node::NodeView;
use crate::listing::{license_document, node_document, query, reservation};
use muster_model::command::UserCommand;
use muster_model::config::PartitionConfig;
use muster_model::hostlist;
use muster_model::ids::NodeIdx;
use muster_model::licenses::License;
use muster_model::node::Node;
use muster_model::private_data::PrivateData;
use muster_proto::client::{Query, Response};
use std::collections::{HashMap, HashSet};
use std::time::Instant;

/// `GET ping`.
pub(super) fn ping(call: &mut Call<'_>) -> Outcome {
    let asked = Instant::now();
    let (host, is_up) = {
        let answer = call.ask(|client| {
            let host = client.endpoint.hosts.first().cloned();
            match client.query(Query::Ping)? {
                Response::Pong(pong) => Ok(host.unwrap_or(pong.hostname)),
                other => Err(unexpected(&other)),
            }
        });
        match answer {
            Ok(host) => (host, true),
            // A controller that is not there is the answer; one that does not believe who asks is a failure.
            Err(failure) if failure.problem.number == errno::CONNECTION => {
                let endpoint = muster_conf::endpoint::read(&muster_conf::endpoint::conf_path());
                let host = endpoint.ok().and_then(|e| e.hosts.first().cloned());
                call.errors.push(failure.problem);
                call.status = failure.status;
                (host.unwrap_or_default(), false)
            }
            Err(failure) => return Err(failure),
        }
    };
    let latency_us = asked.elapsed().as_micros();
    Ok(call.document(&call.context(), |w| {
        w.list("pings", |w| {
            w.item(|w| {
                w.text("hostname", &host);
                let state = if is_up { "UP" } else { "DOWN" };
                if w.is_old() {
                    w.text("ping", state);
                    w.raw("status", i32::from(!is_up));
                    return w.text("mode", "primary");
                }
                if w.version() < 45 {
                    w.text("pinged", state);
                }
                w.raw("latency", if is_up { latency_us } else { 0 });
                if w.version() < 45 {
                    w.text("mode", "primary");
                }
                if w.version() >= 43 {
                    w.raw("responding", is_up);
                    w.raw("primary", true);
                }
            });
        });
    }))
}

/// The nodes, and which of them are being cleaned up.
pub(super) fn load(
    call: &mut Call<'_>,
    kind: PrivateData,
) -> Result<(Ctx, HashSet<NodeIdx>), CallFailure> {
    let mut ctx = call.context();
    let completing = call.ask(|client| {
        let completing = query::cluster(client, &mut ctx)?;
        query::not_withheld(&ctx, kind)?;
        Ok(completing)
    })?;
    Ok((ctx, completing.into_iter().collect()))
}

/// A node as listings see it.
pub(super) fn view<'a>(node: &'a Node, ctx: &Ctx, completing: &HashSet<NodeIdx>) -> NodeView<'a> {
    let reserved = ctx.reserved.get(&node.idx).copied();
    NodeView::new(node, completing.contains(&node.idx), reserved)
}

/// `GET nodes`.
pub(super) fn nodes(call: &mut Call<'_>) -> Outcome {
    let (ctx, completing) = load(call, PrivateData::NODES)?;
    let views = ctx.nodes.iter().map(|node| view(node, &ctx, &completing));
    let views: Vec<NodeView<'_>> = views.collect();
    Ok(call.document(&ctx, |w| node_document::nodes(w, &views, &ctx)))
}

/// `GET node/{node_name}`.
pub(super) fn node(call: &mut Call<'_>) -> Outcome {
    let (ctx, completing) = load(call, PrivateData::NODES)?;
    let named = nodes_named(call.name(), &ctx.nodes)?;
    let views = named.into_iter().map(|node| view(node, &ctx, &completing));
    let views: Vec<NodeView<'_>> = views.collect();
    if views.is_empty() {
        return Err(no_node(call.name()));
    }
    Ok(call.document(&ctx, |w| node_document::nodes(w, &views, &ctx)))
}

/// The nodes of a list, each once: however often a short text names a node, it is written once.
fn nodes_named<'a>(list: &str, nodes: &'a [Node]) -> Result<Vec<&'a Node>, CallFailure> {
    let known: HashMap<&str, &Node> = nodes
        .iter()
        .map(|node| (node.config.name.as_str(), node))
        .collect();
    let names = hostlist::names(list, hostlist::MAX_HOSTS).map_err(|_| no_node(list))?;
    let (mut named, mut seen) = (Vec::new(), HashSet::new());
    for name in names {
        let node = known.get(name.as_str()).ok_or_else(|| no_node(&name))?;
        if seen.insert(node.idx) {
            named.push(*node);
        }
    }
    Ok(named)
}

/// Says that there is no such node.
pub(super) fn no_node(name: &str) -> CallFailure {
    let (status, number) = (HttpStatus::INTERNAL_ERROR, errno::INVALID_NODE);
    CallFailure::numbered(
        status,
        number,
        "node_name",
        format!("there is no node {name}"),
    )
}

/// `GET partitions`.
pub(super) fn partitions(call: &mut Call<'_>) -> Outcome {
    let (ctx, _) = load(call, PrivateData::PARTITIONS)?;
    let shown: Vec<&PartitionConfig> = ctx.partitions.iter().filter(|p| !p.hidden).collect();
    Ok(call.document(&ctx, |w| node_document::list_partitions(w, &shown, &ctx)))
}

/// `GET partition/{partition_name}`.
pub(super) fn partition(call: &mut Call<'_>) -> Outcome {
    let (ctx, _) = load(call, PrivateData::PARTITIONS)?;
    let Some(partition) = ctx.partition(call.name()) else {
        let (status, number) = (HttpStatus::INTERNAL_ERROR, errno::INVALID_PARTITION);
        let why = format!("there is no partition {}", call.name());
        return Err(CallFailure::numbered(status, number, "partition_name", why));
    };
    Ok(call.document(&ctx, |w| {
        node_document::list_partitions(w, &[partition], &ctx);
    }))
}

/// `GET reservations`.
pub(super) fn reservations(call: &mut Call<'_>) -> Outcome {
    show_reservations(call, None)
}

/// `GET reservation/{reservation_name}`.
pub(super) fn reservation(call: &mut Call<'_>) -> Outcome {
    let name = call.name().to_owned();
    show_reservations(call, Some(&name))
}

fn show_reservations(call: &mut Call<'_>, name: Option<&str>) -> Outcome {
    let mut answer = call.ask(query::reservations)?;
    if let Some(name) = name {
        let Some(at) = answer.reservations.iter().position(|r| r.name == name) else {
            let (status, number) = (HttpStatus::INTERNAL_ERROR, errno::INVALID_RESERVATION);
            let why = format!("there is no reservation {name}");
            return Err(CallFailure::numbered(
                status,
                number,
                "reservation_name",
                why,
            ));
        };
        answer.reservations = vec![answer.reservations.swap_remove(at)];
        answer.cpus = vec![answer.cpus[at]];
        answer.cores = vec![answer.cores[at]];
    }
    let mut ctx = call.context();
    ctx.now = answer.now;
    Ok(call.document(&ctx, |w| reservation::write_document(w, &answer)))
}

/// `DELETE reservation/{reservation_name}`.
pub(super) fn delete_reservation(call: &mut Call<'_>) -> Outcome {
    let name = call.name().to_owned();
    call.ask(|client| client.command(UserCommand::DeleteReservation { name }))?;
    call.done()
}

/// `GET licenses`.
pub(super) fn licenses(call: &mut Call<'_>) -> Outcome {
    let licenses = call.ask(query::licenses)?;
    let ctx = call.context();
    let shown: Vec<&License> = licenses.iter().collect();
    Ok(call.document(&ctx, |w| license_document::write(w, &shown)))
}

/// `GET reconfigure`.
pub(super) fn reconfigure(call: &mut Call<'_>) -> Outcome {
    call.ask(|client| match client.command(UserCommand::Reconfigure) {
        Ok(_) => Ok(()),
        Err(error) => Err::<(), ConnectError>(error),
    })?;
    call.done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::fixture;

    #[test]
    fn a_node_is_written_once_however_often_it_is_named() {
        let ctx = fixture::ctx();
        let first = ctx.nodes[0].config.name.clone();
        let second = ctx.nodes[1].config.name.clone();
        let names = |list: &str| -> Option<Vec<&str>> {
            let named = nodes_named(list, &ctx.nodes).ok()?;
            Some(named.iter().map(|n| n.config.name.as_str()).collect())
        };
        let list = format!("{second},{first},{second}");
        assert_eq!(names(&list), Some(vec![&*second, &*first]));
        assert_eq!(
            names(&format!("{first},").repeat(1000)),
            Some(vec![&*first])
        );
        assert_eq!(names(&format!("{first},unknown")), None);
    }
}
