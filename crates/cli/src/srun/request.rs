//! The request for a step, and which of its streams come back to srun.

use super::debugger_test;
use super::device_ask;
use super::linked;
use super::multi_prog;
use super::terminal;
use crate::submit::capture;
use crate::submit::holder::Holder;
use crate::submit::line::{self, SubmitLine};
use muster_conf::endpoint::Endpoint;
use muster_conf::options::job::{self, BuildError};
use muster_conf::options::values::{self, number};
use muster_conf::options::{ChosenOptions, OptionError, Source};
use muster_model::distribution::Distribution;
use muster_model::environment::Environment;
use muster_model::hostlist;
use muster_model::job::StepMaker;
use muster_model::job_env;
use muster_model::job_env::{CpuRun, HetComponent};
use muster_model::spec::{ResourceAsk, Sharing, StdioSpec};
use muster_node_core::srun::config::{InputSource, Sink, Streams};
use muster_proto::step::{StdinTask, StepSpec};
use std::collections::HashSet;

/// Counts in the environment describe the whole allocation. Some of them make no sense beside what the command line
/// says of the step.
pub(super) fn forget_other_counts(chosen: &mut ChosenOptions) {
    let from = |chosen: &ChosenOptions, long| chosen.source(long);
    let line = Some(Source::CommandLine);
    let env = Some(Source::Environment);
    if from(chosen, "ntasks") == line && from(chosen, "ntasks-per-node") == env {
        chosen.remove("ntasks-per-node");
    }
    // With the number of nodes alone, the job's number of tasks counts, and the other is left out with a warning if it does not fit.
    if from(chosen, "ntasks-per-node") == line
        && from(chosen, "nodes") == line
        && from(chosen, "ntasks") == env
    {
        chosen.remove("ntasks");
    }
    // A list of fewer nodes than there are says which must be among those of the step.
    if from(chosen, "nodelist") == line
        && from(chosen, "nodes") == env
        && !lists_fewer_nodes(chosen)
    {
        chosen.remove("nodes");
    }
    // In an allocation, `--nodes=0` asks for nothing.
    if chosen.value("nodes") == Some("0") {
        chosen.remove("nodes");
    }
    if chosen.has("jobid") {
        forget_devices_of_job(chosen);
    }
    // The job's name is not the step's.
    if from(chosen, "job-name") == env {
        chosen.remove("job-name");
    }
    // Packed tasks need not be on all nodes of the allocation.
    let packed = chosen.value("distribution").map(Distribution::parse);
    if packed.is_some_and(|d| d.is_ok_and(|d| d.pack == Some(true))) && from(chosen, "nodes") == env
    {
        chosen.remove("nodes");
    }
}

/// Whether `--nodelist` names fewer nodes than `--nodes` asks for.
fn lists_fewer_nodes(chosen: &ChosenOptions) -> bool {
    let listed = chosen.value("nodelist").map(hostlist::parse);
    let listed = listed
        .and_then(Result::ok)
        .map(HashSet::<String>::from_iter);
    let nodes = chosen
        .value("nodes")
        .and_then(|text| text.parse::<usize>().ok());
    let arbitrary = chosen
        .value("distribution")
        .is_some_and(|text| text.starts_with("arbitrary"));
    !arbitrary
        && listed
            .zip(nodes)
            .is_some_and(|(listed, nodes)| listed.len() < nodes)
}

