//! The heap. A command lives for a millisecond and takes the C library's, which is there anyway. The controller's threads
//! hand each other everything that happens: what one allocates another frees, for which the C library's heap takes two
//! fifths of all time. It gets mimalloc, which is made for that; so does the agent, a quarter of whose time for a step went
//! to the C library's heap. Its own set-up before `main` is compiled out
//! (`.cargo/config.toml`), because commands would pay for it too; without that setting it only happens twice.

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Set once, before the first allocation: all memory of a process is from one heap.
static DAEMON: AtomicBool = AtomicBool::new(false);

/// The process's heap.
pub(crate) struct Heap;

/// This process is a controller or an agent. To be called first of all, while nothing has been allocated.
#[cfg_attr(test, allow(dead_code))]
pub(crate) fn of_a_daemon() {
    // SAFETY: sets the heap up, once or again, while there is one thread.
    #[allow(unsafe_code)]
    unsafe {
        _mi_auto_process_init();
    }
    DAEMON.store(true, Relaxed);
}

// SAFETY: what mimalloc's set-up before `main` calls, if it is not compiled out.
#[allow(unsafe_code)]
unsafe extern "C" {
    fn _mi_auto_process_init();
}

// SAFETY: each call goes to one of two heaps that keep the contract, and always to the same one, since the choice is
// made before the first call.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        unsafe {
            match DAEMON.load(Relaxed) {
                true => MiMalloc.alloc(layout),
                false => System.alloc(layout),
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        unsafe {
            match DAEMON.load(Relaxed) {
                true => MiMalloc.alloc_zeroed(layout),
                false => System.alloc_zeroed(layout),
            }
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe {
            match DAEMON.load(Relaxed) {
                true => MiMalloc.dealloc(at, layout),
                false => System.dealloc(at, layout),
            }
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        unsafe {
            match DAEMON.load(Relaxed) {
                true => MiMalloc.realloc(at, layout, size),
                false => System.realloc(at, layout, size),
            }
        }
    }
}
