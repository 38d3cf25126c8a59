//! `muster watch`: the progress of a job, or an array, until it has ended: its reason, its steps, its end.

use crate::connect::{Client, ConnectError};
use crate::listing::context::Ctx;
use crate::listing::job::JobRow;
use crate::listing::query::{self, Jobs};
use crate::listing::{Failure, failed_call, job_names, text};
use crate::options::{HelpForm, Spec, flag, opt};
use indicatif::{ProgressBar, ProgressStyle};
use muster_model::ids::JobId;
use muster_model::job::{ExitStatus, JobState};
use muster_model::time::TimeLimit;
use muster_proto::client::JobFilter;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// muster watch.
pub(crate) static SPEC: Spec = Spec {
    name: "muster-watch",
    about: "Shows a job's way until it has ended, and exits as the job did.",
    operands: "JOBID[_INDEX]",
    form: HelpForm::Options,
    options: &[
        flag("help", "print this help"),
        opt(
            "interval",
            "SECONDS",
            "seconds between two requests to the controller (default: 1)",
        )
        .short('i'),
        flag("usage", "print a short summary"),
    ],
    variables: &[],
    notes: "\
On a terminal there is a line that changes: what the job waits for and when it is expected to start, then how much of its \
time limit has gone, or how many tasks of an array are over. Otherwise there is a line for each change. The exit status is \
the job's: of an array the highest of its tasks; 1 if it was killed by a signal. Interrupting the command does nothing to the job.",
};

/// The longest interval, seconds.
const INTERVAL_MAX_S: u64 = 60;
/// By how much the interval is at least longer than the answer took: a wide array is not asked for without pause.
const PAUSE_FACTOR: u32 = 20;
/// Time for which a controller that went away is waited for.
const PATIENCE: Duration = Duration::from_secs(600);

/// The jobs to watch.
struct WatchedJobs {
    word: String,
    id: JobId,
    task: Option<u32>,
    interval: Duration,
}

/// Runs it.
pub(crate) fn run(args: &[String]) -> Result<ExitCode, Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    let mut interval = Duration::from_secs(1);
    for (name, value) in &parsed.options {
        match *name {
            "help" => return Ok(shown(&SPEC.help())),
            "usage" => return Ok(shown(&SPEC.usage())),
            _ => interval = read_interval(value.as_deref().unwrap_or_default())?,
        }
    }
    let [word] = parsed.operands.as_slice() else {
        return Err(Failure::new(format!(
            "muster watch: one job is needed\n{}",
            SPEC.usage().trim_end()
        )));
    };
    let (id, task) = job_names::parse_job(word)
        .ok_or_else(|| Failure::new(format!("muster watch: '{word}' is not a job number")))?;
    let wanted = WatchedJobs {
        word: word.clone(),
        id,
        task,
        interval,
    };
    let client = Client::connect().map_err(failed_call("muster watch"))?;
    let display = Display::new(std::io::stdout().is_terminal());
    watch(&wanted, client, display)
}

fn shown(text: &str) -> ExitCode {
    crate::listing::print(text);
    ExitCode::SUCCESS
}

fn read_interval(text: &str) -> Result<Duration, Failure> {
    let wrong = || {
        Failure::new(format!(
            "muster watch: --interval={text}: seconds from 1 to {INTERVAL_MAX_S} are expected"
        ))
    };
    match text.parse() {
        Ok(seconds @ 1..=INTERVAL_MAX_S) => Ok(Duration::from_secs(seconds)),
        _ => Err(wrong()),
    }
}

/// Asks until all that is watched is over.
fn watch(
    wanted: &WatchedJobs,
    mut client: Client,
    mut display: Display,
) -> Result<ExitCode, Failure> {
    let mut progress = Progress::default();
    loop {
        let asked = Instant::now();
        let mut ctx = Ctx::new(&client.endpoint.cluster);
        let filter = JobFilter {
            ids: vec![wanted.id],
            starts: true,
            ..JobFilter::default()
        };
        match query::jobs(&mut client, &mut ctx, filter) {
            Ok(jobs) => {
                progress.take(&jobs, wanted, &ctx);
                if progress.tasks.is_empty() {
                    display.end();
                    return Err(Failure::new(format!(
                        "muster watch: there is no job {word} in the queue's memory; 'sacct -j {word}' knows earlier ones",
                        word = wanted.word
                    )));
                }
                display.show(&progress);
                if progress.is_over() {
                    display.end();
                    if progress.missed {
                        return Err(Failure::new(format!(
                            "muster watch: job {word} ended meanwhile and is forgotten; 'sacct -j {word}' says how",
                            word = wanted.word
                        )));
                    }
                    return Ok(progress.exit_code());
                }
            }
            Err(ConnectError::Broken(_) | ConnectError::Unreachable { .. }) => {
                display.say("The controller does not answer; the job goes on.");
                let again = Client::connect_patiently(PATIENCE);
                client = again.map_err(failed_call("muster watch"))?;
            }
            Err(error) => return Err(failed_call("muster watch")(error)),
        }
        std::thread::sleep(wanted.interval.max(asked.elapsed() * PAUSE_FACTOR));
    }
}

/// A job or a task of an array, as it was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    state: JobState,
    exit: ExitStatus,
}

/// State of a job and its tasks. The controller may forget ended ones meanwhile.
#[derive(Debug, Default)]
struct Progress {
    /// By index in the array, and component of a heterogeneous job.
    tasks: BTreeMap<(u32, u32), Seen>,
    /// Line about the job that is alone, or that is seen first.
    line: String,
    /// Elapsed part of its time limit, and the limit, seconds.
    time_s: Option<(u64, u64)>,
    /// One ended and was forgotten between two looks.
    missed: bool,
}

