//! Turns that fail: real writers on journals in memory, with a replica that does what the real one does for them.

mod reports;
mod room;

use super::queue::{Cost, MessageSource, NODES_COST_MAX, TURN_COST_MAX};
use super::*;
use crate::fault;
use crate::recover::{self, ExcludedJobs, recover};
use muster_core::event::Event;
use muster_journal::{MemStorage, Options};
use muster_model::command::{Identity, JobSelection, JobTarget};
use muster_model::ids::{Attempt, BlobId, JobId};
use muster_model::job::JobState;
use muster_model::node::NodeInfo;
use muster_model::spec::JobSpec;
use muster_proto::node::{NodeHello, NumberedReport, Report};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};

const CONF: &str = "ClusterName=t\nSlurmctldHost=h\nScronParameters=enable\nNodeName=n1 CPUs=4 RealMemory=1000 State=UNKNOWN\n\
                    PartitionName=p Nodes=n1 Default=YES State=UP\n";

/// A writer, its journal, and its replica.
struct World {
    storage: MemStorage,
    writer: Writer,
    replica: Arc<Mutex<State>>,
    to_replica: Arc<Mutex<Receiver<ToReplica>>>,
    dir: PathBuf,
    now: Timestamp,
}

/// Takes what the writer sent to the replica.
fn follow(replica: &Mutex<State>, inbox: &Mutex<Receiver<ToReplica>>) {
    let mut state = replica.lock().unwrap_or_else(PoisonError::into_inner);
    let inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
    for message in inbox.try_iter() {
        if let ToReplica::Batch { events, notes, .. } = message {
            events.iter().for_each(|event| state.apply(event));
            notes.iter().for_each(|note| state.note(note));
        }
    }
}

fn options() -> Options {
    Options {
        segment_bytes: 1 << 20,
        ahead_bytes: 0,
        max_record_bytes: 64 << 10,
        keep_snapshots: 2,
    }
}

/// What the writer logs is seen when a test fails.
struct ToStderr;

impl log::Log for ToStderr {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        eprintln!("{}: {}", record.level(), record.args());
    }

    fn flush(&self) {}
}

impl World {
    fn new(name: &str) -> World {
        fault::arm();
        if log::set_logger(&ToStderr).is_ok() {
            log::set_max_level(log::LevelFilter::Info);
        }
        let storage = MemStorage::new();
        let recovered = recover(Arc::new(storage.clone()), "t", options(), |_, _, _| {}).unwrap();
        let (send, receive) = channel();
        let to_replica = Arc::new(Mutex::new(receive));
        let replica = Arc::new(Mutex::new(recovered.state.clone()));
        let dir = std::env::temp_dir().join(format!("muster-writer-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let writer = Writer::new(WriterSetup {
            state: recovered.state,
            log: Box::new(recovered.log),
            replica: send,
            keys: Keys::from_bytes([7; 64]),
            stats: Arc::new(Stats::default()),
            accounted: Box::new(|| u64::MAX),
            reserve: DiskReserve::new(PathBuf::from("/nonexistent")),
            stopwatch: Box::new(|| Duration::ZERO),
        });
        let (state, inbox) = (Arc::clone(&replica), Arc::clone(&to_replica));
        let rebuild = move || {
            follow(&state, &inbox);
            Some(state.lock().unwrap_or_else(PoisonError::into_inner).clone())
        };
        let mut world = World {
            storage,
            writer: writer
                .rebuilt_by(Box::new(rebuild))
                .with_quarantine(Quarantine::new(&dir)),
            replica,
            to_replica,
            dir,
            now: Timestamp(1_000_000),
        };
        let (config, _) = muster_conf::load_text(Path::new("/t/slurm.conf"), CONF);
        let configure = ToWriter::Configure {
            config: Arc::new(config.cluster(&[], &|_| None)),
            settings: Box::default(),
            keep: KeptPartitions::All,
            done: None,
        };
        world.turns(vec![configure]);
        world
    }

    /// Turns until there is nothing left to do.
    fn turns(&mut self, messages: Vec<ToWriter>) -> NextAction {
        let mut messages = messages;
        for _ in 0..100 {
            self.now = self.now.plus_ms(1);
            let after = self.writer.turn(messages.drain(..), self.now);
            if after != NextAction::Again {
                follow(&self.replica, &self.to_replica);
                return after;
            }
        }
        panic!("the writer does not come to rest");
    }

