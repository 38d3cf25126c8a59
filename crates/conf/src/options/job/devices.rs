//! GPUs and other devices that options ask for, however they count them. What Slurm holds against each other is held
//! against each other here, in its words; how many come from which node is the scheduler's matter.

use super::ask::mem_value;
use super::bind::tasks_per_gpu;
use crate::options::OptionError;
use crate::options::chosen::ChosenOptions;
use crate::options::row::OptionCommand;
use crate::options::values::{self, number};
use muster_model::spec::{DeviceAsk, DeviceBinding, GPU, GresAsk, ResourceAsk};

/// Slurm's line under each of these.
const GRES: &str = "Invalid generic resource (gres) specification";

fn refuse<T>(why: impl Into<String>) -> Result<T, OptionError> {
    Err(OptionError::fatal(GRES).with_hint(why))
}

/// Reads all options that ask for devices into `ask`, and what follows from them for nodes and tasks.
pub(super) fn apply(chosen: &ChosenOptions, ask: &mut ResourceAsk) -> Result<(), OptionError> {
    let gpus = |long: &'static str| match chosen.value(long) {
        Some(text) => values::gpus(text)
            .ok_or_else(|| OptionError::bad_value(long, text, "a count such as 2 or a100:2")),
        None => Ok(Vec::new()),
    };
    if let Some(text) = chosen.value("gres") {
        ask.gres = values::gres(text).ok_or_else(|| OptionError::fatal(GRES))?;
    }
    for gpu in gpus("gpus-per-node")? {
        values::push_gres(&mut ask.gres, &gpu.name, gpu.kind, gpu.count);
    }
    let mut devices = DeviceAsk {
        per_job: gpus("gpus")?,
        per_socket: gpus("gpus-per-socket")?,
        per_task: per_task(chosen, gpus("gpus-per-task")?)?,
        binding: binding(chosen)?,
        ..DeviceAsk::default()
    };
    if !devices.per_socket.is_empty() && ask.sockets_per_node.is_none() {
        return refuse("--gpus-per-socket option requires --sockets-per-node specification");
    }
    if chosen.has("cpus-per-gpu") && chosen.has("cpus-per-task") {
        return refuse("--cpus-per-gpu is mutually exclusive with --cpus-per-task");
    }
    // A step has some of what its job was given, whatever the job's options were.
    if !chosen.has("jobid") {
        check_counts(ask, &devices)?;
    }
    by_gpu(chosen, ask, &mut devices)?;
    for gpu in devices.per_job.clone() {
        whole_nodes(&gpu, ask)?;
    }
    for device in devices.per_task.clone() {
        tasks(chosen, &device, &devices, ask)?;
    }
    memory_and_cpus(chosen, ask, &mut devices)?;
    if devices != DeviceAsk::default() {
        ask.devices = Some(Box::new(devices));
    }
    Ok(())
}

/// `--gpus-per-task` and the devices of `--tres-per-task`.
fn per_task(chosen: &ChosenOptions, mut list: Vec<GresAsk>) -> Result<Vec<GresAsk>, OptionError> {
    for item in chosen.value("tres-per-task").unwrap_or("").split(',') {
        if item.is_empty() || item.starts_with("cpu=") || item.starts_with("cpu:") {
            continue;
        }
        let Some(more) = item.strip_prefix("gres/").and_then(values::gres) else {
            return Err(
                OptionError::invalid("Invalid --tres-per-task specification")
                    .with_hint(format!("'{item}' is neither cpu=N nor gres/NAME[:TYPE]=N")),
            );
        };
        for gres in more {
            values::push_gres(&mut list, &gres.name, gres.kind, gres.count);
        }
    }
    Ok(list)
}

fn binding(chosen: &ChosenOptions) -> Result<DeviceBinding, OptionError> {
    let Some(text) = chosen.value("gres-flags") else {
        return Ok(DeviceBinding::Preferred);
    };
    let mut binding = DeviceBinding::Preferred;
    for word in text.split(',') {
        binding = match word.to_ascii_lowercase().as_str() {
            "enforce-binding" => DeviceBinding::Enforced,
            "disable-binding" => DeviceBinding::Disabled,
            "allow-task-sharing" => binding,
            _ => {
                let forms = "enforce-binding, disable-binding or allow-task-sharing";
                return Err(OptionError::bad_value("gres-flags", word, forms));
            }
        };
    }
    Ok(binding)
}

fn gpus_of(list: &[GresAsk]) -> u64 {
    let gpus = list.iter().filter(|g| g.name == GPU);
    gpus.map(|g| g.count).sum()
}

