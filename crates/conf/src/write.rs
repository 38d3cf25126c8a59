//! Writes the slurm.conf of a private cluster, as `muster up` needs it.

use std::fmt::Write as _;
use std::path::Path;

/// Settings of a private cluster.
#[derive(Debug, Clone)]
pub struct PrivateClusterConfig<'a> {
    /// Name of this host; all nodes are on it.
    pub host: &'a str,
    /// Port of the controller; node agents have those from `port + 10`.
    pub port: u16,
    /// User that everything runs as.
    pub user: &'a str,
    /// Directory that everything is kept in.
    pub home: &'a Path,
    /// Number of nodes.
    pub nodes: u32,
    /// CPUs of each node.
    pub cpus: u32,
    /// Memory of each node in MiB.
    pub memory_mib: u64,
    /// The file with the key of users' tokens, if there are to be any: the controller listens at `port` of this host alone then.
    pub token_key: Option<&'a Path>,
}

/// The text of the slurm.conf.
pub fn write_minimal(minimal: &PrivateClusterConfig<'_>) -> String {
    let PrivateClusterConfig {
        host,
        port,
        user,
        nodes,
        cpus,
        memory_mib,
        ..
    } = *minimal;
    let home = minimal.home.display();
    let names = if nodes == 1 {
        "n1".to_owned()
    } else {
        format!("n[1-{nodes}]")
    };
    let mut text = format!(
        "# A private cluster, written by `muster up`. Edit it as any slurm.conf.\n\
         ClusterName=muster\n\
         SlurmctldHost={host}(127.0.0.1)\n\
         SlurmctldPort={port}\n\
         SlurmUser={user}\n\
         StateSaveLocation={home}/state\n\
         SlurmdSpoolDir={home}/spool.%n\n\
         SlurmctldPidFile={home}/run/ctld.pid\n\
         SlurmdPidFile={home}/run/noded.%n.pid\n\
         SlurmctldLogFile={home}/log/ctld.log\n\
         SlurmdLogFile={home}/log/noded.%n.log\n\
         ReturnToService=2\n\
         AccountingStorageType=accounting_storage/slurmdbd\n\
         SchedulerType=sched/backfill\n\
         SelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core_Memory\n\
         DefMemPerCPU={}\n",
        (memory_mib / u64::from(cpus.max(1))).max(1),
    );
    if let Some(key) = minimal.token_key {
        writeln!(
            text,
            "CommunicationParameters=NoCtldInAddrAny\nAuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={}",
            key.display()
        )
        .expect("writing to a String cannot fail");
    }
    writeln!(
        text,
        "NodeName={names} NodeHostname={host} NodeAddr=127.0.0.1 CPUs={cpus} Sockets=1 \
         CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory={memory_mib} State=UNKNOWN\n\
         PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
    )
    .expect("writing to a String cannot fail");
    text
}
