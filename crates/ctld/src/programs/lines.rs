//! Records of ended jobs that wait to be written to a file (`JobCompType=jobcomp/filetxt`), which may be on a disk of another host.

use log::error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel as queue};

/// Bytes of records that wait; what comes beyond is lost.
const WAITING_MAX: usize = 64 << 20;
/// What a record takes beside its texts.
const FIXED_BYTES: usize = 128;

/// Where records go.
#[derive(Clone, Debug)]
pub(super) struct JobLines {
    sender: Sender<CompletionLine>,
    count: Arc<LineCount>,
}

/// Where they come out.
#[derive(Debug)]
pub(super) struct WrittenLines {
    receiver: Receiver<CompletionLine>,
    count: Arc<LineCount>,
}

#[derive(Debug)]
struct CompletionLine {
    path: PathBuf,
    line: String,
}

impl CompletionLine {
    /// What it takes.
    fn bytes(&self) -> usize {
        self.path.as_os_str().len() + self.line.len() + FIXED_BYTES
    }
}

#[derive(Debug, Default)]
struct LineCount {
    waiting: AtomicUsize,
    lost: AtomicUsize,
}

pub(super) fn channel() -> (JobLines, WrittenLines) {
    let (sender, receiver) = queue();
    let count = Arc::<LineCount>::default();
    let lines = JobLines {
        sender,
        count: Arc::clone(&count),
    };
    (lines, WrittenLines { receiver, count })
}

impl JobLines {
    pub(super) fn append(&self, path: PathBuf, line: String) {
        let line = CompletionLine { path, line };
        let bytes = line.bytes();
        if self.count.waiting.load(Relaxed) + bytes > WAITING_MAX {
            if self.count.lost.fetch_add(1, Relaxed) == 0 {
                error!(
                    "JobCompLoc={}: records of ended jobs are lost, since those before them wait to be written: see to its disk",
                    line.path.display()
                );
            }
            return;
        }
        self.count.waiting.fetch_add(bytes, Relaxed);
        let _ = self.sender.send(line);
    }
}

impl WrittenLines {
    /// Writes what comes, until nobody can add more.
    pub(super) fn write_all(&self) {
        while let Ok(line) = self.receiver.recv() {
            append(&line.path, &line.line);
            self.count.waiting.fetch_sub(line.bytes(), Relaxed);
            let lost = self.count.lost.swap(0, Relaxed);
            if lost > 0 {
                error!(
                    "JobCompLoc={}: {lost} records were lost",
                    line.path.display()
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

    #[test]
    fn records_of_jobs_that_wait_are_bounded_in_bytes() {
        let path = std::env::temp_dir().join(format!("muster-lines.{}", std::process::id()));
        let (lines, appended) = channel();
        for _ in 0..100 {
            lines.append(path.clone(), "x".repeat(1 << 20));
        }
        assert!(lines.count.waiting.load(Relaxed) <= WAITING_MAX);
        assert_eq!(lines.count.lost.load(Relaxed), 37);
        drop(lines.sender);
        appended.write_all();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 63 << 20);
        assert_eq!(appended.count.waiting.load(Relaxed), 0);
        std::fs::remove_file(&path).unwrap();
    }
}
