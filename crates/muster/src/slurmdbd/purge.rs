//! The thread of slurmdbd that purges: at the beginning of each hour, day or month, rows older than the set number of
//! these.

use super::archive::{ArchiveSettings, FILE_ROWS};
use super::purge_lock::PurgeLock;
use anyhow::{Context as _, Result, ensure};
use jiff::{Span, Unit, Zoned, ZonedRound};
use muster_acct::{PurgeKind, PurgePosition, Purger};
use muster_conf::files::FlatSettings;
use muster_model::time::Timestamp;
use muster_node::end_on_panic;
use muster_proto::archive::{AgeUnit, PurgeAge};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Rows of one transaction at most: the controller's own wait that long.
const STEP_ROWS: usize = 1000;
/// Time for others to write between two transactions.
const PAUSE: Duration = Duration::from_millis(50);
/// Interval of checks whether an hour has begun.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of checks whether the site's program has ended.
const SCRIPT_INTERVAL: Duration = Duration::from_millis(100);
/// First wait after a failure; each further one is twice as long.
const RETRY_MIN: Duration = Duration::from_secs(10);
/// Longest wait after a failure.
const RETRY_MAX: Duration = Duration::from_secs(600);
/// Time for which the controller may still write rows about jobs that it has forgotten.
const LATE: Duration = Duration::from_secs(600);

/// The keys of slurmdbd.conf, and what each is about.
const KEYS: [(&str, PurgeKind); 7] = [
    ("PurgeEventAfter", PurgeKind::Events),
    ("PurgeJobAfter", PurgeKind::Jobs),
    ("PurgeStepAfter", PurgeKind::Steps),
    ("PurgeSuspendAfter", PurgeKind::Suspensions),
    ("PurgeTXNAfter", PurgeKind::Transactions),
    ("PurgeUsageAfter", PurgeKind::Usage),
    ("PurgeResvAfter", PurgeKind::Reservations),
];

/// After how long something is purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age {
    count: u32,
    unit: AgeUnit,
}

impl Age {
    /// Reads `12hours`, `50days`, `12` or `12months`.
    pub(super) fn parse(key: &str, text: &str) -> Result<Age> {
        let end = text.find(|c: char| !c.is_ascii_digit());
        let (number, unit) = text.split_at(end.unwrap_or(text.len()));
        let unit = AgeUnit::named(unit)
            .with_context(|| format!("{key}={text}: expected a number of hours, days or months"))?;
        let count: u32 = number.parse().with_context(|| format!("{key}={text}"))?;
        ensure!(
            count > 0,
            "{key}={text} would purge all that is over: leave the key out, or name a time"
        );
        Ok(Age { count, unit })
    }

    /// Time before which ended records are old enough, since the beginning of this hour, day or month.
    fn before(self, now: &Zoned) -> Result<Timestamp, jiff::Error> {
        let hour = ZonedRound::new()
            .smallest(Unit::Hour)
            .mode(jiff::RoundMode::Trunc);
        let count = i64::from(self.count);
        let at = match self.unit {
            AgeUnit::Hours => now
                .round(hour)?
                .checked_sub(Span::new().try_hours(count)?)?,
            AgeUnit::Days => now
                .start_of_day()?
                .checked_sub(Span::new().try_days(count)?)?,
            AgeUnit::Months => now
                .first_of_month()?
                .start_of_day()?
                .checked_sub(Span::new().try_months(count)?)?,
        };
        Ok(Timestamp(at.timestamp().as_millisecond()))
    }
}

/// Settings of purging in slurmdbd.conf.
#[derive(Clone, Debug)]
pub(crate) struct PurgeSettings {
    ages: Vec<(PurgeKind, Age)>,
    /// Rows of one transaction.
    step_rows: usize,
    /// For how long the controller keeps jobs that have ended.
    kept: Duration,
    file: PathBuf,
    archive: ArchiveSettings,
}

impl PurgeSettings {
    /// Reads them. `min_job_age_s` is that of slurm.conf.
    pub(crate) fn read(
        dbd: &FlatSettings,
        file: PathBuf,
        min_job_age_s: u64,
        archive: ArchiveSettings,
    ) -> Result<PurgeSettings> {
        let mut ages = Vec::new();
        for (key, what) in KEYS {
            if let Some(text) = dbd.text(key).filter(|text| !text.is_empty()) {
                ages.push((what, Age::parse(key, text)?));
            }
        }
        let limit = match dbd.text("MaxPurgeLimit").filter(|text| !text.is_empty()) {
            Some(text) => text.parse().context("MaxPurgeLimit in slurmdbd.conf")?,
            None => STEP_ROWS,
        };
        Ok(PurgeSettings {
            ages,
            step_rows: limit.clamp(1, STEP_ROWS),
            kept: Duration::from_secs(min_job_age_s).saturating_add(LATE),
            file,
            archive,
        })
    }

