//! Processes that a task spawns (`MPI_Comm_spawn`): this host runs an srun that starts them as a
//! step of the same job. The hosts of the new step and of the spawning step first exchange their
//! name spaces; only then do tasks of either side learn of the other.

use super::{HostSetup, MpiHost};
use crate::control::FromHost;
use crate::job::{self, Job, LocalRegistration};
use crate::srun::{RunningSrun, Runs, SpawnRequest, VARIABLE};
use crate::upcall::{App, Spawned};
use crate::wire::Wire;
use crate::{ProcName, status};
use std::collections::{BTreeSet, HashMap};

/// Spawns of this host's tasks.
#[derive(Debug, Default)]
pub(super) struct Spawns {
    runs: Runs,
    waiting: HashMap<u64, Waiting>,
    /// The related name spaces are known, if this step was spawned itself.
    pub(super) introduced: bool,
}

/// A request whose step has not started yet.
#[derive(Debug)]
struct Waiting {
    reply: Spawned,
    nspace: Option<String>,
    /// Hosts that must acknowledge the new step.
    unaware: BTreeSet<String>,
}

impl Spawns {
    /// Streams to poll.
    pub(super) fn interests(&self) -> Vec<i32> {
        self.runs.interests()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

/// The task that spawned this step, from the environment.
fn origin(setup: &HostSetup) -> Option<(String, u64, ProcName, Vec<u32>)> {
    let (_, text) = setup.env.iter().find(|(name, _)| name == VARIABLE)?;
    let mut words = text.split(' ');
    let (address, ticket) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
    let nspace = words.next()?.to_owned();
    let rank = words.next()?.parse().ok()?;
    let sizes = words.filter_map(|w| w.parse().ok()).collect();
    Some((address, ticket, ProcName { nspace, rank }, sizes))
}

/// The task that spawned this step, if a task did.
pub(super) fn parent(setup: &HostSetup) -> Option<ProcName> {
    origin(setup).map(|(_, _, proc, _)| proc)
}

/// Numbers of the programs by rank, if the step has several programs.
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

impl MpiHost {
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

    fn start_srun(
        &self,
        ticket: u64,
        parent: &ProcName,
        apps: &[App],
    ) -> std::io::Result<RunningSrun> {
        let sizes: Vec<String> = apps.iter().map(|a| a.tasks.to_string()).collect();
        let origin = format!(
            "{} {ticket} {} {} {}",
            self.mesh.own,
            parent.nspace,
            parent.rank,
            sizes.join(" ")
        );
        SpawnRequest {
            kind: "pmix",
            job: self.setup.job,
            env: &self.setup.env,
            dir: &self.setup.dir,
            work_dir: None,
            ticket,
            variables: &[(VARIABLE, origin)],
        }
        .start(apps)
    }

    /// Forwards the output of spawned steps, and reaps their srun processes.
    pub(super) fn serve_spawned(&mut self, ready: &[bool]) {
        for (ticket, _) in self.spawns.runs.serve(ready, &mut self.outbox) {
            // An srun that ended before its tasks started has written the reason to its standard
            // error.
            if let Some(waiting) = self.spawns.waiting.remove(&ticket) {
                waiting.reply.fail(status::ERROR);
            }
        }
    }

    /// The hosts of this step have exchanged name spaces: the spawning task gets its answer.
    pub(super) fn notify_parent(&mut self) {
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

    /// A step that a local task spawned has started: announces it to all related name spaces.
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

    /// A host has acknowledged the name spaces. After the last acknowledgement the spawning task
    /// gets its answer.
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

    /// A host has disconnected, perhaps one of a step that ended while another step was announced
    /// to it: stops waiting for its acknowledgement.
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

    /// Registers name spaces that are new to this host.
    fn get_to_know(&mut self, jobs: Vec<Job>) {
        for job in jobs {
            if self.jobs.contains_key(&job.nspace) {
                continue;
            }
            let job_id = self.setup.job.to_string();
            let local = LocalRegistration {
                node: None,
                job_id: &job_id,
                owner: self.setup.owner,
                dirs: ("", ""),
                crowded: false,
                universe: self.setup.universe,
                places: &[],
            };
            if let Err(e) = job::register(&self.server, &job, &local) {
                eprintln!("name space {} cannot be registered: {e}", job.nspace);
            }
            for host in &job.hosts {
                self.mesh.add_host(host);
            }
            self.jobs.insert(job.nspace.clone(), job);
        }
    }
}
