//! Forecasts and explanations of small scenarios: what is foretold is what then happens.

use crate::world::{World, cluster, job, nodes, partition, wide};
use muster_core::event::JobChange;
use muster_core::policy::access::privacy::View;
use muster_model::command::{Command, Identity, NameList, Reply, ReservationAsk, UserCommand};
use muster_model::explain::Explanation;
use muster_model::ids::JobId;
use muster_model::job::Hold;
use muster_model::licenses::LicenseCount;
use muster_model::private_data::PrivateData;
use muster_model::refusal::RefusalCode;
use muster_model::reservation::Flags;
use muster_model::spec::{DependencyKind, DependencyTerm, JobKind, JobSpec};
use muster_model::task_range::TaskRange;
use muster_model::time::{TimeLimit, Timestamp};
use muster_model::topology::SwitchAsk;
use muster_sched::forecast::{ForecastBounds, ForecastRun, forecast, would_start};
use muster_sched::{ExplainRun, ExplanationDepth, explain, explain_briefly};

/// Minutes from now until a job is expected to start, and where.
fn foretold(world: &World, id: JobId) -> Option<(u64, String)> {
    let found = forecast(&world.state, world.now, ForecastBounds::default());
    let start = found.starts.get(&id)?;
    assert!(!start.estimate);
    Some((minutes(world, start.at), start.nodes.clone()))
}

fn minutes(world: &World, at: Timestamp) -> u64 {
    at.since_ms(world.now) / 60_000
}

fn why(world: &World, id: JobId) -> Explanation {
    explain(&world.state, id, world.now, &View::all(&world.state)).unwrap()
}

/// Option and minutes from now of each change that helps.
fn sooner(world: &World, id: JobId) -> Vec<(String, u64)> {
    let told = why(world, id);
    told.sooner
        .iter()
        .map(|s| (s.change.clone(), minutes(world, s.start.at)))
        .collect()
}

fn of(name: &str, mut spec: JobSpec) -> JobSpec {
    spec.owner.user = name.into();
    spec.owner.uid = 1000;
    spec
}

/// n0 A A A B B C C C C
/// n1 D D . B B
fn gap() -> (World, [JobId; 4]) {
    let mut world = World::simple(2, 1);
    let a = world.submit(job(1, 30));
    let b = world.submit(wide(2, 2, 20));
    let c = world.submit(job(1, 40));
    let d = world.submit(job(1, 20));
    assert_eq!(world.pass(), [a, d]);
    (world, [a, b, c, d])
}

#[test]
fn everyone_who_waits_has_an_expected_start() {
    let (mut world, [a, b, c, d]) = gap();
    assert_eq!(foretold(&world, b), Some((30, "n[0-1]".into())));
    assert_eq!(foretold(&world, c), Some((50, "n0".into())));
    assert_eq!(foretold(&world, a), None);
    // As foretold.
    let expected = world.now.plus_s(50 * 60);
    for minutes in [20, 10, 20] {
        world.now = world.now.plus_s(minutes * 60);
        let over: Vec<JobId> = world.state.by_limit.iter().map(|(_, id)| *id).collect();
        let ends = |id: &JobId| world.state.limit_end(&world.state.jobs[id]);
        let over: Vec<JobId> = over
            .into_iter()
            .filter(|id| ends(id).is_some_and(|end| end <= world.now))
            .collect();
        over.into_iter().for_each(|id| world.end(id));
        world.pass_by_core();
    }
    assert_eq!(world.state.jobs[&c].start_time, Some(expected));
    assert!(world.state.jobs[&d].state.is_ended());
}

#[test]
fn what_is_told_before_submitting_is_what_is_told_after() {
    let mut world = World::simple(2, 1);
    let identity = Identity {
        uid: 1000,
        user: "ann".into(),
        ..Identity::default()
    };
    for (spec, starts_in) in [
        (job(1, 30), 0),
        (wide(2, 2, 20), 30),
        (job(1, 20), 0),
        (job(1, 60), 50),
        (job(1, 10), 20),
        (wide(2, 2, 30), 110),
    ] {
        let mut spec = of("ann", spec);
        spec.kind = JobKind::Allocation;
        let (id, before) = would_start(&world.state, &identity, &spec, world.now).unwrap();
        assert_eq!(minutes(&world, before.at), starts_in);
        let submit = UserCommand::Submit {
            spec: Box::new(spec),
            blobs: vec![],
            test_only: false,
        };
        world.decide(&Command::User(identity.clone(), submit));
        let after = forecast(&world.state, world.now, ForecastBounds::default());
        assert_eq!(after.starts.get(&id), Some(&before));
        world.pass_by_core();
    }
}

