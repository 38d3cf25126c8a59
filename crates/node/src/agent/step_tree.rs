//! The tree over the nodes of a step ([`muster_model::tree`]), as agents use it: starts and signals go down, each agent
//! asking a few others, and ends come up, gathered on the way while the one above is busy. An agent passes on only to
//! sockets of agents, and only for who has the job's key. One that is lost on the way down fails the
//! start; on the way up it is left out.

use super::closing::Streams;
use super::lead::{Reply, StepKey};
use super::peers::Peers;
use super::step_node::{Listening, Origin};
use super::{Agent, Event};
use crate::info;
use anyhow::Context as _;
use minicbor::bytes::ByteVec;
use muster_model::job::StepEnd;
use muster_model::tree;
use muster_proto::step::{AgentReply, AgentRequest, BelowStarted, StepLaunch, StepShare};
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Waits between tries to tell the lead of an end.
const DELIVERY_MIN: Duration = Duration::from_millis(50);
/// See above.
const DELIVERY_MAX: Duration = Duration::from_secs(5);

/// Ends on their way up, by step.
pub(super) type Endings = HashMap<StepKey, Ending>;

/// Positions and ends.
type Ends = Vec<(u32, StepEnd)>;

/// Ends of a step that this node knows and the lead perhaps does not.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// They, and the sender of each; none for this node's own.
    waiting: Vec<(Ends, Option<Reply>)>,
    /// Earlier ones are being sent.
    busy: bool,
}

/// Ends that the lead knows of.
pub(super) struct DeliveredEnds {
    pub(super) key: StepKey,
    /// This node's own is among them.
    own: bool,
    replies: Vec<Reply>,
}

impl Agent {
    /// Width of a step's tree, where srun asks for `asked`.
    pub(super) fn tree_width(&self, asked: Option<u32>) -> usize {
        match asked.unwrap_or(self.settings.tree_width) {
            0 => tree::WIDTH_DEFAULT,
            width => width.max(2) as usize,
        }
    }

    /// The lead: starts the daemons of all nodes. `launch` is what they have in common; `streams` are for a step that is
    /// only here.
    pub(super) fn start_everywhere(
        &mut self,
        launch: StepLaunch,
        shares: &[StepShare],
        mut streams: Option<Streams>,
    ) {
        if let [share] = shares
            && share.address == self.address()
        {
            let here = launch_at(launch, 0, share, None);
            return self.start_here(here, Origin::Lead(streams));
        }
        for branch in tree::branches(0..shares.len(), launch.tree_width()) {
            let head = launch_at(launch.clone(), branch.start, &shares[branch.start], None);
            let below = shares[branch.start + 1..branch.end].to_vec();
            let here = shares[branch.start].address == self.address();
            if here && below.is_empty() {
                self.start_here(head, Origin::Lead(streams.take()));
                continue;
            }
            let names = launch.names[branch.clone()].to_vec();
            let (events, key) = (self.events.clone(), (launch.spec.job, launch.step));
            let peers = self.peers.clone();
            let tell = move |answers: Vec<BelowStarted>| {
                for (position, answer) in (0u32..).skip(branch.start).zip(answers) {
                    let result = listening(answer);
                    let _ = events.send(Event::NodeStarted(key, position, result));
                }
            };
            if here {
                let (reply, mut answer) = mpsc::unbounded_channel();
                self.start_here(head, Origin::Remote(reply, below));
                tokio::spawn(async move {
                    tell(answers(answer.recv().await.context("no answer"), &names))
                });
            } else {
                let address = shares[branch.start].address.clone();
                tokio::spawn(async move {
                    tell(start_branch(&peers, &address, head, below, &names).await)
                });
            }
        }
    }

