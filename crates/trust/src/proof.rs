//! Proofs of who connects from another host: a credential, and the secret that only its maker and its receiver know, with which
//! a channel between them begins ([`muster_channel`]).

pub use crate::credential::Proof;
use crate::munge::{Munge, MungeError};
use crate::sack::{self, SackError};
use crate::slurm_key::{ClusterKeys, KeyError, KeyFiles};
use crate::token::{self, TokenClaims, TokenError, TokenRequest};
use crate::used_tokens::{BOUNDS, UsedTokens};
use muster_channel::{Purpose, SECRET, Scheme, Statement};
use muster_conf::{AuthMethod, Authentication};
use nix::unistd::{getegid, geteuid};
use std::sync::{Mutex, PoisonError, RwLock};

/// Claim to prove, and its receiver.
#[derive(Clone, Debug)]
pub struct ProofRequest<'a> {
    /// `ClusterName`.
    pub cluster: &'a str,
    /// For whom the maker speaks.
    pub purpose: Purpose,
    /// The user who is to read it: `SlurmUser`.
    pub receiver_uid: u32,
}

/// Identity and statement proved by a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvedPeer {
    /// Its maker.
    pub uid: u32,
    /// His group.
    pub gid: u32,
    /// The maker's statement.
    pub statement: Statement,
}

/// Why there is no proof, or none that is believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// See [`MungeError`].
    #[error(transparent)]
    Munge(#[from] MungeError),
    /// `AuthType=auth/none`.
    #[error(
        "AuthType=auth/none lets nobody connect from another host: use auth/munge or auth/slurm"
    )]
    None,
    /// See [`KeyError`].
    #[error(transparent)]
    Key(#[from] KeyError),
    /// See [`SackError`].
    #[error(transparent)]
    Sack(#[from] SackError),
    /// See [`TokenError`].
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The other side uses another method.
    #[error("the credential is one of {0}, and this cluster uses another AuthType")]
    Scheme(Scheme),
    /// It was made for something else.
    #[error(transparent)]
    Statement(#[from] muster_channel::NoStatement),
    /// It was made for another cluster.
    #[error(
        "the credential is for cluster '{theirs}', and this is '{ours}': see that ClusterName is the same in both slurm.conf"
    )]
    Cluster {
        /// As it says.
        theirs: String,
        /// As it is here.
        ours: String,
    },
    /// No random numbers.
    #[error("no random numbers: {0}")]
    Random(String),
}

/// Makes a proof, with a secret that is new.
///
/// # Errors
/// See [`ProofError`]. It may wait for munged for ten seconds, or for sackd for five.
pub fn make(authentication: &Authentication, ask: &ProofRequest<'_>) -> Result<Proof, ProofError> {
    let mut secret = [0; SECRET];
    getrandom::fill(&mut secret).map_err(|e| ProofError::Random(e.to_string()))?;
    make_with(authentication, ask, secret)
}

/// Makes a proof with this secret, where the method lets its user choose; that of auth/slurm follows from the token.
///
/// # Errors
/// See [`make`].
pub fn make_with(
    authentication: &Authentication,
    ask: &ProofRequest<'_>,
    secret: [u8; SECRET],
) -> Result<Proof, ProofError> {
    match authentication.method {
        AuthMethod::None => by_node(ask, ProofError::None),
        AuthMethod::Slurm => make_token(authentication, ask),
        AuthMethod::Munge => {
            make_by_munge(authentication, ask, secret).or_else(|e| by_node(ask, e))
        }
    }
}

/// A user of a node that has a key of its own needs neither munge nor the cluster's key; without that, why there is none of these.
fn by_node(ask: &ProofRequest<'_>, why: ProofError) -> Result<Proof, ProofError> {
    match ask.purpose {
        Purpose::User => match sack::ask(ask.cluster) {
            Err(SackError::Absent(_)) => Err(why),
            asked => Ok(asked?),
        },
        Purpose::Node(_) | Purpose::Configuration => Err(why),
    }
}

fn make_by_munge(
    authentication: &Authentication,
    ask: &ProofRequest<'_>,
    secret: [u8; SECRET],
) -> Result<Proof, ProofError> {
    let statement = Statement {
        cluster: ask.cluster.to_owned(),
        purpose: ask.purpose.clone(),
        secret,
    };
    let munge = Munge::open(authentication.socket.as_deref(), authentication.ttl_s)?;
    Ok(Proof {
        scheme: Scheme::Munge,
        credential: munge.encode(&statement.encode(), ask.receiver_uid)?,
        secret,
    })
}

