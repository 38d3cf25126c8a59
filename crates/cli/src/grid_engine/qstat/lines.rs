//! Jobs as lines: qstat plain, `-ext`, `-pri`, `-r`, `-g d`, `-g t`, `-t`.

use super::requests;
use super::usage::{self, Measured};
use crate::grid_engine::arguments::Parsed;
use crate::grid_engine::{memory, selection, site};
use crate::listing::context::Ctx;
use muster_conf::grid_engine::Mapping;
use muster_model::grid_engine as marks;
use muster_model::ids::JobId;
use muster_model::job::{ArrayRole, Hold, Job, JobState, NodeShare, ResourceUsage};
use muster_model::spec::DependencyTerm;
use muster_model::time::Timestamp;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Steps on one host that have lines with `-t`: how many there are is what the agent says.
const SLOT_TASKS_MAX: usize = 1000;

/// Which columns and lines there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) ext: bool,
    pub(super) pri: bool,
    pub(super) urg: bool,
    pub(super) requests: bool,
    pub(super) each_task: bool,
    pub(super) each_slot: bool,
    /// The use of steps follows the line of a slot.
    pub(super) steps: bool,
    pub(super) without_binding: bool,
}

impl View {
    pub(super) fn read(parsed: &Parsed) -> View {
        View {
            ext: parsed.has("ext"),
            pri: parsed.has("pri"),
            urg: parsed.has("urg"),
            requests: parsed.has("r"),
            each_task: parsed.all("g").any(|kind| kind.contains('d')),
            each_slot: parsed.has("t") || parsed.all("g").any(|kind| kind.contains('t')),
            steps: parsed.has("t"),
            without_binding: parsed.has("ncb"),
        }
    }

    /// Whether there is a column of times of submission or start: those of use take its place, unless there is room for both.
    fn has_time(&self) -> bool {
        !self.ext || self.steps || self.pri || self.urg
    }
}

/// The data of lines about jobs.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntrySource<'s> {
    pub(super) ctx: &'s Ctx,
    pub(super) mapping: &'s Mapping,
    pub(super) view: &'s View,
    pub(super) measured: &'s Measured,
}

/// The step in a slot, behind its line with `-t`.
#[derive(Clone, Debug)]
pub(super) struct SlotTask {
    /// `STEP.HOST`; empty for the job's script.
    name: String,
    /// Its use; none where the node has not answered.
    usage: Option<ResourceUsage>,
}

/// A line about a job.
#[derive(Clone, Debug)]
pub(crate) struct Entry<'a> {
    pub(super) job: &'a Job,
    pub(super) state: String,
    /// Start, or submission while it waits.
    pub(super) at: String,
    /// The deadline of `-urg`; empty where there is none.
    pub(super) deadline: String,
    /// That time for XML.
    pub(super) at_iso: String,
    /// `queue@host`; empty while it waits.
    pub(super) queue: String,
    /// Tasks of an array.
    pub(super) tasks: String,
    /// `MASTER` or `SLAVE`, with `-g t`.
    pub(super) role: &'static str,
    pub(super) slots: u64,
    /// A further slot of the line before: what the job is, that line shows.
    pub(super) repeats: bool,
    /// The use, as far as it is known.
    pub(super) usage: Option<ResourceUsage>,
    pub(super) slot_task: Option<SlotTask>,
}

