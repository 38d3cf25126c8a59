//! Shares of the controller that each user may have at the same time: connections, requests, bytes of requests that have
//! not arrived whole, waits. A user that asks for more waits, or is refused; others are not affected. Root and SlurmUser
//! have no limits, a node's agent has a few connections ([`AgentConnection`]), and descriptors are kept in reserve for
//! them.

mod frame_room;

use crate::outbox::{self, Inbox, Outbox};
use crate::rate_limit::RateLimit;
use crate::stats::Stats;
pub(crate) use frame_room::{FrameRoom, SMALL_FRAME};
use frame_room::{SharedRoom, UserRoom};
use log::{info, warn};
use muster_channel::admission::ByteCount;
use muster_closer::passed;
use muster_model::limits::may_connect;
use muster_trust::subordinate::SubordinateUids;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections of one user, where the process may have descriptors enough.
const CONNECTIONS_MAX: u64 = 2048;
/// A user may have no more than this part of all connections.
const CONNECTIONS_PART: u64 = 4;
/// Descriptors kept for root, agents and the controller's own files: at least so many, and this part of all.
const RESERVE_MIN: u64 = 128;
const RESERVE_PART: u64 = 16;
/// Most descriptors that are asked for.
const DESCRIPTORS_MAX: u64 = 1 << 20;
/// Commands of one user with the writer.
const COMMANDS_MAX: usize = 64;
/// Queries of one user that are being answered: each holds its answer until the client has read it.
const QUERIES_MAX: usize = 16;
/// Large requests that are decoded at the same time: of one user, and of all.
const DECODED_MAX: usize = 1;
const ALL_DECODED_MAX: usize = 4;
/// Waits for jobs and nodes of one connection, and of one user.
const WAITS_PER_CONNECTION: usize = 64;
const WAITS_MAX: usize = 4096;
/// Connections for one node's agent, which has one, and another while the controller has not seen that one's end.
const AGENT_CONNECTIONS_MAX: usize = 16;
/// A user is named in the log at most once in this time.
const NAMED_EVERY: Duration = Duration::from_secs(10);
/// The same for the rate limit, whatever `rl_log_freq` says.
const NAMED_AT_MOST: Duration = Duration::from_secs(1);

/// Why a connection or request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The user has too many connections.
    Connections(u64),
    /// All users together have.
    AllConnections(u64),
    /// The user waits for too many things.
    Waits(usize),
    /// Descriptors that the user has sent have not been closed yet.
    Descriptors,
}

impl std::fmt::Display for Over {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Over::Connections(most) => write!(
                f,
                "you have {most} connections to the controller, \
                 which is the limit of one user for now; try again when some have ended"
            ),
            Over::AllConnections(most) => {
                write!(
                    f,
                    "the controller serves {most} connections and takes no more for now"
                )
            }
            Over::Waits(most) => write!(f, "too many pending waits (limit {most})"),
            Over::Descriptors => f.write_str(
                "descriptors that you have sent to the controller wait to be closed; it takes none",
            ),
        }
    }
}

/// All users who are connected.
pub(crate) struct Users {
    subordinate: RefCell<SubordinateUids>,
    users: RefCell<HashMap<u32, Rc<UserQuota>>>,
    /// Connections of users who have limits.
    connections: Cell<u64>,
    connections_max: u64,
    per_user: u64,
    frames: Rc<SharedRoom>,
    decoding: Arc<Semaphore>,
    /// Bytes of answers that were not read.
    unread: ByteCount,
    pub(crate) rates: RateLimit,
    /// Counts how often each user was refused or made to wait.
    stats: Arc<Stats>,
    named: RefCell<HashMap<u32, Instant>>,
}

/// The use of one user.
pub(crate) struct UserQuota {
    uid: u32,
    connections: Cell<u64>,
    waits: Cell<usize>,
    commands: Arc<Semaphore>,
    queries: Arc<Semaphore>,
    frames: Rc<UserRoom>,
    decoding: Arc<Semaphore>,
    unread: ByteCount,
}

/// A connection's share of its user's quota, which is given back when it is dropped. Root, SlurmUser and agents have
/// none of it.
pub(crate) struct Share {
    users: Rc<Users>,
    user: Option<Rc<UserQuota>>,
    waits: Cell<usize>,
}