    /// Has rows of a kind purged after another age.
    pub(crate) fn set_age(&mut self, age: PurgeAge) -> Result<()> {
        ensure!(age.count > 0, "an age of 0 would purge all that is over");
        let what = PurgeKind::from(age.kind);
        self.ages.retain(|(own, _)| *own != what);
        let PurgeAge { count, unit, .. } = age;
        self.ages.push((what, Age { count, unit }));
        Ok(())
    }

    /// Settings of archives.
    pub(crate) fn archive_mut(&mut self) -> &mut ArchiveSettings {
        &mut self.archive
    }

    /// Before when something is old enough: never what the controller may still write.
    fn before(&self, age: Age, now: &Zoned) -> Result<Timestamp, jiff::Error> {
        let kept = i64::try_from(self.kept.as_millis()).unwrap_or(i64::MAX);
        let latest = now.timestamp().as_millisecond().saturating_sub(kept);
        let hour = 3_600_000;
        let latest = Timestamp(latest.div_euclid(hour) * hour);
        Ok(age.before(now)?.min(latest))
    }
}

/// The running thread; dropping it ends it after the transaction that it is in.
pub(super) struct PurgeThread {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    is_stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Waits; whether the thread is to end.
    fn wait(&self, time: Duration) -> bool {
        let is_stopped = self
            .is_stopped
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (is_stopped, _) = self
            .changed
            .wait_timeout_while(is_stopped, time, |is_stopped| !*is_stopped)
            .unwrap_or_else(PoisonError::into_inner);
        *is_stopped
    }
}

impl PurgeThread {
    /// Starts it, if anything is to be purged.
    pub(super) fn start(settings: PurgeSettings) -> Result<Option<PurgeThread>> {
        if settings.ages.is_empty() {
            return Ok(None);
        }
        let stop = Arc::new(Stop::default());
        let worker = Worker {
            settings,
            stop: stop.clone(),
            done: BTreeMap::new(),
            said: Vec::new(),
        };
        let thread = spawn(move || worker.run())?;
        Ok(Some(PurgeThread {
            stop,
            thread: Some(thread),
        }))
    }
}

/// Purges once all that is old enough; returns messages about it.
pub(crate) fn once(settings: PurgeSettings) -> Result<Vec<String>> {
    let mut worker = Worker {
        settings,
        stop: Arc::default(),
        done: BTreeMap::new(),
        said: Vec::new(),
    };
    worker.purge_all(&Zoned::now())?;
    Ok(worker.said)
}

/// Starts the thread. A panic in it ends the process: nothing would be purged any more, and nobody would know.
fn spawn(work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    end_on_panic();
    let thread = std::thread::Builder::new().name("purge".to_owned());
    thread.spawn(work)
}

impl Drop for PurgeThread {
    fn drop(&mut self) {
        *self
            .stop
            .is_stopped
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    settings: PurgeSettings,
    stop: Arc<Stop>,
    /// Before when all is purged.
    done: BTreeMap<PurgeKind, Timestamp>,
    /// Messages about the last purge.
    said: Vec<String>,
}

/// The thread is to end.
struct Stopped;

impl Worker {
    fn run(mut self) {
        let mut retry = RETRY_MIN;
        loop {
            let wait = match self.purge_all(&Zoned::now()) {
                Ok(Some(Stopped)) => return,
                Ok(None) => {
                    retry = RETRY_MIN;
                    LOOK_INTERVAL
                }
                Err(error) => {
                    log::error!("purge: {error:#}; it is tried again");
                    let wait = retry;
                    retry = (retry * 2).min(RETRY_MAX);
                    wait
                }
            };
            if self.stop.wait(wait) {
                return;
            }
        }
    }

    /// Purges what has become old enough since it was looked last.
    fn purge_all(&mut self, now: &Zoned) -> Result<Option<Stopped>> {
        if !self.settings.file.exists() {
            return Ok(None);
        }
        self.said.clear();
        let mut due = BTreeMap::new();
        for (what, age) in &self.settings.ages {
            let before = self.settings.before(*age, now)?;
            if self.done.get(what).is_none_or(|done| *done < before) {
                due.insert(*what, before);
            }
        }
        if due.is_empty() {
            return Ok(None);
        }
        let _lock = PurgeLock::take(&self.settings.file)?;
        if let Some(stopped) = self.run_script(&due)? {
            return Ok(Some(stopped));
        }
        let mut purger = Purger::open(&self.settings.file)?;
        // One kind that cannot be purged keeps no other.
        let mut failed = Ok(None);
        for (what, before) in due {
            match self.purge(&mut purger, what, before) {
                Ok(None) => drop(self.done.insert(what, before)),
                Ok(stopped) => return Ok(stopped),
                Err(e) => failed = Err(e.context(format!("{} are not purged", what.name()))),
            }
        }
        failed
    }

