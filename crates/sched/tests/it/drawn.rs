//! Drawn scenarios: rows are CPUs of nodes, columns are ten minutes each, letters are jobs by order of submission.

use crate::world::{World, cluster, job, nodes, partition, wide};
use muster_core::event::JobChange;
use muster_model::ids::JobId;
use muster_model::job::Reason;
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;
use std::fmt::Write as _;

/// Runs until nothing is left (each job for its whole limit) and draws who had which CPU when.
pub(crate) fn drawn(world: &mut World, jobs: &[JobId], columns: usize) -> String {
    let mut columns_drawn: Vec<Vec<String>> = Vec::new();
    for _ in 0..columns {
        let over: Vec<JobId> = (world.state.by_limit.iter())
            .take_while(|(t, _)| *t <= world.now)
            .map(|(_, id)| *id)
            .collect();
        over.into_iter().for_each(|id| world.end(id));
        world.tick();
        world.pass_by_core();
        let mut column: Vec<String> = (world.state.nodes.iter())
            .map(|n| ".".repeat(n.config.cpus as usize))
            .collect();
        for (id, letter) in jobs.iter().zip('A'..) {
            let job = &world.state.jobs[id];
            let Some(alloc) = job.alloc.as_ref().filter(|_| !job.nodes_held.is_empty()) else {
                continue;
            };
            for share in &alloc.nodes {
                let row = &mut column[share.node.0 as usize];
                for cpu in share.cpus.iter() {
                    row.replace_range(cpu as usize..=cpu as usize, &letter.to_string());
                }
            }
        }
        columns_drawn.push(column);
        world.now = world.now.plus_s(600);
    }
    let mut out = String::new();
    for node in 0..world.state.nodes.len() {
        for cpu in 0..world.state.nodes[node].config.cpus as usize {
            let row: String = columns_drawn.iter().map(|c| &c[node][cpu..=cpu]).collect();
            let name = &world.state.nodes[node].config.name;
            let _ = writeln!(out, "{name} {}", row.trim_end_matches('.'));
        }
    }
    out
}

fn scenario(world: &mut World, specs: Vec<JobSpec>, columns: usize) -> String {
    let ids: Vec<JobId> = specs.into_iter().map(|s| world.submit(s)).collect();
    drawn(world, &ids, columns)
}

#[test]
fn a_short_job_fills_the_gap_before_a_wide_one() {
    let mut world = World::simple(2, 1);
    // A holds n0 for 30 minutes; B needs both nodes; C (20) fits before B, D (40) would delay it.
    let specs = vec![job(1, 30), wide(2, 2, 20), job(1, 40), job(1, 20)];
    let expected = "\
n0 AAABBCCCC
n1 DD.BB
";
    assert_eq!(scenario(&mut world, specs, 9), expected);
}

#[test]
fn a_job_with_a_least_time_fits_into_a_gap() {
    let mut world = World::simple(2, 1);
    // B needs both nodes when A ends; C asks for 60 minutes and takes the 30 that are left. D would need 40.
    let shorter = |least, mut spec: JobSpec| {
        spec.time_min = Some(TimeLimit::Minutes(least));
        spec
    };
    let specs = vec![
        job(1, 30),
        wide(2, 2, 20),
        shorter(40, job(1, 60)),
        shorter(20, job(1, 60)),
    ];
    let expected = "\
n0 AAABBCCCCCC
n1 DDDBB
";
    assert_eq!(scenario(&mut world, specs, 12), expected);
}

#[test]
fn a_long_job_may_use_what_the_reserved_one_leaves() {
    let mut world = World::simple(1, 4);
    // B needs 3 CPUs when A ends; C runs long on the fourth.
    let specs = vec![job(3, 20), job(3, 20), job(1, 60)];
    let expected = "\
n0 AABB
n0 AABB
n0 AABB
n0 CCCCCC
";
    assert_eq!(scenario(&mut world, specs, 6), expected);
}

/// A B: n0 is busy, so that B waits for both; C ends in time and D would not.
#[test]
fn who_passes_by_is_told_from_who_comes_in_line() {
    let mut world = World::simple(2, 1);
    let first = world.submit(job(1, 30));
    world.submit(wide(2, 2, 20));
    assert_eq!(world.pass(), [first]);
    let short = world.submit(job(1, 20));
    let long = world.submit(job(1, 60));
    assert_eq!(world.pass(), [short]);
    let backfilled = |id| {
        let alloc = world.state.jobs[id].alloc.as_ref();
        alloc.map(|alloc| alloc.backfilled)
    };
    assert_eq!(backfilled(&first), Some(false));
    assert_eq!(backfilled(&short), Some(true));
    assert_eq!(backfilled(&long), None);
}

#[test]
fn without_backfill_nobody_passes() {
    let mut config = cluster(nodes(2, 1));
    config.backfill = false;
    let mut world = World::new(config);
    let specs = vec![job(1, 30), wide(2, 2, 20), job(1, 20)];
    let expected = "\
n0 AAABBCC
n1 ...BB
";
    assert_eq!(scenario(&mut world, specs, 8), expected);
}

