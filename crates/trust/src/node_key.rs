//! The key of a node: a pair (X25519) that the node has made itself, of which the controller has pinned the public half and the
//! node the controller's. Both derive the secret of each channel from them, so that neither a stranger nor another node can speak for
//! this one, and nobody for the controller. No key of the whole cluster is needed on such a host.

use crate::credential::Proof;
pub use crate::token::now_s;
use crate::{KEY, KeyPair, VerifyError};
use muster_channel::{Purpose, SECRET, Scheme};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The name of the file in `SlurmdSpoolDir`.
pub const FILE: &str = "node.key";
/// Where a host keeps it that has no slurm.conf of its own: Slurm's default of `SlurmdSpoolDir`.
pub const USUAL_DIRECTORY: &str = "/var/spool/slurmd";
/// Beginning of the file.
const FILE_KIND: &str = "muster node key 1";
/// Beginning of a claim, to distinguish it from all others.
const CLAIM_KIND: &str = "muster node 1";
/// Purpose of the secret that follows from a claim.
const CHANNEL: &[u8] = b"muster: a channel by the key of a node, 1";
/// Bytes of the file.
const FILE_BYTES_MAX: u64 = 4 << 10;
/// Bytes of a name of a cluster or node.
const NAME_BYTES_MAX: usize = 255;
/// Bytes of a number that no other claim has.
const NONCE: usize = 16;
/// Greatest difference of the clocks of both hosts, and validity of a claim, seconds.
pub const CLAIM_AGE_MAX_S: u64 = 60;

/// For whom a node speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// Its agent.
    Agent,
    /// The host itself, to get the configuration.
    Configuration,
    /// A user of this host, as the kernel there says.
    User {
        /// Number of the user.
        uid: u32,
        /// Number of the group.
        gid: u32,
    },
}

impl Speaker {
    fn text(&self) -> String {
        match self {
            Speaker::Agent => "agent".to_owned(),
            Speaker::Configuration => "configuration".to_owned(),
            Speaker::User { uid, gid } => format!("user {uid} {gid}"),
        }
    }

    fn of_text(text: &str) -> Option<Speaker> {
        match text {
            "agent" => Some(Speaker::Agent),
            "configuration" => Some(Speaker::Configuration),
            _ => {
                let (uid, gid) = text.strip_prefix("user ")?.split_once(' ')?;
                let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
                Some(Speaker::User { uid, gid })
            }
        }
    }
}

/// The credential of a channel by a node's key. It is sent as it is; who changes any of it has no longer the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeClaim {
    /// `ClusterName`.
    pub cluster: String,
    /// `NodeName`.
    pub node: String,
    /// For whom it speaks.
    pub speaker: Speaker,
    /// When it was made, seconds since 1970.
    pub made_s: u64,
    /// A number that no other claim has.
    pub nonce: [u8; NONCE],
}

/// Why a credential is no claim of a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// It is something else.
    #[error("the credential is not what a node with a key of its own says")]
    Form,
    /// Another cluster's.
    #[error(
        "the node's key is for cluster '{0}': 'muster node join' there with a token of this one"
    )]
    Cluster(String),
    /// Made too long ago, or in the future.
    #[error(
        "it was made {0} s before or after this host's time: set the clocks of both hosts (they may differ by {CLAIM_AGE_MAX_S} s)"
    )]
    Time(u64),
    /// One of the keys is none.
    #[error(transparent)]
    Key(#[from] VerifyError),
}

impl NodeClaim {
    /// As it is sent.
    pub fn encode(&self) -> Vec<u8> {
        let NodeClaim {
            cluster,
            node,
            speaker,
            made_s,
            nonce,
        } = self;
        let text = format!(
            "{CLAIM_KIND}\n{cluster}\n{node}\n{}\n{made_s}\n",
            speaker.text()
        );
        [text.as_bytes(), nonce].concat()
    }

