//! Jobs and their sessions.

use super::{
    array_handle, filter_of, job_handle, job_list, job_of, jobs_of, name_of, string_or_null,
};
use crate::abi::{CJob, CJobArray, CJobInfo, CJobTemplate, CSession, CTexts};
use crate::collections::CList;
use crate::error::DrmaaError;
use crate::job_ref::TaskIndices;
use crate::jobs::{self, HowMany, JobAction, JobPhase, SessionJob};
use crate::memory;
use crate::records::{Depth, JobRecord};
use crate::submission::ArrayAsk;
use crate::values::AttributeMap;
use libc::{c_char, c_int, c_longlong, time_t};
use muster_cli::library;
use std::ptr::null_mut;

/// # Safety
/// `at` is null or a structure whose members are unset or lead to what their types say.
unsafe fn template_of(at: *const CJobTemplate) -> Result<AttributeMap, DrmaaError> {
    let null = || DrmaaError::argument("the job template is null");
    // SAFETY: as the caller promises.
    unsafe { at.as_ref().ok_or_else(null)?.attributes() }
}

fn handles_of(records: Vec<JobRecord>, session: Option<&str>) -> *mut CList {
    let handle = |record: JobRecord| {
        let own = SessionJob {
            job: record.job,
            session: session.map(str::to_owned),
        };
        job_handle(&own, &record.name)
    };
    job_list(records.into_iter().map(handle).collect())
}

/// A handle of a job that was waited for.
pub(super) fn waited_handle(own: &SessionJob) -> *mut CJob {
    let template = jobs::template(own.session.as_deref(), own.job).unwrap_or_default();
    job_handle(own, template.text("jobName").unwrap_or_default())
}

/// Jobs of a list, if they are all of the session.
///
/// # Safety
/// `list` is null or a list of jobs that was not freed.
pub(super) unsafe fn jobs_of_session(
    session: *const CSession,
    list: *const CList,
) -> Result<Vec<SessionJob>, DrmaaError> {
    // SAFETY: as the caller promises.
    let (name, mut all) = unsafe { (name_of(session)?, jobs_of(list)?) };
    for own in &mut all {
        let is_other = |other: &String| other != name;
        if own.session.as_ref().is_some_and(is_other) {
            return Err(DrmaaError::argument(format!(
                "job {} is of session \"{}\", not of \"{name}\"",
                own.job,
                own.session.as_deref().unwrap_or_default()
            )));
        }
        own.session = Some(name.to_owned());
    }
    Ok(all)
}

/// # Safety
/// As of [`jobs_of_session`].
unsafe fn wait_any(
    session: *const CSession,
    list: *const CList,
    phase: JobPhase,
    timeout: time_t,
) -> Result<*mut CJob, DrmaaError> {
    // SAFETY: as the caller promises.
    let all = unsafe { jobs_of_session(session, list) }?;
    let there = jobs::wait(&all, phase, HowMany::Any, timeout)?;
    Ok(there.first().map_or(null_mut(), waited_handle))
}

/// # Safety
/// `job` is null or a job that was not freed.
unsafe fn wait(job: *const CJob, phase: JobPhase, timeout: time_t) -> Result<(), DrmaaError> {
    // SAFETY: as the caller promises.
    let own = unsafe { job_of(job) }?;
    jobs::wait(&[own], phase, HowMany::All, timeout).map(|_| ())
}

