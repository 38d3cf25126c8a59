//! What the controller runs and writes for a site when things happen to jobs and nodes: what powers nodes down and up, mails through `MailProg`,
//! `EpilogSlurmctld`, and records of ended jobs (`JobCompType`). Nothing waits for these: what was under way when the
//! controller stops is not made up for. `PrologSlurmctld` is another matter: its job waits for it, and it runs again
//! when the controller comes back before it has ended.

mod completion;
mod job_mail;
mod mails;
mod power;
mod turns;

use crate::failure;
use crate::mail::ToWriter;
use crate::mail_address;
use crate::program_settings::{Completion, ProgramSettings};
use crate::sys;
use job_mail::JobMails;
use log::{error, warn};
use muster_core::event::Event;
use muster_core::state::State;
use muster_model::ids::{Attempt, JobAttempt, JobId};
use muster_model::job::{self, Job, JobState};
use muster_model::job_env::{self, JobView};
use muster_model::time::Timestamp;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use turns::{Room, take_turns};

/// Programs that run at the same time; further ones wait.
const AT_ONCE: usize = 64;

/// Watches events and has a thread of its own do what follows from them.
pub(crate) struct Programs {
    settings: ProgramSettings,
    job_mails: JobMails,
    power: power::Moves,
    tasks: Sender<Task>,
}

/// Something to do.
enum Task {
    /// Run a program because of a user's job, or of nodes, which are root's.
    Run(u32, Invocation),
    /// Run it, and tell the writer how that job's prolog has ended.
    Prolog(u32, Invocation, JobId, Attempt),
    /// Tell the writer that a job need not wait for a prolog.
    Ready(JobId, Attempt),
    /// Send a mail of a user's.
    Mail(u32, Invocation),
    /// Append a line to a file.
    Append(PathBuf, String),
    /// Send a mail of a user's at this time, unless the job is forgotten first.
    MailLater(Timestamp, JobId, u32, Invocation),
    /// The job has ended, or its limit changed.
    Forget(JobId),
}

/// A program with its arguments and its whole environment.
#[derive(Clone, Debug, PartialEq)]
struct Invocation {
    /// For the log.
    what: &'static str,
    program: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    /// A file that it finds and that goes away with it.
    file: Option<(PathBuf, String)>,
    /// When it is killed.
    time_limit: Option<Duration>,
}

impl Programs {
    /// Starts the thread, and watches the jobs that run.
    ///
    /// # Errors
    /// When there is no thread.
    pub(crate) fn start(
        settings: ProgramSettings,
        state: &State,
        writer: Sender<ToWriter>,
    ) -> std::io::Result<Programs> {
        let (tasks, inbox) = channel();
        let (mails, mailbox) = channel();
        failure::spawn_essential("mails", move || {
            mails::send_all(&mailbox);
            Ok(())
        })?;
        let (runs, waiting) = channel();
        let prologs = writer.clone();
        failure::spawn_essential("site programs", move || {
            run_all(&waiting, &prologs);
            Ok(())
        })?;
        failure::spawn_essential("programs", move || {
            dispatch(&inbox, (&mails, &runs), &writer);
            Ok(())
        })?;
        let mut programs = Programs {
            settings,
            job_mails: JobMails::default(),
            power: power::Moves::under_way(state),
            tasks,
        };
        programs.power_nodes(state);
        for job in state.active.iter().filter_map(|id| state.jobs.get(id)) {
            programs.watch_limit(state, job);
            programs.run_prolog(state, job);
        }
        Ok(programs)
    }

    /// The configuration was read again.
    pub(crate) fn configure(&mut self, settings: ProgramSettings) {
        self.settings = settings;
    }

    /// An event was applied to `state`.
    pub(crate) fn on_event(&mut self, state: &State, event: &Event) {
        match event {
            Event::JobStarted { id, .. } => {
                let Some(job) = state.jobs.get(id) else {
                    return;
                };
                self.run_prolog(state, job);
                self.mail(state, job, event);
            }
            Event::JobEnding { id, .. } => {
                let Some(job) = state.jobs.get(id) else {
                    return;
                };
                if job.state.is_ended() {
                    self.completed(state, job);
                }
                self.run_epilog(state, job);
                self.mail(state, job, event);
            }
            Event::JobChanged { id, .. } | Event::NodeReleased { id, .. } => {
                if let Some(job) = state.jobs.get(id) {
                    self.mail(state, job, event);
                }
            }
            Event::NodeChanged { node, change, .. } => self.power.on_event(*node, change),
            _ => {}
        }
    }

    /// Runs what powers nodes down and up, once for all that the last events were about.
    pub(crate) fn power_nodes(&mut self, state: &State) {
        for invocation in self.power.take(state, &self.settings) {
            self.send(Task::Run(0, invocation));
        }
    }

