//! Storage in memory with the manners of a disk: it keeps what programs see (live) apart from what
//! would survive a loss of power (durable), can be crashed at any operation, tears and reorders
//! unsynced writes by sectors, runs full, and fails chosen operations. For tests and the cluster
//! simulator; everything it does follows from the seed it is given.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Lock, Storage, StorageFile};

/// Unit in which a loss of power keeps or loses a write, bytes.
const SECTOR: u64 = 512;

/// How a machine goes down: see [`MemStorage::crash`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Only the process dies: the system still has every write.
    Process,
    /// Power is lost, and with it everything that was not synced.
    Power,
    /// Power is lost. Some unsynced sectors survive, some do not and some hold garbage, in no order; a part of the
    /// unsynced names survives. The number is the seed.
    Torn(u64),
}

/// A kind of operation, for [`MemStorage::fail_while`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A file is created or opened.
    Open,
    /// Bytes are written, or a file's length is changed.
    Write,
    /// A file or the directory is synced.
    Sync,
    /// A file is renamed or removed.
    Rename,
    /// Anything else.
    Other,
}

/// A directory in memory. Clones share it.
#[derive(Clone, Default)]
pub struct MemStorage {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    files: Vec<Content>,
    live: BTreeMap<String, usize>,
    durable: BTreeMap<String, usize>,
    unsynced: Vec<Name>,
    operations: u64,
    fail_at: Option<(u64, io::ErrorKind)>,
    halt_at: Option<u64>,
    halted: bool,
    failing: Option<(Operation, i32)>,
    capacity: Option<u64>,
    lock: Option<Arc<()>>,
}

#[derive(Clone, Default)]
struct Content {
    live: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

#[derive(Clone)]
enum Name {
    Link(String, usize),
    Rename(String, String),
    Unlink(String),
}

impl MemStorage {
    /// An empty directory.
    #[must_use]
    pub fn new() -> MemStorage {
        MemStorage::default()
    }

    /// Takes the machine down. Every handle of this storage fails from now on; what survived is
    /// in the storage that is returned.
    #[must_use]
    pub fn crash(&self, crash: Crash) -> MemStorage {
        let mut inner = self.inner();
        inner.halted = true;
        let mut next = Inner {
            capacity: inner.capacity,
            failing: inner.failing,
            ..Inner::default()
        };
        let mut random = Random(if let Crash::Torn(seed) = crash {
            seed
        } else {
            0
        });
        for content in &inner.files {
            let survived = match crash {
                Crash::Process => content.live.clone(),
                Crash::Power => content.durable.clone(),
                Crash::Torn(_) => content.torn(&mut random),
            };
            let durable = if crash == Crash::Process {
                &content.durable
            } else {
                &survived
            };
            next.files.push(Content {
                durable: durable.clone(),
                unsynced: if crash == Crash::Process {
                    content.unsynced.clone()
                } else {
                    vec![]
                },
                live: survived,
            });
        }
        next.durable.clone_from(&inner.durable);
        match crash {
            Crash::Process => next.unsynced.clone_from(&inner.unsynced),
            Crash::Power => {}
            // A file system keeps the order of changes to one directory: a prefix survives.
            Crash::Torn(_) => {
                let keep = random.below(inner.unsynced.len() as u64 + 1) as usize;
                inner.unsynced[..keep]
                    .iter()
                    .for_each(|name| name.apply(&mut next.durable));
            }
        }
        next.live.clone_from(&next.durable);
        if crash == Crash::Process {
            next.live.clone_from(&inner.live);
        }
        MemStorage {
            inner: Arc::new(Mutex::new(next)),
        }
    }

    /// Operations (reads included) done so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.inner().operations
    }

    /// Makes the `n`-th operation from now (1 is the next) fail with `kind`, once. A write that fails has written a
    /// part; a sync that fails loses its data.
    pub fn fail_at(&self, n: u64, kind: io::ErrorKind) {
        let mut inner = self.inner();
        inner.fail_at = Some((inner.operations + n, kind));
    }

    /// Makes every operation of a kind fail with a system error number until this is called again. What is left of
    /// a failed write or sync is as in [`MemStorage::fail_at`].
    pub fn fail_while(&self, failing: Option<(Operation, i32)>) {
        self.inner().failing = failing;
    }

    /// Halts the machine in the `n`-th operation from now: it and all later ones fail. What
    /// [`MemStorage::crash`] leaves may hold a part of it.
    pub fn halt_at(&self, n: u64) {
        let mut inner = self.inner();
        inner.halt_at = Some(inner.operations + n);
    }

