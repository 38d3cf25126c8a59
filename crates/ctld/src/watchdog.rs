//! Notices threads that do not come back. Threads note their work in a [`ThreadHeartbeat`]; one thread looks at all of
//! them, ends the process when one takes too long, and tells the service manager that the controller lives.

use crate::failure;
use crate::notify::Notify;
use log::error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Interval of looks at all pulses.
const EVERY: Duration = Duration::from_millis(250);
/// Shortest time that a piece of work may be given.
const BOUND_MIN: Duration = Duration::from_secs(5);
/// Time limit for the controller to stop once it was asked to. It writes accounting rows in that time.
const STOP_MAX: Duration = Duration::from_secs(20);

/// The activity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ThreadActivity {
    /// Waiting for work.
    Nothing,
    /// Deciding commands and reports.
    Deciding,
    /// Processes timers that are due.
    Ticking,
    /// Planning starts of jobs.
    Scheduling,
    /// Writing the journal.
    Writing,
    /// Sending answers and orders.
    Sending,
    /// Rebuilding its state after a failed turn.
    Rebuilding,
    /// Applying durable events.
    Applying,
    /// Answering a query.
    Answering,
    /// Waiting for accounting to take rows, which may wait for a disk, or for the replica, which may wait for accounting.
    Handing,
    /// Serving connections.
    Serving,
}

impl ThreadActivity {
    const ALL: [ThreadActivity; 11] = [
        ThreadActivity::Nothing,
        ThreadActivity::Deciding,
        ThreadActivity::Ticking,
        ThreadActivity::Scheduling,
        ThreadActivity::Writing,
        ThreadActivity::Sending,
        ThreadActivity::Rebuilding,
        ThreadActivity::Applying,
        ThreadActivity::Answering,
        ThreadActivity::Handing,
        ThreadActivity::Serving,
    ];

    fn text(self) -> &'static str {
        match self {
            ThreadActivity::Nothing => "waiting for work",
            ThreadActivity::Deciding => "deciding commands and reports",
            ThreadActivity::Ticking => "looking at what is due",
            ThreadActivity::Scheduling => "planning starts of jobs",
            ThreadActivity::Writing => "writing the journal",
            ThreadActivity::Sending => "sending answers and orders",
            ThreadActivity::Rebuilding => "rebuilding its state",
            ThreadActivity::Applying => "applying durable events",
            ThreadActivity::Answering => "answering a query",
            ThreadActivity::Handing => "handing on what has happened",
            ThreadActivity::Serving => "serving connections",
        }
    }

    /// Whether it may take as long as it takes.
    fn may_wait(self) -> bool {
        matches!(self, ThreadActivity::Nothing | ThreadActivity::Handing)
    }
}

/// The activity of one thread, and since when it has not waited for work.
pub struct ThreadHeartbeat {
    thread: &'static str,
    begun: Instant,
    /// Milliseconds after `begun` at which the present piece of work began.
    since_ms: AtomicU64,
    doing: AtomicU8,
}

impl ThreadHeartbeat {
    /// The pulse of a thread.
    pub fn new(thread: &'static str) -> ThreadHeartbeat {
        ThreadHeartbeat {
            thread,
            begun: Instant::now(),
            since_ms: AtomicU64::new(0),
            doing: AtomicU8::new(ThreadActivity::Nothing as u8),
        }
    }

    /// A piece of work begins.
    pub(crate) fn begin(&self, doing: ThreadActivity) {
        let ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.since_ms.store(ms, Ordering::Relaxed);
        self.doing.store(doing as u8, Ordering::Release);
    }

    /// The thread begins another activity of the same piece of work. If it waited, the time counts from now.
    pub(crate) fn begin_activity(&self, doing: ThreadActivity) {
        let before = ThreadActivity::ALL.get(usize::from(self.doing.load(Ordering::Acquire)));
        match before.is_some_and(|before| before.may_wait()) && !doing.may_wait() {
            true => self.begin(doing),
            false => self.doing.store(doing as u8, Ordering::Release),
        }
    }

    /// The thread waits for work.
    pub(crate) fn rest(&self) {
        self.begin_activity(ThreadActivity::Nothing);
    }

    /// For how long the thread has been at its present piece of work, unless it may wait.
    pub(crate) fn busy(&self) -> Option<(Duration, ThreadActivity)> {
        let number = usize::from(self.doing.load(Ordering::Acquire));
        let doing = *ThreadActivity::ALL.get(number)?;
        if doing.may_wait() {
            return None;
        }
        let since = Duration::from_millis(self.since_ms.load(Ordering::Relaxed));
        Some((self.begun.elapsed().saturating_sub(since), doing))
    }

