//! Lists and dictionaries of the C binding. They hold the pointers that they were given and own what these lead to only by the
//! function that the program named to free an entry.

#![allow(unsafe_code)]

use crate::error::{DrmaaError, guarded, numbered, quietly};
use crate::memory;
use libc::{c_char, c_int, c_long, c_void};
use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Frees an entry of a list.
pub type FreeEntry = unsafe extern "C" fn(value: *mut *mut c_void);
/// Frees an entry of a dictionary; the key is null where only its value is replaced.
pub type FreePair = unsafe extern "C" fn(key: *mut *mut c_char, value: *mut *mut c_char);

/// `drmaa2_list`: what programs know of it is its address.
#[derive(Debug)]
pub struct CList {
    kind: c_int,
    free: Option<FreeEntry>,
    items: Mutex<Vec<*mut c_void>>,
}

/// `drmaa2_dict`.
#[derive(Debug)]
pub struct CDict {
    free: Option<FreePair>,
    items: Mutex<Vec<CPair>>,
}

/// The pointers of an entry.
#[derive(Clone, Copy, Debug)]
struct CPair {
    key: *mut c_char,
    value: *mut c_char,
}

/// Elements of lists, by the numbers of `drmaa2_listtype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ListKind {
    /// Strings.
    Strings = 0,
    /// Jobs.
    Jobs = 1,
    /// Queues.
    Queues = 2,
    /// Machines.
    Machines = 3,
    /// Machines with slots.
    Slots = 4,
    /// Reservations.
    Reservations = 5,
}

/// Entries that a list or dictionary has at most.
const ENTRIES_MAX: usize = 10_000_000;

fn held<T>(items: &Mutex<T>) -> MutexGuard<'_, T> {
    items.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CList {
    /// A list whose entries `free` frees.
    pub fn made(kind: ListKind, free: FreeEntry, items: Vec<*mut c_void>) -> *mut CList {
        Box::into_raw(Box::new(CList {
            kind: kind as c_int,
            free: Some(free),
            items: Mutex::new(items),
        }))
    }

    /// Whether it holds machines with slots.
    pub fn is_of_slots(&self) -> bool {
        self.kind == ListKind::Slots as c_int
    }

    /// The pointers that it holds.
    pub fn items(&self) -> Vec<*mut c_void> {
        held(&self.items).clone()
    }
}

impl CDict {
    /// A dictionary of this library's own strings.
    pub fn made() -> *mut CDict {
        Box::into_raw(Box::new(CDict {
            free: Some(free_pair),
            items: Mutex::new(Vec::new()),
        }))
    }

    /// Keys and values.
    pub fn entries(&self) -> Vec<(*mut c_char, *mut c_char)> {
        let items = held(&self.items);
        items.iter().map(|pair| (pair.key, pair.value)).collect()
    }

    /// Sets an entry to strings of this library's own; only for those that [`made`](Self::made) made.
    pub fn set(&self, key: &str, value: &str) {
        // SAFETY: both are strings, and entries of such a dictionary are freed as they were made.
        unsafe { self.replace(memory::string(key), memory::string(value)) };
    }

    /// # Safety
    /// `key` is a string that lives as long as the entry.
    unsafe fn replace(&self, key: *mut c_char, value: *mut c_char) {
        // SAFETY: as the caller promises.
        let place = unsafe { self.find(key) };
        let replaced = {
            let mut items = held(&self.items);
            match place.and_then(|place| items.get_mut(place)) {
                Some(pair) => Some(std::mem::replace(&mut pair.value, value)),
                None => {
                    items.push(CPair { key, value });
                    None
                }
            }
        };
        if let (Some(mut before), Some(free)) = (replaced, self.free) {
            // SAFETY: the program named the function for this.
            unsafe { free(std::ptr::null_mut(), &mut before) };
        }
    }

    /// # Safety
    /// `key` is a string, and so are the keys.
    unsafe fn find(&self, key: *const c_char) -> Option<usize> {
        // SAFETY: as the caller promises.
        let same = |own: *mut c_char| unsafe { CStr::from_ptr(own) == CStr::from_ptr(key) };
        held(&self.items).iter().position(|pair| same(pair.key))
    }
}

/// Frees an entry that this library made.
///
/// # Safety
/// What is not null leads to a pointer to a string from malloc(3), or to null.
unsafe extern "C" fn free_pair(key: *mut *mut c_char, value: *mut *mut c_char) {
    // SAFETY: as the caller promises.
    quietly(|| unsafe {
        memory::free_string(key);
        memory::free_string(value);
    });
}

/// # Safety
/// `list` is null or a list that was not freed.
unsafe fn list<'a>(list: *const CList) -> Result<&'a CList, DrmaaError> {
    // SAFETY: as the caller promises.
    unsafe { list.as_ref() }.ok_or_else(|| DrmaaError::argument("the list is null"))
}

