//! Clusters and TRES, as accounting has them.

use super::accounts::{load, nothing, text_or_null, tres_id};
use super::call::{Call, CallFailure, Outcome};
use crate::listing::context::Ctx;
use crate::listing::document::Writer;
use crate::listing::query;
use crate::sacctmgr::book::Book;
use muster_model::accounts::ROOT;
use muster_model::hostlist;

/// The cluster of the controller that answers. Of others there is a name only.
pub(super) struct OwnCluster {
    name: String,
    host: String,
    port: u16,
    /// Its nodes as a list of hosts.
    nodes: String,
    tres: Vec<TresCount>,
}

/// Amount of a TRES.
struct TresCount {
    name: String,
    count: u64,
}

impl OwnCluster {
    /// Asks the controller.
    pub(super) fn load(call: &mut Call<'_>) -> Result<OwnCluster, CallFailure> {
        let mut ctx = call.context();
        let (host, port) = call.ask(|client| {
            query::cluster(client, &mut ctx)?;
            let host = client.endpoint.hosts.first().cloned().unwrap_or_default();
            Ok((host, client.endpoint.port))
        })?;
        let nodes: Vec<&str> = ctx.nodes.iter().map(|n| n.config.name.as_str()).collect();
        Ok(OwnCluster {
            name: call.context().cluster,
            host,
            port,
            nodes: hostlist::compress(&nodes),
            tres: tres_of(&ctx),
        })
    }

    /// The names of all clusters.
    pub(super) fn names(&self, book: &Book) -> Vec<String> {
        let others = book.all.clusters.keys().cloned();
        let mut names: Vec<String> = others.chain([self.name.clone()]).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Writes the records of clusters.
    pub(super) fn write_clusters(&self, w: &mut Writer<'_>, names: &[String]) {
        for name in names {
            w.item(|w| self.write_cluster(w, name));
        }
    }

    fn write_cluster(&self, w: &mut Writer<'_>, name: &str) {
        let is_own = name == self.name;
        w.map("controller", |w| {
            w.text("host", if is_own { &self.host } else { "" });
            w.raw("port", if is_own { self.port } else { 0 });
        });
        w.list("flags", |_| {});
        w.text("name", name);
        text_or_null(w, "nodes", if is_own { &self.nodes } else { "" });
        if w.version() < 45 {
            text_or_null(w, "select_plugin", if is_own { "cons_tres" } else { "" });
        }
        w.map("associations", |w| match w.is_old() {
            true => w.raw("root", "null"),
            false => w.map("root", |w| {
                w.text("account", ROOT);
                w.text("cluster", name);
                w.text("partition", "");
                w.text("user", "");
                w.raw("id", 1);
            }),
        });
        w.raw("rpc_version", 0);
        w.list("tres", |w| {
            if is_own {
                write_tres(w, &self.tres, |tres| tres.count);
            }
        });
    }

    /// Writes the list of TRES under a key. Those without a cluster have no counts.
    pub(super) fn write_tres_list(&self, w: &mut Writer<'_>, key: &str) {
        w.list(key, |w| write_tres(w, &self.tres, |_| 0));
    }
}

/// TRES of every cluster, in the order of their numbers, and those that the nodes have.
fn tres_of(ctx: &Ctx) -> Vec<TresCount> {
    let sum = |of: fn(&muster_model::node::Node) -> u64| ctx.nodes.iter().map(of).sum::<u64>();
    let cpus = sum(|node| u64::from(node.config.cpus));
    let mut all: Vec<TresCount> = [
        ("cpu", cpus),
        ("mem", sum(|node| node.config.memory_mib)),
        ("energy", 0),
        ("node", ctx.nodes.len() as u64),
        ("billing", cpus),
        ("fs/disk", 0),
        ("vmem", 0),
        ("pages", 0),
    ]
    .map(|(name, count)| TresCount {
        name: name.to_owned(),
        count,
    })
    .into();
    for gres in ctx.nodes.iter().flat_map(|node| &node.config.gres) {
        let name = format!("gres/{}", gres.name);
        match all.iter_mut().find(|tres| tres.name == name) {
            Some(tres) => tres.count += gres.count,
            None => all.push(TresCount {
                name,
                count: gres.count,
            }),
        }
    }
    all
}

fn write_tres(w: &mut Writer<'_>, all: &[TresCount], count: fn(&TresCount) -> u64) {
    let mut next = 1000;
    for tres in all {
        let id = match tres_id(&tres.name) {
            id if id < 1000 => id,
            _ => {
                next += 1;
                next
            }
        };
        w.item(|w| {
            let (kind, own) = tres.name.split_once('/').unwrap_or((&tres.name, ""));
            w.text("type", kind);
            text_or_null(w, "name", own);
            w.raw("id", id);
            w.raw("count", count(tres));
        });
    }
}

/// `GET tres`.
pub(super) fn tres(call: &mut Call<'_>) -> Outcome {
    let own = OwnCluster::load(call)?;
    Ok(call.document(&call.context(), |w| own.write_tres_list(w, "TRES")))
}

/// `GET clusters`.
pub(super) fn clusters(call: &mut Call<'_>) -> Outcome {
    let (book, own) = (load(call)?, OwnCluster::load(call)?);
    let names = own.names(&book);
    Ok(call.document(&call.context(), |w| {
        w.list("clusters", |w| own.write_clusters(w, &names));
    }))
}

/// `GET cluster/{cluster_name}`.
pub(super) fn cluster(call: &mut Call<'_>) -> Outcome {
    let (book, own) = (load(call)?, OwnCluster::load(call)?);
    let name = call.name().to_owned();
    if !own.names(&book).contains(&name) {
        return Err(nothing(call, "cluster"));
    }
    Ok(call.document(&call.context(), |w| {
        w.list("clusters", |w| own.write_clusters(w, &[name]));
    }))
}
