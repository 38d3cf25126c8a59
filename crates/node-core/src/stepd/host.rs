//! The MPI host of a step. The daemon starts it before srun connects, and starts the tasks when the host is ready.
//! The host counts the tasks that have joined and left, and is ended after the last.

use super::actions::Actions;
use super::interface::{Action, HostCommand, HostEvent};
use super::step::{PendingAbort, Step, Task};
use crate::messages::StepOrder;
use muster_model::job::ExitStatus;
use muster_proto::step::{FromStepd, ProgramKind};
use std::collections::BTreeSet;

/// Time for srun to end a step of which a task aborts. After that, this node ends its own tasks.
const ABORT_WAIT_MS: u64 = 2_000;

/// Ranks that a host can name: tasks of a node, of all components of a heterogeneous job.
const RANKS_MAX: usize = 1 << 16;

/// Lines of a message that are shown.
const MESSAGE_LINES_MAX: usize = 256;

/// The host, and the tasks' states as the host reports them.
#[derive(Debug)]
pub(super) struct Host {
    pid: i32,
    /// The tasks' environment is there.
    pub(super) is_ready: bool,
    /// It was ordered to exit.
    is_stopped: bool,
    /// It has exited so, and was not read since.
    pub(super) exit: Option<ExitStatus>,
    pub(super) has_ended: bool,
    connected: BTreeSet<u32>,
    finalized: BTreeSet<u32>,
    /// Nodes whose hosts are gone, by position.
    lost_peers: BTreeSet<u32>,
}

impl Host {
    /// Whether that is its process.
    pub(super) fn is_process(&self, pid: i32) -> bool {
        self.pid == pid && self.exit.is_none() && !self.has_ended
    }
}

impl Step {
    pub(super) fn host_started(&mut self, started: Result<i32, String>, out: &mut Actions) {
        match started {
            Ok(pid) => {
                self.host = Some(Host {
                    pid,
                    is_ready: false,
                    is_stopped: false,
                    exit: None,
                    has_ended: false,
                    connected: BTreeSet::new(),
                    finalized: BTreeSet::new(),
                    lost_peers: BTreeSet::new(),
                });
                if self.order.launch.names.len() == 1 {
                    self.send_host(HostCommand::Peers(vec![String::new()]), out);
                }
            }
            Err(e) => self.host_failed(&format!("the PMIx host cannot be started: {e}"), out),
        }
    }

    pub(super) fn send_host(&mut self, command: HostCommand, out: &mut Actions) {
        if self.host.as_ref().is_some_and(|host| !host.has_ended) {
            out.push(Action::SendHost(command));
        }
    }

    /// All tasks have ended: ends their remaining processes and the host.
    pub(super) fn stop_host(&mut self, out: &mut Actions) {
        let have_ended_well = |t: &Task| t.exit.is_some_and(|exit| exit.is_ok());
        let have_ended_well = self.tasks.iter().all(have_ended_well);
        let Some(host) = &mut self.host else { return };
        let note = note_apart(&self.order);
        let are_apart = host.connected.is_empty() && have_ended_well;
        if let Some(note) = note.filter(|_| are_apart) {
            self.up.send(note, out);
        }
        out.push(Action::RemoveLeftovers {
            is_searched: !have_ended_well || host.connected.len() > host.finalized.len(),
        });
        if !host.has_ended && !std::mem::replace(&mut host.is_stopped, true) {
            out.push(Action::SendHost(HostCommand::Stop));
        }
    }