/// Devices and their options were counted for the job; a step has those of the job, or those of its tasks if nothing
/// but these were counted. The binding of tasks stays.
fn forget_devices_of_job(chosen: &mut ChosenOptions) {
    let implied = job::gpu_bind(chosen).ok().flatten();
    let others = [
        "gpus",
        "gpus-per-node",
        "gpus-per-socket",
        "gres",
        "tres-per-task",
        "ntasks-per-gpu",
        "ntasks-per-tres",
    ];
    let by_env = chosen.source("gpus-per-task") == Some(Source::Environment);
    if by_env && others.iter().any(|long| chosen.has(long)) {
        chosen.remove("gpus-per-task");
    }
    let counts = [
        "gpus",
        "gpus-per-socket",
        "ntasks-per-gpu",
        "ntasks-per-tres",
        "cpus-per-gpu",
        "mem-per-gpu",
    ];
    for long in counts {
        if chosen.source(long) == Some(Source::Environment) {
            chosen.remove(long);
        }
    }
    if implied.is_some() && job::gpu_bind(chosen).ok().flatten() != implied {
        chosen.set("gpu-bind", implied);
    }
}

/// Within a step, the variables of its binding are about the step's tasks, not about another step's.
pub(super) fn forget_own_binding(chosen: &mut ChosenOptions, is_set: impl Fn(&str) -> bool) {
    // Allocations have them, too.
    let is_step = is_set("SLURM_STEP_ID");
    for (long, kind) in [
        ("cpu-bind", "SLURM_CPU_BIND_TYPE"),
        ("mem-bind", "SLURM_MEM_BIND_TYPE"),
    ] {
        if is_step && is_set(kind) && chosen.source(long) == Some(Source::Environment) {
            chosen.remove(long);
        }
    }
}

/// `SLURM_HOSTFILE` names a node for each task: an arbitrary distribution, whatever else is said.
///
/// # Errors
/// The file cannot be read, or has fewer nodes than there are tasks.
pub(super) fn read_hostfile(chosen: &mut ChosenOptions, path: &str) -> Result<(), OptionError> {
    if chosen.source("nodelist") == Some(Source::CommandLine) {
        return Ok(());
    }
    let failed =
        |why: String| OptionError::fatal("Failure getting NodeNames from hostfile").with_hint(why);
    let text =
        std::fs::read_to_string(path).map_err(|e| failed(format!("SLURM_HOSTFILE {path}: {e}")))?;
    let lines = text.lines().map(|l| l.split('#').next().unwrap_or(""));
    let names: Vec<String> = lines
        .flat_map(|l| l.split(|c: char| c == ',' || c.is_whitespace()))
        .filter(|n| !n.is_empty())
        .map(str::to_owned)
        .collect();
    let tasks = match chosen.source("ntasks") {
        Some(Source::CommandLine) => {
            number("ntasks", chosen.value("ntasks").unwrap_or(""), 1)? as usize
        }
        _ => names.len(),
    };
    if names.len() < tasks || names.is_empty() {
        return Err(failed(format!(
            "SLURM_HOSTFILE {path} names {} nodes for {tasks} tasks",
            names.len()
        )));
    }
    chosen.remove("nodes");
    chosen.set("ntasks", Some(tasks.to_string()));
    chosen.set("nodelist", Some(names[..tasks].join(",")));
    chosen.set("distribution", Some("arbitrary".to_owned()));
    Ok(())
}

/// Defaults from slurm.conf.
pub(super) fn fill_from_site(chosen: &mut ChosenOptions, site: &Endpoint) {
    let kills = site.kill_on_bad_exit.then(|| "1".to_owned());
    let words = [
        ("prolog", site.srun_prolog.clone()),
        ("epilog", site.srun_epilog.clone()),
        ("kill-on-bad-exit", kills),
        ("wait", site.wait_time.clone()),
    ];
    for (option, word) in words {
        if word.is_some() && !chosen.has(option) {
            chosen.set(option, word);
        }
    }
}

