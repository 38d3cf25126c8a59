//! Triggers: who may have which, and when they fire.

use crate::world::{World, config, node_config, spec, target};
use muster_core::event::{Event, TriggerChange};
use muster_core::state::State;
use muster_model::command::{Command, KeptPartitions, NodeCommand, NodeUpdate, UserCommand};
use muster_model::config::ClusterConfig;
use muster_model::ids::JobId;
use muster_model::job::{JobState, Phase};
use muster_model::refusal::RefusalCode;
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;
use muster_model::trigger::{
    IDLE_TRIGGERS_MAX, TRIGGER_BYTES_OF_USER_MAX, TRIGGER_PROGRAM_BYTES_MAX,
    TRIGGER_RUN_BYTES_OF_USER_MAX, TRIGGER_USER_PART, TRIGGERS_OF_USER_MAX, Trigger, TriggerAsk,
    TriggerEvents, TriggerReport, TriggerRun, TriggerRunId,
};
use std::sync::Arc;

mod users;

/// No program.
const NONE: [(u32, String); 0] = [];

/// What a test asks for.
#[derive(Clone, Debug)]
struct Ask {
    events: TriggerEvents,
    job: Option<JobId>,
    nodes: &'static str,
    offset_s: i32,
    program: String,
    permanent: bool,
}

fn on(events: TriggerEvents) -> Ask {
    Ask {
        events,
        job: None,
        nodes: "",
        offset_s: 0,
        program: "/bin/true".to_owned(),
        permanent: false,
    }
}

fn of_job(events: TriggerEvents, job: JobId) -> Ask {
    Ask {
        job: Some(job),
        ..on(events)
    }
}

fn set(ask: Ask) -> UserCommand {
    UserCommand::Trigger(Box::new(TriggerAsk::Set {
        events: ask.events,
        job: ask.job,
        nodes: ask.nodes.to_owned(),
        offset_s: ask.offset_s,
        program: ask.program,
        permanent: ask.permanent,
    }))
}

fn clear(id: Option<u32>, job: Option<JobId>, uid: Option<u32>) -> UserCommand {
    UserCommand::Trigger(Box::new(TriggerAsk::Clear { id, job, uid }))
}

fn update(nodes: &str, state: &str) -> UserCommand {
    UserCommand::UpdateNodes {
        nodes: nodes.to_owned(),
        update: NodeUpdate {
            state: Some(state.to_owned()),
            reason: Some("test".to_owned()),
            ..NodeUpdate::default()
        },
    }
}

fn for_users() -> World {
    World::with(ClusterConfig {
        user_triggers: true,
        ..config()
    })
}

/// Programs that were to be run since the last time, which are started now: the trigger, and the argument.
fn ran(world: &mut World) -> Vec<(u32, String)> {
    let begun = world.state.triggers.runs().values().filter(|run| run.begun);
    let begun: Vec<(TriggerRunId, String)> =
        begun.map(|run| (run.id, run.argument.clone())).collect();
    for (id, _) in &begun {
        world.run(Command::Trigger(TriggerReport::Started(*id)));
    }
    begun
        .into_iter()
        .map(|(id, argument)| (id.trigger, argument))
        .collect()
}

/// The same once the period is over.
fn ran_in_period(world: &mut World) -> Vec<(u32, String)> {
    world.pass(16);
    ran(world)
}

fn ids(state: &State) -> Vec<u32> {
    state.triggers.all().keys().copied().collect()
}

/// A cluster on which nothing is recorded.
fn settled(mut world: World) -> World {
    world.pass(16);
    world
}

fn running(world: &mut World, minutes: u32, nodes: &[u32]) -> JobId {
    let id = world.submit(JobSpec {
        time_limit: Some(TimeLimit::Minutes(minutes)),
        ..spec("x")
    });
    assert!(world.start(id, nodes));
    id
}

