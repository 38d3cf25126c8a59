//! Limits on the clients of one user, and of all users together: connections, bytes of incomplete
//! or queued requests, and bytes of unread replies. Root on this host and the supervisor's user are
//! not limited. Each other agent on this host has its own share, because it may have been taken
//! over. Agents on other hosts have one share per job whose key they use, because the holder of
//! that key can claim to be any of them. Reserved descriptors are for these agents, launcher,
//! controller and the agent's files.

use super::replies::{UNREAD, UNREAD_OF_AGENTS};
use muster_channel::admission::{ByteBounds, ByteCount, NoRoom};
use muster_closer::Sender;
use muster_model::limits::may_connect;
use muster_trust::subordinate::SubordinateUids;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum connections of all users, if there are enough descriptors.
const CLIENTS_MAX: usize = 16_384;
/// Maximum connections of one user, if there are enough descriptors.
const USER_CLIENTS_MAX: usize = 4096;
/// Descriptors that a client may use: its connection, and the streams that come with a request.
const CLIENT_FDS: usize = 6;
/// Descriptors that another agent's connection may use. Agents have at most as many as connections
/// of users.
const AGENT_FDS: usize = 1;
/// Descriptors reserved from clients.
const RESERVED_FDS: usize = 256;
/// Bytes of users' requests. Received bytes count, not the size that a client announces.
const REQUESTS: ByteBounds = ByteBounds {
    own: 64 << 20,
    all: 192 << 20,
    few: 2 << 20,
};
/// Bytes of requests of each other agent, which sends requests of several users.
const REQUESTS_OF_AGENTS: ByteBounds = ByteBounds {
    own: 128 << 20,
    all: 1 << 30,
    few: 2 << 20,
};

/// Queued requests of one user, or of one other agent. Further requests are not read.
const WAITING_MAX: usize = 256;

/// Priority of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precedence {
    /// Requests of administrators and other agents: users' requests do not delay what the cluster
    /// needs.
    First,
    /// Requests of users.
    Users,
}

/// Usage of all clients. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Quotas(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    supervisor_uid: u32,
    /// `SlurmUser`, which has the limits of a user.
    slurm_uid: u32,
    subordinate: SubordinateUids,
    clients_max: usize,
    user_clients_max: usize,
    all_clients: usize,
    /// Connections of other agents.
    all_agents: usize,
    users: HashMap<u32, ClientUse>,
    /// Usage of other agents: of each on this host, and of those of each job.
    agents: HashMap<Sender, ClientUse>,
    /// Byte quotas from which those of single users and agents are derived.
    of_users: ByteQuotas,
    of_agents: ByteQuotas,
    /// The log already says that users have all connections.
    is_full_logged: bool,
}

/// Byte quotas of one client owner. Clones share the counts.
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

/// Usage of one client owner: a user, an agent of another node, or the agents of a job.
#[derive(Debug)]
struct ClientUse {
    clients: usize,
    kept: ByteQuotas,
    /// A refusal was logged, and the owner has had connections ever since.
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
    /// Usage of a user.
    fn of_user(&mut self, uid: u32) -> &mut ClientUse {
        let users = self.users.entry(uid);
        users.or_insert_with(|| ClientUse::new(&self.of_users))
    }

    /// Usage of a sender, or of the group with which the sender is counted.
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

    /// Logs that a request is refused, and who has the most bytes; once while that user or agent
    /// has connections.
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
                "{who} has {mib} MiB of requests on this node: requests that exceed the limit are refused"
            );
        }
    }

    /// Logs that users have all connections, and who has the most; once until half of them are
    /// free.
    fn log_full(&mut self) {
        if !std::mem::replace(&mut self.is_full_logged, true) {
            let most = self.users.iter().max_by_key(|(_, used)| used.clients);
            let (uid, clients) = most.map_or((0, 0), |(uid, used)| (*uid, used.clients));
            log::warn!(
                "users have all {} connections to this node, most of them ({clients}) uid {uid}: no more are accepted",
                self.clients_max
            );
        }
    }
}

impl Quotas {
    /// Limits for an agent with this number of descriptors, whose supervisor runs as this user.
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

