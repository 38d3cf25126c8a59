//! Import of the accounting that a real slurmdbd has kept in MariaDB or MySQL: accounts, users, associations and QOS become
//! requests that an administrator makes of the controller ([`entities`], [`plan`]), history becomes rows of the controller's
//! store ([`jobs`]), beside which it is written. It may be interrupted, and repeated while that Slurm still runs. What it reads
//! there it never changes.

mod entities;
mod jobs;
mod plan;
mod source;
mod transactions;
mod tres;

pub use entities::Entities;
pub use plan::{Plan, plan};
pub use source::{ImportError, Names, Source};

use muster_acct::{ImportMark, Importer, UseKey, UseSum};
use std::collections::BTreeMap;

/// Seconds before the beginning of a pass from which the next looks again: steps may end after their job, and slurmdbd
/// writes queued rows later.
const OVERLAP_S: u64 = 86_400;
/// Numbers of jobs that one pass may still have to go through for it to be the last, which is of one moment.
const LAST_PASS_MAX: u64 = 200_000;

/// Progress of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportProgress {
    /// Numbers of jobs that have been looked at.
    pub done: u64,
    /// The highest number.
    pub total: u64,
    /// Runs added so far.
    pub added: u64,
}

/// Counts of an import of the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Runs that were added.
    pub added: u64,
    /// Runs that were written again, since they changed or may have.
    pub again: u64,
    /// Runs that are not over in the source: a later import brings them.
    pub unfinished: u64,
    /// Times of nodes out of service that were added.
    pub events: u64,
    /// Changes of accounting's records that were added.
    pub transactions: u64,
    /// Sums here and there.
    pub sums: Vec<UsageComparison>,
}

/// Sums of one account and user in a month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageComparison {
    /// Subject of the comparison.
    pub key: UseKey,
    /// In the source.
    pub source: UseSum,
    /// Here.
    pub here: UseSum,
    /// The source has purged jobs of this month.
    pub is_purged: bool,
    /// They have been purged here.
    pub is_purged_here: bool,
}

impl UsageComparison {
    /// Whether nothing is missing.
    pub fn is_complete(&self) -> bool {
        self.source == self.here
            || self.is_purged_here
            || self.is_purged
                && self.source.jobs <= self.here.jobs
                && self.source.cpu_s <= self.here.cpu_s
    }
}

/// Imports the history, and compares sums when it is there.
///
/// # Errors
/// What a database says. What was written stays, and the next import goes on from there.
pub fn import_history(
    source: &mut Source,
    store: &mut Importer,
    names: &dyn Names,
    progress: &mut dyn FnMut(ImportProgress),
) -> Result<Summary, ImportError> {
    let mut summary = Summary::default();
    // Large tables are read as they change; the rest, and the sums, are of one moment.
    let mark = store.mark()?;
    let behind = source.highest_job()?.saturating_sub(mark.after);
    if mark.since_s == 0 && behind > LAST_PASS_MAX {
        pass(source, store, names, &mut summary, progress)?;
    }
    source.begin_snapshot()?;
    let was_partial = store.mark()?.since_s > 0;
    pass(source, store, names, &mut summary, progress)?;
    summary.unfinished = source.count_unfinished()?;
    summary.events = store.write_events(&source.node_events()?)?;
    source.each_transactions(&mut |transactions| {
        summary.transactions += store.write_transactions(&transactions)?;
        Ok(())
    })?;
    let sums = source.sums()?;
    let purged = store.purged_month()?;
    summary.sums = compare(sums.clone(), store.sums()?, purged.as_deref());
    let is_complete = summary.sums.iter().all(UsageComparison::is_complete);
    if !is_complete && was_partial {
        // Rows may have come there with old times, as from an archive.
        store.write(&[], ImportMark::default())?;
        pass(source, store, names, &mut summary, progress)?;
        summary.sums = compare(sums, store.sums()?, purged.as_deref());
    }
    source.end_snapshot()?;
    Ok(summary)
}

/// Goes through all jobs once, or through what an interrupted pass has left.
fn pass(
    source: &mut Source,
    store: &mut Importer,
    names: &dyn Names,
    summary: &mut Summary,
    progress: &mut dyn FnMut(ImportProgress),
) -> Result<(), ImportError> {
    let mut mark = store.mark()?;
    if mark.after == 0 {
        mark.began_s = source.now_s()?;
    }
    let total = source.highest_job()?;
    let mut reader = jobs::JobReader::open(source, names)?;
    while mark.after < total {
        let jobs = reader.read(mark.after, mark.since_s, total)?;
        mark.after = jobs.up_to;
        let written = store.write(&jobs.jobs, mark)?;
        summary.added += written.added;
        summary.again += written.again;
        progress(ImportProgress {
            done: mark.after,
            total,
            added: summary.added,
        });
    }
    let over = ImportMark {
        after: 0,
        began_s: 0,
        since_s: mark.began_s.saturating_sub(OVERLAP_S),
    };
    store.write(&[], over)?;
    Ok(())
}

/// Both sums of each account and user in each month; `purged` is the month up to which runs were purged here.
fn compare(
    source: Vec<(UseKey, UseSum)>,
    here: Vec<(UseKey, UseSum)>,
    purged: Option<&str>,
) -> Vec<UsageComparison> {
    let oldest = source.iter().map(|(key, _)| key.month.clone()).min();
    let mut all: BTreeMap<UseKey, [UseSum; 2]> = BTreeMap::new();
    for (place, sums) in [source, here].into_iter().enumerate() {
        for (key, sum) in sums {
            if let Some(place) = all.entry(key).or_default().get_mut(place) {
                *place = sum;
            }
        }
    }
    let compared = all
        .into_iter()
        .map(|(key, [source, here])| UsageComparison {
            is_purged_here: purged.is_some_and(|purged| key.month.as_str() <= purged),
            is_purged: oldest.as_ref().is_none_or(|oldest| key.month <= *oldest),
            key,
            source,
            here,
        });
    compared.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(month: &str, jobs: u64) -> (UseKey, UseSum) {
        let key = UseKey {
            month: month.to_owned(),
            account: "a".to_owned(),
            uid: 1,
        };
        (key, UseSum { jobs, cpu_s: jobs })
    }

    #[test]
    fn what_the_source_has_purged_is_not_missing() {
        let compared = compare(
            vec![sum("2026-02", 1), sum("2026-03", 4), sum("2026-04", 4)],
            vec![
                sum("2026-01", 9),
                sum("2026-02", 2),
                sum("2026-03", 3),
                sum("2026-04", 4),
            ],
            None,
        );
        let complete: Vec<bool> = compared.iter().map(UsageComparison::is_complete).collect();
        assert_eq!(complete, [true, true, false, true]);
    }
}
