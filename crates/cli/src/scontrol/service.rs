//! Commands about the daemons, and the few that read something.

use super::Session;
use super::write_config::write_config;
use crate::connect::{Client, ConnectError, unexpected};
use crate::errno;
use crate::say;
use crate::targets::job_target;
use crate::zone;
use muster_conf::endpoint;
use muster_model::command::UserCommand;
use muster_model::ids::JobId;
use muster_model::job::JobState;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_proto::client::{JobFilter, Query, RequestBody, Response};

impl Session {
    /// Runs one of them.
    pub(super) fn service(&mut self, name: &str, rest: &[String]) {
        match name {
            "ping" => self.ping(),
            "reconfigure" if self.dry_run => self.differences(),
            "reconfigure" => {
                let done = self
                    .client()
                    .and_then(|c| c.command(UserCommand::Reconfigure));
                if let Err(error) = done {
                    self.request_failed("slurm_reconfigure error", &error);
                }
            }
            "shutdown" => match rest.first().map(|w| w.to_ascii_lowercase()).as_deref() {
                None => self.shutdown(true),
                Some("slurmctld" | "controller") => self.shutdown(false),
                Some(other) => self.complain(&format!("invalid shutdown argument:{other}")),
            },
            "abort" => self.shutdown(false),
            "wait_job" => self.wait_job(&rest[0]),
            "write" => self.write(rest),
            "completing" => self.completing(),
            "errnumstr" => self.error_text(&rest[0]),
            "cluster" => self.cluster(rest.first().map(String::as_str)),
            other => self.error(&format!("nothing carries out {other}")),
        }
    }

    /// Changes that `reconfigure` would make.
    fn differences(&mut self) {
        match self.client().and_then(|c| c.query(Query::Differences)) {
            Ok(Response::Differences(lines)) => {
                let mut text: String = lines.iter().map(|line| format!("{line}\n")).collect();
                // Lines before are warnings.
                if !lines
                    .last()
                    .is_some_and(|line| line.starts_with(['+', '-', '~']))
                {
                    text += "Nothing would change.\n";
                }
                say::stdout(&text);
            }
            Ok(other) => self.request_failed("slurm_reconfigure error", &unexpected(&other)),
            Err(error) => self.request_failed("slurm_reconfigure error", &error),
        }
    }

    fn ping(&mut self) {
        if let Some(dialect) = self.flags.dialect {
            self.failed |= !(self.print_answer)("ping", dialect);
            return;
        }
        let answer = Client::connect().and_then(|mut c| {
            let host = c.endpoint.hosts.first().cloned();
            match c.query(Query::Ping)? {
                Response::Pong(pong) => Ok(host.unwrap_or(pong.hostname)),
                other => Err(unexpected(&other)),
            }
        });
        match answer {
            Ok(host) => say::stdout(&format!("Slurmctld(primary) at {host} is UP\n")),
            Err(error @ ConnectError::Config(_)) => self.request_failed("ping", &error),
            Err(_) => {
                let hosts = endpoint::read(&endpoint::conf_path()).map(|e| e.hosts);
                let host = hosts.ok().and_then(|h| h.first().cloned());
                let host = host.unwrap_or_else(|| "localhost".to_owned());
                say::stdout(&format!("Slurmctld(primary) at {host} is DOWN\n"));
                self.failed = true;
            }
        }
    }

    fn shutdown(&mut self, nodes: bool) {
        let done = self
            .client()
            .and_then(|c| c.call(RequestBody::Shutdown { nodes }));
        match done {
            Ok(Response::Stopping) => {}
            Ok(other) => self.request_failed("slurm_shutdown error", &unexpected(&other)),
            Err(error) => self.request_failed("slurm_shutdown error", &error),
        }
    }

    fn one_job(&mut self, text: &str, prefix: &str) -> Option<JobId> {
        let target = job_target(text);
        if target.is_none() {
            let refusal = Refusal::from(RefusalCode::InvalidJobId);
            self.request_failed(prefix, &refusal.into());
        }
        target.map(|t| t.job)
    }

