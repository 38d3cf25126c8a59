//! Closes what users have sent, where nobody waits for that. The close of a descriptor may take as long as its sender wants: a
//! TCP socket with `SO_LINGER` and a full send buffer, a file of a file system in user space or of a server that does not
//! answer, a Unix socket with such in its queue.
//!
//! Each user has a thread for it, which is there while there is something to close: a user whose descriptors do not close
//! delays nobody else. One thread is kept in reserve from the start, for the time in which no threads can be made. Then users
//! wait for each other there, until there are threads again; what waits is counted all the same, so that a caller who asks
//! [how much waits](Closers::waiting_of) before more is received has a bound on it.
//!
//! Some connections cannot be refused, because they are there before it is known whose they are. If a user has many pending
//! closes, each further one interrupts the close that is running, which ends the time that a socket lingers, at whatever depth.
//! A connection without descriptors in its queue ([`holds_descriptors`]) does not wait at all. The kernel bounds how many
//! descriptors a user has in queues (`RLIMIT_NOFILE`).

mod interrupt;
pub mod passed;
mod sys;

pub use sys::refuse_descriptors;

use interrupt::Thread;
use log::error;
use nix::libc;
use nix::sys::socket::{MsgFlags, recv, recvmsg, setsockopt, sockopt};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Limit of a user's items waiting to be closed; at this many the caller must receive nothing more from the user.
pub const WAITING_MAX: usize = 128;
/// From this many on, each further item interrupts the running close.
const WAITING_BEFORE_INTERRUPT: usize = 16;
/// How long a thread waits for more to close.
const IDLE: Duration = Duration::from_secs(10);
/// Stack of such a thread.
const STACK_BYTES: usize = 128 << 10;

/// Sender of an item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sender {
    /// A user.
    User(u32),
    /// The agent of a node, which may be somebody else's by now.
    Agent(Arc<str>),
    /// The agents of a job's nodes, by the job's number: with its key one can be any of them.
    AgentsOfJob(u64),
}

impl From<u32> for Sender {
    fn from(uid: u32) -> Sender {
        Sender::User(uid)
    }
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sender::User(uid) => write!(f, "uid {uid}"),
            Sender::Agent(node) => write!(f, "the agent of {node}"),
            Sender::AgentsOfJob(job) => write!(f, "the agents of job {job}"),
        }
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// Closes items of a kind. Clones are the same one.
pub struct Closers<T>(Arc<Inner<T>>);

impl<T> Clone for Closers<T> {
    fn clone(&self) -> Closers<T> {
        Closers(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Closers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closers")
    }
}

struct Inner<T> {
    close: fn(T),
    start_thread: fn(String, Work) -> io::Result<()>,
    state: Mutex<State<T>>,
    /// Something has come for the thread in reserve.
    for_reserve: Condvar,
}

struct State<T> {
    users: HashMap<Sender, UserQueue<T>>,
    /// Users who have no thread, in the order in which the one in reserve serves them.
    without_thread: VecDeque<Sender>,
    has_reserve: bool,
}

/// The descriptors of one user that wait to be closed, and their thread.
struct UserQueue<T> {
    items: VecDeque<T>,
    /// These, and the one that is being closed.
    waiting: usize,
    has_thread: bool,
    /// The thread, once it runs. It takes itself away, with the user, before it ends.
    thread: Option<Thread>,
    came: Arc<Condvar>,
}

impl<T> Default for UserQueue<T> {
    fn default() -> UserQueue<T> {
        UserQueue {
            items: VecDeque::new(),
            waiting: 0,
            has_thread: false,
            thread: None,
            came: Arc::default(),
        }
    }
}

impl<T: Send + 'static> Closers<T> {
    /// Closes items by a function that may take its time.
    pub fn new(close: fn(T)) -> Closers<T> {
        Closers::with_threads(close, start_thread)
    }

    fn with_threads(close: fn(T), start_thread: fn(String, Work) -> io::Result<()>) -> Closers<T> {
        Closers(Arc::new(Inner {
            close,
            start_thread,
            state: Mutex::new(State {
                users: HashMap::new(),
                without_thread: VecDeque::new(),
                has_reserve: false,
            }),
            for_reserve: Condvar::new(),
        }))
    }

