//! What the clients of one user may have at a time, and those of all users together: connections, bytes of requests
//! that are incomplete or wait, and bytes of replies that are not read. Root, whose the connections of other agents are, is not limited; nor is the user of the
//! supervisor, where that is another. Each other agent has a share too: it may be somebody else's by now. The descriptors that are kept back are for them, the launcher, the controller and the agent's own files.

use super::replies::{UNREAD, UNREAD_OF_AGENTS};
use muster_channel::admission::ByteCount;
use muster_closer::Sender;
use muster_model::limits::may_connect;
use muster_trust::subordinate::SubordinateUids;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections of all users, where there are descriptors enough.
const CLIENTS_MAX: usize = 16_384;
/// Connections of one user, likewise.
const USER_CLIENTS_MAX: usize = 4096;
/// Descriptors that a client may take: its connection, and the streams that come with a request.
const CLIENT_FDS: usize = 6;
/// Descriptors that clients do not get.
const RESERVED_FDS: usize = 256;
/// Bytes of requests of one user.
const USER_BYTES_MAX: usize = 64 << 20;
/// Bytes of requests of one other agent, which sends those of several users.
const AGENT_BYTES_MAX: usize = 2 * USER_BYTES_MAX;
/// The same of all users.
const BYTES_MAX: usize = 192 << 20;

/// Who uses how much. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Quotas(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    supervisor_uid: u32,
    subordinate: SubordinateUids,
    clients_max: usize,
    user_clients_max: usize,
    all_clients: usize,
    all_bytes: usize,
    users: HashMap<u32, Used>,
    /// What other agents have, by node.
    agents: HashMap<Arc<str>, Used>,
    /// Counts from which those of users, and of agents, are made.
    unread: ByteCount,
    unread_of_agents: ByteCount,
    /// That users have all connections was logged.
    is_full_logged: bool,
}

#[derive(Debug)]
struct Used {
    clients: usize,
    bytes: usize,
    /// Bytes of replies.
    unread: ByteCount,
    /// A refusal was logged, and the user has not been without connections since.
    logged: bool,
}

impl Used {
    fn new(unread: &ByteCount) -> Used {
        Used {
            clients: 0,
            bytes: 0,
            unread: unread.of_another(),
            logged: false,
        }
    }

    fn is_none(&self) -> bool {
        self.clients == 0 && self.bytes == 0
    }
}

impl Inner {
    /// What a user has.
    fn of_user(&mut self, uid: u32) -> &mut Used {
        let users = self.users.entry(uid);
        users.or_insert_with(|| Used::new(&self.unread))
    }

    /// What the agent of a node has.
    fn of_agent(&mut self, node: &Arc<str>) -> &mut Used {
        let agents = self.agents.entry(Arc::clone(node));
        agents.or_insert_with(|| Used::new(&self.unread_of_agents))
    }