    pub(super) fn on_host(&mut self, event: HostEvent, out: &mut Actions) {
        let Some(host) = &mut self.host else { return };
        // The host runs as the user, so its messages are not trusted.
        match event {
            HostEvent::Connected(_) if host.connected.len() >= RANKS_MAX => {}
            HostEvent::Finalized(_) if host.finalized.len() >= RANKS_MAX => {}
            HostEvent::Ready => {
                host.is_ready = true;
                self.release_tasks(out);
            }
            HostEvent::Failed(why) => self.host_failed(&why, out),
            HostEvent::Connected(rank) => {
                let is_first = host.connected.is_empty();
                host.connected.insert(rank);
                // The rank may have been a program of another kind before.
                host.finalized.remove(&rank);
                if is_first {
                    self.up.send(FromStepd::TaskJoinedMpi, out);
                }
            }
            HostEvent::Finalized(rank) => {
                host.finalized.insert(rank);
            }
            HostEvent::Abort { rank, status, text } => self.aborted(rank, status, &text, out),
            HostEvent::Note(line) => self.up.send(FromStepd::StepMessage(line), out),
            HostEvent::Message(text) => {
                for line in text.lines().take(MESSAGE_LINES_MAX) {
                    self.up.message(line.to_owned(), out);
                }
            }
            HostEvent::Output(is_error, bytes) => {
                // Output of a step that a task spawned comes out as the first task's here.
                if let Some(task) = self.tasks.first().map(|t| t.global) {
                    let message = match is_error {
                        true => FromStepd::Stderr { task, bytes },
                        false => FromStepd::Stdout { task, bytes },
                    };
                    self.up.send(message, out);
                }
            }
            HostEvent::Signal(ranks, signal) => {
                if ranks.is_empty() {
                    out.push(Action::SignalAsked(signal));
                }
                let ranks: BTreeSet<u32> = ranks.into_iter().collect();
                let running = self.tasks.iter().filter(|t| t.exit.is_none());
                for task in running.filter(|t| ranks.contains(&t.global)) {
                    out.push(Action::SignalTask(task.pid, signal));
                }
            }
            HostEvent::PeerLost(position) => {
                let name = self.order.launch.names.get(position as usize);
                if let Some(name) = name
                    && host.lost_peers.insert(position)
                {
                    out.log(format!("the PMIx host of {name} is gone"));
                }
            }
        }
    }

    /// All is known that the host has said before tasks, or itself, ended.
    pub(super) fn host_read(&mut self, out: &mut Actions) {
        for local in std::mem::take(&mut self.unread) {
            self.task_ended(local, out);
        }
        let Some(host) = &mut self.host else { return };
        let Some(exit) = host.exit.take() else { return };
        host.has_ended = true;
        let runs = self.tasks.iter().any(|t| t.exit.is_none());
        if runs && !self.phase.was_ended() && self.host_error.is_none() && exit.signal != 9 {
            self.host_failed(
                &format!(
                    "the PMIx host has ended (exit status {}, signal {})",
                    exit.code, exit.signal
                ),
                out,
            );
        }
    }

    /// Tasks cannot be started, or cannot go on.
    fn host_failed(&mut self, why: &str, out: &mut Actions) {
        let (node, kind) = (&self.node, mpi_kind(&self.order));
        let line = format!("slurmstepd: error: mpi/{kind}: {node}: {why}");
        self.host_error.get_or_insert(line);
        self.report_host_error(out);
    }

    /// Tells srun, once it is there, why there is no PMIx; the step fails with that.
    pub(super) fn report_host_error(&mut self, out: &mut Actions) {
        if !self.up.is_there() || self.phase.was_ended() {
            return;
        }
        if let Some(line) = self.host_error.clone() {
            self.up.message(line, out);
            let exit = ExitStatus { code: 1, signal: 0 };
            let task = self.tasks.first().map_or(0, |t| t.global);
            let failed = FromStepd::TaskFailed {
                task,
                exit,
                joined: true,
                line: None,
            };
            self.up.send(failed, out);
            self.fail(exit, out);
        }
    }

