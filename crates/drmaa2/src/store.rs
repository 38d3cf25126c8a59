//! Sessions, which outlive processes: a file for each in a directory of the user's own, to which lines are added. Several processes
//! may have a session open. A file has what a program gave and the numbers that came of it, nothing that the controller knows.

use crate::error::{DrmaaCode, DrmaaError};
use crate::job_ref::{JobRef, TaskIndices};
use crate::values::{AttributeMap, escape, unescape};
use muster_model::ids::JobId;
use nix::fcntl::{Flock, FlockArg};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Kind of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionKind {
    /// Jobs.
    Jobs,
    /// Reservations.
    Reservations,
}

impl SessionKind {
    fn folder(self) -> &'static str {
        match self {
            SessionKind::Jobs => "jobs",
            SessionKind::Reservations => "reservations",
        }
    }
}

/// Jobs submitted at once.
#[derive(Clone, Debug, PartialEq)]
pub struct SubmittedJobs {
    /// The tasks of a job array.
    pub tasks: Option<TaskIndices>,
    /// The job template.
    pub template: AttributeMap,
}

/// Content of a session's file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionRecord {
    /// The path of the cluster's slurm.conf.
    pub contact: String,
    /// Jobs and job arrays.
    pub submitted: BTreeMap<JobId, SubmittedJobs>,
    /// Jobs that are no longer the session's.
    pub reaped: BTreeSet<JobRef>,
    /// Jobs that their owner has stopped by a signal, and how often they had been restarted then.
    pub stopped: BTreeMap<JobRef, u32>,
    /// Reservations with their templates.
    pub reservations: BTreeMap<String, AttributeMap>,
}

/// A line to add.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionEntry {
    /// A job or a job array was submitted.
    Submitted(JobId, SubmittedJobs),
    /// A job is no longer the session's.
    Reaped(JobRef),
    /// A job was stopped, and how often it had been restarted then.
    Stopped(JobRef, u32),
    /// A job goes on.
    Continued(JobRef),
    /// A reservation was made.
    Reserved(String, AttributeMap),
    /// A reservation was deleted.
    Deleted(String),
}

/// The first word of a file.
const HEAD: &str = "muster-drmaa2-1";
/// Bytes of a session's file.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Bytes of a session's name.
const NAME_BYTES_MAX: usize = 120;
/// Bytes from which on a file is written anew when its session is opened, if half of it is about jobs that were reaped.
const COMPACT_BYTES_MIN: u64 = 32 << 10;

impl SessionRecord {
    /// The jobs of the session.
    pub fn jobs(&self) -> Vec<JobRef> {
        let mut all = Vec::new();
        for (job, own) in &self.submitted {
            match own.tasks {
                None => all.push(JobRef {
                    job: *job,
                    task: None,
                }),
                Some(tasks) => all.extend(tasks.indices().map(|task| JobRef {
                    job: *job,
                    task: Some(task),
                })),
            }
        }
        all.retain(|job| !self.reaped.contains(job));
        all
    }

    fn add(&mut self, line: &str) {
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or_default();
        let Some(first) = words.next().and_then(unescape) else {
            return;
        };
        let job = JobRef::parse(&first).ok();
        match (kind, job) {
            ("job", Some(job)) => {
                let own = SubmittedJobs {
                    tasks: None,
                    template: AttributeMap::decode(words),
                };
                self.submitted.insert(job.job, own);
            }
            ("array", Some(job)) => {
                let mut number = || words.next().and_then(|word| word.parse::<i64>().ok());
                if let (Some(first), Some(last), Some(step)) = (number(), number(), number())
                    && let Ok(tasks) = TaskIndices::of(first, last, step)
                {
                    let own = SubmittedJobs {
                        tasks: Some(tasks),
                        template: AttributeMap::decode(words),
                    };
                    self.submitted.insert(job.job, own);
                }
            }
            ("reaped", Some(job)) => {
                self.stopped.remove(&job);
                match self.submitted.get(&job.job) {
                    Some(own) if own.tasks.is_none() => {
                        self.submitted.remove(&job.job);
                    }
                    _ => {
                        self.reaped.insert(job);
                    }
                }
            }
            ("stopped", Some(job)) => {
                let restarts = words.next().and_then(|word| word.parse().ok());
                self.stopped.insert(job, restarts.unwrap_or(0));
            }
            ("continued", Some(job)) => {
                self.stopped.remove(&job);
            }
            ("reserved", _) => {
                self.reservations.insert(first, AttributeMap::decode(words));
            }
            ("deleted", _) => {
                self.reservations.remove(&first);
            }
            // A later version may have others.
            _ => {}
        }
    }

