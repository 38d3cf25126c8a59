//! A job's processes have nothing of the shim's, cannot hold it up, belong to their own job whatever they say, and die with
//! it.

use super::Test;
use super::batch::wait_gone;
use super::cluster::{Dir, JobMaker, Node, PATIENCE, fifo};
use super::steps::{Srun, allocate, spec};
use muster_model::effect::TerminateReason;
use muster_model::job::ExitStatus;
use muster_model::spec::Owner;
use muster_proto::step::ToStepd;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs::{self, read_link, read_to_string};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    (WAITS, waits_for_its_file),
    (
        "a_script_that_the_launchers_own_program_starts",
        waits_without_the_small_program,
    ),
    ("a_prolog_that_waits_has_nothing_of_the_shims", prolog_waits),
    ("a_message_that_nobody_reads_holds_nothing_up", message),
    ("the_environment_attaches_no_process_to_a_job", feigned),
    ("daemons_die_with_their_own_job", daemons_of_two_jobs),
    ("daemons_of_a_killed_step_daemon_die", daemons_of_a_step),
    ("daemons_are_found_by_a_new_shim", daemons_after_a_lost_shim),
    ("a_task_that_cannot_start_holds_nothing_up", slow_program),
    ("own_limits_are_not_those_of_jobs", own_limits),
];

const WAITS: &str = "a_script_that_waits_for_its_file_has_nothing_of_the_shims";

const NOBODY: u32 = 65534;

pub fn nobodys(id: u64, dir: &Dir, script: &str) -> JobMaker {
    let mut job = JobMaker::new(id, &dir.0, script);
    job.spec.owner = Owner {
        uid: NOBODY,
        gid: NOBODY,
        user: "nobody".to_owned(),
        group: "nogroup".to_owned(),
    };
    job
}

/// A directory of `nobody`'s.
pub fn dir_of_nobody(name: &str) -> Dir {
    let dir = Dir::new(name);
    dir.open();
    dir
}

/// A FIFO that `nobody` may open.
pub fn open_fifo(path: &Path) {
    fifo(path);
    nix::unistd::chown(path, Some(NOBODY.into()), Some(NOBODY.into())).unwrap();
}

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "gave up waiting until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn children(pid: i32) -> Vec<i32> {
    let text = read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect()
}

/// The line of /proc/PID/status that begins so.
fn status(pid: i32, name: &str) -> String {
    let text = read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}

/// Whether a process waits in open(2).
fn is_opening(pid: i32) -> bool {
    let call = read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let number = nix::libc::SYS_openat.to_string();
    call.split_whitespace().next() == Some(&number)
}

fn descriptors(pid: i32) -> Vec<String> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let targets = files.filter_map(|file| read_link(file.unwrap().path()).ok());
    targets.map(|t| t.display().to_string()).collect()
}

/// The shim is killed; the agent notices, starts another, and that runs a job.
#[track_caller]
fn survives_a_lost_shim(node: &mut Node, dir: &Dir, job: u64) {
    let old = node.shim_pid();
    let started = Instant::now();
    node.kill_shim();
    node.run(&JobMaker::new(job, &dir.0, "#!/bin/sh\nexit 3\n"));
    assert_eq!(node.batch_exit(job), ExitStatus { code: 3, signal: 0 });
    node.released(job);
    assert_ne!(node.shim_pid(), old);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(5), "it took {took:?}");
}

