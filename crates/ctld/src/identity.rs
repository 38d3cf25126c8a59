//! Finds the user at the other end of a socket: peer credentials, with names from the user database. That may be slow:
//! each user is looked up once at a time and not again for a minute, on threads of their own, so that no user waits for
//! the look-up of another.

use log::warn;
use muster_model::command::Identity;
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};

/// Lifetime of an identity.
const KEEP: Duration = Duration::from_secs(60);
/// Time that a stale identity is used while it is looked up again.
const STALE: Duration = Duration::from_secs(600);
/// Identities that are kept.
const KNOWN_MAX: usize = 4096;
/// Look-ups at the same time.
const LOOKUPS_MAX: usize = 64;

/// The key of a look-up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct UserAndGroup {
    uid: u32,
    gid: u32,
}

type LookUp = fn(u32, u32) -> Identity;

/// Identities that were looked up lately.
pub(crate) struct Directory {
    known: RefCell<HashMap<UserAndGroup, (Instant, Identity)>>,
    /// Waiters for look-ups that are under way.
    waiting: RefCell<HashMap<UserAndGroup, Vec<oneshot::Sender<Identity>>>>,
    threads: Semaphore,
    look_up: LookUp,
}

impl Default for Directory {
    fn default() -> Directory {
        Directory::new(look_up)
    }
}

impl Directory {
    fn new(look_up: LookUp) -> Directory {
        Directory {
            known: RefCell::default(),
            waiting: RefCell::default(),
            threads: Semaphore::new(LOOKUPS_MAX),
            look_up,
        }
    }

    /// The identity behind a uid and gid.
    pub(crate) async fn identity(self: &Rc<Directory>, uid: u32, gid: u32) -> Identity {
        let key = UserAndGroup { uid, gid };
        let known = self.known.borrow().get(&key).cloned();
        match known {
            Some((at, identity)) if at.elapsed() < KEEP => return identity,
            Some((at, identity)) if at.elapsed() < STALE => {
                self.begin(key, None);
                return identity;
            }
            _ => {}
        }
        let (answer, found) = oneshot::channel();
        self.begin(key, Some(answer));
        found.await.unwrap_or_else(|_| nameless(uid, gid))
    }

    /// Begins a look-up, if none is under way.
    fn begin(self: &Rc<Directory>, key: UserAndGroup, answer: Option<oneshot::Sender<Identity>>) {
        let mut waiting = self.waiting.borrow_mut();
        if let Some(others) = waiting.get_mut(&key) {
            others.extend(answer);
            return;
        }
        waiting.insert(key, answer.into_iter().collect());
        let directory = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let UserAndGroup { uid, gid } = key;
            let _permit = directory.threads.acquire().await;
            let look_up = directory.look_up;
            let found = tokio::task::spawn_blocking(move || look_up(uid, gid)).await;
            let identity = found.unwrap_or_else(|e| {
                warn!("uid {uid} cannot be looked up: {e}");
                nameless(uid, gid)
            });
            directory.keep(key, identity.clone());
            let waiting = directory.waiting.borrow_mut().remove(&key);
            for answer in waiting.into_iter().flatten() {
                let _ = answer.send(identity.clone());
            }
        });
    }

    fn keep(&self, key: UserAndGroup, identity: Identity) {
        let mut known = self.known.borrow_mut();
        if known.len() >= KNOWN_MAX && !known.contains_key(&key) {
            let mut times: Vec<Instant> = known.values().map(|(at, _)| *at).collect();
            times.sort_unstable();
            // The older half makes room.
            let median = times[times.len() / 2];
            known.retain(|_, (at, _)| *at > median);
        }
        known.insert(key, (Instant::now(), identity));
    }
}

fn nameless(uid: u32, gid: u32) -> Identity {
    Identity {
        uid,
        gid,
        user: uid.to_string(),
        group: gid.to_string(),
        groups: Vec::new(),
        gids: Vec::new(),
        // A peer on a Unix socket is on this host, whatever it says.
        host: Some(crate::answer::hostname()),
        granted: Default::default(),
        is_ordinary: false,
    }
}

/// The least number of an ordinary user's account (`UID_MIN` of login.defs(5), as distributions have it).
const ORDINARY_MIN: u32 = 1000;
/// Numbers that are systemd's, of agents without an account, and of processes that are nobody's. The user nobody has jobs as others do.
const RESERVED: std::ops::Range<u32> = 61_184..65_534;