    /// What a client has, or what is counted with it.
    fn of(&mut self, sender: &Sender) -> &mut Used {
        match sender {
            Sender::User(uid) => self.of_user(*uid),
            Sender::Agent(node) => self.of_agent(node),
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
        let clients = descriptors.saturating_sub(RESERVED_FDS) / CLIENT_FDS;
        let clients_max = clients.clamp(16, CLIENTS_MAX);
        Quotas(Arc::new(Mutex::new(Inner {
            supervisor_uid,
            subordinate: SubordinateUids::default(),
            clients_max,
            user_clients_max: (clients_max / 2).min(USER_CLIENTS_MAX),
            all_clients: 0,
            all_bytes: 0,
            users: HashMap::new(),
            agents: HashMap::new(),
            unread: ByteCount::new(UNREAD),
            unread_of_agents: ByteCount::new(UNREAD_OF_AGENTS),
            is_full_logged: false,
        })))
    }

    /// The uid whose share a uid uses.
    pub(crate) fn charged(&self, uid: u32) -> u32 {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.subordinate.charged(uid)
    }

    /// A client has come; none if its user, or all together, have as many as they may.
    pub(crate) fn client(&self, uid: u32) -> Option<Client> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let limited = uid != 0 && uid != inner.supervisor_uid;
        let (mut charged, mut unread) = (uid, None);
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
            unread = Some(used.unread.clone());
            inner.all_clients += 1;
        }
        drop(inner);
        Some(Client {
            quotas: self.clone(),
            uid,
            charged,
            limited,
            node: None,
            unread,
        })
    }

    fn give_back_of_agent(&self, node: &str, clients: usize, bytes: usize) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = inner.agents.get_mut(node) {
            used.clients -= clients;
            used.bytes -= bytes;
            if used.is_none() {
                inner.agents.remove(node);
            }
        }
    }

    fn give_back(&self, uid: u32, clients: usize, bytes: usize) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.all_clients -= clients;
        inner.is_full_logged &= inner.all_clients > inner.clients_max / 2;
        inner.all_bytes -= bytes;
        if let Some(used) = inner.users.get_mut(&uid) {
            used.clients -= clients;
            used.bytes -= bytes;
            if used.is_none() {
                inner.users.remove(&uid);
            }
        }
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
    /// The node for whose agent it is.
    node: Option<Arc<str>>,
    /// Absent if it has no limits.
    unread: Option<ByteCount>,
}

impl Client {
    /// It is the agent of this node from now on, for good; whether that may have one more. Only what
    /// [is not limited](Client::is_limited) can be one.
    pub(crate) fn become_agent(&mut self, node: &str) -> bool {
        let mut inner = self.quotas.0.lock().unwrap_or_else(PoisonError::into_inner);
        let most = inner.user_clients_max;
        let has = inner.agents.get(node).map_or(0, |used| used.clients);
        if self.limited || self.node.is_some() || has >= most {
            return false;
        }
        let node: Arc<str> = node.into();
        let used = inner.of_agent(&node);
        used.clients += 1;
        self.unread = Some(used.unread.clone());
        self.node = Some(node);
        true
    }

    /// Whether it is another agent.
    pub(crate) fn is_agent(&self) -> bool {
        self.node.is_some()
    }

    /// Whether limits count for it.
    pub(crate) fn is_limited(&self) -> bool {
        self.limited
    }

    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }

    /// Whose what it sends is.
    pub(crate) fn sender(&self) -> Sender {
        match &self.node {
            Some(node) => Sender::Agent(Arc::clone(node)),
            None => Sender::User(self.charged),
        }
    }

    /// What counts the bytes of replies to it, unless it has no limits.
    pub(crate) fn unread(&self) -> Option<ByteCount> {
        self.unread.clone()
    }

    /// Says that a connection is closed since it does not read, once while its user or agent has connections.
    pub(crate) fn log_unread(&self) {
        let mut inner = self.quotas.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = self.sender();
        let was_logged = match &self.unread {
            Some(_) => std::mem::replace(&mut inner.of(&sender).logged, true),
            None => false,
        };
        if !was_logged {
            log::warn!("{sender} does not read replies: connections are closed");
        }
    }

    /// A request of this client, without bytes so far.
    pub(crate) fn charge(&self) -> Charge {
        Charge {
            quotas: (self.limited || self.is_agent()).then(|| self.quotas.clone()),
            uid: self.charged,
            node: self.node.clone(),
            bytes: 0,
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.limited {
            self.quotas.give_back(self.charged, 1, 0);
        }
        if let Some(node) = &self.node {
            self.quotas.give_back_of_agent(node, 1, 0);
        }
    }
}

/// Bytes of a request, as long as they are held.
#[derive(Debug)]
pub(crate) struct Charge {
    quotas: Option<Quotas>,
    uid: u32,
    /// Whose it is, if another agent's.
    node: Option<Arc<str>>,
    bytes: usize,
}

