//! Commands that made the controller panic, kept for an analysis: in `StateSaveLocation/quarantine`, readable by
//! the controller's user alone, bounded in number and size. Nothing reads them back.

use log::warn;
use muster_model::command::{Command, Identity};
use muster_model::time::Timestamp;
use std::fmt::{self, Debug, Write as _};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Files kept; the oldest make room.
const FILES_MAX: usize = 64;
/// Bytes of a command that are kept.
const BYTES_MAX: usize = 256 << 10;

/// Where they are kept.
pub struct Quarantine {
    dir: PathBuf,
    /// Distinguishes files of the same millisecond.
    count: u64,
}

impl Quarantine {
    /// In this state directory. It is made when it is first needed.
    pub fn new(state_dir: &Path) -> Quarantine {
        Quarantine {
            dir: state_dir.join("quarantine"),
            count: 0,
        }
    }

    /// Keeps a command and what happened; where it is, for the log.
    pub(crate) fn keep(&mut self, command: &Command, why: &str, now: Timestamp) -> String {
        let who = match command {
            Command::User(Identity { user, uid, .. }, _) => format!("user {user} (uid {uid})"),
            Command::Node(node, _) => format!("node {}", node.0),
            _ => "the controller".to_owned(),
        };
        let mut text = format!("Time: {}\nFrom: {who}\nFailure: {why}\n\n", now.0).into_bytes();
        text.extend(bounded(command, BYTES_MAX).into_bytes());
        self.count += 1;
        let path = self.dir.join(format!("{:015}-{:06}", now.0, self.count));
        match self.write(&path, &text) {
            Ok(()) => path.display().to_string(),
            Err(e) => {
                warn!("{} cannot be written: {e}", path.display());
                "nowhere".to_owned()
            }
        }
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        let mut files: Vec<PathBuf> = fs::read_dir(&self.dir)?
            .flatten()
            .map(|entry| entry.path())
            .collect();
        // Names begin with the time.
        files.sort();
        let excess = (files.len() + 1).saturating_sub(FILES_MAX);
        for old in &files[..excess] {
            fs::remove_file(old)?;
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(bytes)
    }
}

/// A value's debug text, cut after `bytes` bytes. A command may be many megabytes.
pub(crate) fn bounded(value: &impl Debug, bytes: usize) -> String {
    struct Bounded(String, usize);
    impl fmt::Write for Bounded {
        fn write_str(&mut self, more: &str) -> fmt::Result {
            let room = self.1.saturating_sub(self.0.len());
            let mut end = room.min(more.len());
            while !more.is_char_boundary(end) {
                end -= 1;
            }
            self.0.push_str(&more[..end]);
            if end < more.len() {
                Err(fmt::Error)
            } else {
                Ok(())
            }
        }
    }
    let mut text = Bounded(String::new(), bytes);
    // An error says that the text was cut.
    let _ = write!(text, "{value:?}");
    text.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::command::UserCommand;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn it_is_bounded_in_count_and_size_and_private() {
        let dir = std::env::temp_dir().join(format!("muster-quarantine-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let mut quarantine = Quarantine::new(&dir);
        let long = UserCommand::DeletePartition {
            name: "x".repeat(2 * BYTES_MAX),
        };
        let command = Command::User(Identity::default(), long);
        for at in 0..100 {
            quarantine.keep(&command, "it panicked", Timestamp(at));
        }
        let files: Vec<_> = fs::read_dir(dir.join("quarantine"))
            .unwrap()
            .flatten()
            .collect();
        assert_eq!(files.len(), FILES_MAX);
        for file in files {
            let meta = file.metadata().unwrap();
            assert_eq!(meta.permissions().mode() & 0o777, 0o600);
            assert!(meta.len() < (BYTES_MAX + 1024) as u64);
        }
        fs::remove_dir_all(dir).unwrap();
    }
}
