//! `SlurmdSpoolDir`: used by one supervisor at a time, and written by root alone. Other users can
//! open known names in it, such as the socket of a step that they started, but cannot list it,
//! because names and owners of its files reveal all users' jobs.

use crate::root_files::others_directory;
use crate::sys;
use anyhow::Context as _;
use muster_conf::SLURMD_SPOOL_DIR_BYTES_MAX;
use nix::unistd::geteuid;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Creates the directory and its parents if they do not exist. Later operations use its path, so
/// root creates and uses no directory that other users can replace.
///
/// # Errors
/// Other users can replace a part of the path, with advice on how to change that; or the directory
/// cannot be created.
pub fn make_spool(spool: &Path) -> anyhow::Result<()> {
    let length = spool.as_os_str().len();
    anyhow::ensure!(
        spool.is_absolute() && length <= SLURMD_SPOOL_DIR_BYTES_MAX,
        "SlurmdSpoolDir '{}': give an absolute path of at most {SLURMD_SPOOL_DIR_BYTES_MAX} bytes, so that socket names fit (it has {length})",
        spool.display()
    );
    let show = || format!("SlurmdSpoolDir {}", spool.display());
    // The owner of `/` can replace this program as well: only root of a user's own name space meets
    // that.
    let owns_all = geteuid().is_root() && std::fs::metadata("/").is_ok_and(|root| root.uid() == 0);
    if !owns_all {
        return std::fs::create_dir_all(spool).with_context(show);
    }
    let is_missing = |dir: &&Path| !dir.exists();
    let mut missing: Vec<&Path> = spool.ancestors().take_while(is_missing).collect();
    missing.reverse();
    for dir in missing {
        // Checks the parent directory too. A directory of root's in `/tmp` is safe once it exists;
        // a link in its place is not followed.
        let above = dir.parent().unwrap_or(Path::new("/"));
        check_way(&above.join(".."), spool)?;
        if let Err(e) = std::fs::create_dir(dir) {
            return Err(e).with_context(show);
        }
    }
    check_way(spool, spool)
}

/// Refuses a path that other users can change.
fn check_way(path: &Path, spool: &Path) -> anyhow::Result<()> {
    let show = || format!("SlurmdSpoolDir {}", spool.display());
    if let Some(theirs) = others_directory(path, 0).with_context(show)? {
        let found = std::fs::metadata(&theirs).with_context(show)?;
        let theirs = theirs.display();
        anyhow::bail!(
            "SlurmdSpoolDir {}: others than root (uid {}, mode {:o}) decide what is in {theirs}, and could lead root's files to other \
             places: 'chown root {theirs}' and 'chmod go-w {theirs}', or name a directory to which only root leads, such as \
             /var/spool/slurmd",
            spool.display(),
            found.uid(),
            found.mode() & 0o7777
        );
    }
    Ok(())
}

/// Creates the directory and locks it for this process, as long as the result lives.
pub(super) fn take(spool: &Path) -> anyhow::Result<File> {
    make_spool(spool)?;
    keep_to_ourselves(spool).with_context(|| format!("SlurmdSpoolDir {}", spool.display()))?;
    let path = spool.join("noded.lock");
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&path)
        .and_then(own_lock)
        .with_context(|| path.display().to_string())?;
    sys::lock_file(lock.as_fd())
        .with_context(|| format!("{}: another agent serves this node", path.display()))?;
    Ok(lock)
}

