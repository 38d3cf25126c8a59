//! The record file, which makes an attempt run at most once: the launcher writes a line before it starts anything of
//! an attempt, and further lines about its progress. The file is not synced, because it must outlive the launcher,
//! not the machine: after a reboot the boot id in its first line differs, and none of the recorded processes exists.
//! It also holds the entries of the agent, including keys of jobs, so only its owner can read it.
//!
//! Thousands of steps may start and end in a second, each with a few lines. Therefore these lines are formatted by
//! hand, and the entries of steps are not text.

use super::end::{EncodedEnd, ScriptEnd};
use crate::PrologEpilog;
use crate::messages::LauncherEvent;
use minicbor::bytes::ByteVec;
use muster_model::ids::{Attempt, JobAttempt, JobId, StepNo};
use muster_model::job::ResourceUsage;
use muster_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::rc::Rc;

/// The file grows to this size before it is rewritten.
const COMPACT_BYTES: u64 = 1 << 20;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Party at fault if a script was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The job's.
    Job = 0,
    /// The node's.
    Node = 1,
    /// The prolog's.
    Prolog = 2,
    /// Nobody's: the launcher lacked what users can use up.
    Lack = 3,
}

impl Fault {
    /// The event for the agent.
    pub(super) fn event(self, attempt: JobAttempt, error: String) -> LauncherEvent {
        LauncherEvent::LaunchFailed {
            attempt,
            error,
            node_fault: self != Fault::Job,
            prolog: self == Fault::Prolog,
            lack: self == Fault::Lack,
        }
    }
}

/// Why a job was not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchFailure {
    /// The side at fault.
    pub fault: Fault,
    /// The error.
    pub error: String,
}

/// An attempt that an earlier launcher wrote down.
#[derive(Clone, Debug, Default)]
pub struct RecordedAttempt {
    /// Owner.
    pub uid: u32,
    /// It has a batch script here.
    pub batch: bool,
    /// The script's process, if the fork was written down.
    pub pid: Option<i32>,
    /// When it was about to be forked, milliseconds since boot.
    pub boot_ms: u64,
    /// End of the script.
    pub ended: Option<ScriptEnd>,
    /// Why it was not started.
    pub failed: Option<LaunchFailure>,
    /// The job was ordered to end.
    pub ending: bool,
    /// Nothing was left.
    pub released: bool,
    /// Step daemons.
    pub steps: BTreeMap<StepNo, i32>,
    /// When their daemons had begun, milliseconds since boot: a process that has started later has only got the number.
    pub steps_at_ms: BTreeMap<StepNo, u64>,
    /// Ends of steps, as far as they reported them.
    pub step_ends: BTreeMap<StepNo, EncodedEnd>,
    /// Steps that were forgotten, as far as the file has not been rewritten since.
    pub steps_gone: BTreeSet<StepNo>,
    /// Directories that steps have outside the spool directory.
    pub step_dirs: BTreeMap<StepNo, Vec<PathBuf>>,
    /// The grant of the job.
    pub grant: Option<ByteVec>,
    /// Programs around it.
    pub prolog_epilog: Option<Box<PrologEpilog>>,
    /// The one before it has ended well.
    pub prolog_over: bool,
}

/// The records of an attempt that is not forgotten.
#[derive(Debug, Default)]
struct LiveRecord {
    /// Lines about the attempt itself.
    lines: Vec<u8>,
    /// Entries of the agent.
    kept: BTreeMap<u32, ByteVec>,
    kept_bytes: usize,
    /// Steps that are not forgotten.
    steps: BTreeMap<StepNo, LiveStep>,
}

/// The records of a step.
#[derive(Debug, Default)]
struct LiveStep {
    /// The process of its daemon.
    pid: Option<i32>,
    /// When that was there, milliseconds since boot.
    at_ms: Option<u64>,
    /// Directories, each but the last with a zero byte after it.
    dirs: Option<Vec<u8>>,
    end: Option<EncodedEnd>,
}

