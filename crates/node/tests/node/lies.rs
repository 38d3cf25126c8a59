//! An agent that lies to its launcher: it has the connection that root gives agents, and speaks the protocol below the agent.
//! What it may not say is refused, and jobs go on.

use super::Test;
use super::attacker::UID;
use super::cluster::{CLUSTER, Dir, JobMaker, Node, fifo};
use muster_model::command::SignalScope;
use muster_model::effect::TerminateReason;
use muster_model::ids::{Attempt, JobId};
use muster_model::spec::{JobKind, Owner};
use muster_model::time::Timestamp;
use muster_node::liar::{LyingAgent, StepLie};
use muster_proto::node::{HealthCheck, NodeSettings, Order, Orders, ToNode};
use muster_trust::{KeyPair, Receiver, SealedSession, SessionPeers};
use std::fs::read_to_string;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

pub const TESTS: &[Test] = &[
    ("lies_about_what_the_controller_ordered", orders),
    ("lies_about_steps", steps),
    ("lies_about_who_a_step_runs_as", identity),
    ("lies_about_processes", processes),
    (
        "descriptors_of_an_agent_do_not_get_to_the_launcher",
        descriptors,
    ),
    ("lies_about_being_root", roots_messages),
    ("reboot_and_health_check_by_sealed_orders", site_programs),
];

/// An agent's place, and the controller's.
struct Place {
    node: Node,
    liar: LyingAgent,
    session: Option<SealedSession>,
}

impl Place {
    fn take(dir: &Dir) -> Place {
        let mut node = Node::start(dir, "n1");
        // The launcher knows its controller.
        node.send(&ToNode::Ping);
        node.health();
        node.kill_agent();
        let mut liar = LyingAgent::connect(&node.spool).unwrap();
        liar.attach(&super::options("n1", &dir.path("none"), &node.spool))
            .unwrap();
        liar.answer("State").unwrap();
        Place {
            node,
            liar,
            session: None,
        }
    }

    /// A session, as the controller that the node knows begins it.
    fn begin(&mut self) {
        let controller = KeyPair::of([7; 32]);
        let key = self.liar.open_session().unwrap();
        self.liar.begin_session(&controller.public()).unwrap();
        self.liar.answer("SessionBegun(None)").unwrap();
        let peers = SessionPeers {
            cluster: CLUSTER,
            node: "n1",
            receiver: Receiver::Launcher,
        };
        self.session = Some(controller.with_node(peers, &key).unwrap());
    }

    fn batch(&self, orders: Vec<Order>, settings: Option<NodeSettings>) -> Vec<u8> {
        let orders = Orders {
            cluster: CLUSTER.to_owned(),
            node: "n1".to_owned(),
            at: Timestamp(0),
            blobs: Vec::new(),
            orders,
            drop_blobs: Vec::new(),
            settings: settings.map(Box::new),
        };
        minicbor::to_vec(orders).unwrap()
    }

    fn pass_on(&mut self, orders: Vec<Order>, settings: Option<NodeSettings>) {
        let batch = self.batch(orders, settings);
        let seal = self.session.as_mut().unwrap().seal(&batch);
        self.liar.pass_on(&batch, &seal).unwrap();
    }

    /// A job of two CPUs without a script, of a user.
    fn allocate(&mut self, job: u64, dir: &Path) {
        let launch = self.allocation(job, dir);
        self.pass_on(vec![launch], None);
    }

    fn allocation(&self, job: u64, dir: &Path) -> Order {
        let mut maker = JobMaker::new(job, dir, "");
        maker.cpus = 2;
        maker.memory_mib = 100;
        maker.spec.kind = JobKind::Allocation;
        maker.spec.owner = Owner {
            uid: UID,
            gid: UID,
            user: "nobody".to_owned(),
            group: "nogroup".to_owned(),
        };
        maker.order(&[&self.node]).1
    }

    /// Waits until the launcher has carried out what was said.
    fn round_trip(&mut self, job: u64) -> String {
        self.liar.inspect(job).unwrap();
        self.liar.answer("Processes").unwrap()
    }

    fn log(&self) -> String {
        read_to_string(self.node.spool.join("shim.log")).unwrap()
    }
}

fn terminate(job: u64) -> Order {
    Order::Terminate {
        job: JobId(job),
        attempt: Attempt(1),
        now: true,
        why: TerminateReason::Cancelled,
    }
}