    /// A node in the tree: has the nodes below started, and gives whom this one's own answer goes to.
    pub(super) fn start_below(&self, launch: &StepLaunch, origin: Origin) -> Origin {
        let Origin::Remote(reply, below) = origin else {
            return origin;
        };
        if below.is_empty() {
            return Origin::Remote(reply, below);
        }
        let asked = ask_below(&self.peers, launch, &below, &self.address());
        let (own, mut answer) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let below = asked.answers().await;
            let _ = reply.send(match answer.recv().await {
                Some(AgentReply::Started { address, wire, .. }) => AgentReply::Started {
                    address,
                    wire,
                    below,
                },
                Some(other) => other,
                None => return,
            });
        });
        Origin::Remote(own, Vec::new())
    }

    /// Has a step signalled by these agents.
    pub(super) fn signal_below(&self, request: &AgentRequest, agents: &[String]) {
        for branch in tree::branches(0..agents.len(), self.tree_width(None)) {
            let (peers, agents) = (self.peers.clone(), agents[branch].to_vec());
            tokio::spawn(signal_branch(peers, request.clone(), agents));
        }
    }

    fn address(&self) -> String {
        info::agent_address(&self.options.spool_dir)
    }

    /// Parts of a step that another node leads have ended: this node's, or those of nodes below that have sent `reply`.
    pub(super) fn tell_end(&mut self, key: StepKey, ends: Ends, reply: Option<Reply>) {
        let ending = self.endings.entry(key).or_default();
        ending.waiting.push((ends, reply));
        self.tell_ends(key);
    }

    /// Sends what waits, unless something is being sent: what comes meanwhile goes together.
    fn tell_ends(&mut self, key: StepKey) {
        let part = self.node_steps.part(key);
        let way = part.map(|p| (p.above.clone(), p.lead.clone()));
        let grant = self.jobs.latest(key.0).and_then(|(_, j)| j.grant.clone());
        let Some(ending) = self.endings.get_mut(&key).filter(|e| !e.busy) else {
            return;
        };
        let known = way.zip(grant).filter(|_| !ending.waiting.is_empty());
        let Some(((above, lead), grant)) = known else {
            // Who waits for an answer turns to the lead when there is none.
            self.endings.remove(&key);
            return;
        };
        ending.busy = true;
        let mut delivered = DeliveredEnds {
            key,
            own: false,
            replies: Vec::new(),
        };
        let mut ends = Vec::new();
        for (more, reply) in std::mem::take(&mut ending.waiting) {
            delivered.own |= reply.is_none();
            delivered.replies.extend(reply);
            ends.extend(more);
        }
        let (events, job_key) = (self.events.clone(), grant.key.clone());
        let peers = self.peers.clone();
        tokio::spawn(async move {
            tell_up(&peers, above.as_deref(), &lead, &job_key, key, ends).await;
            let _ = events.send(Event::EndsDelivered(delivered));
        });
    }

    /// The lead knows of ends.
    pub(super) fn on_ends_delivered(&mut self, delivered: DeliveredEnds) {
        for reply in delivered.replies {
            let _ = reply.send(AgentReply::Done);
        }
        if let Some(ending) = self.endings.get_mut(&delivered.key) {
            ending.busy = false;
        }
        self.tell_ends(delivered.key);
        if delivered.own {
            self.end_delivered(delivered.key);
        }
    }
}

/// Tells the node above one in a step's tree, or the lead, of ends.
pub(crate) async fn tell_above(peers: &Peers, launch: &StepLaunch, ends: Vec<(u32, StepEnd)>) {
    let key = (launch.spec.job, launch.step);
    tell_up(
        peers,
        launch.above.as_deref(),
        &launch.lead,
        &launch.key,
        key,
        ends,
    )
    .await;
}

async fn tell_up(
    peers: &Peers,
    above: Option<&str>,
    lead: &str,
    job_key: &ByteVec,
    key: StepKey,
    mut ends: Ends,
) {
    if ends.is_empty() {
        return;
    }
    let (position, end) = ends.remove(0);
    let request = |onwards: bool| AgentRequest::StepNodeEnded {
        job: key.0,
        key: job_key.clone(),
        step: key.1,
        position,
        end: Box::new(end.clone()),
        others: ends.clone(),
        onwards,
    };
    let by_above = match above {
        Some(above) => peers.ask(above, &request(true)).await.ok(),
        None => None,
    };
    if !matches!(by_above, Some(AgentReply::Done)) {
        tell_lead(peers, lead, &request(false), key).await;
    }
}

/// Tells the lead, however long it takes.
async fn tell_lead(peers: &Peers, lead: &str, request: &AgentRequest, key: StepKey) {
    let mut wait = DELIVERY_MIN;
    while let Err(e) = peers.ask(lead, request).await {
        log::warn!(
            "{lead}: the end of step {}.{} cannot be sent: {e}",
            key.0,
            key.1
        );
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(DELIVERY_MAX);
    }
}

