//! Storage in a real directory. Files are mode 0600 and the directory 0700: events hold job
//! scripts and environments. The lock is `flock` on the file `lock`, which also holds the pid of
//! the holder for the error message.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::{Lock, Storage, StorageFile};

const LOCK_FILE: &str = "lock";
/// Descriptors kept in reserve: one for a new segment, one to sync the directory.
const SPARE_DESCRIPTORS: usize = 2;
/// The process, or the system, has no descriptor left.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

/// A directory of the file system.
#[derive(Debug)]
pub struct DirStorage {
    path: PathBuf,
    /// Open from the time the lock is taken, and closed when a file cannot be opened without: a process that is out of
    /// descriptors can still begin a new segment.
    spare: Mutex<Vec<File>>,
}

impl DirStorage {
    /// The directory at `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> DirStorage {
        DirStorage {
            path: path.into(),
            spare: Mutex::default(),
        }
    }

    /// Opens a file, with a descriptor of the reserve if there is no other.
    fn open_file(&self, open: impl Fn() -> io::Result<File>) -> io::Result<File> {
        match open() {
            Err(error) if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) => {
                let spare = self
                    .spare
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .pop();
                if spare.is_none() {
                    return Err(error);
                }
                drop(spare);
                open()
            }
            opened => opened,
        }
    }

    /// Fills the reserve, as far as there are descriptors.
    fn keep_spare(&self) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        while spare.len() < SPARE_DESCRIPTORS
            && let Ok(file) = File::open(&self.path)
        {
            spare.push(file);
        }
    }

    /// Makes the directory (and those above it) if it is not there, durably.
    pub fn make_dir(&self) -> io::Result<()> {
        if self.path.is_dir() {
            return Ok(());
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)?;
        match self.path.parent() {
            Some(parent) if parent != Path::new("") => File::open(parent)?.sync_all(),
            _ => File::open(".")?.sync_all(),
        }
    }
}

impl Storage for DirStorage {
    fn location(&self) -> String {
        self.path.display().to_string()
    }

    fn lock(&self) -> io::Result<Lock> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.path.join(LOCK_FILE))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // The pid is only for the message: without it the answer is the same.
                let _ = file.read_to_string(&mut text);
                return Ok(Lock::Busy(text.trim().parse().ok()));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        self.keep_spare();
        Ok(Lock::Held(Box::new(file)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        options.mode(0o600);
        let file = self.open_file(|| options.open(self.path.join(name)))?;
        Ok(Box::new(DirFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path.join(name))?;
        Ok(Box::new(DirFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        let synced = self
            .open_file(|| File::open(&self.path))
            .and_then(|dir| dir.sync_all());
        self.keep_spare();
        synced
    }
}

struct DirFile(File);

impl StorageFile for DirFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        // fdatasync: it writes the length with the data, and leaves out the time stamps.
        self.0.sync_data()
    }
}
