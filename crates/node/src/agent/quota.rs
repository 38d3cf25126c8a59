//! What the clients of one user may have at a time, and those of all users together: connections, bytes of requests
//! that are incomplete or wait, and bytes of replies that are not read. Root on this host is not limited, nor is the supervisor's
//! user. Each other agent on this host has a share of its own: it may have been taken over. Those on other hosts have one for each
//! job by whose key they come, with which one can be any of them. Reserved descriptors are for these, launcher, controller and the agent's files.

use super::replies::{UNREAD, UNREAD_OF_AGENTS};
use muster_channel::admission::{ByteBounds, ByteCount, NoRoom};
use muster_closer::Sender;
use muster_model::limits::may_connect;
use muster_trust::subordinate::SubordinateUids;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections of all users, where there are descriptors enough.
const CLIENTS_MAX: usize = 16_384;
/// Connections of one user, likewise.
const USER_CLIENTS_MAX: usize = 4096;
/// Descriptors that a client may take: its connection, and the streams that come with a request.
const CLIENT_FDS: usize = 6;
/// Descriptors that another agent's connection may take. There are as many of these as of users' connections at most.
const AGENT_FDS: usize = 1;
/// Descriptors that clients do not get.
const RESERVED_FDS: usize = 256;
/// Bytes of requests of users. What is there is counted, not what a client says that will come.
const REQUESTS: ByteBounds = ByteBounds {
    own: 64 << 20,
    all: 192 << 20,
    few: 2 << 20,
};
/// The same of each other agent, which sends those of several users.
const REQUESTS_OF_AGENTS: ByteBounds = ByteBounds {
    own: 128 << 20,
    all: 1 << 30,
    few: 2 << 20,
};

/// Requests of one user, or of one other agent, that wait for their turn. Further ones are not read.
const WAITING_MAX: usize = 256;

/// Whose requests are served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precedence {
    /// Of administrators and other agents: users' requests do not delay what the cluster needs.
    First,
    /// Of users.
    Users,
}

/// Who uses how much. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Quotas(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    supervisor_uid: u32,
    /// `SlurmUser`, whose share is a user's.
    slurm_uid: u32,
    subordinate: SubordinateUids,
    clients_max: usize,
    user_clients_max: usize,
    all_clients: usize,
    /// Connections of other agents.
    all_agents: usize,
    users: HashMap<u32, ClientUse>,
    /// What other agents have: each of this host, and those of each job.
    agents: HashMap<Sender, ClientUse>,
    /// Counts from which those of users, and of agents, are made.
    of_users: ByteQuotas,
    of_agents: ByteQuotas,
    /// That users have all connections was logged.
    is_full_logged: bool,
}

/// What is kept for somebody. Clones are the same counts.
#[derive(Clone, Debug)]
struct ByteQuotas {
    /// Bytes of requests.
    requests: ByteCount,
    /// Bytes of replies that are not read.
    unread: ByteCount,
    /// Requests that wait for their turn.
    waiting: Arc<Semaphore>,
}

impl ByteQuotas {
    fn new(requests: ByteBounds, unread: ByteBounds) -> ByteQuotas {
        ByteQuotas {
            requests: ByteCount::new(requests),
            unread: ByteCount::new(unread),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
        }
    }

    fn of_another(&self) -> ByteQuotas {
        ByteQuotas {
            requests: self.requests.of_another(),
            unread: self.unread.of_another(),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
        }
    }
}

/// What a client has: a user, an agent of another node, or those of a job.
#[derive(Debug)]
struct ClientUse {
    clients: usize,
    kept: ByteQuotas,
    /// A refusal was logged, and the user has not been without connections since.
    logged: bool,
}

impl ClientUse {
    fn new(one: &ByteQuotas) -> ClientUse {
        ClientUse {
            clients: 0,
            kept: one.of_another(),
            logged: false,
        }
    }

    fn is_none(&self) -> bool {
        self.clients == 0 && self.kept.requests.own() == 0
    }
}

impl Inner {
    /// What a user has.
    fn of_user(&mut self, uid: u32) -> &mut ClientUse {
        let users = self.users.entry(uid);
        users.or_insert_with(|| ClientUse::new(&self.of_users))
    }

    /// What a client has, or what is counted with it.
    fn of(&mut self, sender: &Sender) -> &mut ClientUse {
        match sender {
            Sender::User(uid) => self.of_user(*uid),
            Sender::Agent(_) | Sender::AgentsOfJob(_) => {
                let agents = self.agents.entry(sender.clone());
                agents.or_insert_with(|| ClientUse::new(&self.of_agents))
            }
        }
    }

