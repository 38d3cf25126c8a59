//! DRMAA 1.0 for C (GFD.133): a shared library by which programs submit jobs, wait for them and control them, as
//! commands do: over the controller's socket, as the user that the process is. Here are the functions of the standard,
//! which turn pointers into values and results into numbers; their work is in [`session`]. DRMAA 2 is a library of its
//! own.

pub mod error;
pub mod job;
pub mod session;
pub mod template;
mod time;

use error::{DrmaaErrno, Error};
use job::JobEnd;
use libc::{c_char, c_int, c_long, c_uint, size_t};
use session::Action;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use template::{SCALARS, Tasks, VECTORS};

/// Values of a list that a program gives at most.
const VALUES_MAX: usize = 100_000;

/// A list that a program reads one by one.
#[derive(Debug)]
pub struct Values {
    all: Vec<String>,
    next: usize,
}

/// Where a function says what went wrong.
#[derive(Clone, Copy)]
struct Diagnosis {
    at: *mut c_char,
    size: size_t,
}

/// Runs the work of a function: its result as a number, its diagnosis where the program wants it.
fn run(diagnosis: Diagnosis, work: impl FnOnce() -> Result<(), Error>) -> c_int {
    let done = catch_unwind(AssertUnwindSafe(work));
    let done = done.unwrap_or_else(|_| Err(DrmaaErrno::InternalError.into()));
    match done {
        Ok(()) => DrmaaErrno::Success as c_int,
        Err(error) => {
            // SAFETY: the standard has programs give room for as many bytes as they say.
            #[allow(unsafe_code)]
            unsafe {
                write(&error.text, diagnosis.at, diagnosis.size);
            }
            error.code as c_int
        }
    }
}

/// Writes a text that ends in a zero byte, cut where there is no more room; whether all of it was written.
///
/// # Safety
/// `at` is null or has room for `size` bytes.
#[allow(unsafe_code)]
unsafe fn write(text: &str, at: *mut c_char, size: size_t) -> bool {
    if at.is_null() || size == 0 {
        return false;
    }
    let end = text.find('\0').unwrap_or(text.len());
    let mut length = end.min(size - 1);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    // SAFETY: `length` and a zero byte are at most `size`.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), at, length);
        *at.add(length) = 0;
    }
    length == text.len()
}

/// A text of the program's.
///
/// # Safety
/// `at` is null or leads to a text that ends in a zero byte.
#[allow(unsafe_code)]
unsafe fn text<'a>(at: *const c_char, what: &str) -> Result<&'a str, Error> {
    let wrong = |why: &str| Error::new(DrmaaErrno::InvalidArgument, format!("{what} is {why}"));
    if at.is_null() {
        return Err(wrong("null"));
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(at) }
        .to_str()
        .map_err(|_| wrong("not valid UTF-8"))
}

/// Texts of the program's, up to a null.
///
/// # Safety
/// `at` is null or leads to pointers as [`text`] takes them, the last of which is null.
#[allow(unsafe_code)]
unsafe fn texts(at: *const *const c_char, what: &str) -> Result<Vec<String>, Error> {
    let mut all = Vec::new();
    if at.is_null() {
        return Err(Error::new(
            DrmaaErrno::InvalidArgument,
            format!("{what} is null"),
        ));
    }
    for number in 0..=VALUES_MAX {
        // SAFETY: none before this was null, so that this is one of them.
        let own = unsafe { *at.add(number) };
        if own.is_null() {
            return Ok(all);
        }
        // SAFETY: as the caller promises.
        all.push(unsafe { text(own, what) }?.to_owned());
    }
    Err(Error::new(
        DrmaaErrno::InvalidArgument,
        format!("{what} has more than {VALUES_MAX} values"),
    ))
}

