//! `DefCpuPerGPU` and `DefMemPerGPU` of slurm.conf and of partitions, as keys of their own or as words of `JobDefaults`.

use crate::diagnostic::Findings;
use crate::reader::Reader;
use crate::value;
use muster_model::config::JobDefaults;

/// Defaults for each GPU where a job does not set them; malformed words are reported and left out.
pub(crate) fn read(reader: &Reader<'_>, findings: &mut Findings) -> JobDefaults {
    let mut defaults = JobDefaults::default();
    for word in reader.list("JobDefaults") {
        let known = word
            .split_once('=')
            .is_some_and(|(name, number)| set(&mut defaults, name, number));
        if !known && let Some(setting) = reader.settings.get("JobDefaults") {
            let message = format!("JobDefaults: `{word}` is not understood");
            let help = "DefCpuPerGPU=COUNT and DefMemPerGPU=MIB are";
            findings.error(&setting.origin, "JobDefaults", message, help);
        }
    }
    for key in ["DefCpuPerGPU", "DefMemPerGPU"] {
        if let Some(number) = reader.given(key) {
            // Other words than numbers have been reported by the key's kind.
            set(&mut defaults, key, number);
        }
    }
    let other = ["DefMemPerCPU", "DefMemPerNode"];
    let other = other
        .iter()
        .find_map(|key| reader.settings.get(key).map(|setting| (key, setting)));
    if let (Some(_), Some((key, setting))) = (defaults.mib_per_gpu, other) {
        let message = format!("DefMemPerGPU and {key} exclude each other");
        let help = "DefMemPerGPU counts for jobs with GPUs, the other for those without";
        findings.warn(&setting.origin, key, message, help);
    }
    defaults
}

/// Zero is none.
fn set(defaults: &mut JobDefaults, name: &str, number: &str) -> bool {
    if name.eq_ignore_ascii_case("DefCpuPerGPU") {
        let count = value::parse_number(number, u64::from(u32::MAX));
        let Ok(count) = count else { return false };
        let count = count.and_then(|n| u32::try_from(n).ok());
        defaults.cpus_per_gpu = count.filter(|n| *n > 0);
    } else if name.eq_ignore_ascii_case("DefMemPerGPU") {
        let Ok(mib) = value::parse_mem_mib(number) else {
            return false;
        };
        defaults.mib_per_gpu = Some(mib).filter(|mib| *mib > 0);
    } else {
        return false;
    }
    true
}