    /// Registers the node; what is sent to it.
    fn register(&mut self, generation: u64) -> tokio::sync::mpsc::UnboundedReceiver<ToLink> {
        let (hello, receive) = hello(generation);
        self.turns(vec![hello]);
        receive
    }

    fn names(&self) -> Vec<String> {
        let jobs = self.writer.state().jobs.values();
        jobs.map(|job| job.spec.name.clone()).collect()
    }

    fn quarantined(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.dir.join("quarantine"));
        let texts = files.into_iter().flatten().flatten();
        texts
            .map(|file| std::fs::read_to_string(file.path()).unwrap())
            .collect()
    }

    /// What a restart makes of the journal.
    fn recovered(&self) -> State {
        let storage = Arc::new(self.storage.crash(muster_journal::Crash::Process));
        recover(storage, "t", options(), |_, _, _| {})
            .unwrap()
            .state
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The registration of the node on a connection of its own; what is sent to it there.
fn hello(generation: u64) -> (ToWriter, tokio::sync::mpsc::UnboundedReceiver<ToLink>) {
    let (send, receive) = tokio::sync::mpsc::unbounded_channel();
    let (answer, _) = oneshot::channel();
    let hello = NodeHello {
        name: "n1".to_owned(),
        info: NodeInfo {
            cpus: 4,
            memory_mib: 1000,
            ..NodeInfo::default()
        },
        present: Vec::new(),
        key: Vec::new().into(),
        launcher_key: Vec::new().into(),
        dynamic: None,
    };
    let hello = ToWriter::NodeHello {
        hello: Box::new(hello),
        link: Link { generation, send },
        answer,
    };
    (hello, receive)
}

/// A hello that waited while a newer one was decided took over the node, whose agent has left that connection.
#[test]
fn a_registration_gives_way_to_newer_ones_only() {
    let mut world = World::new("older");
    let node = NodeIdx(0);
    let _second = world.register(2);
    assert!(world.writer.is_current(node, 2));
    let mut first = world.register(1);
    assert!(world.writer.is_current(node, 2));
    assert!(first.try_recv().is_err());
    let _third = world.register(3);
    assert!(world.writer.is_current(node, 3));
}

/// Somebody who connects as a node beside it acknowledges nothing in its name: it would forget what it has yet to report.
#[test]
fn reports_of_another_connection_acknowledge_nothing() {
    let mut world = World::new("acks");
    let mut first = world.register(1);
    let report = NumberedReport {
        seq: u64::MAX,
        job: JobId(1),
        attempt: Attempt(1),
        report: Report::Released,
    };
    let reports = ToWriter::Reports {
        node: NodeIdx(0),
        generation: 1,
        reports: vec![report],
    };
    // Both wait for the same turn.
    let (again, mut second) = hello(2);
    world.turns(vec![reports, again]);
    let acks = |link: &mut tokio::sync::mpsc::UnboundedReceiver<ToLink>| {
        let sent = std::iter::from_fn(|| link.try_recv().ok());
        sent.filter(|message| matches!(message, ToLink::Ack(_)))
            .count()
    };
    assert_eq!((acks(&mut first), acks(&mut second)), (0, 0));
}

fn bob() -> Identity {
    Identity {
        uid: 1000,
        gid: 1000,
        user: "bob".to_owned(),
        group: "bob".to_owned(),
        ..Identity::default()
    }
}

/// The same as somebody else's.
fn of(uid: u32, message: ToWriter) -> ToWriter {
    match message {
        ToWriter::User { command, reply, .. } => ToWriter::User {
            identity: Identity { uid, ..bob() },
            command,
            reply,
        },
        other => other,
    }
}

fn submission(name: &str, blob: usize) -> (ToWriter, oneshot::Receiver<Reply>) {
    let script = BlobId([u8::try_from(blob % 251).unwrap(); 32]);
    let spec = JobSpec {
        name: name.to_owned(),
        script: Some(script),
        work_dir: "/tmp".to_owned(),
        ..JobSpec::default()
    };
    let (reply, answer) = oneshot::channel();
    let message = ToWriter::User {
        identity: bob(),
        command: Box::new(UserCommand::Submit {
            spec: Box::new(spec),
            blobs: vec![(
                script,
                format!("#!{}", "#".repeat(blob)).into_bytes().into(),
            )],
            test_only: false,
        }),
        reply: reply.into(),
    };
    (message, answer)
}

fn is_accepted(answer: &mut oneshot::Receiver<Reply>) -> bool {
    match answer.try_recv().unwrap() {
        Reply::Submitted { .. } => true,
        Reply::Refused(_) => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_command_whose_decision_panics_is_refused_and_the_turn_goes_on() {
    let mut world = World::new("decide");
    let (before, mut first) = submission("before", 10);
    let (poison, mut second) = submission("panic-in-decide", 10);
    let (after, mut third) = submission("after", 10);
    assert_eq!(world.turns(vec![before, poison, after]), NextAction::Sleep);
    assert!(is_accepted(&mut first) && is_accepted(&mut third));
    assert!(!is_accepted(&mut second));
    assert_eq!(world.names(), ["before", "after"]);
    let kept = world.quarantined();
    assert_eq!(kept.len(), 1);
    assert!(kept[0].contains("user bob (uid 1000)") && kept[0].contains("injected in decide"));
}

#[test]
fn a_turn_that_panics_half_way_is_decided_again_without_its_culprit() {
    let mut world = World::new("apply");
    let mut link = world.register(1);
    while link.try_recv().is_ok() {}
    let digest = world.writer.state().digest();
    assert_eq!(digest, world.replica.lock().unwrap().digest());
    let report = ToWriter::Reports {
        node: NodeIdx(0),
        generation: 1,
        reports: vec![NumberedReport {
            seq: 7,
            job: JobId(99),
            attempt: Attempt(1),
            report: Report::Released,
        }],
    };
    let (before, mut first) = submission("before", 10);
    let (poison, mut second) = submission("panic-in-apply", 10);
    let (after, mut third) = submission("after", 10);
    assert_eq!(
        world.turns(vec![report, before, poison, after]),
        NextAction::Sleep
    );
    assert!(is_accepted(&mut first) && is_accepted(&mut third));
    assert!(!is_accepted(&mut second));
    assert_eq!(world.names(), ["before", "after"]);
    assert_eq!(world.quarantined().len(), 1);
    // The report was not acknowledged: its agent connects again and repeats it.
    let sent: Vec<ToLink> = std::iter::from_fn(|| link.try_recv().ok()).collect();
    assert!(
        matches!(sent[..], [ToLink::Replaced]),
        "and no acknowledgement"
    );
    let mut link = world.register(2);
    assert!(matches!(link.try_recv(), Ok(ToLink::Welcome(..))));
    // The state in memory is the one that the journal gives.
    assert_eq!(world.writer.state().digest(), world.recovered().digest());
}

fn states(world: &World) -> Vec<(String, JobState)> {
    let jobs = world.writer.state().jobs.values();
    jobs.map(|job| (job.spec.name.clone(), job.state)).collect()
}

#[test]
fn a_job_over_which_planning_panics_is_cancelled() {
    let mut world = World::new("schedule");
    let (poison, mut first) = submission("panic-in-schedule", 10);
    let (other, mut second) = submission("other", 10);
    world.turns(vec![poison, other]);
    assert!(is_accepted(&mut first) && is_accepted(&mut second));
    // It would start now. The agents connect again after the turn that failed.
    let mut link = world.register(1);
    assert!(matches!(link.try_recv(), Err(_) | Ok(ToLink::Replaced)));
    let _link = world.register(2);
    assert_eq!(
        states(&world),
        [
            ("panic-in-schedule".to_owned(), JobState::Cancelled),
            ("other".to_owned(), JobState::Running)
        ]
    );
    assert_eq!(world.writer.state().digest(), world.recovered().digest());
}

#[test]
fn a_submission_over_which_planning_panics_is_refused() {
    let mut world = World::new("plan");
    let _link = world.register(1);
    let (poison, mut first) = submission("panic-in-schedule", 10);
    let (other, mut second) = submission("other", 10);
    world.turns(vec![poison, other]);
    assert!(!is_accepted(&mut first) && is_accepted(&mut second));
    let _link = world.register(2);
    assert_eq!(states(&world), [("other".to_owned(), JobState::Running)]);
    assert_eq!(world.quarantined().len(), 1);
}

#[test]
fn a_turn_that_the_journal_does_not_take_is_answered_and_dropped() {
    let mut world = World::new("record");
    let (before, mut first) = submission("before", 10);
    let (poison, mut second) = submission("large", 80 << 10);
    let (after, mut third) = submission("after", 11);
    assert_eq!(world.turns(vec![before, poison, after]), NextAction::Sleep);
    assert!(is_accepted(&mut first) && is_accepted(&mut third));
    match second.try_recv().unwrap() {
        Reply::Refused(refusal) => assert!(refusal.detail.contains("its record"), "{refusal}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(world.names(), ["before", "after"]);
    assert_eq!(world.writer.state().digest(), world.recovered().digest());
}

#[test]
fn an_oversized_turn_does_not_block_the_others_on_a_full_disk() {
    let mut world = World::new("oversized");
    let used = world.storage.used();
    world.storage.set_capacity(Some(used + (1 << 20)));
    let large: Vec<_> = (0..30)
        .map(|n| submission("large", (60 << 10) + n))
        .collect();
    let (mut messages, mut answers): (Vec<_>, Vec<_>) = large.into_iter().unzip();
    let (small, mut accepted) = submission("small", 10);
    messages.push(small);
    assert_eq!(world.turns(messages), NextAction::Sleep);
    assert!(is_accepted(&mut accepted));
    for answer in &mut answers {
        match answer.try_recv().unwrap() {
            Reply::Refused(refusal) => assert_eq!(refusal.code, RefusalCode::StorageFull),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_controller_with_a_full_disk_stops_when_asked_to() {
    let mut world = World::new("full");
    world.storage.set_capacity(Some(world.storage.used()));
    let (small, mut answer) = submission("small", 10);
    assert_eq!(world.turns(vec![small]), NextAction::Full);
    assert_eq!(
        world.turns(Vec::new()),
        NextAction::Full,
        "it waits for space"
    );
    assert_eq!(
        world.turns(vec![ToWriter::Stop { nodes: false }]),
        NextAction::Stop
    );
    assert!(answer.try_recv().is_err(), "nothing was acknowledged");
}

/// The last messages that a connection got before it ended.
fn stops(mut receive: tokio::sync::mpsc::UnboundedReceiver<ToLink>) -> Vec<bool> {
    let messages = std::iter::from_fn(|| receive.try_recv().ok());
    messages
        .filter_map(|message| match message {
            ToLink::Stop(agents) => Some(agents),
            _ => None,
        })
        .collect()
}

/// SIGTERM may come while `scontrol shutdown` is carried out.
#[test]
fn agents_stop_whatever_else_stops_the_controller() {
    let stop = |nodes| ToWriter::Stop { nodes };
    for order in [[true, false], [false, true]] {
        let mut world = World::new("stops");
        let link = world.register(1);
        assert_eq!(world.turns(order.map(stop).into()), NextAction::Stop);
        assert_eq!(stops(link), [true], "{order:?}");
        let mut world = World::new("stops-full");
        let link = world.register(1);
        world.storage.set_capacity(Some(world.storage.used()));
        let (small, _) = submission("small", 10);
        assert_eq!(world.turns(vec![small]), NextAction::Full);
        assert_eq!(world.turns(order.map(stop).into()), NextAction::Stop);
        assert_eq!(stops(link), [true], "{order:?}, with a full disk");
    }
}

#[test]
fn the_writer_gives_the_reason_when_the_disk_fails() {
    let mut world = World::new("sync");
    // The write, then the sync.
    world.storage.fail_at(2, std::io::ErrorKind::Other);
    let (small, mut answer) = submission("small", 10);
    assert_eq!(world.turns(vec![small]), NextAction::Stop);
    assert!(world.writer.fatal.as_ref().unwrap().contains("sync failed"));
    assert!(answer.try_recv().is_err());
}

#[test]
fn a_controller_starts_without_a_job_that_cannot_be_replayed() {
    let mut world = World::new("replay");
    let submit = |world: &mut World, name| {
        let (message, mut answer) = submission(name, 10);
        world.turns(vec![message]);
        match answer.try_recv().unwrap() {
            Reply::Submitted { id, .. } => id,
            other => panic!("{other:?}"),
        }
    };
    let first = submit(&mut world, "first");
    let poison = submit(&mut world, "panic-in-replay");
    let third = submit(&mut world, "third");
    let target = JobTarget {
        job: poison,
        tasks: None,
        component: None,
    };
    let (reply, _) = oneshot::channel();
    let selection = JobSelection {
        targets: vec![target],
        ..JobSelection::default()
    };
    world.turns(vec![ToWriter::User {
        identity: Identity::default(),
        command: Box::new(UserCommand::Cancel { selection }),
        reply: reply.into(),
    }]);
    let open = || {
        let storage = Arc::new(world.storage.crash(muster_journal::Crash::Process));
        recover::open(storage, "t", options()).unwrap()
    };
    let refused = open().replay(ExcludedJobs::default(), |_, _, _| {});
    let text = format!("{:#}", refused.err().unwrap());
    assert!(
        text.contains(&format!("JobSubmitted of job {poison}"))
            && text.contains(&format!("--without-job={poison}")),
        "{text}"
    );
    let recovered = open()
        .replay(ExcludedJobs::jobs([poison]), |state, _, _| {
            assert!(!state.jobs.contains_key(&poison));
        })
        .unwrap();
    let left: Vec<JobId> = recovered.state.jobs.keys().copied().collect();
    assert_eq!(left, [first, third]);
    assert!(recovered.state.next_job_id > third.0);
    let rows: Vec<_> = recovered
        .withdrawn
        .into_iter()
        .map(|w| w.change(Timestamp(5)))
        .collect();
    match &rows[..] {
        [muster_acct::AccountingChange::Job(row)] => {
            assert_eq!((row.key.job, row.state), (poison, JobState::Cancelled));
            assert!(row.end.is_some());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_running_job_that_is_left_out_of_a_snapshot_gives_its_cpus_back() {
    let mut world = World::new("snapshot");
    let _link = world.register(1);
    let (message, _) = submission("runs", 10);
    world.turns(vec![message]);
    let id = JobId(1);
    assert_eq!(
        world.writer.state().jobs.get(&id).map(|j| j.state),
        Some(JobState::Running)
    );
    let position = world.writer.log.last_position();
    let mut snapshot = world.writer.log.start_snapshot(position).unwrap();
    let mut bytes = Vec::new();
    world.writer.state().encode_snapshot(&mut bytes);
    std::io::Write::write_all(&mut snapshot, &bytes).unwrap();
    let finished = snapshot.finish().unwrap();
    world.writer.log.finish_snapshot(finished).unwrap();
    let storage = Arc::new(world.storage.crash(muster_journal::Crash::Process));
    let opened = recover::open(storage, "t", options()).unwrap();
    let recovered = opened
        .replay(ExcludedJobs::jobs([id]), |_, _, _| {})
        .unwrap();
    assert!(recovered.state.jobs.is_empty() && recovered.state.active.is_empty());
    let node = &recovered.state.nodes[0];
    assert!(node.jobs.is_empty());
    assert_eq!((node.free_cpus.len(), node.used_mib), (4, 0));
    assert_eq!(recovered.withdrawn.len(), 1);
}

/// One user sends more than a turn has room for; another's command comes last, and root's after that.
#[test]
fn a_flood_of_one_user_delays_no_other_and_root_goes_first() {
    let mut world = World::new("flood");
    let mut flood = Vec::new();
    let mut answers = Vec::new();
    for _ in 0..2 * TURN_COST_MAX {
        let (message, answer) = submission("flood", 10);
        flood.push(message);
        answers.push(answer);
    }
    let (small, mut other) = submission("other", 10);
    let (urgent, mut root) = submission("root", 10);
    flood.extend([of(1001, small), of(0, urgent)]);
    world.now = world.now.plus_ms(1);
    let after = world.writer.turn(flood.into_iter(), world.now);
    assert_eq!(after, NextAction::Again);
    assert!(is_accepted(&mut other) && is_accepted(&mut root));
    let names = world.names();
    assert_eq!(names[0], "root");
    let place = names.iter().position(|name| name == "other");
    assert!(place.is_some_and(|place| place <= 2), "{place:?}");
    let answered = answers.iter_mut().filter_map(|a| a.try_recv().ok()).count();
    assert!(
        answered > 0 && answered < TURN_COST_MAX as usize,
        "{answered}"
    );
    // The others' turn comes with the next ones, in order.
    assert_eq!(world.turns(Vec::new()), NextAction::Sleep);
    assert_eq!(world.names().len(), 2 + 2 * TURN_COST_MAX as usize);
}

/// A second for each look at the time: that is what each command takes.
fn slow_stopwatch() -> Stopwatch {
    let looks = std::cell::Cell::new(0);
    Box::new(move || {
        looks.set(looks.get() + 1);
        Duration::from_secs(looks.get())
    })
}

/// A command that takes long leaves no room in its turn for others, of whomever, and another user's is next.
#[test]
fn a_user_pays_for_the_time_that_commands_take() {
    let mut world = World::new("time");
    world.writer.stopwatch = slow_stopwatch();
    let mut messages = Vec::new();
    for uid in [1001, 1001, 1001, 1001, 1002, 1002] {
        messages.push(of(uid, submission(&uid.to_string(), 10).0));
    }
    let mut messages = messages.into_iter();
    for jobs in 1..=6 {
        world.now = world.now.plus_ms(1);
        let after = world.writer.turn(messages.by_ref(), world.now);
        assert_eq!(world.names().len(), jobs, "one command a turn");
        assert_eq!(after == NextAction::Again, jobs < 6);
    }
    let order = world.names();
    assert_eq!(order, ["1001", "1002", "1001", "1002", "1001", "1001"]);
}

/// Ordinary commands are charged for what they change: that is more than for the time that they take.
#[test]
fn time_orders_and_bytes_of_events_have_a_price() {
    let none = Cost {
        events: &[],
        orders: 0,
        time: Duration::ZERO,
    };
    assert_eq!(none.total(0), 1);
    let orders = Cost {
        orders: 1000,
        ..none
    };
    assert_eq!(orders.total(0), 1001);
    let quick = Cost {
        orders: 3,
        time: Duration::from_micros(40),
        ..none
    };
    assert_eq!(quick.total(0), 4);
    let slow = Cost {
        time: Duration::from_secs(13),
        ..none
    };
    assert_eq!(slow.total(0), 1_300_000);
    let bytes = Arc::new(vec![b'#'; 1 << 20].into());
    let id = BlobId([1; 32]);
    let stored = [Event::BlobStored { id, bytes }];
    let long = Cost {
        events: &stored,
        ..none
    };
    assert_eq!(long.total(0), 2 + 256);
}

/// The replica and a restart know how long the journal has become.
#[test]
fn the_length_of_the_journal_is_known() {
    let mut world = World::new("length");
    let (message, _answer) = submission("long", 60 << 10);
    world.now = world.now.plus_ms(1);
    world.writer.turn([message].into_iter(), world.now);
    let bytes: u64 = {
        let inbox = world.to_replica.lock().unwrap();
        assert!(world.writer.replica.waiting_bytes() > 60 << 10);
        let all: Vec<ToReplica> = inbox.try_iter().collect();
        let lengths = all.iter().map(|message| match message {
            ToReplica::Batch { bytes, .. } => *bytes,
            _ => 0,
        });
        lengths.sum()
    };
    assert!((60 << 10..70 << 10).contains(&bytes), "{bytes}");
    assert_eq!(world.writer.replica.waiting_bytes(), 0);
    let storage = Arc::new(world.storage.crash(muster_journal::Crash::Process));
    let recovered = recover(storage, "t", options(), |_, _, _| {}).unwrap();
    assert!(recovered.pace.bytes() > bytes);
}

/// What a command brings counts as much as what it makes: large submissions do not crowd out small ones.
#[test]
fn a_user_pays_for_the_size_of_what_he_submits() {
    let mut world = World::new("sizes");
    let many =
        |uid, blob| (0..20).map(move |at| of(uid, submission(&format!("{uid}-{at}"), blob).0));
    let messages: Vec<ToWriter> = many(1001, 60 << 10).chain(many(1002, 10)).collect();
    assert_eq!(world.turns(messages), NextAction::Sleep);
    // One of the large ones may be first; all the small ones cost less than six of them.
    let names = world.names();
    let last_small = names.iter().rposition(|name| name.starts_with("1002"));
    assert!(last_small.is_some_and(|place| place < 20 + 6), "{names:?}");
}
