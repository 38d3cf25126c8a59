//! Lines to the step daemons of this node. One that has had a step gets the job's next one straight from here, and tells
//! here how it has ended; the shim, which forks daemons, watches them and keeps their ends, receives both as well.
//!
//! A daemon tells the shim of an end first, then the agent, then srun. So whatever comes after an end finds it in the lines
//! ([`Agent::receive_from_daemons_of`]), even where it has come here faster.

use super::step_node::Listening;
use super::{Agent, Event, closing};
use crate::descriptors::{self, OrderFds};
use crate::sys;
use muster_core::ids::StepNo;
use muster_node_core::launcher::{ORDER_MAX, SPARES_MAX, result_path};
use muster_node_core::messages::{
    JobAttempt, KnownJob, LauncherCommand, NextStep, StepOrder, StepdEvent,
};
use muster_proto::frame::Frames;
use std::collections::HashMap;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Time between TERM and KILL before the controller has sent it.
const KILL_WAIT_MS: u64 = 30_000;

/// The daemons that this agent has a line to, by a number of its own.
#[derive(Debug, Default)]
pub(super) struct Daemons {
    all: HashMap<u64, Daemon>,
    next: u64,
}

#[derive(Debug)]
struct Daemon {
    run: JobAttempt,
    /// What it runs; nothing when it waits for a step.
    step: Option<StepNo>,
    /// The first step that it was given by this line.
    started_with: StepNo,
    /// Its process, and where it listens, once the launcher has sent it.
    place: Option<(i32, String)>,
    /// It gets no other step from here: the shim that it belongs to, or that connection to it, is lost.
    retired: bool,
    line: Line,
}

/// This end of a line.
#[derive(Debug)]
struct Line {
    fd: Arc<AsyncFd<UnixStream>>,
    input: Frames,
    watcher: JoinHandle<()>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

impl Line {
    /// `id` comes with the event that tells that there is something to read.
    fn new(stream: UnixStream, id: u64, events: mpsc::UnboundedSender<Event>) -> io::Result<Line> {
        stream.set_nonblocking(true)?;
        let fd = Arc::new(sys::watch(stream, Interest::READABLE)?);
        let watched = Arc::clone(&fd);
        let watcher = tokio::spawn(async move {
            while let Ok(mut ready) = watched.readable().await {
                // The end stays to be read for ever.
                let last = ready.ready().is_read_closed();
                ready.clear_ready();
                if events.send(Event::DaemonSaid(id)).is_err() || last {
                    return;
                }
            }
        });
        Ok(Line {
            fd,
            input: Frames::default(),
            watcher,
        })
    }