    /// Why the thread counts as stuck, if its work takes longer than `bound`.
    pub(crate) fn stuck(&self, bound: Duration) -> Option<String> {
        let (busy, doing) = self.busy().filter(|(busy, _)| *busy > bound)?;
        Some(format!(
            "thread '{}' has been {} for {} s",
            self.thread,
            doing.text(),
            busy.as_secs()
        ))
    }
}

/// A further check of the watchdog: why the process must end, if it must.
type Check = Box<dyn Fn() -> Option<String> + Send>;

/// The pulses of the threads that serve requests.
#[derive(Clone)]
pub(crate) struct Pulses {
    pub(crate) writer: Arc<ThreadHeartbeat>,
    pub(crate) replica: Arc<ThreadHeartbeat>,
    pub(crate) server: Arc<ThreadHeartbeat>,
    /// Rests where no other host is served.
    pub(crate) network: Arc<ThreadHeartbeat>,
}

impl Pulses {
    pub(crate) fn all(&self) -> Vec<Arc<ThreadHeartbeat>> {
        vec![
            Arc::clone(&self.writer),
            Arc::clone(&self.replica),
            Arc::clone(&self.server),
            Arc::clone(&self.network),
        ]
    }

    /// Why the controller does not answer for now, if one of its threads has been busy for longer than `patience`.
    pub(crate) fn unwell(&self, patience: Duration) -> Option<String> {
        let threads = [&self.writer, &self.replica];
        threads.into_iter().find_map(|pulse| pulse.stuck(patience))
    }
}

/// Looks at all threads until the process ends.
pub(crate) struct Watchdog {
    pub(crate) pulses: Vec<Arc<ThreadHeartbeat>>,
    pub(crate) checks: Vec<Check>,
    /// Time limit of a piece of work: `SlurmctldTimeout`, after which a controller counts as dead.
    pub(crate) bound: Duration,
    pub(crate) notify: Notify,
}

impl Watchdog {
    /// Starts its thread.
    ///
    /// # Errors
    /// When there is no thread.
    pub(crate) fn start(self) -> std::io::Result<()> {
        failure::spawn_essential("watchdog", move || self.run()).map(drop)
    }

    fn run(self) -> Result<(), String> {
        let mut stop: Option<Instant> = None;
        loop {
            std::thread::sleep(EVERY);
            if failure::is_stopping() {
                let since = *stop.get_or_insert_with(Instant::now);
                if since.elapsed() > STOP_MAX {
                    let stuck = self.pulses.iter().find_map(|p| p.stuck(Duration::ZERO));
                    let why = stuck.unwrap_or_else(|| "accounting is not written yet".to_owned());
                    return Err(format!(
                        "the controller did not stop within {} s: {why}",
                        STOP_MAX.as_secs()
                    ));
                }
                continue;
            }
            if let Some(why) = self.reason_to_end() {
                error!("watchdog: {why}");
                return Err(why);
            }
            self.notify.alive();
        }
    }

    fn reason_to_end(&self) -> Option<String> {
        let bound = self.bound.max(BOUND_MIN);
        let stuck = self.pulses.iter().find_map(|pulse| pulse.stuck(bound));
        let limit = |why| {
            format!(
                "{why}; the limit is {} s (SlurmctldTimeout)",
                bound.as_secs()
            )
        };
        let failed = || self.checks.iter().find_map(|check| check());
        stuck.map(limit).or_else(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_does_not_end_is_noticed_and_named() {
        let pulse = ThreadHeartbeat::new("writer");
        assert_eq!(pulse.stuck(Duration::ZERO), None, "it waits for work");
        pulse.begin(ThreadActivity::Deciding);
        while pulse.busy().is_none_or(|(busy, _)| busy.is_zero()) {
            std::thread::yield_now();
        }
        pulse.begin_activity(ThreadActivity::Writing);
        let why = pulse.stuck(Duration::ZERO).unwrap();
        assert!(
            why.contains("'writer'") && why.contains("writing the journal"),
            "{why}"
        );
        assert_eq!(pulse.stuck(Duration::from_secs(60)), None, "not for long");
        pulse.begin_activity(ThreadActivity::Handing);
        assert_eq!(
            pulse.stuck(Duration::ZERO),
            None,
            "it may wait for accounting"
        );
        // The time of its wait does not count as work afterwards.
        let begun = pulse.since_ms.load(Ordering::Relaxed);
        while pulse.begun.elapsed() < Duration::from_millis(begun + 1) {
            std::thread::yield_now();
        }
        pulse.begin_activity(ThreadActivity::Applying);
        assert!(pulse.since_ms.load(Ordering::Relaxed) > begun);
        pulse.rest();
        assert_eq!(pulse.busy(), None);
    }

    #[test]
    fn every_activity_has_its_number() {
        for (number, doing) in ThreadActivity::ALL.into_iter().enumerate() {
            assert_eq!(doing as usize, number);
        }
    }
}
