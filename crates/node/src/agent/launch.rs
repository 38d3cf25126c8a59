//! From a grant to the shim's order: environment, files, limits, identity.

use super::context::Prepared;
use super::{Agent, scripts};
use crate::pattern::{Symbols, expand};
use crate::shim::wire::{Around, Launch, ToShim, User};
use crate::sys;
use muster_core::effect::TerminateReason;
use muster_core::ids::{BlobId, JobId};
use muster_core::job::ArrayRole;
use muster_core::job_env::{self, JobView};
use muster_core::spec::Owner;
use muster_proto::node::JobGrant;
use std::rc::Rc;

/// Why a launch failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: String,
    /// The node is at fault, and not the job.
    pub(super) node_fault: bool,
    /// The agent lacked something that it may have again soon.
    pub(super) is_temporary: bool,
}

impl Failure {
    fn of_job(error: impl Into<String>) -> Failure {
        Failure {
            error: error.into(),
            node_fault: false,
            is_temporary: false,
        }
    }

    fn of_node(error: impl Into<String>) -> Failure {
        Failure {
            node_fault: true,
            ..Failure::of_job(error)
        }
    }
}

/// The order for a job that has no script here.
pub(super) fn hold(grant: &JobGrant, around: Option<Box<Around>>) -> ToShim {
    ToShim::Hold {
        run: (grant.job, grant.attempt),
        grant: encoded(grant).into(),
        uid: grant.spec.owner.uid,
        around,
    }
}

fn encoded(grant: &JobGrant) -> Vec<u8> {
    minicbor::to_vec(grant).expect("writing to memory cannot fail")
}

/// The array that a job is a task of, and its index.
pub(super) fn array_of(grant: &JobGrant) -> Option<(JobId, u32)> {
    match &grant.array {
        ArrayRole::Task { base, index } => Some((*base, *index)),
        ArrayRole::None | ArrayRole::Pending { .. } => None,
    }
}

/// What is told on standard error when a job is ended.
pub(super) fn end_message(why: TerminateReason, at: &str) -> Option<String> {
    let cause = match why {
        TerminateReason::Cancelled => "",
        TerminateReason::TimeLimit => " DUE TO TIME LIMIT",
        TerminateReason::Requeued => " DUE to JOB REQUEUE",
        TerminateReason::Preempted => " DUE TO PREEMPTION",
        TerminateReason::NodeFailure => " DUE TO NODE FAILURE",
        TerminateReason::Finished => return None,
    };
    Some(format!("CANCELLED AT {at}{cause}"))
}

/// The programs that a key of slurm.conf names, which may be a pattern.
fn programs(key: &str, value: Option<&str>) -> Vec<String> {
    let Some(value) = value else {
        return Vec::new();
    };
    if !value.contains(['*', '?', '[']) {
        return vec![value.to_owned()];
    }
    let found = sys::glob(value);
    if found.is_empty() {
        log::warn!("{key}={value}: no file on this node fits the pattern");
    }
    found
}

impl Agent {
    /// Whether this agent can run processes of a user.
    pub(super) fn may_run_as(&self, uid: u32) -> Result<(), Failure> {
        let own = self.uid;
        if own == 0 || own == uid {
            return Ok(());
        }
        let error = format!(
            "the node agent runs as uid {own} and cannot run jobs of uid {uid}; start it as root to serve several users"
        );
        Err(Failure::of_job(error))
    }

    /// The job as its environment describes it.
    pub(super) fn view<'a>(&'a self, grant: &'a JobGrant) -> JobView<'a> {
        JobView {
            job: grant.job,
            spec: &grant.spec,
            alloc: &grant.alloc,
            array: &grant.array,
            array_info: grant.array_info.as_ref(),
            start_time: grant.start_time,
            time_limit: grant.time_limit,
            restarts: grant.restarts,
            account: &grant.account,
            qos: &grant.qos,
            cluster: &self.options.cluster,
            conf_path: &self.settings.conf_path,
            working_cluster: &self.settings.working_cluster,
            lead_address: grant.addresses.first().map_or("", String::as_str),
            topology: (
                &self.settings.topology_addr,
                &self.settings.topology_pattern,
            ),
            components: &grant.components,
        }
    }

    /// Who a job runs as.
    pub(super) fn user_of(&mut self, grant: &JobGrant) -> User {
        let owner = &grant.spec.owner;
        User {
            uid: owner.uid,
            gid: owner.gid,
            groups: self.groups_of(owner).unwrap_or_else(|| vec![owner.gid]),
            name: owner.user.clone(),
        }
    }

    /// The groups of a user, if they are known.
    pub(super) fn groups_of(&mut self, owner: &Owner) -> Option<Vec<u32>> {
        let user = (owner.user.clone(), owner.gid);
        self.users.groups(&user, &self.events)
    }

