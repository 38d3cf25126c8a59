//! The daemon's resources of a running step: the streams of its tasks, the barrier before their start, the MPI host,
//! and the nodes below.

use super::labelling::Labellers;
use super::mpi::Pmix;
use super::streams::{Kind, OutputChunk, Stream};
use crate::cgroup::steps::StepGroup;
use crate::processes::{Containment, ProcessTree, parent_of};
use crate::step_links::Below;
use crate::sys;
use muster_model::spec::SoftLimit;
use muster_node_core::messages::StepOrder;
use nix::errno::Errno;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// See the module.
pub(super) struct TaskSet {
    pub(super) order: Rc<StepOrder>,
    /// This node.
    pub(super) node: Rc<str>,
    pub(super) streams: Vec<Stream>,
    /// Tasks write a byte here when they are prepared; they start when `go` is closed.
    pub(super) ready: Option<OwnedFd>,
    pub(super) go: Option<OwnedFd>,
    pub(super) pmix: Option<Pmix>,
    pub(super) below: Below,
    /// Streams of srun's for the only task, until it has them.
    pub(super) direct: Option<[OwnedFd; 3]>,
    /// Its control groups.
    pub(super) group: Option<StepGroup>,
    /// Processes that write labelled lines of tasks to files.
    pub(super) labellers: Labellers,
}

impl TaskSet {
    pub(super) fn new(order: Rc<StepOrder>, node: Rc<str>) -> TaskSet {
        TaskSet {
            order,
            node,
            streams: Vec::new(),
            ready: None,
            go: None,
            pmix: None,
            below: Below::default(),
            direct: None,
            group: None,
            labellers: Labellers::default(),
        }
    }

    /// Streams from which more may come.
    pub(super) fn outputs(&self) -> usize {
        self.streams.iter().filter(|s| s.has_output()).count()
    }

    /// Input waits that tasks, or nodes below, have not taken.
    pub(super) fn is_stuffed(&self) -> bool {
        self.streams.iter().any(Stream::is_stuffed) || self.below.is_stuffed()
    }

    /// Moves bytes of a stream that poll found something at.
    pub(super) fn serve_stream(&mut self, at: usize) -> Option<OutputChunk> {
        self.streams.get_mut(at)?.serve()
    }

    /// Number of further prepared tasks; nothing: all that have not ended are prepared.
    ///
    /// # Errors
    /// Nobody has said so yet.
    pub(super) fn read_ready(&mut self) -> Result<Option<usize>, ()> {
        let Some(fd) = &self.ready else {
            return Err(());
        };
        let mut bytes = [0; 256];
        match nix::unistd::read(fd, &mut bytes) {
            Ok(n) if n > 0 => Ok(Some(n)),
            Err(Errno::EINTR | Errno::EAGAIN) => Err(()),
            // Every task is prepared or has ended.
            _ => {
                self.ready = None;
                Ok(None)
            }
        }
    }

    /// Lets the tasks start.
    pub(super) fn release(&mut self) {
        self.labellers.read();
        self.ready = None;
        self.go = None;
    }

    /// The MPI host's process, while it is there.
    pub(super) fn host_pid(&self) -> Option<i32> {
        self.pmix.as_ref().filter(|p| !p.ended).map(|p| p.pid)
    }

    /// The child of this number has ended: it may be the host.
    pub(super) fn note_ended(&mut self, pid: i32) {
        self.labellers.note_ended(pid);
        if let Some(pmix) = self.pmix.as_mut().filter(|p| p.pid == pid) {
            pmix.ended = true;
        }
    }

    /// Signals the tasks, and the srun of steps that they spawned.
    /// They are looked for once, whatever the number of signals.
    pub(super) fn signal(&mut self, tree: &impl Containment, signals: &[i32]) {
        let host = self.host_pid();
        let labellers = &self.labellers;
        let is_spared = |pid| Some(pid) == host || labellers.contains(pid);
        signal_below(tree, is_spared, signals, |found| {
            if let Some(pmix) = &mut self.pmix {
                pmix.note_leftovers(found, signals);
            }
        });
    }

