//! The devices that a step is asked to have, in the words of `scontrol show step`.

use crate::listing::job::write_gres;
use muster_model::job::StepDeviceAsk;
use muster_model::limits::DEVICE_TEXT_BYTES_MAX;
use muster_model::spec::{GresAsk, ResourceAsk};
use muster_proto::step::StepSpec;

/// The texts of a step; absent if nothing is said of devices. `ask` is that of the options: a step that fills an allocation
/// made for it has none of its own left.
pub(super) fn of(spec: &StepSpec, ask: &ResourceAsk) -> Option<Box<StepDeviceAsk>> {
    let devices = ask.devices();
    let lists = [
        &ask.gres,
        &devices.per_job,
        &devices.per_socket,
        &devices.per_task,
    ];
    if !spec.no_devices && lists.iter().all(|list| list.is_empty()) {
        return None;
    }
    let cpus = |n: u32| format!("cpu:{n}");
    let each = ask.cpus_per_task;
    let tasks = spec.ntasks.unwrap_or(1);
    let all = cpus(tasks.saturating_mul(each.unwrap_or(1)));
    let of_gpu = |n: u64| (n > 0).then(|| format!("gres/gpu:{n}"));
    Some(Box::new(StepDeviceAsk {
        cpus_per_device: devices.cpus_per_gpu.map(u64::from).and_then(of_gpu),
        memory_per_device: devices.mib_per_gpu.and_then(of_gpu),
        bind: short(
            spec.gpu_bind
                .as_ref()
                .map(|bind| format!("gres/gpu:{bind}")),
        ),
        per_step: short(list(Some(all), &devices.per_job)),
        per_node: short(list(None, &ask.gres)),
        per_socket: short(list(None, &devices.per_socket)),
        per_task: short(list(each.map(cpus), &devices.per_task)),
    }))
}

/// A text that the controller takes.
fn short(text: Option<String>) -> Option<String> {
    text.filter(|text| text.len() <= DEVICE_TEXT_BYTES_MAX)
}

/// Devices, after a count of CPUs; absent if there are neither.
fn list(cpus: Option<String>, gres: &[GresAsk]) -> Option<String> {
    let mut out = cpus.unwrap_or_default();
    for gres in gres {
        if !out.is_empty() {
            out.push(',');
        }
        write_gres(&mut out, gres);
    }
    (!out.is_empty()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::spec::DeviceAsk;

    fn gpus(count: u64) -> Vec<GresAsk> {
        vec![GresAsk {
            name: "gpu".to_owned(),
            kind: None,
            count,
        }]
    }

    /// The lines of a step of these tasks, CPUs per task, devices by node, and others.
    fn lines(spec: &StepSpec, each: Option<u32>, per_node: u64, devices: DeviceAsk) -> Vec<String> {
        let ask = ResourceAsk {
            cpus_per_task: each,
            gres: match per_node {
                0 => Vec::new(),
                n => gpus(n),
            },
            devices: Some(Box::new(devices)),
            ..ResourceAsk::default()
        };
        let texts = of(spec, &ask);
        (texts.iter().flat_map(|texts| texts.by_name()))
            .map(|(name, text)| format!("{name}={text}"))
            .collect()
    }

    /// As Slurm 22.05 writes them, but for `gres/gpu`, which later ones write.
    #[test]
    fn texts_are_those_of_the_options() {
        let tasks = |n| StepSpec {
            ntasks: Some(n),
            ..StepSpec::default()
        };
        let none = DeviceAsk::default;
        assert!(lines(&tasks(2), Some(2), 0, none()).is_empty());
        let of_step = DeviceAsk {
            per_job: gpus(1),
            mib_per_gpu: Some(100),
            ..none()
        };
        let expected = [
            "MemPerTres=gres/gpu:100",
            "TresPerStep=cpu:4,gres/gpu:1",
            "TresPerTask=cpu:2",
        ];
        assert_eq!(lines(&tasks(2), Some(2), 0, of_step), expected);
        let expected = ["TresPerStep=cpu:1", "TresPerNode=gres/gpu:1"];
        assert_eq!(lines(&tasks(1), None, 1, none()), expected);
        let bound = StepSpec {
            gpu_bind: Some("per_task:1".to_owned()),
            ..tasks(1)
        };
        let of_task = DeviceAsk {
            per_task: gpus(1),
            ..none()
        };
        let expected = [
            "TresBind=gres/gpu:per_task:1",
            "TresPerStep=cpu:1",
            "TresPerTask=gres/gpu:1",
        ];
        assert_eq!(lines(&bound, None, 0, of_task), expected);
        let without = StepSpec {
            no_devices: true,
            ..tasks(1)
        };
        assert_eq!(lines(&without, None, 0, none()), ["TresPerStep=cpu:1"]);
    }
}
