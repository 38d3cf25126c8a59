//! Lists processes and their descendants. [`ProcessTree`] finds them by descent, which works on
//! every kernel. The launcher decides to which job they belong.

use crate::sys;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read};
use std::os::unix::fs::FileExt;

/// Bytes of a file of /proc that are read at once.
const READ_SIZE: usize = 64 << 10;

/// Finds the processes of jobs.
pub(crate) trait Containment {
    /// All descendants of `roots`, without the roots.
    fn below(&self, roots: &[i32]) -> Vec<i32>;
    /// Children of this process.
    fn own_children(&self) -> Vec<i32>;
}

/// Processes by descent. The launcher adopts orphans (PR_SET_CHILD_SUBREAPER), so that no process
/// leaves the tree.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    /// The kernel's list of this process's children, kept open: it is read with every burst of
    /// ended jobs. `None` if the kernel has no such lists (CONFIG_PROC_CHILDREN).
    own: Option<File>,
}

impl ProcessTree {
    /// Determines what the kernel offers. The calling process must stay single-threaded.
    pub(crate) fn new() -> ProcessTree {
        let pid = std::process::id();
        ProcessTree {
            own: File::open(format!("/proc/{pid}/task/{pid}/children")).ok(),
        }
    }

    fn listed(&self) -> bool {
        self.own.is_some()
    }

    fn children(&self, pid: i32) -> Vec<i32> {
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
            return Vec::new();
        };
        threads
            .flatten()
            .filter_map(|t| fs::read_to_string(t.path().join("children")).ok())
            .flat_map(|text| numbers(&text))
            .collect()
    }
}

impl Containment for ProcessTree {
    fn below(&self, roots: &[i32]) -> Vec<i32> {
        let mut found = Vec::new();
        let mut seen: HashSet<i32> = roots.iter().copied().collect();
        let mut todo = roots.to_vec();
        // Without lists of children, one scan of all processes replaces all of them.
        let parents = if self.listed() || roots.is_empty() {
            Vec::new()
        } else {
            all_pids()
                .into_iter()
                .filter_map(|pid| Some((pid, Stat::of(pid)?.parent)))
                .collect()
        };
        while let Some(pid) = todo.pop() {
            let children = if self.listed() {
                self.children(pid)
            } else {
                parents
                    .iter()
                    .filter(|&&(_, p)| p == pid)
                    .map(|&(c, _)| c)
                    .collect()
            };
            for child in children {
                if seen.insert(child) {
                    found.push(child);
                    todo.push(child);
                }
            }
        }
        found
    }

    fn own_children(&self) -> Vec<i32> {
        if let Some(own) = &self.own {
            return read_all(own).map(|t| numbers(&t)).unwrap_or_default();
        }
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        all_pids()
            .into_iter()
            .filter(|&pid| Stat::of(pid).is_some_and(|s| s.parent == own))
            .collect()
    }
}

/// The whole contents of a file in /proc.
fn read_all(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; 4096];
    let mut length = 0;
    loop {
        match file.read_at(&mut bytes[length..], length as u64)? {
            0 => break,
            n => length += n,
        }
        if bytes.len() - length < 1024 {
            bytes.resize(2 * bytes.len(), 0);
        }
    }
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(io::Error::other)
}

fn numbers(text: &str) -> Vec<i32> {
    text.split_ascii_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect()
}

/// Every process of the machine.
pub(crate) fn all_pids() -> Vec<i32> {
    fs::read_dir("/proc")
        .map(|dir| {
            dir.flatten()
                .filter_map(|e| e.file_name().to_str()?.parse().ok())
                .collect()
        })
        .unwrap_or_default()
}

/// Contents of /proc/PID/stat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    /// Its parent.
    pub(crate) parent: i32,
    /// Its session.
    pub(crate) session: i32,
    /// The process has ended and was not collected.
    pub(crate) zombie: bool,
    /// When it started, milliseconds since boot.
    pub(crate) start_ms: u64,
    /// Wait status of a zombie; 0 where this process may not see it.
    pub(crate) exit: i32,
}

impl Stat {
    /// Reads it; `None` if the process has ended.
    pub(crate) fn of(pid: i32) -> Option<Stat> {
        Stat::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name, field 2, was chosen by the process and is not always text; it ends at the last
    /// parenthesis.
    fn parse(stat: &[u8]) -> Option<Stat> {
        let name_end = stat.iter().rposition(|byte| *byte == b')')?;
        let text = std::str::from_utf8(stat.get(name_end + 2..)?).ok()?;
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3).and_then(|f| f.parse::<i64>().ok());
        Some(Stat {
            parent: i32::try_from(number(4)?).ok()?,
            session: i32::try_from(number(6)?).ok()?,
            zombie: matches!(fields.first(), Some(&("Z" | "X"))),
            start_ms: u64::try_from(number(22)?).ok()? * 1000 / sys::ticks_per_s(),
            exit: number(52).and_then(|n| i32::try_from(n).ok()).unwrap_or(0),
        })
    }
}

