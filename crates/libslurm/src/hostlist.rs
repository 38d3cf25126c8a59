//! Lists of host names that programs make of expressions such as `n[1-3]` and change; sets are lists without duplicates.

#![allow(unsafe_code)]

use crate::error::CallError;
use crate::memory;
use libc::{c_char, c_int, size_t, ssize_t};
use muster_model::hostlist;
use std::collections::BTreeSet;
use std::ptr::null_mut;

/// `hostlist_t` and `hostset_t` of slurm.h.
#[derive(Clone, Debug, Default)]
pub struct SlurmHostlist {
    names: Vec<String>,
}

/// `hostlist_iterator_t`.
#[derive(Debug)]
pub struct SlurmHostlistIterator {
    list: *mut SlurmHostlist,
    next: usize,
}

impl SlurmHostlist {
    /// Names of an expression; nothing where it is malformed.
    fn parsed(text: Option<String>) -> Option<SlurmHostlist> {
        let names = hostlist::parse(&text.unwrap_or_default()).ok()?;
        Some(SlurmHostlist { names })
    }

    fn unique(&mut self) {
        self.names
            .sort_by(|left, right| hostlist::natural_cmp(left, right));
        self.names.dedup();
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|own| own == name)
    }

    fn ranged(&self) -> String {
        hostlist::compress(&self.names)
    }

    fn deranged(&self) -> String {
        self.names.join(",")
    }

    /// Takes the first names that one bracket expression can hold.
    fn take_range(&mut self) -> Option<String> {
        // Names that a bracket holds have one prefix, so the expression of all says how many names its first part has.
        let all = hostlist::compress(&self.names);
        let first = hostlist::split(&all).ok()?.first().copied()?;
        let count = hostlist::parse(first).ok()?.len();
        let taken: Vec<String> = self.names.drain(..count).collect();
        Some(hostlist::compress(&taken))
    }
}

/// The list of a pointer.
///
/// # Safety
/// `at` is null or a list that was not destroyed, which nothing else uses now.
unsafe fn own<'a>(at: *mut SlurmHostlist) -> Result<&'a mut SlurmHostlist, CallError> {
    // SAFETY: as the caller promises.
    unsafe { at.as_mut() }.ok_or_else(|| CallError::argument("the list of hosts is null"))
}

fn made(list: SlurmHostlist) -> *mut SlurmHostlist {
    Box::into_raw(Box::new(list))
}

fn count(number: usize) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

fn string_or_null(text: Option<String>) -> *mut c_char {
    text.map_or(null_mut(), |text| memory::string(&text))
}

/// Writes a text into a buffer: its length, or -1 if it was cut.
///
/// # Safety
/// `buffer` has room for `size` bytes.
unsafe fn put(text: &str, size: size_t, buffer: *mut c_char) -> ssize_t {
    // SAFETY: as the caller promises.
    unsafe { memory::write_cut(text, buffer, size) };
    match text.len() < size {
        true => ssize_t::try_from(text.len()).unwrap_or(ssize_t::MAX),
        false => -1,
    }
}