    /// Limits the sum of all file lengths, bytes; `None` for no limit.
    pub fn set_capacity(&self, capacity: Option<u64>) {
        self.inner().capacity = capacity;
    }

    /// Sum of all file lengths, bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.inner().used()
    }

    /// A file's content as programs see it.
    #[must_use]
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let inner = self.inner();
        inner
            .live
            .get(name)
            .map(|&file| inner.files[file].live.clone())
    }

    /// Puts a durable file there, as someone other than the journal would.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut inner = self.inner();
        let file = inner.files.len();
        inner.files.push(Content {
            live: bytes.into(),
            durable: bytes.into(),
            unsynced: vec![],
        });
        inner.live.insert(name.to_owned(), file);
        inner.durable.insert(name.to_owned(), file);
    }

    /// Inverts one bit of a file, in what programs see and on the disk; false if it has no such
    /// bit.
    pub fn flip_bit(&self, name: &str, bit: u64) -> bool {
        let mut inner = self.inner();
        let Some(&file) = inner.live.get(name) else {
            return false;
        };
        let content = &mut inner.files[file];
        let (byte, mask) = ((bit / 8) as usize, 1u8 << (bit % 8));
        if byte >= content.live.len() {
            return false;
        }
        content.live[byte] ^= mask;
        if let Some(byte) = content.durable.get_mut(byte) {
            *byte ^= mask;
        }
        true
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn used(&self) -> u64 {
        self.live
            .values()
            .map(|&file| self.files[file].live.len() as u64)
            .sum()
    }

    /// Counts an operation. An error with `true` means that a part of it is to be done.
    fn operation(&mut self, kind: Operation) -> Result<(), (io::Error, bool)> {
        if self.halted {
            return Err((io::Error::other("the machine is down"), false));
        }
        self.operations += 1;
        if self.halt_at.is_some_and(|at| self.operations >= at) {
            self.halted = true;
            return Err((io::Error::other("the machine went down"), true));
        }
        if let Some((at, error)) = self.fail_at
            && self.operations >= at
        {
            self.fail_at = None;
            return Err((io::Error::new(error, "injected fault"), true));
        }
        if let Some((_, number)) = self.failing.filter(|(failing, _)| *failing == kind) {
            return Err((io::Error::from_raw_os_error(number), true));
        }
        Ok(())
    }

    fn simple(&mut self, kind: Operation) -> io::Result<()> {
        self.operation(kind).map_err(|(error, _)| error)
    }

    fn name(&mut self, name: Name) {
        name.apply(&mut self.live);
        self.unsynced.push(name);
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "no such file");
        self.live.get(name).copied().ok_or_else(missing)
    }
}

impl Content {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.unsynced.push(change);
    }

    fn torn(&self, random: &mut Random) -> Vec<u8> {
        let mut out = self.durable.clone();
        // Either a part of each write survives, or whole writes do up to one that is torn.
        let keep = random.below(self.unsynced.len() as u64 * 2 + 1) as usize;
        for (index, change) in self.unsynced.iter().enumerate() {
            match change {
                _ if index < keep && keep <= self.unsynced.len() => change.apply(&mut out),
                Change::SetLen(_) if random.below(2) == 0 => change.apply(&mut out),
                Change::SetLen(_) => {}
                Change::Write(offset, data) => {
                    for (at, sector) in sectors(*offset, data) {
                        match random.below(16) {
                            // Bytes that are written over with themselves are safe: every append
                            // on a real disk does that to what shares a sector with it.
                            0 if out.get(at as usize..at as usize + sector.len())
                                != Some(sector) =>
                            {
                                let garbage = sector.iter().map(|_| random.next() as u8).collect();
                                Change::Write(at, garbage).apply(&mut out);
                            }
                            0..8 => Change::Write(at, sector.to_vec()).apply(&mut out),
                            _ => {}
                        }
                    }
                }
            }
        }
        out
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::SetLen(len) => bytes.resize(*len as usize, 0),
            Change::Write(offset, data) => {
                let start = *offset as usize;
                let end = start + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[start..end].copy_from_slice(data);
            }
        }
    }
}

impl Name {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Name::Link(name, file) => {
                names.insert(name.clone(), *file);
            }
            Name::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
            Name::Unlink(name) => {
                names.remove(name);
            }
        }
    }
}

fn sectors(mut offset: u64, mut data: &[u8]) -> Vec<(u64, &[u8])> {
    let mut out = Vec::new();
    while !data.is_empty() {
        let len = ((SECTOR - offset % SECTOR) as usize).min(data.len());
        let (sector, rest) = data.split_at(len);
        out.push((offset, sector));
        offset += len as u64;
        data = rest;
    }
    out
}

