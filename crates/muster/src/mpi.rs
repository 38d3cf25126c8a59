//! The MPI libraries of this machine: those whose launcher or compiler is on the path, or where distributions and
//! vendors put them. Also the programs that Muster brings along to try them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Each rank tells its number.
pub(crate) const HELLO: &str = include_str!("mpi/hello.c");
/// Program that measures the time of MPI_Init.
pub(crate) const STARTUP: &str = include_str!("mpi/startup.c");
/// Times of messages, printed as the Intel MPI Benchmarks do.
pub(crate) const PINGPONG: &str = include_str!("mpi/pingpong.c");

/// Directories beside those of PATH; a star stands for any one name.
const PLACES: [&str; 6] = [
    "/usr/lib64/*/bin",
    "/usr/local/*/bin",
    "/opt/*/bin",
    "/opt/*/*/bin",
    "/opt/intel/oneapi/mpi/latest/bin",
    "/usr/mpi/gcc/*/bin",
];
/// Distributions that have several name them so.
const SUFFIXES: [&str; 3] = ["", ".openmpi", ".mpich"];

/// Its maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    OpenMpi,
    Mpich,
    Intel,
}

impl Family {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Family::OpenMpi => "Open MPI",
            Family::Mpich => "MPICH",
            Family::Intel => "Intel MPI",
        }
    }

    /// The kind of `srun --mpi` that it finds itself by.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Family::OpenMpi | Family::Intel => "pmix",
            Family::Mpich => "pmi2",
        }
    }
}

/// One MPI.
#[derive(Clone, Debug)]
pub(crate) struct Mpi {
    pub(crate) family: Family,
    pub(crate) version: String,
    /// Directory of its programs.
    pub(crate) dir: PathBuf,
    /// Its launcher: the name in `dir`. Called by its whole path, Open MPI's would put that directory before the one in
    /// which Muster's srun is.
    pub(crate) mpirun: String,
    /// Its C compiler.
    pub(crate) mpicc: Option<PathBuf>,
    /// IMB-MPI1 of it.
    pub(crate) benchmark: Option<PathBuf>,
}

impl Mpi {
    /// Begin of a bash command by which its programs find their libraries: Intel's, as it comes from the Python package
    /// index, brings no script that says so.
    pub(crate) fn prelude(&self) -> String {
        let root = self.dir.parent().unwrap_or(&self.dir);
        let known = std::env::var_os("I_MPI_ROOT").is_some();
        if self.family != Family::Intel || known || !root.join("lib/libmpi.so.12").exists() {
            return String::new();
        }
        let root = root.display();
        format!(
            "export I_MPI_ROOT={root} LD_LIBRARY_PATH={root}/lib:$LD_LIBRARY_PATH FI_PROVIDER_PATH={root}/lib; "
        )
    }
}

/// All of this machine, in the order of the path.
pub(crate) fn find() -> Vec<Mpi> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    dirs.extend(PLACES.iter().flat_map(|p| expand(p)));
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for dir in dirs {
        for suffix in SUFFIXES {
            let mpirun = dir.join(format!("mpirun{suffix}"));
            let Ok(real) = mpirun.canonicalize() else {
                continue;
            };
            if !seen.insert(real) {
                continue;
            }
            if let Some((family, version)) = identify(&mpirun) {
                let program = |name: &str| Some(dir.join(name)).filter(|p| p.is_file());
                found.push(Mpi {
                    family,
                    version,
                    mpicc: program(&format!("mpicc{suffix}")),
                    benchmark: program("IMB-MPI1"),
                    dir: dir.clone(),
                    mpirun: format!("mpirun{suffix}"),
                });
            }
        }
    }
    found
}

fn expand(pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for part in Path::new(pattern).iter().skip(1) {
        found = if part == "*" {
            let entries = found.iter().filter_map(|d| std::fs::read_dir(d).ok());
            let mut all: Vec<PathBuf> = entries.flatten().flatten().map(|e| e.path()).collect();
            all.sort();
            all
        } else {
            found.into_iter().map(|d| d.join(part)).collect()
        };
    }
    found.retain(|d| d.is_dir());
    found
}

fn identify(mpirun: &Path) -> Option<(Family, String)> {
    // Intel's is a script that calls programs beside it by name.
    let beside = mpirun.parent().map(Path::to_path_buf);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(beside.into_iter().chain(std::env::split_paths(&path)));
    let output = Command::new(mpirun)
        .arg("--version")
        .env("PATH", path.ok()?)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    named(&String::from_utf8_lossy(&output.stdout))
}

/// Family and version in the output of `mpirun --version`.
fn named(text: &str) -> Option<(Family, String)> {
    let word_after = |mark: &str| {
        let rest = text.split_once(mark)?.1;
        Some(
            rest.split_whitespace()
                .next()?
                .trim_end_matches(',')
                .to_owned(),
        )
    };
    if text.contains("(Open MPI)") {
        Some((Family::OpenMpi, word_after("(Open MPI)")?))
    } else if text.contains("Intel(R) MPI Library") {
        Some((Family::Intel, word_after("Version ").unwrap_or_default()))
    } else if text.contains("HYDRA") {
        Some((Family::Mpich, word_after("Version:")?))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let open = "mpirun (Open MPI) 4.1.4\n\nReport bugs to ...";
        assert_eq!(named(open), Some((Family::OpenMpi, "4.1.4".to_owned())));
        let mpich = "HYDRA build details:\n    Version:                                 4.0.2\n";
        assert_eq!(named(mpich), Some((Family::Mpich, "4.0.2".to_owned())));
        let intel =
            "Intel(R) MPI Library for Linux* OS, Version 2021.18 Build 20260101 (id: x)\nCopyright";
        assert_eq!(named(intel), Some((Family::Intel, "2021.18".to_owned())));
        assert_eq!(named("something else"), None);
    }
}