#[test]
fn what_cannot_start_has_no_expected_start() {
    let (mut world, [_, b, c, _]) = gap();
    let hold = Hold::User;
    world.change(b, JobChange::Hold { hold, priority: 0 });
    assert_eq!(foretold(&world, b), None);
    // Nobody is kept back by a job that is held.
    assert_eq!(foretold(&world, c), Some((20, "n1".into())));
    let told = why(&world, b);
    assert_eq!((told.start, told.sooner), (None, vec![]));
}

#[test]
fn one_that_waits_for_another_starts_after_it() {
    let (mut world, [_, _, c, _]) = gap();
    let mut spec = job(1, 5);
    let term = DependencyTerm::Job {
        kind: DependencyKind::AfterOk,
        job: c,
        task: None,
        delay_minutes: 0,
    };
    spec.dependency.terms = vec![term.clone()];
    let waits = world.submit(spec);
    world.change(
        waits,
        JobChange::WaitingOn {
            terms: vec![term],
            reason: muster_model::job::Reason::Dependency,
        },
    );
    assert_eq!(foretold(&world, waits), Some((90, "n0".into())));
    let told = why(&world, waits);
    assert_eq!(
        told.waits_for,
        [format!("Job {c} must end well (afterok).")]
    );
    // Not those who run on nodes that it would have are in its way.
    assert_eq!((told.ahead.len(), told.ahead_count), (0, 0));
    let alone = ("without --dependency".into(), 20);
    assert!(
        sooner(&world, waits).contains(&alone),
        "{:?}",
        sooner(&world, waits)
    );
    let mut spec = of("ann", job(1, 10));
    spec.begin = Some(world.now.plus_s(1800));
    let later = world.submit(spec);
    let told = why(&world, later);
    assert_eq!((told.ahead.len(), told.times.len()), (0, 1));
    assert_eq!(told.times[0].at.since_ms(told.now) / 60_000, 30);
}

#[test]
fn a_shorter_limit_or_fewer_nodes_start_it_sooner() {
    let (world, [a, b, c, d]) = gap();
    // Ten minutes fit between D and B.
    assert_eq!(sooner(&world, c), [("--time=10".into(), 20)]);
    // One node is free when D ends.
    let helps = [("--nodes=1 --ntasks=1".into(), 20)];
    assert_eq!(sooner(&world, b), helps);
    // Without what would do so, no change is tried.
    let all = why(&world, b);
    let brief = explain_briefly(&world.state, b, world.now, &View::all(&world.state)).unwrap();
    assert!(all.tried > 0);
    let expected = Explanation {
        sooner: Vec::new(),
        tried: 0,
        ..all
    };
    assert_eq!(brief, expected);
    let told = why(&world, b);
    let ahead: Vec<(JobId, bool)> = told.ahead.iter().map(|a| (a.job, a.runs)).collect();
    assert_eq!(ahead, [(d, true), (a, true)]);
    assert_eq!(
        told.waits_for,
        ["It is next in partition p; 2 CPUs on 2 nodes must become free."]
    );
    let told = why(&world, c);
    let ahead: Vec<(JobId, bool)> = told.ahead.iter().map(|a| (a.job, a.runs)).collect();
    assert_eq!(ahead, [(a, true), (b, false)]);
    assert!(!told.predicted && told.tried > 1);
}

/// One of lower priority was said to start first, at the same time.
#[test]
fn who_starts_at_the_same_time_is_ahead_by_the_order_of_the_queue() {
    let mut world = World::simple(1, 2);
    let runs = world.submit(wide(1, 2, 30));
    let low = world.submit_with(job(1, 10), 10);
    let high = world.submit_with(job(1, 10), 20);
    assert_eq!(world.pass(), [runs]);
    assert_eq!(foretold(&world, low), foretold(&world, high));
    let ahead = |id| -> Vec<JobId> { why(&world, id).ahead.iter().map(|a| a.job).collect() };
    assert_eq!((ahead(high), ahead(low)), (vec![runs], vec![runs, high]));
}