    /// Sends the mails that an event calls for, and sees to those that are due later.
    fn mail(&mut self, state: &State, job: &Job, event: &Event) {
        if job.spec.mail.is_none() {
            return;
        }
        match event {
            Event::JobStarted { at, .. } | Event::JobChanged { at, .. } => {
                self.write(state, job, event, *at);
                self.watch_limit(state, job);
            }
            Event::JobEnding { at, .. } => {
                self.write(state, job, event, *at);
                self.send(Task::Forget(job.id));
            }
            Event::NodeReleased { at, .. } => self.write(state, job, event, *at),
            _ => {}
        }
    }

    /// Runs `EpilogSlurmctld` for a job that had an allocation.
    fn run_epilog(&self, state: &State, job: &Job) {
        let ran = job.alloc.is_some();
        if let Some(program) = self.settings.epilog.clone().filter(|_| ran) {
            let mut env = self.env(state, job);
            env.push(variable("SLURM_SCRIPT_CONTEXT", "epilog_slurmctld"));
            env.extend(exit_env(job));
            self.run(job, "EpilogSlurmctld", program, env);
        }
    }

    /// Runs `PrologSlurmctld` for a job that waits for it.
    fn run_prolog(&self, state: &State, job: &Job) {
        if !job.configuring {
            return;
        }
        let Some(program) = self.settings.prolog.clone() else {
            // It was taken out of the configuration meanwhile.
            return self.send(Task::Ready(job.id, job.attempt));
        };
        let mut env = self.env(state, job);
        env.push(variable("SLURM_SCRIPT_CONTEXT", "prolog_slurmctld"));
        let invocation = Invocation {
            what: "PrologSlurmctld",
            program,
            args: Vec::new(),
            env,
            file: None,
            time_limit: None,
        };
        let uid = job.spec.owner.uid;
        self.send(Task::Prolog(uid, invocation, job.id, job.attempt));
    }

    fn send(&self, task: Task) {
        let _ = self.tasks.send(task);
    }

    /// Sends the mails that an event calls for.
    fn write(&mut self, state: &State, job: &Job, event: &Event, at: Timestamp) {
        for job_mail in self.job_mails.on(state, job, event, at) {
            let mut env = self.env(state, job);
            env.extend(job_mail.env);
            let mail = self.mail_invocation(job, job_mail.subject, env);
            self.send(Task::Mail(job.spec.owner.uid, mail));
        }
    }

    /// Sets times of mails that are due when a part of the job's time is over.
    fn watch_limit(&self, state: &State, job: &Job) {
        if job.spec.mail.is_none() || job.state != JobState::Running {
            return;
        }
        let _ = self.tasks.send(Task::Forget(job.id));
        for (at, job_mail) in job_mail::of_limit(job) {
            let mut env = self.env(state, job);
            env.extend(job_mail.env);
            let mail = self.mail_invocation(job, job_mail.subject, env);
            self.send(Task::MailLater(at, job.id, job.spec.owner.uid, mail));
        }
    }

    fn mail_invocation(
        &self,
        job: &Job,
        subject: String,
        env: Vec<(String, String)>,
    ) -> Invocation {
        Invocation {
            what: "MailProg",
            program: self.settings.mail_program.clone(),
            args: self.mail_args(job, subject),
            env,
            file: None,
            time_limit: Some(mails::TIME_LIMIT),
        }
    }

    /// The arguments of `MailProg`, as Slurm gives them: `-s`, the subject, the address, which the grammar of addresses keeps
    /// from being an option. An address that is none (jobs of older releases were not checked) is replaced by the
    /// job's owner.
    fn mail_args(&self, job: &Job, subject: String) -> Vec<String> {
        let named = job.spec.mail.as_ref().map(|(_, user)| user.as_str());
        let named = named.filter(|user| !user.is_empty() && mail_address::fault(user).is_none());
        let users = named.unwrap_or(&job.spec.owner.user);
        let domain = self.settings.mail_domain.as_deref();
        let whole = |user: &str| match domain.filter(|_| !user.contains('@')) {
            Some(domain) => format!("{user}@{domain}"),
            None => user.to_owned(),
        };
        let users: Vec<String> = users.split(',').map(whole).collect();
        vec!["-s".to_owned(), subject, users.join(",")]
    }

    fn completed(&self, state: &State, job: &Job) {
        match &self.settings.completion {
            Completion::None => {}
            Completion::File(path) => {
                let line = completion::line(job, &self.settings.cluster);
                let _ = self.tasks.send(Task::Append(path.clone(), line));
            }
            Completion::Script(program) => {
                let mut env = self.env(state, job);
                env.extend(completion::script_env(job, &self.settings.cluster));
                self.run(job, "JobCompLoc", program.clone(), env);
            }
        }
    }

