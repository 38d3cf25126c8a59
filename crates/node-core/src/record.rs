//! The lead's record of a step. The launcher stores it for the next agent process, and the step's daemon for a
//! launcher that does not know the step.

use crate::layout;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::cpuset::CpuSet;
use muster_model::distribution::Distribution;
use muster_model::hostlist;
use muster_model::ids::StepNo;
use muster_model::job::{Allocation, GresShare, NodeShare, Step, StepEnd};
use muster_model::limits::{FRAME_BYTES_MAX, PATH_BYTES_MAX, STEP_LINE_BYTES_MAX};
use muster_model::spec::StdioSpec;
use muster_model::time::Timestamp;
use muster_model::validate::Validate;
use muster_model::visible_text::beginning;
use muster_proto::step::StepSpec;

/// A step.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub struct StepRecord {
    /// The step as listings show it.
    #[n(0)]
    pub step: Step,
    /// The nodes of the step.
    #[n(1)]
    pub nodes: Vec<RecordNode>,
    /// It holds its resources against other steps.
    #[n(2)]
    pub holds: bool,
    /// The key by which srun and the step's daemons know each other.
    #[n(3)]
    pub key: ByteVec,
    /// The user who has ended the step by a signal, if one did.
    #[n(4)]
    pub cancelled_by: Option<u32>,
}

/// A node of a step.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub struct RecordNode {
    /// Position in the allocation that the job had then.
    #[n(0)]
    pub at: u32,
    /// CPUs.
    #[n(1)]
    pub cpus: CpuSet,
    /// Memory, MiB.
    #[n(2)]
    pub memory_mib: u64,
    /// Devices.
    #[n(3)]
    pub gres: Vec<GresShare>,
    /// Global numbers of its tasks here.
    #[n(4)]
    pub tasks: Vec<u32>,
    /// End of the step here.
    #[n(5)]
    pub end: Option<StepEnd>,
    /// The name of the step.
    #[n(6)]
    #[cbor(default)]
    pub name: String,
}

impl RecordNode {
    /// Position in the allocation that the job has now; none if it gave the node up.
    pub fn position(&self, alloc: &Allocation) -> Option<usize> {
        let at = self.at as usize;
        let is_it = |share: &&NodeShare| share.name == self.name;
        match alloc.nodes.get(at).filter(is_it) {
            Some(_) => Some(at),
            None => alloc.nodes.iter().position(|share| is_it(&share)),
        }
    }
}

impl StepRecord {
    /// A step that begins, with its nodes and their names.
    pub fn new(
        step: StepNo,
        spec: &StepSpec,
        key: ByteVec,
        (placed, names): (&[layout::NodePlacement], &[String]),
        now: Timestamp,
    ) -> StepRecord {
        let nodes = placed.iter().zip(names);
        StepRecord {
            step: describe((step, spec), placed, names, now),
            holds: !spec.overlap,
            key,
            cancelled_by: None,
            nodes: nodes
                .map(|(p, name)| RecordNode {
                    at: u32::try_from(p.node).unwrap_or(u32::MAX),
                    cpus: p.cpus.clone(),
                    memory_mib: p.memory_mib,
                    // Devices of a step that asked for none are shared.
                    gres: if spec.wants_devices() {
                        p.gres.clone()
                    } else {
                        Vec::new()
                    },
                    tasks: p.tasks.clone(),
                    end: None,
                    name: name.clone(),
                })
                .collect(),
        }
    }

    /// Whether the step has ended on all nodes.
    pub fn is_over(&self) -> bool {
        self.nodes.iter().all(|n| n.end.is_some())
    }
}

/// Names of files for listings. Longer names cannot be opened, and the controller stores the names of each running
/// step.
fn shown_stdio(stdio: &StdioSpec) -> StdioSpec {
    let shown = |file: &Option<String>| {
        let name = file.as_deref()?;
        Some(beginning(name, PATH_BYTES_MAX).to_owned())
    };
    StdioSpec {
        stdin: shown(&stdio.stdin),
        stdout: shown(&stdio.stdout),
        stderr: shown(&stdio.stderr),
        append: stdio.append,
    }
}

/// The step as listings show it.
fn describe(
    (step, spec): (StepNo, &StepSpec),
    placed: &[layout::NodePlacement],
    names: &[String],
    now: Timestamp,
) -> Step {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let tasks = count(placed.iter().map(|p| p.tasks.len()).sum());
    let spread = Distribution::parse(spec.distribution.as_deref().unwrap_or(""))
        .unwrap_or_default()
        .with_default(tasks, count(placed.len()));
    Step {
        step,
        name: spec.name.clone(),
        hostlist: hostlist::compress(names),
        nodes: count(placed.len()),
        tasks,
        cpus: placed.iter().map(|p| p.cpus.len()).sum(),
        memory_mib: placed.iter().map(|p| p.memory_mib).sum(),
        start_time: now,
        stdio: shown_stdio(&spec.stdio),
        submit_line: beginning(&spec.submit_line, STEP_LINE_BYTES_MAX).to_owned(),
        time_limit: spec.time_limit,
        distribution: Some(spread.title()),
        maker: spec.maker.clone(),
        devices: GresShare::sums(placed.iter().flat_map(|p| &p.gres)),
        device_ask: spec.device_ask.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The controller stores the reported data of a step as long as the step runs, and thousands of steps may run.
    #[test]
    fn texts_of_a_step_are_short() {
        let long = || Some("x".repeat(64 << 10));
        let spec = StepSpec {
            submit_line: "y".repeat(64 << 10),
            stdio: StdioSpec {
                stdin: long(),
                stdout: long(),
                stderr: long(),
                append: Some(true),
            },
            ..StepSpec::default()
        };
        let step = describe((StepNo(1), &spec), &[], &[], Timestamp(1));
        let stdio = &step.stdio;
        let files = [&stdio.stdin, &stdio.stdout, &stdio.stderr];
        let lengths = files.map(|file| file.as_ref().map(String::len));
        assert_eq!(lengths, [Some(PATH_BYTES_MAX); 3]);
        assert_eq!(stdio.append, Some(true));
        assert_eq!(step.submit_line.len(), STEP_LINE_BYTES_MAX);
        let bytes = minicbor::to_vec(&step).unwrap().len();
        assert!(bytes < 17 << 10, "{bytes}");
    }
}
