//! What a client that follows changes reads, what it may not see, and what it costs.

use super::*;
use crate::outbox::{self, Inbox};
use muster_core::decide::decide;
use muster_model::command::{Command, JobSelection, JobTarget, KeptPartitions, Reply, UserCommand};
use muster_model::config::{ClusterConfig, PartitionConfig};
use muster_model::job::JobState;
use muster_model::node::NodeConfig;
use muster_model::spec::{JobKind, JobSpec, Owner};
use std::sync::Arc;

const ADA: u32 = 1000;
const BOB: u32 = 1001;

fn identity(uid: u32) -> Identity {
    Identity {
        uid,
        gid: uid,
        user: format!("u{uid}"),
        ..Identity::default()
    }
}

fn batch() -> PartitionConfig {
    PartitionConfig {
        default: true,
        nodes: vec!["n1".into()],
        nodes_text: "n1".into(),
        ..PartitionConfig::named("batch")
    }
}

/// A state with its changes, which grow by commands.
struct World {
    state: State,
    changes: Changes,
    position: Position,
}

impl World {
    fn new(private: &str) -> World {
        let mut world = World {
            state: State::default(),
            changes: Changes::new(0),
            position: 0,
        };
        let config = ClusterConfig {
            private: PrivateData::parse(private),
            nodes: vec![NodeConfig {
                name: "n1".into(),
                cpus: 1,
                ..NodeConfig::default()
            }],
            partitions: vec![batch()],
            ..ClusterConfig::default()
        };
        world.run(Command::Configure {
            config: Arc::new(config),
            keep: KeptPartitions::File,
        });
        world
    }

    fn run(&mut self, command: Command) {
        let decided = decide(&self.state, &command, Timestamp(1_000));
        assert!(
            !matches!(&decided.reply, Some(Reply::Refused(_))),
            "{:?}",
            decided.reply
        );
        for event in &decided.events {
            self.apply(event);
        }
    }

    fn apply(&mut self, event: &Event) {
        self.position += 1;
        self.changes.before(&self.state, event);
        self.state.apply(event);
        self.changes.after(&self.state, self.position, event);
    }

    fn submit(&mut self, uid: u32, name: &str) -> JobId {
        let id = self.state.next_job_id;
        let spec = JobSpec {
            name: name.to_owned(),
            kind: JobKind::Allocation,
            interactive: true,
            work_dir: "/".into(),
            ..JobSpec::default()
        };
        let command = UserCommand::Submit {
            spec: Box::new(spec),
            blobs: Vec::new(),
            test_only: false,
        };
        self.run(Command::User(identity(uid), command));
        JobId(id)
    }

    fn ask(&mut self, uid: u32, after: Option<ChangePosition>, wait: bool) -> Inbox {
        let (out, inbox) = outbox::channel(None);
        let query = ChangesQuery { after, wait };
        self.changes
            .ask(&self.state, (&identity(uid), query), &out, Instant::now());
        inbox
    }

    fn read(&mut self, uid: u32, after: Option<ChangePosition>) -> ChangesAnswer {
        answer(&mut self.ask(uid, after, false)).unwrap()
    }

    fn pass_on(&mut self) {
        self.changes.pass_on(&self.state, Instant::now());
    }
}

fn answer(inbox: &mut Inbox) -> Option<ChangesAnswer> {
    let bytes = inbox.try_recv()?;
    match frame::decode::<Response>(&bytes[4..]).unwrap() {
        Response::Changes(answer) => Some(*answer),
        other => panic!("{other:?}"),
    }
}

/// Names of jobs and how they have changed.
fn jobs(answer: &ChangesAnswer) -> Vec<(String, &'static str)> {
    let job = |change: &ChangeNotice| match &change.subject {
        ChangedRecord::Job(job) => Some((job.name.clone(), job.kind.name())),
        _ => None,
    };
    answer.changes.iter().filter_map(job).collect()
}

fn event_of_job(id: u64) -> Event {
    Event::JobChanged {
        id: JobId(id),
        change: JobChange::Priority(7),
        at: Timestamp(2_000),
    }
}

