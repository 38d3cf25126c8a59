//! Standing orders. Who makes one step after another in a job mostly asks for the same again: one task on the first node,
//! with srun's own streams. The daemon that has had such a step may take the next requests of the kind itself. It has what
//! they need: the door by which srun comes (`job-<id>.door`), the share of the job that the step before had, which stays
//! held, and tickets with the numbers of steps. Of what it takes it tells the shim at once, in a line that nobody need
//! look at before there is a reason, and the agent for many steps together.
//!
//! Whoever waits at the door is heard by a daemon that has nothing to do, else by the agent. The agent recalls the order
//! when somebody else wants what it holds, or when something changes that the daemon does not know of.

use crate::descriptors;
use crate::record::Record;
use crate::step_variables::StepVariables;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_core::ids::JobId;
use muster_core::limits::FRAME_BYTES_MAX;
use muster_core::validate::Validate;
use muster_proto::frame;
use muster_proto::step::{AgentRequest, FromStepd, StepSpec};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::pipe2;
use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::mem::swap;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// So many numbers of steps are ready at a time. They fit into one page, and so into any pipe, and are written whole.
const TICKETS: u32 = 512;

/// Where srun comes for another step of a job, beside the socket of the agent of its first node.
pub(crate) fn job_door(spool: &Path, job: JobId) -> PathBuf {
    spool.join(format!("job-{job}.door"))
}

/// A request that comes there may be so long.
pub(crate) const REQUEST_MAX: usize = 64 << 10;

/// So long a visitor may take to say what he wants. He has it ready when he comes.
const WORD_WAIT: Duration = Duration::from_millis(100);

/// Sends all who are at a door to the agent's.
pub(crate) fn turn_away(door: &UnixListener) {
    while turn_one_away(door).is_some() {}
}