/// Makes a token with the key if this process can read it, as root and `SlurmUser` can; otherwise asks who has the key.
fn make_token(
    authentication: &Authentication,
    ask: &ProofRequest<'_>,
) -> Result<Proof, ProofError> {
    let files = KeyFiles::of_directory(&authentication.key_dir);
    let proof = |credential: Vec<u8>, secret| Proof {
        scheme: Scheme::Slurm,
        credential,
        secret,
    };
    let keys = match ClusterKeys::read(&files, ask.receiver_uid) {
        Ok(keys) => keys,
        Err(e) if e.is_not_for_this_process() && ask.purpose == Purpose::User => {
            return Ok(sack::ask(ask.cluster)?);
        }
        Err(e) => return Err(e.into()),
    };
    let claims = TokenClaims {
        cluster: ask.cluster.to_owned(),
        purpose: ask.purpose.clone(),
        receiver_uid: ask.receiver_uid,
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        host: crate::host::short_name(),
    };
    let how = TokenRequest::now(authentication.ttl_s);
    let how = how.map_err(|e| ProofError::Random(e.to_string()))?;
    let minted = token::mint(&keys, &claims, how)?;
    Ok(proof(minted.token.into_bytes(), minted.secret))
}

/// Verifies proofs. Calls may come from several threads.
#[derive(Debug)]
pub struct ProofVerifier {
    method: Method,
    cluster: String,
}

#[derive(Debug)]
enum Method {
    Munge(Munge),
    Slurm(Box<Tokens>),
}

/// Verifier of tokens of auth/slurm.
#[derive(Debug)]
struct Tokens {
    files: KeyFiles,
    keys: RwLock<ClusterKeys>,
    used: Mutex<UsedTokens>,
    own_uid: u32,
}

impl ProofVerifier {
    /// Gets ready to verify what hosts of this cluster show.
    ///
    /// # Errors
    /// Nothing can be verified here: see [`ProofError`].
    pub fn new(
        authentication: &Authentication,
        cluster: &str,
    ) -> Result<ProofVerifier, ProofError> {
        let method = match authentication.method {
            AuthMethod::None => return Err(ProofError::None),
            AuthMethod::Slurm => {
                let own_uid = geteuid().as_raw();
                let files = KeyFiles::of_directory(&authentication.key_dir);
                Method::Slurm(Box::new(Tokens {
                    keys: RwLock::new(ClusterKeys::read(&files, own_uid)?),
                    used: Mutex::new(UsedTokens::new(BOUNDS, own_uid)),
                    files,
                    own_uid,
                }))
            }
            AuthMethod::Munge => {
                let munge = Munge::open(authentication.socket.as_deref(), authentication.ttl_s)?;
                munge.check_restriction()?;
                Method::Munge(munge)
            }
        };
        Ok(ProofVerifier {
            method,
            cluster: cluster.to_owned(),
        })
    }

    /// Reads the keys anew. If they cannot be used, those before remain.
    ///
    /// # Errors
    /// They cannot be used.
    pub fn reload(&self) -> Result<(), ProofError> {
        if let Method::Slurm(tokens) = &self.method {
            let keys = ClusterKeys::read(&tokens.files, tokens.own_uid)?;
            *tokens.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        }
        Ok(())
    }

    /// Verifies a credential.
    ///
    /// # Errors
    /// It is invalid. The check may take ten seconds where munged hangs.
    pub fn verify(&self, scheme: Scheme, credential: &[u8]) -> Result<ProvedPeer, ProofError> {
        let verified = match (&self.method, scheme) {
            (Method::Munge(munge), Scheme::Munge) => {
                let decoded = munge.decode(credential)?;
                let statement = Statement::decode(&decoded.payload)?;
                self.check_cluster(&statement.cluster, &statement.purpose)?;
                ProvedPeer {
                    uid: decoded.uid,
                    gid: decoded.gid,
                    statement,
                }
            }
            (Method::Slurm(tokens), Scheme::Slurm) => self.verify_token(tokens, credential)?,
            _ => return Err(ProofError::Scheme(scheme)),
        };
        Ok(verified)
    }

    fn verify_token(&self, tokens: &Tokens, token: &[u8]) -> Result<ProvedPeer, ProofError> {
        let now_s = token::now_s();
        let opened = {
            let keys = tokens.keys.read();
            let keys = keys.unwrap_or_else(PoisonError::into_inner);
            token::open(&keys, token, now_s, tokens.own_uid)?
        };
        let claims = opened.claims;
        self.check_cluster(&claims.cluster, &claims.purpose)?;
        let mut used = tokens.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.take(opened.number, claims.uid, opened.ends_s, now_s)?;
        Ok(ProvedPeer {
            uid: claims.uid,
            gid: claims.gid,
            statement: Statement {
                cluster: claims.cluster,
                purpose: claims.purpose,
                secret: opened.secret,
            },
        })
    }

    /// A client that asks for the configuration does not know the cluster's name yet.
    fn check_cluster(&self, theirs: &str, purpose: &Purpose) -> Result<(), ProofError> {
        let is_for_any = *purpose == Purpose::Configuration;
        match is_for_any || theirs.eq_ignore_ascii_case(&self.cluster) {
            true => Ok(()),
            false => Err(ProofError::Cluster {
                theirs: theirs.to_owned(),
                ours: self.cluster.clone(),
            }),
        }
    }
}