#[test]
fn changes_follow_a_position_and_each_is_seen_once() {
    let mut world = World::new("");
    let begin = world.read(ADA, None);
    assert!(begin.changes.is_empty() && !begin.reset);
    let id = world.submit(ADA, "one");
    let first = world.read(BOB, Some(begin.last));
    assert_eq!(jobs(&first), [("one".to_owned(), "submitted")]);
    assert!(world.read(BOB, Some(first.last)).changes.is_empty());
    let target = JobTarget {
        job: id,
        tasks: None,
        component: None,
    };
    let selection = JobSelection {
        targets: vec![target],
        ..JobSelection::default()
    };
    let command = UserCommand::Cancel { selection };
    world.run(Command::User(identity(ADA), command));
    let second = world.read(BOB, Some(first.last));
    assert_eq!(jobs(&second), [("one".to_owned(), "ended")]);
    assert!(
        matches!(&second.changes[0].subject, ChangedRecord::Job(job) if job.state == JobState::Cancelled)
    );
    world.apply(&Event::JobsPurged { ids: vec![id] });
    assert_eq!(
        jobs(&world.read(BOB, Some(second.last))),
        [("one".to_owned(), "purged")]
    );
    // From each change on, what follows is the same.
    let all = world.read(BOB, Some(begin.last));
    assert_eq!(all.changes.len(), 3);
    let rest = world.read(BOB, Some(all.changes[0].at));
    assert_eq!(rest.changes, all.changes[1..]);
}

#[test]
fn what_is_private_is_in_no_change() {
    let mut world = World::new("jobs,nodes,partitions,reservations");
    let begin = world.read(ADA, None).last;
    world.submit(ADA, "mine");
    world.submit(BOB, "theirs");
    let node = NodeIdx(0);
    let change = NodeChange::Weight(3);
    let at = Timestamp(2_000);
    world.apply(&Event::NodeChanged { node, change, at });
    let seen = world.read(ADA, Some(begin));
    assert_eq!(jobs(&seen), [("mine".to_owned(), "submitted")]);
    assert_eq!(seen.changes.len(), 1);
    // Root sees all of it.
    assert_eq!(world.read(0, Some(begin)).changes.len(), 3);
    // Who waits does not wake for what is not shown, and misses nothing that is.
    let mut waiting = world.ask(ADA, Some(seen.last), true);
    world.submit(BOB, "another");
    world.pass_on();
    assert!(answer(&mut waiting).is_none());
    world.submit(ADA, "second");
    world.pass_on();
    assert_eq!(
        jobs(&answer(&mut waiting).unwrap()),
        [("second".to_owned(), "submitted")]
    );
}

#[test]
fn a_partition_that_is_hidden_is_in_no_change_and_its_jobs_are() {
    let mut world = World::new("");
    let begin = world.read(ADA, None).last;
    let hidden = PartitionConfig {
        hidden: true,
        ..batch()
    };
    world.apply(&Event::PartitionChanged {
        partition: Box::new(hidden),
    });
    world.submit(ADA, "one");
    let answer = world.read(ADA, Some(begin));
    assert_eq!(answer.changes.len(), 1);
    assert_eq!(jobs(&answer), [("one".to_owned(), "submitted")]);
}

#[test]
fn a_position_that_is_kept_no_more_is_said_to_be() {
    let mut world = World::new("");
    let begin = world.read(ADA, None).last;
    let id = world.submit(ADA, "one").0;
    for _ in 0..KEPT_MAX {
        world.apply(&event_of_job(id));
    }
    assert_eq!(world.changes.kept.len(), KEPT_MAX);
    let reset = world.read(ADA, Some(begin));
    assert!(reset.reset && reset.changes.is_empty());
    assert!(!world.read(ADA, Some(reset.last)).reset);
    // The oldest that is kept is no more, and what it was before a restart is not either.
    let oldest = world.changes.forgotten;
    let mut after = oldest;
    let mut count = 0;
    loop {
        let answer = world.read(ADA, Some(after));
        count += answer.changes.len();
        after = answer.last;
        if !answer.more {
            break;
        }
    }
    assert_eq!(count, KEPT_MAX);
    let future = ChangePosition::behind(world.position + 1);
    assert!(world.read(ADA, Some(future)).reset);
    assert!(
        Changes::new(9)
            .read(
                &world.state,
                (&identity(0), &View::of(&world.state, &identity(0))),
                ChangePosition::behind(8)
            )
            .reset
    );
    assert!(world.changes.bytes <= KEPT_BYTES_MAX);
}

