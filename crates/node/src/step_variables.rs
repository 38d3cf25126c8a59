//! What the tasks of a step find in their environment: what srun has, with what describes the step put over it.

use crate::shim::environment::Environment;
use minicbor::{Decode, Encode};
use muster_core::ids::StepNo;
use muster_core::job_env::Variables;
use muster_proto::step::StepSpec;
use std::collections::{HashMap, HashSet};

/// The variables by which a step's number is found.
const NUMBER: [&str; 2] = ["SLURM_STEP_ID", "SLURM_STEPID"];

/// What is put over the environment of srun. Two steps that ask for the same and have the same differ in nothing of it but
/// their number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(crate) struct StepVariables {
    /// What describes the step; srun may say something else.
    #[n(0)]
    pub(crate) own: Variables,
    /// What this node adds, of which srun knows nothing.
    #[n(1)]
    pub(crate) node: Variables,
}

impl StepVariables {
    /// The environment of this step's tasks.
    pub(crate) fn environment(&self, spec: &StepSpec, step: StepNo) -> Environment {
        let number = step.to_string();
        let mut over: HashMap<&str, &str> = HashMap::with_capacity(self.own.len() + 16);
        over.extend(pairs(&self.own));
        over.extend(NUMBER.map(|name| (name, number.as_str())));
        over.extend(pairs(&spec.extra_env));
        over.extend(pairs(&self.node));
        let mut seen = HashSet::new();
        let inherited = spec.context.environment.iter().map(|v| v.len() + 1);
        let added = over.iter().map(|(k, v)| k.len() + v.len() + 2);
        let mut env = Environment::with_capacity(inherited.chain(added).sum());
        for variable in &spec.context.environment {
            let (name, _) = crate::agent::split_variable(variable);
            seen.insert(name);
            // Where the submission came from is srun's to say: the job's script may have changed it.
            let kept = matches!(name, "SLURM_SUBMIT_DIR" | "SLURM_SUBMIT_HOST");
            if kept || !over.contains_key(name) {
                env.push(&[variable]);
            }
        }
        over.retain(|name, _| !(name.starts_with("SLURM_SUBMIT_") && seen.contains(name)));
        for (name, value) in over {
            env.push(&[name.as_bytes(), b"=", value.as_bytes()]);
        }
        if !seen.contains("TMPDIR") {
            env.push(&[b"TMPDIR=/tmp"]);
        }
        env
    }
}

fn pairs(variables: &Variables) -> impl Iterator<Item = (&str, &str)> {
    variables.iter().map(|(k, v)| (k.as_str(), v.as_str()))
}
