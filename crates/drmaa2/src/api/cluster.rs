//! The cluster, the library, errors and events.

use super::{is_open, names_of};
use crate::abi::{self, CMachineInfo, CMonitor, CNotification, CQueueInfo, CVersion};
use crate::collections::{CList, ListKind};
use crate::error;
use crate::values::{AttributeMap, VersionText};
use crate::{events, jobs, machines, memory};
use libc::{c_char, c_int};
use std::ptr::null_mut;

/// A function of the program's that is called for each event. It frees the notification.
pub type Callback = unsafe extern "C" fn(notification: *mut *mut CNotification);

/// Whether the optional features are there, by the numbers of `drmaa2_capability`: reservations, of slots; notification; a limit of
/// jobs at once; mails; no staging of files; deadlines; no range of slots; accounts; reservations from now on, for an amount of time;
/// none by operating system or architecture.
const CAPABILITIES: [bool; 13] = [
    true, true, true, true, true, false, true, false, true, true, true, false, false,
];

/// Calls a program's function.
fn notify(at: usize, notification: &AttributeMap) {
    let mut own = memory::placed(CNotification::of(notification));
    // SAFETY: it is the address of such a function, as `drmaa2_register_event_notification` has it.
    unsafe {
        let callback: Callback = std::mem::transmute::<usize, Callback>(at);
        callback(&mut own);
    }
}

functions! {
    /// The queues, or those of some names.
    fn drmaa2_msession_get_all_queues(session: *const CMonitor, names: *const CList) -> *mut CList, else null_mut(), {
        is_open(session)?;
        let all = machines::queues(&mut jobs::connect()?, &names_of(names)?)?;
        let items = all.iter().map(|own| memory::placed(CQueueInfo::of(own)).cast());
        Ok(CList::made(ListKind::Queues, abi::free_queue, items.collect()))
    }

    /// The machines, or those of some names.
    fn drmaa2_msession_get_all_machines(session: *const CMonitor, names: *const CList) -> *mut CList, else null_mut(), {
        is_open(session)?;
        let all = machines::machines(&mut jobs::connect()?, &names_of(names)?)?;
        let items = all.iter().map(|own| memory::placed(CMachineInfo::of(own)).cast());
        Ok(CList::made(ListKind::Machines, abi::free_machine, items.collect()))
    }

    /// The name of the workload manager.
    fn drmaa2_get_drms_name() -> *mut c_char, else null_mut(), {
        Ok(memory::string("Muster"))
    }

    /// Its version.
    fn drmaa2_get_drms_version() -> *mut CVersion, else null_mut(), {
        Ok(abi::version(&VersionText::of(env!("CARGO_PKG_VERSION"))))
    }

    /// The name of this library.
    fn drmaa2_get_drmaa_name() -> *mut c_char, else null_mut(), {
        Ok(memory::string(concat!("Muster DRMAA ", env!("CARGO_PKG_VERSION"))))
    }

    /// The version of the standard.
    fn drmaa2_get_drmaa_version() -> *mut CVersion, else null_mut(), {
        Ok(abi::version(&VersionText::of("2.2")))
    }

    /// Whether an optional feature is there.
    fn drmaa2_supports(capability: c_int) -> c_int, else 0, {
        let place = usize::try_from(capability).ok();
        let known = place.and_then(|place| CAPABILITIES.get(place).copied());
        known.map(c_int::from).ok_or_else(|| {
            error::DrmaaError::argument(format!("there is no capability {capability}"))
        })
    }
}

procedures! {
    /// Has a function called for events of jobs, or none.
    fn drmaa2_register_event_notification(callback: Option<Callback>) {
        events::register(callback.map(|own| own as usize), notify)
    }
}

/// The number of the thread's last error; 0 if its last call succeeded.
#[unsafe(no_mangle)]
pub extern "C" fn drmaa2_lasterror() -> c_int {
    error::last().map_or(0, |error| error.code.number())
}

/// Its text.
#[unsafe(no_mangle)]
pub extern "C" fn drmaa2_lasterror_text() -> *mut c_char {
    let text = error::last().map_or_else(|| "no error".to_owned(), |error| error.text);
    memory::string(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn capabilities_and_errors_are_known_without_a_cluster() {
        // SAFETY: there are no pointers.
        unsafe {
            assert_eq!((drmaa2_supports(0), drmaa2_supports(5)), (1, 0));
            assert_eq!(drmaa2_lasterror(), 0);
            assert_eq!((drmaa2_supports(13), drmaa2_supports(-1)), (0, 0));
            assert_eq!(drmaa2_lasterror(), 7);
        }
        let mut text = drmaa2_lasterror_text();
        // SAFETY: it is a string, and freed once.
        unsafe {
            assert_eq!(CStr::from_ptr(text), c"there is no capability -1");
            memory::free_string(&mut text);
        }
    }
}
