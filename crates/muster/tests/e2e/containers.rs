//! Directories that each job has to itself (`JobContainerType=job_container/tmpfs`), by the kernel that is here. Each attempt to
//! see another job's, or to lead root elsewhere, fails its test if it succeeds.

use crate::cluster::Cluster;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Nodes of this machine with these lines in job_container.conf; none where nothing can be mounted. The cluster's own directory is
/// none of those that jobs have to themselves.
fn contained(nodes: u32, more: &str) -> Option<Cluster> {
    if fs::metadata("/proc/self").map_or(1, |of| of.uid()) != 0 {
        eprintln!("not root, who alone mounts: this test looked at nothing");
        return None;
    }
    let c = Cluster::fresh_below("/var/lib");
    let dir = c.dir.display().to_string();
    c.write(
        "job_container.conf",
        &format!("AutoBasePath=true\nBasePath={dir}/base Dirs=/tmp,/var/tmp,/dev/shm\n{more}"),
    );
    let names: Vec<String> = (1..=nodes).map(|n| format!("n{n}")).collect();
    c.write(
        "given.conf",
        &format!(
            "ClusterName=contained\nJobContainerType=job_container/tmpfs\nPrologFlags=Contain\n\
             AccountingStorageType=accounting_storage/slurmdbd\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n\
             NodeName={} CPUs=4 State=UNKNOWN\nPartitionName=p Nodes=ALL Default=YES\n",
            names.join(",")
        ),
    );
    let given = c.dir.join("given.conf");
    c.up_again(&["-f", given.to_str().unwrap()]);
    // Jobs of others than root write here.
    c.ok("chmod 1777 .");
    Some(c)
}

/// Directories of jobs.
fn left(c: &Cluster) -> Vec<PathBuf> {
    let found = c.run("find base -mindepth 2 -maxdepth 2");
    found.out.lines().map(PathBuf::from).collect()
}

/// Mounts of the node's that are below the cluster's directory.
fn mounts(c: &Cluster) -> String {
    let dir = c.dir.join("base").display().to_string();
    let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let of_cluster = all.lines().filter(|line| line.contains(&dir));
    of_cluster.collect::<Vec<_>>().join("\n")
}

fn as_nobody(command: &str) -> String {
    let quoted = command.replace('\'', "'\\''");
    format!("setpriv --reuid=65534 --regid=65534 --clear-groups bash -c '{quoted}'")
}

#[test]
fn a_job_has_directories_that_nobody_else_sees() {
    let Some(c) = contained(1, "") else { return };
    let mark = format!("muster-mark-{}", std::process::id());
    for dir in ["/tmp", "/var/tmp", "/dev/shm"] {
        fs::write(format!("{dir}/{mark}"), "the node's").unwrap();
    }
    // The first waits until the second has looked.
    let first = c.ok(&as_nobody(&format!(
        "sbatch --parsable -o first.out --wrap 'for d in /tmp /var/tmp /dev/shm; do ls -A $d; stat -c \"%a %u %g\" $d; \
         echo mine >$d/{mark}.first; done; echo scratch $SLURM_JOB_SCRATCH $TMPDIR; \
         srun cat /tmp/{mark}.first /dev/shm/{mark}.first; touch wrote; while [ ! -e looked ]; do sleep 0.05; done'"
    )));
    c.until("the first job has written", || c.dir.join("wrote").exists());
    let steps = c.ok(&format!("squeue -s -h -j {first} -o '%i %j %N' | sort"));
    assert_eq!(
        steps,
        format!("{first}.batch batch n1\n{first}.extern extern n1")
    );
    let second = "ls -A /tmp /var/tmp /dev/shm; find /tmp /var/tmp /dev/shm base -name '*.first' 2>/dev/null; \
                  for p in /proc/[0-9]*; do ls $p/root/tmp 2>/dev/null; done | grep first; \
                  cat base/*/*/dirs/_tmp/*; ls base/*; \
                  for p in /proc/[0-9]*; do nsenter -t ${p#/proc/} -m ls /tmp; done 2>/dev/null | grep first";
    let looked = c.run(&as_nobody(&format!("srun --overlap bash -c \"{second}\"")));
    // Another user's job, too, sees nothing of the first.
    let roots = c.run("srun ls -A /tmp /var/tmp /dev/shm");
    c.write("looked", "");
    c.until_prints(&format!("sacct -X -n -P -j {first} -o State"), "COMPLETED");
    // PrologFlags=Contain.
    c.until_prints(
        &format!("sacct -n -P -j {first} -o JobID,JobName,State,ExitCode"),
        &format!(
            "{first}|wrap|COMPLETED|0:0\n{first}.batch|batch|COMPLETED|0:0\n{first}.extern|extern|COMPLETED|0:0\n\
             {first}.0|cat|COMPLETED|0:0"
        ),
    );
    let out = c.read("first.out");
    assert_eq!(
        out,
        "700 65534 65534\n700 65534 65534\n1777 0 0\nscratch /tmp /tmp\nmine\nmine\n"
    );
    for seen in [&looked, &roots] {
        assert!(!seen.out.contains("first"), "{seen:?}");
        assert!(!seen.out.contains(&mark), "{seen:?}");
    }
    assert!(looked.err.contains("Permission denied"), "{looked:?}");
    // What the node had is as it was, and nothing of the jobs is left.
    for dir in ["/tmp", "/var/tmp", "/dev/shm"] {
        assert_eq!(
            fs::read_to_string(format!("{dir}/{mark}")).unwrap(),
            "the node's"
        );
        assert!(fs::metadata(format!("{dir}/{mark}.first")).is_err());
        fs::remove_file(format!("{dir}/{mark}")).unwrap();
    }
    c.until("all is removed", || left(&c).is_empty());
    assert_eq!(mounts(&c), "");
}

