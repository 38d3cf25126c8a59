//! The agent's own socket: srun, other agents, sstat and scontrol ask here. Who they are, the kernel says.

use super::lead::{Asked, Reply, StepKey};
use super::measure;
use super::socket::Socket;
use super::{Agent, Event};
use crate::descriptors::{self, HandedOver};
use crate::shim::wire::{Process, Run, ToShim};
use crate::{info, sys};
use anyhow::Context as _;
use minicbor::bytes::ByteVec;
use muster_core::ids::{JobId, StepNo};
use muster_core::job::StepEnd;
use muster_core::refusal::{Refusal, RefusalCode};
use muster_proto::frame::{self, Frames};
use muster_proto::step::{AgentReply, AgentRequest, StepSpec};
use nix::sys::socket::sockopt::{PassCred, PeerCredentials};
use nix::sys::socket::{getsockopt, setsockopt};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

/// What is asked about the processes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Which there are.
    Processes,
    /// What they use.
    Usage(Run),
}

/// Listens in the background.
pub(super) fn listen(spool: &Path, events: mpsc::UnboundedSender<Event>) -> anyhow::Result<()> {
    let path = info::agent_socket(spool);
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).with_context(|| path.display().to_string())?;
    listener.set_nonblocking(true)?;
    let listener = sys::watch(listener, Interest::READABLE)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
    let accept = |listener: &UnixListener| {
        let (stream, _) = listener.accept()?;
        let peer = getsockopt(&stream, PeerCredentials)?;
        Ok(Some((stream, peer.uid())))
    };
    let next = Arc::new(AtomicU64::new(0));
    tokio::spawn(welcome(
        listener,
        accept,
        path,
        next.clone(),
        events.clone(),
    ));

    let path = info::agent_door(spool);
    let _ = std::fs::remove_file(&path);
    let door = UnixDatagram::bind(&path).with_context(|| path.display().to_string())?;
    door.set_nonblocking(true)?;
    setsockopt(&door, PassCred, &true)?;
    let door = sys::watch(door, Interest::READABLE)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
    let receive = |door: &UnixDatagram| descriptors::receive_connection(door);
    tokio::spawn(welcome(door, receive, path, next, events));
    Ok(())
}