/// Puts a value where the program wants it.
///
/// # Safety
/// `at` is null or has room for a value.
#[allow(unsafe_code)]
unsafe fn put<T>(at: *mut T, value: T, what: &str) -> Result<(), Error> {
    if at.is_null() {
        return Err(Error::new(
            DrmaaErrno::InvalidArgument,
            format!("{what} is null"),
        ));
    }
    // SAFETY: as the caller promises.
    unsafe { at.write(value) };
    Ok(())
}

fn list(all: Vec<String>) -> *mut Values {
    Box::into_raw(Box::new(Values { all, next: 0 }))
}

/// A handle is a number, and leads nowhere: one that a program made up does no harm.
fn number(template: *const JobTemplate) -> usize {
    template as usize
}

/// Opaque type of a job template in programs.
pub enum JobTemplate {}

macro_rules! functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// Pointers are null or lead to what the standard says.
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind,)* diagnosis: *mut c_char, size: size_t) -> c_int {
            run(Diagnosis { at: diagnosis, size }, || {
                // SAFETY: as the program promises by calling it.
                #[allow(unused_unsafe)]
                unsafe { $body }
            })
        }
    )* };
}

functions! {
    /// Begins a session.
    fn drmaa_init(contact: *const c_char) {
        let contact = if contact.is_null() { "" } else { text(contact, "contact")? };
        session::init(contact)
    }

    /// Ends the session.
    fn drmaa_exit() {
        session::exit()
    }

    /// Makes a job template.
    fn drmaa_allocate_job_template(template: *mut *mut JobTemplate) {
        if template.is_null() {
            return Err(Error::new(DrmaaErrno::InvalidArgument, "jt is null"));
        }
        put(template, session::make_template()? as *mut JobTemplate, "jt")
    }

    /// Forgets a job template.
    fn drmaa_delete_job_template(template: *mut JobTemplate) {
        session::delete_template(number(template))
    }

    /// Sets an attribute.
    fn drmaa_set_attribute(template: *mut JobTemplate, name: *const c_char, value: *const c_char) {
        let (name, value) = (text(name, "name")?, text(value, "value")?);
        session::on_template(number(template), |own| own.set(name, value))
    }

    /// Gives an attribute.
    fn drmaa_get_attribute(
        template: *mut JobTemplate,
        name: *const c_char,
        value: *mut c_char,
        value_size: size_t,
    ) {
        let name = text(name, "name")?;
        let own = session::on_template(number(template), |own| own.get(name).map(str::to_owned))?;
        write(&own, value, value_size);
        Ok(())
    }

    /// Sets a list.
    fn drmaa_set_vector_attribute(
        template: *mut JobTemplate,
        name: *const c_char,
        values: *const *const c_char,
    ) {
        let (name, values) = (text(name, "name")?, texts(values, "value")?);
        session::on_template(number(template), |own| own.set_vector(name, values))
    }

    /// Gives a list.
    fn drmaa_get_vector_attribute(
        template: *mut JobTemplate,
        name: *const c_char,
        values: *mut *mut Values,
    ) {
        let name = text(name, "name")?;
        let own = session::on_template(number(template), |own| own.vector(name).map(<[String]>::to_vec))?;
        put(values, list(own), "values")
    }

    /// Names of attributes with one value.
    fn drmaa_get_attribute_names(values: *mut *mut Values) {
        put(values, list(SCALARS.map(str::to_owned).to_vec()), "values")
    }

    /// Names of attributes with a list.
    fn drmaa_get_vector_attribute_names(values: *mut *mut Values) {
        put(values, list(VECTORS.map(str::to_owned).to_vec()), "values")
    }

    /// Submits a job.
    fn drmaa_run_job(job: *mut c_char, job_size: size_t, template: *const JobTemplate) {
        if job.is_null() {
            return Err(Error::new(DrmaaErrno::InvalidArgument, "job_id is null"));
        }
        let names = session::submit(number(template), None)?;
        let name = names.first().ok_or(DrmaaErrno::InternalError)?;
        write(&name.to_string(), job, job_size);
        Ok(())
    }

    /// Submits a bulk job.
    fn drmaa_run_bulk_jobs(
        jobs: *mut *mut Values,
        template: *const JobTemplate,
        first: c_int,
        last: c_int,
        step: c_int,
    ) {
        if jobs.is_null() {
            return Err(Error::new(DrmaaErrno::InvalidArgument, "jobids is null"));
        }
        let positive = |number: c_int| u32::try_from(number).ok().filter(|number| *number > 0);
        let tasks = match (positive(first), positive(last), positive(step)) {
            (Some(first), Some(last), Some(step)) if first <= last => Tasks { first, last, step },
            _ => return Err(Error::new(DrmaaErrno::InvalidArgument, "tasks are counted from 1 upwards")),
        };
        let names = session::submit(number(template), Some(tasks))?;
        put(jobs, list(names.iter().map(ToString::to_string).collect()), "jobids")
    }

    /// Suspends, resumes, holds, releases or ends a job.
    fn drmaa_control(job: *const c_char, action: c_int) {
        let action = Action::of(action);
        let action = action.ok_or_else(|| Error::new(DrmaaErrno::InvalidArgument, "there is no such action"))?;
        session::control(text(job, "jobid")?, action)
    }

    /// Waits until jobs have ended.
    fn drmaa_synchronize(jobs: *const *const c_char, timeout: c_long, dispose: c_int) {
        session::synchronize(&texts(jobs, "job_ids")?, timeout, dispose != 0)
    }

    /// Waits for a job, and says how it ended.
    fn drmaa_wait(
        job: *const c_char,
        job_out: *mut c_char,
        job_out_size: size_t,
        stat: *mut c_int,
        timeout: c_long,
        usage: *mut *mut Values,
    ) {
        let (name, end, used) = session::wait(text(job, "job_id")?, timeout)?;
        write(&name.to_string(), job_out, job_out_size);
        if !stat.is_null() {
            put(stat, end.stat(), "stat")?;
        }
        if !usage.is_null() {
            put(usage, list(used), "rusage")?;
        }
        Ok(())
    }

    /// Whether a job ended by itself.
    fn drmaa_wifexited(exited: *mut c_int, stat: c_int) {
        put(exited, c_int::from(matches!(JobEnd::of_stat(stat), JobEnd::Exited(_))), "exited")
    }

    /// Its exit status.
    fn drmaa_wexitstatus(status: *mut c_int, stat: c_int) {
        let own = match JobEnd::of_stat(stat) {
            JobEnd::Exited(own) => c_int::from(own),
            // Programs ask without a look at how it ended; qacct has the same.
            JobEnd::Signaled(signal) => 128 + c_int::from(signal),
            JobEnd::Aborted | JobEnd::Lost => 0,
        };
        put(status, own, "exit_status")
    }

    /// Whether a signal ended it.
    fn drmaa_wifsignaled(signaled: *mut c_int, stat: c_int) {
        put(signaled, c_int::from(matches!(JobEnd::of_stat(stat), JobEnd::Signaled(_))), "signaled")
    }

    /// The name of the signal.
    fn drmaa_wtermsig(signal: *mut c_char, signal_size: size_t, stat: c_int) {
        let JobEnd::Signaled(own) = JobEnd::of_stat(stat) else {
            return Err(Error::new(DrmaaErrno::InvalidArgument, "no signal ended the job"));
        };
        let known = nix::sys::signal::Signal::try_from(c_int::from(own));
        let name = known.map_or_else(|_| format!("SIG{own}"), |known| known.as_str().to_owned());
        write(&name, signal, signal_size);
        Ok(())
    }

    /// Whether it left a core: that is not known here.
    fn drmaa_wcoredump(dumped: *mut c_int, _stat: c_int) {
        put(dumped, 0, "core_dumped")
    }

    /// Whether it ended before it ran.
    fn drmaa_wifaborted(aborted: *mut c_int, stat: c_int) {
        put(aborted, c_int::from(JobEnd::of_stat(stat) == JobEnd::Aborted), "aborted")
    }

    /// The state of a job.
    fn drmaa_job_ps(job: *const c_char, ps: *mut c_int) {
        let own = session::job_ps(text(job, "job_id")?)?;
        put(ps, own as c_int, "remote_ps")
    }

    /// The configuration that leads to the cluster.
    fn drmaa_get_contact(contact: *mut c_char, contact_size: size_t) {
        write(&session::contact().to_string_lossy(), contact, contact_size);
        Ok(())
    }

    /// 1.0.
    fn drmaa_version(major: *mut c_uint, minor: *mut c_uint) {
        put(major, 1, "major")?;
        put(minor, 0, "minor")
    }

    /// The workload manager.
    fn drmaa_get_DRM_system(system: *mut c_char, system_size: size_t) {
        write(concat!("Muster ", env!("CARGO_PKG_VERSION")), system, system_size);
        Ok(())
    }

    /// This library.
    fn drmaa_get_DRMAA_implementation(name: *mut c_char, name_size: size_t) {
        write(concat!("Muster DRMAA ", env!("CARGO_PKG_VERSION")), name, name_size);
        Ok(())
    }
}