    fn wait_job(&mut self, text: &str) {
        let Some(job) = job_target(text).map(|target| target.job) else {
            return self.complain(&format!("Invalid job_id {text}"));
        };
        // A job that waits has no nodes that could become ready; only nodes of started ones are waited for.
        let filter = JobFilter {
            ids: vec![job],
            ..JobFilter::default()
        };
        let pending = self.client().and_then(|c| c.query_jobs(filter));
        if pending.is_ok_and(|jobs| jobs.iter().any(|j| j.state == JobState::Pending)) {
            return self.complain(&format!("scontrol: Job {job} no longer running"));
        }
        match self
            .client()
            .and_then(|c| c.call(RequestBody::WaitStarted(job)))
        {
            Ok(Response::JobStarted(_)) => {
                crate::say::stderr(&format!("scontrol: Nodes are ready for job {job}\n"));
            }
            Ok(Response::JobEnded { .. }) => {
                self.complain(&format!("scontrol: Job {job} no longer running"));
            }
            Err(ConnectError::Refused(refusal)) if refusal.code == RefusalCode::InvalidJobId => {
                self.complain(&format!("scontrol: Problem running job {job}"));
            }
            Ok(other) => self.request_failed("slurm_job_node_ready error", &unexpected(&other)),
            Err(error) => self.request_failed("slurm_job_node_ready error", &error),
        }
    }

    fn write(&mut self, rest: &[String]) {
        let what = rest[0].to_ascii_lowercase();
        if "config".starts_with(&what) && what.len() >= 3 {
            return write_config(self, rest.get(1));
        }
        if !("batch_script".starts_with(&what) && what.len() >= 5) {
            return self.complain(&format!("invalid write argument:{}", rest[0]));
        }
        let Some(text) = rest.get(1) else {
            return self.complain("too few arguments for keyword:write batch_script");
        };
        let Some(job) = self.one_job(text, "job script retrieval failed") else {
            return;
        };
        let script = match self.client().and_then(|c| c.query(Query::Script(job))) {
            Ok(Response::Script(bytes)) => bytes,
            Ok(other) => {
                return self.request_failed("job script retrieval failed", &unexpected(&other));
            }
            Err(error) => return self.request_failed("job script retrieval failed", &error),
        };
        let file = rest
            .get(2)
            .cloned()
            .unwrap_or_else(|| format!("slurm-{text}.sh"));
        if file == "-" {
            use std::io::Write as _;
            let _ = std::io::stdout().lock().write_all(&script);
            return;
        }
        match std::fs::write(&file, &script[..]) {
            Ok(()) => self
                .say
                .plain(&format!("batch script for job {text} written to {file}")),
            Err(e) => self.error(&format!("failed to open file `{file}`: {e}")),
        }
    }

    fn completing(&mut self) {
        match self
            .client()
            .and_then(|c| c.query_jobs(JobFilter::default()))
        {
            Ok(jobs) => {
                for job in jobs.iter().filter(|j| j.completing) {
                    let nodes = job.alloc.as_deref().map_or("", |a| a.hostlist.as_str());
                    let since = job
                        .end_time
                        .map_or_else(|| "Unknown".to_owned(), zone::show);
                    say::stdout(&format!(
                        "JobId={} EndTime={since} Nodes(COMPLETING)={nodes}\n",
                        job.id
                    ));
                }
            }
            Err(error) => self.request_failed("slurm_load_jobs error", &error),
        }
    }

    fn error_text(&mut self, number: &str) {
        match number.parse::<i32>() {
            Ok(0) => say::stdout("No error\n"),
            Ok(number) if (0..=133).contains(&number) => {
                let text = errno::of_system(number);
                say::stdout(&format!("{text}\n"));
            }
            Ok(number) => match errno::text_of(number) {
                Some(text) => say::stdout(&format!("{text}\n")),
                None => say::stdout(&format!("Unknown error {number}\n")),
            },
            Err(_) => self.complain("numeric arguments required for keyword:errnumstr"),
        }
    }

    fn cluster(&mut self, name: Option<&str>) {
        let Some(name) = name else { return };
        let own = self.client().map(|c| c.endpoint.cluster.clone());
        match own {
            Ok(own) if own == name => {}
            Ok(own) => self.error(&format!(
                "cluster '{name}' is not known here, only '{own}'; set SLURM_CONF to reach another"
            )),
            Err(error) => self.request_failed("cluster", &error),
        }
    }
}