/// The step that the options ask for, without its job.
pub(super) fn step(line: &SubmitLine, args: &[String]) -> Result<(StepSpec, Streams), BuildError> {
    let chosen = &line.chosen;
    let mut warnings = chosen.check_status()?;
    let ask = job::resource_ask(chosen, &mut warnings)?;
    if chosen.has("jobid") {
        warnings.iter().for_each(|w| line.say.warning(w));
    }
    let (stdio, streams, stdin_task) = streams(chosen)?;
    let mut environment = environment(chosen);
    if !chosen.has("jobid") {
        capture::set_submission(&mut environment);
    }
    let propagate = chosen.get("propagate").map(|g| g.value.as_deref());
    let context = capture::context(environment, propagate).map_err(OptionError::fatal)?;
    let umask = context.umask;
    let mut spec = StepSpec {
        name: chosen
            .value("job-name")
            .map_or_else(|| line::base_name(&line.words[0]), str::to_owned),
        argv: line.words.clone(),
        context,
        work_dir: work_dir(chosen),
        time_limit: job::time_limit(chosen, "time")?,
        overlap: chosen.has("overlap") || chosen.has("external-launcher"),
        exact: chosen.has("exact") || chosen.has("exclusive") || chosen.has("cpus-per-task"),
        whole: chosen.has("whole"),
        immediate: chosen.has("immediate"),
        stdio,
        pty: pty(chosen)?,
        kill_on_bad_exit: kill_on_bad_exit(chosen)?,
        cpu_bind: job::cpu_bind(chosen)?,
        mem_bind: job::mem_bind(chosen)?,
        gpu_bind: job::gpu_bind(chosen)?,
        mpi: chosen.value("mpi").map(str::to_owned),
        submit_line: line::submit_line("srun", args),
        task_prolog: program(chosen, "task-prolog"),
        task_epilog: program(chosen, "task-epilog"),
        stdin_task,
        maker: Some(StepMaker {
            host: muster_trust::host::short_name(),
            pid: std::process::id(),
        }),
        unbuffered: chosen.has("unbuffered"),
        label: chosen.has("label"),
        append: job::stdio(chosen)?.append,
        extra_env: vec![
            ("SLURM_UMASK".to_owned(), format!("{umask:04o}")),
            ("SRUN_DEBUG".to_owned(), (3 + line.say.verbose).to_string()),
        ],
        ..StepSpec::default()
    };
    if chosen.has("preserve-env") {
        let kept = PRESERVED.iter().filter_map(|name| {
            let value = crate::process::variable(name)?;
            Some(((*name).to_owned(), value.to_owned()))
        });
        spec.extra_env.extend(kept);
    }
    if let Some(text) = chosen.value("relative") {
        spec.relative = Some(number("relative", text, 0)?);
    }
    if let Some(text) = chosen.value("treewidth") {
        spec.tree_width = Some(number("treewidth", text, 1)?);
    }
    copy_ask(&mut spec, &ask);
    let is_none = |text: &str| values::gres(text).is_some_and(|asked| asked.is_empty());
    spec.no_devices = chosen.value("gres").is_some_and(is_none);
    spec.device_ask = device_ask::of(&spec, &ask);
    if chosen.has("multi-prog") {
        spec.multi_prog = multi_prog::read(&line.words[0], spec.ntasks.unwrap_or(1))?;
    }
    if chosen.has("debugger-test") {
        debugger_test::stop_tasks(&mut spec);
    }
    if spec.pty.is_some() {
        spec.ntasks.get_or_insert(1);
    }
    if spec.mpi.as_deref() != Some("none") {
        (spec.program, spec.program_file) = linked::kind(&spec);
    }
    Ok((spec, streams))
}

/// Variables that `--preserve-env` passes on, instead of the counts of the step.
const PRESERVED: [&str; 4] = [
    "SLURM_JOB_NUM_NODES",
    "SLURM_NNODES",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
];

