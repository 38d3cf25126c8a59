//! Which rows sacct shows: job names, states, windows of time; most of it is asked of the accounting store.

use crate::listing::Failure;
use crate::listing::account::AcctRow;
use crate::listing::context::{gid_of, uid_of};
use crate::listing::states::{self, JobStateFilter};
use crate::listing::time_input;
use jiff::Zoned;
use muster_model::hostlist;
use muster_model::ids::{JobId, StepNo};
use muster_model::limits::QUERY_ITEMS_MAX;
use muster_model::time::{TimeLimit, Timestamp};
use muster_proto::acct::{AcctJob, AcctQuery};

/// A job or a step as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowName {
    pub(crate) job: JobId,
    /// The heterogeneous job, where `12+1` names a component.
    pub(crate) leader: Option<JobId>,
    pub(crate) task: Option<u32>,
    pub(crate) step: Option<StepNo>,
}

/// Conditions of a command line.
#[derive(Debug, Default)]
pub(crate) struct RowConditions {
    pub(crate) rows: Vec<RowName>,
    /// `--whole-hetjob`: all components, or only the one that is named.
    pub(crate) whole_het: Option<bool>,
    pub(crate) query: AcctQuery,
    pub(crate) states_given: bool,
    pub(crate) requeued: bool,
    pub(crate) start: Option<String>,
    pub(crate) end: Option<String>,
    pub(crate) everyone: bool,
    pub(crate) constraints: Vec<String>,
    pub(crate) reasons: Vec<String>,
    pub(crate) nodes: Option<(u32, u32)>,
    pub(crate) cpus: Option<(u32, u32)>,
    /// `--timelimit-min`, `--timelimit-max`.
    pub(crate) limits: (Option<TimeLimit>, Option<TimeLimit>),
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|w| !w.is_empty())
}

/// Items of a list.
pub(crate) fn texts(list: &str) -> Vec<String> {
    words(list).map(str::to_owned).collect()
}

/// Reads `--jobs`: `12,12_3,12_[4-6],12.0,12_3.batch,12+1`, and adds them to those that were read before. There are no
/// more of all than a query may name; a few characters can stand for a million.
pub(crate) fn add_rows(rows: &mut Vec<RowName>, list: &str) -> Result<(), Failure> {
    let wrong = |word: &str| Failure::new(format!("sacct: fatal: Bad job/step specified: {word}"));
    for word in hostlist::split(list).map_err(|_| wrong(list))? {
        let word = word.trim();
        let (job, step) = match word.split_once('.') {
            Some((job, step)) => (job, Some(step.parse().map_err(|_| wrong(word))?)),
            None => (word, None),
        };
        let (base, tasks) = match job.split_once('_') {
            Some((base, tasks)) => (base, Some(tasks)),
            None => (job, None),
        };
        let (base, component) = match base.split_once('+') {
            Some((leader, number)) => (leader, Some(number)),
            None => (base, None),
        };
        let number: u64 = base.parse().map_err(|_| wrong(word))?;
        let offset: u32 = component
            .map_or(Ok(0), str::parse)
            .map_err(|_| wrong(word))?;
        let row = RowName {
            // Components are numbered on from their leader.
            job: JobId(number.saturating_add(offset.into())),
            leader: component.map(|_| JobId(number)),
            task: None,
            step,
        };
        match tasks {
            None => rows.push(row),
            Some(tasks) => {
                let left = QUERY_ITEMS_MAX.saturating_sub(rows.len());
                let tasks = hostlist::parse_ranges(tasks, left).map_err(|_| wrong(word))?;
                rows.extend(tasks.into_iter().map(|task| RowName {
                    task: Some(task),
                    ..row
                }));
            }
        }
    }
    Ok(())
}

/// Users by number.
pub(crate) fn parse_users(list: &str) -> Result<Vec<u32>, Failure> {
    words(list)
        .map(|word| {
            uid_of(word)
                .ok_or_else(|| Failure::new(format!("sacct: error: Invalid user id: {word}")))
        })
        .collect()
}

/// Groups by number.
pub(crate) fn parse_groups(list: &str) -> Result<Vec<u32>, Failure> {
    words(list)
        .map(|word| {
            gid_of(word)
                .ok_or_else(|| Failure::new(format!("sacct: error: Invalid group id: {word}")))
        })
        .collect()
}

/// `4`, `2-8`.
pub(crate) fn parse_range(option: &str, text: &str) -> Result<(u32, u32), Failure> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    match (low.parse(), high.parse()) {
        (Ok(low), Ok(high)) if low <= high => Ok((low, high)),
        _ => Err(Failure::new(format!(
            "sacct: error: Invalid numeric value \"{text}\" for requested {option} range."
        ))),
    }
}

/// Reads a time limit.
pub(crate) fn parse_limit(text: &str) -> Result<TimeLimit, Failure> {
    muster_conf::options::job::read_limit(text)
        .map_err(|_| Failure::new("sacct: fatal: Invalid time limit specification"))
}

impl RowConditions {
    /// Sets the states to look for.
    pub(crate) fn set_states(&mut self, list: &str) -> Result<(), Failure> {
        self.states_given = true;
        for word in words(list) {
            match states::parse(word) {
                Some(JobStateFilter::Base(state)) => self.query.states.push(state),
                Some(JobStateFilter::Requeued) => self.requeued = true,
                // Accounting has no rows in the other states.
                Some(_) => {}
                None => {
                    return Err(Failure::new(format!(
                        "sacct: fatal: unrecognized job state value '{word}'"
                    )));
                }
            }
        }
        Ok(())
    }