#[test]
fn steps_of_a_job_share_its_directories_on_each_node() {
    let Some(c) = contained(2, "") else { return };
    // Each node has its own; all that runs of the job there sees it.
    let out = c.ok(
        "salloc -Q -N2 --ntasks-per-node=2 bash -c 'srun bash -c \"echo \\$SLURMD_NODENAME >>/tmp/names\"; \
         srun -l -N2 --ntasks-per-node=1 cat /tmp/names | sort; srun -N1 -n1 -w n2 --pty tail -n1 /tmp/names; \
         echo text >file; sbcast file /tmp/copied; srun -N2 --ntasks-per-node=1 cat /tmp/copied; \
         srun -N1 -n1 -w n1 -o /tmp/out.%t echo to-file; srun -N1 -n1 -w n1 cat /tmp/out.0'",
    );
    assert_eq!(
        out.replace('\r', ""),
        "0: n1\n0: n1\n1: n2\n1: n2\nn2\ntext\ntext\nto-file"
    );
    // A file of the script's in a directory of its own goes with the job; the node's has none of that name.
    let job = c.sbatch(
        "-o /tmp/gone.%j -e err --wrap 'echo x; cat /tmp/gone.$SLURM_JOB_ID >copy; ls /tmp >list'",
    );
    c.until_prints(&format!("sacct -X -n -P -j {job} -o State"), "COMPLETED");
    assert_eq!(c.read("copy"), "x\n");
    assert_eq!(c.read("list"), format!("gone.{job}\n"));
    assert!(fs::metadata(format!("/tmp/gone.{job}")).is_err());
    // Programs of the site run outside, tasks' prologs inside.
    c.until("all is removed", || left(&c).is_empty());
}

#[test]
fn nothing_that_a_job_leaves_leads_root_elsewhere() {
    let Some(c) = contained(1, "") else { return };
    c.ok("mkdir -p victim/below; echo kept >victim/below/file; chmod -R a+rwX victim");
    let victim = c.dir.join("victim").display().to_string();
    c.ok(&as_nobody(&format!(
        "sbatch -W -o out --wrap 'cd /tmp; ln -s /etc etc; ln -s {victim} victim; mkdir -p a/b; ln -s {victim} a/b/dirs; \
         ln -s ../../../../../../../../../etc a/up; ln {victim}/below/file hard 2>/dev/null; chmod 000 a/b; mkfifo fifo; \
         d=.; for i in $(seq 300); do d=$d/dddddddddd; done; mkdir -p $d 2>/dev/null; \
         setsid sleep 1000 & unshare -Urm bash -c \"mount -t tmpfs none /tmp/a; sleep 1000\" & sleep 0.3'"
    )));
    c.until("all is removed", || left(&c).is_empty());
    assert_eq!(mounts(&c), "");
    assert_eq!(c.read("victim/below/file"), "kept\n");
    assert!(fs::metadata("/etc/passwd").is_ok());
    // What else has the name of a job's directory is not taken for one.
    let of_node = fs::read_dir(c.dir.join("base"))
        .unwrap()
        .flatten()
        .next()
        .unwrap();
    assert_eq!(
        of_node.metadata().unwrap().permissions().mode() & 0o7777,
        0o700
    );
}

