//! Lists of pointers, as answers have them and programs make their own. A list is used by one thread at a time.

#![allow(unsafe_code)]

use libc::{c_int, c_void};
use std::ptr::null_mut;

/// A function of the program's that frees an entry.
pub type DeleteEntry = Option<unsafe extern "C" fn(*mut c_void)>;
/// A function of the program's that looks whether an entry fits a key, or does something with it.
pub type EntryTest = Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int>;

/// `List` of slurm.h.
#[derive(Debug)]
pub struct SlurmList {
    items: Vec<*mut c_void>,
    delete: DeleteEntry,
    /// Iterators over it: they keep their places where entries come and go.
    iterators: Vec<*mut SlurmListIterator>,
}

/// `ListIterator` of slurm.h.
#[derive(Debug)]
pub struct SlurmListIterator {
    list: *mut SlurmList,
    /// Place of the next entry.
    next: usize,
    /// Place of the entry that was given last.
    last: Option<usize>,
}

impl SlurmList {
    /// A list that frees its entries by `delete`.
    pub fn made(delete: DeleteEntry, items: Vec<*mut c_void>) -> *mut SlurmList {
        Box::into_raw(Box::new(SlurmList {
            items,
            delete,
            iterators: Vec::new(),
        }))
    }

    fn free(&self, item: *mut c_void) {
        if let Some(delete) = self.delete.filter(|_| !item.is_null()) {
            // SAFETY: the program gave the function for entries like this one.
            unsafe { delete(item) };
        }
    }

    fn insert(&mut self, at: usize, item: *mut c_void) {
        self.items.insert(at, item);
        for iterator in &self.iterators {
            // SAFETY: an iterator is in the list until it is destroyed.
            let own = unsafe { &mut **iterator };
            own.next += usize::from(own.next > at);
            own.last = own.last.map(|last| last + usize::from(last >= at));
        }
    }

    fn take(&mut self, at: usize) -> *mut c_void {
        if at >= self.items.len() {
            return null_mut();
        }
        let item = self.items.remove(at);
        for iterator in &self.iterators {
            // SAFETY: an iterator is in the list until it is destroyed.
            let own = unsafe { &mut **iterator };
            own.next -= usize::from(own.next > at);
            own.last = match own.last {
                Some(last) if last == at => None,
                last => last.map(|last| last - usize::from(last > at)),
            };
        }
        item
    }

    fn place(&self, from: usize, test: EntryTest, key: *mut c_void) -> Option<usize> {
        let test = test?;
        // SAFETY: the program gave the function for entries and keys like these.
        (from..self.items.len()).find(|at| unsafe { test(self.items[*at], key) } != 0)
    }
}

/// The list of a pointer.
///
/// # Safety
/// `at` is null or a list that was not destroyed, which nothing else uses now.
unsafe fn list<'a>(at: *mut SlurmList) -> Option<&'a mut SlurmList> {
    // SAFETY: as the caller promises.
    unsafe { at.as_mut() }
}

/// The entries of a list.
///
/// # Safety
/// `at` is null or a list that was not destroyed, which nothing changes now.
pub unsafe fn entries(at: *mut SlurmList) -> Vec<*mut c_void> {
    // SAFETY: as the caller promises.
    unsafe { at.as_ref() }.map_or_else(Vec::new, |own| own.items.clone())
}

macro_rules! list_functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $out:ty = $none:expr, |$own:ident| $body:expr;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// Pointers are null or lead to what slurm.h says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(at: *mut SlurmList, $($argument: $kind),*) -> $out {
            $crate::error::guarded($none, || {
                // SAFETY: as the program promises by calling it.
                #[allow(unused_unsafe)]
                unsafe {
                    Ok(match list(at) {
                        Some($own) => $body,
                        None => $none,
                    })
                }
            })
        }
    )* };
}

