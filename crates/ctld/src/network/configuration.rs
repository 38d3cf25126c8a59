//! The configuration for hosts that have none (`SlurmctldParameters=enable_configless`). Who has a credential for that gets it, and
//! nothing else.

use crate::audit::Entry;
use crate::peer::RequestOrigin;
use anyhow::{Context as _, Result, ensure};
use log::{info, warn};
use muster_conf::{Config, DistributedFiles, read_from_disk};
use muster_model::command::Identity;
use muster_model::limits::FRAME_BYTES_MAX;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::{self, AccessRequest, Role};
use muster_proto::configuration::{ConfigurationAnswer, ConfigurationFile};
use muster_proto::frame;
use sha2::{Digest as _, Sha256};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;

/// Hosts that are given it at the same time.
const GIVEN_MAX: usize = 256;
/// Bytes of all files.
const BYTES_MAX: usize = FRAME_BYTES_MAX / 2;
/// Time limit of one.
const PATIENCE: Duration = Duration::from_secs(60);

/// The configuration that the controller gives, the latest that it has taken.
#[derive(Clone, Debug)]
pub(crate) struct GivenConfiguration {
    /// The answer, encoded; none if the configuration is not given to others.
    answer: Arc<RwLock<Option<Arc<[u8]>>>>,
    turns: Arc<Semaphore>,
}

impl Default for GivenConfiguration {
    fn default() -> GivenConfiguration {
        GivenConfiguration {
            answer: Arc::default(),
            turns: Arc::new(Semaphore::new(GIVEN_MAX)),
        }
    }
}

impl GivenConfiguration {
    /// From now on this is given.
    pub(crate) fn set(&self, answer: Option<Arc<[u8]>>) {
        *self.answer.write().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    /// Whether a user may have it: root, for whom daemons on other hosts ask, and the controller's own.
    pub(super) fn check(&self, uid: u32, from: IpAddr) -> Result<(), String> {
        let role = match uid {
            0 => Role::Root,
            uid if uid == nix::unistd::geteuid().as_raw() => Role::SlurmUser,
            _ => Role::User,
        };
        if rights::suffices(role, AccessRequest::FetchConfiguration) {
            return Ok(());
        }
        let why =
            format!("uid {uid} may not have the configuration: root asks for it, or SlurmUser");
        // Neither its user nor its host is looked up for that.
        let identity = Identity {
            uid,
            user: uid.to_string(),
            host: Some(from.to_string()),
            ..Identity::default()
        };
        let place = RequestOrigin {
            address: Some(from),
            ..RequestOrigin::default()
        };
        Entry::new(role, &identity, AccessRequest::FetchConfiguration, place)
            .refused(&Refusal::new(RefusalCode::AccessDenied, why.clone()));
        Err(why)
    }

    /// Says it, at the end of a connection, and closes that.
    pub(super) fn give(&self, stream: UnixStream) -> Result<(), String> {
        let turn = Arc::clone(&self.turns).try_acquire_owned();
        let turn = turn.map_err(|_| {
            format!("{GIVEN_MAX} hosts get the configuration at this moment: try again")
        })?;
        let mut stream = tokio::net::UnixStream::from_std(stream).map_err(|e| e.to_string())?;
        let answer = self.answer.read().unwrap_or_else(PoisonError::into_inner);
        let answer = answer.clone().unwrap_or_else(|| {
            let why = "this controller gives nobody its configuration: add enable_configless to SlurmctldParameters";
            frame::encode(&ConfigurationAnswer::Refused(why.to_owned())).into()
        });
        tokio::task::spawn_local(async move {
            let said = tokio::time::timeout(PATIENCE, stream.write_all(&answer)).await;
            if !matches!(said, Ok(Ok(()))) {
                info!("a host did not take the configuration that it asked for");
            }
            drop(turn);
        });
        Ok(())
    }
}

/// The configuration files, encoded, for hosts that fetch them; `None` if slurm.conf does not allow that.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn read_given(conf: &Path, config: &Config) -> Result<Option<Arc<[u8]>>> {
    if !config.gives_configuration() {
        return Ok(None);
    }
    let found = DistributedFiles::read(conf, &read_from_disk)
        .context("the configuration for other hosts cannot be read")?;
    for path in &found.left_out {
        warn!(
            "other hosts do not get {}, which slurm.conf includes: it is not in the directory of slurm.conf",
            path.display()
        );
    }
    let bytes: usize = found.files.iter().map(|file| file.bytes.len()).sum();
    ensure!(
        bytes <= BYTES_MAX,
        "the files have {} MiB together, and the limit is {} MiB",
        bytes >> 20,
        BYTES_MAX >> 20
    );
    let files = found.files.into_iter().map(|file| ConfigurationFile {
        name: file.name,
        bytes: file.bytes.into(),
        is_program: file.is_program,
    });
    let answer = ConfigurationAnswer::Files(files.collect());
    Ok(Some(frame::encode(&answer).into()))
}

/// Digest by which hosts detect a changed configuration.
pub(crate) fn version_of(given: &[u8]) -> String {
    let digest = Sha256::digest(given);
    digest[..8].iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_for_root_and_the_controllers_user() {
        let given = GivenConfiguration::default();
        let from = IpAddr::from([10, 0, 0, 7]);
        let own = nix::unistd::geteuid().as_raw();
        assert_eq!(given.check(0, from), Ok(()));
        assert_eq!(given.check(own, from), Ok(()));
        let why = given.check(own + 4_000_000, from).unwrap_err();
        assert!(why.contains("may not have the configuration"), "{why}");
    }
}
