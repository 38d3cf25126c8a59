//! generate_pbs_nodefile: in a job, a file with a line for each task, as Torque's `PBS_NODEFILE`.

use super::{HELP, fail, run_command};
use crate::options::{HelpForm, Opt, Spec, env};
use crate::say;
use muster_model::hostlist;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// generate_pbs_nodefile.
pub(crate) static SPEC: Spec = Spec {
    name: "generate_pbs_nodefile",
    about: "Writes a file with the name of a node for each task of the job, and prints the file's name.",
    operands: "",
    form: HelpForm::Torque,
    options: OPTIONS,
    variables: &[],
    notes: "The file stays until somebody removes it: export PBS_NODEFILE=$(generate_pbs_nodefile)\n",
};

static OPTIONS: &[Opt] = &[HELP[0], HELP[1]];

/// Runs generate_pbs_nodefile.
pub(crate) fn main(args: &[String]) -> ExitCode {
    run_command(&SPEC, args, |_| run())
}

fn run() -> Result<ExitCode, ExitCode> {
    let wrong = |why: String| fail(SPEC.name, &why, 1);
    let nodes = env("SLURM_NODELIST").or_else(|| env("SLURM_JOB_NODELIST"));
    let nodes = nodes.ok_or_else(|| {
        wrong("SLURM_NODELIST is not set: call it in a job or an allocation".to_owned())
    })?;
    let tasks = env("SLURM_TASKS_PER_NODE").unwrap_or_else(|| "1".to_owned());
    let text = lines(&nodes, &tasks).map_err(wrong)?;
    let path = write(&text).map_err(|e| wrong(format!("cannot write a temporary file: {e}")))?;
    say::stdout(&format!("{}\n", path.display()));
    Ok(ExitCode::SUCCESS)
}

/// A line for each task. The last count goes for nodes that none is said of.
fn lines(nodes: &str, tasks: &str) -> Result<String, String> {
    let nodes = hostlist::parse(nodes).map_err(|e| format!("SLURM_NODELIST={nodes}: {e}"))?;
    let wrong = || format!("SLURM_TASKS_PER_NODE={tasks}: it is no list of counts");
    let mut counts: Vec<u32> = Vec::new();
    for part in tasks.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, times.trim_end_matches(')')),
            None => (part, "1"),
        };
        let count: u32 = count.trim().parse().map_err(|_| wrong())?;
        let times: usize = times.parse().map_err(|_| wrong())?;
        let left = nodes.len().saturating_sub(counts.len());
        counts.extend(std::iter::repeat_n(count, times.min(left)));
    }
    let last = counts.last().copied().unwrap_or(1);
    let mut text = String::new();
    for (place, node) in nodes.iter().enumerate() {
        for _ in 0..counts.get(place).copied().unwrap_or(last) {
            text.push_str(node);
            text.push('\n');
        }
    }
    Ok(text)
}

/// Writes a file that is new and its user's alone.
fn write(text: &str) -> std::io::Result<PathBuf> {
    let dir = env("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    for number in 0..u32::MAX {
        let path = dir.join(format!("pbs_nodefile.{}.{number}", std::process::id()));
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        match made {
            Ok(mut file) => {
                file.write_all(text.as_bytes())?;
                return Ok(path);
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_task() {
        for (nodes, tasks, want) in [
            ("n[1-2]", "2,1", "n1 n1 n2"),
            ("n[1-3]", "2(x3)", "n1 n1 n2 n2 n3 n3"),
            ("n1,x5", "1(x2)", "n1 x5"),
            ("n[1-2]", "1", "n1 n2"),
        ] {
            let found = lines(nodes, tasks).unwrap();
            assert_eq!(found.split_whitespace().collect::<Vec<_>>().join(" "), want);
        }
        assert!(lines("n1", "x").is_err());
        assert!(lines("n[1-", "1").is_err());
    }
}
