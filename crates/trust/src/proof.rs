//! Proofs of who connects from another host: a credential, and the secret that only its maker and its receiver know, with which
//! a channel between them begins ([`muster_channel`]).

use crate::munge::{Munge, MungeError};
use muster_channel::{Purpose, SECRET, Scheme, Statement};
use muster_conf::{AuthMethod, Authentication};

/// What is to be proved to whom.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// `ClusterName`.
    pub cluster: &'a str,
    /// For whom the maker speaks.
    pub purpose: Purpose,
    /// The user who is to read it: `SlurmUser`.
    pub receiver_uid: u32,
}

/// What a connection begins with.
#[derive(Clone)]
pub struct Proof {
    /// Kind of the credential.
    pub scheme: Scheme,
    /// The credential.
    pub credential: Vec<u8>,
    /// What its receiver knows from it.
    pub secret: [u8; SECRET],
}

/// The secret does not reach logs.
impl std::fmt::Debug for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proof({})", self.scheme)
    }
}

/// What a credential proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Its maker.
    pub uid: u32,
    /// His group.
    pub gid: u32,
    /// What he says with it.
    pub statement: Statement,
}

/// Why there is no proof, or none that is believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// See [`MungeError`].
    #[error(transparent)]
    Munge(#[from] MungeError),
    /// `AuthType=auth/none`.
    #[error("AuthType=auth/none lets nobody connect from another host: use auth/munge")]
    None,
    /// A method that is not implemented.
    #[error("AuthType=auth/slurm is not implemented yet: use auth/munge")]
    Slurm,
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
/// See [`ProofError`]. It may wait for munged for ten seconds.
pub fn make(authentication: &Authentication, ask: &Ask<'_>) -> Result<Proof, ProofError> {
    let mut secret = [0; SECRET];
    getrandom::fill(&mut secret).map_err(|e| ProofError::Random(e.to_string()))?;
    make_with(authentication, ask, secret)
}

/// Makes a proof with this secret.
///
/// # Errors
/// See [`make`].
pub fn make_with(
    authentication: &Authentication,
    ask: &Ask<'_>,
    secret: [u8; SECRET],
) -> Result<Proof, ProofError> {
    let statement = Statement {
        cluster: ask.cluster.to_owned(),
        purpose: ask.purpose.clone(),
        secret,
    };
    match authentication.method {
        AuthMethod::None => Err(ProofError::None),
        AuthMethod::Slurm => Err(ProofError::Slurm),
        AuthMethod::Munge => {
            let munge = Munge::open(authentication.socket.as_deref(), authentication.ttl_s)?;
            Ok(Proof {
                scheme: Scheme::Munge,
                credential: munge.encode(&statement.encode(), ask.receiver_uid)?,
                secret,
            })
        }
    }
}

/// Verifies proofs. Calls may come from several threads.
#[derive(Debug)]
pub struct ProofVerifier {
    munge: Munge,
    cluster: String,
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
        match authentication.method {
            AuthMethod::None => Err(ProofError::None),
            AuthMethod::Slurm => Err(ProofError::Slurm),
            AuthMethod::Munge => {
                let munge = Munge::open(authentication.socket.as_deref(), authentication.ttl_s)?;
                munge.check_restriction()?;
                Ok(ProofVerifier {
                    munge,
                    cluster: cluster.to_owned(),
                })
            }
        }
    }

    /// What a credential proves.
    ///
    /// # Errors
    /// It proves nothing. It may take ten seconds where munged hangs.
    pub fn verify(&self, scheme: Scheme, credential: &[u8]) -> Result<Verified, ProofError> {
        if scheme != Scheme::Munge {
            return Err(ProofError::Scheme(scheme));
        }
        let decoded = self.munge.decode(credential)?;
        let statement = Statement::decode(&decoded.payload)?;
        let is_for_any = statement.purpose == Purpose::Configuration;
        if !is_for_any && !statement.cluster.eq_ignore_ascii_case(&self.cluster) {
            return Err(ProofError::Cluster {
                theirs: statement.cluster,
                ours: self.cluster.clone(),
            });
        }
        Ok(Verified {
            uid: decoded.uid,
            gid: decoded.gid,
            statement,
        })
    }
}
