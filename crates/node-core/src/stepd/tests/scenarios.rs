//! What happens to a step when it goes well, and when processes, connections and tasks fail.

use super::*;
use crate::messages::AgentToStepd;
use crate::signals::SIGCONT;
use crate::stepd::upward::READERS_MAX;
use muster_proto::frame;

const STEP: StepNo = StepNo(0);
const ALL: u32 = u32::MAX;

/// Several tasks.
fn tasks(tasks: u32) -> Kind {
    Kind {
        tasks,
        ..Kind::default()
    }
}

fn with_host() -> Kind {
    Kind {
        has_host: true,
        ..tasks(2)
    }
}

fn direct() -> Kind {
    Kind {
        is_direct: true,
        ..tasks(1)
    }
}

fn in_tree() -> Kind {
    Kind {
        has_tree: true,
        ..tasks(1)
    }
}

impl World {
    /// A step whose srun has come.
    fn running(kind: Kind) -> World {
        let mut world = World::with_step(kind);
        world.connect(match kind.has_tree {
            true => attach(false, 0),
            false => hello(),
        });
        world.wake_up(ALL);
        world
    }

    /// All tasks end so, and what they say is delivered.
    fn end_tasks(&mut self, status: i32) {
        for pid in self.tasks() {
            self.end(pid, status);
        }
        self.wake_up(ALL);
        self.wake_up(ALL);
    }

    fn has_received(&self, wanted: impl Fn(&FromStepd) -> bool) -> usize {
        self.received.iter().filter(|m| wanted(m)).count()
    }

    fn end_of(&self, step: StepNo) -> StepEnd {
        self.files[&result_file(step)].clone()
    }

    fn later(&mut self, wait_ms: u64) {
        self.now.mono_ms += wait_ms;
        self.deliver(Event::TimeUp("2026-01-01T00:00:00".to_owned()));
        self.end_wakeup();
    }

    fn host(&mut self, event: HostEvent) {
        self.deliver(Event::Host(event));
        self.end_wakeup();
    }

    fn agent_gives(&mut self, step: u32, kind: Kind) {
        self.give(StepNo(step), kind, StepSender::Agent);
    }
}

#[test]
fn a_step_runs_and_its_daemon_gets_the_next() {
    let mut world = World::running(tasks(1));
    assert!(
        world.was_started_sent,
        "a task that is alone starts at once"
    );
    world.end_tasks(256);
    assert_eq!(world.exits.len(), 1);
    assert_eq!(world.closed_sent, 1);
    assert_eq!(world.sent, BTreeSet::from([STEP]));
    let end = world.last_end.take().unwrap();
    assert_eq!((end.state, end.exit.code), (JobState::Failed, 1));
    assert!(world.stepd.is_idle() && world.stepd.has_unread());
    world.agent_gives(1, tasks(1));
    world.connect(hello());
    world.wake_up(ALL);
    world.end_tasks(0);
    assert_eq!(world.reported.len(), 2);
    assert_eq!(world.last_end.unwrap().state, JobState::Completed);
}

#[test]
fn tasks_are_let_go_when_all_are_prepared() {
    let mut world = World::running(tasks(3));
    for count in [1, 1, 1] {
        assert!(!world.was_started_sent);
        world.prepare(count);
        world.wake_up(ALL);
    }
    assert!(world.was_started_sent);
    // One that ends before it is prepared is not waited for.
    let mut world = World::running(tasks(2));
    let first = world.tasks()[0];
    world.end(first, 256);
    world.wake_up(ALL);
    assert!(!world.was_started_sent);
    world.prepare(1);
    world.wake_up(ALL);
    assert!(world.was_started_sent);
}

#[test]
fn tasks_wait_for_their_host() {
    let mut world = World::running(with_host());
    world.prepare(2);
    world.wake_up(ALL);
    assert!(!world.was_started_sent);
    world.is_host_ready = true;
    world.host(HostEvent::Ready);
    assert!(world.was_started_sent);
    world.end_tasks(0);
    assert!(world.order.is_some(), "the host has not ended");
    let host = world.pids(|p| p.role == Role::Host)[0];
    world.end(host, 0);
    world.wake_up(ALL);
    assert_eq!(world.end_of(STEP).state, JobState::Completed);
    assert!(world.is_over, "a daemon that had a host gets no other step");
}

