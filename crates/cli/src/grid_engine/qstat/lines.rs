//! Jobs as lines: qstat plain, `-ext`, `-pri`, `-r`, `-g d`, `-g t`.

use crate::grid_engine::arguments::Parsed;
use crate::grid_engine::{selection, site};
use crate::listing::context::Ctx;
use muster_conf::grid_engine::Mapping;
use muster_model::grid_engine as marks;
use muster_model::job::{ArrayRole, Hold, Job, JobState};
use muster_model::spec::DependencyTerm;
use muster_model::time::Timestamp;
use std::fmt::Write as _;

/// Which columns and lines there are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct View {
    pub(super) ext: bool,
    pub(super) pri: bool,
    pub(super) requests: bool,
    pub(super) each_task: bool,
    pub(super) each_host: bool,
    pub(super) without_binding: bool,
}

impl View {
    pub(super) fn read(parsed: &Parsed) -> View {
        View {
            ext: parsed.has("ext"),
            pri: parsed.has("pri"),
            requests: parsed.has("r"),
            each_task: parsed.all("g").any(|kind| kind.contains('d')),
            each_host: parsed.has("t") || parsed.all("g").any(|kind| kind.contains('t')),
            without_binding: parsed.has("ncb"),
        }
    }
}

/// A line about a job.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(super) job: &'a Job,
    pub(super) state: String,
    /// Start, or submission while it waits.
    pub(super) at: String,
    /// The same as XML has it.
    pub(super) at_iso: String,
    /// `queue@host`; empty while it waits.
    pub(super) queue: String,
    /// Tasks of an array.
    pub(super) tasks: String,
    /// `MASTER` or `SLAVE`, with `-g t`.
    pub(super) role: &'static str,
    pub(super) slots: u64,
}

impl<'a> Entry<'a> {
    /// The lines about a record.
    pub(super) fn of(
        job: &'a Job,
        state: String,
        ctx: &Ctx,
        mapping: &Mapping,
        view: &View,
    ) -> Vec<Entry<'a>> {
        let runs = job.start_time.filter(|_| !is_pending(job));
        let at = runs.unwrap_or(job.submit_time);
        let slots = slots(job);
        let entry = |queue: String, tasks: String, role| Entry {
            job,
            state: state.clone(),
            at: date(ctx, at),
            at_iso: ctx.zoned(at).strftime("%Y-%m-%dT%H:%M:%S").to_string(),
            queue,
            tasks,
            role,
            slots,
        };
        let hosts = hosts(job);
        let queue = site::queue_of(mapping, &ctx.partitions, &job.partition);
        match &job.array {
            ArrayRole::Pending { indices } if view.each_task => {
                let each = |index: u32| entry(String::new(), index.to_string(), "");
                indices.iter().map(each).collect()
            }
            ArrayRole::Pending { indices } => {
                vec![entry(String::new(), selection::ranges(indices.iter()), "")]
            }
            ArrayRole::None | ArrayRole::Task { .. } => {
                let task = selection::task(job)
                    .map(|index| index.to_string())
                    .unwrap_or_default();
                let on = |(number, host): (usize, &String)| {
                    let role = if number == 0 { "MASTER" } else { "SLAVE" };
                    entry(format!("{queue}@{host}"), task.clone(), role)
                };
                let shown = if view.each_host { hosts.len() } else { 1 };
                match runs.is_some() && !hosts.is_empty() {
                    true => hosts.iter().take(shown).enumerate().map(on).collect(),
                    false => vec![entry(String::new(), task, "")],
                }
            }
        }
    }
}

/// Slots that a job asks for.
pub(in crate::grid_engine) fn slots(job: &Job) -> u64 {
    u64::from(job.spec.ask.task_count()) * u64::from(job.spec.ask.cpus_of_task())
}

