//! Real run times of jobs, by user, for planning. Limits are asked for with room to spare; the run times of a user's
//! last jobs predict the next one better. A prediction is only ever used to plan and to order: no job is ended by it,
//! and it is never more than the job's limit.
//!
//! Part of the state: it changes when jobs end, so a replay of the history makes the same predictions.

use minicbor::{Decode, Encode};
use muster_model::job::{AfterCompleting, Job, JobState};
use muster_model::spec::JobSpec;
use muster_model::time::{TimeLimit, Timestamp};
use std::collections::{BTreeMap, VecDeque};

/// Kinds of jobs remembered of each user: those that ended last.
const KINDS_MAX: usize = 32;

/// Run times of all users.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct RunTimes {
    #[n(0)]
    users: BTreeMap<u32, OfUser>,
}

/// Run times of a user.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
struct OfUser {
    /// The last two jobs of any kind; the newer last.
    #[n(0)]
    last: Vec<LimitedRun>,
    /// Run times by kind of job; what ended last is last.
    #[n(1)]
    kinds: VecDeque<OfKind>,
}

/// A job's run time, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
struct LimitedRun {
    #[n(0)]
    run_s: u32,
    #[n(1)]
    limit_s: u32,
}

/// The last two run times of jobs of one name and limit, seconds; the newer last.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
struct OfKind {
    #[n(0)]
    kind: u64,
    #[n(1)]
    runs: Vec<u32>,
}

fn push<T>(list: &mut Vec<T>, value: T) {
    if list.len() == 2 {
        list.remove(0);
    }
    list.push(value);
}

