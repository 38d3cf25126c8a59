//! Present resource usage of processes, from /proc. The processes of a task are its first process
//! and all its descendants; their memory is added up, each process by itself.

use crate::sys;
use muster_model::ids::StepNo;
use muster_model::job::ResourceUsage;
use muster_node_core::messages::TaskUsage;
use muster_proto::node::MemoryCount;
use muster_proto::step::Process;
use std::collections::{BTreeMap, HashMap};
use std::fs;

/// Usage of each task, with totals only. Memory is the requested kind; if none is requested, it is
/// the sum of the peak resident sizes of the processes.
pub(super) fn tasks(list: &[Process], count: Option<MemoryCount>) -> Vec<TaskUsage> {
    let tasks = by_task(list, |pid, reading| match count {
        None => reading.peak_rss_kib,
        Some(MemoryCount::Resident) => reading.rss_kib,
        Some(MemoryCount::Private) => reading.rss_kib.saturating_sub(reading.shared_kib),
        Some(MemoryCount::Proportional) => proportional_kib(pid).unwrap_or(reading.rss_kib),
    });
    let entry = |((step, task), (usage, vsize_kib))| TaskUsage {
        step,
        task,
        usage,
        vsize_kib,
    };
    tasks.into_iter().map(entry).collect()
}

/// Usage and virtual memory, KiB.
type Tasks = BTreeMap<(StepNo, u32), (ResourceUsage, u64)>;

fn by_task(list: &[Process], memory_kib: impl Fn(u32, &Reading) -> u64) -> Tasks {
    let read: HashMap<u32, Reading> = list
        .iter()
        .filter_map(|process| Some((process.pid, Reading::of(process.pid)?)))
        .collect();
    let numbers: HashMap<u32, u32> = list
        .iter()
        .filter_map(|process| Some((process.pid, process.task?.global)))
        .collect();
    let mut tasks = Tasks::new();
    for Process { pid, step, .. } in list {
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

/// The task to which a process belongs, as its first process or a descendant.
fn task_of(pid: u32, tasks: &HashMap<u32, u32>, read: &HashMap<u32, Reading>) -> Option<u32> {
    let mut at = pid;
    // No tree is deeper than its number of processes.
    for _ in 0..=read.len() {
        if let Some(task) = tasks.get(&at) {
            return Some(*task);
        }
        at = read.get(&at)?.parent;
    }
    None
}

/// The fields of /proc for one process.
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
    /// `None` if the process has ended.
    fn of(pid: u32) -> Option<Reading> {
        let stat = text_of(pid, "stat")?;
        // The name, field 2, may contain any bytes but ends at the last parenthesis.
        let after_name = stat.get(stat.rfind(')')? + 1..)?;
        let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3).and_then(|f| f.parse::<u64>().ok());
        let us = |field: usize| number(field).unwrap_or(0) * 1_000_000 / sys::ticks_per_s();
        // If files of another user's process cannot be read, their values count as zero.
        let status = text_of(pid, "status").unwrap_or_default();
        let io = text_of(pid, "io").unwrap_or_default();
        Some(Reading {
            parent: u32::try_from(number(4)?).ok()?,
            // Includes children that the process has reaped.
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

/// A file of a process. Some contain the name of the process, which may be any bytes.
fn text_of(pid: u32, file: &str) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Memory of a process with its proportion of shared memory, KiB.
fn proportional_kib(pid: u32) -> Option<u64> {
    let rollup = text_of(pid, "smaps_rollup")?;
    Some(value(&rollup, "Pss:"))
}

/// The number after a name in a file of lines.
fn value(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let word = line.and_then(|rest| rest.split_ascii_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_proto::step::TaskNumbers;

    fn process(pid: u32, task: Option<(u32, u32)>) -> Process {
        let step = StepNo(3);
        let task = task.map(|(local, global)| TaskNumbers { local, global });
        Process { pid, step, task }
    }

    #[test]
    fn this_process_uses_something() {
        let pid = std::process::id();
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let list = [process(pid, Some((0, 5))), process(child.id(), None)];
        let both = tasks(&list, None);
        let alone = tasks(&list[1..], None);
        child.kill().unwrap();
        child.wait().unwrap();
        let [of_both] = &both[..] else {
            panic!("{both:?}");
        };
        assert_eq!((of_both.step, of_both.task), (StepNo(3), 5));
        assert!(of_both.usage.max_rss_kib > alone[0].usage.max_rss_kib);
        assert!(of_both.vsize_kib >= of_both.usage.max_rss_kib);
        assert!(tasks(&[process(u32::MAX, None)], None).is_empty());
        let own = [process(pid, Some((0, 5)))];
        let kib = |count| tasks(&own, Some(count))[0].usage.max_rss_kib;
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