/// As in Slurm without them: triggers of burst buffers and front end nodes are kept, and nothing happens to these.
#[test]
fn what_happens_to_nodes_happens_to_no_front_end() {
    let mut world = settled(World::new());
    let down = TriggerEvents::DOWN;
    let named = |events| Ask {
        nodes: "n1",
        ..on(events)
    };
    let not_there = [
        TriggerEvents::BURST_BUFFER.with(down),
        TriggerEvents::FRONT_END.with(down),
        TriggerEvents::FRONT_END.with(TriggerEvents::IDLE),
    ];
    for events in not_there {
        world.must(0, set(on(events)));
        world.must(0, set(named(events)));
    }
    world.must(0, update("n1", "down"));
    assert_eq!(ran_in_period(&mut world), NONE);
    assert_eq!(ids(&world.state), [1, 2, 3, 4, 5, 6]);
    world.must(0, clear(None, None, Some(0)));
    assert_eq!(ids(&world.state), [0; 0]);
}

#[test]
fn nodes_of_a_period_are_one_argument_and_the_trigger_goes() {
    let mut world = settled(World::new());
    world.must(0, set(on(TriggerEvents::DOWN)));
    world.must(
        0,
        set(Ask {
            nodes: "n2",
            ..on(TriggerEvents::DOWN)
        }),
    );
    world.must(
        0,
        set(Ask {
            nodes: "n1",
            ..on(TriggerEvents::UP)
        }),
    );
    world.must(0, update("n1", "DOWN"));
    assert_eq!(ran(&mut world), NONE, "the period is not over");
    world.must(0, update("n2", "DOWN"));
    let down = ran_in_period(&mut world);
    assert_eq!(down, [(1, "n[1-2]".to_owned()), (2, "n2".to_owned())]);
    assert_eq!(ids(&world.state), [3]);
    world.must(0, update("n[1-2]", "RESUME"));
    assert_eq!(ran_in_period(&mut world), [(3, "n1".to_owned())]);
    assert_eq!(ids(&world.state), [0; 0]);
    world.check_replay();
}

#[test]
fn a_trigger_that_comes_in_the_period_fires_for_what_was_before() {
    let mut world = settled(World::new());
    world.must(0, update("n1", "DRAIN"));
    world.must(0, set(on(TriggerEvents::DRAINED)));
    assert_eq!(ran_in_period(&mut world), [(1, "n1".to_owned())]);
    world.must(0, update("n2", "DRAIN"));
    world.pass(16);
    world.must(0, set(on(TriggerEvents::DRAINED)));
    assert_eq!(
        ran_in_period(&mut world),
        NONE,
        "that was in another period"
    );
}

#[test]
fn a_permanent_trigger_stays_and_waits_for_its_program() {
    let mut world = settled(World::new());
    world.must(
        0,
        set(Ask {
            permanent: true,
            ..on(TriggerEvents::FAIL)
        }),
    );
    world.must(0, update("n1", "FAIL"));
    world.pass(16);
    world.must(0, update("n2", "FAIL"));
    world.pass(16);
    assert_eq!(ran(&mut world), [(1, "n1".to_owned())]);
    world.must(0, update("n[1-2]", "RESUME"));
    world.must(0, update("n2", "FAIL"));
    assert_eq!(ran_in_period(&mut world), [(1, "n2".to_owned())]);
    assert_eq!(ids(&world.state), [1]);
    world.check_replay();
}

#[test]
fn drained_is_when_the_last_job_has_left() {
    let mut world = settled(World::new());
    let job = running(&mut world, 10, &[0]);
    for event in [
        TriggerEvents::DRAINING,
        TriggerEvents::DRAINED,
        TriggerEvents::RESUME,
    ] {
        world.must(0, set(on(event)));
    }
    world.must(0, update("n1", "DRAIN"));
    assert_eq!(ran_in_period(&mut world), [(1, "n1".to_owned())]);
    world.finish(job, 0);
    assert_eq!(ran_in_period(&mut world), [(2, "n1".to_owned())]);
    world.must(0, update("n1", "RESUME"));
    assert_eq!(ran_in_period(&mut world), [(3, "n1".to_owned())]);
}

#[test]
fn the_end_of_a_job_fires_at_once_and_its_triggers_go() {
    let mut world = settled(World::new());
    let job = running(&mut world, 10, &[0]);
    let other = running(&mut world, 10, &[1]);
    world.must(0, set(of_job(TriggerEvents::FINI, job)));
    world.must(
        0,
        set(Ask {
            offset_s: 30,
            ..of_job(TriggerEvents::FINI, job)
        }),
    );
    world.must(0, set(of_job(TriggerEvents::TIME, job)));
    world.must(0, set(of_job(TriggerEvents::DOWN, job)));
    world.must(0, set(of_job(TriggerEvents::FINI, other)));
    world.finish(job, 0);
    assert_eq!(ran(&mut world), [(1, job.to_string())]);
    world.pass(29);
    assert_eq!(ran(&mut world), NONE);
    world.pass(2);
    assert_eq!(ran(&mut world), [(2, job.to_string())]);
    assert_eq!(ids(&world.state), [5], "what is about the job is gone");
    let over = world.refused(0, set(of_job(TriggerEvents::FINI, job)));
    assert_eq!(over, RefusalCode::AlreadyDone);
    world.check_replay();
}