/// # Safety
/// `dict` is null or a dictionary that was not freed.
unsafe fn dict<'a>(dict: *const CDict) -> Result<&'a CDict, DrmaaError> {
    // SAFETY: as the caller promises.
    unsafe { dict.as_ref() }.ok_or_else(|| DrmaaError::argument("the dictionary is null"))
}

fn place(list: &CList, pos: c_long) -> Result<usize, DrmaaError> {
    let count = held(&list.items).len();
    let place = usize::try_from(pos).ok().filter(|place| *place < count);
    place.ok_or_else(|| {
        DrmaaError::argument(format!(
            "there is no entry {pos} in a list of {count}: the first is 0"
        ))
    })
}

fn has_room(count: usize) -> Result<(), DrmaaError> {
    match count < ENTRIES_MAX {
        true => Ok(()),
        false => Err(DrmaaError::new(
            crate::error::DrmaaCode::OutOfResource,
            format!("there are {ENTRIES_MAX} entries already, which is the limit"),
        )),
    }
}

/// Makes a list.
///
/// # Safety
/// `callback` is null or a function that frees an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmaa2_list_create(
    kind: c_int,
    callback: Option<FreeEntry>,
) -> *mut CList {
    guarded(std::ptr::null_mut(), || {
        let known = (ListKind::Strings as c_int..=ListKind::Reservations as c_int).contains(&kind);
        match known {
            true => Ok(Box::into_raw(Box::new(CList {
                kind,
                free: callback,
                items: Mutex::default(),
            }))),
            false => Err(DrmaaError::argument(format!(
                "there is no type {kind} of lists"
            ))),
        }
    })
}

/// Frees a list, and its entries where it has a function for that.
///
/// # Safety
/// `at` is null or leads to null or to a list that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmaa2_list_free(at: *mut *mut CList) {
    // SAFETY: as the caller promises; an entry is freed by what the program named for it.
    quietly(|| unsafe {
        let Some(own) = memory::taken(at) else {
            return;
        };
        let own = Box::from_raw(own);
        for mut item in own.items() {
            if let Some(free) = own.free {
                free(&mut item);
            }
        }
    });
}

/// The entry at a place, which the list goes on to hold.
///
/// # Safety
/// `own` is null or a list that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmaa2_list_get(own: *const CList, pos: c_long) -> *const c_void {
    guarded(std::ptr::null(), || {
        // SAFETY: as the caller promises.
        let own = unsafe { list(own) }?;
        let place = place(own, pos)?;
        let found = held(&own.items).get(place).copied();
        Ok(found.map_or(std::ptr::null(), <*mut c_void>::cast_const))
    })
}

/// Adds a pointer at the end.
///
/// # Safety
/// `own` is null or a list that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmaa2_list_add(own: *mut CList, value: *const c_void) -> c_int {
    numbered(|| {
        // SAFETY: as the caller promises.
        let own = unsafe { list(own) }?;
        if value.is_null() {
            return Err(DrmaaError::argument("the value is null"));
        }
        let mut items = held(&own.items);
        has_room(items.len())?;
        items.push(value.cast_mut());
        Ok(())
    })
}

/// Removes the entry at a place.
///
/// # Safety
/// `own` is null or a list that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmaa2_list_del(own: *mut CList, pos: c_long) -> c_int {
    numbered(|| {
        // SAFETY: as the caller promises.
        let own = unsafe { list(own) }?;
        let place = place(own, pos)?;
        let mut item = held(&own.items).remove(place);
        if let Some(free) = own.free {
            // SAFETY: the program named the function for this.
            unsafe { free(&mut item) };
        }
        Ok(())
    })
}

/// Number of entries; -1 for no list.
///
/// # Safety
/// `own` is null or a list that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmaa2_list_size(own: *const CList) -> c_long {
    guarded(-1, || {
        // SAFETY: as the caller promises.
        let own = unsafe { list(own) }?;
        Ok(c_long::try_from(held(&own.items).len()).unwrap_or(c_long::MAX))
    })
}

/// Frees the list alone, as Univa's library has it.
///
/// # Safety
/// `at` is null or leads to null or to a list that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uge_drmaa2_list_free_root(at: *mut *mut CList) {
    // SAFETY: as the caller promises.
    quietly(|| unsafe {
        if let Some(own) = memory::taken(at) {
            drop(Box::from_raw(own));
        }
    });
}