#[test]
fn without_backfill_other_partitions_go_on_with_their_own_nodes() {
    let mut config = cluster(nodes(3, 1));
    config.backfill = false;
    let mut q = partition("q", &config.nodes[1..]);
    q.priority_tier = 0;
    config.partitions = vec![partition("p", &config.nodes[..2]), q];
    let mut world = World::new(config);
    let mut other = job(1, 20);
    other.partitions = vec!["q".into()];
    let specs = vec![job(1, 30), wide(2, 2, 20), other.clone(), other];
    let expected = "\
n0 AAABB
n1 ...BB
n2 CCDD
";
    assert_eq!(scenario(&mut world, specs, 6), expected);
}

#[test]
fn higher_tier_first() {
    let mut config = cluster(nodes(1, 1));
    let mut urgent = partition("urgent", &config.nodes);
    urgent.priority_tier = 10;
    config.partitions.push(urgent);
    let mut world = World::new(config);
    let mut soon = job(1, 10);
    soon.partitions = vec!["urgent".into()];
    let specs = vec![job(1, 10), job(1, 10), soon];
    assert_eq!(scenario(&mut world, specs, 4), "n0 CAB\n");
}

#[test]
fn jobs_without_an_end_are_never_waited_for() {
    let mut world = World::simple(2, 1);
    let mut endless = job(1, 1);
    endless.time_limit = Some(TimeLimit::Unlimited);
    let a = world.submit(endless);
    let b = world.submit(wide(2, 2, 10));
    let c = world.submit(job(1, 100));
    assert_eq!(world.pass(), [a, c]);
    assert_eq!(world.reason(b), Reason::Resources);
    assert_eq!(world.state.jobs[&b].expected_start, None);
}

#[test]
fn the_expected_start_is_told() {
    let mut world = World::simple(2, 1);
    world.submit(job(1, 30));
    let b = world.submit(wide(2, 2, 20));
    world.pass();
    assert_eq!(
        world.state.jobs[&b].expected_start,
        Some(world.now.plus_s(1800))
    );
}

#[test]
fn a_job_kept_back_starts_when_the_reserved_one_goes() {
    let mut world = World::simple(2, 1);
    let a = world.submit(job(1, 30));
    let b = world.submit(wide(2, 2, 20));
    let c = world.submit(job(1, 40));
    assert_eq!(world.pass(), [a]);
    assert_eq!(world.reason(c), Reason::Priority);
    let hold = muster_model::job::Hold::User;
    world.change(b, JobChange::Hold { hold, priority: 0 });
    assert_eq!(world.pass(), [c]);
}

#[test]
fn a_job_kept_back_starts_when_the_reservation_moves_away() {
    let mut world = World::simple(2, 1);
    let a = world.submit(job(1, 30));
    world.submit(wide(2, 2, 20));
    let c = world.submit(job(1, 40));
    assert_eq!(world.pass(), [a]);
    world.change(a, JobChange::TimeLimit(TimeLimit::Minutes(60)));
    assert_eq!(world.pass(), [c]);
}

#[test]
fn a_plan_that_was_not_carried_out_comes_again() {
    let mut world = World::simple(1, 2);
    let a = world.submit(job(2, 30));
    let b = world.submit(job(1, 30));
    let first = world.sched.plan(&world.state, world.now);
    assert_eq!(first.starts.len(), 1);
    world.note(&first);
    assert_eq!(
        world.sched.plan(&world.state, world.now).starts,
        first.starts
    );
    world.change(a, JobChange::Priority(1));
    assert_eq!(world.pass(), [b]);
}

/// One partition of these nodes, where run times are predicted.
fn predicting(count: u32, cpus: u32) -> World {
    let mut config = cluster(nodes(count, cpus));
    config.scheduler_parameters = vec![muster_model::config::PREDICT_RUN_TIMES.into()];
    World::new(config)
}

/// The same of somebody of whom nothing is known.
fn of_another(mut spec: JobSpec) -> JobSpec {
    spec.owner.uid = 2000;
    spec
}

/// Two jobs of that name run for ten minutes each, whatever their limit.
fn learn(world: &mut World, name: &str, minutes: u32) {
    for _ in 0..2 {
        let mut spec = job(1, minutes);
        spec.name = name.into();
        let id = world.submit(spec);
        assert_eq!(world.pass(), [id]);
        world.now = world.now.plus_s(600);
        world.end(id);
    }
}

#[test]
fn a_job_that_is_predicted_to_be_short_fills_a_gap_that_its_limit_does_not_fit() {
    for (predicts, started) in [(true, 1), (false, 0)] {
        let mut world = if predicts {
            predicting(2, 1)
        } else {
            World::simple(2, 1)
        };
        learn(&mut world, "short", 100);
        // A holds n0 for an hour, B waits for both nodes; the limit of C is 100 minutes, its like ran for ten.
        let a = world.submit(of_another(job(1, 60)));
        assert_eq!(world.pass(), [a]);
        let b = world.submit(of_another(wide(2, 2, 20)));
        let mut c = job(1, 100);
        c.name = "short".into();
        world.submit(c);
        assert_eq!(world.pass().len(), started, "predicts: {predicts}");
        assert_eq!(world.reason(b), Reason::Resources);
    }
}