/// Without a session, with another controller's key, a seal of its own, one that was used, and one for another batch.
fn orders() {
    let dir = Dir::new("lies-orders");
    let mut place = Place::take(&dir);
    let launch = place.allocation(1, &dir.0);
    let batch = place.batch(vec![launch], None);
    place.liar.pass_on(&batch, &[0; 32]).unwrap();
    place.liar.answer("SessionFailed").unwrap();
    // A controller of its own.
    place.liar.open_session().unwrap();
    let own = KeyPair::of([9; 32]);
    place.liar.begin_session(&own.public()).unwrap();
    place
        .liar
        .answer("not the one that this node knows")
        .unwrap();
    place.liar.pass_on(&batch, &[0; 32]).unwrap();
    place.liar.answer("there is no session").unwrap();
    // Orders that the controller has not given.
    place.begin();
    place.liar.pass_on(&batch, &[0; 32]).unwrap();
    place.liar.answer("SessionFailed").unwrap();
    // One that it has given, twice; in between the job is known, and after that no longer.
    place.begin();
    let seal = place.session.as_mut().unwrap().seal(&batch);
    place.liar.pass_on(&batch, &seal).unwrap();
    place.pass_on(vec![terminate(1)], None);
    place.liar.answer("Released").unwrap();
    place.liar.forget(1).unwrap();
    place.liar.pass_on(&batch, &seal).unwrap();
    place.liar.answer("SessionFailed").unwrap();
    place.begin();
    place.liar.pass_on(&batch, &seal).unwrap();
    place.liar.answer("SessionFailed").unwrap();
    // The order to end a job, with the seal of another.
    place.begin();
    place.allocate(2, &dir.0);
    let other = place.batch(vec![terminate(3)], None);
    let seal = place.session.as_mut().unwrap().seal(&other);
    let changed = place.batch(vec![terminate(2)], None);
    place.liar.pass_on(&changed, &seal).unwrap();
    place.liar.answer("SessionFailed").unwrap();
    let mut step = StepLie::new(1, 0, "n1");
    place.liar.start_step(&step).unwrap();
    let answer = place.liar.answer("StepFailed").unwrap();
    assert!(answer.contains("not on this node"), "{answer}");
    // The second job is there.
    (step.job, step.of_job) = (2, 2);
    place.liar.start_step(&step).unwrap();
    place.liar.answer("StepReady").unwrap();
}

fn steps() {
    let dir = Dir::new("lies-steps");
    let mut place = Place::take(&dir);
    place.begin();
    place.allocate(1, &dir.0);
    place.allocate(2, &dir.0);
    let truth = StepLie::new(1, 0, "n1");
    let n1 = || "n1".to_owned();
    let base = dir.path("own").to_string_lossy().into_owned();
    let lies = [
        (
            "not on this node",
            StepLie {
                job: 9,
                of_job: 9,
                ..truth.clone()
            },
        ),
        (
            "of another job",
            StepLie {
                of_job: 2,
                ..truth.clone()
            },
        ),
        (
            "CPUs that the job does not have",
            StepLie {
                cpus: 3,
                ..truth.clone()
            },
        ),
        (
            "bound to CPUs",
            StepLie {
                bound_to: 8,
                ..truth.clone()
            },
        ),
        (
            "memory",
            StepLie {
                memory_mib: 101,
                ..truth.clone()
            },
        ),
        (
            "tasks on this node",
            StepLie {
                tasks: 100_000,
                ..truth.clone()
            },
        ),
        (
            "number",
            StepLie {
                step: 40_000,
                ..truth.clone()
            },
        ),
        (
            "number",
            StepLie {
                step: u32::MAX,
                ..truth.clone()
            },
        ),
        (
            "is not n1",
            StepLie {
                names: vec!["n2".to_owned()],
                ..truth.clone()
            },
        ),
        (
            "nodes that the job does not have",
            StepLie {
                names: vec![n1(), "n2".to_owned()],
                ..truth.clone()
            },
        ),
        (
            "not a directory for steps",
            StepLie {
                mpi: Some((base.clone(), "x".to_owned())),
                ..truth.clone()
            },
        ),
    ];
    for (why, lie) in lies {
        place.liar.start_step(&lie).unwrap();
        let answer = place.liar.answer("Step").unwrap();
        assert!(
            answer.contains("StepFailed") && answer.contains(why),
            "{why}: {answer}"
        );
        assert!(place.log().contains(why), "{why} is not in the log");
    }
    // The name that root gives a directory is not the agent's to choose.
    let name = format!("../../{}/x", dir.0.display());
    let mpi = Some(("/dev/shm".to_owned(), name));
    let mut step = StepLie {
        mpi,
        ..truth.clone()
    };
    place.liar.start_step(&step).unwrap();
    place.liar.answer("StepReady").unwrap();
    assert!(!dir.path("x").exists());
    // Its number is used.
    step.mpi = None;
    place.liar.start_step(&step).unwrap();
    let answer = place.liar.answer("Step").unwrap();
    assert!(answer.contains("has existed"), "{answer}");
    // After the job's end nothing begins.
    place.pass_on(vec![terminate(2)], None);
    place.liar.answer("Released").unwrap();
    place.liar.start_step(&StepLie::new(2, 0, "n1")).unwrap();
    let answer = place.liar.answer("StepFailed").unwrap();
    assert!(answer.contains("the job is ending"), "{answer}");
}

