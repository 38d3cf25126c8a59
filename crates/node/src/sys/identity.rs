//! User, groups and capabilities of a process, and protection against tracing.

use super::check;
use muster_node_core::messages::ProcessIdentity;
use std::io;

/// Gives up root for a user permanently, see [`muster_script::identity::become_user`]. For processes with one thread.
pub(crate) fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    let became = muster_script::identity::become_user(uid, gid, groups);
    became.map_err(|e| io::Error::from_raw_os_error(e.0))
}

/// Calls `act` with the effective identity of a user, then returns this thread to root. The kernel so checks the
/// user's permissions for paths that the user names, and the user's file systems see the user as caller.
///
/// # Errors
/// This thread cannot change its identity.
///
/// # Panics
/// This thread cannot change its identity back.
pub(crate) fn acting_as<T>(user: &ProcessIdentity, act: impl FnOnce() -> T) -> io::Result<T> {
    let own_groups = nix::unistd::getgroups()?;
    let own_groups: Vec<u32> = own_groups.iter().map(|group| group.as_raw()).collect();
    let own_gid = nix::unistd::getegid().as_raw();
    let taken = set_groups(&user.groups)
        .and_then(|()| set_effective(libc::SYS_setresgid, user.gid))
        .and_then(|()| set_effective(libc::SYS_setresuid, user.uid));
    let result = taken.map(|()| act());
    // The real and the saved user stay root, so the user cannot trace this process meanwhile.
    let restored = set_effective(libc::SYS_setresuid, 0)
        .and_then(|()| set_effective(libc::SYS_setresgid, own_gid))
        .and_then(|()| set_groups(&own_groups))
        .and_then(|()| set_undumpable());
    restored.expect("a process whose saved user is root may become root again");
    result
}

/// Sets an effective identity of this thread.
fn set_effective(call: libc::c_long, id: u32) -> io::Result<()> {
    if id == u32::MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: both calls take numbers only; -1 leaves an identity as it is.
    let rc = unsafe { libc::syscall(call, -1, id, -1) };
    check(i32::try_from(rc).unwrap_or(-1)).map(drop)
}

/// Sets the groups of this thread.
fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the length is that of the live slice, which the kernel only reads.
    let rc = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    check(i32::try_from(rc).unwrap_or(-1)).map(drop)
}

/// Capabilities that a process keeps so that other processes of its user cannot trace it. They are harmless, and no
/// program here uses them. Users may have some of them (systemd grants CAP_WAKE_ALARM to local sessions), but hardly
/// one of [`RARE`].
const HARMLESS: [u32; 4] = [
    10, // CAP_NET_BIND_SERVICE
    29, // CAP_AUDIT_WRITE
    35, // CAP_WAKE_ALARM
    36, // CAP_BLOCK_SUSPEND
];
/// Capabilities among [`HARMLESS`] that no user has.
const RARE: u64 = 1 << 29 | 1 << 36;

/// Becomes a user permanently, like [`become_user`], and prevents other processes of the user from tracing this one,
/// even after it has executed a program. It keeps harmless capabilities: the kernel lets no process trace another
/// that has more capabilities (ptrace(2), "Ptrace access mode checking").
///
/// # Errors
/// Those of [`become_user`]; root has none of these capabilities here.
pub(crate) fn become_untraceable_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    if uid == 0 {
        return become_user(uid, gid, groups);
    }
    let [permitted, ..] = capabilities()?;
    let kept = HARMLESS.into_iter().filter(|c| permitted >> c & 1 == 1);
    let kept: Vec<u32> = kept.collect();
    let set_of_kept: u64 = kept.iter().map(|c| 1 << c).sum();
    if set_of_kept & RARE == 0 {
        return Err(io::Error::other(
            "root has no capability that keeps other processes of the user's out",
        ));
    }
    // SAFETY: these take numbers only.
    let set = |option, value: libc::c_ulong| check(unsafe { libc::prctl(option, value, 0, 0, 0) });
    set(libc::PR_SET_KEEPCAPS, 1)?;
    become_user(uid, gid, groups)?;
    set(libc::PR_SET_KEEPCAPS, 0)?;
    set_capabilities(set_of_kept)?;
    let raise = libc::c_ulong::from(libc::PR_CAP_AMBIENT_RAISE.unsigned_abs());
    for capability in kept {
        let capability = libc::c_ulong::from(capability);
        // SAFETY: takes numbers only.
        check(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, raise, capability, 0, 0) })?;
    }
    Ok(())
}

