//! Jobs as lines: qstat plain, `-ext`, `-pri`, `-r`, `-g d`, `-g t`, `-t`.

use super::requests;
use super::usage::{self, Measured};
use crate::grid_engine::arguments::Parsed;
use crate::grid_engine::{memory, selection, site};
use crate::listing::context::Ctx;
use muster_conf::grid_engine::Mapping;
use muster_model::grid_engine as marks;
use muster_model::job::{ArrayRole, Hold, Job, JobState, NodeShare, ResourceUsage};
use muster_model::spec::DependencyTerm;
use muster_model::time::Timestamp;
use std::fmt::Write as _;

/// Steps on one host that have lines with `-t`: how many there are is what the agent says.
const SLOT_TASKS_MAX: usize = 1000;

/// Which columns and lines there are.
#[derive(Clone, Copy, Debug, Default)]
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
        let runs = job.start_time.filter(|_| !is_pending(job));
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

/// Slots that a job has, or the least that it asks for.
pub(in crate::grid_engine) fn slots(job: &Job) -> u64 {
    let ask = &job.spec.ask;
    let given = (job.alloc.as_ref()).filter(|_| ask.task_range.is_some());
    let tasks = given.map_or_else(|| ask.task_count(), |alloc| alloc.ntasks);
    u64::from(tasks) * u64::from(ask.cpus_of_task())
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
        JobState::Suspended if job.waits_for_turn() || job.is_stopped_for_another() => {
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

/// Running jobs first, then waiting ones: by priority, then by number.
pub(super) fn sort(entries: &mut [Entry]) {
    entries.sort_by_key(|entry| {
        let waits = is_pending(entry.job);
        let priority = match waits {
            true => std::cmp::Reverse(order(entry.job)),
            false => std::cmp::Reverse(0),
        };
        (
            waits,
            priority,
            selection::number(entry.job),
            selection::task(entry.job),
        )
    });
}

/// Priority; 0 for what cannot start yet.
fn order(job: &Job) -> u32 {
    let is_held = is_pending(job) && !job.is_startable();
    if is_held { 0 } else { job.priority }
}

/// Priority as a share of the highest there is.
pub(in crate::grid_engine) fn prior(job: &Job) -> f64 {
    f64::from(order(job)) / f64::from(u32::MAX)
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

fn head(view: &View) -> String {
    let mut text = "job-ID  prior   ".to_owned();
    if view.pri {
        text.push_str("nurg    npprior ntckts   ppri ");
    }
    if view.urg {
        text.push_str("nurg    urg      rrcontr  wtcontr  dlcontr  ");
    }
    if view.ext {
        text.push_str("ntckts  name       user         project          department state ");
        if view.steps {
            text.push_str("submit/start at     ");
        }
        text.push_str("cpu        mem     io      tckts ovrts otckt ftckt stckt share ");
    } else {
        text.push_str("name       user         state submit/start at     ");
        if view.urg {
            text.push_str(" deadline           ");
        }
    }
    let slots = if view.each_slot { "master" } else { "slots" };
    let _ = write!(text, "{:<30} {slots} ja-task-ID ", "queue");
    if view.steps {
        text.push_str("task-ID state cpu        mem     io      stat failed ");
    }
    let dashes = "-".repeat(text.len() - 1);
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

/// The columns that are the same for all slots of a job on a host.
fn job_columns(text: &mut String, entry: &Entry, view: &View) {
    let job = entry.job;
    let (name, user) = (&job.spec.name, &job.spec.owner.user);
    let prior = prior(job);
    let _ = write!(text, "{:>7} {prior:.5} ", selection::number(job).0);
    if view.pri {
        let _ = write!(
            text,
            "{:.5} {prior:.5} {:.5} {:>5} ",
            0.0, 0.0, -job.spec.nice
        );
    }
    if view.urg {
        let _ = write!(text, "{:.5} {:>8} {:>8} {:>8} {:>8} ", 0.0, 0, 0, 0, 0);
    }
    if view.ext {
        let project = job.spec.account.as_deref().unwrap_or("NA");
        let department = "defaultdep";
        let _ = write!(
            text,
            "{:.5} {name:<10.10} {user:<12.12} {project:<16.16} {department} {:<5.5} ",
            0.0, entry.state
        );
        if view.steps {
            let _ = write!(text, "{} ", entry.at);
        }
    } else {
        let _ = write!(
            text,
            "{name:<10.10} {user:<12.12} {:<5.5} {} ",
            entry.state, entry.at
        );
        if view.urg {
            let _ = write!(text, "{:<19} ", entry.deadline);
        }
    }
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
mod tests {
    use super::*;
    use crate::grid_engine::qstat::usage::StepUsage;
    use jiff::tz::TimeZone;
    use muster_model::cpuset::CpuSet;
    use muster_model::ids::{JobId, NodeIdx, StepNo};
    use muster_model::job::Allocation;
    use muster_model::spec::{JobSpec, Owner};
    use muster_model::time::TimeLimit;
    use std::sync::Arc;

    fn job(name: &str, state: JobState) -> Job {
        let spec = JobSpec {
            name: name.to_owned(),
            owner: Owner {
                user: "geuser".to_owned(),
                ..Owner::default()
            },
            shown: vec![
                (marks::HARD.to_owned(), "h_rt=600,h_vmem=1G".to_owned()),
                (marks::HARD_QUEUES.to_owned(), "all.q".to_owned()),
            ],
            ..JobSpec::default()
        };
        // Sat Nov 21 19:05:05 2026
        let at = Timestamp::from_unix_s(1_795_287_905);
        let mut job = Job::new(JobId(4), Arc::new(spec), TimeLimit::Unlimited, at);
        (job.state, job.priority) = (state, 1_074_342_947);
        job.start_time = (state != JobState::Pending).then_some(at);
        job
    }

    /// A job of a parallel environment with 3 slots on one host and 2 on another, and a step on each.
    fn parallel_job() -> (Job, Measured) {
        let mut job = job("PAR", JobState::Running);
        let share = |(name, tasks): (&str, u32)| NodeShare {
            node: NodeIdx(0),
            name: name.to_owned(),
            cpus: CpuSet::first(tasks),
            memory_mib: 0,
            tasks,
            gres: Vec::new(),
        };
        job.alloc = Some(Arc::new(Allocation {
            nodes: [("vm", 3), ("wm", 2)].map(share).into(),
            ..Allocation::default()
        }));
        job.priority = u32::MAX / 4 * 3 + 1;
        job.partition = "all.q".to_owned();
        let used = |node: &str, step, user_us, bytes| StepUsage {
            node: node.to_owned(),
            step,
            usage: ResourceUsage {
                user_us,
                disk_read_bytes: bytes,
                ..ResourceUsage::default()
            },
        };
        let steps = vec![
            used("vm", StepNo::BATCH, 1_500_000, 816_043),
            used("vm", StepNo(1), 61_000_000, 42_950),
            used("wm", StepNo(1), 90_061_000_000, 0),
        ];
        let measured = Measured::from_steps(job.id, steps, &[]);
        (job, measured)
    }

    fn shown(view: &View) -> Vec<String> {
        let (job, measured) = parallel_job();
        let (ctx, mapping) = (Ctx::bare("c", TimeZone::UTC), Mapping::default());
        let source = EntrySource {
            ctx: &ctx,
            mapping: &mapping,
            view,
            measured: &measured,
        };
        let entries = Entry::of(&job, state(&job), source);
        let text = table(&entries, view);
        text.lines().map(str::to_owned).collect()
    }

    /// The order of columns is from Grid Engine 8.1.9, whose memory here is what tasks had at most.
    #[test]
    fn each_slot_has_a_line_with_what_runs_there() {
        let slots = View {
            each_slot: true,
            ..View::default()
        };
        let master = "      4 0.75000 PAR        geuser       r     11/21/2026 19:05:05 all.q@vm                       MASTER        ";
        let slave = "                                                                  all.q@vm                       SLAVE         ";
        let other = "      4 0.75000 PAR        geuser       r     11/21/2026 19:05:05 all.q@wm                       SLAVE         ";
        let last = "                                                                  all.q@wm                       SLAVE         ";
        assert_eq!(shown(&slots)[2..], [master, slave, slave, other, last]);
        let with_steps = View {
            steps: true,
            ..slots
        };
        assert_eq!(
            shown(&with_steps),
            [
                "job-ID  prior   name       user         state submit/start at     queue                          master ja-task-ID task-ID state cpu        mem     io      stat failed ",
                "-----------------------------------------------------------------------------------------------------------------------------------------------------------------------",
                "      4 0.75000 PAR        geuser       r     11/21/2026 19:05:05 all.q@vm                       MASTER                        r     00:00:01 0.00000 0.00076 ",
                "                                                                  all.q@vm                       SLAVE            1.vm         r     00:01:01 0.00000 0.00004 ",
                slave,
                "      4 0.75000 PAR        geuser       r     11/21/2026 19:05:05 all.q@wm                       SLAVE            1.wm         r     25:01:01 0.00000 0.00000 ",
                last,
            ]
        );
        let pri = View { pri: true, ..slots };
        let blanks = shown(&pri)[3].chars().take_while(|c| *c == ' ').count();
        assert_eq!(blanks, 108);
    }

    /// It had one for each slot, however many were asked for: qstat took all memory.
    #[test]
    fn a_job_that_overcommits_has_a_line_for_each_cpu() {
        let mut job = job("OVER", JobState::Running);
        let share = NodeShare {
            node: NodeIdx(0),
            name: "vm".to_owned(),
            cpus: CpuSet::first(2),
            memory_mib: 0,
            tasks: 1 << 20,
            gres: Vec::new(),
        };
        Arc::make_mut(&mut job.spec).ask.cpus_per_task = Some(1 << 20);
        job.alloc = Some(Arc::new(Allocation {
            nodes: vec![share],
            ..Allocation::default()
        }));
        let step = |number| StepUsage {
            node: "vm".to_owned(),
            step: StepNo(number),
            usage: ResourceUsage::default(),
        };
        let view = View {
            each_slot: true,
            ..View::default()
        };
        let count = |steps: u32| {
            let steps = (0..steps).map(step).collect();
            let measured = Measured::from_steps(job.id, steps, &[]);
            let source = EntrySource {
                ctx: &Ctx::bare("c", TimeZone::UTC),
                mapping: &Mapping::default(),
                view: &view,
                measured: &measured,
            };
            Entry::of(&job, state(&job), source).len()
        };
        assert_eq!((count(0), count(5), count(9999)), (2, 6, 1001));
    }

    #[test]
    fn what_jobs_use_is_among_the_further_columns() {
        let ext = View {
            ext: true,
            ..View::default()
        };
        assert_eq!(
            shown(&ext)[2],
            "      4 0.75000 0.00000 PAR        geuser       NA               defaultdep r     1:01:02:03 0.00000 0.00080     0     0     0     0     0 0.00  all.q@vm                           1        "
        );
        let with_steps = View {
            steps: true,
            each_slot: true,
            ..ext
        };
        let lines = shown(&with_steps);
        assert_eq!(
            lines[0],
            "job-ID  prior   ntckts  name       user         project          department state submit/start at     cpu        mem     io      tckts ovrts otckt ftckt stckt share queue                          master ja-task-ID task-ID state cpu        mem     io      stat failed "
        );
        assert_eq!(
            lines[3],
            "                                                                                                      0:00:01:01 0.00000 0.00004     0     0     0     0     0 0.00  all.q@vm                       SLAVE            1.vm         r     00:01:01 0.00000 0.00004 "
        );
        assert_eq!(
            lines[4],
            "                                                                                                      NA         NA      NA          0     0     0     0     0 0.00  all.q@vm                       SLAVE         "
        );
    }

    fn lines(job: &Job, view: &View, queue: &str, tasks: &str) -> String {
        let ctx = Ctx::bare("c", TimeZone::UTC);
        let mapping = Mapping::default();
        let measured = Measured::default();
        let source = EntrySource {
            ctx: &ctx,
            mapping: &mapping,
            view,
            measured: &measured,
        };
        let mut entries = Entry::of(job, state(job), source);
        for entry in &mut entries {
            (entry.queue, entry.tasks) = (queue.to_owned(), tasks.to_owned());
        }
        table(&entries, view)
    }

    /// The lines that Grid Engine 8.1.9 printed, blanks at the end included.
    #[test]
    fn columns_are_where_grid_engine_has_them() {
        let running = job("HELLO", JobState::Running);
        let text = lines(&running, &View::default(), "all.q@vm", "");
        assert_eq!(
            text,
            "job-ID  prior   name       user         state submit/start at     queue                          slots ja-task-ID \n\
             -----------------------------------------------------------------------------------------------------------------\n      \
             4 0.25014 HELLO      geuser       r     11/21/2026 19:05:05 all.q@vm                           1        \n"
        );
        let mut held = job("a name that is long", JobState::Pending);
        held.hold = Hold::User;
        let text = lines(&held, &View::default(), "", "1-5:2");
        assert_eq!(
            text.lines().last().unwrap(),
            "      4 0.00000 a name tha geuser       hqw   11/21/2026 19:05:05                                    1 1-5:2"
        );
        let ext = View {
            ext: true,
            ..View::default()
        };
        let text = lines(&running, &ext, "all.q@vm", "");
        assert_eq!(
            text.lines().last().unwrap(),
            "      4 0.25014 0.00000 HELLO      geuser       NA               defaultdep r     NA         NA      NA          0     0     0     0     0 0.00  all.q@vm                           1        "
        );
        let hosts = View {
            each_slot: true,
            ..View::default()
        };
        let text = lines(&job("PE", JobState::Pending), &hosts, "", "");
        assert!(text.starts_with("job-ID  prior   name       user         state submit/start at     queue                          master ja-task-ID \n"));
        assert_eq!(
            text.lines().last().unwrap(),
            "      4 0.25014 PE         geuser       qw    11/21/2026 19:05:05                                              "
        );
    }

    #[test]
    fn requests_of_a_job() {
        let view = View {
            requests: true,
            ..View::default()
        };
        let text = lines(&job("BIN", JobState::Pending), &view, "", "");
        let own: Vec<&str> = text.lines().skip(3).collect();
        assert_eq!(
            own,
            [
                "       Full jobname:     BIN",
                "       Hard Resources:   h_rt=600 (0.000000)",
                "                         h_vmem=1G (0.000000)",
                "       Soft Resources:   ",
                "       Hard requested queues: all.q",
                "       Binding:          NONE",
            ]
        );
    }

    #[test]
    fn states_in_letters() {
        for (state_now, want) in [
            (JobState::Pending, "qw"),
            (JobState::Running, "r"),
            (JobState::Suspended, "s"),
            (JobState::Completed, "z"),
        ] {
            assert_eq!(state(&job("x", state_now)), want);
        }
        let mut ending = job("x", JobState::Cancelled);
        (ending.completing, ending.cancelled_by) = (true, Some(0));
        assert_eq!(state(&ending), "dr");
        let mut again = job("x", JobState::Pending);
        again.restarts = 1;
        assert_eq!(state(&again), "Rq");
        again.special_exit = true;
        assert_eq!(state(&again), "Eqw");
    }
}
