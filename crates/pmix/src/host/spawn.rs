//! New processes at a task's wish (`MPI_Comm_spawn`): an srun of this host's starts them as a step of the same job.
//! Their hosts and those of the step they come from then get to know each other, before either side's tasks hear of
//! the others.

use super::{Host, HostSetup};
use crate::control::FromHost;
use crate::job::{self, Job, Local};
use crate::upcall::{App, Spawned};
use crate::wire::Wire;
use crate::{ProcName, status};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Variable of an srun that was started for a task: where that task's host listens, the request, and who the task
/// is; then the number of tasks of each program.
pub(crate) const VARIABLE: &str = "MUSTER_PMIX_PARENT";

/// Spawns of this host's tasks.
#[derive(Debug, Default)]
pub(super) struct Spawns {
    runs: Vec<Run>,
    waiting: HashMap<u64, Waiting>,
    /// The relatives of this step are known, if it was spawned itself.
    pub(super) introduced: bool,
}

/// An srun.
#[derive(Debug)]
struct Run {
    child: Child,
    ticket: u64,
    /// Its streams: descriptor, and whether it is standard error.
    streams: Vec<(Stream, bool)>,
}

#[derive(Debug)]
enum Stream {
    Out(std::process::ChildStdout),
    Err(std::process::ChildStderr),
}

