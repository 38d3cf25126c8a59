//! The file that makes an attempt run at most once: a line is written before the fork, and lines say how it went on.
//! It is not synced: it must outlive the shim, not the machine; after a reboot the boot id in its first line differs
//! and everything that it says was running is gone. It also holds what the agent wants back, keys of jobs among it, so
//! it is readable by its owner alone.

use super::wire::{Around, FromShim, Run};
use minicbor::bytes::ByteVec;
use muster_core::ids::{Attempt, JobId, StepNo};
use muster_core::job::{StepEnd, Usage};
use muster_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The file grows to this size before it is rewritten.
const COMPACT_BYTES: u64 = 1 << 20;

/// Whose fault it is that a script was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The job's.
    Job = 0,
    /// The node's.
    Node = 1,
    /// The prolog's.
    Prolog = 2,
}

impl Fault {
    /// What the agent is told.
    pub(crate) fn told(self, run: Run, error: String) -> FromShim {
        FromShim::LaunchFailed {
            run,
            error,
            node_fault: self != Fault::Job,
            prolog: self == Fault::Prolog,
        }
    }
}

/// An attempt that an earlier shim wrote down.
#[derive(Clone, Debug, Default)]
pub(crate) struct Old {
    /// Owner.
    pub(crate) uid: u32,
    /// It has a batch script here.
    pub(crate) batch: bool,
    /// The script's process, if the fork was written down.
    pub(crate) pid: Option<i32>,
    /// When it was about to be forked, milliseconds since boot.
    pub(crate) boot_ms: u64,
    /// How the script ended.
    pub(crate) ended: Option<(i32, Usage, Timestamp)>,
    /// Why it was not started, and whose fault that is.
    pub(crate) failed: Option<(Fault, String)>,
    /// The job was told to end.
    pub(crate) ending: bool,
    /// Nothing was left.
    pub(crate) released: bool,
    /// Step daemons.
    pub(crate) steps: BTreeMap<StepNo, i32>,
    /// How steps ended, as far as they told.
    pub(crate) step_ends: BTreeMap<StepNo, StepEnd>,
    /// Steps that were forgotten, as far as the file has not been rewritten since.
    pub(crate) steps_gone: BTreeSet<StepNo>,
    /// Directories that steps have outside the spool directory.
    pub(crate) step_dirs: BTreeMap<StepNo, Vec<PathBuf>>,
    /// Its grant.
    pub(crate) grant: Option<ByteVec>,
    /// What the agent asked to keep.
    pub(crate) kept: BTreeMap<u32, ByteVec>,
    /// Programs around it.
    pub(crate) around: Option<Box<Around>>,
    /// The one before it has ended well.
    pub(crate) prolog_over: bool,
}

/// Lines of an attempt that is not forgotten.
#[derive(Debug, Default)]
struct Live {
    lines: String,
    /// The latest line of each thing kept.
    kept: BTreeMap<u32, String>,
    /// Lines of each step that is not forgotten.
    steps: BTreeMap<u32, String>,
}

impl Live {
    fn add(&mut self, kind: &str, rest: &str, line: &str) {
        if !matches!(kind, "K" | "S" | "M" | "Z" | "T") {
            return self.lines.push_str(line);
        }
        let mut words = rest.split(' ');
        let Some(key) = words.next().and_then(|w| w.parse().ok()) else {
            return;
        };
        if kind == "T" {
            self.steps.remove(&key);
        } else if kind != "K" {
            self.steps.entry(key).or_default().push_str(line);
        } else if words.next().is_none_or(str::is_empty) {
            self.kept.remove(&key);
        } else {
            self.kept.insert(key, line.to_owned());
        }
    }
}

/// The open file.
#[derive(Debug)]
pub(crate) struct Records {
    path: PathBuf,
    file: File,
    boot_id: String,
    size: u64,
    compact_at: u64,
    /// Lines of attempts that are not forgotten, for rewriting.
    live: BTreeMap<Run, Live>,
    pending: String,
}

