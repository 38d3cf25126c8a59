//! Emulated nodes take part in steps that a real node leads: they start step daemons without tasks, pass messages on
//! to the nodes below them in the tree as agents and step daemons do, and report ends. Each task prints nothing and
//! ends at once, with success. An emulated node leads no step: it refuses srun.
//!
//! Anybody may connect. Requests of agents are accepted only with the key of the job. Users have the same limits as
//! at a real agent: connections, bytes of requests, and time to send them.

use crate::agent::Peers;
use crate::agent::quota::{Client, Quotas};
use crate::step_links::{Below, StepClient as Srun};
use crate::{info, now, sys};
use anyhow::{Context as _, bail};
use minicbor::bytes::ByteVec;
use muster_model::ids::{JobId, StepId};
use muster_model::job::{ExitStatus, JobState, ResourceUsage, StepEnd};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_node_core::agent::{branches_below, ends_request};
use muster_node_core::stepd::tree::{self, Tree};
use muster_proto::frame::{self, Frames};
use muster_proto::step::NodeEnd;
use muster_proto::step::{
    AgentReply, AgentRequest, BelowStarted, FromStepd, StepLaunch, StepShare, ToStepd,
};
use muster_trust::is_same_key;
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

/// Time that a step waits for its job to be known here, and for srun.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time limit for a client's request.
const REQUEST_WAIT: Duration = Duration::from_secs(10);
/// Wait after a connection that could not be accepted.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Shortest wait between tries to report ends to the lead.
const DELIVERY_MIN: Duration = Duration::from_millis(50);
/// Longest delay between two deliveries.
const DELIVERY_MAX: Duration = Duration::from_secs(5);
/// Memory for the stack of a thread that plays a step daemon.
const STACK: usize = 256 << 10;

/// Ends that nodes below report.
struct ReportedEnds {
    ends: Vec<NodeEnd>,
    /// Answered once they are reported further up.
    done: oneshot::Sender<()>,
}

/// The jobs of a node, as far as steps need them.
#[derive(Default)]
pub(super) struct Grants {
    known: RefCell<HashMap<JobId, ByteVec>>,
    came: Notify,
}

impl Grants {
    pub(super) fn insert(&self, job: JobId, key: ByteVec) {
        self.known.borrow_mut().insert(job, key);
        self.came.notify_waiters();
    }

    pub(super) fn remove(&self, job: JobId) {
        self.known.borrow_mut().remove(&job);
    }

