//! Functions of Univa's library beside the standard, as its binding for Python (uge-drmaa2) looks for them when it is
//! loaded. Functions that act as another user are refused: a process is its user here.

use super::job::{jobs_of_session, waited_handle};
use super::{arrays, job_list, job_of};
use crate::abi::{CJob, CJobArray, CSession, CVersion};
use crate::collections::{CDict, CList};
use crate::error::{DrmaaCode, DrmaaError, guarded, numbered};
use crate::job_ref::JobRef;
use crate::jobs::{self, HowMany, JobAction, JobPhase, SessionJob};
use libc::{c_int, c_void, time_t};
use std::ptr::null_mut;

fn another_user() -> DrmaaError {
    let text = "acting as another user is not supported: run the program as that user";
    DrmaaError::new(DrmaaCode::UnsupportedOperation, text)
}

/// # Safety
/// As of [`jobs_of_session`].
unsafe fn wait_all(
    session: *const CSession,
    list: *const CList,
    phase: JobPhase,
    timeout: time_t,
) -> Result<*mut CList, DrmaaError> {
    // SAFETY: as the caller promises.
    let all = unsafe { jobs_of_session(session, list) }?;
    let there = jobs::wait(&all, phase, HowMany::All, timeout)?;
    Ok(job_list(there.iter().map(waited_handle).collect()))
}

/// Ends all jobs of the array that a job is of, or the job alone.
///
/// # Safety
/// `job` is null or a job that was not freed.
unsafe fn terminate_all(job: *const CJob) -> Result<(), DrmaaError> {
    // SAFETY: as the caller promises.
    let own = unsafe { job_of(job) }?;
    if own.job.task.is_none() {
        return jobs::control(&own, JobAction::Terminate);
    }
    let whole = SessionJob {
        job: JobRef {
            task: None,
            ..own.job
        },
        session: own.session,
    };
    jobs::control(&whole, JobAction::Terminate)
}

functions! {
    /// Waits until all of the jobs have started.
    fn drmaa2_jsession_wait_all_started(session: *const CSession, list: *const CList, timeout: time_t) -> *mut CList, else null_mut(), {
        wait_all(session, list, JobPhase::Started, timeout)
    }

    /// Waits until all of the jobs have ended.
    fn drmaa2_jsession_wait_all_terminated(session: *const CSession, list: *const CList, timeout: time_t) -> *mut CList, else null_mut(), {
        wait_all(session, list, JobPhase::Terminated, timeout)
    }

    /// The implementation-specific attributes of a version, of which there are none.
    fn uge_vi_impl_spec_get(_version: *const CVersion) -> *mut CDict, else null_mut(), {
        Ok(CDict::made())
    }
}

procedures! {
    /// Ends a job.
    fn drmaa2_j_terminate_forced(job: *mut CJob) {
        jobs::control(&job_of(job)?, JobAction::Terminate)
    }

    /// Ends all jobs of the array that a job is of.
    fn drmaa2_j_terminate_all(job: *mut CJob) {
        terminate_all(job)
    }

    /// As above.
    fn drmaa2_j_terminate_forced_all(job: *mut CJob) {
        terminate_all(job)
    }

    /// Ends the jobs of an array.
    fn drmaa2_jarray_terminate_all(array: *mut CJobArray) {
        arrays::control(array, JobAction::Terminate)
    }
}

macro_rules! refused {
    ($($name:ident)*) => { $(
        /// Refused: a process is its user.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            numbered(|| Err(another_user()))
        }
    )* };
}

refused! {
    drmaa2_j_suspend_as
    drmaa2_j_resume_as
    drmaa2_j_hold_as
    drmaa2_j_release_as
    drmaa2_j_terminate_as
    drmaa2_j_terminate_all_as
    drmaa2_jarray_suspend_as
    drmaa2_jarray_resume_as
    drmaa2_jarray_hold_as
    drmaa2_jarray_release_as
    drmaa2_jarray_terminate_as
    drmaa2_jarray_terminate_all_as
    drmaa2_destroy_jsession_as
    drmaa2_destroy_rsession_as
    drmaa2_r_terminate_as
}

macro_rules! refused_handles {
    ($($name:ident)*) => { $(
        /// Refused: a process is its user.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> *mut c_void {
            guarded(null_mut(), || Err(another_user()))
        }
    )* };
}

refused_handles! {
    drmaa2_create_jsession_as
    drmaa2_create_rsession_as
    drmaa2_jsession_run_job_as
    drmaa2_jsession_run_bulk_jobs_as
    drmaa2_rsession_request_reservation_as
}