impl LiveRecord {
    fn keep(&mut self, key: u32, bytes: ByteVec) {
        let more = bytes.len();
        let had = match more {
            0 => self.kept.remove(&key),
            _ => self.kept.insert(key, bytes),
        };
        self.kept_bytes = self.kept_bytes + more - had.map_or(0, |had| had.len());
    }

    fn step(&mut self, step: StepNo) -> &mut LiveStep {
        self.steps.entry(step).or_default()
    }

    /// Takes in a line of the file.
    fn add(&mut self, kind: &str, rest: &str, line: &str) {
        if !matches!(kind, "K" | "S" | "M" | "Z" | "T") {
            return self.lines.extend_from_slice(line.as_bytes());
        }
        let (key, value) = rest.split_once(' ').unwrap_or((rest, ""));
        let Ok(key) = key.parse() else {
            return;
        };
        let step = StepNo(key);
        match kind {
            "K" => self.keep(key, unhex(value).unwrap_or_default().into()),
            "S" => {
                // Earlier versions do not record the time.
                let (pid, at_ms) = value.split_once(' ').unwrap_or((value, ""));
                let live = self.step(step);
                live.pid = pid.parse().ok().filter(|pid| *pid > 0);
                live.at_ms = at_ms.parse().ok();
            }
            "M" => self.step(step).dirs = unhex(value),
            "Z" => self.step(step).end = unhex(value).and_then(|b| EncodedEnd::checked(&b)),
            _ => {
                self.steps.remove(&step);
            }
        }
    }

    /// Adds the step's records to the input of a new launcher.
    fn add_to(&self, old: &mut RecordedAttempt) {
        for (&step, live) in &self.steps {
            if let Some(pid) = live.pid {
                old.steps.insert(step, pid);
                old.steps_at_ms
                    .extend(live.at_ms.map(|at_ms| (step, at_ms)));
            }
            if let Some(dirs) = &live.dirs {
                let dirs = dirs.split(|byte| *byte == 0);
                let dirs = dirs.map(|d| PathBuf::from(OsStr::from_bytes(d)));
                old.step_dirs.insert(step, dirs.collect());
            }
            if let Some(end) = &live.end {
                old.step_ends.insert(step, end.clone());
            }
        }
    }

    /// Writes all lines of the attempt.
    fn write(&self, attempt: JobAttempt, text: &mut Lines) {
        text.0.extend_from_slice(&self.lines);
        for (key, bytes) in &self.kept {
            text.kept(attempt, *key, bytes);
        }
        for (step, live) in &self.steps {
            if let Some(dirs) = &live.dirs {
                text.step_dirs(attempt, *step, dirs);
            }
            if let Some(pid) = live.pid {
                text.step(attempt, *step, pid, live.at_ms);
            }
            if let Some(end) = &live.end {
                text.step_ended(attempt, *step, end);
            }
        }
    }
}

/// Lines for the file.
#[derive(Debug, Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn kept(&mut self, attempt: JobAttempt, key: u32, bytes: &[u8]) {
        self.numbered(attempt, b'K', key, bytes);
    }

    fn step(&mut self, attempt: JobAttempt, step: StepNo, pid: i32, at_ms: Option<u64>) {
        self.begin(attempt, b'S');
        let numbers = [step.0, pid.unsigned_abs()].map(u64::from);
        for number in numbers.into_iter().chain(at_ms) {
            self.number(number);
        }
        self.0.push(b'\n');
    }

    fn step_dirs(&mut self, attempt: JobAttempt, step: StepNo, dirs: &[u8]) {
        self.numbered(attempt, b'M', step.0, dirs);
    }

    fn step_ended(&mut self, attempt: JobAttempt, step: StepNo, end: &EncodedEnd) {
        self.numbered(attempt, b'Z', step.0, end.bytes());
    }

    fn step_gone(&mut self, attempt: JobAttempt, step: StepNo) {
        self.begin(attempt, b'T');
        self.number(step.0.into());
        self.0.push(b'\n');
    }

    /// A line about a numbered object.
    fn numbered(&mut self, attempt: JobAttempt, kind: u8, number: u32, bytes: &[u8]) {
        self.begin(attempt, kind);
        self.number(number.into());
        self.0.push(b' ');
        self.bytes(bytes);
        self.0.push(b'\n');
    }

    fn begin(&mut self, attempt: JobAttempt, kind: u8) {
        self.0.push(kind);
        self.number(attempt.job.0);
        self.number(attempt.attempt.0.into());
    }

    /// Another word.
    fn number(&mut self, mut number: u64) {
        // Digits of the largest number, and the separator.
        let mut word = [b' '; 21];
        let mut at = word.len();
        loop {
            at -= 1;
            word[at] = DIGITS[(number % 10) as usize];
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.0.extend_from_slice(&word[at - 1..]);
    }

    /// Each as two digits.
    fn bytes(&mut self, bytes: &[u8]) {
        let at = self.0.len();
        self.0.resize(at + 2 * bytes.len(), b'0');
        for (pair, byte) in self.0[at..].chunks_exact_mut(2).zip(bytes) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
    }
}

