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

    /// Why a submission must be refused now, if it must.
    pub fn refusal(&self) -> Option<String> {
        let free = match self.last.get() {
            Some((at, free)) if at.elapsed() < EVERY => free,
            _ => {
                let free = self.free();
                self.last.set(Some((Instant::now(), free)));
                free
            }
        };
        (free < RESERVE_BYTES).then(|| {
            format!(
                "{} has {} KiB left and the controller keeps {} KiB for jobs that run; make space there, then submit again",
                self.dir.display(),
                free >> 10,
                RESERVE_BYTES >> 10
            )
        })
    }

    fn free(&self) -> u64 {
        match nix::sys::statvfs::statvfs(&self.dir) {
            Ok(fs) => fs.blocks_available() * fs.fragment_size(),
            // The journal itself will say what is wrong.
            Err(_) => u64::MAX,
        }
    }
}
