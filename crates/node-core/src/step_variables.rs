//! The environment of a step's tasks: srun's own, overridden by the variables that describe the step.

use muster_model::environment::{self, Environment};
use muster_model::ids::StepNo;
use muster_model::job_env::Variables;
use muster_proto::step::StepSpec;

/// The variables by which a step's number is found.
const NUMBER: [&[u8]; 2] = [b"SLURM_STEP_ID", b"SLURM_STEPID"];

/// Bytes that they take.
const ROOM_FOR_NUMBER: usize = 64;
/// The value for a task if srun's environment has none.
const TMPDIR: &[u8] = b"TMPDIR=/tmp";

/// Variables that override the environment of srun.
#[derive(Debug)]
pub struct StepVariables {
    /// Variables that describe the step; srun may override them.
    pub own: Variables,
    /// Variables of this node, which srun does not know.
    pub node: Variables,
}

impl StepVariables {
    /// The environment of this step's tasks.
    pub fn environment(&self, spec: &StepSpec, step: StepNo) -> Environment {
        let over = self.over(&spec.extra_env);
        let added = over.iter().map(|(k, v)| k.len() + v.len() + 2);
        let inherited = &spec.context.environment;
        let mut env = Environment::with_capacity(
            inherited.count() + over.len() + 1 + NUMBER.len(),
            inherited.size_bytes() + added.sum::<usize>() + TMPDIR.len() + 1 + ROOM_FOR_NUMBER,
        );
        let mut seen = vec![false; over.len()];
        let mut has_tmpdir = over.iter().any(|(name, _)| *name == b"TMPDIR");
        for variable in inherited.iter() {
            let name = environment::name(variable);
            has_tmpdir |= name == b"TMPDIR";
            let at = over.binary_search_by_key(&name, |(over, _)| *over);
            if let Ok(at) = at {
                seen[at] = true;
            }
            // The origin of the submission comes from srun, because the job's script may have changed it.
            let kept = matches!(name, b"SLURM_SUBMIT_DIR" | b"SLURM_SUBMIT_HOST");
            if kept || (at.is_err() && !NUMBER.contains(&name)) {
                env.push(&[variable]);
            }
        }
        for ((name, value), seen) in over.into_iter().zip(seen) {
            if !(seen && name.starts_with(b"SLURM_SUBMIT_")) {
                env.push(&[name, b"=", value]);
            }
        }
        if !has_tmpdir {
            env.push(&[TMPDIR]);
        }
        let number = step.to_string();
        for name in NUMBER {
            env.push(&[name, b"=", number.as_bytes()]);
        }
        env
    }

    /// The overriding variables, by name: those of the node take precedence, then those of srun.
    fn over<'a>(&'a self, extra: &'a Variables) -> Vec<(&'a [u8], &'a [u8])> {
        let mut over = Vec::with_capacity(self.own.len() + extra.len() + self.node.len());
        for variables in [&self.node, extra, &self.own] {
            // If a list has a name twice, the last value counts.
            over.extend(
                variables
                    .iter()
                    .rev()
                    .map(|(k, v)| (k.as_bytes(), v.as_bytes())),
            );
        }
        over.sort_by_key(|(name, _)| *name);
        over.dedup_by_key(|(name, _)| *name);
        over.retain(|(name, _)| !NUMBER.contains(name));
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(all: &[(&str, &str)]) -> Variables {
        all.iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn what_describes_the_step_is_put_over_what_srun_has() {
        let variables = StepVariables {
            own: pairs(&[
                ("OWN", "1"),
                ("BOTH", "1"),
                ("SLURM_STEPID", "3"),
                ("SLURM_SUBMIT_DIR", "/job"),
            ]),
            node: pairs(&[("NODE", "3"), ("BOTH", "3")]),
        };
        let mut spec = StepSpec {
            extra_env: pairs(&[("BOTH", "2"), ("OWN", "2"), ("OWN", "4")]),
            ..StepSpec::default()
        };
        let inherited = ["OWN=0", "SLURM_STEPID=9", "SLURM_SUBMIT_DIR=/srun", "X=a=b"];
        spec.context.environment = inherited.iter().collect();
        let env = variables.environment(&spec, StepNo(7));
        let mut all: Vec<&str> = env.iter().map(|v| str::from_utf8(v).unwrap()).collect();
        all.sort_unstable();
        let wanted = [
            "BOTH=3",
            "NODE=3",
            "OWN=4",
            "SLURM_STEPID=7",
            "SLURM_STEP_ID=7",
            "SLURM_SUBMIT_DIR=/srun",
            "TMPDIR=/tmp",
            "X=a=b",
        ];
        assert_eq!(all, wanted);
        spec.context.environment = ["TMPDIR=/x"].iter().collect();
        let env = variables.environment(&spec, StepNo(8));
        assert_eq!(env.value(b"SLURM_SUBMIT_DIR"), Some(&b"/job"[..]));
        assert_eq!(env.value(b"TMPDIR"), Some(&b"/x"[..]));
    }
}