/// The contents of the file, and the lines to append.
#[derive(Debug)]
pub struct LauncherRecords {
    boot_id: String,
    size: u64,
    compact_at: u64,
    /// The records of attempts that are not forgotten, from which the file is rewritten.
    live: BTreeMap<JobAttempt, LiveRecord>,
    pending: Lines,
    /// Lines that are being written.
    writing: Option<Rc<Vec<u8>>>,
}

impl LauncherRecords {
    /// Reads the text of a file. Gives the attempts in it, and whether the machine has not rebooted since. The file has to be
    /// replaced by [`LauncherRecords::rewritten`] before anything is appended to it.
    pub fn read(
        text: &str,
        boot_id: &str,
    ) -> (LauncherRecords, BTreeMap<JobAttempt, RecordedAttempt>, bool) {
        let same_boot = text
            .lines()
            .next()
            .and_then(|l| l.strip_prefix("B "))
            .is_some_and(|id| id == boot_id);
        let (old, mut live) = parse(text);
        if !same_boot {
            // No step outlives a reboot.
            for live in live.values_mut() {
                live.kept.clear();
                live.kept_bytes = 0;
            }
        }
        let records = LauncherRecords {
            boot_id: boot_id.to_owned(),
            size: 0,
            compact_at: 0,
            live,
            pending: Lines::default(),
            writing: None,
        };
        (records, old, same_boot)
    }

    /// A job has arrived, with or without a script to fork.
    pub(super) fn came(&mut self, attempt: JobAttempt, uid: u32, batch: bool, boot_ms: u64) {
        self.line(
            attempt,
            b'L',
            format_args!("{uid} {} {boot_ms}", u8::from(batch)),
        );
    }

    /// The grant, for the agent.
    pub(super) fn grant(&mut self, attempt: JobAttempt, grant: &[u8]) {
        self.line_of_bytes(attempt, b'G', grant);
    }

    /// A further entry for the agent; an empty one removes it.
    pub(super) fn keep(&mut self, attempt: JobAttempt, key: u32, bytes: ByteVec) {
        self.pending.kept(attempt, key, &bytes);
        self.live.entry(attempt).or_default().keep(key, bytes);
    }

    /// All that is kept like that.
    pub(super) fn kept(&self, attempt: JobAttempt) -> impl Iterator<Item = (u32, &ByteVec)> {
        let live = self.live.get(&attempt);
        let kept = live.into_iter().flat_map(|live| &live.kept);
        kept.map(|(key, bytes)| (*key, bytes))
    }

    /// Bytes of these entries.
    pub(super) fn kept_bytes(&self, attempt: JobAttempt) -> usize {
        self.live.get(&attempt).map_or(0, |live| live.kept_bytes)
    }

    /// Bytes kept of all attempts.
    pub(super) fn all_kept_bytes(&self) -> usize {
        self.live.values().map(|live| live.kept_bytes).sum()
    }

    /// Bytes kept under this number.
    pub(super) fn kept_length(&self, attempt: JobAttempt, key: u32) -> usize {
        let kept = self.live.get(&attempt).and_then(|live| live.kept.get(&key));
        kept.map_or(0, |bytes| bytes.len())
    }