fn copy_ask(spec: &mut StepSpec, ask: &ResourceAsk) {
    spec.min_nodes = ask.nodes_set.then_some(ask.min_nodes);
    if ask.nodelist.is_some() && !ask.nodes_set {
        spec.min_nodes = Some(ask.min_nodes);
    }
    spec.max_nodes = ask.max_nodes;
    spec.ntasks = ask.ntasks;
    spec.cpus_per_task = ask.cpus_per_task;
    spec.ntasks_per_node = ask.ntasks_per_node;
    spec.ntasks_per_socket = ask.ntasks_per_socket;
    spec.threads_per_core = ask.threads_per_core;
    spec.nodelist = ask.nodelist.clone();
    spec.exclude = ask.exclude.clone();
    spec.distribution = ask.distribution.clone();
    spec.memory = ask.memory;
    spec.gres = ask.gres.clone();
    spec.devices = ask.devices.clone();
    spec.overcommit = ask.overcommit;
}

/// The step fills the allocation that was made for it.
pub(super) fn fill_allocation(spec: &mut StepSpec, holder: &Holder, ask: &ResourceAsk) {
    spec.job = holder.job;
    let Some(info) = holder.info.as_deref() else {
        return;
    };
    spec.key = Some(info.key.clone());
    if let Some(alloc) = info.job.alloc.as_deref() {
        let nodes = u32::try_from(alloc.nodes.len()).unwrap_or(u32::MAX);
        spec.min_nodes = Some(nodes);
        spec.max_nodes = Some(nodes);
        let cpus = alloc.nodes.iter().map(|n| CpuRun {
            cpus: n.cpus.len(),
            nodes: 1,
        });
        let filled = tasks_that_fill(spec, cpus);
        spec.ntasks = ask.ntasks.or(filled).or(Some(alloc.ntasks.max(nodes)));
        // As if it were a component of a heterogeneous job, as programs find it under Slurm.
        let cpus = job_env::per_node_text(alloc.nodes.iter().map(|n| n.cpus.len()));
        let name = "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0".to_owned();
        spec.extra_env.push((name, cpus));
    }
    spec.memory = muster_model::spec::MemoryAsk::Default;
    spec.device_ask = device_ask::of(spec, ask);
    // As in Slurm, where cyclic is the default only of steps in an allocation that was there before.
    spec.distribution.get_or_insert_with(|| "block".to_owned());
    match (ask.sharing, &mut spec.devices) {
        // The allocation has all devices of its nodes, the step those that are asked for.
        (Sharing::Exclusive, devices) => {
            if let Some(devices) = devices {
                devices.per_socket.clear();
            }
        }
        _ => {
            spec.gres = Vec::new();
            spec.devices = None;
        }
    }
    // These chose the nodes of the allocation; they have nothing more to choose from. An arbitrary distribution says of each
    // task where it goes.
    if !(spec.distribution.as_ref()).is_some_and(|text| text.starts_with("arbitrary")) {
        spec.nodelist = None;
    }
    spec.exclude = None;
    // On whole nodes, counted tasks have the CPUs that they ask for, as in Slurm.
    spec.exact = ask.sharing == Sharing::Exclusive && ask.ntasks.is_some();
    spec.immediate = false;
    spec.time_limit = None;
}

/// Without a number of tasks, `--cpus-per-task` asks for as many on each node as its CPUs allow; `cpus` are those of nodes
/// in runs. Absent if the options say how many tasks there are.
fn tasks_that_fill(spec: &StepSpec, cpus: impl Iterator<Item = CpuRun>) -> Option<u32> {
    let each = spec.cpus_per_task.filter(|cpus| *cpus > 0)?;
    if spec.ntasks.is_some() || spec.ntasks_per_node.is_some() || spec.overcommit {
        return None;
    }
    let of_run = |run: CpuRun| (run.cpus / each).saturating_mul(run.nodes);
    let tasks = cpus.map(of_run).fold(0, u32::saturating_add);
    Some(tasks).filter(|tasks| *tasks > 0)
}