#[test]
fn a_host_that_fails_fails_the_step() {
    let mut world = World::with_step(with_host());
    world.host(HostEvent::Failed("no libpmix".to_owned()));
    assert!(world.order.is_some(), "srun is to learn why");
    world.connect(hello());
    world.wake_up(ALL);
    let is_line =
        |m: &FromStepd| matches!(m, FromStepd::NodeMessage(line) if line.contains("no libpmix"));
    assert_eq!(world.has_received(is_line), 1);
    assert_eq!(world.signals.last(), Some(&SIGKILL));
    world.wake_up(ALL);
    let host = world.pids(|p| p.role == Role::Host)[0];
    world.end(host, 0);
    world.wake_up(ALL);
    let end = world.end_of(STEP);
    assert_eq!((end.state, end.exit.code), (JobState::Failed, 1));
}

#[test]
fn of_a_message_of_a_host_few_lines_are_shown() {
    let mut world = World::running(with_host());
    world.host(HostEvent::Message("\n".repeat(1 << 20)));
    world.wake_up(ALL);
    let shown = world.has_received(|m: &FromStepd| matches!(m, FromStepd::NodeMessage(_)));
    assert_eq!(shown, 256);
}

#[test]
fn an_abort_ends_the_step_where_srun_does_not() {
    let mut world = World::running(with_host());
    world.prepare(2);
    world.is_host_ready = true;
    world.host(HostEvent::Ready);
    world.wake_up(ALL);
    let abort = HostEvent::Abort {
        rank: 1,
        status: 256,
        text: "N/A".to_owned(),
    };
    world.host(abort);
    let failed = |m: &FromStepd| {
        matches!(
            m,
            FromStepd::TaskFailed {
                task: 1,
                joined: true,
                ..
            }
        )
    };
    assert_eq!(world.has_received(failed), 1);
    assert!(world.signals.is_empty());
    world.later(2_000);
    assert_eq!(world.signals, [SIGTERM, SIGCONT, SIGKILL]);
    // One that is no success.
    assert_eq!(world.stepd.step.as_ref().unwrap().failed.unwrap().code, 1);
}

#[test]
fn a_task_that_leaves_the_others_waiting_is_reported() {
    let mut world = World::running(with_host());
    world.prepare(2);
    world.is_host_ready = true;
    world.host(HostEvent::Ready);
    world.wake_up(ALL);
    world.host(HostEvent::Connected(0));
    world.host(HostEvent::Connected(1));
    world.host(HostEvent::Finalized(1));
    world.end_tasks(0);
    let failed = |m: &FromStepd| matches!(m, FromStepd::TaskFailed { task: 0, .. });
    assert_eq!(world.has_received(failed), 1);
    assert_eq!(
        world.has_received(|m| matches!(m, FromStepd::TaskJoinedMpi)),
        1
    );
    assert_eq!(
        world.has_received(|m| matches!(m, FromStepd::TaskFailed { .. })),
        1
    );
}

#[test]
fn a_time_limit_ends_the_step() {
    let mut world = World::running(tasks(1));
    let task = world.tasks()[0];
    world.processes.get_mut(&task).unwrap().ignores_term = true;
    let limit = StepdCommand::SetTimeLimit(Some(60), None);
    world.deliver(Event::Command(limit));
    world.later(59_999);
    assert!(world.signals.is_empty());
    world.later(1);
    assert_eq!(world.signals, [SIGTERM, SIGCONT]);
    let is_line = |m: &FromStepd| matches!(m, FromStepd::NodeMessage(line) if line.ends_with("DUE TO TIME LIMIT ***"));
    assert_eq!(world.has_received(is_line), 1);
    world.later(KILL_WAIT_MS - 1);
    assert_eq!(world.signals.len(), 2);
    world.later(1);
    assert_eq!(world.signals.last(), Some(&SIGKILL));
    world.wake_up(ALL);
    world.wake_up(ALL);
    assert_eq!(world.end_of(STEP).state, JobState::Timeout);
}

