//! A task binds itself to its CPUs and memory, and reports this if the user asks for it. The agent has computed the
//! binding.

use super::task_set::TaskSet;
use crate::sys::{self, MemoryMode};
use muster_model::binding::mask_text;
use muster_model::cpuset::CpuSet;
use muster_model::gpu_bind;
use muster_model::job_env::{self, Variables};
use muster_node_core::messages::MemoryPolicy;
use std::io::{self, Write};

impl TaskSet {
    /// In a task's child, before exec, with its streams in place.
    pub(super) fn bind_task(&self, local: u32, global: u32) -> Result<(), String> {
        let binding = &self.order.binding;
        let own = binding.cpus.get(local as usize);
        let result = own.map_or(Ok(()), sys::set_affinity);
        if binding.verbose {
            let mask = own
                .cloned()
                .unwrap_or_else(|| sys::affinity().unwrap_or_default());
            let set = match (own, &result) {
                (None, _) => "",
                (Some(_), Ok(())) => " set",
                (Some(_), Err(_)) => " set FAILED",
            };
            self.report(
                &format!("cpu-bind={}", binding.label),
                local,
                global,
                &mask,
                set,
            );
            if let (0, Some(note)) = (local, &binding.note) {
                let line = format!("slurmstepd: {}: {note}\n", self.node);
                let _ = io::stderr().write_all(line.as_bytes());
            }
        }
        result.map_err(|e| format!("task {global}: cannot be bound to its CPUs: {e}"))?;
        if binding.report_gpus
            && let Some(gpus) = binding.gpus.get(local as usize)
        {
            self.report_gpus(gpus);
        }
        match &binding.memory {
            Some(policy) => self.bind_memory(policy, local, global),
            None => Ok(()),
        }
    }

    /// The variables that list the GPUs to which a task is bound.
    pub(super) fn gpu_env(&self, local: u32) -> Variables {
        let Some(gpus) = self.order.binding.gpus.get(local as usize) else {
            return Variables::new();
        };
        let numbers: Vec<u32> = gpus.iter().collect();
        let all = job_env::gpu_variables(&self.order.launch.gres, &numbers);
        all.into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// The line of `--gpu-bind=verbose`, in Slurm's form.
    fn report_gpus(&self, gpus: &CpuSet) {
        let all: CpuSet = (gpu_bind::gpus_of(&self.order.launch.gres).iter())
            .map(|gpu| gpu.number)
            .collect();
        let list: Vec<String> = gpus.iter().map(|n| n.to_string()).collect();
        let list = list.join(",");
        let line = format!(
            "gpu-bind: usable_gres={}; bit_alloc={}; local_inx={}; global_list={list}; local_list={list}\n",
            mask_text(gpus, 1),
            mask_text(&all, 1),
            all.len()
        );
        // Nothing can be done when standard error cannot be written.
        let _ = io::stderr().write_all(line.as_bytes());
    }

    fn bind_memory(&self, policy: &MemoryPolicy, local: u32, global: u32) -> Result<(), String> {
        let domains = policy.domains.get(local as usize);
        let missing = domains.and_then(|d| d.iter().find(|n| !policy.exist.contains(*n)));
        let result = match (domains, missing) {
            (_, Some(domain)) => Err(format!(
                "NUMA node {domain} does not exist; cannot bind local task {local} to it (--mem-bind)"
            )),
            (None, _) if !policy.local => Ok(()),
            (None, _) => set(MemoryMode::Local, &CpuSet::default()),
            (Some(domains), None) if policy.prefer => set(MemoryMode::Prefer, &domains.lowest(1)),
            (Some(domains), None) => set(MemoryMode::Bind, domains),
        };
        if policy.verbose {
            let mask = domains.unwrap_or(&policy.exist);
            let how = match &result {
                _ if domains.is_none() && !policy.local => "",
                Ok(()) => " set",
                Err(_) => " set FAILED",
            };
            self.report(
                &format!("mem-bind{}", policy.label),
                local,
                global,
                mask,
                how,
            );
        }
        result
    }

    /// The line of `verbose`, in Slurm's form.
    fn report(&self, what: &str, local: u32, global: u32, mask: &CpuSet, how: &str) {
        let mask = mask_text(mask, 1).to_ascii_lowercase();
        let pid = std::process::id();
        let node = &self.node;
        let line =
            format!("{what} - {node}, task {global:2} {local:2} [{pid}]: mask {mask}{how}\n");
        // Nothing can be done when standard error cannot be written.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

fn set(mode: MemoryMode, domains: &CpuSet) -> Result<(), String> {
    sys::set_memory_policy(mode, domains).map_err(|e| match e.raw_os_error() {
        Some(libc::ENOSYS) => {
            "--mem-bind: this kernel has no NUMA memory policies (CONFIG_NUMA); remove the option"
                .to_owned()
        }
        _ => format!("--mem-bind: set_mempolicy: {e}"),
    })
}
