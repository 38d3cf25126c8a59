//! The user of a request.

use muster_cli::connect::{self, Client, ConnectError};
use muster_cli::rest::Caller;
use muster_trust::user_token::{self, UserClaims};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Group, Uid, User, geteuid};
use sha2::{Digest as _, Sha256};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;

/// The proof of a request's user (`-a`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authentication {
    /// `rest_auth/jwt`: a token.
    pub jwt: bool,
    /// `rest_auth/local`: a socket of this host, by which the daemon's own user or root asks.
    pub local: bool,
}

impl Authentication {
    /// The names of what there is, as `-a list` prints them.
    pub const NAMES: [&'static str; 2] = ["rest_auth/local", "rest_auth/jwt"];

    /// Reads a list of names.
    ///
    /// # Errors
    /// The name that is not known.
    pub fn read(list: &str) -> Result<Authentication, String> {
        let mut chosen = Authentication {
            jwt: false,
            local: false,
        };
        for name in list.split(',').filter(|name| !name.is_empty()) {
            match name.strip_prefix("rest_auth/").unwrap_or(name) {
                "jwt" => chosen.jwt = true,
                "local" => chosen.local = true,
                _ => return Err(name.to_owned()),
            }
        }
        Ok(chosen)
    }
}

/// The process at the other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// As answers have it: an address, or the socket.
    pub(crate) source: String,
    /// The address, of another host or this one.
    pub(crate) address: Option<IpAddr>,
    /// The user, on a socket of this host.
    pub(crate) uid: Option<u32>,
    /// The end of its requests is not its own end: it still takes answers.
    pub(crate) ends_input: bool,
}

impl Peer {
    /// At the other end of a socket of this host.
    pub(crate) fn of_unix(stream: &impl AsFd) -> Peer {
        let uid = getsockopt(stream, PeerCredentials)
            .ok()
            .map(|peer| peer.uid());
        let source = match uid {
            Some(uid) => format!("unix (uid {uid})"),
            None => "unix".to_owned(),
        };
        Peer {
            source,
            address: None,
            uid,
            ends_input: false,
        }
    }

    /// At an address.
    pub(crate) fn of_tcp(address: Option<SocketAddr>) -> Peer {
        Peer {
            source: address.map_or_else(String::new, canonical),
            address: address.map(|address| address.ip().to_canonical()),
            uid: None,
            ends_input: false,
        }
    }
}

/// An address as answers and the log have it.
fn canonical(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

/// The headers by which a request says whose it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials {
    /// `X-SLURM-USER-NAME`.
    pub(crate) user: Option<String>,
    /// `X-SLURM-USER-TOKEN`, or the bearer of `Authorization`.
    pub(crate) token: Option<String>,
}

/// The user of a request. With a token this is only the token's claim: the controller believes it once a connection has begun.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) caller: Caller,
    /// Where the client is.
    pub(crate) address: Option<IpAddr>,
    token: Option<String>,
    /// Why no controller could be asked whether the token is good; nothing is done as its user then.
    unconfirmed: Option<Unconfirmed>,
}

/// The error that kept a token from being confirmed.
#[derive(Clone, Debug)]
enum Unconfirmed {
    NoConfiguration(String),
    NoController(String),
}

/// In place of the number of a user whose token nobody has confirmed, so that no turns of the user are taken: no user has it.
const UNCONFIRMED_UID: u32 = u32::MAX;

/// Why a request is nobody's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityError {
    #[error("Authentication failure")]
    Missing,
    #[error("Authentication failure: this server takes no tokens (-a)")]
    NoTokens,
    #[error("Authentication failure: {0}")]
    Token(String),
    #[error("Authentication failure: the token is of {0}, and {1} is named")]
    Other(String, String),
    #[error("Authentication failure: this host has no user {0}")]
    NoUser(String),
}