value_functions! {
    /// A list of the names of an expression; null where that is malformed.
    fn slurm_hostlist_create(text: *const c_char) -> *mut SlurmHostlist, else null_mut(), {
        Ok(SlurmHostlist::parsed(memory::text(text)).map_or(null_mut(), made))
    }
    /// As above.
    fn slurm_hostlist_create_dims(text: *const c_char, _dims: c_int) -> *mut SlurmHostlist, else null_mut(), {
        Ok(SlurmHostlist::parsed(memory::text(text)).map_or(null_mut(), made))
    }
    /// A copy of a list.
    fn slurm_hostlist_copy(at: *mut SlurmHostlist) -> *mut SlurmHostlist, else null_mut(), {
        Ok(made(own(at)?.clone()))
    }
    /// Number of names.
    fn slurm_hostlist_count(at: *mut SlurmHostlist) -> c_int, else 0, {
        Ok(count(own(at)?.names.len()))
    }
    /// Place of a name; -1 if it is not there.
    fn slurm_hostlist_find(at: *mut SlurmHostlist, name: *const c_char) -> c_int, else -1, {
        let name = memory::text(name).unwrap_or_default();
        Ok(own(at)?.place(&name).map_or(-1, count))
    }
    /// Adds the names of an expression, and gives their number.
    fn slurm_hostlist_push(at: *mut SlurmHostlist, text: *const c_char) -> c_int, else 0, {
        let added = SlurmHostlist::parsed(memory::text(text)).unwrap_or_default();
        let number = added.names.len();
        own(at)?.names.extend(added.names);
        Ok(count(number))
    }
    /// Adds one name.
    fn slurm_hostlist_push_host(at: *mut SlurmHostlist, name: *const c_char) -> c_int, else 0, {
        let Some(name) = memory::text(name) else { return Ok(0) };
        own(at)?.names.push(name);
        Ok(1)
    }
    /// As above.
    fn slurm_hostlist_push_host_dims(at: *mut SlurmHostlist, name: *const c_char, _dims: c_int) -> c_int, else 0, {
        let Some(name) = memory::text(name) else { return Ok(0) };
        own(at)?.names.push(name);
        Ok(1)
    }
    /// Adds the names of another list.
    fn slurm_hostlist_push_list(at: *mut SlurmHostlist, other: *mut SlurmHostlist) -> c_int, else 0, {
        let names = own(other)?.names.clone();
        let number = names.len();
        own(at)?.names.extend(names);
        Ok(count(number))
    }
    /// Takes the first name; null if there is none. To be freed by free(3).
    fn slurm_hostlist_shift(at: *mut SlurmHostlist) -> *mut c_char, else null_mut(), {
        let own = own(at)?;
        Ok(match own.names.is_empty() {
            true => null_mut(),
            false => memory::string(&own.names.remove(0)),
        })
    }
    /// As above.
    fn slurm_hostlist_shift_dims(at: *mut SlurmHostlist, _dims: c_int) -> *mut c_char, else null_mut(), {
        let own = own(at)?;
        Ok(match own.names.is_empty() {
            true => null_mut(),
            false => memory::string(&own.names.remove(0)),
        })
    }
    /// Takes the last name; null if there is none.
    fn slurm_hostlist_pop(at: *mut SlurmHostlist) -> *mut c_char, else null_mut(), {
        Ok(string_or_null(own(at)?.names.pop()))
    }
    /// Takes the first names that one expression can hold.
    fn slurm_hostlist_shift_range(at: *mut SlurmHostlist) -> *mut c_char, else null_mut(), {
        Ok(string_or_null(own(at)?.take_range()))
    }
    /// A copy of the name at a place.
    fn slurm_hostlist_nth(at: *mut SlurmHostlist, place: c_int) -> *mut c_char, else null_mut(), {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        Ok(string_or_null(own(at)?.names.get(place).cloned()))
    }
    /// Takes out the names of an expression, and gives the number of those that were there.
    fn slurm_hostlist_delete(at: *mut SlurmHostlist, text: *const c_char) -> c_int, else 0, {
        let gone = SlurmHostlist::parsed(memory::text(text)).unwrap_or_default().names;
        let own = own(at)?;
        let before = own.names.len();
        for name in gone {
            own.place(&name).map(|at| own.names.remove(at));
        }
        Ok(count(before - own.names.len()))
    }
    /// Takes out one name, and says whether it was there.
    fn slurm_hostlist_delete_host(at: *mut SlurmHostlist, name: *const c_char) -> c_int, else 0, {
        let name = memory::text(name).unwrap_or_default();
        let own = own(at)?;
        Ok(own.place(&name).map(|at| own.names.remove(at)).is_some().into())
    }
    /// Takes out the name at a place.
    fn slurm_hostlist_delete_nth(at: *mut SlurmHostlist, place: c_int) -> c_int, else 0, {
        let own = own(at)?;
        let place = usize::try_from(place).ok().filter(|at| *at < own.names.len());
        Ok(place.map(|at| own.names.remove(at)).is_some().into())
    }
    /// Writes the list as an expression, and gives its length; -1 if it was cut.
    fn slurm_hostlist_ranged_string(at: *mut SlurmHostlist, size: size_t, buffer: *mut c_char) -> ssize_t, else -1, {
        Ok(put(&own(at)?.ranged(), size, buffer))
    }
    /// As above.
    fn slurm_hostlist_ranged_string_dims(at: *mut SlurmHostlist, size: size_t, buffer: *mut c_char, _dims: c_int, _brackets: c_int) -> ssize_t, else -1, {
        Ok(put(&own(at)?.ranged(), size, buffer))
    }
    /// The list as an expression, to be freed by free(3).
    fn slurm_hostlist_ranged_string_malloc(at: *mut SlurmHostlist) -> *mut c_char, else null_mut(), {
        Ok(memory::string(&own(at)?.ranged()))
    }
    /// The list as an expression, to be freed by `slurm_xfree`.
    fn slurm_hostlist_ranged_string_xmalloc(at: *mut SlurmHostlist) -> *mut c_char, else null_mut(), {
        Ok(memory::string(&own(at)?.ranged()))
    }
    /// As above.
    fn slurm_hostlist_ranged_string_xmalloc_dims(at: *mut SlurmHostlist, _dims: c_int, _brackets: c_int) -> *mut c_char, else null_mut(), {
        Ok(memory::string(&own(at)?.ranged()))
    }
    /// Writes all names with commas between, and gives the length; -1 if it was cut.
    fn slurm_hostlist_deranged_string(at: *mut SlurmHostlist, size: size_t, buffer: *mut c_char) -> ssize_t, else -1, {
        Ok(put(&own(at)?.deranged(), size, buffer))
    }
    /// All names with commas between, to be freed by free(3).
    fn slurm_hostlist_deranged_string_malloc(at: *mut SlurmHostlist) -> *mut c_char, else null_mut(), {
        Ok(memory::string(&own(at)?.deranged()))
    }
    /// As above, to be freed by `slurm_xfree`.
    fn slurm_hostlist_deranged_string_xmalloc(at: *mut SlurmHostlist) -> *mut c_char, else null_mut(), {
        Ok(memory::string(&own(at)?.deranged()))
    }
    /// An iterator at the first name.
    fn slurm_hostlist_iterator_create(at: *mut SlurmHostlist) -> *mut SlurmHostlistIterator, else null_mut(), {
        own(at)?;
        Ok(Box::into_raw(Box::new(SlurmHostlistIterator { list: at, next: 0 })))
    }
    /// A copy of the next name; null behind the last. To be freed by free(3).
    fn slurm_hostlist_next(at: *mut SlurmHostlistIterator) -> *mut c_char, else null_mut(), {
        let Some(iterator) = at.as_mut() else { return Ok(null_mut()) };
        let name = own(iterator.list)?.names.get(iterator.next).cloned();
        iterator.next += usize::from(name.is_some());
        Ok(string_or_null(name))
    }
    /// Takes out the name that was given last, and says whether there was one.
    fn slurm_hostlist_remove(at: *mut SlurmHostlistIterator) -> c_int, else 0, {
        let Some(iterator) = at.as_mut().filter(|own| own.next > 0) else { return Ok(0) };
        let list = own(iterator.list)?;
        if iterator.next > list.names.len() {
            return Ok(0);
        }
        iterator.next -= 1;
        list.names.remove(iterator.next);
        Ok(1)
    }
    /// A set of the names of an expression.
    fn slurm_hostset_create(text: *const c_char) -> *mut SlurmHostlist, else null_mut(), {
        let Some(mut list) = SlurmHostlist::parsed(memory::text(text)) else { return Ok(null_mut()) };
        list.unique();
        Ok(made(list))
    }
    /// A copy of a set.
    fn slurm_hostset_copy(at: *mut SlurmHostlist) -> *mut SlurmHostlist, else null_mut(), {
        Ok(made(own(at)?.clone()))
    }
    /// Adds names that are not there, and gives their number.
    fn slurm_hostset_insert(at: *mut SlurmHostlist, text: *const c_char) -> c_int, else 0, {
        let added = SlurmHostlist::parsed(memory::text(text)).unwrap_or_default();
        let own = own(at)?;
        let before = own.names.len();
        own.names.extend(added.names);
        own.unique();
        Ok(count(own.names.len() - before))
    }
    /// Takes out names, and gives the number of those that were there.
    fn slurm_hostset_delete(at: *mut SlurmHostlist, text: *const c_char) -> c_int, else 0, {
        let gone = SlurmHostlist::parsed(memory::text(text)).unwrap_or_default().names;
        let gone: BTreeSet<&String> = gone.iter().collect();
        let own = own(at)?;
        let before = own.names.len();
        own.names.retain(|name| !gone.contains(name));
        Ok(count(before - own.names.len()))
    }
    /// Whether all names of an expression are in the set.
    fn slurm_hostset_within(at: *mut SlurmHostlist, text: *const c_char) -> c_int, else 0, {
        let asked = SlurmHostlist::parsed(memory::text(text)).unwrap_or_default().names;
        let own: BTreeSet<&String> = own(at)?.names.iter().collect();
        Ok(asked.iter().all(|name| own.contains(name)).into())
    }
    /// Takes the first name.
    fn slurm_hostset_shift(at: *mut SlurmHostlist) -> *mut c_char, else null_mut(), {
        Ok(slurm_hostlist_shift(at))
    }
    /// Takes the first names that one expression can hold.
    fn slurm_hostset_shift_range(at: *mut SlurmHostlist) -> *mut c_char, else null_mut(), {
        Ok(string_or_null(own(at)?.take_range()))
    }
    /// Number of names.
    fn slurm_hostset_count(at: *mut SlurmHostlist) -> c_int, else 0, {
        Ok(count(own(at)?.names.len()))
    }
    /// Place of a name; -1 if it is not there.
    fn slurm_hostset_find(at: *mut SlurmHostlist, name: *const c_char) -> c_int, else -1, {
        let name = memory::text(name).unwrap_or_default();
        Ok(own(at)?.place(&name).map_or(-1, count))
    }
    /// A copy of the name at a place.
    fn slurm_hostset_nth(at: *mut SlurmHostlist, place: c_int) -> *mut c_char, else null_mut(), {
        Ok(slurm_hostlist_nth(at, place))
    }
}