impl Progress {
    fn take(&mut self, jobs: &Jobs, wanted: &WatchedJobs, ctx: &Ctx) {
        let mut found = BTreeMap::new();
        let mut first = None;
        for row in job_names::rows_of(jobs, wanted.id, wanted.task) {
            let seen = Seen {
                state: row.job.state,
                exit: row.job.exit,
            };
            let component = row.job.het.map_or(0, |part| part.offset);
            match row.pending_indices() {
                Some(indices) => found.extend(indices.iter().map(|i| ((i, component), seen))),
                None => {
                    found.insert((row.index().unwrap_or(0), component), seen);
                }
            }
            if first.is_none_or(|other: JobRow<'_>| weight(row) > weight(other)) {
                first = Some(row);
            }
        }
        // Only ended tasks are forgotten.
        for (task, seen) in &mut self.tasks {
            if !seen.state.is_ended() && !found.contains_key(task) {
                seen.state = JobState::Failed;
                self.missed = true;
            }
        }
        self.tasks.extend(found);
        let Some(row) = first else {
            return;
        };
        self.line = line(row, ctx);
        self.time_s = match (row.job.state, row.job.time_limit) {
            (JobState::Running, TimeLimit::Minutes(minutes)) => {
                let gone_s = u64::try_from(row.run_time_s(ctx)).unwrap_or(0);
                Some((gone_s, u64::from(minutes) * 60))
            }
            _ => None,
        };
    }

    fn count(&self, of: impl Fn(&Seen) -> bool) -> usize {
        self.tasks.values().filter(|seen| of(seen)).count()
    }

    fn is_over(&self) -> bool {
        self.tasks.values().all(|seen| seen.state.is_ended())
    }

    /// Text about all of it.
    fn text(&self) -> String {
        if self.tasks.len() == 1 {
            return self.line.clone();
        }
        let over = self.count(|seen| seen.state.is_ended());
        let mut text = format!("{over} of {} tasks are over", self.tasks.len());
        for (state, word) in [
            (JobState::Running, "running"),
            (JobState::Suspended, "suspended"),
            (JobState::Pending, "waiting"),
        ] {
            let count = self.count(|seen| seen.state == state);
            if count > 0 {
                let _ = write!(text, ", {count} {word}");
            }
        }
        let failed = self.count(|s| s.state.is_ended() && s.state != JobState::Completed);
        if failed > 0 {
            let _ = write!(text, ", {failed} failed");
        }
        if over < self.tasks.len() {
            let _ = write!(text, "; {}", self.line);
        }
        text
    }

    /// Its progress: steps done, and all steps.
    fn steps(&self) -> Option<(u64, u64)> {
        match self.tasks.len() {
            1 => self.time_s,
            all => {
                let over = self.count(|seen| seen.state.is_ended());
                Some((over as u64, all as u64))
            }
        }
    }

    fn exit_code(&self) -> ExitCode {
        let highest = self.tasks.values().map(|seen| match seen.exit.signal {
            0 if seen.exit.code == 0 && seen.state != JobState::Completed => 1,
            0 => u8::try_from(seen.exit.code & 0xff).unwrap_or(1),
            _ => 1,
        });
        ExitCode::from(highest.max().unwrap_or(1))
    }
}

/// Which of several is spoken of: one that runs, else one that waits.
fn weight(row: JobRow<'_>) -> u8 {
    match row.job.state {
        JobState::Running | JobState::Suspended => 2,
        JobState::Pending => 1,
        _ => 0,
    }
}

/// Line about a job: its state with reason, nodes or end.
fn line(row: JobRow<'_>, ctx: &Ctx) -> String {
    let mut out = String::new();
    row.write_id(&mut out, ctx);
    let _ = write!(out, " {}", row.state_name());
    match row.job.state {
        JobState::Pending => {
            let _ = write!(out, " ({})", row.reason());
            if let Some(at) = row.start(ctx) {
                out.push_str(", expected to start at ");
                ctx.time(&mut out, at);
            }
        }
        JobState::Running | JobState::Suspended => {
            let _ = write!(out, " on {}", row.nodes());
        }
        _ => {
            out.push_str(" after ");
            text::short_duration(&mut out, row.run_time_s(ctx));
            let exit = row.job.exit;
            let _ = write!(out, ", exit code {}:{}", exit.code, exit.signal);
            if !row.nodes().is_empty() {
                let _ = write!(out, ", on {}", row.nodes());
            }
        }
    }
    out
}

/// Where it is shown.
struct Display {
    /// On a terminal.
    bar: Option<ProgressBar>,
    /// Text printed last.
    last: String,
}

impl Display {
    fn new(is_terminal: bool) -> Display {
        Display {
            bar: is_terminal.then(ProgressBar::no_length),
            last: String::new(),
        }
    }

    fn show(&mut self, progress: &Progress) {
        let text = progress.text();
        let Some(bar) = &self.bar else {
            return self.say(&text);
        };
        let template = match progress.steps() {
            Some((done, all)) => {
                bar.set_length(all);
                bar.set_position(done.min(all));
                match progress.tasks.len() {
                    1 => "{msg} {bar:30} {percent} % of its time limit",
                    _ => "{bar:30} {msg}",
                }
            }
            None => "{spinner} {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(text.clone());
        bar.tick();
        self.last = text;
    }

    /// Prints a line, unless it was the last one.
    fn say(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(text.to_owned()),
            None if text != self.last => crate::listing::print(&format!("{text}\n")),
            None => {}
        }
        text.clone_into(&mut self.last);
    }

    /// Leaves the last line where it is.
    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            if !self.last.is_empty() {
                crate::listing::print(&format!("{}\n", self.last));
            }
        }
    }
}
