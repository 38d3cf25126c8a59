//! Owner of the configuration from which a daemon of root's starts: it names programs that root runs.

use anyhow::{Context, Result, ensure};
use muster_conf::{Config, Diagnostic};
use muster_node::only_user_leads_to;
use nix::unistd::{User, geteuid};
use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Loads slurm.conf for a daemon. For one of root's, it and the files that it includes are root's or `SlurmUser`'s, and nobody else
/// can change them or put others in their place.
///
/// # Errors
/// Names the file and whose it is.
pub(crate) fn load(conf: &Path) -> Result<(Config, Vec<Diagnostic>)> {
    let files: RefCell<Vec<PathBuf>> = RefCell::default();
    let loaded = muster_conf::load_with(conf, &|path| {
        files.borrow_mut().push(path.to_owned());
        muster_conf::read_from_disk(path)
    });
    if geteuid().is_root() {
        let name = &loaded.0.slurm_user;
        let user = User::from_name(name).ok().flatten();
        let uid = user.map(|user| user.uid.as_raw()).or(name.parse().ok());
        for file in files.take() {
            check(&file, uid.unwrap_or(0), name)?;
        }
    }
    Ok(loaded)
}

fn check(file: &Path, uid: u32, user: &str) -> Result<()> {
    let Ok(found) = fs::metadata(file) else {
        // An unreadable file has its own error.
        return Ok(());
    };
    let shown = file.display();
    ensure!(
        found.uid() == 0 || found.uid() == uid,
        "{shown} belongs to uid {}, who could become root through it: chown it to root, or to SlurmUser",
        found.uid()
    );
    ensure!(
        found.mode() & 0o022 == 0,
        "{shown} can be written by others, who could become root through it: chmod go-w it"
    );
    let is_safe =
        only_user_leads_to(file, uid).with_context(|| format!("cannot look at {shown}"))?;
    ensure!(
        is_safe,
        "a directory above {shown} can be written by others than root and SlurmUser ({user}), who could replace the file: see the \
         owners and modes of the directories above it"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn a_file_that_others_can_change_is_refused() {
        let dir = std::env::temp_dir().join(format!("muster-conf-owner.{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let file = dir.join("slurm.conf");
        fs::write(&file, "").unwrap();
        let own = geteuid().as_raw();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let refusal = |uid| check(&file, uid, "slurm").unwrap_err().to_string();
        mode(&dir, 0o755);
        mode(&file, 0o644);
        check(&file, own, "slurm").unwrap();
        mode(&file, 0o666);
        assert!(refusal(own).contains("chmod go-w"));
        mode(&file, 0o664);
        assert!(refusal(own).contains("chmod go-w"));
        mode(&file, 0o644);
        mode(&dir, 0o777);
        assert!(refusal(own).contains("who could replace the file"));
        mode(&dir, 0o755);
        if geteuid().is_root() {
            chown(&file, Some(65534), None).unwrap();
            assert!(refusal(0).contains("belongs to uid 65534"));
            check(&file, 65534, "nobody").unwrap();
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