/// Connections for the agents of nodes. They are root's and count for no user; but an agent may be somebody else's by now, and
/// must not take the descriptors of all.
#[derive(Debug, Default)]
pub(crate) struct Agents(RefCell<HashMap<String, usize>>);

/// A connection for a node's agent, as long as it lives.
#[derive(Debug)]
pub(crate) struct AgentConnection {
    agents: Rc<Agents>,
    node: String,
}

impl Agents {
    /// A connection for the agent of this node; none if it has too many.
    pub(crate) fn connect(self: &Rc<Agents>, node: String) -> Option<AgentConnection> {
        let mut agents = self.0.borrow_mut();
        let count = agents.get(&node).copied().unwrap_or(0);
        if count >= AGENT_CONNECTIONS_MAX {
            return None;
        }
        agents.insert(node.clone(), count + 1);
        let agents = Rc::clone(self);
        Some(AgentConnection { agents, node })
    }
}

impl AgentConnection {
    /// The node that it is for.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }
}

impl Drop for AgentConnection {
    fn drop(&mut self) {
        let mut agents = self.agents.0.borrow_mut();
        if let Some(count) = agents.get_mut(&self.node) {
            *count -= 1;
            if *count == 0 {
                agents.remove(&self.node);
            }
        }
    }
}

/// Leave to serve a request; given back when dropped.
pub(crate) struct Leave(#[expect(dead_code)] Vec<OwnedSemaphorePermit>);

/// Raises the limit of descriptors as far as it goes; how many there may be.
pub(crate) fn raise_descriptors() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 1024;
    };
    let wanted = hard.min(DESCRIPTORS_MAX);
    if wanted <= soft {
        return soft.min(DESCRIPTORS_MAX);
    }
    match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => wanted,
        Err(e) => {
            warn!("the limit of descriptors stays at {soft}: {e}");
            soft
        }
    }
}

impl Users {
    /// For a process with so many descriptors.
    pub(crate) fn new(descriptors: u64, rates: RateLimit, stats: Arc<Stats>) -> Rc<Users> {
        let reserve = (descriptors / RESERVE_PART)
            .max(RESERVE_MIN)
            .min(descriptors / 2);
        let connections_max = descriptors - reserve;
        let per_user = (connections_max / CONNECTIONS_PART).clamp(1, CONNECTIONS_MAX);
        info!(
            "{descriptors} descriptors: {connections_max} connections of users, {per_user} of each, {reserve} kept for \
             root, agents and files"
        );
        Rc::new(Users {
            subordinate: RefCell::default(),
            users: RefCell::default(),
            connections: Cell::new(0),
            connections_max,
            per_user,
            frames: SharedRoom::new(),
            decoding: Arc::new(Semaphore::new(ALL_DECODED_MAX)),
            unread: ByteCount::new(outbox::UNREAD),
            rates,
            stats,
            named: RefCell::default(),
        })
    }

    /// A connection without limits.
    pub(crate) fn unlimited(self: &Rc<Users>) -> Share {
        Share {
            users: Rc::clone(self),
            user: None,
            waits: Cell::new(0),
        }
    }

    /// A new connection of a user.
    ///
    /// # Errors
    /// He has too many, or all have, or what he has sent cannot be closed.
    pub(crate) fn connect(self: &Rc<Users>, uid: u32) -> Result<Share, Over> {
        let uid = self.charged(uid);
        if passed::has_too_many(uid) {
            return Err(Over::Descriptors);
        }
        if self.connections.get() >= self.connections_max {
            return Err(Over::AllConnections(self.connections_max));
        }
        let mut users = self.users.borrow_mut();
        let user = users
            .entry(uid)
            .or_insert_with(|| Rc::new(UserQuota::new(uid, self.unread.of_another())));
        let (own, all) = (user.connections.get(), self.connections.get());
        if !may_connect(own, all, self.per_user, self.connections_max) {
            return Err(Over::Connections(own));
        }
        user.connections.set(user.connections.get() + 1);
        self.connections.set(self.connections.get() + 1);
        Ok(Share {
            users: Rc::clone(self),
            user: Some(Rc::clone(user)),
            waits: Cell::new(0),
        })
    }