/// They were listed by number, and the first ten of these kept.
#[test]
fn who_waits_for_the_same_time_is_listed_in_the_order_of_the_queue() {
    let mut world = World::simple(1, 20);
    let runs = world.submit(wide(1, 20, 30));
    let mut waiting: Vec<JobId> = (1..=12)
        .map(|priority| world.submit_with(job(1, 10), 10 * priority))
        .collect();
    assert_eq!(world.pass(), [runs]);
    let answer = why(&world, waiting[0]);
    let ahead: Vec<JobId> = answer.ahead.iter().map(|a| a.job).collect();
    waiting.reverse();
    assert_eq!(ahead[..1], [runs]);
    assert_eq!(ahead[1..], waiting[..10]);
    assert_eq!(answer.ahead_count, 12);
}

/// Operations of an explanation until it is over, or `most`; and the explanation.
fn worked_out(world: &World, mut run: ExplainRun, most: usize) -> (usize, ExplainRun) {
    let view = View::all(&world.state);
    let mut operations = 0;
    while operations < most && !run.advance(&world.state, &view) {
        operations += 1;
    }
    (operations, run)
}

/// All trials were made before anybody was answered: more than a minute where 5,000 jobs waited.
#[test]
fn an_explanation_ends_when_it_must_and_says_what_is_missing() {
    const JOBS: u32 = 300;
    let mut world = World::simple(1, 1);
    let mut last = JobId(0);
    for _ in 0..JOBS {
        last = world.submit(job(1, 60));
    }
    assert_eq!(world.pass().len(), 1);
    let view = View::all(&world.state);
    let begin = || {
        ExplainRun::new(
            &world.state,
            last,
            world.now,
            &view,
            ExplanationDepth::WithChanges,
        )
    };
    let finish = |run: ExplainRun, earlier| run.finish(&world.state, &view, earlier);
    let (all, run) = worked_out(&world, begin().unwrap(), usize::MAX);
    let whole = finish(run, None);
    assert_eq!(whole, why(&world, last));
    assert_eq!(whole.not_worked_out, Vec::<String>::new());
    assert!(all > 4 * JOBS as usize, "{all} operations");

    // A few operations, and an estimate.
    let (_, run) = worked_out(&world, begin().unwrap(), 20);
    let part = finish(run, None);
    let start = part.start.clone().unwrap();
    assert!(start.estimate && start.at > world.now.plus_s(200 * 3600));
    assert_eq!((part.tried, part.ahead_count), (0, 0));
    let missing = [
        "Its start is an estimate; the jobs ahead are unknown.",
        "Changes that would start it sooner.",
    ];
    assert_eq!(part.not_worked_out, missing);
    assert_eq!(part.waits_for, whole.waits_for);

    // None at all: what was known before, or nothing.
    let nothing = finish(begin().unwrap(), None);
    assert_eq!((nothing.start, nothing.not_worked_out.len()), (None, 2));
    let known = forecast(&world.state, world.now, ForecastBounds::default());
    let earlier = finish(begin().unwrap(), Some(&known));
    assert_eq!(
        (&earlier.start, &earlier.ahead),
        (&whole.start, &whole.ahead)
    );
    assert_eq!(
        earlier.not_worked_out[0],
        "Its start and the jobs ahead are those of an earlier state of the queue."
    );

    // Starts of this very state are not simulated again: the changes are all that is left.
    let mut run = begin().unwrap();
    run.take_known(&world.state, &view, &known);
    let (rest, run) = worked_out(&world, run, usize::MAX);
    assert_eq!(finish(run, None), whole);
    assert!(all - rest > JOBS as usize, "{rest} of {all} operations");

    // The time ends between two changes.
    let mut run = begin().unwrap();
    run.take_known(&world.state, &view, &known);
    let (_, run) = worked_out(&world, run, rest / 2);
    let part = finish(run, None);
    assert!(part.tried > 0 && part.tried < whole.tried);
    let more = whole.tried - part.tried;
    assert_eq!(
        part.not_worked_out,
        [format!(
            "Changes that would start it sooner: {more} more were to be tried."
        )]
    );
}