/// A job with 20,000 nested directories kept its node for half a minute, and others waited for it.
#[test]
fn a_node_is_free_before_directories_are_removed() {
    let Some(c) = contained(1, "") else { return };
    c.ok("sbatch -W -o /dev/null --wrap true");
    c.until("all is removed", || left(&c).is_empty());
    let of_node = fs::read_dir(c.dir.join("base")).unwrap().next().unwrap();
    // As another process that removes much.
    let removing = fs::File::open(of_node.unwrap().path()).unwrap();
    removing.lock().unwrap();
    c.ok(&as_nobody(
        "sbatch -W -o /dev/null --wrap 'mkdir -p /tmp/a/b'",
    ));
    c.until("the node is free", || c.ok("sinfo -h -o %t") == "idle");
    let names = left(&c);
    let is_gone = |path: &PathBuf| {
        path.file_name()
            .unwrap()
            .as_encoded_bytes()
            .starts_with(b".gone.")
    };
    assert!(!names.is_empty() && names.iter().all(is_gone), "{names:?}");
    drop(removing);
    c.ok("sbatch -W -o /dev/null --wrap true");
    c.until("all is removed", || left(&c).is_empty());
    assert_eq!(mounts(&c), "");
}

#[test]
fn what_killed_daemons_leave_goes() {
    let Some(c) = contained(1, "") else { return };
    let job = c.sbatch("-o job.out --wrap 'echo before >/tmp/file; touch wrote; while [ ! -e go ]; do sleep 0.05; done; cat /tmp/file; srun cat /tmp/file'");
    c.until("the job has written", || c.dir.join("wrote").exists());
    let of_node = fs::read_dir(c.dir.join("base"))
        .unwrap()
        .flatten()
        .next()
        .unwrap();
    let unknown = of_node.path().join("4711.1");
    c.ok(&format!(
        "mkdir -p {0}/dirs/_tmp; ln -s /etc {0}/dirs/_tmp/etc; touch {0}/.ns; mount --bind {0} {0}",
        unknown.display()
    ));
    let shim = |c: &Cluster| {
        let text = fs::read_to_string(c.path("spool.n1/shim.pid")).unwrap();
        text.trim().parse::<i32>().unwrap()
    };
    c.kill(c.agent("n1"));
    c.kill(shim(&c));
    // The node is there before all is removed: somebody goes on adding to it.
    let (adding, top) = (Arc::new(AtomicBool::new(true)), unknown.clone());
    let is_on = Arc::clone(&adding);
    let adds = thread::spawn(move || {
        for number in 0.. {
            if !is_on.load(Ordering::Relaxed)
                || fs::create_dir(top.join(number.to_string())).is_err()
            {
                return;
            }
        }
    });
    c.ok("slurmd -N n1");
    adding.store(false, Ordering::Relaxed);
    adds.join().unwrap();
    // What is not known goes; what is known goes on, and its steps find its directories.
    c.until("the unknown is removed", || left(&c).len() == 1);
    assert!(!unknown.exists());
    assert!(fs::metadata("/etc/passwd").is_ok());
    c.write("go", "");
    c.until("the job has ended", || {
        c.read_if_there("job.out").lines().count() == 2
    });
    assert_eq!(c.read("job.out"), "before\nbefore\n");
    c.until("the job's are removed", || left(&c).is_empty());
    // A job that ends while nobody looks.
    let other = c.sbatch("--no-requeue --wrap 'echo $$ >pid.new; mv pid.new pid; sleep 1000'");
    c.until("it has begun", || c.dir.join("pid").exists());
    c.kill(c.agent("n1"));
    c.kill(shim(&c));
    c.kill(c.read("pid").trim().parse().unwrap());
    c.ok("slurmd -N n1");
    c.until("its directories are removed", || left(&c).is_empty());
    assert_eq!(mounts(&c), "");
    let _ = c.run(&format!("scancel {job} {other}"));
}

