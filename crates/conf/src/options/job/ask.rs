//! Nodes, tasks, CPUs and memory that options ask for. Devices are in `devices`.

use super::{BuildError, bind, devices};
use crate::options::OptionError;
use crate::options::chosen::{ChosenOptions, Source};
use crate::options::values::{self, number};
use crate::value::parse_mem_mib;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{MemoryAsk, ResourceAsk, Segments, Sharing, TASKS_PER_CORE_ANY};

/// Everything that shapes the allocation.
///
/// # Errors
/// The first option that is malformed or contradicts another.
pub fn resource_ask(
    chosen: &ChosenOptions,
    warnings: &mut Vec<String>,
) -> Result<ResourceAsk, BuildError> {
    let optional = |long: &'static str, least: u32| match chosen.value(long) {
        Some(text) => number(long, text, least).map(Some),
        None => Ok(None),
    };
    let mut ask = ResourceAsk {
        ntasks: optional("ntasks", 1)?,
        cpus_per_task: optional("cpus-per-task", 1)?,
        ntasks_per_node: optional("ntasks-per-node", 1)?,
        ntasks_per_socket: optional("ntasks-per-socket", 1)?,
        ntasks_per_core: optional("ntasks-per-core", 1)?,
        min_cpus_per_node: optional("mincpus", 1)?,
        constraint: chosen
            .value("constraint")
            .map(str::to_owned)
            .filter(|c| !c.is_empty()),
        prefer: chosen
            .value("prefer")
            .map(str::to_owned)
            .filter(|p| !p.is_empty()),
        nodelist: chosen
            .value("nodelist")
            .map(str::to_owned)
            .filter(|l| !l.is_empty()),
        exclude: chosen
            .value("exclude")
            .map(str::to_owned)
            .filter(|l| !l.is_empty()),
        sharing: sharing(chosen)?,
        contiguous: chosen.has("contiguous"),
        sockets_per_node: optional("sockets-per-node", 1)?,
        cores_per_socket: optional("cores-per-socket", 1)?,
        threads_per_core: optional("threads-per-core", 1)?,
        core_spec: optional("core-spec", 0)?,
        thread_spec: optional("thread-spec", 0)?,
        batch: chosen
            .value("batch")
            .map(str::to_owned)
            .filter(|b| !b.is_empty()),
        overcommit: chosen.has("overcommit"),
        spread: chosen.has("spread-job"),
        use_min_nodes: chosen.has("use-min-nodes"),
        ..ResourceAsk::default()
    };
    if ask.core_spec.is_some() && ask.thread_spec.is_some() {
        let why = "-S/--core-spec and --thread-spec options are mutually exclusive";
        return Err(OptionError::fatal(why).into());
    }
    if let Some(text) = chosen.value("tmp") {
        ask.tmp_disk_mib = mem_value("tmp", text)?;
    }
    if let Some(text) = chosen.value("switches") {
        ask.switches = Some(values::switches(text)?);
    }
    segments(chosen, &mut ask)?;
    ask.distribution = distribution(chosen)?;
    extra_node_info(chosen, &mut ask)?;
    hint(chosen, &mut ask, warnings)?;
    tres_per_task(chosen, &mut ask)?;
    ask.memory = memory(chosen)?;
    node_count(chosen, &mut ask, warnings)?;
    tasks_by_shape(chosen, &mut ask);
    devices::apply(chosen, &mut ask)?;
    Ok(ask)
}

fn node_count(
    chosen: &ChosenOptions,
    ask: &mut ResourceAsk,
    warnings: &mut Vec<String>,
) -> Result<(), BuildError> {
    if let Some(text) = chosen.value("nodes") {
        let (min, max) = values::nodes(text)?;
        if max == 0 {
            let detail = format!("--nodes={text}: a job has one node at least");
            return Err(Refusal::new(RefusalCode::InvalidNodeCount, detail).into());
        }
        (ask.min_nodes, ask.max_nodes, ask.nodes_set) = (min, Some(max), true);
    }
    if !ask.nodes_set
        && let (Some(tasks), Some(per_node)) = (ask.ntasks, ask.ntasks_per_node)
    {
        ask.min_nodes = tasks.div_ceil(per_node);
    }
    if let Some(list) = &ask.nodelist {
        let mut named = muster_model::hostlist::parse(list)
            .map_err(|e| OptionError::invalid(format!("Invalid --nodelist specification: {e}")))?;
        // An arbitrary distribution names a node once for each of its tasks.
        named.sort_unstable();
        named.dedup();
        let named = u32::try_from(named.len()).unwrap_or(u32::MAX);
        match ask.max_nodes {
            Some(max) if max < named => {
                return Err(OptionError::fatal(format!(
                    "--nodelist names {named} nodes but --nodes allows at most {max}; name fewer or raise --nodes"
                ))
                .into());
            }
            _ => ask.min_nodes = ask.min_nodes.max(named),
        }
    }
    let arbitrary = |text: &String| text.starts_with("arbitrary");
    let of_user = chosen.source("distribution") != Some(Source::Environment);
    if of_user && ask.nodelist.is_none() && ask.distribution.as_ref().is_some_and(arbitrary) {
        return Err(OptionError::fatal(
            "an arbitrary distribution takes its nodes from --nodelist or --nodefile; give one of them",
        )
        .into());
    }
    if ask.nodes_set
        && let Some(tasks) = ask.ntasks
        && tasks < ask.min_nodes
    {
        let asked = ask.min_nodes;
        warnings.push(format!(
            "can't run {tasks} processes on {asked} nodes, setting nnodes to {tasks}"
        ));
        ask.min_nodes = tasks;
        ask.max_nodes = ask.max_nodes.map(|max| max.min(tasks));
    }
    too_many_for_nodes(ask, warnings);
    Ok(())
}

