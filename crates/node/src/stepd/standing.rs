//! A standing order, from the daemon's side: while it has no step, it takes requests at the door of its job. See
//! [`crate::standing`].

use super::home::{Home, Running, Told};
use super::{NextStep, Setting};
use crate::agent::kept_of_node;
use crate::descriptors::{HandedOver, are_streams};
use crate::record::random_key;
use crate::shim::result_path;
use crate::shim::wire::StepOrder;
use crate::standing::{
    Kind, REQUEST_MAX, Standing, StandingFds, Tickets, close, hear, send_on, turn_away,
};
use crate::step_variables::with_number;
use minicbor::bytes::ByteVec;
use muster_core::environment::Environment;
use muster_core::ids::StepNo;
use muster_core::job_env::Variables;
use muster_proto::frame;
use muster_proto::step::{AgentRequest, StepSpec};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// For how long the agent is not told of what was taken, where nothing follows it.
const TELL_WAIT: Duration = Duration::from_millis(10);
/// The same where steps go on to follow each other: agent and shim are woken once for all of them.
const STREAM_WAIT: Duration = Duration::from_millis(25);
/// Ends that the shim may not have read. With more, requests are the agent's, which has the shim read.
const UNREAD_MAX: usize = 60;

/// See the module.
pub(super) struct Stand {
    /// Who the steps are of.
    uid: u32,
    /// The step before, which the next is made of; lent to the one that runs.
    order: Option<Box<StepOrder>>,
    kind: Kind,
    terms: Standing,
    setting: Setting,
    door: UnixListener,
    tickets: Tickets,
    /// For what comes there.
    room: Vec<u8>,
    /// The environment that the last step's tasks had, and what it was made of.
    made: Option<Made>,
    /// Waits for whoever may have something to say. Of several that wait like this, one is woken by a visitor.
    waiter: Epoll,
}

/// The environment of a step's tasks without its number; who makes one step after another mostly has the same variables.
struct Made {
    inherited: Environment,
    extra: Variables,
    env: Environment,
}

/// A step that was taken at the door.
pub(super) struct Taken {
    pub(super) order: Box<StepOrder>,
    pub(super) setting: Setting,
    pub(super) srun: HandedOver,
}

/// Who has something to say.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// The shim or the agent.
    pub(super) line: bool,
    /// Somebody has connected.
    pub(super) caller: bool,
    /// Somebody is at the door.
    pub(super) visitor: bool,
    /// The door is closed.
    pub(super) closed: bool,
    pub(super) signal: bool,
}

/// Marks what [`Stand::waiter`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum At {
    Line,
    Signals,
    Listener,
    Door,
}

impl Stand {
    /// The order that comes with a step.
    fn new(
        next: &NextStep,
        terms: Standing,
        fds: StandingFds,
        last: &Setting,
    ) -> io::Result<Stand> {
        let waiter = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let door = UnixListener::from(fds.door);
        let one_of_us = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
        waiter.add(&door, EpollEvent::new(one_of_us, At::Door as u64))?;
        Ok(Stand {
            kind: Kind::of(&next.order.launch.spec),
            uid: next.order.user.uid,
            order: Some(next.order.clone()),
            terms,
            setting: next.setting(last),
            door,
            tickets: fds.tickets,
            room: vec![0; REQUEST_MAX],
            made: None,
            waiter,
        })
    }

    fn watch(&self, fd: BorrowedFd<'_>, at: At) -> io::Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, at as u64);
        Ok(self.waiter.add(fd, event)?)
    }

    /// Waits until then for somebody.
    pub(super) fn wait(&self, until: Option<Instant>) -> io::Result<Seen> {
        let timeout = until.map_or(EpollTimeout::NONE, |until| {
            let wait = until.saturating_duration_since(Instant::now());
            EpollTimeout::try_from(wait + Duration::from_millis(1)).unwrap_or(EpollTimeout::ZERO)
        });
        let mut events = [EpollEvent::empty(); 5];
        let count = match self.waiter.wait(&mut events, timeout) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(e) => return Err(e.into()),
        };
        let mut seen = Seen::default();
        for event in &events[..count] {
            match event.data() {
                at if at == At::Line as u64 => seen.line = true,
                at if at == At::Signals as u64 => seen.signal = true,
                at if at == At::Listener as u64 => seen.caller = true,
                at if at == At::Door as u64 => {
                    seen.closed = event.events().contains(EpollFlags::EPOLLHUP);
                    seen.visitor = true;
                }
                _ => {}
            }
        }
        Ok(seen)
    }

    /// What a visitor wants, if it is of the kind; and what has come with it.
    fn request(&mut self, visitor: &UnixStream) -> Option<(Box<StepSpec>, VecDeque<OwnedFd>)> {
        let peer = getsockopt(visitor, PeerCredentials).ok()?;
        if peer.uid() != self.uid {
            return None;
        }
        visitor.set_nonblocking(true).ok()?;
        let (AgentRequest::Create(mut spec), come) = hear(visitor, &mut self.room)? else {
            return None;
        };
        let by_line = spec.hands_streams && spec.has_stepd_channel;
        let fits = by_line && !spec.argv.is_empty() && self.kind.is_of(&mut spec);
        Some((spec, come)).filter(|_| fits)
    }

    /// Another step like the one before.
    fn step(&mut self, mut spec: Box<StepSpec>, step: StepNo) -> Option<(Box<StepOrder>, Setting)> {
        let mut order = self.order.take()?;
        let key = random_key();
        let record = &mut self.terms.record;
        record.begin_again(step, &spec, &key);
        let record = minicbor::to_vec(record).expect("writing to memory cannot fail");
        order.env = self.environment(&mut spec, step);
        order.launch.step = step;
        order.launch.step_key = key;
        order.launch.spec = *spec;
        let spool = self.setting.result.parent().unwrap_or(&self.setting.result);
        let kept: [(u32, ByteVec); 2] = [
            (step.0, record.into()),
            (kept_of_node(step), self.terms.part.clone()),
        ];
        let setting = Setting {
            node: self.setting.node.clone(),
            kill_wait: self.setting.kill_wait,
            result: result_path(spool, order.run, step),
            dirs: Vec::new(),
            kept: kept.into(),
        };
        Some((order, setting))
    }

    /// The environment of the tasks. What srun has is in there, and in the request no more.
    fn environment(&mut self, spec: &mut StepSpec, step: StepNo) -> Environment {
        let is_same = |made: &Made| {
            made.inherited == spec.context.environment && made.extra == spec.extra_env
        };
        let same = self.made.take().filter(is_same);
        let made = same.unwrap_or_else(|| Made {
            env: self.terms.variables.without_number(spec),
            inherited: std::mem::take(&mut spec.context.environment),
            extra: spec.extra_env.clone(),
        });
        spec.context.environment = Environment::default();
        let env = with_number(&made.env, step);
        self.made = Some(made);
        env
    }
}

