//! Starts this program's own file afresh in another role, mostly as a user: between root and a user, or two users, there is
//! always an exec. The new process has nothing of this one's memory, an empty environment unless one is given, and only
//! the descriptors that are named here.

use crate::sys::{self, Words};
use muster_node_core::messages::User;
use nix::unistd::{Uid, chdir};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Name under which the binary's own executable is started as an agent.
pub const AGENT_NAME: &str = "muster-agent";
/// Name under which the binary's own executable is started as a launcher.
pub const LAUNCHER_NAME: &str = "muster-shim";
/// Name under which the binary's own executable is started as a step daemon.
pub const STEPD_NAME: &str = "muster-stepd";
/// Name under which the binary's own executable is started as a PMIx host.
pub const HOST_NAME: &str = "muster-pmix";
/// Name under which the binary's own executable is started as a relay.
pub const RELAY_NAME: &str = "muster-relay";
/// Name under which the binary's own executable is started to make a credential.
pub const CREDENTIAL_NAME: &str = "muster-credential";
/// Name under which the binary's own executable is started to make tokens of auth/slurm for users.
pub const SACK_NAME: &str = "muster-sack";

/// A user and group of processes that are nobody's: a number that no account has. No process of others may look into such a one or signal
/// it, and there are such of the user nobody: jobs, and programs of the system.
pub(crate) const NO_ACCOUNT: u32 = 65_530;

/// Descriptor of the order, which the role reads when it starts; what else it keeps follows.
const ORDER_FD: RawFd = 3;
/// The first descriptor that follows.
pub(crate) const FIRST_FD: RawFd = 4;

/// A process that is to be started.
pub(crate) struct Start<'a> {
    /// Its command line; the first word says which role it is.
    pub(crate) words: &'a [&'a str],
    pub(crate) environment: Vec<CString>,
    /// Whom it becomes, where this process is root.
    pub(crate) user: &'a User,
    /// Its order.
    pub(crate) order: Vec<u8>,
    /// What it gets as its standard error. Otherwise that is /dev/null, as its other standard streams are.
    pub(crate) errors: Option<RawFd>,
    /// No other process of the user's may trace it or read its memory. For what is not in a job: it has root's control groups and
    /// session, which the user would get by it.
    pub(crate) is_untraceable: bool,
    /// Descriptors from [`FIRST_FD`] on.
    pub(crate) kept: Vec<RawFd>,
    /// It goes on when this process is gone.
    pub(crate) outlives: bool,
    /// The mount namespace that it joins, if another than this process's.
    pub(crate) namespace: Option<RawFd>,
}

impl Start<'_> {
    /// Starts it; gives its process id.
    pub(crate) fn start(self) -> io::Result<i32> {
        let order = memory_file(&self.order)?;
        let mut kept = vec![order.as_raw_fd()];
        kept.extend(&self.kept);
        let words = self.words.iter().map(|w| CString::new(*w));
        let words = Words::new(words.collect::<Result<_, _>>()?);
        let environment = Words::new(self.environment);
        let parent = Some(std::process::id()).filter(|_| !self.outlives);
        let is_agent = self.words.first() == Some(&AGENT_NAME);
        match sys::fork()? {
            sys::Fork::Parent(pid) => Ok(pid),
            sys::Fork::Child => {
                // The standard streams of launcher and step daemon are /dev/null and the log.
                let errors = self.errors.unwrap_or(0);
                let failed = sys::dup_to(errors, 2)
                    .and_then(|()| join(self.namespace))
                    .and_then(|()| sys::keep_only(&kept))
                    .and_then(|()| {
                        if !is_agent {
                            sys::leave_protection();
                        }
                        leave_root(self.user, parent, self.is_untraceable)
                    });
                let e = match failed {
                    Ok(()) => sys::exec(OWN_FILE, &words, &environment).into(),
                    Err(e) => e,
                };
                let _ = writeln!(io::stderr(), "it cannot be started: {e}");
                sys::exit_now(1)
            }
        }
    }
}

/// The file of this program, also where another has taken its place.
pub(crate) const OWN_FILE: &CStr = c"/proc/self/exe";

fn join(namespace: Option<RawFd>) -> io::Result<()> {
    let joined = namespace.map_or(Ok(()), sys::bare::join_mount_namespace);
    joined.map_err(|e| io::Error::from_raw_os_error(e.0))
}

fn leave_root(user: &User, parent: Option<u32>, is_untraceable: bool) -> io::Result<()> {
    sys::restore_signals();
    sys::restore_file_limit();
    if Uid::effective().is_root() {
        match is_untraceable {
            true => sys::become_untraceable_user(user.uid, user.gid, &user.groups)?,
            false => sys::become_user(user.uid, user.gid, &user.groups)?,
        }
    }
    sys::refuse_privileges()?;
    if parent.is_some_and(|parent| !sys::die_with_parent_of(parent)) {
        return Err(io::Error::other("its parent is gone"));
    }
    Ok(chdir("/")?)
}

/// Bytes as a file in memory, open at its start.
pub(crate) fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(sys::memory_file(c"muster-order")?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// In the new process: its order. The descriptors that it was given are closed at the next exec.
///
/// # Errors
/// It was started by somebody else.
pub(crate) fn read_order() -> io::Result<Vec<u8>> {
    if !sys::is_open(ORDER_FD) {
        return Err(io::Error::other("this program is started by Muster itself"));
    }
    sys::close_on_exec_from(3);
    let mut bytes = Vec::new();
    File::from(sys::adopt(ORDER_FD)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// In the new process: takes the descriptor of this number.
pub(crate) fn take_descriptor(fd: RawFd) -> io::Result<OwnedFd> {
    match sys::is_open(fd) {
        true => Ok(sys::adopt(fd)),
        false => Err(io::Error::other(format!("descriptor {fd} is missing"))),
    }
}
