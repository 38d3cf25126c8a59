//! Functions of the standard on sessions, jobs, job arrays, reservations and the cluster, by their subject; this module
//! has their shared parts.

#![allow(unsafe_code)]

pub mod arrays;
pub mod cluster;
pub mod job;
pub mod limits;
pub mod reservation;
pub mod sessions;
pub mod univa;

use crate::abi::{self, CJob, CJobArray, CJobInfo, CMonitor, CSession};
use crate::collections::{CList, ListKind};
use crate::error::{DrmaaCode, DrmaaError};
use crate::job_ref::JobRef;
use crate::jobs::SessionJob;
use crate::memory;
use crate::values::{AttributeMap, AttributeValue};
use libc::c_char;
use std::ptr::null_mut;

/// Set to anything but `0`, it has machines listed by their names, as clients of GFD.198 read them.
const MACHINE_NAMES: &str = "MUSTER_DRMAA2_MACHINE_NAMES";

/// The information with machines by their names, where the environment says so.
fn as_wanted(info: AttributeMap) -> AttributeMap {
    let by_name = std::env::var(MACHINE_NAMES);
    match by_name.as_deref() {
        Ok("" | "0") | Err(_) => info,
        Ok(_) => with_names(info),
    }
}

/// The information with machines by their names.
fn with_names(mut info: AttributeMap) -> AttributeMap {
    for name in ["allocatedMachines", "reservedMachines"] {
        if let Some(AttributeValue::Machines(all)) = info.get(name) {
            let names = all.iter().map(|own| own.machine.clone()).collect();
            info.put(name, AttributeValue::Texts(names));
        }
    }
    info
}

/// The error of a handle that is null or was closed.
fn closed(what: &str) -> DrmaaError {
    let text = format!("the {what} is null, or was closed");
    DrmaaError::new(DrmaaCode::InvalidSession, text)
}

/// The name of an open session.
///
/// # Safety
/// `at` is null or a session that was not freed.
unsafe fn name_of<'a>(at: *const CSession) -> Result<&'a str, DrmaaError> {
    // SAFETY: as the caller promises.
    unsafe {
        let own = at.as_ref().filter(|own| !own.contact.is_null());
        let own = own.ok_or_else(|| closed("session"))?;
        memory::text(own.name, "the session's name")?.ok_or_else(|| closed("session"))
    }
}

/// Fails for a monitoring session that is not open.
///
/// # Safety
/// `at` is null or a monitoring session that was not freed.
unsafe fn is_open(at: *const CMonitor) -> Result<(), DrmaaError> {
    // SAFETY: as the caller promises.
    let own = unsafe { at.as_ref() }.filter(|own| !own.name.is_null());
    own.map(|_| ()).ok_or_else(|| closed("monitoring session"))
}

/// The job of a handle.
///
/// # Safety
/// `at` is null or a job that was not freed.
unsafe fn job_of(at: *const CJob) -> Result<SessionJob, DrmaaError> {
    // SAFETY: as the caller promises.
    unsafe {
        let null = || DrmaaError::argument("the job is null");
        let own = at.as_ref().ok_or_else(null)?;
        let session = memory::text(own.session, "the session's name")?;
        Ok(SessionJob {
            job: JobRef::parse(memory::needed(own.id, "the job's id")?)?,
            session: session.filter(|name| !name.is_empty()).map(str::to_owned),
        })
    }
}

/// The jobs of a list.
///
/// # Safety
/// `at` is null or a list of jobs that was not freed.
unsafe fn jobs_of(at: *const CList) -> Result<Vec<SessionJob>, DrmaaError> {
    let null = || DrmaaError::argument("the list of jobs is null");
    // SAFETY: as the caller promises.
    unsafe {
        let items = at.as_ref().ok_or_else(null)?.items();
        items.into_iter().map(|item| job_of(item.cast())).collect()
    }
}

/// Attributes that a filter has set; none for null.
///
/// # Safety
/// `at` is null or a structure whose members are unset or lead to values of their types.
unsafe fn filter_of(at: *const CJobInfo) -> Result<AttributeMap, DrmaaError> {
    // SAFETY: as the caller promises.
    let read = unsafe { at.as_ref().map(|own| own.attributes()) };
    read.unwrap_or_else(|| Ok(AttributeMap::default()))
}

/// The strings of a list; none of no list.
///
/// # Safety
/// `at` is null or a list of strings that was not freed.
unsafe fn names_of(at: *const CList) -> Result<Vec<String>, DrmaaError> {
    // SAFETY: as the caller promises.
    unsafe {
        let items = at.as_ref().map(CList::items).unwrap_or_default();
        let text = |item: *mut libc::c_void| memory::needed(item.cast(), "a name of the list");
        items
            .into_iter()
            .map(|item| text(item).map(str::to_owned))
            .collect()
    }
}

/// A string, or null.
fn string_or_null(text: Option<&str>) -> *mut c_char {
    text.map_or(null_mut(), memory::string)
}

/// A handle of a job, with the job's name where programs read it.
fn job_handle(own: &SessionJob, name: &str) -> *mut CJob {
    memory::placed_with_text(name, |name| CJob {
        id: memory::string(&own.job.to_string()),
        session: string_or_null(own.session.as_deref()),
        name,
    })
}

/// A list of handles.
fn job_list(handles: Vec<*mut CJob>) -> *mut CList {
    let items = handles.into_iter().map(<*mut CJob>::cast).collect();
    CList::made(ListKind::Jobs, abi::free_job, items)
}

/// A handle of a job array of a session.
fn array_handle(session: &str, jobs: Vec<JobRef>, name: &str) -> *mut CJobArray {
    let id = jobs.first().map(|own| own.job.to_string());
    let handle = |job| {
        let own = SessionJob {
            job,
            session: Some(session.to_owned()),
        };
        job_handle(&own, name)
    };
    memory::placed(CJobArray {
        id: string_or_null(id.as_deref()),
        jobs: job_list(jobs.into_iter().map(handle).collect()),
        session: memory::string(session),
    })
}
