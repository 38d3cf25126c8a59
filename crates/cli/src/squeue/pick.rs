//! Which jobs squeue shows: part of it is asked of the controller, the rest is looked at here.

use super::Options;
use crate::listing::Failure;
use crate::listing::context::Ctx;
use crate::listing::job::JobRow;
use crate::listing::query::Jobs;
use crate::listing::states::JobStateFilter;
use crate::listing::step_fields::StepRow;
use muster_model::hostlist;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::{ArrayRole, Job, JobState};
use muster_proto::client::JobFilter;

/// A job as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobName {
    /// Number of a job, an array or a task.
    pub(super) id: JobId,
    /// One task of the array.
    pub(super) task: Option<u32>,
    /// One component of the heterogeneous job.
    pub(super) component: Option<u32>,
}

impl JobName {
    /// The record to ask for; a leader brings its components along.
    fn record(&self) -> JobId {
        JobId(self.id.0 + u64::from(self.component.unwrap_or(0)))
    }

    /// Whether it names this record, its heterogeneous job or its component of that.
    fn is_of(&self, job: &Job) -> bool {
        let part = job.het.filter(|part| part.leader == self.id);
        match self.component {
            Some(component) => part.is_some_and(|part| part.offset == component),
            None => job.id == self.id || part.is_some(),
        }
    }
}

/// Conditions; all that are given must hold, an empty list is none.
#[derive(Debug, Default)]
pub(super) struct JobConditions {
    pub(super) jobs: Option<Vec<JobName>>,
    pub(super) steps: Vec<(JobName, Option<StepNo>)>,
    pub(super) uids: Option<Vec<u32>>,
    pub(super) accounts: Vec<String>,
    pub(super) partitions: Vec<String>,
    pub(super) qos: Vec<String>,
    pub(super) names: Vec<String>,
    pub(super) licenses: Vec<String>,
    pub(super) reservation: Option<String>,
    pub(super) nodes: Option<Vec<String>>,
    /// None: what waits and runs. Empty: all.
    pub(super) states: Option<Vec<JobStateFilter>>,
    pub(super) hidden: bool,
    /// Jobs that have run for longer than this, in seconds.
    pub(super) running_over_s: Option<i64>,
    /// Jobs that run and have done so for less than this.
    pub(super) running_under_s: Option<i64>,
}

/// Reads a time as `--time` of sbatch has it, in seconds: minutes, minutes:seconds, hours:minutes:seconds, days-hours,
/// days-hours:minutes, days-hours:minutes:seconds.
pub(super) fn parse_run_time(option: &str, text: &str) -> Result<i64, Failure> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days), rest),
        None => (None, text),
    };
    let numbers = days.into_iter().chain(rest.split(':'));
    let numbers: Option<Vec<i64>> = numbers
        .map(|part| part.parse::<u32>().ok().map(i64::from))
        .collect();
    let seconds = match (days, numbers.as_deref()) {
        (None, Some([minutes])) => Some(minutes * 60),
        (None, Some([minutes, seconds])) => Some(minutes * 60 + seconds),
        (None, Some([hours, minutes, seconds])) => Some(hours * 3600 + minutes * 60 + seconds),
        (Some(_), Some([days, rest @ ..])) if rest.len() <= 3 => {
            let units = rest.iter().zip([3600, 60, 1]);
            Some(days * 86_400 + units.map(|(count, unit)| count * unit).sum::<i64>())
        }
        _ => None,
    };
    seconds.ok_or_else(|| {
        Failure::new(format!(
            "squeue: error: Invalid time for --{option}: {text}"
        ))
    })
}

/// Reads `--jobs`: `12,12_3,12_[4-6]`.
pub(super) fn parse_jobs(list: &str) -> Result<Vec<JobName>, Failure> {
    let wrong = |word: &str| Failure::new(format!("squeue: error: Invalid job id: {word}"));
    let words = hostlist::split(list).map_err(|_| wrong(list))?;
    let mut names = Vec::new();
    for word in words {
        let word = word.trim();
        if let Some((leader, component)) = word.split_once('+') {
            names.push(JobName {
                id: JobId(leader.parse().map_err(|_| wrong(word))?),
                task: None,
                component: Some(component.parse().map_err(|_| wrong(word))?),
            });
            continue;
        }
        let (base, tasks) = match word.split_once('_') {
            Some((base, tasks)) => (base, Some(tasks)),
            None => (word, None),
        };
        let id = JobId(base.parse().map_err(|_| wrong(word))?);
        match tasks {
            None => names.push(JobName {
                id,
                task: None,
                component: None,
            }),
            Some(tasks) => {
                let tasks = hostlist::parse_ranges(tasks, 1 << 20).map_err(|_| wrong(word))?;
                names.extend(tasks.into_iter().map(|t| JobName {
                    id,
                    task: Some(t),
                    component: None,
                }));
            }
        }
    }
    Ok(names)
}

