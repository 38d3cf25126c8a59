//! Private directories of a job: `Dirs` of job_container.conf(5). One mount namespace per job has
//! them at their places. It is created once and kept alive by a file on which it is mounted,
//! `BasePath/NODE/JOB.ATTEMPT/.ns`; each process of the job joins it before it executes anything of
//! a user's ([`Namespace`]). The contents are below the same directory, which only root may enter.
//! It is renamed when the job ends, and removed afterwards, by one process for all jobs.
//!
//! Child processes of the launcher do all of this, because they wait for programs of the site and
//! for disks.

use super::programs::leave_launcher;
use crate::os_error::{self, is_temporary};
use crate::root_files::only_root_leads_to;
use crate::sys::bare::{self, Errno};
use crate::sys::{self, mounts};
use crate::tree_removal::{self, REMOVAL_MAX};
use muster_node_core::launcher::CONTAINER_LACK_STATUS;
use muster_node_core::{JobContainer, PrologEpilog};
use muster_proto::job_container::SHARED_MEMORY;
use nix::sys::stat::Mode;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// First letters of names of directories that are to be removed; no job has such a name.
const GONE: &str = ".gone.";
/// Time after which the remover turns to the next directory, and comes back later.
const REMOVAL_TURN: Duration = Duration::from_secs(10);
/// Time for which the remover works at the lowest priority. On a node whose CPUs are busy that is hardly any work, and
/// what jobs leave would fill the file system.
const LOWEST_PRIORITY_TIME: Duration = Duration::from_secs(10);
/// Errors of rename(2) for a directory where the new name is taken.
const IS_TAKEN: [io::ErrorKind; 3] = [
    io::ErrorKind::DirectoryNotEmpty,
    io::ErrorKind::AlreadyExists,
    io::ErrorKind::NotADirectory,
];
/// Time limit of `InitScript`, as in Slurm.
const INIT_WAIT_S: u32 = 10;

/// A job's mount namespace, which its processes join.
#[derive(Debug, Default)]
pub(super) struct Namespace(Option<OwnedFd>);

impl Namespace {
    /// Opens the namespace; `None` if the job has none.
    pub(super) fn open(file: Option<&Path>) -> io::Result<Namespace> {
        let Some(file) = file else {
            return Ok(Namespace::default());
        };
        let opened = File::open(file).and_then(|file| match mounts::is_namespace(&file)? {
            true => Ok(file),
            // The namespace was unmounted. Processes of the job must not run without it.
            false => Err(io::Error::other("no namespace is mounted there")),
        });
        let named = |e: io::Error| {
            let subject = format_args!("the job's directories: {}", file.display());
            os_error::named(subject, e)
        };
        Ok(Namespace(Some(opened.map_err(named)?.into())))
    }

    /// In a child: joins the namespace. Allocates no memory.
    ///
    /// # Errors
    /// The process is not in the namespace and must not execute anything.
    pub(super) fn join(&self) -> Result<(), Errno> {
        match &self.0 {
            Some(file) => bare::join_mount_namespace(file.as_raw_fd()),
            None => Ok(()),
        }
    }

    /// Its descriptor.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        self.0.as_ref().map(AsRawFd::as_raw_fd)
    }
}

/// Starts a process that creates the directories of a job.
pub(super) fn start_making(programs: &PrologEpilog) -> io::Result<i32> {
    in_child(|| {
        let Some(of) = programs.container.as_deref() else {
            return Ok(());
        };
        let env = &programs.env;
        let container = Container { of, env };
        container.check_dirs()?;
        container.make_base()?;
        let made = container.make();
        if made.is_err() {
            let _ = container.leave();
        }
        made
    })
}

/// Starts a process that takes the directories of a job away. Another one, for which nothing waits,
/// removes them, because a job may leave many files.
pub(super) fn start_removal(programs: &PrologEpilog) -> io::Result<i32> {
    in_child(|| {
        let Some(of) = programs.container.as_deref() else {
            return Ok(());
        };
        let env = &programs.env;
        Container { of, env }.leave()
    })
}

