//! The current use of running jobs, as the agents of their nodes measure it: `qstat -ext`, `-t`, `-j`.

use crate::connect::Client;
use crate::measure::{self, AgentQuestion, NodeAnswer, ask_agents, nodes_of};
use crate::say;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::{Job, JobState, ResourceUsage};
use muster_proto::client::{Query, Response};
use muster_proto::step::AgentReply;
use std::collections::HashMap;
use std::time::Duration;

/// Jobs of which one command asks the agents: each takes a connection to each of its nodes.
const JOBS_MAX: usize = 100;
/// Time that one command waits for all agents. Values unknown then are `NA`.
const AGENTS_PATIENCE: Duration = Duration::from_secs(3);

/// The use of a step on one node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StepUsage {
    /// The node.
    pub(super) node: String,
    /// The step.
    pub(super) step: StepNo,
    /// Its use.
    pub(super) usage: ResourceUsage,
}

/// The measurements of a job.
#[derive(Debug, Default)]
struct JobUsage {
    steps: Vec<StepUsage>,
    /// Nodes without an answer.
    silent: Vec<String>,
}

/// The use of steps, by job. Jobs of others, and those beyond [`JOBS_MAX`], are not among them.
#[derive(Debug, Default)]
pub(super) struct Measured {
    jobs: HashMap<JobId, JobUsage>,
}

impl Measured {
    /// Asks for the jobs that run and that the caller may ask about. Nodes without an answer are named on standard error.
    pub(super) fn of<'a>(client: &mut Client, jobs: impl Iterator<Item = &'a Job>) -> Measured {
        let caller = nix::unistd::getuid();
        let may_ask = |job: &&Job| caller.is_root() || job.spec.owner.uid == caller.as_raw();
        let mut nodes = Vec::new();
        for job in jobs.filter(may_ask).filter(runs).take(JOBS_MAX) {
            if let Ok(Response::JobStarted(info)) = client.query(Query::Allocation(job.id)) {
                nodes.extend(nodes_of(&info));
            }
        }
        let answers = ask_agents(nodes, AgentQuestion::Usage, AGENTS_PATIENCE);
        for failure in measure::failures(&answers) {
            say::stderr(&format!("warning: {failure}\n"));
        }
        Measured::from_answers(answers)
    }

    fn from_answers(answers: Vec<NodeAnswer>) -> Measured {
        let mut measured = Measured::default();
        for NodeAnswer { job, node, reply } in answers {
            let known = measured.jobs.entry(job).or_default();
            match reply {
                Err(_) => known.silent.push(node),
                Ok(Some(AgentReply::Measured(steps))) => {
                    known
                        .steps
                        .extend(steps.into_iter().map(|measured| StepUsage {
                            node: node.clone(),
                            step: measured.step,
                            usage: measured.usage,
                        }));
                }
                Ok(_) => {}
            }
        }
        measured
    }

    /// Measurements for a test, and the silent nodes.
    #[cfg(test)]
    pub(super) fn from_steps(job: JobId, steps: Vec<StepUsage>, silent: &[&str]) -> Measured {
        let silent = silent.iter().map(|node| (*node).to_owned()).collect();
        Measured {
            jobs: HashMap::from([(job, JobUsage { steps, silent })]),
        }
    }

    /// The use of a job's steps on each node that has answered.
    pub(super) fn steps(&self, job: &Job) -> &[StepUsage] {
        self.jobs.get(&job.id).map_or(&[], |known| &known.steps)
    }

    /// Whether a node of a job has not answered.
    pub(super) fn is_silent(&self, job: &Job, node: &str) -> bool {
        let known = self.jobs.get(&job.id);
        known.is_some_and(|known| known.silent.iter().any(|own| own == node))
    }

    /// The use of a job altogether; `None` where nothing of it is known, or not of all of its nodes.
    pub(super) fn total(&self, job: &Job) -> Option<ResourceUsage> {
        let known = self.jobs.get(&job.id)?;
        let mut steps = known.steps.iter().filter(|_| known.silent.is_empty());
        let mut total = steps.next()?.usage.clone();
        steps.for_each(|own| total.add(&own.usage));
        Some(total)
    }
}

fn runs(job: &&Job) -> bool {
    let is_started = matches!(job.state, JobState::Running | JobState::Suspended);
    is_started && !job.completing && job.alloc.is_some()
}

/// Whether users start the step by srun, so that it has a number.
pub(super) fn is_numbered(step: StepNo) -> bool {
    step < StepNo::INTERACTIVE
}

/// Seconds of processor time.
pub(super) fn cpu_s(usage: &ResourceUsage) -> u64 {
    usage.user_us.saturating_add(usage.system_us) / 1_000_000
}

/// `26:03:01`.
pub(super) fn clock(seconds: u64) -> String {
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}", seconds % 60)
}

/// `1:02:03:01`.
pub(super) fn days_and_clock(seconds: u64) -> String {
    format!("{}:{}", seconds / 86_400, clock(seconds % 86_400))
}