/// As many tasks as `--cpus-per-task` leaves room for, on the first nodes of the own job. `cpus_per_node` is what
/// `SLURM_JOB_CPUS_PER_NODE` says.
pub(super) fn fill_job(spec: &mut StepSpec, cpus_per_node: Option<&str>) {
    let Some(runs) = cpus_per_node.and_then(job_env::read_per_node_text) else {
        return;
    };
    let mut left = spec.min_nodes.unwrap_or(u32::MAX);
    let first = runs.into_iter().map(|run| {
        let nodes = run.nodes.min(left);
        left -= nodes;
        CpuRun { nodes, ..run }
    });
    spec.ntasks = tasks_that_fill(spec, first).or(spec.ntasks);
}

/// Reason why a job of this number of nodes has too few for the step; absent if it has enough.
pub(super) fn excess_nodes(chosen: &ChosenOptions, spec: &StepSpec, nodes: u32) -> Option<String> {
    let asked = spec.min_nodes?.min(spec.ntasks.unwrap_or(u32::MAX)).max(1);
    let option = match chosen.source("nodes") {
        Some(Source::Environment) => "SLURM_JOB_NUM_NODES",
        _ => "--nodes",
    };
    match spec.relative {
        Some(first) if first.saturating_add(asked) > nodes => Some(format!(
            "--relative and {option} option incompatible with count of allocated nodes ({first}+{asked}>{nodes})"
        )),
        None if asked > nodes => Some(format!("Only allocated {nodes} nodes asked for {asked}")),
        _ => None,
    }
}

/// The step in one component of the allocation that was made for it. Says how many tasks it has there.
pub(super) fn fill_component(
    spec: &mut StepSpec,
    component: &HetComponent,
    asked: Option<u32>,
) -> u32 {
    let nodes = u32::try_from(component.alloc.nodes.len()).unwrap_or(u32::MAX);
    spec.job = component.job;
    spec.min_nodes = Some(nodes);
    spec.max_nodes = Some(nodes);
    let tasks = asked.unwrap_or(component.alloc.ntasks.max(nodes));
    spec.ntasks = Some(tasks);
    spec.memory = muster_model::spec::MemoryAsk::Default;
    spec.gres = Vec::new();
    spec.devices = None;
    spec.nodelist = None;
    spec.exclude = None;
    spec.exact = false;
    spec.immediate = false;
    spec.time_limit = None;
    tasks
}

/// The directory of the tasks.
pub(super) fn work_dir(chosen: &ChosenOptions) -> String {
    let here = line::current_dir();
    chosen
        .value("chdir")
        .map_or_else(|| here.clone(), |d| here.join(d))
        .to_string_lossy()
        .into_owned()
}

/// `--export`: `ALL`, `NONE`, names with or without values. What describes the allocation always comes along.
fn environment(chosen: &ChosenOptions) -> Environment {
    let own = capture::own_without(is_of_srun);
    let Some(given) = chosen.get("export") else {
        return own;
    };
    let selection = capture::selection(given.value.as_deref());
    capture::select(own, &selection, Environment::default())
}

/// Variables that steer srun itself.
fn is_of_srun(name: &[u8]) -> bool {
    matches!(name, b"SRUN_EXPORT_ENV" | b"SLURM_EXPORT_ENV" | b"_")
}

fn program(chosen: &ChosenOptions, long: &'static str) -> Option<String> {
    chosen
        .value(long)
        .filter(|p| !p.eq_ignore_ascii_case("none"))
        .map(str::to_owned)
}

fn kill_on_bad_exit(chosen: &ChosenOptions) -> Result<bool, OptionError> {
    match chosen.get("kill-on-bad-exit").map(|g| g.value.as_deref()) {
        None => Ok(false),
        Some(None) => Ok(true),
        Some(Some(text)) => number("kill-on-bad-exit", text, 0).map(|n| n > 0),
    }
}

