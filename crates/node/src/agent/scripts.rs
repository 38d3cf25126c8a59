//! Batch scripts on disk. One file serves all jobs of a user that share the text, such as the tasks of an array:
//! `<spool>/scripts/<hash>.<uid>/slurm_script`, readable by that user alone.

use muster_core::ids::BlobId;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// Scripts that were written.
#[derive(Debug)]
pub(super) struct Scripts {
    dir: PathBuf,
    written: HashMap<(BlobId, u32), String>,
}

impl Scripts {
    pub(super) fn new(spool: &Path) -> Scripts {
        Scripts {
            dir: spool.join("scripts"),
            written: HashMap::new(),
        }
    }

    /// The path of a script, written if it is not there.
    pub(super) fn path(
        &mut self,
        id: BlobId,
        uid: u32,
        gid: u32,
        text: &[u8],
    ) -> io::Result<String> {
        if let Some(path) = self.written.get(&(id, uid)) {
            return Ok(path.clone());
        }
        let dir = self.dir_of(id, uid);
        let path = self.write(&dir, uid, gid, text).map_err(|e| {
            io::Error::new(e.kind(), format!("the script in {}: {e}", dir.display()))
        })?;
        self.written.insert((id, uid), path.clone());
        Ok(path)
    }

    fn write(&self, dir: &Path, uid: u32, gid: u32, text: &[u8]) -> io::Result<String> {
        make_dir(&self.dir, 0o711)?;
        make_dir(dir, 0o700)?;
        let (path, next) = (dir.join("slurm_script"), dir.join("next"));
        // A file under the final name may be running for an earlier job: it is replaced, not written into.
        fs::write(&next, text)?;
        fs::set_permissions(&next, fs::Permissions::from_mode(0o700))?;
        if nix::unistd::geteuid().is_root() {
            chown(&next, Some(uid), Some(gid))?;
            chown(dir, Some(uid), Some(gid))?;
        }
        fs::rename(&next, &path)?;
        path.into_os_string()
            .into_string()
            .map_err(|_| io::Error::other("the spool directory's path is not UTF-8"))
    }

    /// Removes a script that no job needs any more.
    pub(super) fn drop_blob(&mut self, id: BlobId) {
        let uids: Vec<u32> = self
            .written
            .keys()
            .filter(|(i, _)| *i == id)
            .map(|(_, uid)| *uid)
            .collect();
        for uid in uids {
            self.written.remove(&(id, uid));
            let _ = fs::remove_dir_all(self.dir_of(id, uid));
        }
    }

    /// Removes all but those that jobs still run, the ones of an earlier life of the agent included.
    pub(super) fn keep_only(&mut self, used: &HashSet<(BlobId, u32)>) {
        self.written.retain(|key, _| used.contains(key));
        let used: Vec<PathBuf> = used.iter().map(|&(id, uid)| self.dir_of(id, uid)).collect();
        let Ok(dirs) = fs::read_dir(&self.dir) else {
            return;
        };
        for dir in dirs.flatten().filter(|d| !used.contains(&d.path())) {
            let _ = fs::remove_dir_all(dir.path());
        }
    }

    fn dir_of(&self, id: BlobId, uid: u32) -> PathBuf {
        let mut name = String::with_capacity(48);
        for byte in &id.0[..16] {
            name.push_str(&format!("{byte:02x}"));
        }
        self.dir.join(format!("{name}.{uid}"))
    }
}

fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }?;
    // The mode above is subject to the umask.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}