    /// Takes in what has come; whether more may come.
    fn read(&mut self, said: &mut Vec<StepdEvent>) -> bool {
        let mut chunk = [0; 4 << 10];
        let open = loop {
            match self.fd.get_ref().read(&mut chunk) {
                Ok(0) => break false,
                Ok(n) => self.input.push(&chunk[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => break e.kind() == io::ErrorKind::WouldBlock,
            }
        };
        loop {
            match self.input.take() {
                Ok(Some(event)) => said.push(event),
                Ok(None) => return open,
                Err(e) => {
                    log::error!("a step daemon is not understood: {e}");
                    return false;
                }
            }
        }
    }

    /// Says something whole, or not.
    fn say(&self, frame: &[u8], with: &OrderFds) -> bool {
        // Who waits for a step has read all, so that this much is taken at once.
        let said = descriptors::send(self.fd.get_ref(), frame, &with.numbers());
        said.is_ok_and(|n| n == frame.len())
    }
}

impl Daemons {
    /// The shim has started one, or given a step to one that was there.
    pub(super) fn ready(&mut self, (run, step): (JobAttempt, StepNo), place: (i32, String)) {
        // It may have ended already.
        let unplaced = |d: &&mut Daemon| d.run == run && d.place.is_none();
        let mut unplaced = self.all.values_mut().filter(unplaced);
        let of_step = |d: &&mut Daemon| d.started_with == step;
        if let Some(daemon) = unplaced.find(of_step) {
            daemon.place = Some(place);
        }
    }

    /// There is another shim, or another connection to it: who waits for a step belongs to it.
    pub(super) fn retire(&mut self) {
        self.all.retain(|_, d| d.step.is_some());
        for daemon in self.all.values_mut() {
            daemon.retired = true;
        }
    }

    pub(super) fn forget(&mut self, run: JobAttempt) {
        self.all.retain(|_, d| d.run != run);
    }

    /// Steps that run here but are not among those that the shim knows.
    pub(super) fn beyond(&self, known: &[KnownJob]) -> Vec<(JobAttempt, StepNo, i32)> {
        let knows = |run: JobAttempt, step: StepNo| {
            let mut of_run = known.iter().filter(|k| k.run == run);
            of_run.any(|k| k.steps.contains(&step))
        };
        let running = self
            .all
            .values()
            .filter_map(|d| Some((d.run, d.step?, d.place.as_ref()?.0)));
        running
            .filter(|(run, step, _)| !knows(*run, *step))
            .collect()
    }

    /// Lets go of the line for a daemon that the shim has not answered for.
    pub(super) fn drop_unplaced(&mut self, run: JobAttempt, step: StepNo) {
        self.all
            .retain(|_, d| d.place.is_some() || d.run != run || d.started_with != step);
    }

    /// Sends streams to the daemon that was started with their step.
    pub(super) fn send_streams(
        &self,
        (run, step): (JobAttempt, StepNo),
        streams: &closing::Streams,
    ) {
        let is_its = |d: &&Daemon| d.run == run && d.started_with == step;
        let daemon = self.all.values().find(is_its);
        if !daemon.is_some_and(|d| streams.send(d.line.fd.get_ref())) {
            // It ends by itself when none come, and that is reported like any end.
            log::warn!(
                "the daemon of step {}.{step} does not take its streams",
                run.job
            );
        }
    }

    fn idle(&self, run: JobAttempt) -> Option<u64> {
        let waits = |d: &Daemon| d.run == run && d.step.is_none() && d.place.is_some();
        let mut all = self.all.iter();
        all.find(|(_, d)| waits(d)).map(|(id, _)| *id)
    }
}

impl Agent {
    /// A line for the daemon of a step that the shim is to start: the daemon's end.
    pub(super) fn new_line(&mut self, run: JobAttempt, step: StepNo) -> io::Result<OwnedFd> {
        let (near, far) = UnixStream::pair()?;
        let id = self.daemons.next;
        self.daemons.next += 1;
        let daemon = Daemon {
            run,
            step: Some(step),
            started_with: step,
            place: None,
            retired: false,
            line: Line::new(near, id, self.events.clone())?,
        };
        self.daemons.all.insert(id, daemon);
        Ok(far.into())
    }

    /// Gives a step to a daemon of its job that waits for one. If there is none, order and descriptors come back.
    pub(super) fn give_step(
        &mut self,
        order: Box<StepOrder>,
        with: OrderFds,
    ) -> Result<Listening, (Box<StepOrder>, OrderFds)> {
        let (run, step, direct) = (order.run, order.launch.step, order.direct);
        let uid = order.user.uid;
        let possible = self.shim.is_some() && self.synced && order.pmix.is_none();
        if !possible || self.daemons.idle(run).is_none() {
            return Err((order, with));
        }
        let kill_wait_ms = match self.settings.kill_wait_s {
            0 => KILL_WAIT_MS,
            seconds => u64::from(seconds) * 1000,
        };
        let result = result_path(&self.options.spool_dir, run, step);
        let next = NextStep {
            order,
            kill_wait_ms,
            result: result.to_string_lossy().into_owned(),
            kept: self.kept_of(run, step),
        };
        let frame = next.as_command();
        while frame.len() <= ORDER_MAX
            && let Some(id) = self.daemons.idle(run)
            && let Some(daemon) = self.daemons.all.get_mut(&id)
        {
            if let Some((pid, address)) = daemon.place.clone()
                && daemon.line.say(&frame, &with)
            {
                daemon.step = Some(step);
                closing::close_order(uid, with);
                self.shim_order(&LauncherCommand::StepAssigned { run, step, pid });
                return Ok(Listening {
                    address,
                    wire: None,
                    direct,
                });
            }
            self.daemons.all.remove(&id);
        }
        Err((next.order, with))
    }

    /// Reads what the daemons of a job have sent; whether a step has ended.
    pub(super) fn receive_from_daemons_of(&mut self, run: JobAttempt) -> bool {
        let busy = |d: &Daemon| d.run == run && d.step.is_some();
        let all = self.daemons.all.iter();
        let busy: Vec<u64> = all.filter(|(_, d)| busy(d)).map(|(id, _)| *id).collect();
        let mut ended = false;
        for id in busy {
            ended |= self.receive_from_daemon(id);
        }
        ended
    }

    /// Reads what a daemon has sent; whether a step of it has ended.
    pub(super) fn receive_from_daemon(&mut self, id: u64) -> bool {
        let Some(daemon) = self.daemons.all.get_mut(&id) else {
            return false;
        };
        let (run, mut said) = (daemon.run, Vec::new());
        let open = daemon.line.read(&mut said);
        let mut ended = false;
        for event in said {
            match event {
                StepdEvent::StepEnded(step, end) if self.daemons.has_ended(id, step) => {
                    ended = true;
                    self.steps.mark_exit_delivered_directly((run.job, step));
                    self.stepd_ended(run, step, *end);
                }
                // One that is known already; what is for shims.
                StepdEvent::StepEnded(..) | StepdEvent::StepRunning(_) => {}
            }
        }
        self.keep_or_leave(id, open, ended);
        ended
    }

    /// Lets go of a daemon that is gone, or that is not needed.
    fn keep_or_leave(&mut self, id: u64, open: bool, ended: bool) {
        let Some(daemon) = self.daemons.all.get(&id) else {
            return;
        };
        let run = daemon.run;
        if !open || (daemon.step.is_none() && daemon.retired) {
            self.daemons.all.remove(&id);
            return;
        }
        let of_run = self.daemons.all.values().filter(|d| d.run == run);
        let waiting = of_run.filter(|d| d.step.is_none()).count();
        let place = daemon.place.clone();
        if ended
            && waiting > SPARES_MAX
            && let Some((pid, _)) = place
        {
            self.daemons.all.remove(&id);
            self.shim_order(&LauncherCommand::ReleaseStepd { run, pid });
        }
    }
}

impl Daemons {
    /// A daemon has reported that this step is over: whether it had it.
    fn has_ended(&mut self, id: u64, step: StepNo) -> bool {
        let daemon = self.all.get_mut(&id);
        daemon.is_some_and(|d| d.step.take_if(|s| *s == step).is_some())
    }
}
