//! Small workloads by hand, with starts worked out on paper.

use super::*;
use crate::workload::swf;

/// Four processors. Submit, run, processors, limit.
fn workload(jobs: &[(u64, u64, u32, u64)]) -> Workload {
    let mut text = "; MaxProcs: 4\n".to_owned();
    for (number, (submit, run, processors, limit)) in jobs.iter().enumerate() {
        text += &format!(
            "{} {submit} -1 {run} {processors} -1 -1 {processors} {limit} -1 1 1 1 -1 -1 -1 -1 -1\n",
            number + 1
        );
    }
    swf::parse(&text).unwrap()
}

fn starts(policy: Policy, jobs: &[(u64, u64, u32, u64)]) -> Vec<i64> {
    let workload = workload(jobs);
    let options = Options::new(policy, &workload);
    let mut outcome = replay(&workload, &options, &mut |_| ()).unwrap();
    outcome.jobs.sort_by_key(|j| j.job.number);
    outcome.jobs.iter().map(|j| j.start_s).collect()
}

/// A has half, B wants all; C and D are small, C ends (by its limit) before A does, D does not.
const GAP: [(u64, u64, u32, u64); 4] = [
    (0, 600, 2, 600),
    (10, 60, 4, 60),
    (20, 300, 1, 300),
    (30, 900, 1, 900),
];

#[test]
fn easy_fills_the_gap_before_the_first_that_waits() {
    assert_eq!(starts(Policy::Easy, &GAP), [0, 600, 20, 660]);
}

#[test]
fn conservative_backfill_delays_nobody_who_waits() {
    // D does not delay B, which leaves two processors, but C, which wants all.
    let jobs = [
        (0, 600, 3, 600),
        (10, 300, 2, 300),
        (20, 300, 4, 300),
        (30, 2040, 1, 2040),
    ];
    assert_eq!(starts(Policy::Easy, &jobs), [0, 600, 2070, 30]);
    assert_eq!(starts(Policy::Conservative, &jobs), [0, 600, 900, 1200]);
}

#[test]
fn without_backfill_nobody_passes() {
    assert_eq!(starts(Policy::Fifo, &GAP), [0, 600, 660, 660]);
}

#[test]
fn a_job_that_ends_early_makes_room_at_once() {
    let jobs = [(0, 100, 4, 600), (10, 60, 4, 60)];
    assert_eq!(starts(Policy::Easy, &jobs), [0, 100]);
}

#[test]
fn a_job_that_would_run_longer_ends_at_its_limit() {
    let jobs = [(0, 1000, 4, 600), (10, 60, 4, 60)];
    assert_eq!(starts(Policy::Easy, &jobs), [0, 600]);
}

#[test]
fn a_job_that_is_too_large_is_left_out_and_counted() {
    let workload = workload(&[(0, 10, 5, 60), (0, 10, 1, 60)]);
    let options = Options::new(Policy::Default, &workload);
    let outcome = replay(&workload, &options, &mut |_| ()).unwrap();
    assert_eq!((outcome.jobs.len(), outcome.too_large), (1, 1));
}

#[test]
fn the_same_workload_gives_the_same_schedule() {
    let options = crate::workload::lublin::Options {
        jobs: 200,
        processors: 32,
        load: Some(0.9),
        ..Default::default()
    };
    let workload = crate::workload::lublin::generate(&options);
    for (word, policy, _) in Policy::ALL {
        let options = Options::new(policy, &workload);
        let once = replay(&workload, &options, &mut |_| ()).unwrap();
        let again = replay(&workload, &options, &mut |_| ()).unwrap();
        assert_eq!(once.jobs, again.jobs, "{word}");
        assert_eq!(once.jobs.len(), 200, "{word}");
        let most = once.samples.iter().map(|s| s.busy).max();
        assert!(most <= Some(32), "{word}: {most:?} of 32 processors in use");
    }
}

#[test]
fn the_default_waits_less_than_easy_and_starves_nobody() {
    let options = crate::workload::lublin::Options {
        jobs: 2000,
        processors: 64,
        load: Some(0.85),
        ..Default::default()
    };
    let workload = crate::workload::lublin::generate(&options);
    let [default, easy] = [Policy::Default, Policy::Easy].map(|policy| {
        let options = Options::new(policy, &workload);
        let outcome = replay(&workload, &options, &mut |_| ()).unwrap();
        metrics::metrics(&outcome.jobs, outcome.processors)
    });
    assert!(
        default.mean_wait_s < easy.mean_wait_s,
        "{default:?} {easy:?}"
    );
    assert!(
        default.avg_bounded_slowdown < easy.avg_bounded_slowdown,
        "{default:?} {easy:?}"
    );
    assert!(
        default.max_wait_s < easy.max_wait_s * 2.0,
        "{default:?} {easy:?}"
    );
}

/// With exact limits and one user nothing is learnt, the machine is overloaded for weeks, and the order alone counts.
#[test]
fn the_longest_wait_stays_near_that_of_a_plain_queue() {
    let options = crate::workload::lublin::Options {
        jobs: 2000,
        processors: 64,
        load: Some(1.0),
        rounded_limits: false,
        users: 1,
        ..Default::default()
    };
    let workload = crate::workload::lublin::generate(&options);
    let [default, easy] = [Policy::Default, Policy::Easy].map(|policy| {
        let options = Options::new(policy, &workload);
        let outcome = replay(&workload, &options, &mut |_| ()).unwrap();
        metrics::metrics(&outcome.jobs, outcome.processors)
    });
    assert!(
        default.mean_wait_s < easy.mean_wait_s && default.max_wait_s < easy.max_wait_s * 1.6,
        "{default:?} {easy:?}"
    );
}