#[test]
fn programs_of_the_site_make_and_end_them() {
    let Some(c) = contained(
        1,
        "InitScript=/DIR/init CloneNSScript=/DIR/clone CloneNSEpilog=/DIR/end CloneNSEpilog_Wait=5\n",
    ) else {
        return;
    };
    let dir = c.dir.display().to_string();
    let conf = c.read("job_container.conf").replace("/DIR", &dir);
    c.write("../job_container.conf", &conf);
    for (name, text) in [
        (
            "init",
            "echo init $SLURM_JOB_ID $SLURMD_NODENAME; test ! -e $SLURM_JOB_MOUNTPOINT_SRC || echo too late",
        ),
        (
            "clone",
            "nsenter --mount=$SLURM_NS sh -c 'echo of the site >/tmp/given; chmod 644 /tmp/given'",
        ),
        (
            "end",
            "nsenter --mount=$SLURM_NS cat /tmp/left; echo end $SLURM_JOB_ID",
        ),
    ] {
        c.write(
            name,
            &format!("#!/bin/sh\nexec >>{dir}/programs.log 2>&1\n{text}\n"),
        );
        c.ok(&format!("chmod 755 {name}"));
    }
    c.ok("scontrol reconfigure");
    let job = c.sbatch("-o out --wrap 'cat /tmp/given; echo left >/tmp/left'");
    c.until_prints(&format!("sacct -X -n -P -j {job} -o State"), "COMPLETED");
    assert_eq!(c.read("out"), "of the site\n");
    c.until("all is removed", || left(&c).is_empty());
    assert_eq!(
        c.read("programs.log"),
        format!("init {job} n1\nleft\nend {job}\n")
    );
    // One that fails is the node's fault, and leaves nothing.
    c.write("clone", "#!/bin/sh\nexit 3\n");
    let failed = c.sbatch("--no-requeue --wrap true");
    c.until_prints("sinfo -h -o %t", "drain");
    let why = c.ok("scontrol show node n1");
    assert!(
        why.contains("directories of the job cannot be made"),
        "{why}"
    );
    c.until("all is removed", || left(&c).is_empty());
    assert_eq!(mounts(&c), "");
    let _ = c.run(&format!("scancel {failed}"));
}

/// Ranks of a node share memory by name and by MPI's windows, and one copies from another's memory.
const SHARE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
int main(int argc, char **argv) {
  int rank, here, on_node;
  MPI_Comm node;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &here);
  MPI_Comm_size(node, &on_node);
  if (here == 0) {
    int fd = shm_open("/muster-e2e-shared", O_CREAT | O_EXCL | O_RDWR, 0600);
    if (fd < 0 || ftruncate(fd, 4096)) return 3;
    char *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    strcpy(at, "by name");
  }
  MPI_Barrier(node);
  char *name = mmap(0, 4096, PROT_READ, MAP_SHARED, shm_open("/muster-e2e-shared", O_RDONLY, 0), 0);
  char *window;
  MPI_Win win;
  MPI_Win_allocate_shared(here ? 0 : 64, 1, MPI_INFO_NULL, node, &window, &win);
  MPI_Aint size;
  int unit;
  MPI_Win_shared_query(win, 0, &size, &unit, &window);
  MPI_Win_fence(0, win);
  if (here == 0) strcpy(window, "by window");
  MPI_Win_fence(0, win);
  static char text[64], copied[64];
  long place[2] = {getpid(), (long)text};
  if (here == 0) strcpy(text, "by copy");
  MPI_Bcast(place, 2, MPI_LONG, 0, node);
  struct iovec own = {copied, 64}, other = {(void *)place[1], 64};
  if (process_vm_readv(place[0], &own, 1, &other, 1, 0) != 64) perror("process_vm_readv");
  printf("%d: %d of %d: %s, %s, %s\n", rank, here, on_node, name, window, copied);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_free(&win);
  MPI_Finalize();
  return 0;
}
"#;

#[test]
fn mpi_ranks_of_a_node_share_memory() {
    let Some(c) = contained(2, "") else { return };
    c.write("share.c", SHARE);
    c.ok("mpicc -o share share.c");
    // Two jobs use the same name at the same time, and so do the two nodes on this machine.
    let other = c.sbatch("-n2 -o other.out --wrap 'srun --mpi=pmix ./share | sort -n'");
    let out = c.ok("srun --mpi=pmix -N2 -n4 --ntasks-per-node=2 ./share | sort -n");
    let line = |rank: u32| format!("{rank}: {} of 2: by name, by window, by copy", rank % 2);
    assert_eq!(out, (0..4).map(line).collect::<Vec<_>>().join("\n"));
    c.until_prints(&format!("sacct -X -n -P -j {other} -o State"), "COMPLETED");
    assert_eq!(c.read("other.out"), format!("{}\n{}\n", line(0), line(1)));
    assert!(fs::metadata("/dev/shm/muster-e2e-shared").is_err());
    c.until("all is removed", || left(&c).is_empty());
}