#[test]
fn a_requeued_job_is_not_over() {
    let mut world = settled(World::new());
    let job = running(&mut world, 10, &[0]);
    world.must(0, set(of_job(TriggerEvents::FINI, job)));
    world.must(
        0,
        UserCommand::Requeue {
            target: target(job),
            hold: false,
            special_exit: false,
            incomplete: false,
        },
    );
    world.release(job);
    assert_eq!(world.job(job).phase(), Phase::Pending);
    assert_eq!(ran_in_period(&mut world), NONE);
    world.cancel(0, target(job));
    assert_eq!(ran(&mut world), [(1, job.to_string())]);
}

#[test]
fn the_time_limit_is_followed_when_it_changes() {
    let mut world = settled(World::new());
    let job = running(&mut world, 10, &[0]);
    let early = Ask {
        offset_s: -60,
        ..of_job(TriggerEvents::TIME, job)
    };
    world.must(0, set(early));
    world.must(
        0,
        set(Ask {
            offset_s: 20,
            ..of_job(TriggerEvents::TIME, job)
        }),
    );
    world.pass(530);
    assert_eq!(ran(&mut world), NONE);
    world.must(
        0,
        UserCommand::UpdateJob {
            target: target(job),
            update: Box::new(muster_model::command::JobUpdate {
                time_limit: Some(TimeLimit::Minutes(11)),
                ..Default::default()
            }),
        },
    );
    world.pass(60);
    assert_eq!(ran(&mut world), NONE);
    world.pass(15);
    assert_eq!(ran(&mut world), [(1, job.to_string())]);
    world.pass(60);
    assert_eq!(world.job(job).state, JobState::Timeout);
    world.release(job);
    assert_eq!(ran(&mut world), NONE, "20 seconds after the limit");
    world.pass(21);
    assert_eq!(ran(&mut world), [(2, job.to_string())]);
    // One that ends before has not reached it.
    let short = running(&mut world, 10, &[0]);
    world.must(0, set(of_job(TriggerEvents::TIME, short)));
    world.finish(short, 0);
    world.pass(700);
    assert_eq!((ran(&mut world), ids(&world.state)), (vec![], vec![]));
    world.check_replay();
}

#[test]
fn a_node_of_a_job_goes_down_with_it() {
    let mut world = settled(World::new());
    let job = running(&mut world, 10, &[0]);
    let other = running(&mut world, 10, &[1]);
    world.must(0, set(of_job(TriggerEvents::DOWN, job)));
    world.must(0, set(of_job(TriggerEvents::DOWN, other)));
    world.must(0, update("n1", "DOWN"));
    assert_eq!(ran_in_period(&mut world), [(1, job.to_string())]);
    assert_eq!(ids(&world.state), [2]);
    world.check_replay();
}

#[test]
fn a_node_is_idle_for_the_time_that_was_asked_for() {
    let mut world = settled(World::new());
    let job = running(&mut world, 60, &[0]);
    world.pass(100);
    world.must(
        0,
        set(Ask {
            offset_s: 300,
            nodes: "n1",
            ..on(TriggerEvents::IDLE)
        }),
    );
    world.pass(400);
    assert_eq!(ran(&mut world), NONE, "a job is there");
    world.finish(job, 0);
    world.pass(299);
    assert_eq!(ran(&mut world), NONE);
    world.pass(2);
    assert_eq!(ran(&mut world), [(1, "n1".to_owned())]);
    // All nodes that have been idle for so long are named, and again after a period.
    world.must(
        0,
        set(Ask {
            offset_s: 5,
            permanent: true,
            ..on(TriggerEvents::IDLE)
        }),
    );
    world.tick();
    let first = ran(&mut world);
    assert_eq!(first.len(), 1);
    assert!(first[0].1.starts_with("n["), "{first:?}");
    assert_eq!(ran(&mut world), NONE);
    assert_eq!(ran_in_period(&mut world), first);
    let many = (0i32..).take(IDLE_TRIGGERS_MAX + 5).map(|n| {
        let ask = Ask {
            offset_s: 1000 + n,
            ..on(TriggerEvents::IDLE)
        };
        world.user(0, set(ask))
    });
    let made = many.filter(|reply| !format!("{reply:?}").contains("Refused"));
    assert_eq!(made.count(), IDLE_TRIGGERS_MAX - 1);
    world.check_replay();
}