    /// Waits until a job is known; whether it is.
    async fn wait_for(&self, job: JobId) -> bool {
        let wait = async {
            loop {
                let came = self.came.notified();
                if self.known.borrow().contains_key(&job) {
                    return;
                }
                came.await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.is_ok()
    }

    /// Whether that is the key by which the agents of a job know each other.
    fn has_key(&self, job: JobId, key: &[u8]) -> bool {
        let known = self.known.borrow();
        known.get(&job).is_some_and(|own| is_same_key(own, key))
    }
}

/// A node's listener.
pub(super) struct Steps {
    name: String,
    dir: PathBuf,
    grants: Rc<Grants>,
    /// Ends of steps that are sent to the node above together, while earlier ones are on their way.
    ends: RefCell<HashMap<StepId, mpsc::UnboundedSender<ReportedEnds>>>,
}

impl Steps {
    /// Listens in a directory; gives the address.
    pub(super) fn listen(
        name: &str,
        dir: &Path,
        grants: Rc<Grants>,
        quotas: Quotas,
    ) -> anyhow::Result<String> {
        // Where `muster up` has the agent of a node of this name: another agent of the machine looks for it nowhere else.
        let dir = dir.join(format!("spool.{name}"));
        std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let path = info::agent_socket(&dir);
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).with_context(|| path.display().to_string())?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
        let steps = Rc::new(Steps {
            name: name.to_owned(),
            dir,
            grants,
            ends: RefCell::default(),
        });
        tokio::task::spawn_local(async move {
            // An error may be that there are no descriptors: it passes.
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                };
                let uid = stream.peer_cred().map_or(u32::MAX, |peer| peer.uid());
                let Some(client) = quotas.client(uid) else {
                    let why = "this user has too many connections to emulated nodes";
                    let refusal = AgentReply::Refused(Refusal::new(RefusalCode::Busy, why));
                    // So little is taken at once, or the client is gone.
                    let _ = stream.try_write(&frame::encode(&refusal));
                    continue;
                };
                let steps = Rc::clone(&steps);
                tokio::task::spawn_local(async move {
                    if let Err(e) = steps.serve(stream, client).await {
                        log::warn!("node {}: {e:#}", steps.name);
                    }
                });
            }
        });
        Ok(format!("unix:{}", path.display()))
    }

    async fn serve(self: &Rc<Self>, mut stream: UnixStream, client: Client) -> anyhow::Result<()> {
        let request = tokio::time::timeout(REQUEST_WAIT, read_request(&mut stream, &client));
        let Some(request) = request.await.context("a request came too slowly")?? else {
            return Ok(());
        };
        let reply = match request {
            AgentRequest::StartStep(launch, below) => self.start(*launch, &below).await?,
            AgentRequest::StepNodeEnded { job, key, .. } if !self.grants.has_key(job, &key) => {
                AgentReply::Refused(RefusalCode::AccessDenied.into())
            }
            AgentRequest::StepNodeEnded {
                job,
                step,
                position,
                end,
                others,
                ..
            } => {
                let mut ends = vec![NodeEnd {
                    position,
                    end: *end,
                }];
                ends.extend(others);
                let known = self.ends.borrow().get(&StepId::new(job, step)).cloned();
                match known {
                    Some(up) => {
                        let (done, sent) = oneshot::channel();
                        up.send(ReportedEnds { ends, done })?;
                        sent.await?;
                        AgentReply::Done
                    }
                    None => AgentReply::Refused(RefusalCode::JobNotHere.into()),
                }
            }
            AgentRequest::SignalStep { .. } => AgentReply::Done,
            AgentRequest::FindStep { job, step, .. } => {
                match self.ends.borrow().contains_key(&StepId::new(job, step)) {
                    true => AgentReply::Done,
                    false => AgentReply::Refused(RefusalCode::JobNotHere.into()),
                }
            }
            _ => {
                let why = "an emulated node leads no steps: give the job a real node as its first";
                AgentReply::Refused(Refusal::new(RefusalCode::JobNotHere, why))
            }
        };
        stream.write_all(&frame::encode(&reply)).await?;
        Ok(())
    }

    async fn start(
        self: &Rc<Self>,
        launch: StepLaunch,
        below: &[StepShare],
    ) -> anyhow::Result<AgentReply> {
        if !self.grants.wait_for(launch.spec.job).await {
            return Ok(AgentReply::Refused(RefusalCode::JobNotHere.into()));
        }
        if !self.grants.has_key(launch.spec.job, &launch.key) {
            return Ok(AgentReply::Refused(RefusalCode::AccessDenied.into()));
        }
        let asked = ask_below(
            &Peers::direct(&self.name),
            &launch,
            below,
            &info::agent_address(&self.dir),
        );
        let key = StepId::new(launch.spec.job, launch.step);
        let path = self.dir.join(format!("{}.{}.sock", key.job, key.step));
        let address = format!("unix:{}", path.display());
        let _ = std::fs::remove_file(&path);
        let listener = std::os::unix::net::UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
        let (up, ends) = mpsc::unbounded_channel();
        self.ends.borrow_mut().insert(key, up);
        let (ended, end) = oneshot::channel();
        let of_daemon = launch.clone();
        std::thread::Builder::new()
            .stack_size(STACK)
            .spawn(move || {
                let served = play(&of_daemon, &listener);
                let _ = std::fs::remove_file(&path);
                let _ = ended.send(served);
            })?;
        let steps = Rc::clone(self);
        let nodes = below.len() + 1;
        tokio::task::spawn_local(async move { steps.report(&launch, nodes, end, ends).await });
        Ok(AgentReply::StepdsStarted {
            address,
            mesh_address: None,
            below: answers(asked).await,
        })
    }

    /// Tells the node above, or the lead, of the ends of this node and of those below it.
    async fn report(
        &self,
        launch: &StepLaunch,
        nodes: usize,
        mut own: oneshot::Receiver<anyhow::Result<()>>,
        mut below: mpsc::UnboundedReceiver<ReportedEnds>,
    ) {
        let (mut runs, mut left) = (true, nodes);
        while left > 0 {
            let (mut ends, mut waiting) = (Vec::new(), Vec::new());
            tokio::select! {
                ended = &mut own, if runs => {
                    runs = false;
                    let well = matches!(ended, Ok(Ok(())));
                    ends.push(NodeEnd { position: launch.position, end: end(well) });
                }
                Some(reported) = below.recv() => {
                    ends.extend(reported.ends);
                    waiting.push(reported.done);
                }
            }
            while let Ok(reported) = below.try_recv() {
                ends.extend(reported.ends);
                waiting.push(reported.done);
            }
            left = left.saturating_sub(ends.len());
            report_ends(&Peers::direct(&self.name), launch, ends).await;
            waiting.into_iter().for_each(|done| {
                // The one that waited may have gone.
                let _ = done.send(());
            });
        }
        self.ends
            .borrow_mut()
            .remove(&StepId::new(launch.spec.job, launch.step));
    }
}