#[test]
fn each_number_of_a_range_has_a_start_of_its_own() {
    let mut world = World::simple(1, 4);
    world.submit(wide(1, 2, 10));
    world.submit(wide(1, 1, 30));
    world.submit(wide(1, 1, 60));
    let mut spec = job(1, 5);
    let mut range = TaskRange::default();
    range.counts.insert_range(2, 4);
    spec.ask.ntasks = Some(2);
    spec.ask.task_range = Some(Box::new(range));
    let id = world.submit(spec);
    assert_eq!(world.pass().len(), 3);
    let found = why(&world, id);
    assert_eq!(found.task_range, "2-4");
    let starts: Vec<(u32, Option<u64>)> = (found.by_tasks.iter())
        .map(|own| {
            let start = own.start.as_ref();
            (own.tasks, start.map(|start| minutes(&world, start.at)))
        })
        .collect();
    assert_eq!(starts, [(2, Some(10)), (3, Some(30)), (4, Some(60))]);
    let start = found.start.unwrap();
    assert_eq!((minutes(&world, start.at), start.tasks), (10, Some(2)));
    let other = world.submit(job(1, 5));
    let other = why(&world, other);
    assert_eq!((other.task_range, other.by_tasks), (String::new(), vec![]));
}

#[test]
fn another_partition_may_be_free() {
    let mut config = cluster(nodes(2, 1));
    let second = config.nodes[1..].to_vec();
    config.partitions = vec![partition("p", &config.nodes[..1]), partition("q", &second)];
    let mut world = World::new(config);
    world.submit(of("ann", job(1, 60)));
    let waits = world.submit(of("ann", job(1, 60)));
    assert_eq!(world.pass().len(), 1);
    assert_eq!(sooner(&world, waits), [("--partition=q".into(), 0)]);
}

#[test]
fn few_switches_are_worth_waiting_for_or_not() {
    let mut config = cluster(nodes(4, 1));
    config.topologies = vec![crate::network::tree(&[2, 2], false)];
    let mut world = World::new(config);
    let mut on = |node: &str, minutes| {
        let mut spec = job(1, minutes);
        spec.ask.nodelist = Some(node.into());
        world.submit(spec)
    };
    on("n0", 60);
    on("n2", 90);
    assert_eq!(world.pass().len(), 2);
    let mut spec = wide(2, 2, 10);
    spec.ask.switches = Some(SwitchAsk {
        count: 1,
        wait_s: None,
    });
    let waits = world.submit(spec);
    assert_eq!(world.pass(), []);
    // The site lets it wait for five minutes at most.
    assert_eq!(foretold(&world, waits), Some((5, "n[1,3]".into())));
    let told = sooner(&world, waits);
    assert!(told.contains(&("without --switches".into(), 0)), "{told:?}");
    assert!(
        told.contains(&("--nodes=1 --ntasks=1".into(), 0)),
        "{told:?}"
    );
}

#[test]
fn nodes_that_are_out_of_service_are_named() {
    let mut world = World::simple(2, 1);
    world.drain(1);
    let mut spec = job(1, 10);
    spec.ask.nodelist = Some("n1".into());
    let waits = world.submit(spec);
    assert_eq!(world.pass(), []);
    let told = why(&world, waits);
    assert_eq!(told.waits_for, ["Node n1 is drained (test)."]);
    assert_eq!(told.start, None);
    assert_eq!(sooner(&world, waits), [("without --nodelist".into(), 0)]);
}

/// What keeps a job back is said in words, and where a limit does, with the most that it allows among the changes.
#[test]
fn licenses_and_limits_are_named() {
    let mut config = cluster(nodes(4, 1));
    config.licenses = vec![LicenseCount::new("foo", 3)];
    config.partitions[0].max_nodes = Some(2);
    config.partitions[0].max_time = TimeLimit::Minutes(50);
    let mut world = World::new(config);
    let wants = |licenses: &str, spec| JobSpec {
        licenses: Some(licenses.into()),
        ..spec
    };
    let a = world.submit(wants("foo:2", job(1, 20)));
    let b = world.submit(wants("foo:3", job(1, 20)));
    let c = world.submit(wants("foo:1", job(1, 30)));
    let large = world.submit(wide(3, 3, 10));
    let long = world.submit(job(1, 120));
    world.pass_by_core();
    assert_eq!(
        why(&world, b).waits_for,
        [
            "It asks for 3 of license foo; 1 of 3 can be had now.".to_owned(),
            format!("Of foo, job {a} has 2."),
        ]
    );
    assert_eq!(
        why(&world, c).waits_for[0],
        "It asks for 1 of license foo; 1 of 3 can be had now, which are kept for a job that comes first."
    );
    assert_eq!(
        sooner(&world, c),
        [("--time=15".into(), 0), ("without --licenses".into(), 0)]
    );
    assert_eq!(
        why(&world, large).waits_for,
        ["Partition p takes jobs of at most 2 nodes."]
    );
    assert_eq!(
        why(&world, long).waits_for,
        ["Partition p takes jobs of at most 50 minutes."]
    );
    assert_eq!(sooner(&world, long), [("--time=50".into(), 0)]);
}