    /// Waits for the site's program that archives. Nothing is purged unless it succeeds.
    fn run_script(&self, due: &BTreeMap<PurgeKind, Timestamp>) -> Result<Option<Stopped>> {
        let Some(mut child) = self.settings.archive.start_script(due)? else {
            return Ok(None);
        };
        loop {
            if let Some(status) = child.try_wait()? {
                ensure!(
                    status.success(),
                    "ArchiveScript failed ({status}): nothing is purged"
                );
                return Ok(None);
            }
            if self.stop.wait(SCRIPT_INTERVAL) {
                let _ = child.kill();
                let _ = child.wait();
                return Ok(Some(Stopped));
            }
        }
    }

    /// Purges rows of one kind, a step at a time. Archived ones are on disk before.
    fn purge(
        &mut self,
        purger: &mut Purger,
        what: PurgeKind,
        before: Timestamp,
    ) -> Result<Option<Stopped>> {
        let archive = self.settings.archive.clone();
        let step_rows = self.settings.step_rows;
        let most = match archive.writes(what) {
            true => FILE_ROWS,
            false => step_rows,
        };
        let (mut after, mut removed) = (PurgePosition::default(), 0);
        loop {
            let keys = purger.find(what, before, &mut after, most)?;
            if keys.is_empty() {
                break;
            }
            if archive.writes(what) {
                let path = archive.write(purger, what, &keys, before)?;
                self.say(format!(
                    "archived {} {} in {}",
                    keys.len(),
                    what.name(),
                    path.display()
                ));
            }
            let mut left = keys.as_slice();
            while !left.is_empty() {
                // A run that is begun goes alone, so that what follows it is not begun as well before a stop.
                let count = if purger.has_begun() { 1 } else { step_rows };
                let step = left.get(..count).unwrap_or(left);
                let (done, gone) = purger.remove_some(step)?;
                left = left.get(done..).unwrap_or_default();
                removed += gone;
                // Else it would be archived again, with a part of its steps.
                if self.stop.wait(PAUSE) && !purger.has_begun() {
                    return Ok(Some(Stopped));
                }
            }
        }
        if removed > 0 {
            let at = jiff::Timestamp::from_millisecond(before.0)?;
            self.say(format!("purged {removed} {} of before {at}", what.name()));
        }
        Ok(None)
    }

    fn say(&mut self, line: String) {
        log::info!("{line}");
        self.said.push(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Set in the process whose thread panics.
    const FAILS: &str = "MUSTER_TEST_FAILS";

    #[test]
    fn a_panic_while_it_purges_ends_slurmdbd() {
        if std::env::var_os(FAILS).is_some() {
            drop(spawn(|| panic!("injected")));
            loop {
                std::thread::park();
            }
        }
        let test = "slurmdbd::purge::tests::a_panic_while_it_purges_ends_slurmdbd";
        let ran = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact"])
            .env(FAILS, "1")
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(101), "{ran:?}");
    }

    fn before(age: &str, now: &str) -> String {
        let zone = jiff::tz::TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let now = now.parse::<jiff::Timestamp>().unwrap();
        let now = now.to_zoned(zone.clone());
        let at = Age::parse("PurgeJobAfter", age).unwrap().before(&now);
        let at = jiff::Timestamp::from_millisecond(at.unwrap().0).unwrap();
        at.to_zoned(zone).strftime("%Y-%m-%dT%H:%M%:z").to_string()
    }

    #[test]
    fn ages_count_from_the_beginning_of_their_unit() {
        assert_eq!(
            before("12hours", "2026-11-28T10:59:00Z"),
            "2026-11-27T23:00+01:00"
        );
        assert_eq!(
            before("1day", "2026-10-25T12:00:00Z"),
            "2026-10-24T00:00+02:00"
        );
        assert_eq!(
            before("2", "2026-11-28T10:59:00Z"),
            "2026-09-01T00:00+02:00"
        );
        assert_eq!(
            before("1Months", "2026-03-31T22:30:00Z"),
            "2026-03-01T00:00+01:00"
        );
        for wrong in ["0", "0days", "days", "1week", "", "-1"] {
            assert!(Age::parse("PurgeJobAfter", wrong).is_err(), "{wrong}");
        }
    }
}
