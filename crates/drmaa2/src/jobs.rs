//! Sessions of jobs: what programs do with jobs, as the user of the process. Nothing is locked while a job is waited for.

use crate::error::{DrmaaCode, DrmaaError};
use crate::job_ref::{JobRef, TaskIndices};
use crate::records::{self, Depth, DrmaaState, JobRecord};
use crate::store::{SessionEntry, SessionKind, SessionRecord, SessionStore, SubmittedJobs};
use crate::submission::{self, ArrayAsk};
use crate::values::AttributeMap;
use crate::{abi, machines};
use muster_cli::connect::Client;
use muster_cli::library::JobPoller;
use muster_conf::endpoint;
use muster_model::command::{JobSelection, JobTarget, Reply, SignalScope, UserCommand};
use muster_model::index_set::IndexSet;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for which a controller that restarts is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to the controller.
///
/// # Errors
/// There is none.
pub fn connect() -> Result<Client, DrmaaError> {
    Ok(Client::connect_patiently(PATIENCE)?)
}

/// The contact: the path of the configuration that leads to the cluster.
pub fn contact() -> String {
    endpoint::conf_path().to_string_lossy().into_owned()
}

/// The user's sessions.
///
/// # Errors
/// The user has no home.
pub fn store() -> Result<&'static SessionStore, DrmaaError> {
    static STORE: Mutex<BTreeMap<String, &'static SessionStore>> = Mutex::new(BTreeMap::new());
    let own = SessionStore::of_user()?;
    let mut known = STORE.lock().unwrap_or_else(PoisonError::into_inner);
    // A program may set HOME anew; there are few of them, and each stays.
    let place = known.entry(own.place());
    Ok(place.or_insert_with(|| Box::leak(Box::new(own))))
}

/// Makes a session; one without a name gets one.
///
/// # Errors
/// There is one, the contact is another cluster's, or the cluster cannot be reached.
pub fn create(
    kind: SessionKind,
    name: Option<&str>,
    contact_given: Option<&str>,
) -> Result<String, DrmaaError> {
    let own = contact();
    if contact_given.is_some_and(|given| !given.is_empty() && given != own) {
        return Err(DrmaaError::argument(format!(
            "contact \"{:.200}\" is not {own}: set SLURM_CONF to use another cluster",
            contact_given.unwrap_or_default()
        )));
    }
    connect()?;
    let name = name.filter(|name| !name.is_empty());
    let name = name.map_or_else(made_up_name, str::to_owned);
    store()?.create(kind, &name, &own)?;
    Ok(name)
}

fn made_up_name() -> String {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let host = nix::unistd::gethostname().unwrap_or_default();
    format!(
        "{:.40}-{}-{}-{count}",
        host.to_string_lossy(),
        std::process::id(),
        since.map_or(0, |since| since.as_nanos())
    )
}

/// Opens a session of this cluster.
///
/// # Errors
/// There is none, it is another cluster's, or the cluster cannot be reached.
pub fn open(kind: SessionKind, name: &str) -> Result<(), DrmaaError> {
    let record = store()?.read(kind, name)?;
    let own = contact();
    if record.contact != own {
        return Err(DrmaaError::argument(format!(
            "session \"{name}\" is of the cluster of {}, not of {own}: set SLURM_CONF",
            record.contact
        )));
    }
    connect()?;
    store()?.compact(kind, name)
}

fn session(name: &str) -> Result<SessionRecord, DrmaaError> {
    store()?.read(SessionKind::Jobs, name)
}

