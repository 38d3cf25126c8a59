//! Notices on disk until they are sent: a file for some megabytes of them, which goes once all of it was taken. A line has the event's
//! position and the notice. Files are only appended to; a controller begins a file of its own when it starts, so a line that was cut
//! off when the machine stopped is the last of its file.

use log::{error, warn};
use muster_journal::Position;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of one file.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Files of one webhook; with more, the oldest goes, sent or not.
const FILES_MAX: usize = 16;

/// Bytes of notices of one user's jobs that wait to be sent; further ones are left out, so that they push out nothing of others.
const USER_BYTES_MAX: u64 = FILES_MAX as u64 * FILE_BYTES_MAX / 4;
/// How often a user with more has it looked at which files were sent.
const SHARES_PACE: Duration = Duration::from_secs(1);

/// Which part of the files notices of each user's jobs have.
#[derive(Default)]
struct UserShares {
    /// Bytes of the users in each file.
    by_file: BTreeMap<u64, HashMap<String, u64>>,
    /// Bytes of each user in all files.
    total: HashMap<String, u64>,
    /// When it was last looked at which files are there.
    looked: Option<Instant>,
    /// Users whose notices are left out, and how many.
    left_out: HashMap<String, u64>,
}

impl UserShares {
    fn is_over(&self, user: &str, bytes: u64) -> bool {
        let own = self.total.get(user).copied().unwrap_or(0);
        own.saturating_add(bytes) > USER_BYTES_MAX
    }

    fn add(&mut self, file: u64, user: &str, bytes: u64) {
        let in_file = self.by_file.entry(file).or_default();
        for counts in [in_file, &mut self.total] {
            *counts.entry(user.to_owned()).or_default() += bytes;
        }
    }

    /// Forgets files that were sent or have gone.
    fn keep(&mut self, files: &[u64]) {
        let is_gone = |file: &u64| files.binary_search(file).is_err();
        let gone: Vec<u64> = self.by_file.keys().copied().filter(is_gone).collect();
        let gone = gone.iter().filter_map(|file| self.by_file.remove(file));
        for (user, bytes) in gone.flatten() {
            if let Some(own) = self.total.get_mut(&user) {
                *own -= bytes;
                if *own == 0 {
                    self.total.remove(&user);
                }
            }
        }
    }
}

/// State that the writing thread and the sending ones share.
pub(super) struct SpoolState {
    inner: Mutex<SpoolProgress>,
    changed: Condvar,
}

/// How far notices are there to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SpoolEnd {
    /// The file that is appended to.
    pub(super) file: u64,
    /// Bytes of it.
    pub(super) bytes: u64,
}

#[derive(Default)]
pub(super) struct SpoolProgress {
    pub(super) end: SpoolEnd,
    /// The one that sends is to look at its settings, or to end.
    is_called: bool,
}

impl SpoolState {
    pub(super) fn lock(&self) -> MutexGuard<'_, SpoolProgress> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the one that sends.
    pub(super) fn call(&self) {
        self.lock().is_called = true;
        self.changed.notify_all();
    }

    /// Waits until there is something else to be read than was seen.
    pub(super) fn wait(&self, seen: SpoolEnd) {
        let is_idle = |inner: &mut SpoolProgress| !inner.is_called && inner.end == seen;
        let waited = self.changed.wait_while(self.lock(), is_idle);
        waited.unwrap_or_else(PoisonError::into_inner).is_called = false;
    }

    /// Waits so long after a failure; further notices do not end that.
    pub(super) fn pause(&self, most: Duration) {
        let waits = |inner: &mut SpoolProgress| !inner.is_called;
        let waited = self.changed.wait_timeout_while(self.lock(), most, waits);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_called = false;
    }
}

/// Appends notices of one webhook.
pub(super) struct Spool {
    folder: PathBuf,
    name: String,
    number: u64,
    open: Option<File>,
    bytes: u64,
    is_dirty: bool,
    has_failed: bool,
    shares: UserShares,
    state: Arc<SpoolState>,
}

/// Makes the folder, closed to others.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

/// Writes a small file that is there as a whole or as it was before.
pub(super) fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// The file of a webhook with this number.
pub(super) fn file_of(folder: &Path, name: &str, number: u64) -> PathBuf {
    folder.join(format!("{name}.{number:012}"))
}

