//! Free space that is kept for the end of running jobs: what users ask for is refused before the disk is full. Ends of jobs may
//! use half of it, of which each user has a part, so that a user who ends many jobs leaves some for the ends of others.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Space below which nothing new is accepted, bytes.
const RESERVE_BYTES: u64 = 16 << 20;
/// The part of it that reports of nodes need.
const FOR_REPORTS: u64 = RESERVE_BYTES / 2;
/// The part of the rest for users who have used little of it.
const FOR_OTHERS: u64 = (RESERVE_BYTES - FOR_REPORTS) / 4;
/// Bytes of that little: some hundred jobs that end.
const LITTLE: u64 = 64 << 10;
/// Interval of questions to the file system.
const EVERY: Duration = Duration::from_millis(100);

/// The part of the reserved space that a command must leave free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReservedSpace {
    /// All.
    All,
    /// The part for reports of nodes, and a part of the rest for other users: this user ends jobs.
    ForReports(u32),
    /// Nothing.
    Nothing,
}

impl ReservedSpace {
    fn bytes(self) -> u64 {
        match self {
            ReservedSpace::All => RESERVE_BYTES,
            ReservedSpace::ForReports(_) => FOR_REPORTS,
            ReservedSpace::Nothing => 0,
        }
    }
}

/// Watches the file system of the state directory.
pub struct DiskReserve {
    dir: PathBuf,
    /// Bytes that are free.
    ask: Box<dyn Fn() -> u64 + Send>,
    last: Cell<Option<(Instant, u64)>>,
    /// Bytes by which users have ended jobs since there was more space.
    ends: RefCell<HashMap<u32, u64>>,
}

impl DiskReserve {
    /// Watches the file system that `dir` is on.
    pub fn new(dir: PathBuf) -> DiskReserve {
        let of = dir.clone();
        DiskReserve::asking(dir, move || free(&of))
    }

    /// As above, with another way to know the free space.
    pub(crate) fn asking(dir: PathBuf, ask: impl Fn() -> u64 + Send + 'static) -> DiskReserve {
        DiskReserve {
            dir,
            ask: Box::new(ask),
            last: Cell::new(None),
            ends: RefCell::default(),
        }
    }

    /// Reason to refuse a command that will write `bytes` now, if there is one. Admitted bytes count as written until
    /// the file system is asked again.
    pub(crate) fn refusal(&self, bytes: u64, kept: ReservedSpace) -> Option<String> {
        let (at, free) = match self.last.get() {
            Some((at, free)) if at.elapsed() < EVERY => (at, free),
            _ => (Instant::now(), (self.ask)()),
        };
        let left = free.saturating_sub(bytes);
        if left >= RESERVE_BYTES {
            self.ends.borrow_mut().clear();
        }
        let kept_bytes = kept.bytes();
        let why = match kept {
            _ if left < kept_bytes => "for jobs that run",
            ReservedSpace::ForReports(uid) if !self.takes_end(uid, bytes, left) => {
                "for jobs that run and for ends that others ask for"
            }
            _ => {
                self.last.set(Some((at, left)));
                return None;
            }
        };
        self.last.set(Some((at, free)));
        Some(format!(
            "{} has {} KiB left, this takes {} KiB, and the controller keeps {} KiB {why}; make space there, then try again",
            self.dir.display(),
            free >> 10,
            bytes >> 10,
            kept_bytes >> 10
        ))
    }

    /// Counts the bytes of a user's ends of jobs against the reserved space, if the user may take them. Beyond a little
    /// no user has more than the space that is left for others then.
    fn takes_end(&self, uid: u32, bytes: u64, left: u64) -> bool {
        if left >= RESERVE_BYTES {
            return true;
        }
        let mut ends = self.ends.borrow_mut();
        let own = ends.get(&uid).copied().unwrap_or(0).saturating_add(bytes);
        let is_let = own <= LITTLE || own <= left.saturating_sub(FOR_REPORTS + FOR_OTHERS);
        if is_let {
            ends.insert(uid, own);
        }
        is_let
    }
}

fn free(dir: &Path) -> u64 {
    match nix::sys::statvfs::statvfs(dir) {
        Ok(fs) => fs.blocks_available() * fs.fragment_size(),
        // The journal itself will report the error.
        Err(_) => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    /// A user who ended the tasks of an array one by one could use up what others need to end their jobs.
    #[test]
    fn nobody_ends_so_much_that_others_cannot_end_jobs() {
        let free = Rc::new(Cell::new(RESERVE_BYTES));
        let reserve = DiskReserve {
            dir: PathBuf::from("/t"),
            ask: Box::new(|| 0),
            last: Cell::new(None),
            ends: RefCell::default(),
        };
        let take = |uid, bytes| {
            // The free space does not depend on when the system is asked.
            reserve.last.set(Some((Instant::now(), free.get())));
            let refused = reserve
                .refusal(bytes, ReservedSpace::ForReports(uid))
                .is_some();
            free.set(reserve.last.get().map_or(0, |(_, free)| free));
            !refused
        };
        let mut had = Vec::new();
        for uid in 0..30 {
            let mut own = 0;
            while take(uid, 4 << 10) {
                own += 4 << 10;
            }
            had.push(own);
        }
        assert!(had[0] > (2 << 20), "one user has enough: {}", had[0]);
        assert!(had.iter().all(|own| *own >= LITTLE), "{had:?}");
        assert!(free.get() >= FOR_REPORTS);
        assert!(reserve.refusal(1, ReservedSpace::All).is_some());
        // With space again, all begin anew.
        free.set(2 * RESERVE_BYTES);
        assert!(take(0, 1 << 20) && reserve.ends.borrow().is_empty());
    }
}
