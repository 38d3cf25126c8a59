//! Executes this program's own file in another role, mostly as a user: there is always an exec
//! between root and a user, or between two users. The new process has nothing of this one's memory,
//! an empty environment unless one is given, and only the descriptors named here.

use crate::sys::{self, ExecArguments};
use muster_node_core::messages::ProcessIdentity;
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

/// User and group of processes without an account: a number that no account has. Processes of other
/// users must not be able to inspect or signal such a process; the user nobody is not suitable,
/// because it has jobs and system programs.
pub(crate) const NO_ACCOUNT: u32 = 65_530;

/// Descriptor of the order, which the role reads when it starts; other inherited descriptors
/// follow.
const ORDER_FD: RawFd = 3;
/// The first of the following descriptors.
pub(crate) const FIRST_FD: RawFd = 4;

/// A process to start.
pub(crate) struct Start<'a> {
    /// Its command line; the first word selects the role.
    pub(crate) words: &'a [&'a str],
    pub(crate) environment: Vec<CString>,
    /// The user that it becomes, if this process is root.
    pub(crate) user: &'a ProcessIdentity,
    /// Its order.
    pub(crate) order: Vec<u8>,
    /// Its standard error. If unset, it is /dev/null, like its other standard streams.
    pub(crate) errors: Option<RawFd>,
    /// No other process of the user may trace it or read its memory. For processes outside of a
    /// job: they have root's control groups and session, which the user would otherwise get through
    /// them.
    pub(crate) is_untraceable: bool,
    /// Descriptors to inherit, from [`FIRST_FD`] on.
    pub(crate) kept: Vec<RawFd>,
    /// It continues when this process ends.
    pub(crate) outlives: bool,
    /// The mount namespace to join, if not this process's.
    pub(crate) namespace: Option<RawFd>,
}

impl Start<'_> {
    /// Starts the process; returns its process id.
    pub(crate) fn start(self) -> io::Result<i32> {
        let order = memory_file(&self.order)?;
        let mut kept = vec![order.as_raw_fd()];
        kept.extend(&self.kept);
        let words = self.words.iter().map(|w| CString::new(*w));
        let words = ExecArguments::new(words.collect::<Result<_, _>>()?);
        let environment = ExecArguments::new(self.environment);
        let parent = Some(std::process::id()).filter(|_| !self.outlives);
        let is_agent = self.words.first() == Some(&AGENT_NAME);
        let is_host = self.words.first() == Some(&HOST_NAME);
        match sys::fork()? {
            sys::Fork::Parent(pid) => Ok(pid),
            sys::Fork::Child => {
                if is_host {
                    // A signal for the step must not end it before it blocks signals itself.
                    sys::block_signals();
                }
                // The standard streams of launcher and step daemon are /dev/null and the log.
                let errors = self.errors.unwrap_or(0);
                let failed = sys::dup_to(errors, 2)
                    .and_then(|()| join(self.namespace))
                    .and_then(|()| sys::keep_only(&kept))
                    .and_then(|()| {
                        if !is_agent {
                            sys::leave_protection();
                        }
                        match is_host {
                            true => sys::restore_dispositions(),
                            false => sys::restore_signals(),
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

/// The file of this program, even if another file has replaced it at its path.
pub(crate) const OWN_FILE: &CStr = c"/proc/self/exe";

fn join(namespace: Option<RawFd>) -> io::Result<()> {
    let joined = namespace.map_or(Ok(()), sys::bare::join_mount_namespace);
    joined.map_err(|e| io::Error::from_raw_os_error(e.0))
}

fn leave_root(user: &ProcessIdentity, parent: Option<u32>, is_untraceable: bool) -> io::Result<()> {
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

/// A memory file with these bytes, positioned at its start.
pub(crate) fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(sys::memory_file(c"muster-order")?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// In the new process: reads its order. Its inherited descriptors are closed at the next exec.
///
/// # Errors
/// The process was not started by this program.
pub(crate) fn read_order() -> io::Result<Vec<u8>> {
    if !sys::is_open(ORDER_FD) {
        return Err(io::Error::other("this program is started by Muster itself"));
    }
    sys::close_on_exec_from(3);
    let mut bytes = Vec::new();
    File::from(sys::adopt(ORDER_FD)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// In the new process: takes the descriptor with this number.
pub(crate) fn take_descriptor(fd: RawFd) -> io::Result<OwnedFd> {
    match sys::is_open(fd) {
        true => Ok(sys::adopt(fd)),
        false => Err(io::Error::other(format!("descriptor {fd} is missing"))),
    }
}