/// The file with the last notice that was taken.
pub(super) fn done_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.done"))
}

/// Numbers of the files of a webhook, the oldest first.
pub(super) fn numbers(folder: &Path, name: &str) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let number = |file: fs::DirEntry| {
        let file = file.file_name();
        let digits = file.to_str()?.strip_prefix(name)?.strip_prefix('.')?;
        let is_number = digits.len() == 12 && digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse().ok().filter(|_| is_number)
    };
    let mut numbers: Vec<u64> = entries.flatten().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// A line's position and notice, if it is whole.
pub(super) fn parse(line: &str) -> Option<(Position, &str)> {
    let (position, notice) = line.strip_suffix('\n')?.split_once(' ')?;
    Some((position.parse().ok()?, notice))
}

/// The event of the last notice of a webhook that is on disk.
pub(super) fn last_event(folder: &Path, name: &str) -> Option<Position> {
    numbers(folder, name).into_iter().rev().find_map(|number| {
        let text = fs::read(file_of(folder, name, number)).ok()?;
        let text = String::from_utf8_lossy(&text);
        let lines = text.split_inclusive('\n');
        lines.rev().find_map(parse).map(|(position, _)| position)
    })
}

impl Spool {
    /// Begins a file after those that there are.
    pub(super) fn open(folder: &Path, name: &str) -> Spool {
        let number = numbers(folder, name).last().map_or(0, |last| last + 1);
        Spool {
            folder: folder.to_owned(),
            name: name.to_owned(),
            number,
            open: None,
            bytes: 0,
            is_dirty: false,
            has_failed: false,
            shares: UserShares::default(),
            state: Arc::new(SpoolState {
                inner: Mutex::new(SpoolProgress {
                    end: SpoolEnd {
                        file: number,
                        bytes: 0,
                    },
                    is_called: false,
                }),
                changed: Condvar::new(),
            }),
        }
    }

    /// State shared with the sending threads.
    pub(super) fn state(&self) -> Arc<SpoolState> {
        Arc::clone(&self.state)
    }

    /// Adds a notice, of a job of this user if one is named. One that the disk does not take is lost, which is logged once.
    pub(super) fn append(&mut self, position: Position, user: Option<&str>, notice: &str) {
        let line = format!("{position} {notice}\n");
        let bytes = line.len() as u64;
        if user.is_some_and(|user| !self.has_room(user, bytes)) {
            return;
        }
        match self.write(line.as_bytes()) {
            Ok(()) => {
                (self.is_dirty, self.has_failed) = (true, false);
                if let Some(user) = user {
                    self.shares.add(self.number, user, bytes);
                }
            }
            Err(e) => {
                // Half a line may be there, after which nothing is read.
                self.next_file();
                if !std::mem::replace(&mut self.has_failed, true) {
                    error!(
                        "webhook {}: notices are lost: {}: {e}",
                        self.name,
                        self.folder.display()
                    );
                }
            }
        }
    }

