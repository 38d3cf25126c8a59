//! Calendars of partitions: times at which they start no jobs, or stop those that run. The test's clock begins at 0:16:40 UTC on a
//! Thursday.

use crate::world::{World, config, spec, target};
use muster_core::event::Event;
use muster_model::calendar::{Calendar, CalendarState, PartitionCalendar};
use muster_model::command::{KeptPartitions, UserCommand};
use muster_model::config::PartitionState;
use muster_model::ids::JobId;
use muster_model::job::JobState;
use muster_model::refusal::RefusalCode;

const HOUR_S: u64 = 3600;

fn calendar(text: &str) -> UserCommand {
    UserCommand::UpdatePartition {
        name: "batch".into(),
        pairs: vec![("Calendar".into(), text.into())],
        read: Vec::new(),
    }
}

fn state(world: &World) -> (CalendarState, PartitionState) {
    let partition = world.state.partition("batch").expect("it is there");
    (partition.calendar_state(), partition.effective_state())
}

fn running(world: &mut World) -> JobId {
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[0]));
    id
}

/// Passes to the time of the next change, and makes it.
fn pass_to_change(world: &mut World) -> u64 {
    let before = world.now;
    world.now = world
        .state
        .next_tick(world.now)
        .expect("a calendar has a change");
    world.tick();
    world.now.since_ms(before) / 1000
}

#[test]
fn a_partition_is_closed_and_opened_at_the_times_of_its_calendar() {
    let mut world = World::new();
    let first = running(&mut world);
    world.must(0, calendar("lunch week 1-2 thu=2-3=off"));
    assert_eq!(state(&world), (CalendarState::On, PartitionState::Up));
    assert_eq!(pass_to_change(&mut world), 43 * 60 + 20);
    assert_eq!(state(&world), (CalendarState::Off, PartitionState::Down));
    let changes = |event: &Event| matches!(event, Event::PartitionChanged { .. });
    assert!(world.events.iter().any(changes), "the journal has it");
    // What runs goes on; nothing new begins.
    assert_eq!(world.job(first).state, JobState::Running);
    let second = world.submit(spec("j"));
    assert!(!world.start(second, &[1]));
    // At two o'clock nothing changes.
    assert_eq!(pass_to_change(&mut world), 2 * HOUR_S);
    assert_eq!(state(&world), (CalendarState::On, PartitionState::Up));
    assert!(world.start(second, &[1]));
    world.check_replay();
}

#[test]
fn jobs_are_stopped_and_go_on_at_the_times_of_the_calendar() {
    let mut world = World::new();
    let (id, by_hand) = (running(&mut world), running(&mut world));
    let target = target(by_hand);
    world.must(
        0,
        UserCommand::Suspend {
            target: target.clone(),
        },
    );
    world.must(0, calendar("night week 1-2=suspended"));
    pass_to_change(&mut world);
    assert_eq!(
        state(&world),
        (CalendarState::Suspended, PartitionState::Down)
    );
    assert_eq!(world.job(id).state, JobState::Suspended);
    assert!(world.job(id).stopped_by_calendar && !world.job(by_hand).stopped_by_calendar);
    assert_eq!(pass_to_change(&mut world), HOUR_S);
    assert_eq!(world.job(id).state, JobState::Running);
    assert!(!world.job(id).stopped_by_calendar);
    assert_eq!(
        world.job(by_hand).state,
        JobState::Suspended,
        "an administrator has it"
    );
    world.must(0, UserCommand::Resume { target });
    // Taking the calendar away lets jobs go on.
    world.must(0, calendar("always week suspended"));
    assert_eq!(world.job(id).state, JobState::Suspended);
    assert_eq!(world.job(by_hand).state, JobState::Suspended);
    world.must(0, calendar("NONE"));
    assert_eq!(state(&world), (CalendarState::On, PartitionState::Up));
    assert_eq!(world.job(id).state, JobState::Running);
    assert_eq!(world.job(by_hand).state, JobState::Running);
    world.check_replay();
}

#[test]
fn a_configuration_brings_calendars_and_takes_them_away() {
    let with = |text: &str| {
        let mut config = config();
        let calendar = Calendar::parse(text).unwrap();
        config.partitions[0].calendar = Some(PartitionCalendar::new(calendar));
        config
    };
    let mut world = World::new();
    let id = running(&mut world);
    world.configure(with("c week suspended"), KeptPartitions::File);
    assert_eq!(state(&world).0, CalendarState::Suspended);
    assert_eq!(world.job(id).state, JobState::Suspended);
    // The same again changes nothing.
    world.configure(with("c week suspended"), KeptPartitions::File);
    assert_eq!(world.events, []);
    world.configure(with("c week off"), KeptPartitions::File);
    assert_eq!(state(&world).0, CalendarState::Off);
    assert_eq!(world.job(id).state, JobState::Running);
    world.configure(with("c week suspended"), KeptPartitions::File);
    world.configure(config(), KeptPartitions::File);
    assert_eq!(state(&world), (CalendarState::On, PartitionState::Up));
    assert_eq!(world.job(id).state, JobState::Running);
    world.check_replay();
}

#[test]
fn calendars_are_for_administrators_and_must_be_right() {
    let mut world = World::new();
    assert_eq!(
        world.refused(1000, calendar("c week off")),
        RefusalCode::AccessDenied
    );
    for text in ["c", "c mon", "c week mo", "c week off week off"] {
        let code = world.user(0, calendar(text));
        let is_plain = text == "c";
        assert_eq!(
            matches!(code, muster_model::command::Reply::Done { .. }),
            is_plain,
            "{text}: {code:?}"
        );
    }
}
