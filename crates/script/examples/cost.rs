//! What the start of a batch script costs beside the script: `cargo run --release -p muster-script --example cost -- [PROGRAM...]`.
//!
//! It starts, in turns, a program that ends at once; the same by the process that becomes a script; /bin/true; and each PROGRAM,
//! such as a muster, by the arguments of a launcher's child, which it finds no order for. Processor time and page faults are those
//! of the processes that were started (getrusage(2)); the fewest microseconds are the ones to look at where others work beside.
//! `cost once` starts a script a single time, for strace.
#![allow(unsafe_code)]

use muster_script::{ExecOrder, ORDER_FD, PROGRAM, ResourceLimit, SLOTS_FD, Strings};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Instant;

const ROUNDS: usize = 25;
const STARTS: u32 = 100;

/// Something to be started.
struct Way {
    name: String,
    program: CString,
    order: bool,
    /// Microseconds of a processor, page faults and microseconds that passed, for each round.
    seen: Vec<[f64; 3]>,
}

fn main() {
    assert!(!PROGRAM.is_empty(), "there is no small program here");
    let dir = std::env::temp_dir().join(format!("muster-script-cost-{}", std::process::id()));
    fs::create_dir(&dir).expect("a temporary directory");
    let small = dir.join("small");
    write_program(&small);
    let args: Vec<String> = std::env::args().skip(1).collect();
    let order = order(&dir, &small);
    let mut ways = vec![
        way("a program that ends at once", &small, false),
        way(
            "the same, by the process that becomes a script",
            &small,
            true,
        ),
        way("/bin/true", Path::new("/bin/true"), false),
    ];
    if args == ["once"] {
        start(&ways[1], &order);
    } else {
        ways.extend(args.iter().map(|file| way(file, Path::new(file), false)));
        for _ in 0..ROUNDS {
            for way in &mut ways {
                let seen = round(way, &order);
                way.seen.push(seen);
            }
        }
        print(&ways);
    }
    fs::remove_dir_all(&dir).expect("the temporary directory is here");
}

fn way(name: &str, program: &Path, order: bool) -> Way {
    Way {
        name: name.to_owned(),
        program: CString::new(program.to_string_lossy().as_bytes()).expect("a path"),
        order,
        seen: Vec::new(),
    }
}

fn write_program(to: &Path) {
    fs::write(to, PROGRAM).expect("a file is written");
    fs::set_permissions(to, fs::Permissions::from_mode(0o500)).expect("it is ours");
}

/// An order as a job of some hundred bytes of variables has it.
fn order(dir: &Path, script: &Path) -> PathBuf {
    let path = script.to_string_lossy();
    let variables: Vec<String> = (0..80)
        .map(|n| format!("VARIABLE_{n}=some value"))
        .collect();
    let limits: Vec<ResourceLimit> = (0..10)
        .map(|resource| ResourceLimit {
            resource,
            soft: u64::MAX,
        })
        .collect();
    // SAFETY: no arguments.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let order = ExecOrder {
        path: &path,
        args: &Strings::of([path.as_bytes()]),
        env: [
            &Strings::of(variables.iter().map(String::as_bytes)),
            &Strings::default(),
        ],
        user: (uid == 0).then_some((uid, gid, &[])),
        user_name: "root",
        work_dir: "/tmp",
        stdin: "/dev/null",
        stdout: "/dev/null",
        stderr: None,
        append: false,
        umask: 0o022,
        limits: &limits,
        slot: 0,
        tmp_dir: None,
    };
    let file = dir.join("order");
    fs::write(&file, order.to_bytes()).expect("a file is written");
    file
}

/// Starts it, and waits for its end.
fn start(way: &Way, order: &Path) {
    let null = File::options().write(true).open("/dev/null");
    // None of these is a number that the other is moved to.
    let [null, order] = [null, File::open(order)].map(|file| high(&file.expect("it is there")));
    let words = [c"muster-shim".as_ptr(), c"--script".as_ptr(), ptr::null()];
    let mut pid = 0;
    // SAFETY: the actions are set up before they are used, and all strings and lists end as exec wants them.
    unsafe {
        let mut actions: libc::posix_spawn_file_actions_t = std::mem::zeroed();
        libc::posix_spawn_file_actions_init(&raw mut actions);
        let mut move_to = |from: i32, to| {
            libc::posix_spawn_file_actions_adddup2(&raw mut actions, from, to);
        };
        move_to(null.as_raw_fd(), 2);
        if way.order {
            move_to(order.as_raw_fd(), ORDER_FD);
            move_to(null.as_raw_fd(), SLOTS_FD);
        }
        let (words, none) = (words.as_ptr().cast(), words[2..].as_ptr().cast());
        let (program, none_set) = (way.program.as_ptr(), ptr::null());
        libc::posix_spawn(
            &raw mut pid,
            program,
            &raw const actions,
            none_set,
            words,
            none,
        );
        libc::posix_spawn_file_actions_destroy(&raw mut actions);
        libc::waitpid(pid, ptr::null_mut(), 0);
    }
}

fn high(file: &File) -> File {
    // SAFETY: takes numbers only, and the copy is nobody else's.
    unsafe { File::from_raw_fd(libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 8)) }
}

fn round(way: &Way, order: &Path) -> [f64; 3] {
    let (before, began) = (used(), Instant::now());
    (0..STARTS).for_each(|_| start(way, order));
    let passed = began.elapsed().as_secs_f64() * 1e6;
    let after = used();
    [after[0] - before[0], after[1] - before[1], passed].map(|n| n / f64::from(STARTS))
}

/// Processor time and page faults of children that have ended.
fn used() -> [f64; 2] {
    // SAFETY: an all-zero rusage is a valid value, and the pointer leads to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let us = |t: libc::timeval| t.tv_sec as f64 * 1e6 + t.tv_usec as f64;
    [
        us(usage.ru_utime) + us(usage.ru_stime),
        usage.ru_minflt as f64,
    ]
}

fn print(ways: &[Way]) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "cpu us: least, median; faults; passed us: least");
    for way in ways {
        let sorted = |at: usize| {
            let mut all: Vec<f64> = way.seen.iter().map(|seen| seen[at]).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let (cpu, faults, passed) = (sorted(0), sorted(1), sorted(2));
        let middle = ROUNDS / 2;
        let _ = writeln!(
            out,
            "{:6.0} {:6.0} {:6.1} {:6.0}  {}",
            cpu[0], cpu[middle], faults[middle], passed[0], way.name
        );
    }
}
