//! `scontrol listpids`: what the agent of a node says about the processes of jobs.

use super::Session;
use super::jobs::query_jobs;
use crate::connect::{ConnectError, unexpected};
use crate::submit::agent::AgentStream;
use crate::submit::line;
use crate::submit::say;
use crate::submit::scancel::{job_target, step_number};
use muster_core::ids::{JobId, StepNo};
use muster_core::job::JobState;
use muster_proto::client::{AllocationInfo, JobFilter, Query, Response};
use muster_proto::step::{AgentReply, AgentRequest};
use std::fmt::Write as _;

impl Session {
    /// `listpids [JOB[.STEP]] [NODE]`.
    pub(super) fn list_processes(&mut self, rest: &[String]) {
        say::stdout("PID      JOBID    STEPID   LOCALID GLOBALID\n");
        let node = rest
            .get(1)
            .cloned()
            .or_else(|| std::env::var("SLURMD_NODENAME").ok());
        let (jobs, step) = match rest.first() {
            None => match self.running() {
                Ok(jobs) => (jobs, None),
                Err(error) => return self.request_failed("slurm_load_jobs error", &error),
            },
            Some(text) => {
                let (job, step) = text
                    .split_once('.')
                    .map_or((text.as_str(), None), |(j, s)| (j, Some(s)));
                let (job, step) = (job_target(job), step.map(step_number));
                let (Some(job), Some(step)) = (job, step.map_or(Some(None), |s| s.map(Some)))
                else {
                    return self.error(&format!("Invalid job id {text}"));
                };
                (vec![job.job], step)
            }
        };
        for job in jobs {
            let info = match self.client().and_then(|c| c.query(Query::Allocation(job))) {
                Ok(Response::JobStarted(info)) => info,
                Ok(other) => return self.request_failed("listpids", &unexpected(&other)),
                Err(_) if rest.is_empty() => continue,
                Err(error) => return self.request_failed("listpids", &error),
            };
            self.list_job(job, step, &info, node.as_deref());
        }
    }

    fn running(&mut self) -> Result<Vec<JobId>, ConnectError> {
        let filter = JobFilter {
            states: vec![JobState::Running, JobState::Suspended],
            ..JobFilter::default()
        };
        let jobs = query_jobs(self.client()?, filter)?;
        Ok(jobs.into_iter().map(|j| j.id).collect())
    }

    fn list_job(
        &mut self,
        job: JobId,
        step: Option<StepNo>,
        info: &AllocationInfo,
        node: Option<&str>,
    ) {
        let names = info
            .job
            .alloc
            .iter()
            .flat_map(|a| &a.nodes)
            .map(|n| n.name.as_str());
        let own = line::host();
        let nodes: Vec<(&str, &String)> = names.zip(&info.addresses).collect();
        let wanted = node.or_else(|| nodes.iter().map(|(n, _)| *n).find(|n| *n == own));
        let mut text = String::new();
        for (name, address) in nodes {
            if wanted.is_some_and(|w| w != name) {
                continue;
            }
            match inspect(address, job) {
                Ok(processes) => {
                    for (pid, number, task) in processes {
                        if step.is_some_and(|s| s != number) {
                            continue;
                        }
                        let (local, global) = task.map_or_else(
                            || ("-".to_owned(), "-".to_owned()),
                            |(l, g)| (l.to_string(), g.to_string()),
                        );
                        let _ = writeln!(
                            text,
                            "{pid:<8} {:<8} {number:<8} {local:<7} {global:<8}",
                            job.0
                        );
                    }
                }
                Err(e) => self.error(&format!(
                    "{name}: the agent at {address} cannot be asked: {e}"
                )),
            }
        }
        if text.is_empty() {
            self.complain(&format!(
                "Job {job} does not have any processes on this node."
            ));
        }
        say::stdout(&text);
    }
}

type Process = (u32, StepNo, Option<(u32, u32)>);

fn inspect(address: &str, job: JobId) -> std::io::Result<Vec<Process>> {
    let mut stream = AgentStream::connect(address)?;
    stream.send(&AgentRequest::Inspect { job })?;
    match stream.receive()? {
        AgentReply::Processes(processes) => Ok(processes),
        AgentReply::Refused(refusal) => Err(std::io::Error::other(refusal.to_string())),
        other => Err(std::io::Error::other(format!(
            "unexpected answer {other:.40?}"
        ))),
    }
}
