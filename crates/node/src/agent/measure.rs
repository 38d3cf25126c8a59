//! What the processes of steps use now, from /proc. A task's processes are its first and all below that; their
//! greatest memory counts, each process for itself.

use crate::shim::wire::Process;
use crate::sys;
use muster_core::ids::StepNo;
use muster_core::job::Usage;
use muster_proto::node::MemoryCount;
use std::collections::{BTreeMap, HashMap};
use std::fs;

/// Stack of a thread that measures.
const STACK_BYTES: usize = 256 << 10;

/// What each step uses on this node; of memory, the most that each of its processes had.
pub(super) fn steps(list: &[Process], node: &str) -> Vec<(StepNo, Usage)> {
    let tasks = by_task(list, |_, reading| reading.peak_rss_kib);
    sum_up(&tasks, node)
}

/// What each task uses now: usage with its totals only, and its virtual memory, KiB.
pub(super) type Tasks = BTreeMap<(StepNo, u32), (Usage, u64)>;

/// What each task uses at this moment.
pub(super) fn tasks_now(list: &[Process], count: MemoryCount) -> Tasks {
    by_task(list, |pid, reading| match count {
        MemoryCount::Resident => reading.rss_kib,
        MemoryCount::Private => reading.rss_kib.saturating_sub(reading.shared_kib),
        MemoryCount::Proportional => proportional_kib(pid).unwrap_or(reading.rss_kib),
    })
}

/// The steps that tasks are of.
pub(super) fn sum_up(tasks: &Tasks, node: &str) -> Vec<(StepNo, Usage)> {
    let mut steps: BTreeMap<StepNo, Usage> = BTreeMap::new();
    for ((step, task), (usage, vsize_kib)) in tasks {
        let mut usage = usage.clone().of_task(*task, *vsize_kib);
        usage.set_node(node);
        steps.entry(*step).or_default().add(&usage);
    }
    steps.into_iter().collect()
}

fn by_task(list: &[Process], memory_kib: impl Fn(u32, &Reading) -> u64) -> Tasks {
    let read: HashMap<u32, Reading> = list
        .iter()
        .filter_map(|(pid, ..)| Some((*pid, Reading::of(*pid)?)))
        .collect();
    let numbers: HashMap<u32, u32> = list
        .iter()
        .filter_map(|(pid, _, task)| Some((*pid, (*task)?.1)))
        .collect();
    let mut tasks = Tasks::new();
    for (pid, step, _) in list {
        let Some(reading) = read.get(pid) else {
            continue;
        };
        let task = task_of(*pid, &numbers, &read).unwrap_or(0);
        let (usage, vsize_kib) = tasks.entry((*step, task)).or_default();
        usage.user_us += reading.user_us;
        usage.system_us += reading.system_us;
        usage.max_rss_kib += memory_kib(*pid, reading);
        usage.pages += reading.pages;
        usage.disk_read_bytes += reading.read_bytes;
        usage.disk_write_bytes += reading.write_bytes;
        *vsize_kib += reading.vsize_kib;
    }
    tasks
}

/// The task that a process is, or is below of.
fn task_of(pid: u32, tasks: &HashMap<u32, u32>, read: &HashMap<u32, Reading>) -> Option<u32> {
    let mut at = pid;
    // No tree is deeper than it has processes.
    for _ in 0..=read.len() {
        if let Some(task) = tasks.get(&at) {
            return Some(*task);
        }
        at = read.get(&at)?.parent;
    }
    None
}

/// What /proc says of a process.
#[derive(Debug, Default)]
struct Reading {
    parent: u32,
    user_us: u64,
    system_us: u64,
    pages: u64,
    peak_rss_kib: u64,
    rss_kib: u64,
    shared_kib: u64,
    vsize_kib: u64,
    read_bytes: u64,
    write_bytes: u64,
}

