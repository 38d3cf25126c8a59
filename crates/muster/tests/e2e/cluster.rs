//! A cluster for one test: started by `muster up`, stopped and removed when the test ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How many seconds one command may take: more than any wait of a test.
const RUN_MAX_S: &str = "360";

/// Longest time anything may take that a test waits for.
const PATIENCE: Duration = Duration::from_secs(120);

/// Comes before the C library of a shim, so that the clock of its step daemons can be put forward by what a file says:
/// limits are whole minutes.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static int is_stepd(void) {
  char name[16] = "";
  prctl(PR_GET_NAME, name);
  return !strcmp(name, "muster-stepd");
}
static long ahead(void) {
  char text[20] = "";
  int fd = open(getenv("CLOCK_AHEAD"), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  if (read(fd, text, sizeof text - 1) < 0) text[0] = 0;
  close(fd);
  return atol(text);
}
int clock_gettime(clockid_t clock, struct timespec *at) {
  int failed = syscall(SYS_clock_gettime, clock, at);
  if (!failed && clock == CLOCK_MONOTONIC && is_stepd()) at->tv_sec += ahead();
  return failed;
}
int poll(struct pollfd *fds, nfds_t count, int timeout) {
  if (timeout < 0 || !is_stepd()) return syscall(SYS_poll, fds, count, timeout);
  long before = ahead();
  while (timeout > 0 && ahead() == before) {
    int part = timeout < 20 ? timeout : 20;
    int ready = syscall(SYS_poll, fds, count, part);
    if (ready) return ready;
    timeout -= part;
  }
  return syscall(SYS_poll, fds, count, 0);
}
"#;

/// A private cluster.
pub(crate) struct Cluster {
    home: PathBuf,
    /// Where commands run and jobs write.
    pub(crate) dir: PathBuf,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Exit status; 128 + n for signal n.
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Cluster {
    /// Nodes `n1..` with so many CPUs each.
    pub(crate) fn start(nodes: u32, cpus: u32) -> Cluster {
        Cluster::up(&["--nodes", &nodes.to_string(), "--cpus", &cpus.to_string()])
    }

    /// The same, with a clock of their own for step daemons, which [`Cluster::put_forward`] moves.
    pub(crate) fn with_own_clock(nodes: u32, cpus: u32) -> Cluster {
        let c = Cluster::start(nodes, cpus);
        c.write("clock.c", CLOCK);
        c.ok("gcc -shared -fPIC -o clock.so clock.c");
        for node in (1..=nodes).map(|n| format!("n{n}")) {
            let spool = c.path(&format!("spool.{node}"));
            c.kill(c.agent(&node));
            c.kill(pid_of(&spool.join("shim.pid")));
            c.ok(&format!(
                "CLOCK_AHEAD=$PWD/ahead LD_PRELOAD=$PWD/clock.so exec -a muster-shim {} {}",
                env!("CARGO_BIN_EXE_muster"),
                spool.display()
            ));
            c.ok(&format!("slurmd -N {node}"));
        }
        c.until_prints("sinfo -h -o %T", "idle");
        c
    }

    /// Starts the daemons of some nodes again, with more in their environment (`NAME=value`).
    pub(crate) fn restart_with(&self, nodes: &[&str], variable: &str) {
        for node in nodes {
            let shim = pid_of(&self.path(&format!("spool.{node}/shim.pid")));
            self.kill(self.agent(node));
            self.kill(shim);
            self.ok(&format!("{variable} slurmd -N {node}"));
        }
        self.until_prints("sinfo -h -o %T", "idle");
    }

    /// Has step daemons find that so many seconds have gone by.
    pub(crate) fn put_forward(&self, seconds: u32) {
        self.write("ahead.new", &seconds.to_string());
        std::fs::rename(self.dir.join("ahead.new"), self.dir.join("ahead")).unwrap();
    }

    /// The cluster that a slurm.conf describes.
    pub(crate) fn from_conf(conf: &str) -> Cluster {
        Cluster::given(conf, &[])
    }

    /// The same, its nodes emulated by one process.
    pub(crate) fn emulated(conf: &str) -> Cluster {
        Cluster::given(conf, &["--emulate"])
    }

    fn given(conf: &str, args: &[&str]) -> Cluster {
        let cluster = Cluster::fresh();
        let file = cluster.dir.join("given.conf");
        std::fs::write(&file, conf).unwrap();
        cluster.up_again(&[&["-f", file.to_str().unwrap()], args].concat());
        cluster
    }

    fn up(args: &[&str]) -> Cluster {
        let cluster = Cluster::fresh();
        cluster.up_again(args);
        cluster
    }

    /// Its directories, in which nothing runs yet.
    pub(crate) fn fresh() -> Cluster {
        Cluster::at(fresh_dir())
    }

    /// The same, below another directory than the one for temporary files.
    pub(crate) fn fresh_below(place: &str) -> Cluster {
        let home = fresh_dir();
        Cluster::at(Path::new(place).join(home.file_name().unwrap()))
    }

    fn at(home: PathBuf) -> Cluster {
        let dir = home.join("work");
        std::fs::create_dir_all(&dir).unwrap();
        Cluster { home, dir }
    }

    /// `muster up` on the state that is there.
    pub(crate) fn up_again(&self, args: &[&str]) {
        let output = self.muster("up", args);
        assert!(
            output.status.success(),
            "muster up: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Runs one of `muster`'s own commands on it.
    pub(crate) fn muster(&self, verb: &str, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_muster"))
            .arg(verb)
            .args(args)
            .env("MUSTER_HOME", &self.home)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// A file or directory of the cluster's.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    /// A bash command with the cluster's commands on its path, in `dir`.
    pub(crate) fn command(&self, script: &str) -> Command {
        self.prepared("bash", &["-c", script])
    }

    fn prepared(&self, program: &str, args: &[&str]) -> Command {
        let bin = self.home.join("bin");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(program);
        command.args(args).current_dir(&self.dir).env("PATH", path);
        for (key, _) in
            std::env::vars().filter(|(k, _)| k.starts_with("SLURM") || k.starts_with("SBATCH"))
        {
            command.env_remove(key);
        }
        command
            .env("SLURM_CONF", self.home.join("slurm.conf"))
            .env("TZ", "UTC")
            .stdin(Stdio::null());
        command
    }

    /// Runs a bash command to its end. One that hangs is ended and fails, so that the test tells what it knows.
    pub(crate) fn run(&self, script: &str) -> Ran {
        let args = ["--kill-after=10", RUN_MAX_S, "bash", "-c", script];
        ran(self.prepared("timeout", &args).output().unwrap())
    }

    /// Runs a bash command that must succeed; what it printed, without blanks at the ends.
    #[track_caller]
    pub(crate) fn ok(&self, script: &str) -> String {
        let ran = self.run(script);
        assert_eq!(
            ran.code,
            0,
            "{script}\n{}{}\n{}",
            ran.out,
            ran.err,
            self.logs()
        );
        ran.out.trim().to_owned()
    }

    /// Submits and gives the job's number.
    #[track_caller]
    pub(crate) fn sbatch(&self, args: &str) -> u64 {
        let text = self.ok(&format!("sbatch --parsable {args}"));
        text.parse()
            .unwrap_or_else(|_| panic!("sbatch --parsable printed '{text}'"))
    }

    /// Waits until a condition holds that no command can wait for.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let started = Instant::now();
        while !holds() {
            assert!(
                started.elapsed() < PATIENCE,
                "gave up waiting until {what}\n{}",
                self.logs()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until a bash command prints this.
    #[track_caller]
    pub(crate) fn until_prints(&self, script: &str, wanted: &str) {
        let mut last = String::new();
        let started = Instant::now();
        loop {
            let ran = self.run(script);
            if ran.out.trim() == wanted {
                return;
            }
            last.replace_range(.., &format!("{}{}", ran.out, ran.err));
            assert!(
                started.elapsed() < PATIENCE,
                "'{script}' should print '{wanted}', but prints '{last}'\n{}",
                self.logs()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The state that sacct gives of a job's own row.
    pub(crate) fn state(&self, job: u64) -> String {
        self.ok(&format!("sacct -X -n -P -j {job} -o State"))
    }

    /// A file of `dir`.
    #[track_caller]
    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.dir.join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// Writes a file of `dir`.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.join(name), text).unwrap();
    }

    /// Process id of the controller.
    pub(crate) fn controller(&self) -> i32 {
        pid_of(&self.home.join("run/ctld.pid"))
    }

    /// Process id of a node's agent.
    pub(crate) fn agent(&self, node: &str) -> i32 {
        pid_of(&self.home.join(format!("run/noded.{node}.pid")))
    }

    /// Starts the controller again, as a site's scripts would.
    pub(crate) fn start_controller(&self) -> Ran {
        self.run("slurmctld")
    }

    /// Kills a process and waits until it is gone.
    pub(crate) fn kill(&self, pid: i32) {
        assert!(
            Command::new("kill")
                .args(["-9", &pid.to_string()])
                .status()
                .unwrap()
                .success()
        );
        self.until("a killed process is gone", || !alive(pid));
    }

    fn logs(&self) -> String {
        let mut text = String::new();
        let Ok(files) = std::fs::read_dir(self.home.join("log")) else {
            return text;
        };
        for file in files.flatten() {
            let log = std::fs::read_to_string(file.path()).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(15).collect();
            text += &format!("--- {}\n", file.path().display());
            tail.iter()
                .rev()
                .for_each(|line| text += &format!("{line}\n"));
        }
        text
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let output = self.muster("down", &["--purge"]);
        if !std::thread::panicking() {
            assert!(
                output.status.success(),
                "muster down: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}

/// Whether a process exists and is no zombie.
pub(crate) fn alive(pid: i32) -> bool {
    let runs = |task: std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("stat"))
            .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("").starts_with('Z'))
    };
    // What a process has is open until its last thread has ended, and the first one may end before.
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    tasks.is_ok_and(|tasks| tasks.flatten().any(runs))
}

/// Turns a finished process into what tests look at.
pub(crate) fn ran(output: Output) -> Ran {
    use std::os::unix::process::ExitStatusExt;
    Ran {
        code: output
            .status
            .code()
            .unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0)),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn pid_of(file: &Path) -> i32 {
    std::fs::read_to_string(file)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

fn fresh_dir() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("muster-e2e-{}-{n}", std::process::id()))
}

impl Cluster {
    /// A file of `dir`, empty if it is not there yet.
    pub(crate) fn read_if_there(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.join(name)).unwrap_or_default()
    }
}