/// The task of a step, and of one that the agent gives the step's daemon itself, is the job's owner, with that user's
/// groups; the end is written where the launcher wants it.
fn identity() {
    let dir = Dir::new("lies-identity");
    let mut place = Place::take(&dir);
    place.begin();
    place.allocate(1, &dir.0);
    let groups = Command::new("id").args(["-G", "nobody"]).output().unwrap();
    let groups = String::from_utf8(groups.stdout).unwrap();
    let expected = format!("{UID} {}", groups.trim());
    let evil = dir.path("evil");
    let mut lie = StepLie {
        uid: 0,
        argv: ["/bin/sh", "-c", "echo $(id -u) $(id -G)"]
            .map(str::to_owned)
            .to_vec(),
        result: evil.to_string_lossy().into_owned(),
        ..StepLie::new(1, 0, "n1")
    };
    let mut first = place.liar.start_step(&lie).unwrap();
    place.liar.answer("StepReady").unwrap();
    assert_eq!(first.output().unwrap().trim(), expected);
    lie.step = 1;
    let mut second = place.liar.give_step(0, &lie).unwrap();
    assert_eq!(second.output().unwrap().trim(), expected);
    // More CPUs than the job has: the daemon runs nothing, and what comes with the order is closed.
    (lie.step, lie.cpus) = (2, 3);
    let mut third = place.liar.give_step(0, &lie).unwrap();
    assert_eq!(third.output().unwrap(), "");
    assert!(!evil.exists());
    assert!(place.log().contains("CPUs that the job does not have"));
}

/// A process that is the test's own, of another user.
struct Bystander(Child);

