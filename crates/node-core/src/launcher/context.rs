//! Execution contexts (environment, umask, limits) as launches need them, decoded once for all launches that wait with the same.

use crate::tmp_dir;
use muster_model::environment::{Environment, split};
use muster_model::ids::BlobId;
use muster_model::job_env;
use muster_model::spec::{ExecContext, SoftLimit};
use std::collections::HashMap;
use std::rc::{Rc, Weak};

/// A context without what the node sets itself.
#[derive(Debug)]
pub struct Context {
    /// `NAME=value` of the submitter.
    pub env: Environment,
    /// `SLURM_SUBMIT_DIR` that sbatch set.
    pub submit_dir: Option<String>,
    /// `TMPDIR` and `TMP` of the submitter, for jobs without a temporary directory of their own.
    pub tmp_env: Environment,
    /// File mode creation mask.
    pub umask: u32,
    /// Soft limits.
    pub soft_limits: Vec<SoftLimit>,
}

impl Default for Context {
    fn default() -> Context {
        Context {
            env: Environment::default(),
            submit_dir: None,
            tmp_env: Environment::default(),
            umask: 0o022,
            soft_limits: Vec::new(),
        }
    }
}

/// Contexts by content, for as long as a launch has them.
#[derive(Debug, Default)]
pub(super) struct Contexts(HashMap<BlobId, Weak<Context>>);

impl Contexts {
    /// The context of that content.
    ///
    /// # Errors
    /// When the bytes are not one.
    pub(super) fn get(&mut self, id: BlobId, bytes: &[u8]) -> Result<Rc<Context>, String> {
        if let Some(known) = self.0.get(&id).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let context: ExecContext = muster_proto::frame::decode(bytes)
            .map_err(|e| format!("the execution context cannot be read: {e}"))?;
        let prepared = Rc::new(prepare(context));
        self.0.insert(id, Rc::downgrade(&prepared));
        Ok(prepared)
    }

    /// Forgets one.
    pub(super) fn remove(&mut self, id: BlobId) {
        self.0.remove(&id);
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

fn prepare(context: ExecContext) -> Context {
    let mut out = Context {
        umask: context.umask,
        soft_limits: context.soft_limits,
        ..Context::default()
    };
    for variable in context.environment.iter() {
        let (name, value) = split(variable);
        match name {
            "SLURM_SUBMIT_DIR" => out.submit_dir = value.map(str::to_owned),
            "ENVIRONMENT" | "HOSTNAME" | "SLURM_SUBMIT_HOST" | "MUSTER_SPOOL"
            | "MUSTER_ATTEMPT" => {}
            name if job_env::is_job_variable(name) => {}
            name if tmp_dir::VARIABLES.contains(&name) => out.tmp_env.push(&[variable]),
            _ => out.env.push(&[variable]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_shared_and_kept_no_longer_than_launches_have_it() {
        let bytes = minicbor::to_vec(ExecContext::default()).unwrap();
        let (mut contexts, id) = (Contexts::default(), BlobId([1; 32]));
        let first = contexts.get(id, &bytes).unwrap();
        assert!(Rc::ptr_eq(&first, &contexts.get(id, &bytes).unwrap()));
        let kept = Rc::downgrade(&first);
        drop(first);
        assert!(kept.upgrade().is_none());
        assert!(contexts.get(id, &bytes).is_ok());
    }
}