/// GPUs of the job, of a node, a socket and a task against each other, and against the sockets and tasks of a node.
fn check_counts(ask: &ResourceAsk, devices: &DeviceAsk) -> Result<(), OptionError> {
    let lists = [
        &devices.per_job,
        &ask.gres,
        &devices.per_socket,
        &devices.per_task,
    ];
    let [job, node, socket, task] = lists.map(|list| Some(gpus_of(list)).filter(|n| *n > 0));
    let exceeds =
        |part: Option<u64>, whole: Option<u64>| part.zip(whole).is_some_and(|(p, w)| p > w);
    if exceeds(node, job) || exceeds(socket, node) || exceeds(socket, job) {
        return refuse(
            "Failed to ensure --gpus >= --gres=gpu/--gpus-per-node >= --gpus-per-socket",
        );
    }
    if exceeds(task, node) || exceeds(task, job) {
        return refuse("Failed to ensure --gpus >= --gpus-per-task");
    }
    for (each, option, asked, differ) in [
        (
            socket,
            "--gpus-per-socket",
            ask.sockets_per_node,
            "required number of sockets differ from --sockets-per-node",
        ),
        (
            task,
            "--gpus-per-task",
            ask.ntasks_per_node,
            "requested number of tasks per node differ from --ntasks-per-node",
        ),
    ] {
        let (Some(node), Some(each), Some(asked)) = (node, each, asked) else {
            continue;
        };
        if !node.is_multiple_of(each) {
            return refuse(format!(
                "Failed to validate job spec, --gres=gpu/--gpus-per-node not multiple of {option}."
            ));
        }
        if node / each != u64::from(asked) {
            return refuse(format!(
                "Failed to validate job spec. Based on --gres=gpu/--gpus-per-node and {option} {differ}."
            ));
        }
    }
    Ok(())
}

/// `--ntasks-per-gpu`: tasks from GPUs, or GPUs from tasks.
fn by_gpu(
    chosen: &ChosenOptions,
    ask: &mut ResourceAsk,
    devices: &mut DeviceAsk,
) -> Result<(), OptionError> {
    let Some((long, text)) = tasks_per_gpu(chosen) else {
        return Ok(());
    };
    if chosen.has("ntasks-per-gpu") && chosen.has("ntasks-per-tres") {
        return Err(OptionError::fatal(
            "--ntasks-per-gpu is mutually exclusive with --ntasks-per-tres and SLURM_NTASKS_PER_TRES",
        ));
    }
    let each = number(long, text, 1)?;
    let others = [
        ("gpus-per-task", !devices.per_task.is_empty()),
        ("gpus-per-socket", !devices.per_socket.is_empty()),
        ("ntasks-per-node", ask.ntasks_per_node.is_some()),
    ];
    if let Some((other, _)) = others.iter().find(|(_, given)| *given) {
        return Err(OptionError::fatal(format!(
            "--{other} is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU"
        )));
    }
    let tasks_of = |gpus: u64| {
        let tasks = gpus.saturating_mul(u64::from(each));
        u32::try_from(tasks).unwrap_or(u32::MAX - 16)
    };
    let (job, node) = (gpus_of(&devices.per_job), gpus_of(&ask.gres));
    if node > 0 {
        ask.ntasks_per_node = Some(tasks_of(node));
    }
    match (job, node, ask.ntasks) {
        (0, 0, None) if chosen.command == OptionCommand::Srun => return Ok(()),
        (0, 0, None) => {
            return refuse(
                "--ntasks-per-gpu needs either GPUs (--gpus, --gpus-per-node) or tasks (--ntasks)",
            );
        }
        (0, 0, Some(tasks)) if !tasks.is_multiple_of(each) => {
            return refuse(
                "Failed to validate job spec, -n/--ntasks has to be a multiple of --ntasks-per-gpu.",
            );
        }
        (0, 0, Some(tasks)) => {
            let gpus = u64::from(tasks / each);
            values::push_gres(&mut devices.per_job, GPU, None, gpus);
        }
        (0, node, None) => {
            ask.ntasks = Some(tasks_of(node.saturating_mul(u64::from(ask.min_nodes))));
        }
        (job, _, None) => ask.ntasks = Some(tasks_of(job)),
        (_, _, Some(_)) => {}
    }
    devices.ntasks_per_gpu = Some(each);
    Ok(())
}

fn same(a: &GresAsk, b: &GresAsk) -> bool {
    a.name == b.name && a.kind == b.kind
}

