//! The controller's secrets: the key by which agents know it, and the secret that job keys are derived from. Both are made
//! once and live in `StateSaveLocation`, readable by the controller's user alone. They never reach a log.

use anyhow::{Context, Result};
use muster_model::ids::{Attempt, BlobId, JobId};
use muster_trust::{JobKeyUse, KeyPair, SealedSession, SessionPeers, VerifyError};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

/// Begins sessions with agents and derives job keys. Cheap to clone.
#[derive(Clone)]
pub struct Keys(Arc<SecretKeys>);

struct SecretKeys {
    pair: KeyPair,
    secret: [u8; 32],
}

impl Keys {
    /// Reads the keys of a state directory, or makes them.
    ///
    /// # Errors
    /// When the file cannot be read or written, or is not ours.
    pub fn open(dir: &Path) -> Result<Keys> {
        let path = dir.join("controller.key");
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => create(&path)?,
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
        };
        let bytes: [u8; 64] = bytes.try_into().map_err(|_| {
            anyhow::anyhow!(
                "{} is not a controller key (64 bytes); restore it, or move it away and restart every node agent",
                path.display()
            )
        })?;
        Ok(Keys::from_bytes(bytes))
    }

    /// The keys that a key file of these bytes holds.
    pub fn from_bytes(bytes: [u8; 64]) -> Keys {
        let (own, secret) = bytes.split_at(32);
        Keys(Arc::new(SecretKeys {
            pair: KeyPair::of(own.try_into().expect("half of 64 bytes is 32")),
            secret: secret.try_into().expect("half of 64 bytes is 32"),
        }))
    }

    /// The pair of keys by which nodes know the controller.
    pub(crate) fn pair(&self) -> &KeyPair {
        &self.0.pair
    }

    /// The public key by which agents know the controller.
    pub fn public(&self) -> Vec<u8> {
        self.0.pair.public().to_vec()
    }

    /// A session with the process of a node that has shown its key.
    ///
    /// # Errors
    /// The key is none.
    pub fn session(
        &self,
        peers: SessionPeers<'_>,
        node: &[u8],
    ) -> Result<SealedSession, VerifyError> {
        self.0.pair.with_node(peers, node)
    }

    /// The key by which the agents of one launch of a job know each other.
    pub fn job_key(&self, job: JobId, attempt: Attempt) -> Vec<u8> {
        // A hash of fixed-length fields behind a secret that is never output; SHA-256's length extension does not
        // matter because a longer message is never a key.
        let mut hash = Sha256::new();
        hash.update(self.0.secret);
        hash.update(job.0.to_be_bytes());
        hash.update(attempt.0.to_be_bytes());
        hash.update(self.0.secret);
        hash.finalize()[..16].to_vec()
    }

    /// The key by which the owner's srun may ask for steps of one launch of a job, and for nothing else.
    pub fn owner_key(&self, job: JobId, attempt: Attempt) -> Vec<u8> {
        muster_trust::derive_job_key(&self.job_key(job, attempt), JobKeyUse::Owner)
    }

    /// The key by which the agent of a heterogeneous job's leader proves the numbers of steps to those of the others.
    ///
    /// It is the same for all launches, of which the components may have had different numbers: no step gets a number that
    /// one of an earlier launch has had.
    pub fn het_key(&self, leader: JobId) -> Vec<u8> {
        muster_trust::derive_job_key(&self.job_key(leader, Attempt(0)), JobKeyUse::HetSteps)
    }
}

fn create(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = vec![0; 64];
    fs::File::open("/dev/urandom")
        .and_then(|mut f| f.read_exact(&mut bytes))
        .context("cannot read /dev/urandom")?;
    let temporary = path.with_extension("key.tmp");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .with_context(|| format!("cannot create {}", temporary.display()))?;
    file.write_all(&bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, path))
        // Agents pin the key: it must not be another one after a loss of power.
        .and_then(|()| fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all())
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(bytes)
}

/// The id of a script or context by its content.
pub fn blob_id(bytes: &[u8]) -> BlobId {
    BlobId(Sha256::digest(bytes).into())
}