impl<'a> Entry<'a> {
    /// The lines about a record.
    pub(super) fn of(job: &'a Job, state: String, source: EntrySource<'_>) -> Vec<Entry<'a>> {
        let (ctx, view) = (source.ctx, source.view);
        let runs = start(job);
        let at = runs.unwrap_or(job.submit_time);
        let only = Entry {
            job,
            state,
            at: date(ctx, at),
            deadline: job
                .spec
                .deadline
                .map(|at| date(ctx, at))
                .unwrap_or_default(),
            at_iso: ctx.zoned(at).strftime("%Y-%m-%dT%H:%M:%S").to_string(),
            queue: String::new(),
            tasks: String::new(),
            role: "",
            slots: slots(job),
            repeats: false,
            usage: source.measured.total(job),
            slot_task: None,
        };
        let with_tasks = |tasks: String| Entry {
            tasks,
            ..only.clone()
        };
        match &job.array {
            ArrayRole::Pending { indices } if view.each_task => {
                let each = |index: u32| with_tasks(index.to_string());
                indices.iter().map(each).collect()
            }
            ArrayRole::Pending { indices } => {
                vec![with_tasks(selection::task_list(indices.iter()))]
            }
            ArrayRole::None | ArrayRole::Task { .. } => {
                let task = selection::task(job).map(|index| index.to_string());
                let own = with_tasks(task.unwrap_or_default());
                let shares = runs.map_or(&[][..], |_| shares(job));
                let queue = site::queue_of(source.mapping, &ctx.partitions, &job.partition);
                match shares {
                    [] => vec![own],
                    _ if view.each_slot => own.in_each_slot(&queue, shares, source),
                    [first, ..] => vec![Entry {
                        queue: format!("{queue}@{}", first.name),
                        ..own
                    }],
                }
            }
        }
    }

    /// A line for each slot of each host, and for what runs there: the script in the first one, each step in one of its host.
    fn in_each_slot(
        self,
        queue: &str,
        shares: &[NodeShare],
        source: EntrySource<'_>,
    ) -> Vec<Entry<'a>> {
        let measured = source.measured.steps(self.job);
        let has_steps = measured.iter().any(|own| usage::is_numbered(own.step));
        let mut all = Vec::new();
        for (number, share) in shares.iter().enumerate() {
            let here = measured.iter().filter(|own| own.node == share.name);
            let (steps, script): (Vec<_>, Vec<_>) =
                here.partition(|own| usage::is_numbered(own.step));
            let mut tasks: Vec<Option<SlotTask>> = Vec::new();
            if number == 0 {
                let mut script = script.into_iter().map(|own| own.usage.clone());
                let first = script.next().map(|mut sum| {
                    script.for_each(|own| sum.add(&own));
                    SlotTask {
                        name: String::new(),
                        usage: Some(sum),
                    }
                });
                tasks.push(first.filter(|_| has_steps));
            }
            if source.measured.is_silent(self.job, &share.name) {
                tasks = vec![Some(SlotTask {
                    name: String::new(),
                    usage: None,
                })];
            }
            tasks.extend(steps.into_iter().take(SLOT_TASKS_MAX).map(|own| {
                Some(SlotTask {
                    name: format!("{}.{}", own.step, own.node),
                    usage: Some(own.usage.clone()),
                })
            }));
            tasks.resize(slot_lines(self.job, share).max(tasks.len()), None);
            for (at, slot_task) in tasks.into_iter().enumerate() {
                let is_master = number == 0 && at == 0;
                let usage = match (&slot_task, is_master) {
                    (Some(task), _) => task.usage.clone(),
                    (None, true) => self.usage.clone(),
                    (None, false) => None,
                };
                all.push(Entry {
                    queue: format!("{queue}@{}", share.name),
                    role: if is_master { "MASTER" } else { "SLAVE" },
                    slots: 1,
                    repeats: at > 0,
                    usage,
                    slot_task: slot_task.filter(|_| source.view.steps),
                    ..self.clone()
                });
            }
        }
        all
    }
}

/// Lines for the slots of a job on one host. With `--overcommit` a job may ask for any number of slots; it has a line for each CPU then.
fn slot_lines(job: &Job, share: &NodeShare) -> usize {
    let cpus = u64::from(share.cpus.len().max(1));
    let slots = marks::slots_on(&job.spec, share).min(cpus);
    usize::try_from(slots).unwrap_or(usize::MAX)
}

/// Lines for the slots of a job on a host.
pub(in crate::grid_engine) fn slot_lines_on(job: &Job, host: &str) -> usize {
    let share = shares(job).iter().find(|share| share.name == host);
    share.map_or(0, |share| slot_lines(job, share))
}

/// Slots that a job has, or the least that it asks for.
pub(in crate::grid_engine) fn slots(job: &Job) -> u64 {
    let ask = &job.spec.ask;
    let given = (job.alloc.as_ref()).filter(|_| ask.task_range.is_some());
    let tasks = given.map_or_else(|| ask.task_count(), |alloc| alloc.ntasks);
    u64::from(tasks) * u64::from(ask.cpus_of_task())
}