    /// Reads one.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(bytes: &[u8]) -> Result<NodeClaim, ClaimError> {
        NodeClaim::read(bytes).ok_or(ClaimError::Form)
    }

    fn read(bytes: &[u8]) -> Option<NodeClaim> {
        let (text, nonce) = bytes.split_last_chunk::<NONCE>()?;
        let text = std::str::from_utf8(text).ok()?.strip_suffix('\n')?;
        let mut lines = text.split('\n');
        if lines.next()? != CLAIM_KIND {
            return None;
        }
        let (cluster, node) = (lines.next()?, lines.next()?);
        let is_name = |name: &str| (1..=NAME_BYTES_MAX).contains(&name.len());
        let claim = NodeClaim {
            cluster: cluster.to_owned(),
            node: node.to_owned(),
            speaker: Speaker::of_text(lines.next()?)?,
            made_s: lines.next()?.parse().ok()?,
            nonce: *nonce,
        };
        let is_whole = lines.next().is_none() && is_name(cluster) && is_name(node);
        is_whole.then_some(claim)
    }

    /// Whether it is for this cluster and was made lately.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self, cluster: &str, now_s: u64) -> Result<(), ClaimError> {
        if !self.cluster.eq_ignore_ascii_case(cluster) {
            return Err(ClaimError::Cluster(plain(&self.cluster)));
        }
        let age = self.made_s.abs_diff(now_s);
        match age > CLAIM_AGE_MAX_S {
            true => Err(ClaimError::Time(age)),
            false => Ok(()),
        }
    }

    /// The secret of the channel that begins with it, for the controller, which knows the node's public key.
    ///
    /// # Errors
    /// The key is none.
    pub fn secret_for_controller(
        &self,
        controller: &KeyPair,
        node: &[u8],
    ) -> Result<[u8; SECRET], VerifyError> {
        let own = controller.public();
        controller.derive(node, CHANNEL, &[&self.encode(), &own, node])
    }
}

/// A stranger's text in printable form.
fn plain(text: &str) -> String {
    text.chars()
        .take(80)
        .flat_map(char::escape_default)
        .collect()
}

/// Why a host has no key of its own that it can use.
#[derive(Debug, thiserror::Error)]
pub enum NodeKeyError {
    /// It cannot be read or written.
    #[error("{0}: {1}")]
    File(String, io::Error),
    /// Others could have read or changed it.
    #[error(
        "{0} must be a plain file of root's, or of slurmd's user, with mode 0600: replace the key by 'muster node join' with another token"
    )]
    Owner(String),
    /// It is no key.
    #[error("{0} has no key of a node: replace it by 'muster node join' with another token")]
    Form(String),
    /// It is another cluster's or another node's.
    #[error("{0} has the key of node {1} of cluster '{2}', not of {3} of '{4}'")]
    Other(String, String, String, String, String),
    /// No random numbers, or a key that is none.
    #[error("{0}")]
    Failed(String),
}

/// A node's own key, and its controller's.
pub struct NodeKey {
    /// `ClusterName`.
    pub cluster: String,
    /// `NodeName`.
    pub node: String,
    /// The controller's public key.
    pub controller: [u8; KEY],
    pair: KeyPair,
}

/// The secret does not reach logs.
impl std::fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodeKey({} of {})", self.node, self.cluster)
    }
}

