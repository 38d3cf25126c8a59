//! Questions to the agents of a job's nodes: what its steps use now, and which processes they have.

use crate::agent::AgentStream;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::Usage;
use muster_proto::client::AllocationInfo;
use muster_proto::step::{AgentReply, AgentRequest};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Agents that are asked at the same time.
const THREADS_MAX: usize = 16;

/// What a step uses on one node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StepUsage {
    /// The node.
    pub(crate) node: String,
    /// The step.
    pub(crate) step: StepNo,
    /// What it uses.
    pub(crate) usage: Usage,
}

/// What steps of a job use on one node.
#[derive(Debug)]
pub(crate) struct NodeMeasurement {
    /// The job.
    pub(crate) job: JobId,
    /// Its steps there.
    pub(crate) steps: Vec<StepUsage>,
}

/// A job that the agent of a node is asked about.
struct MeasureQuery {
    job: JobId,
    node: String,
    key: Vec<u8>,
}

/// The questions to the agent of one address.
struct AgentQueries {
    address: String,
    queries: Vec<MeasureQuery>,
}

/// Asks the agents of all nodes of a job. Gives a line for each that did not answer, or answered something that `take` does not want.
pub(crate) fn ask_agents(
    info: &AllocationInfo,
    request: &AgentRequest,
    mut take: impl FnMut(&str, AgentReply) -> bool,
) -> Vec<String> {
    let mut failures = Vec::new();
    let nodes = info.job.alloc.iter().flat_map(|alloc| &alloc.nodes);
    for (node, address) in nodes.zip(&info.addresses) {
        let why = match ask(address, info.job.id, &info.key, request) {
            Ok(AgentReply::Refused(refusal)) => refusal.to_string(),
            Ok(reply) => {
                if take(&node.name, reply) {
                    continue;
                }
                "an answer to another question".to_owned()
            }
            Err(e) => e.to_string(),
        };
        let name = &node.name;
        failures.push(format!(
            "{name}: the agent at {address} cannot be asked: {why}"
        ));
    }
    failures
}

fn ask(address: &str, job: JobId, key: &[u8], request: &AgentRequest) -> io::Result<AgentReply> {
    let mut agent = AgentStream::connect_agent(address, job, Some(key))?;
    agent.send(request)?;
    agent.receive()
}

/// What the steps of jobs use on each of their nodes, as far as agents say so within `patience`.
///
/// A node that is down or stopped holds up the lookup of its name, the connection or the answer; some of these have no limit of their
/// own. Threads ask, therefore, and those that have no answer when the time is over are left to the end of the process.
pub(crate) fn measure_jobs<'i>(
    infos: impl Iterator<Item = &'i AllocationInfo>,
    patience: Duration,
) -> Vec<NodeMeasurement> {
    let until = Instant::now() + patience;
    let agents = queries_by_agent(infos);
    let threads = agents.len().min(THREADS_MAX);
    let agents = Arc::new(Mutex::new(agents.into_iter()));
    let (sender, measured) = mpsc::channel();
    for _ in 0..threads {
        let (agents, sender) = (agents.clone(), sender.clone());
        let next = move || agents.lock().ok()?.next();
        // With fewer threads it takes longer.
        let _ = thread::Builder::new()
            .name("measure".to_owned())
            .spawn(move || measure_each(next, &sender));
    }
    drop(sender);
    let mut all = Vec::new();
    while let Ok(one) = measured.recv_timeout(until.saturating_duration_since(Instant::now())) {
        all.push(one);
    }
    all
}

fn queries_by_agent<'i>(infos: impl Iterator<Item = &'i AllocationInfo>) -> Vec<AgentQueries> {
    let mut agents: BTreeMap<&str, Vec<MeasureQuery>> = BTreeMap::new();
    for info in infos {
        let nodes = info.job.alloc.iter().flat_map(|alloc| &alloc.nodes);
        for (node, address) in nodes.zip(&info.addresses) {
            agents.entry(address).or_default().push(MeasureQuery {
                job: info.job.id,
                node: node.name.clone(),
                key: info.key.to_vec(),
            });
        }
    }
    let agents = agents.into_iter().map(|(address, queries)| AgentQueries {
        address: address.to_owned(),
        queries,
    });
    agents.collect()
}

