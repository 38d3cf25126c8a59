//! The controller's time. It follows the wall clock and does not jump with it: when the wall clock is set, jobs that run
//! have run no longer and no shorter than before. The difference is worked off slowly, or at once where no job runs.
//! [`SteadyClock`] is the rule, without any I/O; [`now`] applies it to this machine's clocks.

use log::warn;
use muster_core::state::State;
use muster_model::time::Timestamp;
use nix::time::{ClockId, clock_gettime};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Behind the wall clock, time passes faster by this part. Limits come that much too early.
const CATCH_UP: i64 = 50;
/// Ahead of it, time passes slower by this part. It never goes back.
const FALL_BACK: i64 = 4;
/// A difference from the wall clock of which the log tells, microseconds.
const STEP_US: i64 = 2_000_000;
/// The relation to the machine's clock is written down anew when it has changed by this much, microseconds.
const KEEP_US: i64 = 1_000_000;
/// File in the state directory with that relation.
const FILE: &str = "clock";

/// Two clocks read together, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReading {
    /// Since 1970, as somebody set it.
    pub wall_us: i64,
    /// Since the machine booted. Nobody sets it, and it counts while the machine sleeps.
    pub boot_us: i64,
}

/// Time that passes as the machine's own clock says, near the wall clock.
#[derive(Clone, Debug)]
pub struct SteadyClock {
    last: ClockReading,
    now_us: i64,
    kept_us: Option<i64>,
    /// The difference that was logged last.
    logged_us: i64,
}

impl SteadyClock {
    /// Starts. `kept` is what [`SteadyClock::offset_to_keep`] gave in this boot of the machine, if it did; `latest` is the
    /// latest time in history, before which it does not start.
    pub fn start(reading: ClockReading, kept: Option<i64>, latest: Timestamp) -> SteadyClock {
        let began = match kept {
            Some(offset) => reading.boot_us.saturating_add(offset),
            None => reading.wall_us,
        };
        SteadyClock {
            last: reading,
            now_us: began.max(latest.0.saturating_mul(1000)),
            kept_us: kept,
            logged_us: 0,
        }
    }

    /// The time.
    pub fn read(&mut self, reading: ClockReading) -> Timestamp {
        let passed = reading.boot_us.saturating_sub(self.last.boot_us).max(0);
        let behind = self.behind(reading, passed);
        let slewed = if behind > 0 {
            behind.min(passed / CATCH_UP)
        } else {
            behind.max(-(passed / FALL_BACK))
        };
        self.now_us = self.now_us.saturating_add(passed).saturating_add(slewed);
        if reading.boot_us > self.last.boot_us {
            self.last = reading;
        }
        Timestamp(self.now_us.div_euclid(1000))
    }

    /// Takes over the wall clock at once if it is ahead: for when no job runs.
    pub fn catch_up(&mut self, reading: ClockReading) {
        self.read(reading);
        self.now_us = self.now_us.max(reading.wall_us);
    }

    /// The time that the next start in this boot begins with, if it must be written anew.
    pub fn offset_to_keep(&mut self) -> Option<i64> {
        let offset = self.now_us.saturating_sub(self.last.boot_us);
        let kept = self.kept_us;
        if kept.is_some_and(|kept| kept.abs_diff(offset) < KEEP_US.unsigned_abs()) {
            return None;
        }
        self.kept_us = Some(offset);
        self.kept_us
    }

    /// By how many seconds the wall clock is ahead, if that has changed by more than slewing explains.
    fn step_to_log(&mut self, reading: ClockReading) -> Option<i64> {
        let behind = self.behind(reading, 0);
        let changed = behind.abs() > self.logged_us.abs().saturating_add(STEP_US);
        self.logged_us = behind;
        changed.then_some(behind / 1_000_000)
    }

    /// Microseconds by which the wall clock is ahead.
    fn behind(&self, reading: ClockReading, passed: i64) -> i64 {
        let now = self.now_us.saturating_add(passed);
        reading.wall_us.saturating_sub(now)
    }
}

/// This process's clock.
struct Running {
    clock: SteadyClock,
    file: PathBuf,
    boot: String,
}

static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

fn running() -> MutexGuard<'static, Option<Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts this process's clock. Time does not go back behind `state`, the recovered one.
pub fn start(dir: &Path, state: &State) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let (file, boot) = (dir.join(FILE), boot.trim().to_owned());
    let kept = fs::read_to_string(&file).ok();
    let kept = kept.and_then(|text| {
        let (of, offset) = text.trim().split_once(' ')?;
        offset.parse().ok().filter(|_| of == boot)
    });
    let clock = SteadyClock::start(reading(), kept, latest(state));
    *running() = Some(Running { clock, file, boot });
}