    /// Whether something is kept under this number.
    pub(super) fn keeps(&self, attempt: JobAttempt, key: u32) -> bool {
        let live = self.live.get(&attempt);
        live.is_some_and(|live| live.kept.contains_key(&key))
    }

    /// Programs run around it.
    pub(super) fn prolog_epilog(&mut self, attempt: JobAttempt, programs: &PrologEpilog) {
        let bytes = minicbor::to_vec(programs).expect("writing to memory cannot fail");
        self.line_of_bytes(attempt, b'A', &bytes);
    }

    /// The one before it has ended well: its script is about to be forked.
    pub(super) fn prolog_over(&mut self, attempt: JobAttempt, boot_ms: u64) {
        self.line(attempt, b'O', format_args!("{boot_ms}"));
    }

    /// The script was forked.
    pub(super) fn forked(&mut self, attempt: JobAttempt, pid: i32) {
        self.line(attempt, b'P', format_args!("{pid}"));
    }

    /// A step daemon was forked.
    pub(super) fn step(&mut self, attempt: JobAttempt, step: StepNo, pid: i32, at_ms: u64) {
        self.pending.step(attempt, step, pid, Some(at_ms));
        let live = self.live_step(attempt, step);
        (live.pid, live.at_ms) = (Some(pid), Some(at_ms));
    }

    /// The step has these directories outside the spool directory.
    pub(super) fn step_dirs(&mut self, attempt: JobAttempt, step: StepNo, dirs: &[PathBuf]) {
        let dirs: Vec<&[u8]> = dirs.iter().map(|d| d.as_os_str().as_bytes()).collect();
        let dirs = dirs.join(&0);
        self.pending.step_dirs(attempt, step, &dirs);
        self.live_step(attempt, step).dirs = Some(dirs);
    }

    /// A step ended, as its daemon reported.
    pub(super) fn step_ended(&mut self, attempt: JobAttempt, step: StepNo, end: EncodedEnd) {
        self.pending.step_ended(attempt, step, &end);
        self.live_step(attempt, step).end = Some(end);
    }

    /// A step is forgotten.
    pub(super) fn step_gone(&mut self, attempt: JobAttempt, step: StepNo) {
        self.pending.step_gone(attempt, step);
        if let Some(live) = self.live.get_mut(&attempt) {
            live.steps.remove(&step);
        }
    }

    fn live_step(&mut self, attempt: JobAttempt, step: StepNo) -> &mut LiveStep {
        self.live.entry(attempt).or_default().step(step)
    }