/// `-B`, and its kin beside `-N`, without `--ntasks` ask for a task on each of these threads of every node.
fn tasks_by_shape(chosen: &ChosenOptions, ask: &mut ResourceAsk) {
    let given = [
        ("sockets-per-node", ask.sockets_per_node),
        ("cores-per-socket", ask.cores_per_socket),
        ("threads-per-core", ask.threads_per_core),
    ];
    let whole = chosen.has("extra-node-info");
    if !whole && !ask.nodes_set {
        return;
    }
    let shape = given.iter().filter(|(long, _)| whole || chosen.has(long));
    let mut each = shape.filter_map(|(_, count)| *count).peekable();
    let fixed = ask.max_nodes.is_none_or(|most| most == ask.min_nodes);
    let counted = ask.ntasks.is_some() || ask.ntasks_per_node.is_some();
    if counted || !fixed || chosen.has("jobid") || each.peek().is_none() {
        return;
    }
    ask.ntasks = Some(each.fold(ask.min_nodes, u32::saturating_mul));
}

/// With a fixed number of nodes, `--ntasks` beats a `--ntasks-per-node` that has no room for them.
fn too_many_for_nodes(ask: &mut ResourceAsk, warnings: &mut Vec<String>) {
    let (Some(tasks), Some(per_node)) = (ask.ntasks, ask.ntasks_per_node) else {
        return;
    };
    let nodes = ask.min_nodes;
    if ask.nodes_set && ask.max_nodes == Some(nodes) && tasks > per_node.saturating_mul(nodes) {
        warnings.push(format!(
            "can't honor --ntasks-per-node set to {per_node} which doesn't match the requested tasks {tasks} with the \
             number of requested nodes {nodes}. Ignoring --ntasks-per-node."
        ));
        ask.ntasks_per_node = None;
    }
}

/// `--segment` and how segments are to each other.
fn segments(chosen: &ChosenOptions, ask: &mut ResourceAsk) -> Result<(), OptionError> {
    if let Some(text) = chosen.value("segment") {
        ask.segment = Some(number("segment", text, 1)?);
    }
    let (together, apart) = (
        chosen.has("consolidate-segments"),
        chosen.has("spread-segments"),
    );
    ask.segments = match (together, apart) {
        (true, true) => {
            return Err(OptionError::fatal(
                "--consolidate-segments and --spread-segments are mutually exclusive",
            ));
        }
        (true, false) => Segments::Together,
        (false, true) => Segments::Apart,
        (false, false) => Segments::Anywhere,
    };
    if ask.segment.is_none() && ask.segments != Segments::Anywhere {
        return Err(OptionError::fatal(
            "--consolidate-segments and --spread-segments need --segment",
        ));
    }
    Ok(())
}

fn sharing(chosen: &ChosenOptions) -> Result<Sharing, OptionError> {
    let Some(given) = chosen.strongest(&["exclusive", "oversubscribe"]) else {
        return Ok(Sharing::Default);
    };
    if given.row.long == "oversubscribe" {
        return Ok(Sharing::Oversubscribe);
    }
    match given
        .value
        .as_deref()
        .map(str::to_ascii_lowercase)
        .as_deref()
    {
        None | Some("1" | "yes" | "exclusive") => Ok(Sharing::Exclusive),
        Some("user") => Ok(Sharing::ExclusiveUser),
        Some("mcs") => Ok(Sharing::ExclusiveMcs),
        Some(kind @ "topo") => Err(OptionError::fatal(format!(
            "--exclusive={kind} is not supported; use --exclusive, --exclusive=user or --exclusive=mcs"
        ))),
        Some(_) => Err(OptionError::invalid("Invalid --exclusive specification")
            .with_hint("--exclusive takes nothing, 'user' or 'mcs'")),
    }
}

/// `--distribution`.
///
/// # Errors
/// Not one that is known.
pub(super) fn distribution(chosen: &ChosenOptions) -> Result<Option<String>, OptionError> {
    match chosen.value("distribution") {
        None => Ok(None),
        Some(text) if values::distribution_is_known(text) => Ok(Some(text.to_ascii_lowercase())),
        Some(text) if text.to_ascii_lowercase().starts_with("plane") => {
            Err(OptionError::invalid("Invalid --distribution specification")
                .with_hint("Invalid plane size or size not specified"))
        }
        Some(text) => Err(OptionError::bad_value(
            "distribution",
            text,
            "a distribution such as block, cyclic or plane=2",
        )),
    }
}