fn pty(chosen: &ChosenOptions) -> Result<Option<(u16, u16)>, OptionError> {
    match chosen.get("pty").map(|g| g.value.as_deref()) {
        None => Ok(None),
        Some(None | Some("1" | "")) => Ok(Some(terminal::size().unwrap_or((24, 80)))),
        Some(Some(_)) => Err(OptionError::fatal(
            "--pty takes no file descriptor here; redirect srun's own streams",
        )),
    }
}

/// Symbols of a file's name that differ by task.
fn differs_by_task(pattern: &str) -> bool {
    if pattern.contains('\\') {
        return false;
    }
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        rest = rest[at + 1..].trim_start_matches(|c: char| c.is_ascii_digit());
        if rest.starts_with(['t', 'n', 'N']) {
            return true;
        }
        if let Some(after) = rest.strip_prefix('%') {
            rest = after;
        }
    }
    false
}

pub(super) fn streams(
    chosen: &ChosenOptions,
) -> Result<(StdioSpec, Streams, StdinTask), OptionError> {
    let mut stdio = StdioSpec::default();
    let stdout = sink(chosen.value("output"), &mut stdio.stdout);
    let stderr = match chosen.value("error") {
        None => {
            stdio.stderr = stdio.stdout.clone();
            stdout.clone()
        }
        given => sink(given, &mut stdio.stderr),
    };
    let (stdin, task) = match chosen.value("input") {
        None | Some("all") => (InputSource::Own, StdinTask::All),
        Some("none") => (InputSource::Nothing, StdinTask::None),
        Some(text) => match text.parse::<u32>() {
            Ok(task) => (InputSource::Own, StdinTask::One(task)),
            Err(_) if differs_by_task(text) => {
                stdio.stdin = Some(text.to_owned());
                (InputSource::Nothing, StdinTask::None)
            }
            Err(_) => (InputSource::File(text.to_owned()), StdinTask::All),
        },
    };
    let streams = Streams {
        stdin,
        stdout,
        stderr,
    };
    Ok((stdio, streams, task))
}

