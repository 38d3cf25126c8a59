//! The session of a process: the jobs that it has submitted and not yet waited for, and queries about them to the
//! controller. Nothing is locked while a job is waited for.

use crate::error::{DrmaaErrno, Error};
use crate::job::{self, JobEnd, JobStatus, Name, Ps};
use crate::template::{Tasks, Template};
use muster_cli::connect::Client;
use muster_cli::library::JobPoller;
use muster_conf::endpoint;
use muster_model::command::{JobSelection, JobTarget, Reply, SignalScope, UserCommand};
use muster_model::index_set::IndexSet;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a controller that restarts is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Tasks of one bulk job.
const TASKS_MAX: u32 = 1_000_000;

/// All jobs of a session.
pub const ALL: &str = "DRMAA_JOB_IDS_SESSION_ALL";
/// Any job of a session.
pub const ANY: &str = "DRMAA_JOB_IDS_SESSION_ANY";

/// State of a session.
#[derive(Debug, Default)]
struct Session {
    /// Jobs that were not waited for.
    jobs: BTreeSet<Name>,
    /// Jobs that their owner has stopped by a signal.
    stopped: BTreeSet<Name>,
}

/// State of the process.
#[derive(Debug, Default)]
struct Shared {
    session: Option<Session>,
    templates: HashMap<usize, Template>,
    next_template: usize,
}

static SHARED: Mutex<Option<Shared>> = Mutex::new(None);

/// Works on what the process has.
fn with<T>(work: impl FnOnce(&mut Shared) -> T) -> T {
    let mut guard: MutexGuard<'_, Option<Shared>> =
        SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    work(guard.get_or_insert_default())
}

fn in_session<T>(work: impl FnOnce(&mut Session) -> T) -> Result<T, Error> {
    with(|shared| shared.session.as_mut().map(work))
        .ok_or_else(|| DrmaaErrno::NoActiveSession.into())
}

fn connect() -> Result<Client, Error> {
    Ok(Client::connect_patiently(PATIENCE)?)
}

/// The configuration that leads to the cluster.
pub fn contact() -> PathBuf {
    endpoint::conf_path()
}

/// Begins the session.
///
/// # Errors
/// There is one, the contact is another cluster's, or the cluster cannot be reached.
pub fn init(contact: &str) -> Result<(), Error> {
    if with(|shared| shared.session.is_some()) {
        return Err(DrmaaErrno::AlreadyActiveSession.into());
    }
    let own = endpoint::conf_path();
    if !contact.is_empty() && own.as_os_str() != contact {
        let text = format!(
            "\"{contact:.200}\" is not {}: set SLURM_CONF to use another cluster",
            own.display()
        );
        return Err(Error::new(DrmaaErrno::InvalidContactString, text));
    }
    connect()?;
    with(|shared| match shared.session {
        Some(_) => Err(DrmaaErrno::AlreadyActiveSession.into()),
        None => {
            shared.session = Some(Session::default());
            Ok(())
        }
    })
}

/// Ends the session; its jobs go on.
///
/// # Errors
/// There is none.
pub fn exit() -> Result<(), Error> {
    let ended = with(|shared| shared.session.take());
    ended
        .map(|_| ())
        .ok_or_else(|| DrmaaErrno::NoActiveSession.into())
}

/// Makes a template, and gives its number, which is not 0.
///
/// # Errors
/// There is no session.
pub fn make_template() -> Result<usize, Error> {
    with(|shared| {
        if shared.session.is_none() {
            return Err(DrmaaErrno::NoActiveSession.into());
        }
        shared.next_template += 1;
        shared
            .templates
            .insert(shared.next_template, Template::default());
        Ok(shared.next_template)
    })
}

/// Forgets a template.
///
/// # Errors
/// There is none of that number.
pub fn delete_template(number: usize) -> Result<(), Error> {
    with(|shared| shared.templates.remove(&number))
        .map(|_| ())
        .ok_or_else(no_template)
}

/// Works on a template.
///
/// # Errors
/// There is no session, none of that number, or what `work` fails with.
pub fn on_template<T>(
    number: usize,
    work: impl FnOnce(&mut Template) -> Result<T, Error>,
) -> Result<T, Error> {
    with(|shared| {
        if shared.session.is_none() {
            return Err(DrmaaErrno::NoActiveSession.into());
        }
        work(shared.templates.get_mut(&number).ok_or_else(no_template)?)
    })
}

fn no_template() -> Error {
    Error::new(DrmaaErrno::InvalidArgument, "there is no such job template")
}