/// Whether a node with a key of its own may speak for a user: one with an account here, of an ordinary number, and a group of that account.
/// Root of such a node would otherwise be in any group of all other nodes, and what daemons run as there.
///
/// # Errors
/// Why not.
pub(crate) fn check_ordinary(identity: &Identity) -> Result<(), String> {
    let (uid, gid) = (identity.uid, identity.gid);
    let why = if identity.user == uid.to_string() {
        "has no account on the controller's host".to_owned()
    } else if uid < ORDINARY_MIN || RESERVED.contains(&uid) {
        format!("is not an ordinary user ({ORDINARY_MIN} and above, without 61184 to 65533)")
    } else if !identity.gids.contains(&gid) {
        format!("is not in group {gid} on the controller's host")
    } else {
        return Ok(());
    };
    Err(format!(
        "uid {uid} {why}, and the node that says who it is is believed for ordinary users only, since it has a key of its own: use the \
         controller's host, or a token (SLURM_JWT)"
    ))
}

fn look_up(uid: u32, gid: u32) -> Identity {
    let mut identity = nameless(uid, gid);
    if let Ok(Some(group)) = Group::from_gid(Gid::from_raw(gid)) {
        identity.group = group.name;
    }
    if let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) {
        let gids = CString::new(user.name.as_str())
            .ok()
            .and_then(|name| getgrouplist(&name, user.gid).ok())
            .unwrap_or_default();
        (identity.gids, identity.groups) = gids
            .into_iter()
            .filter_map(|g| Some((g.as_raw(), Group::from_gid(g).ok().flatten()?.name)))
            .unzip();
        identity.user = user.name;
    }
    identity
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    static LOOKED_UP: AtomicU32 = AtomicU32::new(0);
    static ANSWERS: AtomicBool = AtomicBool::new(false);

    /// User 1's directory does not answer until it is let to.
    fn slow(uid: u32, gid: u32) -> Identity {
        LOOKED_UP.fetch_add(1, Ordering::Relaxed);
        while uid == 1 && !ANSWERS.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        nameless(uid, gid)
    }

    #[test]
    fn a_slow_look_up_delays_nobody_else_and_is_done_once() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let directory = Rc::new(Directory::new(slow));
            let waiters: Vec<_> = (0..100)
                .map(|_| {
                    let directory = Rc::clone(&directory);
                    tokio::task::spawn_local(async move { directory.identity(1, 1).await })
                })
                .collect();
            for uid in 2..10 {
                assert_eq!(directory.identity(uid, uid).await.uid, uid);
            }
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
            ANSWERS.store(true, Ordering::Release);
            for waiter in waiters {
                assert_eq!(waiter.await.unwrap().uid, 1);
            }
            assert_eq!(LOOKED_UP.load(Ordering::Relaxed), 9);
        });
    }

    /// Root of a node with a key of its own had jobs of group 0, and of daemons' accounts, on all other nodes.
    #[test]
    fn a_nodes_word_counts_for_ordinary_users_in_their_groups() {
        let of = |uid: u32, gid: u32, user: &str| Identity {
            user: user.to_owned(),
            gids: vec![100, 2000],
            ..nameless(uid, gid)
        };
        check_ordinary(&of(1000, 100, "amy")).unwrap();
        check_ordinary(&of(70_000, 2000, "amy")).unwrap();
        for (identity, why) in [
            (of(1000, 0, "amy"), "not in group 0"),
            (of(1000, 6, "amy"), "not in group 6"),
            (of(1000, 100, "1000"), "no account"),
            (of(110, 100, "munge"), "not an ordinary user"),
            (of(65_520, 100, "agent"), "not an ordinary user"),
            (of(65_530, 100, "probe"), "not an ordinary user"),
            (of(0, 0, "root"), "not an ordinary user"),
        ] {
            let refused = check_ordinary(&identity).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let directory = Directory::new(nameless);
        for uid in 0..20_000 {
            directory.keep(UserAndGroup { uid, gid: 0 }, nameless(uid, 0));
        }
        assert!(directory.known.borrow().len() <= KNOWN_MAX);
        let last = UserAndGroup {
            uid: 19_999,
            gid: 0,
        };
        assert!(directory.known.borrow().contains_key(&last));
    }
}
