//! Current usage of steps, from that of their tasks. The launcher measures it, because the agent has no access to
//! processes of users.

use crate::messages::TaskUsage;
use muster_model::ids::StepNo;
use muster_model::job::ResourceUsage;
use muster_proto::step::MeasuredStep;
use std::collections::BTreeMap;

/// A task of a job: its step, and its number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StepTask {
    pub(super) step: StepNo,
    pub(super) task: u32,
}

impl StepTask {
    pub(super) fn new(step: StepNo, task: u32) -> StepTask {
        StepTask { step, task }
    }
}

/// Usage of a task.
#[derive(Clone, Debug, Default)]
pub(super) struct MeasuredUsage {
    /// Totals only.
    pub(super) usage: ResourceUsage,
    /// Virtual memory, KiB.
    pub(super) vsize_kib: u64,
}

/// Usage of each task.
pub(super) type TaskUsages = BTreeMap<StepTask, MeasuredUsage>;

/// Converts the launcher's measurement.
pub(super) fn of_launcher(tasks: Vec<TaskUsage>) -> TaskUsages {
    let entry = |t: TaskUsage| {
        let (usage, vsize_kib) = (t.usage, t.vsize_kib);
        let measured = MeasuredUsage { usage, vsize_kib };
        (StepTask::new(t.step, t.task), measured)
    };
    tasks.into_iter().map(entry).collect()
}

/// The steps that tasks are of.
pub(super) fn sum_up(tasks: &TaskUsages, node: &str) -> Vec<MeasuredStep> {
    let mut steps: BTreeMap<StepNo, ResourceUsage> = BTreeMap::new();
    for (StepTask { step, task }, measured) in tasks {
        let mut usage = measured.usage.clone().of_task(*task, measured.vsize_kib);
        usage.set_node(node);
        steps.entry(*step).or_default().add(&usage);
    }
    let steps = steps.into_iter();
    steps
        .map(|(step, usage)| MeasuredStep { step, usage })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_make_steps() {
        let task = |task, kib| TaskUsage {
            step: StepNo(3),
            task,
            usage: ResourceUsage {
                max_rss_kib: kib,
                ..ResourceUsage::default()
            },
            vsize_kib: 2 * kib,
        };
        let tasks = of_launcher(vec![task(4, 10), task(5, 30)]);
        let steps = sum_up(&tasks, "n7");
        let [
            MeasuredStep {
                step: StepNo(3),
                usage,
            },
        ] = &steps[..]
        else {
            panic!("{steps:?}");
        };
        assert_eq!((usage.tasks, usage.max_rss_task), (2, 5));
        assert_eq!(usage.max_rss_node, "n7");
        let peaks = usage.peaks.as_ref().unwrap();
        assert_eq!(peaks.vsize_kib.amount, 60);
        assert_eq!(
            (peaks.vsize_kib.task, peaks.vsize_kib.node.as_str()),
            (5, "n7")
        );
    }
}