/// Hosts of a job that has its allocation.
pub(in crate::grid_engine) fn hosts(job: &Job) -> Vec<String> {
    let alloc = job.alloc.as_deref().filter(|_| !is_pending(job));
    let nodes = alloc.into_iter().flat_map(|alloc| &alloc.nodes);
    nodes.map(|share| share.name.clone()).collect()
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

/// What runs first, then what waits: by priority, then by number.
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
    if view.ext {
        text.push_str("ntckts  name       user         project          department state cpu        mem     io      ");
        text.push_str("tckts ovrts otckt ftckt stckt share ");
    } else {
        text.push_str("name       user         state submit/start at     ");
    }
    let slots = if view.each_host { "master" } else { "slots" };
    let _ = write!(text, "{:<30} {slots} ja-task-ID ", "queue");
    let dashes = "-".repeat(text.len() - 1);
    text + "\n" + &dashes + "\n"
}

/// One line; `queue` is whether it has the column of queues.
pub(super) fn line(text: &mut String, entry: &Entry, view: &View, queue: bool) {
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
    if view.ext {
        let project = job.spec.account.as_deref().unwrap_or("NA");
        let used = if is_pending(job) { "" } else { "NA" };
        let _ = write!(
            text,
            "{:.5} {name:<10.10} {user:<12.12} {project:<16.16} {:<10.10} {:<5.5} {used:<10} {used:<7} {used:<7} ",
            0.0, "defaultdepartment", entry.state
        );
        let _ = write!(
            text,
            "{0:>5} {0:>5} {0:>5} {0:>5} {0:>5} {1:<5} ",
            0, "0.00"
        );
    } else {
        let _ = write!(
            text,
            "{name:<10.10} {user:<12.12} {:<5.5} {} ",
            entry.state, entry.at
        );
    }
    if queue {
        let _ = write!(text, "{:<30.30} ", entry.queue);
    }
    if view.each_host {
        let _ = write!(text, "{:<6} ", entry.role);
    } else {
        let _ = write!(text, "{:>5} ", entry.slots);
    }
    let tasks = if entry.tasks.is_empty() {
        "       "
    } else {
        &entry.tasks
    };
    let _ = writeln!(text, "{tasks}");
    if view.requests {
        requests(text, entry, view);
    }
}

/// The lines of `-r`.
fn requests(text: &mut String, entry: &Entry, view: &View) {
    let spec = &entry.job.spec;
    let mut row = |key: &str, value: &str| {
        let _ = writeln!(text, "       {key:<17} {value}");
    };
    row("Full jobname:", &spec.name);
    if !entry.queue.is_empty() {
        row("Master Queue:", &entry.queue);
    }
    if let Some(pe) = marks::value(spec, marks::PE) {
        row("Requested PE:", pe);
        if !entry.queue.is_empty() {
            row("Granted PE:", pe);
        }
    }
    let hard = marks::value(spec, marks::HARD).unwrap_or_default();
    let mut first = "Hard Resources:";
    for request in hard.split(',').filter(|request| !request.is_empty()) {
        row(first, &format!("{request} (0.000000)"));
        first = "";
    }
    if hard.is_empty() {
        let _ = writeln!(text, "       Hard Resources:   ");
    }
    let soft = marks::value(spec, marks::SOFT).unwrap_or_default();
    let _ = writeln!(text, "       Soft Resources:   {soft}");
    if let Some(queues) = marks::value(spec, marks::HARD_QUEUES) {
        let queues = queues.replace(',', ", ");
        let _ = writeln!(text, "       Hard requested queues: {queues}");
    }
    if let Some(asked) = marks::value(spec, marks::HOLD_JID) {
        let asked = asked.replace(',', ", ");
        let _ = writeln!(text, "       Predecessor Jobs (request): {asked}");
    }
    let before = predecessors(entry.job);
    if !before.is_empty() {
        let _ = writeln!(text, "       Predecessor Jobs: {}", before.join(", "));
    }
    if !view.without_binding {
        let _ = writeln!(text, "       Binding:          NONE");
    }
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
    use jiff::tz::TimeZone;
    use muster_model::ids::JobId;
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

    fn lines(job: &Job, view: &View, queue: &str, tasks: &str) -> String {
        let ctx = Ctx::bare("c", TimeZone::UTC);
        let mapping = Mapping::default();
        let mut entries = Entry::of(job, state(job), &ctx, &mapping, view);
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
            each_host: true,
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