/// Submits a job or a job array.
///
/// # Errors
/// The template makes no job, or the controller takes none.
pub fn submit(
    name: &str,
    template: AttributeMap,
    array: Option<ArrayAsk>,
) -> Result<Vec<JobRef>, DrmaaError> {
    session(name)?;
    let mut client = connect()?;
    let excluded = match submission::needs_machines(&template) {
        true => machines::excluded(&mut client, &template)?,
        false => Vec::new(),
    };
    let command = submission::request(&template, array, &excluded)?;
    let job = match client.command(command)? {
        Reply::Submitted { id, .. } => id,
        other => return Err(DrmaaError::unexpected(&other)),
    };
    let tasks = array.map(|array| array.tasks);
    let own = SubmittedJobs { tasks, template };
    let entry = SessionEntry::Submitted(job, own);
    let added = store()?.add(SessionKind::Jobs, name, &entry);
    added.map_err(|e| {
        DrmaaError::new(
            e.code,
            format!("job {job} was submitted, but is not in session \"{name}\": {e}"),
        )
    })?;
    Ok(match tasks {
        None => vec![JobRef { job, task: None }],
        Some(tasks) => of_array(job, tasks),
    })
}

fn of_array(job: muster_model::ids::JobId, tasks: TaskIndices) -> Vec<JobRef> {
    let own = tasks.indices().map(|task| JobRef {
        job,
        task: Some(task),
    });
    own.collect()
}

/// Template with which a job or job array was submitted.
///
/// # Errors
/// The session does not have it.
pub fn template(name: Option<&str>, job: JobRef) -> Result<AttributeMap, DrmaaError> {
    let unknown = || DrmaaError::argument(format!("job {job} is of no session that is known"));
    let record = session(name.ok_or_else(unknown)?)?;
    let own = record.submitted.get(&job.job);
    own.map(|own| own.template.clone()).ok_or_else(unknown)
}

/// The jobs of a job array of the session.
///
/// # Errors
/// The session has no such job array.
pub fn array(name: &str, id: &str) -> Result<Vec<JobRef>, DrmaaError> {
    let job = JobRef::parse(id)?.job;
    let record = session(name)?;
    let tasks = record.submitted.get(&job).and_then(|own| own.tasks);
    let tasks = tasks.ok_or_else(|| {
        DrmaaError::argument(format!("session \"{name}\" has no job array {job}"))
    })?;
    Ok(of_array(job, tasks))
}

/// A job with the session that it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionJob {
    /// The job.
    pub job: JobRef,
    /// The session, if it is known.
    pub session: Option<String>,
}

/// Jobs that this process has stopped, with how often they had been restarted then.
static STOPPED: Mutex<BTreeMap<JobRef, u32>> = Mutex::new(BTreeMap::new());

/// Records of jobs, with those that were stopped by a signal as suspended.
fn find(
    client: &mut Client,
    jobs: &[SessionJob],
    depth: Depth,
) -> Result<Vec<Option<JobRecord>>, DrmaaError> {
    let refs: Vec<JobRef> = jobs.iter().map(|own| own.job).collect();
    let mut found = records::find(client, &refs, depth)?;
    let mut sessions: BTreeMap<&str, SessionRecord> = BTreeMap::new();
    for (own, record) in jobs.iter().zip(&mut found) {
        let Some(record) = record.as_mut().filter(|r| r.state == DrmaaState::Running) else {
            continue;
        };
        let here = STOPPED.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stopped = here.get(&own.job).copied();
        drop(here);
        if let Some(name) = own.session.as_deref().filter(|_| stopped.is_none()) {
            if !sessions.contains_key(name) {
                // A job may outlive its session.
                sessions.insert(name, session(name).unwrap_or_default());
            }
            stopped = sessions
                .get(name)
                .and_then(|s| s.stopped.get(&own.job).copied());
        }
        if stopped == Some(record.restarts) {
            record.set_state(DrmaaState::Suspended, None);
        }
    }
    Ok(found)
}

/// Record of a job.
///
/// # Errors
/// Nobody knows it.
pub fn look(own: &SessionJob, depth: Depth) -> Result<JobRecord, DrmaaError> {
    let mut client = connect()?;
    look_over(&mut client, own, depth)
}

