//! Seeds that must pass, faults that must be found, and that a seed always does the same.

use muster_sim::{FaultClass, Options, Plant, RunReport, run};

/// Seeds of the short run; `cargo xtask sim` runs more.
const SEEDS: u64 = 60;

fn check(seeds: impl Iterator<Item = u64>) {
    for seed in seeds {
        let report = run(seed, &Options::default());
        if let Some(violation) = &report.violation {
            let from = report.trace.len().saturating_sub(30);
            let trace = report.trace[from..].join("\n");
            panic!(
                "{trace}\nseed {seed}: {violation}\nrun it: cargo xtask sim --seed {seed} --trace"
            );
        }
    }
}

#[test]
fn no_invariant_is_broken() {
    std::thread::scope(|scope| {
        scope.spawn(|| check((1..=SEEDS).step_by(2)));
        scope.spawn(|| check((2..=SEEDS).step_by(2)));
    });
}

/// Seeds in which the simulator once found a bug.
#[test]
fn seeds_that_failed_once_pass() {
    let seeds = [
        3, 34, 58, 70, 96, 158, 211, 348, 390, 1006, 1197, 2222, 3004, 3029, 4070, 5965, 20_802,
        21_362, 51_542, 60_134, 61_929, 62_990, 66_078, 81_270, 82_490, 82_878, 97_204, 2_102_669,
        2_103_340, 105_822, 202_049, 300_459, 301_713, 702_418, 713_587, 821_315, 841_657, 861_044,
    ];
    check(seeds.into_iter());
}

/// Every class of faults alone, whatever the seeds above draw.
#[test]
fn no_class_of_faults_breaks_an_invariant() {
    for class in FaultClass::ALL {
        let options = Options {
            classes: Some(vec![class]),
            ..Options::default()
        };
        for seed in 1..=3 {
            let violation = run(seed, &options).violation;
            assert_eq!(violation, None, "seed {seed}, {class}");
        }
    }
}

#[test]
fn a_seed_always_does_the_same() {
    for seed in [3, 8] {
        let once = run(
            seed,
            &Options {
                trace: true,
                ..Options::default()
            },
        );
        let again = run(
            seed,
            &Options {
                trace: true,
                ..Options::default()
            },
        );
        assert_eq!(once.trace, again.trace);
        assert_eq!(once.trace_hash, again.trace_hash);
        assert_ne!(
            once.trace_hash,
            run(seed + 1, &Options::default()).trace_hash
        );
    }
}

/// A seed in which the planted fault was found last time: looked at first, because others before it take long.
fn seed_of_last_time(plant: Plant) -> u64 {
    match plant {
        Plant::EarlyRelease => 15,
        Plant::LostRecord => 25,
        _ => 1,
    }
}

/// A seed in which the planted fault is found.
fn hunt(plant: Plant, classes: Vec<FaultClass>, seeds: u64) -> RunReport {
    let options = Options {
        plant: Some(plant),
        steps: 40,
        classes: Some(classes),
        ..Options::default()
    };
    let first = seed_of_last_time(plant);
    (first..=seeds)
        .chain(1..first)
        .map(|seed| run(seed, &options))
        .find(|report| report.violation.is_some())
        .unwrap_or_else(|| panic!("{plant:?} was not found within {seeds} seeds"))
}

fn found_by(plant: Plant, seeds: u64, invariants: &[&str]) {
    found_with(plant, Vec::new(), seeds, invariants);
}

fn found_with(plant: Plant, classes: Vec<FaultClass>, seeds: u64, invariants: &[&str]) {
    let violation = hunt(plant, classes, seeds)
        .violation
        .expect("hunt returns a report with a violation");
    assert!(
        invariants.contains(&violation.invariant),
        "{plant:?} was found as {violation}"
    );
}

#[test]
fn an_early_acknowledgement_is_found() {
    found_by(
        Plant::EarlyAcknowledgement,
        20,
        &[
            "invariant_no_acknowledged_job_is_lost",
            "invariant_recovery_keeps_history",
        ],
    );
}

#[test]
fn a_lost_launch_is_found() {
    found_by(
        Plant::LostLaunch,
        20,
        &["invariant_running_jobs_are_known_to_their_nodes"],
    );
}

#[test]
fn a_core_given_twice_is_found() {
    found_by(
        Plant::CoreGivenTwice,
        20,
        &["invariant_no_cpu_is_used_twice"],
    );
}

#[test]
fn a_device_given_twice_is_found() {
    found_by(
        Plant::DeviceGivenTwice,
        60,
        &["invariant_no_device_is_used_twice"],
    );
}

#[test]
fn an_early_release_is_found() {
    found_by(
        Plant::EarlyRelease,
        300,
        &[
            "invariant_no_cpu_is_used_twice",
            "invariant_one_attempt_runs_at_once",
            "invariant_nothing_starts_in_a_released_job",
        ],
    );
}

/// A process that lives on without its writer: nobody is answered.
#[test]
fn a_process_without_its_writer_is_found() {
    found_with(
        Plant::Zombie,
        vec![FaultClass::DyingThreads],
        20,
        &["invariant_requests_are_answered"],
    );
}

/// Jobs that are measured by the wall clock end when it is set, or stay when it is set back.
#[test]
fn a_clock_that_jumps_is_found() {
    found_with(
        Plant::WallClock,
        vec![FaultClass::ClockSteps],
        20,
        &[
            "invariant_limits_are_not_early",
            "invariant_limits_are_enforced",
            "invariant_everything_ends",
        ],
    );
}

/// Bugs of nodes, of which each is found within so many seeds.
const NODE_BUG_SEEDS: u64 = 500;

/// A step's end that never leaves its agent is acknowledged with what follows, and missing in accounting.
#[test]
fn a_lost_end_of_a_step_is_found() {
    found_by(
        Plant::LostStepEnd,
        NODE_BUG_SEEDS,
        &["invariant_reported_steps_are_accounted"],
    );
}

/// The same of a script.
#[test]
fn a_lost_end_of_a_script_is_found() {
    found_by(
        Plant::LostScriptEnd,
        NODE_BUG_SEEDS,
        &["invariant_observed_ends_are_recorded"],
    );
}

#[test]
fn a_task_that_starts_twice_is_found() {
    found_by(
        Plant::TaskTwice,
        NODE_BUG_SEEDS,
        &["invariant_no_task_starts_twice"],
    );
}

/// What a script has left goes on, and its job is released all the same.
#[test]
fn what_outlives_its_job_is_found() {
    found_by(
        Plant::Leftover,
        NODE_BUG_SEEDS,
        &["invariant_nothing_outlives_its_job"],
    );
}

/// A launcher that is lost, and whose record file has not what was written there, starts once more.
#[test]
fn a_script_that_starts_twice_is_found() {
    found_with(
        Plant::LostRecord,
        vec![FaultClass::DyingProcesses],
        NODE_BUG_SEEDS,
        &["invariant_no_attempt_starts_twice_on_a_node"],
    );
}
