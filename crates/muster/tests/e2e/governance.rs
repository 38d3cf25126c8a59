//! Parts of the controller that fail, and requests that it cannot deal with: what fails ends the process and says why, and
//! what users send does not.

use crate::cluster::{Cluster, alive};

/// Comes before the C library of a controller: with a file `eio` its disk fails, with a file `hang` it never answers.
const DISK: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static int there(const char *name) { struct stat s; return !stat(name, &s); }
int fdatasync(int fd) {
  if (there(DIR "/eio")) { errno = EIO; return -1; }
  while (there(DIR "/hang")) usleep(20000);
  return syscall(SYS_fdatasync, fd);
}
"#;

/// A cluster whose controller's disk obeys files of its directory.
fn with_bad_disk(more: &str) -> Cluster {
    let c = Cluster::from_conf(&format!(
        "ClusterName=c\nSlurmctldHost=h\nSlurmUser=root\n{more}NodeName=n1 CPUs=4 State=UNKNOWN\n\
         PartitionName=p Nodes=ALL Default=YES State=UP\n"
    ));
    c.write("disk.c", DISK);
    c.ok("gcc -shared -fPIC -DDIR='\"'$PWD'\"' -o disk.so disk.c");
    c.kill(c.controller());
    c.ok("LD_PRELOAD=$PWD/disk.so slurmctld");
    c.until_prints("sinfo -h -o %T", "idle");
    c
}

fn log(c: &Cluster) -> String {
    std::fs::read_to_string(c.path("log/ctld.log")).unwrap()
}

#[test]
fn a_disk_that_fails_ends_the_controller_with_a_reason() {
    let c = with_bad_disk("");
    let held = c.sbatch("-H -o /dev/null --wrap true");
    let pid = c.controller();
    c.write("eio", "");
    let lost = c.run("sbatch -H -o /dev/null --wrap true");
    assert_ne!(lost.code, 0, "{lost:?}");
    c.until("the controller is gone", || !alive(pid));
    let ping = c.run("scontrol ping");
    assert!(ping.out.contains("is DOWN"), "{ping:?}");
    let log = log(&c);
    assert!(
        log.contains("fatal: the journal cannot be written") && log.contains("sync failed"),
        "{log}"
    );
    std::fs::remove_file(c.dir.join("eio")).unwrap();
    assert_eq!(c.start_controller().code, 0);
    assert_eq!(
        c.ok(&format!("squeue -h -j {held} -o %i")),
        held.to_string()
    );
}

#[test]
fn a_writer_that_hangs_is_noticed_and_ended() {
    let c = with_bad_disk("SlurmctldTimeout=8\n");
    let pid = c.controller();
    c.write("hang", "");
    let mut submission = c
        .command("sbatch -H -o /dev/null --wrap true")
        .spawn()
        .unwrap();
    // It still listens, but it does not work.
    c.until_prints(
        "scontrol ping | grep -o DOWN; squeue -h >/dev/null && echo listens",
        "DOWN\nlistens",
    );
    c.until("the watchdog has ended it", || !alive(pid));
    let log = log(&c);
    assert!(
        log.contains("watchdog: thread 'writer' has been writing the journal for"),
        "{log}"
    );
    std::fs::remove_file(c.dir.join("hang")).unwrap();
    submission.wait().unwrap();
    assert_eq!(c.start_controller().code, 0);
    c.sbatch("-H -o /dev/null --wrap true");
}

#[test]
fn a_controller_that_hangs_ends_on_sigterm_all_the_same() {
    let c = with_bad_disk("");
    let pid = c.controller();
    c.write("hang", "");
    let mut submission = c
        .command("sbatch -H -o /dev/null --wrap true")
        .spawn()
        .unwrap();
    c.until_prints("scontrol ping | grep -o DOWN", "DOWN");
    c.ok(&format!("kill {pid}"));
    c.until("it is gone", || !alive(pid));
    assert!(log(&c).contains("did not stop within"), "{}", log(&c));
    std::fs::remove_file(c.dir.join("hang")).unwrap();
    submission.wait().unwrap();
    assert_eq!(c.start_controller().code, 0);
}

