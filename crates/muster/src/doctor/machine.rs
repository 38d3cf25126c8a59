//! Properties of the machine itself: memory that processes share, limits, control groups, munge, clock, ports.

use super::{Finding, State};
use muster_node::CrossMemory;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::statvfs;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Stdio};

const AREA: &str = "machine";
/// Ranks of a node share at least some megabytes each.
const SHM_MIN: u64 = 256 << 20;

/// Looks at all of it.
pub(super) fn look() -> Vec<Finding> {
    let mut found = vec![cross_memory(), shared_memory()];
    found.extend(limits());
    found.extend([control_groups(), munge(), clock(), ports()]);
    found
}

fn good(name: &str, text: String) -> Finding {
    Finding::new(AREA, name, State::Good, text)
}

fn note(name: &str, text: String, advice: &str) -> Finding {
    Finding::new(AREA, name, State::Note, text).advise(advice)
}

fn bad(name: &str, text: String, advice: &str) -> Finding {
    Finding::new(AREA, name, State::Bad, text).advise(advice)
}

fn cross_memory() -> Finding {
    let name = "cross-memory attach";
    match CrossMemory::measure(Path::new("/proc/self/exe")) {
        Ok(CrossMemory::Works { attach, copy }) => {
            let text = format!(
                "ranks of a node may copy from each other: {attach} MB/s; twice through shared memory: {copy} MB/s"
            );
            if attach.saturating_mul(5) >= copy.saturating_mul(4) {
                good(name, text)
            } else {
                note(
                    name,
                    text,
                    "it is slower on this machine: MPI does not use it, unless mpi.conf says CrossMemoryAttach=yes",
                )
            }
        }
        Ok(CrossMemory::Fails(why)) => note(
            name,
            why,
            "large messages within a node are copied twice until then",
        ),
        Err(e) => bad(
            name,
            e.to_string(),
            "see whether this program file may be executed by everyone",
        ),
    }
}

fn shared_memory() -> Finding {
    let name = "shared memory";
    let Ok(at) = statvfs("/dev/shm") else {
        return bad(
            name,
            "there is no /dev/shm".to_owned(),
            "mount a tmpfs there",
        );
    };
    // Widths of these differ by platform.
    #[allow(clippy::useless_conversion)]
    let (block, free) = (
        u64::from(at.fragment_size()),
        u64::from(at.blocks_available()),
    );
    let free = block * free;
    let text = format!("/dev/shm has {} MiB free", free >> 20);
    let left = fs::read_dir("/dev/shm").map_or(0, |dir| {
        let of_step =
            |e: &fs::DirEntry| e.file_name().to_string_lossy().starts_with("muster-pmix.");
        dir.flatten().filter(of_step).count()
    });
    if free < SHM_MIN {
        return bad(
            name,
            text,
            "MPI needs more: remount it with a larger size=, or remove what is there",
        );
    }
    let text = format!("{text}; {left} directories of MPI steps");
    if left > 0 && !step_daemons_run() {
        return note(
            name,
            format!("{text}, although none runs"),
            "they are of nodes whose daemons were killed: start their slurmd again, or remove /dev/shm/muster-pmix.*",
        );
    }
    good(name, text)
}

/// Whether a step of anybody's runs on this machine.
fn step_daemons_run() -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut names = processes.filter_map(|p| fs::read_to_string(p.path().join("comm")).ok());
    names.any(|name| name.trim_end() == "muster-stepd")
}