fn sink(text: Option<&str>, of_nodes: &mut Option<String>) -> Sink {
    match text {
        None | Some("all") => Sink::Own,
        Some("none") => {
            *of_nodes = Some("/dev/null".to_owned());
            Sink::Nodes
        }
        Some(text) => match text.parse::<u32>() {
            Ok(task) => Sink::OwnOf(task),
            Err(_) if differs_by_task(text) => {
                *of_nodes = Some(text.to_owned());
                Sink::Nodes
            }
            Err(_) => Sink::File(text.to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_conf::options::{OptionCommand, environment, find};

    fn chosen(line: &[(&'static str, Option<&str>)], env: &[(&str, &str)]) -> ChosenOptions {
        let mut chosen = ChosenOptions::new(OptionCommand::Srun);
        for (long, value) in line {
            let row = find(OptionCommand::Srun, long).unwrap();
            chosen.give(row, value.map(str::to_owned), Source::CommandLine);
        }
        environment::read(&mut chosen, |name| {
            env.iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| (*v).to_owned())
        });
        chosen
    }

    fn asked(line: &[(&'static str, Option<&str>)], env: &[(&str, &str)]) -> StepSpec {
        let mut chosen = chosen(line, env);
        forget_other_counts(&mut chosen);
        let line = SubmitLine {
            chosen,
            words: vec!["/bin/hostname".to_owned()],
            say: crate::say::Say::new("srun"),
        };
        step(&line, &[]).unwrap().0
    }

    #[test]
    fn cpus_per_task_alone_asks_for_as_many_tasks_as_fit() {
        let fill = |line: &[(&'static str, Option<&str>)], env: &[(&str, &str)], text| {
            let mut spec = asked(line, env);
            fill_job(&mut spec, Some(text));
            spec.ntasks
        };
        let two = ("cpus-per-task", Some("2"));
        assert_eq!(fill(&[two], &[], "4(x2),3"), Some(5));
        assert_eq!(fill(&[two, ("nodes", Some("1"))], &[], "4(x2),3"), Some(2));
        // Tasks counted otherwise stay, and so do unreadable values.
        assert_eq!(fill(&[two, ("ntasks", Some("3"))], &[], "4(x2)"), Some(3));
        assert_eq!(fill(&[two], &[("SLURM_NTASKS", "1")], "4(x2)"), Some(1));
        let per_node = ("ntasks-per-node", Some("1"));
        assert_eq!(fill(&[two, per_node], &[], "4(x2)"), None);
        assert_eq!(fill(&[two], &[], "4(x2"), None);
        assert_eq!(fill(&[], &[], "4(x2)"), None);
        // No more than can be counted.
        assert_eq!(fill(&[two], &[], "4(x4294967295)"), Some(u32::MAX));
    }

    #[test]
    fn more_nodes_than_the_job_has_are_refused_with_the_counts() {
        let excess = |line: &[(&'static str, Option<&str>)], env: &[(&str, &str)]| {
            let mut chosen = chosen(line, env);
            forget_other_counts(&mut chosen);
            excess_nodes(&chosen, &asked(line, env), 2)
        };
        let from_second = ("relative", Some("1"));
        let two = ("nodes", Some("2"));
        let incompatible = |option, counts| {
            Some(format!(
                "--relative and {option} option incompatible with count of allocated nodes ({counts}>2)"
            ))
        };
        let job = [("SLURM_NNODES", "2")];
        assert_eq!(
            excess(&[from_second, two], &[]),
            incompatible("--nodes", "1+2")
        );
        assert_eq!(
            excess(&[("relative", Some("5"))], &job),
            incompatible("SLURM_JOB_NUM_NODES", "5+2")
        );
        let only = Some("Only allocated 2 nodes asked for 3".to_owned());
        assert_eq!(excess(&[("nodes", Some("3-5"))], &[]), only);
        // Fewer tasks need fewer nodes.
        let one_task = ("ntasks", Some("1"));
        assert_eq!(excess(&[from_second, two, one_task], &[]), None);
        assert_eq!(excess(&[from_second, one_task], &job), None);
        assert_eq!(excess(&[two], &[]), None);
    }

    #[test]
    fn the_allocation_gives_the_counts() {
        let env = [
            ("SLURM_JOB_ID", "5"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_NNODES", "2"),
            ("SLURM_JOB_NAME", "x"),
        ];
        let s = asked(&[], &env);
        assert_eq!(
            (s.ntasks, s.min_nodes, s.max_nodes),
            (Some(4), Some(2), Some(2))
        );
        assert_eq!((s.name.as_str(), s.exact), ("hostname", false));
        let s = asked(&[("ntasks", Some("1")), ("cpus-per-task", Some("1"))], &env);
        assert_eq!(
            (s.ntasks, s.min_nodes, s.max_nodes, s.exact),
            (Some(1), Some(1), Some(1), true)
        );
        let per_node = ("ntasks-per-node", Some("1"));
        let s = asked(&[per_node], &env);
        let counts = (s.ntasks, s.min_nodes, s.ntasks_per_node);
        assert_eq!(counts, (Some(4), Some(2), None));
        let s = asked(&[per_node, ("nodes", Some("2"))], &env);
        let counts = (s.ntasks, s.min_nodes, s.ntasks_per_node);
        assert_eq!(counts, (None, Some(2), Some(1)));
        let s = asked(&[("nodelist", Some("n1"))], &env);
        let counts = (s.ntasks, s.min_nodes, s.nodelist.as_deref());
        assert_eq!(counts, (Some(4), Some(2), Some("n1")), "and another");
        let s = asked(&[("nodelist", Some("n[1-2]"))], &env);
        assert_eq!((s.ntasks, s.min_nodes), (Some(4), Some(2)));
        let s = asked(&[("nodelist", Some("n1")), ("ntasks", Some("1"))], &env);
        assert_eq!((s.min_nodes, s.nodelist.as_deref()), (Some(1), Some("n1")));
        let s = asked(&[("nodelist", Some("n1")), ("ntasks", Some("2"))], &env);
        assert_eq!(s.min_nodes, Some(2), "another beside it");
    }

    #[test]
    fn packed_tasks_and_listed_nodes() {
        let env = [
            ("SLURM_JOB_ID", "5"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_NNODES", "2"),
        ];
        let s = asked(&[("distribution", Some("block,Pack"))], &env);
        assert_eq!((s.ntasks, s.min_nodes), (Some(4), None));
        let file = std::env::temp_dir().join(format!("muster-hostfile-{}", std::process::id()));
        std::fs::write(&file, "n3\nn1,n3 # twice\n\nn2\n").unwrap();
        let path = file.to_str().unwrap();
        let mut c = chosen(&[("ntasks", Some("3"))], &env);
        read_hostfile(&mut c, path).unwrap();
        assert_eq!(c.value("nodelist"), Some("n3,n1,n3"));
        assert_eq!(
            (c.value("distribution"), c.has("nodes")),
            (Some("arbitrary"), false)
        );
        let mut c = chosen(&[], &env);
        read_hostfile(&mut c, path).unwrap();
        assert_eq!(c.value("ntasks"), Some("4"));
        let mut c = chosen(&[("ntasks", Some("5"))], &env);
        let lines = read_hostfile(&mut c, path).unwrap_err().lines;
        assert_eq!(lines[1], "Failure getting NodeNames from hostfile");
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_step_in_a_step_is_bound_anew() {
        let bound = || {
            let env = [
                ("SLURM_CPU_BIND", "quiet,mask_cpu:0x1"),
                ("SLURM_MEM_BIND", "local"),
            ];
            chosen(&[], &env)
        };
        let mut c = bound();
        forget_own_binding(&mut c, |name| {
            matches!(name, "SLURM_CPU_BIND_TYPE" | "SLURM_STEP_ID")
        });
        assert!(!c.has("cpu-bind") && c.has("mem-bind"));
        // The variable that salloc --mem-bind sets is for the steps.
        let mut c = bound();
        forget_own_binding(&mut c, |name| name == "SLURM_MEM_BIND_TYPE");
        assert!(c.has("mem-bind"));
    }

    #[test]
    fn streams_go_here_or_there() {
        let of = |line: &[(&'static str, Option<&str>)]| streams(&chosen(line, &[])).unwrap();
        let (stdio, s, task) = of(&[]);
        assert_eq!(
            (s.stdin, s.stdout, s.stderr, task),
            (InputSource::Own, Sink::Own, Sink::Own, StdinTask::All)
        );
        assert_eq!(stdio, StdioSpec::default());
        let (stdio, s, _) = of(&[("output", Some("o_%t"))]);
        assert_eq!((s.stdout, s.stderr), (Sink::Nodes, Sink::Nodes));
        assert_eq!(
            (stdio.stdout.as_deref(), stdio.stderr.as_deref()),
            (Some("o_%t"), Some("o_%t"))
        );
        let (stdio, s, _) = of(&[("output", Some("o_%j")), ("error", Some("e%4t"))]);
        assert_eq!(
            (s.stdout, s.stderr),
            (Sink::File("o_%j".to_owned()), Sink::Nodes)
        );
        assert_eq!(
            (stdio.stdout, stdio.stderr.as_deref()),
            (None, Some("e%4t"))
        );
        assert_eq!(of(&[("input", Some("3"))]).2, StdinTask::One(3));
        assert_eq!(of(&[("input", Some("none"))]).1.stdin, InputSource::Nothing);
        assert_eq!(of(&[("output", Some("2"))]).1.stdout, Sink::OwnOf(2));
        assert!(!differs_by_task("a%%t") && differs_by_task("%3n") && !differs_by_task("%j\\%t"));
    }
}