/// A cluster whose controller panics over jobs that are named for it.
fn with_faults() -> Cluster {
    let c = Cluster::start(1, 4);
    c.kill(c.controller());
    c.ok("MUSTER_FAULTS=1 slurmctld");
    c.until_prints("sinfo -h -o %T", "idle");
    c
}

#[test]
fn commands_that_panic_are_refused_and_kept_and_nothing_else_happens() {
    let c = with_faults();
    let pid = c.controller();
    let before = c.sbatch("-o /dev/null --wrap 'until [ -e go ]; do sleep 0.05; done'");
    for place in ["decide", "apply", "schedule"] {
        // Agents connect again after a turn that failed; a job that cannot start yet would be accepted.
        c.until_prints("sinfo -h -o %T", "mixed");
        let refused = c.run(&format!(
            "sbatch -J panic-in-{place} -o /dev/null --wrap true"
        ));
        assert_eq!(refused.code, 1, "{place}: {refused:?}");
        assert!(
            refused.err.contains("fault in the controller"),
            "{place}: {refused:?}"
        );
        c.until_prints(&format!("squeue -h -j {before} -o %T"), "RUNNING");
    }
    let tried = c.run("sbatch --test-only -J panic-in-forecast -o /dev/null --wrap true");
    assert!(tried.code != 0 && tried.err.contains("fault"), "{tried:?}");
    assert_eq!(c.ok("ls ../state/quarantine | wc -l"), "3");
    assert_eq!(
        c.ok("stat -c %a ../state/quarantine ../state/quarantine/* | sort -u"),
        "600\n700"
    );
    assert!(
        log(&c).contains("panicked: a fault was injected in apply (at "),
        "with its place"
    );
    // Agents are back, reports are not lost.
    c.write("go", "");
    c.until_prints(&format!("sacct -X -n -P -j {before} -o State"), "COMPLETED");
    c.ok("srun true");
    assert_eq!(c.controller(), pid);
}

#[test]
fn the_controller_starts_without_a_job_that_cannot_be_replayed() {
    let c = with_faults();
    let kept = c.sbatch("-H -o /dev/null --wrap true");
    let poison = c.sbatch("-H -J panic-in-replay -o /dev/null --wrap true");
    c.kill(c.controller());
    let refused = c.run("MUSTER_FAULTS=1 slurmctld");
    assert_eq!(refused.code, 1);
    for words in [
        &format!("JobSubmitted of job {poison}"),
        &format!("--without-job={poison}"),
    ] {
        assert!(refused.err.contains(words), "{refused:?}");
    }
    c.ok(&format!("MUSTER_FAULTS=1 slurmctld --without-job={poison}"));
    assert_eq!(c.ok("squeue -h -o %i"), kept.to_string());
    c.until_prints(
        &format!("sacct -X -n -P -j {poison} -o State | cut -d' ' -f1"),
        "CANCELLED",
    );
    // Once is enough: a snapshot stands for what was left out.
    c.until("the snapshot is written", || {
        // A line of its own: recovery names the one that it began with.
        log(&c).contains("] snapshot at event ")
    });
    c.kill(c.controller());
    c.ok("MUSTER_FAULTS=1 slurmctld");
    assert_eq!(c.ok("squeue -h -o %i"), kept.to_string());
    assert!(
        c.sbatch("-H -o /dev/null --wrap true") > poison,
        "its number is not given again"
    );
}

