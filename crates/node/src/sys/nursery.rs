//! Children that share their parent's memory until they execute a program. A fork copies the parent's page tables, and
//! both sides then take a fault for each page that they touch; for a process that does hardly anything between fork
//! and exec, that is most of its cost. vfork(2) copies nothing, but stops the parent until the child executes: a user
//! who stops the child, which already runs under their name, would stop the shim. So here both go on, and each child
//! has a stack of its own, which is used again when the kernel says that the child has left this memory.
//!
//! A child must not allocate, lock, panic or use the C library, not even `errno`: [`super::bare`] has what it needs.
//! Other processes of its user cannot look into this memory: the kernel marks it so when the child takes the user's
//! name, ptrace(2).

use std::collections::VecDeque;
use std::io;
use std::os::raw::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

/// Whether system calls are made without the C library here, so that memory can be shared. Elsewhere children are
/// forked.
pub(super) const SHARES_MEMORY: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Bytes of a child's stack.
const STACK: usize = 64 * 1024;

/// How many of the oldest children are looked at for a stack that is free again.
const LOOKED_AT: usize = 8;

/// Children that were started and what they work with, the one that was started last at the back.
pub(crate) struct Nursery<T> {
    /// Boxed: the kernel holds the address of `alive`, and the child that of `work`.
    cradles: VecDeque<Box<Cradle<T>>>,
}

struct Cradle<T> {
    /// Set to 0 by the kernel when the child has left this memory, by exec or exit.
    alive: AtomicI32,
    stack: *mut u8,
    work: Option<T>,
    child: fn(&mut T) -> !,
}

impl<T> Default for Nursery<T> {
    fn default() -> Nursery<T> {
        Nursery::new()
    }
}

impl<T> Nursery<T> {
    pub(crate) fn new() -> Nursery<T> {
        Nursery {
            cradles: VecDeque::new(),
        }
    }

    /// Starts a child, which works with `work` until it executes a program or ends. Gives its process id.
    pub(crate) fn start(&mut self, work: T, child: fn(&mut T) -> !) -> io::Result<i32> {
        let mut cradle = match self.take_free() {
            Some(cradle) => cradle,
            None => Box::new(Cradle::new(child)?),
        };
        cradle.work = Some(work);
        cradle.child = child;
        let started = cradle.start();
        if started.is_err() {
            cradle.alive.store(0, Ordering::Release);
        }
        self.cradles.push_back(cradle);
        started
    }

    fn take_free(&mut self) -> Option<Box<Cradle<T>>> {
        for _ in 0..self.cradles.len().min(LOOKED_AT) {
            let cradle = self.cradles.pop_front()?;
            if cradle.is_free() {
                return Some(cradle);
            }
            self.cradles.push_back(cradle);
        }
        None
    }
}

impl<T> Drop for Nursery<T> {
    fn drop(&mut self) {
        let busy = self.cradles.drain(..).filter(|cradle| !cradle.is_free());
        // Their children still work with them.
        busy.for_each(|cradle| {
            Box::leak(cradle);
        });
    }
}

impl<T> Cradle<T> {
    fn new(child: fn(&mut T) -> !) -> io::Result<Cradle<T>> {
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
        Ok(Cradle {
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
                super::Fork::Child => grow_up::<T>((&raw mut *self).cast()),
                super::Fork::Parent(pid) => Ok(pid),
            };
        }
        self.alive.store(1, Ordering::Release);
        let flags = libc::CLONE_VM | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD;
        // SAFETY: the stack is this child's alone, and it, the word and the work stay where they are until the kernel
        // has cleared the word, which it does when the child no longer uses this memory. `grow_up` never returns.
        let pid = unsafe {
            libc::clone(
                grow_up_c::<T>,
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

impl<T> Drop for Cradle<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and no child runs on it: those of a nursery that goes are leaked.
        unsafe { libc::munmap(self.stack.cast(), STACK) };
    }
}

extern "C" fn grow_up_c<T>(cradle: *mut c_void) -> c_int {
    grow_up::<T>(cradle)
}

fn grow_up<T>(cradle: *mut c_void) -> ! {
    let cradle = cradle.cast::<Cradle<T>>();
    // SAFETY: the pointer is to a cradle that stays at least as long as this child is in this memory; the parent does
    // not touch these fields meanwhile.
    let (work, child) = unsafe { (&mut (*cradle).work, (*cradle).child) };
    if let Some(work) = work {
        child(work)
    }
    super::bare::exit(1)
}

#[cfg(test)]
mod tests {
    use super::super::bare;
    use super::Nursery;
    use std::ffi::{CString, OsStr};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    /// Waits for a FIFO's other end, if there is one, and ends with a code.
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
        let path = CString::new(format!("/tmp/muster-nursery.{}", std::process::id())).unwrap();
        nix::unistd::mkfifo(path.as_c_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let file = Path::new(OsStr::from_bytes(path.to_bytes()));
        let mut nursery = Nursery::new();
        let hangs = nursery
            .start(Task(Some(path.clone()), 1), wait_and_exit)
            .unwrap();
        for code in 0..100 {
            let pid = nursery.start(Task(None, code), wait_and_exit).unwrap();
            assert_eq!(exit_of(pid), code);
        }
        // Who was waited for has left its stack to the next.
        assert_eq!(nursery.cradles.len(), 2);
        std::fs::read(file).unwrap();
        assert_eq!(exit_of(hangs), 1);
        std::fs::remove_file(file).unwrap();
    }
}