    /// The order that starts a batch script.
    pub(super) fn batch_launch(&mut self, grant: &JobGrant) -> Result<ToShim, Failure> {
        let spec = &grant.spec;
        self.may_run_as(spec.owner.uid)?;
        let id = spec
            .script
            .ok_or_else(|| Failure::of_job("the job has no script"))?;
        let script = self.blob(id, "script")?;
        let path = self
            .scripts
            .path(id, spec.owner.uid, spec.owner.gid, &script)
            .map_err(|e| Failure {
                is_temporary: scripts::is_temporary(&e),
                ..Failure::of_node(e.to_string())
            })?;
        let context = self.context(grant)?;
        self.give_context(spec.context, &context);
        let symbols = Symbols {
            job: grant.job,
            array: array_of(grant),
            step: None,
            node: &self.options.name,
            node_position: 0,
            task: 0,
            user: &spec.owner.user,
            job_name: &spec.name,
        };
        let default = if symbols.array.is_some() {
            "slurm-%A_%a.out"
        } else {
            "slurm-%j.out"
        };
        let file = |pattern: &Option<String>| pattern.as_ref().map(|p| expand(p, &symbols));
        let share = grant.alloc.nodes.get(grant.position as usize);
        let order = Launch {
            run: (grant.job, grant.attempt),
            grant: encoded(grant).into(),
            script: path,
            args: spec.argv.clone(),
            context: spec.context,
            env: self.batch_env(grant, &context),
            work_dir: spec.work_dir.clone(),
            stdin: file(&spec.stdio.stdin).unwrap_or_else(|| "/dev/null".to_owned()),
            stdout: file(&spec.stdio.stdout).unwrap_or_else(|| expand(default, &symbols)),
            stderr: file(&spec.stdio.stderr),
            append: spec.stdio.append.unwrap_or(self.settings.append),
            umask: context.umask,
            limits: self.limits(&context.soft_limits),
            user: self.user_of(grant),
            around: self.around(grant),
            cpus: share.and_then(|s| self.machine.threads(&s.cpus, &self.settings)),
        };
        Ok(ToShim::Launch(Box::new(order)))
    }

    /// What the site runs around a job, if anything.
    pub(super) fn around(&self, grant: &JobGrant) -> Option<Box<Around>> {
        let settings = &self.settings;
        if settings.prolog.is_none() && settings.epilog.is_none() {
            return None;
        }
        let position = usize::try_from(grant.position).unwrap_or(usize::MAX);
        let mut env: Vec<String> = job_env::program_env(&self.view(grant), position)
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        env.push(format!("MUSTER_SPOOL={}", self.options.spool_dir.display()));
        Some(Box::new(Around {
            prolog: programs("Prolog", settings.prolog.as_deref()),
            epilog: programs("Epilog", settings.epilog.as_deref()),
            env,
            prolog_timeout_s: settings.prolog_timeout_s,
            epilog_timeout_s: settings.epilog_timeout_s,
        }))
    }

    fn batch_env(&self, grant: &JobGrant, context: &Prepared) -> Vec<String> {
        let position = usize::try_from(grant.position).unwrap_or(usize::MAX);
        let mut env: Vec<String> = job_env::batch_env(&self.view(grant), position)
            .into_iter()
            .map(|(name, value)| match (&context.submit_dir, name.as_str()) {
                (Some(dir), "SLURM_SUBMIT_DIR") => format!("{name}={dir}"),
                _ => format!("{name}={value}"),
            })
            .collect();
        env.push(format!("MUSTER_SPOOL={}", self.options.spool_dir.display()));
        env.push(format!("MUSTER_ATTEMPT={}", grant.attempt.0));
        if !context.has_tmpdir {
            env.push("TMPDIR=/tmp".to_owned());
        }
        env
    }

    /// Limits that `PropagateResourceLimits` lets through.
    pub(super) fn limits(&self, soft: &[(u32, u64)]) -> Vec<(u32, u64)> {
        let wanted = &self.settings.propagate_limits;
        soft.iter()
            .filter(|(resource, _)| wanted.contains(resource))
            .copied()
            .collect()
    }

    fn context(&mut self, grant: &JobGrant) -> Result<Rc<Prepared>, Failure> {
        let Some(id) = grant.spec.context else {
            return Ok(Rc::new(Prepared {
                umask: 0o022,
                ..Prepared::default()
            }));
        };
        let bytes = self.blob(id, "execution context")?;
        self.contexts.get(id, &bytes).map_err(Failure::of_job)
    }

    /// Sends the shim an environment once per connection.
    fn give_context(&mut self, id: Option<BlobId>, context: &Prepared) {
        if let Some(id) = id
            && self.shim_contexts.insert(id)
        {
            self.shim_order(&ToShim::Context(id, context.env.clone()));
        }
    }

    fn blob(&self, id: BlobId, what: &str) -> Result<Rc<Vec<u8>>, Failure> {
        self.blobs.get(&id).cloned().ok_or_else(|| {
            Failure::of_node(format!(
                "the controller did not send the job's {what} ({id:?})"
            ))
        })
    }
}
