//! The commands' heap. The C library's gives every few pages back and asks for them again; and a lock of the C library
//! around each call takes longer than the call. Here the lock is one exchange of a byte: there is hardly ever a second thread.

#![allow(unsafe_code)]

use dlmalloc::Dlmalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// A heap for all threads.
pub(crate) struct Heap {
    taken: AtomicBool,
    inner: UnsafeCell<Dlmalloc>,
}

// SAFETY: `inner` is used by who has set `taken`, and by nobody else.
unsafe impl Sync for Heap {}

impl Heap {
    pub(crate) const fn new() -> Heap {
        Heap {
            taken: AtomicBool::new(false),
            inner: UnsafeCell::new(Dlmalloc::new()),
        }
    }

    #[inline]
    fn with<T>(&self, act: impl FnOnce(&mut Dlmalloc) -> T) -> T {
        while self.taken.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        // SAFETY: nobody else gets here until `taken` is given back, and nothing that `act` does unwinds or comes back here.
        let result = act(unsafe { &mut *self.inner.get() });
        self.taken.store(false, Ordering::Release);
        result
    }
}

// SAFETY: the heap's own promises.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise of a layout.
        self.with(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise that `place` came from here with this layout.
        self.with(|heap| unsafe { heap.free(place, layout.size(), layout.align()) });
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise of a layout.
        self.with(|heap| unsafe { heap.calloc(layout.size(), layout.align()) })
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise that `place` came from here with this layout.
        self.with(|heap| unsafe { heap.realloc(place, layout.size(), layout.align(), size) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_it() {
        static HEAP: Heap = Heap::new();
        let layout = Layout::from_size_align(48, 16).unwrap();
        let fill = |byte: u8| {
            for _ in 0..2000 {
                // SAFETY: what is got is as large as the layout says, and given back once.
                unsafe {
                    let place = HEAP.alloc(layout);
                    place.write_bytes(byte, 48);
                    let place = HEAP.realloc(place, layout, 4000);
                    let got = std::slice::from_raw_parts(place, 48);
                    assert!(got.iter().all(|b| *b == byte));
                    HEAP.dealloc(place, Layout::from_size_align(4000, 16).unwrap());
                }
            }
        };
        std::thread::scope(|scope| {
            for byte in 1..5 {
                scope.spawn(move || fill(byte));
            }
        });
    }
}
