//! What nodes say takes turns: with what other nodes say, and with users' commands.

use super::*;
use muster_model::ids::StepNo;
use muster_model::job::Step;
use muster_model::spec::StdioSpec;

/// A report that changes nothing.
fn nothing(seq: u64) -> NumberedReport {
    NumberedReport {
        seq,
        job: JobId(99),
        attempt: Attempt(1),
        report: Report::Released,
    }
}

/// A step of the first job began.
fn began(seq: u64, step: u32) -> NumberedReport {
    let step = Step {
        step: StepNo(step),
        name: "sleep".to_owned(),
        hostlist: "n1".to_owned(),
        nodes: 1,
        tasks: 1,
        cpus: 1,
        memory_mib: 1,
        start_time: Timestamp(1),
        stdio: StdioSpec::default(),
        submit_line: String::new(),
        time_limit: None,
        distribution: None,
        maker: None,
        devices: Vec::new(),
        device_ask: None,
    };
    NumberedReport {
        seq,
        job: JobId(1),
        attempt: Attempt(1),
        report: Report::StepStarted(Box::new(step)),
    }
}

fn reports(node: u32, generation: u64, reports: Vec<NumberedReport>) -> ToWriter {
    ToWriter::Reports {
        node: NodeIdx(node),
        generation,
        reports,
    }
}

fn acks(link: &mut tokio::sync::mpsc::UnboundedReceiver<ToLink>) -> Vec<u64> {
    let sent = std::iter::from_fn(|| link.try_recv().ok());
    let acks = sent.filter_map(|message| match message {
        ToLink::Ack(seq) => Some(seq),
        _ => None,
    });
    acks.collect()
}

impl World {
    /// One turn; whether another one is to follow.
    fn one(&mut self, messages: Vec<ToWriter>) -> bool {
        self.now = self.now.plus_ms(1);
        let after = self.writer.turn(messages.into_iter(), self.now);
        follow(&self.replica, &self.to_replica);
        after == NextAction::Again
    }

    /// A world with a job that runs on the node, and what is sent to this.
    fn with_job(name: &str) -> (World, tokio::sync::mpsc::UnboundedReceiver<ToLink>) {
        let mut world = World::new(name);
        let link = world.register(1);
        let (message, _) = submission("runs", 10);
        world.turns(vec![message]);
        let job = &world.writer.state().jobs[&JobId(1)];
        assert_eq!((job.state, job.attempt), (JobState::Running, Attempt(1)));
        (world, link)
    }

    fn steps(&self) -> Vec<u32> {
        let job = &self.writer.state().jobs[&JobId(1)];
        let steps = job.steps.iter().map(|s| s.step);
        steps
            .filter(|s| *s < StepNo::INTERACTIVE)
            .map(|s| s.0)
            .collect()
    }
}

/// All reports of a message were decided in one turn, and users' commands waited for all of them.
#[test]
fn many_reports_of_a_node_are_decided_in_several_turns() {
    let mut world = World::new("many-reports");
    let mut link = world.register(1);
    let many = 2 * NODES_COST_MAX + 5;
    let all: Vec<NumberedReport> = (1..=many).map(nothing).collect();
    let next = vec![nothing(many + 1)];
    let (message, mut answer) = submission("other", 10);
    assert!(world.one(vec![reports(0, 1, all), reports(0, 1, next), message]));
    assert!(is_accepted(&mut answer), "the user waits for a part only");
    assert_eq!(acks(&mut link), [NODES_COST_MAX], "what is durable");
    // A command that comes later is in the next turn.
    let (message, mut answer) = submission("later", 10);
    assert!(world.one(vec![message]));
    assert!(is_accepted(&mut answer));
    assert_eq!(acks(&mut link), [2 * NODES_COST_MAX]);
    assert!(!world.one(Vec::new()));
    assert_eq!(acks(&mut link), [many + 1]);
}

/// Time counts, too: a report that takes long leaves its turn to others. Nothing is left out or decided twice.
#[test]
fn a_report_that_takes_long_leaves_the_turn_to_others() {
    let (mut world, mut link) = World::with_job("slow-reports");
    world.writer.stopwatch = slow_stopwatch();
    acks(&mut link);
    let all = (0..5).map(|n| began(u64::from(n) + 1, n)).collect();
    let mut messages = vec![reports(0, 1, all)];
    for turn in 1..=5u32 {
        let (message, mut answer) = submission(&format!("other-{turn}"), 10);
        messages.push(message);
        assert_eq!(world.one(std::mem::take(&mut messages)), turn < 5);
        assert!(is_accepted(&mut answer), "{turn}");
        assert_eq!(world.steps(), (0..turn).collect::<Vec<_>>());
        assert_eq!(acks(&mut link), [u64::from(turn)]);
    }
    assert_eq!(world.writer.state().digest(), world.recovered().digest());
}

/// What is left of a message goes with its connection: nobody has acknowledged it, and its node repeats it on the next one.
#[test]
fn what_is_left_of_a_lost_connection_is_repeated_on_the_next() {
    let (mut world, mut link) = World::with_job("left-reports");
    world.writer.stopwatch = slow_stopwatch();
    acks(&mut link);
    let all = |first: u64| (0..4).map(|n| began(first + u64::from(n), n)).collect();
    assert!(world.one(vec![reports(0, 1, all(1))]));
    assert_eq!((world.steps(), acks(&mut link)), (vec![0], vec![1]));
    // The rest is before what the node says then, and the connection is lost once it has been decided.
    let lost = ToWriter::NodeLost {
        node: NodeIdx(0),
        generation: 1,
    };
    assert!(world.one(vec![lost]));
    assert_eq!((world.steps(), acks(&mut link)), (vec![0, 1], vec![2]));
    world.turns(Vec::new());
    assert_eq!(world.steps(), [0, 1, 2, 3]);
    let mut link = world.register(2);
    acks(&mut link);
    world.turns(vec![
        reports(0, 2, all(1)),
        reports(0, 1, vec![began(5, 4)]),
    ]);
    assert_eq!(world.steps(), [0, 1, 2, 3], "none twice, none of the old");
    assert_eq!(acks(&mut link), [1, 2, 3, 4]);
}

/// Each node's messages keep their order, and one that has many waits for itself.
#[test]
fn nodes_take_turns_with_what_they_say() {
    let mut queue = Queue::default();
    let lost = |node, generation| ToWriter::NodeLost {
        node: NodeIdx(node),
        generation,
    };
    let flood = (1..=9).map(|generation| lost(0, generation));
    let (unknown, _) = hello(1);
    let messages = flood.chain([lost(1, 10), lost(1, 11), unknown]);
    queue.extend(messages, &State::default());
    queue.begin_turn();
    let mut order = Vec::new();
    while let Some((charge, message)) = queue.next(false) {
        let generation = match &message {
            ToWriter::NodeLost { generation, .. } => *generation,
            _ => 0,
        };
        order.push((charge.as_ref().map(|c| c.source()), generation));
        if let Some(charge) = charge {
            let cost = Cost {
                events: &[],
                orders: 10,
                time: Duration::ZERO,
            };
            queue.charge(charge, &cost);
        }
    }
    let of = |node| Some(MessageSource::Node(NodeIdx(node)));
    assert_eq!(
        order[..5],
        [(None, 0), (of(0), 1), (of(1), 10), (of(0), 2), (of(1), 11)]
    );
    let rest: Vec<u64> = order[5..]
        .iter()
        .map(|(_, generation)| *generation)
        .collect();
    assert_eq!(rest, [3, 4, 5, 6, 7, 8, 9]);
}
