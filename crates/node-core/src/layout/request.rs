//! Limits of a request for a step, regardless of the allocation. srun checks most of them before; they apply to other
//! clients, too. The layout decides whether the request fits into the allocation.

use muster_model::limits::{
    ARGUMENTS_MAX, CONTEXT_BYTES_MAX, ENVIRONMENT_VARIABLES_MAX, NAME_BYTES_MAX, NODE_CPUS_MAX,
    NODE_DEVICES_MAX, PATH_BYTES_MAX, TASKS_MAX, TEXT_BYTES_MAX,
};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{DeviceAsk, GresAsk};
use muster_model::visible_text::visible;
use muster_proto::step::StepSpec;
use std::collections::BTreeSet;

/// Bytes of a `--multi-prog` file.
const PROGRAMS_BYTES_MAX: usize = 4 << 20;
/// Variables that srun adds.
const EXTRA_VARIABLES_MAX: usize = 1024;
/// Bytes of the command line (Slurm's default of `max_submit_line_size`).
const SUBMIT_LINE_BYTES_MAX: usize = 1 << 20;
/// Soft limits of srun: there are fewer resources.
const SOFT_LIMITS_MAX: usize = 64;
/// Kinds of devices that are asked for in one way.
const DEVICE_KINDS_MAX: usize = 64;

/// Checks what does not depend on the job.
///
/// # Errors
/// What is out of bounds.
pub fn check_request(spec: &StepSpec) -> Result<(), Refusal> {
    if spec.argv.is_empty() && spec.multi_prog.is_empty() {
        return Err(Refusal::new(RefusalCode::InvalidValue, "no program to run"));
    }
    check_programs(spec)?;
    check_texts(spec)?;
    check_numbers(spec)?;
    check_devices(spec)
}

fn too_long<T>(what: &str) -> Result<T, Refusal> {
    Err(Refusal::new(RefusalCode::TooLong, what))
}

fn check_programs(spec: &StepSpec) -> Result<(), Refusal> {
    let lines = spec.multi_prog.iter();
    let line_bytes: usize = lines.map(|(tasks, line)| tasks.len() + line.len()).sum();
    let argument_bytes: usize = spec.argv.iter().map(String::len).sum();
    let count = spec.argv.len().max(spec.multi_prog.len());
    if argument_bytes > CONTEXT_BYTES_MAX || count > ARGUMENTS_MAX {
        return too_long("the program's arguments");
    }
    if line_bytes > PROGRAMS_BYTES_MAX {
        return too_long("the file of --multi-prog");
    }
    let extra = &spec.extra_env;
    let extra_bytes: usize = extra
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    let bytes = extra_bytes.saturating_add(spec.context.environment.size_bytes());
    if bytes > CONTEXT_BYTES_MAX || extra.len() > EXTRA_VARIABLES_MAX {
        return too_long("the environment");
    }
    let count = spec.context.environment.count();
    if count > ENVIRONMENT_VARIABLES_MAX {
        let what = format!(
            "an environment of {count} variables; the limit is {ENVIRONMENT_VARIABLES_MAX}"
        );
        return too_long(&what);
    }
    if spec.context.soft_limits.len() > SOFT_LIMITS_MAX {
        return too_long("the list of resource limits");
    }
    Ok(())
}

fn check_texts(spec: &StepSpec) -> Result<(), Refusal> {
    let texts = [
        (&spec.nodelist, "--nodelist"),
        (&spec.exclude, "--exclude"),
        (&spec.distribution, "--distribution"),
        (&spec.cpu_bind, "--cpu-bind"),
        (&spec.mem_bind, "--mem-bind"),
        (&spec.gpu_bind, "--gpu-bind"),
        (&spec.mpi, "--mpi"),
        (&spec.task_prolog, "--task-prolog"),
        (&spec.task_epilog, "--task-epilog"),
        (&spec.program_file, "the program's path"),
    ];
    for (text, what) in texts {
        if text.as_ref().is_some_and(|t| t.len() > TEXT_BYTES_MAX) {
            return too_long(what);
        }
    }
    let files = [
        (&spec.stdio.stdin, "--input"),
        (&spec.stdio.stdout, "--output"),
        (&spec.stdio.stderr, "--error"),
    ];
    for (name, option) in files {
        if name.as_ref().is_some_and(|n| n.len() > PATH_BYTES_MAX) {
            return too_long(&format!(
                "the name of the file of {option}; the limit is {PATH_BYTES_MAX} bytes"
            ));
        }
    }
    if spec.work_dir.len() > TEXT_BYTES_MAX {
        return too_long("the working directory");
    }
    if spec.submit_line.len() > SUBMIT_LINE_BYTES_MAX {
        return too_long("the command line");
    }
    let host = spec.maker.as_ref().map_or("", |maker| &maker.host);
    if spec.name.len() > NAME_BYTES_MAX || host.len() > NAME_BYTES_MAX {
        return too_long("a name");
    }
    Ok(())
}