/// SplitMix64: small, and the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

impl Storage for MemStorage {
    fn location(&self) -> String {
        "memory".to_owned()
    }

    fn lock(&self) -> io::Result<Lock> {
        let mut inner = self.inner();
        inner.simple(Operation::Open)?;
        if inner
            .lock
            .as_ref()
            .is_some_and(|lock| Arc::strong_count(lock) > 1)
        {
            return Ok(Lock::Busy(None));
        }
        let lock = Arc::new(());
        inner.lock = Some(Arc::clone(&lock));
        Ok(Lock::Held(Box::new(lock)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut inner = self.inner();
        inner.simple(Operation::Open)?;
        Ok(inner.live.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        let mut inner = self.inner();
        inner.simple(Operation::Open)?;
        let file = inner.files.len();
        inner.files.push(Content::default());
        inner.name(Name::Link(name.to_owned(), file));
        Ok(Box::new(MemFile {
            inner: Arc::clone(&self.inner),
            file,
        }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        let mut inner = self.inner();
        inner.simple(Operation::Open)?;
        let file = inner.find(name)?;
        Ok(Box::new(MemFile {
            inner: Arc::clone(&self.inner),
            file,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.inner();
        let name = Name::Rename(from.to_owned(), to.to_owned());
        match inner.operation(Operation::Rename) {
            // A machine that went down may have done it; one that reports an error has not.
            Err((error, part)) => {
                if part && inner.halted {
                    inner.name(name);
                }
                Err(error)
            }
            Ok(()) => {
                inner.find(from)?;
                inner.name(name);
                Ok(())
            }
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut inner = self.inner();
        inner.simple(Operation::Rename)?;
        inner.find(name)?;
        inner.name(Name::Unlink(name.to_owned()));
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut inner = self.inner();
        inner.simple(Operation::Sync)?;
        let inner = &mut *inner;
        inner
            .unsynced
            .drain(..)
            .for_each(|name| name.apply(&mut inner.durable));
        Ok(())
    }
}

struct MemFile {
    inner: Arc<Mutex<Inner>>,
    file: usize,
}

impl MemFile {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StorageFile for MemFile {
    fn size(&self) -> io::Result<u64> {
        let mut inner = self.inner();
        inner.simple(Operation::Other)?;
        Ok(inner.files[self.file].live.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut inner = self.inner();
        inner.simple(Operation::Other)?;
        let bytes = &inner.files[self.file].live;
        let start = (offset as usize).min(bytes.len());
        let len = buf.len().min(bytes.len() - start);
        buf[..len].copy_from_slice(&bytes[start..start + len]);
        Ok(len)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut inner = self.inner();
        let mut done = data.len();
        let mut outcome = Ok(());
        if let Err((error, part)) = inner.operation(Operation::Write) {
            done = match (part, inner.halted) {
                (false, _) => 0,
                // All of it is on the way to the disk when the power goes.
                (true, true) => data.len(),
                (true, false) => data.len() / 2,
            };
            outcome = Err(error);
        }
        let len = inner.files[self.file].live.len() as u64;
        if let Some(capacity) = inner.capacity {
            let most = (len + capacity.saturating_sub(inner.used())).max(len);
            let fits = most.saturating_sub(offset).min(done as u64) as usize;
            if fits < done && outcome.is_ok() {
                outcome = Err(io::Error::new(io::ErrorKind::StorageFull, "no space"));
            }
            done = fits;
        }
        if done > 0 {
            inner.files[self.file].change(Change::Write(offset, data[..done].to_vec()));
        }
        outcome
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut inner = self.inner();
        let outcome = inner.operation(Operation::Write);
        if outcome.is_ok() || inner.halted && matches!(outcome, Err((_, true))) {
            inner.files[self.file].change(Change::SetLen(len));
        }
        outcome.map_err(|(error, _)| error)
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.inner();
        match inner.operation(Operation::Sync) {
            Ok(()) => {
                let content = &mut inner.files[self.file];
                let Content {
                    durable, unsynced, ..
                } = content;
                unsynced.drain(..).for_each(|change| change.apply(durable));
                Ok(())
            }
            Err((error, part)) => {
                // The kernel reports the error once and takes the pages for clean.
                if part && !inner.halted {
                    inner.files[self.file].unsynced.clear();
                }
                Err(error)
            }
        }
    }
}
