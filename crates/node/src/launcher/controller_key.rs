//! The key of a cluster's controller, as this node has seen it first.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Where the key of a cluster's controller is kept.
fn key_path(spool: &Path, cluster: &str) -> PathBuf {
    let name = cluster.replace('/', "_");
    spool.join(format!("controller.{name}.x25519"))
}

/// Checks that a key is the one first seen for the cluster, which this one is if there was none.
pub(super) fn check(spool: &Path, cluster: &str, key: &[u8]) -> Result<(), String> {
    let path = &key_path(spool, cluster);
    let failed = |e: io::Error| format!("{}: {e}", path.display());
    match fs::read(path) {
        Ok(known) if known == key => Ok(()),
        Ok(_) => Err(format!(
            "its key is not the one that this node knows; if the controller's state was made anew, remove {}",
            path.display()
        )),
        Err(e) if e.kind() == io::ErrorKind::NotFound => pin(path, key).map_err(failed),
        Err(e) => Err(failed(e)),
    }
}

/// Pins the key of a cluster's controller. The key comes from the administrator who made the token for this node.
/// From then on the launcher accepts this key only, instead of the first that it sees.
///
/// # Errors
/// The key cannot be stored.
pub fn pin_controller(spool: &Path, cluster: &str, key: &[u8]) -> io::Result<()> {
    let path = key_path(spool, cluster);
    match fs::read(&path) {
        Ok(known) if known == key => Ok(()),
        _ => pin(&path, key),
    }
}

/// Keeps a controller's key: whole, whenever the disk is full or the machine stops, as a part of one would be another key.
fn pin(path: &Path, key: &[u8]) -> io::Result<()> {
    let next = path.with_extension("next");
    // The existing file was left by a power failure, or is a link that another user made.
    match fs::remove_file(&next) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = fs::File::create_new(&next)?;
    file.write_all(key)?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    // Else the name may be gone after a power failure, and the next controller that answers would be believed.
    let dir = path.parent().unwrap_or(Path::new("/"));
    fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use nix::sys::resource::{Resource, setrlimit};
    use std::os::unix::fs::symlink;

    fn dir(name: &str) -> PathBuf {
        let name = format!("muster-session-{}-{name}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn another_controller_is_not_believed() {
        let dir = dir("other");
        check(&dir, "c", &[7; 32]).unwrap();
        let error = check(&dir, "c", &[8; 32]).unwrap_err();
        assert!(
            error.contains("not the one that this node knows"),
            "{error}"
        );
        check(&dir, "c", &[7; 32]).unwrap();
        check(&dir, "d", &[8; 32]).unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }

    /// A full disk cuts a key off in the middle. The test limits the length of files for a process of its own.
    #[test]
    fn a_full_disk_leaves_no_part_of_a_key() {
        let dir = dir("pin");
        let path = key_path(&dir, "c");
        let next = path.with_extension("next");
        match sys::fork().unwrap() {
            sys::Fork::Child => {
                sys::ignore_signal(libc::SIGXFSZ);
                let limited = setrlimit(Resource::RLIMIT_FSIZE, 16, 16).is_ok();
                let is_refused = pin(&path, &[7; 32]).is_err();
                sys::exit_now(i32::from(!(limited && is_refused)))
            }
            sys::Fork::Parent(pid) => assert_eq!(sys::exit_code_of(pid), Some(0)),
        }
        assert!(!path.exists());
        assert_eq!(fs::read(&next).unwrap(), [7; 16]);
        // The remains of an earlier attempt are no part of the next.
        pin(&path, &[7; 32]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [7; 32]);
        assert!(!next.exists());
        fs::remove_dir_all(&dir).unwrap();
    }

    /// A user who could make a link there had root write to the link's target.
    #[test]
    fn a_link_in_the_place_of_a_new_key_is_not_followed() {
        let dir = dir("link");
        let (path, victim) = (dir.join("controller.x"), dir.join("victim"));
        fs::write(&victim, "kept").unwrap();
        symlink(&victim, path.with_extension("next")).unwrap();
        pin(&path, b"key").unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"kept");
        assert_eq!(fs::read(&path).unwrap(), b"key");
        fs::remove_dir_all(dir).unwrap();
    }
}