/// Removes the entries of a container directory except those with these names. The directory is
/// listed at once, so that entries created from now on stay.
pub(super) fn sweep(base: &Path, kept: &BTreeSet<String>) {
    let is_roots = fs::symlink_metadata(base).is_ok_and(|of| of.is_dir() && of.uid() == 0);
    if !is_roots || !only_root_leads_to(base).unwrap_or(false) {
        return;
    }
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let is_kept = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| kept.contains(name))
    };
    let left = entries.map(|entry| entry.path());
    let left: Vec<PathBuf> = left.filter(|path| !is_kept(path)).collect();
    if left.is_empty() {
        return;
    }
    let started = in_child(|| {
        for path in left.iter().filter(|path| !is_gone(path)) {
            eprintln!("{}: left over, and removed", path.display());
            release_mounts(path);
            if let Err(e) = take_away(path) {
                eprintln!("{}: {e}", path.display());
            }
        }
        remove_gone(base)
    });
    if let Err(e) = started {
        eprintln!(
            "{}: remains of earlier jobs are not removed: {e}",
            base.display()
        );
    }
}

/// Forks a process that runs this function.
fn in_child(act: impl FnOnce() -> io::Result<()>) -> io::Result<i32> {
    match sys::fork()? {
        sys::Fork::Parent(pid) => Ok(pid),
        sys::Fork::Child => {
            let done = leave_launcher()
                .map_err(io::Error::other)
                .and_then(|()| act());
            sys::exit_now(exit_code(done))
        }
    }
}

/// The exit status of a process that makes or removes directories; the log has the failure. A shortage, for example
/// of inodes, is no fault of the node: jobs can cause it, and end it.
fn exit_code(done: io::Result<()>) -> i32 {
    match done {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("directories of a job: {e}");
            match is_temporary(&e) {
                true => CONTAINER_LACK_STATUS.cast_signed(),
                false => 1,
            }
        }
    }
}

/// A failure and the object that it is about.
fn about(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> io::Error {
    move |e| os_error::named(what, e)
}

/// The directories of a job.
struct Container<'a> {
    of: &'a JobContainer,
    /// Environment of the site's programs.
    env: &'a [String],
}