/// It was lost, and one of a job with this step only could not be repeated in time.
#[test]
fn a_signal_from_before_the_tasks_run_reaches_them() {
    let mut world = World::with_step(tasks(2));
    for signal in [10, 12, 10] {
        world.deliver(Event::Command(StepdCommand::SignalLater(signal, None)));
    }
    assert!(world.signals.is_empty());
    world.connect(hello());
    world.wake_up(ALL);
    assert!(world.signals.is_empty(), "tasks that wait for each other");
    world.prepare(2);
    world.wake_up(ALL);
    assert_eq!(world.signals, [12, 10]);
    world.deliver(Event::Command(StepdCommand::SignalLater(12, None)));
    assert_eq!(world.signals, [12, 10, 12]);
}

/// The daemon ended at once, and srun, which could not connect, reported a failure of the node.
#[test]
fn srun_learns_of_a_step_that_was_ended_before_it_connected() {
    let mut world = World::with_step(tasks(2));
    world.deliver(Event::Command(StepdCommand::EndStep(Some(STEP))));
    assert!(!world.is_over);
    world.connect(hello());
    world.wake_up(ALL);
    assert_eq!(world.started, 0);
    let is_end = |m: &FromStepd| matches!(m, FromStepd::Exited { exit, .. } if exit.signal == SIGTERM.unsigned_abs());
    assert_eq!(world.has_received(is_end), 2);
    world.wake_up(ALL);
    assert_eq!(world.end_of(STEP).state, JobState::Cancelled);
}

#[test]
fn a_step_that_was_ended_waits_for_its_srun_for_a_short_time() {
    let mut world = World::with_step(tasks(1));
    world.deliver(Event::Command(StepdCommand::EndStep(Some(STEP))));
    world.later(4_999);
    assert!(!world.is_over);
    world.later(1);
    assert_eq!(world.end_of(STEP).state, JobState::Cancelled);
}

#[test]
fn srun_fails_the_step_at_once() {
    let mut world = World::running(tasks(1));
    world.say(ToStepd::FailStep(ExitStatus { code: 9, signal: 0 }));
    world.wake_up(ALL);
    assert_eq!(world.signals, [SIGTERM, SIGCONT, SIGKILL]);
    world.wake_up(ALL);
    world.wake_up(ALL);
    let end = world.end_of(STEP);
    assert_eq!((end.state, end.exit.code), (JobState::Failed, 9));
}

#[test]
fn a_step_goes_with_its_srun() {
    let mut world = World::running(tasks(1));
    world.srun.as_mut().unwrap().is_gone = true;
    world.wake_up(ALL);
    assert_eq!(world.signals, [SIGTERM, SIGCONT]);
    world.wake_up(ALL);
    assert_eq!(world.end_of(STEP).state, JobState::Cancelled);
    assert!(world.is_over);
}

#[test]
fn a_step_whose_srun_does_not_come_is_over() {
    let mut world = World::with_step(tasks(1));
    world.later(29_999);
    assert!(!world.is_over);
    world.later(1);
    assert_eq!(world.started, 0);
    assert_eq!(world.end_of(STEP).state, JobState::Cancelled);
    assert_eq!(world.log, ["step 7.0: srun did not connect"]);
}

/// Each request of a few bytes had the daemon, which is root's, keep all output once more for a client that read nothing.
#[test]
fn what_is_asked_for_again_is_sent_once_until_it_is_read() {
    let mut world = World::running(in_tree());
    world.srun_reads = false;
    let before = world.frames_sent;
    for _ in 0..100 {
        world.deliver(Event::Client(ToStepd::Resend(Vec::new())));
    }
    assert_eq!(world.frames_sent - before, 1);
    // Once it has read, it gets the last that it has asked for.
    world.deliver(Event::Flushed);
    assert_eq!(world.frames_sent - before, 2);
    world.deliver(Event::Flushed);
    assert_eq!(world.frames_sent - before, 2);
}