/// The process ended, and with it each one that was started again.
#[test]
fn a_snapshot_that_panics_ends_nothing() {
    let c = with_faults();
    let kept = c.sbatch("-H -J panic-in-snapshot -o /dev/null --wrap true");
    let poison = c.sbatch("-H -J panic-in-replay -o /dev/null --wrap true");
    c.kill(c.controller());
    // A snapshot is due at once.
    c.ok(&format!("MUSTER_FAULTS=1 slurmctld --without-job={poison}"));
    let pid = c.controller();
    c.until("sdiag says so", || {
        c.ok("sdiag").contains("Snapshots of the state fail since")
    });
    assert!(
        log(&c).contains("no snapshot of the state at event"),
        "{}",
        log(&c)
    );
    assert_eq!(c.ok("squeue -h -o %i"), kept.to_string());
    c.ok("srun true");
    assert_eq!(c.controller(), pid);
}

#[test]
fn a_mail_address_cannot_be_an_option() {
    let c = Cluster::start(1, 1);
    for user in ["-Ssendmail=EVIL", "'|id'", "/etc/passwd", "'a b'"] {
        let refused = c.run(&format!(
            "sbatch -H --mail-type=END --mail-user={user} --wrap true"
        ));
        assert!(
            refused.code != 0 && refused.err.contains("mail"),
            "{user}: {refused:?}"
        );
    }
    let job = c.sbatch("-H --mail-type=END --mail-user=bob@example.org -o /dev/null --wrap true");
    let refused = c.run(&format!("scontrol update job={job} mailuser=-x"));
    assert_ne!(refused.code, 0, "{refused:?}");
}

#[test]
fn a_second_controller_touches_nothing_of_the_first() {
    let c = Cluster::start(1, 1);
    c.ok("sed 's#run/ctld.pid#run/other.pid#' $SLURM_CONF >other.conf");
    let before = c.ok("stat -c '%Y %i' ../state/accounting.db ../state/controller.key");
    let refused = c.run("SLURM_CONF=$PWD/other.conf slurmctld -f $PWD/other.conf");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("is in use by process"), "{refused:?}");
    let after = c.ok("stat -c '%Y %i' ../state/accounting.db ../state/controller.key");
    assert_eq!(before, after);
    c.ok("scontrol ping");
}

#[test]
fn the_service_manager_is_told() {
    let c = Cluster::start(1, 1);
    c.kill(c.controller());
    c.ok("command -v python3");
    c.write(
        "manager.py",
        "import os, socket, subprocess, sys\n\
         s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
         s.bind('\\0muster-e2e-%d' % os.getpid())\n\
         env = dict(os.environ, NOTIFY_SOCKET='@muster-e2e-%d' % os.getpid(), WATCHDOG_USEC='600000')\n\
         ctld = subprocess.Popen(['slurmctld', '-D'], env=env, stderr=subprocess.DEVNULL)\n\
         s.settimeout(60)\n\
         seen = []\n\
         while not (seen.count('READY=1') and seen.count('WATCHDOG=1') >= 2): seen.append(s.recv(100).decode())\n\
         ctld.terminate()\n\
         while 'STOPPING=1' not in seen: seen.append(s.recv(100).decode())\n\
         sys.exit(ctld.wait())\n",
    );
    c.ok("python3 manager.py");
    assert!(
        !log(&c).contains("accounting is still in use"),
        "{}",
        log(&c)
    );
    assert_eq!(c.start_controller().code, 0);
}

#[test]
fn the_service_manager_of_a_node_is_told() {
    let c = Cluster::start(1, 1);
    c.kill(c.agent("n1"));
    c.ok("command -v python3");
    c.write(
        "manager.py",
        "import os, socket, subprocess, sys\n\
         s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
         s.bind('\\0muster-node-e2e-%d' % os.getpid())\n\
         env = dict(os.environ, NOTIFY_SOCKET='@muster-node-e2e-%d' % os.getpid())\n\
         slurmd = subprocess.Popen(['slurmd', '-D', '-N', 'n1'], env=env, stderr=subprocess.DEVNULL)\n\
         s.settimeout(60)\n\
         seen = s.recv(100).decode()\n\
         subprocess.run(['srun', '-N1', 'true'], check=True)\n\
         slurmd.terminate()\n\
         slurmd.wait()\n\
         print(seen)\n",
    );
    assert_eq!(c.ok("python3 manager.py").trim(), "READY=1");
}
