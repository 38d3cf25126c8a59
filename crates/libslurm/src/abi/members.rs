//! Types of members of structures: who owns the memory that a pointer leads to is said by its type.

use crate::memory;
use libc::{c_char, c_void};
use std::ptr::null_mut;

/// A member of a structure of C.
pub trait CMember: Copy {
    /// Frees the memory that it owns, if it owns any.
    ///
    /// # Safety
    /// It is unset, or leads to memory of this library's that nobody uses any more.
    unsafe fn release(self) {}

    /// Sets it by a text of a configuration, where its type has such values.
    fn read_text(&mut self, _text: &str) {}
}

/// A number of a configuration: `30 sec`, `YES`, `UNLIMITED`. The latter is the greatest.
fn number(text: &str) -> Option<u64> {
    let word = text.split_whitespace().next()?;
    match word.to_ascii_uppercase().as_str() {
        "YES" => Some(1),
        "NO" => Some(0),
        "UNLIMITED" | "INFINITE" => Some(u64::MAX),
        word => word.parse().ok(),
    }
}

macro_rules! numbers {
    ($($kind:ty)*) => { $(impl CMember for $kind {
        fn read_text(&mut self, text: &str) {
            if let Some(number) = number(text) {
                *self = <$kind>::try_from(number).unwrap_or(<$kind>::MAX);
            }
        }
    })* };
}

numbers!(u8 u16 u32 u64 i8 i16 i32 i64);

impl CMember for f64 {
    fn read_text(&mut self, text: &str) {
        *self = text.parse().unwrap_or(*self);
    }
}

/// Other structures, which the functions that free a message look after.
impl<T> CMember for *mut T {}

impl<T: CMember, const COUNT: usize> CMember for [T; COUNT] {}

/// A string that the structure owns, or null.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct OwnedText(pub *mut c_char);

impl OwnedText {
    /// None.
    pub const NULL: OwnedText = OwnedText(null_mut());

    /// A copy of a text.
    pub fn of(text: &str) -> OwnedText {
        OwnedText(memory::string(text))
    }

    /// As above; null for an empty one.
    pub fn or_null(text: &str) -> OwnedText {
        match text {
            "" => OwnedText::NULL,
            text => OwnedText::of(text),
        }
    }

    /// As above; null if there is none.
    pub fn some(text: Option<&str>) -> OwnedText {
        text.map_or(OwnedText::NULL, OwnedText::or_null)
    }
}

impl CMember for OwnedText {
    unsafe fn release(self) {
        // SAFETY: as the caller promises.
        unsafe { libc::free(self.0.cast()) };
    }

    fn read_text(&mut self, text: &str) {
        if self.0.is_null() {
            *self = OwnedText::or_null(text);
        }
    }
}

/// Strings that the structure owns, with a null behind the last, or null.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct OwnedTexts(pub *mut *mut c_char);

impl OwnedTexts {
    /// Copies of texts.
    pub fn of<S: AsRef<str>>(texts: &[S]) -> OwnedTexts {
        let mut all: Vec<*mut c_char> = (texts.iter())
            .map(|text| memory::string(text.as_ref()))
            .collect();
        all.push(null_mut());
        OwnedTexts(memory::array(&all))
    }
}

impl CMember for OwnedTexts {
    unsafe fn release(self) {
        let mut at = self.0;
        if at.is_null() {
            return;
        }
        // SAFETY: the last is null; each is memory of malloc(3)'s, as the caller promises.
        unsafe {
            while !(*at).is_null() {
                libc::free((*at).cast());
                at = at.add(1);
            }
            libc::free(self.0.cast());
        }
    }
}

/// Numbers that the structure owns, or null. Another member, or a last one, says how many.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct OwnedBlock<T>(pub *mut T);

impl<T: Copy> OwnedBlock<T> {
    /// None.
    pub const NULL: OwnedBlock<T> = OwnedBlock(null_mut());

    /// A copy of numbers.
    pub fn of(numbers: &[T]) -> OwnedBlock<T> {
        OwnedBlock(memory::array(numbers))
    }
}

impl<T: Copy> CMember for OwnedBlock<T> {
    unsafe fn release(self) {
        // SAFETY: as the caller promises.
        unsafe { libc::free(self.0.cast()) };
    }
}

/// A list that the structure owns, or null.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct OwnedList(pub *mut crate::list::SlurmList);

impl OwnedList {
    /// None.
    pub const NULL: OwnedList = OwnedList(null_mut());
}

impl CMember for OwnedList {
    unsafe fn release(self) {
        // SAFETY: as the caller promises.
        unsafe { crate::list::slurm_list_destroy(self.0) };
    }
}

/// A pointer that this library neither reads nor makes, or that one function looks after.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Foreign(pub *mut c_void);

impl Foreign {
    /// None.
    pub const NULL: Foreign = Foreign(null_mut());
}

impl CMember for Foreign {}