/// Bytes read and written, in GiB.
#[allow(clippy::cast_precision_loss)]
pub(super) fn io_gib(usage: &ResourceUsage) -> f64 {
    let bytes = usage.disk_read_bytes.saturating_add(usage.disk_write_bytes);
    bytes as f64 / f64::from(1 << 30)
}

/// `30.691M`, `1.500G`.
#[allow(clippy::cast_precision_loss)]
pub(super) fn memory(kib: u64) -> String {
    match kib as f64 {
        kib if kib < 1024.0 => format!("{kib:.3}K"),
        kib if kib < 1024.0 * 1024.0 => format!("{:.3}M", kib / 1024.0),
        kib => format!("{:.3}G", kib / 1024.0 / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid_engine::qstat::lines::{self, Entry, EntrySource, View};
    use crate::listing::context::Ctx;
    use jiff::tz::TimeZone;
    use muster_conf::grid_engine::Mapping;
    use muster_model::cpuset::CpuSet;
    use muster_model::ids::NodeIdx;
    use muster_model::job::{Allocation, NodeShare};
    use muster_model::spec::JobSpec;
    use muster_model::time::{TimeLimit, Timestamp};
    use muster_proto::step::MeasuredStep;
    use std::sync::Arc;

    fn running(nodes: &[&str]) -> Job {
        let (spec, at) = (Arc::new(JobSpec::default()), Timestamp(0));
        let mut job = Job::new(JobId(4), spec, TimeLimit::Unlimited, at);
        (job.state, job.start_time) = (JobState::Running, Some(at));
        let share = |name: &&str| NodeShare {
            node: NodeIdx(0),
            name: (*name).to_owned(),
            cpus: CpuSet::first(1),
            memory_mib: 0,
            tasks: 1,
            gres: Vec::new(),
        };
        job.alloc = Some(Arc::new(Allocation {
            nodes: nodes.iter().map(share).collect(),
            ..Allocation::default()
        }));
        job
    }

    fn answer(node: &str, reply: Result<Option<u64>, &str>) -> NodeAnswer {
        let measured = |user_us| {
            let usage = ResourceUsage {
                user_us,
                ..ResourceUsage::default()
            };
            AgentReply::Measured(vec![MeasuredStep {
                step: StepNo(0),
                usage,
            }])
        };
        NodeAnswer {
            job: JobId(4),
            node: node.to_owned(),
            reply: reply.map(|used| used.map(measured)).map_err(str::to_owned),
        }
    }

    /// The sum of the nodes that had answered was shown as what the job uses.
    #[test]
    fn what_a_job_uses_is_not_known_while_a_node_is_silent() {
        let job = running(&["n1", "n2", "n3"]);
        let total = |third| {
            let answers = vec![
                answer("n1", Ok(Some(2_000_000))),
                answer("n2", Ok(None)),
                answer("n3", third),
            ];
            let measured = Measured::from_answers(answers);
            assert!(!measured.steps(&job).is_empty());
            measured.total(&job).map(|used| cpu_s(&used))
        };
        assert_eq!(total(Ok(Some(3_000_000))), Some(5));
        assert_eq!(total(Ok(None)), Some(2));
        assert_eq!(total(Err("silent")), None);
    }

    #[test]
    fn slots_of_a_silent_node_have_no_values() {
        let job = running(&["n1", "n2"]);
        let answers = vec![
            answer("n1", Ok(Some(2_000_000))),
            answer("n2", Err("silent")),
        ];
        let view = View {
            ext: true,
            each_slot: true,
            steps: true,
            ..View::default()
        };
        let source = EntrySource {
            ctx: &Ctx::bare("c", TimeZone::UTC),
            mapping: &Mapping::default(),
            view: &view,
            measured: &Measured::from_answers(answers),
        };
        let entries = Entry::of(&job, lines::state(&job), source);
        let text = lines::table(&entries, &view);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(rows.len(), 3, "{text}");
        assert!(rows[0].contains(" NA         NA      NA "), "{text}");
        assert!(
            rows[1].ends_with(" 0.n1         r     00:00:02 0.00000 0.00000 "),
            "{text}"
        );
        assert!(rows[2].contains(" NA         NA      NA "), "{text}");
        assert!(
            rows[2].ends_with("              r     NA       NA      NA      "),
            "{text}"
        );
    }

    #[test]
    fn amounts_are_written_as_grid_engine_writes_them() {
        let usage = ResourceUsage {
            user_us: 90_000_000_000,
            system_us: 3_900_000,
            disk_read_bytes: 1 << 29,
            disk_write_bytes: 1 << 28,
            ..ResourceUsage::default()
        };
        assert_eq!(clock(cpu_s(&usage)), "25:00:03");
        assert_eq!(days_and_clock(cpu_s(&usage)), "1:01:00:03");
        assert_eq!(format!("{:.5}", io_gib(&usage)), "0.75000");
        for (kib, text) in [(0, "0.000K"), (31_428, "30.691M"), (3 << 19, "1.500G")] {
            assert_eq!(memory(kib), text);
        }
    }
}
