//! Steps that commands run of themselves on the nodes of a job: files are read and written there with the rights of the job's
//! user, by no daemon.

use muster_model::ids::JobId;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables by which srun finds the job and the controller, and proves who asks.
const LEADS_TO_CONTROLLER: [&str; 4] = [
    "SLURM_CONF",
    "SLURM_CONF_SERVER",
    "SLURM_JOB_ID",
    "SLURM_SACK_SOCKET",
];

/// A step with one task on each of these nodes, which runs this command with more arguments to come; beside whatever else the
/// job runs.
///
/// # Errors
/// This program's own file is not known.
pub(crate) fn command(job: JobId, name: &str, nodes: &[&str]) -> io::Result<Command> {
    let program = std::env::current_exe()?;
    let count = nodes.len().to_string();
    let mut command = srun()?;
    command
        .arg(format!("--jobid={job}"))
        .args([
            "-Q",
            "--overlap",
            "--ntasks-per-node=1",
            "-c1",
            "--mpi=none",
        ])
        .args(["--cpu-bind=none", "--kill-on-bad-exit=0"])
        .arg(format!("--job-name={name}"))
        .args(["-N", &count, "-n", &count])
        .arg(format!("--nodelist={}", nodes.join(",")))
        .args(task_program(&program, name));
    for name in std::env::vars_os().map(|(name, _)| name) {
        if shapes_steps(&name) {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// srun, of the program that this is.
///
/// # Errors
/// This program's own file is not known.
pub(crate) fn srun() -> io::Result<Command> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(&program);
    match is_link(&program) {
        true => command.arg0("srun"),
        false => command.arg("srun"),
    };
    Ok(command)
}

/// Whether the program is a link of the name of a command; another needs a first argument that names the command.
fn is_link(program: &Path) -> bool {
    let name = program.file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| crate::names().any(|known| known == name))
}

/// Command line that starts a command on a node, where programs are installed as they are here.
fn task_program(program: &Path, name: &str) -> Vec<OsString> {
    match is_link(program) {
        true => vec![program.with_file_name(name).into()],
        false => vec![PathBuf::from(program).into(), name.into()],
    }
}

/// Whether srun would take an option from this variable of the job: the step has a task on each node, whatever the job's
/// own steps have.
fn shapes_steps(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    let is_slurms = name.starts_with("SLURM_") || name.starts_with("SRUN_");
    is_slurms && !LEADS_TO_CONTROLLER.contains(&&*name)
}

/// Whether a line is srun's message about a task that has ended with an error, which the task has explained itself.
pub(crate) fn is_of_task_exit(line: &str) -> bool {
    line.starts_with("srun: error: ") && line.contains("Exited with exit code ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_job_do_not_shape_the_step() {
        for name in ["SLURM_NTASKS", "SLURM_CPU_BIND", "SRUN_CPUS_PER_TASK"] {
            assert!(shapes_steps(&name.into()), "{name}");
        }
        for name in ["SLURM_CONF", "SLURM_SACK_SOCKET", "PATH", "MUSTER_NODE"] {
            assert!(!shapes_steps(&name.into()), "{name}");
        }
    }

    #[test]
    fn a_link_of_a_commands_name_stands_beside_the_others() {
        let link = Path::new("/usr/bin/srun");
        assert_eq!(task_program(link, "sbcast"), ["/usr/bin/sbcast"]);
        let whole = Path::new("/usr/bin/muster");
        assert_eq!(task_program(whole, "sbcast"), ["/usr/bin/muster", "sbcast"]);
    }
}