/// A job beyond the time limit of its partition is accepted, and waits until the limit changes.
#[test]
fn a_time_limit_of_the_partition_is_passed_over_as_by_slurm() {
    let mut config = cluster(nodes(4, 1));
    config.partitions[0].max_time = TimeLimit::Minutes(50);
    let world = World::new(config);
    let identity = Identity {
        uid: 1000,
        user: "ann".into(),
        ..Identity::default()
    };
    let spec = JobSpec {
        kind: JobKind::Allocation,
        ..of("ann", job(1, 60))
    };
    let (_, start) = would_start(&world.state, &identity, &spec, world.now).unwrap();
    assert_eq!(start.at, world.now);
}

/// `--test-only` of what cannot start says why.
#[test]
fn what_can_never_start_is_told_why_before_it_is_submitted() {
    let mut config = cluster(nodes(4, 1));
    config.partitions[0].max_nodes = Some(2);
    config.partitions[0].max_time = TimeLimit::Minutes(50);
    let world = World::new(config);
    let refused = |mut spec: JobSpec| {
        spec.kind = JobKind::Allocation;
        let identity = Identity {
            uid: 1000,
            user: "ann".into(),
            ..Identity::default()
        };
        let told = would_start(&world.state, &identity, &spec, world.now);
        let refusal = told.expect_err("it cannot start");
        (refusal.code, refusal.to_string())
    };
    let (code, text) = refused(of("ann", wide(3, 3, 10)));
    assert_eq!(code, RefusalCode::InvalidNodeCount);
    assert!(text.contains("takes jobs of at most 2 nodes"), "{text}");
}

#[test]
fn beyond_the_bound_times_are_estimates() {
    let mut world = World::simple(1, 1);
    let all: Vec<JobId> = (0..50).map(|_| world.submit(job(1, 10))).collect();
    world.pass();
    let bounds = ForecastBounds {
        starts: 10,
        ..ForecastBounds::default()
    };
    let found = forecast(&world.state, world.now, bounds);
    assert_eq!(found.starts.len(), 49);
    assert!(!found.starts[&all[10]].estimate && found.starts[&all[49]].estimate);
    assert!(found.starts[&all[49]].at > found.starts[&all[20]].at);
}

#[test]
fn a_forecast_in_slices_has_estimates_until_it_is_over() {
    let mut world = World::simple(1, 1);
    let all: Vec<JobId> = (0..20).map(|_| world.submit(job(1, 10))).collect();
    world.pass();
    let bounds = ForecastBounds::default();
    let mut run = ForecastRun::new(world.state.clone(), world.now, bounds);
    // Nothing starts now; at each later time one turn starts a job, and the next finds nothing more.
    for _ in 0..11 {
        assert!(!run.advance());
    }
    let partial = run.so_far();
    assert_eq!((partial.simulated, partial.estimated), (5, 14));
    assert!(!partial.starts[&all[5]].estimate && partial.starts[&all[6]].estimate);
    while !run.advance() {}
    let whole = run.so_far();
    let at_once = forecast(&world.state, world.now, bounds);
    assert_eq!((whole.simulated, whole.estimated), (19, 0));
    assert_eq!(whole.starts, at_once.starts);
    assert!(run.advance(), "a forecast that is over stays over");
}

/// Submits through the core, so that reasons and times are its own.
fn submitted(world: &mut World, spec: JobSpec) -> JobId {
    let identity = Identity {
        uid: 1000,
        user: "ann".into(),
        ..Identity::default()
    };
    let submit = UserCommand::Submit {
        spec: Box::new(of("ann", spec)),
        blobs: vec![],
        test_only: false,
    };
    match world.decide(&Command::User(identity, submit)) {
        Some(Reply::Submitted { id, .. }) => id,
        other => panic!("{other:?}"),
    }
}