/// Asks one agent after the other. One that cannot be reached is not asked about its other jobs.
fn measure_each(
    mut next: impl FnMut() -> Option<AgentQueries>,
    sender: &mpsc::Sender<NodeMeasurement>,
) {
    while let Some(agent) = next() {
        for query in agent.queries {
            let job = query.job;
            let request = AgentRequest::Measure { job };
            let Ok(reply) = ask(&agent.address, job, &query.key, &request) else {
                break;
            };
            let AgentReply::Measured(steps) = reply else {
                continue;
            };
            let steps = steps.into_iter().map(|(step, usage)| StepUsage {
                node: query.node.clone(),
                step,
                usage,
            });
            let steps = steps.collect();
            if sender.send(NodeMeasurement { job, steps }).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::cpuset::CpuSet;
    use muster_model::ids::NodeIdx;
    use muster_model::job::{Allocation, Job, NodeShare};
    use muster_model::spec::JobSpec;
    use muster_model::time::{TimeLimit, Timestamp};
    use muster_proto::frame;
    use std::os::unix::net::UnixListener;
    use std::path::{Path, PathBuf};

    fn info(job: u64, nodes: &[(&str, &Path)]) -> AllocationInfo {
        let (limit, at) = (TimeLimit::Unlimited, Timestamp(0));
        let mut job = Job::new(JobId(job), Arc::new(JobSpec::default()), limit, at);
        let share = |(name, _): &(&str, &Path)| NodeShare {
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
        let address = |(_, path): &(&str, &Path)| format!("unix:{}", path.display());
        AllocationInfo {
            job,
            array: None,
            addresses: nodes.iter().map(address).collect(),
            key: Vec::new().into(),
            cluster: "c".to_owned(),
            components: Vec::new(),
        }
    }

    fn directory(test: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("muster-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// qstat waited for ever.
    #[test]
    fn an_agent_that_does_not_answer_is_given_up() {
        let dir = directory("stopped");
        let path = dir.join("a");
        let _stopped = UnixListener::bind(&path).unwrap();
        let infos = [info(1, &[("n1", &path)])];
        let found = measure_jobs(infos.iter(), Duration::from_millis(50));
        assert!(found.is_empty(), "{found:?}");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// qstat asked one after the other, and did not come to the nodes behind one that did not answer.
    #[test]
    fn an_agent_that_does_not_answer_holds_up_nobody() {
        let dir = directory("measure");
        let (stopped, answers) = (dir.join("a"), dir.join("b"));
        let stopped_agent = UnixListener::bind(&stopped).unwrap();
        let listener = UnixListener::bind(&answers).unwrap();
        let agent = thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                let _greeting: AgentRequest = frame::read(&mut stream).unwrap();
                let asked: AgentRequest = frame::read(&mut stream).unwrap();
                assert!(matches!(asked, AgentRequest::Measure { .. }));
                let usage = Usage {
                    user_us: 7,
                    ..Usage::default()
                };
                let reply = AgentReply::Measured(vec![(StepNo(0), usage)]);
                frame::write(&mut stream, &reply).unwrap();
            }
            drop(stopped_agent);
        });
        let infos = [
            info(1, &[("n1", &stopped), ("n2", &answers)]),
            info(2, &[("n1", &stopped), ("n2", &answers)]),
            info(3, &[("n3", &dir.join("none"))]),
        ];
        let found = measure_jobs(infos.iter(), Duration::from_secs(60));
        agent.join().unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let found: Vec<(u64, &str, u64)> = found
            .iter()
            .flat_map(|one| one.steps.iter().map(|step| (one.job.0, step)))
            .map(|(job, step)| (job, step.node.as_str(), step.usage.user_us))
            .collect();
        assert_eq!(found, [(1, "n2", 7), (2, "n2", 7)]);
    }
}