impl Bystander {
    fn start() -> Bystander {
        Bystander(Command::new("sleep").arg("600").uid(UID).spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        self.0.id().try_into().unwrap()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The agent says that a step has a process that is nobody's here, and has the step ended; what it has kept, and lines for
/// users, have bounds.
fn processes() {
    let dir = Dir::new("lies-processes");
    let mut place = Place::take(&dir);
    place.begin();
    place.allocate(1, &dir.0);
    let mut bystander = Bystander::start();
    place.liar.end_process(1, 0, bystander.pid()).unwrap();
    place.round_trip(1);
    // The job ends, and with it what is its.
    place.pass_on(vec![terminate(1)], None);
    place.liar.answer("Released").unwrap();
    assert!(bystander.0.try_wait().unwrap().is_none(), "it was killed");
    let pid = bystander.pid();
    assert!(
        place
            .log()
            .contains(&format!("process {pid} is not of the job"))
    );

    place.allocate(2, &dir.0);
    for key in 0..8 {
        place.liar.keep(2, key, 9 << 20).unwrap();
    }
    place.liar.notify(2, "\x1b]0;title\x07").unwrap();
    place.liar.keep(9, 0, 1).unwrap();
    place.round_trip(2);
    let log = place.log();
    for why in ["too much is kept", "control characters", "not on this node"] {
        assert!(log.contains(why), "{why}");
    }
    let kept = std::fs::metadata(place.node.spool.join("attempts"))
        .unwrap()
        .len();
    // Each byte is two digits.
    assert!(kept < 140 << 20, "{kept} bytes are on file");
}

/// A descriptor can take for ever to close: a connection that lingers, a file of a server that does not answer. None gets as far as
/// the launcher.
fn descriptors() {
    let dir = Dir::new("lies-descriptors");
    let mut place = Place::take(&dir);
    place.begin();
    place.allocate(1, &dir.0);
    let file = std::fs::File::open("/dev/null").unwrap();
    let sent = place.liar.send_descriptor(&file);
    assert_eq!(sent.unwrap_err().raw_os_error(), Some(libc::EPIPE));
    // What is ordered, and what is answered, goes on; a channel to the step's daemon comes from the launcher.
    place.liar.start_step(&StepLie::new(1, 0, "n1")).unwrap();
    place.liar.answer("StepChannel").unwrap();
    place.liar.answer("StepReady").unwrap();
    // Who attaches without a link for orders is refused, and the agent that is there stays.
    let mut other = LyingAgent::connect(&place.node.spool).unwrap();
    let options = super::options("n1", &dir.path("none"), &place.node.spool);
    other.attach_without_link(&options).unwrap();
    other.answer("no link for orders").unwrap();
    place.round_trip(1);
}

/// Which node this is, and when the launcher ends, root says, before an agent has the connection.
fn roots_messages() {
    let dir = Dir::new("lies-root");
    let mut place = Place::take(&dir);
    place.begin();
    place.allocate(1, &dir.0);
    place.round_trip(1);
    let options = super::options("n2", &dir.path("none"), &place.node.spool);
    place.liar.attach(&options).unwrap();
    assert_eq!(
        place.liar.answer("State"),
        None,
        "it takes another node's name"
    );

    let again = |place: &mut Place| {
        let options = super::options("n1", &dir.path("none"), &place.node.spool);
        place.liar = LyingAgent::connect(&place.node.spool).unwrap();
        place.liar.attach(&options).unwrap();
        place.liar.answer("State").unwrap()
    };
    assert!(again(&mut place).contains("JobId(1)"));
    place.liar.stop().unwrap();
    assert_eq!(place.liar.answer("Busy"), None);
    // The job is still there, and so is the launcher.
    assert!(again(&mut place).contains("JobId(1)"));
    // Somebody who says nothing of a node first.
    let mut nobody = LyingAgent::connect(&place.node.spool).unwrap();
    nobody.inspect(1).unwrap();
    assert_eq!(nobody.answer("Processes"), None);
    // What was sealed for the connection before is nothing to this one.
    let batch = place.batch(vec![terminate(1)], None);
    let seal = place.session.as_mut().unwrap().seal(&batch);
    place.liar.pass_on(&batch, &seal).unwrap();
    place.liar.answer("there is no session").unwrap();
}

fn program(dir: &Dir, name: &str) -> (PathBuf, String) {
    let (said, path) = (dir.path(&format!("{name}.said")), dir.path(name));
    fifo(&said);
    let text = format!(
        "#!/bin/sh\necho $(id -u) $SLURMD_NODENAME >{}\n",
        said.display()
    );
    std::fs::write(&path, text).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).unwrap();
    (said, path.to_string_lossy().into_owned())
}

/// They run as root, so nobody but the controller names them or has them run.
fn site_programs() {
    let dir = Dir::new("site-programs");
    let mut place = Place::take(&dir);
    let (checked, health) = program(&dir, "health");
    let (rebooted, reboot) = program(&dir, "reboot");
    let settings = NodeSettings {
        health_check: Some(HealthCheck {
            program: health,
            interval_s: 0,
            states: Vec::new(),
        }),
        reboot_program: Some(reboot),
        kill_wait_s: 1,
        ..NodeSettings::default()
    };
    let batch = place.batch(vec![Order::Reboot], Some(settings.clone()));
    place.begin();
    place.liar.pass_on(&batch, &[1; 32]).unwrap();
    place.liar.answer("SessionFailed").unwrap();
    place.begin();
    place.pass_on(Vec::new(), Some(settings.clone()));
    assert_eq!(read_to_string(&checked).unwrap(), "0 n1\n");
    place.pass_on(vec![Order::Reboot], None);
    assert_eq!(read_to_string(&rebooted).unwrap(), "0 n1\n");
    // Once; the same settings begin no other check.
    place.pass_on(Vec::new(), Some(settings));
    let signal = Order::Signal {
        job: JobId(1),
        attempt: Attempt(1),
        step: None,
        signal: 9,
        scope: SignalScope::Full,
        cancelled_by: None,
    };
    place.pass_on(vec![signal], None);
    place.round_trip(1);
    let starts = place.log().matches("this node is rebooted by").count();
    assert_eq!(starts, 1);
}
