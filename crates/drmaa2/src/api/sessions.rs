//! Sessions: how they are made, opened, closed and destroyed.

use super::{closed, name_of};
use crate::abi::{CMonitor, CSession, CTexts};
use crate::collections::CList;
use crate::error::DrmaaError;
use crate::events;
use crate::jobs;
use crate::memory;
use crate::store::SessionKind;
use libc::c_char;
use std::ptr::null_mut;

fn handle(name: &str) -> *mut CSession {
    memory::placed(CSession {
        contact: memory::string(&jobs::contact()),
        name: memory::string(name),
    })
}

/// # Safety
/// The pointers are null or strings.
unsafe fn create(
    kind: SessionKind,
    name: *const c_char,
    contact: *const c_char,
) -> Result<*mut CSession, DrmaaError> {
    // SAFETY: as the caller promises.
    let (name, contact) = unsafe {
        let contact = memory::text(contact, "contact")?;
        (memory::text(name, "session_name")?, contact)
    };
    let name = jobs::create(kind, name, contact)?;
    if kind == SessionKind::Jobs {
        events::opened(&name);
    }
    Ok(handle(&name))
}

/// # Safety
/// `name` is null or a string.
unsafe fn open(kind: SessionKind, name: *const c_char) -> Result<*mut CSession, DrmaaError> {
    // SAFETY: as the caller promises.
    let name = unsafe { memory::needed(name, "session_name") }?;
    jobs::open(kind, name)?;
    if kind == SessionKind::Jobs {
        events::opened(name);
    }
    Ok(handle(name))
}

/// # Safety
/// `own` is null or a session that was not freed.
unsafe fn close(own: *mut CSession) -> Result<String, DrmaaError> {
    // SAFETY: as the caller promises.
    unsafe {
        let name = name_of(own)?.to_owned();
        memory::free_string(&raw mut (*own).contact);
        Ok(name)
    }
}

fn names(kind: SessionKind) -> Result<*mut CList, DrmaaError> {
    let all = jobs::store()?.names(kind)?;
    Ok(CTexts::of_texts(all.iter().map(String::as_str)).0)
}

functions! {
    /// Makes and opens a session of jobs.
    fn drmaa2_create_jsession(session_name: *const c_char, contact: *const c_char) -> *mut CSession, else null_mut(), {
        create(SessionKind::Jobs, session_name, contact)
    }

    /// Makes and opens a session of reservations.
    fn drmaa2_create_rsession(session_name: *const c_char, contact: *const c_char) -> *mut CSession, else null_mut(), {
        create(SessionKind::Reservations, session_name, contact)
    }

    /// Opens a session of jobs.
    fn drmaa2_open_jsession(session_name: *const c_char) -> *mut CSession, else null_mut(), {
        open(SessionKind::Jobs, session_name)
    }

    /// Opens a session of reservations.
    fn drmaa2_open_rsession(session_name: *const c_char) -> *mut CSession, else null_mut(), {
        open(SessionKind::Reservations, session_name)
    }

    /// Opens a session that looks at the cluster. Its name does not matter.
    fn drmaa2_open_msession(session_name: *const c_char) -> *mut CMonitor, else null_mut(), {
        let name = memory::text(session_name, "session_name")?;
        jobs::connect()?;
        Ok(memory::placed(CMonitor {
            name: memory::string(name.unwrap_or_default()),
        }))
    }

    /// The names of the user's sessions of jobs.
    fn drmaa2_get_jsession_names() -> *mut CList, else null_mut(), {
        names(SessionKind::Jobs)
    }

    /// The names of the user's sessions of reservations.
    fn drmaa2_get_rsession_names() -> *mut CList, else null_mut(), {
        names(SessionKind::Reservations)
    }
}

procedures! {
    /// Closes a session of jobs; its jobs go on.
    fn drmaa2_close_jsession(session: *mut CSession) {
        events::closed(&close(session)?);
        Ok(())
    }

    /// Closes a session of reservations.
    fn drmaa2_close_rsession(session: *mut CSession) {
        close(session).map(|_| ())
    }

    /// Closes a monitoring session.
    fn drmaa2_close_msession(session: *mut CMonitor) {
        super::is_open(session)?;
        let own = session.as_mut().ok_or_else(|| closed("monitoring session"))?;
        memory::free_string(&raw mut own.name);
        Ok(())
    }

    /// Forgets a session of jobs; its jobs go on.
    fn drmaa2_destroy_jsession(session_name: *const c_char) {
        let name = memory::needed(session_name, "session_name")?;
        jobs::store()?.destroy(SessionKind::Jobs, name)
    }

    /// Forgets a session of reservations, which stay.
    fn drmaa2_destroy_rsession(session_name: *const c_char) {
        let name = memory::needed(session_name, "session_name")?;
        jobs::store()?.destroy(SessionKind::Reservations, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{drmaa2_jsession_free, drmaa2_msession_free};
    use crate::error::{DrmaaCode, last};

    #[test]
    fn what_is_null_or_closed_is_no_session() {
        // SAFETY: null is allowed; the handles are freed once.
        unsafe {
            for closed in [
                drmaa2_close_jsession(null_mut()),
                drmaa2_close_rsession(null_mut()),
                drmaa2_close_msession(null_mut()),
            ] {
                assert_eq!(closed, DrmaaCode::InvalidSession.number());
            }
            assert!(drmaa2_open_jsession(std::ptr::null()).is_null());
            assert_eq!(last().map(|e| e.code), Some(DrmaaCode::InvalidArgument));
            assert_eq!(drmaa2_destroy_jsession(std::ptr::null()), 7);
            let mut own = handle("sessions-test");
            assert_eq!(drmaa2_close_jsession(own), 0);
            assert_eq!(
                drmaa2_close_jsession(own),
                DrmaaCode::InvalidSession.number()
            );
            drmaa2_jsession_free(&mut own);
            let mut own = memory::placed(CMonitor {
                name: memory::string(""),
            });
            assert_eq!(drmaa2_close_msession(own), 0);
            assert_eq!(
                drmaa2_close_msession(own),
                DrmaaCode::InvalidSession.number()
            );
            drmaa2_msession_free(&mut own);
        }
    }
}
