//! Programs and records of a site for events of jobs and nodes: programs that power nodes down and up, mails through `MailProg`,
//! `EpilogSlurmctld`, and records of ended jobs (`JobCompType`). Nothing waits for these: programs that run when the controller
//! stops are not run again. `PrologSlurmctld` is another matter: its job waits for it, and it runs again when the controller
//! comes back before it has ended.

mod completion;
mod ending_mails;
mod job_mail;
mod limit_mails;
mod lines;
pub(crate) mod mail_accounting;
mod mail_text;
mod plan;
mod power;
mod queue;
mod record;
pub(crate) mod triggers;

use crate::failure;
use crate::mail::ToWriter;
use crate::program_settings::{Completion, ProgramSettings};
use crate::sys;
use crate::trigger_program::{self, TriggerOwner};
use ending_mails::{EndingMail, EndingMails};
use job_mail::JobMails;
use limit_mails::LimitMails;
use lines::JobLines;
use log::{error, warn};
use mail_accounting::MailAccounting;
use muster_channel::admission::ByteBounds;
use muster_core::event::{Event, TriggerChange};
use muster_core::state::State;
use muster_journal::Position;
use muster_model::ids::{JobAttempt, JobId};
use muster_model::job::{AfterCompleting, Job};
use muster_model::time::Timestamp;
use muster_model::trigger::TriggerRunId;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use plan::{JobProgram, ProgramPlan};
use queue::{PlacedProgram, ProgramQueue, QueueBounds};
use record::ProgramJob;
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use triggers::TriggerPrograms;

/// Programs of users' jobs: 64 at the same time. Where they end more slowly than jobs do, a user's texts are cut first; then
/// further programs are left out.
const BOUNDS: QueueBounds = QueueBounds {
    what: "program",
    at_once: 64,
    of_user_at_once: usize::MAX,
    items: usize::MAX,
    bytes: ByteBounds {
        own: 128 << 20,
        all: 512 << 20,
        few: 4 << 20,
    },
    cut_beyond: 64 << 20,
};

/// Mails: sixteen at the same time, four of one user, since a mail may wait for accounting. They have a queue of their own, so that no
/// program that jobs wait for comes after them. Further mails of a user are not sent.
const MAIL_BOUNDS: QueueBounds = QueueBounds {
    what: "mail",
    at_once: 16,
    of_user_at_once: 4,
    items: 20_000,
    bytes: ByteBounds {
        own: 64 << 20,
        all: 256 << 20,
        few: 1 << 20,
    },
    cut_beyond: usize::MAX,
};

/// Watches events and has threads of its own do what follows from them.
pub(crate) struct Programs {
    settings: Arc<ProgramSettings>,
    job_mails: JobMails,
    /// Mails about runs of which steps are still to end.
    ending_mails: EndingMails,
    power: power::Moves,
    /// Programs that wait to be run, by user.
    runs: ProgramQueue,
    /// Mails that wait to be sent, by user.
    mails: ProgramQueue,
    /// Mails that are due later.
    limit_mails: LimitMails,
    /// Programs of triggers.
    triggers: TriggerPrograms,
    /// When the configuration was read last.
    configured_at: Option<Timestamp>,
    /// Records of ended jobs.
    lines: JobLines,
    writer: Sender<ToWriter>,
}

/// A program with its arguments and its whole environment.
#[derive(Clone, Debug, PartialEq)]
struct Invocation {
    /// For the log.
    what: &'static str,
    program: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    /// Its standard input; absent for none.
    input: Option<String>,
    /// A file that it finds and that goes away with it.
    file: Option<(PathBuf, String)>,
    /// When it is killed.
    time_limit: Option<Duration>,
    /// Its owner, if that is not the controller's user.
    owner: Option<TriggerOwner>,
}

