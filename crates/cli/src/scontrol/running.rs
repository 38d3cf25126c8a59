//! Changes of running jobs and of the running controller: `update StepId=`, `notify`, `setdebug`.

use super::Session;
use super::update::Pair;
use crate::connect::{ConnectError, unexpected};
use crate::targets::{job_target, step_number};
use muster_conf::options::job::read_limit;
use muster_model::command::{JobTarget, UserCommand};
use muster_model::ids::StepNo;
use muster_model::refusal::RefusalCode;
use muster_model::time::TimeLimit;
use muster_proto::client::{RequestBody, Response};

impl Session {
    /// `update StepId=JOB[.STEP] TimeLimit=TIME`.
    pub(super) fn update_step(&mut self, pairs: &[Pair]) {
        let (mut named, mut limit) = (None, None);
        for pair in pairs {
            if pair.is("stepid", 4) {
                named = step(&pair.value);
                if named.is_none() {
                    self.complain(&format!("Invalid StepID parameter: {}", pair.text));
                    return self.complain("Request aborted");
                }
            } else if pair.is("timelimit", 5) {
                limit = read_limit(&pair.value).ok();
                if limit.is_none() || pair.sign.is_some() {
                    return self.complain("Invalid TimeLimit value");
                }
            } else {
                return self.not_supported(pair, None);
            }
        }
        let (Some((target, step)), Some(limit)) = (named, limit) else {
            return self.complain("No changes specified");
        };
        let time_limit = match limit {
            TimeLimit::Minutes(0) => TimeLimit::Unlimited,
            limit => limit,
        };
        self.send_update(UserCommand::UpdateStep {
            target,
            step,
            time_limit,
        });
    }

    /// `notify JOB MESSAGE...`.
    pub(super) fn notify(&mut self, words: &[String]) {
        let (job, text) = (&words[0], words[1..].join(" "));
        let Some(target) = job_target(job) else {
            return self.error(&format!("Invalid job id {job}"));
        };
        self.send_change(UserCommand::Notify { target, text }, "job notify failure");
    }

    /// `setdebug LEVEL`.
    pub(super) fn set_debug(&mut self, level: &str, nodes: Option<&String>) {
        if nodes.is_some() {
            return self.error(
                "the levels of agents are set by SlurmdDebug in slurm.conf when they start; nothing was done",
            );
        }
        let request = RequestBody::SetDebug(level.to_owned());
        match self.client().and_then(|c| c.call(request)) {
            Ok(Response::Done) => {}
            Ok(other) => self.request_failed("slurm_set_debug_level error", &unexpected(&other)),
            Err(ConnectError::Refused(refusal)) if refusal.code == RefusalCode::InvalidValue => {
                self.error(&refusal.detail);
                self.complain(&format!("invalid debug level: {level}"));
            }
            Err(error) => self.request_failed("slurm_set_debug_level error", &error),
        }
    }
}

/// A job, and one of its steps if one is named.
fn step(text: &str) -> Option<(JobTarget, Option<StepNo>)> {
    let Some((job, step)) = text.split_once('.') else {
        return Some((job_target(text)?, None));
    };
    Some((job_target(job)?, Some(step_number(step)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::JobId;

    #[test]
    fn steps() {
        let (target, number) = step("12.3").unwrap();
        assert_eq!(
            (target.job, target.tasks, number),
            (JobId(12), None, Some(StepNo(3)))
        );
        let (target, number) = step("12_4.0").unwrap();
        assert!(target.tasks.is_some_and(|t| t.contains(4)) && number == Some(StepNo(0)));
        assert_eq!(step("12").unwrap().1, None);
        assert!(step("x.0").is_none() && step("12.x").is_none() && step("").is_none());
    }
}