/// The host is the user's: ten million ranks took 130 MB of root's daemon, and each node that it called lost was a line of the log.
#[test]
fn what_a_host_says_is_bounded() {
    let mut world = World::running(with_host());
    for rank in 0..200_000 {
        world.host(HostEvent::Connected(rank));
        world.host(HostEvent::Finalized(rank));
    }
    let log = world.log.len();
    for position in 0..1000 {
        world.host(HostEvent::PeerLost(0));
        world.host(HostEvent::PeerLost(position + 1000));
    }
    assert_eq!(world.log.len() - log, 1, "of a node that there is, once");
}

#[test]
fn only_srun_is_let_in() {
    let mut world = World::with_step(tasks(1));
    let greet = |world: &mut World, message: ToStepd, is_own: bool| {
        let client = ClientId(world.next_id());
        world.deliver(Event::Greeted {
            client,
            message,
            is_own,
        });
        client
    };
    let wrong = ToStepd::Hello(vec![0; 16].into(), Some(Versions::CLUSTER.greeting()));
    let stranger = greet(&mut world, wrong, true);
    assert_eq!(world.closed, [stranger]);
    // Who does not say which version it speaks is refused.
    let silent = greet(&mut world, ToStepd::Hello(KEY.to_vec().into(), None), false);
    assert_eq!(world.refused, [silent]);
    let other = greet(&mut world, ToStepd::Adopt(Some(VERSIONS.greeting())), false);
    assert_eq!(world.closed.last(), Some(&other));
    world.connect(hello());
    world.wake_up(ALL);
    assert!(world.was_started_sent);
    let second = greet(&mut world, hello(), false);
    assert_eq!(world.closed.last(), Some(&second));
}

#[test]
fn a_task_has_ended_when_its_epilog_has() {
    let mut world = World::running(Kind {
        has_epilog: true,
        ..tasks(1)
    });
    world.end_tasks(0);
    assert_eq!(world.exits.len(), 0);
    let epilog = world.pids(|p| matches!(p.role, Role::Epilog(_)))[0];
    world.end(epilog, 256);
    world.wake_up(ALL);
    assert_eq!(world.exits.len(), 1);
    assert_eq!(world.last_end.unwrap().state, JobState::Completed);
}

#[test]
fn what_a_task_leaves_behind_is_killed() {
    let mut world = World::running(tasks(1));
    let orphan = world.spawn(Role::Orphan, false).unwrap();
    world.outputs[0].holders.insert(orphan);
    world.end_tasks(0);
    assert!(world.processes.is_empty());
    assert_eq!(world.closed_sent, 1);
    assert!(
        world.reported.contains(&STEP),
        "and so there may be another"
    );
}

#[test]
fn a_daemon_that_has_something_left_gets_no_other_step() {
    let mut world = World::running(tasks(1));
    world.spawn(Role::Orphan, false).unwrap();
    let task = world.tasks()[0];
    world.end(task, 0);
    world.wake_up(ALL);
    assert!(world.is_over, "it is killed, and not collected");
    assert_eq!(world.end_of(STEP).state, JobState::Completed);
}

#[test]
fn srun_is_not_waited_for_where_the_step_was_ended() {
    let mut world = World::running(tasks(1));
    world.srun_reads = false;
    world.deliver(Event::Terminate);
    world.end_tasks(0);
    assert_eq!((world.closed_sent, world.is_over), (1, false));
    world.later(5_000);
    assert!(world.is_over);
    // Otherwise it has all the time in the world.
    let mut world = World::running(tasks(1));
    world.srun_reads = false;
    world.end_tasks(0);
    assert_eq!(world.stepd.deadline(), None);
}

#[test]
fn a_direct_step_is_closed_when_its_end_is_recorded() {
    let mut world = World::with_step(direct());
    let created = |m: &FromStepd| matches!(m, FromStepd::Created(_));
    assert!(created(&world.received[0]));
    let task = world.tasks()[0];
    world.end(task, 0);
    world.wake_up(ALL);
    assert_eq!((world.closed_sent, world.reported.len()), (1, 1));
    // Where it is not, srun learns of it from the agent.
    world.agent_gives(1, direct());
    world.launcher = None;
    let task = world.tasks()[0];
    world.end(task, 0);
    world.wake_up(1 << 4);
    assert_eq!((world.closed_sent, world.is_over), (0, true));
    assert!(world.is_known(StepNo(1)));
}

