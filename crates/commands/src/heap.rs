//! The commands' heap. The C library's gives every few pages back and asks for them again; and a lock of the C library
//! around each call takes longer than the call. Here each thread keeps what is not large for itself: a list of free pieces
//! for each size, which takes a few instructions where an allocator that joins neighbours takes a hundred. A command makes
//! some thousand of them in a life of a third of a millisecond, and mostly needs no more than what it has from the start.
//! What is large comes from one heap for all threads, whose lock is one exchange of a byte.

#![allow(unsafe_code)]

use dlmalloc::Dlmalloc;
use nix::libc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

/// Every piece lies at a multiple of this.
const STEP: usize = 16;
/// Sizes up to this one are rounded up to a multiple of `STEP`, those above to a power of two.
const FINE: usize = 512;
/// What is longer is large.
const LONGEST: usize = 8 << 10;
/// So many sizes there are.
const CLASSES: usize = FINE / STEP + (LONGEST / FINE).ilog2() as usize;
/// So much is taken at once, to be cut into pieces.
const BLOCK: usize = 64 << 10;

/// So much of the first block hardly any command does without. The kernel gives it at once: page by page, as each is
/// touched, takes it four times as long.
const NEEDED: usize = 20 << 10;

/// A heap for all threads.
pub(crate) struct Heap {
    taken: AtomicBool,
    inner: UnsafeCell<Dlmalloc>,
}

// SAFETY: `inner` is used by who has set `taken`, and by nobody else.
unsafe impl Sync for Heap {}

/// The first block of the first thread, a part of the program's own memory: the kernel need not be asked for it. It stands
/// alone, as what is all zeros is not in the program's file.
static FIRST: First = First(UnsafeCell::new(MaybeUninit::zeroed()));

/// Somebody has it.
static FIRST_GIVEN: AtomicBool = AtomicBool::new(false);

#[repr(align(4096))]
struct First(UnsafeCell<MaybeUninit<[u8; BLOCK]>>);

// SAFETY: it is used by the thread that has set `FIRST_GIVEN`.
unsafe impl Sync for First {}

/// What a thread keeps for itself. A piece that another thread frees is that thread's from then on. What a thread has when it
/// ends is lost: commands have few threads, and none that come and go.
struct Own {
    /// The first free piece of each size; each leads to the next.
    free: [Cell<*mut u8>; CLASSES],
    /// What is left of the block that pieces are cut from.
    rest: Cell<*mut u8>,
    left: Cell<usize>,
}

thread_local! {
    static OWN: Own = const {
        Own {
            free: [const { Cell::new(null_mut()) }; CLASSES],
            rest: Cell::new(null_mut()),
            left: Cell::new(0),
        }
    };
}

/// The number of the list with pieces of that size and alignment, unless they are large.
#[inline]
fn class(size: usize, align: usize) -> Option<usize> {
    // Nobody asks for nothing.
    let last = size.wrapping_sub(1);
    if align > STEP || last >= LONGEST {
        return None;
    }
    if last < FINE {
        return Some(last / STEP);
    }
    Some(FINE / STEP + (last / FINE).ilog2() as usize)
}

/// How long the pieces of a list are.
fn length(class: usize) -> usize {
    match class.checked_sub(FINE / STEP) {
        None => (class + 1) * STEP,
        Some(power) => (2 * FINE) << power,
    }
}

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

    /// A piece that is not large.
    #[inline]
    fn take(&self, class: usize) -> *mut u8 {
        OWN.with(|own| {
            let first = own.free[class].get();
            if first.is_null() {
                return self.cut(own, length(class));
            }
            // SAFETY: a free piece is at least as long as a pointer, and holds the next one.
            own.free[class].set(unsafe { first.cast::<*mut u8>().read() });
            first
        })
    }

    /// Takes such a piece back.
    ///
    /// # Safety
    /// It is one of that class, and nobody uses it any more.
    #[inline]
    unsafe fn put(class: usize, place: *mut u8) {
        OWN.with(|own| {
            // SAFETY: as the caller promises, and pieces are aligned for a pointer.
            unsafe { place.cast::<*mut u8>().write(own.free[class].get()) };
            own.free[class].set(place);
        });
    }

    /// Cuts a piece of that many bytes from the thread's block, or from a new one. What was left of the old one is too
    /// little to be looked for.
    #[cold]
    fn cut(&self, own: &Own, size: usize) -> *mut u8 {
        if own.left.get() < size {
            let block = self.block();
            if block.is_null() {
                return block;
            }
            own.rest.set(block);
            own.left.set(BLOCK);
        }
        let place = own.rest.get();
        // SAFETY: at least `size` bytes of the block are left from here on.
        own.rest.set(unsafe { place.add(size) });
        own.left.set(own.left.get() - size);
        place
    }

    fn block(&self) -> *mut u8 {
        if !FIRST_GIVEN.swap(true, Ordering::Relaxed) {
            let block = FIRST.0.get();
            // SAFETY: the range lies in `block`, whose contents stay as they are. A kernel that cannot do it does nothing.
            let _ = unsafe { libc::madvise(block.cast(), NEEDED, libc::MADV_POPULATE_WRITE) };
            return block.cast();
        }
        // SAFETY: neither size nor alignment is zero.
        self.with(|heap| unsafe { heap.malloc(BLOCK, STEP) })
    }
}

