//! System calls that neither std nor nix offers in the form needed here. Nearly all `unsafe` of this crate is in this
//! file and those below it, and nothing here depends on jobs. The rest is in `cross_memory::probe`, a separate
//! program that measures one system call, and in the test of the agent's system call filter.
#![allow(unsafe_code)]

pub(crate) mod cells;
mod children;
mod file_kind;
mod identity;
mod limits;
mod memory_file;
pub(crate) mod mounts;
mod oom;
pub(crate) mod quiet_stat;
mod received;
mod slots;
#[cfg(test)]
pub(crate) mod stalled_memory;
pub(crate) mod vm_clone;

pub(crate) use children::{
    Reap, Reaped, ended_child, exit_code_of, exit_code_within, reap, reap_child,
};
pub(crate) use file_kind::kind_of;
pub(crate) use identity::{
    acting_as, become_untraceable_user, become_user, refuse_privileges, set_undumpable,
};
pub(crate) use limits::{
    change_own_limits, first_limits, restore_file_limit, set_first_limits, with_first_limits,
};
pub(crate) use memory_file::{memory_file, sealed_program};
pub(crate) use muster_script::bare;
pub(crate) use oom::{leave_protection, protect};
pub(crate) use received::receive_descriptors;
pub(crate) use slots::SharedSlots;

use muster_model::cpuset::CpuSet;
use muster_model::limits::NODE_CPUS_MAX;
use muster_model::spec::SoftLimit;
use std::ffi::{CStr, CString};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

fn number(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

/// The side of a fork.
pub(crate) enum Fork {
    /// The new process.
    Child,
    /// The old one, with the new one's id.
    Parent(i32),
}

/// Forks. Only called by processes with one thread (launcher, stepd), so that the child may do anything.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: the callers have one thread, so no lock can be held by a thread that the child lacks.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

/// Arguments of exec(2), built before the fork: a child that shares its parent's memory must not allocate.
#[derive(Debug)]
pub(crate) struct ExecArguments<'a> {
    /// Owner of the strings that `pointers` points to.
    _owned: Vec<CString>,
    _borrowed: PhantomData<&'a CStr>,
    /// Pointers to the words, room for one more, and the null that ends them.
    pointers: Vec<*const libc::c_char>,
}

impl<'a> ExecArguments<'a> {
    pub(crate) fn new(words: Vec<CString>) -> ExecArguments<'a> {
        ExecArguments::with([], words)
    }

    /// The words of `borrowed`, then `words`.
    pub(crate) fn with(
        borrowed: impl IntoIterator<Item = &'a CStr>,
        words: Vec<CString>,
    ) -> ExecArguments<'a> {
        let mut pointers: Vec<_> = borrowed.into_iter().map(CStr::as_ptr).collect();
        pointers.extend(words.iter().map(|w| w.as_ptr()));
        pointers.extend([std::ptr::null(); 2]);
        ExecArguments {
            _owned: words,
            _borrowed: PhantomData,
            pointers,
        }
    }

    /// All words.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &CStr> {
        let words = self.pointers.iter().take_while(|w| !w.is_null());
        // SAFETY: those that are not null are of strings that live as long as this.
        words.map(|w| unsafe { CStr::from_ptr(*w) })
    }
}

/// Executes a program with one more variable than `environment` has. Gives the error if that fails; allocates nothing.
pub(crate) fn exec_with(
    program: &CStr,
    words: &ExecArguments<'_>,
    environment: &mut ExecArguments<'_>,
    variable: &CStr,
) -> nix::errno::Errno {
    let last = environment.pointers.len() - 2;
    environment.pointers[last] = variable.as_ptr();
    let error = exec(program, words, environment);
    environment.pointers[last] = std::ptr::null();
    error
}