impl Records {
    /// Opens the file of a spool directory. Gives the attempts in it, and whether the machine has not rebooted since.
    pub(crate) fn open(
        spool: &Path,
        boot_id: &str,
    ) -> io::Result<(Records, BTreeMap<Run, Old>, bool)> {
        let path = spool.join("attempts");
        let text = match fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(e),
        };
        let same_boot = text
            .lines()
            .next()
            .and_then(|l| l.strip_prefix("B "))
            .is_some_and(|id| id == boot_id);
        let (old, live) = parse(&text);
        let mut records = Records {
            file: OpenOptions::new()
                .create(true)
                .append(true)
                .mode(0o600)
                .open(&path)?,
            path,
            boot_id: boot_id.to_owned(),
            size: 0,
            compact_at: 0,
            live,
            pending: String::new(),
        };
        records.rewrite()?;
        Ok((records, old, same_boot))
    }

    /// A job came: with a script to fork, or without.
    pub(crate) fn came(&mut self, run: Run, uid: u32, batch: bool, boot_ms: u64) {
        self.line(
            run,
            'L',
            format_args!("{uid} {} {boot_ms}", u8::from(batch)),
        );
    }

    /// What the agent wants back of it.
    pub(crate) fn grant(&mut self, run: Run, grant: &[u8]) {
        self.line(run, 'G', format_args!("{}", Hex(grant)));
    }

    /// Something more of that; nothing when it is empty.
    pub(crate) fn kept(&mut self, run: Run, key: u32, bytes: &[u8]) {
        self.line(run, 'K', format_args!("{key} {}", Hex(bytes)));
    }

    /// Programs run around it.
    pub(crate) fn around(&mut self, run: Run, around: &Around) {
        let bytes = minicbor::to_vec(around).expect("writing to memory cannot fail");
        self.line(run, 'A', format_args!("{}", Hex(&bytes)));
    }

    /// The one before it has ended well: its script is about to be forked.
    pub(crate) fn prolog_over(&mut self, run: Run, boot_ms: u64) {
        self.line(run, 'O', format_args!("{boot_ms}"));
    }

    /// Its script was forked.
    pub(crate) fn forked(&mut self, run: Run, pid: i32) {
        self.line(run, 'P', format_args!("{pid}"));
    }

    /// A step daemon was forked.
    pub(crate) fn step(&mut self, run: Run, step: StepNo, pid: i32) {
        self.line(run, 'S', format_args!("{} {pid}", step.0));
    }

    /// It has these directories outside the spool directory.
    pub(crate) fn step_dirs(&mut self, run: Run, step: StepNo, dirs: &[PathBuf]) {
        let dirs: Vec<&[u8]> = dirs.iter().map(|d| d.as_os_str().as_bytes()).collect();
        self.line(run, 'M', format_args!("{} {}", step.0, Hex(&dirs.join(&0))));
    }

    /// A step ended, as its daemon told.
    pub(crate) fn step_ended(&mut self, run: Run, step: StepNo, end: &StepEnd) {
        let bytes = minicbor::to_vec(end).expect("writing to memory cannot fail");
        self.line(run, 'Z', format_args!("{} {}", step.0, Hex(&bytes)));
    }

    /// A step is forgotten.
    pub(crate) fn step_gone(&mut self, run: Run, step: StepNo) {
        self.line(run, 'T', format_args!("{}", step.0));
    }

    /// Its script ended.
    pub(crate) fn ended(&mut self, run: Run, status: i32, usage: &Usage, end: Timestamp) {
        let u = usage;
        self.line(
            run,
            'E',
            format_args!(
                "{status} {} {} {} {} {} {} {}",
                u.user_us,
                u.system_us,
                u.max_rss_kib,
                u.pages,
                u.disk_read_bytes,
                u.disk_write_bytes,
                end.0
            ),
        );
    }

    /// Its script could not be started.
    pub(crate) fn failed(&mut self, run: Run, fault: Fault, error: &str) {
        let error = error.replace('\n', " ");
        self.line(run, 'F', format_args!("{} {error}", fault as u8));
    }

    /// It was told to end.
    pub(crate) fn ending(&mut self, run: Run) {
        self.line(run, 'X', format_args!(""));
    }

    /// Nothing of it is left.
    pub(crate) fn released(&mut self, run: Run) {
        self.line(run, 'R', format_args!(""));
    }

    /// The controller knows all of it.
    pub(crate) fn forgotten(&mut self, run: Run) {
        self.line(run, 'D', format_args!(""));
        self.live.remove(&run);
    }

    fn line(&mut self, run: Run, kind: char, rest: std::fmt::Arguments) {
        let at = self.pending.len();
        // Writing into a String cannot fail.
        let _ = write!(self.pending, "{kind} {} {} ", run.0.0, run.1.0);
        let rest_at = self.pending.len();
        let _ = writeln!(self.pending, "{rest}");
        let line = &self.pending[at..];
        let rest = line[rest_at - at..].trim_end_matches('\n');
        let mut letter = [0; 4];
        let live = self.live.entry(run).or_default();
        live.add(kind.encode_utf8(&mut letter), rest, line);
    }

    /// Writes what was said since the last call: once per wake-up, and before anything is forked.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.file.write_all(self.pending.as_bytes())?;
        self.size += self.pending.len() as u64;
        self.pending.clear();
        if self.size > self.compact_at {
            self.rewrite()?;
        }
        Ok(())
    }

    fn rewrite(&mut self) -> io::Result<()> {
        let mut text = format!("B {}\n", self.boot_id);
        for live in self.live.values() {
            text.push_str(&live.lines);
            let parts = live.kept.values().chain(live.steps.values());
            parts.for_each(|lines| text.push_str(lines));
        }
        let next = self.path.with_extension("next");
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&next)?;
        // One that was left by an earlier life keeps the mode it had.
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())?;
        fs::rename(&next, &self.path)?;
        self.file = OpenOptions::new().append(true).open(&self.path)?;
        self.size = text.len() as u64;
        self.compact_at = COMPACT_BYTES.max(4 * self.size);
        Ok(())
    }
}

