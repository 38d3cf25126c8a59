//! One process purges at a time: two would archive the same rows.

use anyhow::{Context as _, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The lock, until it is dropped.
#[derive(Debug)]
pub(super) struct PurgeLock {
    _file: File,
}

impl PurgeLock {
    /// Takes it, beside the store.
    ///
    /// # Errors
    /// Another process has it, or it cannot be made.
    pub(super) fn take(store: &Path) -> Result<PurgeLock> {
        let path = store.with_extension("purge");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .with_context(|| path.display().to_string())?;
        match file.try_lock() {
            Ok(()) => Ok(PurgeLock { _file: file }),
            Err(TryLockError::WouldBlock) => {
                anyhow::bail!("another process purges accounting: try again once it is done")
            }
            Err(TryLockError::Error(e)) => Err(e).with_context(|| path.display().to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// slurmdbd and sacctmgr archived the same rows, each in a file.
    #[test]
    fn one_process_purges_at_a_time() {
        let dir = std::env::temp_dir().join(format!("muster-purge-lock.{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let store = dir.join("accounting.db");
        let first = PurgeLock::take(&store).unwrap();
        let second = PurgeLock::take(&store).unwrap_err();
        assert!(second.to_string().contains("another process"), "{second}");
        drop(first);
        PurgeLock::take(&store).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