/// The key by which jobs of a user are compared: name and limit. FNV-1a: it is kept in snapshots, so it must never change.
fn kind_of(spec: &JobSpec, limit_s: u32) -> u64 {
    let bytes = spec.name.bytes().chain(limit_s.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn seconds(limit: TimeLimit) -> Option<u32> {
    limit
        .seconds()
        .map(|s| u32::try_from(s).unwrap_or(u32::MAX))
}

impl RunTimes {
    /// Seconds that a job will run, as far as its user's last jobs tell: the mean of the last two of its name and
    /// limit; else as large a part of its limit as the last two of the user had of theirs (their geometric mean).
    /// Rounded up to steps of about 40 %, so that equal jobs stay equal. The limit itself when nothing is
    /// known; `u32::MAX` without a limit, so that its place in line is worked out like those of others.
    pub fn predict(&self, spec: &JobSpec, limit: TimeLimit) -> Option<u32> {
        let Some(limit_s) = seconds(limit) else {
            return Some(u32::MAX);
        };
        let Some(user) = self.users.get(&spec.owner.uid) else {
            return Some(limit_s);
        };
        let kind = kind_of(spec, limit_s);
        let same = user
            .kinds
            .iter()
            .find(|k| k.kind == kind)
            .map(|k| &k.runs[..]);
        let guess = match (same, user.last.as_slice()) {
            (Some([a, b]), _) => (u64::from(*a) + u64::from(*b)).div_ceil(2) as f64,
            (_, []) => return Some(limit_s),
            (_, last) => {
                let part =
                    |run: &LimitedRun| f64::from(run.run_s.max(1)) / f64::from(run.limit_s.max(1));
                let product: f64 = last.iter().map(part).product();
                let mean = if last.len() == 2 {
                    product.sqrt()
                } else {
                    product
                };
                mean * f64::from(limit_s)
            }
        };
        Some(round_up(guess).min(limit_s).max(1))
    }

    /// Takes note of a job that has ended by itself or at its limit. What others cut short says nothing.
    pub(crate) fn ended(&mut self, job: &Job, at: Timestamp) {
        let again = job.after_completing != AfterCompleting::End;
        let own = matches!(
            job.state,
            JobState::Completed | JobState::Failed | JobState::Timeout | JobState::OutOfMemory
        );
        let (true, Some(_), Some(limit_s)) =
            (own && !again, job.start_time, seconds(job.time_limit))
        else {
            return;
        };
        let run_s = u32::try_from(job.run_time_ms(at).div_ceil(1000)).unwrap_or(u32::MAX);
        let user = self.users.entry(job.spec.owner.uid).or_default();
        push(&mut user.last, LimitedRun { run_s, limit_s });
        let kind = kind_of(&job.spec, limit_s);
        let at = user.kinds.iter().position(|k| k.kind == kind);
        let mut known = at.and_then(|at| user.kinds.remove(at)).unwrap_or_default();
        known.kind = kind;
        push(&mut known.runs, run_s);
        user.kinds.push_back(known);
        if user.kinds.len() > KINDS_MAX {
            user.kinds.pop_front();
        }
    }
}

/// The next of 1, 1.41, 2, 2.83, 4, ... seconds.
fn round_up(seconds: f64) -> u32 {
    let mut step = 1.0;
    while step < seconds && step < f64::from(u32::MAX) {
        let between = step * std::f64::consts::SQRT_2;
        if between >= seconds {
            return between.ceil() as u32;
        }
        step *= 2.0;
    }
    step as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::JobId;
    use std::sync::Arc;

    fn spec(name: &str, uid: u32) -> JobSpec {
        let mut spec = JobSpec {
            name: name.into(),
            ..JobSpec::default()
        };
        spec.owner.uid = uid;
        spec
    }

    fn ran(times: &mut RunTimes, name: &str, minutes: u32, run_s: u64, state: JobState) {
        let begin = Timestamp::from_unix_s(1000);
        let limit = TimeLimit::Minutes(minutes);
        let mut job = Job::new(JobId(1), Arc::new(spec(name, 7)), limit, begin);
        (job.state, job.start_time, job.end_time) = (state, Some(begin), Some(begin.plus_s(run_s)));
        times.ended(&job, begin.plus_s(run_s));
    }

    #[test]
    fn nothing_known_is_the_limit() {
        let times = RunTimes::default();
        assert_eq!(
            times.predict(&spec("a", 7), TimeLimit::Minutes(10)),
            Some(600)
        );
        let endless = times.predict(&spec("a", 7), TimeLimit::Unlimited);
        assert_eq!(endless, Some(u32::MAX));
    }

    #[test]
    fn the_last_two_of_the_same_kind_count_first_then_the_part_of_the_limit() {
        let mut times = RunTimes::default();
        ran(&mut times, "a", 60, 36, JobState::Completed);
        // One run of any kind: 1 % of the limit, here of 100 minutes: 60 s, rounded up to 64.
        assert_eq!(
            times.predict(&spec("b", 7), TimeLimit::Minutes(100)),
            Some(64)
        );
        ran(&mut times, "a", 60, 28, JobState::Failed);
        ran(&mut times, "c", 1, 60, JobState::Timeout);
        assert_eq!(
            times.predict(&spec("a", 7), TimeLimit::Minutes(60)),
            Some(32)
        );
        // 28/3600 and 60/60: their geometric mean is 8.8 %, of 600 s 53 s.
        assert_eq!(
            times.predict(&spec("b", 7), TimeLimit::Minutes(10)),
            Some(64)
        );
        assert_eq!(
            times.predict(&spec("b", 8), TimeLimit::Minutes(10)),
            Some(600)
        );
    }

    #[test]
    fn a_prediction_is_never_over_the_limit_and_cancelled_jobs_say_nothing() {
        let mut times = RunTimes::default();
        ran(&mut times, "a", 1, 60, JobState::Completed);
        ran(&mut times, "a", 1, 60, JobState::Completed);
        assert_eq!(
            times.predict(&spec("a", 7), TimeLimit::Minutes(1)),
            Some(60)
        );
        let before = times.clone();
        ran(&mut times, "a", 1, 2, JobState::Cancelled);
        assert_eq!(times, before);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut times = RunTimes::default();
        for n in 0..100 {
            ran(&mut times, &format!("job{n}"), 60, 60, JobState::Completed);
        }
        assert_eq!(times.users[&7].kinds.len(), KINDS_MAX);
    }

    #[test]
    fn steps() {
        let found = [0.2, 1.0, 1.2, 2.0, 2.5, 3.0, 700.0].map(round_up);
        assert_eq!(found, [1, 1, 2, 2, 3, 4, 725]);
    }
}