/// The parent of a process.
pub(crate) fn parent_of(pid: i32) -> Option<i32> {
    Stat::of(pid).map(|stat| stat.parent)
}

/// Maximum bytes of an environment that are read. The kernel gives a program at most 6 MiB of
/// arguments and variables, but a process may later declare any part of its memory its environment
/// (`PR_SET_MM_MAP`).
const ENVIRONMENT_MAX: u64 = 8 << 20;

/// Values of some variables in the environment that a process was started with, or claims to have
/// been.
pub(crate) fn variables<const N: usize>(pid: i32, names: [&str; N]) -> [Option<String>; N] {
    match File::open(format!("/proc/{pid}/environ")) {
        Ok(file) => variables_in(file, names),
        Err(_) => [const { None }; N],
    }
}

/// Reads until all variables are found, and at most as much as a program can be started with.
fn variables_in<const N: usize>(environ: impl Read, names: [&str; N]) -> [Option<String>; N] {
    let mut found = [const { None }; N];
    let mut environ = BufReader::with_capacity(READ_SIZE, environ.take(ENVIRONMENT_MAX));
    let mut entry = Vec::new();
    while found.iter().any(Option::is_none) {
        entry.clear();
        match environ.read_until(0, &mut entry) {
            Ok(length) if length > 0 => {}
            _ => break,
        }
        let Ok(entry) = str::from_utf8(entry.strip_suffix(&[0]).unwrap_or(&entry)) else {
            continue;
        };
        for (name, slot) in names.iter().zip(&mut found) {
            let value = entry.strip_prefix(name).and_then(|v| v.strip_prefix('='));
            // As with getenv(3), the first one counts.
            if let (Some(value), None) = (value, &slot) {
                *slot = Some(value.to_owned());
            }
        }
    }
    found
}

/// The user that a process runs as.
pub(crate) fn owner(pid: i32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(format!("/proc/{pid}")).ok().map(|m| m.uid())
}

/// Whether all identities of a process, the real one included, are this user.
pub(crate) fn has_only_uid(pid: i32, uid: u32) -> bool {
    let Ok(status) = fs::read(format!("/proc/{pid}/status")) else {
        return false;
    };
    // The name of the process is not always text.
    let status = String::from_utf8_lossy(&status);
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.is_some_and(|uids| numbers(uids).iter().all(|n| u32::try_from(*n) == Ok(uid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Such a process was never found again: it outlived its job, and the job was started a second time.
    #[test]
    fn a_process_is_known_whatever_its_name_is() {
        let of = |name: &[u8]| {
            let rest = b" S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 500 1 1 ";
            let text = [b"12 (".as_slice(), name, b")", rest].concat();
            Stat::parse(&text).map(|stat| (stat.parent, stat.session, stat.zombie))
        };
        let names: [&[u8]; 4] = [b"sleep", b"\xff\xfe", b") Z 1 1 (", b""];
        for name in names {
            assert_eq!(of(name), Some((7, 9, false)), "{name:?}");
        }
        assert!(Stat::parse(b"12 (sleep").is_none());
    }

    /// Counts the bytes that are read.
    struct Counted<R>(R, u64);

    impl<R: Read> Read for &mut Counted<R> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let length = self.0.read(bytes)?;
            self.1 += length as u64;
            Ok(length)
        }
    }

    #[test]
    fn of_an_environment_no_more_is_read_than_a_program_can_have() {
        let names = ["SLURM_LOCALID", "SLURM_PROCID"];
        for byte in [0, b'x'] {
            let mut endless = Counted(io::repeat(byte), 0);
            assert_eq!(variables_in(&mut endless, names), [None, None]);
            assert_eq!(endless.1, ENVIRONMENT_MAX);
        }
        let text = b"A=\xff\0SLURM_PROCID=3\0SLURM_LOCALID=1\0SLURM_LOCALID=2\0";
        let mut begins = Counted(text.chain(io::repeat(0)), 0);
        let found = variables_in(&mut begins, names);
        assert_eq!(found, [Some("1".to_owned()), Some("3".to_owned())]);
        assert!(begins.1 <= 2 * READ_SIZE as u64);
    }
}