/// Executes a program. Gives the error if that fails; allocates nothing.
pub(crate) fn exec(
    program: &CStr,
    words: &ExecArguments<'_>,
    environment: &ExecArguments<'_>,
) -> nix::errno::Errno {
    // SAFETY: both lists end in null and lead to strings that end in NUL and outlive the call.
    unsafe {
        libc::execve(
            program.as_ptr(),
            words.pointers.as_ptr(),
            environment.pointers.as_ptr(),
        )
    };
    nix::errno::Errno::last()
}

/// As [`exec`], in a child that shares its parent's memory.
pub(crate) fn exec_bare(
    program: &CStr,
    words: &ExecArguments<'_>,
    environment: &ExecArguments<'_>,
) -> bare::Errno {
    // SAFETY: both lists end in null and lead to strings that end in NUL and outlive the call.
    unsafe {
        bare::execve(
            program,
            words.pointers.as_ptr(),
            environment.pointers.as_ptr(),
        )
    }
}

/// As [`exec_bare`], for a program that is open as a descriptor.
pub(crate) fn exec_file_bare(
    program: RawFd,
    words: &ExecArguments<'_>,
    environment: &ExecArguments<'_>,
) -> bare::Errno {
    // SAFETY: as above.
    unsafe {
        bare::execute_file(
            program,
            words.pointers.as_ptr(),
            environment.pointers.as_ptr(),
        )
    }
}

/// The lowest nice value.
pub(crate) const LOWEST_PRIORITY: i32 = 19;

/// Lowers the priority of this process, for work that nobody waits for.
pub(crate) fn lower_priority() {
    set_nice(LOWEST_PRIORITY);
}

/// Sets the nice value of this process. Only root can make it smaller; otherwise it stays.
pub(crate) fn set_nice(nice: i32) {
    // SAFETY: setpriority(2) has no preconditions.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

/// The nice value of this process.
pub(crate) fn nice() -> i32 {
    // SAFETY: getpriority(2) has no preconditions. It cannot fail for this process.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// Ends the process without running destructors or exit handlers: for forked children.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit(2) has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Registers a socket of the standard library with the runtime for readiness events.
pub(crate) fn watch<T: Into<OwnedFd> + AsRawFd>(
    socket: T,
    interest: Interest,
) -> io::Result<AsyncFd<T>> {
    // SAFETY: what can be made an `OwnedFd` has one descriptor as long as it lives, and owns it.
    Ok(unsafe { AsyncFd::register_with_interest(socket, interest) }?)
}

/// Whether the peer of a Unix socket has read everything that was sent to it; false if that is unknown.
pub(crate) fn is_all_read(socket: BorrowedFd<'_>) -> bool {
    unread_bytes(socket).is_ok_and(|left| left == 0)
}

/// Bytes sent on a socket that the peer has not taken yet. For a Unix socket: bytes not yet read, including the
/// kernel's overhead. For TCP: bytes not yet acknowledged.
///
/// # Errors
/// The descriptor is no socket.
pub(crate) fn unread_bytes(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut left: libc::c_int = 0;
    // SAFETY: the request writes one int, which `left` is, and the descriptor is borrowed.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut left) };
    match done {
        0 => Ok(usize::try_from(left).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the other side of a socket is gone.
pub(crate) fn has_hung_up(socket: &impl AsRawFd) -> bool {
    let mut fds = [libc::pollfd {
        fd: socket.as_raw_fd(),
        events: 0,
        revents: 0,
    }];
    poll(&mut fds, 0).is_err() || fds[0].revents != 0
}

/// Fills a short buffer with random bytes from the kernel.
pub(crate) fn fill_randomly(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: the kernel writes no more than the length that it is given with the pointer, of one slice.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    // The kernel returns such small requests completely.
    if usize::try_from(got).ok() == Some(bytes.len()) {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// 16 random bytes from the kernel.
pub(crate) fn random_key() -> minicbor::bytes::ByteVec {
    let mut key = vec![0; 16];
    fill_randomly(&mut key).expect("the kernel has random bytes once it is up");
    key.into()
}

/// Makes the kernel refuse descriptors that are sent to this socket, or to sockets that it accepts: their sender gets
/// an error (`SO_PASSRIGHTS`, Linux 6.16). On older kernels this does nothing, and the reader closes received
/// descriptors.
pub(crate) fn refuse_descriptors(socket: &impl AsRawFd) -> io::Result<()> {
    const SO_PASSRIGHTS: libc::c_int = 83;
    let off: libc::c_int = 0;
    let length = libc::socklen_t::try_from(size_of_val(&off)).unwrap_or(4);
    // SAFETY: the value is a live int of the length that is given.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            length,
        )
    })
    .map(drop)
}

/// Makes `fd` available under the number `target`, inherited across exec.
pub(crate) fn dup_to(fd: RawFd, target: RawFd) -> io::Result<()> {
    if fd == target {
        // dup2 onto itself would leave close-on-exec as it is.
        // SAFETY: fcntl(F_SETFD) touches no memory.
        return check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }).map(drop);
    }
    // SAFETY: the callers are freshly forked children that replace their own standard descriptors on purpose.
    check(unsafe { libc::dup2(fd, target) }).map(drop)
}

/// A copy of a descriptor with a high number.
pub(crate) fn dup_high(fd: RawFd) -> io::Result<RawFd> {
    // SAFETY: fcntl(F_DUPFD_CLOEXEC) takes numbers only.
    check(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 512) })
}

