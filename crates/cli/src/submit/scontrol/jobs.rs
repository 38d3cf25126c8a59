//! Commands that take a list of jobs: hold, release, requeue, suspend, resume, top.

use super::Session;
use crate::connect::{Client, ConnectError, unexpected};
use crate::submit::line;
use crate::submit::scancel::job_target;
use muster_core::command::{JobTarget, Reply, UserCommand};
use muster_core::job::{ArrayRole, Job};
use muster_core::refusal::{Refusal, RefusalCode};
use muster_proto::client::{JobFilter, Query, Response};

impl Session {
    /// Runs one of them on every job named.
    pub(super) fn jobs(&mut self, name: &'static str, words: &[String]) {
        let (options, words) = requeue_options(name, words);
        let mut failed = None;
        for word in words.iter().flat_map(|w| ids(w)) {
            let targets = match self.targets(&word) {
                Ok(targets) => targets,
                Err(error) => {
                    failed = Some(
                        self.job_failed(&word, &error)
                            .unwrap_or(RefusalCode::InvalidJobId),
                    );
                    continue;
                }
            };
            for (text, target) in targets {
                let command = request(name, target, options);
                let result = self.client().and_then(|client| client.command(command));
                if let Some(code) = self.job_done(&text, result) {
                    failed = Some(code);
                }
            }
        }
        // Slurm says it once more for these, under one name for all of them.
        let again = matches!(
            name,
            "hold" | "holdu" | "uhold" | "release" | "suspend" | "resume"
        );
        if let Some(code) = failed
            && again
        {
            self.complain(&format!("slurm_suspend error: {}", code.text()));
        }
    }

    /// Jobs that a word names: a number, or `JobName=`.
    pub(super) fn targets(&mut self, word: &str) -> Result<Vec<(String, JobTarget)>, ConnectError> {
        if let Some((key, name)) = word.split_once('=') {
            match key.to_ascii_lowercase().as_str() {
                "jobname" | "name" => {
                    let name = name.to_owned();
                    let uid =
                        (!nix::unistd::geteuid().is_root()).then(|| nix::unistd::getuid().as_raw());
                    return self.named(&name, uid);
                }
                "jobid" => return self.targets(name),
                _ => {}
            }
        }
        match job_target(word) {
            Some(target) => Ok(vec![(word.to_owned(), target)]),
            None => Err(Refusal::from(RefusalCode::InvalidJobId).into()),
        }
    }

    /// Jobs of a name that are not over.
    pub(super) fn named(
        &mut self,
        name: &str,
        uid: Option<u32>,
    ) -> Result<Vec<(String, JobTarget)>, ConnectError> {
        let filter = JobFilter {
            uids: uid.into_iter().collect(),
            ..JobFilter::default()
        };
        let jobs = query_jobs(self.client()?, filter)?;
        let found: Vec<(String, JobTarget)> = jobs
            .into_iter()
            .filter(|job| job.spec.name == name && !job.state.is_ended())
            .map(|job| {
                let target = JobTarget {
                    job: job.id,
                    tasks: None,
                };
                (shown_id(&job), target)
            })
            .collect();
        if found.is_empty() {
            return Err(Refusal::from(RefusalCode::InvalidJobId).into());
        }
        Ok(found)
    }

    /// Says what could not be done; the last refusal's code.
    pub(super) fn job_done(
        &mut self,
        text: &str,
        result: Result<Reply, ConnectError>,
    ) -> Option<RefusalCode> {
        match result {
            Ok(Reply::Done { refused, .. }) => {
                let mut last = None;
                for (id, refusal) in refused {
                    last = Some(refusal.code);
                    self.job_failed(&id, &refusal.into());
                }
                last
            }
            Ok(other) => {
                let error = unexpected(&Response::Reply(Box::new(other)));
                self.job_failed(text, &error)
            }
            Err(error) => self.job_failed(text, &error),
        }
    }

    /// `TEXT for job ID`, with the detail before it if there is more to know.
    fn job_failed(&mut self, id: &str, error: &ConnectError) -> Option<RefusalCode> {
        match error {
            ConnectError::Refused(refusal) => {
                if !refusal.detail.is_empty() && refusal.code != RefusalCode::InvalidJobId {
                    self.error(&refusal.detail);
                }
                self.complain(&format!("{} for job {id}", refusal.code.text()));
                Some(refusal.code)
            }
            other => {
                self.request_failed("slurm_update error", other);
                None
            }
        }
    }
}

/// The number as users know it.
fn shown_id(job: &Job) -> String {
    match &job.array {
        ArrayRole::Task { base, index } => format!("{base}_{index}"),
        ArrayRole::None | ArrayRole::Pending { .. } => job.id.to_string(),
    }
}

/// `requeue incomplete ...`, `requeuehold State=SpecialExit ...`.
fn requeue_options<'a>(name: &str, words: &'a [String]) -> (bool, &'a [String]) {
    let mut special = false;
    let mut rest = words;
    if !name.starts_with("requeue") {
        return (false, rest);
    }
    while let Some((first, others)) = rest.split_first() {
        let lower = first.to_ascii_lowercase();
        if lower.starts_with("state=") {
            special |= lower == "state=specialexit";
        } else if !"incomplete".starts_with(&lower) || others.is_empty() {
            break;
        }
        rest = others;
    }
    (special, rest)
}

fn request(name: &str, target: JobTarget, special_exit: bool) -> UserCommand {
    match name {
        "hold" => UserCommand::Hold {
            target,
            user: false,
        },
        "holdu" | "uhold" => UserCommand::Hold { target, user: true },
        "release" => UserCommand::Release { target },
        "requeue" => UserCommand::Requeue {
            target,
            hold: false,
            special_exit,
        },
        "requeuehold" => UserCommand::Requeue {
            target,
            hold: true,
            special_exit,
        },
        "suspend" => UserCommand::Suspend { target },
        "resume" => UserCommand::Resume { target },
        _ => UserCommand::Top { target },
    }
}

/// Splits a list at commas outside brackets.
pub(super) fn ids(word: &str) -> Vec<String> {
    let mut depth = 0;
    word.split(move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        depth <= 0 && c == ','
    })
    .filter(|part| !part.is_empty())
    .map(str::to_owned)
    .collect()
}

/// All records that a filter finds.
pub(super) fn query_jobs(client: &mut Client, filter: JobFilter) -> Result<Vec<Job>, ConnectError> {
    let mut jobs = Vec::new();
    let mut answer = client.query(Query::Jobs(filter))?;
    loop {
        match answer {
            Response::Jobs(part) => {
                jobs.extend(part.jobs);
                if !part.more {
                    return Ok(jobs);
                }
            }
            other => return Err(unexpected(&other)),
        }
        answer = client.receive()?;
    }
}

/// A user's number, by name or number.
pub(super) fn uid(text: &str) -> Option<u32> {
    line::user(text)
        .map(|u| u.uid.as_raw())
        .or_else(|| text.parse().ok())
}