    /// The uid whose share a uid uses.
    pub(crate) fn charged(&self, uid: u32) -> u32 {
        self.subordinate.borrow_mut().charged(uid)
    }

    /// Whether a uid is one of a user namespace's.
    pub(crate) fn is_subordinate(&self, uid: u32) -> bool {
        self.subordinate.borrow_mut().contains(uid)
    }

    /// Counts that a user was held back, and names him in the log, not too often.
    pub(crate) fn held_back(&self, uid: u32, why: &dyn std::fmt::Display, often: Option<Duration>) {
        let count = self.stats.held_back(uid);
        let mut named = self.named.borrow_mut();
        let due = named
            .get(&uid)
            .is_none_or(|at| at.elapsed() >= often.unwrap_or(NAMED_EVERY));
        if due {
            if named.len() >= self.rates.table_size() {
                named.clear();
            }
            named.insert(uid, Instant::now());
            warn!("uid {uid} is held back ({count} times so far): {why}");
        }
    }
}

impl UserQuota {
    fn new(uid: u32, unread: ByteCount) -> UserQuota {
        let semaphore = |room| Arc::new(Semaphore::new(room));
        UserQuota {
            uid,
            connections: Cell::new(0),
            waits: Cell::new(0),
            commands: semaphore(COMMANDS_MAX),
            queries: semaphore(QUERIES_MAX),
            frames: UserRoom::new(),
            decoding: semaphore(DECODED_MAX),
            unread,
        }
    }
}

impl Share {
    /// Where messages to the client wait until it reads them.
    pub(crate) fn outbox(&self) -> (Outbox, Inbox) {
        outbox::channel(self.user.as_ref().map(|user| user.unread.clone()))
    }

    /// Room for a frame of so many bytes, which it grows into. Small ones need none.
    pub(crate) fn frame(&self, bytes: usize) -> Option<FrameRoom> {
        let user = self.user.as_ref().filter(|_| bytes > SMALL_FRAME)?;
        Some(FrameRoom::new(&self.users.frames, &user.frames, bytes))
    }

    /// Waits until a large request of the user may be decoded.
    pub(crate) async fn decoding(&self) -> Option<Leave> {
        let user = self.user.as_ref()?;
        // The user's own first: while he waits for that, he takes nothing from others.
        let own = Arc::clone(&user.decoding).acquire_owned().await;
        let all = Arc::clone(&self.users.decoding).acquire_owned().await;
        Some(Leave([own, all].into_iter().flatten().collect()))
    }

    /// The user whom it belongs to; none for a user without limits.
    pub(crate) fn uid(&self) -> Option<u32> {
        self.user.as_ref().map(|user| user.uid)
    }

    /// Waits until another command of the user may go to the writer.
    pub(crate) async fn command(&self) -> Option<Leave> {
        let user = self.user.as_ref()?;
        self.leave(&user.commands, "commands at the same time")
            .await
    }

    /// Waits until another query of the user may be answered.
    pub(crate) async fn query(&self) -> Option<Leave> {
        let user = self.user.as_ref()?;
        self.leave(&user.queries, "queries at the same time").await
    }

    async fn leave(&self, of: &Arc<Semaphore>, what: &str) -> Option<Leave> {
        if let Ok(permit) = Arc::clone(of).try_acquire_owned() {
            return Some(Leave(vec![permit]));
        }
        self.held_back(&what);
        let permit = Arc::clone(of).acquire_owned().await;
        permit.ok().map(|permit| Leave(vec![permit]))
    }

    fn held_back(&self, why: &dyn std::fmt::Display) {
        if let Some(user) = &self.user {
            self.users.held_back(user.uid, why, None);
        }
    }

    /// Whether the rate limit lets a request pass at once.
    pub(crate) fn has_token(&self) -> bool {
        let Some(user) = &self.user else { return true };
        let passes = self.users.rates.take(user.uid, Instant::now());
        if !passes {
            // Requests that wait are looked at often: never a line for each.
            let often = Some(self.users.rates.log_every().max(NAMED_AT_MOST));
            self.users.held_back(
                user.uid,
                &"RPC rate limit (SlurmctldParameters=rl_enable)",
                often,
            );
        }
        passes
    }

    /// How long to wait before the rate limit is asked again.
    pub(crate) fn retry_after(&self) -> Duration {
        self.users.rates.period()
    }