fn look_over(client: &mut Client, own: &SessionJob, depth: Depth) -> Result<JobRecord, DrmaaError> {
    let found = find(client, std::slice::from_ref(own), depth)?;
    let found = found.into_iter().next().flatten();
    found.ok_or_else(|| DrmaaError::argument(format!("there is no job {}", own.job)))
}

/// The jobs of the session that fit.
///
/// # Errors
/// There is no such session, or the controller cannot be asked.
pub fn of_session(name: &str, filter: &AttributeMap) -> Result<Vec<JobRecord>, DrmaaError> {
    let jobs = session(name)?.jobs().into_iter().map(|job| SessionJob {
        job,
        session: Some(name.to_owned()),
    });
    let jobs: Vec<SessionJob> = jobs.collect();
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let mut client = connect()?;
    let found = find(&mut client, &jobs, depth_of(filter))?;
    let known = found.into_iter().flatten();
    Ok(known.filter(|record| record.is_in(filter)).collect())
}

/// All jobs that fit, of whichever session.
///
/// # Errors
/// The controller cannot be asked.
pub fn of_cluster(filter: &AttributeMap) -> Result<Vec<JobRecord>, DrmaaError> {
    let mut client = connect()?;
    let mut all = records::all(&mut client)?;
    // One that the controller has forgotten is found by its number.
    let named = filter.text("jobId").and_then(|id| JobRef::parse(id).ok());
    if let Some(job) = named.filter(|job| !all.iter().any(|own| own.job.job == job.job)) {
        all.extend(
            records::find(&mut client, &[job], Depth::Usage)?
                .into_iter()
                .flatten(),
        );
    }
    all.retain(|record| record.is_in(filter));
    Ok(all)
}

fn depth_of(filter: &AttributeMap) -> Depth {
    match filter.get("cpuTime") {
        Some(_) => Depth::Usage,
        None => Depth::States,
    }
}

/// Actions of programs on a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobAction {
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

impl JobAction {
    fn fits(self, state: DrmaaState) -> bool {
        use DrmaaState as S;
        match self {
            JobAction::Suspend => state == S::Running,
            JobAction::Resume => state == S::Suspended,
            JobAction::Hold => matches!(state, S::Queued | S::Requeued),
            JobAction::Release => matches!(state, S::QueuedHeld | S::RequeuedHeld),
            JobAction::Terminate => !state.is_ended(),
        }
    }

    fn verb(self) -> &'static str {
        match self {
            JobAction::Suspend => "suspended",
            JobAction::Resume => "resumed",
            JobAction::Hold => "held",
            JobAction::Release => "released",
            JobAction::Terminate => "terminated",
        }
    }
}

/// Does something to a job.
///
/// # Errors
/// Its state does not allow it, or the user may not do it.
pub fn control(own: &SessionJob, action: JobAction) -> Result<(), DrmaaError> {
    let mut client = connect()?;
    let record = look_over(&mut client, own, Depth::States)?;
    if !action.fits(record.state) {
        return Err(DrmaaError::new(
            DrmaaCode::InvalidState,
            format!(
                "job {} cannot be {}: its state is {:?}",
                own.job,
                action.verb(),
                record.state
            ),
        ));
    }
    act(&mut client, own, &record, action)
}

/// Does something to those jobs of an array whose states allow it.
///
/// # Errors
/// No job's state allows it, or the user may not do it.
pub fn control_all(all: &[SessionJob], action: JobAction) -> Result<(), DrmaaError> {
    let mut client = connect()?;
    let found = find(&mut client, all, Depth::States)?;
    let mut done = 0;
    for (own, record) in all.iter().zip(&found) {
        let Some(record) = record.as_ref().filter(|r| action.fits(r.state)) else {
            continue;
        };
        match act(&mut client, own, record, action) {
            Ok(()) => done += 1,
            // It has gone on meanwhile.
            Err(error) if error.code == DrmaaCode::InvalidState => {}
            Err(error) => return Err(error),
        }
    }
    match done {
        0 => Err(DrmaaError::new(
            DrmaaCode::InvalidState,
            format!("no job of the array can be {}", action.verb()),
        )),
        _ => Ok(()),
    }
}

