//! Tests of the order in which clients are served, and of refused clients.

use super::super::audit::ClientPlace;
use super::super::quota::{Client, Quotas};
use super::super::replies::{self, Inbox, UNREAD};
use super::*;
use muster_model::ids::JobId;

fn executor() -> Executor {
    let options = AgentOptions {
        name: "n1".to_owned(),
        cluster: "c".to_owned(),
        address: String::new(),
        controller_socket: "/nonexistent".into(),
        spool_dir: "/nonexistent".into(),
        claimed_cpus: Some(1),
        claimed_sockets: 0,
        shared_machine: false,
        claimed_memory_mib: Some(1),
        launcher_program: None,
        slurmd_user: String::new(),
        network: Default::default(),
        conf: String::new(),
        fetch: Vec::new(),
        dynamic: None,
        spool_pattern: String::new(),
    };
    let (inputs, _) = mpsc::unbounded_channel();
    let mut executor = Executor::new(options, NodeProbe::default(), Peers::direct("n1"), inputs);
    // Independent of the load of the machine.
    executor.service_time = Duration::MAX;
    executor
}

/// A connection of a client.
struct Connection {
    client: Client,
    number: u64,
    reply: Outbox,
    inbox: Inbox,
}

impl Connection {
    fn new(quotas: &Quotas, uid: u32, number: u64) -> Connection {
        let client = quotas.client(uid).unwrap();
        let (reply, inbox) = replies::channel(client.unread());
        Connection {
            client,
            number,
            reply,
            inbox,
        }
    }

    /// Requests an unknown job.
    fn asks(&self, executor: &mut Executor) {
        let input = ClientInput::Request {
            asker: Requester {
                conn: self.number,
                uid: self.client.uid(),
                place: ClientPlace::Process(0),
                is_agent: false,
                charge: self.client.charge(),
            },
            request: Box::new(AgentRequest::Inspect { job: JobId(1) }),
            streams: None,
            reply: self.reply.clone(),
            place: None,
        };
        let client = &self.client;
        executor.take(Input::Client(client.precedence(), client.sender(), input));
    }
}

/// A user's thousands of connections stood before everybody else's.
#[tokio::test]
async fn users_take_turns_at_an_agent() {
    let (mut executor, quotas) = (executor(), Quotas::new(0, 20_000));
    let flood: Vec<Connection> = (1..=100).map(|n| Connection::new(&quotas, 1, n)).collect();
    for _ in 0..64 {
        flood.iter().for_each(|one| one.asks(&mut executor));
    }
    let other = Connection::new(&quotas, 2, 101);
    other.asks(&mut executor);
    executor.serve_clients();
    assert!(executor.has_clients(), "the flood waits");
    assert!(!other.inbox.is_empty());
    let answered = flood.iter().filter(|one| !one.inbox.is_empty()).count();
    assert!((1..REQUESTS_AT_ONCE).contains(&answered), "{answered}");
}

/// Users' turns, of which there may be thousands, stood before root's and those of other agents.
#[tokio::test]
async fn administrators_and_other_agents_are_served_before_users() {
    const SLURM_USER: u32 = 900;
    let mut executor = executor();
    let quotas = Quotas::new(0, 20_000).of_slurm_user(SLURM_USER);
    let users: Vec<Connection> = (1..=200)
        .map(|n| Connection::new(&quotas, 1000 + n, u64::from(n)))
        .collect();
    let mut first =
        [(0, 501), (0, 502), (SLURM_USER, 503)].map(|(uid, n)| Connection::new(&quotas, uid, n));
    assert!(first[1].client.become_agent(Sender::Agent("n2".into())));
    for _ in 0..20 {
        users.iter().for_each(|one| one.asks(&mut executor));
    }
    let answered = |all: &[Connection]| all.iter().map(|one| one.inbox.len()).sum::<usize>();
    for _ in 0..3 {
        let before = answered(&users);
        for _ in 0..20 {
            first.iter().for_each(|one| one.asks(&mut executor));
        }
        executor.serve_clients();
        assert_eq!(answered(&first) % 60, 0, "all are served at once");
        assert_eq!(answered(&users) - before, USER_REQUESTS_AT_ONCE);
    }
    assert_eq!(answered(&first), 180);
    // Requests of agents do not starve users either.
    for _ in 0..100 {
        first.iter().for_each(|one| one.asks(&mut executor));
    }
    let before = answered(&users);
    executor.serve_clients();
    assert_eq!(answered(&first), 180 + REQUESTS_AT_ONCE);
    assert_eq!(answered(&users) - before, USER_REQUESTS_AT_ONCE);
}

/// 64 requests of 20 ms each came before all that launcher, controller and step daemons had sent.
#[tokio::test]
async fn requests_that_take_long_are_served_one_at_a_time() {
    let (mut executor, quotas) = (executor(), Quotas::new(0, 20_000));
    // Each request takes longer than that.
    executor.service_time = Duration::ZERO;
    let [root, user] = [(0, 1), (1, 2)].map(|(uid, n)| Connection::new(&quotas, uid, n));
    for _ in 0..20 {
        root.asks(&mut executor);
        user.asks(&mut executor);
    }
    for round in 1..=20 {
        executor.serve_clients();
        assert_eq!((root.inbox.len(), user.inbox.len()), (round, round));
    }
    assert!(!executor.has_clients());
}

#[tokio::test]
async fn who_does_not_read_replies_is_not_served() {
    let (mut executor, quotas) = (executor(), Quotas::new(0, 20_000));
    let [first, second, other] =
        [(1, 1), (1, 2), (2, 3)].map(|(uid, n)| Connection::new(&quotas, uid, n));
    let unread = first.client.unread().unwrap();
    unread.take(UNREAD.own).unwrap();
    for one in [&second, &other] {
        one.asks(&mut executor);
    }
    executor.serve_clients();
    assert!(!executor.has_clients() && executor.next_id == 1);
    assert!(second.reply.is_over() && !other.reply.is_over());
    unread.give_back(UNREAD.own);
    assert!(!first.reply.is_over());
    first.asks(&mut executor);
    executor.serve_clients();
    assert_eq!(executor.next_id, 2);
}
