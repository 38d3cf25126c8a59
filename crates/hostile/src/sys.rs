//! Calls that the standard library does not have: a thread with another user's credentials, and sockets that are made to
//! hurt the process that closes them.
#![allow(unsafe_code)]

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// A user and its primary group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Root.
pub const ROOT: User = User { uid: 0, gid: 0 };
/// The user that attacks: `nobody` where the customary numbers are used.
pub const ATTACKER: User = User {
    uid: 65534,
    gid: 65534,
};
/// A user that no user database has.
pub const NAMELESS: User = User {
    uid: 60001,
    gid: 60001,
};
/// The user whose jobs must go on: `games`.
pub const VICTIM: User = User { uid: 5, gid: 60 };
/// The user who is made an operator: `man`.
pub const OPERATOR: User = User { uid: 6, gid: 12 };
/// The user who is made an administrator: `lp`.
pub const ADMINISTRATOR: User = User { uid: 7, gid: 7 };
/// The user who is made a coordinator: `mail`.
pub const COORDINATOR: User = User { uid: 8, gid: 8 };

/// Gives the calling thread, and it alone, the credentials of a user without supplementary groups. There is no way back.
///
/// # Errors
/// The caller is not root.
fn become_user(user: User) -> io::Result<()> {
    let (uid, gid) = (libc::c_long::from(user.uid), libc::c_long::from(user.gid));
    let none: *const libc::gid_t = std::ptr::null();
    // SAFETY: setgroups(2) with no groups reads no memory; setresgid(2) and setresuid(2) take numbers. The system calls
    // themselves change the calling thread only, unlike the C library's functions of the same names.
    let results = unsafe {
        [
            libc::syscall(libc::SYS_setgroups, 0 as libc::c_long, none),
            libc::syscall(libc::SYS_setresgid, gid, gid, gid),
            libc::syscall(libc::SYS_setresuid, uid, uid, uid),
        ]
    };
    match results.iter().all(|r| *r == 0) {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    }
}

/// Runs something with the credentials of a user, on a thread of its own.
///
/// # Panics
/// What it runs panics, or the caller is not root.
pub fn as_user<T: Send>(user: User, run: impl FnOnce() -> T + Send) -> T {
    let run = || {
        if user != ROOT {
            become_user(user).expect("only root can take the credentials of others");
        }
        run()
    };
    std::thread::scope(|scope| match scope.spawn(run).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Has a command run in a session of its own, as that of a user in another login session: the kernel may share processors
/// between sessions first.
pub fn in_own_session(command: &mut Command) {
    let begin = || nix::unistd::setsid().map(drop).map_err(io::Error::from);
    // SAFETY: setsid(2) is safe to call between fork and exec, and the closure does nothing else.
    unsafe { command.pre_exec(begin) };
}

/// Has a command join a cgroup, given its file of processes.
pub(crate) fn in_cgroup(command: &mut Command, processes: Arc<File>) {
    let join = move || {
        nix::unistd::write(&processes, b"0")
            .map(drop)
            .map_err(io::Error::from)
    };
    // SAFETY: write(2) to an open descriptor is safe to call between fork and exec, and the closure does nothing else.
    unsafe { command.pre_exec(join) };
}

/// Has a command be killed when the thread ends that starts it.
pub fn ended_with_its_starter(command: &mut Command) {
    let ask = || {
        let signal = nix::sys::signal::Signal::SIGKILL;
        nix::sys::prctl::set_pdeathsig(signal).map_err(io::Error::from)
    };
    // SAFETY: prctl(2) is safe to call between fork and exec, and the closure does nothing else.
    unsafe { command.pre_exec(ask) };
}

/// Raises the number of descriptors that this process may have to what the administrator allows; gives the number.
pub fn raise_descriptors() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 0;
    };
    let wanted = hard.min(65_536).max(soft);
    match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => wanted,
        Err(_) => soft,
    }
}

/// Lowers the number of descriptors that this process, and daemons that it starts, may have without asking for more, to what
/// services usually have.
pub fn usual_descriptors() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(1024), hard);
    }
}

/// Sends bytes with descriptors; gives how many bytes went.
///
/// # Errors
/// Those of sendmsg(2).
pub fn send_with(socket: &impl AsRawFd, bytes: &[u8], fds: &[RawFd]) -> io::Result<usize> {
    let rights = [ControlMessage::ScmRights(fds)];
    let rights = if fds.is_empty() {
        &rights[..0]
    } else {
        &rights
    };
    let flags = MsgFlags::MSG_NOSIGNAL;
    let sent = sendmsg::<()>(
        socket.as_raw_fd(),
        &[IoSlice::new(bytes)],
        rights,
        flags,
        None,
    )?;
    Ok(sent)
}

/// A TCP connection whose last close waits: it lingers, its send buffer is full, and the peer does not read. That
/// lasts until the value goes, and its peer with it.
#[derive(Debug)]
pub struct Lingering {
    stream: Option<TcpStream>,
    _peer: TcpStream,
    _listener: TcpListener,
}

impl Lingering {
    /// A connection whose last close waits for `linger`.
    ///
    /// # Errors
    /// Errors of the socket calls.
    pub fn new(linger: Duration) -> io::Result<Lingering> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let (peer, _) = listener.accept()?;
        let option = nix::libc::linger {
            l_onoff: 1,
            l_linger: i32::try_from(linger.as_secs()).unwrap_or(i32::MAX),
        };
        nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &option)?;
        stream.set_nonblocking(true)?;
        let block = [0; 64 << 10];
        while nix::unistd::write(&stream, &block).is_ok() {}
        stream.set_nonblocking(false)?;
        Ok(Lingering {
            stream: Some(stream),
            _peer: peer,
            _listener: listener,
        })
    }

    /// The end to give away.
    pub fn fd(&self) -> RawFd {
        self.stream.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Closes this process's copy of it, so that another's is the last. Should that have been closed already, the close here
    /// waits until the value goes: another thread does it.
    pub fn give_away(&mut self) {
        if let Some(stream) = self.stream.take() {
            std::thread::spawn(move || drop(stream));
        }
    }
}