/// When a job that runs was started.
pub(super) fn start(job: &Job) -> Option<Timestamp> {
    (job.start_time).filter(|_| !is_pending(job) && !has_ended(job))
}

/// A job's shares of its hosts.
fn shares(job: &Job) -> &[NodeShare] {
    let alloc = job.alloc.as_deref().filter(|_| !is_pending(job));
    alloc.map_or(&[], |alloc| &alloc.nodes)
}

/// Hosts of a job that has its allocation.
pub(in crate::grid_engine) fn hosts(job: &Job) -> Vec<String> {
    shares(job).iter().map(|share| share.name.clone()).collect()
}

/// Whether it waits.
pub(in crate::grid_engine) fn is_pending(job: &Job) -> bool {
    job.state == JobState::Pending && !job.completing
}

/// Whether it has ended, and no node has anything of it any more.
pub(super) fn has_ended(job: &Job) -> bool {
    job.state.is_ended() && !job.completing
}

/// Tasks of an array that have ended have one line together.
pub(super) fn merge_ended(entries: &mut Vec<Entry>) {
    let mut tasks: BTreeMap<JobId, Vec<u32>> = BTreeMap::new();
    entries.retain(|entry| match selection::task(entry.job) {
        Some(task) if has_ended(entry.job) => {
            let known = tasks.entry(selection::number(entry.job)).or_default();
            known.push(task);
            known.len() == 1
        }
        _ => true,
    });
    for entry in entries.iter_mut().filter(|entry| has_ended(entry.job)) {
        if let Some(own) = tasks.get_mut(&selection::number(entry.job)) {
            own.sort_unstable();
            entry.tasks = selection::task_list(own.iter().copied());
        }
    }
}

/// `MM/DD/YYYY HH:MM:SS`.
pub(in crate::grid_engine) fn date(ctx: &Ctx, at: Timestamp) -> String {
    ctx.zoned(at).strftime("%m/%d/%Y %H:%M:%S").to_string()
}

/// A job's state in Grid Engine's letters.
pub(in crate::grid_engine) fn state(job: &Job) -> String {
    let mut text = String::new();
    if job.cancelled_by.is_some() && job.completing {
        text.push('d');
    }
    if is_in_error(job) {
        text.push('E');
    }
    match job.state {
        _ if job.completing => text.push('r'),
        JobState::Pending => {
            let is_held = job.hold != Hold::None || !job.waiting_on.is_empty();
            if is_held && !is_in_error(job) {
                text.push('h');
            }
            let runs_again = job.restarts > 0 && !is_in_error(job);
            text.push_str(if runs_again { "Rq" } else { "qw" });
        }
        JobState::Running if job.configuring || job.power_up.is_some() => text.push('t'),
        JobState::Running => text.push_str(if job.restarts > 0 { "Rr" } else { "r" }),
        JobState::Suspended
            if job.waits_for_turn() || job.is_stopped_for_another() || job.stopped_by_calendar =>
        {
            text.push('S')
        }
        JobState::Suspended => text.push('s'),
        JobState::Completed
        | JobState::Cancelled
        | JobState::Failed
        | JobState::Timeout
        | JobState::NodeFail
        | JobState::Preempted
        | JobState::BootFail
        | JobState::Deadline
        | JobState::OutOfMemory => text.push('z'),
    }
    text
}

/// Whether the system holds the job because it could not be launched, or asked for it by its exit status.
pub(in crate::grid_engine) fn is_in_error(job: &Job) -> bool {
    let failed = job
        .reason_detail
        .as_deref()
        .is_some_and(|why| why.starts_with("launch failed"));
    is_pending(job) && (job.special_exit || failed && job.hold == Hold::Admin)
}

/// Whether a pending job has a hold of a kind: u(ser), o(perator), s(ystem), d and j (other jobs), a (start time).
pub(super) fn is_held(job: &Job, kind: char) -> bool {
    match kind {
        'u' => job.hold == Hold::User,
        'o' => job.hold == Hold::Admin && !is_in_error(job),
        's' => is_in_error(job),
        'd' | 'j' => !job.waiting_on.is_empty(),
        _ => job.begin_at.is_some(),
    }
}