impl Reading {
    /// Nothing if the process is gone.
    fn of(pid: u32) -> Option<Reading> {
        let stat = text_of(pid, "stat")?;
        // The name, field 2, may hold anything but ends at the last parenthesis.
        let after_name = stat.get(stat.rfind(')')? + 1..)?;
        let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3).and_then(|f| f.parse::<u64>().ok());
        let us = |field: usize| number(field).unwrap_or(0) * 1_000_000 / sys::ticks_per_s();
        // Where another user's files may not be read, what they say counts as nothing.
        let status = text_of(pid, "status").unwrap_or_default();
        let io = text_of(pid, "io").unwrap_or_default();
        Some(Reading {
            parent: u32::try_from(number(4)?).ok()?,
            // With the children that it has waited for.
            user_us: us(14) + us(16),
            system_us: us(15) + us(17),
            pages: number(12).unwrap_or(0) + number(13).unwrap_or(0),
            peak_rss_kib: value(&status, "VmHWM:"),
            rss_kib: value(&status, "VmRSS:"),
            shared_kib: value(&status, "RssFile:") + value(&status, "RssShmem:"),
            vsize_kib: value(&status, "VmPeak:"),
            read_bytes: value(&io, "rchar:"),
            write_bytes: value(&io, "wchar:"),
        })
    }
}

/// A file of a process. The name of the process is in some, and that may be any bytes.
fn text_of(pid: u32, file: &str) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Measures on a thread of its own: files of a process may be slow to read while it changes its memory, and there may be
/// very many processes. Whether the thread was started.
pub(super) fn on_a_thread(work: impl FnOnce() + Send + 'static) -> bool {
    let thread = std::thread::Builder::new().name("measure".to_owned());
    match thread.stack_size(STACK_BYTES).spawn(work) {
        Ok(_) => true,
        Err(e) => {
            log::error!("no thread to measure with: {e}");
            false
        }
    }
}

/// Memory of a process with its part of what it shares, KiB.
fn proportional_kib(pid: u32) -> Option<u64> {
    let rollup = text_of(pid, "smaps_rollup")?;
    Some(value(&rollup, "Pss:"))
}

/// The number behind a name in a file of lines.
fn value(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let word = line.and_then(|rest| rest.split_ascii_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        let pid = std::process::id();
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let list = [
            (pid, StepNo(3), Some((0, 5))),
            (child.id(), StepNo(3), None),
        ];
        let steps = steps(&list, "n7");
        let alone = super::steps(&list[1..], "n7");
        child.kill().unwrap();
        child.wait().unwrap();
        let [(StepNo(3), usage)] = &steps[..] else {
            panic!("{steps:?}");
        };
        assert_eq!((usage.tasks, usage.max_rss_task), (1, 5));
        assert_eq!(usage.max_rss_node, "n7");
        assert!(usage.max_rss_kib > alone[0].1.max_rss_kib);
        let peaks = usage.peaks.as_ref().unwrap();
        assert!(peaks.vsize_kib.amount >= usage.max_rss_kib);
        assert_eq!(
            (peaks.vsize_kib.task, peaks.vsize_kib.node.as_str()),
            (5, "n7")
        );
        assert!(super::steps(&[(u32::MAX, StepNo(0), None)], "n7").is_empty());
        let own = [(pid, StepNo(3), Some((0, 5)))];
        let kib = |count| tasks_now(&own, count)[&(StepNo(3), 5)].0.max_rss_kib;
        let resident = kib(MemoryCount::Resident);
        assert!(kib(MemoryCount::Private) < resident && kib(MemoryCount::Proportional) > 0);
    }

    /// A process that calls itself by bytes that are no text has its memory counted like others.
    #[test]
    fn a_name_hides_nothing() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;
        use std::os::unix::fs::symlink;
        let dir = std::env::temp_dir().join(format!("muster-measure-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let program = dir.join(OsStr::from_bytes(b"\xff) \xfe"));
        let _ = fs::remove_file(&program);
        symlink("/bin/sleep", &program).unwrap();
        let mut child = std::os::unix::process::CommandExt::arg0(
            &mut std::process::Command::new(&program),
            "sleep",
        )
        .arg("60")
        .spawn()
        .unwrap();
        let reading = Reading::of(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir_all(&dir).unwrap();
        let reading = reading.unwrap();
        assert!(reading.peak_rss_kib > 0);
        assert_eq!(reading.parent, std::process::id());
    }
}