impl Container<'_> {
    fn make(&self) -> io::Result<()> {
        let (path, settings) = (&self.of.path, &self.of.settings);
        if fs::symlink_metadata(path).is_ok() {
            // Left by an earlier attempt with this number that was never removed.
            self.drop_mounts();
            take_away(path)?;
        }
        make_dir(path).map_err(about(path.display()))?;
        let source = self.of.source();
        if let Some(script) = &settings.init_script {
            let mount_point = format!("SLURM_JOB_MOUNTPOINT_SRC={}", source.display());
            self.run("InitScript", script, INIT_WAIT_S, &mount_point)?;
        }
        // Mounts in it are not visible in other namespaces.
        mounts::bind(path, path).map_err(about(path.display()))?;
        mounts::make_private(path).map_err(about(path.display()))?;
        let holder = self.of.namespace();
        let mut create = fs::OpenOptions::new();
        create.write(true).create_new(true).mode(0o600);
        create.open(&holder).map_err(about(holder.display()))?;
        make_dir(&source).map_err(about(source.display()))?;
        for dir in self.on_disk() {
            let own = self.source_of(dir);
            make_dir(&own)
                .and_then(|()| chown(&own, Some(self.of.uid), Some(self.of.gid)))
                .map_err(about(own.display()))?;
        }
        let namespace = self.make_namespace()?;
        mounts::bind_descriptor(&namespace, &holder).map_err(about(holder.display()))?;
        if let Some(script) = &settings.clone_script {
            let namespace = format!("SLURM_NS={}", holder.display());
            let wait_s = settings.clone_script_wait_s;
            self.run("CloneNSScript", script, wait_s, &namespace)?;
        }
        Ok(())
    }

    /// Creates a mount namespace with the directories at their places, and returns from it.
    fn make_namespace(&self) -> io::Result<OwnedFd> {
        let before = mounts::own_namespace()?;
        mounts::unshare()?;
        let filled = self.fill().and_then(|()| mounts::own_namespace());
        bare::join_mount_namespace(before.as_raw_fd())
            .map_err(|e| io::Error::from_raw_os_error(e.0))?;
        filled
    }

    /// In the namespace: mounts the directories at their places.
    fn fill(&self) -> io::Result<()> {
        let settings = &self.of.settings;
        mounts::detach_from_host(settings.shared)?;
        // The job cannot see where its namespace is stored.
        mounts::unmount(&self.of.path).map_err(about(self.of.path.display()))?;
        // One of the directories may hide the source of the next.
        let sources: Vec<(&String, File)> = self
            .on_disk()
            .map(|dir| {
                let own = self.source_of(dir);
                let opened = File::open(&own).map_err(about(own.display()));
                Ok((dir, opened?))
            })
            .collect::<io::Result<_>>()?;
        for (dir, own) in sources {
            let dir = Path::new(dir);
            mounts::bind_descriptor(&own, dir)
                .and_then(|()| mounts::refuse_privileges(dir))
                .map_err(about(dir.display()))?;
        }
        if settings.dirs.iter().any(|dir| dir == SHARED_MEMORY) {
            mounts::mount_memory(Path::new(SHARED_MEMORY)).map_err(about(SHARED_MEMORY))?;
        }
        Ok(())
    }

    /// The directories of `Dirs` that are not in memory.
    fn on_disk(&self) -> impl Iterator<Item = &String> {
        let dirs = self.of.settings.dirs.iter();
        dirs.filter(|dir| *dir != SHARED_MEMORY)
    }

    /// The directory with the contents of one of `Dirs`.
    fn source_of(&self, dir: &str) -> PathBuf {
        self.of.source().join(dir.replace('/', "_"))
    }

    /// Whether the job may see other directories than the node does.
    fn check_dirs(&self) -> io::Result<()> {
        for dir in self.of.settings.dirs.iter().map(Path::new) {
            let found = fs::symlink_metadata(dir).map_err(about(dir.display()))?;
            if !found.is_dir() || !only_root_leads_to(dir)? {
                let text = format!(
                    "Dirs: {}: not a directory, or users other than root can replace it",
                    dir.display()
                );
                return Err(io::Error::other(text));
            }
            let mut hidden = self.of.must_see.iter();
            if let Some(path) = hidden.find(|path| path.starts_with(dir)) {
                let text = format!(
                    "Dirs: {} would hide {} from jobs: move that, or leave the directory out of job_container.conf",
                    dir.display(),
                    path.display()
                );
                return Err(io::Error::other(text));
            }
        }
        Ok(())
    }

    /// Creates the parents of the job's directory.
    fn make_base(&self) -> io::Result<()> {
        let of_node = self.of.path.parent().unwrap_or(Path::new("/"));
        let base = of_node.parent().unwrap_or(Path::new("/"));
        if self.of.settings.auto_base {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o755);
            builder.create(base).map_err(about(base.display()))?;
        }
        if !fs::metadata(base).map_err(about(base.display()))?.is_dir()
            || !only_root_leads_to(base)?
        {
            let text = format!(
                "BasePath={}: not a directory, or users other than root can replace it",
                base.display()
            );
            return Err(io::Error::other(text));
        }
        match make_dir(of_node) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(about(of_node.display()))?,
        }
        let found = fs::symlink_metadata(of_node)?;
        if !found.is_dir() || found.uid() != 0 || found.mode() & 0o077 != 0 {
            let text = format!("{}: not a directory of root's alone", of_node.display());
            return Err(io::Error::other(text));
        }
        Ok(())
    }

    /// Takes away everything of a job without processes, and starts a process that removes it.
    fn leave(&self) -> io::Result<()> {
        let ended = self.end();
        if let Some(base) = self.of.path.parent() {
            in_child(|| remove_gone(base))?;
        }
        ended
    }

    /// Takes away everything of a job without processes.
    fn end(&self) -> io::Result<()> {
        let (holder, settings) = (self.of.namespace(), &self.of.settings);
        if let Some(script) = &settings.clone_epilog
            && holder.exists()
        {
            let namespace = format!("SLURM_NS={}", holder.display());
            let wait_s = settings.clone_epilog_wait_s;
            if let Err(e) = self.run("CloneNSEpilog", script, wait_s, &namespace) {
                eprintln!("{e}");
            }
        }
        self.drop_mounts();
        take_away(&self.of.path)
    }

    fn drop_mounts(&self) {
        release_mounts(&self.of.path);
    }

    /// Runs a program of the site with this time limit.
    ///
    /// # Errors
    /// The program has failed.
    fn run(&self, key: &str, program: &str, wait_s: u32, more: &str) -> io::Result<()> {
        let failed = |why: String| io::Error::other(format!("{key} {program} failed: {why}"));
        let mut command = Command::new(program);
        command.env_clear().process_group(0);
        for variable in self.env.iter().map(String::as_str).chain([more]) {
            if let Some((name, value)) = variable.split_once('=') {
                command.env(name, value);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;
        let pid = child.id().cast_signed();
        let end = sys::pidfd(pid)?;
        let mut fds = [libc::pollfd {
            fd: end.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }];
        let wait = Duration::from_secs(wait_s.into()).as_millis();
        sys::poll(&mut fds, i32::try_from(wait).unwrap_or(i32::MAX))?;
        if fds[0].revents == 0 {
            sys::kill(-pid, libc::SIGKILL);
            child.wait()?;
            return Err(failed(format!("it ran for more than {wait_s} s")));
        }
        let status = child.wait()?;
        match status.success() {
            true => Ok(()),
            false => Err(failed(status.to_string())),
        }
    }
}

/// Unmounts all file systems mounted on a job's directory.
fn release_mounts(path: &Path) {
    while mounts::unmount(&path.join(".ns")).is_ok() {}
    while mounts::unmount(path).is_ok() {}
}

/// Makes a directory of root's alone.
fn make_dir(path: &Path) -> io::Result<()> {
    nix::unistd::mkdir(path, Mode::S_IRWXU).map_err(io::Error::from)
}

/// Sets a job's directory aside, or removes it at once if it cannot be renamed: a job may have left no room on the file
/// system for another name, and its directory has the room.
fn take_away(path: &Path) -> io::Result<()> {
    require_roots(path)?;
    let Err(e) = set_aside(path) else {
        return Ok(());
    };
    eprintln!("{e}: it is removed at once");
    tree_removal::remove(path, REMOVAL_MAX).map_err(about(path.display()))
}

/// Renames a job's directory, if it is there, so that it is found by those who remove it only.
fn set_aside(path: &Path) -> io::Result<()> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.unwrap_or_default();
    let mut number = 0;
    loop {
        let aside = path.with_file_name(format!("{GONE}{name}.{number}"));
        match fs::rename(path, &aside) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            // An earlier directory of that name is there; file systems report that by different errors.
            Err(e) if IS_TAKEN.contains(&e.kind()) => number += 1,
            other => return other.map_err(about(path.display())),
        }
    }
}

