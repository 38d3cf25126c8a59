//! Questions to the agents of jobs' nodes: what steps use now, and which processes they have. All agents are asked side by side, with
//! one limit of time for all: a node that is down or stopped holds up the lookup of its name, the connection or the answer.

use crate::agent::AgentStream;
use muster_model::hostlist;
use muster_model::ids::JobId;
use muster_model::refusal::RefusalCode;
use muster_model::visible_text::visible;
use muster_proto::client::AllocationInfo;
use muster_proto::step::{AgentReply, AgentRequest};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Agents that are asked at the same time: one that is silent holds a thread. Where there are more, each has a part of the time, so that
/// all are asked.
const THREADS_MAX: usize = 512;
/// Descriptors of a connection to another host.
const DESCRIPTORS: u64 = 5;
/// Descriptors of all else.
const OTHER_DESCRIPTORS: u64 = 64;
/// Bytes of a thread's stack. What an answer takes is on the heap.
const STACK: usize = 256 << 10;
/// Time that sstat and scontrol wait for all agents: Slurm's MessageTimeout where none is configured.
pub(crate) const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Question to agents about jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentQuestion {
    /// Use by steps: [`AgentReply::Measured`].
    Usage,
    /// Which processes they have: [`AgentReply::Processes`].
    Processes,
}

impl AgentQuestion {
    fn request(self, job: JobId) -> AgentRequest {
        match self {
            AgentQuestion::Usage => AgentRequest::Measure { job },
            AgentQuestion::Processes => AgentRequest::Inspect { job },
        }
    }

    fn is_answer(self, reply: &AgentReply) -> bool {
        matches!(
            (self, reply),
            (AgentQuestion::Usage, AgentReply::Measured(_))
                | (AgentQuestion::Processes, AgentReply::Processes(_))
        )
    }
}

/// A node whose agent is asked about a job.
#[derive(Clone, Debug)]
pub(crate) struct JobNode {
    /// The job.
    pub(crate) job: JobId,
    /// The node.
    pub(crate) node: String,
    address: String,
    key: Vec<u8>,
}

impl JobNode {
    /// Whether the agent has no address for other hosts.
    pub(crate) fn is_local(&self) -> bool {
        self.address.starts_with("unix:")
    }
}

/// The nodes of a job.
pub(crate) fn nodes_of(info: &AllocationInfo) -> impl Iterator<Item = JobNode> {
    let nodes = info.job.alloc.iter().flat_map(|alloc| &alloc.nodes);
    nodes.zip(&info.addresses).map(|(node, address)| JobNode {
        job: info.job.id,
        node: node.name.clone(),
        address: address.clone(),
        key: info.key.to_vec(),
    })
}

/// Answer of an agent about a job.
#[derive(Debug)]
pub(crate) struct NodeAnswer {
    /// The job.
    pub(crate) job: JobId,
    /// The node.
    pub(crate) node: String,
    /// An answer to the question, or why there is none; nothing where the agent knows of no such job, which has ended there.
    pub(crate) reply: Result<Option<AgentReply>, String>,
}

/// A line for the nodes without an answer, for each reason.
pub(crate) fn failures(answers: &[NodeAnswer]) -> Vec<String> {
    let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for answer in answers {
        if let Err(why) = &answer.reply {
            nodes.entry(why).or_default().push(&answer.node);
        }
    }
    let lines = nodes.into_iter().map(|(why, mut nodes)| {
        nodes.sort_unstable();
        nodes.dedup();
        format!("no answer from {}: {why}", hostlist::compress(&nodes))
    });
    lines.collect()
}

/// Asks the agents of nodes, all at the same time, and waits no longer than `patience` for all of them. Gives an answer for each, in
/// the same order.
///
/// Threads ask, since the lookup of a name has no limit of its own. Those that have no answer when the time is over are left to the end
/// of the process.
pub(crate) fn ask_agents(
    nodes: Vec<JobNode>,
    question: AgentQuestion,
    patience: Duration,
) -> Vec<NodeAnswer> {
    let end = Instant::now() + patience;
    let mut replies: Vec<Option<Result<AgentReply, String>>> = Vec::new();
    replies.resize_with(nodes.len(), || None);
    for NodeReply { place, reply } in start_asking(&nodes, question, end) {
        if let Some(slot) = replies.get_mut(place) {
            *slot = Some(reply);
        }
    }
    let silent = || Err(format!("silent for {} s", patience.as_secs()));
    let answers = nodes.into_iter().zip(replies);
    let answers = answers.map(|(node, reply)| NodeAnswer {
        job: node.job,
        node: node.node,
        reply: match reply.unwrap_or_else(silent) {
            Ok(reply) if question.is_answer(&reply) => Ok(Some(reply)),
            Ok(AgentReply::Refused(refusal)) if refusal.code == RefusalCode::InvalidJobId => {
                Ok(None)
            }
            Ok(AgentReply::Refused(refusal)) => Err(visible(&refusal.to_string()).into_owned()),
            Ok(_) => Err("an answer to another question".to_owned()),
            Err(why) => Err(why),
        },
    });
    answers.collect()
}