    /// Starts the thread that is kept in reserve, unless it is there. To be called before anything is received from users.
    ///
    /// # Errors
    /// No thread can be made: nothing may be received then.
    pub fn keep_reserve(&self) -> io::Result<()> {
        let mut state = self.lock();
        if !state.has_reserve {
            let own = self.clone();
            let work = Box::new(move || own.close_for_others());
            (self.0.start_thread)("close-reserve".to_owned(), work)?;
            state.has_reserve = true;
        }
        Ok(())
    }

    /// Has something closed that a user, or an agent, has sent. Never waits for that.
    pub fn close(&self, sender: impl Into<Sender>, item: T) {
        let sender = sender.into();
        let mut state = self.lock();
        let user = state.users.entry(sender.clone()).or_default();
        user.items.push_back(item);
        user.waiting += 1;
        if user.has_thread {
            if let Some(thread) = user
                .thread
                .filter(|_| user.waiting > WAITING_BEFORE_INTERRUPT)
            {
                thread.interrupt();
            }
            return user.came.notify_one();
        }
        if let Err(e) = self.start_thread_of(&sender, user) {
            error!(
                "what {sender} has sent is closed with that of others: cannot start thread: {e}"
            );
            if !state.without_thread.contains(&sender) {
                state.without_thread.push_back(sender);
            }
            self.0.for_reserve.notify_one();
        }
    }