#[test]
fn ends_that_a_lost_launcher_has_not_read_are_in_files() {
    let mut world = World::running(tasks(1));
    world.end_tasks(0);
    world.agent_gives(1, tasks(1));
    world.connect(hello());
    world.wake_up(ALL);
    world.launcher = None;
    world.wake_up(ALL);
    assert_eq!(world.end_of(STEP).state, JobState::Completed);
    // Another takes its place, and is sent the end of the step that runs.
    let client = ClientId(world.next_id());
    world.deliver(Event::Greeted {
        client,
        message: ToStepd::Adopt(Some(VERSIONS.greeting())),
        is_own: true,
    });
    world.end_tasks(0);
    assert_eq!(world.launcher, Some(vec![StepNo(1)]));
    // Without a launcher a daemon has nothing to wait for.
    world.launcher = None;
    world.wake_up(ALL);
    assert!(world.is_over && world.is_known(StepNo(1)));
}

#[test]
fn all_ends_that_a_lost_launcher_has_not_read_are_in_files() {
    let mut world = World::running(tasks(1));
    world.end_tasks(0);
    world.agent_gives(1, tasks(1));
    world.connect(hello());
    world.wake_up(ALL);
    world.end_tasks(0);
    assert_eq!(world.launcher, Some(vec![STEP, StepNo(1)]));
    world.launcher = None;
    world.wake_up(ALL);
    assert_eq!(world.files.len(), 2);
}

#[test]
fn an_end_that_was_read_is_in_no_file() {
    let mut world = World::running(tasks(1));
    world.end_tasks(0);
    world.launcher = Some(Vec::new());
    world.wake_up(ALL);
    assert!(!world.stepd.has_unread());
    world.launcher = None;
    world.wake_up(ALL);
    assert!(world.is_over && world.files.is_empty());
}

#[test]
fn agents_give_steps_of_their_job_only() {
    let mut world = World::running(tasks(1));
    world.end_tasks(0);
    world.agent_gives(1, with_host());
    assert!(world.stepd.is_idle());
    let mut other = next_step(StepNo(2), tasks(1));
    other.order.attempt.job = JobId(8);
    world.deliver(Event::StepGiven(Box::new(other), StepSender::Agent, None));
    assert!(world.stepd.is_idle());
    let mut as_root = next_step(StepNo(3), tasks(1));
    as_root.order.user.uid = 1;
    as_root.result = "/etc/passwd".to_owned();
    world.deliver(Event::StepGiven(Box::new(as_root), StepSender::Agent, None));
    let step = world.stepd.step.as_ref().unwrap();
    assert_eq!(step.order.user, ProcessIdentity::default());
    assert_eq!(step.result, result_file(StepNo(3)));
    assert_eq!(world.log.len(), 2, "{:?}", world.log);
}

/// srun left when its step was over, and the message that should end it was on its way while the agent gave the next.
#[test]
fn the_end_of_a_step_does_not_end_the_next_one_of_its_daemon() {
    let mut world = World::running(tasks(1));
    world.end_tasks(0);
    world.agent_gives(1, tasks(1));
    world.deliver(Event::Command(StepdCommand::EndStep(Some(STEP))));
    world.deliver(Event::Command(StepdCommand::SignalLater(10, Some(STEP))));
    world.deliver(Event::Command(StepdCommand::SetTimeLimit(
        Some(0),
        Some(STEP),
    )));
    world.connect(hello());
    world.wake_up(ALL);
    world.prepare(1);
    world.wake_up(ALL);
    assert!(world.signals.is_empty(), "{:?}", world.signals);
    // One without a number is for the step that runs.
    world.deliver(Event::Command(StepdCommand::EndStep(None)));
    assert_eq!(world.signals, [SIGTERM, SIGCONT]);
}

#[test]
fn a_step_that_is_given_early_follows() {
    let mut world = World::running(tasks(1));
    world.give(StepNo(1), tasks(1), StepSender::Launcher);
    // While a step runs, an agent gives none.
    world.agent_gives(2, tasks(1));
    world.end_tasks(0);
    assert_eq!(world.begun, BTreeSet::from([STEP, StepNo(1)]));
    assert!(world.order.is_some());
}

