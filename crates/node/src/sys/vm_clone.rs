//! Children that share their parent's memory until they execute a program. A fork copies the parent's page tables,
//! and both processes then take a page fault for each page that they touch. For a child that does little between fork
//! and exec, this is most of the cost. vfork(2) copies nothing, but blocks the parent until the child executes: the
//! child already runs as the user, who could stop it and thereby the launcher. So here the parent continues. Each
//! child has its own stack, which is reused after the kernel reports that the child has left the memory.
//!
//! A child must not allocate, lock, panic or use the C library, not even `errno`; it uses [`super::bare`]. Other
//! processes of its user cannot read this memory: the kernel marks it as not dumpable when the child changes its
//! user, ptrace(2).

use std::collections::VecDeque;
use std::io;
use std::os::raw::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

/// Whether this platform has system calls without the C library, which shared memory requires. On other platforms
/// children are forked.
pub(super) const SHARES_MEMORY: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Bytes of a child's stack.
const STACK: usize = 64 * 1024;

/// Number of the oldest children that are checked for a free stack.
const LOOKED_AT: usize = 8;

/// Running children and their data, in the order of their starts.
pub(crate) struct VmCloneSpawner<T> {
    /// Boxed: the kernel holds the address of `alive`, and the child that of `work`.
    slots: VecDeque<Box<ChildSlot<T>>>,
}

struct ChildSlot<T> {
    /// The kernel sets it to 0 when the child has left this memory, by exec or exit.
    alive: AtomicI32,
    stack: *mut u8,
    work: Option<T>,
    child: fn(&mut T) -> !,
}

impl<T> Default for VmCloneSpawner<T> {
    fn default() -> VmCloneSpawner<T> {
        VmCloneSpawner::new()
    }
}

impl<T> VmCloneSpawner<T> {
    pub(crate) fn new() -> VmCloneSpawner<T> {
        VmCloneSpawner {
            slots: VecDeque::new(),
        }
    }

    /// Starts a child, which works with `work` until it executes a program or ends. Gives its process id.
    pub(crate) fn start(&mut self, work: T, child: fn(&mut T) -> !) -> io::Result<i32> {
        let mut slot = match self.take_free() {
            Some(slot) => slot,
            None => Box::new(ChildSlot::new(child)?),
        };
        slot.work = Some(work);
        slot.child = child;
        let started = slot.start();
        if started.is_err() {
            slot.alive.store(0, Ordering::Release);
        }
        self.slots.push_back(slot);
        started
    }

    fn take_free(&mut self) -> Option<Box<ChildSlot<T>>> {
        for _ in 0..self.slots.len().min(LOOKED_AT) {
            let slot = self.slots.pop_front()?;
            if slot.is_free() {
                return Some(slot);
            }
            self.slots.push_back(slot);
        }
        None
    }
}

impl<T> Drop for VmCloneSpawner<T> {
    fn drop(&mut self) {
        let busy = self.slots.drain(..).filter(|slot| !slot.is_free());
        // Running children still use them.
        busy.for_each(|slot| {
            Box::leak(slot);
        });
    }
}

impl<T> ChildSlot<T> {
    fn new(child: fn(&mut T) -> !) -> io::Result<ChildSlot<T>> {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let stack = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                STACK,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if stack == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(ChildSlot {
            alive: AtomicI32::new(0),
            stack: stack.cast(),
            work: None,
            child,
        })
    }

    fn is_free(&self) -> bool {
        self.alive.load(Ordering::Acquire) == 0
    }

    fn start(&mut self) -> io::Result<i32> {
        if !SHARES_MEMORY {
            return match super::fork()? {
                super::Fork::Child => child_main::<T>((&raw mut *self).cast()),
                super::Fork::Parent(pid) => Ok(pid),
            };
        }
        self.alive.store(1, Ordering::Release);
        let flags = libc::CLONE_VM | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD;
        // SAFETY: the stack is this child's alone, and it, the word and the work stay where they are until the kernel
        // has cleared the word, which it does when the child no longer uses this memory. `child_main` never returns.
        let pid = unsafe {
            libc::clone(
                child_main_c::<T>,
                self.stack.add(STACK).cast(),
                flags,
                (&raw mut *self).cast(),
                std::ptr::null_mut::<libc::pid_t>(),
                std::ptr::null_mut::<c_void>(),
                self.alive.as_ptr(),
            )
        };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(pid)
    }
}

impl<T> Drop for ChildSlot<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and no child runs on it: slots in use are leaked when their spawner is dropped.
        unsafe { libc::munmap(self.stack.cast(), STACK) };
    }
}

extern "C" fn child_main_c<T>(slot: *mut c_void) -> c_int {
    child_main::<T>(slot)
}

fn child_main<T>(slot: *mut c_void) -> ! {
    let slot = slot.cast::<ChildSlot<T>>();
    // SAFETY: the pointer is to a slot that stays at least as long as this child is in this memory; the parent does
    // not touch these fields meanwhile.
    let (work, child) = unsafe { (&mut (*slot).work, (*slot).child) };
    if let Some(work) = work {
        child(work)
    }
    super::bare::exit(1)
}

#[cfg(test)]
mod tests {
    use super::super::bare;
    use super::VmCloneSpawner;
    use std::ffi::{CString, OsStr};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    /// Waits for the other end of a FIFO, if there is one, and exits with a code.
    struct Task(Option<CString>, i32);

    fn wait_and_exit(task: &mut Task) -> ! {
        if let Some(path) = &task.0 {
            let _ = bare::open(path, libc::O_WRONLY, 0);
        }
        bare::exit(task.1)
    }

    fn exit_of(pid: i32) -> i32 {
        let mut status = 0;
        // SAFETY: the pointer leads to a live local.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn one_that_hangs_keeps_neither_the_parent_nor_others() {
        let path = CString::new(format!("/tmp/muster-vm-clone.{}", std::process::id())).unwrap();
        nix::unistd::mkfifo(path.as_c_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let file = Path::new(OsStr::from_bytes(path.to_bytes()));
        let mut spawner = VmCloneSpawner::new();
        let hangs = spawner
            .start(Task(Some(path.clone()), 1), wait_and_exit)
            .unwrap();
        for code in 0..100 {
            let pid = spawner.start(Task(None, code), wait_and_exit).unwrap();
            assert_eq!(exit_of(pid), code);
        }
        // The stack of the child that has ended is used for the next.
        assert_eq!(spawner.slots.len(), 2);
        std::fs::read(file).unwrap();
        assert_eq!(exit_of(hangs), 1);
        std::fs::remove_file(file).unwrap();
    }
}