/// A trigger that was due and whose last program had not been started had the controller look at it again at once, without end.
#[test]
fn a_trigger_whose_program_waits_is_not_due() {
    let mut world = settled(World::new());
    world.must(
        0,
        set(Ask {
            permanent: true,
            ..on(TriggerEvents::IDLE)
        }),
    );
    let job = running(&mut world, 10, &[0]);
    world.must(
        0,
        set(Ask {
            permanent: true,
            offset_s: -500,
            ..of_job(TriggerEvents::TIME, job)
        }),
    );
    world.pass(101);
    assert_eq!(world.state.triggers.runs().len(), 2);
    world.must(
        0,
        UserCommand::Requeue {
            target: target(job),
            hold: false,
            special_exit: false,
            incomplete: false,
        },
    );
    world.release(job);
    world.pass(200);
    assert!(world.start(job, &[0]));
    world.pass(101);
    let is_due = |world: &World| world.state.next_tick(world.now) == Some(world.now);
    assert!(!is_due(&world));
    assert_eq!(ran(&mut world).len(), 2);
    assert!(
        is_due(&world),
        "the nodes are idle, and the job's time is near"
    );
    world.tick();
    assert_eq!((ran(&mut world).len(), is_due(&world)), (2, false));
    world.check_replay();
}

/// An event of a node in the tick that compared earlier events with triggers was forgotten with these.
#[test]
fn a_node_that_is_lost_while_events_are_compared_fires() {
    let mut world = settled(World::new());
    world.must(0, set(on(TriggerEvents::DOWN)));
    world.register(0, "boot", &[]);
    world.node(0, NodeCommand::Lost);
    world.must(0, update("n2", "DRAIN"));
    world.pass(100);
    assert!(world.state.nodes[0].down);
    assert_eq!(ran(&mut world), NONE);
    assert_eq!(ran_in_period(&mut world), [(1, "n1".to_owned())]);
}

#[test]
fn what_the_controller_reports_fires_with_its_name() {
    let mut world = settled(World::new());
    let happened = TriggerEvents::DATABASE_FAILS.with(TriggerEvents::ACCOUNTING_FAILS);
    let report = Command::Trigger(TriggerReport::Happened(happened));
    assert_eq!(world.run(report.clone()).events, [], "nobody wants to know");
    world.must(0, set(on(TriggerEvents::DATABASE_FAILS)));
    world.must(0, set(on(TriggerEvents::RECONFIG)));
    world.run(report);
    let first = ran_in_period(&mut world);
    assert_eq!(first, [(1, "primary_database_failure".to_owned())]);
    world.must(0, update("n1", "DRAIN"));
    assert_eq!(ran_in_period(&mut world), [(2, "reconfig".to_owned())]);
}

#[test]
fn programs_and_records_outlive_a_snapshot() {
    let mut world = settled(World::new());
    let job = running(&mut world, 10, &[0]);
    world.must(0, set(of_job(TriggerEvents::TIME, job)));
    world.must(
        0,
        set(Ask {
            offset_s: 40,
            nodes: "n2",
            ..on(TriggerEvents::DOWN)
        }),
    );
    world.must(0, set(on(TriggerEvents::DRAINED)));
    world.must(0, update("n2", "DOWN"));
    world.must(0, set(of_job(TriggerEvents::FINI, job)));
    let again = |world: &mut World| {
        let mut bytes = Vec::new();
        world.state.encode_snapshot(&mut bytes);
        world.state = State::decode_snapshot(&bytes).unwrap();
    };
    again(&mut world);
    world.must(0, update("n2", "DRAIN"));
    world.pass(16);
    again(&mut world);
    assert_eq!(ran(&mut world), [(3, "n2".to_owned())]);
    world.pass(41);
    again(&mut world);
    assert_eq!(ran(&mut world), [(2, "n2".to_owned())]);
    world.finish(job, 0);
    again(&mut world);
    assert_eq!(ran(&mut world), [(4, job.to_string())]);
    assert_eq!(world.state.triggers.runs().len(), 0);
    again(&mut world);
    world.pass(16);
    assert_eq!((ran(&mut world), ids(&world.state)), (vec![], vec![]));
}