    /// A task aborts, so srun ends the step on all nodes. Until then the task keeps waiting: otherwise other tasks
    /// would notice its end and abort too, and srun might receive their message first.
    fn aborted(&mut self, rank: u32, status: i32, text: &str, out: &mut Actions) {
        let (job, step, node) = (self.order.attempt.job, self.order.launch.step, &self.node);
        // Open MPI sends this if there is no text.
        let words = if text.is_empty() || text == "N/A" {
            String::new()
        } else {
            format!(": {}", text.trim_end())
        };
        let kind = mpi_kind(&self.order);
        let line = format!(
            "slurmstepd: error: mpi/{kind}: {node}: task {rank} aborts StepId={job}.{step} with status {status}{words}"
        );
        // An exit status has eight bits; an abort is never a success.
        let code = match status.cast_unsigned() & 0xff {
            0 => 1,
            code => code,
        };
        let exit = ExitStatus { code, signal: 0 };
        let failed = FromStepd::TaskFailed {
            task: rank,
            exit,
            joined: true,
            line: Some(line),
        };
        self.up.send(failed, out);
        let at_ms = out.after(ABORT_WAIT_MS);
        let abort = PendingAbort { at_ms, exit };
        self.timers.abort.get_or_insert(abort);
    }

    /// A task has ended: whether the others would wait for it for ever, which srun then prints.
    pub(super) fn host_task_ended(
        &mut self,
        rank: u32,
        exit: ExitStatus,
        out: &mut Actions,
    ) -> Option<FromStepd> {
        let kind = mpi_kind(&self.order);
        let host = self.host.as_mut()?;
        let joined = host.connected.contains(&rank);
        let was_ended = self.phase.was_ended();
        if host.finalized.contains(&rank) || (!joined && exit.is_ok()) || was_ended {
            return None;
        }
        let status = if exit.is_ok() {
            // It left without a message, so the step has failed, whatever its exit status.
            ExitStatus { code: 1, signal: 0 }
        } else {
            exit
        };
        self.send_host(HostCommand::TaskFailed(rank), out);
        let line = exit.is_ok().then(|| {
            format!(
                "slurmstepd: error: mpi/{kind}: {}: task {rank} exited without taking leave of the others (MPI_Finalize)",
                self.node
            )
        });
        Some(FromStepd::TaskFailed {
            task: rank,
            exit: status,
            joined,
            line,
        })
    }
}

/// The name of the API by which tasks find each other, for messages.
fn mpi_kind(order: &StepOrder) -> &'static str {
    match &order.pmix {
        Some(order) if order.pmi => "pmi2",
        Some(order) if order.any => "auto",
        _ => "pmix",
    }
}

/// Tasks of the whole step, where the program is one of MPI's and there are several; and its name.
fn tasks_of_mpi(order: &StepOrder) -> Option<(usize, &str)> {
    let spec = &order.launch.spec;
    let tasks = order.launch.tasks.iter().map(Vec::len).sum();
    let name = spec.argv.first().map_or("", String::as_str);
    (spec.program == ProgramKind::Mpi && tasks > 1).then_some((tasks, name))
}

/// For the user of tasks that will not find each other because the site has said so.
pub(super) fn note_ahead(order: &StepOrder) -> Option<FromStepd> {
    let (tasks, name) = tasks_of_mpi(order)?;
    if order.launch.spec.mpi.is_some() || order.pmix.is_some() {
        return None;
    }
    Some(FromStepd::StepMessage(format!(
        "slurmstepd: warning: mpi/none: {name} is linked to MPI, but MpiDefault is none: each of its {tasks} tasks \
         will take itself for the only one; with srun --mpi=auto they find each other"
    )))
}

/// For the user of tasks that have all ended well and have not found each other, though they are MPI's.
fn note_apart(order: &StepOrder) -> Option<FromStepd> {
    let (tasks, name) = tasks_of_mpi(order)?;
    let kind = mpi_kind(order);
    if order.pmix.as_ref().is_some_and(|order| order.any) {
        return None;
    }
    Some(FromStepd::StepMessage(format!(
        "slurmstepd: warning: mpi/{kind}: {name} has not looked for {kind}: if it has called MPI_Init, each of its \
         {tasks} tasks took itself for the only one; srun --mpi=list tells what else there is"
    )))
}