/// Running jobs first, then waiting ones: by priority, then by number. Ended ones are last.
pub(super) fn sort(entries: &mut [Entry]) {
    entries.sort_by_cached_key(|entry| {
        let waits = is_pending(entry.job);
        let priority = match waits {
            true => std::cmp::Reverse(order(entry.job)),
            false => std::cmp::Reverse(0),
        };
        (
            has_ended(entry.job),
            waits,
            priority,
            selection::number(entry.job),
            selection::task(entry.job),
        )
    });
}

/// Priority; 0 for what cannot start yet.
fn order(job: &Job) -> u32 {
    if is_ordered(job) { job.priority } else { 0 }
}

/// Whether a job's priority counts.
pub(super) fn is_ordered(job: &Job) -> bool {
    let is_held = is_pending(job) && !job.is_startable();
    !is_held && !has_ended(job)
}

/// Priority as a share of the highest there is.
pub(in crate::grid_engine) fn prior(job: &Job) -> f64 {
    prior_of(order(job))
}

/// A priority as a share of the highest there is.
pub(super) fn prior_of(priority: u32) -> f64 {
    f64::from(priority) / f64::from(u32::MAX)
}

/// All lines, with a head; nothing where there are no jobs.
pub(super) fn table(entries: &[Entry], view: &View) -> String {
    if entries.is_empty() {
        return String::new();
    }
    let mut text = head(view);
    for entry in entries {
        line(&mut text, entry, view, true);
    }
    text
}

/// Titles of columns.
pub(super) fn head(view: &View) -> String {
    let slots = if view.each_slot { "master" } else { "slots" };
    let last = format!("{:<30} {slots} ja-task-ID ", "queue");
    let columns = [
        (true, "job-ID  prior   "),
        (view.pri || view.urg, "nurg    "),
        (view.pri, "npprior "),
        (view.pri || view.ext, "ntckts  "),
        (view.urg, "urg      rrcontr  wtcontr  dlcontr  "),
        (view.pri, " ppri "),
        (true, "name       user         "),
        (view.ext, "project          department "),
        (true, "state "),
        (view.has_time(), "submit/start at     "),
        (view.urg, " deadline           "),
        (
            view.ext,
            "cpu        mem     io      tckts ovrts otckt ftckt stckt share ",
        ),
        (true, last.as_str()),
        (
            view.steps,
            "task-ID state cpu        mem     io      stat failed ",
        ),
    ];
    let shown = columns.iter().filter(|(is_shown, _)| *is_shown);
    let text: String = shown.map(|(_, title)| *title).collect();
    // Grid Engine counts columns of -pri and -ext otherwise than it prints them.
    let widths: [(bool, usize); 6] = [
        (true, 113),
        (view.each_slot, 1),
        (view.steps, 53),
        (view.pri, 35),
        (view.ext, 79),
        (view.urg, 64),
    ];
    let shown = widths.iter().filter(|(is_shown, _)| *is_shown);
    let dashes = "-".repeat(shown.map(|(_, width)| width).sum());
    text + "\n" + &dashes + "\n"
}

/// One line; `queue` is whether it has the column of queues.
pub(super) fn line(text: &mut String, entry: &Entry, view: &View, queue: bool) {
    let begin = text.len();
    job_columns(text, entry, view);
    if entry.repeats {
        // Grid Engine has twelve blanks more than the columns are wide.
        let more = if view.pri && !view.ext { 12 } else { 0 };
        let width = text[begin..].chars().count() + more;
        text.truncate(begin);
        let _ = write!(text, "{:width$}", "");
    }
    if view.ext {
        usage_columns(text, entry);
    }
    place_columns(text, entry, view, queue);
    text.push('\n');
    if view.requests && !entry.repeats {
        let given = requests::Given {
            queue: &entry.queue,
            slots: slots(entry.job),
            predecessors: predecessors(entry.job),
        };
        requests::requests(text, entry.job, &given, view.without_binding);
    }
}

