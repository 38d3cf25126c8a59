//! Free space that is kept for the end of running jobs: new submissions are refused before the disk is full.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Space below which nothing new is accepted, bytes.
const RESERVE_BYTES: u64 = 16 << 20;
/// How often the file system is asked.
const EVERY: Duration = Duration::from_millis(100);

/// Watches the file system of the state directory.
pub struct Reserve {
    dir: PathBuf,
    last: Cell<Option<(Instant, u64)>>,
}

impl Reserve {
    /// Watches the file system that `dir` is on.
    pub fn new(dir: PathBuf) -> Reserve {
        Reserve {
            dir,
            last: Cell::new(None),
        }
    }

    /// Why a submission that will write so many bytes must be refused now, if it must. What is let pass counts as
    /// written until the file system is asked again.
    pub fn refusal(&self, bytes: u64) -> Option<String> {
        let (at, free) = match self.last.get() {
            Some((at, free)) if at.elapsed() < EVERY => (at, free),
            _ => (Instant::now(), self.free()),
        };
        let left = free.saturating_sub(bytes);
        if left >= RESERVE_BYTES {
            self.last.set(Some((at, left)));
            return None;
        }
        self.last.set(Some((at, free)));
        Some(format!(
            "{} has {} KiB left, this job takes {} KiB, and the controller keeps {} KiB for jobs that run; make space \
             there, then submit again",
            self.dir.display(),
            free >> 10,
            bytes >> 10,
            RESERVE_BYTES >> 10
        ))
    }

    fn free(&self) -> u64 {
        match nix::sys::statvfs::statvfs(&self.dir) {
            Ok(fs) => fs.blocks_available() * fs.fragment_size(),
            // The journal itself will say what is wrong.
            Err(_) => u64::MAX,
        }
    }
}