impl Programs {
    /// Starts the threads, and watches the jobs that run.
    ///
    /// # Errors
    /// When there is no thread.
    pub(crate) fn start(
        settings: ProgramSettings,
        state: &State,
        writer: Sender<ToWriter>,
        accounting: MailAccounting,
    ) -> std::io::Result<Programs> {
        let (lines, appended) = lines::channel();
        let mut programs = Programs {
            settings: Arc::new(settings),
            job_mails: JobMails::default(),
            ending_mails: EndingMails::default(),
            power: power::Moves::under_way(state),
            runs: ProgramQueue::new(BOUNDS),
            mails: ProgramQueue::new(MAIL_BOUNDS),
            limit_mails: LimitMails::default(),
            triggers: TriggerPrograms::start(&writer)?,
            configured_at: None,
            lines,
            writer,
        };
        let (mails, accounting) = (programs.mails.clone(), Arc::new(accounting));
        failure::spawn_essential("mails", move || {
            run_all(
                &mails,
                move |plan| plan.invocation_by(&accounting),
                |_, _| {},
            );
            Ok(())
        })?;
        let (runs, writer) = (programs.runs.clone(), programs.writer.clone());
        failure::spawn_essential("site programs", move || {
            let ended = move |JobAttempt { job, attempt }, well| {
                let _ = writer.send(ToWriter::PrologEnded { job, attempt, well });
            };
            run_all(&runs, ProgramPlan::invocation, ended);
            Ok(())
        })?;
        let (limit_mails, mails) = (programs.limit_mails.clone(), programs.mails.clone());
        failure::spawn_essential("mail times", move || {
            while let Some(due) = limit_mails.wait() {
                due.into_iter()
                    .for_each(|(uid, mail)| mails.push(uid, mail));
            }
            Ok(())
        })?;
        failure::spawn_essential("job records", move || {
            appended.write_all();
            Ok(())
        })?;
        programs.power_nodes(state);
        programs.triggers.resume(state, &programs.settings);
        for job in state.active.iter().filter_map(|id| state.jobs.get(id)) {
            programs.watch_limit(state, job);
            programs.run_prolog(state, job);
            programs.write_ending(state, job);
        }
        Ok(programs)
    }

    /// The configuration was read again.
    pub(crate) fn configure(&mut self, settings: ProgramSettings) {
        self.settings = Arc::new(settings);
    }

    /// An event, at this position of the journal, was applied to `state`.
    pub(crate) fn on_event(&mut self, state: &State, position: Position, event: &Event) {
        match event {
            Event::JobStarted { id, .. } => {
                let Some(job) = state.jobs.get(id) else {
                    return;
                };
                self.run_prolog(state, job);
                self.mail(state, job, event, position);
            }
            Event::JobEnding { id, .. } => {
                let Some(job) = state.jobs.get(id) else {
                    return;
                };
                self.runs.drop_prolog(job.spec.owner.uid, job.id);
                if job.state.is_ended() {
                    self.completed(state, job);
                }
                self.run_epilog(state, job);
                self.mail(state, job, event, position);
            }
            Event::JobChanged { id, .. } | Event::NodeReleased { id, .. } => {
                if let Some(job) = state.jobs.get(id) {
                    self.mail(state, job, event, position);
                }
            }
            Event::StepEnded { id, end, .. } => {
                if let Some(lines) = &end.last_lines {
                    self.ending_mails.keep_lines(*id, lines.clone());
                }
                self.send_ended(state, *id, position);
            }
            Event::JobRequeued { id, .. } => self.send_ended(state, *id, position),
            Event::NodeChanged { node, change, .. } => self.power.on_event(*node, change),
            Event::Configured { at, .. } => self.configured_at = Some(*at),
            Event::TriggersChanged { change, at } => {
                let run = match change {
                    TriggerChange::Fired { trigger, .. } => TriggerRunId {
                        trigger: *trigger,
                        fired: *at,
                    },
                    TriggerChange::Begun(run) => *run,
                    TriggerChange::Started(run) => return self.triggers.forget(*run),
                    TriggerChange::Removed(ids) if self.configured_at == Some(*at) => {
                        warn!(
                            "triggers of users are removed, since SlurmctldParameters has no allow_user_triggers: {ids:?}"
                        );
                        return;
                    }
                    _ => return,
                };
                self.triggers.run(state, run, &self.settings);
            }
            _ => {}
        }
    }

    /// Runs what powers nodes down and up, once for all that the last events were about.
    pub(crate) fn power_nodes(&mut self, state: &State) {
        for invocation in self.power.take(state, &self.settings) {
            self.runs
                .push(0, ProgramPlan::of_nodes(invocation, &self.settings));
        }
    }