fn act(
    client: &mut Client,
    own: &SessionJob,
    record: &JobRecord,
    action: JobAction,
) -> Result<(), DrmaaError> {
    let job = own.job;
    let target = JobTarget {
        job: job.job,
        tasks: job
            .task
            .map(|task| [task].into_iter().collect::<IndexSet>()),
        component: None,
    };
    let selection = |target| JobSelection {
        targets: vec![target],
        ..JobSelection::default()
    };
    let signal = match action {
        JobAction::Hold => {
            return command(client, UserCommand::Hold { target, user: true });
        }
        JobAction::Release => return command(client, UserCommand::Release { target }),
        JobAction::Terminate => {
            let selection = selection(target);
            return command(client, UserCommand::Cancel { selection });
        }
        // Owners may stop processes; to give CPUs away is an operator's.
        JobAction::Suspend => libc::SIGSTOP,
        JobAction::Resume => libc::SIGCONT,
    };
    let sent = UserCommand::Signal {
        selection: selection(target),
        signal: signal.unsigned_abs(),
        scope: SignalScope::Full,
    };
    command(client, sent)?;
    let mut stopped = STOPPED.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = match action {
        JobAction::Suspend => {
            stopped.insert(job, record.restarts);
            SessionEntry::Stopped(job, record.restarts)
        }
        _ => {
            stopped.remove(&job);
            SessionEntry::Continued(job)
        }
    };
    drop(stopped);
    match &own.session {
        Some(name) => match store()?.add(SessionKind::Jobs, name, &entry) {
            // A job may outlive its session.
            Err(error) if error.code != DrmaaCode::InvalidArgument => Err(error),
            _ => Ok(()),
        },
        None => Ok(()),
    }
}

fn command(client: &mut Client, command: UserCommand) -> Result<(), DrmaaError> {
    match client.command(command)? {
        Reply::Done { refused, .. } => match refused.into_iter().next() {
            None => Ok(()),
            Some((_, refusal)) => Err(refusal.into()),
        },
        other => Err(DrmaaError::unexpected(&other)),
    }
}

/// Takes a job that has ended out of its session.
///
/// # Errors
/// It has not ended, or is of no session.
pub fn reap(own: &SessionJob) -> Result<(), DrmaaError> {
    let unknown = || DrmaaError::argument(format!("job {} is of no session", own.job));
    let name = own.session.as_deref().ok_or_else(unknown)?;
    let record = session(name)?;
    if !record.submitted.contains_key(&own.job.job) || record.reaped.contains(&own.job) {
        return Err(unknown());
    }
    let mut client = connect()?;
    let found = find(&mut client, std::slice::from_ref(own), Depth::States)?;
    // A job that nobody knows any more has ended long ago.
    if let Some(Some(found)) = found.first()
        && !found.state.is_ended()
    {
        return Err(DrmaaError::new(
            DrmaaCode::InvalidState,
            format!(
                "job {} has not ended: its state is {:?}",
                own.job, found.state
            ),
        ));
    }
    STOPPED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .remove(&own.job);
    store()?.add(SessionKind::Jobs, name, &SessionEntry::Reaped(own.job))
}

/// Phase that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobPhase {
    /// It is on machines, or has been.
    Started,
    /// It has ended.
    Terminated,
}

/// Whether all jobs are waited for, or the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HowMany {
    /// The first one.
    Any,
    /// All.
    All,
}

