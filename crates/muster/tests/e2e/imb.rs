//! The Intel MPI Benchmarks' ping-pong over two nodes, by a job script that uses srun and by one that uses mpirun. Intel's
//! runtime, which brings the benchmarks, comes from the Python package index and is kept beside what is built.

use crate::cluster::Cluster;
use crate::packages;

const PACKAGE: &str = "impi-rt==2021.18.1";

#[test]
fn ping_pong_of_two_nodes_runs_by_srun_and_by_mpirun() {
    let Some(at) = packages::installed(PACKAGE) else {
        return;
    };
    let at = at.display();
    let c = Cluster::from_conf(
        "ClusterName=sltest\nSelectType=select/linear\nMpiDefault=pmix\nTaskPlugin=task/affinity\n\
         AccountingStorageType=accounting_storage/slurmdbd\n\
         NodeName=inst-aaaaa-x9,inst-bbbbb-x9 CPUs=2 State=UNKNOWN\n\
         PartitionName=sltest Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
    );
    let env = format!(
        "export PATH=$PATH:{at}/bin LD_LIBRARY_PATH={at}/lib FI_PROVIDER_PATH={at}/lib FI_PROVIDER=tcp I_MPI_ROOT={at}"
    );
    // By itself it gives up a size after ten seconds, which pass on a machine that has much else to do.
    let benchmark = format!("{at}/bin/IMB-MPI1 -msglog 28:28 -time 100 pingpong");
    let scripts = [
        ("srun.sh", format!("srun {benchmark}")),
        (
            "mpirun.sh",
            format!("{at}/bin/mpirun -n 2 -ppn 1 {benchmark}"),
        ),
    ];
    for (name, line) in scripts {
        c.write(
            name,
            &format!(
                "#!/bin/bash\n#SBATCH -p sltest\n#SBATCH -n 2\n#SBATCH -N 2\n#SBATCH -J ping_ping\n\
                 #SBATCH -o stdout.%J\n#SBATCH -e stderr.%J\n{line}\n"
            ),
        );
        let job = c.ok(&format!("{env}; sbatch -W --parsable {name}"));
        let out = c.read(&format!("stdout.{job}"));
        let err = c.read_if_there(&format!("stderr.{job}"));
        assert!(out.contains("# #processes = 2"), "{name}: {out}{err}");
        // The sizes, and that the larger took longer.
        let rows: Vec<Vec<f64>> = out
            .lines()
            .skip_while(|l| !l.contains("t[usec]"))
            .skip(1)
            .map_while(|l| l.split_whitespace().map(|w| w.parse().ok()).collect())
            .filter(|row: &Vec<f64>| row.len() == 4)
            .collect();
        let sizes: Vec<f64> = rows.iter().map(|row| row[0]).collect();
        assert_eq!(sizes, [0.0, f64::from(1 << 28)], "{name}: {out}");
        assert!(rows[0][2] > 0.0 && rows[1][2] > rows[0][2], "{name}: {out}");
        println!("{name}: {:.2} us, {:.0} MB/s", rows[0][2], rows[1][3]);
    }
    c.until_prints(
        "sacct -n -P -j 1 -o JobID,State,AllocCPUS",
        "1|COMPLETED|4\n1.batch|COMPLETED|2\n1.0|COMPLETED|4",
    );
}