impl Charge {
    /// Makes it so many bytes; whether there may be as many.
    pub(crate) fn set(&mut self, bytes: usize) -> bool {
        let Some(quotas) = self.quotas.as_ref().filter(|_| bytes != self.bytes) else {
            return true;
        };
        if bytes < self.bytes {
            self.give_back(self.bytes - bytes);
            self.bytes = bytes;
            return true;
        }
        let mut inner = quotas.0.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = &mut *inner;
        let more = bytes - self.bytes;
        // Bytes of agents are reserved for them, and do not count towards those of all users.
        let (used, most, of_all) = match &self.node {
            Some(node) => {
                let used = inner.of_agent(node);
                (used, AGENT_BYTES_MAX, 0)
            }
            None => {
                let of_all = inner.all_bytes + more;
                (inner.of_user(self.uid), USER_BYTES_MAX, of_all)
            }
        };
        let of_one = used.bytes + more;
        if of_all > BYTES_MAX || of_one > most {
            if !std::mem::replace(&mut used.logged, true) {
                let mib = used.bytes >> 20;
                let who = match &self.node {
                    Some(node) => format!("the agent of {node}"),
                    None => format!("uid {}", self.uid),
                };
                log::warn!("{who} has {mib} MiB of requests on this node: more are refused");
            }
            return false;
        }
        used.bytes = of_one;
        if self.node.is_none() {
            inner.all_bytes = of_all;
        }
        self.bytes = bytes;
        true
    }

    fn give_back(&self, bytes: usize) {
        match (&self.quotas, &self.node) {
            (Some(quotas), Some(node)) => quotas.give_back_of_agent(node, 0, bytes),
            (Some(quotas), None) => quotas.give_back(self.uid, 0, bytes),
            (None, _) => {}
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.give_back(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_share_of_the_connections() {
        let quotas = Quotas::new(0, (RESERVED_FDS + 40 * CLIENT_FDS) as u64);
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
        let quotas = Quotas::new(0, (RESERVED_FDS + 40 * CLIENT_FDS) as u64);
        let clients: Vec<Client> = std::iter::from_fn(|| quotas.client(own)).collect();
        assert_eq!(clients.len(), 15);
        assert!(clients.iter().all(Client::is_limited));
    }

    #[test]
    fn other_agents_are_counted_by_node() {
        let quotas = Quotas::new(0, (RESERVED_FDS + 40 * CLIENT_FDS) as u64);
        let connect = |node: &str| {
            let mut client = quotas.client(0).unwrap();
            client.become_agent(node).then_some(client)
        };
        let first: Vec<Client> = std::iter::from_fn(|| connect("n1")).collect();
        assert_eq!(first.len(), 20);
        let mut second = connect("n2").unwrap();
        assert!(second.is_agent() && !second.become_agent("n3"));
        assert!(!quotas.client(1000).unwrap().become_agent("n2"), "a user");
        drop(first);
        assert!(connect("n1").is_some());
        // One that is taken over could have the others keep any number of half requests.
        let charge = |bytes: usize| {
            let mut charge = second.charge();
            charge.set(bytes).then_some(charge)
        };
        let held = charge(AGENT_BYTES_MAX - 10).unwrap();
        assert!(charge(11).is_none());
        let more = charge(10).unwrap();
        assert!(quotas.client(1).unwrap().charge().set(USER_BYTES_MAX));
        drop((held, more, second));
        assert!(quotas.0.lock().unwrap().agents.is_empty());
    }

    #[test]
    fn bytes_are_counted_while_they_are_held() {
        let quotas = Quotas::new(0, 20_000);
        let client = quotas.client(1).unwrap();
        let (mut a, mut b) = (client.charge(), client.charge());
        assert!(a.set(USER_BYTES_MAX - 10));
        assert!(b.set(10) && !b.set(11));
        // Of others, and of root.
        assert!(quotas.client(2).unwrap().charge().set(USER_BYTES_MAX));
        assert!(quotas.client(0).unwrap().charge().set(BYTES_MAX + 1));
        assert!(a.set(100) && b.set(USER_BYTES_MAX - 100));
        drop((a, b));
        assert_eq!(quotas.0.lock().unwrap().all_bytes, 0);
    }
}