    /// Kills the remaining processes of the tasks: all descendants of this process except the PMIx host and its
    /// children, and processes that have lines of tasks to write yet.
    pub(super) fn kill_remnants(&self, tree: &ProcessTree) {
        if let Some(group) = self.group.as_ref().filter(|_| self.labellers.is_empty()) {
            group.kill();
        }
        let mut found = tree.below(&[own_pid()]);
        found.retain(|pid| !self.labellers.contains(*pid));
        if let Some(host) = self.host_pid() {
            let of_host = tree.below(&[host]);
            found.retain(|pid| *pid != host && !of_host.contains(pid));
        }
        signal_found(&found, &[libc::SIGKILL]);
    }

    /// Passes input to one task, or to all; no bytes mean the end of input.
    pub(super) fn feed(&mut self, task: Option<u32>, bytes: Vec<u8>) {
        let bytes = Rc::new(bytes);
        for stream in &mut self.streams {
            stream.feed(task, &bytes);
        }
    }

    pub(super) fn set_window(&self, rows: u16, columns: u16) {
        for stream in &self.streams {
            stream.set_window(rows, columns);
        }
    }

    pub(super) fn add_stream(&mut self, task: u32, kind: Kind, fd: OwnedFd) -> std::io::Result<()> {
        self.streams.push(Stream::new(task, kind, fd)?);
        Ok(())
    }
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(0)
}

/// Signals all processes below this one, but for the MPI host and others that end by themselves after them. They are noted
/// before.
fn signal_below(
    tree: &impl Containment,
    is_spared: impl Fn(i32) -> bool,
    signals: &[i32],
    note: impl FnOnce(&[i32]),
) {
    if signals.is_empty() {
        return;
    }
    let mut found = tree.below(&[own_pid()]);
    found.retain(|pid| !is_spared(*pid));
    note(&found);
    signal_found(&found, signals);
}

/// Signals processes that were found below this one; not another that has got the number of one meanwhile.
fn signal_found(found: &[i32], signals: &[i32]) {
    let parents: HashSet<i32> = found.iter().copied().chain([own_pid()]).collect();
    for pid in found {
        // Held before it is looked at again: from then on the number is no other's.
        let held = sys::pidfd(*pid);
        let parent = parent_of(*pid).filter(|parent| parents.contains(parent));
        match (held, parent) {
            (_, None) => {}
            (Ok(held), Some(_)) => {
                for signal in signals {
                    let _ = sys::cells::signal_by(&held, *signal);
                }
            }
            // No descriptor is free. The number of a child stays its own until this process collects it. Orphans of
            // the child become children of this process.
            (Err(_), Some(parent)) if parent == own_pid() => {
                for signal in signals {
                    sys::kill(*pid, *signal);
                }
            }
            (Err(_), Some(_)) => {}
        }
    }
}

/// The soft limits that a task does not inherit from this process with the requested value.
#[derive(Debug, Default)]
pub(super) struct LimitCache {
    /// The limits requested last, and those of them that differ from this process's. Cached because steps of a job
    /// mostly request the same limits.
    asked: Option<Vec<SoftLimit>>,
    other: Vec<SoftLimit>,
}

impl LimitCache {
    /// The requested soft limits that have to be set.
    pub(super) fn missing(&mut self, asked: &[SoftLimit]) -> Vec<SoftLimit> {
        if self.asked.as_deref() != Some(asked) {
            self.asked = Some(asked.to_vec());
            self.other = sys::other_limits(&sys::with_first_limits(asked));
        }
        self.other.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    /// A process of a step, and how often it was looked for.
    struct CountedTree(i32, Cell<u32>);

    impl Containment for CountedTree {
        fn below(&self, _: &[i32]) -> Vec<i32> {
            self.1.set(self.1.get() + 1);
            vec![self.0]
        }

        fn own_children(&self) -> Vec<i32> {
            vec![self.0]
        }
    }

    /// All processes of a step were looked for as often as a read brought signals, 64 times.
    #[test]
    fn processes_are_looked_for_once_for_all_signals_of_a_read() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let tree = CountedTree(pid, Cell::new(0));
        let mut noted = Vec::new();
        let signals = [libc::SIGSTOP, libc::SIGCONT, libc::SIGTERM];
        signal_below(&tree, |_| false, &signals, |found| noted.extend(found));
        assert_eq!((tree.1.get(), noted), (1, vec![pid]));
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        signal_below(
            &tree,
            |_| false,
            &[],
            |_| panic!("there is nothing to deliver"),
        );
        assert_eq!(tree.1.get(), 1);
    }
}