    /// How many items of a user wait to be closed.
    pub fn waiting_of(&self, sender: impl Into<Sender>) -> usize {
        let users = &self.lock().users;
        users.get(&sender.into()).map_or(0, |user| user.waiting)
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_thread_of(&self, sender: &Sender, user: &mut UserQueue<T>) -> io::Result<()> {
        let name = match sender {
            Sender::User(uid) => format!("close-{uid}"),
            Sender::Agent(node) => format!("close-{node}"),
            Sender::AgentsOfJob(job) => format!("close-job-{job}"),
        };
        let (own, sender) = (self.clone(), sender.clone());
        (self.0.start_thread)(name, Box::new(move || own.close_all_of(&sender)))?;
        user.has_thread = true;
        Ok(())
    }

    /// The thread of a user.
    fn close_all_of(&self, sender: &Sender) {
        let mut state = self.lock();
        if let Some(user) = state.users.get_mut(sender) {
            user.thread = Some(Thread::current());
        }
        // It goes only once it has taken its user off the list, who has one as long as this runs.
        while let Some(user) = state.users.get_mut(sender) {
            if let Some(item) = user.items.pop_front() {
                drop(state);
                (self.0.close)(item);
                state = self.lock();
                if let Some(user) = state.users.get_mut(sender) {
                    user.waiting -= 1;
                }
                continue;
            }
            let came = Arc::clone(&user.came);
            let waited = came.wait_timeout(state, IDLE);
            let (locked, time) = waited.unwrap_or_else(PoisonError::into_inner);
            state = locked;
            let is_over = |user: &UserQueue<T>| time.timed_out() && user.waiting == 0;
            if state.users.get(sender).is_some_and(is_over) {
                state.users.remove(sender);
            }
        }
    }

    /// The thread in reserve: takes users in turn, one item of each, and gives each a thread if there are some again.
    fn close_for_others(&self) {
        let mut state = self.lock();
        loop {
            let Some(sender) = state.without_thread.pop_front() else {
                let waited = self.0.for_reserve.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Some(user) = state.users.get_mut(&sender).filter(|user| !user.has_thread) else {
                continue;
            };
            if self.start_thread_of(&sender, user).is_ok() {
                continue;
            }
            let item = user.items.pop_front();
            if let Some(item) = item {
                drop(state);
                (self.0.close)(item);
                state = self.lock();
            }
            self.one_is_closed(&mut state, sender);
        }
    }

    /// The thread in reserve has closed one item of a user, who may have got a thread meanwhile.
    fn one_is_closed(&self, state: &mut State<T>, sender: Sender) {
        let Some(user) = state.users.get_mut(&sender) else {
            return;
        };
        user.waiting = user.waiting.saturating_sub(1);
        match (user.has_thread, user.waiting) {
            (true, _) => {}
            (false, 0) => drop(state.users.remove(&sender)),
            (false, _) if state.without_thread.contains(&sender) => {}
            (false, _) => state.without_thread.push_back(sender),
        }
    }
}

fn start_thread(name: String, work: Work) -> io::Result<()> {
    let named = thread::Builder::new().name(name);
    named.stack_size(STACK_BYTES).spawn(work).map(drop)
}

/// Closes a descriptor: a socket without the time that its sender has set for what has not been sent.
pub fn close_without_linger(descriptor: OwnedFd) {
    let none = libc::linger {
        l_onoff: 0,
        l_linger: 0,
    };
    // It is no socket, or has none set.
    let _ = setsockopt(&descriptor, sockopt::Linger, &none);
}

/// Whether descriptors that nobody has received are in the queue of a Unix stream socket: only with such can its close take
/// long. Takes the bytes before them. To be asked once the socket is shut down, so that none come later.
pub fn holds_descriptors(socket: &impl AsFd) -> bool {
    let socket = socket.as_fd().as_raw_fd();
    let mut bytes = [0; 16 << 10];
    loop {
        let flags = MsgFlags::MSG_DONTWAIT;
        let mut slices = [IoSliceMut::new(&mut bytes)];
        // Without room for descriptors the kernel says that there are some, and leaves them where they are.
        let peeked = recvmsg::<()>(socket, &mut slices, None, flags | MsgFlags::MSG_PEEK);
        match peeked {
            Ok(message) if message.flags.contains(MsgFlags::MSG_CTRUNC) => return true,
            Ok(message) if message.bytes > 0 => {
                let length = message.bytes;
                if recv(socket, &mut bytes[..length], flags).is_err() {
                    return true;
                }
            }
            Err(nix::errno::Errno::EINTR) => {}
            // The queue is empty.
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Instant;

    /// Something that is closed when its sender is gone, and tells of it.
    struct Item {
        gate: Option<Receiver<()>>,
        closed: Sender<u32>,
        number: u32,
    }

    fn close(item: Item) {
        if let Some(gate) = item.gate {
            let _ = gate.recv();
        }
        let _ = item.closed.send(item.number);
    }

    const SOON: Duration = Duration::from_secs(20);

    fn none_waits(closers: &Closers<Item>, uid: u32) {
        let until = Instant::now() + SOON;
        while closers.waiting_of(uid) > 0 {
            assert!(Instant::now() < until, "uid {uid} waits");
            thread::yield_now();
        }
    }

    #[test]
    fn a_user_whose_items_do_not_close_delays_no_other() {
        let closers = Closers::new(close);
        let (closed, is_closed) = channel();
        let (gate, shut) = channel();
        let item = |number, gate| Item {
            gate,
            closed: closed.clone(),
            number,
        };
        closers.close(1, item(1, Some(shut)));
        (2..100).for_each(|number| closers.close(1, item(number, None)));
        closers.close(2, item(200, None));
        assert_eq!(is_closed.recv_timeout(SOON), Ok(200));
        assert_eq!(closers.waiting_of(1), 99);
        none_waits(&closers, 2);
        drop(gate);
        none_waits(&closers, 1);
        let numbers: Vec<u32> = is_closed.try_iter().collect();
        assert_eq!(numbers, (1..100).collect::<Vec<_>>());
    }

    /// A socket whose close takes ten minutes.
    fn lingering() -> (OwnedFd, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &near, &[0; 1 << 16]).is_ok() {}
        near.set_nonblocking(false).unwrap();
        let minutes = libc::linger {
            l_onoff: 1,
            l_linger: 600,
        };
        setsockopt(&near, sockopt::Linger, &minutes).unwrap();
        (near.into(), far)
    }

    /// One such in the queue of a Unix socket kept all connections that came later, without a bound.
    #[test]
    fn what_lingers_does_not_keep_more_than_a_bound() {
        let closers: Closers<OwnedFd> = Closers::new(drop);
        let (sockets, _far): (Vec<OwnedFd>, Vec<_>) = (0..2 * WAITING_BEFORE_INTERRUPT)
            .map(|_| lingering())
            .unzip();
        for socket in sockets {
            closers.close(1, socket);
        }
        let until = Instant::now() + SOON;
        while closers.waiting_of(1) > WAITING_BEFORE_INTERRUPT {
            assert!(Instant::now() < until, "{}", closers.waiting_of(1));
            let null = std::fs::File::open("/dev/null").unwrap();
            closers.close(1, null.into());
            thread::yield_now();
        }
    }

    /// All connections of a user waited for one that did not close, without a bound.
    #[test]
    fn bytes_in_a_queue_are_not_counted_as_descriptors() {
        use nix::sys::socket::{ControlMessage, Shutdown, sendmsg, shutdown};
        use std::io::{IoSlice, Write as _};
        use std::os::unix::net::UnixStream;
        let filled = |chunks: usize, descriptors: usize| {
            let (mut near, far) = UnixStream::pair().unwrap();
            (0..chunks).for_each(|_| near.write_all(&[1; 10_000]).unwrap());
            let null = std::fs::File::open("/dev/null").unwrap();
            for _ in 0..descriptors {
                let rights = [null.as_raw_fd()];
                let control = [ControlMessage::ScmRights(&rights)];
                let none = MsgFlags::empty();
                let bytes = [IoSlice::new(b"x")];
                sendmsg::<()>(near.as_raw_fd(), &bytes, &control, none, None).unwrap();
            }
            (0..chunks).for_each(|_| near.write_all(&[1; 10_000]).unwrap());
            shutdown(far.as_raw_fd(), Shutdown::Both).unwrap();
            holds_descriptors(&far)
        };
        for chunks in 0..6 {
            assert!(!filled(chunks, 0), "{chunks}");
            assert!(filled(chunks, 1), "{chunks}");
            assert!(filled(chunks, 2), "{chunks}");
        }
    }

    static HAS_THREADS: AtomicBool = AtomicBool::new(true);

    fn start_if_there_are(name: String, work: Work) -> io::Result<()> {
        match HAS_THREADS.load(Ordering::SeqCst) {
            true => start_thread(name, work),
            false => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
        }
    }

    /// Descriptors were left open for good then, as many as a user sent.
    #[test]
    fn without_threads_the_one_in_reserve_closes_and_all_is_counted() {
        let closers = Closers::with_threads(close, start_if_there_are);
        closers.keep_reserve().unwrap();
        HAS_THREADS.store(false, Ordering::SeqCst);
        let (closed, is_closed) = channel();
        let (gate, shut) = channel();
        let item = |number, gate| Item {
            gate,
            closed: closed.clone(),
            number,
        };
        for number in 0..50 {
            closers.close(1 + number % 5, item(number, None));
        }
        for uid in 1..6 {
            none_waits(&closers, uid);
        }
        assert_eq!(is_closed.try_iter().count(), 50);
        assert!(closers.lock().users.is_empty());
        // One that does not close: what comes later waits, and is counted.
        closers.close(1, item(100, Some(shut)));
        let until = Instant::now() + SOON;
        while !closers.lock().users[&crate::Sender::User(1)]
            .items
            .is_empty()
        {
            assert!(Instant::now() < until);
            thread::yield_now();
        }
        (0..WAITING_MAX).for_each(|_| closers.close(1, item(101, None)));
        closers.close(2, item(102, None));
        assert_eq!(closers.waiting_of(1), WAITING_MAX + 1);
        assert_eq!(closers.waiting_of(2), 1);
        // When there are threads again, nobody waits for that one any more but its user.
        HAS_THREADS.store(true, Ordering::SeqCst);
        closers.close(2, item(103, None));
        none_waits(&closers, 2);
        closers.close(1, item(104, None));
        let until = Instant::now() + SOON;
        while closers.waiting_of(1) > 1 {
            assert!(Instant::now() < until);
            thread::yield_now();
        }
        drop(gate);
        none_waits(&closers, 1);
        assert_eq!(is_closed.try_iter().count(), WAITING_MAX + 4);
    }
}