/// Submits a job, or a bulk job with a name for each task.
///
/// # Errors
/// The template makes no job, or the controller takes none.
pub fn submit(template: usize, tasks: Option<Tasks>) -> Result<Vec<Name>, Error> {
    if tasks.is_some_and(|tasks| (tasks.last - tasks.first) / tasks.step >= TASKS_MAX) {
        return Err(Error::new(
            DrmaaErrno::InvalidArgument,
            format!("a bulk job has at most {TASKS_MAX} tasks"),
        ));
    }
    let template = on_template(template, |own| Ok(own.clone()))?;
    let mut client = connect()?;
    let command = template.submission(tasks)?;
    let id = match client.command(command)? {
        Reply::Submitted { id, .. } => id,
        other => {
            return Err(Error::new(
                DrmaaErrno::InternalError,
                format!("unexpected answer: {other:.200?}"),
            ));
        }
    };
    let names: Vec<Name> = match tasks {
        None => vec![Name {
            job: id,
            task: None,
        }],
        Some(tasks) => (tasks.first..=tasks.last)
            .step_by(usize::try_from(tasks.step).unwrap_or(1))
            .map(|task| Name {
                job: id,
                task: Some(task),
            })
            .collect(),
    };
    in_session(|session| session.jobs.extend(names.iter().copied()))?;
    Ok(names)
}

/// Action of a program on a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Stops it.
    Suspend,
    /// Lets it go on.
    Resume,
    /// Keeps it from starting.
    Hold,
    /// Lets it start.
    Release,
    /// Ends it.
    Terminate,
}

impl Action {
    /// By its number.
    pub fn of(number: i32) -> Option<Action> {
        let all = [
            Action::Suspend,
            Action::Resume,
            Action::Hold,
            Action::Release,
            Action::Terminate,
        ];
        all.get(usize::try_from(number).ok()?).copied()
    }
}

/// Does something to a job, or to all of the session.
///
/// # Errors
/// The job's state does not allow it, or the user may not do it.
pub fn control(job: &str, action: Action) -> Result<(), Error> {
    let names = match job {
        ALL => in_session(|session| session.jobs.iter().copied().collect::<Vec<_>>())?,
        name => {
            in_session(|_| ())?;
            vec![Name::parse(name)?]
        }
    };
    let mut client = connect()?;
    for name in names {
        let done = control_one(&mut client, name, action);
        match done {
            // Of all jobs, those that have ended are left alone.
            Err(error) if job == ALL && error.code == state_error(action) => {}
            other => other?,
        }
    }
    Ok(())
}

fn state_error(action: Action) -> DrmaaErrno {
    match action {
        Action::Suspend => DrmaaErrno::SuspendInconsistentState,
        Action::Resume => DrmaaErrno::ResumeInconsistentState,
        Action::Hold => DrmaaErrno::HoldInconsistentState,
        Action::Release => DrmaaErrno::ReleaseInconsistentState,
        Action::Terminate => DrmaaErrno::InvalidJob,
    }
}

fn control_one(client: &mut Client, name: Name, action: Action) -> Result<(), Error> {
    let ps = status(client, name)?.ps;
    let is_fit = match action {
        Action::Suspend => ps == Ps::Running,
        Action::Resume => matches!(ps, Ps::SystemSuspended | Ps::UserSuspended),
        Action::Hold => ps == Ps::QueuedActive,
        Action::Release => matches!(ps, Ps::UserOnHold | Ps::SystemOnHold),
        Action::Terminate => !matches!(ps, Ps::Done | Ps::Failed),
    };
    if !is_fit {
        let text = format!("job {name} is in another state: {ps:?}");
        return Err(Error::new(state_error(action), text));
    }
    let target = JobTarget {
        job: name.job,
        tasks: name
            .task
            .map(|task| [task].into_iter().collect::<IndexSet>()),
        component: None,
    };
    match action {
        Action::Hold => command(client, UserCommand::Hold { target, user: true }),
        Action::Release => command(client, UserCommand::Release { target }),
        Action::Terminate => command(
            client,
            UserCommand::Cancel {
                selection: selection(target),
            },
        ),
        Action::Suspend | Action::Resume => {
            let stops = action == Action::Suspend;
            // Owners may stop processes; to give CPUs away is an operator's.
            let signal = if stops { libc::SIGSTOP } else { libc::SIGCONT };
            command(
                client,
                UserCommand::Signal {
                    selection: selection(target),
                    signal: signal.unsigned_abs(),
                    scope: SignalScope::Full,
                },
            )?;
            in_session(|session| match stops {
                true => session.stopped.insert(name),
                false => session.stopped.remove(&name),
            })?;
            Ok(())
        }
    }
}