/// A request whose step is not up yet.
#[derive(Debug)]
struct Waiting {
    reply: Spawned,
    nspace: Option<String>,
    /// Hosts that have to get to know the new step.
    unaware: BTreeSet<String>,
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

impl Spawns {
    /// Streams to poll.
    pub(super) fn interests(&self) -> Vec<i32> {
        let streams = self.runs.iter().flat_map(|r| &r.streams);
        streams.map(|(s, _)| s.fd()).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

/// What the environment says of the task that asked for this step.
fn origin(setup: &HostSetup) -> Option<(String, u64, ProcName, Vec<u32>)> {
    let (_, text) = setup.env.iter().find(|(name, _)| name == VARIABLE)?;
    let mut words = text.split(' ');
    let (address, ticket) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
    let nspace = words.next()?.to_owned();
    let rank = words.next()?.parse().ok()?;
    let sizes = words.filter_map(|w| w.parse().ok()).collect();
    Some((address, ticket, ProcName { nspace, rank }, sizes))
}

/// The task that asked for this step, if one did.
pub(super) fn parent(setup: &HostSetup) -> Option<ProcName> {
    origin(setup).map(|(_, _, proc, _)| proc)
}

/// Numbers of the programs by rank, if the step has several.
pub(super) fn apps(setup: &HostSetup) -> Vec<u32> {
    let sizes = origin(setup).map_or_else(Vec::new, |(_, _, _, sizes)| sizes);
    if sizes.len() < 2 {
        return Vec::new();
    }
    (0u32..)
        .zip(sizes)
        .flat_map(|(app, size)| std::iter::repeat_n(app, size as usize))
        .collect()
}

impl Host {
    pub(super) fn spawn(&mut self, parent: ProcName, apps: &[App], reply: Spawned) {
        if apps.is_empty() || apps.iter().any(|a| a.tasks == 0 || a.argv.is_empty()) {
            return reply.fail(status::BAD_PARAM);
        }
        let ticket = self.ticket();
        match self.start_srun(ticket, &parent, apps) {
            Ok(run) => {
                self.spawns.runs.push(run);
                let waiting = Waiting {
                    reply,
                    nspace: None,
                    unaware: BTreeSet::new(),
                };
                self.spawns.waiting.insert(ticket, waiting);
            }
            Err(e) => {
                let line =
                    format!("slurmstepd: error: mpi/pmix: cannot start srun for a spawn: {e}");
                self.outbox.push(FromHost::Message(line));
                reply.fail(status::ERROR);
            }
        }
    }

    fn start_srun(&self, ticket: u64, parent: &ProcName, apps: &[App]) -> std::io::Result<Run> {
        // This process is a fork of the shim: its executable is the one that all roles are in.
        let mut command = Command::new("/proc/self/exe");
        let total: u32 = apps.iter().map(|a| a.tasks).sum();
        command
            .arg0("srun")
            .args([
                "--mpi=pmix",
                "--overlap",
                "--overcommit",
                "--kill-on-bad-exit=1",
            ])
            .arg(format!("--jobid={}", self.setup.job))
            .arg(format!("--ntasks={total}"));
        if let Some(hosts) = apps.iter().find_map(|a| a.hosts.as_ref()) {
            command.arg(format!("--nodelist={hosts}"));
        }
        if let Some(dir) = apps.iter().find_map(|a| a.work_dir.as_ref()) {
            command.arg(format!("--chdir={dir}"));
        }
        if let [app] = apps {
            command.args(&app.argv);
        } else {
            let path = format!("{}/spawn.{ticket}", self.setup.dir);
            std::fs::write(&path, programs(apps))?;
            command.arg("--multi-prog").arg(path);
        }
        let sizes: Vec<String> = apps.iter().map(|a| a.tasks.to_string()).collect();
        let origin = format!(
            "{} {ticket} {} {} {}",
            self.mesh.own,
            parent.nspace,
            parent.rank,
            sizes.join(" ")
        );
        command.env_clear();
        for (name, value) in &self.setup.env {
            if !of_the_step(name) {
                command.env(name, value);
            }
        }
        for (name, value) in apps
            .iter()
            .flat_map(|a| &a.env)
            .filter_map(|v| v.split_once('='))
        {
            if !of_the_step(name) {
                command.env(name, value);
            }
        }
        command.env(VARIABLE, origin);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut streams = Vec::new();
        streams.extend(child.stdout.take().map(|s| (Stream::Out(s), false)));
        streams.extend(child.stderr.take().map(|s| (Stream::Err(s), true)));
        Ok(Run {
            child,
            ticket,
            streams,
        })
    }

    /// Passes on what spawned steps print, and collects their srun when it has ended.
    pub(super) fn serve_spawned(&mut self, ready: &[bool]) {
        let mut ready = ready.iter();
        let mut chunk = vec![0; 16 << 10];
        for run in &mut self.spawns.runs {
            let outbox = &mut self.outbox;
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
        self.spawns.runs.retain_mut(|run| {
            if !run.streams.is_empty() {
                return true;
            }
            // Its streams are closed: it is ending, if it has not.
            let _ = run.child.wait();
            ended.push(run.ticket);
            false
        });
        for ticket in ended {
            // One that ended before its tasks were there has said why on its standard error.
            if let Some(waiting) = self.spawns.waiting.remove(&ticket) {
                waiting.reply.fail(status::ERROR);
            }
        }
    }

    /// The hosts of this step know each other: whose task asked for it hears that it is up.
    pub(super) fn tell_parent(&mut self) {
        let Some((address, ticket, _, _)) = origin(&self.setup) else {
            return;
        };
        if self.setup.position == 0
            && let Some(job) = self.jobs.get(&self.setup.nspace)
        {
            let job = job.clone();
            self.mesh.send(&address, &Wire::Child { ticket, job });
        }
    }

    /// A step that a task of this host asked for is up: all its relatives are introduced to each other.
    pub(super) fn child_came(&mut self, ticket: u64, job: Job) {
        let Some(waiting) = self.spawns.waiting.get_mut(&ticket) else {
            return;
        };
        waiting.nspace = Some(job.nspace.clone());
        self.get_to_know(vec![job]);
        let mut hosts = self.others();
        hosts.retain(|h| !self.mesh.is_gone(h));
        let message = Wire::Relatives {
            ticket,
            jobs: self.jobs.values().cloned().collect(),
            keeper: self.names.keeper.clone(),
        };
        for host in &hosts {
            self.mesh.send(host, &message);
        }
        if let Some(waiting) = self.spawns.waiting.get_mut(&ticket) {
            waiting.unaware = hosts;
        }
    }

    pub(super) fn relatives_came(
        &mut self,
        from: &str,
        ticket: u64,
        jobs: Vec<Job>,
        keeper: String,
    ) {
        self.get_to_know(jobs);
        self.names.keeper = keeper;
        let status = status::SUCCESS;
        self.mesh.send(from, &Wire::Answer { ticket, status });
        self.spawns.introduced = true;
        self.all_known();
    }

    /// A host knows the relatives; when all do, whoever asked for the step hears of it.
    pub(super) fn relative_knows(&mut self, ticket: u64, host: &str) {
        let Some(waiting) = self.spawns.waiting.get_mut(&ticket) else {
            return;
        };
        waiting.unaware.remove(host);
        if waiting.unaware.is_empty()
            && let Some(waiting) = self.spawns.waiting.remove(&ticket)
        {
            match &waiting.nspace {
                Some(nspace) => waiting.reply.give(nspace),
                None => waiting.reply.fail(status::ERROR),
            }
        }
    }

    /// A host is gone, perhaps one of a step that ended while it was being told of another: nobody waits for it.
    pub(super) fn need_not_know(&mut self, host: &str) {
        let waiting = self.spawns.waiting.iter();
        let tickets: Vec<u64> = waiting
            .filter(|(_, w)| w.unaware.contains(host))
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in tickets {
            self.relative_knows(ticket, host);
        }
    }

    /// Takes in name spaces that are new here.
    fn get_to_know(&mut self, jobs: Vec<Job>) {
        for job in jobs {
            if self.jobs.contains_key(&job.nspace) {
                continue;
            }
            let job_id = self.setup.job.to_string();
            let local = Local {
                node: None,
                job_id: &job_id,
                owner: self.setup.owner,
                dirs: ("", ""),
                crowded: false,
                universe: self.setup.universe,
            };
            if let Err(e) = job::register(&self.server, &job, &local) {
                eprintln!("name space {} cannot be registered: {e}", job.nspace);
            }
            self.jobs.insert(job.nspace.clone(), job);
        }
    }
}

/// Variables that describe the step whose task asks, not the one it asks for.
fn of_the_step(name: &str) -> bool {
    const PREFIXES: [&str; 6] = [
        "PMIX_",
        "PMI_",
        "SLURM_STEP",
        "OMPI_MCA_orte_",
        "SLURM_TASK",
        "SLURM_NTASKS",
    ];
    const NAMES: [&str; 10] = [
        VARIABLE,
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

/// A file for `--multi-prog`.
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