/// Reads `--steps`: `12.0,12_3.batch`; a job alone stands for all of its steps.
pub(super) fn parse_steps(list: &str) -> Result<Vec<(JobName, Option<StepNo>)>, Failure> {
    let mut steps = Vec::new();
    for word in list.split(',').filter(|w| !w.is_empty()) {
        let wrong = || Failure::new(format!("squeue: error: Invalid job_step id: {word}"));
        let (job, step) = word.split_once('.').ok_or_else(|| {
            Failure::new(format!("squeue: error: Invalid job_step id: {word}.??"))
        })?;
        let step = match step {
            "batch" => StepNo::BATCH,
            "extern" => StepNo::EXTERN,
            "interactive" => StepNo::INTERACTIVE,
            number => StepNo(number.parse().map_err(|_| wrong())?),
        };
        let names = parse_jobs(job).map_err(|_| wrong())?;
        steps.extend(names.into_iter().map(|name| (name, Some(step))));
    }
    Ok(steps)
}

/// Reads `--nodelist`.
pub(super) fn parse_nodes(list: &str) -> Result<Vec<String>, Failure> {
    hostlist::parse(list).map_err(|e| Failure::new(format!("squeue: error: {e}")))
}

impl JobConditions {
    /// The conditions that the controller can check.
    pub(super) fn filter(&self, start: bool, document: bool) -> JobFilter {
        let named = self.jobs.iter().flatten().map(JobName::record);
        let mut ids: Vec<JobId> = named
            .chain(self.steps.iter().map(|(name, _)| name.record()))
            .collect();
        ids.dedup();
        let mut filter = JobFilter {
            ids,
            uids: self.uids.clone().unwrap_or_default(),
            partitions: self.partitions.clone(),
            ..JobFilter::default()
        };
        match &self.states {
            None if document => {}
            None if start => filter.states = vec![JobState::Pending],
            None => filter.active = true,
            Some(conditions) => {
                let base = |filter: &JobStateFilter| match filter {
                    JobStateFilter::Base(state) => Some(*state),
                    _ => None,
                };
                let states: Option<Vec<JobState>> = conditions.iter().map(base).collect();
                filter.states = states.unwrap_or_default();
            }
        }
        filter
    }