/// Asks the first agents of the branches below a node to start them.
fn ask_below(
    peers: &Peers,
    launch: &StepLaunch,
    below: &[StepShare],
    own_address: &str,
) -> Vec<JoinHandle<Vec<BelowStarted>>> {
    let branches = branches_below(launch, below, own_address).into_iter();
    let ask = |(branch, request): (muster_node_core::agent::Branch, AgentRequest)| {
        let peers = peers.clone();
        tokio::spawn(async move {
            let answer = peers.ask(&branch.address, &request).await;
            branch.answers(answer.map_err(|e| format!("{e:#}")))
        })
    };
    branches.map(ask).collect()
}

/// The answers of all nodes, in order.
async fn answers(asked: Vec<JoinHandle<Vec<BelowStarted>>>) -> Vec<BelowStarted> {
    let mut all = Vec::new();
    for branch in asked {
        // Such a task does not panic.
        all.extend(branch.await.unwrap_or_default());
    }
    all
}

/// Reports ends to the node above one in a step's tree, or to the lead, however long it takes.
async fn report_ends(peers: &Peers, launch: &StepLaunch, ends: Vec<NodeEnd>) {
    if ends.is_empty() {
        return;
    }
    let key = StepId::new(launch.spec.job, launch.step);
    if let Some(above) = &launch.above {
        let request = ends_request(key, &launch.key, &ends, true);
        if matches!(peers.ask(above, &request).await, Ok(AgentReply::Done)) {
            return;
        }
    }
    let request = ends_request(key, &launch.key, &ends, false);
    let mut wait = DELIVERY_MIN;
    while let Err(e) = peers.ask(&launch.lead, &request).await {
        let StepId { job, step } = key;
        log::warn!(
            "{}: the end of step {job}.{step} cannot be reported: {e}",
            launch.lead
        );
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(DELIVERY_MAX);
    }
}

/// Reads a client's request; `None` if the client disconnects before.
async fn read_request(
    stream: &mut UnixStream,
    client: &Client,
) -> anyhow::Result<Option<AgentRequest>> {
    let mut frames = Frames::default();
    let (mut charge, mut bytes) = (client.charge(), 0);
    let mut chunk = [0; 4096];
    loop {
        match frames.take()? {
            // Any client has to know the job's key.
            Some(AgentRequest::ServeNode(..) | AgentRequest::Greeting(_)) => continue,
            Some(request) => return Ok(Some(request)),
            None => {}
        }
        match stream.read(&mut chunk).await? {
            0 => return Ok(None),
            n => {
                bytes += n;
                if charge.set(bytes).is_err() {
                    bail!("a user has too much of requests here");
                }
                frames.push(&chunk[..n]);
            }
        }
    }
}

fn end(well: bool) -> StepEnd {
    StepEnd {
        end_time: now(),
        exit: ExitStatus {
            code: u32::from(!well),
            signal: 0,
        },
        state: match well {
            true => JobState::Completed,
            false => JobState::Failed,
        },
        usage: ResourceUsage::default(),
        cancelled_by: None,
        last_lines: None,
    }
}

/// A step daemon without tasks, from srun's coming to its going.
fn play(launch: &StepLaunch, listener: &std::os::unix::net::UnixListener) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    let entry = |fd, events| libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    let mut fds = [entry(listener.as_raw_fd(), libc::POLLIN)];
    sys::poll(
        &mut fds,
        i32::try_from(PATIENCE.as_millis()).unwrap_or(i32::MAX),
    )?;
    if Instant::now() >= until {
        bail!("srun did not connect");
    }
    let mut client = Srun::new(listener.accept()?.0)?;
    let mut place = NodePosition::default();
    let mut is_over_sent = false;
    loop {
        while let Some(message) = client.next() {
            let said = place.on_message(launch, message)?;
            client.wire.output.extend(said);
        }
        client.write();
        let tree = place.tree.as_ref();
        // One without a tree has said all in one go.
        if !is_over_sent && tree.is_some_and(Tree::is_over) {
            is_over_sent = true;
            client.send(&FromStepd::ConnectionFinished, false);
            client.write();
        }
        let is_flushed = is_over_sent && client.wire.output.is_empty();
        if place.has_left || !client.wire.open || is_flushed {
            return Ok(());
        }
        let writes = if client.wire.output.is_empty() {
            0
        } else {
            libc::POLLOUT
        };
        let mut fds = vec![entry(client.wire.number(), libc::POLLIN | writes)];
        let below = place.below.interests(false);
        fds.extend(below.map(|(fd, events)| entry(fd, events)));
        sys::poll(&mut fds, -1)?;
        let seen: Vec<bool> = fds.iter().map(|f| f.revents != 0).collect();
        let gone = place.below.serve(&seen[1..], &mut client.wire.output);
        for (position, is_over) in gone {
            let Some(tree) = &mut place.tree else {
                continue;
            };
            tree.close(position);
            if !is_over {
                let lost = tree.say(FromStepd::ChildLost(position));
                client.wire.output.extend_from_slice(&lost);
            }
        }
        if seen[0] {
            client.wire.read();
        }
    }
}