#[test]
fn messages_reach_a_script_whose_output_is_in_its_own_directory() {
    let Some(c) = contained(1, "") else { return };
    let job = c.sbatch(
        "-o /tmp/out -e /tmp/err --wrap 'trap \"cp /tmp/err $PWD/copy; mv $PWD/copy $PWD/err; exit 0\" TERM; \
         touch began; while true; do sleep 0.05; done'",
    );
    c.until("it has begun", || c.dir.join("began").exists());
    c.ok(&format!("scancel {job}"));
    c.until("it has ended", || c.dir.join("err").exists());
    assert!(
        c.read("err")
            .contains(&format!("*** JOB {job} ON n1 CANCELLED AT")),
        "{}",
        c.read("err")
    );
}

#[test]
fn prologs_and_epilogs_run_one_at_a_time_where_the_site_wants_that() {
    let c = Cluster::fresh();
    let dir = c.dir.display().to_string();
    for name in ["prolog", "epilog"] {
        // Another that runs has the directory.
        c.write(
            name,
            &format!(
                "#!/bin/sh\nmkdir {dir}/running || echo together >>{dir}/programs\nsleep 0.05\necho {name} >>{dir}/programs\n\
                 rmdir {dir}/running\n"
            ),
        );
        c.ok(&format!("chmod 755 {name}"));
    }
    // More than one, by name and by pattern, in their order.
    for name in ["more.1", "more.2"] {
        c.write(
            name,
            &format!("#!/bin/sh\necho {name} $SLURM_JOB_ID >>{dir}/order\n"),
        );
        c.ok(&format!("chmod 755 {name}"));
    }
    c.write(
        "given.conf",
        &format!(
            "ClusterName=serial\nPrologFlags=Serial\nProlog={dir}/prolog\nProlog={dir}/more.*\nEpilog={dir}/epilog\nNodeName=n1 CPUs=8 State=UNKNOWN\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nPartitionName=p Nodes=ALL Default=YES\n"
        ),
    );
    let given = c.dir.join("given.conf");
    c.up_again(&["-f", given.to_str().unwrap()]);
    c.ok("sbatch -W --array=1-12 -o /dev/null --wrap true");
    c.until("all epilogs are over", || {
        c.read("programs").matches("epilog").count() == 12
    });
    let programs = c.read("programs");
    assert_eq!(programs.matches("prolog").count(), 12, "{programs}");
    assert!(!programs.contains("together"), "{programs}");
    let order = c.read("order");
    let lines: Vec<&str> = order.lines().collect();
    assert_eq!(lines.len(), 24, "{order}");
    for pair in lines.chunks(2) {
        let job = pair[0]
            .strip_prefix("more.1 ")
            .expect("the first comes first");
        assert_eq!(pair[1], format!("more.2 {job}"));
    }
}

#[test]
fn a_directory_that_hides_the_cluster_is_refused() {
    let c = Cluster::fresh();
    c.write("job_container.conf", "BasePath=/var/lib/none\n");
    c.write(
        "given.conf",
        "ClusterName=contained\nJobContainerType=job_container/tmpfs\nNodeName=n1 CPUs=1 State=UNKNOWN\n\
         PartitionName=p Nodes=ALL Default=YES\n",
    );
    let given = c.dir.join("given.conf");
    let refused = c.muster("up", &["-f", given.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    assert!(
        said.contains("job_container.conf has /tmp in Dirs, and SlurmdSpoolDir is /tmp/"),
        "{said}"
    );
}

/// The temporary directory of a job of qsub is made where the job finds it: in its own /tmp, if `TmpFS` is there.
#[test]
fn a_job_of_qsub_has_its_temporary_directory_among_them() {
    let Some(c) = contained(1, "") else { return };
    c.write(
        "job.sh",
        "#!/bin/sh\n#$ -cwd -j y -N tmp\necho $TMPDIR; stat -c '%u %a' $TMPDIR; echo text >$TMPDIR/file\n",
    );
    let conf = c.path("slurm.conf");
    let beside = c.path("tmp.n1");
    for (number, place) in [(1, beside.as_path()), (2, Path::new("/tmp"))] {
        c.ok(&format!(
            "sed -i '/^TmpFS=/d' {0}; echo TmpFS={1} >>{0}; scontrol reconfigure",
            conf.display(),
            place.display()
        ));
        let ran = c.run(&as_nobody("qsub -sync y job.sh"));
        assert_eq!(ran.code, 0, "{ran:?}");
        let path = place.join(format!("{number}.1.all.q"));
        assert_eq!(
            c.read(&format!("tmp.o{number}")),
            format!("{}\n65534 700\n", path.display())
        );
        c.until("it is gone", || !path.exists() && left(&c).is_empty());
    }
}