/// A copy of a descriptor, of this number or a higher one.
pub(crate) fn dup_from(fd: RawFd, first: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl(F_DUPFD_CLOEXEC) takes numbers only.
    let copy = check(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, first) })?;
    Ok(adopt(copy))
}

/// Closes every descriptor from `first` on at the next exec.
pub(crate) fn close_on_exec_from(first: u32) {
    // SAFETY: marks descriptors only; ones that do not exist are skipped by the kernel.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
}

/// Closes every descriptor from `first` on: for forked children that go on without exec.
pub(crate) fn close_from(first: u32) {
    // SAFETY: called in forked children that never use or drop the objects that own these descriptors.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
}

/// Moves these descriptors to 3 and up, inherited across exec, and closes all others except the standard ones: for
/// forked children.
pub(crate) fn keep_only(kept: &[RawFd]) -> io::Result<()> {
    // First to numbers above all open ones, so that none overwrites another, then down to the fixed numbers.
    let high: io::Result<Vec<RawFd>> = kept.iter().map(|fd| dup_high(*fd)).collect();
    for (target, fd) in (3..).zip(high?) {
        dup_to(fd, target)?;
    }
    close_from(3 + u32::try_from(kept.len()).unwrap_or(0));
    Ok(())
}

/// Closes all descriptors but the standard ones and these: for forked children.
pub(crate) fn close_all_but(kept: &[RawFd]) {
    let mut kept: Vec<u32> = kept
        .iter()
        .filter_map(|fd| u32::try_from(*fd).ok())
        .collect();
    kept.sort_unstable();
    let mut first = 3;
    for fd in kept.into_iter().filter(|fd| *fd >= 3) {
        if first < fd {
            // SAFETY: called in forked children that never use or drop the objects that own these descriptors.
            unsafe { libc::syscall(libc::SYS_close_range, first, fd - 1, 0) };
        }
        first = fd + 1;
    }
    close_from(first);
}

