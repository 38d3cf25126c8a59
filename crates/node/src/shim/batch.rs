//! From a grant to what a batch script is started with: environment, files, limits, identity.

use super::context::Prepared;
use super::jobs::Shim;
use super::launch::Strings;
use super::scripts;
use crate::sys;
use muster_model::cpuset::CpuSet;
use muster_model::ids::BlobId;
use muster_model::job_env;
use muster_model::spec::JobKind;
use muster_node_core::PrologEpilog;
use muster_node_core::job_view::{array_of, job_view, propagated_limits};
use muster_node_core::messages::{JobAttempt, User};
use muster_node_core::pattern::{Symbols, expand};
use muster_proto::node::JobGrant;
use std::rc::Rc;

/// A batch script to start.
#[derive(Debug)]
pub(crate) struct Launch {
    /// The job.
    pub(crate) run: JobAttempt,
    /// Who it runs as.
    pub(crate) user: Rc<User>,
    /// The script's path.
    pub(crate) script: String,
    /// Arguments after the script's name.
    pub(crate) args: Vec<String>,
    /// The submitter's environment.
    pub(crate) context: Rc<Prepared>,
    /// Variables of this job, as `NAME=value`; none of them is in the context.
    pub(crate) env: Strings,
    /// Working directory.
    pub(crate) work_dir: String,
    /// Files, relative to the working directory.
    pub(crate) stdin: String,
    /// See above.
    pub(crate) stdout: String,
    /// Joined to standard output when absent.
    pub(crate) stderr: Option<String>,
    /// Append to the files.
    pub(crate) append: bool,
    /// Soft limits.
    pub(crate) limits: Vec<(u32, u64)>,
    /// CPUs that it may run on, by the kernel's numbers.
    pub(crate) cpus: Option<CpuSet>,
    /// How often it could not be started.
    pub(crate) tries: u32,
}

/// Why a launch failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: String,
    /// The node is at fault, and not the job.
    pub(super) node_fault: bool,
    /// The launcher lacked something that it may have again soon.
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

/// A script's text, and what it is run in.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) script: BlobId,
    pub(super) text: Rc<[u8]>,
    pub(super) context: Rc<Prepared>,
}

/// Whether a grant is for the node that runs the job's script.
pub(super) fn has_script(grant: &JobGrant) -> bool {
    grant.position == 0 && grant.spec.kind == JobKind::Batch
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
        eprintln!("{key}={value}: no file on this node fits the pattern");
    }
    found
}

impl Shim {
    /// Whether this launcher can run processes of a user.
    pub(super) fn may_run_as(&self, uid: u32) -> Result<(), Failure> {
        let own = nix::unistd::geteuid().as_raw();
        if own == 0 || own == uid {
            return Ok(());
        }
        let error = format!(
            "the node agent runs as uid {own} and cannot run jobs of uid {uid}; start it as root to serve several users"
        );
        Err(Failure::of_job(error))
    }

    /// What a batch job's script needs of what the controller has sent.
    pub(super) fn batch_of(&mut self, grant: &JobGrant) -> Result<Batch, Failure> {
        let spec = &grant.spec;
        let blob = |shim: &Shim, id, what: &str| {
            shim.blobs.get(&id).cloned().ok_or_else(|| {
                Failure::of_node(format!(
                    "the controller did not send the job's {what} ({id:?})"
                ))
            })
        };
        let id = spec.script;
        let id = id.ok_or_else(|| Failure::of_job("the job has no script"))?;
        let text = blob(self, id, "script")?;
        let context = match spec.context {
            None => Rc::default(),
            Some(id) => {
                let bytes = blob(self, id, "execution context")?;
                self.contexts.get(id, &bytes).map_err(Failure::of_job)?
            }
        };
        Ok(Batch {
            script: id,
            text,
            context,
        })
    }

    /// The launch of a batch script.
    pub(super) fn batch_launch(
        &mut self,
        grant: &JobGrant,
        user: Rc<User>,
        batch: Batch,
    ) -> Result<Launch, Failure> {
        let spec = &grant.spec;
        let (uid, gid) = (spec.owner.uid, spec.owner.gid);
        let path = self
            .scripts
            .path(batch.script, uid, gid, &batch.text)
            .map_err(|e| Failure {
                is_temporary: scripts::is_temporary(&e),
                ..Failure::of_node(e.to_string())
            })?;
        let symbols = Symbols {
            job: grant.job,
            array: array_of(grant),
            step: None,
            node: &self.place.node,
            node_position: 0,
            task: 0,
            user: &spec.owner.user,
            job_name: &spec.name,
        };
        let default = match symbols.array {
            Some(_) => "slurm-%A_%a.out",
            None => "slurm-%j.out",
        };
        let file = |pattern: &Option<String>| pattern.as_ref().map(|p| expand(p, &symbols));
        let share = grant.alloc.nodes.get(grant.position as usize);
        let machine = self.machine.as_ref();
        Ok(Launch {
            run: JobAttempt::new(grant.job, grant.attempt),
            user,
            script: path,
            args: spec.argv.clone(),
            env: self.batch_env(grant, &batch.context),
            work_dir: spec.work_dir.clone(),
            stdin: file(&spec.stdio.stdin).unwrap_or_else(|| "/dev/null".to_owned()),
            stdout: file(&spec.stdio.stdout).unwrap_or_else(|| expand(default, &symbols)),
            stderr: file(&spec.stdio.stderr),
            append: spec.stdio.append.unwrap_or(self.settings.append),
            limits: propagated_limits(&self.settings, &batch.context.soft_limits),
            cpus: machine.and_then(|m| m.threads(&share?.cpus, &self.settings)),
            context: batch.context,
            tries: 0,
        })
    }

    fn batch_env(&self, grant: &JobGrant, context: &Prepared) -> Strings {
        let position = usize::try_from(grant.position).unwrap_or(usize::MAX);
        let view = job_view(grant, &self.place.cluster, &self.settings);
        let mut env = Strings::default();
        for (name, value) in job_env::batch_env(&view, position) {
            let value = match (&context.submit_dir, name.as_str()) {
                (Some(dir), "SLURM_SUBMIT_DIR") => dir,
                _ => &value,
            };
            env.push(&[name.as_bytes(), b"=", value.as_bytes()]);
        }
        let spool = self.spool.to_string_lossy();
        env.push(&[b"MUSTER_SPOOL=", spool.as_bytes()]);
        let attempt = grant.attempt.0.to_string();
        env.push(&[b"MUSTER_ATTEMPT=", attempt.as_bytes()]);
        if !context.has_tmpdir {
            env.push(&[b"TMPDIR=/tmp"]);
        }
        env
    }

    /// What the site runs around a job, if anything.
    pub(super) fn around_of(&self, grant: &JobGrant) -> Option<Box<PrologEpilog>> {
        let settings = &self.settings;
        if settings.prolog.is_none() && settings.epilog.is_none() {
            return None;
        }
        let position = usize::try_from(grant.position).unwrap_or(usize::MAX);
        let view = job_view(grant, &self.place.cluster, settings);
        let mut env: Vec<String> = job_env::program_env(&view, position)
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        env.push(format!("MUSTER_SPOOL={}", self.spool.display()));
        Some(Box::new(PrologEpilog {
            prolog: programs("Prolog", settings.prolog.as_deref()),
            epilog: programs("Epilog", settings.epilog.as_deref()),
            env,
            prolog_timeout_s: settings.prolog_timeout_s,
            epilog_timeout_s: settings.epilog_timeout_s,
        }))
    }
}