    /// Sends the mails that an event calls for, and sees to those that are due later.
    fn mail(&mut self, state: &State, job: &Job, event: &Event, position: Position) {
        match event {
            Event::JobStarted { at, .. } | Event::JobChanged { at, .. } => {
                self.write(state, job, event, *at);
                self.watch_limit(state, job);
            }
            Event::JobEnding { at, .. } => {
                self.write(state, job, event, *at);
                self.limit_mails.forget(job.id);
            }
            Event::NodeReleased { at, .. } => self.write(state, job, event, *at),
            _ => {}
        }
        self.send_ended(state, job.id, position);
    }

    /// Sends mails about the end of a run whose steps have ended.
    fn send_ended(&mut self, state: &State, id: JobId, position: Position) {
        let Some(job) = state.jobs.get(&id) else {
            return;
        };
        for EndingMail { record, mut mail } in self.ending_mails.take(job) {
            mail.position = position;
            let uid = record.spec.owner.uid;
            let plan = ProgramPlan::mail(record, mail, &self.settings);
            self.mails.push(uid, plan);
        }
    }

    /// Writes mails again about ends of runs that were not sent before the controller stopped: their steps are still to end.
    fn write_ending(&mut self, state: &State, job: &Job) {
        if !ending_mails::has_steps(job) {
            return;
        }
        let requeue = match job.after_completing {
            AfterCompleting::Requeue { hold } => Some(hold),
            AfterCompleting::End => None,
        };
        let at = job.end_time.unwrap_or(job.submit_time);
        let ending = Event::JobEnding {
            id: job.id,
            at,
            state: job.state,
            reason: job.reason,
            exit: job.exit,
            cancelled_by: job.cancelled_by,
            requeue,
        };
        self.write(state, job, &ending, at);
    }

    /// Runs `EpilogSlurmctld` for a job that had an allocation.
    fn run_epilog(&self, state: &State, job: &Job) {
        let ran = job.alloc.is_some();
        if let Some(program) = self.settings.epilog.clone().filter(|_| ran) {
            self.run(state, job, JobProgram::Epilog, program);
        }
    }

    /// Runs `PrologSlurmctld` for a job that waits for it.
    fn run_prolog(&self, state: &State, job: &Job) {
        if !job.configuring {
            return;
        }
        let launch = JobAttempt::new(job.id, job.attempt);
        match self.settings.prolog.clone() {
            Some(program) => self.run(state, job, JobProgram::Prolog(launch), program),
            // It was taken out of the configuration meanwhile.
            None => {
                let JobAttempt { job, attempt } = launch;
                let well = true;
                let _ = (self.writer).send(ToWriter::PrologEnded { job, attempt, well });
            }
        }
    }

    /// Sends the mails that an event calls for.
    fn write(&mut self, state: &State, job: &Job, event: &Event, at: Timestamp) {
        if job.spec.mail.is_none() {
            return;
        }
        for mail in self.job_mails.on(state, job, event, at) {
            let record = Arc::new(ProgramJob::of(state, job));
            self.ending_mails.add(job.id, EndingMail { record, mail });
        }
    }

    /// Sets times of mails that are due when a part of the job's time is over.
    fn watch_limit(&self, state: &State, job: &Job) {
        self.limit_mails.watch(state, job, &self.settings);
    }

    fn completed(&self, state: &State, job: &Job) {
        match &self.settings.completion {
            Completion::None => {}
            Completion::File(path) => {
                let record = ProgramJob::of(state, job);
                let line = completion::line(&record, &self.settings.cluster);
                self.lines.append(job.spec.owner.uid, path.clone(), line);
            }
            Completion::Script(program) => {
                self.run(state, job, JobProgram::Completion, program.clone());
            }
        }
    }

    fn run(&self, state: &State, job: &Job, kind: JobProgram, program: String) {
        let record = ProgramJob::of(state, job);
        let plan = ProgramPlan::job(kind, program, record, &self.settings);
        self.runs.push(job.spec.owner.uid, plan);
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.runs.close();
        self.mails.close();
        self.triggers.close();
        self.limit_mails.close();
    }
}

