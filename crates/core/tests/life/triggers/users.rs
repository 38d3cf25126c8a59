//! Triggers of users who are neither root nor SlurmUser: the permission, and the bounds.

use super::*;

#[test]
fn users_have_triggers_where_the_site_lets_them() {
    let mut world = settled(World::new());
    let ask = || set(on(TriggerEvents::DOWN));
    assert_eq!(world.refused(1000, ask()), RefusalCode::AccessDenied);
    let mut world = settled(for_users());
    let own = running(&mut world, 10, &[0]);
    world.must(1000, set(of_job(TriggerEvents::FINI, own)));
    let trigger = world.state.triggers.all()[&1].clone();
    assert_eq!((trigger.uid, trigger.gid), (1000, 1000));
    let others = world.refused(1001, set(of_job(TriggerEvents::FINI, own)));
    assert_eq!(others, RefusalCode::AccessDenied);
    assert_eq!(
        world.refused(1001, clear(Some(1), None, None)),
        RefusalCode::AccessDenied
    );
    assert_eq!(
        world.refused(1001, clear(None, Some(own), None)),
        RefusalCode::AccessDenied
    );
    assert_eq!(
        world.refused(1001, clear(None, None, Some(1000))),
        RefusalCode::AccessDenied
    );
    assert_eq!(
        world.refused(1000, clear(Some(1), None, Some(0))),
        RefusalCode::AccessDenied
    );
    world.must(1000, clear(Some(1), Some(own), Some(1000)));
    assert_eq!(
        world.refused(1000, clear(Some(1), None, None)),
        RefusalCode::NoSuchTrigger
    );
    for n in 0..TRIGGERS_OF_USER_MAX {
        let program = format!("/bin/true {n}");
        world.must(
            1000,
            set(Ask {
                program,
                ..on(TriggerEvents::DOWN)
            }),
        );
    }
    assert_eq!(world.refused(1000, ask()), RefusalCode::TooManyTriggers);
    world.must(1001, ask());
    // Programs that were not started count, too.
    world.must(0, update("n1", "DOWN"));
    world.pass(16);
    assert_eq!(world.refused(1000, ask()), RefusalCode::TooManyTriggers);
    ran(&mut world);
    world.must(1000, ask());
    assert_eq!(world.must(0, clear(None, None, Some(1000))), 1);
}

/// One user had all triggers for idle nodes that there are for users, and with long programs most of the bytes: others
/// had none.
#[test]
fn a_user_has_a_part_of_idle_triggers_and_of_bytes() {
    let mut world = settled(for_users());
    let idle = |n: usize| {
        set(Ask {
            offset_s: 30_000 + i32::try_from(n).unwrap(),
            ..on(TriggerEvents::IDLE)
        })
    };
    let most = IDLE_TRIGGERS_MAX / TRIGGER_USER_PART;
    for n in 0..most {
        world.must(1000, idle(n));
    }
    assert_eq!(
        world.refused(1000, idle(most)),
        RefusalCode::TooManyTriggers
    );
    world.must(1001, idle(most));
    world.must(1000, clear(Some(1), None, None));
    world.must(1000, idle(most));
    world.must(1000, clear(None, None, Some(1000)));
    let long = |n: usize| {
        set(Ask {
            program: format!("/{n:0>width$}", width = TRIGGER_PROGRAM_BYTES_MAX - 1),
            ..on(TriggerEvents::DOWN)
        })
    };
    let most = TRIGGER_BYTES_OF_USER_MAX / TRIGGER_PROGRAM_BYTES_MAX;
    for n in 0..most {
        world.must(1000, long(n));
    }
    assert_eq!(
        world.refused(1000, long(most)),
        RefusalCode::TooManyTriggers
    );
    world.must(1001, long(most));
    world.check_replay();
}

