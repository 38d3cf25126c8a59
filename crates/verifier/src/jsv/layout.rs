//! `pe_name` and `pe_range`: how the tasks of a job are laid out on nodes.

use super::{Site, set_mark};
use muster_model::grid_engine as marks;
use muster_model::index_set::IndexSet;
use muster_model::spec::{JobSpec, ResourceAsk};

/// The layout of tasks that a user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Nothing.
    None,
    /// So many tasks.
    Slots(u32),
    /// A parallel environment with one of these numbers of slots.
    Environment(String, IndexSet),
    /// Another layout, with this number of CPUs.
    Other(u32),
}

impl Layout {
    /// That of a job. A parallel environment counts as such only if the job is laid out as it says.
    pub(crate) fn of(spec: &JobSpec, site: &Site) -> Layout {
        let own = of_ask(&spec.ask);
        let marked = marks::value(spec, marks::PE).and_then(|pe| {
            let (name, slots) = pe.split_once(' ')?;
            let all = match &spec.ask.task_range {
                Some(range) => range.tasks(),
                None => IndexSet::single(slots.parse().ok()?),
            };
            Some((name.to_owned(), all))
        });
        if let Some((name, slots)) = marked {
            let mut same = JobSpec::default();
            let put = put(&mut same, &name, &slots, site);
            if put.is_ok() && of_ask(&same.ask) == own {
                return Layout::Environment(name, slots);
            }
        }
        let tasks_alone = ResourceAsk {
            ntasks: own.ntasks,
            ..ResourceAsk::default()
        };
        match own.ntasks {
            _ if own != tasks_alone => Layout::Other(spec.ask.most_cpus()),
            None => Layout::None,
            // qsub always says so.
            Some(1) if marks::is_marked(spec) => Layout::None,
            Some(tasks) => Layout::Slots(tasks),
        }
    }

    /// Requested numbers of slots.
    pub(crate) fn slots(&self) -> Option<IndexSet> {
        match self {
            Layout::None => None,
            Layout::Slots(slots) | Layout::Other(slots) => Some(IndexSet::single(*slots)),
            Layout::Environment(_, slots) => Some(slots.clone()),
        }
    }
}

/// The layout alone of a request.
pub(crate) fn of_ask(ask: &ResourceAsk) -> ResourceAsk {
    ResourceAsk {
        min_nodes: ask.min_nodes,
        max_nodes: ask.max_nodes,
        ntasks: ask.ntasks,
        cpus_per_task: ask.cpus_per_task,
        ntasks_per_node: ask.ntasks_per_node,
        ntasks_per_socket: ask.ntasks_per_socket,
        ntasks_per_core: ask.ntasks_per_core,
        overcommit: ask.overcommit,
        distribution: ask.distribution.clone(),
        spread: ask.spread,
        use_min_nodes: ask.use_min_nodes,
        nodes_set: ask.nodes_set,
        contiguous: ask.contiguous,
        task_range: ask.task_range.clone(),
        ..ResourceAsk::default()
    }
}

/// The layout without what follows from the number of slots.
pub(crate) fn shape(ask: &ResourceAsk) -> ResourceAsk {
    ResourceAsk {
        min_nodes: 1,
        max_nodes: None,
        ntasks: None,
        nodes_set: false,
        task_range: None,
        ..of_ask(ask)
    }
}

/// Lays a job out as a parallel environment says, with one of these numbers of slots.
///
/// # Errors
/// There is no such environment, or it cannot have these slots.
pub(crate) fn put(
    spec: &mut JobSpec,
    name: &str,
    slots: &IndexSet,
    site: &Site,
) -> Result<(), String> {
    let is_grid_engine = marks::is_marked(spec);
    let rule = site.mapping.rule(name);
    let rule =
        rule.ok_or_else(|| format!("the JSV sets pe_name to '{name:.80}', which there is not"))?;
    let Some(count) = rule.lay_out(&mut spec.ask, slots) else {
        let each = rule.text();
        let (first, last) = (slots.first().unwrap_or(0), slots.last().unwrap_or(0));
        let asked = match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        return Err(format!(
            "the JSV asks {name} for {asked} slots, which has {each} on each host"
        ));
    };
    spec.ask.cpus_per_task = None;
    let text = spec.ask.task_range.as_ref().map(|range| range.text());
    set_mark(spec, marks::PE, &format!("{name} {count}"), is_grid_engine);
    let text = text.unwrap_or_default();
    set_mark(spec, marks::PE_RANGE, &text, is_grid_engine);
    Ok(())
}