    /// Sets the `SlurmUser` of the cluster.
    pub(crate) fn of_slurm_user(self, uid: u32) -> Quotas {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.slurm_uid = uid;
        drop(inner);
        self
    }

    /// The uid that a uid's usage is charged to.
    pub(crate) fn charged(&self, uid: u32) -> u32 {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.subordinate.charged(uid)
    }

    /// Admits a client; `None` if its user, or all users together, have reached the limit.
    pub(crate) fn client(&self, uid: u32) -> Option<Client> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let limited = uid != 0 && uid != inner.supervisor_uid;
        drop(inner);
        self.admit(uid, limited)
    }

    /// Admits a client that used the key of a job of this user. Agents of the job have the key too,
    /// so every such client is limited, even if the user is root.
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
                        "uid {charged} has {own} of the {all} connections of users to this node: no more are accepted"
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

    /// Removes a closed connection of a user or an agent.
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

/// A counted connection; dropping it ends the count.
#[derive(Debug)]
pub(crate) struct Client {
    quotas: Quotas,
    uid: u32,
    /// The uid that it is charged to.
    charged: u32,
    limited: bool,
    precedence: Precedence,
    /// The agent that uses the connection, or the group of agents with which it is counted.
    agent: Option<Sender>,
    /// `None` if it has no limits.
    kept: Option<ByteQuotas>,
}

impl Client {
    /// Declares the connection to be that of an agent, or of one of a group, for good; returns
    /// whether these, and all agents together, may have one more. Only a client that [is not
    /// limited](Client::is_limited) can become one.
    pub(crate) fn become_agent(&mut self, agent: Sender) -> bool {
        let mut inner = self.quotas.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, all_max) = (inner.all_agents as u64, inner.clients_max as u64);
        let own_max = match agent {
            Sender::User(_) => return false,
            Sender::Agent(_) => inner.user_clients_max as u64,
            // The first node of a wide job has connections of all others, which report ends of
            // steps.
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

    /// Whether the client is another agent.
    pub(crate) fn is_agent(&self) -> bool {
        self.agent.is_some()
    }

    /// Whether limits apply to the client.
    pub(crate) fn is_limited(&self) -> bool {
        self.limited
    }

    /// Priority of the client's requests.
    pub(crate) fn precedence(&self) -> Precedence {
        self.precedence
    }

    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }

    /// The sender to which the client's bytes are charged.
    pub(crate) fn sender(&self) -> Sender {
        self.agent.clone().unwrap_or(Sender::User(self.charged))
    }

    /// Counter of unread reply bytes; `None` if the client has no limits.
    pub(crate) fn unread(&self) -> Option<ByteCount> {
        self.kept.as_ref().map(|kept| kept.unread.clone())
    }

    /// Logs that a connection is closed because its client does not read; once while its user or
    /// agent has connections.
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

    /// Waits until the client may queue another request. `None` if it has no limits.
    pub(crate) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        let waiting = &self.kept.as_ref()?.waiting;
        Arc::clone(waiting).acquire_owned().await.ok()
    }

    /// A request of this client, so far without bytes.
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

/// A charge for bytes of a request, as long as they are held.
#[derive(Debug)]
pub(crate) struct Charge {
    /// The quota that is charged, unless the client has no limits.
    of: Option<(Quotas, Sender, ByteCount)>,
    bytes: usize,
}

impl Charge {
    /// Changes the number of charged bytes.
    ///
    /// # Errors
    /// The quota has no room for them.
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

    /// A holder of a job's key can claim to be any of the job's nodes. Earlier, each claimed name had its own share.
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
        // The connections that all nodes of a wide job keep to the leading node.
        assert!(first.len() > 1000 * KEPT_MAX, "{}", first.len());
        let second: Vec<Client> = std::iter::from_fn(|| connect(2)).collect();
        assert!(second.len() > CLIENTS_MAX / 8, "{}", second.len());
        let others: Vec<Client> = (3..500).map_while(connect).collect();
        assert_eq!(others.len(), 497);
        // The byte limit is shared by all of them, too.
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

    /// Earlier, a client could claim any number of names, and each name had its own share.
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
        // A connection of root.
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

    /// Three users had used all room, and the log named the user who was refused instead.
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