/// The next value of a list.
///
/// # Safety
/// `values` is null or a list that was not released; `at` is null or has room for `size` bytes.
#[allow(unsafe_code)]
unsafe fn next(values: *mut Values, at: *mut c_char, size: size_t) -> c_int {
    // SAFETY: as the caller promises.
    let Some(values) = (unsafe { values.as_mut() }) else {
        return DrmaaErrno::InvalidArgument as c_int;
    };
    let Some(own) = values.all.get(values.next) else {
        return DrmaaErrno::NoMoreElements as c_int;
    };
    // SAFETY: as the caller promises.
    unsafe { write(own, at, size) };
    values.next += 1;
    DrmaaErrno::Success as c_int
}

/// How many values a list has.
///
/// # Safety
/// `values` is null or a list that was not released; `size` is null or has room for a number.
#[allow(unsafe_code)]
unsafe fn count(values: *mut Values, size: *mut size_t) -> c_int {
    // SAFETY: as the caller promises.
    match (unsafe { values.as_ref() }, size.is_null()) {
        (Some(values), false) => {
            // SAFETY: as the caller promises.
            unsafe { size.write(values.all.len()) };
            DrmaaErrno::Success as c_int
        }
        _ => DrmaaErrno::InvalidArgument as c_int,
    }
}