    fn text(&self) -> String {
        let mut text = head(&self.contact);
        for (job, own) in &self.submitted {
            text += &SessionEntry::Submitted(*job, own.clone()).line();
        }
        let left = |job: &&JobRef| self.submitted.contains_key(&job.job);
        for job in self.reaped.iter().filter(left) {
            text += &SessionEntry::Reaped(*job).line();
        }
        for (job, restarts) in &self.stopped {
            text += &SessionEntry::Stopped(*job, *restarts).line();
        }
        for (name, template) in &self.reservations {
            text += &SessionEntry::Reserved(name.clone(), template.clone()).line();
        }
        text
    }
}

fn head(contact: &str) -> String {
    format!("{HEAD} {}\n", escape(contact))
}

impl SessionEntry {
    fn line(&self) -> String {
        match self {
            SessionEntry::Submitted(job, own) => match own.tasks {
                None => format!("job {job}{}\n", own.template.encode()),
                Some(TaskIndices { first, last, step }) => {
                    let template = own.template.encode();
                    format!("array {job} {first} {last} {step}{template}\n")
                }
            },
            SessionEntry::Reaped(job) => format!("reaped {job}\n"),
            SessionEntry::Stopped(job, restarts) => format!("stopped {job} {restarts}\n"),
            SessionEntry::Continued(job) => format!("continued {job}\n"),
            SessionEntry::Reserved(name, template) => {
                format!("reserved {}{}\n", escape(name), template.encode())
            }
            SessionEntry::Deleted(name) => format!("deleted {}\n", escape(name)),
        }
    }
}

/// Position up to which a file has been read.
#[derive(Debug)]
struct FileReading {
    inode: u64,
    bytes: u64,
    record: SessionRecord,
}

/// The sessions of a user.
#[derive(Debug)]
pub struct SessionStore {
    dir: PathBuf,
    readings: Mutex<HashMap<PathBuf, FileReading>>,
}

impl SessionStore {
    /// The sessions in a directory, which is made when it is needed.
    pub fn at(dir: PathBuf) -> SessionStore {
        SessionStore {
            dir,
            readings: Mutex::default(),
        }
    }

    /// The store of this process's user: `muster-drmaa2` in XDG_STATE_HOME, or in `~/.local/state`.
    ///
    /// # Errors
    /// The user has no home.
    pub fn of_user() -> Result<SessionStore, DrmaaError> {
        let absolute = |name: &str| {
            let own = std::env::var_os(name).map(PathBuf::from);
            own.filter(|path| path.is_absolute())
        };
        let home = || {
            let of_system = || {
                let user = nix::unistd::User::from_uid(nix::unistd::geteuid())
                    .ok()
                    .flatten();
                user.map(|user| user.dir)
            };
            let home = absolute("HOME").or_else(of_system)?;
            Some(home.join(".local/state"))
        };
        let state = absolute("XDG_STATE_HOME").or_else(home);
        let state = state.ok_or_else(|| {
            management("the user has no home directory: set XDG_STATE_HOME to an absolute path")
        })?;
        Ok(SessionStore::at(state.join("muster-drmaa2")))
    }

    /// Where they are.
    pub fn place(&self) -> String {
        self.dir.to_string_lossy().into_owned()
    }

    fn folder(&self, kind: SessionKind) -> PathBuf {
        self.dir.join(kind.folder())
    }