/// Replaces the entry at a place, as Univa's library has it. The one before is freed.
///
/// # Safety
/// `own` is null or a list that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uge_drmaa2_list_set(
    own: *mut CList,
    pos: c_long,
    value: *mut c_void,
) -> c_int {
    numbered(|| {
        // SAFETY: as the caller promises.
        let own = unsafe { list(own) }?;
        let place = place(own, pos)?;
        if value.is_null() {
            return Err(DrmaaError::argument("the value is null"));
        }
        let mut before = std::mem::replace(&mut held(&own.items)[place], value);
        if let Some(free) = own.free {
            // SAFETY: the program named the function for this.
            unsafe { free(&mut before) };
        }
        Ok(())
    })
}

/// Makes a dictionary.
///
/// # Safety
/// `callback` is null or a function that frees an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmaa2_dict_create(callback: Option<FreePair>) -> *mut CDict {
    guarded(std::ptr::null_mut(), || {
        Ok(Box::into_raw(Box::new(CDict {
            free: callback,
            items: Mutex::default(),
        })))
    })
}

/// Frees a dictionary, and its entries where it has a function for that.
///
/// # Safety
/// `at` is null or leads to null or to a dictionary that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmaa2_dict_free(at: *mut *mut CDict) {
    // SAFETY: as the caller promises; an entry is freed by what the program named for it.
    quietly(|| unsafe {
        let Some(own) = memory::taken(at) else {
            return;
        };
        let own = Box::from_raw(own);
        for (mut key, mut value) in own.entries() {
            if let Some(free) = own.free {
                free(&mut key, &mut value);
            }
        }
    });
}

/// Its keys, in a list of copies.
///
/// # Safety
/// `own` is null or a dictionary that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmaa2_dict_list(own: *const CDict) -> *mut CList {
    guarded(std::ptr::null_mut(), || {
        // SAFETY: as the caller promises.
        let own = unsafe { dict(own) }?;
        let keys = own.entries().into_iter();
        // SAFETY: each key is a string, as the program promised by setting it.
        let keys = keys.map(|(key, _)| unsafe { memory::copy(key) }.cast());
        let keys = keys.collect();
        Ok(CList::made(ListKind::Strings, memory::free_entry, keys))
    })
}

/// Whether there is an entry.
///
/// # Safety
/// `own` is null or a dictionary that was not freed; `key` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmaa2_dict_has(own: *const CDict, key: *const c_char) -> c_int {
    guarded(0, || {
        // SAFETY: as the caller promises.
        unsafe {
            let own = dict(own)?;
            key_given(key)?;
            Ok(c_int::from(own.find(key).is_some()))
        }
    })
}

/// The value of an entry, which the dictionary goes on to hold.
///
/// # Safety
/// `own` is null or a dictionary that was not freed; `key` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmaa2_dict_get(own: *const CDict, key: *const c_char) -> *const c_char {
    guarded(std::ptr::null(), || {
        // SAFETY: as the caller promises.
        unsafe {
            let own = dict(own)?;
            key_given(key)?;
            let place = own.find(key).ok_or_else(|| no_entry(key))?;
            let found = held(&own.items).get(place).map(|pair| pair.value);
            Ok(found.map_or(std::ptr::null(), <*mut c_char>::cast_const))
        }
    })
}

/// Removes an entry.
///
/// # Safety
/// `own` is null or a dictionary that was not freed; `key` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmaa2_dict_del(own: *mut CDict, key: *const c_char) -> c_int {
    numbered(|| {
        // SAFETY: as the caller promises; the program named the function for the entry.
        unsafe {
            let own = dict(own)?;
            key_given(key)?;
            let place = own.find(key).ok_or_else(|| no_entry(key))?;
            let mut pair = held(&own.items).remove(place);
            if let Some(free) = own.free {
                free(&mut pair.key, &mut pair.value);
            }
            Ok(())
        }
    })
}

/// Adds an entry, or replaces its value.
///
/// # Safety
/// `own` is null or a dictionary that was not freed; the others are null or strings that live as long as the entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmaa2_dict_set(
    own: *mut CDict,
    key: *const c_char,
    value: *const c_char,
) -> c_int {
    numbered(|| {
        // SAFETY: as the caller promises.
        unsafe {
            let own = dict(own)?;
            key_given(key)?;
            if value.is_null() {
                return Err(DrmaaError::argument("the value is null"));
            }
            has_room(held(&own.items).len())?;
            own.replace(key.cast_mut(), value.cast_mut());
            Ok(())
        }
    })
}

fn key_given(key: *const c_char) -> Result<(), DrmaaError> {
    match key.is_null() {
        true => Err(DrmaaError::argument("the key is null")),
        false => Ok(()),
    }
}