/// GPUs of the job against those of each node, and against nodes: each has one.
fn whole_nodes(gpu: &GresAsk, ask: &mut ResourceAsk) -> Result<(), OptionError> {
    if let Some(node) = ask.gres.iter().find(|node| same(node, gpu)) {
        if !gpu.count.is_multiple_of(node.count) {
            return refuse(
                "Failed to validate job spec, --gpus is not multiple of --gres=gpu/--gpus-per-node",
            );
        }
        let nodes = u32::try_from(gpu.count / node.count).unwrap_or(u32::MAX);
        let most = match ask.nodes_set {
            true => ask.max_nodes.unwrap_or(u32::MAX),
            false => u32::MAX,
        };
        if nodes < ask.min_nodes || nodes > most {
            return refuse(format!(
                "Failed to validate job spec. Based on --gpu and --gres=gpu/--gpus-per-node required nodes ({nodes}) \
                 doesn't fall between min_nodes ({}) and max_nodes ({most}) boundaries.",
                ask.min_nodes
            ));
        }
        (ask.min_nodes, ask.max_nodes) = (nodes, Some(nodes));
        return Ok(());
    }
    if gpu.count < u64::from(ask.min_nodes) {
        return refuse("Failed to validate job spec, --gpus < -N");
    }
    let most = u32::try_from(gpu.count).unwrap_or(u32::MAX);
    ask.max_nodes = ask.max_nodes.map(|nodes| nodes.min(most));
    Ok(())
}

/// Devices of a task against tasks, and against those of the job and of each node.
fn tasks(
    chosen: &ChosenOptions,
    device: &GresAsk,
    devices: &DeviceAsk,
    ask: &mut ResourceAsk,
) -> Result<(), OptionError> {
    if let Some(job) = devices.per_job.iter().find(|job| same(job, device)) {
        if !job.count.is_multiple_of(device.count) {
            return refuse("Failed to validate job spec, --gpus not multiple of --gpus-per-task");
        }
        let tasks = u32::try_from(job.count / device.count).unwrap_or(u32::MAX);
        if ask.ntasks.is_some_and(|asked| asked != tasks) {
            return refuse(
                "Failed to validate job spec. Based on --gpus and --gpus-per-task number of requested tasks differ \
                 from -n/--ntasks.",
            );
        }
        ask.ntasks = Some(tasks);
        return Ok(());
    }
    if let Some(node) = ask.gres.iter().find(|node| same(node, device)) {
        let tasks = u32::try_from(node.count / device.count).unwrap_or(u32::MAX);
        if tasks == 0 || ask.ntasks_per_node.is_some_and(|asked| asked > tasks) {
            return refuse(format!(
                "{} of a node are not enough for its tasks of {} each",
                node.count, device.count
            ));
        }
        ask.ntasks_per_node = ask.ntasks_per_node.or(Some(tasks));
        return Ok(());
    }
    // A number of nodes is a number of tasks to srun, and a step has its job's.
    let by_nodes = chosen.command == OptionCommand::Srun && chosen.has("nodes");
    let is_step = chosen.command == OptionCommand::Srun && chosen.has("jobid");
    let counted = ask.ntasks.is_some() || ask.ntasks_per_node.is_some();
    if !counted && !by_nodes && !is_step {
        return refuse(
            "Failed to validate job spec. --gpus-per-task used without either --gpus or -n/--ntasks is not allowed.",
        );
    }
    Ok(())
}

/// `--cpus-per-gpu` and `--mem-per-gpu`.
fn memory_and_cpus(
    chosen: &ChosenOptions,
    ask: &ResourceAsk,
    devices: &mut DeviceAsk,
) -> Result<(), OptionError> {
    let lists = [
        &ask.gres,
        &devices.per_job,
        &devices.per_socket,
        &devices.per_task,
    ];
    let some = lists.into_iter().any(|list| gpus_of(list) > 0);
    if let Some(text) = chosen.value("cpus-per-gpu") {
        let each = number("cpus-per-gpu", text, 1)?;
        if !some {
            return refuse("--cpus-per-gpu needs GPUs; give --gpus, --gpus-per-node or --gres=gpu");
        }
        devices.cpus_per_gpu = Some(each);
    }
    let kinds = ["mem", "mem-per-cpu", "mem-per-gpu"];
    if let Some(given) = chosen.strongest(&kinds)
        && given.row.long == "mem-per-gpu"
    {
        let text = chosen.value("mem-per-gpu").unwrap_or("");
        let each = mem_value("mem-per-gpu", text)?;
        if !some {
            return refuse(format!(
                "Requested mem_per_tres=gres:gpu:{each} but did not request any GPU."
            ));
        }
        devices.mib_per_gpu = Some(each);
    }
    Ok(())
}
