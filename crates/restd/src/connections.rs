//! Connections to the controller that are open between requests: to begin one with a token costs more than most requests.

use crate::identity::Identity;
use muster_cli::connect::{Client, ConnectError};
use muster_cli::rest::Connect;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time that a connection is used after it has begun with a token: a key that was changed, or a token that is too old,
/// counts then.
const AGE_MAX: Duration = Duration::from_secs(30);
/// Connections that are kept for one user's token.
const KEPT_OF_ONE: usize = 8;
/// Connections that are kept for all tokens of a user.
const KEPT_OF_USER: usize = 16;
/// Connections that are kept for all.
const KEPT_OF_ALL: usize = 128;

/// A connection that waits, and since when it is open.
#[derive(Debug)]
struct KeptConnection<C> {
    since: Instant,
    /// The user that the token names.
    user: String,
    connection: C,
}

/// The connections that wait, by token.
#[derive(Debug)]
struct KeptConnections<C>(HashMap<[u8; 32], Vec<KeptConnection<C>>>);

impl<C> Default for KeptConnections<C> {
    fn default() -> KeptConnections<C> {
        KeptConnections(HashMap::new())
    }
}

impl<C> KeptConnections<C> {
    /// Takes the one that was kept last, if it serves.
    fn take(
        &mut self,
        key: &[u8; 32],
        now: Instant,
        serves: impl Fn(&C) -> bool,
    ) -> Option<KeptConnection<C>> {
        let of_one = self.0.get_mut(key)?;
        while let Some(kept) = of_one.pop() {
            if now.saturating_duration_since(kept.since) < AGE_MAX && serves(&kept.connection) {
                return Some(kept);
            }
        }
        None
    }

    /// Keeps one. Where a user or all have as many as are kept, the oldest of that user, or of the user with the most, is closed:
    /// a user with many tokens takes nobody's.
    fn keep(&mut self, key: [u8; 32], new: KeptConnection<C>, now: Instant) {
        for of_one in self.0.values_mut() {
            of_one.retain(|kept| now.saturating_duration_since(kept.since) < AGE_MAX);
        }
        self.0.retain(|_, of_one| !of_one.is_empty());
        if self
            .0
            .get(&key)
            .is_some_and(|of_one| of_one.len() >= KEPT_OF_ONE)
        {
            return;
        }
        if self.of_user(&new.user) >= KEPT_OF_USER {
            let user = new.user.clone();
            self.close_oldest_of(&user);
        } else if self.0.values().map(Vec::len).sum::<usize>() >= KEPT_OF_ALL {
            let users = self.all().map(|kept| kept.user.as_str());
            let most = users
                .max_by_key(|user| self.of_user(user))
                .map(str::to_owned);
            most.iter().for_each(|user| self.close_oldest_of(user));
        }
        self.0.entry(key).or_default().push(new);
    }

    fn all(&self) -> impl Iterator<Item = &KeptConnection<C>> {
        self.0.values().flatten()
    }

    fn of_user(&self, user: &str) -> usize {
        self.all().filter(|kept| kept.user == user).count()
    }

    fn close_oldest_of(&mut self, user: &str) {
        let of_user = self.all().filter(|kept| kept.user == user);
        let Some(oldest) = of_user.map(|kept| kept.since).min() else {
            return;
        };
        for of_one in self.0.values_mut() {
            let place = of_one
                .iter()
                .position(|kept| kept.user == user && kept.since == oldest);
            if let Some(place) = place {
                of_one.remove(place);
                return;
            }
        }
    }
}

/// The connections that wait for their user's next request.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    kept: Mutex<KeptConnections<Client>>,
}

impl Connections {
    fn kept(&self) -> MutexGuard<'_, KeptConnections<Client>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connections for one request.
pub(crate) struct ConnectionsOf<'a> {
    pub(crate) all: &'a Connections,
    pub(crate) identity: &'a Identity,
    pub(crate) conf: &'a PathBuf,
    /// When the connection that is in use has begun.
    pub(crate) since: Instant,
}

impl ConnectionsOf<'_> {
    /// Has the controller confirm whose a request is, unless it has done so a moment ago.
    ///
    /// # Errors
    /// There is no controller, or it does not believe the token.
    pub(crate) fn confirm(&mut self) -> Result<(), ConnectError> {
        let client = self.connect()?;
        self.keep(client);
        Ok(())
    }
}

impl Connect for ConnectionsOf<'_> {
    fn connect(&mut self) -> Result<Client, ConnectError> {
        if let Some(error) = self.identity.refusal() {
            return Err(error);
        }
        // One that the controller has closed has something to read: the end.
        let kept = (self.all.kept()).take(&self.identity.key(), Instant::now(), Client::is_quiet);
        match kept {
            Some(kept) => {
                self.since = kept.since;
                let mut client = kept.connection;
                client.ask_for(self.identity.address);
                Ok(client)
            }
            None => {
                self.since = Instant::now();
                self.identity.connect(self.conf)
            }
        }
    }

    fn keep(&mut self, client: Client) {
        let new = KeptConnection {
            since: self.since,
            user: self.identity.caller.user.clone(),
            connection: client,
        };
        (self.all.kept()).keep(self.identity.key(), new, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(all: &mut KeptConnections<u8>, token: u8, user: &str, since: Instant) {
        let new = KeptConnection {
            since,
            user: user.to_owned(),
            connection: token,
        };
        all.keep([token; 32], new, since);
    }

    #[test]
    fn a_user_with_many_tokens_keeps_as_many_as_any_other() {
        let mut all = KeptConnections::default();
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        keep(&mut all, 255, "bob", at(0));
        for token in 0..200 {
            keep(&mut all, token, "ann", at(1 + u64::from(token)));
        }
        assert_eq!((all.of_user("ann"), all.of_user("bob")), (KEPT_OF_USER, 1));
        // The newest are kept.
        assert!(all.take(&[199; 32], at(300), |_| true).is_some());
        assert!(all.take(&[3; 32], at(300), |_| true).is_none());
        for _ in 0..20 {
            keep(&mut all, 254, "eve", at(400));
        }
        assert_eq!(all.of_user("eve"), KEPT_OF_ONE);
        for user in 0..40 {
            for token in 0..8 {
                keep(&mut all, user * 4 + token % 4, &format!("u{user}"), at(500));
            }
        }
        assert!(all.all().count() <= KEPT_OF_ALL);
        assert_eq!(all.of_user("bob"), 1, "who has the most gives one up");
        assert!(all.take(&[255; 32], begin + AGE_MAX, |_| true).is_none());
    }
}