/// Sends the first who is at a door to the agent's; gives the connection, whose close may take long: what has come by it
/// is closed with it.
pub(crate) fn turn_one_away(door: &UnixListener) -> Option<UnixStream> {
    loop {
        match door.accept() {
            Ok((visitor, _)) => {
                send_on(&visitor);
                return Some(visitor);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Sends somebody to the agent's door.
pub(crate) fn send_on(mut visitor: &UnixStream) {
    // If he is gone, so much the better. So little is taken at once.
    let _ = visitor.write(&frame::encode(&FromStepd::Redirect));
}

/// Nobody comes to that door any more.
pub(crate) fn close(door: &UnixListener) {
    // It may be closed already.
    let _ = shutdown(door.as_raw_fd(), Shutdown::Both);
}

/// What a visitor wants, and what comes with it; nothing if he says it too slowly, at too great length, or not at all.
pub(crate) fn hear(
    visitor: &UnixStream,
    room: &mut [u8],
) -> Option<(AgentRequest, VecDeque<OwnedFd>)> {
    let until = Instant::now() + WORD_WAIT;
    let (mut come, mut had) = (VecDeque::new(), 0);
    loop {
        let header = room.get(..4).filter(|_| had >= 4);
        let length = header.and_then(|h| frame::length(h.try_into().ok()?).ok());
        match length.map(|length| length + 4) {
            Some(whole) if had == whole => {
                return Some((frame::decode(&room[4..whole]).ok()?, come));
            }
            Some(whole) if had > whole || whole > room.len() => return None,
            _ => {}
        }
        match descriptors::receive(visitor, &mut room[had..], &mut come) {
            Ok(0) => return None,
            Ok(n) => had += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => wait_for(visitor, until)?,
            Err(_) => return None,
        }
    }
}

/// Waits for what he says; nothing if he says none until then.
fn wait_for(visitor: &UnixStream, until: Instant) -> Option<()> {
    let left = until.saturating_duration_since(Instant::now());
    let timeout = PollTimeout::try_from(left).ok()?;
    let mut fds = [PollFd::new(visitor.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, timeout) {
        Ok(0) => None,
        Ok(_) | Err(Errno::EINTR) => Some(()),
        Err(_) => None,
    }
}

/// Whether that is the name of such a door.
pub(crate) fn is_job_door(name: &str) -> bool {
    name.starts_with("job-") && name.ends_with(".door")
}

/// What a daemon is told with a step, for it to take others like that.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub(crate) struct Standing {
    /// What is put over the environment of srun.
    #[n(0)]
    pub(crate) variables: StepVariables,
    /// The step as it is kept.
    #[n(1)]
    pub(crate) record: Record,
    /// This node's part of it as it is kept, which is the same for each step.
    #[n(2)]
    pub(crate) part: ByteVec,
}

/// What goes with it.
#[derive(Debug)]
pub(crate) struct StandingFds {
    /// The door of the job.
    pub(crate) door: OwnedFd,
    /// Numbers for its steps.
    pub(crate) tickets: Tickets,
}

impl StandingFds {
    /// Their numbers, in order.
    pub(crate) fn numbers(&self) -> [RawFd; 2] {
        [self.door.as_raw_fd(), self.tickets.0.as_raw_fd()]
    }
}

/// What a request asks for, without what is its own: program, environment and the like. Two of a kind fit into the same
/// place and are run the same way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kind(StepSpec);

impl Kind {
    /// The kind of a request.
    pub(crate) fn of(spec: &StepSpec) -> Kind {
        let mut kind = spec.clone();
        swap_own(&mut kind, &mut StepSpec::default());
        Kind(kind)
    }

    /// Whether a request is of this kind. (It is changed and changed back: that costs less than a copy.)
    pub(crate) fn is_of(&self, spec: &mut StepSpec) -> bool {
        let mut own = StepSpec::default();
        swap_own(spec, &mut own);
        let is_it = self.0 == *spec;
        swap_own(spec, &mut own);
        is_it
    }
}

/// Exchanges what may differ between two requests of a kind.
fn swap_own(a: &mut StepSpec, b: &mut StepSpec) {
    swap(&mut a.name, &mut b.name);
    swap(&mut a.argv, &mut b.argv);
    swap(&mut a.context.environment, &mut b.context.environment);
    swap(&mut a.context.umask, &mut b.context.umask);
    swap(&mut a.work_dir, &mut b.work_dir);
    swap(&mut a.submit_line, &mut b.submit_line);
    swap(&mut a.extra_env, &mut b.extra_env);
    swap(&mut a.stdin_task, &mut b.stdin_task);
    swap(&mut a.unbuffered, &mut b.unbuffered);
    swap(&mut a.maker, &mut b.maker);
    swap(&mut a.program_file, &mut b.program_file);
}

/// Numbers for steps, each to be had once: the reading end of a pipe, which several processes may have.
#[derive(Debug)]
pub(crate) struct Tickets(pub(crate) OwnedFd);

impl Tickets {
    /// The next number, if one is ready.
    pub(crate) fn take(&self) -> Option<u32> {
        let mut bytes = [0; 4];
        loop {
            match nix::unistd::read(&self.0, &mut bytes) {
                Ok(4) => return Some(u32::from_ne_bytes(bytes)),
                Err(Errno::EINTR) => {}
                _ => return None,
            }
        }
    }
}

/// Where they come from.
#[derive(Debug)]
pub(crate) struct Dispenser {
    tickets: Tickets,
    writer: OwnedFd,
    /// The first number that has no ticket yet.
    next: u32,
    /// The first number that no step gets.
    end: u32,
    /// Tickets that are taken, as far as is known, since there were more made.
    taken: u32,
}

impl Dispenser {
    /// One of these numbers.
    pub(crate) fn new(numbers: Range<u32>) -> io::Result<Dispenser> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let mut dispenser = Dispenser {
            tickets: Tickets(reader),
            writer,
            next: numbers.start,
            end: numbers.end,
            taken: 0,
        };
        dispenser.make(TICKETS);
        Ok(dispenser)
    }

    fn make(&mut self, count: u32) {
        let end = self.next.saturating_add(count).min(self.end);
        let numbers: Vec<u8> = (self.next..end).flat_map(u32::to_ne_bytes).collect();
        if numbers.is_empty() {
            return;
        }
        // As little as a page is written whole, or not at all.
        if nix::unistd::write(&self.writer, &numbers) == Ok(numbers.len()) {
            self.next = end;
        }
    }

    /// The next number, if one is left.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if let Some(number) = self.tickets.take() {
            return Some(number);
        }
        self.make(TICKETS);
        self.tickets.take().or_else(|| {
            // The pipe cannot be used: numbers go on without it.
            let number = Some(self.next).filter(|number| *number < self.end)?;
            self.next = number + 1;
            Some(number)
        })
    }

    /// So many have been taken by others.
    pub(crate) fn were_taken(&mut self, count: u32) {
        self.taken += count;
        if self.taken >= TICKETS / 2 {
            let made = std::mem::take(&mut self.taken);
            self.make(made.min(TICKETS));
        }
    }

    /// Another end to take them from.
    pub(crate) fn tickets(&self) -> io::Result<Tickets> {
        Ok(Tickets(self.tickets.0.try_clone()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_core::spec::MemoryAsk;

    #[test]
    fn numbers_are_had_once_and_in_order() {
        let mut dispenser = Dispenser::new(7..u32::MAX).unwrap();
        let others = dispenser.tickets().unwrap();
        assert_eq!((dispenser.take(), others.take()), (Some(7), Some(8)));
        let all: Vec<u32> = std::iter::from_fn(|| others.take()).collect();
        assert_eq!(all, (9..7 + TICKETS).collect::<Vec<_>>());
        assert_eq!(dispenser.take(), Some(7 + TICKETS));
        // Others find numbers as long as it is told of those that they take.
        for _ in 0..10 * TICKETS {
            assert!(others.take().is_some());
            dispenser.were_taken(1);
        }
    }

    #[test]
    fn numbers_have_an_end() {
        for end in [5, TICKETS + 5] {
            let mut dispenser = Dispenser::new(3..end).unwrap();
            let all: Vec<u32> = std::iter::from_fn(|| dispenser.take()).collect();
            assert_eq!(all, (3..end).collect::<Vec<_>>());
            dispenser.were_taken(TICKETS);
            assert_eq!(dispenser.take(), None);
        }
    }

    #[test]
    fn requests_of_a_kind_differ_in_what_they_run() {
        let spec = StepSpec {
            name: "a".to_owned(),
            argv: vec!["a".to_owned()],
            ntasks: Some(1),
            ..StepSpec::default()
        };
        let kind = Kind::of(&spec);
        let mut other = StepSpec {
            name: "b".to_owned(),
            argv: vec!["b".to_owned(), "c".to_owned()],
            work_dir: "/tmp".to_owned(),
            ..spec.clone()
        };
        let as_it_was = other.clone();
        assert!(kind.is_of(&mut other));
        assert_eq!(other, as_it_was);
        for mut different in [
            StepSpec {
                ntasks: Some(2),
                ..spec.clone()
            },
            StepSpec {
                memory: MemoryAsk::PerNode(1),
                ..spec.clone()
            },
            StepSpec {
                overlap: true,
                ..spec.clone()
            },
            StepSpec {
                resizes: 1,
                ..spec.clone()
            },
        ] {
            assert!(!kind.is_of(&mut different), "{different:?}");
        }
    }
}