fn extra_node_info(chosen: &ChosenOptions, ask: &mut ResourceAsk) -> Result<(), OptionError> {
    let Some(text) = chosen.value("extra-node-info") else {
        return Ok(());
    };
    const PLACES: [&str; 3] = ["first", "second", "third"];
    let fields = [
        ("sockets-per-node", &mut ask.sockets_per_node),
        ("cores-per-socket", &mut ask.cores_per_socket),
        ("threads-per-core", &mut ask.threads_per_core),
    ];
    if text.split(':').count() > fields.len() {
        return Err(OptionError::invalid(
            "Invalid --extra-node-info specification",
        ));
    }
    for ((word, (own, field)), place) in text.split(':').zip(fields).zip(PLACES) {
        if word == "*" {
            continue;
        }
        // The least of a range is required of a node.
        let least = word.split('-').next().unwrap_or(word);
        let value = values::count(least).filter(|n| *n > 0).ok_or_else(|| {
            OptionError::fatal(format!(
                "Invalid numeric value \"{word}\" for {place} arg of -B."
            ))
        })?;
        // The last one counts, this option or the one of the field.
        let last = chosen.strongest(&[own, "extra-node-info"]);
        if last.is_some_and(|option| option.row.long == "extra-node-info") {
            *field = Some(value);
        }
    }
    Ok(())
}

fn hint(
    chosen: &ChosenOptions,
    ask: &mut ResourceAsk,
    warnings: &mut Vec<String>,
) -> Result<(), OptionError> {
    for word in chosen.value("hint").unwrap_or("").split(',') {
        match word.to_ascii_lowercase().as_str() {
            "" | "nomultithread" | "compute_bound" | "memory_bound" | "multithread" | "none" => {}
            "help" => {
                return Err(OptionError::fatal(
                    "--hint is one of compute_bound, memory_bound, multithread, nomultithread",
                ));
            }
            _ => {
                return Err(OptionError::fatal(format!(
                    "unrecognized --hint argument \"{word}\", see --hint=help"
                )));
            }
        }
    }
    // Slurm uses only the threads of memory_bound, too; the distribution determines the socket of a core.
    let one_thread = |w: &str| matches!(w, "nomultithread" | "compute_bound" | "memory_bound");
    let text = bind::hint(chosen, warnings)
        .unwrap_or("")
        .to_ascii_lowercase();
    if text.split(',').any(one_thread) {
        ask.threads_per_core = Some(1);
    }
    if text.split(',').any(|w| w == "multithread") {
        ask.ntasks_per_core = Some(TASKS_PER_CORE_ANY);
    }
    Ok(())
}

/// `cpu=` of `--tres-per-task`; its devices are read with the others.
fn tres_per_task(chosen: &ChosenOptions, ask: &mut ResourceAsk) -> Result<(), OptionError> {
    for item in chosen.value("tres-per-task").unwrap_or("").split(',') {
        let Some(count) = item.strip_prefix("cpu=").or(item.strip_prefix("cpu:")) else {
            continue;
        };
        let count = number("tres-per-task=cpu", count, 1)?;
        match ask.cpus_per_task {
            Some(other) if other != count => {
                return Err(OptionError::fatal(format!(
                    "--cpus-per-task={other} and --tres-per-task=cpu={count} contradict each other"
                )));
            }
            _ => ask.cpus_per_task = Some(count),
        }
    }
    Ok(())
}

/// `--mem` and `--mem-per-cpu`; `--mem-per-gpu` goes with the devices.
///
/// # Errors
/// Malformed, or two of them from one source.
pub fn memory(chosen: &ChosenOptions) -> Result<MemoryAsk, OptionError> {
    const KINDS: [&str; 3] = ["mem", "mem-per-cpu", "mem-per-gpu"];
    let Some(given) = chosen.strongest(&KINDS) else {
        return Ok(MemoryAsk::Default);
    };
    let of_source = chosen
        .iter()
        .filter(|g| g.source == given.source && KINDS.contains(&g.row.long));
    if of_source.count() > 1 {
        return Err(OptionError::fatal(
            "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.",
        ));
    }
    let mib = mem_value(given.row.long, given.value.as_deref().unwrap_or(""))?;
    Ok(match given.row.long {
        "mem" => MemoryAsk::PerNode(mib),
        "mem-per-cpu" => MemoryAsk::PerCpu(mib),
        _ => MemoryAsk::Default,
    })
}

/// A size in MiB.
pub(super) fn mem_value(long: &str, text: &str) -> Result<u64, OptionError> {
    let forms = "a size such as 500M, 4G or 2048 (MiB)";
    parse_mem_mib(text).map_err(|_| OptionError::bad_value(long, text, forms))
}