/// A process that becomes a script has the launcher's environment no more than its memory. Its program is the small one,
/// where the kernel executes what is in memory alone.
fn assert_has_nothing_of(node: &Node, pid: i32) {
    let of = |name: &str| read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    assert_eq!(of("environ"), "");
    assert_eq!(of("cmdline"), "muster-shim\0--script\0");
    assert_eq!(status(pid, "Name:"), "muster-shim");
    let maps = of("maps");
    let mapped: BTreeSet<&str> = maps
        .lines()
        .map(|line| line.splitn(6, ' ').last().unwrap_or_default().trim())
        .collect();
    let program = read_link(format!("/proc/{pid}/exe")).unwrap();
    if is_memory_executed() {
        assert_eq!(program, Path::new("/memfd:muster-script (deleted)"));
        let own = |name: &str| {
            let kernels = ["[stack]", "[vdso]", "[vsyscall]"].contains(&name);
            let file = name.strip_prefix("/memfd:").unwrap_or_default();
            kernels || name.starts_with("[vvar") || file.starts_with("muster-order")
        };
        let others = mapped.iter().filter(|name| !own(name));
        assert_eq!(Vec::from_iter(others), [&program.to_str().unwrap()]);
        // It has nothing to write to but its stack and its order.
        assert_eq!(maps.matches(" rw").count(), 2, "{maps}");
    } else {
        assert_eq!(program, std::env::current_exe().unwrap());
    }
    // What launcher and children share.
    let spool = node.spool.to_string_lossy();
    for name in mapped {
        assert!(!name.contains("slots") && !name.contains(&*spool), "{maps}");
    }
}

/// Whether this kernel executes files that exist in memory alone.
fn is_memory_executed() -> bool {
    let policy = read_to_string(MEMORY_POLICY).unwrap_or_default();
    policy.trim() != "2"
}

const MEMORY_POLICY: &str = "/proc/sys/vm/memfd_noexec";

/// Where the kernel does not, the launcher's own program takes the small one's place: the same, in a space of processes with that
/// policy.
fn waits_without_the_small_program() {
    if !Path::new(MEMORY_POLICY).exists() {
        println!("SKIPPED: there is no {MEMORY_POLICY}");
        return;
    }
    let script =
        format!("mount -t tmpfs none /tmp && echo 2 >{MEMORY_POLICY} && \"$0\" \"$1\"; exit $?");
    // The shell is the first process of that space, and waits for all that others leave.
    let output = Command::new("unshare")
        .args([
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
        ])
        .arg(script)
        .arg(std::env::current_exe().unwrap())
        .arg(WAITS)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("1 passed, 0 failed"), "{text}");
}

fn waits_for_its_file() {
    let dir = dir_of_nobody("waits");
    let mut node = Node::start(&dir, "n1");
    open_fifo(&dir.path("out"));
    let mut job = nobodys(1, &dir, "#!/bin/sh\necho here\n");
    job.spec.stdio.stdout = Some("out".to_owned());
    node.run(&job);
    let shim = node.shim_pid();
    let waiting = || children(shim).into_iter().find(|pid| is_opening(*pid));
    until("the script's process opens its file", || {
        waiting().is_some()
    });
    let pid = waiting().unwrap();
    assert_eq!(status(pid, "Uid:"), format!("{NOBODY}\t").repeat(4).trim());
    // Nobody but root may look into it.
    assert_eq!(fs::metadata(format!("/proc/{pid}/mem")).unwrap().uid(), 0);
    // And where it tells of a failure.
    let mut expected = vec!["/dev/null"; 3];
    expected.push("/memfd:muster-slots (deleted)");
    assert_eq!(descriptors(pid), expected);
    assert_has_nothing_of(&node, pid);
    survives_a_lost_shim(&mut node, &dir, 2);
    // And it ends with its job.
    node.terminate(1, TerminateReason::Cancelled);
    node.released(1);
    wait_gone(Pid::from_raw(pid));
}