    fn path(&self, kind: SessionKind, name: &str) -> Result<PathBuf, DrmaaError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(DrmaaError::argument(format!(
                "the name of a session has 1 to {NAME_BYTES_MAX} bytes, not {}",
                name.len()
            )));
        }
        // No byte that `escape` leaves is a dot; of the others, only the slash matters to a path.
        let file = escape(name).replace('/', "%2F");
        Ok(self.folder(kind).join(file))
    }

    /// The names of all sessions.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn names(&self, kind: SessionKind) -> Result<Vec<String>, DrmaaError> {
        let folder = self.folder(kind);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(cannot("read", &folder, &e)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| cannot("read", &folder, &e))?;
            let file = entry.file_name();
            // A file being written has a dot.
            names.extend(
                file.to_str()
                    .filter(|f| !f.contains('.'))
                    .and_then(unescape),
            );
        }
        names.sort();
        Ok(names)
    }

    /// Makes a session.
    ///
    /// # Errors
    /// There is one of that name, or it cannot be written.
    pub fn create(&self, kind: SessionKind, name: &str, contact: &str) -> Result<(), DrmaaError> {
        let path = self.path(kind, name)?;
        self.make_folder(kind)?;
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path);
        let mut file = match made {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(DrmaaError::argument(format!(
                    "there is a session \"{name}\" already: open it, or destroy it first"
                )));
            }
            Err(e) => return Err(cannot("write", &path, &e)),
        };
        let written = file.write_all(head(contact).as_bytes());
        written.map_err(|e| {
            // An empty file would be no session that could be opened.
            let _ = fs::remove_file(&path);
            cannot("write", &path, &e)
        })
    }

    /// Makes the directory, if nobody but the user can write there.
    fn make_folder(&self, kind: SessionKind) -> Result<(), DrmaaError> {
        let folder = self.folder(kind);
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
        made.map_err(|e| cannot("make", &folder, &e))?;
        for dir in [&self.dir, &folder] {
            let found = fs::symlink_metadata(dir).map_err(|e| cannot("read", dir, &e))?;
            let is_own = found.uid() == nix::unistd::geteuid().as_raw();
            if !found.is_dir() || !is_own || found.mode() & 0o022 != 0 {
                return Err(management(format!(
                    "{} is not used: others may write there, or it is no directory of this user's; set its owner and mode (chmod go-w)",
                    dir.display()
                )));
            }
        }
        Ok(())
    }

    /// Reads a session.
    ///
    /// # Errors
    /// There is no such session, or it cannot be read.
    pub fn read(&self, kind: SessionKind, name: &str) -> Result<SessionRecord, DrmaaError> {
        let path = self.path(kind, name)?;
        let mut file = open_file(&path, name)?;
        self.follow(&path, &mut file)
    }

    /// Reads what has been added since the last time, or all of it.
    fn follow(&self, path: &Path, file: &mut File) -> Result<SessionRecord, DrmaaError> {
        let unread = |e: io::Error| cannot("read", path, &e);
        let found = file.metadata().map_err(unread)?;
        if found.len() > FILE_BYTES_MAX {
            return Err(management(format!(
                "{} has more than {FILE_BYTES_MAX} bytes: destroy the session",
                path.display()
            )));
        }
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let known = readings.remove(path);
        let known = known.filter(|own| own.inode == found.ino() && own.bytes <= found.len());
        let mut own = known.unwrap_or_else(|| FileReading {
            inode: found.ino(),
            bytes: 0,
            record: SessionRecord::default(),
        });
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(own.bytes)).map_err(unread)?;
        let left = FILE_BYTES_MAX.saturating_sub(own.bytes);
        file.take(left).read_to_end(&mut text).map_err(unread)?;
        // A line is there once its end is.
        let whole = text.iter().rposition(|byte| *byte == b'\n');
        let whole = &text[..whole.map_or(0, |end| end + 1)];
        let mut lines = whole.split(|byte| *byte == b'\n');
        if own.bytes == 0 {
            let first = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
            let contact = first.strip_prefix(HEAD).map(str::trim).and_then(unescape);
            own.record.contact = contact.ok_or_else(|| {
                management(format!(
                    "{} is no session's file, or that of another version",
                    path.display()
                ))
            })?;
        }
        lines.for_each(|line| own.record.add(&String::from_utf8_lossy(line)));
        own.bytes += u64::try_from(whole.len()).unwrap_or(0);
        let record = own.record.clone();
        readings.insert(path.to_owned(), own);
        Ok(record)
    }

    /// Adds a line.
    ///
    /// # Errors
    /// There is no such session, or it cannot be written.
    pub fn add(
        &self,
        kind: SessionKind,
        name: &str,
        entry: &SessionEntry,
    ) -> Result<(), DrmaaError> {
        let path = self.path(kind, name)?;
        let mut file = locked(&path, name)?;
        let unwritten = |e: io::Error| cannot("write", &path, &e);
        let end = file.seek(SeekFrom::End(0)).map_err(unwritten)?;
        let mut line = entry.line().into_bytes();
        // The rest of a line that a full disk cut off is given up.
        if end > 0 {
            let mut last = [b'\n'];
            file.seek(SeekFrom::Start(end - 1)).map_err(unwritten)?;
            file.read_exact(&mut last).map_err(unwritten)?;
            if last != [b'\n'] {
                line.insert(0, b'\n');
            }
        }
        file.write_all(&line).map_err(unwritten)
    }

    /// Writes a session's file anew, if much of it is about jobs that were reaped.
    ///
    /// # Errors
    /// There is no such session, or it cannot be written.
    pub fn compact(&self, kind: SessionKind, name: &str) -> Result<(), DrmaaError> {
        let path = self.path(kind, name)?;
        let mut file = locked(&path, name)?;
        let record = self.follow(&path, &mut file)?;
        let text = record.text();
        let size = file
            .metadata()
            .map_err(|e| cannot("read", &path, &e))?
            .len();
        if size < COMPACT_BYTES_MIN || u64::try_from(text.len()).unwrap_or(u64::MAX) > size / 2 {
            return Ok(());
        }
        let new = path.with_extension(format!("{}", std::process::id()));
        let unwritten = |e: io::Error| cannot("write", &new, &e);
        let mut written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&new)
            .map_err(unwritten)?;
        written.write_all(text.as_bytes()).map_err(unwritten)?;
        fs::rename(&new, &path).map_err(unwritten)
    }

    /// Removes a session. Its jobs and reservations go on.
    ///
    /// # Errors
    /// There is no such session, or it cannot be removed.
    pub fn destroy(&self, kind: SessionKind, name: &str) -> Result<(), DrmaaError> {
        let path = self.path(kind, name)?;
        match fs::remove_file(&path) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(no_session(name)),
            Err(e) => Err(cannot("remove", &path, &e)),
        }
    }
}