#[test]
fn texts_of_users_are_short_and_bounded_in_sum() {
    assert_eq!(begin_of(&"ä".repeat(100)), "ä".repeat(TEXT_BYTES / 2));
    assert_eq!(begin_of("short"), "short");
    let mut world = World::new("");
    let id = world.submit(ADA, "x").0;
    let mut spec = (*world.state.jobs[&JobId(id)].spec).clone();
    spec.account = Some("a".repeat(1024));
    spec.owner = Owner {
        uid: ADA,
        user: "u".repeat(1024),
        ..Owner::default()
    };
    world.apply(&Event::JobChanged {
        id: JobId(id),
        change: JobChange::Spec(Arc::new(spec)),
        at: Timestamp(2_000),
    });
    for _ in 0..KEPT_MAX {
        world.apply(&event_of_job(id));
    }
    assert!(world.changes.bytes <= KEPT_BYTES_MAX);
    assert!(world.changes.kept.len() < KEPT_MAX);
}

/// What the writer and the journal have to do with it is nothing: there is no way from here to them. What the replica does
/// for 200 pages is counted.
#[test]
fn clients_that_see_the_same_cost_one_answer() {
    let mut world = World::new("");
    let begin = world.read(ADA, None).last;
    let mut pages: Vec<Inbox> = (0..200)
        .map(|page| world.ask(5_000 + page, Some(begin), true))
        .collect();
    world.changes.encoded = 0;
    // Nothing has changed: nobody is looked after, and the replica sleeps until a message comes.
    assert_eq!(world.changes.due_in(Instant::now()), None);
    for at in 0..50 {
        world.submit(ADA, &format!("job{at}"));
    }
    assert!(world.changes.due_in(Instant::now()).is_some());
    world.pass_on();
    assert_eq!(world.changes.encoded, 1);
    for page in &mut pages {
        assert_eq!(answer(page).unwrap().changes.len(), 50);
    }
    assert!(world.changes.waiting.is_empty());
    // However often something changes, clients are looked after no more often than the pace says.
    let _page = world.ask(ADA, Some(ChangePosition::behind(world.position)), true);
    world.submit(ADA, "next");
    let now = Instant::now();
    world.changes.looked_after = Some(now);
    assert_eq!(world.changes.due_in(now), Some(PACE));
    assert_eq!(world.changes.due_in(now + PACE), Some(Duration::ZERO));
}

#[test]
fn who_waits_is_bounded_and_forgotten_when_gone() {
    let mut world = World::new("");
    let begin = world.read(ADA, None).last;
    let kept: Vec<Inbox> = (0..WAITING_OF_ONE)
        .map(|_| world.ask(ADA, Some(begin), true))
        .collect();
    let refused = world.ask(ADA, Some(begin), true).try_recv().unwrap();
    let refused = frame::decode::<Response>(&refused[4..]).unwrap();
    assert!(matches!(refused, Response::Refused(refusal) if refusal.code == RefusalCode::Busy));
    assert!(world.ask(BOB, Some(begin), true).try_recv().is_none());
    drop(kept);
    assert!(world.ask(ADA, Some(begin), true).try_recv().is_none());
    assert!(world.changes.waiting.len() <= 2);
}

#[test]
fn who_sees_nothing_for_long_gets_a_position_that_is_kept() {
    let mut world = World::new("jobs");
    let id = world.submit(ADA, "one").0;
    let begin = world.read(BOB, None).last;
    let mut waiting = world.ask(BOB, Some(begin), true);
    for _ in 0..=UNSEEN_MAX {
        world.apply(&event_of_job(id));
        if world.position.is_multiple_of(500) {
            world.pass_on();
        }
    }
    world.pass_on();
    let answer = answer(&mut waiting).unwrap();
    assert!(answer.changes.is_empty() && !answer.reset && answer.last > begin);
}