    fn forget_unused(&mut self, sender: &Sender) {
        if !self.of(sender).is_none() {
            return;
        }
        match sender {
            Sender::User(uid) => drop(self.users.remove(uid)),
            Sender::Agent(_) | Sender::AgentsOfJob(_) => drop(self.agents.remove(sender)),
        }
    }

    /// A request is refused: who has most bytes is said, once while that user or agent has connections.
    fn log_no_room(&mut self, sender: &Sender, why: NoRoom) {
        let mib = |used: &ClientUse| used.kept.requests.own() >> 20;
        let most = match (sender, why) {
            (Sender::User(_), NoRoom::All) => {
                let most = self.users.iter_mut().max_by_key(|(_, used)| mib(used));
                most.map(|(uid, used)| (Sender::User(*uid), used))
            }
            _ => Some((sender.clone(), self.of(sender))),
        };
        if let Some((who, used)) = most
            && !std::mem::replace(&mut used.logged, true)
        {
            let mib = mib(used);
            log::warn!(
                "{who} has {mib} MiB of requests on this node: what does not fit beside them is refused"
            );
        }
    }

    /// Users have all connections: who has most of them is said, once until half of them are free.
    fn log_full(&mut self) {
        if !std::mem::replace(&mut self.is_full_logged, true) {
            let most = self.users.iter().max_by_key(|(_, used)| used.clients);
            let (uid, clients) = most.map_or((0, 0), |(uid, used)| (*uid, used.clients));
            log::warn!(
                "users have all {} connections to this node, uid {uid} most of them ({clients}): no more are accepted",
                self.clients_max
            );
        }
    }
}

impl Quotas {
    /// For an agent that may have so many descriptors, and whose supervisor is of this user.
    pub(crate) fn new(supervisor_uid: u32, descriptors: u64) -> Quotas {
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        let clients = descriptors.saturating_sub(RESERVED_FDS) / (CLIENT_FDS + AGENT_FDS);
        let clients_max = clients.clamp(16, CLIENTS_MAX);
        Quotas(Arc::new(Mutex::new(Inner {
            supervisor_uid,
            slurm_uid: supervisor_uid,
            subordinate: SubordinateUids::default(),
            clients_max,
            user_clients_max: (clients_max / 2).min(USER_CLIENTS_MAX),
            all_clients: 0,
            all_agents: 0,
            users: HashMap::new(),
            agents: HashMap::new(),
            of_users: ByteQuotas::new(REQUESTS, UNREAD),
            of_agents: ByteQuotas::new(REQUESTS_OF_AGENTS, UNREAD_OF_AGENTS),
            is_full_logged: false,
        })))
    }

    /// The same for a cluster whose `SlurmUser` is this one.
    pub(crate) fn of_slurm_user(self, uid: u32) -> Quotas {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.slurm_uid = uid;
        drop(inner);
        self
    }

    /// The uid whose share a uid uses.
    pub(crate) fn charged(&self, uid: u32) -> u32 {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.subordinate.charged(uid)
    }

    /// A client has come; none if its user, or all together, have as many as they may.
    pub(crate) fn client(&self, uid: u32) -> Option<Client> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let limited = uid != 0 && uid != inner.supervisor_uid;
        drop(inner);
        self.admit(uid, limited)
    }

    /// The same by the key of a job of this user's, which agents of the job have as well: there is nobody without limits, not
    /// even root.
    pub(crate) fn client_of_job(&self, uid: u32) -> Option<Client> {
        self.admit(uid, true)
    }

    fn admit(&self, uid: u32, limited: bool) -> Option<Client> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let precedence = match limited && uid != inner.slurm_uid {
            true => Precedence::Users,
            false => Precedence::First,
        };
        let (mut charged, mut kept) = (uid, None);
        if limited {
            charged = inner.subordinate.charged(uid);
            let (all, all_max) = (inner.all_clients as u64, inner.clients_max as u64);
            let own_max = inner.user_clients_max as u64;
            let used = inner.of_user(charged);
            if !may_connect(used.clients as u64, all, own_max, all_max) {
                let (own, was_logged) = (used.clients, std::mem::replace(&mut used.logged, true));
                if own > 0 && !was_logged {
                    log::warn!(
                        "uid {charged} has {own} connections to this node, of {all} that users have: no more are accepted"
                    );
                }
                if used.is_none() {
                    inner.users.remove(&charged);
                    inner.log_full();
                }
                return None;
            }
            used.clients += 1;
            kept = Some(used.kept.clone());
            inner.all_clients += 1;
        }
        drop(inner);
        Some(Client {
            quotas: self.clone(),
            uid,
            charged,
            limited,
            precedence,
            agent: None,
            kept,
        })
    }

    /// A connection of a user or an agent is over.
    fn end_client(&self, sender: &Sender) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.of(sender).clients -= 1;
        match sender {
            Sender::User(_) => {
                inner.all_clients -= 1;
                inner.is_full_logged &= inner.all_clients > inner.clients_max / 2;
            }
            Sender::Agent(_) | Sender::AgentsOfJob(_) => inner.all_agents -= 1,
        }
        inner.forget_unused(sender);
    }
}