/// Whether a descriptor of this number is open.
pub(crate) fn is_open(fd: RawFd) -> bool {
    // SAFETY: fcntl(F_GETFD) touches no memory.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// Takes ownership of a descriptor by its number.
pub(crate) fn adopt(fd: RawFd) -> OwnedFd {
    // SAFETY: the callers have just put a descriptor at this number with `dup_to` and own it alone.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Closes a descriptor that this process inherited by fork and whose owner object will never be dropped.
pub(crate) fn close_inherited(fd: RawFd) {
    // SAFETY: called in forked children that leave by exec or _exit, for descriptors they will not touch again.
    unsafe { libc::close(fd) };
}

/// The soft limits whose value in this process differs.
pub(crate) fn other_limits(soft: &[SoftLimit]) -> Vec<SoftLimit> {
    let differs = |soft: &&SoftLimit| {
        let own = own_limit(soft.resource);
        !own.is_ok_and(|own| own.rlim_cur == own.rlim_max.min(soft.value))
    };
    soft.iter().filter(differs).copied().collect()
}

fn own_limit(resource: u32) -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer leads to a live local.
    check(unsafe { libc::getrlimit(resource, &raw mut limit) })?;
    Ok(limit)
}

/// Sets the soft limit of a resource, not above its hard limit.
pub(crate) fn set_soft_limit(resource: u32, soft: u64) -> io::Result<()> {
    let mut limit = own_limit(resource)?;
    let soft = soft.min(limit.rlim_max);
    if limit.rlim_cur == soft {
        return Ok(());
    }
    limit.rlim_cur = soft;
    // SAFETY: the pointer leads to a live local.
    check(unsafe { libc::setrlimit(resource, &raw const limit) }).map(drop)
}

/// Sets every signal that is not at its default to it, and blocks none.
pub(crate) fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: an all-zero sigaction is SIG_DFL with an empty mask; numbers that the C library keeps to itself,
        // KILL and STOP give an error that does not matter.
        unsafe {
            let action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
    unblock_signals();
}

/// Signals whose disposition this program changes.
pub(crate) const CHANGED_SIGNALS: [i32; 2] = [libc::SIGHUP, libc::SIGPIPE];

/// Sets the dispositions that this program changes back to their default, and blocks none.
pub(crate) fn restore_signals() {
    restore_dispositions();
    unblock_signals();
}

/// Sets the dispositions that this program changes back to their default.
pub(crate) fn restore_dispositions() {
    for signal in CHANGED_SIGNALS {
        // SAFETY: SIG_DFL is a valid disposition.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

fn unblock_signals() {
    // SAFETY: sigemptyset fills the set before it is read.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Ignores a signal.
pub(crate) fn ignore_signal(signal: i32) {
    // SAFETY: SIG_IGN is a valid disposition.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Orphans of this process's descendants become its children rather than init's.
pub(crate) fn become_subreaper() -> io::Result<()> {
    // SAFETY: this prctl takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }).map(drop)
}

/// Makes the kernel kill this process when its parent ends. A change of user resets this, so it has to be called
/// again.
pub(crate) fn die_with_parent() {
    // SAFETY: this prctl takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
}

/// As [`die_with_parent`]. Returns whether the parent still exists.
pub(crate) fn die_with_parent_of(parent: u32) -> bool {
    die_with_parent();
    std::os::unix::process::parent_id() == parent
}

/// Allows other processes of the user to trace this one, as after exec(2).
pub(crate) fn set_dumpable() {
    // SAFETY: this prctl takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
}

/// Where Yama allows only ancestors to trace a process: allows `ancestor` and its descendants to trace this process,
/// before and after exec(2). Without Yama it does nothing.
pub(crate) fn allow_attach(ancestor: u32) {
    // SAFETY: this prctl takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(ancestor), 0, 0, 0) };
}

/// Blocks every signal that can be.
pub(crate) fn block_signals() {
    // SAFETY: sigfillset fills the set before it is read.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// Allows the kernel to delay timers of this process, and of its children, by up to `slack`.
pub(crate) fn set_timer_slack(slack: std::time::Duration) {
    let ns = libc::c_ulong::try_from(slack.as_nanos()).unwrap_or(libc::c_ulong::MAX);
    // SAFETY: prctl takes numbers only here.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns, 0, 0, 0) };
}

/// Names the process for `ps`.
pub(crate) fn set_name(name: &CStr) {
    // SAFETY: the pointer leads to a string that ends in NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// Sends a signal; whether the target exists and may be signalled. A negative `pid` is a process group.
pub(crate) fn kill(pid: i32, signal: i32) -> bool {
    // SAFETY: kill(2) takes numbers only. 0 and -1 would reach processes that are not meant.
    pid != 0 && pid != -1 && unsafe { libc::kill(pid, signal) } == 0
}

/// The session of a process.
pub(crate) fn session_of(pid: i32) -> Option<i32> {
    // SAFETY: getsid(2) takes a number only.
    let sid = unsafe { libc::getsid(pid) };
    (sid > 0).then_some(sid)
}

/// A descriptor that becomes readable when the process ends, whether or not its parent has reaped it.
///
/// # Errors
/// `ESRCH`: there is no such process any more.
pub fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open(2) takes numbers only and gives a new descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = RawFd::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given it to us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `struct pidfd_info` of linux/pidfd.h, first version (64 bytes).
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
}

const _: () = assert!(std::mem::size_of::<PidfdInfo>() == 64);

/// The wait status of a process that another process has reaped. Kernels before 6.15 do not report it.
pub(crate) fn exit_of_reaped(pidfd: BorrowedFd) -> Option<i32> {
    const PIDFD_INFO_EXIT: u64 = 1 << 3;
    let mut info = PidfdInfo {
        mask: PIDFD_INFO_EXIT,
        ..PidfdInfo::default()
    };
    // _IOWR(0xFF, 11, struct pidfd_info)
    let request = (3 << 30) | (64 << 16) | (0xFF << 8) | 11u32;
    // SAFETY: the request's size is that of `info`, which is live and writable.
    let rc = unsafe { libc::ioctl(pidfd.as_raw_fd(), request.into(), &raw mut info) };
    (rc == 0 && info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
}

/// Waits until one of the descriptors is ready or `timeout_ms` is over (-1: for ever).
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout_ms: i32) -> io::Result<()> {
    let count = libc::nfds_t::try_from(fds.len()).unwrap_or(0);
    // SAFETY: pointer and length describe a live slice.
    match check(unsafe { libc::poll(fds.as_mut_ptr(), count, timeout_ms) }) {
        Err(e) if e.raw_os_error() == Some(libc::EINTR) => {
            fds.iter_mut().for_each(|f| f.revents = 0);
            Ok(())
        }
        other => other.map(drop),
    }
}

/// Milliseconds since the machine booted, suspended time included.
pub(crate) fn boot_ms() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer leads to a live local.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut t) };
    number(t.tv_sec) * 1000 + number(t.tv_nsec) / 1_000_000
}

/// Clock ticks per second of /proc/PID/stat.
pub(crate) fn ticks_per_s() -> u64 {
    // SAFETY: sysconf takes a number only.
    number(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).max(1)
}

/// Seconds since the epoch as `2026-11-21T19:00:00` in the machine's time zone.
pub(crate) fn local_time(unix_s: i64) -> String {
    // SAFETY: an all-zero tm is a valid value of that C struct.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers lead to live locals.
    unsafe { libc::localtime_r(&raw const unix_s, &raw mut tm) };
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        tm.tm_year + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec
    )
}

/// Makes the terminal the controlling one of this session.
pub(crate) fn take_terminal(fd: RawFd) -> io::Result<()> {
    // SAFETY: TIOCSCTTY takes a number.
    check(unsafe { libc::ioctl(fd, libc::TIOCSCTTY, 0) }).map(drop)
}

/// Sets the size of a terminal.
pub(crate) fn set_window(fd: BorrowedFd, rows: u16, columns: u16) {
    let size = libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the pointer leads to a live local of the type that TIOCSWINSZ reads.
    unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
}

/// Files that fit a pattern, sorted.
pub(crate) fn glob(pattern: &str) -> Vec<String> {
    let Ok(pattern) = std::ffi::CString::new(pattern) else {
        return Vec::new();
    };
    // SAFETY: an all-zero glob_t is a valid empty one; the pattern lives through the call; on success the library gives
    // `gl_pathc` pointers to strings that live until globfree, which is called once and last.
    unsafe {
        let mut found: libc::glob_t = std::mem::zeroed();
        let mut paths = Vec::new();
        if libc::glob(pattern.as_ptr(), 0, None, &raw mut found) == 0 {
            for i in 0..found.gl_pathc {
                let path = CStr::from_ptr(*found.gl_pathv.add(i));
                paths.push(path.to_string_lossy().into_owned());
            }
        }
        libc::globfree(&raw mut found);
        paths
    }
}

/// Takes a write lock on a file that no other process may hold; kept until this process ends. Unlike flock(2),
/// forked children do not share it.
pub(crate) fn lock_file(fd: BorrowedFd) -> io::Result<()> {
    // SAFETY: an all-zero flock is valid: from the start to the end of the file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::c_short::try_from(libc::F_WRLCK).unwrap_or(1);
    // SAFETY: the pointer leads to a live local.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLK, &raw const lock) }).map(drop)
}

/// CPUs that this process may run on.
pub(crate) fn affinity() -> io::Result<CpuSet> {
    let mut words = vec![0u64; NODE_CPUS_MAX as usize / 64];
    // SAFETY: the length in bytes is that of the live buffer.
    let got = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            0,
            words.len() * 8,
            words.as_mut_ptr(),
        )
    };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    let set = |(word, cpu): (&u64, u32)| (word & (1 << (cpu % 64)) != 0).then_some(cpu);
    Ok((0..NODE_CPUS_MAX)
        .filter_map(|cpu| set((&words[(cpu / 64) as usize], cpu)))
        .collect())
}