list_functions! {
    /// Number of entries.
    fn slurm_list_count() -> c_int = 0, |own| c_int::try_from(own.items.len()).unwrap_or(c_int::MAX);
    /// Whether there is no entry.
    fn slurm_list_is_empty() -> c_int = 1, |own| own.items.is_empty().into();
    /// Adds an entry at the end.
    fn slurm_list_append(item: *mut c_void) -> *mut c_void = null_mut(), |own| {
        own.items.push(item);
        item
    };
    /// Adds an entry at the end.
    fn slurm_list_enqueue(item: *mut c_void) -> *mut c_void = null_mut(), |own| {
        own.items.push(item);
        item
    };
    /// Adds an entry at the front.
    fn slurm_list_prepend(item: *mut c_void) -> *mut c_void = null_mut(), |own| {
        own.insert(0, item);
        item
    };
    /// Adds an entry at the front.
    fn slurm_list_push(item: *mut c_void) -> *mut c_void = null_mut(), |own| {
        own.insert(0, item);
        item
    };
    /// Takes the first entry.
    fn slurm_list_pop() -> *mut c_void = null_mut(), |own| own.take(0);
    /// Takes the first entry.
    fn slurm_list_dequeue() -> *mut c_void = null_mut(), |own| own.take(0);
    /// The first entry.
    fn slurm_list_peek() -> *mut c_void = null_mut(), |own| {
        own.items.first().copied().unwrap_or(null_mut())
    };
    /// The first entry that fits.
    fn slurm_list_find_first(test: EntryTest, key: *mut c_void) -> *mut c_void = null_mut(), |own| {
        own.place(0, test, key).map_or(null_mut(), |at| own.items[at])
    };
    /// The first entry that fits.
    fn slurm_list_find_first_ro(test: EntryTest, key: *mut c_void) -> *mut c_void = null_mut(), |own| {
        own.place(0, test, key).map_or(null_mut(), |at| own.items[at])
    };
    /// Frees the entries that fit, and gives their number.
    fn slurm_list_delete_all(test: EntryTest, key: *mut c_void) -> c_int = 0, |own| {
        let mut count = 0;
        let mut from = 0;
        while let Some(at) = own.place(from, test, key) {
            let item = own.take(at);
            own.free(item);
            from = at;
            count += 1;
        }
        count
    };
    /// Frees the first entry that fits, and says whether there was one.
    fn slurm_list_delete_first(test: EntryTest, key: *mut c_void) -> c_int = 0, |own| {
        match own.place(0, test, key) {
            Some(at) => {
                let item = own.take(at);
                own.free(item);
                1
            }
            None => 0,
        }
    };
    /// Frees an entry, and says whether it was there.
    fn slurm_list_delete_ptr(key: *mut c_void) -> c_int = 0, |own| {
        match own.items.iter().position(|item| *item == key) {
            Some(at) => {
                let item = own.take(at);
                own.free(item);
                1
            }
            None => 0,
        }
    };
    /// Calls a function for each entry until one call gives less than 0. Gives the number of calls, negative if it was ended so.
    fn slurm_list_for_each(test: EntryTest, argument: *mut c_void) -> c_int = 0, |own| {
        for_each(&own.items.clone(), test, argument)
    };
    /// As above.
    fn slurm_list_for_each_ro(test: EntryTest, argument: *mut c_void) -> c_int = 0, |own| {
        for_each(&own.items.clone(), test, argument)
    };
    /// Frees all entries, and gives their number.
    fn slurm_list_flush() -> c_int = 0, |own| {
        let count = own.items.len();
        while !own.items.is_empty() {
            let item = own.take(0);
            own.free(item);
        }
        c_int::try_from(count).unwrap_or(c_int::MAX)
    };
    /// Moves the entries of another list to the end of this one; none where both are one list.
    fn slurm_list_transfer(other: *mut SlurmList) -> c_int = 0, |own| {
        let mut moved = Vec::new();
        let other = if std::ptr::eq(own, other) { null_mut() } else { other };
        if let Some(other) = list(other) {
            while !other.items.is_empty() {
                moved.push(other.take(0));
            }
        }
        let count = moved.len();
        own.items.extend(moved);
        c_int::try_from(count).unwrap_or(c_int::MAX)
    };
    /// Adds the entries of another list, which has them as well.
    fn slurm_list_append_list(other: *mut SlurmList) -> c_int = 0, |own| {
        let is_same = std::ptr::eq(own, other);
        let added = if is_same { own.items.clone() } else { entries(other) };
        let count = added.len();
        own.items.extend(added);
        c_int::try_from(count).unwrap_or(c_int::MAX)
    };
    /// Another list of the same entries, which it does not free.
    fn slurm_list_shallow_copy() -> *mut SlurmList = null_mut(), |own| {
        SlurmList::made(None, own.items.clone())
    };
}

fn for_each(items: &[*mut c_void], test: EntryTest, argument: *mut c_void) -> c_int {
    let Some(test) = test else { return 0 };
    let mut count = 0;
    for item in items {
        count += 1;
        // SAFETY: the program gave the function for entries like these.
        if unsafe { test(*item, argument) } < 0 {
            return -count;
        }
    }
    count
}