/// A file that no other user can open: a process that can read it could lock it.
fn own_lock(file: File) -> io::Result<File> {
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Refuses a directory in which other users can create or move entries, because root writes there,
/// and denies other users to list it.
fn keep_to_ourselves(spool: &Path) -> io::Result<()> {
    // A directory reached by a link is refused, because the creator of the link would choose whose
    // directory is changed.
    let mut open = OpenOptions::new();
    open.read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW);
    let dir = open.open(spool)?;
    let found = dir.metadata()?;
    if found.uid() != geteuid().as_raw() {
        let text = format!(
            "it belongs to uid {}, and not to slurmd's user",
            found.uid()
        );
        return Err(io::Error::other(text));
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o022 != 0 {
        log::warn!("{}: others may not write there any more", spool.display());
    }
    match mode & 0o066 {
        0 => Ok(()),
        _ => dir.set_permissions(Permissions::from_mode(mode & !0o066)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::StepNo;

    /// A key in names of sockets left no room for interactive steps, whose numbers have ten digits, in the longest directory.
    #[test]
    fn a_socket_has_room_in_the_longest_directory() {
        let spool = |bytes: usize| std::path::PathBuf::from(format!("/{}", "s".repeat(bytes - 1)));
        let longest = spool(SLURMD_SPOOL_DIR_BYTES_MAX);
        let socket =
            muster_node_core::stepd_reuse::socket_path(&longest, &[1; 16], StepNo(u32::MAX));
        assert_eq!(socket.as_os_str().len(), 107);
        std::os::unix::net::SocketAddr::from_pathname(&socket).expect("the kernel takes it");
        let why = make_spool(&spool(SLURMD_SPOOL_DIR_BYTES_MAX + 1)).unwrap_err();
        assert!(why.to_string().contains("it has 70"), "{why}");
    }

    /// SlurmUser owns the parent directory of slurmd's spool directory. It renames the latter, and puts a link to
    /// another place there.
    #[test]
    fn root_takes_no_directory_that_others_could_replace() {
        if !geteuid().is_root() {
            eprintln!("not root: there is nothing to be led to; this test looked at nothing");
            return;
        }
        let place = std::env::temp_dir().join(format!("muster-way.{}", std::process::id()));
        let (theirs, secret) = (place.join("slurm"), place.join("secret"));
        std::fs::create_dir_all(&theirs).unwrap();
        std::fs::create_dir(&secret).unwrap();
        std::os::unix::fs::chown(&theirs, Some(65534), None).unwrap();
        let spool = theirs.join("d");
        let why = take(&spool).unwrap_err().to_string();
        let chown = format!("chown root {}", theirs.display());
        assert!(why.contains(&chown), "{why}");
        assert!(!spool.exists(), "nothing was made");
        // A directory of root's that already exists.
        std::fs::create_dir(&spool).unwrap();
        take(&spool).unwrap_err();
        std::fs::remove_dir(&spool).unwrap();
        std::os::unix::fs::symlink(&secret, &spool).unwrap();
        take(&spool).unwrap_err();
        make_spool(&spool.join("new")).unwrap_err();
        assert_eq!(std::fs::read_dir(&secret).unwrap().count(), 0);
        // As the message says.
        std::fs::remove_file(&spool).unwrap();
        std::os::unix::fs::chown(&theirs, Some(0), None).unwrap();
        take(&spool.join("n1")).unwrap();
        // Other users write here too, and cannot remove root's entries.
        let shared = place.join("tmp");
        std::fs::create_dir(&shared).unwrap();
        std::fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
        take(&shared.join("a").join("b")).unwrap();
        std::fs::set_permissions(&shared, Permissions::from_mode(0o777)).unwrap();
        take(&shared.join("a").join("b")).unwrap_err();
        std::fs::remove_dir_all(&place).unwrap();
    }

    /// With `PrivateData=jobs` too, the sockets of steps said whose jobs run here.
    #[test]
    fn others_reach_files_by_name_and_list_none() {
        let spool = std::env::temp_dir().join(format!("muster-spool.{}", std::process::id()));
        for (before, after) in [(0o755, 0o711), (0o777, 0o711), (0o700, 0o700)] {
            std::fs::create_dir_all(&spool).unwrap();
            std::fs::set_permissions(&spool, Permissions::from_mode(before)).unwrap();
            keep_to_ourselves(&spool).unwrap();
            let mode = std::fs::metadata(&spool).unwrap().mode() & 0o7777;
            assert_eq!(mode, after, "{before:o}");
        }
        // No user may choose where a link leads.
        let link = spool.with_extension("link");
        std::os::unix::fs::symlink(&spool, &link).unwrap();
        keep_to_ourselves(&link).unwrap_err();
        std::fs::remove_file(&link).unwrap();
        std::fs::remove_dir_all(&spool).unwrap();
    }
}