fn variable(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

/// `days-hours:minutes:seconds` without leading zero parts, as in listings.
fn duration(ms: u64) -> String {
    let s = ms / 1000;
    let (days, h, m, s) = (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60);
    match days {
        0 => format!("{h:02}:{m:02}:{s:02}"),
        _ => format!("{days}-{h:02}:{m:02}:{s:02}"),
    }
}

/// Runs the programs of users' jobs, which take turns by user: however many jobs of one end, those of others begin. `ended` gets to
/// know how prologs ended; `invocation` makes a plan's program when that begins.
fn run_all(
    queue: &ProgramQueue,
    invocation: impl Fn(ProgramPlan) -> Invocation + Clone + Send + 'static,
    ended: impl Fn(JobAttempt, bool) + Clone + Send + 'static,
) {
    while let Some(PlacedProgram { uid, plan }) = queue.next() {
        let (inside, invocation, ended) = (queue.clone(), invocation.clone(), ended.clone());
        let work = move || {
            let prolog = plan.prolog();
            let well = carry_out(&invocation(plan));
            if let Some(launch) = prolog {
                ended(launch, well);
            }
            inside.leave(uid);
        };
        if let Err(e) = failure::spawn_worker("program", work) {
            error!("a program of the site is not run: cannot start thread: {e}");
            queue.leave(uid);
        }
    }
}

/// Runs it to its end; whether that was a good one.
fn carry_out(invocation: &Invocation) -> bool {
    let begun = begin(invocation);
    end(begun, invocation)
}

/// Starts it.
fn begin(invocation: &Invocation) -> std::io::Result<Child> {
    let Invocation {
        what,
        program,
        args,
        env,
        input,
        file,
        time_limit: _,
        owner,
    } = invocation;
    if let Some((path, text)) = file
        && let Err(e) = std::fs::write(path, text)
    {
        warn!("{what}={program}: {}: {e}", path.display());
    }
    let mut command = match owner {
        // It leads its own session and process group.
        Some(owner) => trigger_program::command(*owner, program, args),
        None => {
            let mut command = command(program, args);
            command.process_group(0);
            command
        }
    };
    command
        .env_clear()
        .envs(env.iter().map(|(name, value)| (name, value)))
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .current_dir("/")
        .stdin(input.as_deref().map_or(Ok(Stdio::null()), input_file)?)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// A text as standard input. It is a file in memory: a pipe would have to be written until the program has read it.
fn input_file(text: &str) -> std::io::Result<Stdio> {
    let memory = memfd_create(c"input", MFdFlags::MFD_CLOEXEC)?;
    let mut file = File::from(memory);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(Stdio::from(file))
}

/// Waits for its end; whether that was a good one.
fn end(begun: std::io::Result<Child>, invocation: &Invocation) -> bool {
    let (what, program) = (invocation.what, &invocation.program);
    let status = begun.and_then(|child| wait(child, invocation.time_limit));
    if let Some((path, _)) = &invocation.file {
        let _ = std::fs::remove_file(path);
    }
    match status {
        Ok(status) if status.success() => return true,
        Ok(status) => warn!("{what}={program}: {status}"),
        Err(e) => warn!("{what}={program}: {e}"),
    }
    false
}

/// Gives the program the default priority for the kernel's out-of-memory killer, and becomes the program.
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

/// Waits for a program's end, and kills its process group when its time is over.
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
                r#"read value </proc/self/oom_score_adj; echo "$value" "$@" "$(cat)" >"$0""#
                    .to_owned(),
                found.display().to_string(),
                "a b".to_owned(),
            ],
            env: Vec::new(),
            input: Some("of the input\n".to_owned()),
            file: None,
            time_limit: None,
            owner: None,
        };
        let own = "/proc/self/oom_score_adj";
        let before = std::fs::read_to_string(own).unwrap();
        for value in ["300", before.trim()] {
            std::fs::write(own, value).unwrap();
            assert!(carry_out(&invocation));
            let printed = std::fs::read_to_string(&found).unwrap();
            assert_eq!(printed, "0 a b of the input\n");
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