functions! {
    /// The contact of a session: the path of slurm.conf.
    fn drmaa2_jsession_get_contact(session: *const CSession) -> *mut c_char, else null_mut(), {
        name_of(session)?;
        Ok(memory::copy((*session).contact))
    }

    /// The name of a session.
    fn drmaa2_jsession_get_session_name(session: *const CSession) -> *mut c_char, else null_mut(), {
        name_of(session).map(memory::string)
    }

    /// The job classes of the site.
    fn drmaa2_jsession_get_job_categories(session: *const CSession) -> *mut CList, else null_mut(), {
        name_of(session)?;
        let all = library::job_classes(&mut jobs::connect()?)?;
        Ok(CTexts::of_texts(all.iter().map(String::as_str)).0)
    }

    /// The jobs of a session that fit.
    fn drmaa2_jsession_get_jobs(session: *const CSession, filter: *const CJobInfo) -> *mut CList, else null_mut(), {
        let name = name_of(session)?;
        let records = jobs::of_session(name, &filter_of(filter)?)?;
        Ok(handles_of(records, Some(name)))
    }

    /// A job array of a session.
    fn drmaa2_jsession_get_job_array(session: *const CSession, id: *const c_char) -> *mut CJobArray, else null_mut(), {
        let name = name_of(session)?;
        let all = jobs::array(name, memory::needed(id, "jobarrayId")?)?;
        let first = all.first().copied();
        let template = first.map(|job| jobs::template(Some(name), job)).transpose()?;
        let title = template.as_ref().and_then(|own| own.text("jobName"));
        Ok(array_handle(name, all, title.unwrap_or_default()))
    }

    /// Submits a job.
    fn drmaa2_jsession_run_job(session: *const CSession, template: *const CJobTemplate) -> *mut CJob, else null_mut(), {
        let name = name_of(session)?;
        let template = template_of(template)?;
        let title = template.text("jobName").unwrap_or_default().to_owned();
        let made = jobs::submit(name, template, None)?;
        let own = made.first().map(|job| SessionJob {
            job: *job,
            session: Some(name.to_owned()),
        });
        Ok(own.map_or(null_mut(), |own| job_handle(&own, &title)))
    }

    /// Submits a job array.
    fn drmaa2_jsession_run_bulk_jobs(
        session: *const CSession,
        template: *const CJobTemplate,
        begin_index: c_longlong,
        end_index: c_longlong,
        step: c_longlong,
        max_parallel: c_longlong,
    ) -> *mut CJobArray, else null_mut(), {
        let name = name_of(session)?;
        let template = template_of(template)?;
        let title = template.text("jobName").unwrap_or_default().to_owned();
        let most = match max_parallel {
            // UNSET and 0 are no limit.
            -1 | 0 => None,
            most => Some(u32::try_from(most).map_err(|_| {
                DrmaaError::argument(format!("max_parallel is {most}: a number of jobs is expected"))
            })?),
        };
        let array = ArrayAsk {
            tasks: TaskIndices::of(begin_index, end_index, step)?,
            max_parallel: most,
        };
        let made = jobs::submit(name, template, Some(array))?;
        Ok(array_handle(name, made, &title))
    }

    /// Waits until one of the jobs has started.
    fn drmaa2_jsession_wait_any_started(session: *const CSession, list: *const CList, timeout: time_t) -> *mut CJob, else null_mut(), {
        wait_any(session, list, JobPhase::Started, timeout)
    }

    /// Waits until one of the jobs has ended.
    fn drmaa2_jsession_wait_any_terminated(session: *const CSession, list: *const CList, timeout: time_t) -> *mut CJob, else null_mut(), {
        wait_any(session, list, JobPhase::Terminated, timeout)
    }

    /// The id of a job.
    fn drmaa2_j_get_id(job: *const CJob) -> *mut c_char, else null_mut(), {
        Ok(memory::string(&job_of(job)?.job.to_string()))
    }

    /// The name of a job's session.
    fn drmaa2_j_get_session_name(job: *const CJob) -> *mut c_char, else null_mut(), {
        Ok(string_or_null(job_of(job)?.session.as_deref()))
    }

    /// Template with which a job was submitted.
    fn drmaa2_j_get_jtemplate(job: *const CJob) -> *mut CJobTemplate, else null_mut(), {
        let own = job_of(job)?;
        let template = jobs::template(own.session.as_deref(), own.job)?;
        Ok(memory::placed(CJobTemplate::of(&template)))
    }

    /// `drmaa2_j_get_jtemplate` by its name in GFD.198.
    fn drmaa2_j_get_jt(job: *const CJob) -> *mut CJobTemplate, else null_mut(), {
        let own = job_of(job)?;
        let template = jobs::template(own.session.as_deref(), own.job)?;
        Ok(memory::placed(CJobTemplate::of(&template)))
    }

    /// The state of a job, and more about it where there is more.
    fn drmaa2_j_get_state(job: *const CJob, substate: *mut *mut c_char) -> c_int, else -1, {
        if let Some(substate) = substate.as_mut() {
            *substate = null_mut();
        }
        let record = jobs::look(&job_of(job)?, Depth::States)?;
        if let Some(substate) = substate.as_mut() {
            *substate = string_or_null(record.sub_state.as_deref());
        }
        Ok(record.state.number())
    }

    /// Information about a job.
    fn drmaa2_j_get_info(job: *const CJob) -> *mut CJobInfo, else null_mut(), {
        let info = jobs::look(&job_of(job)?, Depth::Usage)?.info;
        Ok(memory::placed(CJobInfo::of(&super::as_wanted(info))))
    }

    /// As above, with the machines as strings, as in GFD.198.
    fn drmaa2_j_get_info_names(job: *const CJob) -> *mut CJobInfo, else null_mut(), {
        let info = jobs::look(&job_of(job)?, Depth::Usage)?.info;
        Ok(memory::placed(CJobInfo::of(&super::with_names(info))))
    }

    /// All jobs that the user may see and that fit.
    fn drmaa2_msession_get_all_jobs(session: *const crate::abi::CMonitor, filter: *const CJobInfo) -> *mut CList, else null_mut(), {
        super::is_open(session)?;
        let records = jobs::of_cluster(&filter_of(filter)?)?;
        Ok(handles_of(records, None))
    }
}

procedures! {
    /// Stops a job's processes.
    fn drmaa2_j_suspend(job: *mut CJob) {
        jobs::control(&job_of(job)?, JobAction::Suspend)
    }

    /// Lets a stopped job go on.
    fn drmaa2_j_resume(job: *mut CJob) {
        jobs::control(&job_of(job)?, JobAction::Resume)
    }

    /// Keeps a job from starting.
    fn drmaa2_j_hold(job: *mut CJob) {
        jobs::control(&job_of(job)?, JobAction::Hold)
    }

    /// Lets a held job start.
    fn drmaa2_j_release(job: *mut CJob) {
        jobs::control(&job_of(job)?, JobAction::Release)
    }

    /// Ends a job.
    fn drmaa2_j_terminate(job: *mut CJob) {
        jobs::control(&job_of(job)?, JobAction::Terminate)
    }

    /// Takes a job that has ended out of its session.
    fn drmaa2_j_reap(job: *mut CJob) {
        jobs::reap(&job_of(job)?)
    }

    /// Waits until a job has started.
    fn drmaa2_j_wait_started(job: *const CJob, timeout: time_t) {
        wait(job, JobPhase::Started, timeout)
    }

    /// Waits until a job has ended.
    fn drmaa2_j_wait_terminated(job: *const CJob, timeout: time_t) {
        wait(job, JobPhase::Terminated, timeout)
    }
}