/// The texts of fired triggers were bounded by their number alone: programs of 16 KiB, each with a list of nodes.
#[test]
fn texts_of_a_user_are_bounded_also_when_triggers_fire() {
    let mut world = settled(for_users());
    let long = |n: usize| {
        set(Ask {
            program: format!(
                "/bin/true {n} {}",
                "x".repeat(TRIGGER_PROGRAM_BYTES_MAX - 20)
            ),
            permanent: true,
            ..on(TriggerEvents::DOWN)
        })
    };
    let fits = TRIGGER_BYTES_OF_USER_MAX / TRIGGER_PROGRAM_BYTES_MAX;
    for n in 0..fits {
        world.must(1000, long(n));
    }
    let full = RefusalCode::TooManyTriggers;
    assert_eq!(world.refused(1000, long(fits)), full);
    for n in 0..=fits {
        world.must(0, long(n));
    }
    world.must(1001, long(0));
    world.must(0, update("n1", "DOWN"));
    world.pass(16);
    // Programs that wait count, and the arguments with them.
    let bytes = |world: &World, uid: u32| {
        let runs = world.state.triggers.runs().values();
        let own = runs.filter(|run| run.uid == uid);
        let runs: usize = own.map(TriggerRun::bytes).sum();
        let all = world.state.triggers.all().values();
        let own = all.filter(|trigger| trigger.uid == uid);
        runs + own.map(Trigger::bytes).sum::<usize>()
    };
    assert_eq!(world.state.triggers.runs().len(), 2 * fits + 2);
    assert!(bytes(&world, 1000) <= TRIGGER_RUN_BYTES_OF_USER_MAX);
    // A trigger that is cleared leaves its program, and room for another one.
    world.must(1000, clear(Some(1), None, None));
    assert_eq!(world.refused(1000, long(fits)), full);
    ran(&mut world);
    world.must(1000, long(fits));
    world.check_replay();
}

/// A list of nodes may be longer than any trigger: a program is not run where its user has no room for it.
#[test]
fn a_program_without_room_is_not_run() {
    let mut config = config();
    config.user_triggers = true;
    let name = |n: usize| format!("{}{n}x", "n".repeat(200));
    config.nodes = (0..64).map(|n| node_config(&name(n), 4, 1000)).collect();
    let all: Vec<String> = (0..64).map(name).collect();
    config
        .partitions
        .iter_mut()
        .for_each(|partition| partition.nodes.clone_from(&all));
    let mut world = settled(World::with(config));
    for n in 0..TRIGGERS_OF_USER_MAX {
        world.must(
            1000,
            set(Ask {
                program: format!("/bin/true {n}"),
                ..on(TriggerEvents::DOWN)
            }),
        );
    }
    world.must(0, set(on(TriggerEvents::DOWN)));
    world.must(0, update(&all.join(","), "DOWN"));
    world.pass(16);
    let left = world.state.triggers.runs().len();
    assert!((2..TRIGGERS_OF_USER_MAX).contains(&left), "{left}");
    assert_eq!(world.state.triggers.all().len(), 0, "all have fired");
    // The others did not begin: the controller looks at each event as it is applied.
    let begins = |event: &&Event| {
        let Event::TriggersChanged { change, at } = event else {
            return false;
        };
        matches!(change, TriggerChange::Fired { due, .. } if due <= at)
    };
    assert_eq!(world.history.iter().filter(begins).count(), left);
    let runs = world.state.triggers.runs().values();
    assert!(runs.clone().all(|run| run.argument.len() > 10_000));
    let own: usize = runs
        .filter(|run| run.uid == 1000)
        .map(TriggerRun::bytes)
        .sum();
    assert!(own <= TRIGGER_RUN_BYTES_OF_USER_MAX, "{own}");
    assert_eq!(ran(&mut world).len(), left);
    world.check_replay();
}

/// Triggers of users went on where the site had let users have them before.
#[test]
fn triggers_of_users_go_with_the_permission() {
    let mut world = settled(for_users());
    let job = running(&mut world, 10, &[0]);
    world.must(1000, set(of_job(TriggerEvents::FINI, job)));
    world.must(
        1000,
        set(Ask {
            offset_s: 60,
            ..on(TriggerEvents::DOWN)
        }),
    );
    world.must(
        0,
        set(Ask {
            offset_s: 60,
            ..on(TriggerEvents::DOWN)
        }),
    );
    world.must(1001, set(on(TriggerEvents::DRAINED)));
    world.must(0, update("n2", "DOWN"));
    world.pass(16);
    assert_eq!(world.state.triggers.runs().len(), 2);
    let read = |config: ClusterConfig| Command::Configure {
        config: Arc::new(config),
        keep: KeptPartitions::File,
    };
    let same = ClusterConfig {
        user_triggers: true,
        ..config()
    };
    world.run(read(same));
    assert_eq!(ids(&world.state), [1, 4]);
    world.run(read(config()));
    assert_eq!(ids(&world.state), [0; 0]);
    world.finish(job, 0);
    world.pass(61);
    assert_eq!(ran(&mut world), [(3, "n2".to_owned())]);
    world.check_replay();
}