fn check_numbers(spec: &StepSpec) -> Result<(), Refusal> {
    let (mut first, mut total) = (0, 0);
    if let Some(het) = &spec.het {
        (first, total) = (het.first_task, het.total_tasks.unwrap_or(0));
    }
    let tasks = spec.ntasks.unwrap_or(0).max(first).max(total);
    if tasks > TASKS_MAX {
        let detail = format!("{tasks} tasks are asked for; at most {TASKS_MAX} are possible");
        return Err(Refusal::new(RefusalCode::InvalidTaskCount, detail));
    }
    // With fewer tasks than nodes it would be taken for less than it is.
    let nodes = spec.min_nodes.unwrap_or(0);
    if nodes > TASKS_MAX {
        let detail = format!("{nodes} nodes are asked for; at most {TASKS_MAX} are possible");
        return Err(Refusal::new(RefusalCode::InvalidNodeCount, detail));
    }
    if spec.cpus_per_task.is_some_and(|cpus| cpus > NODE_CPUS_MAX) {
        return Err(RefusalCode::InvalidCpuCount.into());
    }
    Ok(())
}

fn check_devices(spec: &StepSpec) -> Result<(), Refusal> {
    let of_step = spec.devices.as_deref();
    let counted = |d: &'static str, of: fn(&DeviceAsk) -> &Vec<GresAsk>| (d, of_step.map(of));
    let lists = [
        ("--gres", Some(&spec.gres)),
        counted("--gpus", |d| &d.per_job),
        counted("--gpus-per-socket", |d| &d.per_socket),
        counted("--gpus-per-task", |d| &d.per_task),
    ];
    for (what, asks) in lists {
        let asks = asks.map_or(&[][..], Vec::as_slice);
        let is_sound = |ask: &GresAsk| {
            ask.count <= NODE_DEVICES_MAX
                && ask.name.len() <= NAME_BYTES_MAX
                && ask.kind.as_ref().is_none_or(|k| k.len() <= NAME_BYTES_MAX)
        };
        if asks.len() > DEVICE_KINDS_MAX || !asks.iter().all(is_sound) {
            return Err(Refusal::new(RefusalCode::InvalidGres, what));
        }
        let mut kinds = BTreeSet::new();
        for ask in asks {
            if kinds.insert((&ask.name, &ask.kind)) {
                continue;
            }
            let kind = ask
                .kind
                .as_deref()
                .map_or_else(String::new, |kind| format!(":{kind}"));
            let name = visible(&ask.name).into_owned();
            let detail = format!("{what} names {name}{} twice", visible(&kind));
            return Err(Refusal::new(RefusalCode::InvalidGres, detail));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::spec::SoftLimit;
    use muster_proto::step::HetStep;

    /// Names of files have the limits of jobs' file names, even if nobody opens the files, as with a terminal.
    #[test]
    fn names_of_files_are_bounded_as_paths() {
        let places: [fn(&mut StepSpec) -> &mut Option<String>; 3] = [
            |s| &mut s.stdio.stdin,
            |s| &mut s.stdio.stdout,
            |s| &mut s.stdio.stderr,
        ];
        for (place, option) in places.into_iter().zip(["--input", "--output", "--error"]) {
            let mut spec = StepSpec {
                argv: vec!["true".to_owned()],
                pty: Some((24, 80)),
                ..StepSpec::default()
            };
            *place(&mut spec) = Some("x".repeat(PATH_BYTES_MAX));
            assert_eq!(check_request(&spec), Ok(()));
            *place(&mut spec) = Some("x".repeat(PATH_BYTES_MAX + 1));
            let refusal = check_request(&spec).unwrap_err();
            assert!(refusal.detail.contains(option), "{refusal}");
        }
    }

    #[test]
    fn requests_without_measure_are_refused() {
        let sound = || StepSpec {
            argv: vec!["true".to_owned()],
            ntasks: Some(1),
            ..StepSpec::default()
        };
        assert_eq!(check_request(&sound()), Ok(()));
        let long = || "a".repeat(SUBMIT_LINE_BYTES_MAX + 1);
        let changes: [fn(&mut StepSpec, String); 17] = [
            |s, _| s.argv.clear(),
            |s, _| s.argv = vec![String::new(); ARGUMENTS_MAX + 1],
            |s, t| s.argv = vec![t; 9],
            |s, t| s.multi_prog = vec![("0".to_owned(), t); 5],
            |s, t| s.extra_env = vec![("A".to_owned(), t); 9],
            |s, _| {
                let variables = std::iter::repeat_n("", ENVIRONMENT_VARIABLES_MAX + 1);
                s.context.environment = variables.collect();
            },
            |s, t| s.name = t,
            |s, t| s.nodelist = Some(t),
            |s, t| s.submit_line = t,
            |s, t| s.work_dir = t,
            |s, _| s.ntasks = Some(TASKS_MAX + 1),
            |s, _| s.min_nodes = Some(u32::MAX),
            |s, _| s.cpus_per_task = Some(u32::MAX),
            |s, _| s.context.soft_limits = vec![SoftLimit::new(7, 1); SOFT_LIMITS_MAX + 1],
            |s, _| {
                s.het = Some(HetStep {
                    first_task: u32::MAX,
                    ..HetStep::default()
                });
            },
            |s, _| {
                s.gres = vec![GresAsk {
                    name: "gpu".to_owned(),
                    kind: None,
                    count: u64::MAX,
                }];
            },
            |s, _| {
                let tokens = GresAsk {
                    name: "tokens".to_owned(),
                    kind: None,
                    count: 1,
                };
                s.devices = Some(Box::new(DeviceAsk {
                    per_job: vec![tokens.clone(), tokens],
                    ..DeviceAsk::default()
                }));
            },
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let mut spec = sound();
            change(&mut spec, long());
            assert!(check_request(&spec).is_err(), "{at}");
        }
    }
}