#[test]
fn nothing_is_lost_with_the_node_above() {
    let mut world = World::running(in_tree());
    assert!(world.has_below && world.was_started_sent);
    world.srun.as_mut().unwrap().is_gone = true;
    world.wake_up(ALL);
    assert!(
        world.signals.is_empty(),
        "srun has others to say that it goes"
    );
    world.end_tasks(0);
    assert_eq!(world.exits.len(), 0);
    world.connect(attach(true, world.seen));
    world.wake_up(ALL);
    assert_eq!((world.exits.len(), world.closed_sent), (1, 1));
    assert!(world.order.is_some(), "srun has not acknowledged that");
    world.say_seen();
    world.wake_up(ALL);
    assert!(world.order.is_some(), "those below are not over");
    world.lose_the_node_below(true);
    assert!(world.reported.contains(&STEP));
}

#[test]
fn srun_that_has_come_for_a_node_above_is_not_awaited_again() {
    let mut world = World::running(in_tree());
    for is_srun in [false, true] {
        assert!(world.signals.is_empty());
        world.connect(attach(is_srun, world.seen));
        world.wake_up(ALL);
        world.srun.as_mut().unwrap().is_gone = true;
        world.wake_up(ALL);
    }
    assert_eq!(world.signals, [SIGTERM, SIGCONT]);
}

#[test]
fn a_node_that_srun_does_not_come_to_ends_the_step() {
    let mut world = World::running(in_tree());
    world.srun.as_mut().unwrap().is_gone = true;
    world.wake_up(ALL);
    world.later(60_000);
    assert_eq!(world.signals, [SIGTERM, SIGCONT]);
}

#[test]
fn a_node_that_cannot_be_reached_is_reported() {
    let mut world = World::with_step(in_tree());
    world.lacks = true;
    world.connect(attach(true, 0));
    world.wake_up(ALL);
    assert_eq!(world.has_received(|m| *m == FromStepd::ChildLost(1)), 1);
}

#[test]
fn tasks_that_cannot_be_started_end_the_step() {
    let mut world = World::with_step(tasks(2));
    world.lacks = true;
    world.connect(hello());
    world.wake_up(ALL);
    let is_line = |m: &FromStepd| matches!(m, FromStepd::NodeMessage(line) if line.contains("cannot start tasks"));
    assert_eq!(world.has_received(is_line), 1);
    let one = ExitStatus { code: 1, signal: 0 };
    let fails =
        |m: &FromStepd| matches!(m, FromStepd::TaskFailed { task: 0, exit, .. } if *exit == one);
    assert_eq!(world.has_received(fails), 1);
    let end = world.end_of(STEP);
    assert_eq!((end.state, end.exit), (JobState::Failed, one));
}

impl World {
    fn say_seen(&mut self) {
        let seen = ToStepd::AcknowledgeFrom(0, self.seen);
        self.srun.as_mut().unwrap().queue.push_back(seen);
    }

    fn lose_the_node_below(&mut self, is_over: bool) {
        self.has_below = false;
        self.deliver(Event::BelowClosed {
            position: 1,
            is_over,
        });
        self.end_wakeup();
    }
}

impl World {
    /// Someone wants to read what tasks write, with this key.
    fn read_with(&mut self, key: &[u8]) -> ClientId {
        let client = ClientId(self.next_id());
        let greeting = Versions::CLUSTER.greeting();
        self.deliver(Event::Greeted {
            client,
            message: ToStepd::AttachReader(key.to_vec().into(), Some(greeting)),
            is_own: false,
        });
        client
    }
}

