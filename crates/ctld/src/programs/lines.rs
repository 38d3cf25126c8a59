//! Records of ended jobs that wait to be written to a file (`JobCompType=jobcomp/filetxt`), which may be on a disk of another host.

use log::error;
use muster_channel::admission::{ByteBounds, ByteCount};
use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel as queue};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of records that wait; what comes beyond is lost. A user's jobs leave room for the records of others.
const WAITING: ByteBounds = ByteBounds {
    own: 32 << 20,
    all: 128 << 20,
    few: 1 << 20,
};
/// The memory of a record beside its texts.
const FIXED_BYTES: usize = 128;

/// Where records go.
#[derive(Clone, Debug)]
pub(super) struct JobLines {
    sender: Sender<CompletionLine>,
    counts: Arc<LineCounts>,
}

/// Where they come out.
#[derive(Debug)]
pub(super) struct WrittenLines {
    receiver: Receiver<CompletionLine>,
    counts: Arc<LineCounts>,
}

#[derive(Debug)]
struct CompletionLine {
    /// The job's owner.
    uid: u32,
    path: PathBuf,
    line: String,
}

impl CompletionLine {
    /// The memory that it takes.
    fn bytes(&self) -> usize {
        self.path.as_os_str().len() + self.line.len() + FIXED_BYTES
    }
}

/// The waiting records, and the number of lost ones, by user.
#[derive(Debug)]
struct LineCounts {
    users: Mutex<HashMap<u32, UserLines>>,
    all: ByteCount,
}

#[derive(Debug)]
struct UserLines {
    waiting: ByteCount,
    lost: usize,
}

impl LineCounts {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, UserLines>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a record that is to wait; false if it is lost.
    fn take(&self, line: &CompletionLine) -> bool {
        let mut users = self.lock();
        let own = users.entry(line.uid).or_insert_with(|| UserLines {
            waiting: self.all.of_another(),
            lost: 0,
        });
        if own.waiting.take(line.bytes()).is_ok() {
            return true;
        }
        own.lost += 1;
        if own.lost == 1 {
            error!(
                "JobCompLoc={}: records of ended jobs of uid {} are lost, since those before them wait to be written: see to its disk",
                line.path.display(),
                line.uid
            );
        }
        if own.waiting.own() == 0 {
            users.remove(&line.uid);
        }
        false
    }

    /// A record was written; how many of its user were lost since the one before.
    fn give_back(&self, line: &CompletionLine) -> usize {
        let mut users = self.lock();
        let Some(own) = users.get_mut(&line.uid) else {
            return 0;
        };
        own.waiting.give_back(line.bytes());
        let lost = std::mem::take(&mut own.lost);
        if own.waiting.own() == 0 {
            users.remove(&line.uid);
        }
        lost
    }
}

pub(super) fn channel() -> (JobLines, WrittenLines) {
    let (sender, receiver) = queue();
    let counts = Arc::new(LineCounts {
        users: Mutex::default(),
        all: ByteCount::new(WAITING),
    });
    let lines = JobLines {
        sender,
        counts: Arc::clone(&counts),
    };
    (lines, WrittenLines { receiver, counts })
}

impl JobLines {
    /// Has the record of a user's job written, unless too much of that waits.
    pub(super) fn append(&self, uid: u32, path: PathBuf, line: String) {
        let line = CompletionLine { uid, path, line };
        if self.counts.take(&line) {
            let _ = self.sender.send(line);
        }
    }
}

impl WrittenLines {
    /// Writes what comes, until nobody can add more.
    pub(super) fn write_all(&self) {
        while let Ok(line) = self.receiver.recv() {
            append(&line.path, &line.line);
            let lost = self.counts.give_back(&line);
            if lost > 0 {
                error!(
                    "JobCompLoc={}: {lost} records of jobs of uid {} were lost",
                    line.path.display(),
                    line.uid
                );
            }
        }
    }
}

fn append(path: &Path, line: &str) {
    let opened = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path);
    if let Err(e) = opened.and_then(|mut file| file.write_all(line.as_bytes())) {
        error!("JobCompLoc={}: {e}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waiting records of one user's jobs had those of others lost.
    #[test]
    fn records_of_jobs_that_wait_are_bounded_in_bytes() {
        let path = std::env::temp_dir().join(format!("muster-lines.{}", std::process::id()));
        let (lines, appended) = channel();
        for _ in 0..100 {
            lines.append(7, path.clone(), "x".repeat(1 << 20));
        }
        assert!(lines.counts.all.all() <= WAITING.own);
        assert_eq!(lines.counts.lock()[&7].lost, 69);
        lines.append(8, path.clone(), "y".repeat(1 << 20));
        assert_eq!(lines.counts.lock()[&8].lost, 0);
        drop(lines.sender);
        appended.write_all();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 32 << 20);
        assert_eq!(appended.counts.all.all(), 0);
        assert!(appended.counts.lock().is_empty());
        std::fs::remove_file(&path).unwrap();
    }
}