/// Limits that this shell has; daemons have those of their unit.
fn limits() -> Vec<Finding> {
    let hard = |resource| getrlimit(resource).map_or(0, |(_, hard)| hard);
    let text = |value: u64, unit: u64, word: &str| {
        if value == nix::libc::RLIM_INFINITY {
            "unlimited".to_owned()
        } else {
            format!("{} {word}", value / unit)
        }
    };
    let locked = hard(Resource::RLIMIT_MEMLOCK);
    let name = "locked memory";
    let said = format!("at most {}", text(locked, 1024, "KiB"));
    let has_rdma = fs::read_dir("/sys/class/infiniband").is_ok_and(|mut d| d.next().is_some());
    let locked = match (locked == nix::libc::RLIM_INFINITY, has_rdma) {
        (true, _) => good(name, said),
        (false, true) => bad(
            name,
            said,
            "InfiniBand needs LimitMEMLOCK=infinity in the unit of slurmd",
        ),
        (false, false) => good(
            name,
            format!("{said}; there is no InfiniBand here that would need more"),
        ),
    };
    let files = hard(Resource::RLIMIT_NOFILE);
    let said = format!("at most {}", text(files, 1, "a process"));
    let files = if files < 4096 {
        note(
            "open files",
            said,
            "steps with many tasks need more: LimitNOFILE=131072 in the unit of slurmd",
        )
    } else {
        good("open files", said)
    };
    vec![locked, files]
}

/// Limits that can be enforced on jobs here, as far as the user of this command may: slurmd is root's, as a rule.
fn control_groups() -> Finding {
    let name = "control groups";
    let uses = muster_node::control_group_uses(nix::unistd::geteuid().is_root());
    let mut usable = Vec::new();
    let mut missing = Vec::new();
    for found in &uses {
        match &found.usable {
            Ok(version) => usable.push(format!("{} by {version}", found.name())),
            Err(why) => missing.push(format!("{}: {why}: {}", found.name(), found.effect)),
        }
    }
    if missing.is_empty() {
        return good(name, usable.join(", "));
    }
    note(
        name,
        [usable, missing].concat().join("; "),
        "what is missing is not enforced, also where cgroup.conf asks for it: see docs/node.md",
    )
}

fn munge() -> Finding {
    let name = "munge";
    let places = ["/run/munge/munge.socket.2", "/var/run/munge/munge.socket.2"];
    let is_socket = |p: &&&str| fs::metadata(p).is_ok_and(|m| m.file_type().is_socket());
    let install = "needed only where several hosts identify users by it: install munge, copy /etc/munge/munge.key \
                   to all hosts, start munged";
    let Some(socket) = places.iter().find(is_socket) else {
        return note(name, "no munged listens".to_owned(), install);
    };
    // Encoded and decoded here: the key is readable and the daemon answers.
    let tried = Command::new("sh")
        .args(["-c", "munge -n | unmunge > /dev/null"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output();
    match tried {
        Ok(output) if output.status.success() => good(name, format!("works, at {socket}")),
        Ok(output) => bad(
            name,
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            "see the log of munged",
        ),
        Err(e) => bad(name, e.to_string(), "a shell is needed"),
    }
}

#[allow(unsafe_code)]
fn clock() -> Finding {
    let name = "clock";
    // SAFETY: all bytes zero is a valid `timex`, and asks for nothing to be changed; the pointer is to a live value.
    let (state, timex) = unsafe {
        let mut timex: nix::libc::timex = std::mem::zeroed();
        (nix::libc::adjtimex(&raw mut timex), timex)
    };
    if state < 0 {
        return note(
            name,
            "the kernel does not tell whether it is synchronised".to_owned(),
            "",
        );
    }
    if timex.status & nix::libc::STA_UNSYNC == 0 {
        return good(
            name,
            format!("synchronised; at most {} ms off", timex.maxerror / 1000),
        );
    }
    note(
        name,
        "not synchronised".to_owned(),
        "credentials and accounting of several hosts need it: start chronyd or systemd-timesyncd",
    )
}

fn ports() -> Finding {
    let name = "ports";
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let range: Vec<&str> = range.split_whitespace().collect();
    match TcpListener::bind(("0.0.0.0", 0)) {
        Ok(_) => good(
            name,
            format!(
                "MPI steps over several nodes listen at free ports of {}",
                range.join(" to ")
            ),
        ),
        Err(e) => bad(
            name,
            e.to_string(),
            "no port can be listened at: see net.ipv4.ip_local_port_range",
        ),
    }
}