    /// The script has ended.
    pub(super) fn ended(
        &mut self,
        attempt: JobAttempt,
        ScriptEnd {
            status,
            usage: u,
            end,
            oom_kills,
            ..
        }: &ScriptEnd,
    ) {
        self.line(
            attempt,
            b'E',
            format_args!(
                "{status} {} {} {} {} {} {} {} {oom_kills}",
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

    /// The script could not be started.
    pub(super) fn failed(&mut self, attempt: JobAttempt, fault: Fault, error: &str) {
        let error = error.replace('\n', " ");
        self.line(attempt, b'F', format_args!("{} {error}", fault as u8));
    }

    /// The attempt was ordered to end.
    pub(super) fn ending(&mut self, attempt: JobAttempt) {
        self.line(attempt, b'X', format_args!(""));
    }

    /// No process of the job is left.
    pub(super) fn released(&mut self, attempt: JobAttempt) {
        self.line(attempt, b'R', format_args!(""));
    }

    /// The controller has recorded the attempt.
    pub(super) fn forgotten(&mut self, attempt: JobAttempt) {
        self.line(attempt, b'D', format_args!(""));
        self.live.remove(&attempt);
    }

    /// A line about the attempt itself.
    fn line(&mut self, attempt: JobAttempt, kind: u8, rest: std::fmt::Arguments) {
        let at = self.pending.0.len();
        self.pending.begin(attempt, kind);
        writeln!(self.pending.0, " {rest}").expect("writing to memory cannot fail");
        self.keep_pending(attempt, at);
    }

    fn line_of_bytes(&mut self, attempt: JobAttempt, kind: u8, bytes: &[u8]) {
        let at = self.pending.0.len();
        self.pending.begin(attempt, kind);
        self.pending.0.push(b' ');
        self.pending.bytes(bytes);
        self.pending.0.push(b'\n');
        self.keep_pending(attempt, at);
    }

    /// Keeps the pending lines from `at` on, because they belong to records that stay.
    fn keep_pending(&mut self, attempt: JobAttempt, at: usize) {
        let lines = &mut self.live.entry(attempt).or_default().lines;
        lines.extend_from_slice(&self.pending.0[at..]);
    }

    /// Lines that wait to be written, or are.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.0.is_empty() || self.writing.is_some()
    }

    /// The lines added since the last call, to be appended; none while a write is under way.
    pub(super) fn take_pending(&mut self) -> Option<Rc<Vec<u8>>> {
        if self.pending.0.is_empty() || self.writing.is_some() {
            return None;
        }
        let lines = Rc::new(std::mem::take(&mut self.pending.0));
        self.writing = Some(Rc::clone(&lines));
        Some(lines)
    }

    /// The append has succeeded; or it has failed, and is repeated with the lines added since. Returns whether the file
    /// has grown to the size at which it is rewritten.
    pub(super) fn appended(&mut self, is_written: bool) -> bool {
        let Some(lines) = self.writing.take() else {
            return false;
        };
        if is_written {
            self.size += lines.len() as u64;
            return self.size > self.compact_at;
        }
        let mut all = Rc::unwrap_or_clone(lines);
        all.append(&mut self.pending.0);
        self.pending.0 = all;
        false
    }

    /// The whole file, as it is to be from now on.
    pub fn rewritten(&mut self) -> Vec<u8> {
        let mut text = Lines(format!("B {}\n", self.boot_id).into());
        for (attempt, live) in &self.live {
            live.write(*attempt, &mut text);
        }
        self.size = text.0.len() as u64;
        self.compact_at = COMPACT_BYTES.max(4 * self.size);
        text.0
    }
}

fn parse(
    text: &str,
) -> (
    BTreeMap<JobAttempt, RecordedAttempt>,
    BTreeMap<JobAttempt, LiveRecord>,
) {
    let mut old: BTreeMap<JobAttempt, RecordedAttempt> = BTreeMap::new();
    let mut live: BTreeMap<JobAttempt, LiveRecord> = BTreeMap::new();
    // A crash has cut off a line without an end, so the line is invalid.
    for line in text.split_inclusive('\n').filter(|l| l.ends_with('\n')) {
        let mut words = line.trim_end_matches('\n').splitn(4, ' ');
        let (Some(kind), Some(job), Some(attempt)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (Ok(job), Ok(attempt)) = (job.parse(), attempt.parse()) else {
            continue;
        };
        let attempt = JobAttempt::new(JobId(job), Attempt(attempt));
        if kind == "D" {
            old.remove(&attempt);
            live.remove(&attempt);
            continue;
        }
        let entry = old.entry(attempt).or_default();
        let rest = words.next().unwrap_or("");
        apply(entry, kind, rest);
        live.entry(attempt).or_default().add(kind, rest, line);
    }
    for (attempt, live) in &live {
        live.add_to(old.entry(*attempt).or_default());
    }
    (old, live)
}

fn apply(entry: &mut RecordedAttempt, kind: &str, rest: &str) {
    let numbers: Vec<i64> = rest
        .split(' ')
        .map_while(|word| word.parse().ok())
        .collect();
    let number = |i: usize| numbers.get(i).copied().unwrap_or(0);
    let unsigned = |i: usize| u64::try_from(number(i)).unwrap_or(0);
    let pid = |i: usize| i32::try_from(number(i)).ok().filter(|p| *p > 0);
    match kind {
        "L" => {
            entry.uid = u32::try_from(number(0)).unwrap_or(u32::MAX);
            entry.batch = number(1) == 1;
            entry.boot_ms = unsigned(2);
        }
        "P" => entry.pid = pid(0),
        "T" => {
            entry
                .steps_gone
                .insert(StepNo(u32::try_from(number(0)).unwrap_or(0)));
        }
        "E" => {
            let usage = ResourceUsage {
                user_us: unsigned(1),
                system_us: unsigned(2),
                max_rss_kib: unsigned(3),
                pages: unsigned(4),
                disk_read_bytes: unsigned(5),
                disk_write_bytes: unsigned(6),
                ..ResourceUsage::default()
            }
            .of_task(0, 0);
            let status = i32::try_from(number(0)).unwrap_or(0);
            // Older launchers have not written the last one.
            entry.ended = Some(ScriptEnd {
                status,
                usage,
                end: Timestamp(number(7)),
                oom_kills: unsigned(8),
                last_lines: None,
            });
        }
        "F" => {
            let error = rest.split_once(' ').map_or("", |(_, e)| e).to_owned();
            let fault = match number(0) {
                0 => Fault::Job,
                2 => Fault::Prolog,
                3 => Fault::Lack,
                _ => Fault::Node,
            };
            entry.failed = Some(LaunchFailure { fault, error });
        }
        "G" => entry.grant = unhex(rest).map(ByteVec::from),
        "A" => entry.prolog_epilog = unhex(rest).and_then(|b| minicbor::decode(&b).ok()),
        "O" => {
            entry.prolog_over = true;
            entry.boot_ms = unsigned(0);
        }
        "X" => entry.ending = true,
        "R" => entry.released = true,
        // [`LiveRecord::add`] reads lines about steps and entries. Lines of newer versions are skipped: this never
        // repeats a launch.
        _ => {}
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

    fn attempt_of(job: u64) -> JobAttempt {
        JobAttempt::new(JobId(job), Attempt(1))
    }

    fn end_of_a_step() -> muster_model::job::StepEnd {
        muster_model::job::StepEnd {
            exit: muster_model::job::ExitStatus { code: 3, signal: 0 },
            ..muster_model::job::StepEnd::never_ran(Timestamp(5))
        }
    }

    #[test]
    fn lines_that_could_not_be_written_come_with_the_next() {
        let (mut records, ..) = LauncherRecords::read("", "boot-1");
        records.rewritten();
        records.came(attempt_of(1), 1000, true, 77);
        let first = records.take_pending().unwrap();
        assert!(records.has_pending() && records.take_pending().is_none());
        records.came(attempt_of(2), 1000, true, 78);
        assert!(!records.appended(false));
        let all = records.take_pending().unwrap();
        assert!(all.starts_with(&first) && all.len() > first.len());
        assert!(!records.appended(true));
        assert!(!records.has_pending());
    }

    fn dirs_of_a_step() -> [PathBuf; 2] {
        [PathBuf::from("/tmp/a step's"), PathBuf::from("/dev/shm/x")]
    }

    /// A file with a line of each kind.
    fn example() -> String {
        let usage = ResourceUsage {
            user_us: 5,
            system_us: 6,
            max_rss_kib: 7,
            ..ResourceUsage::default()
        };
        let dirs = dirs_of_a_step();
        let (mut records, old, _) = LauncherRecords::read("", "boot-1");
        assert!(old.is_empty());
        let mut text = records.rewritten();
        records.came(attempt_of(1), 1000, true, 77);
        records.forked(attempt_of(1), 4242);
        records.step(attempt_of(1), StepNo(0), 4300, 77_000);
        records.step_dirs(attempt_of(1), StepNo(0), &dirs);
        records.step_dirs(attempt_of(1), StepNo(5), &dirs);
        records.step_gone(attempt_of(1), StepNo(5));
        for step in [StepNo(6), StepNo(7)] {
            records.step(attempt_of(1), step, 4301, 77_000);
            records.step_ended(attempt_of(1), step, EncodedEnd::of(&end_of_a_step()));
        }
        records.step_gone(attempt_of(1), StepNo(6));
        records.came(attempt_of(2), 0, false, 78);
        records.came(attempt_of(3), 0, true, 79);
        records.failed(attempt_of(3), Fault::Prolog, "no such\nfile");
        let end = ScriptEnd {
            status: 256,
            usage,
            end: Timestamp(99),
            oom_kills: 2,
            last_lines: None,
        };
        records.ended(attempt_of(1), &end);
        records.forgotten(attempt_of(2));
        records.grant(attempt_of(1), &[0, 127, 255]);
        for bytes in [&[1, 2][..], &[3]] {
            records.keep(attempt_of(1), 7, bytes.to_vec().into());
            records.keep(attempt_of(1), 8, bytes.to_vec().into());
        }
        records.keep(attempt_of(1), 8, Vec::new().into());
        let programs = PrologEpilog {
            prolog: vec!["/bin/a b".to_owned()],
            ..PrologEpilog::default()
        };
        records.prolog_epilog(attempt_of(1), &programs);
        records.prolog_epilog(attempt_of(3), &programs);
        records.prolog_over(attempt_of(3), 99);
        records.came(attempt_of(4), 0, true, 80);
        records.ending(attempt_of(4));
        records.released(attempt_of(4));
        text.extend_from_slice(&records.take_pending().unwrap());
        // A torn last line.
        String::from_utf8(text).unwrap() + "R 1 1"
    }

    fn assert_is_read(text: &str) {
        let (mut records, old, same_boot) = LauncherRecords::read(text, "boot-1");
        assert!(same_boot);
        assert_eq!(
            old.keys().copied().collect::<Vec<_>>(),
            [1, 3, 4].map(attempt_of)
        );
        let first = &old[&attempt_of(1)];
        assert_eq!(
            (first.uid, first.batch, first.pid, first.boot_ms),
            (1000, true, Some(4242), 77)
        );
        let ended = first.ended.clone().unwrap();
        assert_eq!((ended.status, ended.usage.user_us), (256, 5));
        assert_eq!((ended.end, ended.oom_kills), (Timestamp(99), 2));
        assert_eq!(first.steps[&StepNo(0)], 4300);
        assert_eq!(first.steps.keys().map(|s| s.0).collect::<Vec<_>>(), [0, 7]);
        let gone: Vec<u32> = first.steps_gone.iter().map(|s| s.0).collect();
        assert_eq!(gone, [5, 6]);
        assert_eq!(first.step_ends.len(), 1);
        assert_eq!(
            first.step_ends[&StepNo(7)].decoded(Timestamp(1)),
            end_of_a_step()
        );
        assert_eq!(first.step_dirs.len(), 1);
        assert_eq!(first.step_dirs[&StepNo(0)], dirs_of_a_step());
        assert!(!first.released && !first.prolog_over);
        assert_eq!(first.grant.as_ref().unwrap()[..], [0, 127, 255]);
        let kept: Vec<(u32, &ByteVec)> = records.kept(attempt_of(1)).collect();
        assert_eq!(kept, [(7, &vec![3].into())]);
        assert_eq!(first.prolog_epilog.as_ref().unwrap().prolog, ["/bin/a b"]);
        assert!(old[&attempt_of(4)].ending && old[&attempt_of(4)].released);
        assert!(old[&attempt_of(3)].prolog_over && old[&attempt_of(3)].boot_ms == 99);
        assert_eq!(
            old[&attempt_of(3)].failed,
            Some(LaunchFailure {
                fault: Fault::Prolog,
                error: "no such file".to_owned(),
            })
        );
        let text = String::from_utf8(records.rewritten()).unwrap();
        let (records, old, same_boot) = LauncherRecords::read(&text, "boot-2");
        assert!(!same_boot && old.len() == 3);
        assert!(!records.keeps(attempt_of(1), 7));
    }

    #[test]
    fn what_is_written_is_read_back_and_forgotten_attempts_are_not() {
        assert_is_read(&example());
        let (_, old, _) = LauncherRecords::read(&example(), "boot-1");
        assert_eq!(old[&attempt_of(1)].steps_at_ms[&StepNo(0)], 77_000);
    }

    /// A launcher reads what those before it wrote: lines may be added to the fixture, and none change.
    #[test]
    fn a_file_of_an_earlier_version_is_read() {
        assert_is_read(include_str!("../../tests/fixtures/record_file.txt"));
    }
}
