//! Standing orders, from the agent's side: to whom they are given, what they hold, and when they are recalled. See
//! [`crate::standing`].

use super::Daemons;
use crate::agent::supervisor_link::JobSockets;
use crate::agent::{Agent, closing, kept_of_node};
use crate::descriptors::WithOrder;
use crate::record::{Record, RecordNode};
use crate::shim::wire::Run;
use crate::standing::{self, Dispenser, Standing, StandingFds};
use crate::stepd::{Control, NextStep, Running};
use crate::sys;
use muster_core::ids::JobId;
use muster_proto::frame;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;

/// For how long whoever comes is left to the daemons, of which one may be about to wait at the door: it takes a step with
/// less work than the agent would have.
const DOOR_WAIT: Duration = Duration::from_millis(1);
/// The same where nobody was left the time before.
const DOOR_WAIT_MAX: Duration = Duration::from_millis(8);

/// What a standing order holds against other steps.
#[derive(Debug)]
pub(super) struct Hold {
    /// Its share of this node; nothing, where such steps hold nothing.
    node: Option<RecordNode>,
    recalled: bool,
    /// Its daemon is known to wait at the door when it has no step.
    waits: bool,
}

impl Hold {
    pub(super) fn of(standing: &Standing) -> Hold {
        let record = &standing.record;
        Hold {
            node: record.nodes.first().filter(|_| record.holds).cloned(),
            recalled: false,
            waits: false,
        }
    }
}

/// Where srun comes for another step of a job. Whoever comes while no daemon waits for that is sent to the agent's own door.
#[derive(Debug)]
pub(super) struct Door {
    job: JobId,
    /// By whom its socket is removed.
    sockets: Rc<JobSockets>,
    waiting: Arc<Waiting>,
    dispenser: Dispenser,
    turning_away: JoinHandle<()>,
}

/// Waits at a door behind all others: of those who wait like this, the kernel wakes the first in line that does nothing else.
#[derive(Debug)]
struct Waiting {
    socket: UnixListener,
    line: Epoll,
    /// Whose job it is.
    uid: u32,
}

impl Waiting {
    fn new(socket: UnixListener, uid: u32) -> io::Result<Waiting> {
        let line = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let waiting = Waiting { socket, line, uid };
        waiting.line_up()?;
        Ok(waiting)
    }