    fn run(&self, job: &Job, what: &'static str, program: String, env: Vec<(String, String)>) {
        let invocation = Invocation {
            what,
            program,
            args: Vec::new(),
            env,
            file: None,
            time_limit: None,
        };
        self.send(Task::Run(job.spec.owner.uid, invocation));
    }

    /// Variables about a job for all of these programs.
    fn env(&self, state: &State, job: &Job) -> Vec<(String, String)> {
        let alloc = job.alloc.as_deref().cloned().unwrap_or_default();
        let array = state.arrays.get(&job.submission());
        let view = JobView {
            job: job.id,
            spec: &job.spec,
            alloc: &alloc,
            array: &job.array,
            array_info: array,
            start_time: job.start_time.unwrap_or(job.submit_time),
            time_limit: job.time_limit,
            restarts: job.restarts,
            account: job.spec.account_name(),
            qos: job.spec.qos_name(),
            cluster: &self.settings.cluster,
            conf_path: &self.settings.conf_path,
            working_cluster: "",
            lead_address: "",
            topology: ("", ""),
            components: &[],
        };
        // No node's: the controller runs them.
        let mut env = job_env::program_env(&view, usize::MAX);
        if let Some(array) = array {
            env.push(variable("SLURM_ARRAY_TASK_COUNT", array.count));
            env.push(variable("SLURM_ARRAY_TASK_MAX", array.max));
            env.push(variable("SLURM_ARRAY_TASK_MIN", array.min));
            env.push(variable("SLURM_ARRAY_TASK_STEP", array.step));
        }
        env
    }
}

