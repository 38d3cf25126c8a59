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
/// Connections that are kept for all.
const KEPT_OF_ALL: usize = 128;

type KeptConnections = HashMap<[u8; 32], Vec<(Instant, Client)>>;

/// The connections that wait for their user's next request.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    kept: Mutex<KeptConnections>,
}

impl Connections {
    fn kept(&self) -> MutexGuard<'_, KeptConnections> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, key: &[u8; 32]) -> Option<(Instant, Client)> {
        let mut kept = self.kept();
        let of_one = kept.get_mut(key)?;
        while let Some((since, client)) = of_one.pop() {
            // One that the controller has closed has something to read: the end.
            if since.elapsed() < AGE_MAX && client.is_quiet() {
                return Some((since, client));
            }
        }
        None
    }

    fn keep(&self, key: [u8; 32], since: Instant, client: Client) {
        let now = Instant::now();
        let mut kept = self.kept();
        for of_one in kept.values_mut() {
            of_one.retain(|(since, _)| now - *since < AGE_MAX);
        }
        kept.retain(|_, of_one| !of_one.is_empty());
        let count: usize = kept.values().map(Vec::len).sum();
        let of_one = kept.entry(key).or_default();
        if count < KEPT_OF_ALL && of_one.len() < KEPT_OF_ONE {
            of_one.push((since, client));
        }
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
        match self.all.take(&self.identity.key()) {
            Some((since, mut client)) => {
                self.since = since;
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
        self.all.keep(self.identity.key(), self.since, client);
    }
}
