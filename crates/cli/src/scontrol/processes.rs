//! `scontrol listpids` and `pidinfo`: what the agent of a node says about the processes of jobs.

use super::Session;
use crate::agent::AgentStream;
use crate::connect::{ConnectError, unexpected};
use crate::say;
use crate::targets::{job_target, step_number};
use crate::zone;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::{Job, JobState};
use muster_node_core::messages::Process;
use muster_proto::client::{AllocationInfo, JobFilter, Query, Response};
use muster_proto::step::{AgentReply, AgentRequest};
use std::fmt::Write as _;

/// What `pidinfo` says of a process that is of no job.
const NO_JOB: &str = "Failed to locate job for requested pid";

impl Session {
    /// `listpids [JOB[.STEP]] [NODE]`.
    pub(super) fn list_processes(&mut self, rest: &[String]) {
        let heading = || say::stdout("PID      JOBID    STEPID   LOCALID GLOBALID\n");
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
                    return self.complain(&format!("\"{text}\" does not look like a jobid"));
                };
                (vec![job.job], step)
            }
        };
        heading();
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

    /// `pidinfo PID`: the job of a process on this host, as the agents here know it.
    pub(super) fn process_info(&mut self, text: &str) {
        let Ok(pid) = text.parse::<u32>() else {
            return self.complain(NO_JOB);
        };
        let job = match self.job_of_process(pid) {
            Ok(Some(job)) => job,
            Ok(None) => {
                return self.complain(NO_JOB);
            }
            Err(error) => return self.request_failed("slurm_pid2jobid error", &error),
        };
        let now = zone::now();
        let ends = job.start_time.zip(job.time_limit.seconds());
        let text = match ends {
            Some((start, limit)) => {
                let end = start.plus_s(limit).plus_ms(job.suspended_ms);
                format!(
                    "Slurm JobId={} ends at {}\nJob remaining time is {}\n",
                    job.id,
                    zone::show(end),
                    end.since_ms(now) / 1000
                )
            }
            None => format!(
                "Slurm JobId={} ends at NONE\nJob remaining time is INFINITE\n",
                job.id
            ),
        };
        say::stdout(&text);
    }

    fn job_of_process(&mut self, pid: u32) -> Result<Option<Job>, ConnectError> {
        for id in self.running()? {
            let Ok(Response::JobStarted(info)) =
                self.client().and_then(|c| c.query(Query::Allocation(id)))
            else {
                // It has just ended, or is somebody else's.
                continue;
            };
            let here = info.addresses.iter().filter(|a| a.starts_with("unix:"));
            for address in here {
                let found = inspect(address, id, &info.key).unwrap_or_default();
                if found.iter().any(|known| known.pid == pid) {
                    return Ok(Some(info.job));
                }
            }
        }
        Ok(None)
    }

    fn running(&mut self) -> Result<Vec<JobId>, ConnectError> {
        let filter = JobFilter {
            states: vec![JobState::Running, JobState::Suspended],
            ..JobFilter::default()
        };
        let jobs = self.client()?.query_jobs(filter)?;
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
        let own = muster_trust::host::short_name();
        let nodes: Vec<(&str, &String)> = names.zip(&info.addresses).collect();
        let wanted = node.or_else(|| nodes.iter().map(|(n, _)| *n).find(|n| *n == own));
        let mut text = String::new();
        for (name, address) in nodes {
            if wanted.is_some_and(|w| w != name) {
                continue;
            }
            match inspect(address, job, &info.key) {
                Ok(processes) => {
                    for Process {
                        pid,
                        step: number,
                        task,
                    } in processes
                    {
                        if step.is_some_and(|s| s != number) {
                            continue;
                        }
                        let (local, global) = task.map_or_else(
                            || ("-".to_owned(), "-".to_owned()),
                            |task| (task.local.to_string(), task.global.to_string()),
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
            match (step, wanted) {
                (Some(step), Some(node)) => {
                    self.complain(&format!(
                        "StepId={job}.{step} does not exist on node {node}"
                    ));
                }
                _ => self.complain(&format!(
                    "Job {job} does not have any processes on this node."
                )),
            }
        }
        say::stdout(&text);
    }
}

fn inspect(address: &str, job: JobId, key: &[u8]) -> std::io::Result<Vec<Process>> {
    let mut stream = AgentStream::connect_agent(address, job, Some(key))?;
    stream.send(&AgentRequest::Inspect { job })?;
    match stream.receive()? {
        AgentReply::Processes(processes) => {
            let processes = processes.into_iter();
            Ok(processes
                .map(|(pid, step, task)| Process { pid, step, task })
                .collect())
        }
        AgentReply::Refused(refusal) => Err(std::io::Error::other(refusal.to_string())),
        other => Err(std::io::Error::other(format!(
            "unexpected answer {other:.40?}"
        ))),
    }
}