/// One of the nodes that are asked.
struct NodeQuery {
    place: usize,
    node: JobNode,
}

/// Outcome of a query.
struct NodeReply {
    place: usize,
    reply: Result<AgentReply, String>,
}

/// Nodes that have the same agent.
struct AgentQueries {
    queries: Vec<NodeQuery>,
}

/// Agents that nobody has asked yet, and how long a thread may take with one.
struct QueuedAgents {
    left: std::vec::IntoIter<AgentQueries>,
    each: Duration,
}

/// Replies as they come, until all are there or the time is over.
fn start_asking(
    nodes: &[JobNode],
    question: AgentQuestion,
    end: Instant,
) -> impl Iterator<Item = NodeReply> {
    let agents = by_agent(nodes);
    let count = agents.len();
    let all = Arc::new(Mutex::new(QueuedAgents {
        left: agents.into_iter(),
        each: Duration::ZERO,
    }));
    let (sender, replies) = mpsc::channel();
    // They begin once it is known how many there are.
    let mut shared = all.lock().expect("no thread has had it");
    let mut threads = 0;
    for _ in 0..count.min(threads_max()) {
        let (all, sender) = (all.clone(), sender.clone());
        let next = move || {
            let mut all = all.lock().ok()?;
            Some((all.left.next()?, all.each))
        };
        let thread = thread::Builder::new()
            .name("measure".to_owned())
            .stack_size(STACK);
        let started = thread.spawn(move || ask_each(next, question, end, &sender));
        threads += usize::from(started.is_ok());
    }
    let rounds = count.div_ceil(threads.max(1)).max(1);
    let left = end.saturating_duration_since(Instant::now());
    shared.each = left / u32::try_from(rounds).unwrap_or(u32::MAX);
    drop(shared);
    std::iter::from_fn(move || {
        let left = end.saturating_duration_since(Instant::now());
        replies.recv_timeout(left).ok()
    })
}

/// As many threads as the process may have connections for.
fn threads_max() -> usize {
    let wanted = THREADS_MAX as u64 * DESCRIPTORS + OTHER_DESCRIPTORS;
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 1;
    };
    let raised = wanted.min(hard).max(soft);
    let limit = match setrlimit(Resource::RLIMIT_NOFILE, raised, hard) {
        Ok(()) => raised,
        Err(_) => soft,
    };
    let fit = limit.saturating_sub(OTHER_DESCRIPTORS) / DESCRIPTORS;
    usize::try_from(fit).map_or(THREADS_MAX, |fit| fit.clamp(1, THREADS_MAX))
}

fn by_agent(nodes: &[JobNode]) -> Vec<AgentQueries> {
    let mut agents: BTreeMap<&str, Vec<NodeQuery>> = BTreeMap::new();
    for (place, node) in nodes.iter().enumerate() {
        let queries = agents.entry(&node.address).or_default();
        queries.push(NodeQuery {
            place,
            node: node.clone(),
        });
    }
    let agents = agents.into_values().map(|queries| AgentQueries { queries });
    agents.collect()
}

/// Asks one agent after the other. One that does not answer is not asked about its other jobs.
fn ask_each(
    mut next: impl FnMut() -> Option<(AgentQueries, Duration)>,
    question: AgentQuestion,
    end: Instant,
    sender: &mpsc::Sender<NodeReply>,
) {
    while let Some((agent, time)) = next() {
        let until = end.min(Instant::now() + time);
        let mut failed: Option<String> = None;
        for NodeQuery { place, node } in agent.queries {
            let reply = match &failed {
                Some(why) => Err(why.clone()),
                None => ask(&node, question, until).map_err(|e| reason(&e)),
            };
            failed = reply.as_ref().err().cloned();
            if sender.send(NodeReply { place, reply }).is_err() {
                return;
            }
        }
    }
}

