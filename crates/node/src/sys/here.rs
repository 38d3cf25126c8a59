//! A process that keeps to the CPU that it is on for a moment. The kernel starts a child on an idle CPU, and wakes what has
//! slept on one, if there is any. Where the parent has nothing to do meanwhile, that only costs the time which that CPU takes
//! to wake up: tens of microseconds under a hypervisor.

use super::check;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Words of the longest set of CPUs that Linux has.
const WORDS: usize = 8192 / 64;

/// Where a process may run that keeps to one CPU now.
pub(crate) struct Elsewhere {
    words: [u64; WORDS],
    /// So many of them there are.
    len: usize,
}

/// Keeps this process, and what comes of it, to the CPU that it is on. Gives what undoes that; nothing where it stays as it
/// was.
pub(crate) fn keep_here() -> Option<Elsewhere> {
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
    Some(Elsewhere { words, len })
}

impl Elsewhere {
    /// Lets this process run there again. Allocates nothing.
    pub(crate) fn again(&self) {
        if set(&self.words[..self.len]).is_err() {
            // None of those is its any more: all that are.
            let _ = set(&[u64::MAX; WORDS]);
        }
    }
}

/// Whether this process mostly waits for a CPU before it gets one: then there is no idle one that a child would be started on,
/// and to keep it from there would cost four calls for nothing.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// What the kernel tells of it: proc(5), `/proc/[pid]/schedstat`.
    file: Option<File>,
    waited_ns: u64,
    asked: u32,
    is_one: bool,
}

impl Crowd {
    /// So often it is looked how it was, since to look costs about as much as is saved.
    const EACH: u32 = 8;
    /// Who waits for longer each time is in a crowd.
    const WAIT_NS: u64 = 200_000;

    /// As far as is known, in a process that does the same thing each time it asks.
    pub(crate) fn is_one(&mut self) -> bool {
        self.asked += 1;
        if self.asked >= Self::EACH {
            let waited_ns = self.waited_ns().unwrap_or(self.waited_ns);
            self.judge(waited_ns);
        }
        self.is_one
    }

    fn judge(&mut self, waited_ns: u64) {
        let since = waited_ns.saturating_sub(self.waited_ns);
        self.is_one = since > Self::WAIT_NS * u64::from(self.asked);
        (self.waited_ns, self.asked) = (waited_ns, 0);
    }

    /// How long this process has waited with work to do, in all.
    fn waited_ns(&mut self) -> Option<u64> {
        if self.file.is_none() {
            self.file = File::open("/proc/self/schedstat").ok();
        }
        let mut text = [0; 64];
        let length = self.file.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = str::from_utf8(text.get(..length)?).ok()?;
        text.split_whitespace().nth(1)?.parse().ok()
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

    #[test]
    fn who_waits_long_each_time_is_in_a_crowd() {
        let mut crowd = Crowd::default();
        let mut told = |times, waited_ns| {
            crowd.asked = times;
            crowd.judge(waited_ns);
            crowd.is_one
        };
        assert!(!told(8, 8 * Crowd::WAIT_NS));
        assert!(told(8, 17 * Crowd::WAIT_NS));
        assert!(!told(8, 17 * Crowd::WAIT_NS));
        assert!(told(1, 19 * Crowd::WAIT_NS));
        let waited_ns = Crowd::default().waited_ns();
        let has_file = std::path::Path::new("/proc/self/schedstat").exists();
        assert_eq!(waited_ns.is_some(), has_file);
    }

    /// In a thread of its own, which is what a set belongs to.
    #[test]
    fn it_stays_and_leaves() {
        let stays = || {
            let before = crate::sys::affinity().unwrap();
            match keep_here() {
                Some(elsewhere) => {
                    assert_eq!(crate::sys::affinity().unwrap().len(), 1);
                    assert!(keep_here().is_none(), "it is kept already");
                    elsewhere.again();
                }
                None => assert_eq!(before.len(), 1),
            }
            assert_eq!(crate::sys::affinity().unwrap(), before);
        };
        std::thread::spawn(stays).join().unwrap();
    }
}
