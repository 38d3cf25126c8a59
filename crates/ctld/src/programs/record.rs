//! Data about a job for programs of the site, as the job was when the event happened. The texts are the specification's,
//! which jobs of an array share: the environment of a program is made when it begins, so that none is kept for programs
//! that wait.

use super::variable;
use crate::program_settings::ProgramSettings;
use muster_acct::RunKey;
use muster_core::state::State;
use muster_model::ids::JobId;
use muster_model::job::{Allocation, ArrayInfo, ArrayRole, ExitStatus, Job, JobState, Reason};
use muster_model::job_env::{self, JobView, Variables};
use muster_model::spec::JobSpec;
use muster_model::time::{TimeLimit, Timestamp};
use muster_model::visible_text::beginning;
use std::sync::Arc;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProgramJob {
    pub(super) id: JobId,
    pub(super) spec: Arc<JobSpec>,
    /// The task that it is, if it has a record of its own; nothing else.
    pub(super) array: ArrayRole,
    array_info: Option<ArrayInfo>,
    pub(super) state: JobState,
    pub(super) partition: String,
    pub(super) reason: Reason,
    /// Free text after the reason, or its beginning.
    pub(super) detail: Option<String>,
    pub(super) cancelled_by: Option<u32>,
    /// Its run, by which accounting knows it.
    pub(super) run: RunKey,
    pub(super) suspended_ms: u64,
    pub(super) exit: ExitStatus,
    pub(super) derived_exit: ExitStatus,
    pub(super) submit_time: Timestamp,
    pub(super) eligible_time: Option<Timestamp>,
    pub(super) start_time: Option<Timestamp>,
    pub(super) end_time: Option<Timestamp>,
    pub(super) time_limit: TimeLimit,
    pub(super) restarts: u32,
    pub(super) alloc: Option<AllocRecord>,
}

/// An allocation without what each node has of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AllocRecord {
    pub(super) hostlist: String,
    partition: String,
    pub(super) nodes: usize,
    pub(super) cpus: u64,
    pub(super) memory_mib: u64,
}

/// Bytes that are kept of the text after a reason.
const DETAIL_BYTES_MAX: usize = 512;

fn detail_beginning(text: &str) -> String {
    beginning(text, DETAIL_BYTES_MAX).to_owned()
}

impl ProgramJob {
    pub(super) fn of(state: &State, job: &Job) -> ProgramJob {
        let array_info = state.arrays.get(&job.submission());
        let alloc = job.alloc.as_deref().map(|alloc| AllocRecord {
            hostlist: alloc.hostlist.clone(),
            partition: alloc.partition.clone(),
            nodes: alloc.nodes.len(),
            cpus: alloc.cpus(),
            memory_mib: alloc.memory_mib(),
        });
        ProgramJob {
            id: job.id,
            spec: Arc::clone(&job.spec),
            array: match job.array {
                ArrayRole::Task { base, index } => ArrayRole::Task { base, index },
                ArrayRole::None | ArrayRole::Pending { .. } => ArrayRole::None,
            },
            array_info: array_info.map(ArrayInfo::without_tasks),
            state: job.state,
            partition: job.partition.clone(),
            reason: job.reason,
            detail: job.reason_detail.as_deref().map(detail_beginning),
            cancelled_by: job.cancelled_by,
            run: RunKey::of(job),
            suspended_ms: job.suspended_ms,
            exit: job.exit,
            derived_exit: job.derived_exit,
            submit_time: job.submit_time,
            eligible_time: job.eligible_time,
            start_time: job.start_time,
            end_time: job.end_time,
            time_limit: job.time_limit,
            restarts: job.restarts,
            alloc,
        }
    }

    /// Bytes that it takes beside its specification.
    pub(super) fn bytes(&self) -> usize {
        let alloc = self.alloc.as_ref();
        let texts = alloc.map_or(0, |alloc| alloc.hostlist.len() + alloc.partition.len());
        let detail = self.detail.as_ref().map_or(0, String::len);
        size_of::<ProgramJob>() + self.partition.len() + texts + detail
    }

    /// Variables about the job for all of these programs.
    pub(super) fn env(&self, settings: &ProgramSettings) -> Variables {
        let alloc = self.alloc.as_ref().map(|alloc| Allocation {
            hostlist: alloc.hostlist.clone(),
            partition: alloc.partition.clone(),
            ..Allocation::default()
        });
        let view = JobView {
            job: self.id,
            spec: &self.spec,
            alloc: &alloc.unwrap_or_default(),
            array: &self.array,
            array_info: self.array_info.as_ref(),
            start_time: self.start_time.unwrap_or(self.submit_time),
            time_limit: self.time_limit,
            restarts: self.restarts,
            account: self.spec.account_name(),
            qos: self.spec.qos_name(),
            cluster: &settings.cluster,
            conf_path: &settings.conf_path,
            working_cluster: "",
            lead_address: "",
            topology: ("", ""),
            components: &[],
        };
        // No node's: the controller runs them.
        let mut env = job_env::program_env(&view, usize::MAX);
        if let Some(array) = &self.array_info {
            env.push(variable("SLURM_ARRAY_TASK_COUNT", array.count));
            env.push(variable("SLURM_ARRAY_TASK_MAX", array.max));
            env.push(variable("SLURM_ARRAY_TASK_MIN", array.min));
            env.push(variable("SLURM_ARRAY_TASK_STEP", array.step));
        }
        env
    }

    /// Its end, as wait(2) and as Slurm write it.
    pub(super) fn exit_env(&self) -> Variables {
        let ExitStatus { code, signal } = self.exit;
        vec![
            variable("SLURM_JOB_EXIT_CODE", (code << 8) | signal),
            variable("SLURM_JOB_EXIT_CODE2", format!("{code}:{signal}")),
            variable("SLURM_JOB_DERIVED_EC", self.derived_exit.code),
        ]
    }
}
