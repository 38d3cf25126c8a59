//! The counted resources of allocations, under the names that limits have, in lower case: `cpu`, `mem`, `node`, `gres/NAME` and
//! `gres/NAME:TYPE`, `license/NAME`, and `billing` by the weights of a partition.

use crate::state::State;
use muster_model::account_limits::TresAmounts;
use muster_model::job::{Allocation, Job, MILLION};
use muster_model::licenses::LicenseCount;
use std::collections::BTreeMap;

/// The counted resources of an allocation of a job that has begun.
pub fn amounts(alloc: &Allocation) -> TresAmounts {
    let mut out = resources(alloc, alloc.cpus_counted.unwrap_or_else(|| alloc.cpus()));
    let milli = match (alloc.billing_units_milli, alloc.billing_milli) {
        (Some(units), _) => units,
        // It began before these were kept.
        (None, 0) => alloc.cpus().saturating_mul(1000),
        (None, milli) => milli,
    };
    out.push("billing", milli.div_ceil(1000));
    out
}

/// The amounts of an allocation with which a job would start.
pub fn amounts_to_start(state: &State, job: &Job, alloc: &Allocation) -> TresAmounts {
    let cpus = cpus_counted(state, job, alloc);
    let mut out = resources(alloc, cpus.unwrap_or_else(|| alloc.cpus()));
    add_billing(state, &alloc.partition, &mut out);
    out
}

/// Adds what such resources are billed in a partition.
pub fn add_billing(state: &State, partition: &str, tres: &mut TresAmounts) {
    let units = units_milli(state, partition, tres);
    tres.push("billing", units.div_ceil(1000));
}

/// Notes what limits and fair share count of an allocation, of a job that starts or is left with fewer nodes.
pub(crate) fn note_counts(state: &State, job: &Job, alloc: &mut Allocation) {
    alloc.cpus_counted = cpus_counted(state, job, alloc);
    let tres = resources(alloc, alloc.cpus_counted.unwrap_or_else(|| alloc.cpus()));
    let units = units_milli(state, &alloc.partition, &tres);
    let factor = state.usage_factor_millionths(job).unwrap_or(MILLION);
    let billed = u128::from(units) * u128::from(factor) / u128::from(MILLION);
    alloc.billing_units_milli = Some(units);
    alloc.billing_milli = u64::try_from(billed).unwrap_or(u64::MAX);
}

/// The CPUs that count, if these are not the job's: no other job can have those that it keeps for the
/// system on its nodes (`--core-spec`, `--thread-spec`), and it pays for them.
fn cpus_counted(state: &State, job: &Job, alloc: &Allocation) -> Option<u64> {
    let ask = &job.spec.ask;
    let is_asked = ask.core_spec.is_some() || ask.thread_spec.is_some();
    let config = state.config.as_ref();
    if !(alloc.exclusive && is_asked && config.is_some_and(|config| config.spec_by_job)) {
        return None;
    }
    let of_node = alloc.nodes.iter().map(|share| {
        let node = state.nodes.get(share.node.0 as usize);
        let open = node.map_or(0, |node| node.config.job_cpus().len());
        u64::from(open.max(share.cpus.len()))
    });
    Some(of_node.sum())
}

fn resources(alloc: &Allocation, cpus: u64) -> TresAmounts {
    let mut out = TresAmounts::from_iter([
        ("cpu", cpus),
        ("mem", alloc.memory_mib()),
        ("node", alloc.nodes.len() as u64),
    ]);
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for share in alloc.nodes.iter().flat_map(|n| &n.gres) {
        for name in device_names(&share.name, share.kind.as_deref()) {
            *counts.entry(name).or_default() += u64::from(share.ids.len());
        }
    }
    for LicenseCount { name, count } in &alloc.licenses {
        *counts.entry(license_name(name)).or_default() += u64::from(*count);
    }
    for (name, count) in counts {
        out.push(name, count);
    }
    out
}

/// Under which names a device counts: all of its name, and those of its type.
pub fn device_names(name: &str, kind: Option<&str>) -> impl Iterator<Item = String> {
    let by_kind = kind.map(|kind| format!("gres/{name}:{kind}"));
    let all = std::iter::once(format!("gres/{name}")).chain(by_kind);
    all.map(|name| name.to_ascii_lowercase())
}

/// Under which name a license counts.
pub fn license_name(name: &str) -> String {
    format!("license/{name}").to_ascii_lowercase()
}

/// The charge of an hour of such resources in a partition, in thousandths: CPUs, or by `TRESBillingWeights`.
fn units_milli(state: &State, partition: &str, tres: &TresAmounts) -> u64 {
    let weights = state
        .partition(partition)
        .and_then(|p| p.billing_weights.as_deref())
        .unwrap_or("CPU=1");
    let settings = (state.config.as_ref()).and_then(|c| c.order.multifactor.as_ref());
    let gres_apart = settings.is_some_and(|m| m.max_tres_gres);
    let most = settings.is_some_and(|m| m.max_tres) || gres_apart;
    let of = |name: &str| tres.get(name).map_or(0.0, |amount| amount as f64);
    let (mut units, mut beside): (f64, f64) = (0.0, 0.0);
    for (name, weight) in muster_model::factors::tres_weights(weights) {
        let name = name.to_ascii_lowercase();
        let amount = match name.as_str() {
            "cpu" | "mem" | "node" => of(&name),
            // Resources of the whole cluster count beside the most of those of nodes.
            license if license.starts_with("license/") => {
                beside += of(license) * weight;
                continue;
            }
            other => {
                let device = other.strip_prefix("gres/").unwrap_or(other);
                let count = of(&format!("gres/{device}"));
                if gres_apart {
                    beside += count * weight;
                    continue;
                }
                count
            }
        };
        units = match most {
            true => units.max(amount * weight),
            false => units + amount * weight,
        };
    }
    ((units + beside) * 1000.0).max(0.0) as u64
}
