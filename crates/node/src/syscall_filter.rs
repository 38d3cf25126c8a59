//! A filter of system calls (seccomp(2)) for the agent, which serves users and the network and starts nothing. It refuses calls
//! that the agent never makes and that would help an attacker who has taken it over most; all others are allowed.

use anyhow::Context as _;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};
use std::collections::BTreeMap;

/// Calls that fail with EPERM: execution of programs, other processes' memory and descriptors, mounts and name spaces, and
/// parts of the kernel that have often been a way to root.
const REFUSED: [libc::c_long; 31] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_mount_setattr,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_kexec_load,
    libc::SYS_open_by_handle_at,
    libc::SYS_personality,
];

/// Flags of clone(2) that make name spaces.
const NAME_SPACES: [libc::c_int; 8] = [
    libc::CLONE_NEWTIME,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Puts the filter on this process, which has one thread, for good.
///
/// # Errors
/// The kernel has no filters, or this machine's architecture is not known here.
pub(crate) fn apply() -> anyhow::Result<()> {
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    refused.insert(libc::SYS_clone, name_space_rules()?);
    seccompiler::apply_filter(&program(refused, libc::EPERM)?)?;
    // The flags of clone3(2) lie in memory, where no filter can look. The C library goes on with clone(2).
    let absent = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    seccompiler::apply_filter(&program(absent, libc::ENOSYS)?)?;
    seccompiler::apply_filter(&without_x32())?;
    Ok(())
}

/// System calls of the x32 ABI have the same architecture number, and call numbers from this bit on, which are in
/// none of the lists above.
fn without_x32() -> BpfProgram {
    const X32_BIT: u32 = 0x4000_0000;
    let (load_word, jump_if_at_least, give) = (0x20, 0x35, 0x06);
    let step = |code, jt, k| sock_filter { code, jt, jf: 0, k };
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    vec![
        // The number is the first field of a filter's input.
        step(load_word, 0, 0),
        step(jump_if_at_least, 1, X32_BIT),
        step(give, 0, libc::SECCOMP_RET_ALLOW),
        step(give, 0, refused),
    ]
}

/// One for each flag: rules are alternatives.
fn name_space_rules() -> anyhow::Result<Vec<SeccompRule>> {
    let rule = |flag: &libc::c_int| {
        let flag = u64::from(flag.unsigned_abs());
        let is_set = SeccompCmpOp::MaskedEq(flag);
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Qword, is_set, flag)?;
        Ok(SeccompRule::new(vec![condition])?)
    };
    NAME_SPACES.iter().map(rule).collect()
}

/// A filter that has these calls fail so. Calls by another calling convention end the process.
fn program(calls: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> anyhow::Result<BpfProgram> {
    let machine = TargetArch::try_from(std::env::consts::ARCH)
        .with_context(|| format!("no filter is known for {}", std::env::consts::ARCH))?;
    let fail = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, fail, machine)?;
    Ok(filter.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;
    use nix::sched::{CloneFlags, unshare};

    /// Where the kernel supports x32 calls, one of them executes a program.
    #[test]
    #[allow(unsafe_code)]
    fn calls_by_another_convention_are_refused() {
        let filtered = std::thread::spawn(|| {
            apply().unwrap();
            // SAFETY: getpid(2) takes no arguments.
            let pid = unsafe { libc::syscall(0x4000_0000 | libc::SYS_getpid) };
            (pid, Errno::last())
        });
        assert_eq!(filtered.join().unwrap(), (-1, Errno::EPERM));
    }

    /// Runs on its own thread, because a filter applies to its thread and to threads that it starts.
    #[test]
    fn programs_and_name_spaces_are_refused_and_threads_are_not() {
        let filtered = std::thread::spawn(|| {
            apply().unwrap();
            let program = std::process::Command::new("/bin/true").spawn();
            let name_space = unshare(CloneFlags::CLONE_NEWUSER);
            let thread = std::thread::spawn(|| std::fs::read("/proc/self/stat").is_ok()).join();
            (program.unwrap_err().raw_os_error(), name_space, thread.ok())
        });
        let (program, name_space, thread) = filtered.join().unwrap();
        assert_eq!(program, Some(libc::EPERM));
        assert_eq!(name_space, Err(Errno::EPERM));
        assert_eq!(thread, Some(true));
    }
}
