//! The relay of a node: takes connections from other hosts, of srun, of other agents and of step daemons, has the agent say which
//! secret they must have, and connects them with the agent or with a step daemon's socket. What goes through them it carries,
//! encrypted ([`muster_channel`]).
//!
//! It is a process of its own, of the agent's account, since it outlives the agent: streams of steps go on while slurmd is
//! restarted. Once its agent is gone it accepts nobody any more, and ends with its last connection.

pub(crate) mod control;

use crate::failure;
use crate::role::{self, FIRST_FD, RELAY_NAME};
use crate::sys;
use crate::syscall_filter;
use anyhow::Context as _;
use control::{Control, ToAgent, ToRelay};
use muster_channel::admission::{Bounds, Refusals, StrangerId, Strangers};
use muster_channel::relay::{read_opening, relay};
use muster_channel::{Channel, Opening, Responder, SECRET, Scheme};
use muster_proto::frame;
use muster_proto::hello::{ChannelAnswer, ChannelHello};
use muster_proto::version::Versions;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

/// Connections of which nobody knows yet whose they are.
const STRANGERS: Bounds = Bounds {
    all: 1024,
    of_address: 256,
};
/// How long somebody may remain one. The controller's word of a job may still be on its way to the agent.
const STRANGER_MAX: Duration = Duration::from_secs(20);
/// Waits after an error of accept(2).
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Runs as a relay, as the supervisor has started this process.
pub fn relay_main() -> ExitCode {
    failure::end_on_panic();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{RELAY_NAME}: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    sys::set_undumpable().context("this process cannot be protected from others")?;
    role::read_order()?;
    let listener = std::net::TcpListener::from(role::take_descriptor(FIRST_FD)?);
    let agent = role::take_descriptor(FIRST_FD + 1)?;
    if let Err(e) = syscall_filter::apply() {
        eprintln!("{RELAY_NAME}: there is no filter of system calls: {e:#}");
    }
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the asynchronous runtime")?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let relay = Rc::new(Relay {
            agent: Control::new(agent)?,
            asked: RefCell::default(),
            strangers: RefCell::new(Strangers::new(STRANGERS)),
            tasks: RefCell::default(),
            refusals: RefCell::default(),
            open: RefCell::new(0),
            all_closed: Notify::new(),
        });
        let listener = TcpListener::from_std(listener)?;
        tokio::select! {
            () = relay.accept(listener) => {}
            ended = relay.take_answers() => {
                if let Err(e) = ended {
                    eprintln!("{RELAY_NAME}: the agent is not understood: {e}");
                }
            }
        }
        relay.drain().await;
        Ok(())
    })
}

/// Where the agent's answer to a question goes.
type Answer = oneshot::Sender<Result<([u8; SECRET], Option<String>), String>>;

struct Relay {
    agent: Control,
    asked: RefCell<HashMap<StrangerId, Answer>>,
    strangers: RefCell<Strangers>,
    tasks: RefCell<HashMap<StrangerId, AbortHandle>>,
    refusals: RefCell<Refusals>,
    /// Connections that are carried.
    open: RefCell<usize>,
    all_closed: Notify,
}

/// A stranger, as long as it is one.
struct Presence {
    relay: Rc<Relay>,
    id: StrangerId,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.relay.strangers.borrow_mut().leave(self.id);
        self.relay.tasks.borrow_mut().remove(&self.id);
        if self.relay.asked.borrow_mut().remove(&self.id).is_some() {
            let _ = self.relay.agent.send(&ToAgent::Gone(self.id), None);
        }
    }
}

/// A connection that is carried.
struct Open(Rc<Relay>);

impl Drop for Open {
    fn drop(&mut self) {
        let mut open = self.0.open.borrow_mut();
        *open -= 1;
        if *open == 0 {
            self.0.all_closed.notify_one();
        }
    }
}