// SAFETY: a piece has the size and alignment that were asked for and belongs to nobody else until it is given back: for
// those that are not large by what `take`, `put` and `cut` do, for the others by the promises of the common heap. Which of
// the two a piece is of follows from its layout, which is the same when it is given back.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class(layout.size(), layout.align()) {
            Some(class) => self.take(class),
            // SAFETY: the caller's promise of a layout.
            None => self.with(|heap| unsafe { heap.malloc(layout.size(), layout.align()) }),
        }
    }

    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        match class(layout.size(), layout.align()) {
            // SAFETY: the caller's promise that `place` came from here with this layout.
            Some(class) => unsafe { Heap::put(class, place) },
            // SAFETY: as above.
            None => self.with(|heap| unsafe { heap.free(place, layout.size(), layout.align()) }),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match class(layout.size(), layout.align()) {
            Some(class) => {
                let place = self.take(class);
                if !place.is_null() {
                    // SAFETY: the piece is that long.
                    unsafe { place.write_bytes(0, layout.size()) };
                }
                place
            }
            // SAFETY: the caller's promise of a layout.
            None => self.with(|heap| unsafe { heap.calloc(layout.size(), layout.align()) }),
        }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (align, old) = (layout.align(), layout.size());
        match (class(old, align), class(size, align)) {
            (Some(own), Some(wanted)) if own == wanted => place,
            (None, None) => {
                // SAFETY: the caller's promise that `place` came from here with this layout.
                self.with(|heap| unsafe { heap.realloc(place, old, align, size) })
            }
            _ => {
                // SAFETY: the caller's promise that `size` and the alignment are a layout.
                let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, align)) };
                if !new.is_null() {
                    // SAFETY: both are as long, and the old one is given back with its own layout.
                    unsafe {
                        new.copy_from_nonoverlapping(place, old.min(size));
                        self.dealloc(place, layout);
                    }
                }
                new
            }
        }
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

    #[test]
    fn a_piece_is_as_long_as_its_size() {
        for size in 1..=LONGEST {
            let class = class(size, 8).unwrap();
            assert!(class < CLASSES && length(class) >= size);
            assert!(length(class) < 2 * size.max(STEP));
            assert!(class == 0 || length(class - 1) < size);
        }
        assert_eq!(class(LONGEST + 1, 8), None);
        assert_eq!(class(8, 2 * STEP), None);
        assert_eq!(class(0, 1), None);
    }

    /// A mixed life of many pieces: none overlaps another, each keeps what was written, and all are aligned.
    #[test]
    fn pieces_keep_what_is_in_them() {
        static HEAP: Heap = Heap::new();
        let mut random = 1u64;
        let mut next = |below: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            usize::try_from(random >> 33).unwrap() % below
        };
        let mut pieces: Vec<(*mut u8, Layout, u8)> = Vec::new();
        let check = |place: *mut u8, size: usize, byte: u8| {
            // SAFETY: pieces are as long as their layouts say.
            let bytes = unsafe { std::slice::from_raw_parts(place, size) };
            assert!(bytes.iter().all(|b| *b == byte));
        };
        for round in 0..20_000 {
            let byte = u8::try_from(round % 251).unwrap();
            let longest = [24, FINE + 40, 2 * LONGEST, 2 * BLOCK][next(4)];
            let size = 1 + next(longest);
            if pieces.len() < 300 {
                let layout = Layout::from_size_align(size, 1 << next(7)).unwrap();
                // SAFETY: the layout's size is not zero.
                let place = unsafe {
                    match next(2) {
                        0 => HEAP.alloc(layout),
                        _ => HEAP.alloc_zeroed(layout),
                    }
                };
                assert_eq!(place.addr() % layout.align(), 0);
                // SAFETY: it is as long as its layout says.
                unsafe { place.write_bytes(byte, size) };
                pieces.push((place, layout, byte));
                continue;
            }
            let (place, layout, had) = pieces.swap_remove(next(300));
            check(place, layout.size(), had);
            if next(2) == 0 {
                // SAFETY: it came from here with this layout, and is given back once.
                unsafe { HEAP.dealloc(place, layout) };
                continue;
            }
            // SAFETY: as above; the old place is not used any more.
            let new = unsafe { HEAP.realloc(place, layout, size) };
            assert_eq!(new.addr() % layout.align(), 0);
            check(new, size.min(layout.size()), had);
            // SAFETY: it is as long as was asked for.
            unsafe { new.write_bytes(byte, size) };
            let layout = Layout::from_size_align(size, layout.align()).unwrap();
            pieces.push((new, layout, byte));
        }
    }
}
