//! Which cores, memory and devices a job has on each node; and lists of hosts in short and in full.

use super::call::{Call, CallFailure, Outcome};
use super::job_keys::text_of;
use super::jobs::{load, no_job};
use crate::listing::context::Ctx;
use crate::listing::document::Writer;
use crate::listing::job::JobRow;
use crate::listing::job_names;
use muster_model::hostlist;
use muster_model::job::NodeShare;
use serde_json::Value;

/// `GET resources/{job_id}`.
pub(super) fn resources(call: &mut Call<'_>) -> Outcome {
    let name = call.name().to_owned();
    let (id, task) = job_names::parse_job(&name).ok_or_else(|| no_job(&name))?;
    let (ctx, jobs) = load(call, vec![id])?;
    let rows: Vec<JobRow<'_>> = job_names::rows_of(&jobs, id, task).collect();
    if rows.is_empty() {
        return Err(no_job(&name));
    }
    Ok(call.document(&ctx, |w| {
        w.list("nodes", |w| {
            for share in rows.iter().flat_map(JobRow::shares) {
                w.item(|w| node(w, share, &ctx));
            }
        });
    }))
}

fn node(w: &mut Writer<'_>, share: &NodeShare, ctx: &Ctx) {
    let config = ctx.nodes.iter().find(|n| n.config.name == share.name);
    let config = config.map(|node| &node.config);
    w.text("node", &share.name);
    let sockets = config.map_or(0, |c| {
        c.cpus / (c.threads_per_core * c.cores_per_socket).max(1)
    });
    w.raw("sockets_per_node", sockets);
    w.raw("cores_per_socket", config.map_or(0, |c| c.cores_per_socket));
    w.raw("mem_alloc", share.memory_mib);
    let threads = config.map_or(1, |c| c.threads_per_core.max(1));
    let mut cores: Vec<u32> = share.cpus.iter().map(|cpu| cpu / threads).collect();
    cores.dedup();
    w.text("core_bitmap", &hostlist::ranges(&cores));
    w.limit("channel", None, false);
    w.list("gres", |w| {
        for gres in &share.gres {
            w.item(|w| {
                w.text("name", &gres.name);
                w.text_or_empty("type", gres.kind.as_deref());
                w.raw("count", gres.ids.len());
                let ids: Vec<u32> = gres.numbers().collect();
                w.text("index", &hostlist::ranges(&ids));
            });
        }
    });
}

/// `POST hostnames`: the hosts of a list.
pub(super) fn hostnames(call: &mut Call<'_>) -> Outcome {
    let key = "hostlist";
    let list = match call.body.as_object().map(|body| text_of(body, key)) {
        Some(Ok(Some(list))) => list,
        Some(Err(error)) => return Err(CallFailure::malformed(key, error.why)),
        _ => return Err(CallFailure::malformed(key, "the body has no hostlist")),
    };
    let names = hostlist::names(&list, hostlist::MAX_HOSTS)
        .map_err(|e| CallFailure::malformed(key, e.to_string()))?;
    let names: Vec<String> = names.into_iter().collect();
    Ok(call.document(&call.context(), |w| w.texts("hostnames", &names)))
}

/// `POST hostlist`: hosts in short.
pub(super) fn hostlist(call: &mut Call<'_>) -> Outcome {
    let key = "hostnames";
    let Some(items) = call.body.get(key).and_then(Value::as_array) else {
        return Err(CallFailure::malformed(
            key,
            "the body has no list hostnames",
        ));
    };
    let mut names = Vec::with_capacity(items.len());
    for item in items {
        let name = item.as_str();
        names.push(name.ok_or_else(|| CallFailure::malformed(key, "expected texts"))?);
    }
    if names.len() > hostlist::MAX_HOSTS {
        let why = format!("more than {} hosts", hostlist::MAX_HOSTS);
        return Err(CallFailure::malformed(key, why));
    }
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    let list = hostlist::compress(&names);
    Ok(call.document(&call.context(), |w| w.text("hostlist", &list)))
}

/// `GET instance` and `GET instances`: nodes of clouds by their instances, which are not kept here.
pub(super) fn instances(call: &mut Call<'_>) -> Outcome {
    Ok(call.document(&call.context(), |w| w.list("instances", |_| {})))
}
