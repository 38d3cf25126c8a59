//! Names of job states as users write them: long or short, in any case.

use muster_model::job::JobState;

/// A state that a listing can select by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobStateFilter {
    /// A base state.
    Base(JobState),
    /// `COMPLETING`.
    Completing,
    /// `CONFIGURING`.
    Configuring,
    /// `SPECIAL_EXIT`.
    SpecialExit,
    /// `REQUEUED`: a run that ended so, in accounting.
    Requeued,
    /// One of Slurm's states that jobs here are never in.
    Never,
}

/// States that stand beside the base states.
const FLAGS: &[(&str, &str, JobStateFilter)] = &[
    ("COMPLETING", "CG", JobStateFilter::Completing),
    ("CONFIGURING", "CF", JobStateFilter::Configuring),
    ("RESIZING", "RS", JobStateFilter::Never),
    ("RESV_DEL_HOLD", "RD", JobStateFilter::Never),
    ("REQUEUED", "RQ", JobStateFilter::Requeued),
    ("REQUEUE_FED", "RF", JobStateFilter::Never),
    ("REQUEUE_HOLD", "RH", JobStateFilter::Never),
    ("REVOKED", "RV", JobStateFilter::Never),
    ("SIGNALING", "SI", JobStateFilter::Never),
    ("SPECIAL_EXIT", "SE", JobStateFilter::SpecialExit),
    ("STAGE_OUT", "SO", JobStateFilter::Never),
    ("STOPPED", "ST", JobStateFilter::Never),
];

/// The state of that name.
pub(crate) fn parse(text: &str) -> Option<JobStateFilter> {
    let is =
        |name: &str, code: &str| text.eq_ignore_ascii_case(name) || text.eq_ignore_ascii_case(code);
    JobState::ALL
        .into_iter()
        .find(|state| is(state.name(), state.code()))
        .map(JobStateFilter::Base)
        .or_else(|| {
            FLAGS
                .iter()
                .find(|(name, code, _)| is(name, code))
                .map(|(_, _, filter)| *filter)
        })
}

/// All names, for an error.
pub(crate) fn names() -> String {
    let base = JobState::ALL.into_iter().map(JobState::name);
    let flags = FLAGS.iter().map(|(name, _, _)| *name);
    let all: Vec<&str> = base.chain(flags).collect();
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_any_case() {
        for text in ["PENDING", "pd", "Pd", "pending"] {
            assert_eq!(parse(text), Some(JobStateFilter::Base(JobState::Pending)));
        }
        assert_eq!(parse("cg"), Some(JobStateFilter::Completing));
        assert_eq!(parse("cf"), Some(JobStateFilter::Configuring));
        assert_eq!(parse("foo"), None);
        // As squeue 22.05.8 lists them.
        assert_eq!(
            names(),
            "PENDING,RUNNING,SUSPENDED,COMPLETED,CANCELLED,FAILED,TIMEOUT,NODE_FAIL,PREEMPTED,BOOT_FAIL,DEADLINE,\
             OUT_OF_MEMORY,COMPLETING,CONFIGURING,RESIZING,RESV_DEL_HOLD,REQUEUED,REQUEUE_FED,REQUEUE_HOLD,REVOKED,\
             SIGNALING,SPECIAL_EXIT,STAGE_OUT,STOPPED"
        );
    }
}