/// # Safety
/// `key` is a string.
unsafe fn no_entry(key: *const c_char) -> DrmaaError {
    // SAFETY: as the caller promises.
    let key = unsafe { CStr::from_ptr(key) }.to_string_lossy();
    DrmaaError::argument(format!("the dictionary has no key \"{key:.100}\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{DrmaaCode, last};
    use std::ptr::null_mut;

    fn code() -> Option<DrmaaCode> {
        last().map(|error| error.code)
    }

    #[test]
    fn lists_hold_pointers_and_free_them_only_where_they_may() {
        // SAFETY: strings from malloc(3) are freed by what frees them; the others are this test's own.
        unsafe {
            let mut own = drmaa2_list_create(0, Some(memory::free_entry));
            for text in ["a", "b", "c"] {
                assert_eq!(drmaa2_list_add(own, memory::string(text).cast()), 0);
            }
            assert_eq!(drmaa2_list_size(own), 3);
            assert_eq!(drmaa2_list_del(own, 0), 0);
            let first = drmaa2_list_get(own, 0).cast::<c_char>();
            assert_eq!(CStr::from_ptr(first), c"b");
            for pos in [-1, 2, c_long::MAX] {
                assert!(drmaa2_list_get(own, pos).is_null());
                assert_eq!(code(), Some(DrmaaCode::InvalidArgument));
                assert_eq!(drmaa2_list_del(own, pos), 7);
            }
            assert_eq!(uge_drmaa2_list_set(own, 1, memory::string("d").cast()), 0);
            assert_eq!(drmaa2_list_add(own, std::ptr::null()), 7);
            drmaa2_list_free(&mut own);
            assert!(own.is_null());
            drmaa2_list_free(&mut own);
            drmaa2_list_free(null_mut());

            let text = c"the test's";
            let mut own = drmaa2_list_create(0, None);
            assert_eq!(drmaa2_list_add(own, text.as_ptr().cast()), 0);
            assert_eq!(drmaa2_list_get(own, 0), text.as_ptr().cast());
            drmaa2_list_free(&mut own);
        }
    }

    #[test]
    fn no_list_is_an_error_and_not_a_crash() {
        // SAFETY: null is allowed.
        unsafe {
            assert!(
                drmaa2_list_create(6, None).is_null() && drmaa2_list_create(-1, None).is_null()
            );
            assert_eq!(code(), Some(DrmaaCode::InvalidArgument));
            assert_eq!(drmaa2_list_size(null_mut()), -1);
            assert!(drmaa2_list_get(null_mut(), 0).is_null());
            assert_eq!(drmaa2_list_add(null_mut(), c"x".as_ptr().cast()), 7);
            assert_eq!(drmaa2_list_del(null_mut(), 0), 7);
            assert_eq!(drmaa2_dict_has(null_mut(), c"x".as_ptr()), 0);
            assert!(drmaa2_dict_get(null_mut(), c"x".as_ptr()).is_null());
            assert!(drmaa2_dict_list(null_mut()).is_null());
            assert_eq!(drmaa2_dict_set(null_mut(), c"x".as_ptr(), c"y".as_ptr()), 7);
            assert_eq!(drmaa2_dict_del(null_mut(), c"x".as_ptr()), 7);
            drmaa2_dict_free(null_mut());
        }
    }

    #[test]
    fn dictionaries_replace_values_and_keep_keys() {
        // SAFETY: all strings live as long as the dictionary.
        unsafe {
            let mut own = drmaa2_dict_create(None);
            let (key, value) = (c"A", c"1");
            assert_eq!(drmaa2_dict_set(own, key.as_ptr(), value.as_ptr()), 0);
            assert_eq!(drmaa2_dict_set(own, c"A".as_ptr(), c"2".as_ptr()), 0);
            assert_eq!(drmaa2_dict_set(own, c"B".as_ptr(), c"3".as_ptr()), 0);
            assert_eq!(CStr::from_ptr(drmaa2_dict_get(own, key.as_ptr())), c"2");
            let mut keys = drmaa2_dict_list(own);
            assert_eq!(drmaa2_list_size(keys), 2);
            drmaa2_list_free(&mut keys);
            assert_eq!(drmaa2_dict_has(own, c"B".as_ptr()), 1);
            assert_eq!(drmaa2_dict_del(own, c"B".as_ptr()), 0);
            assert_eq!(drmaa2_dict_del(own, c"B".as_ptr()), 7);
            assert!(drmaa2_dict_get(own, c"B".as_ptr()).is_null());
            assert_eq!(code(), Some(DrmaaCode::InvalidArgument));
            drmaa2_dict_free(&mut own);
            assert!(own.is_null());

            let mut made = CDict::made();
            (*made).set("A", "1");
            (*made).set("A", "2");
            assert_eq!(CStr::from_ptr(drmaa2_dict_get(made, c"A".as_ptr())), c"2");
            drmaa2_dict_free(&mut made);
        }
    }
}