/// Waits until jobs are in a phase, and gives those that are: the first one, or all.
///
/// # Errors
/// [`DrmaaCode::Timeout`]; [`DrmaaCode::InvalidState`] where none of them can start any more.
pub fn wait(
    all: &[SessionJob],
    phase: JobPhase,
    how_many: HowMany,
    timeout: i64,
) -> Result<Vec<SessionJob>, DrmaaError> {
    if all.is_empty() {
        return Err(DrmaaError::argument("there are no jobs to wait for"));
    }
    let mut looks = JobPoller::until(until(timeout)?);
    let mut there: Vec<SessionJob> = Vec::new();
    let mut left = all.to_vec();
    loop {
        let mut client = connect()?;
        let found = find(&mut client, &left, Depth::States)?;
        drop(client);
        let mut never = None;
        let mut waiting = Vec::new();
        for (own, record) in left.into_iter().zip(found) {
            match reached(&own, record.as_ref(), phase)? {
                Reached::Yes => there.push(own),
                Reached::NotYet => waiting.push(own),
                Reached::Never => never = Some(own),
            }
            if how_many == HowMany::Any && !there.is_empty() {
                return Ok(there);
            }
        }
        if let Some(own) = never.filter(|_| how_many == HowMany::All || waiting.is_empty()) {
            return Err(DrmaaError::new(
                DrmaaCode::InvalidState,
                format!("job {} ended before it started", own.job),
            ));
        }
        if waiting.is_empty() {
            return Ok(there);
        }
        left = waiting;
        if !looks.wait() {
            let text = "the time ran out first";
            return Err(DrmaaError::new(DrmaaCode::Timeout, text));
        }
    }
}

/// Progress of a job towards a phase.
enum Reached {
    Yes,
    NotYet,
    Never,
}

fn reached(
    own: &SessionJob,
    record: Option<&JobRecord>,
    phase: JobPhase,
) -> Result<Reached, DrmaaError> {
    let record =
        record.ok_or_else(|| DrmaaError::argument(format!("there is no job {}", own.job)))?;
    let is_ended = record.state.is_ended();
    Ok(match phase {
        JobPhase::Terminated if is_ended => Reached::Yes,
        JobPhase::Started if record.state.is_started() => Reached::Yes,
        JobPhase::Started if is_ended && record.has_started => Reached::Yes,
        JobPhase::Started if is_ended => Reached::Never,
        _ => Reached::NotYet,
    })
}

/// Until when a program waits, if not for ever.
fn until(timeout: i64) -> Result<Option<Instant>, DrmaaError> {
    if timeout == abi::INFINITE_TIME {
        return Ok(None);
    }
    let seconds = u64::try_from(timeout).map_err(|_| {
        DrmaaError::argument(format!(
            "the timeout is {timeout}: seconds, DRMAA2_ZERO_TIME or DRMAA2_INFINITE_TIME is expected"
        ))
    })?;
    Ok(Instant::now().checked_add(Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_need_a_state() {
        use DrmaaState as S;
        let all = [
            S::Undetermined,
            S::Queued,
            S::QueuedHeld,
            S::Running,
            S::Suspended,
            S::Requeued,
            S::RequeuedHeld,
            S::Done,
            S::Failed,
        ];
        let fitting = |action: JobAction| {
            let own = all.into_iter().filter(|state| action.fits(*state));
            own.map(DrmaaState::number).collect::<Vec<_>>()
        };
        assert_eq!(fitting(JobAction::Suspend), [3]);
        assert_eq!(fitting(JobAction::Resume), [4]);
        assert_eq!(fitting(JobAction::Hold), [1, 5]);
        assert_eq!(fitting(JobAction::Release), [2, 6]);
        assert_eq!(fitting(JobAction::Terminate), [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn timeouts_are_seconds_none_or_for_ever() {
        assert_eq!(until(-1).unwrap(), None);
        assert!(until(0).unwrap().is_some() && until(i64::MAX).is_ok());
        assert!(until(-2).is_err() && until(-3).is_err());
        assert!(wait(&[], JobPhase::Started, HowMany::Any, 0).is_err());
    }
}