fn selection(target: JobTarget) -> JobSelection {
    JobSelection {
        targets: vec![target],
        ..JobSelection::default()
    }
}

fn command(client: &mut Client, command: UserCommand) -> Result<(), Error> {
    match client.command(command)? {
        Reply::Done { refused, .. } => match refused.into_iter().next() {
            None => Ok(()),
            Some((_, refusal)) => Err(muster_cli::connect::ConnectError::from(refusal).into()),
        },
        other => Err(Error::new(
            DrmaaErrno::InternalError,
            format!("unexpected answer: {other:.200?}"),
        )),
    }
}

fn status(client: &mut Client, name: Name) -> Result<JobStatus, Error> {
    let mut status = job::status(client, name)?;
    if status.ps == Ps::Running && in_session(|session| session.stopped.contains(&name))? {
        status.ps = Ps::UserSuspended;
    }
    Ok(status)
}

/// The state of a job.
///
/// # Errors
/// There is no such job.
pub fn job_ps(job: &str) -> Result<Ps, Error> {
    in_session(|_| ())?;
    let name = Name::parse(job)?;
    Ok(status(&mut connect()?, name)?.ps)
}

/// Seconds to wait as DRMAA has them: -1 is for ever.
fn until(timeout: libc::c_long) -> Option<Instant> {
    let seconds = u64::try_from(timeout).ok()?;
    Instant::now().checked_add(Duration::from_secs(seconds))
}

/// The end of a job of the session, or the first of several; that job is no longer the session's.
///
/// # Errors
/// [`DrmaaErrno::ExitTimeout`], [`DrmaaErrno::InvalidJob`].
pub fn wait(job: &str, timeout: libc::c_long) -> Result<(Name, JobEnd, Vec<String>), Error> {
    let named = match job {
        ANY => None,
        name => Some(Name::parse(name)?),
    };
    let mut looks = JobPoller::until(until(timeout));
    loop {
        let names = in_session(|session| match named {
            Some(name) => session.jobs.get(&name).copied().into_iter().collect(),
            None => session.jobs.iter().copied().collect::<Vec<_>>(),
        })?;
        if names.is_empty() {
            let text = format!("{job:.80} is not a job of this session, or was waited for already");
            return Err(Error::new(DrmaaErrno::InvalidJob, text));
        }
        if let Some((name, end, usage)) = first_end(&names)? {
            // Another thread may have waited for it, too.
            if in_session(|session| session.jobs.remove(&name))? {
                return Ok((name, end, usage));
            }
            continue;
        }
        wait_to_look(&mut looks)?;
    }
}

fn first_end(names: &[Name]) -> Result<Option<(Name, JobEnd, Vec<String>)>, Error> {
    let mut client = connect()?;
    for name in names {
        let status = status(&mut client, *name)?;
        if let Some(end) = status.end {
            return Ok(Some((*name, end, status.usage)));
        }
    }
    Ok(None)
}

fn wait_to_look(looks: &mut JobPoller) -> Result<(), Error> {
    match looks.wait() {
        true => Ok(()),
        false => Err(DrmaaErrno::ExitTimeout.into()),
    }
}

/// Waits until jobs have ended; with `dispose` they are no longer the session's then.
///
/// # Errors
/// [`DrmaaErrno::ExitTimeout`], [`DrmaaErrno::InvalidJob`].
pub fn synchronize(jobs: &[String], timeout: libc::c_long, dispose: bool) -> Result<(), Error> {
    let names = match jobs.iter().any(|job| job == ALL) {
        true => in_session(|session| session.jobs.iter().copied().collect::<Vec<_>>())?,
        false => {
            in_session(|_| ())?;
            jobs.iter()
                .map(|job| Name::parse(job))
                .collect::<Result<_, _>>()?
        }
    };
    let mut looks = JobPoller::until(until(timeout));
    let mut left = names.clone();
    loop {
        let mut client = connect()?;
        let mut waiting = Vec::new();
        for name in left {
            if status(&mut client, name)?.end.is_none() {
                waiting.push(name);
            }
        }
        if waiting.is_empty() {
            break;
        }
        left = waiting;
        drop(client);
        wait_to_look(&mut looks)?;
    }
    if dispose {
        in_session(|session| session.jobs.retain(|own| !names.contains(own)))?;
    }
    Ok(())
}