fn management(text: impl Into<String>) -> DrmaaError {
    DrmaaError::new(DrmaaCode::SessionManagement, text)
}

fn cannot(verb: &str, path: &Path, error: &io::Error) -> DrmaaError {
    management(format!("cannot {verb} {}: {error}", path.display()))
}

fn no_session(name: &str) -> DrmaaError {
    DrmaaError::argument(format!("there is no session \"{name:.100}\""))
}

fn open_file(path: &Path, name: &str) -> Result<File, DrmaaError> {
    let opened = OpenOptions::new()
        .read(true)
        .append(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(no_session(name)),
        Err(e) => return Err(cannot("open", path, &e)),
    };
    let found = file.metadata().map_err(|e| cannot("read", path, &e))?;
    match found.uid() == nix::unistd::geteuid().as_raw() && found.is_file() {
        true => Ok(file),
        false => Err(management(format!(
            "{} is another user's: it is not used",
            path.display()
        ))),
    }
}

/// The file, while no other process writes it.
fn locked(path: &Path, name: &str) -> Result<Flock<File>, DrmaaError> {
    loop {
        let file = open_file(path, name)?;
        let held = Flock::lock(file, FlockArg::LockExclusive);
        let held = held.map_err(|(_, e)| cannot("lock", path, &e.into()))?;
        // Another process may have replaced or removed it meanwhile.
        let own = held.metadata().map_err(|e| cannot("read", path, &e))?;
        let there = fs::symlink_metadata(path).map(|there| there.ino());
        if there.is_ok_and(|inode| inode == own.ino()) {
            return Ok(held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// A directory of a test's own.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let dir =
                std::env::temp_dir().join(format!("muster-drmaa2-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            Place(dir)
        }

        fn store(&self) -> SessionStore {
            SessionStore::at(self.0.clone())
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn job(text: &str) -> JobRef {
        JobRef::parse(text).unwrap()
    }

    fn submitted(number: u64, tasks: Option<(i64, i64)>) -> SessionEntry {
        let mut template = AttributeMap::default();
        template.put_text("jobName", "two words");
        let tasks = tasks.map(|(first, last)| TaskIndices::of(first, last, 1).unwrap());
        SessionEntry::Submitted(JobId(number), SubmittedJobs { tasks, template })
    }

    #[test]
    fn sessions_outlive_those_that_made_them() {
        let place = Place::new("outlive");
        let (one, other) = (place.store(), place.store());
        let kind = SessionKind::Jobs;
        assert_eq!(one.names(kind).unwrap(), Vec::<String>::new());
        for name in ["a/../b", ".", "ü x"] {
            one.create(kind, name, "/etc/slurm.conf").unwrap();
        }
        assert_eq!(other.names(kind).unwrap(), [".", "a/../b", "ü x"]);
        assert!(one.create(kind, ".", "/x").is_err(), "it is there");
        one.add(kind, ".", &submitted(17, None)).unwrap();
        other.add(kind, ".", &submitted(18, Some((1, 3)))).unwrap();
        let read = one.read(kind, ".").unwrap();
        assert_eq!(read, other.read(kind, ".").unwrap());
        assert_eq!(read.contact, "/etc/slurm.conf");
        let jobs = |store: &SessionStore| {
            let all = store.read(kind, ".").unwrap().jobs();
            all.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(jobs(&one), ["17", "18.1", "18.2", "18.3"]);
        one.add(kind, ".", &SessionEntry::Stopped(job("18.1"), 2))
            .unwrap();
        assert_eq!(other.read(kind, ".").unwrap().stopped[&job("18.1")], 2);
        other
            .add(kind, ".", &SessionEntry::Continued(job("18.1")))
            .unwrap();
        other
            .add(kind, ".", &SessionEntry::Reaped(job("17")))
            .unwrap();
        other
            .add(kind, ".", &SessionEntry::Reaped(job("18.2")))
            .unwrap();
        assert_eq!(jobs(&one), ["18.1", "18.3"]);
        let read = one.read(kind, ".").unwrap();
        assert!(read.stopped.is_empty());
        let template = &read.submitted[&JobId(18)].template;
        assert_eq!(template.text("jobName"), Some("two words"));
        one.destroy(kind, ".").unwrap();
        assert!(other.read(kind, ".").is_err() && other.destroy(kind, ".").is_err());
        assert!(
            one.create(kind, "", "/x").is_err()
                && one.create(kind, &"x".repeat(121), "/x").is_err()
        );
    }

    #[test]
    fn a_file_is_written_anew_when_most_of_it_is_over() {
        let place = Place::new("compact");
        let (one, other) = (place.store(), place.store());
        let kind = SessionKind::Jobs;
        one.create(kind, "s", "/c").unwrap();
        other.read(kind, "s").unwrap();
        for number in 1..=1500 {
            one.add(kind, "s", &submitted(number, None)).unwrap();
            if number > 2 {
                one.add(kind, "s", &SessionEntry::Reaped(job(&number.to_string())))
                    .unwrap();
            }
        }
        let before = one.read(kind, "s").unwrap();
        one.compact(kind, "s").unwrap();
        assert_eq!(one.read(kind, "s").unwrap(), before);
        assert_eq!(other.read(kind, "s").unwrap(), before);
        let size = fs::metadata(place.0.join("jobs/s")).unwrap().len();
        assert!(size < 200, "{size}");
        assert_eq!(one.names(kind).unwrap(), ["s"]);
    }

    #[test]
    fn reservations_are_kept_apart_from_jobs() {
        let place = Place::new("kinds");
        let store = place.store();
        let kind = SessionKind::Reservations;
        store.create(kind, "s", "/c").unwrap();
        assert!(store.read(SessionKind::Jobs, "s").is_err());
        let entry = SessionEntry::Reserved("1 x".to_owned(), AttributeMap::default());
        store.add(kind, "s", &entry).unwrap();
        assert!(
            store
                .read(kind, "s")
                .unwrap()
                .reservations
                .contains_key("1 x")
        );
        store
            .add(kind, "s", &SessionEntry::Deleted("1 x".to_owned()))
            .unwrap();
        assert!(store.read(kind, "s").unwrap().reservations.is_empty());
    }

    #[test]
    fn damaged_files_and_others_directories_are_refused() {
        let place = Place::new("damaged");
        let store = place.store();
        let kind = SessionKind::Jobs;
        store.create(kind, "s", "/c").unwrap();
        let path = place.0.join("jobs/s");
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"job\njob x\narray 5\nnosuch 1\n\xff\xfe\njob 7 sjobN")
            .unwrap();
        store.add(kind, "s", &submitted(8, None)).unwrap();
        let jobs = store.read(kind, "s").unwrap().jobs();
        assert!(jobs.contains(&job("8")), "{jobs:?}");
        fs::write(place.0.join("jobs/t"), "nothing of ours\n").unwrap();
        let wrong = store.read(kind, "t").unwrap_err();
        assert_eq!(wrong.code, DrmaaCode::SessionManagement);
        std::os::unix::fs::symlink(&path, place.0.join("jobs/link")).unwrap();
        assert!(store.read(kind, "link").is_err(), "links are not followed");
        fs::set_permissions(&place.0, fs::Permissions::from_mode(0o777)).unwrap();
        let wrong = store.create(kind, "u", "/c").unwrap_err();
        assert!(wrong.text.contains("others may write there"), "{wrong}");
    }
}