impl Home {
    /// Takes a standing order that has come with a step.
    pub(super) fn stand(&mut self, next: &mut NextStep, fds: Option<StandingFds>, last: &Setting) {
        let Some((terms, fds)) = next.standing.take().zip(fds) else {
            return;
        };
        let made = Stand::new(next, *terms, fds, last).and_then(|stand| {
            let lines = [self.shim_stream(), self.agent_stream()];
            for line in lines.into_iter().flatten() {
                stand.watch(line.as_fd(), At::Line)?;
            }
            stand.watch(self.signals.as_fd(), At::Signals)?;
            stand.watch(self.listener.as_fd(), At::Listener)?;
            Ok(stand)
        });
        match made {
            Ok(stand) => self.standing = Some(stand),
            Err(e) => {
                eprintln!("standing order: {e}");
                self.tell_agent_later(&frame::encode(&Told::Released));
            }
        }
    }

    /// The standing order is over: it was recalled, or somebody is gone without whom it cannot be followed.
    pub(super) fn stand_down(&mut self) {
        let Some(stand) = self.standing.take() else {
            return;
        };
        let released = frame::encode(&Told::Released);
        self.tell_shim_of(&released);
        self.tell_agent_later(&released);
        self.tell_agent_now();
        if self.agent_stream().is_none() {
            // Nobody else hears at this door either.
            close(&stand.door);
        }
        // Others may have been left to this process.
        turn_away(&stand.door);
    }

    /// Takes a step from whoever is at the door, if it is one to be taken.
    pub(super) fn take_at_door(&mut self) -> Option<Taken> {
        let stand = self.standing.as_mut()?;
        // Another daemon may have been faster.
        let (visitor, _) = stand.door.accept().ok()?;
        let asked = stand.request(&visitor);
        let asked = asked.filter(|(_, come)| are_streams(come));
        let Some((come, (order, setting))) =
            asked.and_then(|(spec, come)| Some((come, self.take(spec)?)))
        else {
            send_on(&visitor);
            return None;
        };
        Some(Taken {
            order,
            setting,
            srun: HandedOver::by_line(come, visitor)?,
        })
    }

    fn take(&mut self, spec: Box<StepSpec>) -> Option<(Box<StepOrder>, Setting)> {
        if self.has_many_unread(UNREAD_MAX) {
            self.tell_agent_now();
            return None;
        }
        let stand = self.standing.as_mut()?;
        let step = StepNo(stand.tickets.take()?);
        self.confines.bounds.check_number(step).ok()?;
        let (order, mut setting) = stand.step(spec, step)?;
        let running = Told::Took(Box::new(Running {
            run: order.run,
            step,
            pid: i32::try_from(std::process::id()).unwrap_or(0),
            dirs: Vec::new(),
            kept: std::mem::take(&mut setting.kept),
        }));
        let told = frame::encode(&running);
        if let Told::Took(running) = running {
            setting.kept = running.kept;
        }
        // Whoever hears of the step finds it there.
        if !self.tell_shim_of(&told) {
            self.stand_down();
            return None;
        }
        self.tell_agent_later(&told);
        self.by_door = true;
        Some((order, setting))
    }

    /// A step that was taken has ended.
    pub(super) fn take_back(&mut self, order: Box<StepOrder>) {
        if let Some(stand) = &mut self.standing {
            stand.order.get_or_insert(order);
        }
    }

    /// When the agent is to be told of what it does not know yet.
    pub(super) fn tell_at(&self) -> Option<Instant> {
        let (first, last) = self.untold_since?;
        Some((first + STREAM_WAIT).min(last + TELL_WAIT))
    }

    /// Tells it, if it is time.
    pub(super) fn tell_if_due(&mut self) {
        if self.tell_at().is_some_and(|at| at <= Instant::now()) {
            self.tell_agent_now();
        }
    }
}
