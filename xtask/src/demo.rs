//! `cargo xtask demo`: builds Muster, starts a cluster on this machine, runs a batch job over two nodes, an array and
//! an srun over all nodes, shows the listings, and says how to go on.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the demonstration. The cluster stays up.
pub(crate) fn run() -> Result<()> {
    let muster = crate::build::quick()?;
    ensure!(
        Command::new(&muster)
            .args(["up", "--nodes", "4"])
            .status()?
            .success(),
        "muster up failed"
    );
    let output = Command::new(&muster).arg("env").output()?;
    let env = String::from_utf8(output.stdout)?;
    let dir = scratch()?;
    std::fs::write(dir.join("hello.sh"), HELLO)?;
    for line in SCENE.lines().filter(|l| !l.is_empty()) {
        println!("\n$ {line}");
        let script = format!("{env}\n{line}");
        let status = Command::new("bash")
            .args(["-c", &script])
            .current_dir(&dir)
            .status()?;
        ensure!(status.success(), "'{line}' failed with {status}");
    }
    println!(
        "\nThe cluster is up. To go on:\n\n  eval \"$({0} env)\"\n  sinfo; squeue; sbatch --wrap hostname; sacct\n\n'{0} down' stops it.",
        muster.display()
    );
    Ok(())
}

const HELLO: &str = "#!/bin/bash\n#SBATCH --job-name=hello --nodes=2 --ntasks=2 --output=hello.out\necho \"batch script on $SLURMD_NODENAME of $SLURM_JOB_NODELIST\"\nsrun bash -c 'echo \"task $SLURM_PROCID on $SLURMD_NODENAME\"'\n";

const SCENE: &str = "\
sinfo
sbatch --wait hello.sh
cat hello.out
sbatch --wait --array=1-100 --output=/dev/null --wrap 'true'
srun --nodes=4 --label bash -c 'echo hello from $SLURMD_NODENAME'
squeue
sacct --allocations | tail -5
";

fn scratch() -> Result<PathBuf> {
    let dir = Path::new("target/demo");
    std::fs::create_dir_all(dir).context("cannot create target/demo")?;
    Ok(std::fs::canonicalize(dir)?)
}