fn is_gone(path: &Path) -> bool {
    let name = path.file_name();
    name.is_some_and(|name| name.as_encoded_bytes().starts_with(GONE.as_bytes()))
}

/// Removes all directories that were set aside there, in turns, unless another process does.
fn remove_gone(base: &Path) -> io::Result<()> {
    remove_all_gone(base, LOWEST_PRIORITY_TIME)
}

/// As above, at the lowest priority for this time, and then at the usual one.
fn remove_all_gone(base: &Path, at_lowest_priority: Duration) -> io::Result<()> {
    let (begun, usual) = (Instant::now(), sys::nice());
    sys::lower_priority();
    let found = |left: &BTreeSet<PathBuf>| {
        let entries = fs::read_dir(base).into_iter().flatten().flatten();
        let gone = entries.map(|entry| entry.path());
        let gone = gone.filter(|path| is_gone(path) && !left.contains(path));
        gone.collect::<Vec<PathBuf>>()
    };
    let (mut turns, mut left) = (BTreeMap::new(), BTreeSet::new());
    // A directory that is set aside after the last look is the next process's, or is seen once the lock is given up.
    while !found(&left).is_empty() {
        let lock = File::open(base)?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(()),
            // Without locks, several processes may remove the same.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        loop {
            let gone = found(&left);
            if gone.is_empty() {
                break;
            }
            for path in gone {
                let turn: &mut u32 = turns.entry(path.clone()).or_default();
                *turn += 1;
                if begun.elapsed() >= at_lowest_priority {
                    sys::set_nice(usual);
                }
                let removed = remove(&path);
                let Err(e) = removed else { continue };
                if e.kind() != io::ErrorKind::TimedOut || REMOVAL_TURN * *turn > REMOVAL_MAX {
                    eprintln!("{}: {e}", path.display());
                    left.insert(path);
                }
            }
        }
    }
    Ok(())
}