#[test]
fn who_has_waited_a_day_is_not_delayed_by_predictions() {
    let mut world = predicting(2, 1);
    learn(&mut world, "short", 100);
    let a = world.submit(of_another(job(1, 2 * 24 * 60)));
    assert_eq!(world.pass(), [a]);
    world.submit(of_another(wide(2, 2, 20)));
    let like = |minutes| {
        let mut spec = job(1, minutes);
        spec.name = "short".into();
        spec
    };
    // Before: predicted ten minutes, it may run. A day and a half later only its limit counts, and that is too long.
    let c = world.submit(like(100));
    assert_eq!(world.pass(), [c]);
    world.now = world.now.plus_s(600);
    world.end(c);
    world.now = world.now.plus_s(47 * 3600);
    world.submit(like(100));
    assert_eq!(world.pass(), []);
    let d = world.submit(like(20));
    assert_eq!(world.pass(), [d]);
}

#[test]
fn of_those_that_may_pass_the_shortest_comes_first() {
    let mut world = predicting(2, 1);
    world.submit(job(1, 60));
    world.pass();
    let b = world.submit(wide(2, 2, 20));
    world.submit(job(1, 50));
    let short = world.submit(job(1, 10));
    assert_eq!(world.pass(), [short]);
    assert_eq!(world.reason(b), Reason::Resources);
}

/// A cluster of these nodes with words in `SchedulerParameters`.
fn tuned(count: u32, cpus: u32, words: &[&str]) -> World {
    let mut config = cluster(nodes(count, cpus));
    config.scheduler_parameters = words.iter().map(|w| (*w).to_owned()).collect();
    World::new(config)
}

#[test]
fn with_reservations_for_all_no_waiting_job_is_delayed() {
    // C waits for two nodes, D for all three: E would delay D, not C.
    let specs = || {
        vec![
            job(1, 30),
            job(1, 30),
            wide(2, 2, 20),
            wide(3, 3, 10),
            job(1, 100),
        ]
    };
    let easy = "\
n0 AAACC.....D
n1 BBBCC.....D
n2 EEEEEEEEEED
";
    assert_eq!(scenario(&mut tuned(3, 1, &[]), specs(), 16), easy);
    let conservative = "\
n0 AAACCDEEEEEEEEEE
n1 BBBCCD
n2 .....D
";
    for words in ["bf_promises=2", "bf_promises=all"] {
        let mut world = tuned(3, 1, &[words]);
        assert_eq!(scenario(&mut world, specs(), 16), conservative, "{words}");
    }
}

#[test]
fn jobs_of_one_shape_get_reservations_one_by_one() {
    // Both wide jobs are kept nodes for; what is left between suits nobody but the short one.
    let specs = vec![
        job(1, 20),
        wide(2, 2, 20),
        wide(2, 2, 20),
        job(1, 40),
        job(1, 20),
    ];
    let expected = "\
n0 AABBCCDDDD
n1 EEBBCC
";
    let mut world = tuned(2, 1, &["bf_promises=10"]);
    assert_eq!(scenario(&mut world, specs, 12), expected);
}

#[test]
fn nodes_are_kept_for_those_only_that_the_site_says() {
    let unkept = "\
n0 AAA.BB
n1 CCCCBB
";
    let kept = "\
n0 AAABBCCCC
n1 ...BB
";
    for (word, expected) in [
        ("bf_window=20", unkept),
        ("bf_window=30", kept),
        ("bf_min_prio_reserve=1001", unkept),
        ("bf_min_prio_reserve=1000", kept),
        ("bf_min_age_reserve=60", unkept),
        ("bf_min_age_reserve=0", kept),
    ] {
        let specs = vec![job(1, 30), wide(2, 2, 20), job(1, 40)];
        let mut world = tuned(2, 1, &[word]);
        assert_eq!(scenario(&mut world, specs, 10), expected, "{word}");
    }
}

#[test]
fn a_job_of_two_partitions_may_have_nodes_kept_in_one() {
    for (words, started) in [(&["bf_one_resv_per_job"][..], 1), (&[], 0)] {
        let mut config = cluster(nodes(2, 2));
        config.scheduler_parameters = words.iter().map(|w| (*w).to_owned()).collect();
        config.partitions = vec![
            partition("p", &config.nodes[..1]),
            partition("q", &config.nodes[1..]),
        ];
        let mut world = World::new(config);
        let among = |list: &[&str], mut spec: JobSpec| {
            spec.partitions = list.iter().map(|p| (*p).to_owned()).collect();
            spec
        };
        world.submit(among(&["p"], job(1, 30)));
        world.submit(among(&["q"], job(1, 60)));
        assert_eq!(world.pass().len(), 2);
        world.submit(among(&["p", "q"], job(2, 10)));
        world.submit(among(&["q"], job(1, 100)));
        assert_eq!(world.pass().len(), started, "{words:?}");
    }
}