    /// Whether a user's jobs may have so many bytes more.
    fn has_room(&mut self, user: &str, bytes: u64) -> bool {
        let is_new = |at: Instant| at.elapsed() < SHARES_PACE;
        if self.shares.is_over(user, bytes) && !self.shares.looked.is_some_and(is_new) {
            self.shares.looked = Some(Instant::now());
            self.shares.keep(&numbers(&self.folder, &self.name));
        }
        let name = &self.name;
        if self.shares.is_over(user, bytes) {
            let count = self.shares.left_out.entry(user.to_owned()).or_default();
            *count += 1;
            if *count == 1 {
                warn!("webhook {name}: notices of jobs of {user} are left out: too many wait");
            }
            return false;
        }
        if let Some(count) = self.shares.left_out.remove(user) {
            error!("webhook {name}: {count} notices of jobs of {user} were left out");
        }
        true
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.bytes >= FILE_BYTES_MAX {
            self.sync();
            self.next_file();
        }
        let file = match &mut self.open {
            Some(file) => file,
            None => {
                let path = file_of(&self.folder, &self.name, self.number);
                let mut options = OpenOptions::new();
                options.append(true).create_new(true).mode(0o600);
                self.open.insert(options.open(path)?)
            }
        };
        file.write_all(line)?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    fn next_file(&mut self) {
        (self.open, self.bytes) = (None, 0);
        self.number += 1;
        let all = numbers(&self.folder, &self.name);
        self.shares.keep(&all);
        let beyond = (all.len() + 1).saturating_sub(FILES_MAX);
        for number in &all[..beyond.min(all.len())] {
            let path = file_of(&self.folder, &self.name, *number);
            let lines =
                fs::read(&path).map_or(0, |text| text.iter().filter(|b| **b == b'\n').count());
            error!(
                "webhook {}: it takes nothing, and its oldest {lines} notices are lost",
                self.name
            );
            let _ = fs::remove_file(path);
        }
        self.state.lock().end = self.end();
    }

    fn end(&self) -> SpoolEnd {
        SpoolEnd {
            file: self.number,
            bytes: self.bytes,
        }
    }

    /// Everything is on disk, and may be sent.
    pub(super) fn sync(&mut self) {
        if !std::mem::take(&mut self.is_dirty) {
            return;
        }
        if let Some(Err(e)) = self.open.as_ref().map(File::sync_data) {
            error!("webhook {}: {}: {e}", self.name, self.folder.display());
        }
        self.state.lock().end = self.end();
        self.state.changed.notify_all();
    }

    /// The webhook is gone: so are its files. It is not kept.
    pub(super) fn remove(&self) -> bool {
        for number in numbers(&self.folder, &self.name) {
            let _ = fs::remove_file(file_of(&self.folder, &self.name, number));
        }
        let _ = fs::remove_file(done_file(&self.folder, &self.name));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_kept_in_files_of_which_the_oldest_go() {
        let folder = std::env::temp_dir().join(format!("muster-spool.{}", std::process::id()));
        make_folder(&folder).unwrap();
        let mut spool = Spool::open(&folder, "a");
        let notice = "x".repeat(1 << 20);
        for position in 1..=200 {
            spool.append(position, None, &notice);
        }
        spool.sync();
        let found = numbers(&folder, "a");
        assert!(found.len() <= FILES_MAX && found[0] > 0, "{found:?}");
        assert_eq!(last_event(&folder, "a"), Some(200));
        // A torn line is not read, and the next controller writes to another file.
        let last = file_of(&folder, "a", *found.last().unwrap());
        let mut torn = OpenOptions::new().append(true).open(last).unwrap();
        torn.write_all(b"201 {\"id").unwrap();
        assert_eq!(last_event(&folder, "a"), Some(200));
        let mut again = Spool::open(&folder, "a");
        again.append(202, None, "{}");
        again.sync();
        assert_eq!(last_event(&folder, "a"), Some(202));
        assert_eq!(last_event(&folder, "b"), None);
        again.remove();
        assert!(numbers(&folder, "a").is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Notices of one user's jobs pushed out those of others and of nodes, where an address took nothing for some time.
    #[test]
    fn a_user_has_a_part_of_the_files() {
        let folder = std::env::temp_dir().join(format!("muster-spool-user.{}", std::process::id()));
        make_folder(&folder).unwrap();
        let mut spool = Spool::open(&folder, "a");
        spool.append(1, None, "node");
        let notice = "x".repeat(1 << 20);
        for position in 2..=200 {
            spool.append(position, Some("ada"), &notice);
        }
        spool.append(201, Some("bob"), "bob's");
        spool.sync();
        let files = numbers(&folder, "a");
        let text: String = files
            .iter()
            .map(|file| fs::read_to_string(file_of(&folder, "a", *file)).unwrap())
            .collect();
        assert!(text.starts_with("1 node\n") && text.ends_with("201 bob's\n"));
        assert!(text.len() as u64 <= USER_BYTES_MAX + 1000 && text.len() > 10 << 20);
        // A removed file counts no more.
        fs::remove_file(file_of(&folder, "a", files[0])).unwrap();
        spool.shares.looked = None;
        spool.append(202, Some("ada"), &notice);
        spool.sync();
        assert_eq!(last_event(&folder, "a"), Some(202));
        let counted: u64 = spool.shares.total.values().sum();
        assert!(counted < USER_BYTES_MAX - (3 << 20), "{counted}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
