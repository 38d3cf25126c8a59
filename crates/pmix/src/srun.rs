//! The srun process that starts a step for a task (`MPI_Comm_spawn`): its command line, environment
//! and output. The new step shares the CPUs of the allocation with the step of the spawning task.

use crate::control::FromHost;
use crate::descriptors;
use crate::upcall::App;
use std::fmt::Write as _;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

/// Variable of such an srun: the address of the spawning task's host, the request number, and
/// values that depend on the kind of MPI.
pub(crate) const VARIABLE: &str = "MUSTER_PMIX_PARENT";
/// Initial keys of tasks spawned by PMI, as `key=value` lines.
pub(crate) const PUTS: &str = "MUSTER_PMI_PUTS";

/// The step that a task asks to spawn.
pub(crate) struct SpawnRequest<'a> {
    /// Value of `--mpi`.
    pub(crate) kind: &'a str,
    pub(crate) job: u64,
    /// Environment of the spawning step.
    pub(crate) env: &'a [(String, String)],
    /// Working directory of programs that name none.
    pub(crate) work_dir: Option<&'a str>,
    /// Directory for the file that assigns programs to ranks.
    pub(crate) dir: &'a str,
    /// Number of the request.
    pub(crate) ticket: u64,
    /// Further variables for the new step.
    pub(crate) variables: &'a [(&'a str, String)],
}

impl SpawnRequest<'_> {
    /// Starts srun.
    pub(crate) fn start(&self, apps: &[App]) -> io::Result<RunningSrun> {
        // One executable serves all roles.
        let mut command = Command::new("/proc/self/exe");
        let total: u32 = apps.iter().map(|a| a.tasks).sum();
        command
            .arg0("srun")
            .args(["--overlap", "--overcommit", "--kill-on-bad-exit=1"])
            .arg(format!("--mpi={}", self.kind))
            .arg(format!("--jobid={}", self.job))
            .arg(format!("--ntasks={total}"));
        if let Some(hosts) = apps.iter().find_map(|a| a.hosts.as_ref()) {
            command.arg(format!("--nodelist={hosts}"));
        }
        let asked = apps.iter().find_map(|a| a.work_dir.as_deref());
        if let Some(dir) = asked.or(self.work_dir) {
            command.arg(format!("--chdir={dir}"));
        }
        if let [app] = apps {
            command.args(&app.argv);
        } else {
            let path = format!("{}/spawn.{}", self.dir, self.ticket);
            std::fs::write(&path, programs(apps))?;
            command.arg("--multi-prog").arg(path);
        }
        command.env_clear();
        let own = self
            .env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let asked = apps
            .iter()
            .flat_map(|a| &a.env)
            .filter_map(|v| v.split_once('='));
        for (name, value) in own.chain(asked).filter(|(name, _)| !of_the_step(name)) {
            command.env(name, value);
        }
        for (name, value) in self.variables {
            command.env(name, value);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        descriptors::with_first_limit(&mut command);
        let mut child = command.spawn()?;
        let mut streams = Vec::new();
        streams.extend(child.stdout.take().map(|s| (Stream::Out(s), false)));
        streams.extend(child.stderr.take().map(|s| (Stream::Err(s), true)));
        Ok(RunningSrun {
            child,
            ticket: self.ticket,
            streams,
        })
    }
}

/// A running srun.
#[derive(Debug)]
pub(crate) struct RunningSrun {
    child: Child,
    ticket: u64,
    /// Its output streams; the flag marks standard error.
    streams: Vec<(Stream, bool)>,
}

#[derive(Debug)]
enum Stream {
    Out(ChildStdout),
    Err(ChildStderr),
}

impl Stream {
    fn fd(&self) -> i32 {
        match self {
            Stream::Out(s) => s.as_raw_fd(),
            Stream::Err(s) => s.as_raw_fd(),
        }
    }

    fn read(&mut self, chunk: &mut [u8]) -> usize {
        match self {
            Stream::Out(s) => s.read(chunk),
            Stream::Err(s) => s.read(chunk),
        }
        .unwrap_or(0)
    }
}

/// All running sruns.
#[derive(Debug, Default)]
pub(crate) struct Runs(Vec<RunningSrun>);

impl Runs {
    pub(crate) fn push(&mut self, run: RunningSrun) {
        self.0.push(run);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Streams to poll.
    pub(crate) fn interests(&self) -> Vec<i32> {
        let streams = self.0.iter().flat_map(|r| &r.streams);
        streams.map(|(s, _)| s.fd()).collect()
    }

    /// Forwards the output of spawned steps, in the order of [`Self::interests`]. Returns the
    /// request numbers of the sruns that ended, and whether each succeeded.
    pub(crate) fn serve(&mut self, ready: &[bool], outbox: &mut Vec<FromHost>) -> Vec<(u64, bool)> {
        let mut ready = ready.iter();
        let mut chunk = vec![0; 16 << 10];
        for run in &mut self.0 {
            run.streams.retain_mut(|(stream, error)| {
                if ready.next() != Some(&true) {
                    return true;
                }
                let n = stream.read(&mut chunk);
                if n > 0 {
                    outbox.push(FromHost::Output(*error, chunk[..n].to_vec().into()));
                }
                n > 0
            });
        }
        let mut ended = Vec::new();
        self.0.retain_mut(|run| {
            if !run.streams.is_empty() {
                return true;
            }
            // The streams are closed, so the process has ended or is about to.
            let well = run.child.wait().is_ok_and(|status| status.success());
            ended.push((run.ticket, well));
            false
        });
        ended
    }
}

/// Variables that describe the spawning step and must not reach the spawned one.
fn of_the_step(name: &str) -> bool {
    const PREFIXES: [&str; 6] = [
        "PMIX_",
        "PMI_",
        "SLURM_STEP",
        "OMPI_MCA_orte_",
        "SLURM_TASK",
        "SLURM_NTASKS",
    ];
    const NAMES: [&str; 11] = [
        VARIABLE,
        PUTS,
        "SLURM_NPROCS",
        "SLURM_NNODES",
        "SLURM_DISTRIBUTION",
        "SLURM_CPU_BIND",
        "SLURM_MPI_TYPE",
        "SLURM_LABELIO",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_CPUS_PER_TASK",
    ];
    PREFIXES.iter().any(|p| name.starts_with(p)) || NAMES.contains(&name)
}

/// Contents of a file for `--multi-prog`.
fn programs(apps: &[App]) -> String {
    let mut text = String::new();
    let mut first = 0;
    for app in apps {
        let words: Vec<String> = app.argv.iter().map(|w| quoted(w)).collect();
        let last = first + app.tasks - 1;
        let _ = writeln!(text, "{first}-{last} {}", words.join(" "));
        first += app.tasks;
    }
    text
}

fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_programs_make_a_file() {
        let app = |argv: &[&str], tasks| App {
            argv: argv.iter().map(|w| (*w).to_owned()).collect(),
            tasks,
            ..App::default()
        };
        let text = programs(&[app(&["a", "x y"], 2), app(&["b\"c"], 1)]);
        assert_eq!(text, "0-1 \"a\" \"x y\"\n2-2 \"b\\\"c\"\n");
    }
}