#[test]
fn a_controller_that_is_not_root_runs_roots_programs_as_slurm_user() {
    let mut world = World::with(ClusterConfig {
        admin_uids: vec![64],
        ..config()
    });
    world.must(0, set(on(TriggerEvents::DOWN)));
    assert_eq!(world.state.triggers.all()[&1].uid, 64);
    assert_eq!(
        world.refused(64, set(on(TriggerEvents::DOWN))),
        RefusalCode::DuplicateTrigger
    );
    world.must(64, clear(None, None, Some(64)));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut world = World::new();
    let job = running(&mut world, 10, &[0]);
    let invalid = [
        on(TriggerEvents::NONE),
        on(TriggerEvents(1 << 30)),
        Ask {
            program: "bin/true".to_owned(),
            ..on(TriggerEvents::DOWN)
        },
        Ask {
            program: "/bin/true\n  9 node".to_owned(),
            ..on(TriggerEvents::DOWN)
        },
        Ask {
            offset_s: 40_000,
            ..on(TriggerEvents::DOWN)
        },
        Ask {
            offset_s: i32::MIN,
            ..on(TriggerEvents::DOWN)
        },
    ];
    for ask in invalid {
        assert_eq!(world.refused(0, set(ask)), RefusalCode::InvalidValue);
    }
    for nodes in ["nosuch", "n[1-2],n99", "n[1-", "n[1-100000]"] {
        let ask = Ask {
            nodes,
            ..on(TriggerEvents::DOWN)
        };
        assert_eq!(world.refused(0, set(ask)), RefusalCode::InvalidNode);
    }
    assert_eq!(
        world.refused(0, set(on(TriggerEvents::FINI))),
        RefusalCode::InvalidJobId
    );
    let unknown = of_job(TriggerEvents::FINI, JobId(999));
    assert_eq!(world.refused(0, set(unknown)), RefusalCode::InvalidJobId);
    let strange = of_job(TriggerEvents::CONTROLLER_RESUMES, job);
    assert_eq!(world.refused(0, set(strange)), RefusalCode::InvalidNode);
    assert_eq!(
        world.refused(0, clear(None, None, None)),
        RefusalCode::InvalidValue
    );
    assert_eq!(
        world.refused(0, clear(Some(7), None, None)),
        RefusalCode::NoSuchTrigger
    );
}

#[test]
fn what_happens_without_triggers_is_not_written() {
    let mut world = settled(World::new());
    world.must(0, update("n1", "DRAIN"));
    let decision = {
        world.now = world.now.plus_s(16);
        world.run(Command::Tick { accounted: false })
    };
    let is_of_triggers = |event: &&Event| matches!(event, Event::TriggersChanged { .. });
    assert_eq!(decision.events.iter().find(is_of_triggers), None);
    world.must(0, set(on(TriggerEvents::DRAINED)));
    world.must(0, update("n2", "DRAIN"));
    world.now = world.now.plus_s(16);
    let decision = world.run(Command::Tick { accounted: false });
    let changes: Vec<&TriggerChange> = decision
        .events
        .iter()
        .filter_map(|event| match event {
            Event::TriggersChanged { change, .. } => Some(change),
            _ => None,
        })
        .collect();
    assert!(
        matches!(
            changes[..],
            [TriggerChange::Fired { .. }, TriggerChange::Checked]
        ),
        "{changes:?}"
    );
}

#[test]
fn a_silent_node_fires_when_it_is_down() {
    let mut world = settled(World::new());
    world.must(0, set(on(TriggerEvents::DOWN)));
    world.node(1, NodeCommand::Lost);
    assert_eq!(ran_in_period(&mut world), NONE);
    let timeout = u64::from(world.state.config.as_ref().unwrap().node_timeout_s);
    world.pass(timeout);
    assert_eq!(ran_in_period(&mut world), [(1, "n2".to_owned())]);
}
