//! The measuring process: it becomes an unprivileged user and forks, and both processes behave like
//! ranks. Their rights to each other are those of ranks of a step, which have the same user,
//! namespaces and ancestor, so that nothing has to be assumed.
#![allow(unsafe_code)]

use super::CrossMemory;
use crate::role::NO_ACCOUNT;
use crate::sys;
use std::fs;
use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// A message of this size is copied.
const MESSAGE: usize = 1 << 20;
/// Number of repetitions; the fastest counts, because other processes may use the machine.
const ROUNDS: u64 = 12;
/// Size of the pieces for copying through shared memory,
const PIECE: usize = 32 << 10;
/// and the number of pieces under way at a time.
const PIECES: usize = 8;
/// Time limit of the whole measurement, seconds.
const PATIENCE_S: u32 = 10;

/// Memory that both processes share.
#[repr(C)]
struct Shared {
    /// Pieces that the parent has written; the child removes them.
    put: AtomicU64,
    taken: AtomicU64,
    /// The round that the parent has released; the child waits for it.
    round: AtomicU64,
    /// The child's results: MB/s, and an errno.
    attach: AtomicU32,
    copy: AtomicU32,
    errno: AtomicU32,
    ring: [u8; PIECE * PIECES],
}

/// Prints the result of the measurement.
pub(crate) fn main() -> std::process::ExitCode {
    match measure() {
        Ok(found) => {
            println!("{found}");
            std::process::ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{e}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn measure() -> io::Result<CrossMemory> {
    if nix::unistd::geteuid().is_root() {
        sys::leave_protection();
        sys::become_user(NO_ACCOUNT, NO_ACCOUNT, &[])?;
        // As after exec(2): the change of user has made this process one that others may not
        // inspect.
        sys::set_dumpable();
    }
    // SAFETY: this sets a timer. Whatever goes wrong, neither process stays: the other goes with this one.
    unsafe { libc::alarm(PATIENCE_S) };
    let own = std::process::id();
    sys::allow_attach(own);
    let shared = map()?;
    let message = vec![1u8; MESSAGE];
    let pid = match sys::fork()? {
        sys::Fork::Child => {
            sys::die_with_parent();
            child(shared, own, &message);
            sys::exit_now(0)
        }
        sys::Fork::Parent(pid) => pid,
    };
    send(shared, &message);
    // SAFETY: a null status is allowed.
    unsafe { libc::waitpid(pid, null_mut(), 0) };
    Ok(match shared.errno.load(Ordering::Acquire) {
        0 => CrossMemory::Works {
            attach: shared.attach.load(Ordering::Acquire),
            copy: shared.copy.load(Ordering::Acquire),
        },
        errno => CrossMemory::Fails(reason(errno.cast_signed(), yama())),
    })
}

/// Memory for both, all zero.
fn map() -> io::Result<&'static Shared> {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_SHARED | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping of this size; zero is a valid value of each field; it is never unmapped.
    unsafe {
        let at = libc::mmap(null_mut(), size_of::<Shared>(), protection, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(&*at.cast::<Shared>())
    }
}

/// One round's measure: MB/s.
fn rate(from: Instant) -> u32 {
    let us = from.elapsed().as_micros().max(1);
    u32::try_from(MESSAGE as u128 / us).unwrap_or(u32::MAX)
}

fn slot(shared: &Shared, piece: u64) -> *mut u8 {
    let at = usize::try_from(piece).unwrap_or(0) % PIECES * PIECE;
    (&raw const shared.ring)
        .cast::<u8>()
        .cast_mut()
        .wrapping_add(at)
}

/// Waits as ranks do, but yields the CPU if there is only one.
fn wait_until(holds: impl Fn() -> bool) {
    let mut tries = 0u32;
    while !holds() {
        tries += 1;
        if tries.is_multiple_of(64) {
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

/// The parent's part of copying: puts the message into the ring, piece by piece, whenever the child begins a round.
fn send(shared: &Shared, message: &[u8]) {
    let per_round = (MESSAGE / PIECE) as u64;
    for round in 1..=ROUNDS {
        wait_until(|| shared.round.load(Ordering::Acquire) >= round);
        if shared.errno.load(Ordering::Acquire) != 0 {
            return;
        }
        for piece in (round - 1) * per_round..round * per_round {
            wait_until(|| piece - shared.taken.load(Ordering::Acquire) < PIECES as u64);
            let at = usize::try_from(piece % per_round).unwrap_or(0) * PIECE;
            // SAFETY: the slot is in the ring, and the child does not touch it until `put` says that it is full.
            unsafe {
                message[at..]
                    .as_ptr()
                    .copy_to_nonoverlapping(slot(shared, piece), PIECE)
            };
            shared.put.store(piece + 1, Ordering::Release);
        }
    }
}

fn child(shared: &Shared, parent: u32, message: &[u8]) {
    let mut target = vec![2u8; MESSAGE];
    let (mut attach, mut copy) = (0, 0);
    for _ in 0..ROUNDS {
        let from = Instant::now();
        if let Err(e) = read_from(parent, message, &mut target) {
            let errno = e.raw_os_error().unwrap_or(libc::EIO);
            shared.errno.store(errno.unsigned_abs(), Ordering::Release);
            // The parent waits for a round to begin.
            shared.round.store(ROUNDS, Ordering::Release);
            return;
        }
        attach = attach.max(rate(from));
    }
    let per_round = (MESSAGE / PIECE) as u64;
    for round in 1..=ROUNDS {
        let from = Instant::now();
        shared.round.store(round, Ordering::Release);
        for piece in (round - 1) * per_round..round * per_round {
            wait_until(|| shared.put.load(Ordering::Acquire) > piece);
            let at = usize::try_from(piece % per_round).unwrap_or(0) * PIECE;
            // SAFETY: the slot is in the ring, and the parent does not touch it until `taken` says that it is empty.
            unsafe { slot(shared, piece).copy_to_nonoverlapping(target[at..].as_mut_ptr(), PIECE) };
            shared.taken.store(piece + 1, Ordering::Release);
        }
        copy = copy.max(rate(from));
    }
    std::hint::black_box(&target);
    shared.attach.store(attach, Ordering::Release);
    shared.copy.store(copy, Ordering::Release);
}

/// Copies a message from the same address in the parent.
fn read_from(parent: u32, message: &[u8], target: &mut [u8]) -> io::Result<()> {
    let local = libc::iovec {
        iov_base: target.as_mut_ptr().cast(),
        iov_len: target.len(),
    };
    let remote = libc::iovec {
        iov_base: message.as_ptr().cast_mut().cast(),
        iov_len: message.len(),
    };
    // SAFETY: the local range is a live buffer of this process; the remote one is checked by the kernel.
    let read = unsafe {
        libc::process_vm_readv(
            parent.cast_signed(),
            &raw const local,
            1,
            &raw const remote,
            1,
            0,
        )
    };
    match usize::try_from(read) {
        Ok(n) if n == target.len() => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EIO)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// `kernel.yama.ptrace_scope`, if the kernel has it.
pub(crate) fn yama() -> Option<u32> {
    let text = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?;
    text.trim().parse().ok()
}

/// The reason why it does not work, and what would help.
fn reason(errno: i32, yama: Option<u32>) -> String {
    match (errno, yama) {
        (libc::ENOSYS, _) => {
            "the kernel has no process_vm_readv: build it with CONFIG_CROSS_MEMORY_ATTACH".to_owned()
        }
        (libc::EPERM, Some(3)) => {
            "kernel.yama.ptrace_scope is 3, which forbids it to everyone until the next boot".to_owned()
        }
        (libc::EPERM, Some(2)) => {
            "kernel.yama.ptrace_scope is 2, which takes CAP_SYS_PTRACE: set it to 0 or 1".to_owned()
        }
        (libc::EPERM, Some(1)) => {
            "kernel.yama.ptrace_scope is 1 and the kernel refused the exception for it (PR_SET_PTRACER): set it to 0".to_owned()
        }
        (libc::EPERM, _) => {
            "a security module or a filter of system calls forbids process_vm_readv between processes of a user"
                .to_owned()
        }
        (errno, _) => format!("process_vm_readv: {}", io::Error::from_raw_os_error(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_say_what_helps() {
        assert!(reason(libc::EPERM, Some(2)).contains("set it to 0 or 1"));
        assert!(reason(libc::EPERM, None).contains("security module"));
        assert!(reason(libc::ENOSYS, Some(1)).contains("CONFIG_CROSS_MEMORY_ATTACH"));
    }
}