macro_rules! lists {
    ($($next:ident $count:ident $release:ident;)*) => { $(
        /// The next value of a list.
        ///
        /// # Safety
        /// Pointers are null or lead to what the standard says.
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $next(values: *mut Values, value: *mut c_char, size: size_t) -> c_int {
            // SAFETY: as the program promises by calling it.
            unsafe { next(values, value, size) }
        }

        /// How many values a list has.
        ///
        /// # Safety
        /// Pointers are null or lead to what the standard says.
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $count(values: *mut Values, size: *mut size_t) -> c_int {
            // SAFETY: as the program promises by calling it.
            unsafe { count(values, size) }
        }

        /// Gives a list back.
        ///
        /// # Safety
        /// The list was not given back.
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $release(values: *mut Values) {
            if !values.is_null() {
                // SAFETY: `list` made it, and nobody has it any more.
                drop(unsafe { Box::from_raw(values) });
            }
        }
    )* };
}

lists! {
    drmaa_get_next_attr_name drmaa_get_num_attr_names drmaa_release_attr_names;
    drmaa_get_next_attr_value drmaa_get_num_attr_values drmaa_release_attr_values;
    drmaa_get_next_job_id drmaa_get_num_job_ids drmaa_release_job_ids;
}

/// Text of an error's number.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
pub extern "C" fn drmaa_strerror(number: c_int) -> *const c_char {
    let code = usize::try_from(number)
        .ok()
        .and_then(|number| DrmaaErrno::ALL.get(number));
    code.map_or(c"there is no error of this number", |code| code.text())
        .as_ptr()
}