/// What is told of times, in minutes from now.
fn times(world: &World, id: JobId) -> Vec<(String, u64)> {
    let told = why(world, id).times;
    let moments = told.iter();
    { moments.map(|m| (m.what.clone(), minutes(world, m.at))) }.collect()
}

#[test]
fn times_are_told_and_a_later_begin_is_a_change_to_make() {
    let mut world = World::simple(2, 1);
    let mut late = job(1, 30);
    late.kind = JobKind::Allocation;
    late.begin = Some(world.now.plus_s(3600));
    late.deadline = Some(world.now.plus_s(7200));
    let late = submitted(&mut world, late);
    world.pass_by_core();
    assert_eq!(
        times(&world, late),
        [
            ("Not before".to_owned(), 60),
            ("To be over by (--deadline)".to_owned(), 120)
        ]
    );
    assert_eq!(foretold(&world, late).map(|(at, _)| at), Some(60));
    assert_eq!(sooner(&world, late), [("without --begin".to_owned(), 0)]);
}

#[test]
fn reservations_in_the_way_and_ones_own_are_told_with_their_times() {
    let mut world = World::simple(2, 1);
    let ask = ReservationAsk {
        name: Some("r".into()),
        start: Some(world.now.plus_s(20 * 60)),
        duration: Some(TimeLimit::Minutes(30)),
        nodes: Some("n[0-1]".into()),
        users: Some(NameList::AllBut(vec!["nobody".into()])),
        ..ReservationAsk::default()
    };
    world.admin(UserCommand::CreateReservation(Box::new(ask)));
    let long = world.submit(of("ann", job(1, 60)));
    let mut inside = of("ann", job(1, 10));
    inside.reservation = Some("r".into());
    let inside = world.submit(inside);
    world.pass_by_core();
    assert_eq!(
        times(&world, long),
        [
            ("Reservation r of n[0-1] begins".to_owned(), 20),
            ("Reservation r of n[0-1] is over".to_owned(), 50)
        ]
    );
    assert_eq!(
        times(&world, inside),
        [("Reservation r begins".to_owned(), 20)]
    );
}

/// A held job never starts: the days of a daily reservation, of which there is no end, are not simulated for its sake. One that starts
/// between two of them still has its time.
#[test]
fn a_repeating_reservation_is_simulated_until_it_shows_nothing_new() {
    let mut world = World::simple(2, 1);
    let ask = ReservationAsk {
        name: Some("daily".into()),
        start: Some(world.now.plus_s(60 * 60)),
        duration: Some(TimeLimit::Minutes(120)),
        nodes: Some("n[0-1]".into()),
        users: Some(NameList::AllBut(vec!["nobody".into()])),
        flags: Flags::DAILY,
        ..ReservationAsk::default()
    };
    world.admin(UserCommand::CreateReservation(Box::new(ask)));
    let held = world.submit(JobSpec {
        hold: true,
        ..of("ann", job(1, 10))
    });
    let long = world.submit(of("ann", wide(2, 1, 21 * 60)));
    world.pass_by_core();
    let found = forecast(&world.state, world.now, ForecastBounds::default());
    assert!(!found.starts.contains_key(&held));
    assert_eq!(minutes(&world, found.starts[&long].at), 180);
    assert!(found.cost < 50, "{} instants", found.cost);
}

#[test]
fn who_would_be_held_is_told_so_before_submitting() {
    let world = World::simple(1, 1);
    let mut spec = of("ann", job(1, 10));
    (spec.kind, spec.hold) = (JobKind::Allocation, true);
    let identity = Identity {
        uid: 1000,
        user: "ann".into(),
        ..Identity::default()
    };
    let told = would_start(&world.state, &identity, &spec, world.now);
    let text = told.expect_err("it is held").to_string();
    assert!(text.contains("it would be held"), "{text}");
}