#[test]
fn readers_get_what_tasks_write_and_how_they_end() {
    let mut world = World::running(tasks(2));
    let output = |is_error| Event::Output {
        task: 1,
        is_error,
        bytes: b"text".to_vec().into(),
    };
    world.deliver(output(false));
    assert!(world.read.is_empty(), "nobody reads");
    let reader = world.read_with(&KEY);
    assert_eq!(world.readers, [reader]);
    let mut frames = Frames::default();
    frames.push(&world.reread);
    let earlier = frames.take().unwrap().unwrap();
    assert!(matches!(earlier, FromStepd::Stdout { task: 1, .. }));
    let before = world.received.len();
    world.deliver(output(true));
    assert_eq!(world.read.len(), 1);
    assert!(matches!(world.read[0], FromStepd::Stderr { task: 1, .. }));
    assert_eq!(world.received.len(), before + 1, "srun gets it too");
    world.deliver(Event::ReaderClosed(reader));
    world.deliver(output(false));
    assert_eq!(world.read.len(), 1, "it is gone");
    world.read_with(&KEY);
    world.end_tasks(0);
    let exits = world
        .read
        .iter()
        .filter(|m| matches!(m, FromStepd::Exited { .. }));
    assert_eq!(exits.count(), 2);
}

#[test]
fn readers_need_the_key_and_are_few() {
    let mut world = World::running(tasks(2));
    let stranger = world.read_with(b"another");
    assert_eq!(world.closed, [stranger]);
    for _ in 0..READERS_MAX {
        world.read_with(&KEY);
    }
    let last = world.read_with(&KEY);
    assert_eq!(world.readers.len(), READERS_MAX);
    assert_eq!(world.refused, [last]);
    let first = world.readers[0];
    world.deliver(Event::ReaderClosed(first));
    world.read_with(&KEY);
    assert_eq!(world.readers.len(), READERS_MAX + 1, "one has left");
    // srun's connection is none of them.
    assert_eq!(
        world.has_received(|m| matches!(m, FromStepd::Refused(_))),
        0
    );
    world.end_tasks(0);
}

#[test]
fn input_of_readers_goes_to_tasks_and_ends_nothing() {
    let mut world = World::running(tasks(2));
    world.read_with(&KEY);
    let input = |task, bytes: &[u8]| {
        Event::Reader(ToStepd::Stdin {
            task,
            bytes: bytes.to_vec().into(),
        })
    };
    world.deliver(input(Some(1), b"x"));
    world.deliver(input(None, b""));
    world.deliver(Event::Reader(ToStepd::Signal(9)));
    world.deliver(Event::Reader(ToStepd::FailStep(ExitStatus {
        code: 1,
        signal: 0,
    })));
    assert_eq!(world.fed, [(Some(1), b"x".to_vec())]);
    assert!(world.signals.is_empty(), "it gives no orders");
    world.end_tasks(0);
}

#[test]
fn a_step_of_which_the_kernel_has_killed_processes_ends_as_out_of_memory() {
    let mut world = World::running(tasks(2));
    world.prepare(2);
    world.wake_up(ALL);
    world.deliver(Event::OutOfMemory(1));
    let victim = world.tasks()[0];
    world.end(victim, 9);
    world.wake_up(ALL);
    assert_eq!(
        world.has_received(|m| matches!(m, FromStepd::Exited { oom: true, .. })),
        1
    );
    world.deliver(Event::OutOfMemory(2));
    world.end_tasks(0);
    let says = |m: &FromStepd| match m {
        FromStepd::NodeMessage(line) => line.contains("Detected 2 oom_kill events in StepId="),
        _ => false,
    };
    assert_eq!(world.has_received(says), 1, "{:?}", world.received);
    assert!(world.reported.contains(&STEP));
    // What the launcher may not have read is in a file.
    world.deliver(Event::LauncherLost);
    let end = world.end_of(STEP);
    assert_eq!(end.state, JobState::OutOfMemory);
    assert_eq!(end.exit.signal, 125);
}

/// A daemon reads steps of either from the same bytes, and may be of another version than the other side.
#[test]
fn agent_and_launcher_give_a_step_in_the_same_bytes() {
    let next = next_step(STEP, direct());
    let frame = next.as_command();
    let (by_agent, by_launcher) = (Box::new(next.clone()), Box::new(next));
    assert_eq!(frame, frame::encode(&AgentToStepd::StartStep(by_agent)));
    assert_eq!(frame, frame::encode(&StepdCommand::StartStep(by_launcher)));
}
