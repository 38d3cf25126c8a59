//! Two clusters whose accounting is copied to one MariaDB, with munge: each knows the other, and commands ask either (`--clusters`).

use crate::slurmdbd::Server;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time for the daemons to be there, and for the clusters to know of each other.
const PATIENCE: Duration = Duration::from_secs(60);

/// Both, until they are dropped.
struct Clusters {
    dir: PathBuf,
    daemons: Vec<Child>,
}

impl Drop for Clusters {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        // Launchers outlive their agents.
        let pattern = format!("{}/", self.dir.display());
        let _ = Command::new("pkill").args(["-9", "-f", &pattern]).status();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Clusters {
    fn start(database: &str) -> Clusters {
        let dir = std::env::temp_dir().join(format!("muster-clusters-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("munge")).unwrap();
        let mut clusters = Clusters {
            dir,
            daemons: Vec::new(),
        };
        clusters.munged();
        let muster = env!("CARGO_BIN_EXE_muster");
        clusters.sh(&format!("{muster} install bin && chmod 755 . munge"));
        for name in ["alpha", "beta"] {
            clusters.write(name, database);
            clusters.daemon(name, "slurmctld -D");
            clusters.daemon(name, &format!("slurmd -D -N {name}1"));
            clusters.until("the node is idle", || {
                clusters.on(name, "sinfo -h -o %t") == "idle"
            });
        }
        clusters
    }

    fn munged(&mut self) {
        self.sh("head -c 64 /dev/urandom > munge.key && chmod 600 munge.key");
        let at = |name: &str| self.dir.join(name).display().to_string();
        let child = Command::new("munged")
            .args(["--foreground", "--force"])
            .arg(format!("--key-file={}", at("munge.key")))
            .arg(format!("--socket={}", at("munge/socket")))
            .arg(format!("--pid-file={}", at("munge.pid")))
            .arg(format!("--seed-file={}", at("munge.seed")))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.daemons.push(child);
        let socket = self.dir.join("munge/socket");
        self.until("munged listens", || socket.exists());
    }

    fn write(&self, name: &str, database: &str) {
        let dir = self.dir.join(name);
        std::fs::create_dir(&dir).unwrap();
        let (all, at) = (self.dir.display(), dir.display());
        let conf = format!(
            "ClusterName={name}\nSlurmctldHost=localhost\nSlurmctldPort={}\nSlurmdPort={}\nSlurmUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={all}/munge/socket\nStateSaveLocation={at}/state\n\
             SlurmdSpoolDir={at}/spool\nSlurmctldPidFile={at}/ctld.pid\nSlurmdPidFile={at}/slurmd.pid\n\
             SlurmctldLogFile={at}/ctld.log\nSlurmdLogFile={at}/slurmd.log\n\
             AccountingStorageType=accounting_storage/slurmdbd\n\
             NodeName={name}1 NodeAddr=localhost CPUs=2 RealMemory=500\nPartitionName=p Nodes=ALL Default=YES\n",
            free_port(),
            free_port()
        );
        std::fs::write(dir.join("slurm.conf"), conf).unwrap();
        let conf = format!("{database}LogFile={at}/dbd.log\nPidFile={at}/dbd.pid\n");
        std::fs::write(dir.join("slurmdbd.conf"), conf).unwrap();
        self.sh(&format!("chmod 600 {name}/slurmdbd.conf"));
    }

    fn command(&self, cluster: &str, script: &str) -> Command {
        let dir = self.dir.display();
        let mut command = Command::new("bash");
        let words = format!(
            "cd {dir}; export SLURM_CONF={dir}/{cluster}/slurm.conf PATH={dir}/bin:$PATH; {script}"
        );
        command.args(["-c", &words]).stdin(Stdio::null());
        command
    }

    fn daemon(&mut self, cluster: &str, words: &str) {
        let mut command = self.command(cluster, &format!("exec {words}"));
        let daemon = command.stdout(Stdio::null()).stderr(Stdio::null());
        let daemon = daemon.spawn().unwrap();
        self.daemons.push(daemon);
    }

    /// Output of a script, with its errors, where a cluster is the own one.
    fn on(&self, cluster: &str, script: &str) -> String {
        let mut command = self.command(cluster, &format!("exec 2>&1; {script}"));
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn sh(&self, script: &str) {
        let status = Command::new("bash")
            .args(["-c", script])
            .current_dir(&self.dir)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{script}");
    }

    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < until, "{what}: not within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn commands_ask_another_cluster_of_the_same_database() {
    if !Path::new("/usr/sbin/munged").exists() {
        eprintln!("there is no munged: this test looked at nothing");
        return;
    }
    let Some(server) = Server::start(true) else {
        return;
    };
    let mut c = Clusters::start(&server.conf());
    let unknown = c.on("alpha", "squeue -M beta; echo $?");
    assert!(
        unknown.contains("No cluster 'beta' known by database") && unknown.ends_with('1'),
        "{unknown}"
    );
    // The second knows the first when it looks first; the first learns of it when it looks again.
    for name in ["alpha", "beta"] {
        c.daemon(name, "slurmdbd -D");
        c.until("it copies", || {
            let log = std::fs::read_to_string(c.dir.join(name).join("dbd.log"));
            log.is_ok_and(|log| log.contains("what comes follows"))
        });
    }
    let clusters = "sacctmgr -nP show cluster format=cluster,controlhost";
    for name in ["beta", "alpha"] {
        c.until("it knows the other", || {
            c.on(name, clusters) == "alpha|localhost\nbeta|localhost"
        });
    }
    lists_both(&c);
    keeps_records_of_both(&c);
    submits_to_the_other(&c);
    starts_where_it_starts_first(&c);
}

fn lists_both(c: &Clusters) {
    assert_eq!(
        c.on("alpha", "sinfo -M all -o %N"),
        "CLUSTER: alpha\nNODELIST\nalpha1\n\nCLUSTER: beta\nNODELIST\nbeta1"
    );
    assert_eq!(c.on("beta", "sinfo -h -M alpha -o %N"), "alpha1");
    assert_eq!(
        c.on("alpha", "sinfo -h -M beta,all,beta -o %N"),
        "beta1\nalpha1"
    );
    let several = c.on("alpha", "sinfo --json -M all; scontrol -M all show nodes");
    assert_eq!(
        several,
        "sinfo: error: a document (--json, --yaml) is of one cluster; name one with --clusters\n\
         scontrol: fatal: Only one cluster can be used at a time with scontrol"
    );
}

/// Each controller keeps the records of its cluster; sacctmgr of either shows and changes both. QOS are the same on all.
fn keeps_records_of_both(c: &Clusters) {
    let add = "sacctmgr -iQ add account chem cluster=beta; sacctmgr -iQ add account bio cluster=alpha,beta; \
               sacctmgr -iQ add user nobody account=chem cluster=beta; sacctmgr -iQ add qos night; \
               sacctmgr -iQ modify cluster beta set fairshare=7";
    c.on("alpha", add);
    let of_beta = "sacctmgr -nP show assoc cluster=beta format=cluster,account,user,fairshare";
    let shown = c.on("alpha", of_beta);
    assert_eq!(
        shown,
        "beta|root||7\nbeta|root|root|1\nbeta|bio||1\nbeta|chem||1\nbeta|chem|nobody|1"
    );
    assert_eq!(c.on("beta", of_beta), shown);
    for cluster in ["alpha", "beta"] {
        let qos = c.on(cluster, "sacctmgr -nP show qos format=name");
        assert_eq!(qos, "normal\nnight", "{cluster}");
    }
    // The records are not in two places.
    c.on("beta", "sacctmgr -iQ delete account chem,bio cluster=beta");
    assert_eq!(
        c.on(
            "alpha",
            "sacctmgr -nP show assoc format=cluster,account,user"
        ),
        "alpha|root|\nalpha|root|root\nalpha|bio|\nbeta|root|\nbeta|root|root"
    );
    c.on(
        "beta",
        "sacctmgr -iQ delete qos night; sacctmgr -iQ delete account bio cluster=alpha",
    );
    assert_eq!(c.on("alpha", "sacctmgr -nP show qos format=name"), "normal");
}

fn submits_to_the_other(c: &Clusters) {
    let script = "printf '#!/bin/sh\\n#SBATCH -M beta -o out\\necho $SLURM_CLUSTER_NAME; srun hostname\\n' | sbatch";
    assert_eq!(
        c.on("alpha", script),
        "Submitted batch job 1 on cluster beta"
    );
    c.until("it is over", || {
        c.on("alpha", "sacct -M beta -nX -j 1 -o state")
            .contains("COMPLETED")
    });
    assert!(c.on("alpha", "cat out").starts_with("beta\n"));
    assert_eq!(
        c.on("alpha", "srun -M beta sh -c 'echo $SLURMD_NODENAME'"),
        "beta1"
    );
    // A step in an allocation of the other is that one's as well.
    let allocated = c.on(
        "alpha",
        "salloc -Q -M beta sh -c 'srun sh -c \"echo \\$SLURMD_NODENAME\"'",
    );
    assert_eq!(allocated, "beta1");
    let held = c.on(
        "alpha",
        "sbatch --parsable -M beta -H -o /dev/null --wrap true",
    );
    assert_eq!(held, "4;beta");
    let shown = c.on(
        "alpha",
        "squeue -h -M beta -o %i.%T; scontrol -M beta show job 4",
    );
    assert!(shown.starts_with("4.PENDING\nJobId=4 "), "{shown}");
    assert_eq!(c.on("alpha", "squeue -h"), "");
    assert_eq!(c.on("alpha", "scancel -M beta 4; squeue -h -M beta"), "");
    let jobs = c.on("alpha", "sacct -L -nXP -o cluster,jobid");
    assert_eq!(jobs, "beta|1\nbeta|2\nbeta|3");
}

fn starts_where_it_starts_first(c: &Clusters) {
    let submit = "sbatch -n2 -t 10 -M alpha,beta -o /dev/null --wrap 'sleep 100'";
    let running = |cluster: &str| {
        let listed = format!("squeue -h -M {cluster} -t R -o %i");
        c.until("it runs", || !c.on("alpha", &listed).is_empty());
    };
    assert_eq!(
        c.on("alpha", submit),
        "Submitted batch job 1 on cluster alpha"
    );
    running("alpha");
    assert_eq!(
        c.on("alpha", submit),
        "Submitted batch job 5 on cluster beta"
    );
    running("beta");
    c.on("alpha", "scancel -M alpha 1; scancel -M beta 5");
    for cluster in ["alpha", "beta"] {
        c.until("all is over", || c.on(cluster, "squeue -h").is_empty());
    }
}