/// The latest time in history at which something happened.
pub fn latest(state: &State) -> Timestamp {
    let jobs = state.jobs.values().flat_map(|job| {
        let ends = [job.start_time, job.suspend_time, job.end_time];
        ends.into_iter().flatten().chain([job.submit_time])
    });
    let lost = state.lost_nodes.iter().map(|(at, _)| *at);
    jobs.chain(lost).max().unwrap_or_default()
}

/// The system clock.
fn wall() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp(since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
}

/// The controller's time; the wall clock before [`start`].
pub fn now() -> Timestamp {
    match running().as_mut() {
        Some(running) => running.clock.read(reading()),
        None => wall(),
    }
}

/// Looks at the wall clock: called by the writer between turns. `idle` says that no job runs.
pub fn follow(idle: bool) {
    let mut running = running();
    let Some(Running { clock, file, boot }) = running.as_mut() else {
        return;
    };
    let reading = reading();
    if idle {
        clock.catch_up(reading);
    } else {
        clock.read(reading);
    }
    if let Some(seconds) = clock.step_to_log(reading) {
        warn!(
            "the system clock was set: it is {seconds} s ahead of the time that jobs are measured by, which follows \
             slowly, or at once when no job runs"
        );
    }
    if let Some(offset) = clock.offset_to_keep()
        && let Err(e) = fs::write(&*file, format!("{boot} {offset}\n"))
    {
        warn!("cannot write {}: {e}", file.display());
    }
}

fn reading() -> ClockReading {
    let boot = clock_gettime(ClockId::CLOCK_BOOTTIME);
    let boot_us = boot.map_or(0, |t| {
        t.tv_sec()
            .saturating_mul(1_000_000)
            .saturating_add(t.tv_nsec() / 1000)
    });
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let wall_us = wall.map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX));
    ClockReading { wall_us, boot_us }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000;
    const HOUR: i64 = 3600 * S;

    fn at(wall_us: i64, boot_us: i64) -> ClockReading {
        ClockReading { wall_us, boot_us }
    }

    /// Reads once a second for `seconds`, the wall clock `ahead` of the true time.
    fn pass(clock: &mut SteadyClock, from_s: i64, seconds: i64, ahead: i64) -> Timestamp {
        let mut now = Timestamp(0);
        for s in from_s..=from_s + seconds {
            let next = clock.read(at(1000 * HOUR + s * S + ahead, s * S));
            assert!(next >= now, "time goes back");
            now = next;
        }
        now
    }

    #[test]
    fn a_step_of_the_wall_clock_is_worked_off_slowly() {
        for step in [72 * HOUR, -72 * HOUR] {
            let mut clock = SteadyClock::start(at(1000 * HOUR, 0), None, Timestamp(0));
            let before = pass(&mut clock, 0, 100, 0);
            assert_eq!(before, Timestamp(1000 * HOUR / 1000 + 100_000));
            let passed = pass(&mut clock, 100, 3600, step).since_ms(before);
            let (least, most) = match step > 0 {
                true => (3_600_000, 3_600_000 * 51 / 50),
                false => (3_600_000 * 3 / 4, 3_600_000),
            };
            assert!((least..=most).contains(&passed), "{passed} ms in an hour");
        }
    }

    #[test]
    fn small_differences_vanish() {
        let mut clock = SteadyClock::start(at(1000 * HOUR, 0), None, Timestamp(0));
        let now = pass(&mut clock, 0, 1000, 5 * S);
        assert_eq!(now, Timestamp((1000 * HOUR + 1005 * S) / 1000));
    }

    #[test]
    fn without_jobs_a_step_forward_is_taken_over() {
        let mut clock = SteadyClock::start(at(1000 * HOUR, 0), None, Timestamp(0));
        clock.catch_up(at(1500 * HOUR, S));
        assert_eq!(
            clock.read(at(1500 * HOUR, S)),
            Timestamp(1500 * HOUR / 1000)
        );
        clock.catch_up(at(100 * HOUR, 2 * S));
        assert!(clock.read(at(100 * HOUR, 2 * S)) >= Timestamp(1500 * HOUR / 1000));
    }

    #[test]
    fn a_restart_in_the_same_boot_goes_on_as_before() {
        let mut clock = SteadyClock::start(at(1000 * HOUR, 7 * HOUR), None, Timestamp(0));
        let kept = clock.offset_to_keep();
        assert_eq!(clock.offset_to_keep(), None);
        // The clock is set while the controller is away for ten seconds.
        let next = at(900 * HOUR, 7 * HOUR + 10 * S);
        let mut again = SteadyClock::start(next, kept, Timestamp(0));
        assert_eq!(again.read(next), Timestamp((1000 * HOUR + 10 * S) / 1000));
        // After a boot only history tells that the clock is wrong.
        let latest = Timestamp(1000 * HOUR / 1000);
        let booted = at(900 * HOUR, S);
        assert_eq!(
            SteadyClock::start(booted, None, latest).read(booted),
            latest
        );
    }
}