fn ask(node: &JobNode, question: AgentQuestion, until: Instant) -> io::Result<AgentReply> {
    let mut agent = AgentStream::connect_agent_until(&node.address, node.job, &node.key, until)?;
    agent.send(&question.request(node.job))?;
    agent.receive_until(until)
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it took too long".to_owned(),
        _ => visible(&error.to_string()).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::cpuset::CpuSet;
    use muster_model::ids::{NodeIdx, StepNo};
    use muster_model::job::{Allocation, Job, NodeShare, ResourceUsage};
    use muster_model::spec::JobSpec;
    use muster_model::time::{TimeLimit, Timestamp};
    use muster_proto::frame;
    use muster_proto::step::MeasuredStep;
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

    fn ask(infos: &[AllocationInfo], patience: Duration) -> Vec<NodeAnswer> {
        let nodes = infos.iter().flat_map(nodes_of).collect();
        ask_agents(nodes, AgentQuestion::Usage, patience)
    }

    /// Answers a number of requests.
    fn answer(listener: &UnixListener, requests: usize) {
        for _ in 0..requests {
            let (mut stream, _) = listener.accept().unwrap();
            let _greeting: AgentRequest = frame::read(&mut stream).unwrap();
            let asked: AgentRequest = frame::read(&mut stream).unwrap();
            let reply = match asked {
                AgentRequest::Measure { job: JobId(9) } => {
                    let gone = RefusalCode::InvalidJobId.into();
                    AgentReply::Refused(gone)
                }
                AgentRequest::Measure { .. } => {
                    let usage = ResourceUsage {
                        user_us: 7,
                        ..ResourceUsage::default()
                    };
                    AgentReply::Measured(vec![MeasuredStep {
                        step: StepNo(0),
                        usage,
                    }])
                }
                other => panic!("{other:?}"),
            };
            frame::write(&mut stream, &reply).unwrap();
        }
    }

    /// qstat waited for ever; the known part of a job's nodes was shown as all of the job.
    #[test]
    fn an_agent_that_does_not_answer_is_named() {
        let dir = directory("stopped");
        let path = dir.join("a");
        let _stopped = UnixListener::bind(&path).unwrap();
        let infos = [info(1, &[("n1", &path), ("n2", &path)])];
        let found = ask(&infos, Duration::from_millis(50));
        assert!(found.iter().all(|answer| answer.reply.is_err()));
        let lines = failures(&found);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("no answer from n[1-2]: "), "{lines:?}");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// As many silent nodes as there were threads kept the others from being asked.
    #[test]
    fn agents_that_do_not_answer_hold_up_nobody() {
        let dir = directory("measure");
        let silent: Vec<PathBuf> = (0..40).map(|at| dir.join(format!("a{at}"))).collect();
        let bound = silent.iter().map(|path| UnixListener::bind(path).unwrap());
        let stopped: Vec<UnixListener> = bound.collect();
        let (answers, gone) = (dir.join("b"), dir.join("none"));
        let listener = UnixListener::bind(&answers).unwrap();
        let agent = thread::spawn(move || {
            answer(&listener, 3);
            drop(stopped);
        });
        let names: Vec<String> = (0..40).map(|at| format!("s{at}")).collect();
        let mut nodes: Vec<(&str, &Path)> = names
            .iter()
            .zip(&silent)
            .map(|(name, path)| (name.as_str(), path.as_path()))
            .collect();
        nodes.push(("n2", &answers));
        let infos = [
            info(1, &nodes),
            info(9, &[("n2", &answers)]),
            info(2, &[("n2", &answers)]),
            info(3, &[("n3", &gone)]),
        ];
        let found = ask(&infos, Duration::from_secs(60));
        agent.join().unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found.len(), 44);
        let known = found.iter().filter_map(|one| {
            let reply = one.reply.as_ref().ok()?;
            Some((one.job.0, one.node.as_str(), reply.is_some()))
        });
        let known: Vec<(u64, &str, bool)> = known.collect();
        assert_eq!(known, [(1, "n2", true), (9, "n2", false), (2, "n2", true)]);
    }

    /// sstat asked one agent after the other, each for as long as it wanted.
    #[test]
    fn each_agent_has_its_part_of_the_time_where_there_are_more_than_threads() {
        let dir = directory("rounds");
        let silent = dir.join("a");
        let _stopped = UnixListener::bind(&silent).unwrap();
        let paths: Vec<PathBuf> = (0..THREADS_MAX)
            .map(|at| {
                let path = dir.join(format!("a{at:04}"));
                std::os::unix::fs::symlink(&silent, &path).unwrap();
                path
            })
            .collect();
        let answers = dir.join("b");
        let listener = UnixListener::bind(&answers).unwrap();
        let agent = thread::spawn(move || answer(&listener, 1));
        let mut nodes: Vec<(&str, &Path)> = paths.iter().map(|p| ("s", p.as_path())).collect();
        nodes.push(("n2", &answers));
        let found = ask(&[info(1, &nodes)], Duration::from_secs(10));
        assert!(matches!(found.last().unwrap().reply, Ok(Some(_))));
        agent.join().unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