impl Identity {
    /// Finds out whose a request is.
    ///
    /// # Errors
    /// It does not say, or nobody's.
    pub(crate) fn of(
        given: Credentials,
        peer: &Peer,
        allowed: Authentication,
    ) -> Result<Identity, IdentityError> {
        match given.token {
            Some(token) if allowed.jwt => Identity::by_token(token, given.user, peer),
            Some(_) => Err(IdentityError::NoTokens),
            None if allowed.local && given.user.is_none() => Identity::by_socket(peer),
            None => Err(IdentityError::Missing),
        }
    }

    fn by_token(
        token: String,
        named: Option<String>,
        peer: &Peer,
    ) -> Result<Identity, IdentityError> {
        let UserClaims { user, .. } =
            user_token::claims(&token).map_err(|e| IdentityError::Token(e.to_string()))?;
        if let Some(other) = named.filter(|other| *other != user) {
            return Err(IdentityError::Other(user, other));
        }
        Ok(Identity {
            caller: Caller {
                user,
                source: peer.source.clone(),
                ..Caller::default()
            },
            address: peer.address,
            token: Some(token),
            unconfirmed: None,
        })
    }

    /// Looks up the user of a token, once the controller has confirmed it: who has made a token up learns nothing of who is here.
    ///
    /// # Errors
    /// This host does not have the user.
    pub(crate) fn look_up(&mut self) -> Result<(), IdentityError> {
        if self.token.is_some() {
            let found = User::from_name(&self.caller.user).ok().flatten();
            let found = found.ok_or_else(|| IdentityError::NoUser(self.caller.user.clone()))?;
            self.caller = caller(found, &self.caller.source);
        }
        Ok(())
    }

    /// Has no controller to confirm the token: every connection of this identity fails with this error, even if one answers by then.
    /// Returns whether it was one of a missing controller.
    pub(crate) fn leave_unconfirmed(&mut self, error: &ConnectError) -> bool {
        let why = match error {
            ConnectError::Config(why) => Unconfirmed::NoConfiguration(why.to_string()),
            ConnectError::Unreachable { socket, .. } => Unconfirmed::NoController(socket.clone()),
            _ => return false,
        };
        if self.token.is_some() {
            self.caller.uid = UNCONFIRMED_UID;
            self.unconfirmed = Some(why);
        }
        true
    }

    /// The error that left it unconfirmed.
    pub(crate) fn refusal(&self) -> Option<ConnectError> {
        Some(match self.unconfirmed.as_ref()? {
            Unconfirmed::NoConfiguration(why) => {
                ConnectError::Config(io::Error::other(why.clone()))
            }
            Unconfirmed::NoController(socket) => ConnectError::Unreachable {
                socket: socket.clone(),
                source: io::ErrorKind::NotConnected.into(),
            },
        })
    }

    fn by_socket(peer: &Peer) -> Result<Identity, IdentityError> {
        let own = geteuid();
        let is_own = peer.uid.is_some_and(|uid| uid == own.as_raw() || uid == 0);
        if !is_own {
            return Err(IdentityError::Missing);
        }
        let found = User::from_uid(Uid::from_raw(own.as_raw())).ok().flatten();
        let found = found.ok_or_else(|| IdentityError::NoUser(own.to_string()))?;
        Ok(Identity {
            caller: caller(found, &peer.source),
            address: peer.address,
            token: None,
            unconfirmed: None,
        })
    }

    /// The key under which connections of this identity are kept.
    pub(crate) fn key(&self) -> [u8; 32] {
        match &self.token {
            Some(token) => Sha256::digest(token.as_bytes()).into(),
            None => [0; 32],
        }
    }

    /// A connection to the controller as this user.
    ///
    /// # Errors
    /// There is no controller, or it does not believe the token.
    pub(crate) fn connect(&self, conf: &Path) -> Result<Client, ConnectError> {
        let mut client = connect::Client::connect_as(conf, self.token.as_deref())?;
        client.ask_for(self.address);
        Ok(client)
    }
}

fn caller(user: User, source: &str) -> Caller {
    let group = Group::from_gid(user.gid).ok().flatten();
    Caller {
        uid: user.uid.as_raw(),
        user: user.name,
        group: group.map_or_else(|| user.gid.to_string(), |group| group.name),
        source: source.to_owned(),
    }
}