fn variable(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

/// How a job ended, as wait(2) and as Slurm write it.
fn exit_env(job: &Job) -> Vec<(String, String)> {
    let job::ExitStatus { code, signal } = job.exit;
    vec![
        variable("SLURM_JOB_EXIT_CODE", (code << 8) | signal),
        variable("SLURM_JOB_EXIT_CODE2", format!("{code}:{signal}")),
        variable("SLURM_JOB_DERIVED_EC", job.derived_exit.code),
    ]
}

/// `days-hours:minutes:seconds` without what is zero at its front, as in listings.
fn duration(ms: u64) -> String {
    let s = ms / 1000;
    let (days, h, m, s) = (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60);
    match days {
        0 => format!("{h:02}:{m:02}:{s:02}"),
        _ => format!("{days}-{h:02}:{m:02}:{s:02}"),
    }
}

/// Where what is done for users waits for their turns.
type OfUsers<T> = Sender<(u32, T)>;

/// A program to run.
struct Run {
    invocation: Invocation,
    /// The job that waits for it, as its prolog.
    prolog: Option<JobAttempt>,
}

/// Runs the programs of users' jobs, which take turns by user: however many jobs of one end, those of others begin.
fn run_all(waiting: &Receiver<(u32, Run)>, writer: &Sender<ToWriter>) {
    let room = Arc::new(Room::of(AT_ONCE));
    take_turns(waiting, &room, usize::MAX, |run| {
        let writer = writer.clone();
        let prolog = run.prolog;
        start(run.invocation, &room, move |well| {
            if let Some(JobAttempt { job, attempt }) = prolog {
                let _ = writer.send(ToWriter::PrologEnded { job, attempt, well });
            }
        });
    });
}

fn dispatch(
    inbox: &Receiver<Task>,
    (mails, runs): (&OfUsers<Invocation>, &OfUsers<Run>),
    writer: &Sender<ToWriter>,
) {
    let mut later: BTreeMap<(Timestamp, JobId), (u32, Invocation)> = BTreeMap::new();
    loop {
        let task = match later.keys().next() {
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some((at, _)) => {
                let wait = at.since_ms(crate::clock::now());
                inbox.recv_timeout(Duration::from_millis(wait))
            }
        };
        match task {
            Ok(Task::Run(uid, invocation)) => {
                let prolog = None;
                drop(runs.send((uid, Run { invocation, prolog })));
            }
            Ok(Task::Prolog(uid, invocation, job, attempt)) => {
                let prolog = Some(JobAttempt::new(job, attempt));
                drop(runs.send((uid, Run { invocation, prolog })));
            }
            Ok(Task::Ready(job, attempt)) => {
                let well = true;
                let _ = writer.send(ToWriter::PrologEnded { job, attempt, well });
            }
            Ok(Task::Append(path, line)) => append(&path, &line),
            Ok(Task::Mail(uid, mail)) => drop(mails.send((uid, mail))),
            Ok(Task::MailLater(at, job, uid, mail)) => {
                later.insert((at, job), (uid, mail));
            }
            Ok(Task::Forget(job)) => later.retain(|(_, id), _| *id != job),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = crate::clock::now();
        while let Some(entry) = later.first_entry().filter(|e| e.key().0 <= now) {
            let _ = mails.send(entry.remove());
        }
    }
}

/// Runs a program beside this thread, once there is room for it.
fn start(invocation: Invocation, room: &Arc<Room>, ended: impl FnOnce(bool) + Send + 'static) {
    room.enter();
    let what = invocation.what;
    let inside = Arc::clone(room);
    let work = move || {
        ended(carry_out(&invocation));
        inside.leave();
    };
    if let Err(e) = failure::spawn_worker("program", work) {
        error!("{what} is not run: cannot start thread: {e}");
        room.leave();
    }
}

/// Runs it to its end; whether that was a good one.
fn carry_out(invocation: &Invocation) -> bool {
    let Invocation {
        what,
        program,
        args,
        env,
        file,
        time_limit,
    } = invocation;
    if let Some((path, text)) = file
        && let Err(e) = std::fs::write(path, text)
    {
        warn!("{what}={program}: {}: {e}", path.display());
    }
    let status = command(program, args)
        .env_clear()
        .envs(env.iter().map(|(name, value)| (name, value)))
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .and_then(|child| wait(child, *time_limit));
    if let Some((path, _)) = file {
        let _ = std::fs::remove_file(path);
    }
    match status {
        Ok(status) if status.success() => return true,
        Ok(status) => warn!("{what}={program}: {status}"),
        Err(e) => warn!("{what}={program}: {e}"),
    }
    false
}

/// Sets what the kernel ends when memory runs out to what it is for other processes, and becomes the program.
const LEAVE_PROTECTION: &str = r#"echo 0 2>/dev/null >/proc/self/oom_score_adj; exec "$0" "$@""#;

/// The command for a program, which the kernel is to treat like any other when memory runs out: the service manager has it end the
/// controller last (`OOMScoreAdjust=`), and children inherit that. A shell undoes it before it becomes the program. What comes of
/// this process without an exec cannot: until then it may neither be looked into, nor write to its own files in /proc.
fn command(program: &str, args: &[String]) -> Command {
    let own = std::fs::read_to_string("/proc/self/oom_score_adj");
    if own.is_ok_and(|value| value.trim() == "0") {
        let mut command = Command::new(program);
        command.args(args);
        return command;
    }
    let mut command = Command::new("/bin/sh");
    command.args(["-c", LEAVE_PROTECTION, program]).args(args);
    command
}

/// Waits for a program's end, and kills it and what it has started when its time is over. It leads its process group.
fn wait(mut child: Child, time_limit: Option<Duration>) -> std::io::Result<ExitStatus> {
    if let Some(limit) = time_limit
        && let Ok(ended) = sys::pidfd(child.id())
    {
        let mut fds = [PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        if poll(&mut fds, limit) == Ok(0) {
            let group = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0));
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
    child.wait()
}

fn append(path: &std::path::Path, line: &str) {
    let opened = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path);
    if let Err(e) = opened.and_then(|mut file| file.write_all(line.as_bytes())) {
        error!("JobCompLoc={}: {e}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    /// Raising the value is for everybody to do, and it is inherited like a lower one.
    #[test]
    fn programs_have_no_protection_when_memory_runs_out() {
        let dir = std::env::temp_dir().join(format!("muster-oom.{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let found = dir.join("found");
        let invocation = Invocation {
            what: "MailProg",
            program: "/bin/sh".to_owned(),
            args: vec![
                "-c".to_owned(),
                r#"read value </proc/self/oom_score_adj; echo "$value" "$@" >"$0""#.to_owned(),
                found.display().to_string(),
                "a b".to_owned(),
            ],
            env: Vec::new(),
            file: None,
            time_limit: None,
        };
        let own = "/proc/self/oom_score_adj";
        let before = std::fs::read_to_string(own).unwrap();
        for value in ["300", before.trim()] {
            std::fs::write(own, value).unwrap();
            assert!(carry_out(&invocation));
            assert_eq!(std::fs::read_to_string(&found).unwrap(), "0 a b\n");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_program_ends_with_its_time() {
        let script = |text: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", text]).process_group(0).spawn().unwrap()
        };
        let limit = Some(Duration::from_millis(20));
        let killed = wait(script("sleep 1000 & wait"), limit).unwrap();
        assert_eq!(killed.signal(), Some(Signal::SIGKILL as i32));
        let ended = wait(script("exit 3"), Some(Duration::from_secs(1000))).unwrap();
        assert_eq!(ended.code(), Some(3));
        assert_eq!(wait(script("exit 4"), None).unwrap().code(), Some(4));
    }
}