impl NodeKey {
    /// Makes one.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn make(cluster: &str, node: &str, controller: [u8; KEY]) -> Result<NodeKey, NodeKeyError> {
        let mut secret = Zeroizing::new([0; KEY]);
        getrandom::fill(&mut *secret).map_err(|e| NodeKeyError::Failed(e.to_string()))?;
        Ok(NodeKey {
            cluster: cluster.to_owned(),
            node: node.to_owned(),
            controller,
            pair: KeyPair::of(*secret),
        })
    }

    /// Public key, pinned by the controller.
    pub fn public(&self) -> [u8; KEY] {
        self.pair.public()
    }

    /// The pair of keys.
    pub(crate) fn pair(&self) -> &KeyPair {
        &self.pair
    }

    /// Proof with which a channel begins by which this host speaks.
    ///
    /// # Errors
    /// There are no random numbers, or the controller's key is invalid.
    pub fn proof(&self, speaker: Speaker) -> Result<Proof, NodeKeyError> {
        let failed = |e: &dyn std::fmt::Display| NodeKeyError::Failed(e.to_string());
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).map_err(|e| failed(&e))?;
        let claim = NodeClaim {
            cluster: self.cluster.clone(),
            node: self.node.clone(),
            speaker,
            made_s: now_s(),
            nonce,
        };
        let credential = claim.encode();
        let bound_to: [&[u8]; 3] = [&credential, &self.controller, &self.public()];
        let secret = self.pair.derive(&self.controller, CHANNEL, &bound_to);
        Ok(Proof {
            scheme: Scheme::Node,
            secret: secret.map_err(|e| failed(&e))?,
            credential,
        })
    }

    /// The proof for what a credential of another kind would be for.
    ///
    /// # Errors
    /// See [`NodeKey::proof`]; and if it is for another node.
    pub fn proof_for(&self, purpose: &Purpose) -> Result<Proof, NodeKeyError> {
        match purpose {
            Purpose::Node(node) if *node == self.node => self.proof(Speaker::Agent),
            Purpose::Configuration => self.proof(Speaker::Configuration),
            Purpose::Node(_) | Purpose::User => Err(NodeKeyError::Failed(format!(
                "this host has the key of node {}, which is good for nothing else",
                self.node
            ))),
        }
    }

    /// Reads the key of a directory; none if it has none.
    ///
    /// # Errors
    /// There is a file that is no key, or that others could have read.
    pub fn find(directory: &Path) -> Result<Option<NodeKey>, NodeKeyError> {
        let path = directory.join(FILE);
        match NodeKey::read(&path) {
            Err(NodeKeyError::File(_, e)) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    /// Whether it is for this node of this cluster.
    ///
    /// # Errors
    /// It is for another.
    pub fn check(&self, cluster: &str, node: &str, file: &Path) -> Result<(), NodeKeyError> {
        if self.cluster.eq_ignore_ascii_case(cluster) && self.node == node {
            return Ok(());
        }
        Err(NodeKeyError::Other(
            file.display().to_string(),
            self.node.clone(),
            self.cluster.clone(),
            node.to_owned(),
            cluster.to_owned(),
        ))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It is no key, or others could have read it.
    pub fn read(path: &Path) -> Result<NodeKey, NodeKeyError> {
        let shown = || path.display().to_string();
        let failed = |e: io::Error| NodeKeyError::File(shown(), e);
        let file = File::options()
            .read(true)
            .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
            .open(path)
            .map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        let own = nix::unistd::geteuid().as_raw();
        let is_owned = found.uid() == 0 || found.uid() == own;
        if !found.is_file() || !is_owned || found.mode() & 0o077 != 0 || found.nlink() != 1 {
            return Err(NodeKeyError::Owner(shown()));
        }
        let mut text = Zeroizing::new(String::new());
        file.take(FILE_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(failed)?;
        NodeKey::parse(&text).ok_or_else(|| NodeKeyError::Form(shown()))
    }

    fn parse(text: &str) -> Option<NodeKey> {
        let mut lines = text.lines();
        if lines.next()? != FILE_KIND {
            return None;
        }
        let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ');
        let (cluster, node) = (value("cluster")?, value("node")?);
        let controller = key_of_hex(value("controller")?)?;
        let secret = Zeroizing::new(key_of_hex(value("secret")?)?);
        Some(NodeKey {
            cluster: cluster.to_owned(),
            node: node.to_owned(),
            controller,
            pair: KeyPair::of(*secret),
        })
    }

    /// Where one is before the controller has pinned it.
    pub fn pending_path(directory: &Path) -> PathBuf {
        directory.join(format!("{FILE}.new"))
    }

    /// Has the one count that the controller has pinned, in place of an earlier one: whole and durable.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn keep_pending(directory: &Path) -> Result<PathBuf, NodeKeyError> {
        let path = directory.join(FILE);
        let new = NodeKey::pending_path(directory);
        let renamed = fs::rename(&new, &path).and_then(|()| File::open(directory)?.sync_all());
        renamed.map_err(|e| NodeKeyError::File(path.display().to_string(), e))?;
        Ok(path)
    }

    /// Writes a file that nobody else can read.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), NodeKeyError> {
        let secret = Zeroizing::new(hex(&*self.pair.secret_bytes()));
        let text = Zeroizing::new(format!(
            "{FILE_KIND}\ncluster {}\nnode {}\ncontroller {}\nsecret {}\n",
            self.cluster,
            self.node,
            hex(&self.controller),
            *secret
        ));
        let _ = fs::remove_file(path);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.sync_all()
            });
        written.map_err(|e| NodeKeyError::File(path.display().to_string(), e))
    }
}

