//! Reservations and their sessions.

use super::{name_of, string_or_null};
use crate::abi::{self, CMonitor, CReservation, CReservationInfo, CReservationTemplate, CSession};
use crate::collections::{CList, ListKind};
use crate::error::DrmaaError;
use crate::{memory, reservations};
use libc::c_char;
use std::ptr::null_mut;

/// A reservation with the session that it is of.
struct ReservationName {
    id: String,
    session: Option<String>,
}

/// # Safety
/// `at` is null or a reservation that was not freed.
unsafe fn reservation_of(at: *const CReservation) -> Result<ReservationName, DrmaaError> {
    let null = || DrmaaError::argument("the reservation is null");
    // SAFETY: as the caller promises.
    unsafe {
        let own = at.as_ref().ok_or_else(null)?;
        let session = memory::text(own.session, "the session's name")?;
        Ok(ReservationName {
            id: memory::needed(own.id, "the reservation's id")?.to_owned(),
            session: session.filter(|name| !name.is_empty()).map(str::to_owned),
        })
    }
}

fn handle(id: &str, session: Option<&str>) -> *mut CReservation {
    memory::placed(CReservation {
        id: memory::string(id),
        session: string_or_null(session),
    })
}

fn list(ids: Vec<String>, session: Option<&str>) -> *mut CList {
    let items = ids.iter().map(|id| handle(id, session).cast()).collect();
    CList::made(ListKind::Reservations, abi::free_reservation, items)
}

/// # Safety
/// As of [`reservation_of`].
unsafe fn template(at: *const CReservation) -> Result<*mut CReservationTemplate, DrmaaError> {
    // SAFETY: as the caller promises.
    let own = unsafe { reservation_of(at) }?;
    let template = reservations::template(own.session.as_deref(), &own.id)?;
    Ok(memory::placed(CReservationTemplate::of(&template)))
}

functions! {
    /// The contact of a session: the path of slurm.conf.
    fn drmaa2_rsession_get_contact(session: *const CSession) -> *mut c_char, else null_mut(), {
        name_of(session)?;
        Ok(memory::copy((*session).contact))
    }

    /// The name of a session.
    fn drmaa2_rsession_get_session_name(session: *const CSession) -> *mut c_char, else null_mut(), {
        name_of(session).map(memory::string)
    }

    /// A reservation of a session.
    fn drmaa2_rsession_get_reservation(session: *const CSession, id: *const c_char) -> *mut CReservation, else null_mut(), {
        let name = name_of(session)?;
        let id = memory::needed(id, "reservationId")?;
        reservations::template(Some(name), id)?;
        Ok(handle(id, Some(name)))
    }

    /// Makes a reservation.
    fn drmaa2_rsession_request_reservation(session: *const CSession, template: *const CReservationTemplate) -> *mut CReservation, else null_mut(), {
        let name = name_of(session)?;
        let null = || DrmaaError::argument("the reservation template is null");
        let template = template.as_ref().ok_or_else(null)?.attributes()?;
        let id = reservations::request(name, template)?;
        Ok(handle(&id, Some(name)))
    }

    /// The reservations of a session that are there.
    fn drmaa2_rsession_get_reservations(session: *const CSession) -> *mut CList, else null_mut(), {
        let name = name_of(session)?;
        Ok(list(reservations::of_session(name)?, Some(name)))
    }

    /// All reservations that the user may see.
    fn drmaa2_msession_get_all_reservations(session: *const CMonitor) -> *mut CList, else null_mut(), {
        super::is_open(session)?;
        Ok(list(reservations::of_cluster()?, None))
    }

    /// The id of a reservation, which jobs name.
    fn drmaa2_r_get_id(reservation: *const CReservation) -> *mut c_char, else null_mut(), {
        Ok(memory::string(&reservation_of(reservation)?.id))
    }

    /// The name of a reservation's session.
    fn drmaa2_r_get_session_name(reservation: *const CReservation) -> *mut c_char, else null_mut(), {
        Ok(string_or_null(reservation_of(reservation)?.session.as_deref()))
    }

    /// Template with which a reservation was requested.
    fn drmaa2_r_get_reservation_template(reservation: *const CReservation) -> *mut CReservationTemplate, else null_mut(), {
        template(reservation)
    }

    /// As above, by its name in Univa's library.
    fn drmaa2_r_get_rtemplate(reservation: *const CReservation) -> *mut CReservationTemplate, else null_mut(), {
        template(reservation)
    }

    /// Information about a reservation.
    fn drmaa2_r_get_info(reservation: *const CReservation) -> *mut CReservationInfo, else null_mut(), {
        let info = reservations::info(&reservation_of(reservation)?.id)?;
        Ok(memory::placed(CReservationInfo::of(&super::as_wanted(info))))
    }
}

procedures! {
    /// Deletes a reservation.
    fn drmaa2_r_terminate(reservation: *mut CReservation) {
        let own = reservation_of(reservation)?;
        reservations::terminate(own.session.as_deref(), &own.id)
    }
}
