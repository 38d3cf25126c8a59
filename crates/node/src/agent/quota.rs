//! What the clients of one user may have at a time, and those of all users together: connections, and bytes of requests
//! that are incomplete or wait. Root, and the agent's own user, are not limited; the descriptors that are kept back are
//! for them, the shim, the controller and the agent's own files.

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
/// The same of all.
const BYTES_MAX: usize = 192 << 20;

/// Who uses how much. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Quotas(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    own_uid: u32,
    clients_max: usize,
    user_clients_max: usize,
    all: Used,
    users: HashMap<u32, Used>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    clients: usize,
    bytes: usize,
    /// A refusal was logged, and the user has not been without connections since.
    logged: bool,
}

impl Quotas {
    /// For an agent of this user that may have so many descriptors.
    pub(crate) fn new(own_uid: u32, descriptors: u64) -> Quotas {
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        let clients = descriptors.saturating_sub(RESERVED_FDS) / CLIENT_FDS;
        let clients_max = clients.clamp(16, CLIENTS_MAX);
        Quotas(Arc::new(Mutex::new(Inner {
            own_uid,
            clients_max,
            user_clients_max: (clients_max / 2).min(USER_CLIENTS_MAX),
            all: Used::default(),
            users: HashMap::new(),
        })))
    }

    /// A client has come; none if its user, or all together, have as many as they may.
    pub(crate) fn client(&self, uid: u32) -> Option<Client> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let limited = uid != 0 && uid != inner.own_uid;
        if limited {
            let full = inner.all.clients >= inner.clients_max;
            let most = inner.user_clients_max;
            let used = inner.users.entry(uid).or_default();
            if full || used.clients >= most {
                if !std::mem::replace(&mut used.logged, true) {
                    let clients = used.clients;
                    log::warn!(
                        "uid {uid} has {clients} connections to this node: no more are accepted"
                    );
                }
                return None;
            }
            used.clients += 1;
            inner.all.clients += 1;
        }
        drop(inner);
        Some(Client {
            quotas: self.clone(),
            uid,
            limited,
        })
    }

    fn give_back(&self, uid: u32, clients: usize, bytes: usize) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.all.clients -= clients;
        inner.all.bytes -= bytes;
        if let Some(used) = inner.users.get_mut(&uid) {
            used.clients -= clients;
            used.bytes -= bytes;
            if used.clients == 0 && used.bytes == 0 {
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
    limited: bool,
}

impl Client {
    /// Whether limits count for it.
    pub(crate) fn is_limited(&self) -> bool {
        self.limited
    }

    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }

    /// A request of this client, without bytes so far.
    pub(crate) fn charge(&self) -> Charge {
        Charge {
            quotas: self.limited.then(|| self.quotas.clone()),
            uid: self.uid,
            bytes: 0,
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.limited {
            self.quotas.give_back(self.uid, 1, 0);
        }
    }
}

/// Bytes of a request, as long as they are held.
#[derive(Debug)]
pub(crate) struct Charge {
    quotas: Option<Quotas>,
    uid: u32,
    bytes: usize,
}

impl Charge {
    /// Makes it so many bytes; whether there may be as many.
    pub(crate) fn set(&mut self, bytes: usize) -> bool {
        let Some(quotas) = self.quotas.as_ref().filter(|_| bytes != self.bytes) else {
            return true;
        };
        if bytes < self.bytes {
            quotas.give_back(self.uid, 0, self.bytes - bytes);
            self.bytes = bytes;
            return true;
        }
        let mut inner = quotas.0.lock().unwrap_or_else(PoisonError::into_inner);
        let more = bytes - self.bytes;
        let of_all = inner.all.bytes + more;
        let used = inner.users.entry(self.uid).or_default();
        let of_user = used.bytes + more;
        if of_all > BYTES_MAX || of_user > USER_BYTES_MAX {
            if !std::mem::replace(&mut used.logged, true) {
                let mib = used.bytes >> 20;
                log::warn!(
                    "uid {} has {mib} MiB of requests on this node: more are refused",
                    self.uid
                );
            }
            return false;
        }
        used.bytes = of_user;
        inner.all.bytes = of_all;
        self.bytes = bytes;
        true
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(quotas) = self.quotas.as_ref().filter(|_| self.bytes > 0) {
            quotas.give_back(self.uid, 0, self.bytes);
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
        assert_eq!(first.len(), 20);
        let second: Vec<Client> = std::iter::from_fn(|| quotas.client(2)).collect();
        assert_eq!(second.len(), 20);
        assert!(quotas.client(3).is_none(), "all together");
        let root: Vec<Client> = (0..100).map(|_| quotas.client(0).unwrap()).collect();
        drop(first);
        assert!(quotas.client(3).is_some());
        drop((second, root));
        let inner = quotas.0.lock().unwrap();
        assert!(inner.users.is_empty());
        assert_eq!(inner.all.clients, 0);
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
        assert_eq!(quotas.0.lock().unwrap().all.bytes, 0);
    }
}