/// Serves everybody who comes, by connecting or with a connection that has been made. Then the first request is there
/// already, and the agent is woken once for both.
async fn welcome<T: AsRawFd>(
    socket: AsyncFd<T>,
    come: impl Fn(&T) -> io::Result<Option<(UnixStream, u32)>>,
    path: PathBuf,
    next: Arc<AtomicU64>,
    events: mpsc::UnboundedSender<Event>,
) {
    loop {
        match socket.async_io(Interest::READABLE, &come).await {
            Ok(Some((stream, uid))) => {
                let conn = next.fetch_add(1, Ordering::Relaxed) + 1;
                tokio::spawn(serve(stream, uid, conn, events.clone()));
            }
            Ok(None) => {}
            Err(e) => {
                log::error!("{}: {e}", path.display());
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(stream: UnixStream, uid: u32, conn: u64, events: mpsc::UnboundedSender<Event>) {
    let socket = match Socket::new(stream) {
        Ok(socket) => socket,
        Err(e) => return log::error!("connection {conn}: {e}"),
    };
    let writer = socket.clone();
    let (reply, mut replies) = mpsc::unbounded_channel::<AgentReply>();
    let answering = tokio::spawn(async move {
        while let Some(reply) = replies.recv().await {
            let mut frames = frame::encode(&reply);
            while let Ok(more) = replies.try_recv() {
                frame::encode_into(&more, &mut frames);
            }
            if writer.write_all(&frames).await.is_err() {
                return;
            }
        }
    });
    let ended = read_requests(socket, |request, streams| {
        let _ = events.send(Event::Request {
            conn,
            uid,
            request: Box::new(request),
            streams,
            reply: reply.clone(),
        });
    })
    .await;
    log::debug!("connection {conn}: {ended}");
    answering.abort();
    let _ = events.send(Event::Closed(conn));
}

/// Hands on every request that comes, with the streams that come with it; gives why no more come.
async fn read_requests(
    socket: Socket,
    mut take: impl FnMut(AgentRequest, Option<HandedOver>),
) -> String {
    let (mut frames, mut descriptors) = (Frames::default(), VecDeque::new());
    let mut come = socket.receive_first(&mut frames, &mut descriptors).await;
    loop {
        match come {
            Ok(0) => return "closed by the other side".to_owned(),
            Ok(_) => {}
            Err(e) => return e.to_string(),
        }
        loop {
            let request = match frames.take() {
                Ok(Some(request)) => request,
                Ok(None) => break,
                Err(e) => return e.to_string(),
            };
            let streams = match &request {
                AgentRequest::Create(spec) if spec.hands_streams => {
                    HandedOver::take(&mut descriptors)
                }
                _ => None,
            };
            take(request, streams);
        }
        // Anybody may connect: what no request wants must not pile up.
        if descriptors.len() > HandedOver::COUNT {
            return "it sends descriptors without requests for them".to_owned();
        }
        come = socket.receive(&mut frames, &mut descriptors).await;
    }
}

impl Agent {
    pub(super) fn asked(
        &mut self,
        conn: u64,
        uid: u32,
        request: AgentRequest,
        streams: Option<HandedOver>,
        reply: Reply,
    ) {
        match request {
            AgentRequest::Create(spec) => self.create_step(Asked {
                conn,
                uid,
                spec: *spec,
                streams,
                reply,
            }),
            AgentRequest::StartStep(launch, below) => {
                self.start_here(*launch, super::step_node::Origin::Remote(reply, below));
            }
            AgentRequest::StepNodeEnded {
                job,
                key,
                step,
                position,
                end,
                others,
                onwards,
            } => {
                let mut ends = vec![(position, *end)];
                ends.extend(others);
                self.others_ended((job, step), &key, ends, onwards, reply);
            }
            AgentRequest::SignalStep {
                job,
                key,
                step,
                signal,
                below,
            } => {
                let Some((run, _)) = self.jobs.with_key(job, &key) else {
                    return refuse(&reply, RefusalCode::AccessDenied);
                };
                if !below.is_empty() {
                    let request = AgentRequest::SignalStep {
                        job,
                        key,
                        step,
                        signal,
                        below: Vec::new(),
                    };
                    self.signal_below(&request, &below);
                }
                self.signal_from_lead(run, step, signal);
                let _ = reply.send(AgentReply::Done);
            }
            AgentRequest::TakeStepNumber { job, key } => {
                let spec = StepSpec {
                    job,
                    key,
                    argv: vec![String::new()],
                    ..StepSpec::default()
                };
                self.take_step_number(Asked {
                    conn,
                    uid,
                    spec,
                    streams: None,
                    reply,
                });
            }
            AgentRequest::Inspect { job } => self.inspect(job, uid, |_| Wish::Processes, reply),
            AgentRequest::Measure { job } => self.inspect(job, uid, Wish::Usage, reply),
        }
    }

    /// Other nodes' parts of a step have ended.
    fn others_ended(
        &mut self,
        key: StepKey,
        job_key: &ByteVec,
        ends: Vec<(u32, StepEnd)>,
        onwards: bool,
        reply: Reply,
    ) {
        let known = self
            .jobs
            .with_key(key.0, job_key)
            .map(|(_, job)| job.leads());
        match known {
            Some(false) if onwards && self.node_steps.part(key).is_some() => {
                self.tell_end(key, ends, Some(reply));
            }
            _ if onwards => refuse(&reply, RefusalCode::JobNotHere),
            None if self.jobs.latest(key.0).is_some() => refuse(&reply, RefusalCode::AccessDenied),
            // A job that is forgotten needs no report of its steps any more.
            _ => {
                self.nodes_ended(key, ends);
                let _ = reply.send(AgentReply::Done);
            }
        }
    }

    fn signal_from_lead(&mut self, run: Run, step: StepNo, signal: u32) {
        let order = if signal == libc::SIGTERM.unsigned_abs() {
            ToShim::EndStep { run, step }
        } else {
            ToShim::Signal {
                run,
                step: Some(step),
                signal: i32::try_from(signal).unwrap_or(0),
                scope: muster_core::command::SignalScope::Steps,
            }
        };
        self.shim_order(&order);
    }

    fn inspect(&mut self, job: JobId, uid: u32, wish: impl Fn(Run) -> Wish, reply: Reply) {
        let latest = self
            .jobs
            .latest(job)
            .and_then(|(run, j)| Some((run, j.grant.as_ref()?.spec.owner.uid)));
        match latest {
            _ if self.shim.is_none() => refuse(&reply, RefusalCode::Busy),
            None => refuse(&reply, RefusalCode::InvalidJobId),
            Some((_, owner)) if uid != 0 && uid != owner => {
                refuse(&reply, RefusalCode::AccessDenied);
            }
            Some((run, _)) => {
                self.next_tag += 1;
                self.inspections.insert(self.next_tag, (wish(run), reply));
                self.shim_order(&ToShim::Inspect {
                    job,
                    tag: self.next_tag,
                });
            }
        }
    }

    pub(super) fn inspected(&mut self, tag: u64, list: Vec<Process>) {
        if self.sampled(tag, &list) {
            return;
        }
        let Some((wish, reply)) = self.inspections.remove(&tag) else {
            return;
        };
        let _ = reply.send(match wish {
            Wish::Processes => AgentReply::Processes(list),
            Wish::Usage(run) => {
                let mut now = measure::steps(&list, &self.options.name);
                let seen = self.samples_of(run);
                for (step, usage) in &mut now {
                    if let Some((_, seen)) = seen.iter().find(|(s, _)| s == step) {
                        usage.raise(seen);
                    }
                }
                AgentReply::Measured(now)
            }
        });
    }

    pub(super) fn closed(&mut self, conn: u64) {
        self.step_client_gone(conn);
    }
}

fn refuse(reply: &Reply, code: RefusalCode) {
    let _ = reply.send(AgentReply::Refused(Refusal::from(code)));
}