quiet_functions! {
    /// Frees a list.
    fn slurm_hostlist_destroy(at: *mut SlurmHostlist) {
        if !at.is_null() {
            drop(Box::from_raw(at));
        }
    }
    /// Frees a set.
    fn slurm_hostset_destroy(at: *mut SlurmHostlist) {
        if !at.is_null() {
            drop(Box::from_raw(at));
        }
    }
    /// Sorts a list.
    fn slurm_hostlist_sort(at: *mut SlurmHostlist) {
        if let Ok(own) = own(at) {
            own.names.sort_by(|left, right| hostlist::natural_cmp(left, right));
        }
    }
    /// Sorts a list, and takes out duplicates.
    fn slurm_hostlist_uniq(at: *mut SlurmHostlist) {
        if let Ok(own) = own(at) {
            own.unique();
        }
    }
    /// Begins again.
    fn slurm_hostlist_iterator_reset(at: *mut SlurmHostlistIterator) {
        if let Some(own) = at.as_mut() {
            own.next = 0;
        }
    }
    /// Frees an iterator.
    fn slurm_hostlist_iterator_destroy(at: *mut SlurmHostlistIterator) {
        if !at.is_null() {
            drop(Box::from_raw(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> SlurmHostlist {
        SlurmHostlist::parsed(Some(text.to_owned())).unwrap()
    }

    #[test]
    fn a_range_is_what_one_expression_holds() {
        let mut own = list("n[1-3],n5,m1,m2");
        assert_eq!(own.take_range().as_deref(), Some("n[1-3,5]"));
        assert_eq!(own.take_range().as_deref(), Some("m[1-2]"));
        assert_eq!(own.take_range(), None);
    }

    #[test]
    fn malformed_expressions_are_no_list() {
        assert!(SlurmHostlist::parsed(Some("n[1-".to_owned())).is_none());
        assert!(SlurmHostlist::parsed(None).is_some_and(|own| own.names.is_empty()));
    }
}