/// Sets the CPUs that this process may run on.
pub(crate) fn set_affinity(cpus: &CpuSet) -> io::Result<()> {
    let words = bitmap(cpus);
    // SAFETY: the length in bytes is that of the live buffer, which the kernel only reads.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            0,
            words.len() * 8,
            words.as_ptr(),
        )
    };
    check(i32::try_from(rc).unwrap_or(-1)).map(drop)
}

/// Where a process's memory comes from, set_mempolicy(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryMode {
    /// Only from these NUMA domains.
    Bind,
    /// From the first of these while it has some.
    Prefer,
    /// Next to the CPU that asks.
    Local,
}

/// Sets the memory policy of this process; its children and programs inherit it.
pub(crate) fn set_memory_policy(mode: MemoryMode, domains: &CpuSet) -> io::Result<()> {
    // Numbers of linux/mempolicy.h.
    let number = match mode {
        MemoryMode::Prefer => 1,
        MemoryMode::Bind => 2,
        MemoryMode::Local => 4,
    };
    let words = bitmap(domains);
    let (nodes, bits) = match mode {
        MemoryMode::Local => (std::ptr::null(), 0),
        // The kernel uses one bit less than the given length.
        MemoryMode::Bind | MemoryMode::Prefer => (words.as_ptr(), words.len() * 64 + 1),
    };
    // SAFETY: the number of bits is that of the live buffer, which the kernel only reads.
    let rc = unsafe { libc::syscall(libc::SYS_set_mempolicy, number, nodes, bits) };
    check(i32::try_from(rc).unwrap_or(-1)).map(drop)
}

/// A set as a bit mask for the kernel. Domains of higher numbers do not exist.
pub(crate) fn bitmap(set: &CpuSet) -> Vec<u64> {
    let known = || set.iter().filter(|n| *n < NODE_CPUS_MAX);
    let highest = known().last().unwrap_or(0);
    let mut words = vec![0u64; (highest / 64 + 1) as usize];
    known().for_each(|n| words[(n / 64) as usize] |= 1 << (n % 64));
    words
}

fn check(rc: i32) -> io::Result<i32> {
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(rc)
    }
}