/// A node's place among those of a step.
#[derive(Default)]
struct NodePosition {
    /// Where there is a tree.
    tree: Option<Tree>,
    below: Below,
    /// srun is gone.
    has_left: bool,
}

impl NodePosition {
    /// Processes a message and returns the encoded answers.
    fn on_message(&mut self, launch: &StepLaunch, message: ToStepd) -> anyhow::Result<Vec<u8>> {
        let mut out = Vec::new();
        match (message, self.tree.as_mut()) {
            (ToStepd::Attach(attach), None) => {
                if attach.key != launch.step_key {
                    bail!("connection with a wrong key");
                }
                let (mut own, branches) = Tree::new(launch, &attach);
                let lost = self.below.connect(branches, None);
                lost.iter().for_each(|position| own.close(*position));
                let lost = lost.into_iter().map(FromStepd::ChildLost);
                for word in words(launch).into_iter().chain(lost) {
                    out.extend_from_slice(&own.say(word));
                }
                self.tree = Some(own);
            }
            (ToStepd::Hello(key, _), None) => {
                if key != launch.step_key {
                    bail!("connection with a wrong key");
                }
                words(launch)
                    .iter()
                    .for_each(|word| frame::encode_into(word, &mut out));
            }
            (ToStepd::ForwardDown(number, message), Some(tree)) => {
                let (_, frames) = tree.take(number, *message, launch);
                self.pass_on(frames);
            }
            (ToStepd::AcknowledgeFrom(position, count), Some(tree)) => {
                let frame = tree.seen(position, count);
                self.pass_on(frame);
            }
            (ToStepd::Resend(seen), Some(tree)) => {
                let (again, frames) = tree.again(&seen);
                out = again;
                self.pass_on(frames);
            }
            (ToStepd::SrunDisconnected, Some(tree)) => {
                let frames = tree.leave();
                self.pass_on(frames);
                self.has_left = true;
            }
            _ => {}
        }
        Ok(out)
    }

    fn pass_on(&mut self, frames: impl IntoIterator<Item = tree::FrameBelow>) {
        for below in frames {
            self.below.send(below.position, &below.frame);
        }
    }
}

/// All messages of a node whose tasks do nothing.
fn words(launch: &StepLaunch) -> Vec<FromStepd> {
    let here = launch
        .tasks
        .get(launch.position as usize)
        .cloned()
        .unwrap_or_default();
    let started = FromStepd::Started(here.iter().map(|_| std::process::id()).collect());
    let ended = here.into_iter().map(|task| FromStepd::Exited {
        task,
        exit: ExitStatus::default(),
        oom: false,
    });
    std::iter::once(started)
        .chain(ended)
        .chain([FromStepd::NodeTasksEnded])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::StepNo;
    use std::os::unix::net::UnixStream as Blocking;
    use tokio::task::LocalSet;

    fn asked(path: &Path, request: &AgentRequest) -> AgentReply {
        let mut stream = Blocking::connect(path).unwrap();
        frame::write(&mut stream, request).unwrap();
        frame::read(&mut stream).unwrap()
    }

    #[test]
    fn only_agents_of_the_job_are_answered() {
        let dir = std::env::temp_dir().join(format!("muster-emulated.{}", std::process::id()));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let local = LocalSet::new();
        local.block_on(&runtime, async {
            let grants = Rc::new(Grants::default());
            grants.insert(JobId(7), vec![1; 16].into());
            let quotas = Quotas::new(0, 1024);
            Steps::listen("n1", &dir, grants, quotas).unwrap();
            let path = info::agent_socket(&dir.join("spool.n1"));
            let report = |key: Vec<u8>| AgentRequest::StepNodeEnded {
                job: JobId(7),
                key: key.into(),
                step: StepNo(0),
                position: 0,
                end: Box::new(end(true)),
                others: Vec::new(),
                onwards: false,
            };
            for (key, code) in [
                (vec![1; 16], RefusalCode::JobNotHere),
                (vec![2; 16], RefusalCode::AccessDenied),
                (Vec::new(), RefusalCode::AccessDenied),
            ] {
                let (path, request) = (path.clone(), report(key));
                let reply = tokio::task::spawn_blocking(move || asked(&path, &request));
                match reply.await.unwrap() {
                    AgentReply::Refused(refusal) => assert_eq!(refusal.code, code),
                    other => panic!("{other:?}"),
                }
            }
        });
        std::fs::remove_dir_all(dir).unwrap();
    }
}
