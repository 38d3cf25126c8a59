//! Batch scripts on disk. One file serves all jobs of a user that share the text, such as the tasks of an array:
//! `<spool>/scripts/<name>.<uid>/slurm_script`, mode 0500 and owned by that user. Names are made of text and user with a key that
//! only root reads (`<spool>/scripts.key`): who guesses a text cannot look for it, also where the own job has run it.
//!
//! All directories belong to the launcher's own user, and nobody else can write to them. Files are reached by directory
//! descriptors without following symbolic links, are made with `O_EXCL`, written completely, and renamed into place.
//! Entries that differ from what the launcher leaves are replaced.

use crate::{os_error, sys};
use minicbor::bytes::ByteVec;
use muster_model::ids::BlobId;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, geteuid, unlinkat};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Name of the file that jobs execute.
const FILE: &str = "slurm_script";
/// Its name while it is written.
const NEXT: &str = "next";
/// Prefix of foreign entries that had a name which the launcher needs. They are removed with unused
/// scripts.
const STALE: &str = ".stale-";
/// Length of the key by which names are made.
const KEY_BYTES: u64 = 16;
/// Mode of directories: other users may enter them, but not read or change them.
const DIR_MODE: u32 = 0o711;
/// Mode of scripts: only their user may read them, and has no reason to change them.
const FILE_MODE: u32 = 0o500;

/// The scripts on disk.
#[derive(Debug)]
pub(super) struct Scripts {
    spool: PathBuf,
    /// The key by which names are made.
    key: ByteVec,
    written: HashMap<(BlobId, u32), WrittenScript>,
    /// Number for the next name with [`STALE`].
    next_stale: u64,
}

/// A script as it was written. A change by its user since then changes its time stamp.
#[derive(Debug)]
struct WrittenScript {
    path: String,
    file: Identity,
}

/// Identity of the written file, which shows that file and contents are still the same.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    size: i64,
    mode: u32,
    changed: (i64, i64),
}

