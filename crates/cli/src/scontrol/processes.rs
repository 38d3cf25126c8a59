//! `scontrol listpids` and `pidinfo`: what the agent of a node says about the processes of jobs.

use super::Session;
use crate::connect::{ConnectError, unexpected};
use crate::listing::context::Ctx;
use crate::listing::document::print_document;
use crate::listing::step_document::{NodeProcess, write_processes};
use crate::measure::{self, AgentQuestion, JobNode, MESSAGE_TIMEOUT, ask_agents, nodes_of};
use crate::say;
use crate::targets::{job_target, step_number};
use crate::zone;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::{Job, JobState};
use muster_proto::client::{AllocationInfo, JobFilter, Query, Response};
use muster_proto::step::{AgentReply, Process};
use std::collections::HashMap;
use std::fmt::Write as _;

/// Message of `pidinfo` about a process without a job.
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
        if self.flags.dialect.is_none() {
            heading();
        }
        let mut listed = Vec::new();
        for job in jobs {
            let info = match self.client().and_then(|c| c.query(Query::Allocation(job))) {
                Ok(Response::JobStarted(info)) => info,
                Ok(other) => return self.request_failed("listpids", &unexpected(&other)),
                Err(_) if rest.is_empty() => continue,
                Err(error) => return self.request_failed("listpids", &error),
            };
            listed.push(ListedJob::of(&info, node.as_deref()));
        }
        let nodes = listed
            .iter_mut()
            .flat_map(|own| std::mem::take(&mut own.nodes));
        let answers = ask_agents(nodes.collect(), AgentQuestion::Processes, MESSAGE_TIMEOUT);
        for failure in measure::failures(&answers) {
            self.error(&failure);
        }
        let mut replies: HashMap<JobId, Vec<AgentReply>> = HashMap::new();
        for answer in answers {
            let of_job = replies.entry(answer.job).or_default();
            of_job.extend(answer.reply.ok().flatten());
        }
        if let Some(dialect) = self.flags.dialect {
            let listed = listed.iter().flat_map(|own| {
                let replies = replies.get(&own.job).into_iter().flatten();
                let all = replies.flat_map(processes);
                let of_step = all.filter(|process| step.is_none_or(|step| step == process.step));
                of_step.map(|process| NodeProcess {
                    job: own.job,
                    step: process.step,
                    pid: process.pid,
                    local_task: process.task.map(|task| task.local),
                    global_task: process.task.map(|task| task.global),
                })
            });
            let listed: Vec<NodeProcess> = listed.collect();
            let cluster = self.client().map(|client| client.endpoint.cluster.clone());
            let ctx = Ctx::new(&cluster.unwrap_or_default());
            print_document(dialect, "scontrol", &ctx, |w| write_processes(w, &listed));
            return;
        }
        for own in listed {
            let replies = replies.remove(&own.job).unwrap_or_default();
            self.list_job(&own, step, &replies);
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
        let (mut nodes, mut jobs) = (Vec::new(), Vec::new());
        for id in self.running()? {
            let Ok(Response::JobStarted(info)) =
                self.client().and_then(|c| c.query(Query::Allocation(id)))
            else {
                // It has just ended, or is somebody else's.
                continue;
            };
            nodes.extend(nodes_of(&info).filter(JobNode::is_local));
            jobs.push(info.job);
        }
        let answers = ask_agents(nodes, AgentQuestion::Processes, MESSAGE_TIMEOUT);
        let found = answers.iter().find(|answer| {
            let reply = answer.reply.as_ref().ok().and_then(Option::as_ref);
            let mut all = reply.into_iter().flat_map(processes);
            all.any(|process| process.pid == pid)
        });
        let found = found.map(|answer| answer.job);
        if found.is_none() {
            for failure in measure::failures(&answers) {
                self.error(&failure);
            }
        }
        Ok(jobs.into_iter().find(|job| Some(job.id) == found))
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
        ListedJob { job, wanted, .. }: &ListedJob,
        step: Option<StepNo>,
        replies: &[AgentReply],
    ) {
        let mut text = String::new();
        for process in replies.iter().flat_map(processes) {
            let (pid, number) = (process.pid, process.step);
            if step.is_some_and(|s| s != number) {
                continue;
            }
            let (local, global) = process.task.map_or_else(
                || ("-".to_owned(), "-".to_owned()),
                |task| (task.local.to_string(), task.global.to_string()),
            );
            let _ = writeln!(
                text,
                "{pid:<8} {:<8} {number:<8} {local:<7} {global:<8}",
                job.0
            );
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

/// A job whose processes are listed.
struct ListedJob {
    job: JobId,
    /// The one node that is meant.
    wanted: Option<String>,
    /// The nodes whose agents are asked.
    nodes: Vec<JobNode>,
}

impl ListedJob {
    /// The job with the node that is named, or this host, if it is one of the job's; else with all nodes.
    fn of(info: &AllocationInfo, node: Option<&str>) -> ListedJob {
        let own = muster_trust::host::short_name();
        let mut nodes: Vec<JobNode> = nodes_of(info).collect();
        let is_here = nodes.iter().any(|one| one.node == own);
        let wanted = node.map(str::to_owned).or(is_here.then_some(own));
        nodes.retain(|one| wanted.as_ref().is_none_or(|name| *name == one.node));
        ListedJob {
            job: info.job.id,
            wanted,
            nodes,
        }
    }
}

fn processes(reply: &AgentReply) -> &[Process] {
    match reply {
        AgentReply::Processes(all) => all,
        _ => &[],
    }
}