    fn line_up(&self) -> io::Result<()> {
        let one_of_us = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
        let event = EpollEvent::new(one_of_us, 0);
        match self.line.add(&self.socket, event) {
            Err(Errno::EEXIST) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Sends the first who is there to the agent's own socket; whether there was somebody.
    fn turn_one_away(&self) -> bool {
        let visitor = standing::turn_one_away(&self.socket);
        let came = visitor.is_some();
        visitor
            .into_iter()
            .for_each(|visitor| closing::close_connection(self.uid, visitor));
        came
    }

    fn leave(&self) {
        // It may have been left already.
        let _ = self.line.delete(&self.socket);
    }

    /// Sends visitors on whom no daemon hears: one at a time, so that there are more daemons the next time, and no more than
    /// are needed. Meanwhile nobody wakes the agent.
    async fn keep(&self, line: AsyncFd<OwnedFd>) {
        let mut wait = DOOR_WAIT;
        while let Ok(mut ready) = line.readable().await {
            ready.clear_ready();
            self.leave();
            tokio::time::sleep(wait).await;
            wait = match self.turn_one_away() {
                true => DOOR_WAIT,
                false => (wait * 2).min(DOOR_WAIT_MAX),
            };
            if let Err(e) = self.line_up() {
                return log::error!("the door of a job is not looked after any more: {e}");
            }
        }
    }
}

impl Door {
    fn open(agent: &Agent, run: Run, uid: u32, numbers: Range<u32>) -> io::Result<Door> {
        let socket = agent.job_sockets.open(run.0, uid)?;
        let waiting = Arc::new(Waiting::new(socket, uid)?);
        let line = sys::watch(waiting.line.0.try_clone()?, Interest::READABLE)?;
        let at_door = waiting.clone();
        let turning_away = tokio::spawn(async move { at_door.keep(line).await });
        Ok(Door {
            job: run.0,
            sockets: Rc::clone(&agent.job_sockets),
            waiting,
            dispenser: Dispenser::new(numbers)?,
            turning_away,
        })
    }

    fn fds(&self) -> io::Result<StandingFds> {
        Ok(StandingFds {
            door: OwnedFd::from(self.waiting.socket.try_clone()?),
            tickets: self.dispenser.tickets()?,
        })
    }

    /// Lets all that wait now go first. Who is there without being heard is heard then.
    fn line_up_again(&self) {
        self.waiting.leave();
        if let Err(e) = self.waiting.line_up() {
            log::warn!("the door of job {}: {e}", self.job);
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.sockets.close(self.job);
        standing::close(&self.waiting.socket);
        self.turning_away.abort();
        while self.waiting.turn_one_away() {}
    }
}

impl Daemons {
    /// What standing orders of a job hold.
    pub(in crate::agent) fn holds(&self, run: Run) -> impl Iterator<Item = &RecordNode> {
        let of_run = self.all.values().filter(move |d| d.run == run);
        of_run.filter_map(|d| d.stands.as_ref()?.node.as_ref())
    }

    /// Recalls all standing orders of a job; whether there are any.
    fn recall(&mut self, run: Run) -> bool {
        let recall = frame::encode(&Control::Recall);
        let of_run = self.all.values_mut().filter(|d| d.run == run);
        let mut any = false;
        for daemon in of_run {
            let Some(hold) = &mut daemon.stands else {
                continue;
            };
            any = true;
            // One that cannot be told is about to be found gone.
            if !std::mem::replace(&mut hold.recalled, true) {
                daemon.line.say(&recall, &WithOrder::default());
            }
        }
        any
    }

    /// A daemon with a standing order has had a step: when it has none it waits at the door, and before the agent.
    pub(super) fn waits_at_door(&mut self, id: u64) {
        let daemon = self.all.get_mut(&id);
        let Some((run, hold)) = daemon.and_then(|d| Some((d.run, d.stands.as_mut()?))) else {
            return;
        };
        if !std::mem::replace(&mut hold.waits, true)
            && let Some(door) = self.doors.get(&run)
        {
            door.line_up_again();
        }
    }
}

impl Agent {
    /// Recalls all standing orders of a job: somebody else needs what they hold, or something has changed that they do not
    /// know of. Whether there are any.
    pub(in crate::agent) fn recall_orders(&mut self, run: Run) -> bool {
        self.daemons.recall(run)
    }

    /// The same of all jobs.
    pub(in crate::agent) fn recall_all_orders(&mut self) {
        let runs: Vec<Run> = self.daemons.doors.keys().copied().collect();
        for run in runs {
            self.daemons.recall(run);
        }
    }

    /// No step of the job begins any more.
    pub(in crate::agent) fn close_door(&mut self, run: Run) {
        if self.daemons.doors.remove(&run).is_some() {
            self.daemons.recall(run);
        }
    }

    /// The number of a job's next step, where numbers are given out at a door; none inside if all are used.
    pub(in crate::agent) fn number_at_door(&mut self, run: Run) -> Option<Option<u32>> {
        Some(self.daemons.doors.get_mut(&run)?.dispenser.take())
    }

    /// Adds what belongs to a standing order, or leaves the order out.
    pub(super) fn add_door(&mut self, next: &mut NextStep, with: &mut WithOrder) {
        if next.standing.is_none() {
            return;
        }
        let (run, uid) = (next.order.run, next.order.user.uid);
        match self.door(run, uid).and_then(Door::fds) {
            Ok(fds) => with.standing = Some(fds),
            Err(e) => {
                log::warn!("job {}: no standing order: {e}", run.0);
                next.standing = None;
            }
        }
    }

    fn door(&mut self, run: Run, uid: u32) -> io::Result<&Door> {
        if !self.daemons.doors.contains_key(&run) {
            let numbers = self.steps.unused_number(run.0)..self.max_step_count();
            let door = Door::open(self, run, uid, numbers)?;
            self.daemons.doors.insert(run, door);
        }
        let door = self.daemons.doors.get(&run);
        door.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// A daemon has taken a step: this one, or one that is gone.
    pub(in crate::agent) fn step_taken(&mut self, running: &Running, id: Option<u64>) {
        let (run, step) = (running.run, running.step);
        let key = (run.0, step);
        let mut stands = false;
        if let Some(daemon) = id.and_then(|id| self.daemons.all.get_mut(&id)) {
            daemon.step = Some(step);
            stands = daemon.stands.is_some();
        }
        // The shim may have told of it before.
        let known = self.steps.knows(key) || self.reports.has_step_end(run, step);
        if known || self.jobs.get(run).is_none() {
            return;
        }
        let kept = |number: u32| running.kept.iter().find(|(n, _)| *n == number);
        let record = kept(step.0).and_then(|(_, b)| minicbor::decode::<Record>(b).ok());
        let (Some(record), Some((number, part))) = (record, kept(kept_of_node(step))) else {
            return log::error!("step {}.{}: its record cannot be read back", key.0, key.1);
        };
        self.node_steps.adopt(run, *number, part);
        if let Some(door) = self.daemons.doors.get_mut(&run) {
            door.dispenser.were_taken(1);
        }
        self.number_was_taken(run, step);
        if let Some(node) = record.nodes.first() {
            self.step_may_have(run, step, node.memory_mib);
        }
        self.enter_taken(key, run, record, stands);
        let grant = self.jobs.get(run).and_then(|job| job.grant.as_ref());
        if grant.is_some_and(|grant| self.must_wait_for_controller(grant.spec.owner.uid)) {
            // Further requests come to the agent, which has them wait.
            self.recall_orders(run);
        }
    }

    /// A daemon has no standing order any more. What that held, but for a step that runs, is free.
    pub(super) fn order_is_over(&mut self, id: u64) {
        let step = self.daemons.step_of(id);
        let Some(daemon) = self.daemons.all.get_mut(&id) else {
            return;
        };
        let run = daemon.run;
        if daemon.stands.take().is_none() {
            return;
        }
        if let Some(key) = step {
            self.steps.stands(key, false);
        }
        self.steps_may_fit();
        // One that was killed may have been told of a visitor.
        if let Some(door) = self.daemons.doors.get(&run) {
            door.line_up_again();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::closing::tests::{lingering, wait_until_closed};
    use crate::descriptors;
    use muster_proto::step::FromStepd;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    /// What a client has sent with its request lingers, and is closed elsewhere.
    #[test]
    fn a_client_that_is_sent_on_delays_nobody() {
        let uid = 4_000_000_004;
        let path = std::env::temp_dir().join(format!("muster-waiting-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let socket = UnixListener::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let line = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let waiting = Waiting { socket, line, uid };
        let (near, _far) = lingering();
        let mut client = UnixStream::connect(&path).unwrap();
        descriptors::send(&client, b"a", &[near.as_raw_fd()]).unwrap();
        drop(near);
        assert!(waiting.turn_one_away());
        assert!(!waiting.turn_one_away());
        let said: FromStepd = frame::read(&mut client).unwrap();
        assert_eq!(said, FromStepd::Redirect);
        wait_until_closed(uid);
        std::fs::remove_file(&path).unwrap();
    }
}
