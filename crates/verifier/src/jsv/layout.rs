//! `pe_name` and `pe_range`: how the tasks of a job are laid out on nodes.

use super::Site;
use muster_model::grid_engine as marks;
use muster_model::spec::{JobSpec, ResourceAsk};
use muster_proto::jsv::{Outcome, State};

/// What a user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Nothing.
    None,
    /// So many tasks.
    Slots(u32),
    /// A parallel environment with so many slots.
    Environment(String, u32),
    /// Another layout, of so many CPUs.
    Other(u32),
}

impl Layout {
    /// That of a job. A parallel environment counts as such only if the job is laid out as it says.
    pub(crate) fn of(spec: &JobSpec, site: &Site) -> Layout {
        let own = of_ask(&spec.ask);
        let marked = marks::value(spec, marks::PE).and_then(|pe| {
            let (name, slots) = pe.split_once(' ')?;
            Some((name.to_owned(), slots.parse().ok()?))
        });
        if let Some((name, slots)) = marked {
            let mut same = JobSpec::default();
            let put = put(&mut same, &name, slots, site);
            if put.is_ok() && of_ask(&same.ask) == own {
                return Layout::Environment(name, slots);
            }
        }
        let tasks_alone = ResourceAsk {
            ntasks: own.ntasks,
            ..ResourceAsk::default()
        };
        match own.ntasks {
            _ if own != tasks_alone => Layout::Other(spec.ask.min_cpus()),
            None => Layout::None,
            // qsub always says so.
            Some(1) if marks::is_marked(spec) => Layout::None,
            Some(tasks) => Layout::Slots(tasks),
        }
    }

    /// How many slots were asked for.
    pub(crate) fn slots(&self) -> Option<u32> {
        match self {
            Layout::None => None,
            Layout::Slots(slots) | Layout::Environment(_, slots) | Layout::Other(slots) => {
                Some(*slots)
            }
        }
    }
}

/// Of what is asked for, the layout alone.
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
        ..of_ask(ask)
    }
}

/// Lays a job out as a parallel environment says.
///
/// # Errors
/// There is no such environment, or it cannot have so many slots.
pub(crate) fn put(spec: &mut JobSpec, name: &str, slots: u32, site: &Site) -> Result<(), String> {
    let pair = |key: &str, value: String| (key.to_owned(), value);
    let outcome = Outcome {
        state: State::Correct,
        message: String::new(),
        parameters: vec![
            pair("pe_name", name.to_owned()),
            pair("pe_min", slots.to_string()),
        ],
        environment: Vec::new(),
    };
    super::slots(spec, &outcome, site).map_err(|why| why.replace("the JSV", "the job"))
}