    /// The connection waits for something more.
    ///
    /// # Errors
    /// It waits for too much.
    pub(crate) fn wait(&self) -> Result<(), Over> {
        let mine = self.waits.get() + 1;
        if let Some(user) = &self.user {
            if mine > WAITS_PER_CONNECTION {
                return Err(Over::Waits(WAITS_PER_CONNECTION));
            }
            if user.waits.get() >= WAITS_MAX {
                return Err(Over::Waits(WAITS_MAX));
            }
            user.waits.set(user.waits.get() + 1);
        }
        self.waits.set(mine);
        Ok(())
    }

    /// Something that it waited for has come.
    pub(crate) fn came(&self) {
        let mine = self.waits.get();
        if mine == 0 {
            return;
        }
        self.waits.set(mine - 1);
        if let Some(user) = &self.user {
            user.waits.set(user.waits.get().saturating_sub(1));
        }
    }

    /// Whether it waits for anything.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waits.get() > 0
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Some(user) = &self.user else { return };
        user.waits
            .set(user.waits.get().saturating_sub(self.waits.get()));
        user.connections.set(user.connections.get() - 1);
        self.users.connections.set(self.users.connections.get() - 1);
        if user.connections.get() == 0 {
            self.users.users.borrow_mut().remove(&user.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(descriptors: u64) -> Rc<Users> {
        Users::new(descriptors, RateLimit::default(), Arc::default())
    }

    /// An agent that is taken over could take the descriptors that are kept in reserve, and those of users.
    #[test]
    fn the_agent_of_a_node_has_a_few_connections() {
        let agents = Rc::new(Agents::default());
        let connect = |node: &str| agents.connect(node.to_owned());
        let mut all: Vec<_> = std::iter::from_fn(|| connect("n1")).collect();
        assert_eq!(all.len(), AGENT_CONNECTIONS_MAX);
        let other = connect("n2").unwrap();
        assert_eq!(other.node(), "n2");
        all.pop();
        all.extend(connect("n1"));
        assert_eq!(all.len(), AGENT_CONNECTIONS_MAX);
        drop((all, other));
        assert!(agents.0.borrow().is_empty());
    }

    #[test]
    fn a_user_has_a_part_of_all_connections_and_root_its_reserve() {
        let users = users(1024);
        let mut all = Vec::new();
        let over = loop {
            match users.connect(1000) {
                Ok(share) => all.push(share),
                Err(over) => break over,
            }
        };
        assert_eq!((over, all.len()), (Over::Connections(224), 224));
        // Others who take all they can get leave some for users who have few.
        for uid in 1001..1010 {
            all.extend(std::iter::from_fn(|| users.connect(uid).ok()));
        }
        for uid in 2000..2040 {
            all.extend((0..4).map(|_| users.connect(uid).ok().unwrap()));
        }
        let mut uid = 3000;
        let over = loop {
            uid += 1;
            match users.connect(uid) {
                Ok(share) => all.push(share),
                Err(over) => break over,
            }
        };
        assert_eq!((over, all.len()), (Over::AllConnections(896), 896));
        drop(all);
        assert!(users.users.borrow().is_empty() && users.connections.get() == 0);
        assert!(users.connect(1000).is_ok());
    }

    #[test]
    fn waits_are_bounded_and_given_back() {
        let users = users(1024);
        let share = users.connect(1000).ok().unwrap();
        (0..WAITS_PER_CONNECTION).for_each(|_| share.wait().unwrap());
        assert!(share.wait().is_err() && share.is_waiting());
        share.came();
        share.wait().unwrap();
        drop(share);
        let share = users.connect(1000).ok().unwrap();
        assert!(!share.is_waiting() && share.wait().is_ok());
        let root = users.unlimited();
        (0..10 * WAITS_PER_CONNECTION).for_each(|_| root.wait().unwrap());
    }

    #[test]
    fn small_frames_need_no_room() {
        let users = users(1024);
        let share = users.connect(1).ok().unwrap();
        assert!(share.frame(SMALL_FRAME).is_none());
        assert!(share.frame(SMALL_FRAME + 1).is_some());
        assert!(users.unlimited().frame(SMALL_FRAME + 1).is_none());
    }
}