/// A connection, as long as it lives.
#[derive(Debug)]
pub(crate) struct Client {
    quotas: Quotas,
    uid: u32,
    /// Whose share it uses.
    charged: u32,
    limited: bool,
    precedence: Precedence,
    /// The agent that it is, or those with which it is counted.
    agent: Option<Sender>,
    /// Absent if it has no limits.
    kept: Option<ByteQuotas>,
}

impl Client {
    /// It is this agent from now on, or one of these, for good; whether those may have one more, with what all agents have. Only what
    /// [is not limited](Client::is_limited) can be one.
    pub(crate) fn become_agent(&mut self, agent: Sender) -> bool {
        let mut inner = self.quotas.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, all_max) = (inner.all_agents as u64, inner.clients_max as u64);
        let own_max = match agent {
            Sender::User(_) => return false,
            Sender::Agent(_) => inner.user_clients_max as u64,
            // The first node of a wide job has connections of all others, which report ends of steps.
            Sender::AgentsOfJob(_) => all_max,
        };
        let own = inner.agents.get(&agent).map_or(0, |used| used.clients) as u64;
        if self.limited || self.agent.is_some() || !may_connect(own, all, own_max, all_max) {
            return false;
        }
        inner.all_agents += 1;
        let used = inner.of(&agent);
        used.clients += 1;
        self.kept = Some(used.kept.clone());
        self.agent = Some(agent);
        true
    }

    /// Whether it is another agent.
    pub(crate) fn is_agent(&self) -> bool {
        self.agent.is_some()
    }

    /// Whether limits count for it.
    pub(crate) fn is_limited(&self) -> bool {
        self.limited
    }

    /// Whether its requests come before those of users.
    pub(crate) fn precedence(&self) -> Precedence {
        self.precedence
    }

    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }

    /// Whose what it sends is.
    pub(crate) fn sender(&self) -> Sender {
        self.agent.clone().unwrap_or(Sender::User(self.charged))
    }

    /// What counts the bytes of replies to it, unless it has no limits.
    pub(crate) fn unread(&self) -> Option<ByteCount> {
        self.kept.as_ref().map(|kept| kept.unread.clone())
    }

    /// Says that a connection is closed since it does not read, once while its user or agent has connections.
    pub(crate) fn log_unread(&self) {
        let mut inner = self.quotas.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = self.sender();
        let was_logged = match &self.kept {
            Some(_) => std::mem::replace(&mut inner.of(&sender).logged, true),
            None => false,
        };
        if !was_logged {
            log::warn!("{sender} does not read replies: connections are closed");
        }
    }

    /// Waits until another of its requests may wait for its turn. Absent if it has no limits.
    pub(crate) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        let waiting = &self.kept.as_ref()?.waiting;
        Arc::clone(waiting).acquire_owned().await.ok()
    }

    /// A request of this client, without bytes so far.
    pub(crate) fn charge(&self) -> Charge {
        let kept = self.kept.as_ref();
        Charge {
            of: kept.map(|kept| (self.quotas.clone(), self.sender(), kept.requests.clone())),
            bytes: 0,
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.kept.is_some() {
            self.quotas.end_client(&self.sender());
        }
    }
}

/// Bytes of a request, as long as they are held.
#[derive(Debug)]
pub(crate) struct Charge {
    /// Whose they are, unless that client has no limits.
    of: Option<(Quotas, Sender, ByteCount)>,
    bytes: usize,
}

