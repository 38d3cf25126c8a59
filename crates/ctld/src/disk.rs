//! Free space that is kept for the end of running jobs: what users ask for is refused before the disk is full.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Space below which nothing new is accepted, bytes.
const RESERVE_BYTES: u64 = 16 << 20;
/// How often the file system is asked.
const EVERY: Duration = Duration::from_millis(100);

/// What is left of that space by somebody who uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// All.
    All,
    /// Half of it: what reports of nodes need.
    ForReports,
    /// Nothing.
    Nothing,
}

impl Kept {
    fn bytes(self) -> u64 {
        match self {
            Kept::All => RESERVE_BYTES,
            Kept::ForReports => RESERVE_BYTES / 2,
            Kept::Nothing => 0,
        }
    }
}

/// Watches the file system of the state directory.
pub struct Reserve {
    dir: PathBuf,
    /// Bytes that are free.
    ask: Box<dyn Fn() -> u64 + Send>,
    last: Cell<Option<(Instant, u64)>>,
}

impl Reserve {
    /// Watches the file system that `dir` is on.
    pub fn new(dir: PathBuf) -> Reserve {
        let of = dir.clone();
        Reserve::asking(dir, move || free(&of))
    }

    /// The same with another way to know how much is free.
    pub(crate) fn asking(dir: PathBuf, ask: impl Fn() -> u64 + Send + 'static) -> Reserve {
        Reserve {
            dir,
            ask: Box::new(ask),
            last: Cell::new(None),
        }
    }

    /// Why a command that will write so many bytes must be refused now, if it must. What is let pass counts as
    /// written until the file system is asked again.
    pub(crate) fn refusal(&self, bytes: u64, kept: Kept) -> Option<String> {
        let (at, free) = match self.last.get() {
            Some((at, free)) if at.elapsed() < EVERY => (at, free),
            _ => (Instant::now(), (self.ask)()),
        };
        let left = free.saturating_sub(bytes);
        if left >= kept.bytes() {
            self.last.set(Some((at, left)));
            return None;
        }
        self.last.set(Some((at, free)));
        Some(format!(
            "{} has {} KiB left, this takes {} KiB, and the controller keeps {} KiB for jobs that run; make space \
             there, then try again",
            self.dir.display(),
            free >> 10,
            bytes >> 10,
            kept.bytes() >> 10
        ))
    }
}

fn free(dir: &Path) -> u64 {
    match nix::sys::statvfs::statvfs(dir) {
        Ok(fs) => fs.blocks_available() * fs.fragment_size(),
        // The journal itself will say what is wrong.
        Err(_) => u64::MAX,
    }
}