/// Bytes as digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A key of its digits.
pub fn key_of_hex(text: &str) -> Option<[u8; KEY]> {
    let mut key = [0; KEY];
    let digits = text.as_bytes().chunks_exact(2);
    if text.len() != 2 * KEY {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(digits) {
        let pair = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16)
            .ok()
            .filter(|_| !pair.starts_with('+'))?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn claim(speaker: Speaker) -> NodeClaim {
        NodeClaim {
            cluster: "c".to_owned(),
            node: "n1".to_owned(),
            speaker,
            made_s: 1000,
            // As if they were lines.
            nonce: [b'\n'; NONCE],
        }
    }

    #[test]
    fn a_claim_is_read_as_it_was_made_and_nothing_else_is_one() {
        for speaker in [
            Speaker::Agent,
            Speaker::Configuration,
            Speaker::User { uid: 7, gid: 9 },
        ] {
            let made = claim(speaker);
            let bytes = made.encode();
            assert_eq!(NodeClaim::decode(&bytes), Ok(made));
            for some in 0..bytes.len() {
                assert!(NodeClaim::decode(&bytes[..some]).is_err());
            }
        }
        let nonce = [0; NONCE];
        for text in [
            "muster node 1\nc\nn1\nroot\n5\n",
            "muster node 1\nc\nn1\nagent\n5\nmore\n",
            "muster node 1\nc\n\nagent\n5\n",
            "muster node 1\nc\nn1\nuser 1\n5\n",
            "muster node 1\nc\nn1\nuser -1 1\n5\n",
            "muster node 2\nc\nn1\nagent\n5\n",
            "muster channel 1\nc\nuser\n",
        ] {
            let bytes = [text.as_bytes(), &nonce].concat();
            assert_eq!(NodeClaim::decode(&bytes), Err(ClaimError::Form), "{text:?}");
        }
        let long = format!("muster node 1\nc\n{}\nagent\n5\n", "n".repeat(256));
        assert!(NodeClaim::decode(&[long.as_bytes(), &nonce].concat()).is_err());
    }

    #[test]
    fn a_claim_is_for_one_cluster_and_a_minute() {
        let made = claim(Speaker::Agent);
        assert_eq!(made.check("C", 1060), Ok(()));
        assert_eq!(made.check("c", 940), Ok(()));
        assert_eq!(made.check("c", 1061), Err(ClaimError::Time(61)));
        assert_eq!(made.check("c", 0), Err(ClaimError::Time(1000)));
        assert_eq!(
            made.check("d", 1000),
            Err(ClaimError::Cluster("c".to_owned()))
        );
    }

    #[test]
    fn both_sides_have_the_secret_and_nobody_else() {
        let controller = KeyPair::of([1; KEY]);
        let node = NodeKey::make("c", "n1", controller.public()).unwrap();
        let proof = node.proof(Speaker::Agent).unwrap();
        let claim = NodeClaim::decode(&proof.credential).unwrap();
        let own = claim.secret_for_controller(&controller, &node.public());
        assert_eq!(own, Ok(proof.secret));
        // Another node's key, another controller, a changed claim.
        let other = NodeKey::make("c", "n1", controller.public()).unwrap();
        let theirs = claim.secret_for_controller(&controller, &other.public());
        assert_ne!(theirs, Ok(proof.secret));
        let stranger = KeyPair::of([2; KEY]);
        let theirs = claim.secret_for_controller(&stranger, &node.public());
        assert_ne!(theirs, Ok(proof.secret));
        let user = NodeClaim {
            speaker: Speaker::User { uid: 0, gid: 0 },
            ..claim.clone()
        };
        let theirs = user.secret_for_controller(&controller, &node.public());
        assert_ne!(theirs, Ok(proof.secret));
        assert!(claim.secret_for_controller(&controller, &[0; KEY]).is_err());
        let again = node.proof(Speaker::Agent).unwrap();
        assert_ne!(again.secret, proof.secret, "each claim has another");
        assert!(node.proof_for(&Purpose::Node("n2".to_owned())).is_err());
        assert!(node.proof_for(&Purpose::User).is_err());
    }

    #[test]
    fn a_key_is_kept_for_its_owner_alone() {
        let dir = std::env::temp_dir().join(format!("muster-node-key-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        assert!(NodeKey::find(&dir).unwrap().is_none());
        let key = NodeKey::make("c", "n1", [7; KEY]).unwrap();
        key.write(&NodeKey::pending_path(&dir)).unwrap();
        assert!(NodeKey::find(&dir).unwrap().is_none(), "it is not pinned");
        let path = NodeKey::keep_pending(&dir).unwrap();
        let found = NodeKey::find(&dir).unwrap().unwrap();
        assert_eq!(found.public(), key.public());
        assert_eq!(found.controller, [7; KEY]);
        found.check("C", "n1", &path).unwrap();
        let other = found.check("c", "n2", &path).unwrap_err().to_string();
        assert!(other.contains("the key of node n1"), "{other}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(NodeKey::find(&dir), Err(NodeKeyError::Owner(_))));
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(NodeKey::find(&dir).is_err());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "muster node key 1\ncluster c\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(NodeKey::find(&dir), Err(NodeKeyError::Form(_))));
        fs::remove_dir_all(&dir).unwrap();
    }
}