/// capget(2): the version with 64 bits, in two halves.
const CAPABILITIES_VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
struct CapabilityHalf {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// The capabilities of this thread: permitted, effective, inheritable.
fn capabilities() -> io::Result<[u64; 3]> {
    let mut header = CapabilityHeader {
        version: CAPABILITIES_VERSION,
        pid: 0,
    };
    let mut halves = [CapabilityHalf::default(); 2];
    // SAFETY: this version of the call writes two halves, which are there.
    let rc = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, halves.as_mut_ptr()) };
    check(i32::try_from(rc).unwrap_or(-1))?;
    let [low, high] = halves;
    let joined = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    Ok([
        joined(low.permitted, high.permitted),
        joined(low.effective, high.effective),
        joined(low.inheritable, high.inheritable),
    ])
}

/// Limits this thread to these capabilities: permitted and inheritable, none effective.
fn set_capabilities(kept: u64) -> io::Result<()> {
    let mut header = CapabilityHeader {
        version: CAPABILITIES_VERSION,
        pid: 0,
    };
    let half = |shift: u32| {
        let bits = u32::try_from(kept >> shift & u64::from(u32::MAX)).unwrap_or(0);
        CapabilityHalf {
            effective: 0,
            permitted: bits,
            inheritable: bits,
        }
    };
    let halves = [half(0), half(32)];
    // SAFETY: this version of the call reads two halves, which are there.
    let rc = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, halves.as_ptr()) };
    check(i32::try_from(rc).unwrap_or(-1)).map(drop)
}

/// Until the next exec: prevents unprivileged processes from tracing this one, and prevents core dumps.
pub(crate) fn set_undumpable() -> io::Result<()> {
    // SAFETY: this prctl takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }).map(drop)
}

/// Prevents, permanently, programs that this process executes from gaining privileges by set-user-ID bits or file
/// capabilities.
pub(crate) fn refuse_privileges() -> io::Result<()> {
    // SAFETY: this prctl takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command, Stdio};

    const UID: u32 = 65_533;

    fn sleeper(become_one: fn(u32, u32, &[u32]) -> io::Result<()>) -> Child {
        let mut command = Command::new("sleep");
        command.arg("600");
        // SAFETY: system calls only.
        unsafe { command.pre_exec(move || become_one(UID, UID, &[])) };
        command.spawn().unwrap()
    }

    /// Whether a process of that user may read its memory, which takes the same right as tracing it.
    fn may_read(pid: u32) -> bool {
        let mut dd = Command::new("dd");
        dd.arg(format!("if=/proc/{pid}/mem")).arg("count=0");
        dd.uid(UID).gid(UID);
        dd.stderr(Stdio::null()).status().unwrap().success()
    }

    /// Earlier, a user wrote a message for a job from a process in root's session and groups by tracing it, and so
    /// started processes that outlived all jobs.
    #[test]
    fn a_process_of_the_user_may_not_be_traced() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("only root becomes others; this test looked at nothing");
            return;
        }
        let mut plain = sleeper(become_user);
        assert!(may_read(plain.id()));
        plain.kill().unwrap();
        plain.wait().unwrap();
        let mut kept_out = sleeper(become_untraceable_user);
        let status = std::fs::read_to_string(format!("/proc/{}/status", kept_out.id())).unwrap();
        assert!(
            status.contains(&format!("Uid:\t{UID}\t{UID}\t{UID}\t{UID}")),
            "{status}"
        );
        assert!(!may_read(kept_out.id()));
        kept_out.kill().unwrap();
        kept_out.wait().unwrap();
    }
}