/// Removes a directory with all that is in it, or as much as is possible in a turn.
fn remove(path: &Path) -> io::Result<()> {
    require_roots(path)?;
    tree_removal::remove(path, REMOVAL_TURN)
}

fn require_roots(path: &Path) -> io::Result<()> {
    match only_root_leads_to(path)? {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{}: not removed: users other than root can replace it",
            path.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job that left 20,000 nested directories kept its node for 30 s, and each such job had a process that removed them.
    #[test]
    fn one_process_removes_what_jobs_leave() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!(
                "only root has directories that nobody can replace; this test looked at nothing"
            );
            return;
        }
        let base = std::env::temp_dir().join(format!("muster-gone.{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        make_dir(&base).unwrap();
        let job = base.join("7.1");
        for _ in 0..2 {
            fs::create_dir_all(job.join("dirs/_tmp/a/b")).unwrap();
            set_aside(&job).unwrap();
            assert!(!job.exists(), "the next attempt may have its name");
        }
        set_aside(&job).unwrap();
        let names = || fs::read_dir(&base).unwrap().map(|e| e.unwrap().path());
        assert_eq!(names().filter(|path| is_gone(path)).count(), 2);
        make_dir(&base.join("8.1")).unwrap();
        let other = File::open(&base).unwrap();
        other.lock().unwrap();
        remove_gone(&base).unwrap();
        assert_eq!(names().count(), 3, "another process removes them");
        drop(other);
        remove_gone(&base).unwrap();
        assert_eq!(names().collect::<Vec<_>>(), [base.join("8.1")]);
        fs::remove_dir_all(base).unwrap();
    }

    /// On a node with busy CPUs the remover had hardly any time at the lowest priority: jobs that left many files filled the
    /// file system, however long ago they had ended.
    #[test]
    fn what_is_not_soon_removed_is_removed_at_the_usual_priority() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("only root raises its priority; this test looked at nothing");
            return;
        }
        let base = std::env::temp_dir().join(format!("muster-nice.{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        make_dir(&base).unwrap();
        let nice_after = |at_lowest_priority| {
            let (job, base) = (base.join("7.1"), base.clone());
            // A thread has a priority of its own.
            let removed = std::thread::spawn(move || {
                make_dir(&job).unwrap();
                set_aside(&job).unwrap();
                remove_all_gone(&base, at_lowest_priority).unwrap();
                sys::nice()
            });
            removed.join().unwrap()
        };
        assert_eq!(nice_after(LOWEST_PRIORITY_TIME), sys::LOWEST_PRIORITY);
        assert_eq!(nice_after(Duration::ZERO), sys::nice());
        fs::remove_dir_all(base).unwrap();
    }

    /// A job that left a full file system, where no other name had room, kept its directories there for good.
    #[test]
    fn a_directory_that_cannot_be_renamed_is_removed() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!(
                "only root has directories that nobody can replace; this test looked at nothing"
            );
            return;
        }
        let name = format!("muster-unnamed.{}", std::process::id());
        let base = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&base);
        make_dir(&base).unwrap();
        // Too long with the beginning of the new name.
        let job = base.join("7".repeat(255));
        fs::create_dir_all(job.join("dirs/_tmp/a/b")).unwrap();
        assert!(set_aside(&job).is_err());
        let before = sys::nice();
        take_away(&job).unwrap();
        assert!(!job.exists());
        assert_eq!(sys::nice(), before, "the node waits for it");
        // A name that is taken by a file is passed over.
        let job = base.join("7.1");
        fs::create_dir_all(job.join("dirs")).unwrap();
        fs::write(base.join(".gone.7.1.0"), "").unwrap();
        take_away(&job).unwrap();
        assert!(base.join(".gone.7.1.1/dirs").is_dir());
        fs::remove_dir_all(base).unwrap();
    }
}
