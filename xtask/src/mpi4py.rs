//! `cargo xtask mpi4py`: the test suite of mpi4py, from the package index, started by srun over two nodes and by mpirun
//! over the same two. Whatever passes under mpirun has to pass under srun; what fails under both is Open MPI's own.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The version that is tried.
const VERSION: &str = "4.1.2";
/// Nodes are emulated on one machine: ranks of different ones must not use its memory. What is left goes by TCP.
const APART: &str = "export OMPI_MCA_btl=self,tcp OMPI_MCA_pml=ob1 OMPI_MCA_osc=^ucx OMPI_MCA_mpi_yield_when_idle=1 \
                     MPI4PY_MPIABI=openmpi OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
/// Started in an allocation of two nodes and four tasks, each with room for what tests spawn.
const LAUNCHERS: [(&str, &str); 2] = [
    ("mpirun", "mpirun --oversubscribe --map-by node -n 4"),
    ("srun", "srun --mpi=pmix -N2 -n4"),
];

/// How a file of tests went.
#[derive(Debug, PartialEq)]
struct Outcome {
    /// Tests that ran, of all ranks.
    ran: u32,
    /// Of these, those that found that they do not apply.
    skipped: u32,
    /// Failed tests, by name.
    failed: BTreeSet<String>,
    /// It did not come to its end: how.
    broken: Option<String>,
}

/// Runs the files of tests whose names are given (`test_spawn`), or all.
pub(crate) fn run(names: &[String]) -> Result<()> {
    let muster = crate::build::muster(crate::build::Profile::Dev)?;
    let muster = fs::canonicalize(muster)?;
    let place = target().join("mpi4py");
    fs::create_dir_all(&place)?;
    let place = fs::canonicalize(place)?;
    let suite = install(&place)?;
    let files = tests(&suite, names)?;
    let cluster = Cluster::up(&place, muster)?;
    let mut worse = Vec::new();
    let mut sums = [(0, 0, 0); 2];
    for file in &files {
        let outcomes = LAUNCHERS.map(|(_, command)| cluster.attempt(&suite, file, command));
        let [by_mpirun, by_srun] = outcomes;
        let (by_mpirun, by_srun) = (by_mpirun?, by_srun?);
        for (sum, outcome) in sums.iter_mut().zip([&by_mpirun, &by_srun]) {
            sum.0 += outcome.ran;
            sum.1 += outcome.skipped;
            sum.2 += u32::from(outcome.is_good());
        }
        println!("{file:<28} mpirun: {by_mpirun}; srun: {by_srun}");
        let fails_only_here = by_srun
            .failed
            .difference(&by_mpirun.failed)
            .next()
            .is_some();
        let breaks_only_here = by_srun.broken.is_some() && by_mpirun.broken.is_none();
        let fewer = by_mpirun.is_good() && by_srun.ran != by_mpirun.ran;
        if fails_only_here || breaks_only_here || fewer {
            worse.push(file.clone());
        }
    }
    for ((name, _), (ran, skipped, good)) in LAUNCHERS.iter().zip(sums) {
        println!(
            "{name}: {good} of {} files pass, {ran} tests ran, of which {skipped} were skipped",
            files.len()
        );
    }
    ensure!(
        worse.is_empty(),
        "worse under srun: {}; output is in {}",
        worse.join(", "),
        place.join("log").display()
    );
    Ok(())
}

impl Outcome {
    fn is_good(&self) -> bool {
        self.failed.is_empty() && self.broken.is_none() && self.ran > 0
    }