    /// The question for the accounting store.
    pub(crate) fn to_query(&self, now: &Zoned, caller: u32) -> Result<AcctQuery, Failure> {
        let mut query = self.query.clone();
        let whole = self.whole_het == Some(true);
        let asked = |row: &RowName| row.leader.filter(|_| whole).unwrap_or(row.job);
        query.jobs = self.rows.iter().map(|row| (asked(row), row.task)).collect();
        query.jobs.dedup();
        let (start, end) = self.window(now)?;
        query.start = Some(start);
        query.end = Some(end);
        if query.uids.is_empty() && !self.everyone && self.rows.is_empty() && caller != 0 {
            query.uids = vec![caller];
        }
        Ok(query)
    }

    /// The window, with the defaults of sacct(1) "DEFAULT TIME WINDOW".
    pub(crate) fn window(&self, now: &Zoned) -> Result<(Timestamp, Timestamp), Failure> {
        let at = |text: &str| {
            time_input::parse(text, now)
                .ok_or_else(|| Failure::new(format!("Invalid time specification (pos=0): {text}")))
        };
        let current = Timestamp::from_unix_s(now.timestamp().as_second());
        let start = match &self.start {
            Some(text) => at(text)?,
            None if !self.rows.is_empty() => Timestamp(0),
            None if self.states_given => current,
            None => time_input::midnight(now),
        };
        let end = match (&self.end, &self.start) {
            (Some(text), _) => at(text)?,
            // With states, a start alone is a moment: jobs that were in the state then.
            (None, Some(_)) if self.states_given => start,
            _ => current,
        };
        if end < start {
            return Err(Failure::new(format!(
                "sacct: error: Start time ({}) requested is after end time ({}).",
                written(start, now),
                written(end, now)
            )));
        }
        Ok((start, end))
    }

    /// Whether a row is shown; what the store cannot be asked is looked at here.
    pub(crate) fn wants(&self, row: &AcctRow<'_>) -> bool {
        self.name_fits(row)
            && self.state_fits(row)
            && inside(self.nodes, row.job.alloc_nodes)
            && inside(self.cpus, row.job.alloc_cpus)
            && self.limit_fits(row.job.time_limit)
            && (self.reasons.is_empty() || self.reasons.contains(&row.job.reason))
            && self.constraints.iter().all(|c| {
                row.job
                    .constraint
                    .split(['&', ',', '|', '(', ')', '[', ']'])
                    .any(|have| have == c)
            })
    }

    /// The least alone is the limit itself. Limits are in order: no limit is the highest.
    fn limit_fits(&self, limit: TimeLimit) -> bool {
        match self.limits {
            // A most alone says nothing.
            (None, _) => true,
            (Some(only), None) => limit == only,
            (Some(least), Some(most)) => limit >= least && limit <= most,
        }
    }

    /// Base states are looked at by the store, for which an empty list is no condition.
    fn state_fits(&self, row: &AcctRow<'_>) -> bool {
        !self.states_given || !self.query.states.is_empty() || self.requeued && row.job.requeued
    }

    /// Whether a name stands for a whole heterogeneous job that the job is a component of.
    fn leads(&self, name: &RowName, job: &AcctJob) -> bool {
        let leader = job.het.map(|part| part.leader);
        match self.whole_het {
            Some(false) => false,
            Some(true) => leader.is_some_and(|l| l == name.job || name.leader == Some(l)),
            None => name.leader.is_none() && leader == Some(name.job),
        }
    }

    fn name_fits(&self, row: &AcctRow<'_>) -> bool {
        if self.rows.is_empty() {
            return true;
        }
        let job = row.job;
        self.rows.iter().any(|name| {
            let base = job.array.map_or(job.id, |task| task.array);
            let same_job = match name.task {
                Some(task) => {
                    base == name.job
                        && (job.array.is_some_and(|own| own.index == task)
                            || job.array_pending.as_deref().is_some_and(|p| holds(p, task)))
                }
                None => base == name.job || job.id == name.job || self.leads(name, job),
            };
            // A step's name asks for that step only.
            let same_step = name
                .step
                .is_none_or(|wanted| row.step.is_some_and(|s| s.step == wanted));
            same_job && same_step
        })
    }
}

/// A time as listings have it.
fn written(at: Timestamp, now: &Zoned) -> String {
    let instant = jiff::Timestamp::from_millisecond(at.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let zoned = instant.to_zoned(now.time_zone().clone());
    zoned.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

fn inside(range: Option<(u32, u32)>, number: u32) -> bool {
    range.is_none_or(|(low, high)| (low..=high).contains(&number))
}

/// Whether `[1-3,7%2]` has the index.
fn holds(pending: &str, index: u32) -> bool {
    let list = pending
        .trim_matches(['[', ']'])
        .split('%')
        .next()
        .unwrap_or("");
    list.split(',').any(|part| {
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        match (low.parse::<u32>(), high.parse::<u32>(), step.parse::<u32>()) {
            (Ok(low), Ok(high), Ok(step)) if step > 0 => {
                (low..=high).contains(&index) && (index - low).is_multiple_of(step)
            }
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// slurmrestd reads them for whom it serves: a line of 64 KiB stood for 4 billion.
    #[test]
    fn rows_are_as_many_as_a_query_may_name() {
        let mut rows = Vec::new();
        add_rows(&mut rows, "12,12_3,12_[4-6],12.0").unwrap();
        assert_eq!(rows.len(), 6);
        assert!(add_rows(&mut rows, "1_[0-1048575]").is_err());
        assert!(add_rows(&mut rows, "1_[0-65529]").is_ok());
        assert_eq!(rows.len(), QUERY_ITEMS_MAX);
        assert!(add_rows(&mut rows, "1_[0-1]").is_err());
    }
}