value_functions! {
    /// A list whose entries are freed by a function, if one is given.
    fn slurm_list_create(delete: DeleteEntry) -> *mut SlurmList, else null_mut(), {
        Ok(SlurmList::made(delete, Vec::new()))
    }
    /// A new iterator at the first entry.
    fn slurm_list_iterator_create(at: *mut SlurmList) -> *mut SlurmListIterator, else null_mut(), {
        let Some(own) = list(at) else { return Ok(null_mut()) };
        let made = Box::into_raw(Box::new(SlurmListIterator { list: at, next: 0, last: None }));
        own.iterators.push(made);
        Ok(made)
    }
    /// The next entry; null behind the last.
    fn slurm_list_next(at: *mut SlurmListIterator) -> *mut c_void, else null_mut(), {
        let Some(own) = at.as_mut() else { return Ok(null_mut()) };
        let Some(items) = list(own.list) else { return Ok(null_mut()) };
        let item = items.items.get(own.next).copied();
        if item.is_some() {
            own.last = Some(own.next);
            own.next += 1;
        }
        Ok(item.unwrap_or(null_mut()))
    }
    /// The next entry that fits; null if there is none.
    fn slurm_list_find(at: *mut SlurmListIterator, test: EntryTest, key: *mut c_void) -> *mut c_void, else null_mut(), {
        let Some(own) = at.as_mut() else { return Ok(null_mut()) };
        let Some(items) = list(own.list) else { return Ok(null_mut()) };
        let Some(place) = items.place(own.next, test, key) else {
            own.next = items.items.len();
            return Ok(null_mut());
        };
        own.last = Some(place);
        own.next = place + 1;
        Ok(items.items[place])
    }
    /// Adds an entry before the one that was given last.
    fn slurm_list_insert(at: *mut SlurmListIterator, item: *mut c_void) -> *mut c_void, else null_mut(), {
        let Some((place, own)) = at.as_ref().map(|own| (own.last.unwrap_or(own.next), own.list)) else {
            return Ok(null_mut());
        };
        if let Some(items) = list(own) {
            items.insert(place.min(items.items.len()), item);
        }
        Ok(item)
    }
    /// Takes the entry that was given last.
    fn slurm_list_remove(at: *mut SlurmListIterator) -> *mut c_void, else null_mut(), {
        let Some((place, own)) = at.as_ref().and_then(|own| Some((own.last?, own.list))) else {
            return Ok(null_mut());
        };
        Ok(list(own).map_or(null_mut(), |items| items.take(place)))
    }
    /// Frees the entry that was given last, and says whether there was one.
    fn slurm_list_delete_item(at: *mut SlurmListIterator) -> c_int, else 0, {
        let Some((place, own)) = at.as_ref().and_then(|own| Some((own.last?, own.list))) else {
            return Ok(0);
        };
        if let Some(items) = list(own) {
            let item = items.take(place);
            items.free(item);
        }
        Ok(1)
    }
}

quiet_functions! {
    /// Frees a list, and its entries where it has a function for that.
    fn slurm_list_destroy(at: *mut SlurmList) {
        if at.is_null() {
            return;
        }
        let own = Box::from_raw(at);
        for iterator in &own.iterators {
            (**iterator).list = null_mut();
        }
        for item in &own.items {
            own.free(*item);
        }
    }
    /// Begins again.
    fn slurm_list_iterator_reset(at: *mut SlurmListIterator) {
        if let Some(own) = at.as_mut() {
            (own.next, own.last) = (0, None);
        }
    }
    /// Frees an iterator.
    fn slurm_list_iterator_destroy(at: *mut SlurmListIterator) {
        if at.is_null() {
            return;
        }
        let own = Box::from_raw(at);
        if let Some(items) = list(own.list) {
            items.iterators.retain(|iterator| *iterator != at);
        }
    }
    /// Puts the entries into another order: the function gets pointers to two entries.
    fn slurm_list_sort(at: *mut SlurmList, compare: EntryTest) {
        let (Some(own), Some(compare)) = (list(at), compare) else { return };
        let mut items = own.items.clone();
        items.sort_by(|left, right| {
            let (mut left, mut right) = (*left, *right);
            let order = compare((&raw mut left).cast(), (&raw mut right).cast());
            order.cmp(&0)
        });
        own.items = items;
    }
    /// Reverses the order of the entries.
    fn slurm_list_flip(at: *mut SlurmList) {
        if let Some(own) = list(at) {
            own.items.reverse();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn is_equal(item: *mut c_void, key: *mut c_void) -> c_int {
        (item == key).into()
    }

    fn number(at: usize) -> *mut c_void {
        std::ptr::without_provenance_mut(at)
    }

    #[test]
    fn iterators_keep_their_places_where_entries_come_and_go() {
        // SAFETY: the list and its iterators are this test's.
        unsafe {
            let own = slurm_list_create(None);
            for at in 1..=4 {
                slurm_list_append(own, number(at));
            }
            let (one, two) = (
                slurm_list_iterator_create(own),
                slurm_list_iterator_create(own),
            );
            assert_eq!(slurm_list_next(one), number(1));
            assert_eq!(slurm_list_next(one), number(2));
            assert_eq!(slurm_list_remove(one), number(2));
            assert!(slurm_list_remove(one).is_null(), "it was taken already");
            assert_eq!(slurm_list_next(one), number(3));
            slurm_list_push(own, number(9));
            assert_eq!(slurm_list_next(one), number(4));
            assert_eq!(slurm_list_next(two), number(9));
            assert!(slurm_list_next(one).is_null());
            assert_eq!(slurm_list_find(two, Some(is_equal), number(4)), number(4));
            assert_eq!(slurm_list_count(own), 4);
            slurm_list_iterator_destroy(two);
            slurm_list_destroy(own);
            assert!(slurm_list_next(one).is_null(), "its list is gone");
            slurm_list_iterator_destroy(one);
        }
    }

    #[test]
    fn a_list_may_be_added_to_itself() {
        // SAFETY: the list is this test's.
        unsafe {
            let own = slurm_list_create(None);
            for at in 1..=2 {
                slurm_list_append(own, number(at));
            }
            assert_eq!(slurm_list_transfer(own, own), 0);
            assert_eq!(slurm_list_append_list(own, own), 2);
            assert_eq!(entries(own), [1, 2, 1, 2].map(number));
            slurm_list_destroy(own);
        }
    }
}
