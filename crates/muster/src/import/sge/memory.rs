//! Whether memory is given out, and what a job gets that asks for none.

use super::Made;
use super::dump::Dump;
use super::hosts::{Resources, complex_values, cpus_of, loads_of, memory_of, mib};

/// Writes the resources that are counted. Grid Engine counts memory where a consumable complex of hosts says so. A job that names none takes the
/// complex's default of it there; here, without `DefMemPerCPU`, it would take all memory of its nodes.
pub(super) fn write(dump: &Dump, resources: &Resources, made: &mut Made) {
    let of_hosts: Vec<String> = (dump.hosts.iter().flat_map(complex_values))
        .map(|(name, _)| name)
        .collect();
    let is_counted = |name: &String| of_hosts.contains(name);
    let mut counted = (dump.complexes.iter())
        .filter(|own| own.kind == "MEMORY" && own.consumable != "NO" && is_counted(&own.name));
    let Some(complex) = counted.next() else {
        made.slurm.push_str("SelectTypeParameters=CR_Core\n");
        return;
    };
    made.slurm.push_str("SelectTypeParameters=CR_Core_Memory\n");
    let usual = mib(&complex.default);
    let share = smallest_share(dump, resources);
    if let Some(mib) = usual.or(share) {
        made.slurm.push_str(&format!("DefMemPerCPU={mib}\n"));
    }
    if usual.is_none() {
        let gets = match share {
            Some(mib) => format!("{mib} MiB a slot, its share of the smallest host (DefMemPerCPU)"),
            None => "all memory of its nodes: set DefMemPerCPU".to_owned(),
        };
        let what = format!("complex {}", complex.name);
        made.note(
            &what,
            &format!("a job that does not ask for it takes nothing there, and gets {gets}"),
        );
    }
}

/// MiB of memory for each CPU of the host that has least.
fn smallest_share(dump: &Dump, resources: &Resources) -> Option<u64> {
    let shares = dump.hosts.iter().filter_map(|host| {
        let loads = loads_of(host);
        let own = complex_values(host);
        let cpus = cpus_of(host, &loads, &own)?;
        Some(memory_of(&loads, &own, resources)? / u64::from(cpus.max(1)))
    });
    shares.min().filter(|share| *share > 0)
}