impl Identity {
    fn of(stat: &FileStat) -> Identity {
        Identity {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            mode: stat.st_mode,
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

impl Scripts {
    pub(super) fn new(spool: &Path) -> Scripts {
        Scripts {
            spool: spool.to_owned(),
            key: key_in(spool),
            written: HashMap::new(),
            next_stale: 0,
        }
    }

    /// The path of a script, which is written unless it exists unchanged.
    pub(super) fn path(
        &mut self,
        id: BlobId,
        uid: u32,
        gid: u32,
        text: &[u8],
    ) -> io::Result<String> {
        if let Some(written) = self.written.get(&(id, uid))
            && is_unchanged(written)
        {
            return Ok(written.path.clone());
        }
        let name = self.name_of(id, uid);
        let written = self.write(&name, uid, gid, text).map_err(|e| {
            let path = self.dir().join(&name);
            os_error::named(format_args!("the script in {}", path.display()), e)
        })?;
        let path = written.path.clone();
        self.written.insert((id, uid), written);
        Ok(path)
    }

    fn dir(&self) -> PathBuf {
        self.spool.join("scripts")
    }

    fn name_of(&self, id: BlobId, uid: u32) -> String {
        // With the uid: else who has run the same text would find the name of another user's in that of the own.
        let name = muster_trust::keyed_name(&self.key, &[&id.0[..], &uid.to_be_bytes()].concat());
        format!("{}.{uid}", muster_trust::node_key::hex(&name))
    }

    fn write(&mut self, name: &str, uid: u32, gid: u32, text: &[u8]) -> io::Result<WrittenScript> {
        let path = self.dir().join(name).join(FILE);
        let path = path.into_os_string().into_string();
        let path = path.map_err(|_| io::Error::other("the spool directory's path is not UTF-8"))?;
        let scripts = self.open_scripts()?;
        let dir = self.ensure_dir(&scripts, name)?;
        remove_file(&dir, NEXT)?;
        let file = write_next(&dir, uid, gid, text).and_then(|file| {
            // A file under the final name may be running for an earlier job, so it is replaced and
            // not overwritten.
            renameat(&dir, NEXT, &dir, FILE)?;
            Ok(Identity::of(&fstat(&file)?))
        });
        if file.is_err() {
            // Otherwise the next attempt removes it.
            let _ = remove_file(&dir, NEXT);
        }
        Ok(WrittenScript { path, file: file? })
    }

    /// The directory of all scripts.
    fn open_scripts(&mut self) -> io::Result<OwnedFd> {
        let spool = File::open(&self.spool)?;
        self.ensure_dir(&spool, "scripts")
    }

    /// Opens a directory of the launcher. A foreign entry with its name is moved away first.
    fn ensure_dir(&mut self, parent: &impl AsFd, name: &str) -> io::Result<OwnedFd> {
        match open_own_dir(parent, name) {
            Ok(Some(dir)) => return Ok(with_mode(dir)?),
            Ok(None) => {
                eprintln!("{name} in {} is replaced", self.spool.display());
                self.next_stale += 1;
                let stale = format!("{STALE}{}-{}", std::process::id(), self.next_stale);
                renameat(parent, name, parent, stale.as_str())?;
            }
            Err(Errno::ENOENT) => {}
            Err(e) => return Err(e.into()),
        }
        mkdirat(parent, name, Mode::S_IRWXU)?;
        let dir = open_own_dir(parent, name)?;
        let dir = dir.ok_or_else(|| io::Error::other("a directory changed while it was made"))?;
        Ok(with_mode(dir)?)
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
            remove_entry(&self.dir().join(self.name_of(id, uid)));
        }
    }

    /// Removes all scripts except those of running jobs, including those of earlier launchers.
    pub(super) fn keep_only(&mut self, used: &HashSet<(BlobId, u32)>) {
        self.written.retain(|key, _| used.contains(key));
        let names = used.iter().map(|&(id, uid)| self.name_of(id, uid));
        let used: HashSet<String> = names.collect();
        let is_used = |name: &std::ffi::OsStr| name.to_str().is_some_and(|n| used.contains(n));
        for entry in entries(&self.dir()) {
            if !is_used(&entry.file_name()) {
                remove_entry(&entry.path());
            }
        }
        for entry in entries(&self.spool) {
            if entry.file_name().as_bytes().starts_with(STALE.as_bytes()) {
                remove_entry(&entry.path());
            }
        }
    }
}

fn is_unchanged(written: &WrittenScript) -> bool {
    let stat = nix::sys::stat::lstat(written.path.as_str());
    stat.is_ok_and(|stat| Identity::of(&stat) == written.file)
}

/// Writes a script under its temporary name, and gives it to its user when it is complete.
fn write_next(dir: &OwnedFd, uid: u32, gid: u32, text: &[u8]) -> nix::Result<File> {
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut file = File::from(openat(dir, NEXT, flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
    let written = file.write_all(text);
    written.map_err(|e| e.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    if geteuid().is_root() {
        fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    fchmod(&file, Mode::from_bits_truncate(FILE_MODE))?;
    Ok(file)
}

/// A directory to which only the launcher can write; `None` if a foreign entry has its name.
fn open_own_dir(parent: &impl AsFd, name: &str) -> nix::Result<Option<OwnedFd>> {
    let stat = fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    let is_own = |stat: &FileStat| {
        SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFDIR
            && stat.st_uid == geteuid().as_raw()
            && stat.st_mode & 0o022 == 0
    };
    if !is_own(&stat) {
        return Ok(None);
    }
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let dir = openat(parent, name, flags, Mode::empty())?;
    Ok(Some(dir).filter(|dir| fstat(dir).is_ok_and(|stat| is_own(&stat))))
}

fn with_mode(dir: OwnedFd) -> nix::Result<OwnedFd> {
    if fstat(&dir)?.st_mode & 0o7777 != DIR_MODE {
        fchmod(&dir, Mode::from_bits_truncate(DIR_MODE))?;
    }
    Ok(dir)
}

fn remove_file(dir: &OwnedFd, name: &str) -> nix::Result<()> {
    match unlinkat(dir, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::ENOENT) => Ok(()),
        done => done,
    }
}

fn entries(dir: &Path) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(dir).into_iter().flatten().flatten()
}

/// Removes an entry of one of the launcher's directories. `remove_dir_all` works by descriptors and
/// follows no links.
fn remove_entry(path: &Path) {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) => Err(e),
    };
    if let Err(e) = removed.or_else(|e| match e.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(e),
    }) {
        eprintln!("{}: {e}", path.display());
    }
}

/// The key of an earlier launcher, whose scripts may still run, else a new one.
fn key_in(spool: &Path) -> ByteVec {
    let path = spool.join("scripts.key");
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC).bits();
    let is_own = |file: &fs::Metadata| {
        file.is_file() && file.uid() == geteuid().as_raw() && file.mode() & 0o077 == 0
    };
    let known = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(&path)
        .ok()
        .filter(|file| file.metadata().is_ok_and(|file| is_own(&file)));
    let mut bytes = Vec::new();
    if let Some(file) = known
        && file.take(KEY_BYTES + 1).read_to_end(&mut bytes).is_ok()
        && bytes.len() as u64 == KEY_BYTES
    {
        return bytes.into();
    }
    let key = sys::random_key();
    if let Err(e) = keep_key(&path, &key) {
        eprintln!(
            "{}: {e}; names of scripts change with the next start",
            path.display()
        );
    }
    key
}

