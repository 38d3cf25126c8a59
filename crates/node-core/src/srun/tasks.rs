//! The tasks of a step: which still run, how the others ended, and the lines that report it.

use crate::signals::signal_text;
use muster_model::hostlist;
use muster_model::job::ExitStatus;
use muster_proto::step::StepNode;

/// A task's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Waiting,
    Running,
    Exited(ExitStatus),
}

/// Tasks of a node that ended in the same way.
#[derive(Debug)]
struct EndedTasks {
    node: String,
    exit: ExitStatus,
    /// The kernel killed them for their memory.
    oom: bool,
    /// The numbers of the tasks in the step.
    tasks: Vec<u32>,
}

/// All tasks of a step.
#[derive(Debug)]
pub(super) struct Tasks {
    lives: Vec<Life>,
    /// Ends that were not reported yet.
    unreported: Vec<EndedTasks>,
}

impl Tasks {
    /// The tasks of a step.
    pub(super) fn new<'n>(nodes: impl IntoIterator<Item = &'n StepNode>) -> Tasks {
        let highest = nodes.into_iter().flat_map(|n| n.tasks.iter()).max();
        let count = highest.map_or(0, |h| *h as usize + 1);
        Tasks {
            lives: vec![Life::Waiting; count],
            unreported: Vec::new(),
        }
    }

    /// Number of tasks.
    pub(super) fn count(&self) -> usize {
        self.lives.len()
    }

    /// A node's tasks run.
    pub(super) fn started(&mut self, node: &StepNode) {
        for task in &node.tasks {
            if let Some(life @ Life::Waiting) = self.lives.get_mut(*task as usize) {
                *life = Life::Running;
            }
        }
    }

    /// A task ended; false if that was known.
    pub(super) fn exited(&mut self, node: &str, task: u32, exit: ExitStatus, oom: bool) -> bool {
        match self.lives.get_mut(task as usize) {
            Some(life @ (Life::Waiting | Life::Running)) => *life = Life::Exited(exit),
            _ => return false,
        }
        let same = self
            .unreported
            .iter_mut()
            .find(|ended| ended.node == node && ended.exit == exit && ended.oom == oom);
        match same {
            Some(ended) => ended.tasks.push(task),
            None => self.unreported.push(EndedTasks {
                node: node.to_owned(),
                exit,
                oom,
                tasks: vec![task],
            }),
        }
        true
    }

    /// Whether there are ends to report.
    pub(super) fn has_unreported(&self) -> bool {
        !self.unreported.is_empty()
    }

    /// Takes the ends that were not reported yet, as lines to print.
    pub(super) fn take_exit_lines(&mut self) -> Vec<ExitLine> {
        self.unreported
            .drain(..)
            .map(|mut ended| {
                ended.tasks.sort_unstable();
                let (tasks, how) = (named(&ended.tasks), how(ended.exit, ended.oom));
                ExitLine {
                    text: format!("{}: {tasks}: {how}", ended.node),
                    success: ended.exit.is_ok() && !ended.oom,
                }
            })
            .collect()
    }

    /// Whether all tasks have ended.
    pub(super) fn all_exited(&self) -> bool {
        self.lives.iter().all(|l| matches!(l, Life::Exited(_)))
    }

    /// Tasks of a node that have not ended.
    pub(super) fn left_on(&self, node: &StepNode) -> Vec<u32> {
        let left = |task: &u32| !matches!(self.lives.get(*task as usize), Some(Life::Exited(_)));
        node.tasks.iter().copied().filter(left).collect()
    }

    /// `tasks 0-1: running`, one text for each state that some task is in.
    pub(super) fn states(&self) -> Vec<String> {
        let of = |want: fn(&Life) -> bool| -> Vec<u32> {
            (0u32..)
                .zip(&self.lives)
                .filter(|(_, life)| want(life))
                .map(|(task, _)| task)
                .collect()
        };
        [
            (of(|l| matches!(l, Life::Waiting)), "unknown"),
            (of(|l| matches!(l, Life::Running)), "running"),
            (of(|l| matches!(l, Life::Exited(e) if e.is_ok())), "exited"),
            (
                of(|l| matches!(l, Life::Exited(e) if !e.is_ok())),
                "exited abnormally",
            ),
        ]
        .into_iter()
        .filter(|(tasks, _)| !tasks.is_empty())
        .map(|(tasks, state)| format!("{}: {state}", named(&tasks)))
        .collect()
    }

    /// The status that counts for the step, with the exit code it gives.
    pub(super) fn worst(&self) -> (ExitStatus, u32) {
        self.lives
            .iter()
            .filter_map(|l| match l {
                Life::Exited(exit) => Some((*exit, exit.shell_code())),
                Life::Waiting | Life::Running => None,
            })
            .max_by_key(|(_, code)| *code)
            .unwrap_or_default()
    }
}

/// A line about ended tasks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExitLine {
    /// The text.
    pub(super) text: String,
    /// The tasks succeeded: only `-v` shows the line.
    pub(super) success: bool,
}

fn named(tasks: &[u32]) -> String {
    let list = hostlist::ranges(tasks);
    if tasks.len() == 1 {
        format!("task {list}")
    } else {
        format!("tasks {list}")
    }
}

fn how(exit: ExitStatus, oom: bool) -> String {
    if oom {
        return "Out Of Memory".to_owned();
    }
    if exit.signal == 0 {
        return match exit.code {
            0 => "Completed".to_owned(),
            code => format!("Exited with exit code {code}"),
        };
    }
    signal_text(exit.signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, tasks: &[u32]) -> StepNode {
        StepNode {
            name: name.to_owned(),
            address: String::new(),
            tasks: tasks.to_vec(),
        }
    }

    fn exit(code: u32, signal: u32) -> ExitStatus {
        ExitStatus { code, signal }
    }

    #[test]
    fn ends_are_reported_by_node_and_status() {
        let nodes = [node("n1", &[0, 1, 2]), node("n2", &[3])];
        let mut tasks = Tasks::new(&nodes);
        nodes.iter().for_each(|n| tasks.started(n));
        assert_eq!(tasks.states(), ["tasks 0-3: running"]);
        assert!(tasks.exited("n1", 2, exit(7, 0), false));
        assert!(!tasks.exited("n1", 2, exit(7, 0), false));
        tasks.exited("n1", 0, exit(7, 0), false);
        tasks.exited("n2", 3, exit(0, 11), false);
        tasks.exited("n1", 1, exit(0, 0), false);
        let lines: Vec<String> = tasks
            .take_exit_lines()
            .into_iter()
            .map(|t| t.text)
            .collect();
        assert_eq!(
            lines,
            [
                "n1: tasks 0,2: Exited with exit code 7",
                "n2: task 3: Segmentation fault",
                "n1: task 1: Completed",
            ]
        );
        assert!(tasks.all_exited());
        assert_eq!(tasks.worst(), (exit(0, 11), 139));
        assert_eq!(
            tasks.states(),
            ["task 1: exited", "tasks 0,2-3: exited abnormally"]
        );
    }

    #[test]
    fn words_for_statuses() {
        assert_eq!(how(exit(0, 9), true), "Out Of Memory");
        assert_eq!(how(exit(0, 9), false), "Killed");
        assert_eq!(how(exit(0, 34), false), "Signal 34");
        assert_eq!(
            (exit(2, 0).shell_code(), exit(0, 15).shell_code()),
            (2, 143)
        );
    }
}