/// Has the branches below a node started; the answers of all their nodes, in order.
pub(crate) fn ask_below(
    peers: &Peers,
    launch: &StepLaunch,
    below: &[StepShare],
    own_address: &str,
) -> Asked {
    let first = launch.position as usize + 1;
    let branches =
        tree::branches(0..below.len(), launch.tree_width()).map(|branch: Range<usize>| {
            let at = first + branch.start..first + branch.end;
            let share = &below[branch.start];
            let head = launch_at(
                launch.clone(),
                at.start,
                share,
                Some(own_address.to_owned()),
            );
            let names = launch.names.get(at).unwrap_or_default().to_vec();
            let below = below[branch.start + 1..branch.end].to_vec();
            let (peers, address) = (peers.clone(), share.address.clone());
            tokio::spawn(async move { start_branch(&peers, &address, head, below, &names).await })
        });
    Asked(branches.collect())
}

/// Branches that have been asked to start.
pub(crate) struct Asked(Vec<JoinHandle<Vec<BelowStarted>>>);

impl Asked {
    /// The answers of all nodes, in order.
    pub(crate) async fn answers(self) -> Vec<BelowStarted> {
        let mut all = Vec::new();
        for branch in self.0 {
            // Such a task does not panic.
            all.extend(branch.await.unwrap_or_default());
        }
        all
    }
}

/// The launch of one node.
fn launch_at(
    launch: StepLaunch,
    position: usize,
    share: &StepShare,
    above: Option<String>,
) -> StepLaunch {
    StepLaunch {
        position: u32::try_from(position).unwrap_or(u32::MAX),
        cpus: share.cpus.clone(),
        memory_mib: share.memory_mib,
        gres: share.gres.clone(),
        above,
        ..launch
    }
}

async fn start_branch(
    peers: &Peers,
    address: &str,
    head: StepLaunch,
    below: Vec<StepShare>,
    names: &[String],
) -> Vec<BelowStarted> {
    let request = AgentRequest::StartStep(Box::new(head), below);
    let answer = peers.ask(address, &request).await;
    answers(answer.with_context(|| address.to_owned()), names)
}

/// What a branch answered, by node; `names` are those of its nodes.
fn answers(answer: anyhow::Result<AgentReply>, names: &[String]) -> Vec<BelowStarted> {
    let error = |text: String| BelowStarted {
        error: Some(text),
        ..BelowStarted::default()
    };
    let head = names.first().map_or("", String::as_str);
    let (first, mut rest) = match answer {
        Ok(AgentReply::Started {
            address,
            wire,
            below,
        }) => {
            let first = BelowStarted {
                address,
                wire,
                error: None,
            };
            (first, below)
        }
        Ok(AgentReply::Refused(refusal)) => (error(format!("node {head}: {refusal}")), Vec::new()),
        Ok(other) => (
            error(format!("node {head}: unexpected answer {other:?}")),
            Vec::new(),
        ),
        Err(e) => (error(format!("node {head}: {e:#}")), Vec::new()),
    };
    for name in names.iter().skip(1 + rest.len()) {
        rest.push(error(format!(
            "node {name}: not asked, as node {head} has failed"
        )));
    }
    rest.insert(0, first);
    rest.truncate(names.len());
    rest
}

fn listening(answer: BelowStarted) -> Result<Listening, String> {
    match answer.error {
        Some(error) => Err(error),
        None => Ok(Listening {
            address: answer.address,
            wire: answer.wire,
            direct: false,
        }),
    }
}

/// Has the first of these nodes that answers signal its step and pass that on to those after it.
async fn signal_branch(peers: Peers, mut request: AgentRequest, agents: Vec<String>) {
    for (at, address) in agents.iter().enumerate() {
        if let AgentRequest::SignalStep { below, .. } = &mut request {
            *below = agents[at + 1..].to_vec();
        }
        match peers.ask(address, &request).await {
            Ok(_) => return,
            Err(e) => log::warn!("{address}: a step cannot be signalled: {e}"),
        }
    }
}
