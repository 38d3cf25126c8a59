//! A process that keeps to the CPU that it is on for a moment. The kernel starts a child on an idle CPU, and wakes what has
//! slept on one, if there is any. Where the parent has nothing to do meanwhile, that only costs the time which that CPU takes
//! to wake up: tens of microseconds under a hypervisor.

use super::check;
use std::io;

/// Words of the longest set of CPUs that Linux has.
const WORDS: usize = 8192 / 64;

/// Where a process may run that keeps to one CPU now.
pub(crate) struct SavedAffinity {
    words: [u64; WORDS],
    /// So many of them there are.
    len: usize,
}

/// Keeps this process, and what comes of it, to the CPU that it is on. Gives what undoes that; nothing where it stays as it
/// was.
pub(crate) fn pin_to_current_cpu() -> Option<SavedAffinity> {
    // SAFETY: no arguments.
    let cpu = usize::try_from(unsafe { libc::sched_getcpu() }).ok()?;
    let mut words = [0u64; WORDS];
    // SAFETY: the length in bytes is that of the live buffer.
    let got = unsafe {
        let bytes = size_of_val(&words[..]);
        libc::syscall(libc::SYS_sched_getaffinity, 0, bytes, words.as_mut_ptr())
    };
    // It tells how many bytes the kernel's own sets have.
    let len = usize::try_from(got).ok()? / 8;
    let mut here = [0u64; WORDS];
    *here.get_mut(cpu / 64)? |= 1 << (cpu % 64);
    // There is nowhere else to go to.
    if words == here {
        return None;
    }
    set(here.get(..len)?).ok()?;
    Some(SavedAffinity { words, len })
}

impl SavedAffinity {
    /// Lets this process run on those CPUs again. Allocates nothing.
    pub(crate) fn restore(&self) {
        if set(&self.words[..self.len]).is_err() {
            // None of those is its any more: all that are.
            let _ = set(&[u64::MAX; WORDS]);
        }
    }
}

fn set(words: &[u64]) -> io::Result<()> {
    // SAFETY: the length in bytes is that of the live buffer, which the kernel only reads.
    let rc = unsafe {
        let bytes = size_of_val(words);
        libc::syscall(libc::SYS_sched_setaffinity, 0, bytes, words.as_ptr())
    };
    check(i32::try_from(rc).unwrap_or(-1)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread of its own, which is what a set belongs to.
    #[test]
    fn it_stays_and_leaves() {
        let stays = || {
            let before = crate::sys::affinity().unwrap();
            match pin_to_current_cpu() {
                Some(saved) => {
                    assert_eq!(crate::sys::affinity().unwrap().len(), 1);
                    assert!(pin_to_current_cpu().is_none(), "it is kept already");
                    saved.restore();
                }
                None => assert_eq!(before.len(), 1),
            }
            assert_eq!(crate::sys::affinity().unwrap(), before);
        };
        std::thread::spawn(stays).join().unwrap();
    }
}
