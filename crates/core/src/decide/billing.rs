//! What an allocation is charged, by the weights of its partition.

use super::draft::Draft;
use muster_model::job::{Allocation, GresShare, Job, MILLION};

/// What the allocation counts in the user's use, in thousandths: CPUs, or what `TRESBillingWeights` says, times the
/// `UsageFactor` of the QOS.
pub(super) fn billing_milli(draft: &Draft<'_>, job: &Job, alloc: &Allocation) -> u64 {
    let state = draft.state;
    let weights = state
        .partition(&alloc.partition)
        .and_then(|p| p.billing_weights.as_deref())
        .unwrap_or("CPU=1");
    let settings = (state.config.as_ref()).and_then(|c| c.order.multifactor.as_ref());
    let gres_apart = settings.is_some_and(|m| m.max_tres_gres);
    let most = settings.is_some_and(|m| m.max_tres) || gres_apart;
    let (mut units, mut gres_units, mut shared): (f64, f64, f64) = (0.0, 0.0, 0.0);
    for (name, weight) in muster_model::factors::tres_weights(weights) {
        let amount = match name.to_ascii_lowercase().as_str() {
            "cpu" => alloc.cpus() as f64,
            "mem" => alloc.memory_mib() as f64,
            "node" => alloc.nodes.len() as f64,
            // What the whole cluster has counts beside the most of what nodes have.
            other if let Some(wanted) = other.strip_prefix("license/") => {
                let held = alloc.licenses.iter();
                let held = held.filter(|of| of.name.eq_ignore_ascii_case(wanted));
                shared += held.map(|of| f64::from(of.count) * weight).sum::<f64>();
                continue;
            }
            other => {
                let wanted = other.strip_prefix("gres/").unwrap_or(other);
                let gres = alloc.nodes.iter().flat_map(|n| &n.gres);
                let count: u32 = gres
                    .filter(|g| is_device(g, wanted))
                    .map(|g| g.ids.len())
                    .sum();
                if gres_apart {
                    gres_units += f64::from(count) * weight;
                    continue;
                }
                f64::from(count)
            }
        };
        units = match most {
            true => units.max(amount * weight),
            false => units + amount * weight,
        };
    }
    let factor = state.usage_factor_millionths(job).unwrap_or(MILLION);
    let milli = (units + gres_units + shared) * factor as f64 / 1000.0;
    milli.max(0.0) as u64
}

/// Whether devices are those that a weight is of: `gpu`, or `gpu:a100`; in lower case.
fn is_device(share: &GresShare, wanted: &str) -> bool {
    let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    match wanted.split_once(':') {
        None => same(&share.name, wanted),
        Some((name, kind)) => {
            same(&share.name, name) && share.kind.as_ref().is_some_and(|k| same(k, kind))
        }
    }
}