impl Relay {
    async fn accept(self: &Rc<Relay>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((tcp, from)) => self.admit(tcp, from),
                Err(e) => {
                    eprintln!("{RELAY_NAME}: cannot accept a connection: {e}");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    /// Takes the agent's answers until it is gone.
    async fn take_answers(&self) -> std::io::Result<()> {
        while let Some((answer, _)) = self.agent.receive::<ToRelay>().await? {
            let (number, answer) = match answer {
                ToRelay::Verified {
                    number,
                    secret,
                    path,
                } => (number, Ok((*secret, path))),
                ToRelay::Refused { number, why } => (number, Err(why)),
            };
            // It may have gone meanwhile.
            let asked = self.asked.borrow_mut().remove(&number);
            if let Some(asked) = asked {
                let _ = asked.send(answer);
            }
        }
        Ok(())
    }

    /// Waits for the end of what is carried; nobody else is served any more.
    async fn drain(&self) {
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        tasks.values().for_each(AbortHandle::abort);
        while *self.open.borrow() > 0 {
            self.all_closed.notified().await;
        }
    }

    fn admit(self: &Rc<Relay>, tcp: TcpStream, from: SocketAddr) {
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        let (id, gone) = self.strangers.borrow_mut().admit(from.ip());
        let evicted = gone.and_then(|gone| self.tasks.borrow_mut().remove(&gone));
        if let Some(task) = evicted {
            task.abort();
        }
        let presence = Presence {
            relay: Rc::clone(self),
            id,
        };
        let relay_of = Rc::clone(self);
        let task = tokio::task::spawn_local(async move {
            let met = tokio::time::timeout(STRANGER_MAX, relay_of.meet(id, tcp)).await;
            drop(presence);
            match met {
                Ok(Ok((local, tcp, channel))) => {
                    *relay_of.open.borrow_mut() += 1;
                    let open = Open(relay_of);
                    // In a task of its own, which is nobody's to abort.
                    tokio::task::spawn_local(async move {
                        // Both ends notice what has become of it.
                        let _ = relay(local, tcp, channel).await;
                        drop(open);
                    });
                }
                Ok(Err(why)) => relay_of.log_refusal(from, &why),
                Err(_) => relay_of.log_refusal(from, "it did not say in time who it is"),
            }
        });
        self.tasks.borrow_mut().insert(id, task.abort_handle());
    }

    fn log_refusal(&self, from: SocketAddr, why: &str) {
        let line = self.refusals.borrow_mut().line(from, why, Instant::now());
        if let Some(line) = line {
            eprintln!("{RELAY_NAME}: {line}");
        }
    }

    /// Finds out whether somebody has the key of what he wants to reach, and connects him with it.
    async fn meet(
        &self,
        id: StrangerId,
        mut tcp: TcpStream,
    ) -> Result<(UnixStream, TcpStream, Channel), String> {
        tcp.set_nodelay(true).map_err(|e| e.to_string())?;
        let opening = read_opening(&mut tcp).await?;
        match self.connect(id, &opening).await {
            Ok((local, answer, channel)) => {
                let sent = tcp.write_all(&answer).await;
                sent.map_err(|e| e.to_string())?;
                Ok((local, tcp, channel))
            }
            Err(why) => {
                // It may have gone.
                let _ = tcp.write_all(&Responder::refusal(&why)).await;
                let _ = tcp.shutdown().await;
                Err(why)
            }
        }
    }

    async fn connect(
        &self,
        id: StrangerId,
        opening: &Opening,
    ) -> Result<(UnixStream, Vec<u8>, Channel), String> {
        if opening.scheme != Scheme::Job {
            return Err("nodes are reached with the key of a job".to_owned());
        }
        let (secret, path) = self.ask_agent(id, &opening.credential).await?;
        let (responder, hello) = Responder::accept(opening, &secret).map_err(|e| e.to_string())?;
        let hello: ChannelHello =
            frame::decode(&hello).map_err(|e| format!("its greeting cannot be read: {e}"))?;
        Versions::CLUSTER
            .check(&hello.greeting, "the program there", "this node's slurmd")
            .map_err(|refusal| refusal.detail)?;
        let local = match path {
            Some(path) => UnixStream::connect(&path)
                .await
                .map_err(|e| format!("its step daemon cannot be reached: {e}"))?,
            None => self.connect_agent(id).map_err(|e| e.to_string())?,
        };
        let said = frame::encode(&ChannelAnswer {
            greeting: Versions::CLUSTER.greeting(),
            cluster: String::new(),
        });
        let said = said.get(4..).unwrap_or_default();
        let (answer, channel) = responder.answer(said).map_err(|e| e.to_string())?;
        Ok((local, answer, channel))
    }

    async fn ask_agent(
        &self,
        id: StrangerId,
        credential: &[u8],
    ) -> Result<([u8; SECRET], Option<String>), String> {
        let (answer, answered) = oneshot::channel();
        self.asked.borrow_mut().insert(id, answer);
        let question = ToAgent::Verify {
            number: id,
            credential: credential.to_vec(),
        };
        let gone = || "this node's agent is not there".to_owned();
        self.agent.send(&question, None).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    /// A connection to the agent, which knows whose it is.
    fn connect_agent(&self, id: StrangerId) -> std::io::Result<UnixStream> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        let far = OwnedFd::from(far);
        self.agent.send(&ToAgent::Connected(id), Some(&far))?;
        UnixStream::from_std(near)
    }
}