    fn read(output: &Output) -> Outcome {
        let text = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        let mut outcome = Outcome {
            ran: 0,
            skipped: 0,
            failed: BTreeSet::new(),
            broken: None,
        };
        // Ranks write at the same time: a line of one may go on in that of another.
        for rest in text.split("Ran ").skip(1) {
            let mut words = rest.split(' ');
            let count = words.next().and_then(|w| w.parse::<u32>().ok());
            if let (Some(count), Some("test" | "tests")) = (count, words.next()) {
                outcome.ran += count;
            }
        }
        for rest in text.split("skipped=").skip(1) {
            let count = rest.split(|c: char| !c.is_ascii_digit()).next();
            outcome.skipped += count.and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
        }
        for mark in ["FAIL: ", "ERROR: "] {
            for rest in text.split(mark).skip(1) {
                let name = rest.lines().next().unwrap_or("");
                outcome.failed.insert(name.trim().to_owned());
            }
        }
        if !output.status.success() && outcome.failed.is_empty() {
            outcome.broken = Some(match output.status.code() {
                Some(124 | 137) => "does not end".to_owned(),
                Some(code) => format!("exit status {code}"),
                None => "killed".to_owned(),
            });
        }
        outcome
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ran", self.ran)?;
        if !self.failed.is_empty() {
            write!(f, ", {} fail", self.failed.len())?;
        }
        if let Some(broken) = &self.broken {
            write!(f, ", {broken}")?;
        }
        Ok(())
    }
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

/// A virtual environment with mpi4py, and its sources for their tests.
fn install(place: &Path) -> Result<PathBuf> {
    let suite = place.join(format!("mpi4py-{VERSION}"));
    if suite.join("installed").exists() {
        return Ok(suite);
    }
    let script = format!(
        "python3 -m venv venv && venv/bin/pip install -q mpi4py=={VERSION} && \
         venv/bin/pip download -q --no-deps --no-binary mpi4py mpi4py=={VERSION} && \
         tar xzf mpi4py-{VERSION}.tar.gz && touch mpi4py-{VERSION}/installed"
    );
    let done = Command::new("bash")
        .args(["-c", &script])
        .current_dir(place)
        .status()?;
    ensure!(done.success(), "mpi4py {VERSION} cannot be installed");
    Ok(suite)
}

fn tests(suite: &Path, names: &[String]) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(suite.join("test"))? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or("");
        if stem.starts_with("test_") && path.extension().is_some_and(|e| e == "py") {
            files.push(stem.to_owned());
        }
    }
    files.sort();
    if let Some(unknown) = names.iter().find(|n| !files.contains(n)) {
        bail!("mpi4py has no {unknown}");
    }
    files.retain(|f| names.is_empty() || names.contains(f));
    Ok(files)
}

/// Two nodes.
struct Cluster {
    place: PathBuf,
    muster: PathBuf,
}

impl Cluster {
    fn up(place: &Path, muster: PathBuf) -> Result<Cluster> {
        let cluster = Cluster {
            place: place.to_owned(),
            muster,
        };
        fs::create_dir_all(place.join("log"))?;
        cluster.muster(&["up", "--nodes", "2", "--cpus", "16"])?;
        Ok(cluster)
    }

    fn home(&self) -> PathBuf {
        self.place.join("cluster")
    }

    fn muster(&self, args: &[&str]) -> Result<()> {
        let output = Command::new(&self.muster)
            .args(args)
            .env("MUSTER_HOME", self.home())
            .stdin(Stdio::null())
            .output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "muster {}: {errors}",
            args.join(" ")
        );
        Ok(())
    }

    fn attempt(&self, suite: &Path, file: &str, launcher: &str) -> Result<Outcome> {
        let python = self.place.join("venv/bin/python");
        let bin = self.home().join("bin");
        let path = std::env::var("PATH").unwrap_or_default();
        let script = format!(
            "{APART}; salloc -Q -N2 -n4 --exclusive timeout -k 5 600 {launcher} {} test/main.py --no-numpy -i '(^|/){file}[.]py$'",
            python.display()
        );
        let output = Command::new("timeout")
            .args(["-k", "5", "660", "bash", "-c", &script])
            .current_dir(suite)
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("SLURM_CONF", self.home().join("slurm.conf"))
            .stdin(Stdio::null())
            .output()
            .context("bash and timeout are needed")?;
        let kind = launcher.split(' ').next().unwrap_or("");
        let log = self.place.join("log").join(format!("{file}.{kind}"));
        fs::write(log, [output.stdout.clone(), output.stderr.clone()].concat())?;
        Ok(Outcome::read(&output))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(e) = self.muster(&["down", "--purge"]) {
            eprintln!("{e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn outcomes() {
        let output = |code: i32, stderr: &str| Output {
            status: std::process::ExitStatus::from_raw(code << 8),
            stdout: Vec::new(),
            stderr: stderr.as_bytes().to_vec(),
        };
        let good = Outcome::read(&output(
            0,
            "Ran 7 tests in 0.01sRan 7 tests in 0.01s\nOK (skipped=2)\nOK (skipped=1)\n",
        ));
        assert!(good.is_good());
        assert_eq!((good.ran, good.skipped), (14, 3));
        let bad = Outcome::read(&output(
            1,
            "FAIL: testA (test_x.B.testA)\nRan 7 tests in 0.01s\n",
        ));
        assert!(bad.failed.contains("testA (test_x.B.testA)") && bad.broken.is_none());
        let late = Outcome::read(&output(124, ""));
        assert_eq!(late.broken.as_deref(), Some("does not end"));
    }
}