    /// Refuses a number that names nothing, if it is the only one. Several are a search, one is a question.
    pub(super) fn check_jobs(&self, jobs: &Jobs, call: &str) -> Result<(), Failure> {
        match self.jobs.as_deref() {
            Some([one]) if jobs.unknown.contains(&one.id) => Err(Failure::new(format!(
                "{call} error: Invalid job id specified"
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses names of nodes that there are not.
    pub(super) fn check_nodes(&self, ctx: &Ctx) -> Result<(), Failure> {
        let unknown = self
            .nodes
            .iter()
            .flatten()
            .find(|name| !ctx.nodes.iter().any(|n| n.config.name == **name));
        match unknown {
            Some(name) => Err(Failure::new(format!(
                "squeue: error: Invalid node name {name}"
            ))),
            None => Ok(()),
        }
    }

    /// Whether it shows a job, where it names none.
    pub(super) fn wants(&self, row: &JobRow<'_>, options: &Options, ctx: &Ctx) -> bool {
        let job = row.job;
        let spec = &job.spec;
        let in_list = |list: &[String], value: Option<&str>| {
            list.is_empty() || value.is_some_and(|v| list.iter().any(|l| l == v))
        };
        let runs = job.state == JobState::Running;
        self.state_fits(row, options)
            && self
                .running_over_s
                .is_none_or(|limit| runs && row.run_time_s(ctx) > limit)
            && self
                .running_under_s
                .is_none_or(|limit| runs && row.run_time_s(ctx) < limit)
            && self
                .uids
                .as_ref()
                .is_none_or(|uids| uids.contains(&spec.owner.uid))
            && in_list(&self.accounts, Some(spec.account_name()))
            && in_list(&self.qos, Some(spec.qos_name()))
            && in_list(&self.names, Some(&spec.name))
            && self.partition_fits(job, ctx)
            && self
                .reservation
                .as_ref()
                .is_none_or(|r| spec.reservation.as_ref() == Some(r))
            && (self.licenses.is_empty()
                || spec
                    .licenses
                    .as_deref()
                    .is_some_and(|l| has_license(l, &self.licenses)))
            && self
                .nodes
                .as_ref()
                .is_none_or(|names| row.shares().any(|share| names.contains(&share.name)))
    }

    fn state_fits(&self, row: &JobRow<'_>, options: &Options) -> bool {
        let job = row.job;
        match &self.states {
            None if options.document.is_some() => true,
            None if options.start => job.state == JobState::Pending,
            None => !job.state.is_ended() || job.completing,
            Some(conditions) if conditions.is_empty() => true,
            Some(conditions) => conditions.iter().any(|filter| match filter {
                JobStateFilter::Base(state) => job.state == *state,
                JobStateFilter::Completing => job.completing,
                JobStateFilter::SpecialExit => row.is_special(),
                JobStateFilter::Configuring => row.is_configuring(),
                JobStateFilter::Requeued | JobStateFilter::Never => false,
            }),
        }
    }

    fn partition_fits(&self, job: &Job, ctx: &Ctx) -> bool {
        let own = |f: &dyn Fn(&str) -> bool| {
            f(&job.partition) || job.spec.partitions.iter().any(|p| f(p))
        };
        if !self.partitions.is_empty() {
            return own(&|name| self.partitions.iter().any(|p| p == name));
        }
        // A job that is asked for by number is shown wherever it is.
        self.hidden
            || self.jobs.is_some()
            || ctx.partitions.iter().all(|p| ctx.shows(p))
            || own(&|name| ctx.partition(name).is_none_or(|p| ctx.shows(p)))
    }
}

fn has_license(asked: &str, wanted: &[String]) -> bool {
    asked
        .split([',', '|'])
        .any(|l| wanted.iter().any(|w| l.split([':', '@']).next() == Some(w)))
}

/// Whether all jobs of a template are shown in the same way: each in a row of its own, or none of them.
pub(super) fn by_template(options: &Options) -> bool {
    let conditions = &options.conditions;
    let named = conditions.jobs.is_some() || options.steps;
    !named && !options.split_arrays && !options.split_partitions
}

/// Rows to show, in the controller's order.
pub(super) fn rows<'a>(options: &Options, jobs: &'a Jobs, ctx: &Ctx) -> Vec<JobRow<'a>> {
    let mut rows = Vec::with_capacity(jobs.jobs.len());
    for job in jobs.jobs.iter() {
        let row = JobRow::new(job, jobs.array_of(job));
        if options.conditions.wants(&row, options, ctx) {
            by_task(options, row, &mut rows);
        }
    }
    if options.split_partitions {
        rows = rows.into_iter().flat_map(by_partition).collect();
    }
    rows
}

/// A record, or the tasks of it that are asked for.
fn by_task<'a>(options: &Options, row: JobRow<'a>, rows: &mut Vec<JobRow<'a>>) {
    let alone = |task| JobRow {
        task: Some(task),
        ..row
    };
    let steps = options.conditions.steps.iter().map(|(name, _)| name);
    let names: Vec<&JobName> = options
        .conditions
        .jobs
        .iter()
        .flatten()
        .chain(steps)
        .collect();
    if options.conditions.jobs.is_none() && options.conditions.steps.is_empty() {
        // No ids: everything.
    } else {
        let here = |name: &&JobName| {
            name.id == row.base_id() && name.component.is_none()
                || name.task.is_none() && name.is_of(row.job)
        };
        let mut mine = names.into_iter().filter(here).peekable();
        if mine.peek().is_none() {
            return;
        }
        let tasks: Option<Vec<u32>> = mine.map(|name| name.task).collect();
        // Only if every name that fits is of a task does the record as a whole stay away.
        if let Some(tasks) = tasks {
            match &row.job.array {
                ArrayRole::Pending { indices } => {
                    rows.extend(
                        tasks
                            .into_iter()
                            .filter(|t| indices.contains(*t))
                            .map(alone),
                    );
                }
                ArrayRole::Task { index, .. } if tasks.contains(index) => rows.push(row),
                _ => {}
            }
            return;
        }
    }
    match row.pending_indices() {
        Some(indices) if options.split_arrays => rows.extend(indices.iter().map(alone)),
        _ => rows.push(row),
    }
}

fn by_partition(row: JobRow<'_>) -> Vec<JobRow<'_>> {
    let partitions = &row.job.spec.partitions;
    if !row.is_pending() || partitions.len() < 2 {
        return vec![row];
    }
    partitions
        .iter()
        .map(|partition| JobRow {
            partition: Some(partition),
            ..row
        })
        .collect()
}

/// Steps of the rows.
pub(super) fn steps<'a>(options: &Options, rows: &[JobRow<'a>]) -> Vec<StepRow<'a>> {
    let wanted = |row: &StepRow<'_>| {
        let names = &options.conditions.steps;
        names.is_empty()
            || names.iter().any(|(name, step)| {
                let same_job = match name.task {
                    Some(task) => row.job.base_id() == name.id && row.job.index() == Some(task),
                    None => row.job.base_id() == name.id || name.is_of(row.job.job),
                };
                same_job && step.is_none_or(|s| s == row.step.step)
            })
    };
    rows.iter()
        .flat_map(|job| job.job.steps.iter().map(|step| StepRow { job: *job, step }))
        .filter(wanted)
        .collect()
}