impl Charge {
    /// Makes it so many bytes.
    ///
    /// # Errors
    /// There is no room for as many.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let Some((quotas, sender, count)) = &self.of else {
            return Ok(());
        };
        if bytes < self.bytes {
            count.give_back(self.bytes - bytes);
        } else if let Err(why) = count.take(bytes - self.bytes) {
            let mut inner = quotas.0.lock().unwrap_or_else(PoisonError::into_inner);
            inner.log_no_room(sender, why);
            return Err(why);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some((quotas, sender, count)) = self.of.take().filter(|_| self.bytes > 0) {
            count.give_back(self.bytes);
            let mut inner = quotas.0.lock().unwrap_or_else(PoisonError::into_inner);
            inner.forget_unused(&sender);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::peers::KEPT_MAX;
    use super::*;

    fn of_node(name: &str) -> Sender {
        Sender::Agent(name.into())
    }

    #[test]
    fn a_user_has_a_share_of_the_connections() {
        let quotas = Quotas::new(0, (RESERVED_FDS + 40 * (CLIENT_FDS + AGENT_FDS)) as u64);
        let first: Vec<Client> = std::iter::from_fn(|| quotas.client(1)).collect();
        assert_eq!(first.len(), 15);
        let second: Vec<Client> = std::iter::from_fn(|| quotas.client(2)).collect();
        assert_eq!(second.len(), 8);
        let others: Vec<Client> = (3..20).flat_map(|uid| quotas.client(uid)).collect();
        assert_eq!(others.len(), 17, "others get in");
        assert!(quotas.client(20).is_none(), "all together");
        drop(others);
        let root: Vec<Client> = (0..100).map(|_| quotas.client(0).unwrap()).collect();
        drop(first);
        assert!(quotas.client(3).is_some());
        drop((second, root));
        let inner = quotas.0.lock().unwrap();
        assert!(inner.users.is_empty());
        assert_eq!(inner.all_clients, 0);
    }

    /// Anybody may get a process of the agent's account, which is nobody's to trust.
    #[test]
    fn the_agents_own_account_is_limited_like_any_other() {
        let own = nix::unistd::geteuid().as_raw().max(1);
        let quotas = Quotas::new(0, (RESERVED_FDS + 40 * (CLIENT_FDS + AGENT_FDS)) as u64);
        let clients: Vec<Client> = std::iter::from_fn(|| quotas.client(own)).collect();
        assert_eq!(clients.len(), 15);
        assert!(clients.iter().all(Client::is_limited));
    }

    #[test]
    fn other_agents_are_counted_by_node() {
        let quotas = Quotas::new(0, (RESERVED_FDS + 40 * (CLIENT_FDS + AGENT_FDS)) as u64);
        let connect = |node: &str| {
            let mut client = quotas.client(0).unwrap();
            client.become_agent(of_node(node)).then_some(client)
        };
        let first: Vec<Client> = std::iter::from_fn(|| connect("n1")).collect();
        assert_eq!(first.len(), 15);
        let mut second = connect("n2").unwrap();
        assert!(second.is_agent() && !second.become_agent(of_node("n3")));
        let mut user = quotas.client(1000).unwrap();
        assert!(!user.become_agent(of_node("n2")), "a user");
        drop(user);
        drop(first);
        assert!(connect("n1").is_some());
        // One that is taken over could have the others keep any number of half requests.
        let charge = |bytes: usize| {
            let mut charge = second.charge();
            charge.set(bytes).ok().map(|()| charge)
        };
        let held = charge(REQUESTS_OF_AGENTS.own - 10).unwrap();
        assert!(charge(11).is_none());
        let more = charge(10).unwrap();
        let user = quotas.client(1).unwrap();
        assert_eq!(user.charge().set(REQUESTS.own), Ok(()));
        drop((held, more, second));
        let inner = quotas.0.lock().unwrap();
        assert!(inner.agents.is_empty() && inner.all_agents == 0);
    }

    /// Each of the names that one had had as many as a user.
    #[test]
    fn other_agents_have_a_bound_together_and_leave_something_for_others() {
        let quotas = Quotas::new(0, (RESERVED_FDS + 40 * (CLIENT_FDS + AGENT_FDS)) as u64);
        let connect = |node: &str| {
            let mut client = quotas.client(0).unwrap();
            client.become_agent(of_node(node)).then_some(client)
        };
        let greedy: Vec<Client> = (1..=2)
            .flat_map(|node| {
                std::iter::from_fn(move || Some(node)).map_while(|n| connect(&format!("n{n}")))
            })
            .collect();
        assert_eq!(greedy.len(), 23);
        let others: Vec<Client> = (3..100)
            .map_while(|node| connect(&format!("n{node}")))
            .collect();
        assert_eq!(others.len(), 17);
        assert!(quotas.client(1).is_some(), "users have places of their own");
    }

    /// With the key of a job one can be each of its nodes: each name had a share of its own.
    #[test]
    fn agents_of_a_job_leave_connections_for_those_of_other_jobs() {
        let quotas = Quotas::new(0, 524_288);
        let connect = |job: u64| {
            let mut client = quotas.client(0).unwrap();
            let agents = Sender::AgentsOfJob(job);
            client.become_agent(agents).then_some(client)
        };
        let first: Vec<Client> = std::iter::from_fn(|| connect(1)).collect();
        assert!(first.len() < CLIENTS_MAX / 2, "{}", first.len());
        // All that the nodes of a wide job keep to the one that leads it.
        assert!(first.len() > 1000 * KEPT_MAX, "{}", first.len());
        let second: Vec<Client> = std::iter::from_fn(|| connect(2)).collect();
        assert!(second.len() > CLIENTS_MAX / 8, "{}", second.len());
        let others: Vec<Client> = (3..500).map_while(connect).collect();
        assert_eq!(others.len(), 497);
        // Bytes are those of all of them, too.
        let charge = |client: &Client, bytes: usize| {
            let mut charge = client.charge();
            charge.set(bytes).ok().map(|()| charge)
        };
        let held = charge(&first[0], REQUESTS_OF_AGENTS.own).unwrap();
        assert!(charge(&first[1], 1).is_none());
        assert!(charge(&others[0], REQUESTS_OF_AGENTS.own).is_some());
        drop((held, first, second, others));
        let inner = quotas.0.lock().unwrap();
        assert!(inner.agents.is_empty() && inner.all_agents == 0);
    }

    /// Root's job has a key like any other, and its agents have that.
    #[test]
    fn who_comes_by_the_key_of_roots_job_has_limits() {
        let quotas = Quotas::new(0, (RESERVED_FDS + 40 * (CLIENT_FDS + AGENT_FDS)) as u64);
        let clients = std::iter::from_fn(|| quotas.client_of_job(0)).take(100);
        let clients: Vec<Client> = clients.collect();
        assert_eq!(clients.len(), 15);
        assert!(clients.iter().all(Client::is_limited));
        assert!(!quotas.client(0).unwrap().is_limited());
        drop(clients);
        assert_eq!(quotas.0.lock().unwrap().all_clients, 0);
    }

    /// Each name that one gave itself had a share of its own, without end.
    #[test]
    fn all_agents_together_have_a_bound() {
        let quotas = Quotas::new(0, 20_000);
        let mut held = Vec::new();
        for job in 0..64 {
            let mut client = quotas.client(0).unwrap();
            assert!(client.become_agent(Sender::AgentsOfJob(job)));
            let mut charge = client.charge();
            let mut bytes = 0;
            while charge.set(bytes + (16 << 20)).is_ok() {
                bytes += 16 << 20;
            }
            held.push((client, charge));
        }
        let all = quotas.0.lock().unwrap().of_agents.requests.all();
        assert!(all < 1 << 30, "{all}");
        let mut another = quotas.client(0).unwrap();
        assert!(another.become_agent(of_node("n3")));
        assert_eq!(another.charge().set(REQUESTS_OF_AGENTS.few), Ok(()));
    }

    #[test]
    fn bytes_are_counted_while_they_are_held() {
        let quotas = Quotas::new(0, 20_000);
        let client = quotas.client(1).unwrap();
        let (mut a, mut b) = (client.charge(), client.charge());
        assert_eq!(a.set(REQUESTS.own - 10), Ok(()));
        assert_eq!((b.set(10), b.set(11)), (Ok(()), Err(NoRoom::Own)));
        // Of root.
        let root = quotas.client(0).unwrap();
        assert_eq!(root.charge().set(REQUESTS.all + 1), Ok(()));
        assert_eq!((a.set(100), b.set(REQUESTS.own - 100)), (Ok(()), Ok(())));
        drop(client);
        let again = quotas.client(1).unwrap();
        assert_eq!(again.charge().set(1), Err(NoRoom::Own), "they wait");
        drop((a, b, again));
        let inner = quotas.0.lock().unwrap();
        assert!(inner.users.is_empty() && inner.of_users.requests.all() == 0);
    }

    /// Three users had all room, and the log named the one who was refused.
    #[test]
    fn requests_of_others_have_room_however_many_users_take_what_they_can() {
        let quotas = Quotas::new(0, 20_000);
        let mut held = Vec::new();
        for uid in 1..=20 {
            let client = quotas.client(uid).unwrap();
            let mut charge = client.charge();
            let mut bytes = 0;
            while charge.set(bytes + (64 << 10)).is_ok() {
                bytes += 64 << 10;
            }
            held.push((client, charge));
        }
        let victim = quotas.client(1000).unwrap();
        let mut charge = victim.charge();
        assert_eq!(charge.set(REQUESTS.few), Ok(()));
        assert_eq!(charge.set(REQUESTS.few + 1), Err(NoRoom::All));
        let inner = quotas.0.lock().unwrap();
        assert!(inner.users[&1].logged && !inner.users[&1000].logged);
        assert!(inner.of_users.requests.all() < REQUESTS.all);
    }
}