/// One at a time of a name, and so many tasks of an array at a time: each starts when the one before it ends, and says
/// whom or what it waits for.
#[test]
fn those_that_wait_for_their_turn_say_for_whom() {
    let mut world = World::simple(1, 4);
    let alone = |world: &mut World, minutes: u32| {
        let mut spec = job(1, minutes);
        spec.name = "build".into();
        spec.dependency.terms = vec![DependencyTerm::Singleton];
        world.submit(spec)
    };
    let first = alone(&mut world, 30);
    assert_eq!(world.pass(), [first]);
    let chain = [alone(&mut world, 10), alone(&mut world, 10)];
    for id in chain {
        let terms = vec![DependencyTerm::Singleton];
        let reason = muster_model::job::Reason::Dependency;
        world.change(id, JobChange::WaitingOn { terms, reason });
    }
    let array = world.array(job(1, 20), 4, Some(1));
    assert_eq!(world.pass().len(), 1);
    assert_eq!(world.pass(), []);
    assert_eq!(foretold(&world, chain[0]), Some((30, "n0".into())));
    assert_eq!(foretold(&world, chain[1]), Some((40, "n0".into())));
    let told = |world: &World, id: JobId| why(world, id).waits_for;
    let of_name = "Earlier jobs of the same name and owner must be over (singleton): ";
    assert_eq!(told(&world, chain[0]), [format!("{of_name}{first}.")]);
    let both = format!("{of_name}{first}, {}.", chain[0]);
    assert_eq!(told(&world, chain[1]), [both]);
    // The next task, when the first one is over.
    assert_eq!(
        world.reason(array),
        muster_model::job::Reason::JobArrayTaskLimit
    );
    assert_eq!(foretold(&world, array), Some((20, "n0".into())));
    let text = told(&world, array).join(" ");
    assert!(
        text.contains("'%1' allows")
            && text.contains(&format!("JobId={array} ArrayTaskThrottle=N")),
        "{text}"
    );
}

/// What PrivateData keeps from a user is counted in the explanation of his job, not named.
#[test]
fn explanations_tell_nobody_of_private_records() {
    let mut config = cluster(nodes(2, 1));
    config.licenses = vec![LicenseCount::new("foo", 3)];
    config.private = PrivateData::JOBS
        .with(PrivateData::RESERVATIONS)
        .with(PrivateData::NODES);
    let mut world = World::new(config);
    let ask = ReservationAsk {
        name: Some("secret".into()),
        start: Some(world.now.plus_s(20 * 60)),
        duration: Some(TimeLimit::Minutes(30)),
        nodes: Some("n[0-1]".into()),
        users: Some(NameList::Only(vec!["ann".into()])),
        ..ReservationAsk::default()
    };
    world.admin(UserCommand::CreateReservation(Box::new(ask)));
    let wants = |licenses: &str, spec| JobSpec {
        licenses: Some(licenses.into()),
        ..spec
    };
    let anns = world.submit(wants("foo:2", of("ann", job(1, 10))));
    let mut of_bob = of("bob", job(1, 10));
    of_bob.owner.uid = 1001;
    let bobs = world.submit(wants("foo:3", of_bob.clone()));
    of_bob.ask.nodelist = Some("n1".into());
    world.pass_by_core();
    let identity = |user: &str, uid| Identity {
        uid,
        user: user.into(),
        ..Identity::default()
    };
    let (ann, bob) = (identity("ann", 1000), identity("bob", 1001));
    let seen_by = |world: &World, id, identity: &Identity| {
        let view = View::of(&world.state, identity);
        explain(&world.state, id, world.now, &view).unwrap()
    };
    assert_eq!(
        seen_by(&world, bobs, &bob).waits_for[1],
        "Of foo, 1 jobs have more."
    );
    let named = format!("Of foo, job {anns} has 2.");
    assert_eq!(seen_by(&world, bobs, &ann).waits_for[1], named);
    let mut long = of_bob.clone();
    long.ask.nodelist = None;
    long.ask.min_nodes = 2;
    let long = world.submit(JobSpec {
        time_limit: Some(TimeLimit::Minutes(60)),
        ..long
    });
    world.pass_by_core();
    for (identity, is_named) in [(&bob, false), (&ann, true)] {
        let times = format!("{:?}", seen_by(&world, long, identity).times);
        assert_eq!(times.contains("secret"), is_named, "{times}");
    }
    world.drain(1);
    let down = world.submit(of_bob);
    world.pass_by_core();
    let reasons = seen_by(&world, down, &bob).waits_for;
    assert_eq!(reasons, ["Nodes that it needs are out of service."]);
    let reasons = seen_by(&world, down, &identity("root", 0)).waits_for;
    assert!(reasons[0].contains("n1"), "{reasons:?}");
}
