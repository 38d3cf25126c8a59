//! Job arrays. What is done to one is done to those of its jobs whose states allow it.

use super::{job_list, jobs_of};
use crate::abi::{CJobArray, CJobTemplate};
use crate::collections::CList;
use crate::error::{DrmaaCode, DrmaaError};
use crate::job_ref::JobRef;
use crate::jobs::{self, JobAction, SessionJob};
use crate::memory;
use libc::c_char;
use std::ptr::null_mut;

/// Name in a handle: programs make some of their own, without the jobs.
struct ArrayName {
    id: String,
    session: String,
}

/// # Safety
/// `at` is null or a job array that was not freed.
unsafe fn array_of(at: *const CJobArray) -> Result<ArrayName, DrmaaError> {
    let null = || DrmaaError::argument("the job array is null");
    // SAFETY: as the caller promises.
    unsafe {
        let own = at.as_ref().ok_or_else(null)?;
        Ok(ArrayName {
            id: memory::needed(own.id, "the job array's id")?.to_owned(),
            session: memory::needed(own.session, "the session's name")?.to_owned(),
        })
    }
}

/// # Safety
/// As of [`array_of`].
unsafe fn members(at: *const CJobArray) -> Result<Vec<SessionJob>, DrmaaError> {
    // SAFETY: as the caller promises.
    let own = unsafe { array_of(at) }?;
    let all = jobs::array(&own.session, &own.id)?.into_iter();
    let of_session = |job| SessionJob {
        job,
        session: Some(own.session.clone()),
    };
    Ok(all.map(of_session).collect())
}

/// # Safety
/// As of [`array_of`].
pub(super) unsafe fn control(at: *const CJobArray, action: JobAction) -> Result<(), DrmaaError> {
    // SAFETY: as the caller promises.
    jobs::control_all(&unsafe { members(at) }?, action)
}

/// # Safety
/// As of [`array_of`].
unsafe fn template(at: *const CJobArray) -> Result<*mut CJobTemplate, DrmaaError> {
    // SAFETY: as the caller promises.
    let own = unsafe { array_of(at) }?;
    let template = jobs::template(Some(&own.session), JobRef::parse(&own.id)?)?;
    Ok(memory::placed(CJobTemplate::of(&template)))
}

functions! {
    /// The id of a job array.
    fn drmaa2_jarray_get_id(array: *const CJobArray) -> *mut c_char, else null_mut(), {
        Ok(memory::string(&array_of(array)?.id))
    }

    /// The jobs of a job array.
    fn drmaa2_jarray_get_jobs(array: *const CJobArray) -> *mut CList, else null_mut(), {
        let known = array.as_ref().filter(|own| !own.jobs.is_null());
        let all = match known {
            Some(own) => jobs_of(own.jobs)?,
            None => members(array)?,
        };
        Ok(job_list(all.iter().map(super::job::waited_handle).collect()))
    }

    /// The name of a job array's session.
    fn drmaa2_jarray_get_session_name(array: *const CJobArray) -> *mut c_char, else null_mut(), {
        Ok(memory::string(&array_of(array)?.session))
    }

    /// Template with which a job array was submitted.
    fn drmaa2_jarray_get_jtemplate(array: *const CJobArray) -> *mut CJobTemplate, else null_mut(), {
        template(array)
    }

    /// `drmaa2_jarray_get_jtemplate` by its name in GFD.198.
    fn drmaa2_jarray_get_job_template(array: *const CJobArray) -> *mut CJobTemplate, else null_mut(), {
        template(array)
    }
}

procedures! {
    /// Stops the jobs' processes.
    fn drmaa2_jarray_suspend(array: *mut CJobArray) {
        control(array, JobAction::Suspend)
    }

    /// Lets stopped jobs go on.
    fn drmaa2_jarray_resume(array: *mut CJobArray) {
        control(array, JobAction::Resume)
    }

    /// Keeps jobs from starting.
    fn drmaa2_jarray_hold(array: *mut CJobArray) {
        control(array, JobAction::Hold)
    }

    /// Lets held jobs start.
    fn drmaa2_jarray_release(array: *mut CJobArray) {
        control(array, JobAction::Release)
    }

    /// Ends the jobs.
    fn drmaa2_jarray_terminate(array: *mut CJobArray) {
        control(array, JobAction::Terminate)
    }

    /// Takes jobs that have ended out of their session.
    fn drmaa2_jarray_reap(array: *mut CJobArray) {
        let mut count = 0;
        for own in members(array)? {
            match jobs::reap(&own) {
                Ok(()) => count += 1,
                Err(e) if [DrmaaCode::InvalidState, DrmaaCode::InvalidArgument].contains(&e.code) => {}
                Err(error) => return Err(error),
            }
        }
        match count {
            0 => Err(DrmaaError::new(DrmaaCode::InvalidState, "no job of the array has ended and is there")),
            _ => Ok(()),
        }
    }
}