fn keep_key(path: &Path, key: &[u8]) -> io::Result<()> {
    let next = path.with_extension("next");
    // An earlier launcher may have ended while it wrote.
    match fs::remove_file(&next) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&next)?;
    file.write_all(key)?;
    file.sync_all()?;
    fs::rename(&next, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    const ID: BlobId = BlobId([7; 32]);
    const TEXT: &[u8] = b"#!/bin/sh\nexit 3\n";

    fn spool(name: &str) -> PathBuf {
        let dir =
            std::env::temp_dir().join(format!("muster-scripts-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        dir
    }

    /// The user for whom scripts are written: a different one, if the test has the right to.
    fn user() -> (u32, u32) {
        let own = (geteuid().as_raw(), nix::unistd::getegid().as_raw());
        if own.0 == 0 { (65_534, 65_534) } else { own }
    }

    fn write(scripts: &mut Scripts) -> PathBuf {
        let (uid, gid) = user();
        scripts.path(ID, uid, gid, TEXT).unwrap().into()
    }

    fn check(path: &Path) {
        assert_eq!(fs::read(path).unwrap(), TEXT);
        let file = fs::symlink_metadata(path).unwrap();
        assert!(file.is_file());
        assert_eq!((file.uid(), file.mode() & 0o7777), (user().0, FILE_MODE));
        for dir in path.ancestors().skip(1).take(2) {
            let dir = fs::symlink_metadata(dir).unwrap();
            assert_eq!(dir.uid(), geteuid().as_raw());
            assert_eq!(dir.mode() & 0o7777, DIR_MODE);
        }
    }

    #[test]
    fn links_in_the_way_are_removed_and_not_followed() {
        let spool = spool("links");
        let victim = spool.join("victim");
        fs::write(&victim, "secret").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
        let before = fs::metadata(&victim).unwrap();
        let name = Scripts::new(&spool).name_of(ID, user().0);
        let dir = spool.join("scripts").join(name);
        for file in [NEXT, FILE] {
            let _ = fs::remove_dir_all(spool.join("scripts"));
            fs::create_dir_all(&dir).unwrap();
            symlink(&victim, dir.join(file)).unwrap();
            check(&write(&mut Scripts::new(&spool)));
        }
        // The directory itself.
        fs::remove_dir_all(&dir).unwrap();
        symlink(&spool, &dir).unwrap();
        check(&write(&mut Scripts::new(&spool)));
        assert!(!spool.join(FILE).exists());
        // The one of all.
        fs::remove_dir_all(spool.join("scripts")).unwrap();
        symlink("/nonexistent", spool.join("scripts")).unwrap();
        check(&write(&mut Scripts::new(&spool)));
        let after = fs::metadata(&victim).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"secret");
        assert_eq!((before.uid(), before.mode()), (after.uid(), after.mode()));
        fs::remove_dir_all(&spool).unwrap();
    }

    #[test]
    fn directories_of_others_are_replaced() {
        let spool = spool("owned");
        let name = Scripts::new(&spool).name_of(ID, user().0);
        let dir = spool.join("scripts").join(name);
        fs::create_dir_all(&dir).unwrap();
        let (uid, gid) = user();
        match geteuid().is_root() {
            true => std::os::unix::fs::chown(&dir, Some(uid), Some(gid)).unwrap(),
            false => fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap(),
        }
        fs::write(dir.join("left"), "").unwrap();
        let mut scripts = Scripts::new(&spool);
        let path = write(&mut scripts);
        check(&path);
        scripts.keep_only(&HashSet::from([(ID, uid)]));
        check(&path);
        assert_eq!(entries(&spool.join("scripts")).count(), 1);
        scripts.keep_only(&HashSet::new());
        assert_eq!(entries(&spool.join("scripts")).count(), 0);
        fs::remove_dir_all(&spool).unwrap();
    }

    /// A user who knows the text of a script, and so its hash, cannot look for it; the next launcher finds it.
    #[test]
    fn names_of_scripts_cannot_be_guessed() {
        let [spool, other] = ["names", "names-of-another"].map(spool);
        let path = write(&mut Scripts::new(&spool));
        let name = |path: &Path| path.parent().unwrap().file_name().unwrap().to_owned();
        assert_ne!(name(&path), name(&write(&mut Scripts::new(&other))));
        let hash = muster_trust::node_key::hex(&ID.0[..16]);
        assert!(!name(&path).to_str().unwrap().contains(&hash));
        // Nor does the name of a job of the user's own with that text tell that of another user's.
        let scripts = Scripts::new(&spool);
        let [own, others] = [1000, 1001].map(|uid| scripts.name_of(ID, uid));
        assert_ne!(own.strip_suffix(".1000"), others.strip_suffix(".1001"));
        let key = fs::symlink_metadata(spool.join("scripts.key")).unwrap();
        assert_eq!((key.uid(), key.mode() & 0o777), (geteuid().as_raw(), 0o600));
        let mut next = Scripts::new(&spool);
        next.keep_only(&HashSet::from([(ID, user().0)]));
        check(&path);
        assert_eq!(write(&mut next), path);
        // A key that others may know is not used.
        fs::set_permissions(spool.join("scripts.key"), fs::Permissions::from_mode(0o644)).unwrap();
        assert_ne!(write(&mut Scripts::new(&spool)), path);
        for dir in [spool, other] {
            fs::remove_dir_all(&dir).unwrap();
        }
    }

    #[test]
    fn a_script_that_was_changed_is_written_anew() {
        let spool = spool("changed");
        let mut scripts = Scripts::new(&spool);
        let path = write(&mut scripts);
        let inode = fs::metadata(&path).unwrap().ino();
        assert_eq!(fs::metadata(write(&mut scripts)).unwrap().ino(), inode);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(&path, "other").unwrap();
        assert_eq!(write(&mut scripts), path);
        check(&path);
        fs::remove_dir_all(&spool).unwrap();
    }
}