fn prolog_waits() {
    let dir = Dir::new("prolog-waits");
    let mut node = Node::start(&dir, "n1");
    let (up, go) = (dir.path("up"), dir.path("go"));
    [&up, &go].into_iter().for_each(|f| fifo(f));
    fs::create_dir(dir.path("prolog.d")).unwrap();
    let script = |name: &str, text: &str| {
        let path = dir.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    // The process that runs one program after the other waits for the first.
    let waits = format!(
        "#!/bin/sh\n[ $SLURM_JOB_ID = 1 ] || exit 0\necho $PPID >{}\nread x <{}\n",
        up.display(),
        go.display()
    );
    script("prolog.d/1", &waits);
    script("prolog.d/2", "#!/bin/sh\n");
    let both = dir.path("prolog.d/*");
    node.settings.prolog = Some(both.to_string_lossy().into_owned());
    node.disconnect();
    node.accept();
    node.run(&JobMaker::new(1, &dir.0, "#!/bin/sh\ntrue\n"));
    let runner: i32 = read_to_string(&up).unwrap().trim().parse().unwrap();
    let sockets = descriptors(runner);
    let sockets = sockets.iter().filter(|target| target.contains("socket:"));
    assert_eq!(sockets.count(), 0);
    survives_a_lost_shim(&mut node, &dir, 2);
    kill(Pid::from_raw(runner), Signal::SIGKILL).unwrap();
    // Its program has another parent now, and goes.
    fs::OpenOptions::new()
        .write(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(&go)
        .unwrap();
}

fn message() {
    let dir = dir_of_nobody("message");
    let mut node = Node::start(&dir, "n1");
    node.settings.kill_wait_s = 60;
    node.disconnect();
    node.accept();
    let (err, up) = (dir.path("err"), dir.path("up"));
    [&err, &up].into_iter().for_each(|f| open_fifo(f));
    let mut job = nobodys(
        1,
        &dir,
        "#!/bin/sh\nexec 2>/dev/null\ntrap 'exit 4' TERM\necho up >up\nwhile :; do sleep 60 & wait $!; done\n",
    );
    job.spec.stdio.stderr = Some("err".to_owned());
    node.run(&job);
    // Somebody reads while the script is started, and then nobody does.
    let reader = fs::File::open(&err).unwrap();
    read_to_string(&up).unwrap();
    drop(reader);
    let started = Instant::now();
    node.terminate(1, TerminateReason::TimeLimit);
    assert_eq!(node.batch_exit(1), ExitStatus { code: 4, signal: 0 });
    node.released(1);
    assert!(started.elapsed() < Duration::from_secs(20), "not by KILL");
    let shim = node.shim_pid();
    until("nothing is left", || children(shim).is_empty());
}

/// Whether the kernel gives audit sessions here. Says so if not.
fn has_audit_sessions() -> bool {
    let begin = "exec sh -c 'echo 0 >/proc/self/loginuid && test $(cat /proc/self/sessionid) != 4294967295'";
    let begun = Command::new("sh").args(["-c", begin]).status();
    let has = begun.is_ok_and(|status| status.success());
    if !has {
        println!("  SKIPPED: no audit sessions here");
    }
    has
}

/// A shell command that runs this as a daemon: a session of its own, no parent, and only these variables.
fn daemon(variables: &str, name: &str, command: &str) -> String {
    format!(
        "setsid env -i {variables} /bin/sh -c '/bin/sh -c \"echo \\$\\$ >{name}.pid.new; /bin/mv {name}.pid.new {name}.pid; {command}\" & exit 0'\n\
         while ! [ -e {name}.pid ]; do sleep 0.01; done\n"
    )
}

fn pid_in(dir: &Dir, name: &str) -> Pid {
    Pid::from_raw(dir.text(&format!("{name}.pid")).trim().parse().unwrap())
}

fn feigned() {
    let dir = Dir::new("feigned");
    let theirs = dir_of_nobody("feigned-theirs");
    let mut node = Node::start(&dir, "n1");
    let spool = node.spool.display().to_string();
    let go = dir.path("go");
    fifo(&go);
    node.run(&JobMaker::new(1, &dir.0, "#!/bin/sh\nread x <go\n"));
    // A process of another user's names the job in its environment.
    let variables = format!("MUSTER_SPOOL={spool} SLURM_JOB_ID=1 MUSTER_ATTEMPT=1");
    let script = format!(
        "#!/bin/sh\n{}echo up >up\nexec sleep 600\n",
        daemon(&variables, "daemon", "exec /bin/sleep 601")
    );
    open_fifo(&theirs.path("up"));
    node.run(&nobodys(2, &theirs, &script));
    read_to_string(theirs.path("up")).unwrap();
    let pid = pid_in(&theirs, "daemon");
    fs::write(&go, "x\n").unwrap();
    node.batch_exit(1);
    // It neither holds the job up nor dies with it.
    node.released(1);
    assert!(kill(pid, None).is_ok(), "it was killed with the other job");
    node.terminate(2, TerminateReason::Cancelled);
    node.released(2);
    wait_gone(pid);
}

fn daemons_of_two_jobs() {
    if !has_audit_sessions() {
        return;
    }
    let dir = dir_of_nobody("two-jobs");
    let mut node = Node::start(&dir, "n1");
    for (job, name) in [(1, "first"), (2, "second")] {
        let script = format!(
            "#!/bin/sh\n{}echo up >{name}.up\nread x <{name}.go\n",
            daemon("", name, "exec /bin/sleep 600")
        );
        [format!("{name}.up"), format!("{name}.go")]
            .iter()
            .for_each(|f| open_fifo(&dir.path(f)));
        node.run(&nobodys(job, &dir, &script));
        read_to_string(dir.path(&format!("{name}.up"))).unwrap();
    }
    let (first, second) = (pid_in(&dir, "first"), pid_in(&dir, "second"));
    fs::write(dir.path("first.go"), "x\n").unwrap();
    node.batch_exit(1);
    node.released(1);
    wait_gone(first);
    assert!(kill(second, None).is_ok(), "it is another job's");
    node.terminate(2, TerminateReason::Cancelled);
    node.released(2);
    wait_gone(second);
}

fn daemons_of_a_step() {
    if !has_audit_sessions() {
        return;
    }
    let dir = dir_of_nobody("step-daemons");
    let mut node = Node::start(&dir, "n1");
    [dir.path("up"), dir.path("go")]
        .iter()
        .for_each(|f| open_fifo(f));
    let in_script = daemon("", "script", "exec /bin/sleep 600");
    let script = format!("#!/bin/sh\n{in_script}echo up >up\nread x <go\n");
    node.run(&nobodys(1, &dir, &script));
    read_to_string(dir.path("up")).unwrap();
    let in_step = format!(
        "{}exec sleep 602",
        daemon("", "step", "exec /bin/sleep 601")
    );
    let step = spec(1, &dir, &["/bin/sh", "-c", &in_step]);
    let mut srun = Srun::ask(&node, step).connect();
    srun.started();
    until("the step's daemon is there", || {
        dir.path("step.pid").exists()
    });
    let (of_script, of_step) = (pid_in(&dir, "script"), pid_in(&dir, "step"));
    let shim = node.shim_pid();
    let is_stepd = |pid: &i32| status(*pid, "Name:") == "muster-stepd";
    let stepd = children(shim).into_iter().find(is_stepd).unwrap();
    kill(Pid::from_raw(stepd), Signal::SIGKILL).unwrap();
    wait_gone(of_step);
    assert!(kill(of_script, None).is_ok(), "it is not the step's");
    fs::write(dir.path("go"), "x\n").unwrap();
    node.released(1);
    wait_gone(of_script);
}

fn daemons_after_a_lost_shim() {
    if !has_audit_sessions() {
        return;
    }
    let dir = dir_of_nobody("after-a-loss");
    let mut node = Node::start(&dir, "n1");
    [dir.path("up"), dir.path("go")]
        .iter()
        .for_each(|f| open_fifo(f));
    let script = format!(
        "#!/bin/sh\n{}echo up >up\nread x <go\n",
        daemon("", "daemon", "exec /bin/sleep 600")
    );
    node.run(&nobodys(1, &dir, &script));
    read_to_string(dir.path("up")).unwrap();
    survives_a_lost_shim(&mut node, &dir, 2);
    let pid = pid_in(&dir, "daemon");
    assert!(kill(pid, None).is_ok());
    fs::write(dir.path("go"), "x\n").unwrap();
    node.released(1);
    wait_gone(pid);
}

/// Has whoever opens a file wait for this process, for as long as the kernel lets it.
#[allow(unsafe_code)]
fn lease(file: &fs::File) {
    use nix::libc::{F_SETLEASE, F_WRLCK, SIG_IGN, SIGIO, fcntl, signal};
    // SAFETY: both take numbers only.
    unsafe {
        signal(SIGIO, SIG_IGN);
        assert_eq!(fcntl(file.as_raw_fd(), F_SETLEASE, F_WRLCK), 0);
    }
}

fn slow_program() {
    let dir = dir_of_nobody("slow-program");
    let mut node = Node::start(&dir, "n1");
    let program = dir.path("program");
    fs::copy("/bin/true", &program).unwrap();
    let go = dir.path("go");
    open_fifo(&go);
    node.run(&nobodys(1, &dir, "#!/bin/sh\nread x <go\n"));
    let file = fs::File::open(&program).unwrap();
    lease(&file);
    let program = program.to_string_lossy().into_owned();
    let mut srun = Srun::ask(&node, spec(1, &dir, &[&program])).connect();
    let shim = node.shim_pid();
    let is_stepd = |pid: &i32| status(*pid, "Name:") == "muster-stepd";
    until("the task executes its program", || {
        let stepds = children(shim).into_iter().filter(is_stepd);
        let call = nix::libc::SYS_execve.to_string();
        stepds.flat_map(children).any(|task| {
            let now = read_to_string(format!("/proc/{task}/syscall")).unwrap_or_default();
            now.split_whitespace().next() == Some(&call)
        })
    });
    // Its daemon does not wait with it.
    let started = Instant::now();
    srun.send(&ToStepd::Signal(9));
    let outcome = srun.finish();
    assert_eq!(outcome.exits[&0], ExitStatus { code: 0, signal: 9 });
    assert!(started.elapsed() < Duration::from_secs(15));
    drop(file);
    fs::write(&go, "x\n").unwrap();
    node.released(1);
}

/// Lets this process leave cores, and what it starts.
#[allow(unsafe_code)]
fn set_own_limits() {
    use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
    setrlimit(Resource::RLIMIT_CORE, 1 << 20, RLIM_INFINITY).unwrap();
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most.min(2000), most).unwrap();
}

/// The shim and step daemons leave no cores and may have as many descriptors as the hard limit allows; jobs are as if these
/// limits had not been changed.
fn own_limits() {
    set_own_limits();
    let dir = Dir::new("limits");
    let mut node = Node::start(&dir, "n1");
    let of = |text: &str, name: &str, column: usize| {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap();
        let mut words = line[name.len()..].split_whitespace();
        words.nth(column).unwrap().to_owned()
    };
    let (cores, files) = ("Max core file size", "Max open files");
    let of_process = |pid: &str| read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let own = of_process("self");
    assert_ne!(of(&own, cores, 0), "0");
    assert_ne!(of(&own, files, 0), of(&own, files, 1));
    let job = JobMaker::new(1, &dir.0, "#!/bin/sh\ncat /proc/self/limits >limits\n");
    node.run(&job);
    assert_eq!(node.batch_exit(1), ExitStatus::default());
    assert_eq!(of(&dir.text("limits"), cores, 0), of(&own, cores, 0));
    allocate(2, &dir, &mut [&mut node], 1);
    let step = spec(2, &dir, &["cat", "/proc/self/limits", "/proc/self/status"]);
    let outcome = Srun::ask(&node, step).connect().finish();
    let of_task = &outcome.out[&0];
    for limit in [cores, files] {
        assert_eq!(of(of_task, limit, 0), of(&own, limit, 0), "{limit}");
    }
    let daemon = of(of_task, "PPid:", 0);
    for pid in [node.shim_pid().to_string(), daemon] {
        let limits = of_process(&pid);
        // None, not even for a program that the kernel would give it to.
        assert_eq!(of(&limits, cores, 0), "1");
        assert_eq!(of(&limits, files, 0), of(&own, files, 1));
    }
}