fn parse(text: &str) -> (BTreeMap<Run, Old>, BTreeMap<Run, Live>) {
    let mut old: BTreeMap<Run, Old> = BTreeMap::new();
    let mut live: BTreeMap<Run, Live> = BTreeMap::new();
    // A line without its end was cut off by a crash and says nothing.
    for line in text.split_inclusive('\n').filter(|l| l.ends_with('\n')) {
        let mut words = line.trim_end_matches('\n').splitn(4, ' ');
        let (Some(kind), Some(job), Some(attempt)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (Ok(job), Ok(attempt)) = (job.parse(), attempt.parse()) else {
            continue;
        };
        let run = (JobId(job), Attempt(attempt));
        if kind == "D" {
            old.remove(&run);
            live.remove(&run);
            continue;
        }
        let entry = old.entry(run).or_default();
        let rest = words.next().unwrap_or("");
        apply(entry, kind, rest);
        live.entry(run).or_default().add(kind, rest, line);
    }
    (old, live)
}

fn apply(entry: &mut Old, kind: &str, rest: &str) {
    let numbers: Vec<i64> = rest
        .split(' ')
        .map_while(|word| word.parse().ok())
        .collect();
    let number = |i: usize| numbers.get(i).copied().unwrap_or(0);
    let unsigned = |i: usize| u64::try_from(number(i)).unwrap_or(0);
    let pid = |i: usize| i32::try_from(number(i)).ok().filter(|p| *p > 0);
    let step = StepNo(u32::try_from(number(0)).unwrap_or(0));
    match kind {
        "L" => {
            entry.uid = u32::try_from(number(0)).unwrap_or(u32::MAX);
            entry.batch = number(1) == 1;
            entry.boot_ms = unsigned(2);
        }
        "P" => entry.pid = pid(0),
        "S" => {
            if let Some(pid) = pid(1) {
                entry.steps.insert(step, pid);
            }
        }
        "M" => {
            let bytes = rest.split_once(' ').and_then(|(_, hex)| unhex(hex));
            let dirs = bytes.iter().flat_map(|b| b.split(|byte| *byte == 0));
            let dirs = dirs.map(|d| PathBuf::from(OsStr::from_bytes(d)));
            entry.step_dirs.insert(step, dirs.collect());
        }
        "Z" => {
            let bytes = rest.split_once(' ').and_then(|(_, hex)| unhex(hex));
            if let Some(end) = bytes.and_then(|b| minicbor::decode(&b).ok()) {
                entry.step_ends.insert(step, end);
            }
        }
        "T" => {
            entry.steps_gone.insert(step);
            entry.step_ends.remove(&step);
            entry.steps.remove(&step);
            entry.step_dirs.remove(&step);
        }
        "E" => {
            let usage = Usage {
                user_us: unsigned(1),
                system_us: unsigned(2),
                max_rss_kib: unsigned(3),
                pages: unsigned(4),
                disk_read_bytes: unsigned(5),
                disk_write_bytes: unsigned(6),
                ..Usage::default()
            }
            .of_task(0, 0);
            let status = i32::try_from(number(0)).unwrap_or(0);
            entry.ended = Some((status, usage, Timestamp(number(7))));
        }
        "F" => {
            let error = rest.split_once(' ').map_or("", |(_, e)| e).to_owned();
            let fault = match number(0) {
                0 => Fault::Job,
                2 => Fault::Prolog,
                _ => Fault::Node,
            };
            entry.failed = Some((fault, error));
        }
        "G" => entry.grant = unhex(rest).map(ByteVec::from),
        "K" => {
            let (key, hex) = rest.split_once(' ').unwrap_or((rest, ""));
            match (key.parse(), unhex(hex)) {
                (Ok(key), Some(bytes)) if !bytes.is_empty() => {
                    entry.kept.insert(key, bytes.into());
                }
                (Ok(key), _) => {
                    entry.kept.remove(&key);
                }
                (Err(_), _) => {}
            }
        }
        "A" => entry.around = unhex(rest).and_then(|b| minicbor::decode(&b).ok()),
        "O" => {
            entry.prolog_over = true;
            entry.boot_ms = unsigned(0);
        }
        "X" => entry.ending = true,
        "R" => entry.released = true,
        // A newer version's line: what it means does not matter for not launching twice.
        _ => {}
    }
}

/// Bytes as digits.
struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = String::with_capacity(2 * self.0.len());
        for byte in self.0 {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        f.write_str(&text)
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| {
        char::from(c)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(job: u64) -> Run {
        (JobId(job), Attempt(1))
    }

    fn end_of_a_step() -> StepEnd {
        StepEnd {
            end_time: Timestamp(5),
            exit: muster_core::job::ExitStatus { code: 3, signal: 0 },
            state: muster_core::job::JobState::Failed,
            usage: Usage::default(),
            cancelled_by: None,
        }
    }

    #[test]
    fn what_is_written_is_read_back_and_forgotten_attempts_are_not() {
        let dir = std::env::temp_dir().join(format!("muster-records-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        let usage = Usage {
            user_us: 5,
            system_us: 6,
            max_rss_kib: 7,
            ..Usage::default()
        };
        let dirs = [PathBuf::from("/tmp/a step's"), PathBuf::from("/dev/shm/x")];
        {
            let (mut records, old, _) = Records::open(&dir, "boot-1").unwrap();
            assert!(old.is_empty());
            records.came(run(1), 1000, true, 77);
            records.forked(run(1), 4242);
            records.step(run(1), StepNo(0), 4300);
            records.step_dirs(run(1), StepNo(0), &dirs);
            records.step_dirs(run(1), StepNo(5), &dirs);
            records.step_gone(run(1), StepNo(5));
            for step in [StepNo(6), StepNo(7)] {
                records.step(run(1), step, 4301);
                records.step_ended(run(1), step, &end_of_a_step());
            }
            records.step_gone(run(1), StepNo(6));
            records.came(run(2), 0, false, 78);
            records.came(run(3), 0, true, 79);
            records.failed(run(3), Fault::Prolog, "no such\nfile");
            records.ended(run(1), 256, &usage, Timestamp(99));
            records.forgotten(run(2));
            records.grant(run(1), &[0, 127, 255]);
            for bytes in [&[1, 2][..], &[3]] {
                records.kept(run(1), 7, bytes);
                records.kept(run(1), 8, bytes);
            }
            records.kept(run(1), 8, &[]);
            let around = Around {
                prolog: vec!["/bin/a b".to_owned()],
                ..Around::default()
            };
            records.around(run(1), &around);
            records.around(run(3), &around);
            records.prolog_over(run(3), 99);
            records.flush().unwrap();
        }
        // A torn last line.
        let path = dir.join("attempts");
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("R 1 1");
        fs::write(&path, text).unwrap();

        let (_, old, same_boot) = Records::open(&dir, "boot-1").unwrap();
        assert!(same_boot);
        assert_eq!(old.keys().copied().collect::<Vec<_>>(), [run(1), run(3)]);
        let first = &old[&run(1)];
        assert_eq!(
            (first.uid, first.batch, first.pid, first.boot_ms),
            (1000, true, Some(4242), 77)
        );
        let (status, used, end) = first.ended.clone().unwrap();
        assert_eq!((status, used.user_us, end), (256, 5, Timestamp(99)));
        assert_eq!(first.steps[&StepNo(0)], 4300);
        assert_eq!(first.steps.keys().map(|s| s.0).collect::<Vec<_>>(), [0, 7]);
        let gone: Vec<u32> = first.steps_gone.iter().map(|s| s.0).collect();
        assert_eq!(gone, [5, 6]);
        assert_eq!(first.step_ends.len(), 1);
        assert_eq!(first.step_ends[&StepNo(7)], end_of_a_step());
        assert_eq!(first.step_dirs.len(), 1);
        assert_eq!(first.step_dirs[&StepNo(0)], dirs);
        assert!(!first.released && !first.prolog_over);
        assert_eq!(first.grant.as_ref().unwrap()[..], [0, 127, 255]);
        assert_eq!(first.kept.len(), 1);
        assert_eq!(first.kept[&7][..], [3]);
        assert_eq!(first.around.as_ref().unwrap().prolog, ["/bin/a b"]);
        assert!(old[&run(3)].prolog_over && old[&run(3)].boot_ms == 99);
        assert_eq!(
            old[&run(3)].failed,
            Some((Fault::Prolog, "no such file".to_owned()))
        );
        let (_, old, same_boot) = Records::open(&dir, "boot-2").unwrap();
        assert!(!same_boot && old.len() == 2);
        fs::remove_dir_all(&dir).unwrap();
    }
}