/// Queue, slots and tasks.
pub(super) fn place_columns(text: &mut String, entry: &Entry, view: &View, queue: bool) {
    if queue {
        let _ = write!(text, "{:<30.30} ", entry.queue);
    }
    if view.each_slot {
        let _ = write!(text, "{:<6} ", entry.role);
    } else {
        let _ = write!(text, "{:>5} ", entry.slots);
    }
    match &entry.slot_task {
        Some(task) => slot_task(text, entry, task),
        None if entry.tasks.is_empty() => text.push_str("       "),
        None => text.push_str(&entry.tasks),
    }
}

/// The columns that are the same for all slots of a job on a host.
fn job_columns(text: &mut String, entry: &Entry, view: &View) {
    let job = entry.job;
    let prior = prior(job);
    let _ = write!(text, "{:>7} {prior:.5} ", selection::number(job).0);
    if view.pri || view.urg {
        let _ = write!(text, "{:.5} ", 0.0);
    }
    if view.pri {
        let _ = write!(text, "{prior:.5} ");
    }
    if view.pri || view.ext {
        let _ = write!(text, "{:.5} ", 0.0);
    }
    if view.urg {
        let _ = write!(text, "{:>8} {:>8} {:>8} {:>8} ", 0, 0, 0, 0);
    }
    if view.pri {
        let _ = write!(text, "{:>5} ", -job.spec.nice);
    }
    name_columns(text, entry, view);
    if view.has_time() {
        let _ = write!(text, "{} ", entry.at);
    }
    if view.urg {
        let _ = write!(text, "{:<19} ", entry.deadline);
    }
}

/// Name, user, project and state.
pub(super) fn name_columns(text: &mut String, entry: &Entry, view: &View) {
    let job = entry.job;
    let (name, user) = (&job.spec.name, &job.spec.owner.user);
    let _ = write!(text, "{name:<10.10} {user:<12.12} ");
    if view.ext {
        let project = job.spec.account.as_deref().unwrap_or("NA");
        let _ = write!(text, "{project:<16.16} defaultdep ");
    }
    let _ = write!(text, "{:<5.5} ", entry.state);
}

/// The columns of `-ext` for use; tickets there are none.
fn usage_columns(text: &mut String, entry: &Entry) {
    let [cpu, mem, io] = match &entry.usage {
        _ if is_pending(entry.job) => ["", "", ""].map(str::to_owned),
        None => ["NA"; 3].map(str::to_owned),
        Some(used) => [
            usage::days_and_clock(usage::cpu_s(used)),
            format!("{:.5}", memory::gib_seconds(used)),
            format!("{:.5}", usage::io_gib(used)),
        ],
    };
    let _ = write!(text, "{cpu:<10} {mem:<7} {io:<7} ");
    for _ in 0..5 {
        let _ = write!(text, "{:>5} ", 0);
    }
    let _ = write!(text, "{:<5} ", "0.00");
}

/// The step in a slot: its name, state and use. Only an ended step has an exit status, and is not shown any more.
fn slot_task(text: &mut String, entry: &Entry, task: &SlotTask) {
    let state = match entry.job.state {
        JobState::Suspended => "s",
        _ => "r",
    };
    let (cpu, mem, io) = match &task.usage {
        Some(used) => (
            usage::clock(usage::cpu_s(used)),
            format!("{:<7.5}", memory::gib_seconds(used)),
            format!("{:.5}", usage::io_gib(used)),
        ),
        None => (
            format!("{:<8}", "NA"),
            format!("{:<7}", "NA"),
            format!("{:<7}", "NA"),
        ),
    };
    let (tasks, name) = (&entry.tasks, &task.name);
    let _ = write!(text, "{tasks:<10}{name:<12} {state:<5} {cpu} {mem} {io} ");
}

/// Numbers of the jobs that one waits for.
pub(super) fn predecessors(job: &Job) -> Vec<String> {
    let jobs = job.waiting_on.iter().filter_map(|term| match term {
        DependencyTerm::Job { job, .. } => Some(job.to_string()),
        DependencyTerm::Singleton => None,
    });
    jobs.collect()
}

#[cfg(test)]
mod tests;
